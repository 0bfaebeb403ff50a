"""Which rows are to get other buffers: those whose ratio is so near to 1 that it may be these."""

from usv_tui.model import PLACEMENT, RunConfig
from usv_tui.session.store import Store
from usv_tui.stats.placement import FEWEST_VALUES


class PlacementAsk:
    """Asks once for each row, where the run does not build all of them afresh or none."""

    def __init__(self, config: RunConfig) -> None:
        self._is_open = config.realloc is None and not config.control
        self._asked: set[int] = set()

    def wanted(self, store: Store) -> list[int]:
        """Rows to be built afresh, and their baselines, which have not been asked for yet."""
        if not self._is_open:
            return []
        found: list[int] = []
        for bench, said in store.verdicts.analysis.rows.items():
            row, ratio = store.rows[bench], said.ratio
            if ratio is None or ratio.ratio is None or ratio.n < FEWEST_VALUES:
                continue
            if abs(ratio.ratio - 1) <= PLACEMENT and row.ratio_to is not None:
                found += [bench, row.ratio_to]
        fresh = [bench for bench in dict.fromkeys(found) if bench not in self._asked]
        self._asked.update(fresh)
        return fresh
