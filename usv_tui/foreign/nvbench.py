"""cuda.bench, NVBench for Python: states of equal sizes are interleaved, across benchmarks.

`run_all_benchmarks` is done here: each combination of axes is a state whose `exec` stands still
until those of the same numbers stand beside it; text axes and benchmarks are what is compared.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from usv_tui.foreign.calls import Call
from usv_tui.foreign.host import Host

_SECONDS = 0.5
"""How long a state is timed: as long as NVBench's own default."""
_AXES = ("int64", "float64", "string")


def install(module: ModuleType, host: Host) -> None:
    """Replace what registers, and what runs, benchmarks."""
    run = _Run(host)
    if "_register" in vars(module):
        host.replace(module, "_register", run.register)  # its decorators ask for this one
    else:
        host.replace(module, "register", run.register)
    module.__dict__.setdefault("run_all_benchmarks", None)
    host.replace(module, "run_all_benchmarks", run.run_all)
    for name, kind in (("Benchmark", _Benchmark), ("State", _State), ("Launch", _Launch)):
        module.__dict__.setdefault(name, None)
        host.replace(module, name, kind)


class _Stream:
    """The stream that launches use: torch's current one, or the default."""

    def addressof(self) -> int:
        """Its handle."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return 0
        return int(torch.cuda.current_stream().cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.addressof()


class _Launch:
    """What a launcher is called with."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def get_stream(self) -> Any:
        """The stream to launch on."""
        return self._stream


class _Timer:
    """The marks of a launcher with `timer=True`; its whole call is timed here."""

    def start(self) -> None:
        """Nothing: see the row's note."""

    def stop(self) -> None:
        """Nothing."""


class _Benchmark:
    """A registered function with its axes."""

    def __init__(self, fn: Callable[[Any], object]) -> None:
        self.fn = fn
        self._name = str(getattr(fn, "__name__", "benchmark"))
        self.axes: dict[str, list[Any]] = {}
        self.options: dict[str, Any] = {}

    def get_name(self) -> str:
        """As it is listed."""
        return self._name

    def set_name(self, name: str) -> "_Benchmark":
        """As it is to be listed."""
        self._name = name
        return self

    def add_int64_power_of_two_axis(self, name: str, values: Iterable[int]) -> "_Benchmark":
        """Exponents of two."""
        self.axes[name] = [2 ** int(value) for value in values]
        return self

    def __getattr__(self, name: str) -> Callable[..., "_Benchmark"]:
        """Axes by type, and options, of which most are about NVBench's own loop."""
        if name.startswith("add_") and name.endswith("_axis"):
            return lambda axis, values: self._axis(axis, values, name.split("_")[1])
        if name.startswith("set_"):
            return lambda *values: self._option(name[4:], values)
        raise AttributeError(name)

    def _axis(self, name: str, values: Iterable[Any], kind: str) -> "_Benchmark":
        make: Callable[[Any], Any] = {"int64": int, "float64": float}.get(kind, str)
        self.axes[name] = [make(value) for value in values]
        return self

    def _option(self, name: str, values: tuple[Any, ...]) -> "_Benchmark":
        self.options[name] = values[0] if len(values) == 1 else values
        return self

    def states(self) -> list[dict[str, Any]]:
        """Every combination of its axes."""
        columns = self.axes.values()
        return [dict(zip(self.axes, row, strict=True)) for row in itertools.product(*columns)]


class _State:
    """One combination of axes, while its function runs."""

    def __init__(
        self, host: Host, benchmark: _Benchmark, values: dict[str, Any], group: str
    ) -> None:
        self._host = host
        self._benchmark = benchmark
        self._values = values
        self._group = group
        self._stream: Any = _Stream()
        self._reason = ""
        self._summaries: dict[str, Any] = {}
        self._options = dict(benchmark.options)

    def exec(
        self,
        launcher: Callable[..., object],
        /,
        *,
        batched: bool | None = None,
        sync: bool = False,  # noqa: ARG002  and is waited for
        timer: bool = False,
    ) -> None:
        """Time what a launcher launches, with the states of equal sizes."""
        launch = _Launch(self._stream)
        arguments = (launch, _Timer()) if timer else (launch,)
        once = bool(self._options.get("run_once"))
        call = Call(
            lambda: launcher(*arguments),
            self._benchmark.get_name().replace("[", "(").replace("]", ")"),
            self._values,
            group=self._group,
            seconds=0.0 if once else float(self._options.get("timeout", _SECONDS) or _SECONDS),
            samples=1 if once else int(self._options.get("min_samples", 0) or 0) or None,
            is_cold=not batched,
        )
        call.seconds = min(call.seconds, _SECONDS)
        self._host.in_place(call)

    def skip(self, reason: str) -> None:
        """Not to be timed."""
        self._reason = reason or "skipped"

    def is_skipped(self) -> bool:
        """Whether `skip` was called."""
        return bool(self._reason)

    def get_skip_reason(self) -> str:
        """What `skip` was told."""
        return self._reason

    def get_benchmark(self) -> _Benchmark:
        """Whose state it is."""
        return self._benchmark

    def get_stream(self) -> Any:
        """The stream to launch on."""
        return self._stream

    def set_stream(self, stream: Any) -> None:
        """Another stream to launch on."""
        self._stream = stream

    def get_axis_values(self) -> dict[str, Any]:
        """All of them."""
        return dict(self._values)

    def get_axis_values_as_string(self, color: bool = False) -> str:  # noqa: ARG002
        """All of them, in a line."""
        return " ".join(f"{name}={value}" for name, value in self._values.items())

    def get_short_description(self) -> str:
        """The name with them."""
        return f"{self._benchmark.get_name()} {self.get_axis_values_as_string()}".strip()

    def add_summary(self, column_name: str, value: Any) -> None:
        """A figure of the script's own."""
        self._summaries[column_name] = value

    def has_device(self) -> bool:
        """False for what runs on the host."""
        return not self._options.get("is_cpu_only")

    def get_device(self) -> int | None:
        """The current device."""
        return 0 if self.has_device() else None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Values of axes by type; counts and options of NVBench's own loop are taken and kept."""
        kind = name.removeprefix("get_").removesuffix("_or_default")
        if name.startswith("get_") and kind in _AXES:
            if name.endswith("_or_default"):
                return self._values.get
            return self._values.__getitem__
        if name.startswith("get_"):
            return lambda: self._options.get(name[4:], 0)
        if name.startswith("set_"):
            return lambda value: self._options.__setitem__(name[4:], value)
        if name.startswith("add_"):
            return lambda *values, **_: self._options.__setitem__(name[4:], values[0])
        if name == "has_printers":
            return lambda: False
        raise AttributeError(name)


class _Run:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._registered: list[_Benchmark] = []

    def register(self, fn: Callable[[Any], object]) -> _Benchmark:
        """A function whose states are to be timed."""
        made = _Benchmark(fn)
        self._registered.append(made)
        return made

    def run_all(self, argv: Sequence[str] = ()) -> None:
        """Every state of every benchmark, those of equal numbers side by side."""
        groups: dict[str, list[tuple[_Benchmark, dict[str, Any]]]] = {}
        wanted = _wanted(list(argv))
        for benchmark in self._registered:
            if wanted and benchmark.get_name() not in wanted:
                continue
            for values in benchmark.states():
                numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
                groups.setdefault(repr(sorted(numbers.items())), []).append((benchmark, values))
        for group, members in groups.items():
            bodies = [self._body(benchmark, values, group) for benchmark, values in members]
            for outcome in self._host.cells(bodies):
                outcome.get()

    def _body(
        self, benchmark: _Benchmark, values: dict[str, Any], group: str
    ) -> Callable[[], object]:
        state = _State(self._host, benchmark, values, group)
        return lambda: benchmark.fn(state)


def _wanted(argv: list[str]) -> list[str]:
    """The benchmarks that `-b NAME` chooses; empty for all."""
    return [argv[i + 1] for i, word in enumerate(argv[:-1]) if word in ("-b", "--benchmark")]
