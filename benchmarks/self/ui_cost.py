"""CPU time and bytes of one frame, in a real pseudo-terminal, against the size of the session.

20 rows and a chart of 120x30 cells, with sparklines, three sensor strips, advice and log. New
samples arrive before every frame, so that nearly every line changes: the worst case. CPU time is
the screen's thread alone: `draw` from the snapshot to the last byte on the terminal, `fold` for
taking the samples in and making the snapshot, which every front end needs.

    python benchmarks/self/ui_cost.py [FRAMES]
"""

import fcntl
import json
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

ROWS = 20
SIZE = (120, 76)
LEAST_PLOT = 30
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FRAMES = 60
CLAIM_MS = 6.0
S = 1_000_000_000
SESSION_S = 300
"""The samples of every session are spread over so many seconds."""


def fill(store, samples):
    """A session of so many samples, with readings at 10 Hz."""
    import numpy as np

    from usv_tui import records
    from usv_tui.model import BenchInfo, DeviceInfo, Reading, RowState, RunConfig, SensorInfo

    rng = np.random.default_rng(0)
    fields = ("sm_mhz", "temp_c", "power_mw")
    infos = {name: SensorInfo(source="synthetic") for name in fields}
    device = DeviceInfo(uuid="GPU-0", name="H200", kind="nvidia", sensors=infos)
    batch = [records.Start(records.SCHEMA, 0, 0, "self.py", RunConfig()), records.Device(0, device)]
    for bench in range(ROWS):
        info = BenchInfo(bench=bench, name=f"kernel[n={1 << bench}]", flops=1e9, bytes=1e6)
        batch += [records.Bench(0, info), records.State(0, bench, RowState.RUNNING)]
    batch.append(records.Progress(0, "measuring"))
    rounds = samples // ROWS
    step = SESSION_S * S // rounds
    for first in range(0, rounds, 500):
        count = min(500, rounds - first)
        batch.append(block(rng, first, count, first * step, step))
    store.apply(batch)
    at = np.arange(0, SESSION_S * S, S // 10)
    store.apply(
        records.Telemetry(
            Reading(
                device="GPU-0",
                at_ns=int(t),
                sm_mhz=float(1935 + 15 * rng.integers(-2, 3)),
                temp_c=60.0,
                power_mw=int(550_000 + 9_000 * rng.standard_normal()),
            )
        )
        for t in at
    )
    return rng, rounds, step


def block(rng, first, count, t0, step):
    """Rounds of all rows."""
    from usv_tui import records

    base = 20_000 * (1 + 0.3 * (list_of_rows(count) % ROWS))
    windows = (base * (1 + 0.005 * rng.standard_normal(count * ROWS))).astype(int)
    slots = list_of_rows(count)
    dt = (slots // ROWS) * step + (slots % ROWS) * max(1, step // ROWS)
    return records.Samples(
        first, ROWS, t0, (slots % ROWS).tolist(), dt.tolist(), windows.tolist(), [1]
    )


def list_of_rows(count):
    """Slot numbers of so many rounds."""
    import numpy as np

    return np.arange(count * ROWS)


def child(samples, frames, result):
    """Show the session and take frames as fast as the terminal takes them."""
    from usv_tui.tui.app import ScreenOptions, UsvApp

    class Controller:
        """Adds one round before every frame."""

        def __init__(self):
            from usv_tui.gate import Gate
            from usv_tui.session.faults import Faults
            from usv_tui.session.store import Store

            self.faults = Faults(print)
            self.store = Store()
            self.gate = Gate()
            self.desk = None
            self.can_renew = False
            self.why_fixed = ""
            self.rng, self.rounds, self.step = fill(self.store, samples)
            self.now_ns = SESSION_S * S
            self.fold_ns = 0
            inner = self.store.snapshot

            def snapshot(now_ns):
                began = time.thread_time_ns()
                made = inner(now_ns)
                self.fold_ns += time.thread_time_ns() - began
                return made

            self.snapshot = self.store.snapshot = snapshot

        def pump(self):
            began = time.thread_time_ns()
            self.now_ns += S // 4
            self.store.apply([block(self.rng, self.rounds, 1, self.now_ns - S // 8, S // 8)])
            self.rounds += 1
            self.fold_ns = time.thread_time_ns() - began

        def __getattr__(self, name):
            raise AttributeError(name)

    made = []

    def connect():
        made.append(Controller())
        app.call_later(measure)
        return made[0]

    class Clock:
        def now_ns(self):
            return made[0].now_ns

        def wait(self, event, timeout_ns):
            return event.wait(timeout_ns / 1e9)

    app = UsvApp(connect, ScreenOptions(ticks=False), Clock())
    figures = []

    def measure():
        for index in range(frames + 10):
            before = app.bytes_written
            app.frame()
            if index >= 10:
                fold_ms = made[0].fold_ns / 1e6
                size = app.bytes_written - before
                figures.append((app.frame_cpu_ns / 1e6 - fold_ms, fold_ms, size))
        plot = app.presenter.live.layout.plot
        Path(result).write_text(json.dumps([figures, plot]), encoding="utf-8")
        app.exit()

    app.run(mouse=False)
    if app.failure is not None:
        raise app.failure


def parent(samples, frames):
    """Each frame's draw ms, fold ms and bytes; and the chart's lines."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update({"TERM": "xterm-256color", "LANG": "C.UTF-8"})
            command = [sys.executable, __file__, "--child", str(samples), str(frames), str(result)]
            os.execv(sys.executable, command)
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        seen = bytearray()
        while True:
            if select.select([fd], [], [], 120)[0]:
                try:
                    data = os.read(fd, 1 << 16)
                except OSError:
                    break
                if not data:
                    break
                seen += data
        os.waitpid(pid, 0)
        os.close(fd)
        if not result.exists():
            raise SystemExit(f"no figures: {bytes(seen[-2000:])!r}")
        return json.loads(result.read_text(encoding="utf-8"))


def main():
    """Print the table; exit 1 when the claim does not hold."""
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else FRAMES
    print(f"{ROWS} rows, terminal {SIZE[0]}x{SIZE[1]}, {frames} frames, every line changing")
    print(f"{'samples':>9} {'draw ms':>8} {'p95':>6} {'fold ms':>8} {'KB/frame':>9}  chart")
    found = []
    for samples in SIZES:
        figures, plot = parent(samples, frames)
        draw = sorted(figure[0] for figure in figures)
        found.append(statistics.median(draw))
        fold = statistics.median(figure[1] for figure in figures)
        size = statistics.median(figure[2] for figure in figures)
        print(
            f"{samples:>9,} {found[-1]:>8.2f} {draw[int(len(draw) * 0.95)]:>6.2f} {fold:>8.2f}"
            f" {size / 1000:>9.1f}  {SIZE[0]}x{plot}"
        )
        if plot < LEAST_PLOT:
            raise SystemExit(f"the chart has {plot} lines, {LEAST_PLOT} were meant")
    flat = max(found) / min(found)
    print(f"claim: drawing under {CLAIM_MS:g} ms at every size, and flat (here {flat:.2f}x)")
    return int(max(found) >= CLAIM_MS or flat > 1.5)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
