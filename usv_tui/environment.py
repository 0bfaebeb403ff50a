"""Where a run happened: what travels with the numbers so that they can be judged later."""

import importlib.metadata
import itertools
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
    "NUMEXPR_NUM_THREADS",
    "TORCH_NUM_THREADS",
)
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FAMILIES = ("OMP_", "KMP_", "GOMP_", "MKL_", "CUDA_", "HIP_", "PYTORCH_")
"""Every variable of these decides on threads, memory or launches."""
_GIT_S = 1.0
"""A repository that takes longer to look through is not waited for."""


def describe(suite: Path | None = None) -> dict[str, Any]:
    """Python, packages, CPU, the variables that change timings, and the benchmark file's commit."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "argv": list(sys.argv),
        "host": platform.node(),
        "boot": boot_id(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "packages": _versions(),
        "variables": _variables(),
        "git": None if suite is None else git_state(suite.resolve().parent),
    }


def boot_id() -> str | None:
    """The kernel's name for this boot; None where it has none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _variables() -> Mapping[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_FAMILIES)
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
    """Commit and whether the tree is dirty, of the repository that holds a directory.

    None outside a repository or without git; `dirty` is None where git does not say in time. No
    program that the repository names is run: no hook, no monitor, no filter.
    """
    commit = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not commit:
        return None
    filters = _git(directory, "config", "--null", "--name-only", "--get-regexp", r"^filter\.") or ""
    off = [f"{key}=" for key in filters.split("\0") if key.endswith((".clean", ".process"))]
    off += [f"{key}=false" for key in filters.split("\0") if key.endswith(".required")]
    changes = _git(
        directory,
        *itertools.chain.from_iterable(("-c", setting) for setting in off),
        *("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"),
    )
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(directory: Path | None, *arguments: str) -> str | None:
    """What git says, or None; it reads only, asks nobody, and starts nothing."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ceiling = os.environ.get("GIT_CEILING_DIRECTORIES")
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    safe = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    try:
        done = subprocess.run(
            ["git", *safe, *arguments],  # noqa: S607
            cwd=directory,
            env=own | quiet | ({} if ceiling is None else {"GIT_CEILING_DIRECTORIES": ceiling}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # `config` says 1 for "no such key".
    return done.stdout.strip("\n") if not done.returncode else None
