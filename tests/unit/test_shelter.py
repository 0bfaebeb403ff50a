import os
import signal
import threading

import pytest

from usv_tui import shelter
from usv_tui.shelter import SuddenExit, sheltered


@pytest.fixture
def told(monkeypatch):
    """What was told; the shelter is around the test, and nothing real is behind it."""
    calls = []
    for module, name in ((os, "_exit"), (os, "closerange"), (os, "kill")):
        monkeypatch.setattr(module, name, lambda *given, name=name: calls.append((name, *given)))
    monkeypatch.setattr(shelter, "_open_now", lambda: {3, 5, 9, 601})
    told = []
    with sheltered(told.append):
        yield told, calls


def in_a_thread(name, deed):
    """The error that a deed raised in a thread of this name, if any."""
    found = []

    def run():
        try:
            deed()
        except SuddenExit as error:
            found.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return found


def test_the_measuring_thread_cannot_leave_or_stop_the_process(told):
    """Each call is a failure of its row, with the way to have it all the same."""
    for deed in (
        lambda: os._exit(0),
        lambda: os.kill(os.getpid(), signal.SIGSTOP),
        lambda: os.kill(0, signal.SIGTSTP),
        lambda: signal.raise_signal(signal.SIGSTOP),
    ):
        with pytest.raises(SuddenExit, match="--isolate lets it"):
            deed()
    assert told == ([], [])


def test_a_thread_of_the_users_is_told_and_one_of_ours_obeyed(told):
    """The first ends alone; the program's own threads leave it when they must."""
    words, calls = told

    assert in_a_thread("Thread-7", lambda: os._exit(0))
    assert words == ["called os._exit(0)"]
    assert not in_a_thread("usv-commands", lambda: os._exit(3))
    assert calls == [("_exit", 3)]


def test_closing_a_range_spares_what_the_file_found_open(told):
    """What the benchmark opened itself is closed, up to where our own descriptors begin."""
    _, calls = told

    os.closerange(3, 10_000)
    os.closerange(6, 8)

    ranges = [(low, high) for _, low, high in calls if low < high]
    assert ranges == [(4, 5), (6, 9), (10, 600), (6, 8)]


def test_other_signals_and_processes_are_the_users(told):
    """A stopped child, a TERM to itself: nothing of ours."""
    os.kill(1, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGTERM)

    assert [given for _, *given in told[1]] == [[1, signal.SIGSTOP], [os.getpid(), signal.SIGTERM]]


def test_afterwards_all_is_as_it_was(monkeypatch):
    """The functions are those of before."""
    before = (os._exit, os.closerange, os.kill, signal.raise_signal)
    with sheltered(print):
        assert os._exit is not before[0]
    assert (os._exit, os.closerange, os.kill, signal.raise_signal) == before
