"""Blocks of samples as columns."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.records import Samples
from usv_tui.session.snapshot import IntArray


class Columns(NamedTuple):
    """The samples of some blocks, in their order."""

    bench: IntArray
    t_ns: IntArray
    window_ns: IntArray
    inner: IntArray
    rounds: IntArray
    flags: IntArray
    host_ns: IntArray | None

    def by_row(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Each row with the places of its samples."""
        order = np.argsort(self.bench, kind="stable")
        edges = np.flatnonzero(np.diff(self.bench[order])) + 1
        for index in np.split(order, edges):
            yield int(self.bench[index[0]]), index


def joined(blocks: Sequence[Samples]) -> Columns:
    """All samples of these blocks; where only some have host times, a window's own stands in."""
    bench: list[int] = []
    window: list[int] = []
    inner: list[int] = []
    flags: list[int] = []
    host: list[int] = []
    t_ns: list[IntArray] = []
    rounds: list[IntArray] = []
    has_host = any(block.host_ns for block in blocks)
    for block in blocks:
        n = len(block.bench)
        bench += block.bench
        t_ns.append(np.array(block.dt_ns, dtype=np.int64) + block.t0_ns)
        window += block.window_ns
        inner += block.inners()
        flags += block.all_flags()
        rounds.append(block.round + np.arange(n) // block.size)
        if has_host:
            host += block.host_ns or block.window_ns
    return Columns(
        np.array(bench),
        np.concatenate(t_ns),
        np.array(window, dtype=np.int64),
        np.array(inner, dtype=np.int64),
        np.concatenate(rounds),
        np.array(flags, dtype=np.int64),
        np.array(host, dtype=np.int64) if has_host else None,
    )
