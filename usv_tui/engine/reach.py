"""The memory that a callable can reach: its closure, defaults, attributes and the names it uses."""

import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

from usv_tui.suite import values

_MOST = 20_000
_DEPTH = 8
_CLOSED = (types.ModuleType, type, str, bytes, int, float, types.BuiltinFunctionType)


def reachable(*roots: Any) -> frozenset[int] | None:
    """Where the tensors and arrays begin that can be reached; None: there is too much to see."""
    seen: set[int] = set()
    found: set[int] = set()
    level = list(roots)
    for _ in range(_DEPTH):
        following: list[Any] = []
        for item in level:
            if item is None or isinstance(item, _CLOSED) or id(item) in seen:
                continue
            seen.add(id(item))
            if values.is_tensor(item) or hasattr(item, "__array_interface__"):
                found |= values.places(item)
            else:
                following += _behind(item)
        if len(seen) + len(following) > _MOST:
            return None
        level = following
    return frozenset(found)


def _behind(item: Any) -> Iterator[Any]:
    if isinstance(item, types.FunctionType):
        yield from (item.__closure__, item.__defaults__, item.__kwdefaults__, vars(item))
        if item.__module__ == item.__globals__.get("__name__") and not _is_library(item):
            yield from (item.__globals__.get(name) for name in _names(item.__code__))
    elif isinstance(item, types.MethodType):
        yield from (item.__self__, item.__func__)
    elif isinstance(item, functools.partial):
        yield from (item.func, item.args, item.keywords)
    else:
        yield from gc.get_referents(item)


def _is_library(function: types.FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
