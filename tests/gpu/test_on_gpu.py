"""The checks of `tests/gpu/run.py` as tests: they run only where torch sees a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.fake_cuda import FakeTorch
from tests.gpu import run
from usv_tui.timers.events import EventTimer

SCRIPT = Path(run.__file__)


@pytest.fixture(scope="module")
def place() -> run.Place:
    """The device, with torch."""
    if not run.has_gpu():
        pytest.skip("torch sees no GPU")
    return run.Place()


@pytest.mark.gpu
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", list(run.CHECKS))
def test_on_a_real_gpu(name: str, place: run.Place) -> None:
    """What the check saw is what would be right."""
    result = run.CHECKS[name](place)

    assert result.is_right, f"{result.seen} [{result.right}]"


class FakePlace(run.Place):
    """The fake device in the place of a real one, for the checks that need no real numbers."""

    def __init__(self) -> None:
        self.torch = FakeTorch()
        self.cuda = self.torch.cuda
        self.small = self.torch.zeros(1024)

    def timer(self, **options: object) -> EventTimer:
        """A timer in virtual time."""
        return EventTimer(self.torch, time_source=self.torch.time, **options)

    def matmul(self) -> object:
        """A long kernel."""
        self.torch.kernel(300_000)

    def tiny(self) -> object:
        """A kernel that is shorter than its launch."""
        self.torch.kernel(1_500)


@pytest.mark.parametrize(
    "name",
    [
        "floor",
        "calibration",
        "starvation",
        "blocker",
        "sync_detection",
        "side_stream",
    ],
)
def test_checks_are_right_on_a_device_that_behaves(name: str) -> None:
    """On the fake, which follows the documented semantics, these checks have nothing to say."""
    result = run.CHECKS[name](FakePlace())

    assert result.is_right, f"{result.seen} [{result.right}]"


def test_without_a_gpu_the_script_says_so_and_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No table, no failure: one line and the exit code of a skipped test."""
    monkeypatch.setattr(run, "has_gpu", lambda: False)

    assert run.main([]) == run.NO_GPU
    assert capsys.readouterr().out == "skipped: torch sees no GPU here\n"


def test_an_unknown_check_lists_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not there is answered with the names that are."""
    assert run.main(["floor", "nothing"]) == 2
    assert "no such check: nothing; there is floor" in capsys.readouterr().out


def test_a_check_that_raises_is_a_wrong_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broken check costs its own line, and the others are made."""

    def broken(_place: object) -> run.Result:
        raise RuntimeError("no such kernel")

    good = run.Result("good", "1", "1", is_right=True)
    monkeypatch.setattr(run, "Place", object)
    monkeypatch.setattr(run, "CHECKS", {"broken": broken, "good": lambda _place: good})

    lines = list(run.results([]))

    assert [line.is_right for line in lines] == [False, True]
    assert lines[0].seen == "RuntimeError: no such kernel"


def test_the_script_starts_from_anywhere(tmp_path: Path) -> None:
    """It finds the package and its helpers whatever the working directory is."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(run.CHECKS)
