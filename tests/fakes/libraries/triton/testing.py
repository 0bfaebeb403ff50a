"""Functions of Triton's names and arguments, which time on whatever clock they are given."""

import statistics
import time

CLOCK = [time.perf_counter]
TABLES: list = []
"""Of each perf_report that ran: (x, values)."""


def _summarize_statistics(times, quantiles, return_mode):
    if quantiles is not None:
        found = [sorted(times)[round(q * (len(times) - 1))] for q in quantiles]
        return found[0] if len(found) == 1 else found
    modes = {"min": min, "max": max, "mean": statistics.mean, "median": statistics.median}
    return times if return_mode == "all" else modes[return_mode](times)


def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    fn()
    begun = CLOCK[0]()
    fn()
    once_ms = max((CLOCK[0]() - begun) * 1e3, 1e-6)
    times = []
    for _ in range(max(1, int(rep / once_ms))):
        begun = CLOCK[0]()
        fn()
        times.append((CLOCK[0]() - begun) * 1e3)
    return _summarize_statistics(times, quantiles, return_mode)


def do_bench_cudagraph(fn, rep=20, grad_to_none=None, quantiles=None, return_mode="mean"):
    return do_bench(fn, 0, rep, grad_to_none, quantiles, return_mode)


def do_bench_proton(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    return do_bench(fn, warmup, rep, grad_to_none, quantiles, return_mode)


class Benchmark:
    def __init__(
        self, x_names, x_vals, line_arg, line_vals, line_names, plot_name, args, ylabel="", **look
    ):
        self.x_names, self.x_vals, self.line_arg = x_names, x_vals, line_arg
        self.line_vals, self.line_names = line_vals, line_names
        self.plot_name, self.args, self.ylabel = plot_name, args, ylabel


class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks

    def _run(self, bench, save_path, show_plots, print_data, diff_col=False, **kwargs):
        for x in bench.x_vals:
            xs = x if isinstance(x, list | tuple) else [x] * len(bench.x_names)
            given = dict(zip(bench.x_names, xs, strict=True))
            row = [
                self.fn(**given, **{bench.line_arg: y}, **bench.args, **kwargs)
                for y in bench.line_vals
            ]
            TABLES.append((x, row))
            if print_data:
                print(bench.plot_name, x, *row)
        return TABLES

    def run(self, show_plots=False, print_data=False, save_path="", **kwargs):
        several = isinstance(self.benchmarks, list)
        for bench in self.benchmarks if several else [self.benchmarks]:
            self._run(bench, save_path, show_plots, print_data, **kwargs)


def perf_report(benchmarks):
    return lambda fn: Mark(fn, benchmarks)
