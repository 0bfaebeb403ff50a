"""A benchmark file becomes a `Suite`: which rows it has, and what of it is not timed and why.

The file is imported in the calling thread, the one that will time it, since torch keeps its device,
grad mode and autocast per thread.
"""

import importlib.util
import inspect
import itertools
import os
import re
import sys
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from usv_tui.errors import SuiteError, UsageError, one_line
from usv_tui.model import NO_BENCHMARK, Benchmark, Skipped, Suite
from usv_tui.suite.authoring import REGISTRY, Definition
from usv_tui.suite.rows import (
    DEVICE,
    Row,
    blamed_on,
    build_with,
    expand,
    group_rows,
    is_glob_match,
    not_a_function,
    required_arguments,
    to_benchmark,
)

_HINT = (
    "decorate a function that returns the timed callable with @benchmark, name it bench_..., "
    "or set BENCHMARKS = {name: callable}"
)
_PREFIX = "bench_"
_MOST_LISTED = 8
_MARK = "__usv_suite__"
"""An attribute of the modules that benchmark files became."""
_LIBRARIES = (
    "torch",
    "numpy",
    "msgspec",
    "textual",
    "rich",
    "psutil",
    "platformdirs",
    "pynvml",
    "amdsmi",
    "usv_tui",
)
"""What measures, and what it is made of: never what happens to lie beside a benchmark file."""
_ids = itertools.count(1)


def load_suite(
    path: str | Path | Sequence[str | Path],
    device: str | Callable[[], str],
    select: Sequence[str] | None = None,
) -> Suite:
    """Import a benchmark file, or several, in this thread and list their rows for a device.

    A `device` that is called is asked for when the files have been imported. Rows of several files
    are compared within their own file; what two files call the same has its file before its name.

    `select` keeps the rows whose name any of the patterns matches: a glob of the whole name where
    it has `*` or `?`, else a part of the name.

    Raises:
        SuiteError: a file cannot be read or imported, or has nothing to be timed.
        UsageError: `select` matches no row.
    """
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
    full = [p.absolute() for p in paths]  # a file may change the working directory
    modules = [_import(p) for p in paths]
    device = device if isinstance(device, str) else device()
    files: list[tuple[Path, list[Row]]] = []
    others: list[Skipped] = []
    for at, module in zip(full, modules, strict=True):
        rows, not_taken = _collect(at, module, device)
        group_rows(rows, device)
        files.append((at, rows))
        others += not_taken
    _tell_apart(files)
    named = " and ".join(map(str, paths[:2])) + (" …" if len(paths) > 2 else "")
    rows = [row for _, rows in files for row in rows]
    kept = [row for row in rows if _is_selected(row.name, select)]
    if rows and not kept:
        listed = _listing([row.name for row in rows])
        raise UsageError(f"no benchmark of {named} matches {_patterns(select)}", f"it has {listed}")
    benchmarks = []
    for at, owned in files:
        for row in owned:
            if not row.reason and _is_selected(row.name, select):
                with blamed_on([row]):
                    benchmarks.append(to_benchmark(row, device, _builder(row, at)))
    skipped = [Skipped(row.name, row.reason, row.is_refused) for row in kept if row.reason]
    skipped += others + _unmatched(rows, select)
    if not benchmarks:
        raise _nothing_to_time(named, device, kept, others)
    return Suite(str(paths[0]), tuple(benchmarks), tuple(skipped))


def _tell_apart(files: Sequence[tuple[Path, Sequence[Row]]]) -> None:
    """Names and groups of several files that are equal have their file's name before them."""
    if len(files) < 2:
        return
    names = Counter(name for _, rows in files for name in {row.name for row in rows})
    groups = Counter(group for _, rows in files for group in {row.group for row in rows})
    labels = _labels([path for path, _ in files])
    for label, (_, rows) in zip(labels, files, strict=True):
        for row in rows:
            if names[row.name] > 1:
                row.name = f"{label}:{row.name}"
            if groups[row.group] > 1:
                row.group = f"{label}:{row.group}".rstrip(":")


def _labels(paths: Sequence[Path]) -> list[str]:
    """Each file's name, with as much of its folder as tells it from the others."""
    for depth in range(1, 1 + max(len(path.parts) for path in paths)):
        labels = ["/".join(path.with_suffix("").parts[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            break
    return labels


def _unmatched(rows: Sequence[Row], select: Sequence[str] | None) -> list[Skipped]:
    """Patterns that were asked for and match nothing, beside others that do."""
    return [
        Skipped(f"-k {pattern}", "no benchmark of this name", is_refused=True)
        for pattern in select or ()
        if not any(_is_selected(row.name, [pattern]) for row in rows)
    ]


def _nothing_to_time(
    path: str, device: str, rows: Sequence[Row], others: Sequence[Skipped]
) -> SuiteError:
    if rows:
        reasons = _listing([f"{row.name}: {row.reason}" for row in rows], "; ")
        if all(row.is_refused for row in rows):
            return SuiteError(f"{path}: no benchmark of it can be timed: {reasons}")
        return SuiteError(f"{path}: every benchmark is skipped on {device}", reasons)
    if others:
        said = [f"{item.name}: {item.reason.removeprefix(NO_BENCHMARK)}" for item in others]
        reasons = _listing(said, "; ")
        return SuiteError(f"{path}: no benchmarks in it; not taken: {reasons}", _HINT)
    return SuiteError(f"{path}: no benchmarks in it", _HINT)


# -- import


def _import(path: Path) -> types.ModuleType:
    """Run the file as a module of its own name, which processes that it starts can import."""
    code = _compile(path)
    _refuse_shadows(path)
    name = _module_name(path)
    full = str(path.resolve())
    spec = importlib.util.spec_from_file_location(name, full, loader=SourceFileLoader(name, full))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    setattr(module, _MARK, True)
    sys.modules[name] = module
    _findable(path)
    try:
        with _folder_first(path):
            # Not through the loader: a byte-code cache keyed by whole seconds would bring back the
            # old code of a file that was just saved.
            exec(code, module.__dict__)  # noqa: S102  running the user's file is the purpose
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UsageError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _import_error(path, full, error) from error
    return module


def _module_name(path: Path) -> str:
    """The file's own name, unless another module has it."""
    stem = re.sub(r"\W", "_", path.stem)
    known = sys.modules.get(stem)
    if known is not None:
        is_free = hasattr(known, _MARK)
    else:
        try:
            spec = importlib.util.find_spec(stem) if stem.isidentifier() else None
            is_free = stem.isidentifier() and (spec is None or _is_file(spec.origin, path))
        except (ImportError, ValueError):
            is_free = False
    return stem if is_free else f"usv_suite_{next(_ids)}_{stem}"


def _is_file(origin: str | None, path: Path) -> bool:
    return origin is not None and os.path.realpath(origin) == os.path.realpath(path)


def _findable(path: Path) -> None:
    """The file's folder is searched last: by processes that unpickle what is in the file."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)


def _compile(path: Path) -> types.CodeType:
    """Read and compile the file.

    Raises:
        SuiteError: missing, a directory, unreadable, binary, or wrong syntax.
    """
    if path.is_dir():
        files = _listing(sorted(p.name for p in path.glob("*.py")))
        hint = f"name one file of it: {files}" if files else "without Python files"
        raise SuiteError(f"{path} is a directory", hint)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SuiteError(f"{path}: no such file") from None
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}") from error
    try:
        source = "" if b"\0" in data else importlib.util.decode_source(data)
    except (UnicodeDecodeError, SyntaxError):  # no text in the encoding that it declares
        source = ""
    if data and not source:
        raise SuiteError(f"{path} is not Python source text", "give a .py file")
    try:
        return compile(source, str(path.resolve()), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise SuiteError(f"{path}{line}: {type(error).__name__}: {error.msg}") from error


def _refuse_shadows(path: Path) -> None:
    """Beside the file it must find the libraries that it is measured with, and nothing else.

    Raises:
        SuiteError: something in its folder has the name of one of them.
    """
    folder = path.resolve().parent
    for name in _LIBRARIES:
        for shadow in (folder / f"{name}.py", folder / name / "__init__.py"):
            known = sys.modules.get(name)
            if shadow == path.resolve() and known is not None:
                continue  # the benchmark itself, which finds the library that is there already
            if shadow.is_file() and getattr(known, "__file__", None) != str(shadow):
                raise SuiteError(
                    f"{shadow} hides the library {name} from {path.name}",
                    "give it another name, or move the benchmark",
                )


@contextmanager
def _folder_first(path: Path) -> Iterator[None]:
    """The file's folder is searched first for imports, as when the file is run by itself."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)  # the first one: the last place stays


def _import_error(path: Path, full: str, error: BaseException) -> SuiteError:
    """The error's last line, with the line of the file where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == full]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    if isinstance(error, SystemExit):
        return SuiteError(
            f"{where}: the file called exit while it was imported",
            "guard what only a script does with if __name__ == '__main__':",
        )
    is_syntax = isinstance(error, SyntaxError)
    last = traceback.format_exception_only(error)[-1].strip() if is_syntax else one_line(error)
    hint = ""
    if isinstance(error, ModuleNotFoundError):
        hint = f"install it for {sys.executable}"
    return SuiteError(f"{where}: {last}", hint)


def _builder(row: Row, path: Path) -> Callable[[str], Callable[[], object]]:
    """The row's set-up, which may import from the file's folder."""
    build = build_with(row)

    def build_beside(device: str) -> Callable[[], object]:
        with _folder_first(path):
            return build(device)

    return build_beside


# -- what the file declares


def _collect(path: Path, module: types.ModuleType, device: str) -> tuple[list[Row], list[Skipped]]:
    """All rows, those with a reason too, and the names that are no benchmarks at all."""
    declared: list[Definition] = list(vars(module).get(REGISTRY, ()))
    factories = {id(definition.factory) for definition in declared}
    plain, skipped = _undecorated(module, factories, _listed(module) - factories)
    rows = [
        row
        for definition in sorted([*declared, *plain], key=lambda d: _line(d, path))
        for row in expand(definition, device)
    ]
    listed, refused = _from_dict(path, vars(module).get("BENCHMARKS"), factories)
    rows += [row for definition in listed for row in expand(definition, device)]
    _refuse_equal_names(rows)
    return rows, refused + skipped


def _listed(module: types.ModuleType) -> set[int]:
    """The callables that `BENCHMARKS` takes: no reason is owed for them."""
    value = vars(module).get("BENCHMARKS")
    return {id(fn) for fn in value.values()} if isinstance(value, Mapping) else set()


def _line(definition: Definition, path: Path) -> int:
    """Where in the file it stands; 0 when it stands elsewhere."""
    code = getattr(inspect.unwrap(definition.factory), "__code__", None)
    if code is None or code.co_filename != str(path.resolve()):
        return 0
    return int(code.co_firstlineno)


def _definition(name: str, factory: Callable[..., Any], group: str | None = None) -> Definition:
    return Definition(
        factory=factory,
        name=name,
        params={},
        flops=None,
        bytes=None,
        baseline=None,
        skip=None,
        group=group,
        setup=None,
        reset=None,
        check=None,
        inner=None,
        cache=None,
    )


def _undecorated(
    module: types.ModuleType, factories: set[int], listed: set[int]
) -> tuple[list[Definition], list[Skipped]]:
    """Factories by name, and why every other public callable that is not listed is none."""
    found: list[Definition] = []
    skipped: list[Skipped] = []
    seen: dict[int, str] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or not callable(value):
            continue
        if id(value) in listed and not name.startswith(_PREFIX):
            continue
        origin = str(getattr(value, "__module__", None) or "elsewhere")
        if origin != module.__name__:
            if not origin.startswith("usv_tui"):
                skipped.append(Skipped(name, NO_BENCHMARK + _foreign_reason(value, origin)))
            continue
        first = seen.setdefault(id(value), name)
        if first != name:
            skipped.append(Skipped(name, f"{NO_BENCHMARK}another name of {first}"))
        elif id(value) not in factories:
            reason = _refusal(name, value)
            if reason:
                is_meant = not reason.startswith(NO_BENCHMARK)
                skipped.append(Skipped(name, reason, is_refused=is_meant))
            else:
                found.append(_definition(name, value))
    return found, skipped


def _foreign_reason(value: object, origin: str) -> str:
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return f"imported from {origin}"
    return f"an object of type {type(value).__name__}, no function of this file"


def _refusal(name: str, value: Callable[..., Any]) -> str:
    """Why a callable that the file defines is no factory; empty when it is one."""
    if isinstance(value, type):
        return f"{NO_BENCHMARK}a class"
    if not isinstance(value, types.FunctionType):
        return f"{NO_BENCHMARK}an object of type {type(value).__name__}"
    if not name.startswith(_PREFIX):
        return f"{NO_BENCHMARK}neither decorated with @benchmark nor named {_PREFIX}..."
    missing = [arg for arg in required_arguments(value) if arg != DEVICE]
    if missing:
        return f"needs '{missing[0]}': give it values with @benchmark(params=...)"
    return not_a_function(value)


def _from_dict(
    path: Path, value: object, factories: set[int]
) -> tuple[list[Definition], list[Skipped]]:
    """The rows of `BENCHMARKS = {name: callable}`, whose values are themselves timed."""
    if value is None:
        return [], []
    if not isinstance(value, Mapping):
        why = f"{path.name}: it is a {type(value).__name__} (make it {{name: callable}})"
        return [], [Skipped("BENCHMARKS", why, is_refused=True)]
    found: list[Definition] = []
    skipped: list[Skipped] = []
    for name, fn in value.items():
        reason = ""
        if not callable(fn):
            reason = f"a {type(fn).__name__}, which cannot be called"
        elif id(fn) in factories:
            reason = "a factory, listed under its own name"
        else:
            missing = required_arguments(fn)
            reason = f"needs '{missing[0]}': wrap it in a lambda" if missing else not_a_function(fn)
        if reason:
            skipped.append(Skipped(str(name), reason, is_refused=id(fn) not in factories))
        else:
            found.append(_definition(str(name), lambda fn=fn: fn, "BENCHMARKS"))
    return found, skipped


def _refuse_equal_names(rows: Sequence[Row]) -> None:
    """The second of two rows of one name, which no table could tell apart."""
    seen: dict[str, Row] = {}
    for row in rows:
        other = seen.setdefault(row.name, row)
        if other is not row:
            row.refuse(f"another row has the same name, {other.where}")


# -- selection


def _is_selected(name: str, select: Sequence[str] | None) -> bool:
    if not select:
        return True
    return any(
        is_glob_match(name, pattern) if set(pattern) & {"*", "?"} else pattern in name
        for pattern in select
    )


def select_rows(suite: Suite, select: Sequence[str] | None) -> Suite:
    """The rows of a suite whose names match, as `load_suite` matches them.

    Raises:
        UsageError: no row does.
    """
    kept = tuple(b for b in suite.benchmarks if _is_selected(b.name, select))
    if not kept:
        listed = _listing([b.name for b in suite.benchmarks])
        raise UsageError(f"no benchmark matches {_patterns(select)}", f"there is {listed}")
    return Suite(suite.path, kept, suite.skipped)


def _patterns(select: Sequence[str] | None) -> str:
    return " or ".join(f"'{pattern}'" for pattern in select or ())


def _listing(items: Sequence[str], between: str = ", ") -> str:
    """The first few of many."""
    shown = between.join(items[:_MOST_LISTED])
    more = len(items) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def summary(suite: Suite, everything: bool = False) -> list[tuple[str, str]]:
    """Names and what is known of them, rows first, then skipped ones with their reasons.

    Imports and helpers, which nobody meant to be timed, are only counted unless `everything` is.
    """
    meant = [s for s in suite.skipped if everything or s.is_meant]
    rows = [(b.name, _known(b)) for b in suite.benchmarks]
    rows += [(s.name, f"{s.word}: {s.reason.removeprefix(NO_BENCHMARK)}") for s in meant]
    others = len(suite.skipped) - len(meant)
    if others:
        names, verb = ("name", "is") if others == 1 else ("names", "are")
        none = "no benchmark" if others == 1 else "no benchmarks"
        rows.append((f"and {others} other {names} of the file {verb} {none}", ""))
    return rows


def _known(benchmark: Benchmark) -> str:
    parts = ["baseline"] if benchmark.is_baseline else []
    if benchmark.flops:
        parts.append(f"{benchmark.flops:.4g} flop")
    if benchmark.bytes:
        parts.append(f"{benchmark.bytes:.4g} B")
    return ", ".join(parts)
