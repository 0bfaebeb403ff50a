"""Scenarios: what runs, in what state the card starts, who disturbs it and what breaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from usv_tui.errors import UsageError
from usv_tui.model import Verdict
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.physics import dynamic_w, equilibrium, heat, nearest_index, power_at
from usv_tui.sim.profiles import DEFAULT_CARD, Card, find_card

DEFAULT_SCENARIO = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What breaks, in seconds after the start."""

    sensors_lost_s: float | None = None
    lost_sensors: tuple[str, ...] = ("sm_mhz", "power_mw", "temp_c")
    gpu_lost_s: float | None = None
    no_telemetry: str = ""
    """Why there is no telemetry at all; empty when there is some."""
    stall_s: float | None = None
    """A sensor read at that time does not return for `stall_for_s`."""
    stall_for_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One situation, and what to look for in it."""

    name: str
    summary: str
    look_for: str
    kernels: tuple[SimKernel, ...]
    adapt: Callable[[Card], Card] | None = None
    """Changes to the card that make the situation arise on any card."""
    warm: bool = True
    """The card starts as hot as this load makes it in the long run; else cold and idle."""
    neighbours: tuple[Neighbour, ...] = ()
    faults: Faults = field(default_factory=Faults)
    lock: Callable[[Card], int] | None = None
    """A lock of ours that is on from the start, MHz."""
    foreign_lock: Callable[[Card], int] | None = None
    """A lock that somebody else left on the card, MHz."""
    lock_policy: str = "honours"
    """honours, ceiling (bounds from above only), ignores (says yes, does nothing) or refuses."""
    verdict: Verdict = Verdict.UNKNOWN
    """The right advice once the run is long enough; UNKNOWN where none is claimed."""
    duration_s: float = 60.0
    """How long a trace of it is by default."""

    def fit(self, card: Card) -> Card:
        """The card as this scenario has it."""
        return card if self.adapt is None else self.adapt(card)

    def initial_lock_mhz(self, card: Card) -> int | None:
        """Where the session is to lock the (fitted) card at its start; None for no lock.

        Where the driver refuses or ignores locks, one is asked for to show it.
        """
        wish = self.lock or (_base if self.lock_policy in ("ignores", "refuses") else None)
        return None if wish is None else wish(card)

    def activity(self, card: Card) -> float:
        """Mean activity of one interleaved round at the base clock."""
        spans = [k.seconds(card, card.base_mhz) for k in self.kernels if not k.side_stream]
        active = [
            k.activity * k.seconds(card, card.base_mhz) for k in self.kernels if not k.side_stream
        ]
        return sum(active) / sum(spans) if spans else 0.0


def _gemm(**changes: object) -> SimKernel:
    kernel = SimKernel(
        name="gemm",
        t0_ns=1.6e6,
        alpha=0.95,
        activity=1.0,
        flops=1.0e12,
        bytes=4.0e8,
        is_baseline=True,
        cold_gain=0.03,
    )
    return _with(kernel, changes)


def _softmax(**changes: object) -> SimKernel:
    kernel = SimKernel(
        name="softmax",
        t0_ns=1.3e6,
        alpha=0.5,
        activity=0.75,
        flops=4e9,
        bytes=2.0e9,
        cold_gain=0.08,
    )
    return _with(kernel, changes)


def _copy(**changes: object) -> SimKernel:
    kernel = SimKernel(
        name="copy", t0_ns=1.1e6, alpha=0.05, activity=0.5, bytes=2.6e9, cold_gain=0.05
    )
    return _with(kernel, changes)


def _with(kernel: SimKernel, changes: Mapping[str, object]) -> SimKernel:
    return replace(kernel, **changes)  # type: ignore[arg-type]  # field names, checked by replace


def _smaller(kernel: SimKernel, by: float) -> SimKernel:
    """The same kernel on a smaller problem."""
    return replace(
        kernel,
        t0_ns=kernel.t0_ns / by,
        flops=None if kernel.flops is None else kernel.flops / by,
        bytes=None if kernel.bytes is None else kernel.bytes / by,
    )


_TRIO = (_gemm(), _softmax(), _copy())
_LIGHT = (_gemm(activity=0.3), _softmax(activity=0.25), _copy(activity=0.2))


def _capped(card: Card) -> Card:
    """Make the cap bite under a full load: lowered where the card would not reach its own."""
    full_w = heat(card, dynamic_w(card)[equilibrium(card, 0.8).entry] * 0.8)[2]
    return replace(card, cap_w=min(card.cap_w, 0.9 * full_w))


def _badly_cooled(card: Card) -> Card:
    """Block the air so that a full load would be 12 degrees over the thermal limit."""
    index = equilibrium(replace(card, t_sw_c=1e3, t_hw_c=2e3), 0.8).entry
    power_w = min(heat(card, dynamic_w(card)[index] * 0.8)[2], card.cap_w)
    wanted = (card.t_sw_c + 12.0 - card.ambient_c) / power_w
    return replace(card, r_sink=max(card.r_sink, wanted - card.r_die), tau_sink_s=25.0)


def _droopy(card: Card) -> Card:
    """A card whose heatsink soaks within the run and takes some 15 % of the clock with it."""
    index = nearest_index(card, 0.86 * card.max_mhz)
    power_w = power_at(card, dynamic_w(card)[index] * 0.8, card.t_sw_c)
    r_sink = (card.t_sw_c - card.ambient_c) / power_w - card.r_die
    return replace(
        card, r_sink=r_sink, tau_sink_s=18.0, cap_w=1.6 * card.cap_w, boost_dt_c=0.0, t_hw_c=150.0
    )


def _soaking(card: Card) -> Card:
    """A small heatsink and leaky silicon under a cap: the drift of minutes within seconds."""
    capped = _capped(card)
    return replace(
        capped,
        tau_die_s=0.8,
        tau_sink_s=8.0,
        r_sink=(card.t_sw_c - 5.0 - card.ambient_c) / capped.cap_w - card.r_die,
        leak_w=0.13 * capped.cap_w,
        leak_k=0.022,
        power_noise=0.015,
    )


def _base(card: Card) -> int:
    return card.base_mhz


def _held(card: Card) -> int:
    """A clock that the card can hold under the full load."""
    mhz = 0.9 * equilibrium(card, 1.0).mhz
    return card.min_mhz + int((mhz - card.min_mhz) // card.step_mhz) * card.step_mhz


def _top(card: Card) -> int:
    return card.max_mhz


def _attention(kind: str, seq: int, t0_us: float, **changes: object) -> SimKernel:
    """A row of the demo: one way of computing attention at one sequence length."""
    heads, width, batch = 16, 64, 8
    return _with(
        SimKernel(
            name=f"attention[seq={seq},kind={kind}]",
            t0_ns=t0_us * 1e3,
            flops=4.0 * batch * heads * seq * seq * width,
            bytes=4.0 * batch * heads * seq * width * 2,
            group=f"attention[seq={seq}]",
            params={"seq": seq, "kind": kind},
            is_baseline=kind == "math",
            cold_gain=0.15,
            compile_ns=700_000_000 if kind == "flash" else 150_000_000,
        ),
        changes,
    )


_ATTENTION = (
    _attention("math", 1024, 420.0, alpha=0.35, activity=0.70),
    _attention("efficient", 1024, 165.0, alpha=0.80, activity=0.90),
    _attention("flash", 1024, 96.0, alpha=0.92, activity=1.0),
    _attention("math", 2048, 1610.0, alpha=0.30, activity=0.70),
    _attention("efficient", 2048, 560.0, alpha=0.85, activity=0.95),
    _attention("flash", 2048, 318.0, alpha=0.95, activity=1.0),
)

_ALL = (
    Scenario(
        name="attention",
        summary="six attention kernels on a cold card with a small heatsink",
        look_for="times grow and clocks fall for half a minute; the ratios do not move",
        kernels=_ATTENTION,
        adapt=_soaking,
        warm=False,
    ),
    Scenario(
        name="steady",
        summary="a warm card under a light load: nothing limits it",
        look_for="a flat clock and flat times; the advice is that no lock is needed",
        kernels=_LIGHT,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="cold-ramp",
        summary="a cold card under full load",
        look_for="temperature rises for a minute and the times with it; wait before you believe",
        kernels=_TRIO,
        adapt=_capped,
        warm=False,
        verdict=Verdict.WAIT,
        duration_s=24.0,
    ),
    Scenario(
        name="power-cap",
        summary="a warm card that its power cap holds below its boost clock",
        look_for="the clock dithers, compute-bound rows follow it and memory-bound ones do not",
        kernels=(_gemm(), _softmax(activity=0.9), _copy(activity=0.6)),
        adapt=_capped,
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="throttled",
        summary="a card whose power cap was set to 60 %",
        look_for="the power bit is on all the time and the clock is far below base",
        kernels=_TRIO,
        adapt=lambda card: replace(_capped(card), cap_w=0.6 * card.cap_w),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="thermal-saturation",
        summary="blocked air: the card reaches its thermal limit",
        look_for="temperature stands at its limit and the clock far below boost; the bit says why",
        kernels=_TRIO,
        adapt=_badly_cooled,
        verdict=Verdict.THROTTLED_THERMAL,
    ),
    Scenario(
        name="locked",
        summary="the clock is locked where the card can hold it",
        look_for="one clock, the smallest spread; `locked` stays true",
        kernels=_TRIO,
        lock=_held,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="lock-not-held",
        summary="the clock is locked at the maximum, under a power cap",
        look_for="`not held`: the clock sits below the lock and moves as if there were none",
        kernels=(_gemm(), _softmax(activity=0.9), _copy(activity=0.6)),
        adapt=_capped,
        lock=_top,
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="lock-refused",
        summary="the driver refuses to lock clocks",
        look_for="one line that says what it would take; measuring goes on, marked unlocked",
        kernels=_LIGHT,
        lock_policy="refuses",
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="lock-ignored",
        summary="the driver accepts a lock and does nothing",
        look_for="`not held` although the call succeeded",
        kernels=_TRIO,
        adapt=_capped,
        lock_policy="ignores",
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="foreign-lock",
        summary="somebody else left the card locked at its base clock",
        look_for="a clock that stands on one value under any load: `foreign lock?`",
        kernels=_LIGHT,
        foreign_lock=_base,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="memory-bound",
        summary="copies under a power cap: the clock moves, the times do not",
        look_for="alpha near 0; locking would not help",
        kernels=(
            _copy(name="copy", is_baseline=True, activity=1.0),
            _copy(name="add", t0_ns=1.5e6, activity=1.0),
            _copy(name="scale", t0_ns=1.2e6, alpha=0.03, activity=1.0),
        ),
        adapt=_capped,
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="noisy-neighbour",
        summary="another process comes and goes, and takes bandwidth and power",
        look_for="bursts in every row at once; the sharing process is named; ratios hold",
        kernels=_LIGHT,
        neighbours=(Neighbour(power=0.08, gain=0.05, on_s=3.0, off_s=4.0, pid=4711),),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="power-neighbour",
        summary="something beside the card takes part of its power budget at times",
        look_for="the clock steps down in bursts and compute-bound rows with it",
        kernels=_TRIO,
        adapt=_capped,
        neighbours=(Neighbour(power=0.11, on_s=2.5, off_s=3.5),),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="load-step",
        summary="after 25 seconds a second load takes power for good",
        look_for="one step in clock and times; a new level after it",
        kernels=_TRIO,
        adapt=_capped,
        neighbours=(Neighbour(power=0.1, start_s=25.0),),
        verdict=Verdict.WAIT,
        duration_s=35.0,
    ),
    Scenario(
        name="two-modes",
        summary="one kernel has two speeds, at random, at one clock",
        look_for="two humps in one row: `2 modes`; the clock explains none of it",
        kernels=(
            _gemm(activity=0.3),
            _softmax(activity=0.25, mode_p=0.35, mode_gain=0.06),
            _copy(activity=0.2),
        ),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="stragglers",
        summary="one call in a hundred takes much longer",
        look_for="a std far above the MADN; the stragglers are counted, not dropped",
        kernels=tuple(replace(k, straggler_p=0.01, straggler_gain=0.6) for k in _LIGHT),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="launch-noise",
        summary="kernels so short that launch jitter is most of their spread",
        look_for="a wide spread that neither the clock nor a lock explains",
        kernels=tuple(replace(_smaller(k, 8), jitter_ns=9_000.0, activity=0.15) for k in _LIGHT),
        verdict=Verdict.NOT_CLOCK,
        duration_s=20.0,
    ),
    Scenario(
        name="cpu-bound",
        summary="the host needs longer to launch than the device to compute",
        look_for="`CPU-bound`: windows hold launch gaps; the clock falls for want of work",
        kernels=tuple(replace(_smaller(k, 12), host_ns=400_000, activity=0.3) for k in _LIGHT),
        adapt=lambda card: replace(card, util_governor=True),
        duration_s=20.0,
    ),
    Scenario(
        name="non-clock-warmup",
        summary="a kernel that gets 3 % faster in its first half minute at a steady clock",
        look_for="drift without the clock; wait, a lock would not help",
        kernels=tuple(replace(k, warm_gain=0.03, warm_tau_s=10.0) for k in _LIGHT),
        verdict=Verdict.WAIT,
        duration_s=22.0,
    ),
    Scenario(
        name="two-identical",
        summary="the same kernel twice, on a card that loses 15 % of its clock to heat",
        look_for="one after the other, the second looks slower; interleaved, they are the same",
        kernels=(
            _gemm(name="gemm-a", activity=0.8, alpha=1.0),
            _gemm(name="gemm-b", activity=0.8, alpha=1.0, is_baseline=False),
        ),
        adapt=_droopy,
        warm=False,
    ),
    Scenario(
        name="sync-and-streams",
        summary="one kernel waits for the device inside, another works on a side stream",
        look_for="`synchronises` and `work outside stream` on their rows",
        kernels=(
            _gemm(activity=0.3),
            _softmax(activity=0.25, synchronises=True),
            _smaller(_copy(name="copy-aside", activity=0.2, side_stream=True), 20),
        ),
    ),
    Scenario(
        name="one-fails",
        summary="one benchmark raises at its 400th call",
        look_for="its row turns red with the last line of the error; the others go on",
        kernels=(_gemm(activity=0.3), _softmax(activity=0.25, raises_at=400), _copy(activity=0.2)),
    ),
    Scenario(
        name="sensor-loss",
        summary="after 12 seconds clock, power and temperature are no longer reported",
        look_for="gaps and a reason instead of the values; timing goes on",
        kernels=_LIGHT,
        faults=Faults(sensors_lost_s=12.0),
    ),
    Scenario(
        name="sensor-stall",
        summary="after 8 seconds one look at the sensors takes 4 seconds",
        look_for="`stale 4.0 s` beside the values; samples keep flowing",
        kernels=_LIGHT,
        faults=Faults(stall_s=8.0, stall_for_s=4.0),
    ),
    Scenario(
        name="no-telemetry",
        summary="a card without any telemetry",
        look_for="one line that says why; times are measured as ever",
        kernels=_TRIO,
        adapt=_capped,
        faults=Faults(no_telemetry="the driver's management library is not installed"),
    ),
    Scenario(
        name="gpu-lost",
        summary="after 12 seconds the card falls off the bus",
        look_for="one banner; the samples taken so far are kept and saved",
        kernels=_LIGHT,
        faults=Faults(gpu_lost_s=12.0),
    ),
    Scenario(
        name="too-short",
        summary="five seconds of measuring: too little to say anything",
        look_for="`not enough data` instead of a guess",
        kernels=_TRIO,
        adapt=_capped,
        duration_s=5.0,
    ),
)

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def find_scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        UsageError: there is none; the message lists what exists.
    """
    try:
        return SCENARIOS[name]
    except KeyError:
        raise UsageError(f"no scenario {name!r}", f"there are: {', '.join(SCENARIOS)}") from None


def parse_spec(text: str) -> tuple[str, str]:
    """(card, scenario) of `sim`, `sim:CARD` or `sim:CARD:SCENARIO`.

    Raises:
        UsageError: not of that form, or an unknown card or scenario.
    """
    parts = text.split(":")
    if parts[0] != "sim" or len(parts) > 3:
        raise UsageError(f"not a simulated device: {text!r}", "sim, sim:CARD or sim:CARD:SCENARIO")
    card = parts[1] if len(parts) > 1 and parts[1] else DEFAULT_CARD
    scenario = parts[2] if len(parts) > 2 and parts[2] else DEFAULT_SCENARIO
    return find_card(card).key, find_scenario(scenario).name


def describe() -> list[tuple[str, str, str]]:
    """(name, what it is, what to look for) of every scenario, in the order of the demo's list."""
    return [(s.name, s.summary, s.look_for) for s in SCENARIOS.values()]
