"""What the host's clock has to wait for: devices whose work goes on when a call has returned.

A row is looked at with its first result. Where its tensors are on an accelerator, or one was
brought up meanwhile, the clock waits for it at both ends of every window; where nothing can wait
for it, the row is refused. Libraries whose calls return early are named.
"""

import statistics
import sys
import time
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

from usv_tui.codes import Code
from usv_tui.diagnosis.checks import BenchFault
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.suite.reach import is_array, is_users, objects
from usv_tui.timers.devices import current_kind, family_of, is_used, waits_for
from usv_tui.timers.owned import Where, devices
from usv_tui.timers.stream_clock import holds_back, mark

Wait = Callable[[], object]

ASYNCHRONOUS: Mapping[str, str] = {
    "jax": "block_until_ready() on the result",
    "jaxlib": "block_until_ready() on the result",
    "pyopencl": "queue.finish(), or wait() on the event",
    "cupy": "cupy.cuda.runtime.deviceSynchronize()",
    "pycuda": "pycuda.driver.Context.synchronize()",
    "cuda": "cuda.bindings.runtime.cudaDeviceSynchronize()",
    "numba.cuda": "numba.cuda.synchronize()",
    "tensorflow": "numpy() on the result",
    "mlx": "mlx.core.eval() on the result, which is lazy until then",
    "paddle": "paddle.device.synchronize()",
    "oneflow": "numpy() on the result",
    "mxnet": "mxnet.nd.waitall()",
    "mindspore": "asnumpy() on the result",
    "dpctl": "queue.wait()",
    "dpnp": "sycl_queue.wait() of the result",
    "tinygrad": "realize() on the result, and synchronize() of its device",
    "taichi": "taichi.sync()",
    "warp": "warp.synchronize()",
    "arrayfire": "arrayfire.sync()",
    "wgpu": "a read of the result's buffer",
    "moderngl": "finish() of the context",
    "hip": "hip.hip.hipDeviceSynchronize()",
    "ttnn": "ttnn.synchronize_device()",
}
"""Libraries whose calls return before their work is done, and what waits for it."""
_BROUGHT_ALONG = ("cuda",)
"""Torch imports it by itself: only a file that names it uses it."""
_WAITS: Mapping[str, str] = {
    "cupy": "cuda.runtime.deviceSynchronize",
    "numba.cuda": "synchronize",
    "paddle": "device.synchronize",
    "mxnet": "nd.waitall",
    "taichi": "sync",
    "warp": "synchronize",
    "arrayfire": "sync",
}
"""What of a library waits for all of its work, where there is such a thing."""
_LOOKS = 3
_LONG_CALL_NS = 500_000_000
_LAG_NS = 20_000
_LAG_SHARE = 0.1
"""A result that its caller has to wait for so long, beside the call itself, was not done."""


class HostClock:
    """Finds out, row by row, what a host clock has to wait for."""

    def __init__(
        self, waits: Mapping[str, Wait] | None = None, *, names_loaded: bool = True
    ) -> None:
        """Begin with what is waited for already; without `names_loaded` only what a row touches."""
        self.waits: dict[str, Wait] = dict(waits or {})
        """By kind of accelerator."""
        self.names_loaded = names_loaded
        self._named: set[str] = set()
        self._own = frozenset(self.waits)
        """Kinds that are measured here anyway."""
        self._proven: set[str] = set()
        """Kinds whose work was seen to be done when what waits for it had returned."""
        self._unsure: set[str] = set()
        """Kinds of which nothing here tells when their work is done."""
        self._modules = 0

    def wait(self) -> None:
        """Wait for everything."""
        for wait in self.waits.values():
            wait()

    def look(
        self, fn: Callable[[], object], result: object, before: Iterable[Callable[[], object]] = ()
    ) -> list[Finding]:
        """Look at a row that was called just now, for the first time.

        Raises:
            BenchFault: its work goes on after its calls, and nothing here can wait for it.
        """
        for kind in used_kinds(sys.modules.get("torch")):
            self._prove(kind)  # first of all: what the call left may be done soon
        owned = list(objects(result, fn, is_leaf=_is_leaf))
        kinds = [where.kind for where in devices(owned)]
        fresh = [*self._libraries(owned), *self._accelerators(kinds)]
        # Who calls the library is told how often fn is called.
        for kind in dict.fromkeys([*kinds, *fresh, *self._own]) if self.names_loaded else ():
            self._prove(kind, fn, before)
        found = self._said(fresh)
        refuse_early(fn, result, before)
        found += self._name(owned)
        return found

    def look_again(self) -> list[Finding]:
        """What has come into use since rows were looked at, between windows: some microseconds."""
        found: list[Finding] = []
        try:
            found += self._said(self._accelerators(()), is_late=True)
        except BenchFault as fault:
            self._proven |= set(used_kinds(sys.modules.get("torch")))
            found.append(finding(Code.NOT_WAITED_FOR, reason=fault.message))
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            found += self._name(())
        return found

    def _said(self, fresh: list[str], **more: bool) -> list[Finding]:
        if not fresh:
            return []
        torch = sys.modules.get("torch")
        also = {
            "unsure": [kind for kind in fresh if kind in self._unsure],
            "devices": [kind for kind in fresh if self.names_loaded and hasattr(torch, kind)],
        }
        known = {name: kinds for name, kinds in also.items() if kinds}
        return [finding(Code.HOST_CLOCK_WAITS, kinds=fresh, **known, **more)]

    def _accelerators(self, kinds: Collection[str]) -> list[str]:
        """Kinds that rows hold tensors of, or that are in use, and were not waited for so far."""
        torch: Any = sys.modules.get("torch")
        fresh: list[str] = []
        for kind in dict.fromkeys([*kinds, *used_kinds(torch)]):
            if kind in self.waits:
                continue
            self._prove(kind)
            wait = _wait_for(kind)
            if wait is not None:
                self.waits[kind] = wait
                fresh.append(kind)
            elif kind in kinds:
                _refuse(kind, f"torch.{kind}.synchronize is not here")
        return fresh

    def _prove(
        self,
        kind: str,
        fn: Callable[[], object] | None = None,
        before: Iterable[Callable[[], object]] = (),
    ) -> None:
        """See that the wait for a kind waits, by what a call has left or by some calls more.

        Raises:
            BenchFault: it does not, or there is none, and the device is still at work.
        """
        torch: Any = sys.modules.get("torch")
        if kind in self._proven or torch is None or not hasattr(torch, kind):
            return
        wait = self.waits.get(kind) or _wait_for(kind)
        for _ in range(1 if fn is None else _LOOKS):
            start_ns = time.perf_counter_ns()
            for call in (*before, fn) if fn is not None else ():
                call()
            is_done = mark(family_of(torch, kind).gpu)
            if is_done is None:
                self._unsure.add(kind)
                return
            seen = holds_back(is_done, wait or _nothing)
            if seen is False:
                how = "is not here" if wait is None else "returns before the device is done"
                _refuse(kind, f"torch.{kind}.synchronize {how}")
            if seen:
                self._proven.add(kind)
            if seen or time.perf_counter_ns() - start_ns > _LONG_CALL_NS:
                return

    def _libraries(self, owned: Iterable[object]) -> list[str]:
        """Other libraries than torch whose arrays a row holds, and whose work can be waited for."""
        fresh: list[str] = []
        for leaf in owned:
            name = _root(leaf)
            if name in ASYNCHRONOUS and name not in self.waits and not _is_module(leaf):
                wait = _wait_of(name, leaf)
                if wait is not None:
                    self.waits[name] = wait
                    self._named.add(name)
                    fresh.append(name)
        return fresh

    def _name(self, owned: Iterable[object]) -> list[Finding]:
        """Asynchronous libraries that were not named so far."""
        touched = {_root(leaf) for leaf in owned}
        names = [
            name
            for name in ASYNCHRONOUS
            if name not in self._named
            and (name in touched or (self.names_loaded and _is_loaded(name)))
        ]
        self._named.update(names)
        if "jax" in names and "jaxlib" in names:
            names.remove("jaxlib")
        return [
            finding(Code.ASYNCHRONOUS_LIBRARY, library=name, call=ASYNCHRONOUS[name])
            for name in names
        ]


def _wait_for(kind: str) -> Wait | None:
    torch = sys.modules.get("torch")
    return None if torch is None else waits_for(torch, kind)


def _nothing() -> None:
    pass


def _refuse(kind: str, why: str) -> NoReturn:
    raise BenchFault(
        "host clock",
        f"its work is on {kind}, and {why}: the host's clock would time the launch",
        f"only the maker of {kind}'s backend can mend that: events need it, too",
    )


def _is_loaded(name: str) -> bool:
    """Whether a library is here, and not merely because torch brought it along."""
    if name not in _BROUGHT_ALONG or name not in sys.modules:
        return name in sys.modules
    users = [module for module in list(sys.modules.values()) if is_users(module)]
    return any(_root(value) == name for module in users for value in list(vars(module).values()))


def used_kinds(torch: Any) -> list[str]:
    """The kinds of accelerators that this process uses through torch."""
    if torch is None:
        return []
    kinds = dict.fromkeys(["cuda", "xpu", "mps"])
    current = current_kind(torch)
    if current is not None:
        kinds[current] = None
    return [kind for kind in kinds if hasattr(torch, kind) and is_used(torch, kind)]


def waits_of(torch: Any, home: Where, others: Iterable[Where]) -> dict[Where, Wait]:
    """What waits for other devices than the one at home; of its own kind by their numbers."""
    found: dict[Where, Wait] = {}
    for where in others:
        wait: Callable[..., object] | None = waits_for(torch, where.kind)
        if wait is not None:
            found[where] = partial(wait, where.number) if where.kind == home.kind else wait
    return found


class _Lag(NamedTuple):
    """How a result came."""

    call_ns: int
    wait_ns: int
    is_ready: bool | None
    """What the result said of itself; None when it says nothing."""


def refuse_early(
    fn: Callable[[], object], result: object, before: Iterable[Callable[[], object]]
) -> None:
    """A result that can be waited for, and has to be: three calls in a row show it."""
    waiting = next(filter(_can_wait, objects(result, is_leaf=_is_leaf)), None)
    if waiting is None:
        return
    lags: list[_Lag] = []
    while len(lags) < _LOOKS and (not lags or lags[-1].call_ns < _LONG_CALL_NS):
        for call in before:
            call()
        lags.append(_lag(fn))
    usual_ns = statistics.median(lag.call_ns for lag in lags)
    least_ns = min(lag.wait_ns for lag in lags)
    is_early = all(lag.is_ready is False for lag in lags) or (
        least_ns > max(_LAG_NS, _LAG_SHARE * usual_ns)
    )
    if is_early:
        name = f"{_root(waiting)} {type(waiting).__name__}".strip()
        raise BenchFault(
            "returns early",
            f"fn returned a {name} that was not ready: {usual_ns / 1e3:.4g} µs for the call, "
            f"and {least_ns / 1e3:.4g} µs more until it was there",
            "call block_until_ready() on the result in fn",
        )


def _lag(fn: Callable[[], object]) -> _Lag:
    start_ns = time.perf_counter_ns()
    result = fn()
    end_ns = time.perf_counter_ns()
    waiting = list(filter(_can_wait, objects(result, is_leaf=_is_leaf)))
    said = [bool(leaf.is_ready()) for leaf in waiting if callable(getattr(leaf, "is_ready", None))]
    wait_ns = time.perf_counter_ns()
    for leaf in waiting:
        leaf.block_until_ready()
    return _Lag(end_ns - start_ns, time.perf_counter_ns() - wait_ns, all(said) if said else None)


def _is_module(leaf: object) -> bool:
    return isinstance(leaf, types.ModuleType)


def _wait_of(library: str, leaf: Any) -> Wait | None:
    """What waits for the work behind an array: its library, else its queue."""
    found: Any = sys.modules.get(library)
    for part in _WAITS.get(library, "").split("."):
        found = getattr(found, part, None) if part else None
    if callable(found):
        return cast("Wait", found)
    for owner in (leaf, getattr(leaf, "queue", None)):
        finish = getattr(owner, "finish", None)
        if callable(finish):
            return cast("Wait", finish)
    return None


def _is_leaf(item: Any) -> bool:
    return is_array(item) or _can_wait(item) or _root(item) in ASYNCHRONOUS


def _can_wait(leaf: Any) -> bool:
    return callable(getattr(type(leaf), "block_until_ready", None))


def _root(leaf: object) -> str:
    """The library that a value comes from."""
    name = leaf.__name__ if isinstance(leaf, types.ModuleType) else str(type(leaf).__module__)
    if name.startswith("numba.cuda"):
        return "numba.cuda"
    return str(name).partition(".")[0]
