"""A callable as it is now: what it closes over and the globals that it reads are kept.

`for n in sizes: x = make(n); bench(lambda: f(x))` timed later would time the last `x` in each row.
"""

import dis
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")


def freeze(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable with its cells and globals as they are; itself where it writes to them."""
    return _Freezer().frozen(fn)  # type: ignore[no-any-return]


def freeze_globals(names: Mapping[str, Any]) -> dict[str, Any]:
    """A namespace whose functions are as they are now."""
    freezer = _Freezer()
    return {name: freezer.frozen(value) for name, value in names.items()}


class _Freezer:
    """One moment: every namespace is copied once, every function once."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._spaces: dict[int, dict[str, Any]] = {}
        self._kept: list[Any] = []
        """So that no id is given away while this lasts."""

    def frozen(self, value: Any) -> Any:
        if isinstance(value, functools.partial) and type(value) is functools.partial:
            return functools.partial(self.frozen(value.func), *value.args, **value.keywords)
        if not isinstance(value, types.FunctionType) or not _is_of_script(value):
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        if _writes(value.__code__):
            return value
        space = self._space(value.__globals__)
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        made = types.FunctionType(
            value.__code__, space, value.__name__, value.__defaults__, cells or None
        )
        made.__kwdefaults__ = value.__kwdefaults__
        made.__dict__.update(value.__dict__)
        self._made[id(value)] = made
        self._kept.append(value)
        for mine, its in zip(cells, value.__closure__ or (), strict=True):
            try:
                mine.cell_contents = self.frozen(its.cell_contents)
            except ValueError:
                continue  # a cell that is still empty
        for name in _names(value.__code__):
            if name in space:
                space[name] = self.frozen(space[name])
        return made

    def _space(self, names: dict[str, Any]) -> dict[str, Any]:
        if id(names) not in self._spaces:
            self._spaces[id(names)] = dict(names)
            self._kept.append(names)
        return self._spaces[id(names)]


def _is_of_script(function: types.FunctionType) -> bool:
    return function.__globals__.get("__name__") == "__main__"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    return {name for part in _codes(code) for name in part.co_names}


def _writes(code: types.CodeType) -> bool:
    """Whether it changes what it shares with the script: a copy would change something else."""
    return any(
        step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        or (step.opname in _WRITES and step.argval in part.co_freevars)
        for part in _codes(code)
        for step in dis.get_instructions(part)
    )
