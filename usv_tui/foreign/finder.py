"""Which libraries are patched, and when: as soon as a script has imported one, and only then."""

import sys
import types
from collections.abc import Callable
from typing import Any

LIBRARIES = {
    "torch.utils.benchmark.utils.timer": "torch_benchmark",
    "triton.testing": "triton_testing",
    "flashinfer.testing.utils": "flashinfer_testing",
    "flashinfer.testing": "flashinfer_testing",
    "tritonbench.utils.triton_op": "tritonbench_op",
    "cuda.bench": "nvbench",
}
"""The modules with entry points to be replaced, and who replaces them; a new one is a file."""


class Finder:
    """Patches a library when it has been imported, and only then."""

    def __init__(self, install: Callable[[types.ModuleType], object]) -> None:
        self._install = install
        self._is_looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Not ours to find; the loader that will be found is followed."""
        if name not in LIBRARIES or self._is_looking:
            return None
        self._is_looking = True
        try:
            found = None
            for finder in sys.meta_path:
                look = getattr(finder, "find_spec", None)
                if finder is not self and look is not None:
                    found = look(name, path, target)
                if found is not None:
                    break
        finally:
            self._is_looking = False
        load = getattr(getattr(found, "loader", None), "exec_module", None)
        if found is None or load is None:
            return found

        def follow(module: types.ModuleType) -> None:
            load(module)
            self._install(module)

        found.loader.exec_module = follow
        return found
