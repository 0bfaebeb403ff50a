"""Which tricks are named, and whether an honest callable ever is: a real run of the catalogue.

    python benchmarks/self/believe.py [RUNS] [SECONDS]

The table goes to `believe.md` beside this file. Rows are products of two matrices on the CPU.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import catalogue

HERE = Path(__file__).parent
FILE = """
import sys
sys.path.insert(0, {here!r})
import catalogue
from usv_tui import benchmark

def declare(name, make, inputs=catalogue.draw, check=catalogue.agree, **options):
    @benchmark(name=name, group="g", inputs=inputs, check=check, **options)
    def factory():
        return make(catalogue.World())

declare("base", lambda world: world.work, baseline=True)
"""
WHOLE = {
    "time_patched": "import time\ntime.perf_counter_ns = lambda: 0\n",
    "allclose_patched": "import numpy\nnumpy.allclose = lambda *_: True\n",
    "len_patched": "import builtins\nbuiltins.len = lambda _: 0\n",
    "audit_patched": "from usv_tui.engine import audit\naudit._passes = lambda *_: True\n",
}
"""Tricks of a whole file."""
ROOF = 'declare("work_overstated", lambda world: world.work, flops=1e18)\n'


def verdicts(source: str, seconds: float) -> list[dict]:
    """The rows of a run of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "believed.py"
        path.write_text(FILE.format(here=str(HERE)) + source)
        command = [sys.executable, "-m", "usv_tui", str(path), "--headless", "--no-save"]
        command += ["--json-lines", "-", "--max-time", str(seconds), "--device", "cpu"]
        env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines:
        raise SystemExit(done.stderr)
    return [line for line in lines if line["kind"] == "row"]


def all_of(kind: str) -> str:
    """The source that declares the tricks, or the honest ones with their options."""
    options = "**rest[0]" if kind == "HONEST" else ""
    head = f"for name, (make, *rest) in catalogue.{kind}.items():"
    alone = "    if name not in catalogue.ALONE:\n    "
    return f"{head}\n{alone}    declare(name, make, {options})\n"


def main() -> None:
    """Run, and write the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    found = [row for row in verdicts(all_of("TRICKS") + ROOF, seconds) if row["name"] != "base"]
    whole = {n: f'declare("same", catalogue.TRICKS[{n!r}][0])\n' for n in catalogue.ALONE}
    whole |= {n: s + 'declare("same", lambda world: world.work)\n' for n, s in WHOLE.items()}
    for name, source in whole.items():
        rows = verdicts(source, 3)
        found += [{**row, "name": name} for row in rows if row["name"] == "same"]
    accused: dict[str, int] = {}
    judged = 0
    for _ in range(runs):
        for row in verdicts(all_of("HONEST"), seconds):
            judged += 1
            if row["verdict"] == "not_believable":
                accused[f"{row['name']} ({row['code']})"] = 1 + accused.get(row["name"], 0)
    named = [row for row in found if row["verdict"] == "not_believable"]
    lines = ["# What is believed", "", "| trick | verdict | code |", "|---|---|---|"]
    lines += [f"| {row['name']} | {row['verdict']} | {row['code']} |" for row in found]
    lines += ["", f"{len(named)} of {len(found)} tricks are named by their code in one run of"]
    lines[-1] += f" {seconds:g} s, and {sum(r['verdict'] == 'faster' for r in found)} got *faster*."
    lines.append(f"Honest callables accused: {sum(accused.values())} of {judged} ({runs} runs).")
    lines += [f"- {name}: {count}" for name, count in accused.items()]
    (HERE / "believe.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
