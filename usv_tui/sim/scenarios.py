"""Scenarios: what runs, in what state the card starts, who disturbs it and what breaks."""

from collections.abc import Mapping
from dataclasses import replace

from usv_tui.errors import UsageError, closest
from usv_tui.model import Verdict
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.odd_scenarios import ODD
from usv_tui.sim.profiles import DEFAULT_CARD, find_card
from usv_tui.sim.situation import (
    ATTENTION,
    LIGHT,
    TRIO,
    Faults,
    Scenario,
    badly_cooled,
    base_clock,
    capped,
    copy,
    droopy,
    gemm,
    held_clock,
    smaller,
    soaking,
    softmax,
    top_clock,
)

__all__ = [
    "DEFAULT_SCENARIO",
    "SCENARIOS",
    "Faults",
    "Scenario",
    "describe",
    "find_scenario",
    "parse_spec",
]

DEFAULT_SCENARIO = "attention"

_ALL = (
    Scenario(
        name="attention",
        summary="six attention kernels on a cold card with a small heatsink",
        look_for="times grow and clocks fall for half a minute: `warming`, `WAIT`",
        kernels=ATTENTION,
        adapt=soaking,
        warm=False,
    ),
    Scenario(
        name="steady",
        summary="a warm card under a light load: nothing limits it",
        look_for="a flat clock and flat times: `STEADY`, no lock is needed",
        kernels=LIGHT,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="cold-ramp",
        summary="a cold card under full load",
        look_for="temperature rises for a minute and the times with it: `WAIT` before you believe",
        kernels=TRIO,
        adapt=capped,
        warm=False,
        verdict=Verdict.WAIT,
        duration_s=24.0,
    ),
    Scenario(
        name="power-cap",
        summary="a warm card that its power cap holds below its boost clock",
        look_for="the clock dithers, compute-bound rows follow it: `THROTTLED: POWER`",
        kernels=(gemm(), softmax(activity=0.9), copy(activity=0.6)),
        adapt=capped,
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="throttled",
        summary="a card whose power cap was set to 60 %",
        look_for="the `power cap` bit is on all the time and the clock is far below base",
        kernels=TRIO,
        adapt=lambda card: replace(capped(card), cap_w=0.6 * card.cap_w),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="thermal-saturation",
        summary="blocked air: the card reaches its thermal limit",
        look_for="the clock far below boost; the bit says why: `sw thermal`, `THROTTLED: THERMAL`",
        kernels=TRIO,
        adapt=badly_cooled,
        verdict=Verdict.THROTTLED_THERMAL,
    ),
    Scenario(
        name="locked",
        summary="the clock is locked where the card can hold it",
        look_for="one clock, the smallest spread; `locked` and `held` stay true",
        kernels=TRIO,
        lock=held_clock,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="lock-not-held",
        summary="the clock is locked at the maximum, under a power cap",
        look_for="`NOT HELD`: the clock sits below the lock and moves as if there were none",
        kernels=(gemm(), softmax(activity=0.9), copy(activity=0.6)),
        adapt=capped,
        lock=top_clock,
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="lock-refused",
        summary="the driver refuses to lock clocks",
        look_for="one line says what it would take: `needs root`; measuring goes on, `unlocked`",
        kernels=LIGHT,
        lock_policy="refuses",
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="lock-ignored",
        summary="the driver accepts a lock and does nothing",
        look_for="`IGNORED` although the call succeeded; no other lock is proposed: `CANNOT LOCK`",
        kernels=TRIO,
        adapt=capped,
        lock_policy="ignores",
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="foreign-lock",
        summary="somebody else left the card locked at its base clock",
        look_for="a clock that stands on one value under any load: `foreign lock?`",
        kernels=LIGHT,
        foreign_lock=base_clock,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="memory-bound",
        summary="copies under a power cap: the clock moves, the times do not",
        look_for="`the clock moves, and the times do not follow it`: a lock would not help",
        kernels=(
            copy(name="copy", is_baseline=True, activity=1.0),
            copy(name="add", t0_ns=1.5e6, activity=1.0),
            copy(name="scale", t0_ns=1.2e6, alpha=0.03, activity=1.0),
        ),
        adapt=capped,
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="noisy-neighbour",
        summary="another process comes and goes, and takes bandwidth and power",
        look_for="bursts in every row at once; who shares is named: `pid 4711`; ratios hold",
        kernels=LIGHT,
        neighbours=(Neighbour(power=0.08, gain=0.05, on_s=3.0, off_s=4.0, pid=4711),),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="power-neighbour",
        summary="something beside the card takes part of its power budget at times",
        look_for="the clock steps down in bursts, compute-bound rows with it: `THROTTLED: POWER`",
        kernels=TRIO,
        adapt=capped,
        neighbours=(Neighbour(power=0.11, on_s=2.5, off_s=3.5),),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="load-step",
        summary="after 25 seconds a second load takes power for good",
        look_for="one step in clock and times, `drifting`; a new level after it",
        kernels=TRIO,
        adapt=capped,
        neighbours=(Neighbour(power=0.1, start_s=25.0),),
        verdict=Verdict.WAIT,
        duration_s=35.0,
    ),
    Scenario(
        name="two-modes",
        summary="one kernel has two speeds, at random, at one clock",
        look_for="two humps in one row: `2 modes`; the clock explains none of it",
        kernels=(
            gemm(activity=0.3),
            softmax(activity=0.25, mode_p=0.35, mode_gain=0.06),
            copy(activity=0.2),
        ),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="stragglers",
        summary="one call in a hundred takes much longer",
        look_for="a std far above the IQR; the `stragglers` are counted, not dropped",
        kernels=tuple(replace(k, straggler_p=0.01, straggler_gain=0.6) for k in LIGHT),
        verdict=Verdict.NOT_CLOCK,
    ),
    Scenario(
        name="launch-noise",
        summary="kernels so short that launch jitter is most of their spread",
        look_for="a wide spread that neither the clock nor a lock explains: `NOT THE CLOCK`",
        kernels=tuple(replace(smaller(k, 8), jitter_ns=9_000.0, activity=0.15) for k in LIGHT),
        verdict=Verdict.NOT_CLOCK,
        duration_s=30.0,
    ),
    Scenario(
        name="cpu-bound",
        summary="the host needs longer to launch than the device to compute",
        look_for="`CPU-bound`: windows hold launch gaps; the clock falls for want of work",
        kernels=tuple(replace(smaller(k, 12), host_ns=400_000, activity=0.3) for k in LIGHT),
        adapt=lambda card: replace(card, util_governor=True),
        duration_s=20.0,
    ),
    Scenario(
        name="non-clock-warmup",
        summary="a kernel that gets 3 % faster in its first half minute at a steady clock",
        look_for="`drifting` without the clock: `WAIT`, a lock would not help",
        kernels=tuple(replace(k, warm_gain=0.03, warm_tau_s=10.0) for k in LIGHT),
        verdict=Verdict.WAIT,
        duration_s=22.0,
    ),
    Scenario(
        name="two-identical",
        summary="the same kernel twice, on a card that loses 15 % of its clock to heat",
        look_for="one after the other, the second looks slower; interleaved, they are the `same`",
        kernels=(
            gemm(name="gemm-a", activity=0.8, alpha=1.0),
            gemm(name="gemm-b", activity=0.8, alpha=1.0, is_baseline=False),
        ),
        adapt=droopy,
        warm=False,
    ),
    Scenario(
        name="sync-and-streams",
        summary="one kernel waits for the device inside, another works on a side stream",
        look_for="`synchronises` and `outside stream` on their rows",
        kernels=(
            gemm(activity=0.3),
            softmax(activity=0.25, synchronises=True),
            smaller(copy(name="copy-aside", activity=0.2, side_stream=True), 20),
        ),
    ),
    Scenario(
        name="one-fails",
        summary="one benchmark raises at its 400th call",
        look_for="its row is `FAILED`, with the last line of the error; the others go on",
        kernels=(gemm(activity=0.3), softmax(activity=0.25, raises_at=400), copy(activity=0.2)),
    ),
    Scenario(
        name="sensor-loss",
        summary="after 12 seconds clock, power and temperature are no longer reported",
        look_for="gaps and a reason instead of the values: `no longer reported`; timing goes on",
        kernels=LIGHT,
        faults=Faults(sensors_lost_s=12.0),
    ),
    Scenario(
        name="sensor-stall",
        summary="after 8 seconds one look at the sensors takes 4 seconds",
        look_for="`telemetry stalled` for 4 s, and its age beside the values; samples keep flowing",
        kernels=LIGHT,
        faults=Faults(stall_s=8.0, stall_for_s=4.0),
    ),
    Scenario(
        name="no-telemetry",
        summary="a card without any telemetry",
        look_for="one line that says why: `no telemetry`; times are measured as ever",
        kernels=TRIO,
        adapt=capped,
        faults=Faults(no_telemetry="the driver's management library is not installed"),
    ),
    Scenario(
        name="gpu-lost",
        summary="after 12 seconds the card falls off the bus",
        look_for="one banner: `THE DEVICE IS LOST`; the samples taken so far are kept and saved",
        kernels=LIGHT,
        faults=Faults(gpu_lost_s=12.0),
    ),
    Scenario(
        name="too-short",
        summary="five seconds of measuring: too little to say anything",
        look_for="`NOT KNOWN YET`, and what is lacking, instead of a guess",
        kernels=TRIO,
        adapt=capped,
        duration_s=5.0,
    ),
)

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in (*_ALL, *ODD)}


def find_scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        UsageError: there is none; the message lists what exists.
    """
    try:
        return SCENARIOS[name]
    except KeyError:
        known = f"{closest(name, SCENARIOS)} there are: {', '.join(SCENARIOS)}".lstrip()
        raise UsageError(f"no scenario {name!r}", known) from None


def parse_spec(text: str) -> tuple[str, str]:
    """(card, scenario) of `sim`, `sim:CARD` or `sim:CARD:SCENARIO`.

    Raises:
        UsageError: not of that form, or an unknown card or scenario.
    """
    parts = text.split(":")
    if parts[0] != "sim" or len(parts) > 3:
        raise UsageError(f"not a simulated device: {text!r}", "sim, sim:CARD or sim:CARD:SCENARIO")
    if len(parts) > 1 and not parts[-1]:
        raise UsageError(f"{text!r} ends without a name", "sim, sim:CARD or sim:CARD:SCENARIO")
    card = parts[1] if len(parts) > 1 and parts[1] else DEFAULT_CARD
    scenario = parts[2] if len(parts) > 2 else DEFAULT_SCENARIO
    return find_card(card).key, find_scenario(scenario).name


def describe() -> list[tuple[str, str, str]]:
    """(name, what it is, what to look for) of every scenario, in the order of the demo's list."""
    return [(s.name, s.summary, s.look_for) for s in SCENARIOS.values()]
