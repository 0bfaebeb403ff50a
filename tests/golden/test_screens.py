"""Whole screens, as text and as styles, for every state that a session can be in.

`USV_UPDATE_GOLDEN=1 pytest tests/golden/test_screens.py` writes them anew; look at the difference.
"""

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import screen as fake
from usv_tui.model import (
    Advice,
    Answer,
    ClockHold,
    ClockState,
    Drift,
    Ratio,
    Reading,
    Reason,
    RowState,
    StateWord,
    Verdict,
)
from usv_tui.session.lane import Stretch
from usv_tui.session.snapshot import LogLine
from usv_tui.stats.rolling import Stats
from usv_tui.timesource import ManualTime
from usv_tui.tui.app import ScreenOptions, UsvApp

FOLDER = Path(__file__).parent / "screens"
IS_UPDATING = bool(os.environ.get("USV_UPDATE_GOLDEN"))
WAIT = Advice(
    verdict=Verdict.WAIT,
    reason="drift",
    evidence={"rows": [{"bench": 2, "change": 0.021, "alpha": 0.9}], "temp_change_c": 6.2},
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """The log's time of day does not depend on where the test runs."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reading(reasons=0, **values):
    """The latest look at the card."""
    values = {"sm_mhz": 1950.0, "temp_c": 62.0, "power_mw": 536_000} | values
    return Reading(device="GPU-1234", at_ns=0, reasons=int(reasons), **values)


def with_rows(controller, **changes):
    """All rows changed in the same way."""
    given = controller.store.given
    rows = tuple(replace(row, **changes) for row in given.rows)
    controller.store.given = replace(given, rows=rows)
    return controller


def empty():
    """The worker imports torch; there is no row yet."""
    return fake.FakeController(
        fake.FakeStore(
            fake.snapshot(
                rows=(),
                device=None,
                reading=None,
                timer=None,
                advice=Advice(),
                clocks=ClockState(),
                phase="importing",
                phase_detail="torch 2.1 s",
                telemetry_state="not read yet",
                log=fake.LOG[:1],
                log_total=1,
                elapsed_s=2.1,
            )
        )
    )


def warming():
    """Some rows compile, others warm up; nothing is counted yet."""
    controller = fake.session(
        3.0, phase="warming", advice=Advice(evidence={"needs": {"short": 5.0}}), reading=reading()
    )
    given = controller.store.given
    states = [RowState.WARMING] * 4 + [RowState.COMPILING, RowState.WAITING]
    rows = tuple(
        replace(
            row,
            state=state,
            word=StateWord.NONE,
            detail="3.1 s" if state is RowState.COMPILING else "",
            rolling=Stats(),
            whole=Stats(),
            ratio=None,
            trend=(),
            flops=None,
            bytes=None,
        )
        for row, state in zip(given.rows, states, strict=True)
    )
    controller.store.given = replace(given, rows=rows, samples_per_s=60.0)
    return controller


def running():
    """In full swing, the card at its power limit now and then."""
    return fake.session(reading=reading(Reason.SW_POWER_CAP))


def drifting():
    """The times still move with the temperature."""
    controller = fake.session(20.0, advice=WAIT, reading=reading())
    return with_rows(
        controller, word=StateWord.DRIFTING, drift=Drift(word=StateWord.DRIFTING, change=0.021)
    )


def throttled():
    """Heat limits the clock."""
    advice = Advice(
        verdict=Verdict.THROTTLED_THERMAL,
        lock_mhz=1755,
        std_now=0.02,
        std_locked=0.006,
        reason="thermal-limit",
        evidence={"thermal_share": 0.34, "clock_spread": 0.08, "clock_median_mhz": 1800.0},
    )
    controller = fake.session(
        advice=advice, reading=reading(Reason.SW_THERMAL | Reason.HW_THERMAL, temp_c=92.0)
    )
    return with_rows(controller, word=StateWord.THROTTLED, throttled=(("sw thermal", 0.34),))


def locked():
    """Ours, verified under load; the times stand still."""
    controller = fake.session(
        advice=Advice(verdict=Verdict.STEADY, reason="clock-still"),
        clocks=ClockState(hold=ClockHold.LOCKED, locked_mhz=1890, evidence="verified under load"),
        reading=reading(sm_mhz=1890.0),
    )
    return with_rows(controller, word=StateWord.SETTLED)


def failed():
    """One row raised, another is slower than its baseline, the rest goes on."""
    controller = fake.session(reading=reading())
    given = controller.store.given
    rows = list(given.rows)
    rows[2] = replace(
        rows[2],
        state=RowState.FAILED,
        error="torch.OutOfMemoryError: CUDA out of memory [tried 2.00 GiB]",
        traceback="Traceback …",
    )
    line = LogLine(fake.START_NS + 60 * fake.S, "error", f"{rows[2].name}: out of memory")
    controller.store.given = replace(
        given, rows=tuple(rows), log=(*given.log, line), log_total=given.log_total + 1
    )
    return controller


def paused():
    """Measuring stands still on purpose, since 20 s."""
    controller = fake.session(phase="paused", reading=reading())
    end = fake.START_NS + 120 * fake.S
    controller.store.gap_list = [(end - 20 * fake.S, end, "pause")]
    for track in controller.store.tracks.values():
        keep = track.t_ns < end - 20 * fake.S
        track.t_ns, track.seconds = track.t_ns[keep], track.seconds[keep]
        track.excluded = track.excluded[keep]
    return controller


def no_telemetry():
    """A CPU whose sensors cannot be read: said in one line, and the chart gets the room."""
    return fake.session(
        has_sensors=False,
        device=None,
        reading=None,
        telemetry_state="this machine shows no sensors (container?)",
        clocks=ClockState(reason="clock control needs a GPU"),
        advice=Advice(evidence={"needs": {"no-telemetry": 40.0}}),
    )


def many():
    """Twenty rows, more than a small terminal holds, and one in phases."""
    names = tuple(f"attention[seq={256 * (i + 1)},kind={'mf'[i % 2]}]" for i in range(18))
    controller = fake.session(names=(*names, "forward", "backward"), reading=reading())
    given = controller.store.given
    rows = list(given.rows)
    for index in (18, 19):
        rows[index] = replace(rows[index], parent=17, ratio=None)
    rows[5] = replace(
        rows[5],
        ratio=Ratio(answer=Answer.UNDECIDED, ratio=1.0, low=0.97, high=1.03),
        badges=("CPU-bound",),
    )
    controller.store.given = replace(given, rows=tuple(rows))
    return controller


def sizes():
    """Three kernels at four sizes: flash wins the large ones, naive the small ones."""
    sizes, kinds = (128, 512, 2048, 8192), ("naive", "math", "flash")
    names = tuple(f"attention[seq={n},kind={k}]" for n in sizes for k in kinds)
    times_s = [
        (c + f * (n / 1000) ** p) * 1e-6
        for n in sizes
        for c, f, p in ((8, 160, 2), (20, 60, 1.9), (30, 18, 1.6))
    ]
    controller = fake.session(names=names, reading=reading(), medians=times_s)
    given = controller.store.given
    rows = []
    for index, row in enumerate(given.rows):
        base = given.rows[index - index % 3]
        value = times_s[index] / times_s[base.bench]
        answer = Answer.FASTER if value < 1 else Answer.SLOWER
        ratio = None if row is base else fake.ratio(value, 0.002 * value, answer)
        rows.append(
            replace(
                row,
                ratio=ratio,
                is_baseline=row is base,
                baseline_name="" if row is base else base.name,
            )
        )
    controller.store.given = replace(given, rows=tuple(rows))
    return controller


def locking():
    """A lock was made four seconds ago: it is being verified, and the spread falls."""
    controller = fake.session(
        clocks=ClockState(
            hold=ClockHold.PENDING,
            locked_mhz=1890,
            evidence="not verified yet: needs 10 s under load",
            can_lock=True,
            free_mhz=1935.0,
            supported_mhz=list(range(345, 1996, 15)),
        ),
        reading=reading(sm_mhz=1890.0),
    )
    end = controller.store.given.at_ns
    controller.store.mark_list = [(end - 4 * fake.S, "locked at 1890 MHz")]
    controller.store.limit_list = [
        Stretch(end - 50 * fake.S, end - 4 * fake.S, "power cap"),
        Stretch(end - 4 * fake.S, end + 1, "lock", "1890 MHz"),
    ]
    return with_rows(controller, before_lock=0.0335)


STATES = {
    f.__name__: f
    for f in (
        empty,
        warming,
        running,
        drifting,
        throttled,
        locked,
        failed,
        paused,
        no_telemetry,
        many,
        sizes,
    )
}
SCREENS = [(state, size) for state in STATES for size in ((80, 24), (120, 40))]
SCREENS += [("running", (160, 45)), ("running", (200, 60)), ("many", (160, 45))]
SCREENS += [("failed", (30, 5)), ("running", (60, 12))]


def letters(strip, look):
    """One letter a cell for its style, so that colours are part of the golden."""
    known = {
        look.base: " ",
        look.dim: "d",
        look.strong: "B",
        look.good: "g",
        look.bad: "r",
        look.warn: "y",
        look.info: "i",
        look.bar: "-",
    }
    known |= {style: "s" for style in look.series if style not in known}
    return "".join(
        known.get(segment.style, "?" if segment.style.bold is None else "b") * len(segment.text)
        for segment in strip
    )


def picture(controller, size, keys=(), **options):
    """The screen's lines, then their styles."""

    async def main():
        now = ManualTime(controller.store.given.at_ns)
        app = UsvApp(
            lambda: controller, ScreenOptions(ticks=False, title="attn.py", **options), now
        )
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
            app.presenter.ui_share = 0.0
            app.frame()
            strips = app.screen._compositor.render_strips()
            lines = [strip.text.rstrip() for strip in strips]
            styles = [letters(strip, app.look).rstrip() for strip in strips]
            return "\n".join([*lines, "=" * size[0], *styles]) + "\n"

    return asyncio.run(main())


def check(name, found):
    """Compare with the golden file, or write it."""
    path = FOLDER / f"{name}.txt"
    if IS_UPDATING:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("state", "size"), SCREENS, ids=lambda v: v if isinstance(v, str) else f"{v[0]}x{v[1]}"
)
def test_the_main_screen(state, size):
    """Every state at the sizes that people use looks as it did when somebody last looked."""
    check(f"{state}_{size[0]}x{size[1]}", picture(STATES[state](), size))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("help", ["question_mark"]),
        ("why", ["w"]),
        ("detail", ["j", "enter"]),
        ("lock", ["l"]),
        ("output", ["tab"]),
        ("noise", ["tab", "tab"]),
        ("spread", ["tab", "tab", "tab"]),
        ("setup", ["tab", "tab", "tab", "tab"]),
        ("filter", ["slash", *"mat"]),
        ("whole", ["c"]),
        ("tails", ["c", "c"]),
        ("zoom", ["z", "z"]),
        ("cursor", ["n"]),
    ],
)
def test_what_keys_show(name, keys):
    """Pages and panes behind the keys."""
    check(f"key_{name}_100x30", picture(running(), (100, 30), keys))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 45)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(("name", "keys"), [("pivot", ["v"]), ("sizes", ["j", "g"])])
def test_the_picture_of_the_answer(name, keys, size):
    """Two parameters against each other, and time over one of them."""
    check(f"picture_{name}_{size[0]}x{size[1]}", picture(sizes(), size, keys))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 45)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_lock_moment(size):
    """The dialog over the live chart: progress, the std on its way down, the lock in the chart."""
    check(f"locking_{size[0]}x{size[1]}", picture(locking(), size, ["l"]))


def test_ascii_only():
    """The same screen without Unicode."""
    found = picture(running(), (100, 30), ascii_only=True)

    assert found.isascii()
    check("ascii_100x30", found)
