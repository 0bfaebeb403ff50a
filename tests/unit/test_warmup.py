import random

import pytest

from usv_tui.engine.warmup import MIN_NS, Levelling
from usv_tui.timesource import NS_PER_S

STEP_NS = 2_000_000


def level_after(values):
    """Seconds after which the row is level for the first time; None when it never is."""
    levelling = Levelling()
    for i, value in enumerate(values):
        levelling.add(i * STEP_NS, value)
        if levelling.is_level:
            return i * STEP_NS / NS_PER_S
    return None


def test_flat_times_are_believed_after_a_second():
    """Half a second of flat times may be half the clock: it takes a whole second."""
    assert level_after([1e6] * 2000) == pytest.approx(1.0, abs=0.1)


def test_noise_does_not_hold_the_warm_up():
    """10 % of independent noise is no trend: level within three seconds."""
    noise = random.Random(3)

    assert level_after([1e6 * (1 + 0.1 * noise.gauss(0, 1)) for _ in range(5000)]) < 3


def test_a_trend_is_not_level():
    """Times that grow by 5 % a second are never level, however long they are watched."""
    assert level_after([1e6 * 1.05 ** (i * STEP_NS / NS_PER_S) for i in range(10_000)]) is None


def test_stragglers_do_not_decide():
    """One call in twenty that takes ten times as long changes nothing."""
    noise = random.Random(4)
    values = [1e7 if noise.random() < 0.05 else 1e6 for _ in range(2000)]

    assert level_after(values) < 1.5


def test_windows_of_nothing_are_no_evidence():
    """A timer that returns zero proves no level."""
    assert level_after([0.0] * 2000) is None


def test_few_long_calls_are_waited_for():
    """Calls of a second each: twelve of them, not one second."""
    levelling = Levelling()
    for i in range(11):
        levelling.add(i * NS_PER_S, 1e9)
    assert not levelling.is_level

    levelling.add(11 * NS_PER_S, 1e9)

    assert levelling.is_level


def test_a_short_warm_up_is_judged_by_what_it_has():
    """Where the cap is below two seconds, half of it is looked at."""
    levelling = Levelling(MIN_NS // 5)
    for i in range(150):
        levelling.add(i * STEP_NS, 1e6)

    assert levelling.is_level


def test_a_long_warm_up_is_not_judged_at_every_block(monkeypatch):
    """Asked after each of 10,000 samples, it computes a hundred times, not ten thousand."""
    looks = []
    real = Levelling._look
    monkeypatch.setattr(Levelling, "_look", lambda self, q: looks.append(q) or real(self, q))

    level_after([1e6 * 1.001**i for i in range(10_000)])

    assert 20 < len(looks) < 150
