"""The clock inside the stream: readings of counters, and kernels that compile without a GPU."""

import os
from collections.abc import Iterator

import pytest

from tests.fakes.fake_cuda import FakeTensor, FakeTorch
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.probe import KernelProbe, Mark, SpinProbe, find_probe, mean_mhz
from usv_tui.timers.spin import SleepRate

US = 1_000
MS = 1_000_000


@pytest.mark.parametrize(
    ("a", "b", "mhz"),
    [
        (Mark(0, 0, 3), Mark(1_500_000, MS, 3), 1500.0),
        (Mark(10**12, 10**15, 0), Mark(10**12 + 1_980_000, 10**15 + MS, 0), 1980.0),
        (Mark(0, 0, 3), Mark(1_500_000, MS, 4), None),
        (Mark(0, 0, 3), Mark(150_000, 100 * US, 3), None),
        (Mark(0, 0, 3), Mark(10**9, 300 * MS, 3), None),
        (Mark(5, 0, 3), Mark(0, MS, 3), None),
    ],
)
def test_two_readings_give_a_clock_only_when_they_belong_together(
    a: Mark, b: Mark, mhz: float | None
) -> None:
    """Other multiprocessor, too short, too long or a counter that went back: no clock."""
    assert mean_mhz(a, b) == mhz


class Counters:
    """A kernel probe on the fake device: its kernel writes the cycles of a clock that moves."""

    def __init__(self, tick_ns: int = 1) -> None:
        self.torch = FakeTorch(sm_mhz=self.mhz)
        self.unit = 0
        pool = EventPool(self.torch.cuda)
        self.probe = KernelProbe(self.torch, pool, self._run, tick_ns)
        self.tick_ns = tick_ns
        self._cycles = 0.0
        self._at_ns = self.torch.now_ns()

    def mhz(self, at_ns: int) -> float:
        """Falls from 1900 to 1500 MHz in half a second."""
        return 1900 - 400 * min(1.0, (at_ns - 10**9) / 5e8)

    def _run(self, out: FakeTensor) -> None:
        torch = self.torch
        torch.kernel(1500)
        now_ns = torch.cuda.current_stream().free_ns
        self._cycles += (now_ns - self._at_ns) * self.mhz((now_ns + self._at_ns) // 2) * 1e-3
        self._at_ns = now_ns
        out.data[:3] = (int(self._cycles), now_ns // self.tick_ns, self.unit)

    def work(self, launches: int) -> Iterator[tuple[int, float]]:
        """Kernels of a millisecond with a reading after each, as a timer does it."""
        for i in range(launches):
            self.torch.kernel(MS)
            self.probe.launch()
            if i % 20 == 0:
                self.torch.cuda.synchronize()
            yield from self.probe.read(lambda event: event.at_ns)
        self.torch.cuda.synchronize()
        yield from self.probe.read(lambda event: event.at_ns, all_=True)


@pytest.mark.parametrize("tick_ns", [1, 10])
def test_kernel_readings_follow_the_clock(tick_ns: int) -> None:
    """Between any two readings the quotient is the mean clock, at the middle of the two."""
    counters = Counters(tick_ns)

    clocks = list(counters.work(400))

    assert len(clocks) == 399
    for at_ns, mhz in clocks:
        assert mhz == pytest.approx(counters.mhz(at_ns), rel=1e-3)


def test_readings_survive_the_ring() -> None:
    """Three thousand readings go through a ring of a thousand; none is lost or mixed up."""
    counters = Counters()

    clocks = list(counters.work(3000))

    assert len(clocks) == 2999
    assert all(1499 < mhz < 1901 for _, mhz in clocks)
    assert [at for at, _ in clocks] == sorted(at for at, _ in clocks)


def test_a_full_ring_is_not_written_over() -> None:
    """Readings that nobody has fetched yet are kept; new ones are left out."""
    counters = Counters()
    for _ in range(1500):
        counters.torch.kernel(MS)
        counters.probe.launch()
    counters.torch.cuda.synchronize()

    clocks = counters.probe.read(lambda event: event.at_ns)

    assert len(clocks) == 1022


def test_readings_of_another_multiprocessor_are_not_compared() -> None:
    """When the kernel lands elsewhere, the two spans that touch it give no clock."""
    counters = Counters()
    list(counters.work(5))
    counters.unit = 1
    list(counters.work(1))
    counters.unit = 0

    assert len(list(counters.work(4))) == 3


def test_spin_overhead_is_taken_off() -> None:
    """A spin's launch is no part of its clock, and one with a gap before it does not count."""
    torch = FakeTorch(sm_mhz=1200)
    pool = EventPool(torch.cuda)
    probe = SpinProbe(torch.cuda, pool, SleepRate(1e3 / 1200, 900 + 1300))
    for _ in range(6):
        probe.launch()
    torch.cuda.synchronize()

    clocks = probe.read(lambda event: event.at_ns)

    assert [mhz for _, mhz in clocks] == [pytest.approx(1200, rel=2e-3)] * 5


@pytest.mark.parametrize(
    ("torch", "sleep", "words"),
    [
        (FakeTorch(), None, "no spin kernel"),
        (FakeTorch(hip="6.4", arch="gfx1100"), SleepRate(1.0, 0.0), "does not count core cycles"),
    ],
)
def test_without_any_probe_there_is_a_reason(
    torch: FakeTorch, sleep: SleepRate | None, words: str
) -> None:
    """No kernel and no spin: no probe, and why."""
    probe, why = find_probe(torch, EventPool(torch.cuda), sleep)

    assert probe is None
    assert words in why


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize(
    ("name", "target", "text", "binary", "words"),
    [
        (
            "read_nvidia",
            ("cuda", 90, 32),
            "ptx",
            "cubin",
            ["%clock64", "%globaltimer", "%smid", "st.global"],
        ),
        (
            "read_amd",
            ("hip", "gfx942", 64),
            "amdgcn",
            "hsaco",
            ["s_memtime", "s_memrealtime", "HW_REG_XCC_ID", "global_store"],
        ),
    ],
)
def test_clock_kernels_compile_without_a_gpu(
    name: str,
    target: tuple[object, ...],
    text: str,
    binary: str,
    words: list[str],
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For an H100 and an MI300 the generated code reads both counters and stores them."""
    monkeypatch.setitem(os.environ, "TRITON_CACHE_DIR", str(tmp_path))
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    from usv_tui.timers import probe_kernels

    source = triton.compiler.ASTSource(
        fn=getattr(probe_kernels, name), signature={"out": "*i64"}, constexprs={}
    )
    compiled = triton.compile(source, target=compiler.GPUTarget(*target), options={"num_warps": 1})

    assert all(word in compiled.asm[text] for word in words)
    assert compiled.asm[binary][:4] == b"\x7fELF"
    order = [compiled.asm[text].index(word) for word in words[:2]]
    assert order == sorted(order)
