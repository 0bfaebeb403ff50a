"""The shape of NVBench for Python: decorators that keep actions; no native part."""

_register = None
_ACTIONS = "__cuda_bench_actions__"


def __getattr__(name):
    if name in ("run_all_benchmarks", "State", "Benchmark", "Launch"):
        raise ImportError("no native part here")
    raise AttributeError(name)


def _keep(action):
    def decorator(fn):
        fn.__dict__.setdefault(_ACTIONS, []).append(action)
        return fn

    return decorator


def register(fn=None, /):
    def decorator(fn):
        benchmark = _register(fn)
        for action in reversed(getattr(fn, _ACTIONS, ())):
            action(benchmark)
        return fn

    if fn is None:
        return decorator
    return _register(fn)


class axis:
    @staticmethod
    def int64(name, values):
        return _keep(lambda b: b.add_int64_axis(name, values))

    @staticmethod
    def power_of_two(name, values):
        return _keep(lambda b: b.add_int64_power_of_two_axis(name, values))

    @staticmethod
    def string(name, values):
        return _keep(lambda b: b.add_string_axis(name, values))


class option:
    @staticmethod
    def min_samples(value):
        return _keep(lambda b: b.set_min_samples(value))

    @staticmethod
    def is_cpu_only(value=True):
        return _keep(lambda b: b.set_is_cpu_only(value))
