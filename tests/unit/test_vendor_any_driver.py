"""Whatever a driver lacks or answers: no traceback, a reason, and everything else goes on."""

import functools
import io
import re
from collections import deque

import pytest

from tests.fakes.clocks import FakeBoard, nvml_library
from tests.fakes.nvml_fake import H100, SOURCE, FakeNvml, forget_library
from usv_tui.cli import machine as doctor
from usv_tui.cli.clocks import main
from usv_tui.cli.machine_report import Check, Status, to_text
from usv_tui.clocks.controllers import controller_for
from usv_tui.clocks.inventory import list_devices
from usv_tui.errors import ClockRefused, ExitCode, UsvError
from usv_tui.model import DeviceInfo, Notice
from usv_tui.records import Noted, Telemetry
from usv_tui.seams import Identity, Tier
from usv_tui.session.desk import ClockDesk
from usv_tui.telemetry.nvidia import NvmlTelemetry
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import Access
from usv_tui.vendor.nvml import nvml_code

pynvml = pytest.importorskip("pynvml")
S = 1_000_000_000
CALLS = sorted(
    set(re.findall(r"^(?:int |GETTER\()(nvml[A-Z]\w+)", SOURCE.read_text(), re.MULTILINE))
)
CODES = [*range(1, 31), 999, 12345]


@pytest.fixture
def fake(monkeypatch):
    """Two healthy GPUs, neither idle: nothing waits for a second look."""
    monkeypatch.setattr(doctor, "_amdsmi", lambda _: Check(name="", status=Status.OK))
    library = FakeNvml()
    library("1.reasons=0")
    yield library
    forget_library()


def use_everything(fake, tmp_path) -> str:
    """Doctor, poller, inventory and clocks, as a user meets them; what was said, in all."""
    access = Access(sysfs=str(tmp_path), nvml_library=str(fake.path))
    time = ManualTime(start_ns=100 * S)
    records = deque()
    poller = Poller(NvmlTelemetry(H100, fake.path, time), records.append, time, learn_s=0)
    for _ in range(25):
        time.advance(S // 5)
        poller.tick()
    readings = [r.reading for r in records if isinstance(r, Telemetry)]
    notes = [r.notice.evidence.get("reason", "") for r in records if isinstance(r, Noted)]
    assert any(reading.sm_mhz or reading.temp_c for reading in readings) or any(notes)
    report = doctor.diagnose(
        "cuda:0",
        torch_loader=lambda: None,
        find=lambda *_, **__: (NvmlTelemetry(H100, fake.path, time), "by UUID"),
        controller=functools.partial(controller_for, access=access),
        time_source=time,
        access=access,
    )
    out = io.StringIO()
    for argv in ([], ["status", "--json"]):
        main(argv, out=out, access=access, path=tmp_path / "clocks")
    for info in list_devices(access):
        control = controller_for(info, access=access)
        try:
            control.lock(1410)
            control.undo(control.plan_undo())
        except UsvError as error:
            out.write(f"{error}\n")
        control.close()
    return to_text(report) + out.getvalue() + " ".join(map(str, notes)) + poller.state()


def check(text: str) -> None:
    """No traceback, no name of an exception, and no empty reason in what is said."""
    assert "Traceback" not in text
    assert "NVMLError" not in text
    assert "MismatchError" not in text
    assert "driver None" not in text


@pytest.mark.parametrize("absent", CALLS)
def test_any_symbol_may_be_missing(fake, tmp_path, monkeypatch, absent):
    """A driver that is older than the call loses what hangs on it, and no more."""
    real = pynvml._nvmlGetFunctionPointer

    def pointer(name):
        if name == absent:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return real(name)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pointer)
    check(use_everything(fake, tmp_path))


@pytest.mark.parametrize("call", CALLS)
def test_any_call_may_answer_with_any_code(fake, tmp_path, call):
    """Every function in turn answers with every code that there is, and with one there is not."""
    codes = CODES if call in ("nvmlInit_v2", "nvmlInitWithFlags") else [*CODES[::5], 12345]
    for code in codes:
        fake("reset,1.reasons=0")
        fake(f"{call}={code}")
        check(use_everything(fake, tmp_path))


@pytest.mark.parametrize("error", [ValueError("boom"), AttributeError("no"), OSError(5, "io")])
def test_a_binding_may_raise_anything(fake, tmp_path, monkeypatch, error):
    """A foreign or broken `pynvml` is one reason more."""
    for name in ("nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"):
        with monkeypatch.context() as broken:
            broken.setattr(pynvml, name, lambda *_, error=error: (_ for _ in ()).throw(error))
            check(use_everything(fake, tmp_path))


def test_the_code_behind_anything_that_a_binding_raises():
    """Absent functions come in three forms."""
    assert nvml_code(pynvml.NVMLError(4)) == 4
    assert nvml_code(pynvml.NVMLLibraryMismatchError("old")) == 13
    assert nvml_code(AttributeError("absent")) == 13
    assert nvml_code(ValueError("what")) == 999


def test_processes_are_read_through_the_older_call_of_an_older_driver(tmp_path, monkeypatch):
    """Drivers before 510 know `_v2` only."""
    fake = FakeNvml("nvmlDeviceGetComputeRunningProcesses_v3")
    fake("0.pids=2,0.pid=7,0.pidmem=1000")
    monkeypatch.setattr("usv_tui.vendor.processes.in_container", lambda: False)
    source = NvmlTelemetry(Identity("nvidia", 0, uuid=H100), fake.path)
    source.open()
    source.read(Tier.ALL)
    reading = source.read(Tier.ALL)
    source.close()
    forget_library()

    assert reading.others == [7, 8]


# --- wishes


def test_a_wish_that_ends_in_an_unforeseen_error_is_told(monkeypatch):
    """`--lock` is never dropped without a word."""

    class Odd:
        uuid, kind = "GPU-1", "nvidia"

        def state(self):
            raise RuntimeError("what a surprise")

    desk = ClockDesk(lambda _: Odd(), wanted="1410")
    desk.on_device(DeviceInfo(uuid="GPU-1", name="Odd", kind="nvidia"))
    desk._job.join(5)
    records, _ = desk.drain()

    (notice,) = [r.notice for r in records if isinstance(r, Noted)]
    assert notice.level == "error"
    assert "RuntimeError: what a surprise" in notice.evidence["reason"]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_wish_without_a_device_is_refused_in_words(is_told):
    """No telemetry, no device: `--lock` says so, at once or at the end."""
    desk = ClockDesk(lambda _: None, wanted="1410")
    if is_told:
        reason = {"reason": "NVML library not found"}
        desk.on_notice(Notice(code="telemetry off", at_ns=0, evidence=reason))
    desk.close()
    records, _ = desk.drain()

    (notice,) = [r.notice for r in records if isinstance(r, Noted)]
    assert notice.code == "lock refused"
    assert "no device to lock" in notice.evidence["reason"]


# --- reasons and exit codes


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A board whose locks can be made to fail."""
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    return FakeBoard(tmp_path / "board")


@pytest.mark.parametrize("code", [1, 2, 3, 4, 13, 15, 16, 17, 19, 24, 27, 999, 12345])
def test_only_a_lack_of_rights_is_answered_with_a_command_for_root(tmp_path, board, code):
    """What sudo cannot mend is not answered with sudo, and a refusal has its own exit code."""
    board.script(nvmlDeviceSetGpuLockedClocks=code)
    access = Access(sysfs=str(tmp_path), nvml_library=str(nvml_library()))
    with pytest.raises(ClockRefused) as caught:
        main(["lock", "1410"], out=io.StringIO(), access=access, path=tmp_path / "state")
    text = str(caught.value)

    assert ("sudo" in text) is (code in (4, 17))
    assert ("root" in text) is (code in (4, 17))
    assert caught.value.exit_code is ExitCode.CLOCKS_REFUSED
    assert board.is_free


@pytest.mark.parametrize("code", [0, 3, 4, 13])
def test_unlock_where_nothing_was_locked_is_no_failure(tmp_path, board, code):
    """It says that there was nothing, whether or not the driver takes a reset."""
    board.script(nvmlDeviceResetGpuLockedClocks=code)
    access = Access(sysfs=str(tmp_path), nvml_library=str(nvml_library()))
    out = io.StringIO()

    assert main(["unlock"], out=out, access=access, path=tmp_path / "state") is ExitCode.OK
    assert "nothing of ours was locked" in out.getvalue()
