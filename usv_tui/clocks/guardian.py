"""The guardian: a small process that puts clocks back when the one that locked them dies.

It sits in a session of its own, ignores the signals that end a terminal's processes, has the
device open already, and reads a socket whose other end only the locking process holds. A word of
farewell means that the clocks were put back; the end of the socket without it, or the end of the
process, means that they were not.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from usv_tui.errors import ClockError, ClockRefused
from usv_tui.vendor.kinds import Access, VendorError
from usv_tui.vendor.restore import Restorer

READY = b"ready\n"
ARMED = b"armed\n"
"""Until this word the parent has not locked anything, and its end is none of our business."""
DONE = b"done\n"
READY_TIMEOUT_S = 15.0
"""Initialising a vendor library takes seconds on machines with many devices."""
FAREWELL_TIMEOUT_S = 2.0
FIRE_TIMEOUT_S = 5.0

_IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_FAILED = 5


# --- The locking process's side ------------------------------------------------------------------


class Guardian:
    """A running guardian process."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self._process = process
        self._link = link

    @property
    def pid(self) -> int:
        """The guardian's process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Say farewell and wait for the process to end."""
        with contextlib.suppress(OSError):  # it is gone already: nothing to dismiss
            self._link.sendall(DONE)
        self._link.close()
        self._wait(FAREWELL_TIMEOUT_S)

    def fire(self) -> bool:
        """Close the link without farewell; True when the guardian reports success."""
        self.leave()
        return self._wait(FIRE_TIMEOUT_S) == 0

    def leave(self) -> None:
        """Close the link without farewell; what comes of it is told by the journal."""
        self._link.close()

    def _wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # It hangs in the driver. It holds nothing of ours, so leave it to finish its work.
            return None


def arm(
    undo: Mapping[str, Any], access: Access, lock_fd: int, directory_fd: int, entry_name: str
) -> Guardian:
    """Start a guardian for `undo` (kind, uuid, pci, actions) and wait until it is ready.

    It keeps `lock_fd` open, so that nobody can lock this device again before it is done, and
    removes `entry_name` from the directory when it has put the clocks back.

    Raises:
        ClockRefused: it could not be started or could not undo from where it is.
    """
    ours, theirs = socket.socketpair()
    process: subprocess.Popen[bytes] | None = None
    try:
        with theirs:
            process = _spawn(theirs, lock_fd, directory_fd)
        order = {
            "undo": dict(undo),
            "access": access._asdict(),
            "entry": entry_name,
            "parent": os.getpid(),
        }
        ours.settimeout(READY_TIMEOUT_S)
        ours.sendall(json.dumps(order).encode() + b"\n")
        with ours.makefile("rb") as stream:
            answer = stream.readline()
        if answer != READY:
            text = answer.decode("utf-8", "replace").strip() or "it ended at once"
            raise ClockRefused(f"the guardian process cannot undo a lock: {text}")
        ours.settimeout(None)
        ours.sendall(ARMED)
    except OSError as error:
        ours.close()
        raise ClockRefused(f"the guardian process did not get ready: {error}") from error
    except BaseException:
        ours.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it ends when it can
                process.wait(FAREWELL_TIMEOUT_S)
        raise
    return Guardian(process, ours)


def _spawn(link: socket.socket, lock_fd: int, directory_fd: int) -> subprocess.Popen[bytes]:
    fds = (link.fileno(), lock_fd, directory_fd)
    # -P: never import from the current directory, which a privileged process must not trust.
    command = [sys.executable, "-P", "-m", "usv_tui.clocks.guardian", *map(str, fds)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        pass_fds=fds,
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """This process's environment, with the package on the path when it is not installed."""
    environment = dict(os.environ)
    root = str(Path(__file__).resolve().parents[2])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{inherited}" if inherited else root
    return environment


# --- The guardian's side -------------------------------------------------------------------------


def _must_act(link: socket.socket, parent: int) -> bool:
    """Block until the parent is done or gone; True when it left without farewell."""
    watched: list[int] = [link.fileno()]
    timeout_s: float | None = None
    try:
        # A child that the parent forked may hold the socket open after the parent's death.
        watched.append(os.pidfd_open(parent))
    except OSError:
        timeout_s = 0.5
    received = b""
    while True:
        ready, _, _ = select.select(watched, [], [], timeout_s)
        link.setblocking(False)
        try:
            chunk = link.recv(64)
        except BlockingIOError:
            chunk = None
        except OSError:
            chunk = b""
        received += chunk or b""
        if DONE in received:
            return False
        is_gone = os.getppid() != parent or any(fd != link.fileno() for fd in ready)
        if chunk == b"" or is_gone:
            return ARMED in received


def _report(directory_fd: int, entry_name: str, text: str) -> None:
    """Leave the reason of a failure beside the journal, for the next start to tell."""
    name = entry_name.removesuffix(".json") + ".log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=directory_fd)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _guard(link: socket.socket, directory_fd: int) -> int:
    with link.makefile("rb") as stream:
        order = json.loads(stream.readline())
    undo = order["undo"]
    try:
        restorer = Restorer(
            undo["kind"], undo["uuid"], undo["pci"], undo["actions"], Access(**order["access"])
        )
        restorer.prepare()
    except (ClockError, VendorError) as error:
        link.sendall(f"{error}\n".encode())
        return _FAILED
    with contextlib.suppress(OSError):  # the parent is gone: the wait below finds out
        link.sendall(READY)
    if not _must_act(link, order["parent"]):
        return 0
    try:
        restorer.run()
    except ClockError as error:
        with contextlib.suppress(OSError):  # the journal stays, and tells enough
            _report(directory_fd, order["entry"], str(error))
        return _FAILED
    # A journal that cannot be removed makes the next start put the clocks back once more.
    with contextlib.suppress(OSError):
        os.unlink(order["entry"], dir_fd=directory_fd)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the guardian; the arguments are the inherited socket, lock and directory."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    link_fd, lock_fd, directory_fd = (int(word) for word in arguments)
    with socket.socket(fileno=link_fd) as link:
        code = _guard(link, directory_fd)
    # Children that the parent forked may hold the same lock: let it go for all of them.
    fcntl.flock(lock_fd, fcntl.LOCK_UN)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
