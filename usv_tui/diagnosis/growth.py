"""Whether code came into the process while it was measured: what a compilation leaves behind."""

import sys
from typing import Any

from usv_tui.codes import Code

LOADED = Code.CODE_LOADED
_COUNTERS = "torch._dynamo.utils"


class Growth:
    """Asked between windows; costs some dictionary look-ups."""

    def __init__(self) -> None:
        self._seen = _seen()

    def look(self) -> dict[str, Any] | None:
        """How many modules and compiled graphs there are more than at the last look, if any."""
        before, self._seen = self._seen, _seen()
        modules, graphs = (now - then for now, then in zip(self._seen, before, strict=True))
        if modules <= 0 and graphs <= 0:
            return None
        return {"modules": max(0, modules), "graphs": max(0, graphs)}


def _seen() -> tuple[int, int]:
    """Modules, and graphs that torch has compiled."""
    counters = getattr(sys.modules.get(_COUNTERS), "counters", None)
    try:
        graphs = 0 if counters is None else int(counters["stats"]["unique_graphs"])
    except (KeyError, TypeError, ValueError):
        graphs = 0
    return len(sys.modules), graphs
