"""The keeper: a tiny process that speaks and acts for the program when that no longer can.

It is started as a script, without the package and without `site`, so that it costs a few
milliseconds of another core and is there before any code of the user's runs. It sits in a session
of its own, where no signal of the terminal reaches it, and reads a pipe that tells whether the
terminal is taken, and which signals came: they are written by the C handler, which needs no
interpreter. Memory that both share has the program's heartbeat and the rows.

- The program dies without a word: the terminal is put back, and one line says in which row's code
  it was and where the samples are.
- Its heart stops while it lives: a call holds the interpreter. That is said, and a signal that
  would have ended the program ends it.
- Its end of the pipe is closed while it lives: user code closed all descriptors. The terminal is
  put back, and the way to the caller's streams stays open here.
"""

import _signal  # type: ignore[import-not-found]  # `signal` would import enum, for longer than all the rest takes
import marshal
import mmap
import os
import select
import sys
import termios
import time

TAKEN = b"+"
GIVEN = b"-"
LEAVE = (
    b"\x1b\\"  # ends a clipboard string that was cut off
    b"\x1b[0m"
    b"\x1b[?2026l"
    b"\x1b[?1000l\x1b[?1006l"
    b"\x1b[?2004l"
    b"\x1b[?1004l"
    b"\x1b[?7h"
    b"\x1b[?25h"
    b"\x1b[23;2t"  # the title that was there before
    b"\x1b[?1049l"
)
"""Undoes every mode of the screen."""
RESTORE_WAIT_S = 0.2
_HEARD_S = 1.0
"""So long after a signal a heart that beats shows that the program has heard it."""
_LOOK_MS = 500
"""How often to look at the heart, and for the other process."""
BEATS, PHASE, TOLD, ROW, LENGTH = range(5)
"""Cells of the shared memory, 32 bits each; the rows follow as JSON, at `TEXT`."""
ENDING, DONE = 1, 2
"""Phases: it ends in order, and that may take its time; everything has been said."""
TEXT = 64
BOARD_BYTES = 1 << 16
PIPE_FD, TERMINAL_FD, BOARD_FD, OUT_FD, ERR_FD = 3, 4, 5, 6, 7
LAST_RESORT = _signal.SIGILL
"""Its handler in the program is C's `_exit`, which takes the signal's number for the exit code: 4,
the one for a lost worker."""
_PATIENCE_S = 3.0
"""How long after a signal an ordinary end may take to begin."""
_LOG_TAIL = 1 << 16
_INTERRUPT = 3
"""The byte of Ctrl-C on a raw terminal, and nearly SIGINT's number."""


def restore(fd: int, attributes: "list | None", *, is_late: bool = False) -> None:  # type: ignore[type-arg]
    """Leave the screen and its modes, on a terminal that may read slowly or be gone.

    With `is_late` the attributes are put back only while they are the screen's: a shell that has
    the terminal again has set its own.
    """
    try:
        rest = memoryview(LEAVE)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                if not select.select([], [fd], [], RESTORE_WAIT_S)[1]:
                    break
        now = termios.tcgetattr(fd)
        is_ours = not (now[1] & termios.OPOST or now[3] & termios.ISIG)
        if attributes and (is_ours or not is_late):
            termios.tcflush(fd, termios.TCIFLUSH)
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
    except (OSError, termios.error):
        return  # a terminal that is gone has no state to put back


class Watch:
    """One program, from its first word to its end."""

    def __init__(self, arguments: "list[str]") -> None:
        self._patience_s = float(arguments[0])
        self._dump = int(arguments[1])
        self._session, self._log, self._package = arguments[2:5]
        self._parent = int(arguments[5])
        self._attributes = marshal.loads(bytes.fromhex(arguments[6]))  # noqa: S302  ours
        memory = mmap.mmap(BOARD_FD, BOARD_BYTES)
        self._cells = memoryview(memory).cast("i")
        self._text = memoryview(memory)[TEXT:]
        self._is_taken = self._is_cut = self._is_told = False
        self._beats = 0
        self._beat_s = time.monotonic()
        self._asked: list[tuple[float, int]] = []
        """When a signal asked the program to end, and which."""

    def run(self) -> None:
        """Until the program is gone."""
        poll = select.poll()
        poll.register(PIPE_FD, select.POLLIN)
        _register_end(poll, self._parent)
        while True:
            ready = poll.poll(_LOOK_MS)
            words = None if self._is_cut else self._read()
            if words == b"":
                poll.unregister(PIPE_FD)
                self._is_cut = True
                ready = poll.poll(_LOOK_MS)  # a death closes it a little before it can be seen
            # Children that it forked may hold the pipe open after its end.
            is_over = os.getppid() != self._parent or any(fd != PIPE_FD for fd, _ in ready)
            if is_over and not words:
                return self._at_death()
            if words == b"" and self._cells[PHASE] == DONE:
                return None
            if words == b"":
                self._at_cut()
            self._look()

    def _read(self) -> "bytes | None":
        try:
            words = os.read(PIPE_FD, 4096)
        except BlockingIOError:
            return None
        for word in words:
            if word in (TAKEN[0], GIVEN[0]):
                self._is_taken = word == TAKEN[0]
            else:
                self._ask(word)
        return words

    def _ask(self, number: int) -> None:
        if number not in (_signal.SIGWINCH, _signal.SIGCHLD, _signal.SIGCONT, _signal.SIGTSTP):
            self._asked.append((time.monotonic(), number))

    def _give_back(self) -> None:
        if self._is_taken:
            restore(TERMINAL_FD, self._attributes, is_late=True)
        self._is_taken = False

    def _say(self, words: str) -> None:
        try:
            os.write(ERR_FD, f"usv-tui: {words}\n".encode("utf-8", "replace"))
        except OSError:
            return  # nobody reads

    @property
    def _kept(self) -> str:
        return f"; the samples until then: usv-tui export {self._session}" if self._session else ""

    def _at_death(self) -> None:
        self._give_back()
        if self._cells[PHASE] != DONE:
            how = _crash(self._tail(0))
            where = self._where(0, is_crash=bool(how))
            in_row = f" in {where}" if where else ""
            self._say(
                f"{how or 'ended without a word'}{in_row}{self._kept} "
                "(under --isolate a crash costs its row only)"
            )

    def _at_cut(self) -> None:
        """The program lives and can no longer be heard here."""
        self._give_back()
        self._say(f"the benchmark file closed descriptors that are not its own{self._kept}")

    # -- the heart

    def _look(self) -> None:
        beats, now_s = self._cells[BEATS], time.monotonic()
        if beats != self._beats or not beats or _is_stopped(self._parent):
            self._beats, self._beat_s, self._is_told = beats, now_s, False
            if self._cells[PHASE] != ENDING:
                # One that came just now may have met the heart's last beat.
                self._asked = [ask for ask in self._asked if now_s - ask[0] < _HEARD_S]
            return
        quiet_s = now_s - self._beat_s
        asked_s = now_s - self._asked[0][0] if self._asked else 0.0
        is_late = min(quiet_s, asked_s) >= _PATIENCE_S
        if self._cells[PHASE] == ENDING:
            if len(self._asked) > 2 and is_late:
                self._end()
        elif self._cells[PHASE] != DONE and (is_late or quiet_s >= self._patience_s):
            if is_late and (len(self._asked) > 1 or self._asked[0][1] != _signal.SIGINT):
                self._end()
            else:
                self._tell(quiet_s)
                self._listen()

    def _tell(self, quiet_s: float) -> None:
        if self._is_told:
            return
        self._is_told = True
        where = self._ask_where()
        words = (
            f"frozen for {quiet_s:.0f} s: a call{f' of {where}' if where else ''} holds the "
            "interpreter (--isolate survives this; TERM or Ctrl-C twice ends the program)"
        )
        if not self._is_taken:
            self._say(words)
            return
        self._cells[TOLD] += 1
        try:
            columns = os.get_terminal_size(TERMINAL_FD).columns
            shown = f" {words} "[:columns].encode("ascii", "replace").decode()
            line = f"\x1b7\x1b[999;1H\x1b[0;7m{shown}\x1b[0m\x1b[K\x1b8"
            os.write(TERMINAL_FD, line.encode())
        except OSError:
            return  # it is gone

    def _listen(self) -> None:
        """The keys, while nobody else reads them."""
        if not self._is_taken:
            return
        try:
            keys = os.read(TERMINAL_FD, 1024)
        except OSError:
            return
        for key in keys:
            if key == _INTERRUPT:
                self._ask(_signal.SIGINT)

    def _end(self) -> None:
        where = self._ask_where()
        self._cells[PHASE] = DONE
        self._give_back()
        in_row = f" a call of {where}" if where else " a call"
        self._say(f"ended:{in_row} held the interpreter{self._kept} (--isolate survives this)")
        os.kill(self._parent, LAST_RESORT)
        select.select([], [], [], _PATIENCE_S)
        os.kill(self._parent, _signal.SIGKILL)

    # -- where it is

    def _tail(self, at: int) -> "list[str]":
        try:
            with open(self._log, "rb") as log:  # noqa: PTH123  pathlib is slow to import
                log.seek(max(at, os.fstat(log.fileno()).st_size - _LOG_TAIL))
                return log.read(_LOG_TAIL).decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    def _ask_where(self) -> str:
        """Have the C handler write all stacks to the log, and read them."""
        try:
            at = os.stat(self._log).st_size  # noqa: PTH116
            os.kill(self._parent, self._dump)
        except OSError:
            return ""
        select.select([], [], [], 0.3)
        return self._where(at)

    def _where(self, at: int, *, is_crash: bool = False) -> str:
        rows = self._rows()
        known = rows.get(str(self._cells[ROW] - 1))
        frame, is_measuring = _user_frame(self._tail(at), self._package, is_crash=is_crash)
        if not is_measuring:
            known, rows = None, {}
        place = "" if frame is None else f"{frame[0].rpartition('/')[2]}:{frame[1]}"
        names = [known[0]] if known else _rows_of(frame, rows)
        if names:
            return " or ".join(names[:3]) + (f" ({place})" if place else "")
        return "" if frame is None else f"{frame[2]} ({place})"

    def _rows(self) -> "dict[str, list]":  # type: ignore[type-arg]
        import json  # noqa: PLC0415  only when there is something to tell

        try:
            rows: dict[str, list] = json.loads(bytes(self._text[: self._cells[LENGTH]]))  # type: ignore[type-arg]
        except ValueError:
            return {}
        return rows


def _register_end(poll: "select.poll", process: int) -> None:
    try:
        poll.register(os.pidfd_open(process), select.POLLIN)
    except OSError:
        return  # its end is seen at the next look


def _is_stopped(process: int) -> bool:
    """By job control or a debugger: then no heart beats."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:  # noqa: PTH123
            return stat.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _crash(lines: "list[str]") -> str:
    for line in reversed(lines):
        if line.startswith("Fatal Python error: "):
            return f"crashed ({line[len('Fatal Python error: ') :]})"
    return ""


def _user_frame(
    lines: "list[str]", package: str, *, is_crash: bool
) -> "tuple[tuple[str, int, str] | None, bool]":
    """What the measuring thread called, as the latest stacks have it; of a crash, what crashed.

    The second value is False for a thread of the user's own.
    """
    worker = current = None
    for title, frames in _stacks(lines):
        if any(path.startswith(f"{package}engine/") for path, _, _ in frames):
            worker = frames
        if title.startswith("Current thread"):
            current = frames
    frames = (current if is_crash else worker) or worker or []
    theirs = []
    for frame in frames:
        if frame[0].startswith(package):
            break
        theirs.append(frame)
    is_measuring = not is_crash or not frames or frames is worker
    last = -1 if is_measuring else 0
    return (theirs[last] if theirs else None), is_measuring


def _stacks(lines: "list[str]") -> "list[tuple[str, list[tuple[str, int, str]]]]":
    """Each thread's title with its frames (file, line, function), the innermost first."""
    found: list[tuple[str, list[tuple[str, int, str]]]] = []
    for line in lines:
        if line.startswith(("Current thread", "Thread 0x")):
            found.append((line, []))
        elif line.startswith('  File "') and found:
            path, _, rest = line[len('  File "') :].partition('", line ')
            number, _, name = rest.partition(" in ")
            found[-1][1].append((path, int(number) if number.isdigit() else 0, name))
    return found


def _rows_of(frame: "tuple[str, int, str] | None", rows: "dict[str, list]") -> "list[str]":  # type: ignore[type-arg]
    """Names of the rows whose function it is: the last one that begins before the line."""
    if frame is None:
        return []
    path, line, name = frame
    begun = [row for row in rows.values() if row[1] == path and row[2] == name and row[3] <= line]
    first = max((row[3] for row in begun), default=0)
    return [row[0] for row in begun if row[3] == first]


def main(arguments: "list[str]") -> None:
    """Watch; arguments: patience, dump signal, session, log, package, process, attributes."""
    for name in ("HUP", "INT", "QUIT", "TERM", "TSTP", "USR1", "USR2"):
        _signal.signal(getattr(_signal, f"SIG{name}"), _signal.SIG_IGN)
    Watch(arguments).run()


if __name__ == "__main__":
    main(sys.argv[1:])
