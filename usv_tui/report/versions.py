"""Two versions that were compared: what stands under a table about them, and as plain data."""

from typing import Any

from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.stats.duet import ALPHA, BAND, SAME


def facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Which versions, how many launches, and what the verdicts are corrected for."""
    duet = snapshot.duet
    if duet is None:
        return []
    said = [
        (part, f"{label} ({what})" if what else label)
        for part, label, what in zip(("BASE", "HEAD"), duet.labels, duet.what, strict=True)
    ]
    launches = f"{duet.done} of both versions, in fresh processes"
    if duet.handover_ns is not None and duet.handover_share is not None:
        cost_us = duet.handover_ns / 1e3
        launches += f"; handing over took {cost_us:.1f} µs, {duet.handover_share:.2%} of the time"
    rule = "95 % over launches, for the next one too; the verdict is corrected for "
    rule += f"{duet.rows} row{'s' if duet.rows != 1 else ''} (Holm)"
    return [*said, ("launches", launches), ("interval", rule)]


def as_data(snapshot: Snapshot) -> dict[str, Any] | None:
    """The versions and the rule, for JSON."""
    duet = snapshot.duet
    if duet is None:
        return None
    return {
        **duet._asdict(),
        "correction": "holm",
        "alpha": ALPHA,
        "indistinguishable": BAND,
        "same_within": SAME,
    }


def row_data(row: RowView) -> dict[str, Any]:
    """One row's part in it, for JSON: raw and corrected."""
    versus = row.versus
    found: dict[str, Any] = {"version": row.version, "rival": row.rival}
    if versus is None or versus.over is None:
        return found | {"versus": None}
    over = versus.over
    low, high = versus.family or (None, None)
    return found | {
        "versus": {
            "ratio": over.ratio,
            "raw": {"answer": str(versus.raw), "low": over.low, "high": over.high, "p": over.p},
            "corrected": {"answer": str(versus.answer), "low": low, "high": high, "p": versus.p},
            "between_sd": over.between,
            "within_se": over.within,
            "launches": [
                {"number": one.number, "ratio": one.ratio, "se": one.error, "pairs": one.pairs}
                for one in versus.launches
            ],
        }
    }
