"""The closed set of records that a session is made of, and their encoding.

A record is a tagged MessagePack array. `Samples` is by far the most frequent, so its columns are
arrays of small integers: about ten bytes a sample.

Schema history
  1  first version
  2  what the user chose (baseline, window, pace) and what the run told of itself (progress, the
     sensors' state) are records too
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from usv_tui.codes import Code
from usv_tui.model import (
    Advice,
    BenchInfo,
    ClockState,
    Count,
    DeviceInfo,
    Flag,
    Index,
    Notice,
    Ns,
    Reading,
    RowState,
    RunConfig,
    RunPhase,
    Sample,
    Size,
    TimerInfo,
)

SCHEMA = 3


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Base of all records. `at_ns` is on the session's clock (monotonic nanoseconds)."""


class Start(Record, tag="start", frozen=True):
    """The first record: what is measured, where, and how the clock maps to the calendar."""

    schema: int
    at_ns: Ns
    wall_unix_ns: Size
    suite: str
    config: RunConfig
    environment: dict[str, Any] = {}
    simulated: str = ""
    """Scenario and card when the device is simulated, else empty."""


class Device(Record, tag="device", frozen=True):
    """The device that is watched, and what of it can be read."""

    at_ns: Ns
    info: DeviceInfo


class Chosen(Record, tag="chosen", frozen=True):
    """The device that the worker measures, and by what it can be told from all others."""

    at_ns: Ns
    device: str
    """As torch names it: cpu, cuda:0; or sim:CARD:SCENARIO."""
    reason: str
    identity: dict[str, Any] = {}
    """uuid, pci, name, total_memory, vendor, torch versions: whatever the framework tells."""


class Progress(Record, tag="progress", frozen=True):
    """What the worker as a whole does."""

    at_ns: Ns
    phase: str
    """A `RunPhase`; a later version may have others."""
    detail: str = ""
    is_failure: bool = False
    """It ended with something left undone that no row's error tells of."""

    @property
    def is_end(self) -> bool:
        """True for the last one of a worker."""
        return self.phase == RunPhase.ENDED


class Fault(Record, tag="fault", frozen=True):
    """The worker cannot go on: a user's mistake, a missing device or its own death."""

    at_ns: Ns
    exit_code: int
    message: str
    hint: str = ""
    traceback: str = ""


class Timing(Record, tag="timer", frozen=True):
    """The timer in use."""

    at_ns: Ns
    info: TimerInfo


class Bench(Record, tag="bench", frozen=True):
    """A row exists."""

    at_ns: Ns
    info: BenchInfo


class Skip(Record, tag="skip", frozen=True):
    """A thing in the file that is not timed."""

    at_ns: Ns
    name: str
    reason: str
    is_refused: bool = False
    """It was asked for by name, and cannot be."""


class State(Record, tag="state", frozen=True):
    """A row changed state."""

    at_ns: Ns
    bench: Index
    state: RowState
    detail: str = ""


class Calibrated(Record, tag="calib", frozen=True):
    """A row's calls per window, its cache mode and what that is made of."""

    at_ns: Ns
    bench: Index
    inner: Count
    per_call_ns: Ns
    cache: str = "warm"
    """The badge: warm, warm+reset, not warm, as-is, cold, rotating(n) or unavailable."""
    flush_bytes: Size = 0
    l2_bytes: Size | None = None
    mode: str = "eager"
    """eager or graph."""
    refill: int = 0
    """Untimed calls right before each window."""
    here_ns: int | None = None
    """One call as it is timed, beside the neighbours; None: not looked at."""
    alone_ns: int | None = None
    """One call right behind a window of its own, at the same time."""


class Samples(Record, tag="s", frozen=True):
    """A block of whole rounds (the last may be cut short): column i is the i-th slot in time.

    Slot i belongs to round `round + i // size`. `dt_ns` counts from `t0_ns`. `inner` of length one
    holds for all slots, `host_ns` is empty when equal to the windows, `flags` is empty when all
    are `flag`.
    """

    round: Index
    size: Count
    t0_ns: Ns
    bench: list[Index]
    dt_ns: list[Ns]
    window_ns: list[Ns]
    inner: list[Count]
    host_ns: list[Ns] = []
    flags: list[Index] = []
    flag: Index = 0

    @property
    def is_whole(self) -> bool:
        """True when all columns are of one length."""
        n = len(self.bench)
        return (
            n == len(self.dt_ns) == len(self.window_ns)
            and len(self.inner) in (1, n)
            and len(self.host_ns) in (0, n)
            and len(self.flags) in (0, n)
        )

    @property
    def end_ns(self) -> int:
        """When its last window ended."""
        return self.t0_ns + self.dt_ns[-1] + self.window_ns[-1] if self.dt_ns else self.t0_ns

    def inners(self) -> list[int]:
        """Calls per window of every slot."""
        return self.inner * len(self.bench) if len(self.inner) == 1 else self.inner

    def all_flags(self) -> list[int]:
        """The flags of every slot."""
        return self.flags or [self.flag] * len(self.bench)

    def samples(self) -> Iterator[Sample]:
        """The samples, one by one: for exports and tests, not for the live path."""
        hosts = self.host_ns or self.window_ns
        columns = zip(
            self.bench,
            self.dt_ns,
            self.window_ns,
            self.inners(),
            hosts,
            self.all_flags(),
            strict=True,
        )
        for i, (b, dt, w, k, h, f) in enumerate(columns):
            yield Sample(b, self.round + i // self.size, i % self.size, self.t0_ns + dt, w, k, h, f)


class Telemetry(Record, tag="t", frozen=True):
    """One reading of the watched device."""

    reading: Reading


class ProbeClock(Record, tag="probe", frozen=True):
    """The clock measured inside the stream, per sample of one round."""

    round: Index
    at_ns: list[Ns]
    sm_mhz: list[float]

    @property
    def is_whole(self) -> bool:
        """True when both columns are of one length."""
        return len(self.at_ns) == len(self.sm_mhz)


class Noted(Record, tag="note", frozen=True):
    """Self-diagnosis and events."""

    notice: Notice


class BenchError(Record, tag="error", frozen=True):
    """A row failed and is retired; the others go on."""

    at_ns: Ns
    bench: Index
    kind: str
    """The exception's class name, or hang, oom, coroutine …"""
    message: str
    """One line."""
    traceback: str = ""
    fatal: bool = False
    """True when the device's context is lost and nothing can be timed any more."""


class Mark(Record, tag="mark", frozen=True):
    """A new epoch: statistics start afresh."""

    at_ns: Ns
    label: str
    bench: Index | None = None
    """Only this row's statistics, when given."""


class Gap(Record, tag="gap", frozen=True):
    """Measuring stood still on purpose between two times."""

    from_ns: Ns
    to_ns: Ns
    reason: str


class Rebuilt(Record, tag="rebuilt", frozen=True):
    """Rows were built afresh and have other buffers from now on; their statistics go on."""

    at_ns: Ns
    benches: list[Index]
    took_ns: Ns = 0


class Visit(Record, tag="visit", frozen=True):
    """A stretch of a clock sweep at one clock, after it had settled."""

    from_ns: Ns
    to_ns: Ns
    mhz: Index | None
    """None: the clocks were free."""


class Clocks(Record, tag="clocks", frozen=True):
    """What is known about the clocks has changed."""

    at_ns: Ns
    state: ClockState


class Advised(Record, tag="advice", frozen=True):
    """The lock advice has changed: in sessions of schema 1; since then the fold advises."""

    at_ns: Ns
    advice: Advice


class Baseline(Record, tag="base", frozen=True):
    """The user chose the row that all others are compared with."""

    at_ns: Ns
    bench: Index | None
    """None: each group's own."""


class Window(Record, tag="window", frozen=True):
    """The user chose the size of the rolling window."""

    at_ns: Ns
    samples: Count


class Ghosts(Record, tag="ghosts", frozen=True):
    """What another session said of rows of the same name: shown beside, never paired."""

    at_ns: Ns
    source: str
    """Which one, and what of it differs from this one."""
    medians_s: dict[str, float]


class Paced(Record, tag="pace", frozen=True):
    """The pace from now on."""

    at_ns: Ns
    spec: str


class Headway(Record, tag="headway", frozen=True):
    """How far a run with a goal is, in words."""

    at_ns: Ns
    words: str


class Watching(Record, tag="watch", frozen=True):
    """What the watcher of the sensors says of itself: empty when all is well."""

    at_ns: Ns
    state: str


class Output(Record, tag="out", frozen=True):
    """Text that the user's code wrote to fd 1 or 2."""

    at_ns: Ns
    text: str


class Version(Record, tag="version", frozen=True):
    """One of two versions that this session compares; rows say which one they are of."""

    at_ns: Ns
    index: Index
    """0 is what the other is compared with."""
    label: str
    what: str = ""
    """In words: the commit, the folder, the file, the interpreter."""
    commit: str = ""
    is_dirty: bool = False
    """The tree held changes that are in no commit."""
    python: str = ""


class Launch(Record, tag="launch", frozen=True):
    """Both versions run in fresh processes from here on; samples that follow are of this launch."""

    at_ns: Ns
    number: Count
    base: Index
    """The round that the first turns begin with."""
    rounds: Count
    """Of a turn; those of both versions in a pair of turns have the same numbers."""
    seed: int = 0
    """Of the order of turns."""


class Launched(Record, tag="launched", frozen=True):
    """A launch has come to its end, and what handing over the turn has cost."""

    at_ns: Ns
    number: Count
    turns: Size
    rounds: Count
    handover_ns: Ns
    """Median of one."""
    handover_p99_ns: Ns
    share: float
    """Of the time of the launch."""
    opening: Size = 0
    """First rounds of a turn that differ from its others, and are flagged."""


class End(Record, tag="end", frozen=True):
    """The last record of a session that ended in order."""

    at_ns: Ns
    reason: str
    complete: bool = True


class Image(Record, tag="image", frozen=True):
    """What a fold of all records before it comes to, for the version that wrote it; in parts."""

    at_ns: Ns
    version: str
    part: Index
    parts: Count
    state: bytes


AnyRecord = (
    Start
    | Chosen
    | Progress
    | Fault
    | Device
    | Timing
    | Bench
    | Skip
    | State
    | Calibrated
    | Samples
    | Telemetry
    | ProbeClock
    | Noted
    | BenchError
    | Mark
    | Gap
    | Clocks
    | Advised
    | Baseline
    | Ghosts
    | Window
    | Paced
    | Headway
    | Watching
    | Output
    | Visit
    | Rebuilt
    | Version
    | Launch
    | Launched
    | End
    | Image
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode(record: AnyRecord) -> bytes:
    """One record as MessagePack."""
    return _encoder.encode(record)


def decode(data: bytes | bytearray | memoryview) -> AnyRecord:
    """The inverse of `encode`.

    Raises:
        msgspec.DecodeError: the bytes are not a record of this schema.
    """
    return _decoder.decode(data)


def encode_batch(records: Sequence[AnyRecord]) -> bytes:
    """Several records as one MessagePack array, each of which `decode` is sure to read.

    What a user's file brought and a record cannot hold (half a character, an integer above 64
    bits, any object) goes in as text, and a record that even so could not be read is replaced by a
    notice: it must neither end a run nor cost the records beside it.
    """
    return _encoder.encode([_readable(record) for record in records])


def _readable(record: AnyRecord) -> AnyRecord:
    if isinstance(record, Samples | ProbeClock):
        return record  # columns of the engine's own integers, and nearly all of a session
    try:
        return _decoder.decode(_encoder.encode(record))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _mended(record)


def _mended(record: AnyRecord) -> AnyRecord:
    try:
        plain = _plain(msgspec.to_builtins(record, enc_hook=str))
        return _decoder.decode(_encoder.encode(plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return not_kept(record, str(error))


def not_kept(record: AnyRecord, why: str) -> Noted:
    """What stands in the place of a record that a file cannot hold."""
    evidence = {"kind": type(record).__name__, "reason": why.encode("utf-8", "replace").decode()}
    at_ns = time_of(record)
    at_ns = at_ns if abs(at_ns) <= 1 << 60 else 0
    return Noted(Notice(code=Code.NOT_KEPT, at_ns=at_ns, level="error", evidence=evidence))


def time_of(record: AnyRecord) -> int:
    """When it happened, on the session's clock; 0 for a record of no single moment."""
    if isinstance(record, Telemetry):
        return record.reading.at_ns
    if isinstance(record, Noted):
        return record.notice.at_ns
    at_ns = getattr(record, "at_ns", 0)
    return at_ns if isinstance(at_ns, int) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return _digits(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python turns into text
        return f"an integer of {value.bit_length()} bits"


class Command(msgspec.Struct, frozen=True, array_like=True):
    """What a user may ask of a running worker.

    Verbs: pause, resume, stop, mark LABEL, pace SPEC, solo BENCH, all, on BENCH, off BENCH,
    cache BENCH MODE, ramp, quiet 0|1, realloc BENCH.
    """

    verb: str
    argument: str = ""
    bench: int | None = None


__all__ = [
    "SCHEMA",
    "Advised",
    "AnyRecord",
    "Baseline",
    "Bench",
    "BenchError",
    "Calibrated",
    "Chosen",
    "Clocks",
    "Command",
    "Device",
    "End",
    "Fault",
    "Flag",
    "Gap",
    "Ghosts",
    "Headway",
    "Image",
    "Launch",
    "Launched",
    "Mark",
    "Noted",
    "Output",
    "Paced",
    "ProbeClock",
    "Progress",
    "Rebuilt",
    "Record",
    "Samples",
    "Skip",
    "Start",
    "State",
    "Telemetry",
    "Timing",
    "Version",
    "Visit",
    "Watching",
    "Window",
    "decode",
    "encode",
    "encode_batch",
    "not_kept",
    "time_of",
]
