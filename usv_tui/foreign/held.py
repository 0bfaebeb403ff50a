"""How much memory a callable keeps alive: the storages of the tensors that it can reach."""

import sys
from collections.abc import Sequence
from typing import Any

from usv_tui.foreign.calls import Call
from usv_tui.suite.reach import objects


def held_bytes(calls: Sequence[Call]) -> int:
    """Of all of them together, each storage once."""
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None:
        return 0
    storages: dict[int, int] = {}
    for value in objects(*(call.fn for call in calls)):
        if isinstance(value, tensor):
            _add(value, storages)
    return sum(storages.values())


def _add(value: Any, storages: dict[int, int]) -> None:
    try:
        storage = value.untyped_storage()
        storages[storage.data_ptr() or id(value)] = storage.nbytes()
    except (RuntimeError, NotImplementedError):
        storages[id(value)] = value.numel() * value.element_size()
