"""The doctor over fakes: what it finds, what it says of what is missing, that it always ends."""

import functools
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.amd_card import FakeCard
from tests.fakes.fake_accelerator import accelerator
from tests.fakes.nvml_fake import A10, H100, FakeNvml, forget_library
from usv_tui.cli import machine as doctor
from usv_tui.cli.machine import diagnose
from usv_tui.cli.machine_report import Check, Status, to_json, to_text
from usv_tui.clocks import inventory
from usv_tui.errors import ClockRefused, ExitCode, TelemetryOff
from usv_tui.model import ClockHold, ClockState
from usv_tui.telemetry.identity import find_telemetry
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import Access

BOARDS = [
    SimpleNamespace(name="NVIDIA A10", uuid=A10[4:], total_memory=23_700_000_000),
    SimpleNamespace(name="NVIDIA H100 PCIe", uuid=H100[4:], total_memory=85_000_000_000),
]


class FakeTorch:
    """As much of torch as the doctor asks for."""

    __version__ = "2.13.0+cu128"

    def __init__(self, boards=BOARDS, cuda="12.8", hip=None):
        self.version = SimpleNamespace(cuda=cuda, hip=hip)
        self.cuda = SimpleNamespace(
            is_available=lambda: bool(boards),
            device_count=lambda: len(boards),
            get_device_properties=lambda index: boards[index],
        )


class FakeClocks:
    """Clock control whose state is given."""

    def __init__(self, **state):
        self._state = ClockState(**state)

    def state(self):
        """What was given."""
        return self._state


@pytest.fixture
def fake(monkeypatch):
    """The fake NVML with two GPUs; the doctor's own NVML check uses it too."""
    fake = FakeNvml()
    monkeypatch.setattr(doctor, "list_devices", lambda _: [])
    yield fake
    forget_library()


@pytest.fixture(autouse=True)
def lease_home(monkeypatch, tmp_path):
    """No look at this machine's own journals of locks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))


def examine(fake, tmp_path, device="auto", torch=None, **options):
    """Diagnose over the fakes, in virtual time."""
    options.setdefault("controller", lambda info: FakeClocks(can_lock=True))
    options.setdefault(
        "find", functools.partial(find_telemetry, library_path=fake.path if fake else None)
    )
    if fake:
        options.setdefault("access", Access(nvml_library=str(fake.path)))
    return diagnose(
        device,
        torch_loader=lambda: torch or FakeTorch(),
        time_source=ManualTime(),
        state_dir=tmp_path,
        **options,
    )


def check(report, title, name):
    """One check of a report."""
    section = next(s for s in report.sections if s.title == title)
    return next(c for c in section.checks if c.name == name)


def test_every_torch_device_is_mapped_and_all_its_sensors_are_shown(fake, tmp_path):
    """Two GPUs in another order than NVML's: each with its own UUID, values and sources."""
    report = examine(fake, tmp_path)

    assert report.exit_code is ExitCode.OK
    assert check(report, "torch", "torch").value == "2.13.0+cu128 (CUDA 12.8)"
    assert check(report, "telemetry of cuda:0", "mapping").facts["uuid"] == A10
    assert check(report, "telemetry of cuda:1", "mapping").facts["uuid"] == H100
    power = check(report, "telemetry of cuda:1", "power_mw")
    assert (power.status, power.value) == (Status.OK, "305123 mW")
    assert "nvml field 186" in power.why
    assert "12 µs a call" in power.why
    fan = check(report, "telemetry of cuda:1", "fan_pct")
    assert (fan.status, fan.value) == (Status.MISSING, "")
    assert "not supported" in fan.why
    assert check(report, "telemetry of cuda:0", "throttle_ns.power").value == "0 ns"


def test_refresh_periods_are_measured(fake, tmp_path):
    """The fake's sensors move every 100 ms of its own clock: the doctor says so."""
    fake("clock_us=1700000000000000,step_us=20000")
    power = check(examine(fake, tmp_path, "cuda:0"), "telemetry of cuda:0", "power_mw")

    assert power.facts["refresh_ns"] == pytest.approx(100_000_000, rel=0.2)
    assert "new every 100 ms" in power.why


def test_one_device_can_be_asked_for(fake, tmp_path):
    """Only the device that a run would measure is looked at."""
    titles = [s.title for s in examine(fake, tmp_path, "cuda:1").sections]

    assert "telemetry of cuda:1" in titles
    assert "telemetry of cuda:0" not in titles


def test_rights_and_the_command_to_type_are_told(fake, tmp_path):
    """Without root: the exact command; with a suspicious clock: the evidence."""
    state = {
        "hold": ClockHold.FOREIGN,
        "evidence": "idle at 900 MHz, lowest 210 MHz",
        "reason": "needs root (CAP_SYS_ADMIN)",
        "supported_mhz": [210, 900, 1695],
    }
    report = examine(fake, tmp_path, "cuda:0", controller=lambda info: FakeClocks(**state))
    lock = check(report, "clock control of cuda:0", "lock")
    held = check(report, "clock control of cuda:0", "held now")

    assert lock.status is Status.NOTE
    assert lock.mend.startswith("sudo nvidia-smi -i GPU-aaaaaaaa")
    assert held.status is Status.NOTE
    assert held.why == "idle at 900 MHz, lowest 210 MHz"
    assert report.exit_code is ExitCode.OK


def test_a_device_without_clock_control_says_why(fake, tmp_path):
    """The controller's refusal is the reason."""

    def refuse(info):
        raise ClockRefused("no clocks here", "buy another")

    lock = check(
        examine(fake, tmp_path, "cuda:0", controller=refuse), "clock control of cuda:0", "lock"
    )
    assert (lock.status, lock.why, lock.mend) == (Status.MISSING, "no clocks here", "buy another")


def test_every_card_is_shown_also_to_a_torch_that_sees_none(fake, tmp_path, monkeypatch):
    """Two NVIDIA cards and an AMD one beside a CPU-only torch: sensors, ranges, limits, rights."""
    monkeypatch.setattr(doctor, "list_devices", inventory.list_devices)
    FakeCard(tmp_path / "sys")
    access = Access(sysfs=str(tmp_path / "sys"), nvml_library=str(fake.path))
    report = examine(fake, tmp_path, torch=FakeTorch(boards=(), cuda=None), access=access)

    title = "telemetry of NVIDIA H100 PCIe (0000:17:00.0)"
    assert check(report, title, "mapping").facts["uuid"] == H100
    assert check(report, title, "sm_mhz").value == "1410 MHz"
    clocks = check(report, title, "core clocks").value
    assert clocks == "210 to 1755 MHz in 104 steps, maximum 1755 MHz"
    assert check(report, title, "power limit").value == "350 W"
    assert "slowdown 92 °C" in check(report, title, "temperature limits").value
    assert check(report, title, "sm_mhz_min").why == "NVML tells one clock for the whole GPU"
    assert check(report, title.replace("telemetry", "clock control"), "lock").value == "rights"
    amd = "telemetry of AMD Instinct MI210 (0000:03:00.0)"
    assert check(report, amd, "sm_mhz").value == "1700 MHz"
    assert check(report, amd, "core clocks").value == "500 to 1700 MHz in 3 steps, maximum 1700 MHz"
    assert "telemetry of NVIDIA A10 (0000:65:00.0)" in [s.title for s in report.sections]
    assert "telemetry of cpu" in [s.title for s in report.sections]
    whys = [c.why for s in report.sections if "cpu" not in s.title for c in s.checks]
    assert "not read yet" not in whys


def test_a_gpu_that_is_asked_for_and_torch_has_not_is_shown_by_its_driver(
    fake, tmp_path, monkeypatch
):
    """Whoever wonders why there is no cuda here sees that the card is."""
    monkeypatch.setattr(doctor, "list_devices", inventory.list_devices)
    report = examine(fake, tmp_path, "cuda", torch=FakeTorch(boards=(), cuda=None))

    assert "telemetry of NVIDIA A10 (0000:65:00.0)" in [s.title for s in report.sections]
    assert check(report, "torch", "GPU").status is Status.FAIL


def test_a_card_that_torch_has_is_shown_once(fake, tmp_path, monkeypatch):
    """By its torch name; the other one by its own."""
    monkeypatch.setattr(doctor, "list_devices", inventory.list_devices)
    report = examine(fake, tmp_path, torch=FakeTorch(boards=BOARDS[:1]))
    titles = [s.title for s in report.sections if s.title.startswith("telemetry")]

    assert titles == ["telemetry of cuda:0", "telemetry of NVIDIA H100 PCIe (0000:17:00.0)"]


def test_a_cpu_only_machine_can_do_the_main_job(tmp_path):
    """No GPU: exit 0, the CPU is looked at, and the reason is told."""
    report = examine(None, tmp_path, torch=FakeTorch([], cuda=None), find=find_telemetry)

    assert report.exit_code is ExitCode.OK
    assert check(report, "torch", "GPU").status is Status.MISSING
    assert any(s.title == "telemetry of cpu" for s in report.sections)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_was_asked_for_and_is_not_there_fails(tmp_path, device):
    """With --device cuda and no GPU the main job cannot run: exit 3, and what to do."""
    report = examine(None, tmp_path, device, torch=FakeTorch([], cuda=None), find=find_telemetry)

    assert report.exit_code is ExitCode.NO_DEVICE
    assert check(report, "torch", "GPU").mend


def test_an_ordinal_that_is_too_high_fails_and_names_what_there_is(fake, tmp_path):
    """cuda:7 of two: exit 3."""
    report = examine(fake, tmp_path, "cuda:7")

    assert report.exit_code is ExitCode.NO_DEVICE
    assert check(report, "torch", "cuda:7").mend == "there is cuda:0, cuda:1"


def test_a_torch_that_cannot_be_imported_fails_with_its_own_words(tmp_path):
    """Whatever the import raises is one line."""

    def broken():
        raise KeyError("libamd_smi.so\nmore")

    report = diagnose(torch_loader=broken, time_source=ManualTime(), state_dir=tmp_path)

    assert report.exit_code is ExitCode.NO_DEVICE
    assert check(report, "torch", "torch").why == "KeyError: 'libamd_smi.so\\nmore'"


def test_a_gpu_without_telemetry_is_a_note_and_the_job_can_run(fake, tmp_path):
    """The driver was updated under our feet: no telemetry, the cure, exit 0."""
    fake("nvmlInitWithFlags=18")
    report = examine(fake, tmp_path, "cuda:0")
    mapping = check(report, "telemetry of cuda:0", "mapping")

    assert report.exit_code is ExitCode.OK
    assert mapping.status is Status.NOTE
    assert mapping.value == "none: NVIDIA driver and NVML library do not match"
    assert mapping.mend == "the driver was updated: reboot, or reload it"


def test_a_question_that_hangs_does_not_keep_the_report(fake, tmp_path):
    """A library that never answers: that check says so, the others are made."""
    hang = threading.Event()

    class Hanging:
        """A source whose opening never comes back."""

        def open(self):
            """Hang."""
            hang.wait(30)

        def close(self):
            """Hang as well."""
            hang.wait(30)

    report = examine(
        fake, tmp_path, "cuda:0", find=lambda *_, **__: (Hanging(), "by UUID"), answer_s=0.2
    )
    hang.set()
    mapping = check(report, "telemetry of cuda:0", "mapping")

    assert mapping.value == "none: no answer within 0.2 s"
    assert check(report, "state", "sessions").status is Status.OK


def test_an_error_of_any_kind_in_the_telemetry_is_a_reason(fake, tmp_path):
    """SystemExit, KeyError, our own: none ends the doctor."""
    for error, value in (
        (SystemExit(3), "none: SystemExit: 3"),
        (TelemetryOff("gone", "come back"), "none: gone"),
    ):

        class Broken:
            """A source that cannot be opened."""

            def open(self, error=error):
                """Fail."""
                raise error

            def close(self):
                """Nothing to do."""

        source = Broken()
        report = examine(
            fake, tmp_path, "cuda:0", find=lambda *_, source=source, **__: (source, "how")
        )
        assert check(report, "telemetry of cuda:0", "mapping").value == value


def test_a_state_directory_that_cannot_be_written_is_a_note(fake, monkeypatch):
    """Runs go on without being kept: told, with the cure, and no failure."""
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    report = examine(fake, Path("/nowhere/at/all"), "cuda:0")
    sessions = check(report, "state", "sessions")

    assert sessions.status is Status.NOTE
    assert sessions.mend == "set XDG_STATE_HOME, or use --save PATH"
    assert report.exit_code is ExitCode.OK


def test_locks_of_runs_that_died_are_named_with_the_cure(fake, tmp_path):
    """A journal that was left behind: which device, and `usv-tui clocks restore`."""
    folder = doctor.LeaseDirectory.open(create=True).path
    (folder / f"{H100}.json").write_text("{}")
    left = check(examine(fake, tmp_path, "cuda:0"), "state", "locks left behind")

    assert (left.status, left.value) == (Status.NOTE, H100)
    assert left.mend == "usv-tui clocks restore"


def test_the_terminal_is_the_callers_to_describe(fake, tmp_path):
    """Checks that are passed in stand in a section of their own."""
    given = [Check(name="colours", status=Status.OK, value="256")]
    report = examine(fake, tmp_path, "cuda:0", terminal=given)

    assert check(report, "terminal", "colours").value == "256"


def test_the_text_has_a_line_a_check_and_a_verdict(fake, tmp_path):
    """Status, name, value, why in brackets, the cure below; the last line is the verdict."""
    text = to_text(examine(fake, tmp_path, "cuda:0"))
    lines = text.splitlines()

    assert lines[0] == "torch"
    assert lines[1].split() == ["ok", "torch", "2.13.0+cu128", "(CUDA", "12.8)"]
    assert next(line for line in lines if " fan_pct " in line).split()[:4] == [
        "ok", "fan_pct", "31", "%",
    ]  # fmt: skip
    assert lines[-1] == "the main job can run here"


def test_the_json_says_the_same_as_the_text(fake, tmp_path):
    """Every check of the report, its facts, and the exit code."""
    report = examine(fake, tmp_path, "cuda:0")
    data = json.loads(to_json(report))

    assert (data["ok"], data["exit_code"]) == (True, 0)
    assert [s["title"] for s in data["sections"]] == [s.title for s in report.sections]
    sensors = next(s for s in data["sections"] if s["title"] == "telemetry of cuda:0")
    power = next(c for c in sensors["checks"] if c["name"] == "power_mw")
    assert power["facts"]["value"] == 61000
    assert power["facts"]["source"] == "nvml field 186"


def test_the_real_machine_gets_a_report():
    """Whatever this machine has, without asking torch: sections, text and JSON come."""
    report = diagnose(torch_loader=lambda: FakeTorch([], cuda=None), time_source=ManualTime())

    assert to_text(report)
    assert json.loads(to_json(report))["sections"]


def test_an_accelerator_of_another_kind_is_shown_with_what_times_it(tmp_path):
    """Its name, its clock, that no telemetry is known of it, and whether anybody has tried it."""
    with accelerator(kind="mps", has_stream_query=False) as torch:
        report = examine(None, tmp_path, "mps", torch=torch, find=find_telemetry)
    found = check(report, "torch", "mps:0")
    assert report.exit_code == 0
    assert found.value == "Fake accelerator"
    assert "host times of a callback" in found.why
    assert "never run on a real one" in found.mend
    assert "no telemetry" in check(report, "telemetry of mps:0", "mapping").why


def test_an_accelerator_from_outside_of_torch_is_nothing_to_be_noted(tmp_path):
    """It is measured like any other, by its name or by its kind."""
    with accelerator() as torch:
        for device in ("auto", "fakeacc", "fakeacc:0"):
            report = examine(None, tmp_path, device, torch=torch, find=find_telemetry)
            assert check(report, "torch", "fakeacc:0").status is Status.OK
        missing = examine(None, tmp_path, "xpu", torch=torch, find=find_telemetry)
    assert check(missing, "torch", "xpu").mend == "there is fakeacc:0"
    assert missing.exit_code == 3
