"""An operator with backends, each timed by itself on each input."""

import time
from types import SimpleNamespace

REGISTERED_BENCHMARKS: dict = {}
BASELINE_BENCHMARKS: dict = {}
REGISTERED_X_VALS: dict = {}


class Latency:
    def __init__(self, times):
        times.sort()
        self.times = times
        self.p50 = times[len(times) // 2]


def do_bench_wrapper(
    fn, warmup, rep, grad_to_none, device="cuda", use_cuda_graphs=False, bypass_fail=False
):
    begun = time.perf_counter()
    fn()
    return Latency([(time.perf_counter() - begun) * 1e3])


class BenchmarkOperator:
    def __init__(self, name, inputs, only=None, skip=None):
        self.name, self._inputs, self._only, self._skip = name, inputs, only, skip
        self.baseline_metrics = None

    def _get_bm_func(self, name):
        return getattr(self, name)(self.example_inputs)

    def get_x_val(self, inputs):
        return inputs

    def _do_bench(self, input_id, fn_name, warmup=25, rep=100, quantiles=None, baseline=False):
        metrics = SimpleNamespace(latency=None, speedup=None, error_msg=None)
        try:
            metrics.latency = do_bench_wrapper(
                self._get_bm_func(fn_name), warmup, rep, grad_to_none=None, device="cpu"
            )
            if self.baseline_metrics is not None:
                metrics.speedup = self.baseline_metrics.latency.p50 / metrics.latency.p50
        except RuntimeError as error:
            metrics.error_msg = str(error)
        return metrics

    def run(self, warmup=25, rep=100):
        found = []
        for input_id, inputs in enumerate(self._inputs):
            self.example_inputs = inputs
            self.baseline_metrics = None
            known = [n for n, b in REGISTERED_BENCHMARKS[self.name].items() if b.enabled]
            row = {}
            for name in self._only or [n for n in known if n not in (self._skip or ())]:
                is_baseline = name == BASELINE_BENCHMARKS.get(self.name)
                row[name] = self._do_bench(input_id, name, warmup, rep, None, is_baseline)
                if is_baseline:
                    self.baseline_metrics = row[name]
            found.append((self.example_inputs, row))
        return found
