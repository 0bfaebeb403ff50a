"""Scripts that know nothing of this program: what they ask for is timed, and they go on with it."""

import os
import sys
import textwrap
import threading
import time

import pytest

from tests.fakes.scripts import KeptLoop, run_script

torch = pytest.importorskip("torch")


def _run(tmp_path, source, *arguments, loop=None):
    """Its own assertions hold."""
    ending, loop = run_script(tmp_path, textwrap.dedent(source), *arguments, loop=loop)
    assert "AssertionError" not in ending.said, ending
    return ending, loop


def test_measurements_of_one_label_are_timed_together_when_they_are_read(tmp_path, capsys):
    """A Compare's rows are interleaved, and the script prints our numbers."""
    ending, loop = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Compare, Timer
        found = []
        for env in ("old", "new"):
            for size in (1, 2):
                timer = Timer("sum(range(n))", globals={"n": size}, label="sum", env=env,
                              description=f"n {size}", sub_label="range")
                found.append(timer.blocked_autorange(min_run_time=0.001))
        print(Compare(found))
        print(found[0].median)
        """,
    )
    assert ending.code == 0
    assert [len(group) for group in loop.groups] == [4]
    assert "sum[sub_label=range,env=old,description=n 1]" in loop.groups[0]
    assert capsys.readouterr().out.splitlines()[-1] == "0.001"


def test_timers_that_were_made_already_join_the_first_that_is_read(tmp_path, capsys):
    """Where a value is needed at once, the timers that exist are its group."""
    _, loop = _run(
        tmp_path,
        """
        import pickle
        from torch.utils.benchmark import Timer
        timers = [Timer("pass", label="one", description=d) for d in "abc"]
        for timer in timers * 2:
            print(pickle.loads(pickle.dumps(timer.timeit(10))).mean)
        """,
    )
    assert [len(group) for group in loop.groups] == [3, 1, 1, 1]
    assert capsys.readouterr().out.split() == ["0.001"] * 6


def test_a_call_that_waits_keeps_the_names_that_it_reads(tmp_path):
    """Late binding: three sizes are three rows, though the name has the last one when they run."""
    _, loop = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        def work():
            seen.append(helper())
        def helper():
            return size
        seen, found = [], []
        for size in (1, 2, 3):
            seen = []
            found.append((Timer("work()", globals={"work": work}, label="l", description=str(size))
                          .timeit(1), seen))
        for measurement, own in found:
            measurement.mean
        assert [set(own) for _, own in found] == [{1}, {2}, {3}], found
        """,
    )
    assert [len(group) for group in loop.groups] == [3]


def test_a_closure_that_writes_what_it_shares_is_not_copied(tmp_path):
    """What a callable counts is seen by the script."""
    ending, _ = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        count = 0
        def work():
            global count
            count += 1
        Timer("work()", globals={"work": work}).timeit(3).mean
        assert count >= 3
        """,
    )
    assert ending.said == ""


def test_a_call_that_waits_runs_in_the_state_that_torch_had(tmp_path):
    """Grad mode, precision, threads, default type and device of the script, not of the end."""
    _, loop = _run(
        tmp_path,
        """
        import torch
        from torch.utils.benchmark import Timer
        def state():
            now.append((torch.is_grad_enabled(), torch.get_default_dtype(),
                        torch.is_autocast_enabled("cpu"), torch.get_num_threads(),
                        torch.backends.cuda.math_sdp_enabled(),
                        len(torch.overrides._get_current_function_mode_stack())))
        found = []
        def ask():
            global now
            now = []
            found.append((Timer("state()", globals={"state": state}, num_threads=1).timeit(1), now))
        with torch.no_grad(), torch.autocast("cpu"), torch.device("cpu"):
            ask()
        torch.set_default_dtype(torch.float64)
        ask()
        torch.set_default_dtype(torch.float32)
        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            ask()
        found[0][0].mean
        states = [seen[-1] for _, seen in found]
        assert states[0] == (False, torch.float32, True, 1, True, 1), states
        assert states[1] == (True, torch.float64, False, 1, True, 0), states
        assert states[2] == (True, torch.float32, False, 1, False, 0), states
        assert all(len(set(seen)) == 1 for _, seen in found)
        assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32
        """,
    )
    assert [len(group) for group in loop.groups] == [3]


def test_what_a_callable_raises_reaches_the_script_where_it_called(tmp_path, capsys):
    """Control flow by exceptions: it is called once in place, before anything waits."""
    ending, _ = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        def fails():
            raise ValueError("too large")
        try:
            Timer("fails()", globals={"fails": fails}).blocked_autorange()
        except ValueError as error:
            print("skipped:", error)
        """,
    )
    assert (ending.code, capsys.readouterr().out) == (0, "skipped: too large\n")


def test_a_group_is_closed_before_it_holds_too_much(tmp_path):
    """Memory that waiting calls hold has a bound."""
    loop = KeptLoop()
    loop.room_bytes = 2_500_000
    _run(
        tmp_path,
        """
        import torch
        from torch.utils.benchmark import Timer
        found = [Timer("x + x", globals={"x": torch.ones(250_000)}, label="l", description=str(i))
                 .timeit(1) for i in range(5)]
        found[0].mean
        """,
        loop=loop,
    )
    assert [len(group) for group in loop.groups] == [3, 2]
    assert [code for code, _ in loop.told] == ["group closed"]


def test_sleeps_between_benchmarks_are_skipped_and_told(tmp_path):
    """A script rests between its benchmarks for nothing; what sleeps in one is timed."""
    begun = time.monotonic()
    _, loop = _run(
        tmp_path,
        """
        import time
        from time import sleep
        from torch.utils.benchmark import Timer
        def naps():
            sleep(0.001)
        for _ in range(3):
            before = time.perf_counter()
            Timer("naps()", globals={"naps": naps}).timeit(1).mean
            assert time.perf_counter() - before > 0.001, "what is timed may sleep"
            time.sleep(100)
        """,
    )
    assert time.monotonic() - begun < 50
    assert loop.told == [("sleeps skipped", {"count": 3, "seconds": 300.0})]
    assert time.sleep.__module__ == "time"


def test_the_script_has_the_surroundings_of_a_program(tmp_path, capsys, monkeypatch):
    """argv, path, `__main__`, the folder, files and the exit code are the script's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
    argv, path, main = list(sys.argv), list(sys.path), sys.modules["__main__"]
    ending, _ = _run(
        tmp_path,
        """
        import os, sys, pickle, beside
        class Own: pass
        assert pickle.loads(pickle.dumps(Own())).__class__ is Own
        assert __name__ == "__main__" and sys.modules["__main__"].Own is Own
        assert __file__ == sys.argv[0], (__file__, sys.argv)
        print(sys.argv[1:], beside.WORD)
        with open("made.txt", "w") as made:
            made.write("by the script")
        sys.exit(3)
        """,
        *("--n", "4"),
    )
    assert (ending.code, ending.said) == (3, "")
    assert capsys.readouterr().out == "['--n', '4'] beside\n"
    assert (tmp_path / "made.txt").read_text() == "by the script"
    assert (sys.argv, sys.path, sys.modules["__main__"]) == (argv, path, main)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit('no luck')", 1, ""),
        ("import no_such_module_at_all", 1, "ModuleNotFoundError"),
        ("raise RuntimeError('broken')", 1, "RuntimeError: broken"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("pass", 0, ""),
    ],
)
def test_a_script_ends_with_its_own_exit_code(tmp_path, text, code, said):
    """However it ends, and with one line where it died."""
    ending, loop = _run(tmp_path, text)
    assert (ending.code, loop.met) == (code, [])
    assert said in ending.said


def test_the_calls_of_an_autotuner_are_none_of_the_scripts(tmp_path):
    """Trials of compilers pass through, by who calls and within what is timed."""
    _, loop = _run(
        tmp_path,
        """
        import sys, types
        from torch.utils.benchmark import Timer
        tuner = types.ModuleType("torch._inductor.fake_tuner")
        exec("def trial(timer): return timer.timeit(10)", tuner.__dict__)
        assert tuner.trial(Timer("pass")).mean < 1e-4
        def work():
            assert Timer("pass").timeit(10).mean < 1e-4
        Timer("work()", globals={"work": work}).timeit(1).mean
        """,
    )
    assert loop.met == ["work()"]


def test_other_threads_and_forked_processes_are_left_alone(tmp_path):
    """What is not the script's own thread is timed by the library itself."""
    ending, loop = _run(
        tmp_path,
        """
        import os, threading
        from torch.utils.benchmark import Timer
        said = []
        thread = threading.Thread(target=lambda: said.append(Timer("pass").timeit(9).mean))
        thread.start(); thread.join()
        assert said[0] < 1e-4
        pid = os.fork()
        if not pid:
            os._exit(0 if Timer("pass").timeit(9).mean < 1e-4 else 1)
        assert os.waitpid(pid, 0)[1] == 0
        """,
    )
    assert (ending.said, loop.met) == ("", [])


def test_a_run_that_is_to_end_ends_the_script(tmp_path):
    """The end of a run is no error that a script may catch."""
    loop = KeptLoop()
    loop.stop_after = 2
    ending, _ = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        while True:
            try:
                Timer("pass").timeit(1).mean
            except Exception:
                pass
        """,
        loop=loop,
    )
    assert (ending.code, len(loop.groups)) == (0, 2)


def test_libraries_are_as_they_were_when_the_script_has_ended(tmp_path):
    """Patches, the sleep and the alias of usv are taken back; what the script did stays."""
    from torch.utils.benchmark import Timer

    before = Timer.blocked_autorange, Timer.__init__, time.sleep, sys.modules.get("usv")
    threads = threading.active_count()
    _run(tmp_path, "import torch.utils.benchmark, usv, os\nos.environ['LEFT'] = '1'")
    after = Timer.blocked_autorange, Timer.__init__, time.sleep, sys.modules.get("usv")
    assert after == before
    assert threading.active_count() == threads
    assert os.environ.pop("LEFT") == "1"


def test_what_only_torchs_own_loop_can_time_passes_and_is_told(tmp_path):
    """A callback is called, by torch's own loop."""
    _, loop = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        seen = []
        found = Timer("pass", label="own").blocked_autorange(lambda n, t: seen.append(n), 0.001)
        assert seen and found.median < 1e-4
        """,
    )
    assert "own loop" in loop.why["own[stmt=pass]"]


def test_calls_of_usv_are_interleaved(tmp_path):
    """One do_bench_many is one group; what fails is the error of usv."""
    _, loop = _run(
        tmp_path,
        """
        import usv
        found = usv.do_bench_many({"a": lambda: 1, "b": lambda: 2}, iters=5)
        assert found["a"].median == found["b"].median == 1e-3 and found["a"].name == "a"
        assert usv.do_bench(lambda: 1).median == 1e-3
        def fails(): raise OSError("gone")
        try:
            usv.do_bench_many({"bad": fails, "good": lambda: 1})
        except usv.BenchmarkFailed as error:
            assert set(error.results) == {"good"} and "gone" in str(error)
        """,
    )
    assert loop.groups == [["a", "b"], ["<lambda>"], ["good"]]
    assert loop.why["<lambda>"]  # a single call is by itself, and its row says so


def test_the_scripts_medians_are_those_of_the_script_alone(tmp_path, monkeypatch):
    """On a device of known times, whatever number of calls torch puts into a block."""
    import timeit

    from tests.fakes.scripts import KnownDevice, measured

    device = KnownDevice()
    monkeypatch.setattr(timeit, "default_timer", device.now_s)
    device.source = """
        from torch.utils.benchmark import Timer
        from beside_device import take
        timers = [
            Timer("take(s)", globals={"take": take, "s": s}, label="l", env=env, description=str(s))
            for env in "ab"
            for s in (1e-6, 3e-5, 1e-3, 0.04)
        ]
        alone = Timer.blocked_autorange.__wrapped__
        for timer in timers * 2:
            wanted = alone(timer, min_run_time=0.05).median
            found = timer.blocked_autorange(min_run_time=0.05)
            assert abs(found.median / wanted - 1) < 0.001, (found, wanted)
            assert abs(timer.timeit(20).mean / wanted - 1) < 0.001
        """
    records = measured(tmp_path, device)
    from usv_tui.records import Bench, Samples

    assert len([r for r in records if isinstance(r, Bench)]) == 32
    names = {r.info.bench: r.info.params["description"] for r in records if isinstance(r, Bench)}
    for record in (r for r in records if isinstance(r, Samples)):
        for bench, ns, calls in zip(record.bench, record.window_ns, record.inners(), strict=True):
            assert ns / calls / 1e9 == pytest.approx(float(names[bench]), rel=1e-3)


def test_what_is_to_be_done_at_exit_is_done_when_the_script_ends(tmp_path, capsys):
    """Threads are waited for, and exits are called, in Python's order; one that raises is shown."""
    _run(
        tmp_path,
        """
        import atexit, threading, time
        done = threading.Event()
        def work():
            done.wait(10)
            print("thread")
        threading.Thread(target=work).start()
        atexit.register(print, "first", end="!\\n")
        @atexit.register
        def fails():
            raise OSError("at exit")
        atexit.register(lambda: print("last"))
        print("script")
        done.set()
        """,
    )
    found = capsys.readouterr()
    assert found.out.splitlines() == ["script", "thread", "last", "first!"]
    assert "at exit" in found.err


def test_a_group_is_closed_before_nobody_sees_anything_for_long(tmp_path):
    """Calls that together want more than twenty seconds are timed."""
    _, loop = _run(
        tmp_path,
        """
        from torch.utils.benchmark import Timer
        found = [Timer("pass", description=str(i)).blocked_autorange(min_run_time=9)
                 for i in range(5)]
        found[0].mean
        """,
    )
    assert [len(group) for group in loop.groups] == [3, 2]
    assert loop.told == [("group closed", {"seconds": 27.0, "rows": 3})]
