"""Scripts that time with flashinfer, tritonbench and NVBench for Python."""

import sys
import textwrap
from pathlib import Path

import pytest

from tests.fakes.scripts import KeptLoop, run_script

LIBRARIES = Path(__file__).parents[1] / "fakes" / "libraries"


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.syspath_prepend(str(LIBRARIES))
    names = ("flashinfer", "tritonbench", "cuda", "triton")

    def forget():
        for name in [n for n in sys.modules if n.partition(".")[0] in names]:
            del sys.modules[name]

    forget()
    yield
    forget()


def _run(tmp_path, source, loop=None):
    return run_script(tmp_path, textwrap.dedent(source), loop=loop)


def test_flashinfers_times_are_ours_in_milliseconds(tmp_path, capsys):
    """With its arguments, in the package and in the module that it keeps them in."""
    ending, loop = _run(
        tmp_path,
        """
        from flashinfer.testing import bench_gpu_time
        from flashinfer.testing.utils import bench_gpu_time as same
        def kernel(x, scale=1):
            return x * scale
        assert same is bench_gpu_time
        print(bench_gpu_time(kernel, input_args=(2,), input_kwargs={"scale": 3},
                             repeat_time_ms=40, sleep_after_run=True))
        bench_gpu_time(lambda: 7, repeat_iters=9, cold_l2_cache=False, use_cuda_graph=True)
        """,
    )
    assert ending.said == ""
    assert capsys.readouterr().out == "[1.0, 1.0, 1.0]\n"
    assert loop.results["kernel"] == 6
    assert (loop.calls["kernel"].seconds, loop.calls["kernel"].is_cold) == (0.04, True)
    other = next(call for name, call in loop.calls.items() if name != "kernel")
    assert (other.samples, other.is_cold) == (9, False)


def test_ranks_that_must_agree_keep_flashinfers_own_loop(tmp_path):
    """An aggregate is a collective: every rank has to call it as often; the row says so."""
    _, loop = _run(
        tmp_path,
        """
        import flashinfer.testing
        def kernel(): pass
        assert flashinfer.testing.bench_gpu_time(kernel, aggregate_op=lambda t: 5.0) == [5.0] * 3
        """,
    )
    assert "aggregate_op" in loop.why["kernel"]


OPERATOR = """
from types import SimpleNamespace
from tritonbench.utils import triton_op
triton_op.REGISTERED_BENCHMARKS["op"] = {
    name: SimpleNamespace(enabled=name != "off") for name in ("torch", "fast", "broken", "off")
}
triton_op.BASELINE_BENCHMARKS["op"] = "torch"
triton_op.REGISTERED_X_VALS["op"] = "M, N"

class Operator(triton_op.BenchmarkOperator):
    def torch(self, x): return lambda: 2e-3 * x
    def fast(self, x): return lambda: 1e-3 * x
    def broken(self, x):
        def work():
            raise RuntimeError("no kernel image")
        return work
    def off(self, x): raise AssertionError("not enabled")

"""


def test_the_backends_of_one_input_are_timed_together(tmp_path):
    """Each has its own latency, speed-up and error in the library's own table."""
    ending, loop = run_script(
        tmp_path,
        OPERATOR
        + textwrap.dedent(
            """
            for x, row in Operator("op", [1, 2]).run():
                assert row["torch"].latency.p50 == 2.0 * x, vars(row["torch"])
                assert row["fast"].speedup == 2.0
                assert row["broken"].error_msg == "no kernel image"
            """
        ),
        loop=KeptLoop(lambda result: result),
    )
    assert ending.said == ""
    assert loop.groups == [
        [f"op[M__N={x},backend=torch]", f"op[M__N={x},backend=fast]"] for x in (1, 2)
    ]
    assert loop.calls["op[M__N=1,backend=torch]"].is_baseline


def test_backends_that_are_not_chosen_are_not_touched(tmp_path):
    """As the operator's own arguments have it."""
    _, loop = run_script(
        tmp_path,
        OPERATOR + 'Operator("op", [1], only=["fast"]).run()\n',
        loop=KeptLoop(lambda result: result),
    )
    assert loop.groups == [["op[M__N=1,backend=fast]"]]


def test_states_of_equal_numbers_are_timed_together(tmp_path):
    """Across benchmarks and text axes; a state that is skipped is none."""
    ending, loop = _run(
        tmp_path,
        """
        import sys
        import cuda.bench as bench

        @bench.register()
        @bench.axis.int64("n", [1, 2])
        @bench.axis.string("kind", ["a", "b"])
        @bench.option.min_samples(20)
        def copy(state: bench.State):
            n, kind = state.get_int64("n"), state.get_string("kind")
            if n == 2 and kind == "b":
                state.skip("too large")
                return
            state.add_element_count(n)
            def launch(launcher: bench.Launch):
                assert isinstance(launcher.get_stream().addressof(), int)
                return n, kind
            state.exec(launch, sync=True)
            state.add_summary("done", 1)

        def other(state):
            assert state.get_int64_or_default("m", 5) == 5 and not state.has_device()
            state.exec(lambda launch, timer: (timer.start(), timer.stop()), timer=True)

        plain = bench.register(other).set_name("plain").add_int64_axis("n", [1])
        plain.set_is_cpu_only(True)
        bench.run_all_benchmarks(sys.argv)
        """,
    )
    assert ending.said == ""
    assert loop.groups == [
        ["copy[n=1,kind=a]", "copy[n=1,kind=b]", "plain[n=1]"],
        ["copy[n=2,kind=a]"],
    ]
    assert loop.calls["copy[n=1,kind=a]"].samples == 20
