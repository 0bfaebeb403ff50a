"""Self-diagnosis: a table of faults against checks, and silence where nothing is wrong."""

import asyncio
import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from usv_tui.diagnosis import checks
from usv_tui.diagnosis.checks import (
    BenchFault,
    DeviceState,
    RowEvidence,
    diagnose,
    failure_kind,
    vet_result,
    vet_state,
)
from usv_tui.diagnosis.roofline import (
    Roofline,
    cpu_roofline,
    facts_of,
    faster_than_roofline,
    roofline_from,
    roofline_of,
)
from usv_tui.diagnosis.vocabulary import BADGES, Finding
from usv_tui.model import Flag, Reason
from usv_tui.report.wording.findings import SENTENCES
from usv_tui.stats.basics import correlation_time
from usv_tui.stats.modes import MIN_SAMPLES, find_modes
from usv_tui.stats.stalls import StallFinder

US = 1_000
MS = 1_000_000
STARVED = int(Flag.STARVED)
ROOF = Roofline(2e15, 3.35e12, "test card")
CLEAN_SEEDS = 200


def row(window_ns: np.ndarray, **options: object) -> RowEvidence:
    """Evidence of one row, by default one call a window and a host that is far ahead."""
    window_ns = np.asarray(window_ns, np.int64)
    n = window_ns.size
    values: dict[str, object] = {
        "window_ns": window_ns,
        "inner": np.ones(n, np.int64),
        "host_ns": np.full(n, 12 * US, np.int64),
        "flags": np.zeros(n, np.int64),
        "floor_ns": 1300,
        "resolution_ns": 32,
        "roofline": ROOF,
        "cache_bytes": 50 << 20,
    }
    values |= options
    judged = StallFinder().find(window_ns / np.asarray(values["inner"]))
    flags = np.asarray(values["flags"], np.int64)
    values["flags"] = np.where(judged.is_stall & (flags == 0), int(Flag.STALL), flags)
    seconds = window_ns / np.asarray(values["inner"]) / 1e9
    if n >= MIN_SAMPLES:
        tick_s = values["resolution_ns"] / 1e9 / float(np.median(values["inner"]))
        n_eff = n / correlation_time(seconds)
        values["modes"] = find_modes(seconds, tick_s, n_eff)
    return RowEvidence(**values)


def noise(rng: np.random.Generator, n: int, sd: float = 0.01) -> np.ndarray:
    """Independent noise around one."""
    return np.exp(rng.normal(0, sd, n))


def autoregressive(rng: np.random.Generator, n: int, phi: float, sd: float = 0.01) -> np.ndarray:
    """Noise that stays alike for a while."""
    y = np.zeros(n)
    e = rng.normal(0, sd * np.sqrt(1 - phi * phi), n)
    for i in range(1, n):
        y[i] = phi * y[i - 1] + e[i]
    return np.exp(y)


# -- clean scenarios: 200 seeds each, no finding at all

N = 1500
CLEAN: dict[str, Callable[[np.random.Generator], RowEvidence]] = {
    "independent": lambda rng: row(500 * US * noise(rng, N)),
    "heavy tails": lambda rng: row(
        500 * US * np.exp(0.01 * np.clip(rng.standard_t(3, N), -30, 30))
    ),
    "slow noise": lambda rng: row(500 * US * autoregressive(rng, N, 0.9)),
    "very slow noise": lambda rng: row(500 * US * autoregressive(rng, N, 0.97)),
    "coarse timer": lambda rng: row(
        np.round(20 * US * noise(rng, N) / 500) * 500, resolution_ns=500
    ),
    "stragglers": lambda rng: row(
        500 * US * noise(rng, N) * np.where(rng.random(N) < 0.01, rng.uniform(1.5, 4, N), 1)
    ),
    "a few starved": lambda rng: row(
        20 * US * noise(rng, N), flags=np.where(rng.random(N) < 0.2, STARVED, 0)
    ),
    "long kernels after each drain": lambda rng: row(
        5 * MS * noise(rng, N), flags=np.full(N, STARVED, np.int64)
    ),
    "short run": lambda rng: row(500 * US * noise(rng, 60)),
    "warm-up that is flagged": lambda rng: row(
        500 * US * noise(rng, N) * (1 + 0.3 * np.exp(-np.arange(N) / 100)),
        flags=np.where(np.arange(N) < 700, int(Flag.WARMUP), 0),
    ),
    "honest work": lambda rng: row(
        500 * US * noise(rng, N), flops=500e-6 * 600e12, bytes=500e-6 * 2e12
    ),
    "many calls a window": lambda rng: row(
        1000 * US * noise(rng, N), inner=np.full(N, 200, np.int64)
    ),
    "wall clock": lambda rng: row(
        500 * US * noise(rng, N), host_ns=np.full(N, 500 * US, np.int64), is_async=False
    ),
}


@pytest.mark.parametrize("name", list(CLEAN))
def test_clean_rows_have_no_findings(name: str) -> None:
    """Two hundred seeds of a scenario without a fault: not one false alarm."""
    alarms = {
        seed: [f.code for f in found]
        for seed in range(CLEAN_SEEDS)
        if (found := diagnose(CLEAN[name](np.random.default_rng(seed))))
    }

    assert alarms == {}


# -- faulty scenarios: each is found, and nothing else is


def spiked(
    rng: np.random.Generator, at: list[int], length_ns: int, **options: object
) -> RowEvidence:
    """A clean row with a few windows of another length."""
    window_ns = (500 * US * noise(rng, N)).astype(np.int64)
    window_ns[at] = length_ns
    return row(window_ns, **options)


def compiled_late(rng: np.random.Generator) -> RowEvidence:
    """The 700th call takes 300 ms on the host and in the window."""
    host_ns = np.full(N, 12 * US, np.int64)
    host_ns[700] = 299 * MS
    return spiked(rng, [700], 300 * MS, host_ns=host_ns)


FAULTY: dict[str, tuple[set[str], Callable[[np.random.Generator], RowEvidence]]] = {
    "slow start": (
        {"not warmed up"},
        lambda rng: row(500 * US * noise(rng, N) * (1 + 0.08 * np.exp(-np.arange(N) / 150))),
    ),
    "late compile": ({"compiling inside", "stalls"}, compiled_late),
    "stalls of the device": ({"stalls"}, lambda rng: spiked(rng, [100, 900, 901], 60 * MS)),
    "short kernels": (
        {"CPU-bound"},
        lambda rng: row(
            9 * US * noise(rng, N), host_ns=np.full(N, 10 * US), flags=np.full(N, STARVED)
        ),
    ),
    "nearly empty": (
        {"below timer floor"},
        lambda rng: row(3 * US * noise(rng, N), host_ns=np.full(N, 2 * US)),
    ),
    "two modes": (
        {"two modes"},
        lambda rng: row(500 * US * noise(rng, N, 0.003) * np.where(rng.random(N) < 0.3, 1.05, 1)),
    ),
    "kept answer": (
        {"cached result", "below timer floor"},
        lambda rng: row(np.r_[40 * MS, 1300 + rng.integers(0, 3, N - 1) * 32]),
    ),
    "too many operations": (
        {"faster than roofline"},
        lambda rng: row(500 * US * noise(rng, N), flops=500e-6 * 9e15),
    ),
    "too many bytes": (
        {"faster than roofline"},
        lambda rng: row(500 * US * noise(rng, N), bytes=500e-6 * 9e12),
    ),
    "data from the cache": (
        {"fits in cache"},
        lambda rng: row(10 * US * noise(rng, N), bytes=10e-6 * 5e12),
    ),
    "cold, and faster than DRAM": (
        {"faster than roofline"},
        lambda rng: row(10 * US * noise(rng, N), bytes=10e-6 * 5e12, cache="cold"),
    ),
}


@pytest.mark.parametrize("name", list(FAULTY))
def test_faults_are_found_and_nothing_else(name: str) -> None:
    """Each fault raises its own findings in every one of twenty seeds; a spike is a stall too."""
    codes, make = FAULTY[name]

    for seed in range(20):
        found = {f.code for f in diagnose(make(np.random.default_rng(seed)))}
        assert codes <= found <= codes | {"stalls"}


# -- checks with evidence of their own: a faulty and a clean case each

Case = Callable[[], Finding | list[Finding] | None]
GRAVE = int(Reason.SW_POWER_CAP | Reason.SW_THERMAL)
SINGLE: dict[str, tuple[Case, Case]] = {
    "synchronises": (
        lambda: checks.synchronises(2, 100, None, 2e6),
        lambda: checks.synchronises(0, 3 * MS, 3.1 * MS, 2e6),
    ),
    "synchronises, behind a spin": (
        lambda: checks.synchronises(0, 300 * US, 2.3 * MS, 2e6),
        lambda: checks.synchronises(0, 300 * US, None, 2e6),
    ),
    "work outside the stream": (
        lambda: checks.outside_stream([245 * US] * 8, 5 * US, [6 * US] * 8),
        lambda: None,
    ),
    "memory grows": (
        lambda: checks.memory_grows([0, 100, 200, 300, 400]),
        lambda: checks.memory_grows([0, 400, 400, 400, 400]),
    ),
    "cold that is warm": (
        lambda: checks.cold_that_is_warm(
            inner=50, is_cold_each=False, flush_bytes=1 << 30, cache_bytes=1 << 20
        ),
        lambda: checks.cold_that_is_warm(
            inner=50, is_cold_each=True, flush_bytes=1 << 30, cache_bytes=1 << 20
        ),
    ),
    "fits in cache": (
        lambda: checks.fits_in_cache(60 << 20, 50 << 20),
        lambda: checks.fits_in_cache(100 << 20, 50 << 20),
    ),
    "launch blocking": (
        lambda: checks.distortions(
            {"CUDA_LAUNCH_BLOCKING": "1"}, is_profiling=False, is_anomaly=False
        ),
        lambda: checks.distortions(
            {"CUDA_LAUNCH_BLOCKING": "0"}, is_profiling=False, is_anomaly=False
        ),
    ),
    "profiler on": (
        lambda: checks.distortions({}, is_profiling=True, is_anomaly=False),
        lambda: checks.distortions({}, is_profiling=False, is_anomaly=False),
    ),
    "anomaly detection": (
        lambda: checks.distortions({}, is_profiling=False, is_anomaly=True),
        lambda: checks.distortions({}, is_profiling=False, is_anomaly=False),
    ),
}


def test_what_is_longer_more_often_than_by_chance() -> None:
    """Six long looks of six against none say something; one, or as many as before, do not."""
    base = [5.0 * US] * 6

    assert checks.longer([200.0 * US] * 6, base, 20 * US).chance < 2e-3
    assert checks.longer([200.0 * US, *base[:5]], base, 20 * US).chance > 0.3
    half = [200.0 * US, 5.0 * US] * 10
    assert not checks.longer(half, half, 20 * US).is_more_often
    assert checks.longer(half, half, 20 * US).chance > 0.5


@pytest.mark.parametrize("name", list(SINGLE))
def test_single_checks_fire_on_the_fault_and_only_there(name: str) -> None:
    """The faulty case gives a finding with a badge, the clean one beside it gives none."""
    faulty, clean = SINGLE[name]

    found = faulty()
    first = found[0] if isinstance(found, list) else found

    assert first is not None
    assert first.code in BADGES
    assert not clean()


def every_finding() -> list[Finding]:
    """One finding of each kind that the two tables make."""
    found = [f for _, make in FAULTY.values() for f in diagnose(make(np.random.default_rng(0)))]
    for faulty, _ in SINGLE.values():
        result = faulty()
        found += result if isinstance(result, list) else [result] if result else []
    return found


def test_every_finding_reads_as_a_line() -> None:
    """Each code has its words, made of the evidence that the check gives."""
    spoken_elsewhere = {"not warmed up", "flush unavailable", "stuck"}
    for found in every_finding():
        if found.code in spoken_elsewhere:
            continue
        line = SENTENCES[found.code](found.evidence)
        assert line
        assert "\n" not in line


def test_every_badge_is_short() -> None:
    """A badge is a word or two: it stands in a narrow column."""
    assert all(0 < len(badge) <= 15 for badge in BADGES.values())
    assert set(SENTENCES) <= set(BADGES)


# -- edges


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_windows_say_nothing(n: int) -> None:
    """Below twenty windows nothing is claimed of a row."""
    assert diagnose(row(np.full(n, 100))) == []


def test_windows_that_do_not_count_are_not_looked_at() -> None:
    """Zeros and warm-up are flagged, left out, and disturb no check."""
    window_ns = np.r_[np.zeros(50), 500 * US * noise(np.random.default_rng(1), 500)]
    flags = np.r_[np.full(50, int(Flag.NONPOSITIVE)), np.zeros(500)].astype(np.int64)

    assert diagnose(row(window_ns, flags=flags)) == []


def test_constant_windows_are_clean() -> None:
    """A simulated device without any noise gives no alarm and no division by zero."""
    assert diagnose(row(np.full(500, 500 * US))) == []


def test_an_unknown_card_is_judged_by_what_no_card_can() -> None:
    """Without peaks only the absurd is called implausible: a petaflop is let pass."""
    clean = row(500 * US * noise(np.random.default_rng(0), 100), roofline=None)

    assert diagnose(replace(clean, flops=500e-6 * 1e15)) == []
    found = diagnose(replace(clean, flops=1e15))
    assert found[0].evidence["tflops"] > 1e6


def test_ceilings_come_from_the_devices_properties() -> None:
    """An H100 has about 4 PFLOP/s with sparsity in its narrowest type, and 3.35 TB/s."""
    h100 = SimpleNamespace(
        multi_processor_count=132,
        clock_rate=1_980_000,
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
        major=9,
        minor=0,
    )
    mi300 = SimpleNamespace(
        multi_processor_count=304,
        clock_rate=2_100_000,
        memory_clock_rate=1_300_000,
        memory_bus_width=8192,
        gcnArchName="gfx942:sramecc+:xnack-",
        major=9,
        minor=4,
    )

    assert roofline_of(h100, is_amd=False).flops_per_s == pytest.approx(4.28e15, rel=0.01)
    assert roofline_of(h100, is_amd=False).bytes_per_s == pytest.approx(3.35e12, rel=0.01)
    assert roofline_of(mi300, is_amd=True).flops_per_s == pytest.approx(5.23e15, rel=0.01)
    assert roofline_of(mi300, is_amd=True).bytes_per_s == pytest.approx(5.32e12, rel=0.01)


def test_properties_that_are_missing_give_no_ceiling() -> None:
    """An older torch tells no clocks, a new chip is not in the table: None, not a guess."""
    bare = SimpleNamespace(multi_processor_count=132, major=9, minor=0)
    unknown = SimpleNamespace(
        multi_processor_count=200, clock_rate=2_000_000, major=42, minor=0, memory_clock_rate=None
    )

    assert roofline_of(bare, is_amd=False)[:2] == (None, None)
    assert roofline_of(unknown, is_amd=False)[:2] == (None, None)


def test_zero_seconds_are_not_divided_by() -> None:
    """A row without a time is not compared with any ceiling."""
    assert faster_than_roofline(0.0, flops=1e12, bytes_=1e12, roofline=ROOF) is None


def cpu_root(root: Path, flags: str, mhz: int | None, key: str = "flags") -> Path:
    """What the kernel tells of the CPUs that this process may use."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor : 0\n{key} : {flags}\n")
    for cpu in os.sched_getaffinity(0) if mhz else ():
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(f"{mhz}000\n")
    return root


@pytest.mark.parametrize(
    ("flags", "mhz", "key", "operations"),
    [
        ("fpu sse2 avx avx2", 3000, "flags", 192),
        ("sse2 avx2 avx512f amx_int8", 4000, "flags", 2304),
        ("fp asimd i8mm", 3500, "Features", 512),
        ("strange", 1000, "flags", 8192),
        ("avx2", None, "flags", 192),
    ],
)
def test_a_cpu_has_a_ceiling_from_its_cores_clock_and_flags(
    tmp_path: Path, flags: str, mhz: int | None, key: str, operations: int
) -> None:
    """Cores, highest clock (or more than any has) and vector unit bound what can be computed."""
    roof = cpu_roofline(cpu_root(tmp_path, flags, mhz, key))
    cores = len(os.sched_getaffinity(0))

    assert roof.flops_per_s == pytest.approx(cores * (mhz or 6500) * 1e6 * operations)
    assert f"{mhz or 6500} MHz" in roof.source


def test_a_cpu_that_tells_nothing_still_has_a_ceiling(tmp_path: Path) -> None:
    """No file of the kernel's can be read: generous, and not boundless."""
    roof = cpu_roofline(tmp_path)

    assert roof.flops_per_s is not None
    assert roof.flops_per_s < 1e15 * len(os.sched_getaffinity(0))


def test_impossible_rates_of_a_cpu_are_implausible_and_cached_data_are_not(tmp_path: Path) -> None:
    """Thousands of TFLOP/s are named; 300 GB/s a core out of a cache are nobody's fault."""
    roof = cpu_roofline(cpu_root(tmp_path, "avx2", 4000))
    cores = len(os.sched_getaffinity(0))

    def found(flops: float | None, bytes_: float | None) -> Finding | None:
        return faster_than_roofline(1e-3, flops=flops, bytes_=bytes_, roofline=roof)

    impossible = found(3652e9 * cores, None)
    assert impossible is not None
    assert impossible.code == "faster than roofline"
    assert "AVX2" in impossible.evidence["source"]
    assert found(100e6 * cores, 300e6 * cores) is None
    assert found(None, 2e9 * cores) is not None


def test_a_roofline_travels_with_the_identity(tmp_path: Path) -> None:
    """What the worker found out is what the checks compare with; an older record has no ceiling."""
    roof = cpu_roofline(cpu_root(tmp_path, "avx2", 4000))

    assert roofline_from(facts_of(roof)) == roof
    assert roofline_from({"name": "x"}) is None


def test_a_rate_above_the_dram_is_no_fault_while_the_cache_is_unknown() -> None:
    """A warm row whose data may come from a cache of a size that nobody told is not accused."""
    seconds, bytes_ = 10e-6, 10e-6 * 5e12

    assert faster_than_roofline(seconds, flops=None, bytes_=bytes_, roofline=ROOF) is None


# -- callables that measure nothing, or spoil the rows beside them


async def coroutine() -> int:
    """Runs nothing when it is called."""
    return 1


def generator() -> object:
    """Runs nothing when it is called."""
    yield 1


async def async_generator() -> object:
    """Runs nothing when it is called."""
    yield 1


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (coroutine, "coroutine"),
        (generator, "generator"),
        (async_generator, "generator"),
        (lambda: map(str, [1]), "lazy"),
        (lambda: zip([1], [2], strict=True), "lazy"),
    ],
)
def test_a_result_of_which_nothing_ran_is_named(make: Callable[[], object], kind: str) -> None:
    """Coroutines, generators and lazy iterators are faults, and closing them leaves no warning."""
    fault = vet_result(make())
    gc.collect()

    assert fault is not None
    assert fault.kind == kind
    assert fault.hint


def test_a_future_that_nobody_waits_for_is_named() -> None:
    """An awaitable of another kind is a fault as well."""
    loop = asyncio.new_event_loop()
    try:
        fault = vet_result(loop.create_future())
    finally:
        loop.close()

    assert fault is not None
    assert fault.kind == "awaitable"


@pytest.mark.parametrize("result", [None, 3, (1, 2), {"a": 1}, np.zeros(3), [1], "text", range(3)])
def test_ordinary_results_are_no_fault(result: object) -> None:
    """What callables usually return is let pass."""
    assert vet_result(result) is None


HOME = DeviceState(device=0, stream=0, is_capturing=False, is_grad_enabled=True)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"device": 1}, "changes device"),
        ({"stream": 7}, "changes stream"),
        ({"stream": 7, "is_capturing": True}, "leaves a capture open"),
        ({"is_grad_enabled": False}, "changes grad mode"),
    ],
)
def test_state_that_a_call_leaves_changed_is_named(change: dict[str, object], kind: str) -> None:
    """The most serious change gives the fault its kind."""
    fault = vet_state(HOME, HOME._replace(**change))

    assert fault is not None
    assert fault.kind == kind
    assert vet_state(HOME, HOME) is None


@pytest.mark.parametrize(
    ("error", "calls", "kind"),
    [
        (IndexError("pop from empty list"), 3, "frees its inputs"),
        (IndexError("index 5 is out of bounds"), 0, "IndexError"),
        (NameError("cannot access free variable 'x'"), 1, "frees its inputs"),
        (RuntimeError("... out of bounds for storage of size 0"), 1, "frees its inputs"),
        (RuntimeError("shape mismatch"), 9, "RuntimeError"),
        (MemoryError(), 5, "oom"),
        (BenchFault("coroutine", "nothing ran"), 1, "coroutine"),
    ],
)
def test_failures_have_a_kind(error: Exception, calls: int, kind: str) -> None:
    """Inputs that are gone after good calls, memory that is full, and faults are told apart."""
    assert failure_kind(error, calls) == kind


@pytest.mark.parametrize("floor_ns", [40, 1300])
def test_windows_without_a_kernel_beside_a_busy_host_are_the_host_s(floor_ns: int) -> None:
    """300 us of Python and half a microsecond in the stream: that alone, and both times."""
    host = np.full(200, 300 * US)
    empty = row(np.full(200, 520), host_ns=host, floor_ns=floor_ns)
    kernel = row(np.full(200, 4000), host_ns=host, floor_ns=floor_ns)
    launch = row(np.full(200, 520), floor_ns=floor_ns)
    [found] = [f for f in diagnose(empty) if f.code in ("host only", "below timer floor")]
    assert (found.code, found.evidence["host_ns"]) == ("host only", 300 * US)
    assert found.evidence["window_ns"] == 520
    assert "host only" not in {f.code for f in diagnose(kernel)}
    assert "host only" not in {f.code for f in diagnose(launch)}
