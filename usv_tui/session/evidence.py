"""What self-diagnosis sees of a running session: views of the fold's own columns and judgements."""

from dataclasses import replace

import numpy as np

from usv_tui.diagnosis.checks import RowEvidence
from usv_tui.diagnosis.roofline import Roofline
from usv_tui.diagnosis.while_running import KEEP, Watched
from usv_tui.session.row_store import RowStore
from usv_tui.session.store import Store


def watched(store: Store, roofline: Roofline | None) -> list[Watched]:
    """The rows that are timed; phases are none of them."""
    return [
        Watched(
            bench=row.info.bench,
            epoch=(row.epoch_ns, row.epoch_start),
            n=row.n_counted,
            look=lambda row=row: evidence_of(store, row, roofline),  # type: ignore[misc]
        )
        for row in store.rows.values()
        if row.info.parent is None
    ]


def evidence_of(store: Store, row: RowStore, roofline: Roofline | None) -> RowEvidence:
    """The newest windows of a row's epoch, with what the statistics say of all of them."""
    raw = row.raw(max(row.epoch_start, row.t_ns.n - KEEP))
    timer, calibrated = store.timer, row.calibrated
    analysis = store.verdicts.analysis.rows.get(row.info.bench)
    seen = RowEvidence(
        window_ns=raw.window_ns,
        inner=raw.inner.astype(np.int64),
        host_ns=raw.host_ns,
        flags=raw.flags.astype(np.int64),
        is_async=timer is not None and "event" in timer.name,
        floor_ns=timer.floor_ns if timer else None,
        resolution_ns=timer.resolution_ns if timer else None,
        flops=row.info.flops,
        bytes=row.info.bytes,
        roofline=roofline,
        cache=calibrated.cache if calibrated is not None else "warm",
        cache_bytes=calibrated.l2_bytes if calibrated is not None else None,
        has_loaded=store.has_loaded,
        starved_share=row.starved_share,
        n_stalls=row.stalls,
        modes=analysis.modes if analysis is not None else None,
    ).counted()
    return replace(seen, is_start=seen.window_ns.size == row.n_counted)
