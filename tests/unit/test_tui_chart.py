from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import screen as fake
from usv_tui.tui.look import make_look
from usv_tui.tui.view import Scene, TimeAxis, ViewState
from usv_tui.tui.widgets import chart
from usv_tui.tui.widgets.chart import GUTTER, Chart
from usv_tui.tui.widgets.columns import by_column, joined, quantiles, trailing_medians
from usv_tui.tui.widgets.raster import Raster, RowCache
from usv_tui.tui.widgets.strips import Strips, limits_text, missing_text

S = fake.S
NOW = fake.START_NS + 10 * S


def look(*, ascii_only=False, no_color=False):
    """The default look, or a plainer one."""
    return make_look({}, is_ansi=True, is_dark=True, ascii_only=ascii_only, no_color=no_color)


def scene(times_s, values, excluded=None, *, span_s=10, view=None, **options):
    """One row with samples at so many seconds since the start, looked at after 10 s."""
    t_ns = fake.START_NS + (np.asarray(times_s, dtype=float) * S).astype(np.int64)
    values = np.asarray(values, dtype=float)
    dim = np.zeros(len(values), bool) if excluded is None else np.asarray(excluded)
    store = fake.FakeStore(
        tracks={0: fake.Track(t_ns, values, dim)},
        mark_list=options.pop("marks", []),
        gap_list=options.pop("gaps", []),
    )
    snapshot = fake.snapshot(rows=fake.rows(("copy",)), at_ns=NOW)
    view = view or ViewState()
    view.span_s = span_s
    return Scene(snapshot, store, view, look(**options), NOW)


def plot(made, cells=20, height=4):
    """The plot's lines as text, without their labels; and what is said about it."""
    axis = made.axis(2 * cells)
    lines, picture = Chart().plot(made, axis, cells + GUTTER, height)
    return [line.text[GUTTER:] for line in lines], picture


RISING = [
    "        1.5│                   ⠠",
    "           │               ⠂    ",
    "           │⠈⠉⠉⠉⠉⠍⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉",
    "        1.0│⠐                   ",
]


def test_samples_lie_where_they_belong():
    """Literal rows: rising samples from lower left to upper right, now at the right edge."""
    made = scene([0.3, 2.6, 5.1, 7.6, 9.9], [1.0, 1.1, 1.2, 1.3, 1.4])

    axis = made.axis(40)
    lines, picture = Chart().plot(made, axis, 20 + GUTTER, 4)

    assert picture.samples == 5
    assert [line.text for line in lines] == RISING


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_samples_are_a_normal_state(count):
    """None, one and two samples are drawn; only three and more have a median."""
    lines, picture = plot(scene(np.arange(count) + 4.0, np.full(count, 1e-3)))

    assert sum(not line.isspace() for line in lines) == (1 if count else 0)
    assert picture.median_of == (3 if count == 3 else 0)


def test_what_is_not_a_number_is_a_hole():
    """NaN windows are left out, and never break the axis."""
    values = [1.0, np.nan, 1.1, np.nan, np.inf, 1.2]

    lines, picture = plot(scene(np.arange(6) + 2.0, values))

    assert picture.samples == 3
    assert any(not line.isspace() for line in lines)


def test_stragglers_are_counted_not_followed():
    """The axis shows the bulk; what lies above it is marked on the top row and counted."""
    times = np.linspace(0.1, 9.9, 200)
    values = np.full(200, 1e-3) * (1 + 0.001 * np.sin(np.arange(200)))
    values[[20, 120]] = 5e-3

    lines, picture = plot(scene(times, values))

    assert picture.above == 2
    assert lines[0].count("▲") == 2


def test_a_second_mode_is_always_on_the_chart():
    """A mode that holds a twentieth of the samples is no straggler."""
    times = np.linspace(0.1, 9.9, 400)
    values = np.full(400, 1e-3) * (1 + 0.001 * np.sin(np.arange(400)))
    values[::20] = 2e-3

    assert plot(scene(times, values))[1].above == 0


def test_warm_up_is_dim():
    """Excluded samples are drawn, in the dim style, and are no part of the median."""
    times = np.linspace(0.1, 9.9, 100)
    made = scene(times, np.where(times < 5, 1.0005e-3, 1e-3), times < 5)
    axis = made.axis(40)

    lines, _ = Chart().plot(made, axis, 20 + GUTTER, 4)

    dim = [s.text.strip() for line in lines for s in line if s.style == made.look.dim]
    assert "⠒" * 10 in dim


def test_the_median_is_not_drawn_across_a_gap():
    """A pause is a break in the line, with its ends marked, and a word on the time axis."""
    times = np.concatenate((np.arange(0.2, 3, 0.05), np.arange(7, 9.9, 0.05)))
    gaps = [(fake.START_NS + 3 * S, fake.START_NS + 7 * S, "pause")]
    made = scene(times, np.full(len(times), 1e-3), gaps=gaps, no_color=True)

    lines, _ = plot(made, cells=40)

    row = next(line for line in lines if "─" in line)
    assert "─" in row[:12]
    assert "─" in row[28:]
    assert "─" not in row[13:27]
    assert all(line[12] == "┊" for line in lines)
    assert "paused" in chart.time_axis(made, made.axis(80), 40 + GUTTER).text


def test_a_long_silence_breaks_the_line_too():
    """Without a noted gap, samples far apart are not joined either."""
    times = np.concatenate((np.arange(0.2, 3, 0.05), np.arange(7, 9.9, 0.05)))

    lines, _ = plot(scene(times, np.full(len(times), 1e-3), no_color=True), cells=40)

    assert "─" not in next(line for line in lines if "─" in line)[13:27]


def test_marks_stand_on_the_axis():
    """Epochs are vertical lines, their labels below at the same column."""
    marks = [(fake.START_NS + 5 * S, "locked [1410]")]
    made = scene(np.arange(0.1, 9.9, 0.1), np.full(98, 1e-3), marks=marks)

    lines, _ = plot(made, cells=60, height=5)
    axis = chart.time_axis(made, made.axis(120), 60 + GUTTER).text

    cell = made.axis(120).cell_of(marks[0][0])
    assert any(line[cell] == "┊" for line in lines)
    assert axis[GUTTER + cell :].startswith("┴locked [1410]")


def test_crowded_cells_are_shaded():
    """Beyond five samples a cell, shades tell how many there are."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 10, 4000))

    lines, picture = plot(scene(times, 1e-3 * (1 + 0.01 * rng.standard_normal(4000))))

    assert picture.is_shaded
    assert any(c in "".join(lines) for c in "▒▓█")


def test_very_many_samples_are_drawn_as_ranges():
    """Beyond thousands, bins made on arrival are drawn: a frame's cost does not grow."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 10, 50_000))
    made = scene(times, 1e-3 * (1 + 0.01 * rng.standard_normal(50_000)))

    lines, picture = plot(made)

    assert picture.is_binned
    assert picture.samples == 50_000
    assert any(not line.isspace() for line in lines)
    assert "range" in chart.title(made, picture, made.axis(40), 100).text


def test_the_picture_moves_by_whole_columns():
    """Between two frames within one column of time nothing moves at all."""
    made = scene(np.arange(0.1, 9.9, 0.1), 1e-3 + 1e-5 * np.sin(np.arange(98)))
    drawn = Chart()
    first = made.axis(40)
    step = first.step_ns
    start = first.to_ns - step + 1
    frames = []
    for now in (start, start + step // 2, start + step - 1):
        moved = replace(made, now_ns=now)
        lines, _ = drawn.plot(moved, moved.axis(40), 20 + GUTTER, 4)
        frames.append(lines)

    assert all(a is b for a, b in zip(frames[0], frames[1], strict=True))
    assert all(a is b for a, b in zip(frames[0], frames[2], strict=True))


TITLE = "■ copy samples · and median of 25 ─ µs, last 10 s 1 above scale"


def test_the_title_says_what_is_drawn():
    """Name, unit, span, how many samples a median point has, and what is beyond the scale."""
    times = np.linspace(0.1, 9.9, 300)
    values = np.full(300, 2e-4)
    values[5] = 1.0
    made = scene(times, values)
    axis = made.axis(400)
    _, picture = Chart().plot(made, axis, 200 + GUTTER, 4)

    words = chart.title(made, picture, axis, 120).text

    assert " ".join(words.split()) == TITLE


def test_no_row_and_no_sample_say_so():
    """An empty chart is never without a word."""
    made = scene([], [])
    axis = made.axis(40)
    _, picture = Chart().plot(made, axis, 30, 4)

    assert "no samples in this stretch" in chart.title(made, picture, axis, 80).text

    empty = replace(made, snapshot=replace(made.snapshot, rows=()))
    lines, _ = Chart().plot(empty, axis, 30, 4)
    assert len(lines) == 4


@given(st.integers(1, 260), st.integers(1, 60), st.booleans())
def test_any_size_can_be_drawn(width, height, is_ascii):
    """No width or height breaks the chart; every line has the asked width."""
    made = scene(np.arange(0.1, 9.9, 0.1), np.full(98, 1e-3), ascii_only=is_ascii)
    axis = made.axis(2 * max(1, width - GUTTER))

    lines, _ = Chart().plot(made, axis, width, height)

    assert [line.cell_length for line in lines] == [width] * height
    if is_ascii:
        assert all(line.text.isascii() for line in lines)


# -- the time axis


@given(st.integers(0, 10**15), st.integers(0, 10**14), st.sampled_from([10, 60, 300, None]))
def test_now_is_the_right_edge(now_ns, since_ns, span_s):
    """The last column holds now, whatever the span."""
    axis = TimeAxis(now_ns, now_ns - since_ns, span_s, 120)

    assert axis.to_ns - axis.step_ns < now_ns <= axis.to_ns
    assert axis.to_ns - axis.from_ns == 120 * axis.step_ns


def test_the_whole_run_is_shown_in_round_spans():
    """`all` holds the run and changes its span in steps, so that it does not creep."""
    spans = [TimeAxis(t * S, 0, None, 100).span_s for t in (1, 10, 11, 59, 61, 299, 3601, 10**6)]

    assert spans == [5, 10, 30, 60, 120, 300, 7200, 12 * 86400]


def test_the_first_minute_spans_the_time_elapsed():
    """Of a young run the chart shows its whole life, in steps, and no empty half."""
    spans = [TimeAxis(t * S, 0, 60, 100).span_s for t in (1, 6, 11, 29, 31, 61, 1000)]

    assert spans == [5, 10, 30, 30, 60, 60, 60]


def test_a_distribution_takes_the_whole_width():
    """Its bars reach both ends, in no more bins than the samples bear out."""
    from usv_tui.tui.widgets import spread

    values = 1e-4 * (1 + 0.01 * np.sin(np.arange(400)))
    made = scene(np.linspace(1, 9, 400), values)
    for width in (40, 97, 160):
        lines = [line.text for line in spread.lines(made, width, 12)][1:-1]

        bottom = lines[-1][1 : width - 1]
        assert bottom[0] != " "
        assert bottom[-1] != " "


# -- columns


def test_columns_hold_every_sample_once():
    """A series is cut at the columns' edges, without loss."""
    axis = TimeAxis(NOW, fake.START_NS, 10, 20)
    t_ns = np.sort(np.random.default_rng(0).integers(axis.from_ns, axis.to_ns, 500))

    columns = by_column(t_ns, axis)

    assert int((columns.end - columns.start).sum()) == 500
    assert (t_ns[columns.start] >= axis.from_ns + columns.x * axis.step_ns).all()
    assert (t_ns[columns.end - 1] < axis.from_ns + (columns.x + 1) * axis.step_ns).all()


@given(st.integers(1, 60), st.integers(0, 10))
def test_trailing_medians_are_medians(count, half):
    """Each point is the median of the last samples before it, as numpy says."""
    values = np.random.default_rng(count).standard_normal(count)
    width = 2 * half + 1
    ends = np.arange(1, count + 1)

    found = trailing_medians(values, ends, width)

    for end, value in zip(ends, found, strict=True):
        first = max(0, end - min(width, count))
        window = values[first : first + min(width, count)]
        assert value == np.sort(window)[len(window) // 2]


def test_quantiles_are_order_statistics():
    """Nearest ranks of the sorted values."""
    values = np.arange(101.0)[::-1].copy()

    assert quantiles(values, 0.0, 0.5, 0.99, 1.0) == [0.0, 50.0, 99.0, 100.0]


def test_a_broken_line_has_no_point_in_the_break():
    """Points are joined but where it says they are not."""
    x, y = joined(np.array([0.0, 1.0, 9.0]), np.array([0.0, 2.0, 5.0]), np.array([False, True]))

    assert ((x <= 1) | (x == 9)).all()
    assert y[x == 0.5] == 1.0


# -- dots


def test_each_dot_has_its_bit():
    """All eight dots of a cell, one by one, are the eight braille patterns of one dot."""
    seen = []
    for y in range(4):
        for x in range(2):
            raster = Raster(1, 1)
            raster.dots(np.array([x]), np.array([y]), 1)
            seen.append(raster.texts(look().glyphs)[0])

    assert seen == list("⠁⠈⠂⠐⠄⠠⡀⢀")


def test_blank_cells_are_spaces():
    """An empty braille cell is a space: one byte, and no tofu where the font lacks it."""
    assert Raster(3, 1).texts(look().glyphs) == ["   "]


def test_runs_are_few_and_rows_are_kept():
    """A blank belongs to what is on its left; a row that does not change keeps its strip."""
    raster = Raster(8, 2)
    raster.dots(np.array([0, 8]), np.array([0, 0]), 1)
    raster.dots(np.array([12]), np.array([0]), 2)
    styles = (look().base, look().good, look().bad)
    cache = RowCache()
    heads = [("ab|", look().dim)] * 2

    first = cache.strips(heads, raster, styles, look().glyphs)
    second = cache.strips(heads, raster, styles, look().glyphs)

    assert [(s.text, s.style) for s in first[0]] == [
        ("ab|", look().dim),
        ("⠁   ⠁ ", look().good),
        ("⠁ ", look().bad),
    ]
    assert all(a is b for a, b in zip(first, second, strict=True))


# -- strips


def telemetry_scene(width=60, **sensors):
    """Two minutes of sensors; those given a reason are missing."""
    controller = fake.session(device=fake.device(**sensors))
    snapshot = controller.store.given
    reading = snapshot.reading
    for name in sensors:
        reading = type(reading)(
            **{k: getattr(reading, k) for k in reading.__struct_fields__ if k != name}
        )
        controller.store.sensors.pop(name)
    snapshot = replace(snapshot, reading=reading)
    return Scene(snapshot, controller.store, ViewState(), look(), snapshot.at_ns)


def test_the_sensors_are_drawn_with_their_value_now():
    """One strip each, the value now beside it."""
    made = telemetry_scene()

    lines = Strips().lines(made, made.axis(100), 60, 1)

    assert [line.text[:GUTTER].strip(" │") for line in lines] == ["1950 MHz", "62 °C", "536 W"]
    assert all(line.text[GUTTER:].strip() for line in lines)


def test_a_missing_sensor_takes_no_room_and_says_why():
    """What there is not is one short line with the reason."""
    made = telemetry_scene(power_mw="no permission", temp_c="no permission")

    lines = Strips().lines(made, made.axis(100), 60, 1)

    assert len(lines) == 1
    assert missing_text(made.snapshot) == "no temp, power: no permission"


def test_a_sensor_that_stopped_keeps_its_past():
    """After a loss the strip stays as long as it has something to show; its value is a dash."""
    made = telemetry_scene()
    lost = replace(
        made.snapshot,
        reading=None,
        device=fake.device(sm_mhz="the sensor stopped answering"),
    )
    made = replace(made, snapshot=lost)

    lines = Strips().lines(made, made.axis(100), 60, 1)

    assert len(lines) == 3
    assert lines[0].text[:GUTTER].strip(" │") == "—"
    assert lines[0].text[GUTTER:].strip()


def test_no_telemetry_at_all_says_why():
    """Without any sensor the reason stands there, not an empty panel."""
    snapshot = fake.snapshot(device=None, reading=None, telemetry_state="pynvml is not installed")

    assert missing_text(snapshot) == "no clock, temperature or power: pynvml is not installed"


def test_a_nominal_clock_is_labelled():
    """A clock that is only nominal says so inside its strip."""
    made = telemetry_scene()
    sensors = dict(made.snapshot.device.sensors)
    sensors["sm_mhz"] = type(sensors["sm_mhz"])(source="/proc/cpuinfo", label="nominal")
    device = type(made.snapshot.device)(uuid="c", name="CPU", kind="cpu", sensors=sensors)
    made = replace(made, snapshot=replace(made.snapshot, device=device))

    assert "│nominal " in Strips().lines(made, made.axis(100), 60, 1)[0].text


def test_limits_are_words_and_harmless_ones_are_left_out():
    """A power cap is told; idle is not."""
    from usv_tui.model import Reading, Reason

    both = Reading(device="d", at_ns=0, reasons=int(Reason.SW_POWER_CAP | Reason.IDLE))
    idle = Reading(device="d", at_ns=0, reasons=int(Reason.IDLE))

    assert limits_text(fake.snapshot(reading=both)) == "power cap"
    assert limits_text(fake.snapshot(reading=idle)) == ""


@given(st.integers(1, 200), st.integers(1, 6))
def test_strips_of_any_size(width, each):
    """No width or height breaks a strip."""
    made = telemetry_scene()

    lines = Strips().lines(made, made.axis(2 * max(1, width - GUTTER)), width, each)

    assert [line.cell_length for line in lines] == [width] * 3 * each


def test_the_session_before_is_a_dotted_line():
    """Its median lies across the chart where it is on the scale, and nowhere else."""
    values = [1.0e-4 + 1e-6 * (i % 9) for i in range(40)]
    made = scene(np.linspace(0, 9.9, 40), values)

    def dotted(before):
        row = replace(made.snapshot.rows[0], ghost_s=before)
        again = replace(made, snapshot=replace(made.snapshot, rows=(row,)))
        lines, _ = plot(again, cells=40, height=8)
        return [line.count("┈") > 5 for line in lines].count(True)

    assert dotted(1.09e-4) == 1
    assert dotted(2e-4) == dotted(None) == 0
