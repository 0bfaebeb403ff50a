"""Scripts that time with triton.testing: providers of one x side by side, the table as its own."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.scripts import KeptLoop, KnownDevice, measured, run_script
from usv_tui.records import BenchError, Mark, Noted, Samples

LIBRARIES = Path(__file__).parents[1] / "fakes" / "libraries"
REPORT = """
import triton

@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=[1, 2], line_arg="who", line_vals=["a", "b"],
        line_names=["First", "Second"], plot_name="add", args={"extra": 7},
    )
)
def report(n, who, extra):
    {body}

report.run(print_data=True)
"""


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.syspath_prepend(str(LIBRARIES))
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] == "triton"]:
        del sys.modules[name]


def _run(tmp_path, source, loop=None):
    return run_script(tmp_path, textwrap.dedent(source), loop=loop)


def _report(tmp_path, body, loop=None):
    body = textwrap.indent(textwrap.dedent(body), "    ").strip()
    ending, loop = run_script(tmp_path, REPORT.replace("{body}", body), loop=loop)
    assert "AssertionError" not in ending.said, ending
    return ending, loop


def test_the_providers_of_one_x_are_timed_together_and_the_table_holds_that(tmp_path, capsys):
    """The function runs once for each cell; rows have the names of the report."""
    _, loop = _report(
        tmp_path,
        """
        print("cell", n, who)
        ms, low, high = triton.testing.do_bench(lambda: (n, who), quantiles=[0.5, 0.2, 0.8])
        return ms * n
        """,
    )
    assert loop.groups == [
        ["add[n=1,who=First]", "add[n=1,who=Second]"],
        ["add[n=2,who=First]", "add[n=2,who=Second]"],
    ]
    assert loop.results["add[n=2,who=Second]"] == (2, "b")
    assert loop.calls["add[n=1,who=First]"].is_baseline
    assert loop.calls["add[n=1,who=First]"].is_cold
    assert capsys.readouterr().out.splitlines() == [
        *("cell 1 a", "cell 1 b", "add 1 1.0 1.0"),
        *("cell 2 a", "cell 2 b", "add 2 2.0 2.0"),
    ]


def test_a_cell_may_catch_what_its_callable_raises(tmp_path, capsys):
    """Control flow by exceptions: `except Exception` around do_bench means what it says."""
    _, loop = _report(
        tmp_path,
        """
        def work():
            if who == "b":
                raise MemoryError("too large")
        try:
            return triton.testing.do_bench(work)
        except Exception as error:
            return str(error)
        """,
    )
    assert loop.groups == [["add[n=1,who=First]"], ["add[n=2,who=First]"]]
    assert capsys.readouterr().out.splitlines()[0] == "add 1 1.0 too large"


def test_what_a_cell_raises_ends_the_script_where_it_would(tmp_path):
    """The first provider's error comes first, whatever ran beside it."""
    ending, _ = _report(tmp_path, "raise RuntimeError(who)")
    assert (ending.code, "RuntimeError: a" in ending.said) == (1, True)


def test_cells_with_several_calls_are_timed_call_by_call(tmp_path):
    """A second do_bench of a cell is beside the second ones of the others."""
    _, loop = _report(
        tmp_path,
        """
        first = triton.testing.do_bench(lambda: 1)
        return first + triton.testing.do_bench(lambda: 2)
        """,
    )
    assert [len(group) for group in loop.groups] == [2, 2, 2, 2]
    assert loop.groups[1] == ["add[n=1,who=First,run=2]", "add[n=1,who=Second,run=2]"]


def test_each_cell_has_its_own_state_and_the_scripts_stays(tmp_path):
    """Contexts that are open around do_bench are those in which it is called and timed."""
    pytest.importorskip("torch")
    ending, _ = _report(
        tmp_path,
        """
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        def work():
            assert torch.backends.cuda.math_sdp_enabled() is (who == "a")
            assert not torch.is_grad_enabled()
        with torch.no_grad(), sdpa_kernel(
            SDPBackend.MATH if who == "a" else SDPBackend.FLASH_ATTENTION
        ):
            found = triton.testing.do_bench(work)
        assert torch.is_grad_enabled()
        return found
        """,
    )
    assert ending.said == ""


def test_a_grid_that_holds_too_much_is_timed_in_parts(tmp_path):
    """What all providers of an x hold at once has a bound."""
    pytest.importorskip("torch")
    loop = KeptLoop()
    loop.room_bytes = 1000
    _report(
        tmp_path,
        """
        import torch
        x = torch.ones(1000)
        return triton.testing.do_bench(lambda: x + 1)
        """,
        loop,
    )
    assert [len(group) for group in loop.groups] == [1, 1, 1, 1]
    assert {code for code, _ in loop.told} == {"group closed"}


def test_a_call_outside_of_a_report_is_sequential(tmp_path, capsys):
    """Its value is needed at once, so nothing can be beside it; the row says so."""
    _, loop = _run(
        tmp_path,
        """
        from triton.testing import do_bench, do_bench_cudagraph, do_bench_proton
        def kernel():
            return 1
        for n in (1, 2):
            print(do_bench(kernel, rep=10), do_bench(lambda: n, return_mode="all"))
        print(do_bench_cudagraph(kernel))
        assert do_bench_proton(kernel, rep=0) < 1
        """,
    )
    assert all(len(group) == 1 for group in loop.groups)
    assert set(loop.why) >= {"kernel", "kernel[run=2]", "kernel[run=3]", "script:6"}
    assert "no other call" in loop.why["kernel"]
    assert capsys.readouterr().out.splitlines()[0] == "1.0 [1.0, 1.0, 1.0]"
    assert loop.calls["kernel"].seconds == 0.01


def test_an_autotuner_inside_a_callable_or_beside_it_passes(tmp_path):
    """Trials are the library's, by where they come from and by what is running."""
    _, loop = _run(
        tmp_path,
        """
        import sys, types, triton
        tuner = types.ModuleType("triton.runtime.autotuner")
        tuner.testing = triton.testing
        exec("def tune(fn): return testing.do_bench(fn, rep=0)", tuner.__dict__)
        def work():
            tuner.tune(lambda: None)
        triton.testing.do_bench(work)
        tuner.tune(lambda: None)
        """,
    )
    assert loop.met == ["work"]


def test_gradients_are_cleared_before_each_window(tmp_path):
    """As the library does, outside of the window."""
    _, loop = _run(
        tmp_path,
        """
        import triton, types
        x = types.SimpleNamespace(grad=1)
        triton.testing.do_bench(lambda: x.grad, grad_to_none=[x])
        """,
    )
    (call,) = loop.calls.values()
    assert call.reset is not None
    call.reset()
    assert loop.results == {"script:4": None}


# -- with the loop itself, on a device that slows down

DROOP = """
import triton
from beside_device import take

@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=[1], line_arg="who", line_vals=["a", "b"],
        line_names=["a", "b"], plot_name="same", args={},
    )
)
def report(n, who):
    return triton.testing.do_bench(lambda: take(1e-3), rep=2000, return_mode="median")

report.run()
"""


class _Droop(KnownDevice):
    """A device whose calls take 15 % longer at the end of its first four seconds of work."""

    busy_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.source = DROOP

    def take(self, seconds: float) -> None:
        seconds *= 1 + 0.15 * min(1.0, self.busy_s / 4.0)
        self.busy_s += seconds
        super().take(seconds)


def test_two_equal_providers_agree_while_the_clock_droops(tmp_path, monkeypatch):
    """The script by itself has them more than 5 % apart, here they are within half a percent."""
    import triton.testing

    device = _Droop()
    triton.testing.CLOCK[0] = device.now_s
    monkeypatch.setitem(sys.modules, "beside_device", SimpleNamespace(take=device.take))
    exec(compile(DROOP, "script.py", "exec"), {"__name__": "__main__"})
    ((_, (first, second)),) = triton.testing.TABLES
    assert second / first - 1 > 0.05

    triton.testing.TABLES.clear()
    device = _Droop()
    records = measured(tmp_path, device)
    assert not [record for record in records if isinstance(record, BenchError)]
    ((_, (first, second)),) = triton.testing.TABLES
    assert abs(second / first - 1) < 0.005
    assert device.busy_s > 3.0
    assert len([r for r in records if isinstance(r, Samples)]) > 10


def test_a_call_that_takes_other_than_where_it_was_made_keeps_its_time_in_place(tmp_path):
    """What a callable shares with the script may change: 1.3 times apart, and the row says so."""
    import triton.testing

    triton.testing.TABLES.clear()
    script = DROOP.replace("take(1e-3)", "[take(1e-3) for _ in range(calls[0])]").replace(
        "    return", '    calls[0] = 1 if who == "a" else 3\n    return'
    )
    device = _Droop()
    device.source = script.replace("@triton", "calls = [1]\n\n@triton")
    records = measured(tmp_path, device)
    ((_, (first, second)),) = triton.testing.TABLES
    assert 2.4 < second / first < 3.6
    notices = [r.notice for r in records if isinstance(r, Noted)]
    assert [(n.code, n.bench) for n in notices if n.code == "in place"] == [("in place", 0)]
    marks = [r for r in records if isinstance(r, Mark)]
    assert [mark.bench for mark in marks] == [0]
    after = [r for r in records[records.index(marks[0]) :] if isinstance(r, Samples)]
    windows = [w / k for r in after for w, k in zip(r.window_ns, r.inners(), strict=True)]
    assert windows
    assert all(w < 1.3e6 for w in windows), "the table and the script have the same time"


def test_a_cell_that_sets_a_global_for_its_callable_keeps_it(tmp_path):
    """Late binding: the next cell sets it anew before either is timed."""
    _, loop = _report(
        tmp_path,
        """
        global value
        value = who
        return triton.testing.do_bench(lambda: value)
        """,
    )
    assert loop.results["add[n=1,who=First]"] == "a"
    assert loop.results["add[n=1,who=Second]"] == "b"
