"""All raw samples of a session in pieces: from memory, or from its file where they were too many.

The file is folded again, into a store that gives up what is old: so a sample is judged (a stall, a
window of zero) as it was judged when it came, and stands beside the readings of its time.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from usv_tui.model import Reading
from usv_tui.records import Telemetry
from usv_tui.session import journal
from usv_tui.session.columns import Raw
from usv_tui.session.store import Store

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
    is_here = not row.t_ns.first and not store.telemetry_columns.is_thinned
    if is_here or store.archive is None:
        yield from _cut(bench, store, row.t_ns.first, row.t_ns.n)
        return
    left = row.t_ns.n
    for piece in _again(store, bench):
        part = _first(piece.raw, left)
        left -= len(part.t_ns)
        yield piece._replace(raw=part)
        if not left:
            return


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


def whole(store: Store, bench: int) -> Raw:
    """All of a row's samples at once, in memory."""
    row = store.rows[bench]
    if not row.t_ns.first or store.archive is None:
        return row.raw()
    return Raw(*(np.concatenate(c) for c in zip(*(p.raw for p in pieces(store, bench)))))


def readings(store: Store) -> Iterator[Reading]:
    """The device's readings in the file, oldest first."""
    assert store.archive is not None
    left = store.telemetry_columns.n_all
    for batch in journal.Reader(store.archive).batches():
        for record in batch:
            if isinstance(record, Telemetry) and left:
                left -= 1
                yield record.reading
