"""A torch that lacks one of the functions we use: measured all the same, or one clear line."""

import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import usv_tui
from tests.fakes.fake_cuda import FakeCuda, FakeTorch
from usv_tui.engine.worker import work
from usv_tui.gate import Gate
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import BenchError, Fault, Noted, Samples
from usv_tui.report.wording.notices import sentence
from usv_tui.timers.abilities import ESSENTIAL

FILE = """
import torch
BENCHMARKS = {
    "short": lambda: torch.kernel(20_000),
    "long": lambda: torch.kernel(300_000),
}
"""
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("engine", "timers", "diagnosis", "library", "telemetry", "vendor")
    for path in (Path(usv_tui.__file__).parent / folder).glob("*.py")
)


def names_of(owner: object, pattern: str) -> list[str]:
    """Attributes of a fake that our code names."""
    written = set(re.findall(pattern, SOURCE))
    return sorted(name for name in written if hasattr(owner, name))


TORCH = FakeTorch()
CUDA_NAMES = names_of(TORCH.cuda, r"\b_?(?:cuda|gpu)\b(?=\W{1,3}(\w+))")
TORCH_NAMES = names_of(TORCH, r"\b_?torch\b(?=\W{1,3}(\w+))")


def without(owner: Any, name: str, how: Callable[[], object] | None = None) -> None:
    """Take an attribute away from one object, or let it raise."""

    class Poor(type(owner)):  # type: ignore[misc]
        def __getattribute__(self, wanted: str) -> Any:
            if wanted == name:
                if how is not None:
                    return lambda *_a, **_k: how()
                raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")
            return super().__getattribute__(wanted)

    owner.__class__ = Poor


def run(torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list:
    """A whole run of two rows on a torch, in virtual time; its records."""
    path = tmp_path / "bench.py"
    path.write_text(FILE, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "torch", torch)
    records: list = []
    config = RunConfig(iters=20, warmup_max_s=0.05, max_time_s=5.0, **options)
    request = WorkRequest(path=str(path), device="cuda:0", config=config)
    work(request, records.append, deque(), threading.Event(), Gate(torch.time), torch.time)
    return records


def is_measured(records: list) -> bool:
    """Both rows have their samples, and nothing failed."""
    benches = {b for r in records if isinstance(r, Samples) for b in r.bench}
    return benches == {0, 1} and not any(isinstance(r, BenchError | Fault) for r in records)


def test_the_names_are_those_that_matter() -> None:
    """The functions that are taken away include all that are declared optional or essential."""
    from usv_tui.timers.abilities import OPTIONAL

    assert {*OPTIONAL, *ESSENTIAL} <= set(CUDA_NAMES)
    assert {"is_grad_enabled", "version", "autograd", "is_anomaly_enabled"} <= set(TORCH_NAMES)


@pytest.mark.parametrize("name", CUDA_NAMES)
def test_a_missing_function_of_cuda_is_survived_or_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an optional function the rows are measured; an essential one is named in a line."""
    torch = FakeTorch()
    without(torch.cuda, name)

    records = run(torch, tmp_path, monkeypatch, graph=True)

    faults = [r for r in records if isinstance(r, Fault)]
    if name in ESSENTIAL or name == "is_available":
        assert len(faults) == 1
        assert not faults[0].traceback
        assert name in faults[0].message or name == "is_available"
        assert faults[0].hint
        return
    assert is_measured(records), [r for r in records if isinstance(r, BenchError | Fault)]


@pytest.mark.parametrize("name", [n for n in CUDA_NAMES if n not in ESSENTIAL])
def test_a_function_that_refuses_is_like_one_that_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NotImplementedError where a function stands for nothing ends no run and fails no row."""

    def refuse() -> None:
        raise NotImplementedError(f"{name} is not implemented for this backend")

    torch = FakeTorch()
    without(torch.cuda, name, refuse)

    records = run(torch, tmp_path, monkeypatch)

    if name != "is_available":
        assert is_measured(records), [r for r in records if isinstance(r, BenchError | Fault)]


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_a_missing_function_of_torch_is_survived(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not torch.cuda's own may be missing, too; without `cuda` there is no device."""
    torch = FakeTorch()
    without(torch, name)

    records = run(torch, tmp_path, monkeypatch)

    if name in ("cuda", "kernel"):
        return
    assert is_measured(records), [r for r in records if isinstance(r, BenchError | Fault)]


def test_what_is_missing_is_said_once_with_its_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for the run names the functions and what is lost without them."""
    torch = FakeTorch(has_sleep=False)
    without(torch.cuda, "get_sync_debug_mode")

    notices = [r.notice for r in run(torch, tmp_path, monkeypatch) if isinstance(r, Noted)]

    told = [sentence(n) for n in notices if n.code == "abilities missing"]
    assert len(told) == 1
    assert "_sleep" in told[0]
    assert "get_sync_debug_mode" in told[0]
    assert "host" in told[0]


def test_a_torch_with_everything_is_not_talked_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is missing, nothing is said."""
    records = run(FakeTorch(), tmp_path, monkeypatch)

    assert is_measured(records)
    assert not [r for r in records if isinstance(r, Noted) and r.notice.code == "abilities missing"]


def test_the_fake_is_the_class_that_is_looked_at() -> None:
    """The names come from the fake's own class, so that a renamed function is noticed."""
    assert all(hasattr(FakeCuda, n) or n == "_sleep" for n in CUDA_NAMES if n in ESSENTIAL)
