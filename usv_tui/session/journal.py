"""The session on disk: append-only frames that read up to the last whole one after any accident.

File = magic, then frames. Frame = length (u32), CRC-32 of the payload (u32), payload. Payload =
zlib of a MessagePack array of records, everything since the last flush. The kernel has the bytes
after each flush, so a killed process loses at most one flush interval.

A file that ends within a frame, or in the zeros that a power cut leaves, was cut: it reads up to
there. Damage with whole frames behind it is left out, and a notice stands in its place. Where
another session follows (files that were joined), the first is read, and a notice ends it.
"""

import errno
import fcntl
import os
import stat
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import platformdirs

from usv_tui.codes import Code
from usv_tui.descriptors import Identity, out_of_the_way
from usv_tui.errors import UsageError
from usv_tui.model import Notice
from usv_tui.records import (
    SCHEMA,
    AnyRecord,
    Noted,
    ProbeClock,
    Samples,
    Start,
    encode_batch,
    not_kept,
    time_of,
)
from usv_tui.units import bytes_text

MAGIC = b"USVJ\x01\r\n\x1a"
_FRAME = struct.Struct("<II")
_PACKED = b"\x78\x01"
"""What a payload begins with: zlib's header at level 1."""
_MOST_WRITTEN = 1 << 22
"""A frame holds at most so many bytes before they are packed, unless one record has more."""
_MOST_READ = 1 << 25
"""A frame that would unpack to more is damage, or a bomb."""

_PIECE = 1 << 26
"""So much of a file is held at once, unless a frame is larger."""

_LAST_WORD = 400
"""Room that the notice of a full file takes at most."""

_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
_loose: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])


def sessions_dir() -> Path:
    """Where sessions are kept when no path is given: the user's state directory."""
    return Path(platformdirs.user_state_dir("usv-tui", appauthor=False)) / "sessions"


class Journal:
    """Writes one session. A write error (a full disk) ends the journal, never the run."""

    def __init__(self, path: Path, keep_bytes: int | None = None) -> None:
        """Create the file; it stops before it is larger than `keep_bytes`, and says so.

        Raises:
            UsageError: the path cannot be written, or exists already.
        """
        self.failure = ""
        """Why nothing is written any more; empty while all is well."""
        self.full = ""
        """Why nothing more is written though all is well: it is as large as it may be."""
        self.bytes_written = 0
        self._keep_bytes = keep_bytes
        self._pending: list[AnyRecord] = []
        self._adding, self._writing = threading.Lock(), threading.Lock()
        if path.parent.exists() and not path.parent.is_dir():
            raise UsageError(
                f"cannot write {path}: {path.parent} is not a directory",
                "give a writable path with --save",
            )
        try:
            self.path = path.absolute()  # a benchmark may change the working directory
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            self._fd = out_of_the_way(fd)
        except FileExistsError:
            raise UsageError(
                f"{path} exists already", "sessions are never overwritten: give another --save"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}", "give a writable path with --save"
            ) from None
        self._identity = Identity(self._fd)
        with suppress(OSError):  # a file system without locks: then nobody can tell
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write(MAGIC)

    def add(self, records: Iterable[AnyRecord]) -> None:
        """Keep records for the next flush."""
        with self._adding:
            self._pending.extend(records)

    def flush(self) -> None:
        """Hand everything kept to the kernel, as one frame unless it is very much."""
        with self._writing:
            with self._adding:
                pending, self._pending = self._pending, []
            if not pending or self.failure or self.full:
                return
            for part in _parts(pending):
                frame = _frame(part)
                if self._keep_bytes is None or self._has_room(len(frame)):
                    self._write(frame)
                    continue
                self._end_early(time_of(pending[-1]))
                return

    def _has_room(self, size: int) -> bool:
        """Also for the word that it ends."""
        return self.bytes_written + size + _LAST_WORD <= (self._keep_bytes or 0)

    def _end_early(self, at_ns: int) -> None:
        self.full = (
            f"the session's file has the {bytes_text(self._keep_bytes or 0)} that --keep allows: "
            "what follows is not in it"
        )
        evidence = {"reason": self.full}
        word = Noted(Notice(code=Code.KEEP_REACHED, at_ns=at_ns, level="warn", evidence=evidence))
        self._write(_frame(encode_batch([word])))

    def close(self) -> None:
        """Flush and close. Never raises."""
        self.flush()
        if self._fd >= 0 and self._identity.holds(self._fd):
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that outlives us may have it too
            try:
                os.close(self._fd)
            except OSError as error:
                self._fail(error)
        self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        if not self._identity.holds(self._fd):
            # Its number may be a file of the user's by now.
            self._fail(OSError(errno.EBADF, "a benchmark closed its descriptor"))
            return
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._fail(error)
            return
        self.bytes_written += len(data)

    def _fail(self, error: OSError) -> None:
        word = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        self.failure = f"the session is no longer saved to {self.path}: {word}"


def _frame(part: bytes) -> bytes:
    payload = zlib.compress(part, 1)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _parts(records: Sequence[AnyRecord]) -> Iterator[bytes]:
    encoded = encode_batch(records)
    if len(encoded) <= _MOST_WRITTEN or len(records) == 1:
        yield encoded if len(encoded) <= _MOST_READ else encode_batch([_too_large(records[0])])
        return
    middle = len(records) // 2
    yield from _parts(records[:middle])
    yield from _parts(records[middle:])


def _too_large(record: AnyRecord) -> AnyRecord:
    return not_kept(record, f"it takes more than {_MOST_READ >> 20} MiB")


def read(path: Path) -> Iterator[AnyRecord]:
    """The records of a session, up to the last whole frame.

    Raises:
        UsageError: no such file, not a session, or written by a newer version.
    """
    yield from Reader(path).records()


def check(path: Path) -> None:
    """Whether this is a session, by how it begins.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        with _opened(path) as file:
            _check_magic(path, file.read(len(MAGIC)))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def is_written(path: Path) -> bool:
    """True while the run that writes this session goes on, in any process."""
    with suppress(OSError, UsageError), _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading. Opening a pipe could wait for ever, and it cannot be read twice."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UsageError(f"cannot read {path}: it is no plain file", "save the session in a file")
    return file


def _check_magic(path: Path, data: bytes) -> None:
    if not data.startswith(MAGIC) and not MAGIC.startswith(data):
        raise UsageError(f"{path} is not a usv-tui session")


class Span(NamedTuple):
    """Where a frame lies in its file."""

    at: int
    end: int


class Reader:
    """Reads a session from where it stopped the last time: a file may still grow.

    Of the file it holds a piece at a time.
    """

    def __init__(self, path: Path, *, after: Span | None = None, last_ns: int = 0) -> None:
        """Begin at the head, or behind a frame up to which the records tell of that time."""
        self._path = path
        self.at = 0 if after is None else after.end
        """How much of the file has been read: whole frames."""
        self._last_ns = last_ns
        self._has_begun = after is not None
        self._is_over = False
        """Another session follows in the same file."""
        self.span = Span(0, 0)
        """Where the last batch lies; what stands for damage lies nowhere."""
        self.size = 0
        """The file's, when it was last looked at."""

    def records(self) -> Iterator[AnyRecord]:
        """What is new, one by one; raises as `read` does."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[Sequence[AnyRecord]]:
        """What is new, frame by frame; raises as `read` does."""
        room = _PIECE
        while not self._is_over:
            before = self.at
            data, is_all = self._rest(room)
            yield from self._whole_in(data, is_all=is_all)
            if is_all:
                return
            room = _PIECE if self.at > before else 2 * room

    def _whole_in(self, data: bytes, *, is_all: bool) -> Iterator[Sequence[AnyRecord]]:
        base = self.at
        if not base:
            _check_magic(self._path, data)
            if len(data) < len(MAGIC):
                return
            self.at = len(MAGIC)
        while self.at - base < len(data):
            offset = self.at - base
            if offset and not is_all and _runs_out(data, offset):
                return
            end = _end_of_frame(data, offset)
            found: list[AnyRecord] | str = "its checksum is wrong"
            if data.startswith(MAGIC, offset):
                end, found = None, []
                self._is_over = True
            elif end is not None:
                found = _records(self._path, data[offset + _FRAME.size : end])
                is_next = self._has_begun and any(isinstance(record, Start) for record in found)
                self._is_over = is_next and not isinstance(found, str)
            else:
                end = _next_frame(data, offset + 1)
                if not is_all and end == len(data):
                    return
            self.span = Span(0, 0)
            if self._is_over:
                yield [_joined(self.at, self.size - self.at, self._last_ns)]
                return
            if end is None:
                return
            if isinstance(found, str):
                found = [_damage(self.at, end - offset, found, self._last_ns)]
            else:
                self.span = Span(self.at, base + end)
            self._has_begun = True
            self.at = base + end
            self._last_ns = max((time_of(record) for record in found), default=self._last_ns)
            yield found

    def _rest(self, room: int) -> tuple[bytes, bool]:
        """So many bytes that have not been read, and whether these are all."""
        try:
            with _opened(self._path) as file:
                self.size = os.fstat(file.fileno()).st_size
                file.seek(self.at)
                data = file.read(room)
                return data, not file.read(1)
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror}") from None


def records_at(path: Path, span: Span) -> list[AnyRecord]:
    """The records of one frame that has been read before.

    Raises:
        UsageError: it cannot be read any more.
    """
    try:
        with _opened(path) as file:
            file.seek(span.at)
            data = file.read(span.end - span.at)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    found = _records(path, data[_FRAME.size :]) if _end_of_frame(data, 0) else "it has changed"
    if isinstance(found, str):
        raise UsageError(f"cannot read {path} again: {found}", "was it overwritten?")
    return found


def frames_beginning_with(path: Path, mark: bytes) -> list[Span]:
    """Of the whole frames at a session's head those whose records begin with these bytes.

    Raises:
        UsageError: it cannot be read.
    """
    found: list[Span] = []
    try:
        with _opened(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                return found
            while len(head := file.read(_FRAME.size)) == _FRAME.size:
                length, crc = _FRAME.unpack(head)
                at = file.tell() - _FRAME.size
                payload = file.read(min(length, _MOST_READ))
                if not payload or len(payload) < length or zlib.crc32(payload) != crc:
                    break
                if _begins_with(payload, mark):
                    found.append(Span(at, file.tell()))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return found


def _begins_with(payload: bytes, mark: bytes) -> bool:
    """Whether its first record does: behind the heads of two arrays, of one to five bytes each."""
    try:
        head = zlib.decompressobj().decompress(payload[:256], len(mark) + 10)
    except zlib.error:
        return False
    return 0 < head.find(mark) <= 10


def _runs_out(data: bytes, offset: int) -> bool:
    """The piece ends within what may be a frame that begins here."""
    if offset + _FRAME.size > len(data):
        return True
    length, _ = _FRAME.unpack_from(data, offset)
    return bool(offset + _FRAME.size + length > len(data)) and length <= _MOST_READ


def _end_of_frame(data: bytes, offset: int) -> int | None:
    """Where the frame that begins here ends; None when no whole one does."""
    if offset + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, offset)
    end: int = offset + _FRAME.size + length
    if length == 0 or end > len(data):
        return None
    return end if zlib.crc32(memoryview(data)[offset + _FRAME.size : end]) == crc else None


def _next_frame(data: bytes, offset: int) -> int | None:
    """Where the next whole frame begins; the file's end when its last frame is damaged.

    None when nothing whole can follow: the file was cut.
    """
    at = data.find(_PACKED, offset + _FRAME.size)
    while at >= 0:
        if _end_of_frame(data, at - _FRAME.size) is not None:
            return at - _FRAME.size
        at = data.find(_PACKED, at + 1)
    start = offset - 1
    if start + _FRAME.size > len(data):
        return None
    length, _ = _FRAME.unpack_from(data, start)
    is_whole = length > 0 and start + _FRAME.size + length <= len(data)
    return len(data) if is_whole else None


def _records(path: Path, payload: bytes) -> list[AnyRecord] | str:
    """What a frame holds; why it cannot be read though its checksum is right.

    Raises:
        UsageError: a newer version wrote it.
    """
    raw = _unpacked(payload)
    if raw is None:
        return f"it does not unpack to {_MOST_READ >> 20} MiB or less"
    try:
        records = _decoder.decode(raw)
    except RecursionError:
        return "it is nested too deeply"
    except msgspec.DecodeError as error:
        _refuse_future(path, _start_schema(raw))
        return f"this version of usv-tui does not know such records: {error}"
    for record in records:
        if isinstance(record, Start):
            _refuse_future(path, record.schema)
        elif isinstance(record, Samples | ProbeClock) and not record.is_whole:
            return "it has columns of unequal length"
    return records


def _unpacked(payload: bytes) -> bytes | None:
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(payload, _MOST_READ)
    except zlib.error:
        return None
    return raw if unpacker.eof and not unpacker.unused_data else None


def _start_schema(raw: bytes) -> int:
    """The schema that the first of some undecodable records tells; 0 for none."""
    try:
        first = _loose.decode(raw)[0]
    except (msgspec.DecodeError, RecursionError, IndexError):
        return 0
    is_start = isinstance(first, list) and first[:1] == ["start"] and len(first) > 1
    return first[1] if is_start and isinstance(first[1], int) else 0


def _refuse_future(path: Path, schema: int) -> None:
    if schema > SCHEMA:
        raise UsageError(
            f"{path} was written with schema {schema}, by a newer usv-tui",
            f"this version reads up to {SCHEMA}: update usv-tui",
        )


def _joined(at: int, size: int, at_ns: int) -> Noted:
    evidence = {"at_byte": at, "bytes": size}
    return Noted(Notice(code=Code.JOINED_SESSIONS, at_ns=at_ns, level="error", evidence=evidence))


def _damage(at: int, size: int, reason: str, at_ns: int) -> Noted:
    evidence = {"at_byte": at, "bytes": size, "reason": reason}
    return Noted(Notice(code=Code.DAMAGED_SESSION, at_ns=at_ns, level="error", evidence=evidence))
