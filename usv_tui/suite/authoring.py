"""What a benchmark file imports: `benchmark` and `rotating`. Light: neither torch nor numpy.

The decorator only takes notes; names, parameters and skips are worked out by `suite.discovery`
when the file is loaded for a device.
"""

import difflib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from usv_tui import plain
from usv_tui.model import CacheMode

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

REGISTRY = "__usv_benchmarks__"
"""Where a module keeps the definitions of its decorated factories, in order."""

Rows = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]
Params = Rows | Callable[[str], Rows]
Work = float | Callable[..., float | None]
Baseline = bool | str | Mapping[str, Any] | Callable[..., object]
Skip = str | Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """One decorated factory with the options it was given."""

    factory: Callable[..., Any]
    name: str
    params: Params
    flops: Work | None
    bytes: Work | None
    baseline: Baseline | None
    skip: Skip | None
    group: str | None
    setup: Callable[[], object] | None
    reset: Callable[[], object] | None
    check: Callable[[Any, Any], object] | None
    inner: int | None
    cache: CacheMode | None
    inputs: Callable[..., Any] | None = None
    sets: int = 0
    """Sets of inputs to rotate through, where `cache` tells how many."""
    mistake: str = ""
    """Options that nothing can be made of: its rows are refused, and the rest of the file runs."""

    @property
    def where(self) -> str:
        """The name with file and line, for messages."""
        return f"{self.name} ({location(self.factory)})"


@overload
def benchmark(factory: F, /) -> F: ...


@overload
def benchmark(
    *,
    name: str | None = None,
    params: Params | None = None,
    flops: Work | None = None,
    bytes: Work | None = None,
    baseline: Baseline | None = None,
    skip: Skip | None = None,
    group: str | None = None,
    setup: Callable[[], object] | None = None,
    reset: Callable[[], object] | None = None,
    check: Callable[[Any, Any], object] | None = None,
    inner: int | None = None,
    cache: CacheMode | str | None = None,
    inputs: Callable[..., Any] | None = None,
) -> Callable[[F], F]: ...


def benchmark(
    factory: F | None = None,
    /,
    *,
    name: str | None = None,
    params: Params | None = None,
    flops: Work | None = None,
    bytes: Work | None = None,  # noqa: A002  usv's name for it
    baseline: Baseline | None = None,
    skip: Skip | None = None,
    group: str | None = None,
    setup: Callable[[], object] | None = None,
    reset: Callable[[], object] | None = None,
    check: Callable[[Any, Any], object] | None = None,
    inner: int | None = None,
    cache: CacheMode | str | None = None,
    inputs: Callable[..., Any] | None = None,
    **unknown: object,
) -> F | Callable[[F], F]:
    """Declare a function as a factory of timed callables; the function itself stays as it is.

    The factory is called untimed, once a row, with that row's parameters and with `device` ("cuda",
    "cuda:1", "cpu") where it takes them, and returns the callable of no arguments (or of
    `inputs`) to be timed.
    That callable may carry attributes `setup`, `reset`, `check` and `stream`, which then stand
    before the options of the same name.

    Args:
        factory: the function, when the decorator is used without brackets.
        name: instead of the function's name.
        params: lists of values, of which every combination is a row, or a list of rows; or a
            function of the device that returns either, where sizes depend on it.
        flops: floating-point operations of one call: a number, or a function of the parameters
            that it names (and of `device`).
        bytes: bytes read and written by one call, likewise.
        baseline: which rows the others are compared with: some parameters' values, a row's name
            (of this file), or a function of the parameters; True for a factory of one row.
        skip: a reason, or a function of the parameters that returns one (or None).
        group: rows of one group are compared; default: the factory's own rows.
        setup: called once after the factory, untimed.
        reset: called before every sample, untimed; a window then holds one call unless `inner`
            says otherwise.
        check: called untimed, at the start and at random moments of the run, with a row's result
            and its baseline's on the same inputs: False or an exception fails the row.
        inner: calls in one window; never overridden.
        cache: warm, cold (flushed before each sample) or rotating, whatever the run's default is.
            `rotating(n)` calls the factory n times and its callables in turn, unless the factory
            itself rotates through n sets.
        inputs: draws one fresh set of arguments (a tuple, or a single value), likewise; the
            returned callable then takes them. Several sets are handed out in turn, and renewed
            between windows, so that a result that was kept is found out.
        unknown: an option that makes no sense, or that there is not, costs this benchmark alone:
            it is refused, with the reason, when the file is loaded.
    """
    mistake = "; ".join(_mistakes(locals()))

    def declare(target: F) -> F:
        wrong = "" if not isinstance(target, type) and callable(target) else _no_function(target)
        own_name = str(getattr(target, "__name__", type(target).__name__))
        definition = Definition(
            factory=target,
            name=name if name is not None and _is_text(name) else own_name,
            params=params if params is not None else {},
            flops=flops,
            bytes=bytes,
            baseline=baseline,
            skip=skip,
            group=group if _is_text(group) else None,
            setup=setup,
            reset=reset,
            check=check,
            inner=inner,
            cache=_cache_mode(cache),
            inputs=inputs,
            sets=_sets(cache),
            mistake="; ".join(filter(None, (wrong, mistake))),
        )
        _registry(target).append(definition)
        return target

    return declare if factory is None else declare(factory)


def _mistakes(options: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the options of one benchmark; what a session keeps must be text."""
    for option in ("name", "group"):
        if options[option] is not None and not _is_text(options[option]):
            yield _mistake(option, options, "give a text")
    for option in ("setup", "reset", "check", "inputs"):
        if options[option] is not None and not callable(options[option]):
            yield _mistake(option, options, "give a function")
    inner = options["inner"]
    if inner is not None and (not isinstance(inner, int) or inner is True or inner < 1):
        yield _mistake("inner", options, "give a whole number from 1")
    skip = options["skip"]
    if not (skip is None or isinstance(skip, str | bool) or callable(skip)):
        yield _mistake("skip", options, "give a reason, or a function")
    cache = options["cache"]
    if cache is not None and _cache_mode(cache) is None:
        yield _mistake("cache", options, f"one of {', '.join(_CACHE_MODES)}, rotating(n)")
    if options["inputs"] is not None and _sets(cache):
        yield f"cache={plain.value(cache)} (inputs are rotated already)"
    known = sorted(options.keys() - {"factory", "unknown"})
    for option in options["unknown"]:
        near = difflib.get_close_matches(option, known, 1)
        yield f"no option is named '{option}' ({near[0] if near else ', '.join(known)})"


def _mistake(option: str, options: Mapping[str, Any], wanted: str) -> str:
    return f"{option}={plain.value(options[option])} ({wanted})"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def location(function: Callable[..., Any]) -> str:
    """File name and line of a function, for messages."""
    code = getattr(function, "__code__", None)
    if code is None:
        return str(getattr(function, "__module__", "?"))
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


_CACHE_MODES = (CacheMode.WARM, CacheMode.AS_IS, CacheMode.COLD, CacheMode.ROTATING)


def _cache_mode(cache: object) -> CacheMode | None:
    """The mode; None where none was asked for, and where there is no such mode."""
    if _sets(cache) > 1:
        return CacheMode.ROTATING
    return CacheMode(cache) if isinstance(cache, str) and cache in _CACHE_MODES else None


def _sets(cache: object) -> int:
    """How many sets `rotating(n)` asks for; 0 for any other mode."""
    found = re.fullmatch(r"rotating\((\d{1,4})\)", cache) if isinstance(cache, str) else None
    return int(found[1]) if found else 0


def _no_function(target: object) -> str:
    return (
        f"@benchmark on {plain.value(target)}: decorate a function that returns the timed callable"
    )


def _registry(function: Callable[..., Any]) -> list[Definition]:
    """The list of definitions of the module that the function says it is from."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    namespace = vars(module) if module is not None else getattr(function, "__globals__", None)
    if namespace is None:  # a value that is from nowhere: the file that decorates it
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals is globals():
            frame = frame.f_back
        namespace = {} if frame is None else frame.f_globals
    found: list[Definition] = namespace.setdefault(REGISTRY, [])
    return found


ROTATIONS: ContextVar[list["Rotation[Any]"] | None] = ContextVar("rotations", default=None)
"""Collects the rotations that are made while a row is set up, so that its badge can tell."""


class Rotation(Generic[T]):
    """Hands out its items one after the other, for ever."""

    def __init__(self, items: Iterable[T]) -> None:
        if not isinstance(items, Iterable):
            raise TypeError(f"rotating: items is {plain.value(items)}; give the inputs, as a list")
        self.items = list(items)
        if not self.items:
            raise ValueError("rotating: items is empty: nothing to rotate through")
        self._next = itertools.cycle(self.items).__next__
        made = ROTATIONS.get()
        if made is not None:
            made.append(self)

    def __call__(self) -> T:
        """The next item."""
        return self._next()


def rotating(items: Iterable[T]) -> Rotation[T]:
    """A callable that returns the items in turn: other inputs at each call, so other memory.

    The caches stay cold when the items together are larger than twice the last-level cache.

    Raises:
        TypeError: not a list or the like.
        ValueError: there are no items.
    """
    return Rotation(items)
