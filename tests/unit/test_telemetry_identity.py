"""From torch's ordinal to the telemetry of that GPU, with torch played by plain objects."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.fakes.amd_card import FakeCard
from tests.fakes.nvml_fake import A10, H100, FakeNvml, forget_library
from usv_tui.errors import TelemetryOff
from usv_tui.telemetry import identity as identity_module
from usv_tui.telemetry.host import HostTelemetry
from usv_tui.telemetry.identity import (
    device_facts,
    driver_pci,
    find_telemetry,
    identity_from,
    properties_facts,
)
from usv_tui.timesource import ManualTime

H100_GIB, A10_GIB = 85520809984, 24146608128
BOARDS = [
    SimpleNamespace(name="NVIDIA H100 PCIe", uuid=H100[4:], total_memory=85_000_000_000),
    SimpleNamespace(name="NVIDIA A10", uuid=A10[4:], total_memory=23_700_000_000),
]
FASTEST_FIRST = [1, 0]
"""A CUDA order that is not NVML's: what torch shows when no order is asked for."""


@pytest.fixture
def fake():
    """The fake NVML with two different GPUs."""
    yield FakeNvml()
    forget_library()


def visible(value):
    """The boards that the CUDA driver shows for a CUDA_VISIBLE_DEVICES, in its order."""
    order = [BOARDS[i] for i in FASTEST_FIRST]
    if value is None:
        return order
    found = []
    for word in value.split(","):
        if word.isdigit() and int(word) < len(order):
            board = order[int(word)]
        else:
            board = next((b for b in order if word and f"GPU-{b.uuid}".startswith(word)), None)
        if board is None or board in found:
            return [] if board in found else found
        found.append(board)
    return found


@pytest.mark.parametrize(
    "value",
    [None, "1", "1,0", "0", A10, f"{H100},{A10}", "MIG-11111111-x", "7", "", "0,0", "0,junk"],
)
def test_every_visible_device_gets_its_own_telemetry_or_none(fake, value):
    """Whatever CUDA_VISIBLE_DEVICES says and in whatever order: never another GPU."""
    for ordinal, board in enumerate(visible(value)):
        facts = properties_facts(board, ordinal=ordinal, vendor="nvidia")
        source, how = find_telemetry(f"cuda:{ordinal}", facts, library_path=fake.path)

        info = source.open()
        assert info.uuid == f"GPU-{board.uuid}"
        assert (how, info.found_by) == ("NVML", "UUID")
        source.close()


def test_a_device_that_nvml_does_not_have_gets_none(fake):
    """A UUID of a GPU that is not mounted into this container: refused."""
    board = SimpleNamespace(name="NVIDIA H100 PCIe", uuid="99999999-0000-0000-0000-000000000000")
    source, _ = find_telemetry(
        "cuda:0", properties_facts(board, ordinal=0, vendor="nvidia"), library_path=fake.path
    )
    with pytest.raises(TelemetryOff, match="cannot tell which GPU is device 0"):
        source.open()


def test_an_older_torch_without_uuids_is_matched_by_pci(fake):
    """Bus numbers stand in for the UUID."""
    board = SimpleNamespace(name="NVIDIA A10", pci_domain_id=0, pci_bus_id=0x65, pci_device_id=0)
    facts = properties_facts(board, ordinal=0, vendor="nvidia")
    source, _ = find_telemetry("cuda:0", facts, library_path=fake.path)
    info = source.open()

    assert (info.uuid, info.found_by) == (A10, "PCI address")


def test_a_uuid_that_leads_nowhere_is_not_what_it_was_found_by(fake):
    """The address found it, and that is what is said."""
    board = SimpleNamespace(
        name="NVIDIA A10", uuid="00000000-1111-2222-3333-444444444444", pci_domain_id=0,
        pci_bus_id=0x65, pci_device_id=0,
    )  # fmt: skip
    facts = properties_facts(board, ordinal=0, vendor="nvidia")
    source, _ = find_telemetry("cuda:0", facts, library_path=fake.path)

    assert source.open().found_by == "PCI address"


def test_a_torch_that_tells_nothing_is_refused_where_there_are_two(fake):
    """Neither UUID nor address and two GPUs: none, rather than the first."""
    facts = properties_facts(SimpleNamespace(name="NVIDIA A10"), ordinal=0, vendor="nvidia")
    source, _ = find_telemetry("cuda:0", facts, library_path=fake.path)

    with pytest.raises(TelemetryOff, match="cannot tell which GPU is measured"):
        source.open()


@pytest.mark.parametrize(
    ("facts", "uuid", "pci"),
    [
        ({"uuid": "abc"}, "abc", None),
        ({"uuid": "00000000-0000-0000-0000-000000000000"}, None, None),
        ({"pci_bus_id": 0, "pci_device_id": 0}, None, None),
        ({"pci_bus_id": 3, "pci_device_id": 1, "pci_domain_id": 16}, None, "0010:03:01.0"),
        ({"pci": "0000:0C:00.0"}, None, "0000:0c:00.0"),
        (
            {"vendor": "amd", "uuid": "66656463-6261-3938-3736-353433323130"},
            "fedcba9876543210",
            None,
        ),
        ({"vendor": "amd", "uuid": "GPU-fedcba9876543210"}, "GPU-fedcba9876543210", None),
    ],
)
def test_what_a_framework_tells_becomes_an_identity(facts, uuid, pci):
    """Zeros mean unknown; HIP's text of a UUID becomes AMD's unique number."""
    identity = identity_from(facts)

    assert (identity.uuid, identity.pci) == (uuid, pci)
    assert identity.is_only == (uuid is None and pci is None)


def test_a_rocm_device_is_watched_through_sysfs(tmp_path):
    """An AMD device by the UUID that torch shows, in a tree with two cards."""
    FakeCard(tmp_path, 0, "0000:03:00.0")
    FakeCard(tmp_path, 1, "0000:83:00.0")
    board = SimpleNamespace(name="AMD Instinct MI210", uuid="66656463-6261-3938-3736-353433323131")
    facts = properties_facts(board, ordinal=0, vendor="amd")
    source, _ = find_telemetry("cuda:0", facts, sys_root=tmp_path, time_source=ManualTime())
    info = source.open()

    assert (info.pci, info.found_by) == ("0000:83:00.0", "UUID")


def test_the_cpu_is_watched_on_the_host():
    """Device cpu: host telemetry, and the reason says so."""
    source, how = find_telemetry("cpu")

    assert isinstance(source, HostTelemetry)
    assert how == "the measured device is the CPU"


def test_an_unknown_device_has_no_telemetry():
    """Something that is neither: opening tells why."""
    source, _ = find_telemetry("tpu:0")
    with pytest.raises(TelemetryOff, match="no telemetry for device 'tpu:0'"):
        source.open()


class FakeTorch:
    """As much of torch as identity needs."""

    def __init__(self, properties, hip=None):
        self.version = SimpleNamespace(hip=hip)
        self.cuda = SimpleNamespace(get_device_properties=lambda ordinal: properties)


def test_torch_is_asked_when_no_facts_are_given(monkeypatch, fake):
    """Without facts torch's properties are read here."""
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(BOARDS[0]))
    source, _ = find_telemetry("cuda", library_path=fake.path)
    assert source.open().uuid == H100


def test_a_torch_that_fails_is_a_reason(monkeypatch):
    """An import error or a driver error of torch's ends in no telemetry, with its first line."""

    def broken(name):
        raise KeyError("libamd_smi.so")

    monkeypatch.setattr(identity_module.importlib, "import_module", broken)
    source, why = find_telemetry("cuda:0")

    assert why == "torch does not tell which GPU cuda:0 is: 'libamd_smi.so'"
    with pytest.raises(TelemetryOff, match="libamd_smi"):
        source.open()


def test_the_driver_is_asked_for_the_address_where_torch_has_none(tmp_path, monkeypatch):
    """Old torch: cuDeviceGetPCIBusId honours what is visible and its order."""
    source = tmp_path / "cuda.c"
    source.write_text(
        "#include <stdio.h>\n"
        "int cuInit(unsigned f) { return 0; }\n"
        "int cuDeviceGet(int *d, int i) { *d = i + 40; return i > 1 ? 101 : 0; }\n"
        'int cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02X:00.0", d);'
        " return 0; }\n"
    )
    library = tmp_path / "libcuda.so.1"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")

    assert driver_pci("nvidia", 1, str(library)) == "0000:29:00.0"
    assert driver_pci("nvidia", 5, str(library)) is None
    assert driver_pci("nvidia", 0, str(tmp_path / "absent.so")) is None
    monkeypatch.setitem(
        identity_module._DRIVERS, "nvidia", (str(library), *identity_module._DRIVERS["nvidia"][1:])
    )
    facts = device_facts(0, FakeTorch(SimpleNamespace(name="old")))
    assert facts["pci"] == "0000:28:00.0"
