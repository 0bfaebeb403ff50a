"""Scenarios of cards that control and report their clock in other ways than the common ones."""

from collections.abc import Callable
from dataclasses import replace

from usv_tui.model import Reason, Verdict
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.profiles import Card
from usv_tui.sim.situation import LIGHT, TRIO, Scenario, capped, copy, gemm, held_clock, softmax

_CAPPED = (gemm(), softmax(activity=0.9), copy(activity=0.6))


def _with(adapt: Callable[[Card], Card] | None = None, **changes: object) -> Callable[[Card], Card]:
    """A change of some of a card's figures, after another one."""

    def change(card: Card) -> Card:
        card = card if adapt is None else adapt(card)
        return replace(card, **changes)  # type: ignore[arg-type]  # field names, checked by replace

    return change


def chassis(card: Card) -> Card:
    """A capped card in a chassis that takes minutes to warm, with leaky silicon that feels it."""
    card = capped(card)
    room_c = card.t_sw_c - 8.0 - card.ambient_c
    r_first = min(card.r_die + card.r_sink, 0.6 * room_c / card.cap_w)
    return replace(
        card,
        r_sink=r_first - card.r_die,
        r_case=room_c / card.cap_w - r_first,
        leak_w=0.18 * card.cap_w,
        leak_k=0.025,
    )


def no_counters(card: Card) -> Card:
    """A card that tells its limits by bits alone."""
    why = "not supported by this card"
    return replace(card, missing={**card.missing, "throttle_ns": why})


ODD = (
    Scenario(
        name="chassis",
        summary="a cold card under a cap in a chassis that warms for ten minutes",
        look_for="times grow for two minutes, and then go on by a few percent in all: `WAIT`",
        kernels=_CAPPED,
        adapt=chassis,
        warm=False,
    ),
    Scenario(
        name="cap-pi",
        summary="a power cap kept by a smooth controller",
        look_for="the clock wanders a little instead of dithering: `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, controller="pi"),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="cap-sawtooth",
        summary="a power cap kept by climbing and falling: a limit cycle",
        look_for="a sawtooth in the clock: `THROTTLED: POWER`; a lock near its top can be held",
        kernels=_CAPPED,
        adapt=_with(capped, controller="sawtooth"),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="cap-hopping",
        summary="a power cap kept by hopping between coarse clocks",
        look_for="plateaus in the clock and the times: `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, controller="hopping"),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="moving-cap",
        summary="a power cap that is moved up and down by six percent",
        look_for="clock and times in waves of two seconds: `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, cap_swing=0.06, cap_period_s=2.2),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="stray-readings",
        summary="one clock reading in 400 is half of the clock",
        look_for="spikes in the clock strip that no time follows; it stays `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, stray_p=1 / 400),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="idle-readings",
        summary="a clock sensor that now and then says 58 MHz under load",
        look_for="spikes to the idle clock that no time follows; it stays `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, stray_p=1 / 100, stray_mhz=58.0),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="slow-sensor",
        summary="a clock sensor that shows the mean of the last second, late",
        look_for="times dither and the clock shown does not: `the clock sensor is too slow`",
        kernels=_CAPPED,
        adapt=_with(
            capped, clock_window_ns=1_000_000_000, lag_ns=400_000_000, refresh_ns=100_000_000
        ),
    ),
    Scenario(
        name="flutter",
        summary="a clock sensor that is off by up to two steps, on a clock that is locked",
        look_for="a restless clock strip over times that stand still: `the clock readings flutter`",
        kernels=TRIO,
        adapt=_with(flutter_steps=2),
        lock=held_clock,
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="flag-stuck",
        summary="the driver shows a thermal limit for ever, on a cool card at its top clock",
        look_for="`flag stuck?` instead of a throttle; nothing to lock",
        kernels=LIGHT,
        adapt=_with(no_counters, stuck_reasons=int(Reason.SW_THERMAL), boost_dt_c=0.0),
        verdict=Verdict.STEADY,
    ),
    Scenario(
        name="light-cold",
        summary="a cold card under a load so light that nothing limits it",
        look_for="temperature rises and the times do not: `STEADY` after a minute",
        kernels=LIGHT,
        warm=False,
    ),
    Scenario(
        name="chiplets",
        summary="a card of several chiplets, each with a clock of its own, under a cap",
        look_for="the slowest chiplet sets the times and the clock to lock at: `THROTTLED: POWER`",
        kernels=_CAPPED,
        adapt=_with(capped, chiplets=8),
        verdict=Verdict.THROTTLED_POWER,
    ),
    Scenario(
        name="hidden-slow",
        summary="after 15 seconds the card slows by a third and its reported clock stands still",
        look_for="the clock in the stream falls, the reported one not: `SLOWER THAN ITS CLOCK`",
        kernels=LIGHT,
        neighbours=(Neighbour(hidden=0.33, start_s=15.0),),
        probe=True,
        duration_s=40.0,
    ),
)
"""In the order of the demo's list, after the common ones."""
