"""What a callable can reach: its closure, defaults, attributes and the names that it uses."""

import functools
import gc
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from usv_tui.suite import values

_MOST = 20_000
_DEPTH = 8
_CLOSED = (types.ModuleType, type, str, bytes, int, float)
_STDLIB = sysconfig.get_path("stdlib")


def is_array(item: Any) -> bool:
    """A tensor or an array: what is behind it is its own business."""
    kind = type(item)
    return hasattr(kind, "data_ptr") or hasattr(kind, "__array_interface__")


def objects(
    *roots: Any,
    is_leaf: Callable[[Any], bool] = is_array,
    most: int = _MOST,
) -> Iterator[Any]:
    """Everything within reach, the nearest first and each once; at most so many, and a few levels.

    Leaves, modules and classes are met and not entered.
    """
    seen: set[int] = set()
    level = list(roots)
    for _ in range(_DEPTH):
        following: list[Any] = []
        for item in level:
            if item is None or id(item) in seen:
                continue
            seen.add(id(item))
            yield item
            if not (isinstance(item, _CLOSED) or is_leaf(item)):
                following += islice(_behind(item), most - len(following))
        if len(seen) >= most:
            return
        level = following


def reachable(*roots: Any) -> frozenset[int] | None:
    """Where the tensors and arrays begin that can be reached; None: there is too much to see."""
    found: set[int] = set()
    for count, item in enumerate(objects(*roots, most=_MOST + 1)):
        if count >= _MOST:
            return None
        if is_array(item):
            found |= values.places(item)
    return frozenset(found)


def _behind(item: Any) -> Iterator[Any]:
    if isinstance(item, types.FunctionType):
        yield from (item.__closure__, item.__defaults__, item.__kwdefaults__, vars(item))
        if item.__module__ == item.__globals__.get("__name__") and not _is_library(item):
            yield from (item.__globals__.get(name) for name in _names(item.__code__))
    elif isinstance(item, types.MethodType):
        yield from (item.__self__, item.__func__)
    elif isinstance(item, types.BuiltinMethodType):
        yield item.__self__
    elif isinstance(item, functools.partial):
        yield from (item.func, item.args, item.keywords)
    else:
        yield from gc.get_referents(item)
        for kind in type(item).__mro__:
            if _is_users(kind):
                yield from vars(kind).values()


def _is_library(function: types.FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename


@functools.cache
def _is_users(kind: type) -> bool:
    """A class of the benchmark file's own, or of a project's: its methods are what is called."""
    return is_users(sys.modules.get(kind.__module__))


def is_users(module: types.ModuleType | None) -> bool:
    """A module that is neither Python's own nor installed."""
    file = str(getattr(module, "__file__", None) or "")
    return bool(file) and "site-packages" not in file and not file.startswith(_STDLIB)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
