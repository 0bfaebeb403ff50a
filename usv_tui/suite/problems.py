"""Problems with a reference and submissions, as benchmarks.

A problem is a folder with `task.yml` and `reference.py` (GPU MODE), or a file with `Model` and
`get_inputs` (KernelBench). A submission has `custom_kernel(data)`, or the class `ModelNew`.
"""

import ast
import contextlib
import functools
import importlib.util
import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from usv_tui.errors import SuiteError, one_line
from usv_tui.suite import values
from usv_tui.suite.authoring import benchmark
from usv_tui.suite.inputs import seed_generators

REFERENCE = "reference"
_WEIGHTS_SEED = 42
_LOOSE, _TIGHT = 1e-2, 1e-4
"""Tolerances of half precision, and of single and double."""


class WrongResult(AssertionError):
    """A submission that fails a test of its problem."""

    kind = "check"


def declare(module: str, reference: str, submissions: Sequence[str]) -> None:
    """Declare a problem's rows in a module: the reference as baseline, and each submission.

    Raises:
        SuiteError: what is named is no problem, or no submission to it.
    """
    path = Path(reference)
    made = _Folder(path) if path.is_dir() else _Pair(path)
    names = [REFERENCE, *_names(submissions)]
    for name, source in zip(names, (None, *submissions), strict=True):
        factory = made.factory(source)
        factory.__module__ = module
        benchmark(
            name=name,
            group=path.resolve().stem,
            params=made.cases,
            baseline=source is None,
            inputs=made.inputs,
            check=None if source is None else made.check,
        )(factory)


def _names(paths: Sequence[str]) -> list[str]:
    stems = [Path(p).stem for p in paths]
    return [
        stem if stems.count(stem) == 1 and stem != REFERENCE else str(p)
        for stem, p in zip(stems, paths, strict=True)
    ]


def _load(path: Path, *, needs: Sequence[str]) -> ModuleType:
    """Run a problem's file as a module.

    Raises:
        SuiteError: it cannot be imported, or has not what it needs.
    """
    name = f"usv_problem_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SuiteError(f"{path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _cuda_is_here():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SuiteError(f"{path}: importing it raised {one_line(error)}") from error
    for need in needs:
        if not hasattr(module, need):
            raise SuiteError(f"{path} has no {need}")
    return module


# -- GPU MODE


class _Folder:
    """`task.yml` with tests and benchmarks, `reference.py` with inputs and a check."""

    def __init__(self, folder: Path) -> None:
        _import_from(folder)
        needs = ("generate_input", "check_implementation", "ref_kernel")
        self._module = _load(folder / "reference.py", needs=needs)
        task = _task(folder / "task.yml")
        self.cases: list[dict[str, Any]] = task["benchmarks"] or task["tests"]
        self._tests = task["tests"]
        if not self.cases:
            raise SuiteError(f"{folder / 'task.yml'} has neither benchmarks nor tests")
        self._last: dict[str, Any] = {}
        """The inputs that were drawn last of each case, as they were drawn."""

    def inputs(self, **case: Any) -> tuple[Any]:
        """Fresh inputs of a case: its seed is the run's."""
        case.pop("device", None)
        data = self._generate(case, random.getrandbits(31))
        self._last[repr(case)] = values.clone(data)
        return (data,)

    def _generate(self, case: Mapping[str, Any], seed: int) -> Any:
        make = self._module.generate_input
        names = inspect.signature(make).parameters
        fresh = {**case, "seed": seed} if "seed" in names else case
        with _cuda_is_here():
            return make(**fresh)

    def check(self, mine: Any, base: Any, **case: Any) -> bool:  # noqa: ARG002  the problem's own
        """The problem's own check, on the inputs that were drawn last."""
        case.pop("device", None)
        return not self._complaint(values.clone(self._last[repr(case)]), mine)

    def _complaint(self, data: Any, output: Any) -> str:
        with _cuda_is_here():
            said = self._module.check_implementation(data, output)
        if isinstance(said, tuple):
            return "" if said[0] else str(said[1] if len(said) > 1 else "mismatch")
        return "" if said is None or said is True else str(said) if said is not False else "no"

    def factory(self, source: str | None) -> Callable[..., Any]:
        """The reference's kernel, or a submission's after it has passed the tests."""

        @functools.cache
        def kernel() -> Callable[[Any], Any]:
            if source is None:
                found = self._module.ref_kernel
            else:
                found = _load(Path(source), needs=("custom_kernel",)).custom_kernel
                self._pass_tests(found)
            return found  # type: ignore[no-any-return]

        def build(**_: Any) -> Callable[[Any], Any]:
            found = kernel()
            # A callable of its own for each case, so that nothing hangs at the shared one.
            return functools.partial(found)

        return build

    def _pass_tests(self, kernel: Callable[[Any], Any]) -> None:
        for test in self._tests:
            data = self._generate(test, int(test.get("seed", 0)))
            before = values.clone(data)
            complaint = self._complaint(before, kernel(data))
            if complaint:
                words = ", ".join(f"{k}={v}" for k, v in test.items())
                raise WrongResult(f"test {words}: {' '.join(complaint.split())}")


def _import_from(folder: Path) -> None:
    """A problem's files import each other by name, and helpers from the folder above."""
    for name in ("task", "utils", "reference"):
        module = sys.modules.get(name)
        if module is not None and Path(getattr(module, "__file__", "") or ".").parent != folder:
            del sys.modules[name]
    for place in (folder.resolve().parent, folder.resolve()):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))


_ITEM = re.compile(r"^\s*-\s*(.*)$")
_KEY = re.compile(r"^(\w+)\s*:")


def _task(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The cases of `task.yml`: lists of mappings, written on one line or several."""
    found: dict[str, list[dict[str, Any]]] = {"tests": [], "benchmarks": []}
    section = ""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} cannot be read: {error}") from None
    for line in lines:
        key, item = _KEY.match(line), _ITEM.match(line)
        if key:
            section = key[1]
        elif section not in found or not line.strip() or line.lstrip().startswith("#"):
            continue
        elif item:
            found[section].append(_mapping(item[1], path))
        elif found[section]:
            found[section][-1].update(_mapping(line.strip(), path))
    return found


def _mapping(text: str, path: Path) -> dict[str, Any]:
    inside = text.strip().removeprefix("{").removesuffix("}")
    made = {}
    for part in re.split(r",(?![^\[\(]*[\]\)])", inside):
        name, colon, value = part.partition(":")
        if not colon:
            raise SuiteError(f"{path}: {text.strip()!r} is no case", "- {size: 1024, seed: 1}")
        made[name.strip().strip("'\"")] = _value(value.strip())
    return made


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "null": None}
    with contextlib.suppress(ValueError, SyntaxError):
        return words[text] if text in words else ast.literal_eval(text)
    return text


# -- KernelBench


class _Pair:
    """A file with `Model`, `get_inputs` and `get_init_inputs`; submissions have `ModelNew`."""

    cases: Mapping[str, Any] = {}

    def __init__(self, path: Path) -> None:
        self._path = path
        self._module = _load(path, needs=("Model", "get_inputs", "get_init_inputs"))

    def inputs(self, device: str) -> list[Any]:
        """Fresh inputs, on the device."""
        return [_on(value, device) for value in self._module.get_inputs()]

    def check(self, mine: Any, base: Any) -> bool:
        """Equal to within what the precision allows."""
        pairs = zip(values.leaves(mine), values.leaves(base), strict=True)
        return all(_is_close(a, b) for a, b in pairs)

    def factory(self, source: str | None) -> Callable[..., Any]:
        """The model, or the submission's, with the same weights."""

        def build(device: str) -> Callable[..., Any]:
            if source is None:
                kind = self._module.Model
            else:
                kind = _load(Path(source), needs=("ModelNew",)).ModelNew
            seed_generators(_WEIGHTS_SEED)
            arguments = self._module.get_init_inputs()
            seed_generators(_WEIGHTS_SEED)
            model = kind(*arguments).to(device)
            torch = sys.modules["torch"]

            def forward(*inputs: Any) -> Any:
                with torch.no_grad():
                    return model(*inputs)

            return forward

        return build


def _on(value: Any, device: str) -> Any:
    return value.to(device) if values.is_tensor(value) else value


def _is_close(mine: Any, base: Any) -> bool:
    torch = sys.modules["torch"]
    if mine.shape != base.shape:
        return False
    is_half = str(base.dtype) in ("torch.float16", "torch.bfloat16")
    tolerance = _LOOSE if is_half else _TIGHT
    return bool(torch.allclose(mine.to(base.dtype), base, rtol=tolerance, atol=tolerance))


# -- problems that name cuda, where there is none


@contextlib.contextmanager
def _cuda_is_here() -> Iterator[None]:
    """Within, `cuda` means the CPU where torch sees no GPU: for inputs and checks, not kernels."""
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.cuda.is_available():
        yield
        return

    class OnCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__name__", "") == "cuda":
                return args[0]
            given = {k: _cpu(v) if k == "device" else v for k, v in (kwargs or {}).items()}
            if getattr(func, "__name__", "") == "to":
                args = tuple(map(_cpu, args))
            return func(*args, **given)

    real = torch.Generator

    class Generator(real):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return real.__new__(cls, _cpu(device))

    torch.Generator = Generator  # a class, as annotations of what is imported meanwhile want it
    try:
        with OnCpu():
            yield
    finally:
        torch.Generator = real


def _cpu(value: Any) -> Any:
    return "cpu" if isinstance(value, str) and value.startswith("cuda") else value
