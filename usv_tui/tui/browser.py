"""Between textual-serve and the screen: `python -m usv_tui.tui.browser VERB FILE.usv`.

textual-serve starts this process for each browser and talks in packets on its standard streams: a
letter (D for data, M for a JSON message), a length of four bytes, and as many bytes. The screen
itself runs on a pseudo-terminal, as on any other terminal.
"""

import contextlib
import fcntl
import json
import os
import pty
import selectors
import signal
import struct
import sys
import termios

_READ_BYTES = 1 << 16
_HEADER = struct.Struct(">cI")
PRELUDE = b"__GANGLION__\n"


class Packets:
    """Takes bytes as they come and gives whole packets."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The packets that are whole by now: kind and content."""
        self._rest += data
        found = []
        while len(self._rest) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._rest)
            end = _HEADER.size + length
            if len(self._rest) < end:
                break
            found.append((kind, self._rest[_HEADER.size : end]))
            self._rest = self._rest[end:]
        return found


def packet(kind: bytes, content: bytes) -> bytes:
    """A packet as textual-serve reads it."""
    return _HEADER.pack(kind, len(content)) + content


def main(arguments: list[str]) -> int:
    """Run the screen on a terminal of its own until either side ends."""
    columns, lines = (_size_of(name, least) for name, least in (("COLUMNS", 80), ("ROWS", 24)))
    child, terminal = pty.fork()
    if not child:
        # What the server set is meant for Textual's own driver.
        for name in [n for n in os.environ if n.startswith("TEXTUAL_")]:
            del os.environ[name]
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "usv_tui", *arguments, "--mouse"]
        os.execv(command[0], command)  # noqa: S606  our own program
    _resize(terminal, columns, lines)
    _write(PRELUDE)
    try:
        _carry(terminal)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGHUP)
        _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        _write(packet(b"M", json.dumps({"type": "exit"}).encode()))
    return os.waitstatus_to_exitcode(status)


def _carry(terminal: int) -> None:
    """Keys in, pictures out."""
    packets = Packets()
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(terminal, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                data = _read(key.fd)
                if not data:
                    return
                if key.fd == terminal:
                    _write(packet(b"D", data))
                elif not all(
                    _take(kind, content, terminal) for kind, content in packets.feed(data)
                ):
                    return


def _take(kind: bytes, content: bytes, terminal: int) -> bool:
    """What a browser sent; False when it left."""
    if kind == b"D":
        os.write(terminal, content)
        return True
    told = json.loads(content)
    if told.get("type") == "resize":
        _resize(terminal, int(told["width"]), int(told["height"]))
    elif told.get("type") in ("focus", "blur"):
        os.write(terminal, b"\x1b[I" if told["type"] == "focus" else b"\x1b[O")
    return bool(told.get("type") != "quit")


def _size_of(name: str, least: int) -> int:
    text = os.environ.pop(name, "")
    return int(text) if text.isdecimal() else least


def _resize(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""  # a terminal whose program is gone


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
