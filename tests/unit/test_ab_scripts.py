"""Two versions of a script: whole runs in turn, a ratio for each row that both have."""

import argparse
import random
import sys
from types import SimpleNamespace

import pytest

from usv_tui.cli import ab_scripts
from usv_tui.cli.compare import condition
from usv_tui.errors import UsageError


def _side(label, python=sys.executable):
    return SimpleNamespace(label=label, path=f"{label}.py", python=python, folder="")


def _args(tmp_path, fail_on=None, **sides):
    versions = SimpleNamespace(base=_side("old"), head=_side("new"), folder=str(tmp_path))
    vars(versions).update(sides)
    wanted = None if fail_on is None else condition(fail_on)
    return argparse.Namespace(versions=versions, launches=4, fail_on=wanted)


@pytest.fixture
def launched(monkeypatch):
    """Which sides were run, in their order."""
    order = []
    draw = random.Random(1)

    def launch(side, path, args):
        order.append(side.label)

        def row(median):
            median *= draw.uniform(0.99, 1.01)
            figures = SimpleNamespace(median=median, mean=median, std=median / 100, n=50)
            return SimpleNamespace(measurement=figures)

        slower = 1.5 if side.label == "new" else 1.0
        return {"slow[n=1]": row(slower), "equal": row(2.0), f"only {side.label}": row(1.0)}

    monkeypatch.setattr(ab_scripts, "_launch", launch)
    return order


@pytest.mark.parametrize(
    ("fail_on", "code"), [(None, 0), ("slower>20%", 1), ("slower>80%", 0), ("faster>1%", 6)]
)
def test_a_row_that_is_slower_is_told_and_one_that_is_not_is_not(tmp_path, launched, fail_on, code):
    """The order alternates, and rows of one version alone are left out."""
    said = []
    assert ab_scripts.run(_args(tmp_path, fail_on), said.append) == code
    slow, equal = (next(line for line in said[0].splitlines() if n in line) for n in ("slow", "eq"))
    assert "slower" in slow
    assert "not enough data" in equal
    assert "only" not in said[0]
    assert launched == ["old", "new", "new", "old"] * 2


def test_two_environments_are_refused(tmp_path, launched):
    """They are two runs."""
    with pytest.raises(UsageError):
        ab_scripts.run(_args(tmp_path, base=_side("old", "/other/python")), print)
    assert launched == []
