import json

import pytest

from usv_tui.cli import main as cli
from usv_tui.cli.lie import text
from usv_tui.engine.lie import Lie, LieRow


def test_the_factor_stands_beside_the_four_times():
    """One unit for the row's times, the nod first, and how much of the work it missed."""
    row = LieRow("gemm", first_s=0.2, nod_s=5e-6, synced_s=1.1e-3, timed_s=1e-3)

    lines = text(Lie((row,), "event", "how much is missed"), "cuda:0", "asked for").splitlines()

    assert "no sync µs" in lines[0]
    assert "event µs" in lines[0]
    assert "5.000" in lines[2]
    assert "200.0x" in lines[2]
    assert lines[-1] == "shows   how much is missed"


def test_a_row_that_failed_says_why():
    """No figures, no factor, and the error's line."""
    out = text(Lie((LieRow("a[b]", error="ValueError: no"),), "wall", ""), "cpu", "")

    assert "ValueError: no" in out
    assert "a[b]" in out


def test_the_simulated_card_shows_the_factor(capsys):
    """An asynchronous device returns from the call long before the work is done."""
    code = cli.main(["lie", "--device", "sim:h100:steady", "-k", "gemm", "--json"])

    body = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["name"] for row in body["rows"]] == ["gemm"]
    assert body["rows"][0]["factor"] > 5
    assert "simulated" in body["lacks"]


def test_on_the_cpu_it_says_what_it_cannot_show(tmp_path, capsys):
    """Host work is done when the call returns: there is no lie to show, and the page says so."""
    file = tmp_path / "suite.py"
    file.write_text("BENCHMARKS = {'sum': lambda: sum(range(1000))}\n", encoding="utf-8")

    code = cli.main(["lie", str(file), "--device", "cpu"])

    assert code == 0
    out = capsys.readouterr().out
    assert "lacks   the nod" in out
    assert "missed" not in out


def test_a_row_that_cannot_be_timed_is_told_beside_the_others(tmp_path, capsys):
    """Exit 1, one line on stderr with file, row and option, and the others' times."""
    file = tmp_path / "suite.py"
    file.write_text(
        "from usv_tui import benchmark\n@benchmark(flops=-1)\ndef f(): return print\n"
        "BENCHMARKS = {'sum': lambda: sum(range(1000))}\n"
    )

    assert cli.main(["lie", str(file), "--device", "cpu"]) == 1
    out, err = capsys.readouterr()
    assert "sum" in out
    assert err == "usv-tui: not timed: f: suite.py:2: flops is -1 (a number from 0)\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "which benchmark file"), (["no-such-file.py"], "no such file")],
)
def test_bad_input_is_one_line(arguments, words, capsys):
    """Exit 2 and one line on stderr."""
    code = cli.main(["lie", *arguments])

    assert code == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
