import builtins
import gc
import sys
import time
import types

import numpy as np
import pytest

from usv_tui.engine import audit
from usv_tui.engine.references import References, Replaced
from usv_tui.suite import values

NOTHING = Replaced([], [], [])


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (time, "perf_counter_ns"),
        (time, "monotonic"),
        (np, "allclose"),
        (builtins, "len"),
        (gc, "collect"),
    ],
)
def test_what_was_replaced_is_named_and_put_back(owner, name, monkeypatch):
    """A clock or a comparison of the file's own is seen, and the original is in its place again."""
    original = getattr(owner, name)
    references = References()
    assert references.mend() == NOTHING

    monkeypatch.setattr(owner, name, lambda *_: 0)

    found = references.mend()
    assert [*found.clocks, *found.others] == [f"{owner.__name__}.{name}"]
    assert getattr(owner, name) is original
    assert references.mend() == NOTHING


def test_our_own_functions_and_figures_are_watched(monkeypatch):
    """A check that always agrees, a limit that nothing exceeds, a body that is another's."""
    references = References()
    original, code = audit.difference, values.equal.__code__
    monkeypatch.setattr(audit, "difference", lambda *_: "")
    monkeypatch.setattr(audit, "_SIGHTINGS", 10**9)
    monkeypatch.setattr(audit.Auditor, "is_due", lambda *_: False)
    values.equal.__code__ = (lambda a, b, depth=0: True).__code__

    found = references.mend().others

    assert {name.removeprefix("usv_tui.") for name in found} >= {
        "engine.audit.difference",
        "engine.audit._SIGHTINGS",
        "engine.audit.Auditor.is_due",
        "suite.values.equal",
    }
    assert audit.difference is original
    assert values.equal.__code__ is code


def test_hooks_of_the_interpreter_are_told_and_taken_off():
    """A profile function or a collection's callback would run beside each call."""
    references = References()

    def hook(*_):
        return None

    sys.setprofile(hook)
    gc.callbacks.append(hook)
    found = references.mend()

    assert found.watchers == ["sys.setprofile", "gc.callbacks"]
    assert sys.getprofile() is None
    assert hook not in gc.callbacks
    assert references.mend() == NOTHING


def test_the_events_of_a_device_are_watched(monkeypatch):
    """Synchronize and the event's time are noted when torch is there, however late."""
    event = type("Event", (), {"elapsed_time": lambda self, other: 1.0})
    cuda = types.SimpleNamespace(synchronize=lambda: None, Event=event)
    references = References()
    monkeypatch.setitem(__import__("sys").modules, "torch", types.SimpleNamespace(cuda=cuda))
    references = References()

    event.elapsed_time = lambda self, other: 0.001
    cuda.synchronize = lambda: 1

    assert references.mend().clocks == ["torch.cuda.synchronize", "torch.cuda.Event.elapsed_time"]


def test_a_library_may_bring_its_own(monkeypatch):
    """What a package of another accelerator puts in the place of torch's is let be."""
    package = types.ModuleType("other_backend")
    package.__file__ = "/lib/site-packages/other_backend/__init__.py"
    monkeypatch.setitem(__import__("sys").modules, "other_backend", package)
    references = References()

    def clock():
        return 0

    clock.__module__ = "other_backend"
    monkeypatch.setattr(time, "monotonic", clock)

    assert references.mend() == NOTHING
