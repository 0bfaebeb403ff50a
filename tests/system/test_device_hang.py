"""A driver library that hangs must keep neither the samples nor the program."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.nvml_fake import H100, build

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, threading, time
from collections import deque
from usv_tui.telemetry.nvidia import NvmlTelemetry
from usv_tui.telemetry.poller import Poller

path, uuid = sys.argv[1:]
records = deque()
poller = Poller(NvmlTelemetry(uuid, path), records.append, learn_s=0)
poller.start()
pause = threading.Event()
windows, start = [], time.perf_counter_ns()
state = ""
while not state.startswith("stalled") and time.perf_counter_ns() - start < 4e9:
    for _ in range(100):
        began = time.perf_counter_ns()
        while time.perf_counter_ns() - began < 50_000:
            pass
        windows.append(time.perf_counter_ns() - began)
    state = poller.state()
windows.sort()
print(state.split()[0], round((time.perf_counter_ns() - start) / 1e9, 2),
      windows[len(windows) // 2], flush=True)
before = time.perf_counter()
poller.stop()
print(round(time.perf_counter() - before, 2), time.perf_counter(), flush=True)
"""


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetFieldValues"])
def test_a_library_that_hangs_delays_neither_samples_nor_the_quit(function):
    """A call of 60 s in C: samples go on, `stalled` within 2 s, the process ends in under 1 s."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(build()), H100],
        env={"FAKE_NVML": f"{function}~60000", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    now = time.perf_counter()  # one clock for all processes of a machine
    first, second = done.stdout.splitlines()
    state, seconds, median_ns = first.split()
    stop_s, stopped_at = second.split()

    assert done.stderr == ""
    assert state == "stalled"
    assert float(seconds) < 2
    assert int(median_ns) < 60_000
    assert float(stop_s) < 0.5
    assert now - float(stopped_at) < 1
