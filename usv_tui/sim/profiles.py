"""The simulated cards, as data.

The numbers are plausible, not fitted to silicon: boost table, voltage curve, power and thermal
constants of the class of card that the name says, sensors as such boards are known to behave.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from usv_tui.errors import UsageError, closest
from usv_tui.vendor.kinds import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One simulated card: clocks, voltage, power, heat, governor, timer, sensors."""

    key: str
    name: str
    vendor: str
    """nvidia or amd: which vendor's controls and habits it copies."""

    min_mhz: int
    max_mhz: int
    base_mhz: int
    idle_mhz: int
    step_mhz: float
    """Distance of two entries of the boost table, which shows whole MHz."""
    v_min: float
    v_max: float
    knee_mhz: int
    """Below it the voltage stays at `v_min`."""

    idle_w: float
    dyn_w: float
    """Dynamic power at the maximum clock and activity 1."""
    cap_w: float
    leak_w: float
    """Leakage at 60 degrees."""
    leak_k: float
    """Its growth per degree: leak_w * exp(leak_k * (T - 60))."""

    ambient_c: float
    r_die: float
    """Kelvin per watt, die to heatsink."""
    tau_die_s: float
    r_sink: float
    """Kelvin per watt, heatsink to air."""
    tau_sink_s: float
    t_sw_c: float
    """Software thermal limit."""
    t_hyst_c: float
    t_hw_c: float
    """Above it the hardware halves the clock."""

    governor_ns: int
    """Length of a governor tick."""
    tau_power_s: float
    """Time constant of the governor's power average."""
    ramp_steps: int = 4
    """Steps up per tick while power is below 90 % of the cap."""
    boost_t0_c: float = 0.0
    boost_dt_c: float = 0.0
    """One step less per so many degrees above `boost_t0_c`; 0 for none."""
    idle_after_s: float = 0.5
    util_governor: bool = False
    """The clock also falls, without a reason bit, while the card is busy under 60 % of the time."""
    power_noise: float = 0.03
    power_noise_tau_s: float = 0.15

    r_case: float = 0.0
    """Kelvin per watt of a second, slow sink: the chassis warms the air that cools the first."""
    tau_case_s: float = 240.0
    controller: str = "table"
    """How power is kept under the cap: a key of `power_loops`."""
    cap_swing: float = 0.0
    """The cap moves up and down by this share of itself, as one does that a rack shares out."""
    cap_period_s: float = 20.0
    cap_jumps: bool = False
    """It does so in jumps, not in waves."""
    fan_on_c: float = 0.0
    """A fan starts at this die temperature; 0 for none …"""
    fan_off_c: float = 0.0
    """… stops again at this lower one …"""
    fan_gain: float = 0.0
    """… and takes this share of the heatsink's resistance away while it runs."""

    time_scale: float = 1.0
    """Kernels take so many times their nominal time."""
    tick_ns: int
    """Quantum of the event timer."""
    event_ns: int
    """Device time of one event record: the timer's floor."""
    launch_ns: int
    """Host time of one launch."""
    record_ns: int
    """Host time of recording one event."""
    latency_ns: int
    """From the launch on the host to the start on an idle device."""
    queue_depth: int = 1024
    """Launches that fit in a stream's queue; the next one blocks the host."""

    lag_ns: int
    """Age of the state that a sensor shows."""
    refresh_ns: int
    power_window_ns: int
    clock_window_ns: int = 0
    """The clock sensor shows a mean over this time; 0 shows the moment."""
    flutter_steps: int = 0
    """The clock sensor is off by up to so many steps, anew at each refresh."""
    clock_grain_mhz: int = 0
    """The clock sensor rounds to so many MHz; 0 does not."""
    stray_p: float = 0.0
    """Share of the clock readings that are nonsense."""
    stray_mhz: float = 0.0
    """What such a reading shows; 0 for half of the clock."""
    stuck_reasons: int = 0
    """Reason bits that the driver shows whatever happens; no counter moves with them."""
    chiplets: int = 1
    """Clocks that the card reports: the slowest sets the time, their mean is shown."""
    chiplet_steps: int = 3
    """How far, in steps, the other chiplets may run above the slowest."""
    power_label: str = "instant"
    hot_label: str = ""
    mem_mhz: int = 0
    memory_bytes: int = 0
    l2_bytes: int = 0
    peak_flops: float = 0.0
    peak_bytes_per_s: float = 0.0
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reading fields that this card does not report, each with the reason."""

    @property
    def supported_mhz(self) -> list[int]:
        """The boost table, ascending."""
        return [int(self.min_mhz + k * self.step_mhz) for k in range(self.top + 1)]

    @property
    def top(self) -> int:
        """Index of the highest entry of the boost table."""
        return int((self.max_mhz - self.min_mhz) // self.step_mhz)

    @property
    def entries_of_15_mhz(self) -> int:
        """How many entries a common step of 15 MHz spans, at least one."""
        return max(int(15 // self.step_mhz), 1)


_H100 = Card(
    key="h100",
    name="H100-like",
    vendor=Vendor.NVIDIA,
    min_mhz=210,
    max_mhz=1980,
    base_mhz=1590,
    idle_mhz=345,
    step_mhz=15,
    v_min=0.67,
    v_max=1.05,
    knee_mhz=1100,
    idle_w=70.0,
    dyn_w=900.0,
    cap_w=700.0,
    leak_w=45.0,
    leak_k=0.012,
    ambient_c=30.0,
    r_die=0.020,
    tau_die_s=2.0,
    r_sink=0.033,
    tau_sink_s=40.0,
    t_sw_c=83.0,
    t_hyst_c=3.0,
    t_hw_c=88.0,
    governor_ns=10_000_000,
    tau_power_s=0.030,
    tick_ns=32,
    event_ns=1_600,
    launch_ns=4_000,
    record_ns=1_200,
    latency_ns=2_500,
    lag_ns=80_000_000,
    refresh_ns=20_000_000,
    power_window_ns=100_000_000,
    mem_mhz=2619,
    memory_bytes=80 * 2**30,
    l2_bytes=50 * 2**20,
    peak_flops=989e12,
    peak_bytes_per_s=3.35e12,
    missing={"fan_pct": "no fan: cooled by the chassis"},
)

_MI300 = Card(
    key="mi300",
    name="MI300X-like",
    vendor=Vendor.AMD,
    min_mhz=130,
    max_mhz=2100,
    base_mhz=1500,
    idle_mhz=130,
    step_mhz=5,
    v_min=0.65,
    v_max=1.10,
    knee_mhz=1000,
    idle_w=140.0,
    dyn_w=1150.0,
    cap_w=750.0,
    leak_w=60.0,
    leak_k=0.010,
    ambient_c=32.0,
    r_die=0.022,
    tau_die_s=1.5,
    r_sink=0.035,
    tau_sink_s=30.0,
    t_sw_c=100.0,
    t_hyst_c=4.0,
    t_hw_c=105.0,
    governor_ns=2_000_000,
    tau_power_s=0.015,
    ramp_steps=2,
    idle_after_s=0.2,
    time_scale=0.85,
    tick_ns=10,
    event_ns=4_700,
    launch_ns=6_500,
    record_ns=3_000,
    latency_ns=5_000,
    lag_ns=50_000_000,
    refresh_ns=1_000_000,
    power_window_ns=10_000_000,
    power_label="socket",
    hot_label="hotspot",
    mem_mhz=2100,
    memory_bytes=192 * 2**30,
    l2_bytes=256 * 2**20,
    peak_flops=1307e12,
    peak_bytes_per_s=5.3e12,
    missing={"fan_pct": "no fan: cooled by the chassis", "pstate": "no such thing on this vendor"},
)

_RTX = Card(
    key="rtx",
    name="consumer-like",
    vendor=Vendor.NVIDIA,
    min_mhz=210,
    max_mhz=2745,
    base_mhz=2235,
    idle_mhz=210,
    step_mhz=15,
    v_min=0.88,
    v_max=1.08,
    knee_mhz=1900,
    idle_w=25.0,
    dyn_w=430.0,
    cap_w=450.0,
    leak_w=18.0,
    leak_k=0.012,
    ambient_c=27.0,
    r_die=0.040,
    tau_die_s=3.0,
    r_sink=0.075,
    tau_sink_s=60.0,
    t_sw_c=83.0,
    t_hyst_c=2.0,
    t_hw_c=90.0,
    governor_ns=10_000_000,
    tau_power_s=0.050,
    boost_t0_c=45.0,
    boost_dt_c=5.0,
    idle_after_s=1.0,
    time_scale=3.0,
    tick_ns=500,
    event_ns=2_200,
    launch_ns=5_000,
    record_ns=1_500,
    latency_ns=3_500,
    lag_ns=100_000_000,
    refresh_ns=100_000_000,
    power_window_ns=100_000_000,
    mem_mhz=10501,
    memory_bytes=24 * 2**30,
    l2_bytes=72 * 2**20,
    peak_flops=330e12,
    peak_bytes_per_s=1.01e12,
    missing={"mem_temp_c": "the driver does not report it for this memory"},
)

_PARTIAL = replace(
    _RTX,
    key="partial",
    name="consumer-like with half its sensors",
    power_label="1 s mean",
    power_window_ns=1_000_000_000,
    missing={
        "energy_mj": "not supported by this card",
        "fan_pct": "not supported by this card",
        "mem_temp_c": "the driver does not report it for this memory",
        "others": "process ids of the host are not visible in a container",
        "power_limit_mw": "not supported by this card",
        "reasons": "not supported by this card",
        "throttle_ns": "not supported by this card",
        "util_pct": "not supported by this card",
    },
)

CARDS: Mapping[str, Card] = {card.key: card for card in (_H100, _MI300, _RTX, _PARTIAL)}
DEFAULT_CARD = "h100"


def find_card(key: str) -> Card:
    """The card of that key.

    Raises:
        UsageError: there is none; the message lists what exists.
    """
    try:
        return CARDS[key]
    except KeyError:
        known = f"{closest(key, CARDS)} there are: {', '.join(CARDS)}".lstrip()
        raise UsageError(f"no simulated card {key!r}", known) from None
