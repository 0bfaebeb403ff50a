import csv
import io
import json
import math
import os
import stat
from pathlib import Path

import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.errors import UsageError
from usv_tui.model import DeviceInfo, Flag
from usv_tui.records import BenchError, Chosen, Device, End, Gap, Skip
from usv_tui.session import export, samples
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S


def session(*extra):
    """A store of a small session with everything that an export shows."""
    store = Store()
    store.apply(
        [
            fake.start(seed=3),
            Chosen(BEGIN_NS, "cpu", "asked for", {}),
            fake.timing("wall", resolution_ns=40),
            fake.row(0, "a[n=1]", group="a", params={"n": 1}, flops=1e9, is_baseline=True),
            fake.row(1, "b", group="a"),
            fake.reading(BEGIN_NS + MS, sm_mhz=1410.25, temp_c=55.0, power_mw=70_000, reasons=4),
            fake.reading(BEGIN_NS + 6 * MS, temp_c=56.0),
            fake.series(0, [5 * MS] * 2, flag=int(Flag.WARMUP))[0],
            fake.block([(0, MS), (1, 2 * MS)] * 5, BEGIN_NS + 20 * MS, round_=2, size=2, inner=[3]),
            fake.series(1, [0, -4], BEGIN_NS + 40 * MS, round_=7)[0],
            Gap(BEGIN_NS + 41 * MS, BEGIN_NS + 50 * MS, "paused"),
            fake.mark("x", BEGIN_NS + 50 * MS),
            Skip(BEGIN_NS, "c", "no GPU"),
            *extra,
        ]
    )
    return store


def as_json(store):
    """The export, through the text that a file would hold."""
    out = io.StringIO()
    export.write_json(store, store.snapshot(store.last_ns), out)
    return json.loads(out.getvalue(), parse_constant=pytest.fail)


def as_csv(store):
    """The export as rows of a dict."""
    out = io.StringIO()
    export.write_csv(store, out)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


# -- JSON


def test_all_raw_samples_are_there():
    """Every window with its time, round, calls, host time and flags, excluded ones too."""
    data = as_json(session())
    a, b = data["rows"]

    assert a["samples"]["window_ns"] == [5 * MS] * 2 + [MS] * 5
    assert a["samples"]["inner"] == [1, 1] + [3] * 5
    assert a["samples"]["round"] == [0, 1, 2, 3, 4, 5, 6]
    assert a["samples"]["flags"] == [["warmup"]] * 2 + [[]] * 5
    assert a["samples"]["seconds"][-1] == MS / (3 * 1e9)
    assert a["samples"]["t_s"][0] == 0.0
    assert a["samples"]["host_ns"] == a["samples"]["window_ns"]
    assert b["samples"]["flags"][-2:] == [["nonpositive"]] * 2


def test_what_cannot_be_told_is_null():
    """No NaN, no infinity: a zero window, an absent sensor and an empty statistic are null."""
    data = as_json(session())

    assert data["rows"][1]["samples"]["seconds"][-2:] == [None, None]
    assert data["telemetry"]["sm_mhz"] == [1410.25, None]
    assert data["telemetry"]["reasons"] == [4, None]
    assert data["rows"][0]["statistics"]["median_s"] is None
    assert data["device"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_users_own_odd_numbers_are_null_too(value):
    """A parameter, a finding or an environment value that is not finite spoils no file."""
    store = session(
        fake.row(2, "odd", params={"scale": value}, flops=value),
        fake.note("finding", 2, share=value),
        fake.reading(BEGIN_NS + 60 * MS, sm_mhz=value, temp_c=value),
    )

    data = as_json(store)

    assert data["rows"][2]["params"] == {"scale": None}
    assert data["rows"][2]["flops"] is None
    assert data["telemetry"]["sm_mhz"][-1] is None


def test_the_context_travels_with_the_numbers():
    """Device, timer, settings, seed, epochs, gaps, skipped things and completeness."""
    info = DeviceInfo(uuid="GPU-1", name="H100", kind="nvidia", driver="550")
    later = fake.series(0, [MS], BEGIN_NS + NS_PER_S // 2, round_=20)
    end = End(BEGIN_NS + NS_PER_S, "SIGTERM", complete=False)
    store = session(Device(BEGIN_NS, info), *later, end)

    data = as_json(store)

    assert (data["schema"], data["complete"], data["reason"]) == (1, False, "SIGTERM")
    assert (data["suite"], data["timer"], data["config"]["seed"]) == ("file.py", "wall", 3)
    assert data["config"]["device"] == "cpu"
    assert data["timer_info"]["resolution_ns"] == 40
    assert data["device"]["uuid"] == "GPU-1"
    assert data["started_unix_ns"] == fake.start().wall_unix_ns
    assert data["elapsed_s"] == 1.0
    assert [e["label"] for e in data["epochs"]] == ["start", "x"]
    assert data["gaps"] == [{"from_s": 0.041, "to_s": 0.05, "reason": "paused"}]
    assert data["skipped"] == [{"name": "c", "reason": "no GPU", "is_refused": False}]


def test_a_failed_row_is_exported_with_its_error():
    """Error and traceback are data; the samples up to then are there."""
    data = as_json(session(BenchError(BEGIN_NS, 1, "ValueError", "ValueError: no", "Trace")))

    assert (data["rows"][1]["error"], data["rows"][1]["traceback"]) == ("ValueError: no", "Trace")
    assert data["rows"][0]["error"] is None
    assert len(data["rows"][1]["samples"]["seconds"]) == 7


def test_an_empty_session_is_valid_json():
    """A run that ended before its first row can be exported."""
    store = Store()
    store.apply([fake.start()])

    data = as_json(store)

    assert (data["rows"], data["complete"]) == ([], False)
    assert as_csv(store) == []


def test_every_gap_is_exported():
    """A thousand bursts later the first gap is still in the file."""
    gaps = [Gap(BEGIN_NS + i * MS, BEGIN_NS + i * MS + 5, "pace") for i in range(1500)]

    assert len(as_json(session(*gaps))["gaps"]) == 1501


# -- CSV


def test_csv_agrees_with_json_cell_for_cell():
    """One line a sample, in the same order and with the same figures to the last digit."""
    store = session()
    lines = as_csv(store)
    expected = []
    for row in as_json(store)["rows"]:
        samples = row["samples"]
        expected += [(row["name"], *cells) for cells in zip(*samples.values(), strict=True)]

    names = list(as_json(store)["rows"][0]["samples"])
    assert len(lines) == len(expected) == 14
    for line, (name, *cells) in zip(lines, expected, strict=True):
        values = dict(zip(names, cells, strict=True))
        assert line["name"] == name
        assert float(line["t_s"]) == values["t_s"]
        assert (float(line["seconds"]) if line["seconds"] else None) == values["seconds"]
        for column in ("window_ns", "inner", "host_ns", "round"):
            assert int(line[column]) == values[column]
        assert [f for f in line["flags"].split("|") if f] == values["flags"]


def test_a_sample_has_the_latest_reading_before_it_and_its_age():
    """The nearest telemetry in the past with its age; nothing before the first reading."""
    lines = as_csv(session())

    assert [lines[0][c] for c in ("sm_mhz", "temp_c", "power_mw", "telemetry_age_s")] == [""] * 4
    second = lines[1]
    assert (second["sm_mhz"], second["temp_c"], second["power_mw"]) == ("1410.25", "55", "70000")
    assert float(second["telemetry_age_s"]) == pytest.approx(0.004)
    assert (lines[2]["sm_mhz"], lines[2]["temp_c"]) == ("", "56")


def test_large_readings_keep_their_digits():
    """Seven digits of milliwatts are not rounded to six."""
    lines = as_csv(session(fake.reading(BEGIN_NS + 2 * MS, power_mw=1_234_567)))

    assert "1234567" in {line["power_mw"] for line in lines}


def test_names_with_commas_and_quotes_survive():
    """A row's name with its parameters is one cell."""
    name = 'f[a=1,b="x, y"]'
    store = session(fake.row(2, name), fake.series(2, [MS], BEGIN_NS + 70 * MS, round_=9)[0])

    assert as_csv(store)[-1]["name"] == name


# -- files


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_file_appears_whole(tmp_path, kind):
    """The export is renamed into place, with the usual rights, over an older one."""
    path = tmp_path / "out"
    store = session()
    export.write_file(path, store, store.snapshot(store.last_ns), kind)

    export.write_file(path, store, store.snapshot(store.last_ns), kind)

    out = io.StringIO()
    export.write(kind, store, store.snapshot(store.last_ns), out)
    assert path.read_text() == out.getvalue()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_export_leaves_what_was_there(tmp_path, monkeypatch):
    """A disk that fills up half way costs neither the old file nor a stray half one."""
    path = tmp_path / "out.json"
    path.write_text('{"schema": 1, "older": true}')
    store = session()

    def half(store, snapshot, out):
        out.write("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_json", half)

    with pytest.raises(UsageError, match=r"cannot write .*out.json: No space left"):
        export.write_file(path, store, store.snapshot(0), "json")

    assert "older" in path.read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_another_error_leaves_no_half_file_either(tmp_path, monkeypatch):
    """A mistake of ours while writing is raised as it is, with nothing left behind."""

    def broken(store, snapshot, out):
        raise ArithmeticError("ours")

    monkeypatch.setattr(export, "write_json", broken)
    store = session()

    with pytest.raises(ArithmeticError):
        export.write_file(tmp_path / "out.json", store, store.snapshot(0), "json")

    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_one_clear_line(tmp_path):
    """The line names the file and the system's reason."""
    store = session()

    with pytest.raises(UsageError, match=r"cannot write .*gone/out.csv: there is no directory"):
        export.write_file(tmp_path / "gone" / "out.csv", store, store.snapshot(0), "csv")


@pytest.mark.parametrize("flag", list(Flag))
def test_every_flag_has_a_name(flag):
    """A flag in a file is a word and not a number."""
    assert samples.flag_names(int(flag)) == [flag.name.lower()]


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    """`--json /dev/null` as root leaves the device what it is; a full one is one clear line."""
    store = session()
    export.write_file(Path("/dev/null"), store, store.snapshot(0), "json")
    with pytest.raises(UsageError, match=r"cannot write /dev/full: No space left on device"):
        export.write_file(Path("/dev/full"), store, store.snapshot(0), "json")

    assert Path("/dev/null").is_char_device()
    assert Path("/dev/full").is_char_device()


def test_a_link_stays_a_link(tmp_path):
    """What a link points to is replaced, not the link."""
    target, link = tmp_path / "target.json", tmp_path / "latest.json"
    target.write_text('{"schema": 1}')
    link.symlink_to(target)
    store = session()

    export.write_file(link, store, store.snapshot(0), "json")

    assert link.is_symlink()
    assert target.read_text().startswith('{"schema"')
