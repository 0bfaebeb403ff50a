"""All raw samples of a session in pieces: from memory, or from its file where they were too many.

The file is folded again, into a store that gives up what is old: so a sample is judged (a stall, a
window of zero) as it was judged when it came, and stands beside the readings of its time.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from usv_tui.records import Telemetry
from usv_tui.session import journal
from usv_tui.session.columns import Raw, TelemetryColumns
from usv_tui.session.store import Store
from usv_tui.stats.inputs import RowData

_PIECE = 1 << 16
_ROOM = 1 << 18


class Piece(NamedTuple):
    """Some samples of one row, and the store that knows the readings of their time."""

    bench: int
    raw: Raw
    beside: Store


def pieces(store: Store, bench: int) -> Iterator[Piece]:
    """One row's samples from the first to the last, as far as they are kept anywhere."""
    row = store.rows[bench]
    done = 0
    if store.archive is not None and (row.t_ns.first or store.telemetry_columns.is_thinned):
        for piece in _again(store, bench):
            part = _first(piece.raw, row.t_ns.n - done)
            done += len(part.t_ns)
            if len(part.t_ns):
                yield piece._replace(raw=part)
    # What came after the file's last frame, if it could not be written to its end.
    yield from _cut(bench, store, max(done, row.t_ns.first), row.t_ns.n)


def _cut(bench: int, store: Store, first: int, stop: int) -> Iterator[Piece]:
    row = store.rows[bench]
    for start in range(first, stop, _PIECE):
        yield Piece(bench, row.raw(start, min(start + _PIECE, stop)), store)


def _again(store: Store, bench: int) -> Iterator[Piece]:
    """The file folded again, for one row."""
    assert store.archive is not None
    given: deque[Piece] = deque()
    again = Store(spill=lambda of, raw: given.append(Piece(of, raw, again)), room=_ROOM, only=bench)
    for batch in journal.Reader(store.archive).batches():
        again.apply(batch)
        while given:
            yield given.popleft()
    if bench in again.rows:
        row = again.rows[bench]
        yield from _cut(bench, again, row.t_ns.first, row.t_ns.n)


def _first(raw: Raw, n: int) -> Raw:
    return raw if len(raw.t_ns) <= n else Raw(*(values[:n] for values in raw))


def whole(store: Store, bench: int) -> RowData:
    """All samples of a row's epoch at once, as the statistics take them."""
    row = store.rows[bench]
    data = row.data(None, 0.0)
    if not data.n_before or store.archive is None:
        return data
    columns = zip(*(piece.raw for piece in pieces(store, bench)), strict=True)
    raw = Raw(*(np.concatenate(values)[row.epoch_start :] for values in columns))
    return replace(
        data,
        t_ns=raw.t_ns,
        window_ns=raw.window_ns,
        inner=raw.inner,
        rounds=raw.rounds,
        flags=raw.flags,
        n_before=0,
    )


def readings(store: Store) -> Iterator[TelemetryColumns]:
    """The device's readings in pieces, oldest first."""
    here = store.telemetry_columns
    if not here.is_thinned or store.archive is None:
        yield here
        return
    part = TelemetryColumns()
    for batch in journal.Reader(store.archive).batches():
        for record in batch:
            if isinstance(record, Telemetry):
                part.add(record.reading)
        if part.t_ns.n >= _PIECE // 8:
            yield part
            part = TelemetryColumns()
    yield part
