"""Clock control of AMD cards, over a sysfs tree with the kernel's rules."""

import errno
from pathlib import Path

import pytest

from tests.fakes.clocks import AMD, PCI, FakeCard
from usv_tui.clocks.controllers import AmdClocks
from usv_tui.clocks.inventory import list_devices
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockUndo, DeviceInfo
from usv_tui.vendor.amdgpu import AmdCard
from usv_tui.vendor.kinds import Access

LEVEL = "power_dpm_force_performance_level"
TABLE = "pp_od_clk_voltage"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    """A free card with determinism."""
    fake = FakeCard(tmp_path / "sys")
    fake.install(monkeypatch)
    return fake


def control(card: FakeCard) -> AmdClocks:
    """A controller over the tree."""
    return AmdClocks(AMD, Access(sysfs=str(card.sysfs)))


def test_a_data_centre_card_is_capped_by_determinism_and_freed(card: FakeCard) -> None:
    """Level first, table after; back to auto with the old limits."""
    clocks = control(card)
    undo = clocks.plan_undo()

    clocks.lock(1700)

    assert (card.level, card.table) == ("perf_determinism", (500, 1700))
    assert clocks.method == "perf_determinism"
    clocks.undo(undo)
    assert (card.level, card.table) == ("auto", (500, 2100))


def test_a_card_without_determinism_is_capped_by_its_upper_limit(card: FakeCard) -> None:
    """Radeon refuses the level; manual with a limit is what is left."""
    card.has_determinism = False
    clocks = control(card)

    clocks.lock(1700)

    assert (card.level, card.table) == ("manual", (500, 1700))
    assert clocks.method == "clk_limit"


@pytest.mark.parametrize(
    ("level", "table"),
    [("manual", (500, 1400)), ("perf_determinism", (500, 1800)), ("high", (500, 2100))],
)
def test_the_previous_level_and_limits_come_back_not_auto(
    card: FakeCard, level: str, table: tuple[int, int]
) -> None:
    """Manual 1400 before means manual 1400 after."""
    card.set(level, table)
    clocks = control(card)
    undo = clocks.plan_undo()

    clocks.lock(1700)
    clocks.undo(undo)

    assert (card.level, card.table) == (level, table)


def test_a_table_refused_after_the_level_was_written_is_rolled_back(card: FakeCard) -> None:
    """A failed set needs an undo exactly like a successful one."""
    card.refuse = {"s 1 1700": errno.EROFS}

    with pytest.raises(ClockRefused, match="root and a writable /sys"):
        control(card).lock(1700)

    assert (card.level, card.table) == ("auto", (500, 2100))


def test_a_commit_refused_by_both_ways_leaves_the_card_as_it_was(card: FakeCard) -> None:
    """Determinism and limit are tried, each is rolled back, and both reasons are told."""
    card.set("manual", (600, 1400))
    card.refuse = {"s 1 1700": errno.EINVAL}

    with pytest.raises(ClockRefused) as caught:
        control(card).lock(1700)

    assert (card.level, card.table) == ("manual", (600, 1400))
    assert "perf_determinism" in str(caught.value)
    assert "clk_limit" in str(caught.value)


def test_a_roll_back_that_fails_is_loud(card: FakeCard) -> None:
    """Half a lock that stays is an error with the command, not a refusal."""
    card.refuse = {"s 1 1700": errno.EINVAL, "auto": errno.EIO}

    with pytest.raises(ClockError, match="could not be rolled back") as caught:
        control(card).lock(1700)

    assert not isinstance(caught.value, ClockRefused)
    assert "sudo amd-smi reset" in str(caught.value)


def test_a_limit_that_reads_back_differently_is_not_taken_for_a_lock(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that accepts and ignores is told from one that locks."""
    honest = card.write

    def forgetful(name: str, text: str) -> None:
        if text != "c":
            honest(name, text)

    monkeypatch.setattr(AmdCard, "write", lambda _card, name, text: forgetful(name, text))

    with pytest.raises(ClockRefused, match="the upper limit reads 2100 MHz"):
        control(card).lock(1700)


def test_a_card_without_limits_says_what_would_be_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overdrive is off by default on consumer cards."""
    card = FakeCard(tmp_path / "sys", has_table=False)
    card.install(monkeypatch)

    state = control(card).state()

    assert not state.can_lock
    assert "ppfeaturemask" in state.reason
    assert state.supported_mhz == []
    with pytest.raises(ClockRefused, match="ppfeaturemask"):
        control(card).lock(1700)


def test_a_read_only_sys_is_refused_before_anything_is_written(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container mounts /sys read-only: being root is not enough."""
    monkeypatch.setattr(AmdCard, "is_writable", lambda _card, _name: False)

    with pytest.raises(ClockRefused, match="root and a writable /sys"):
        control(card).lock(1700)

    assert card.writes == []
    assert control(card).state().reason == "needs root and a writable /sys"


def test_a_setting_of_somebody_else_is_seen_and_can_be_put_back(card: FakeCard) -> None:
    """The level is the one lock that can be read."""
    assert control(card).state().hold is ClockHold.FREE
    card.set("manual", (500, 1400))

    state = control(card).state()

    assert state.hold is ClockHold.FOREIGN
    assert state.level == "manual"
    assert state.evidence == "performance level manual, limits 500-1400 MHz"


def test_the_clocks_on_offer_are_a_grid_over_the_accepted_range(card: FakeCard) -> None:
    """AMD takes any MHz in the range."""
    steps = control(card).supported_mhz()

    assert (steps[0], steps[1], steps[-1]) == (500, 505, 2100)


def test_limits_are_also_read_from_a_table_that_lists_the_current_clock(card: FakeCard) -> None:
    """Older kernels put it between the limits, under another heading and without a range."""
    text = "GFXCLK:\n0: 500Mhz\n1: 1132Mhz *\n2: 1700Mhz\nMCLK:\n0: 400Mhz\n1: 1600Mhz\n"
    (card.folder / TABLE).write_text(text)
    files = AmdCard(PCI, str(card.sysfs))

    assert files.table() == (500, 1700)
    assert files.span() == (500, 2100)


def test_the_memory_clock_is_left_alone_and_that_is_said(card: FakeCard) -> None:
    """No silent half lock."""
    clocks = control(card)

    clocks.lock(1700, 1200)

    assert clocks.mem_refusal == "memory clock not locked: AMD devices keep theirs"


@pytest.mark.parametrize(
    "action",
    [
        ["level", "auto; reboot", "", ""],
        ["level", "../../x", "", ""],
        ["level", "manual", "500", "1e9"],
        ["level", "manual", "\u0661", "2"],
        ["write", "anything"],
        ["level"],
        [],
    ],
)
def test_an_undo_that_is_not_understood_is_not_carried_out(
    card: FakeCard, action: list[str]
) -> None:
    """What comes from a file is checked word by word."""
    undo = ClockUndo(uuid=AMD.uuid, kind="amd", pci=PCI, actions=[action])

    with pytest.raises(ClockError, match="not understood"):
        control(card).undo(undo)

    assert card.writes == []


def test_a_pci_address_cannot_leave_the_devices_folder(card: FakeCard) -> None:
    """A path in its place is refused."""
    undo = ClockUndo(uuid="x", kind="amd", pci="../../etc", actions=[["level", "auto", "", ""]])

    with pytest.raises(ClockError, match="not a PCI address"):
        control(card).undo(undo)


def test_the_command_for_a_previous_manual_level_puts_level_and_limits_back(
    card: FakeCard,
) -> None:
    """Somebody with rights can type exactly the undo that failed."""
    card.set("manual", (500, 1400))
    clocks = control(card)
    undo = clocks.plan_undo()
    clocks.lock(1700)
    card.refuse = {"manual": errno.EACCES}

    with pytest.raises(ClockError) as caught:
        clocks.undo(undo)

    folder = f"/sys/bus/pci/devices/{PCI}"
    assert f"echo manual | sudo tee {folder}/{LEVEL}" in str(caught.value)
    assert f"echo 's 0 500' | sudo tee {folder}/{TABLE}" in str(caught.value)
    assert f"echo 's 1 1400' | sudo tee {folder}/{TABLE}" in str(caught.value)


def test_processes_on_the_card_and_its_partitions_are_concerns(card: FakeCard) -> None:
    """From the kernel's compute driver, without any library."""
    kfd = card.sysfs / "class/kfd/kfd"
    node = kfd / "topology/nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text("simd_count 304\nlocation_id 768\ndomain 0\n")
    (node / "gpu_id").write_text("4711\n")
    process = kfd / "proc/1"
    process.mkdir(parents=True)
    (process / "vram_4711").write_text("1048576\n")
    (card.folder / "current_compute_partition").write_text("CPX\n")

    concerns = control(card).state().concerns

    assert concerns[1] == "partitions (CPX) of one device share its clock"
    assert concerns[0] == "other processes compute on it (pid 1)"


def test_amd_cards_are_listed_by_their_clock_files(card: FakeCard) -> None:
    """Without amdsmi; another vendor's card is not taken for one."""
    other = card.sysfs / "bus/pci/devices/0000:04:00.0"
    other.mkdir()
    (other / LEVEL).write_text("auto\n")
    (other / "vendor").write_text("0x8086\n")

    devices = [d for d in list_devices(Access(sysfs=str(card.sysfs))) if d.kind == "amd"]

    assert [(d.pci, d.uuid) for d in devices] == [(PCI, f"amd-{PCI}")]


def test_a_device_without_clock_files_has_a_reason(tmp_path: Path) -> None:
    """A wrong address or a vanished card."""
    gone = DeviceInfo(uuid="AMD-x", name="gone", kind="amd", pci="0000:09:00.0")
    clocks = AmdClocks(gone, Access(sysfs=str(tmp_path)))

    assert "No such file" in clocks.state().reason
    with pytest.raises(ClockRefused, match="cannot be read"):
        clocks.plan_undo()
    with pytest.raises(ClockRefused, match="No such file"):
        clocks.lock(1700)
