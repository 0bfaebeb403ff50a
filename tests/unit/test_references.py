import time
import types

import numpy as np
import pytest

from usv_tui.engine.references import References


@pytest.mark.parametrize(
    ("owner", "name"), [(time, "perf_counter_ns"), (time, "monotonic"), (np, "allclose")]
)
def test_what_was_replaced_is_named_and_put_back(owner, name, monkeypatch):
    """A clock or a comparison of the file's own is seen, and the original is in its place again."""
    original = getattr(owner, name)
    references = References()
    assert references.mend() == []

    monkeypatch.setattr(owner, name, lambda *_: 0)

    assert references.mend() == [f"{owner.__name__}.{name}"]
    assert getattr(owner, name) is original
    assert references.mend() == []


def test_the_events_of_a_device_are_watched(monkeypatch):
    """Synchronize and the event's time are noted when torch is there, however late."""
    event = type("Event", (), {"elapsed_time": lambda self, other: 1.0})
    cuda = types.SimpleNamespace(synchronize=lambda: None, Event=event)
    references = References()
    monkeypatch.setitem(__import__("sys").modules, "torch", types.SimpleNamespace(cuda=cuda))
    references = References()

    event.elapsed_time = lambda self, other: 0.001
    cuda.synchronize = lambda: 1

    assert references.mend() == ["torch.cuda.synchronize", "torch.cuda.Event.elapsed_time"]


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

    assert references.mend() == []
