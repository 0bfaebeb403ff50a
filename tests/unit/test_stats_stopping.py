"""`--until`: what is understood, and when a run ends and why."""

import math

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.pairs import half_width
from usv_tui.stats.stopping import (
    Block,
    Precision,
    Stop,
    StopRule,
    Target,
    TargetKind,
    parse_until,
)

RATIO = Target(TargetKind.RATIO, 0.005)
MEDIAN = Target(TargetKind.MEDIAN, 0.005)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("±0.5%", MEDIAN),
        ("+-0.5%", MEDIAN),
        ("+/- .5 %", MEDIAN),
        ("0.5%", MEDIAN),
        ("median±0.5%", MEDIAN),
        ("ratio±0.5%", RATIO),
        (" Ratio +- 0.50 % ", RATIO),
        ("ratio±2%", Target(TargetKind.RATIO, 0.02)),
    ],
)
def test_targets_are_read_as_people_write_them(text: str, target: Target) -> None:
    """With ±, +- or +/-, with or without spaces, in any case."""
    kind, width = parse_until(text)

    assert kind is target.kind
    assert width == pytest.approx(target.half_width)


@pytest.mark.parametrize(
    "text", ["", "0.5", "ratio", "±0%", "±60%", "mean±1%", "±-1%", "1e-3%", "±%"]
)
def test_what_is_no_target_is_refused_in_words(text: str) -> None:
    """The message repeats what was given."""
    with pytest.raises(ValueError, match="target"):
        parse_until(text)


def known(width: float | None, n: int = 300, n_eff: float = 300.0, **more: object) -> Precision:
    """A row's precision."""
    return Precision(1, width, n, n_eff, **more)  # type: ignore[arg-type]


def test_a_target_must_be_met_at_two_checkpoints() -> None:
    """200 samples, then 20 % more."""
    rule = StopRule(RATIO)

    assert not rule.update([known(0.004, 199)], 1.0).is_done
    assert not rule.update([known(0.004, 200)], 1.0).is_done
    assert not rule.update([known(0.004, 239)], 1.0).is_done
    assert rule.update([known(0.004, 240)], 1.0) == Stop(True, "target", 0.004, 1)


def test_a_checkpoint_that_fails_starts_the_count_afresh() -> None:
    """Met, missed, met is not met twice in a row."""
    rule = StopRule(RATIO)
    steps = [(0.004, 200), (0.006, 240), (0.004, 300)]

    assert not any(rule.update([known(w, n)], 1.0).is_done for w, n in steps)
    assert rule.update([known(0.004, 400)], 1.0).is_done


@pytest.mark.parametrize(
    ("row", "block"),
    [
        (known(None), Block.WIDE),
        (known(0.006), Block.WIDE),
        (known(0.001, 100), Block.FEW),
        (known(0.001, 300, 29.0), Block.CORRELATED),
        (known(0.001, moves=True), Block.MOVING),
    ],
)
def test_what_keeps_a_ratio_from_its_target_is_said(row: Precision, block: Block) -> None:
    """The progress names what is lacking, and time ends it with that reason."""
    rule = StopRule(RATIO)

    assert rule.update([row], 59.0).block is block
    assert rule.update([row], 60.0) == Stop(True, "time", row.half_width, 1, block)


def test_a_median_is_not_believed_before_it_has_settled() -> None:
    """However narrow its interval (a cold card converges on a wrong value)."""
    rule = StopRule(MEDIAN)
    rows = [known(0.0001, n, is_settled=False) for n in (200, 300, 400, 500)]

    assert not any(rule.update([row], 10.0).is_done for row in rows)
    assert rule.update(rows[-1:], 10.0).block is Block.UNSETTLED
    assert rule.update(rows[-1:], 150.0).reason == "time"


def test_a_median_between_two_even_modes_is_refused() -> None:
    """The median is no stable target then; a small second mode does no harm."""
    even = known(0.003, minor_mode=0.4)
    small = known(0.003, minor_mode=0.1)

    assert StopRule(MEDIAN).update([even], 1.0) == Stop(True, "refused", 0.003, 1, Block.MODES)
    assert StopRule(MEDIAN).update([small], 1.0).block is Block.NONE
    assert StopRule(RATIO).update([even], 1.0).block is Block.NONE


def test_the_row_that_is_furthest_decides() -> None:
    """All rows must meet the target; the worst one is named."""
    rule = StopRule(RATIO)
    good, bad = known(0.001), known(0.02)._replace(bench=7)

    assert rule.update([good, bad], 1.0) == Stop(False, "", 0.02, 7, Block.WIDE)


def test_without_rows_only_time_ends_a_run() -> None:
    """Nothing to be known is never a target met."""
    rule = StopRule(RATIO, max_time_s=5.0)

    assert not rule.update([], 1.0).is_done
    assert rule.update([], 5.0).reason == "time"


@pytest.mark.parametrize("phi", [0.9, 0.97])
def test_intervals_of_runs_that_stopped_still_cover(phi: float) -> None:
    """Optional stopping on correlated rounds: at least 88 % cover, 95 % are within the target."""
    covered, within, runs = 0, 0, 60
    for seed in range(runs):
        d = 0.005 * noise.ar1_normal(np.random.default_rng(seed), 12_000, phi)
        rule, tracker = StopRule(RATIO), PairTracker()
        for i in range(0, d.size, 50):
            tracker.add(d[i : i + 50])
            r = tracker.ratio()
            if rule.update([Precision(1, half_width(r), r.n, r.n_eff or 0.0)], 0.0).is_done:
                break
        covered += (r.low or 1.0) <= 1.0 <= (r.high or 1.0)
        within += abs(math.log(r.ratio or 1.0)) <= 0.005

    assert covered >= 0.88 * runs
    assert within >= 0.95 * runs
