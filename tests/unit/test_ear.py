"""Warnings that a row's code gives reach that row, once, and a few at most."""

import logging
import warnings

import pytest

from usv_tui.diagnosis.ear import listening
from usv_tui.timers.wall import Slot, WallTimer


def heard(*fns: object) -> list[tuple[int | None, str]]:
    """What rows are told while they are timed."""
    told: list[tuple[int | None, str]] = []
    timer = WallTimer()
    with listening(lambda bench, evidence: told.append((bench, evidence["text"]))):
        for _ in range(3):
            timer.enqueue(0, [Slot(i, fn) for i, fn in enumerate(fns)])  # type: ignore[arg-type]
    return told


@pytest.fixture(autouse=True)
def _always(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always")


def test_a_warning_is_the_rows_that_gave_it() -> None:
    """The second of two rows warns in every call: it is told once, and the first is not."""
    told = heard(lambda: None, lambda: warnings.warn("falls back to math", stacklevel=1))

    assert told == [(1, "falls back to math")]


@pytest.mark.parametrize("hands_on", [True, False])
def test_what_torch_logs_reaches_the_row_too(
    monkeypatch: pytest.MonkeyPatch, *, hands_on: bool
) -> None:
    """A recompile limit is logged, not warned of, and torch's own loggers keep it to themselves."""
    logger = logging.getLogger("torch._dynamo.convert_frame")
    monkeypatch.setattr(logging.getLogger("torch._dynamo"), "propagate", hands_on)

    told = heard(lambda: logger.warning("torch._dynamo hit config.%s", "recompile_limit"))

    assert told == [(0, "torch._dynamo hit config.recompile_limit")]


def test_a_row_that_warns_without_end_is_told_a_few_times() -> None:
    """Texts that differ each time do not fill the log, and none is longer than a few lines."""
    numbers = iter(range(10**9))

    def noisy() -> None:
        for _ in range(100):
            warnings.warn(f"{next(numbers)} {'x' * 5000}", stacklevel=1)

    told = heard(noisy)

    assert len(told) == 5
    assert all(len(text) <= 300 for _, text in told)


def test_who_listened_before_still_does(recwarn: pytest.WarningsRecorder) -> None:
    """The warning goes on to where it went, and nothing stays behind."""
    before = warnings.showwarning

    heard(lambda: warnings.warn("mine", stacklevel=1))

    assert "mine" in {str(w.message) for w in recwarn}
    assert warnings.showwarning is before


def test_what_no_row_gave_is_none_of_ours() -> None:
    """A warning outside any callable is left to the log."""
    told: list[object] = []
    with listening(lambda *a: told.append(a)):
        warnings.warn("elsewhere", stacklevel=1)

    assert told == []
