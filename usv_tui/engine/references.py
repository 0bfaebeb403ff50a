"""What a benchmark file must not replace: clocks, waits, comparisons, Python's own functions, ours.

They are noted before the file is imported (those of torch and numpy when these are), looked at
again between windows, and put back. A library that brings its own, as those of other accelerators
do, is let be.
"""

import builtins
import functools
import gc
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_TIME = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
_WATCHED: Mapping[str, tuple[str, ...]] = {
    "time": (*_TIME, "process_time", "process_time_ns", "thread_time", "thread_time_ns", "sleep"),
    "torch": ("allclose", "equal", "isclose", "Event", "manual_seed", "empty", "matmul", "mm"),
    "torch.cuda": ("synchronize", "Event", "current_stream", "Stream", "is_available"),
    "torch.cuda.Event": ("record", "elapsed_time", "synchronize", "query"),
    "torch.cuda.Stream": ("synchronize",),
    "torch.accelerator": ("synchronize", "current_stream"),
    "torch.testing": ("assert_close",),
    "numpy": ("allclose", "array_equal", "isclose", "asarray", "array", "all", "copy"),
    "numpy.testing": ("assert_allclose", "assert_array_equal"),
    "numpy.random": ("seed",),
    "random": ("seed", "Random", "getrandbits", "random"),
    "gc": ("collect", "disable", "enable", "freeze"),
    "operator": ("call",),
    "itertools": ("starmap", "repeat", "cycle", "islice", "chain"),
}
_CLOCKS = ("time.", "torch.cuda.", "torch.accelerator.", "usv_tui.timers.wall.WallTimer.")
_COMPARISONS = ("Event", "close", "array_equal", ".equal")
"""Whose replacement is told as that of a clock."""
_WHOLE = ("torch.Tensor",)
"""Classes all of whose methods are watched."""
_NOT_WATCHED = ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "__dir__")
_BUILTINS = (
    *("abs", "all", "any", "bool", "bytes", "callable", "dict", "enumerate", "filter", "float"),
    *("getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass", "iter", "len", "list"),
    *("map", "max", "min", "next", "range", "reversed", "round", "set", "setattr", "sorted", "str"),
    *("sum", "tuple", "type", "vars", "zip", "object", "frozenset"),
)
_OURS = "usv_tui"
_CONSTANT = (int, float, str, tuple, frozenset)


class Replaced(NamedTuple):
    """What a file has replaced."""

    clocks: list[str]
    """Clocks, waits, events and comparisons of Python's or torch's."""
    others: list[str]
    """Functions of Python's, torch's or numpy's, and our own."""
    watchers: list[str]
    """Hooks of the interpreter that were not there before."""


class References:
    """The originals."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, str, Any]] = {}
        self._codes: dict[str, tuple[types.FunctionType, types.CodeType]] = {}
        self._hooks = _hooks()
        self._early = Replaced([], [], [])
        """What was put back before anybody asked."""
        self._callbacks = list(gc.callbacks)
        self._keep("builtins", builtins, _BUILTINS)
        for path, owner in _our_own():
            self._keep(path, owner, tuple(name for name, v in vars(owner).items() if _is_ours(v)))
        self.take()

    def take(self) -> None:
        """Note those of the libraries that are loaded by now."""
        for path, names in _WATCHED.items():
            owner = _at(path)
            if owner is not None:
                self._keep(path, owner, names)
        for path in _WHOLE:
            owner = _at(path)
            if isinstance(owner, type):
                own = [name for name in dir(owner) if name not in _NOT_WATCHED]
                self._keep(path, owner, tuple(n for n in own if callable(getattr(owner, n, None))))

    def _keep(self, path: str, owner: Any, names: tuple[str, ...]) -> None:
        for name in names:
            if hasattr(owner, name):
                original = getattr(owner, name)
                key = f"{path}.{name}"
                self._kept.setdefault(key, (owner, name, original))
                if isinstance(original, types.FunctionType):
                    self._codes.setdefault(key, (original, original.__code__))

    def mend_early(self) -> None:
        """Put back what was replaced; it is told by the next `mend`."""
        self._early = self.mend()

    def mend(self) -> Replaced:
        """Put back what was replaced; the names of that, usually none."""
        early, self._early = self._early, Replaced([], [], [])
        found = self._mend()
        return Replaced(
            *(a + [n for n in b if n not in a] for a, b in zip(early, found, strict=True))
        )

    def _mend(self) -> Replaced:
        clocks: list[str] = []
        others: list[str] = []
        for path, (owner, name, original) in self._kept.items():
            now = getattr(owner, name, None)
            if now is original or _is_equal(now, original) or _is_of_a_library(now):
                continue
            (clocks if _is_clock(path) else others).append(path)
            setattr(owner, name, original)
        for path, (function, code) in self._codes.items():
            if function.__code__ is not code:
                (clocks if _is_clock(path) else others).append(path)
                function.__code__ = code
        return Replaced(clocks, others, self._unhook())

    def _unhook(self) -> list[str]:
        """Take off hooks that run at each call or collection."""
        found = [name for name, hook in _hooks().items() if hook is not self._hooks[name]]
        found = [name for name in found if not _is_of_a_library(_hooks()[name])]
        for name in found:
            _HOOKS[name][1](self._hooks[name])
        mine = [c for c in gc.callbacks if c not in self._callbacks and not _is_of_a_library(c)]
        for callback in mine:
            gc.callbacks.remove(callback)
        return found + ["gc.callbacks"] * bool(mine)


_HOOKS: Mapping[str, tuple[Any, Any]] = {
    "sys.setprofile": (sys.getprofile, sys.setprofile),
    "sys.settrace": (sys.gettrace, sys.settrace),
    "threading.setprofile": (threading.getprofile, threading.setprofile),
    "threading.settrace": (threading.gettrace, threading.settrace),
}


def _hooks() -> dict[str, Any]:
    return {name: read() for name, (read, _) in _HOOKS.items()}


def _at(path: str) -> Any:
    module, *rest = path.split(".")
    return functools.reduce(lambda o, name: getattr(o, name, None), rest, sys.modules.get(module))


def _our_own() -> Iterator[tuple[str, Any]]:
    """Our modules and their classes."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _OURS and module is not None:
            yield name, module
            for kind in [v for v in vars(module).values() if isinstance(v, type)]:
                if kind.__module__ == name:
                    yield f"{name}.{kind.__name__}", kind


def _is_ours(value: Any) -> bool:
    if isinstance(value, types.FunctionType | type):
        return str(value.__module__).partition(".")[0] == _OURS
    return type(value) in _CONSTANT


def _is_clock(path: str) -> bool:
    """Of those that have been told as clocks from the beginning: clocks, waits and comparisons."""
    is_comparison = path.startswith(("torch.", "numpy.")) and path.endswith(_COMPARISONS)
    return path.startswith(_CLOCKS) or is_comparison


def _is_equal(now: Any, original: Any) -> bool:
    """Bound methods and such, which are made anew each time."""
    try:
        return type(now) is type(original) and bool(now == original)
    except Exception:  # noqa: BLE001  a replacement's own equality may raise
        return False


def _is_of_a_library(replacement: Any) -> bool:
    module = sys.modules.get(getattr(replacement, "__module__", "") or "")
    return "site-packages" in (getattr(module, "__file__", "") or "")
