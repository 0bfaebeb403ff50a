"""What a file is, told without running it: benchmarks of this program, or a script of its own."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

_LIBRARIES = (
    *("triton.testing", "torch.utils.benchmark", "tritonbench", "flashinfer.testing"),
    *("cuda.bench", "usv", "pytest_benchmark"),
)
_DYNAMIC = ("fire", "tyro", "hydra", "absl", "jsonargparse", "simple_parsing", "cuda.bench")
"""Who takes options that are not written in the script."""
_ENTRY_POINTS = ("do_bench", "do_bench_cudagraph", "perf_report", "bench_gpu_time")
_DEPTH = 3
_NAMED = (ast.ClassDef, ast.FunctionDef)


class Kind(StrEnum):
    """How a file is run."""

    SUITE = "suite"
    SCRIPT = "script"


def kind_of(path: Path) -> Kind:
    """A file with benchmarks of this program's is a suite, whatever else is in it."""
    tree = _tree(path)
    if tree is None or _has_own(tree):
        return Kind.SUITE
    if _times_with_library(tree, path, _DEPTH) or _has_main(tree):
        return Kind.SCRIPT
    return Kind.SUITE


def has_benchmarks(path: Path) -> bool:
    """Whether a file has benchmarks of this program's."""
    tree = _tree(path)
    return tree is not None and _has_own(tree)


def is_problem(path: Path) -> bool:
    """A folder of GPU MODE's or a reference of KernelBench's, which submissions are judged by."""
    if path.is_dir():
        return all((path / name).is_file() for name in ("task.yml", "reference.py"))
    tree = _tree(path) if path.suffix == ".py" else None
    names = {n.name for n in getattr(tree, "body", ()) if isinstance(n, _NAMED)}
    is_called = tree is not None and (_has_main(tree) or _has_own(tree))
    return {"Model", "get_inputs"} <= names and not is_called


def own_options(path: Path) -> set[str] | None:
    """The options that a script's text names; None where they cannot be told from it."""
    tree = _tree(path)
    if tree is None:
        return set()
    if any(_is_of(name, _DYNAMIC) for name in _imported(tree)):
        return None
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text.startswith("-")}


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _has_own(tree: ast.Module) -> bool:
    """`@benchmark`, functions named bench_… without arguments to be given, or BENCHMARKS."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_is_benchmark(item) for item in node.decorator_list):
                return True
            is_foreign = any("perf_report" in ast.unparse(item) for item in node.decorator_list)
            if node.name.startswith("bench_") and not is_foreign and not _needs_more(node):
                return not _is_called(tree, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "BENCHMARKS" for t in targets):
                return True
        elif isinstance(node, ast.ImportFrom) and _is_of(node.module or "", ("usv_tui",)):
            names = {alias.name for alias in node.names}
            if not names.isdisjoint(("benchmark", "declare")):
                return True
    return False


def _needs_more(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Arguments other than the device that have no default."""
    given = node.args
    required = given.args[: len(given.args) - len(given.defaults)]
    return any(argument.arg != "device" for argument in required)


def _is_called(tree: ast.Module, name: str) -> bool:
    """A script calls its own functions; those of a suite are called for it."""
    if not _has_main(tree) and not any(_is_of(i, _LIBRARIES) for i in _imported(tree)):
        return False
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    return any(isinstance(call, ast.Name) and call.id == name for call in calls)


def _is_benchmark(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute):
        return target.attr == "benchmark" and ast.unparse(target.value).startswith("usv")
    return isinstance(target, ast.Name) and target.id == "benchmark"


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_of(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _times_with_library(tree: ast.Module, path: Path, depth: int) -> bool:
    """It, or what it imports from beside it, names one of the libraries or their functions."""
    names = list(_imported(tree))
    if any(_is_of(name, _LIBRARIES) for name in names):
        return True
    called = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    if not called.isdisjoint(_ENTRY_POINTS):
        return True
    for name in {name.partition(".")[0] for name in names} if depth else ():
        beside = path.parent / f"{name}.py"
        found = _tree(beside) if beside.is_file() else None
        if found is not None and _times_with_library(found, beside, depth - 1):
            return True
    return False


def _has_main(tree: ast.Module) -> bool:
    """`if __name__ == "__main__":`."""
    return any(
        isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body
    )
