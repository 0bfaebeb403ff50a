"""Problem folders and pairs, judged by the whole program on the CPU."""

import json
import os
import subprocess
import sys

import pytest

TASK = """
lang: "py"
description: |
  - Not a case: {this: is text}
tests:
  - {"size": 33, "seed": 1}
  - size: 64
    seed: 2
benchmarks:
  - {"size": 20000, "seed": 9}
"""
HELPERS = """
import torch

def matches(mine, wanted):
    return (bool(torch.allclose(mine, wanted, atol=1e-4)), "mismatch")
"""
FOLDER = """
import torch
from helpers import matches

def generate_input(size: int, seed: int):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    return (torch.randn(size, device="cuda", generator=gen), torch.empty(size, device="cuda"))

def ref_kernel(data):
    x, out = data
    out[:] = torch.sin(x).exp()
    return out

def check_implementation(data, output):
    return matches(output, ref_kernel(data))
"""
SUBMISSIONS = {
    "right": "def custom_kernel(data):\n    x, out = data\n    return torch.sin(x).exp_()\n",
    "wrong": "def custom_kernel(data):\n    return torch.cos(data[0])\n",
    "kept": (
        "seen = {}\ndef custom_kernel(data):\n    x, out = data\n    key = (id(x), len(x))\n"
        "    if key not in seen:\n        seen[key] = torch.sin(x).exp()\n    return seen[key]\n"
    ),
}
PAIR = """
import torch

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return [64]
"""
RIGHT = PAIR.split("def get_inputs", maxsplit=1)[0].replace("Model", "ModelNew")
WRONG = RIGHT.replace("torch.relu(self.linear(x))", "self.linear(x)")


@pytest.fixture
def judge(tmp_path):
    """Judge, and give the verdicts by name, with the exit code."""

    def judge(problem, *submissions):
        command = [sys.executable, "-m", "usv_tui", "judge", str(problem), *map(str, submissions)]
        command += ["--device", "cpu", "--json-lines", "-", "--iters", "40", "--warmup", "0.2"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
        done = subprocess.run(
            [*command, "--headless", "--no-telemetry"],
            capture_output=True,
            text=True,
            timeout=110,
            env=env,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert found, done.stderr
        assert found[-1]["kind"] == "run"
        return {line["name"].partition("[")[0]: line for line in found[:-1]}, done.returncode

    return judge


def test_a_problem_folder_tells_right_from_wrong_and_kept(judge, tmp_path):
    """A wrong kernel fails a test, a memo returns a stale result, a right one has no complaint."""
    folder = tmp_path / "set" / "problem"
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(TASK)
    (folder / "reference.py").write_text(FOLDER)
    (folder.parent / "helpers.py").write_text(HELPERS)
    files = []
    for name, source in SUBMISSIONS.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(f"import torch\n{source}")

    found, code = judge(folder, *files)

    assert found["right"]["verdict"] != "not_believable", found["right"]
    assert found["wrong"]["code"] == "check"
    assert "size=33" in found["wrong"]["evidence"]["error"]
    assert found["kept"]["verdict"] == "not_believable"
    assert code == 1


def test_a_pair_tells_right_from_wrong(judge, tmp_path):
    """Both models have the same weights, so that a right one agrees and a wrong one does not."""
    for name, source in {"pair": PAIR, "good": RIGHT, "bad": WRONG}.items():
        (tmp_path / f"{name}.py").write_text(source)

    found, _ = judge(*(tmp_path / f"{name}.py" for name in ("pair", "good", "bad")))

    assert found["good"]["verdict"] != "not_believable", found["good"]
    assert found["bad"]["code"] == "wrong-result"
