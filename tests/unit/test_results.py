import json
import math
from pathlib import Path

import numpy as np
import pytest
import usv

import usv_tui
from usv_tui import Measurement, format_table, load_results, save_results
from usv_tui.errors import UsageError
from usv_tui.library import results


def test_every_digit_of_every_sample_comes_back(tmp_path):
    """Measurements are written as full doubles, with what they were taken by."""
    samples = [0.1 + 0.2, 1e-300, 12345.678901234567]
    measured = Measurement(samples, "a", 3, 1e9, timer="wall")

    path = save_results({"a": measured, "b": np.array([1, 2])}, results_dir=str(tmp_path))

    loaded = load_results(path)["results"]
    assert loaded["a"]["samples"] == samples
    assert (loaded["a"]["inner"], loaded["a"]["timer"], loaded["a"]["bytes"]) == (3, "wall", None)
    assert loaded["b"] == [1, 2]


def test_a_file_is_never_written_over(tmp_path):
    """The second and third file of a name get numbers; the first keeps what it had."""
    paths = [
        save_results({"n": i}, label="my run/ü", results_dir=str(tmp_path / "new"))
        for i in range(3)
    ]

    stem = paths[0].removesuffix(".json")
    assert stem.endswith("-my_run")
    assert paths == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]
    assert [load_results(path)["results"]["n"] for path in paths] == [0, 1, 2]


def test_files_go_to_a_folder_of_the_current_one(tmp_path, monkeypatch):
    """Without a folder given they land in ./results; outside a repository the commit is unknown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    path = save_results({})

    assert path == str(tmp_path / "results" / "unknown.json")
    assert load_results(path)["commit_hash"] == "unknown"
    assert load_results(path)["dirty"] is None


def test_the_commit_and_whether_it_was_changed_are_kept(tmp_path, monkeypatch):
    """The commit's hash names the file, and changes since are told."""
    state = {"commit": "0123456789abcdef", "dirty": True}
    monkeypatch.setattr(results, "git_state", lambda: state)

    path = save_results({}, results_dir=str(tmp_path))

    assert path == str(tmp_path / "01234567.json")
    assert load_results(path)["dirty"] is True


def test_a_machine_without_git_is_fine(tmp_path, monkeypatch):
    """No git on the path: the commit is unknown, and the file is written."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert save_results({}, results_dir=str(tmp_path)) == str(tmp_path / "unknown.json")


def test_what_is_no_number_becomes_null(tmp_path):
    """The file is valid JSON; NaN and infinities never get into it."""
    path = save_results({"x": [math.nan, math.inf, np.float64("nan"), 1.5]}, results_dir=tmp_path)

    assert load_results(path)["results"]["x"] == [None, None, None, 1.5]


def test_each_library_reads_the_other_s_files(tmp_path):
    """The format is usv's, with one key more."""
    ours = save_results({"a": [1.5]}, results_dir=str(tmp_path / "ours"))
    theirs = usv.save_results({"a": [2.5]}, results_dir=str(tmp_path / "theirs"))

    assert usv.load_results(ours)["results"] == {"a": [1.5]}
    assert load_results(theirs)["results"] == {"a": [2.5]}
    assert set(json.loads(Path(theirs).read_text())) <= set(load_results(ours))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"other": 1}'])
def test_another_file_is_told_apart(tmp_path, text):
    """A file that holds something else is one clear line."""
    path = tmp_path / "f.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=r"f\.json is not a results file"):
        load_results(str(path))


def test_a_missing_file_is_an_os_error(tmp_path):
    """As in usv, so that programs that catch it still do."""
    with pytest.raises(FileNotFoundError):
        load_results(str(tmp_path / "no.json"))


def test_measurements_make_a_table():
    """Sorted by name, one unit a column, throughput where any row has it."""
    table = format_table(
        [
            Measurement([2e-3, 4e-3], "mm", flops=6e9, timer="wall"),
            Measurement([1.5e-6], "add[n=1]", bytes=3e3, timer="wall", cache="cold"),
        ]
    )

    assert table.splitlines() == [
        "benchmark  median µs   mean µs    std µs    min µs  n  TFLOP/s  GB/s  cache  timer",
        "----------------------------------------------------------------------------------",
        "add[n=1]       1.500     1.500     0.000     1.500  1        —   2.0  cold   wall",
        "mm          3000.000  3000.000  1000.000  2000.000  2     2.00     —  warm   wall",
    ]


def test_no_measurements_make_no_table():
    """As in usv."""
    assert format_table([]) == usv.format_table([])
    assert "cache" not in usv_tui.format_table([Measurement([1.0], "a")])
