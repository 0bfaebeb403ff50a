import importlib
import sys
import threading
from collections import deque
from types import ModuleType, SimpleNamespace

import pytest

from usv_tui.engine import choice, worker
from usv_tui.errors import DeviceError, TimerError, UsageError
from usv_tui.gate import Gate
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import Bench, Chosen, Command, Fault, Progress, Samples, Timing
from usv_tui.report.wording.notices import sentence
from usv_tui.timesource import MonotonicTime

CLOCK = MonotonicTime()


def fake_torch(gpus=0, hip=None, cuda=None):
    """As much of torch as choosing a device asks for."""
    properties = SimpleNamespace(
        name="Card",
        uuid="GPU-1",
        total_memory=8 << 30,
        major=9,
        minor=0,
        multi_processor_count=132,
        gcnArchName="gfx942",
    )
    chosen = []
    return SimpleNamespace(
        __version__="9.9",
        version=SimpleNamespace(hip=hip, cuda=cuda),
        chosen=chosen,
        cuda=SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            current_device=lambda: 0,
            set_device=chosen.append,
            get_device_name=lambda i: f"Card{i}",
            get_device_properties=lambda i: properties,
            synchronize=lambda: None,
        ),
    )


@pytest.fixture
def choose(monkeypatch):
    """Choose a device with some torch installed, or with none."""

    def choose(wanted, torch):
        real = importlib.import_module

        def imported(name, *rest):
            if name != "torch":
                return real(name, *rest)
            if torch is None:
                raise ImportError("libcudart.so.12: cannot open shared object file")
            return torch

        monkeypatch.setattr(choice.importlib, "import_module", imported)
        told = []
        return *choice.choose_device(wanted, told.append, CLOCK)[:3], told

    return choose


# -- the device


def test_the_cpu_needs_no_torch(choose):
    """Asked for the CPU, torch is not even imported."""
    device, reason, identity, told = choose("cpu", None)

    assert (device, reason, identity, told) == ("cpu", "asked for", {}, [])


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        (fake_torch(), "torch 9.9 is a CPU-only build and sees no GPU"),
        (fake_torch(cuda="12.4"), "torch 9.9 is a CUDA build and sees no GPU"),
        (fake_torch(hip="6.2"), "torch 9.9 is a ROCm build and sees no GPU"),
        (None, "torch cannot be imported (ImportError)"),
    ],
)
def test_without_a_gpu_it_is_the_cpu_and_the_reason_is_said(choose, torch, reason):
    """By itself the program takes the CPU when torch sees no GPU, and the header says why."""
    assert choose("auto", torch)[:2] == ("cpu", reason)


def test_a_gpu_is_taken_by_itself_and_identified(choose):
    """With a GPU there, `auto` takes torch's current one, and what identifies it goes on record."""
    torch = fake_torch(gpus=2, cuda="12.4")

    device, reason, identity, told = choose("auto", torch)

    assert (device, reason) == ("cuda:0", "torch 9.9 sees 2 GPU(s)")
    assert torch.chosen == [0]
    assert (identity["uuid"], identity["vendor"], identity["torch"]) == ("GPU-1", "nvidia", "9.9")
    assert [type(record) for record in told] == [Progress]


def test_the_gpu_that_was_asked_for_is_made_torchs_current_one(choose):
    """The device is set in the thread that will time; an AMD card is one too."""
    torch = fake_torch(gpus=2, hip="6.2")

    device, reason, identity, _ = choose("cuda:1", torch)

    assert (device, reason, identity["vendor"]) == ("cuda:1", "asked for", "amd")
    assert torch.chosen == [1]


@pytest.mark.parametrize(
    ("wanted", "torch", "words"),
    [
        ("cuda", fake_torch(), "--device cuda: torch 9.9 is a CPU-only build and sees no GPU"),
        ("cuda:2", fake_torch(gpus=2, cuda="12"), "there is cuda:0 Card0, cuda:1 Card1"),
        ("cuda", None, "torch cannot be imported: libcudart.so.12"),
    ],
)
def test_a_device_that_is_not_here_is_refused_with_what_there_is(choose, wanted, torch, words):
    """A GPU that was asked for is never silently replaced by something else."""
    with pytest.raises(DeviceError) as caught:
        choose(wanted, torch)

    assert words in str(caught.value)
    assert int(caught.value.exit_code) == 3


@pytest.mark.parametrize("wanted", ["gpu", "cuda:", "cuda:one", "cuda:-1", "CUDA", ""])
def test_a_name_that_is_no_device_is_a_mistake_of_usage(choose, wanted):
    """A misspelt device is named as one before torch is imported."""
    with pytest.raises(UsageError, match="no such device") as caught:
        choose(wanted, None)

    assert int(caught.value.exit_code) == 2


# -- the timer


def test_the_wall_timer_is_for_the_host_or_asked_for():
    """On the CPU it is the timer by itself; on a GPU only when asked for, synchronised."""
    assert worker.make_timer(RunConfig(device="cpu"), None).info.reason.startswith("no GPU")
    assert worker.make_timer(RunConfig(device="cpu", timer="wall"), None).info.reason == "asked for"
    torch = fake_torch(gpus=1)
    calls = []
    torch.cuda.synchronize = lambda: calls.append("sync")

    timer = worker.make_timer(RunConfig(device="cuda:0", timer="wall"), torch)
    timer.synchronize()

    assert timer.info.name == "wall"
    assert "synchronised" in timer.info.reason
    assert calls == ["sync"]


def test_events_without_a_gpu_are_refused():
    """A timer that was asked for is never silently replaced by another."""
    with pytest.raises(TimerError, match="--timer torch needs a GPU, and this is cpu"):
        worker.make_timer(RunConfig(device="cpu", timer="torch"), None)


# -- the whole life


def work(path, prepared=None, clock=None, **config):
    """Run the worker to its end in a thread of its own; the records."""
    records = []
    config = RunConfig(**({"iters": 3, "warmup_max_s": 0.0, "inner": 1} | config))
    request = WorkRequest(path=str(path), device="cpu", config=config)
    gate = Gate()
    thread = threading.Thread(
        target=worker.work,
        args=(request, records.append, deque(), threading.Event(), gate, clock, prepared),
        daemon=True,
    )
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not gate.is_manned
    return records


def test_a_file_is_imported_and_timed_in_one_thread(tmp_path):
    """Import, set-up and every timed call happen in the worker's own thread."""
    path = tmp_path / "file.py"
    path.write_text(
        "import threading\n"
        "from usv_tui import benchmark\n"
        "seen = {threading.get_ident()}\n"
        "@benchmark\n"
        "def f():\n"
        "    seen.add(threading.get_ident())\n"
        "    return lambda: seen.add(threading.get_ident())\n"
        "import sys\n"
        "sys.modules['usv_tui_test_threads'] = sys.modules[__name__]\n"
    )

    records = work(path)

    seen = sys.modules.pop("usv_tui_test_threads").seen
    assert len(seen) == 1
    assert threading.get_ident() not in seen
    assert sum(len(r.bench) for r in records if isinstance(r, Samples)) == 3


def test_a_run_tells_its_device_and_ends_with_its_reason(tmp_path):
    """Device, timer and rows come before the samples; the last word is why it ended."""
    path = tmp_path / "file.py"
    path.write_text("BENCHMARKS = {'f': lambda: None}\n")

    records = work(path)

    kinds = [type(record) for record in records]
    assert kinds[0] is Chosen
    assert kinds.index(Timing) < kinds.index(Bench) < kinds.index(Samples)
    assert (records[-1].phase, records[-1].detail) == ("ended", "3 samples a row")


def test_a_users_mistake_is_a_fault_with_its_exit_code(tmp_path):
    """A file that cannot be used ends the worker with one line and no traceback."""
    records = work(tmp_path / "missing.py")

    [fault] = [r for r in records if isinstance(r, Fault)]
    assert fault.exit_code == 2
    assert "missing.py" in fault.message
    assert fault.traceback == ""
    assert records[-1].phase == "ended"


def test_a_mistake_of_ours_is_a_fault_with_a_traceback(tmp_path, monkeypatch):
    """Anything else that goes wrong is said on one line, with a traceback to be reported."""
    path = tmp_path / "file.py"
    path.write_text("BENCHMARKS = {'f': lambda: None}\n")

    def broken(*_):
        raise ArithmeticError("ours\nand more")

    monkeypatch.setattr(worker, "make_timer", broken)

    records = work(path)

    [fault] = [r for r in records if isinstance(r, Fault)]
    assert fault.exit_code == 4
    assert fault.message == "internal error: ArithmeticError: ours and more"
    assert "Traceback" in fault.traceback
    assert records[-1].phase == "ended"


def test_a_stop_is_heard_by_a_running_worker(tmp_path):
    """A command that waits when the loop begins is taken by it."""
    path = tmp_path / "file.py"
    path.write_text("BENCHMARKS = {'f': lambda: None}\n")
    records = []
    request = WorkRequest(path=str(path), device="cpu", config=RunConfig())

    worker.work(
        request, records.append, deque([Command("stop", "quit")]), threading.Event(), Gate()
    )

    assert (records[-1].phase, records[-1].detail) == ("ended", "quit")


def test_the_library_that_a_file_imports_is_a_phase_of_its_own(tmp_path, monkeypatch):
    """So that its time is not the file's; afterwards the finders are as they were."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from . import part\n")
    (tmp_path / "torch" / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    finders = list(sys.meta_path)
    told = []

    with worker._told_apart("file.py", told.append, CLOCK):
        module = importlib.import_module("torch")
        assert module.part
    for name in ("torch", "torch.part"):
        del sys.modules[name]

    assert [(p.phase, p.detail) for p in told] == [
        ("importing", "torch"),
        ("importing", "file.py"),
    ]
    with worker._told_apart("file.py", told.append, CLOCK):
        pass
    assert sys.meta_path == finders


def test_a_module_from_the_other_versions_folder_is_an_error(monkeypatch, tmp_path):
    """Then it is no other version that is measured; what is installed there is nobody's version."""
    for name, file in (
        ("helper", "helper.py"),
        ("kernels", "sub/kernels.py"),
        ("tool", "site-packages/tool.py"),
    ):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / file)
        monkeypatch.setitem(sys.modules, name, module)
    told = []

    worker._tell_foreign("", told.append, CLOCK)
    worker._tell_foreign(str(tmp_path / "elsewhere"), told.append, CLOCK)
    assert told == []

    worker._tell_foreign(str(tmp_path), told.append, CLOCK)
    [notice] = [record.notice for record in told]
    assert (notice.code, notice.level) == ("foreign code", "error")
    assert notice.evidence["modules"] == ["helper", "kernels"]
    assert "helper" in sentence(notice)
