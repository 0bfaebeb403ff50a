"""What a scenario is, and what scenarios are made of: kernels, and changes to a card."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from usv_tui.model import Verdict
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.physics import dynamic_w, equilibrium, heat, nearest_index, power_at
from usv_tui.sim.profiles import Card


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
    probe: bool = False
    """The session measures the clock inside the stream, too."""
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
        wish = self.lock or (base_clock if self.lock_policy in ("ignores", "refuses") else None)
        return None if wish is None else wish(card)

    def activity(self, card: Card) -> float:
        """Mean activity of one interleaved round at the base clock."""
        spans = [k.seconds(card, card.base_mhz) for k in self.kernels if not k.side_stream]
        active = [
            k.activity * k.seconds(card, card.base_mhz) for k in self.kernels if not k.side_stream
        ]
        return sum(active) / sum(spans) if spans else 0.0


def gemm(**changes: object) -> SimKernel:
    """A compute-bound kernel at full power."""
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


def softmax(**changes: object) -> SimKernel:
    """A kernel half bound by compute."""
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


def copy(**changes: object) -> SimKernel:
    """A memory-bound kernel."""
    kernel = SimKernel(
        name="copy", t0_ns=1.1e6, alpha=0.05, activity=0.5, bytes=2.6e9, cold_gain=0.05
    )
    return _with(kernel, changes)


def _with(kernel: SimKernel, changes: Mapping[str, object]) -> SimKernel:
    return replace(kernel, **changes)  # type: ignore[arg-type]  # field names, checked by replace


def smaller(kernel: SimKernel, by: float) -> SimKernel:
    """The same kernel on a smaller problem."""
    return replace(
        kernel,
        t0_ns=kernel.t0_ns / by,
        flops=None if kernel.flops is None else kernel.flops / by,
        bytes=None if kernel.bytes is None else kernel.bytes / by,
    )


TRIO = (gemm(), softmax(), copy())
LIGHT = (gemm(activity=0.3), softmax(activity=0.25), copy(activity=0.2))


def capped(card: Card) -> Card:
    """Make the cap bite under a full load: lowered where the card would not reach its own."""
    full_w = heat(card, dynamic_w(card)[equilibrium(card, 0.8).entry] * 0.8)[2]
    return replace(card, cap_w=min(card.cap_w, 0.9 * full_w))


def badly_cooled(card: Card) -> Card:
    """Block the air so that a full load would be 12 degrees over the thermal limit."""
    index = equilibrium(replace(card, t_sw_c=1e3, t_hw_c=2e3), 0.8).entry
    power_w = min(heat(card, dynamic_w(card)[index] * 0.8)[2], card.cap_w)
    wanted = (card.t_sw_c + 12.0 - card.ambient_c) / power_w
    return replace(card, r_sink=max(card.r_sink, wanted - card.r_die), tau_sink_s=25.0)


def droopy(card: Card) -> Card:
    """A card whose heatsink soaks within the run and takes some 15 % of the clock with it."""
    index = nearest_index(card, 0.86 * card.max_mhz)
    power_w = power_at(card, dynamic_w(card)[index] * 0.8, card.t_sw_c)
    r_sink = (card.t_sw_c - card.ambient_c) / power_w - card.r_die
    return replace(
        card, r_sink=r_sink, tau_sink_s=18.0, cap_w=1.6 * card.cap_w, boost_dt_c=0.0, t_hw_c=150.0
    )


def soaking(card: Card) -> Card:
    """A small heatsink and leaky silicon under a cap: the drift of minutes within seconds."""
    card = capped(card)
    return replace(
        card,
        tau_die_s=0.8,
        tau_sink_s=8.0,
        r_sink=(card.t_sw_c - 5.0 - card.ambient_c) / card.cap_w - card.r_die,
        leak_w=0.13 * card.cap_w,
        leak_k=0.022,
        power_noise=0.015,
    )


def base_clock(card: Card) -> int:
    """The clock that its maker rates it at."""
    return card.base_mhz


def held_clock(card: Card) -> int:
    """A clock that the card can hold under the full load."""
    mhz = 0.9 * equilibrium(card, 1.0).mhz
    return card.supported_mhz[int((mhz - card.min_mhz) // card.step_mhz)]


def top_clock(card: Card) -> int:
    """The highest clock of its table."""
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


ATTENTION = (
    _attention("math", 1024, 420.0, alpha=0.35, activity=0.70),
    _attention("efficient", 1024, 165.0, alpha=0.80, activity=0.90),
    _attention("flash", 1024, 96.0, alpha=0.92, activity=1.0),
    _attention("math", 2048, 1610.0, alpha=0.30, activity=0.70),
    _attention("efficient", 2048, 560.0, alpha=0.85, activity=0.95),
    _attention("flash", 2048, 318.0, alpha=0.95, activity=1.0),
)
