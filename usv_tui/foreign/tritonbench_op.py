"""tritonbench: the backends of an operator on one input are interleaved.

The first backend of an input that is timed takes the others' callables along; each has its latency
when the operator asks for it.
"""

import contextvars
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from usv_tui.foreign.calls import Call
from usv_tui.foreign.cells import Outcome
from usv_tui.foreign.host import Host
from usv_tui.foreign.triton_testing import clearing, graph_of


class _Now(NamedTuple):
    """The backend that an operator times."""

    operator: Any
    input_id: int
    backend: str


_NOW: contextvars.ContextVar[_Now | None] = contextvars.ContextVar("backend", default=None)


def install(module: ModuleType, host: Host) -> None:
    """Replace what times one backend of an operator."""
    _Operators(module, host).install()


class _Operators:
    def __init__(self, module: ModuleType, host: Host) -> None:
        self._module: Any = module
        self._host = host
        self._ahead: dict[tuple[int, int, str], Outcome] = {}
        """What came of the backends that were timed beside another one."""
        self._begun: set[tuple[int, int]] = set()
        """Inputs of operators whose backends were timed."""

    def install(self) -> None:
        operator = self._module.BenchmarkOperator
        original = operator._do_bench

        @functools.wraps(original)
        def do_bench(op: Any, input_id: int, fn_name: str, *args: Any, **options: Any) -> Any:
            token = _NOW.set(_Now(op, input_id, fn_name))
            try:
                return original(op, input_id, fn_name, *args, **options)
            finally:
                _NOW.reset(token)

        self._host.replace(operator, "_do_bench", do_bench)
        wrapper = self._module.do_bench_wrapper
        self._host.replace(self._module, "do_bench_wrapper", self._wrapper(wrapper))

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def do_bench_wrapper(
            fn: Callable[[], object], warmup: Any, rep: float, *args: Any, **options: Any
        ) -> Any:
            now = _NOW.get()
            if now is None or not self._host.is_ours():
                return original(fn, warmup, rep, *args, **options)
            grads = options.get("grad_to_none", args[0] if args else None)
            is_graph = bool(options.get("use_cuda_graphs"))
            key = (id(now.operator), now.input_id, now.backend)
            if key not in self._ahead:
                self._take(now, fn, float(rep), grads, is_graph=is_graph)
            answer = self._ahead.pop(key).get()
            return self._module.Latency([s * 1e3 for s in answer.seconds])

        return do_bench_wrapper

    def _take(
        self, now: _Now, fn: Callable[[], object], rep: float, grads: Any, *, is_graph: bool
    ) -> None:
        """Time this backend, and at the first one of an input the others beside it."""
        place = (id(now.operator), now.input_id)
        others = [] if place in self._begun else self._names(now.operator)
        self._begun.add(place)
        names = [now.backend, *(name for name in others if name != now.backend)]
        bodies = [
            self._body(now, name, fn if name == now.backend else None, rep, grads, is_graph)
            for name in names
        ]
        outcomes = self._host.cells(bodies)
        for name, outcome in zip(names, outcomes, strict=True):
            self._ahead[*place, name] = outcome

    def _body(
        self,
        now: _Now,
        name: str,
        fn: Callable[[], object] | None,
        rep: float,
        grads: Any,
        is_graph: bool,
    ) -> Callable[[], Any]:
        operator, module = now.operator, self._module
        base = getattr(module, "BASELINE_BENCHMARKS", {}).get(operator.name)
        sizes = self._x(operator)

        def body() -> Any:
            call = Call(
                fn if fn is not None else operator._get_bm_func(name),
                str(operator.name),
                {**sizes, "backend": name},
                group=f"{operator.name} {now.input_id}",
                is_baseline=name == base,
                seconds=rep / 1e3,
                is_cold=not is_graph,
                reset=clearing(grads),
            )
            if is_graph:
                with self._host.busy():
                    call.fn, call.calls = graph_of(call.fn, grads)
                call.reset = None
            return self._host.in_place(call)

        return body

    def _names(self, operator: Any) -> list[str]:
        """The backends that are to be timed and were not yet, as far as that can be told."""
        known = getattr(self._module, "REGISTERED_BENCHMARKS", {}).get(operator.name, {})
        only = getattr(operator, "_only", None)
        skipped = getattr(operator, "_skip", None) or ()
        chosen = only or [n for n, b in known.items() if getattr(b, "enabled", True)]
        return [name for name in chosen if name not in skipped]

    def _x(self, operator: Any) -> dict[str, Any]:
        name = getattr(self._module, "REGISTERED_X_VALS", {}).get(operator.name, "x_val")
        try:
            value = operator.get_x_val(operator.example_inputs)
        except Exception:  # noqa: BLE001  not every operator has one
            return {}
        return {"".join(c if c.isalnum() else "_" for c in str(name)) or "x_val": value}
