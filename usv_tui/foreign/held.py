"""How much memory a callable keeps alive: the storages of the tensors that it can reach."""

import functools
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from usv_tui.foreign.calls import Call

_MOST_STEPS = 5
_MOST_SEEN = 10_000


def held_bytes(calls: Sequence[Call]) -> int:
    """Of all of them together, each storage once."""
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None:
        return 0
    seen: set[int] = set()
    storages: dict[int, int] = {}
    level: list[Any] = [call.fn for call in calls]
    for _ in range(_MOST_STEPS):
        below: list[Any] = []
        for value in level:
            if id(value) in seen or len(seen) > _MOST_SEEN:
                continue
            seen.add(id(value))
            if isinstance(value, tensor):
                _add(value, storages)
            else:
                below += _parts(value)
        level = below
    return sum(storages.values())


def _add(value: Any, storages: dict[int, int]) -> None:
    try:
        storage = value.untyped_storage()
        storages[storage.data_ptr() or id(value)] = storage.nbytes()
    except (RuntimeError, NotImplementedError):
        storages[id(value)] = value.numel() * value.element_size()


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue
        yield from (value.__globals__[n] for n in value.__code__.co_names if n in value.__globals__)
        yield from value.__defaults__ or ()
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.BuiltinMethodType | types.MethodType):
        yield value.__self__
    elif isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is not None:
            names = value.gi_code.co_names
            yield from frame.f_locals.values()
            yield from (frame.f_globals[n] for n in names if n in frame.f_globals)
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    elif not isinstance(value, types.ModuleType | type) and hasattr(value, "__dict__"):
        yield from vars(value).values()
