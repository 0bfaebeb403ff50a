"""The journal of locks on disk: who locked what, and how to undo it.

The directory is private to its user, and nothing in it is believed that another user could have
put there: owner, mode and links are checked on the open file. Every access goes through the
directory's descriptor, so that it cannot be exchanged underneath.
"""

import contextlib
import fcntl
import os
import stat
import threading
from enum import Enum
from pathlib import Path
from typing import Self

import msgspec
import platformdirs

from usv_tui.errors import ClockBusy, ClockError, ClockRefused
from usv_tui.model import ClockUndo, DeviceInfo
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource
from usv_tui.vendor.kinds import PCI_PATTERN, UUID_PATTERN
from usv_tui.vendor.restore import door

SYSTEM_STATE = Path("/var/lib/usv-tui")
MAX_BYTES = 64 * 1024
GUARDIAN_WAIT_S = 3.0
"""How long to wait for the guardian of a run that has just died."""
_POLL_NS = 50_000_000


def _needs_pci(kind: str) -> bool:
    found = door(kind)
    return found is not None and bool(found.Undoer.NEEDS_PCI)


class Owner(Enum):
    """Who is behind an entry."""

    LIVE = "live"
    DEAD = "dead"
    """Of this boot, and its process is gone."""
    OLD_BOOT = "old boot"
    """Of this machine before it was rebooted, which unlocked everything."""
    ELSEWHERE = "elsewhere"
    """Of another machine that shares the directory."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lock, written before it is set."""

    schema: int = 1
    uuid: str
    kind: str
    pci: str | None = None
    name: str = ""
    driver: str | None = None
    pid: int
    pid_start: int
    """Start time of the process in clock ticks since boot: a pid alone may be reused."""
    boot_id: str
    host: str
    requested_mhz: int
    mem_mhz: int | None = None
    keep: bool = False
    """Left locked on purpose after an orderly end."""
    undo: ClockUndo

    @classmethod
    def of_this_process(
        cls, info: DeviceInfo, undo: ClockUndo, sm_mhz: int, mem_mhz: int | None
    ) -> Self:
        """An entry for a lock that this process is about to set."""
        pid = os.getpid()
        return cls(
            uuid=info.uuid,
            kind=info.kind,
            pci=undo.pci,
            name=info.name,
            driver=info.driver,
            pid=pid,
            pid_start=process_start(pid) or 0,
            boot_id=boot_id(),
            host=os.uname().nodename,
            requested_mhz=sm_mhz,
            mem_mhz=mem_mhz,
            undo=undo,
        )


def process_start(pid: int) -> int | None:
    """Start time of a process in ticks since boot; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name, in parentheses, may hold anything.
    return int(text.rpartition(")")[2].split()[19])


def boot_id() -> str:
    """The kernel's name for this boot; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def owner_of(entry: Entry) -> Owner:
    """Who is behind an entry, from process, boot and machine."""
    if entry.boot_id != boot_id():
        return Owner.OLD_BOOT if entry.host == os.uname().nodename else Owner.ELSEWHERE
    start = process_start(entry.pid)
    return Owner.LIVE if start is not None and start == entry.pid_start else Owner.DEAD


def default_path() -> Path:
    """Where this user's entries are: for root one place for all ways of becoming root."""
    if os.geteuid() == 0 and "XDG_STATE_HOME" not in os.environ:
        return SYSTEM_STATE / "clocks"
    return platformdirs.user_state_path("usv-tui") / "clocks"


class LeaseDirectory:
    """The directory of entries, one file and one lock file a device."""

    def __init__(self, path: Path, fd: int, time_source: TimeSource | None = None) -> None:
        self.path = path
        self.fd = fd
        """Descriptor of the directory; -1 when there is none yet, and so no entries."""
        self._time = time_source or MonotonicTime()

    @classmethod
    def open(cls, path: Path | None = None, *, create: bool = True) -> Self:
        """Open (and make) the directory.

        Raises:
            ClockRefused: it cannot be made, or somebody else could write into it.
        """
        path = path or default_path()
        try:
            if create:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if not create and isinstance(error, FileNotFoundError):
                return cls(path, -1)
            raise ClockRefused(f"cannot keep a journal of locks in {path}: {error}") from error
        trouble = _distrust(os.fstat(fd), is_directory=True)
        if trouble:
            os.close(fd)
            raise ClockRefused(
                f"{path} {trouble}", "it must be yours alone (mode 700): see XDG_STATE_HOME"
            )
        return cls(path, fd)

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @staticmethod
    def entry_name(uuid: str) -> str:
        """The file of a device.

        Raises:
            ClockRefused: the UUID has characters that none has.
        """
        if not UUID_PATTERN.fullmatch(uuid):
            raise ClockRefused(f"{uuid!r} is not a device's UUID")
        return uuid.replace("/", "_") + ".json"

    def uuids(self) -> list[str]:
        """Devices with an entry.

        Raises:
            ClockRefused: the directory cannot be read.
        """
        if self.fd < 0:
            return []
        try:
            names = os.listdir(self.fd)  # noqa: PTH208  a Path cannot list a descriptor
        except OSError as error:
            raise ClockRefused(
                f"the journal of locks {self.path} cannot be read: {error}"
            ) from None
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def take(self, uuid: str, wait_s: float = GUARDIAN_WAIT_S) -> int:
        """Lock the device's file for this process and its guardian; returns the descriptor.

        Waits for the guardian of a run that has died, and for nobody else.

        Raises:
            ClockBusy: somebody holds it.
            ClockRefused: the file is not ours.
        """
        name = self.entry_name(uuid).removesuffix(".json") + ".lock"
        try:
            fd = self._open(name, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise ClockRefused(f"{self.path} is gone: no journal of locks can be kept") from None
        deadline_ns = self._time.now_ns() + int(wait_s * NS_PER_S)
        never = threading.Event()
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A guardian at work has no entry, or one of a dead process.
                entry = self._read_or_none(uuid)
                is_live = entry is not None and owner_of(entry) is not Owner.DEAD
                if is_live or self._time.now_ns() >= deadline_ns:
                    os.close(fd)
                    who = f" (pid {entry.pid}, {entry.requested_mhz} MHz)" if entry else ""
                    raise ClockBusy(f"another usv-tui holds the clocks of {uuid}{who}") from None
                self._time.wait(never, _POLL_NS)
            except OSError as error:
                os.close(fd)
                raise ClockRefused(f"{self.path / name} cannot be locked: {error}") from error
            else:
                return fd

    def _read_or_none(self, uuid: str) -> Entry | None:
        try:
            return self.read(uuid)
        except ClockError:
            return None

    def _open(self, name: str, flags: int) -> int:
        try:
            fd = os.open(
                name,
                flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
                0o600,
                dir_fd=self.fd,
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ClockRefused(f"{self.path / name} cannot be opened: {error.strerror}") from error
        trouble = _distrust(os.fstat(fd), is_directory=False)
        if trouble:
            os.close(fd)
            raise ClockRefused(f"{self.path / name} {trouble}", "look at it, then remove it")
        return fd

    def read(self, uuid: str) -> Entry | None:
        """A device's entry; None when there is none.

        Raises:
            ClockRefused: the file is not ours or not an entry; it is not acted on.
        """
        name = self.entry_name(uuid)
        if self.fd < 0:
            return None
        try:
            fd = self._open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            with os.fdopen(fd, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ClockRefused(f"{self.path / name} cannot be read: {error.strerror}") from error
        try:
            entry = msgspec.json.decode(data, type=Entry)
        except msgspec.DecodeError as error:
            raise ClockRefused(f"{self.path / name} is not a journal of a lock: {error}") from error
        is_consistent = (
            entry.schema == 1
            and self.entry_name(entry.uuid) == name
            and entry.undo.uuid == entry.uuid
            and entry.undo.kind == entry.kind
            and entry.undo.pci == entry.pci
            and (not _needs_pci(entry.kind) or PCI_PATTERN.fullmatch(entry.pci or "") is not None)
        )
        if not is_consistent:
            raise ClockRefused(f"{self.path / name} contradicts itself", "remove it")
        return entry

    def write(self, entry: Entry) -> None:
        """Write an entry so that it is whole on disk, or the old one is, whatever happens.

        Raises:
            ClockRefused: it cannot be written; then nothing may be locked.
        """
        name = self.entry_name(entry.uuid)
        temporary = f".{name}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self.fd)
            fd = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(entry), indent=2))
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            os.fsync(self.fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self.fd)
            raise ClockRefused(
                f"the journal {self.path / name} cannot be written: {error}"
            ) from error

    def remove(self, uuid: str) -> None:
        """Forget a device's entry and the guardian's report on it.

        Raises:
            ClockRefused: it cannot be removed; the next start will put the clocks back once more.
        """
        name = self.entry_name(uuid)
        try:
            for file in (name, name.removesuffix(".json") + ".log"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=self.fd)
            os.fsync(self.fd)
        except OSError as error:
            raise ClockRefused(
                f"the record of a lock in {self.path} cannot be removed: {error.strerror}",
                f"remove {self.path / name} yourself",
            ) from error

    def last_failure(self, uuid: str) -> str:
        """Why the guardian could not put the clocks back; empty when it did not try."""
        name = self.entry_name(uuid).removesuffix(".json") + ".log"
        try:
            fd = self._open(name, os.O_RDONLY)
        except (FileNotFoundError, ClockRefused):
            return ""
        with os.fdopen(fd, "rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace").strip()


def _distrust(status: os.stat_result, *, is_directory: bool) -> str:
    """Why an open file must not be believed; empty when it may be."""
    if status.st_uid != os.geteuid():
        return "belongs to somebody else"
    if status.st_mode & 0o077:
        return "can be used by others"
    if is_directory:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file"
    return "" if status.st_nlink <= 1 else "has a second name"
