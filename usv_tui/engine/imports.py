"""What Python imports by, beside user code that may empty it: nothing of ours could be imported."""

import sys
import sysconfig
from pathlib import Path

_VITAL = ("sys", "builtins", "importlib", "usv_tui", __name__)


class Imports:
    """Modules and paths as they were once; `mend` is cheap while they are there."""

    def __init__(self) -> None:
        self._modules = dict(sys.modules)
        self._path = list(dict.fromkeys(sys.path))
        wanted = {sysconfig.get_path("stdlib"), str(Path(__file__).parents[2])}
        self._vital_paths = [entry for entry in sys.path if entry in wanted]

    def mend(self) -> str:
        """Put back what is gone; returns what that was, usually nothing."""
        modules, path = sys.modules, sys.path
        lost = []
        for name in _VITAL:
            if name not in modules:
                lost.append("sys.modules")
                break
        for entry in self._vital_paths:
            if entry not in path:
                lost.append("sys.path")
                break
        if not lost:
            return ""
        for name, module in self._modules.items():
            modules.setdefault(name, module)
        path += [entry for entry in self._path if entry not in path]
        return " and ".join(lost)
