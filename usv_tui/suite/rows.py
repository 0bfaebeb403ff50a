"""One declaration becomes rows: a row for each combination of parameters, grouped by baseline."""

import fnmatch
import functools
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from usv_tui import plain
from usv_tui.errors import SuiteError, one_line
from usv_tui.model import Benchmark
from usv_tui.suite.authoring import ROTATIONS, Definition, Rotation, location
from usv_tui.suite.inputs import Inputs, seed_generators

DEVICE = "device"
"""The argument by which a factory is told its device; no parameter may have this name."""
_MAX_VALUE_TEXT = 40
_MOST_ROWS = 10_000
"""Rows of one declaration; more would neither be seen nor timed."""


@dataclass(eq=False)
class Row:
    """One combination of parameters while its file is being loaded."""

    definition: Definition
    values: dict[str, Any]
    texts: dict[str, str]
    """The values as the name shows them."""
    name: str
    reason: str = ""
    """Why it is not timed; empty when it is."""
    is_refused: bool = False
    """It cannot be timed, other than its author thinks."""
    is_baseline: bool = False
    group: str = ""

    @property
    def where(self) -> str:
        """The name with file and line, for messages."""
        return self.definition.where

    def refuse(self, why: str) -> None:
        """It cannot be timed; the first reason stands."""
        if not self.is_refused:
            text = why.removeprefix(self.where).lstrip(": ")
            self.reason = f"{location(self.definition.factory)}: {text}"
            self.is_refused = True


class Built(NamedTuple):
    """A row that is set up, in the thread that will time it."""

    fn: Callable[[], object]
    reset: Callable[[], object] | None
    check: Callable[[Any, Any], object] | None
    stream: Any
    rotations: tuple[Rotation[Any], ...]
    """Sets of inputs that were made for it, for its cache badge."""
    inputs: Inputs | None = None
    """Its fresh inputs, where its file has a factory of them."""


def assemble(row: Benchmark, device: str, seed: int = 0) -> Built:
    """Do a row's set-up; attributes of the returned callable stand before the row's options.

    Every row's set-up begins with the same seed, so that rows that draw alike get equal inputs.

    Raises:
        SuiteError: the factory returned something that cannot be called.
        Exception: whatever the set-up raises.
    """
    made: list[Rotation[Any]] = []
    token = ROTATIONS.set(made)
    try:
        seed_generators(seed)
        fn = row.build(device)
        own = _own(fn)
        setup = own.get("setup", row.setup)
        if setup is not None:
            setup()
        inputs = None if row.inputs is None else Inputs(row.inputs, fn, seed)
    finally:
        ROTATIONS.reset(token)
    return Built(
        fn if inputs is None else inputs.first,
        own.get("reset", row.reset),
        own.get("check", row.check),
        own.get("stream", row.stream),
        tuple(made),
        inputs,
    )


def not_a_function(function: Callable[..., Any]) -> str:
    """Why calling this would run nothing; empty when it would."""
    target = inspect.unwrap(function)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        return "a coroutine function: calling it runs nothing"
    if inspect.isgeneratorfunction(target):
        return "a generator function: calling it runs nothing"
    return ""


def required_arguments(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments without a default; empty also when there is no telling."""
    return [
        p.name
        for p in _parameters(function)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


@contextmanager
def blamed_on(rows: Iterable[Row]) -> Iterator[None]:
    """What goes wrong with an option costs these rows, and neither the others nor the file."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001  values are strangers' objects
        why = str(error) if isinstance(error, SuiteError) else one_line(error)
        for row in rows:
            row.refuse(why)


def expand(definition: Definition, device: str) -> list[Row]:
    """The rows of one declaration; those that are to be skipped, or cannot be timed, say why.

    Where not even its parameters can be told it is one row, of its own name.
    """
    whole = Row(definition, {}, {}, definition.name)
    if definition.mistake:
        whole.refuse(definition.mistake)
        return [whole]
    rows: list[Row] = []
    with blamed_on([whole]):
        rows = _all_rows(definition, device)
    if whole.is_refused:
        return [whole]
    for row in rows:
        with blamed_on([row]):
            row.reason = not_a_function(definition.factory)
            row.is_refused = bool(row.reason)
            row.reason = row.reason or _skip_reason(row, device)
    return rows


def _all_rows(definition: Definition, device: str) -> list[Row]:
    """One row for each combination of its parameters.

    Raises:
        SuiteError: parameters without values, not wanted by the factory or missing.
    """
    rows = []
    known: dict[str, list[Any]] = {}
    for values in _combinations(definition, device):
        _check_names(definition, values)
        _check_arguments(definition, values)
        texts = {key: _value_text(key, value, known) for key, value in values.items()}
        inside = ",".join(f"{key}={text}" for key, text in texts.items())
        name = f"{definition.name}[{inside}]" if inside else definition.name
        rows.append(Row(definition, values, texts, name))
    return rows


def _combinations(definition: Definition, device: str) -> list[dict[str, Any]]:
    params, where = definition.params, definition.where
    if callable(params):
        try:
            params = params(device)
        except (Exception, SystemExit) as error:
            raise SuiteError(f"{where}: params raised {one_line(error)}") from error
    if isinstance(params, Mapping):
        columns = {key: _values(key, values, where) for key, values in params.items()}
        if math.prod(map(len, columns.values())) > _MOST_ROWS:
            raise _too_many(where)
        return [
            dict(zip(columns, combination, strict=True))
            for combination in itertools.product(*columns.values())
        ]
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise SuiteError(
            f"{where}: params={plain.value(params)}", "give lists of values, or a list of rows"
        )
    rows = _bounded(params, where)
    if not rows:
        raise SuiteError(f"{where}: params has no rows", "give at least one")
    for row in rows:
        if not isinstance(row, Mapping):
            raise SuiteError(f"{where}: params has {plain.value(row)} in it", "each row is a dict")
    return [dict(row) for row in rows]


def _bounded(values: Iterable[Any], where: str) -> list[Any]:
    """All of them.

    Raises:
        SuiteError: there are too many, perhaps without end, or they cannot be listed.
    """
    try:
        found = list(itertools.islice(values, _MOST_ROWS + 1))
    except Exception as error:
        raise SuiteError(
            f"{where}: params cannot be listed: {type(error).__name__}: {error}"
        ) from error
    if len(found) > _MOST_ROWS:
        raise _too_many(where)
    return found


def _too_many(where: str) -> SuiteError:
    return SuiteError(f"{where}: params makes more than {_MOST_ROWS:,} rows", "give fewer values")


def _values(key: str, values: object, where: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        text = plain.value(values)
        raise SuiteError(
            f"{where}: parameter '{key}' is {text}", f"give a list: {{'{key}': [{text}]}}"
        )
    found = _bounded(values, where)
    if not found:
        raise SuiteError(f"{where}: parameter '{key}' has no values", "give at least one")
    return found


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except Exception:  # noqa: BLE001  built-in functions have none, and a stranger's may raise
        return []


def _check_names(definition: Definition, values: Mapping[Any, Any]) -> None:
    for key in values:
        if not isinstance(key, str) or not key.isidentifier():
            raise SuiteError(
                f"{definition.where}: a parameter is named {plain.value(key)}",
                "an argument of the function",
            )


def _check_arguments(definition: Definition, values: Mapping[str, Any]) -> None:
    where = definition.where
    if DEVICE in values:
        raise SuiteError(f"{where}: a parameter is named '{DEVICE}'", "the run sets the device")
    parameters = _parameters(definition.factory)
    names = {p.name for p in parameters}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in values:
            if key not in names:
                raise SuiteError(f"{where} takes no argument '{key}'", f"params gives '{key}'")
    for name in required_arguments(definition.factory):
        if name not in values and name != DEVICE:
            raise SuiteError(f"{where} needs '{name}'", "params does not give it")


def _value_text(key: str, value: object, known: dict[str, list[Any]]) -> str:
    """A value as names show it; one without a short stable text is numbered."""
    try:
        text = str(getattr(value, "__name__", value)).removeprefix("torch.")
    except Exception:  # noqa: BLE001  a stranger's text may raise anything
        text = "\n"
    if len(text) <= _MAX_VALUE_TEXT and "\n" not in text and " at 0x" not in text:
        return text
    seen = known.setdefault(key, [])
    index = next((i for i, other in enumerate(seen) if other is value), len(seen))
    if index == len(seen):
        seen.append(value)
    return f"{type(value).__name__}{index}"


def call_with(function: Callable[..., Any], row: Row, device: str, what: str) -> Any:
    """Call a function with those of a row's parameters (and the device) that it names.

    Raises:
        SuiteError: it names something else, or raises.
    """
    given = {**row.values, DEVICE: device}
    parameters = _parameters(function)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        given = {p.name: given[p.name] for p in parameters if p.name in given}
    missing = [name for name in required_arguments(function) if name not in given]
    if missing:
        raise SuiteError(
            f"{row.where}: {what} needs '{missing[0]}'",
            f"the parameters are {', '.join([*row.values, DEVICE])}",
        )
    try:
        return function(**given)
    except (Exception, SystemExit) as error:
        raise SuiteError(f"{row.where}: {what} raised {one_line(error)}") from error


def _skip_reason(row: Row, device: str) -> str:
    skip = row.definition.skip
    if skip is None:
        return ""
    reason = call_with(skip, row, device, "skip") if callable(skip) else skip
    if not reason:
        return ""
    return reason if isinstance(reason, str) else "skipped by its file"


def group_rows(rows: Sequence[Row], device: str) -> None:
    """Set each row's group and which row of a group is its baseline.

    Rows belong together by `group`, by factory, or by naming another one's row as baseline. Where
    several baselines are found they are told apart by parameters (a sequence length, say), and the
    rows are grouped by these. Where none is named, rows of different sizes (parameters that are
    numbers) are not compared: twice the work is not slower. Rows whose baseline cannot be told, and
    a second one of a group, are refused.
    """
    pools = {id(row.definition): row.definition.group or row.definition.name for row in rows}
    for definition in {id(row.definition): row.definition for row in rows}.values():
        spec = definition.baseline
        own = [row for row in rows if row.definition is definition]
        if spec is None or spec is False or all(row.is_refused for row in own):
            continue
        found: list[Row] = []
        with blamed_on(own):
            found = _baselines(definition, rows, device)
            if not found and not any(row.is_refused for row in own):
                raise SuiteError(f"{definition.where}: baseline {_spec_text(spec)} matches no row")
        if found and all(row.definition is not definition for row in found):
            pools[id(definition)] = pools[id(found[0].definition)]
        for row in found:
            row.is_baseline = True
    by_pool: dict[str, list[Row]] = {}
    for row in rows:
        by_pool.setdefault(pools[id(row.definition)], []).append(row)
    for pool, members in by_pool.items():
        _split_pool(pool, members)


def _spec_text(spec: object) -> str:
    return getattr(spec, "__name__", "function") if callable(spec) else plain.value(spec)


def _is_same(value: Any, wanted: Any) -> bool:
    """Equal, also where a value's own equality raises or is no yes or no."""
    try:
        return value is wanted or bool(value == wanted)
    except Exception:  # noqa: BLE001  tensors, arrays and strangers
        return False


def _baselines(definition: Definition, rows: Sequence[Row], device: str) -> list[Row]:
    """The rows that a declaration calls its baselines."""
    spec = definition.baseline
    own = [row for row in rows if row.definition is definition]
    if spec is True:
        return own
    if isinstance(spec, str):
        return [row for row in rows if _names(spec, row)]
    if isinstance(spec, Mapping):
        for key in spec:
            if not any(key in row.values for row in own):
                raise SuiteError(f"{definition.where}: baseline names '{key}'", "no such parameter")
        return [row for row in own if all(_is_same(row.values.get(k), v) for k, v in spec.items())]
    if callable(spec):
        return [row for row in own if _is_chosen(spec, row, device)]
    raise SuiteError(
        f"{definition.where}: baseline={plain.value(spec)}",
        "parameter values, a name, or a function",
    )


def _is_chosen(choose: Callable[..., object], row: Row, device: str) -> bool:
    with blamed_on([row]):
        return bool(call_with(choose, row, device, "baseline"))
    return False


def _names(text: str, row: Row) -> bool:
    return text in (row.name, row.definition.name) or is_glob_match(row.name, text)


def is_glob_match(name: str, pattern: str) -> bool:
    """True when a pattern with `*` or `?` matches the whole name; brackets are plain characters."""
    if "*" not in pattern and "?" not in pattern:
        return False
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _split_pool(pool: str, rows: list[Row]) -> None:
    bases = [row for row in rows if row.is_baseline]
    keys = dict.fromkeys(key for row in bases or rows for key in row.texts)
    if bases:
        varying = [key for key in keys if len({row.texts.get(key) for row in bases}) > 1]
    else:
        varying = [key for key in keys if any(_is_size(row.values.get(key)) for row in rows)]
    taken: dict[str, Row] = {}
    for row in rows:
        inside = ",".join(f"{key}={row.texts[key]}" for key in varying if key in row.texts)
        row.group = f"{pool}[{inside}]" if inside else pool
        if row.is_baseline:
            other = taken.setdefault(row.group, row)
            if other is not row:
                row.is_baseline = False
                row.refuse(f"two baselines in group {row.group}: {other.name}, {row.name}")


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_benchmark(row: Row, device: str, build: Callable[[str], Callable[[], object]]) -> Benchmark:
    """The row as the engine takes it.

    Raises:
        SuiteError: flops or bytes are no numbers.
    """
    definition = row.definition
    return Benchmark(
        name=row.name,
        build=build,
        group=row.group,
        params={key: _plain(value, row.texts[key]) for key, value in row.values.items()},
        flops=_work(definition.flops, row, device, "flops"),
        bytes=_work(definition.bytes, row, device, "bytes"),
        is_baseline=row.is_baseline,
        setup=_bound(definition.setup, row, device, "setup"),
        reset=_bound(definition.reset, row, device, "reset"),
        check=_bound(definition.check, row, device, "check", given=2),
        inner=definition.inner,
        cache=definition.cache,
        inputs=_bound(definition.inputs, row, device, "inputs"),
    )


def _bound(
    hook: Callable[..., Any] | None, row: Row, device: str, what: str, *, given: int = 0
) -> Callable[..., Any] | None:
    """A hook with those of the row's parameters (and the device) that it names.

    The first `given` arguments are the caller's.

    Raises:
        SuiteError: it needs something else.
    """
    if hook is None:
        return None
    known = {**row.values, DEVICE: device}
    rest = _parameters(hook)[given:]
    keywords = {
        p.name: known[p.name]
        for p in rest
        if p.name in known and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    if any(p.kind is p.VAR_KEYWORD for p in rest):
        keywords = known
    missing = [
        p.name
        for p in rest
        if p.name not in keywords
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if missing:
        raise SuiteError(
            f"{row.where}: {what} needs '{missing[0]}'",
            f"the parameters are {', '.join([*row.values, DEVICE])}",
        )
    return functools.partial(hook, **keywords) if keywords else hook


def _plain(value: Any, text: str) -> bool | int | float | str | None:
    """A parameter's value as a journal can keep it."""
    return value if value is None or type(value) in (bool, int, float, str) else text


def _work(spec: Any, row: Row, device: str, what: str) -> float | None:
    value = call_with(spec, row, device, what) if callable(spec) else spec
    if value is None:
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  too large for a float, or a stranger's conversion
        number = math.nan
    if not math.isfinite(number) or number < 0:
        text = plain.value(value)
        raise SuiteError(f"{row.where}: {what} is {text}", "a number from 0")
    return number


def build_with(row: Row) -> Callable[[str], Callable[[], object]]:
    """The row's set-up as a function of the device.

    It raises SuiteError when the factory returns something that cannot be called, or rotates
    through another number of sets than its `cache` says.
    """
    factory, values = row.definition.factory, row.values
    parameters = _parameters(factory)
    wants_device = any(p.name == DEVICE or p.kind is p.VAR_KEYWORD for p in parameters)

    def build_one(device: str) -> Callable[[], object]:
        fn = factory(**values, **({DEVICE: device} if wants_device else {}))
        if not callable(fn):
            raise SuiteError(
                f"{row.where} returned {type(fn).__name__}, which cannot be called",
                "return the function to be timed: return lambda: ...",
            )
        return fn  # type: ignore[no-any-return]

    def build_sets(device: str) -> Callable[[], object]:
        sets = row.definition.sets
        made = ROTATIONS.get()
        before = len(made or ())
        first = build_one(device)
        own = [len(rotation.items) for rotation in (made or ())[before:]]
        if own and own != [sets] * len(own):
            raise SuiteError(
                f"{row.where}: cache='rotating({sets})', and its rotation has {own[0]} sets",
                "make as many, or say so",
            )
        return first if own else _in_turn([first, *(build_one(device) for _ in range(sets - 1))])

    return build_sets if row.definition.sets else build_one


def _in_turn(fns: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One callable that calls these in turn; their hooks are called for all of them."""
    following = Rotation(fns)

    def call() -> object:
        return following()()

    for hook in ("setup", "reset"):
        own = [_own(fn)[hook] for fn in fns if hook in _own(fn)]
        if own:
            setattr(call, hook, functools.partial(_call_all, own))
    first = _own(fns[0])
    vars(call).update({name: first[name] for name in ("check", "stream") if name in first})
    return call


def _own(fn: Callable[[], object]) -> Mapping[str, Any]:
    """What the author set on a callable: any other object may have a `reset` of its own."""
    return vars(fn) if isinstance(fn, types.FunctionType | functools.partial) else {}


def _call_all(hooks: Sequence[Callable[[], object]]) -> None:
    for hook in hooks:
        hook()
