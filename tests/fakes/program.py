"""The program as a user starts it: a process of its own, without a terminal and without a user."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
QUICK = ("--device", "cpu", "--warmup", "0.2", "--inner", "1")
"""Options of a run that is short and imports no torch."""


class Done(NamedTuple):
    """What a finished program leaves behind."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """The program's own lines about what is wrong."""
        return [line for line in self.err.splitlines() if line.startswith("usv-tui:")]


class Program:
    """Starts usv-tui in a folder, with a state directory there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            # As the installed program: the working directory is no place of modules.
            "PYTHONSAFEPATH": "1",
            "XDG_STATE_HOME": str(self.state),
            "TMPDIR": str(folder),
        }

    def write(self, source: str, name: str = "file.py") -> str:
        """A benchmark file; its name as it is given on the command line."""
        (self.folder / name).write_text(source, encoding="utf-8")
        return name

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start it, without any terminal, in a session of its own."""
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": self.folder,
            "env": self.environment,
            "start_new_session": True,
            "text": True,
        } | options
        started: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "usv_tui", *arguments], **given
        )
        return started

    def run(self, *arguments: str, timeout: float = 60, **options: Any) -> Done:
        """Run it to its end."""
        process = self.start(*arguments, **options)
        return finish(process, timeout)

    def sessions(self) -> list[Path]:
        """The session files in the state directory."""
        return sorted(self.state.glob("usv-tui/sessions/*.usv"))

    def export(self, session: Path | None = None) -> dict[str, Any]:
        """A session as data: the only one there is, unless given."""
        if session is None:
            [session] = self.sessions()
        done = self.run("export", str(session))
        assert done.code == 0, done.err
        return dict(json.loads(done.out))


def finish(process: subprocess.Popen[str], timeout: float = 60) -> Done:
    """Wait for a program; it never outlives its test."""
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Done(process.returncode, out or "", err or "")


def wait_until(condition: Callable[[], object], timeout: float = 30) -> None:
    """Wait for what another process is about to do."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def measured(data: dict[str, Any]) -> list[int]:
    """Samples of each row that count, and those that were set aside as stalls."""
    return [row["statistics"]["n"] + row["stalls"] for row in data["rows"]]


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two exports of a session disagree; means are summed in another order, so nearly.

    Left out is what depends on when the statistics were asked: a live session asks them each
    second, one that is read back at its end.
    """
    found = []
    for row, again in zip(one["rows"], other["rows"], strict=True):
        for key, value in row.items():
            if key in ("word", "drift", "clock_effect", "ratio", "badges"):
                continue
            is_sum = key in ("statistics", "rolling")
            if again[key] != (pytest.approx(value, rel=1e-9) if is_sum else value):
                found.append(f"{row['name']} {key}: {str(value)[:200]} != {str(again[key])[:200]}")
    return found


def samples(data: dict[str, Any], name: str) -> int:
    """How many samples of a row an export holds."""
    [row] = [row for row in data["rows"] if row["name"] == name]
    return len(row["samples"]["seconds"])
