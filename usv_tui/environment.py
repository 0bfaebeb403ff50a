"""Where a run happened: what travels with the numbers so that they can be judged later."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PACKAGES = ("usv-tui", "torch", "numpy", "triton", "textual", "nvidia-ml-py", "amdsmi")
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_ORDER",
    "PYTORCH_CUDA_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


def describe(directory: Path | None = None) -> dict[str, Any]:
    """Python, packages, CPU, the variables that change timings, and the git state."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "argv": list(sys.argv),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "packages": _versions(),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "git": git_state(directory),
    }


def _versions() -> Mapping[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """The processor's name as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor()


def git_state(directory: Path | None = None) -> Mapping[str, Any] | None:
    """Commit and whether the tree is dirty; None outside a repository or without git."""
    try:
        done = subprocess.run(
            ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"],  # noqa: S607
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode:
        return None
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid")), "")
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}
