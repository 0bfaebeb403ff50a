"""torch.utils.benchmark: a Timer's value waits for the others of its label, until it is read.

`Compare` puts measurements of one label, sub-label and number of threads side by side: so these are
interleaved, in the blocks of calls that the Timer chooses. Whoever reads a measurement gets it
then; timers that were made and not asked yet are taken along.
"""

import functools
import itertools
import timeit
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from usv_tui.foreign.calls import Answer, Call
from usv_tui.foreign.freeze import freeze_globals
from usv_tui.foreign.host import Host
from usv_tui.foreign.surroundings import Surroundings

_OWN_LOOP = "timed by torch's own loop (C++ or a callback)"
_TEMPLATE = """\
def block():
    {setup}
    _n = yield
    while True:
        for _ in _repeat(None, _n):
            {stmt}
        _n = yield
"""
_LONGEST_S = 0.005
"""Blocks are long enough to warm their own caches, and short enough to be interleaved."""
_METHODS = ("timeit", "blocked_autorange", "adaptive_autorange")


def install(module: ModuleType, host: Host) -> None:
    """Replace what measures of the class `Timer`."""
    _Timers(module, host).install()


class _Timers:
    def __init__(self, module: ModuleType, host: Host) -> None:
        self._module: Any = module
        self._host = host
        self._made: list[weakref.ref[Any]] = []
        self._ahead: dict[tuple[Any, ...], tuple[Surroundings | None, Any]] = {}
        """Measurements that were taken with others' and were not asked for yet."""
        self._asked: set[int] = set()
        self._lazy = _lazy(module.common.Measurement, self._flush)
        self._last: dict[object, tuple[str, tuple[Any, ...], dict[str, Any]]] = {}

    def install(self) -> None:
        timer = self._module.Timer
        init = timer.__init__
        made = self._made

        @functools.wraps(init)
        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            made.append(weakref.ref(self))

        self._host.replace(timer, "__init__", begin)
        for name in _METHODS:
            self._host.replace(timer, name, self._method(name, getattr(timer, name)))

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(timer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._host.is_ours():
                return original(timer, *args, **kwargs)
            wanted = _wanted(name, args, kwargs)
            if wanted is None or not self._can_take(timer):
                return self._with_own_loop(timer, original, args, kwargs)
            return self._ask(timer, name, args, kwargs)

        return method

    def _can_take(self, timer: Any) -> bool:
        is_python = timer._language is self._module.Language.PYTHON
        own = getattr(timer._timer, "timer", None) in (self._module.timer, timeit.default_timer)
        return is_python and own and type(timer._timer) is timeit.Timer

    # -- one that is asked

    def _ask(self, timer: Any, name: str, args: Any, kwargs: Any) -> Any:
        key = (id(timer), name, args, tuple(sorted(kwargs.items())))
        self._asked.add(id(timer))
        known = self._ahead.pop(key, None)
        if known is not None and known[0] == Surroundings.now():
            return known[1]
        self._last[_group(timer)] = (name, args, kwargs)
        return self._begin(timer, name, args, kwargs)

    def _begin(self, timer: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Make its first calls here, and let it wait for its group."""
        wanted = _wanted(name, args, kwargs) or {}
        spec = timer._task_spec
        with self._host.busy(), self._module.common.set_torch_threads(spec.num_threads):
            number = timer._estimate_block_size(min(0.2, wanted["seconds"] or 0.2))
            state = Surroundings.now()
            if "number" in wanted:
                number = min(number, wanted["number"])
            while number > 1 and timer._timeit(number) > _LONGEST_S:
                number //= 10
            fn = _block_of(timer, number)
            if "number" in wanted:
                once_s = timer._timeit(number) / number
                wanted["seconds"] = once_s * wanted["number"]
        measurement = self._lazy(number, [], spec)
        whole = wanted.get("number", number)

        def deliver(answer: Answer) -> None:
            if answer.error is not None:
                measurement.__dict__["_error"] = answer.error
            times = [max(seconds * whole, 1e-9) for seconds in answer.seconds]
            if "number" in wanted and times:
                times = [sorted(times)[len(times) // 2]]
            measurement.__dict__.update(number_per_run=whole, raw_times=times)
            measurement.__class__ = self._module.common.Measurement

        call = Call(
            fn,
            _name(spec),
            _params(spec),
            group=_title(spec),
            seconds=wanted["seconds"],
            calls=number,
            inner=1,
            surroundings=state,
        )
        self._host.later(call, _group(timer), deliver)
        return measurement

    def _flush(self) -> None:
        """A value is read: with it come the timers of its group that nobody has asked yet."""
        for reference in list(self._made):
            timer = reference()
            if timer is None or id(timer) in self._asked or not self._can_take(timer):
                continue
            name, args, kwargs = self._last.get(_group(timer), ("", (), {}))
            if not name or not self._is_callable(timer):
                continue
            self._asked.add(id(timer))
            key = (id(timer), name, args, tuple(sorted(kwargs.items())))
            self._ahead[key] = (Surroundings.now(), self._begin(timer, name, args, kwargs))
        self._host.flush()

    def _is_callable(self, timer: Any) -> bool:
        """Whether it can run before the script asks for it."""
        try:
            with self._host.busy():
                timer._timeit(1)
        except Exception:  # noqa: BLE001  it may need what the script has not made yet
            return False
        return True

    # -- what only torch can time

    def _with_own_loop(self, timer: Any, original: Any, args: Any, kwargs: Any) -> Any:
        with self._host.busy():
            found = original(timer, *args, **kwargs)
        spec = timer._task_spec
        call = Call(lambda: None, _name(spec), _params(spec), calls=found.number_per_run)
        self._host.elsewhere(call, [float(t) for t in found.times], _OWN_LOOP)
        return found


def _wanted(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """How long, or how often; None where its own loop is needed."""
    if name == "timeit":
        number = int(args[0] if args else kwargs.get("number", 1_000_000))
        return {"number": number, "seconds": 0.0} if number > 0 else None
    if name == "blocked_autorange":
        callback, given = (*args, None, None)[:2]
        if callback is not None or kwargs.get("callback") is not None:
            return None
        return {"seconds": float(given or kwargs.get("min_run_time", 0.2))}
    if kwargs.get("callback") is not None:
        return None
    least, most = kwargs.get("min_run_time", 0.01), kwargs.get("max_run_time", 10.0)
    return {"seconds": max(float(least), min(float(most), 0.2))}


def _group(timer: Any) -> object:
    spec = timer._task_spec
    return (spec.label, spec.sub_label, spec.num_threads)


def _title(spec: Any) -> str:
    """What rows that are compared have in common: of environments also the description."""
    threads = f"{spec.num_threads} threads" if spec.num_threads != 1 else None
    parts = (spec.label, spec.sub_label, spec.description if spec.env else None, threads)
    return ", ".join(str(part) for part in parts if part) or "torch.utils.benchmark"


def _name(spec: Any) -> str:
    text = " ".join(str(spec.label or spec.stmt).split())
    return text.replace("[", "(").replace("]", ")")[:60] or "stmt"


def _params(spec: Any) -> dict[str, Any]:
    known = {
        "sub_label": spec.sub_label,
        "env": spec.env,
        "description": spec.description,
        "threads": spec.num_threads if spec.num_threads != 1 else None,
    }
    if spec.label and not spec.sub_label and not spec.description:
        known["stmt"] = " ".join(spec.stmt.split())[:40]
    return {key: value for key, value in known.items() if value not in (None, "")}


def _block_of(timer: Any, number: int) -> Callable[[], object]:
    """`number` times the statement in one call, with its setup done and its names kept."""
    spec = timer._task_spec
    source = _TEMPLATE.format(
        setup=spec.setup.replace("\n", "\n    ") or "pass",
        stmt=spec.stmt.replace("\n", "\n            "),
    )
    names = freeze_globals(timer._globals)
    names["_repeat"] = itertools.repeat
    exec(compile(source, "<timeit-src>", "exec"), names)  # noqa: S102  as timeit does
    generator = names["block"]()
    next(generator)
    return functools.partial(generator.send, number)


def _lazy(base: Any, flush: Callable[[], object]) -> Any:
    """A measurement that is timed when somebody reads it, and then is like any other."""

    def force(self: Any) -> None:
        if type(self) is not base:
            flush()
        error = self.__dict__.pop("_error", None)
        if error is not None:
            raise error

    def field(name: str) -> property:
        def get(self: Any) -> Any:
            force(self)
            return self.__dict__[name]

        return property(get, lambda self, value: self.__dict__.__setitem__(name, value))

    def reduce(self: Any, protocol: int) -> Any:
        force(self)
        return self.__reduce_ex__(protocol)

    names = {name: field(name) for name in ("raw_times", "number_per_run")}
    return type("Measurement", (base,), {**names, "__reduce_ex__": reduce})
