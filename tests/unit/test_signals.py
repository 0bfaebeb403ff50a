import os
import signal
import subprocess
import sys

import pytest

from usv_tui import signals

HEAD = "import os, signal, sys\nfrom usv_tui import signals\n"


def python(code):
    """Run code with nothing ignored; its stdout."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in signals.ENDING],
    )
    return done.stdout.split()


def test_handlers_come_and_go():
    """Each signal that ends a run is handled for as long as a run lasts."""
    before = [signal.getsignal(n) for n in signals.ENDING]
    watched = signals.Signals()
    with watched.watch():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)

    assert watched.number == signal.SIGTERM
    assert watched.event.is_set()
    assert [signal.getsignal(n) for n in signals.ENDING] == before


def test_a_handler_of_the_users_stays():
    """What somebody sets while a run lasts is there when it is over."""

    def mine(*_):
        return None

    before = signal.getsignal(signal.SIGUSR1)
    try:
        with signals.Signals().watch():
            signal.signal(signal.SIGUSR1, mine)
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_ignored_on_purpose_stays_ignored():
    """`nohup` means what it says; INT and TERM are handled all the same."""
    out = python(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with signals.Signals().watch():\n"
        "    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
        "    print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
    )

    assert out == ["True", "False", "True"]


@pytest.mark.parametrize("number", signals.ENDING, ids=lambda n: n.name)
def test_a_signal_that_comes_at_the_fork_ends_the_child(number):
    """One that arrives before the child has put its handlers back waits, and then kills it."""
    out = python(
        f"number = {int(number)}\n"
        "with signals.Signals().watch() as watched:\n"
        "    os.register_at_fork(after_in_child=lambda: None)\n"
        "    signals._forgotten.insert(0, lambda: os.kill(os.getpid(), number))\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.pause()\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), watched.number)\n"
    )

    assert out == [str(-number), "0"]


def test_a_signal_may_come_while_it_is_waited_for():
    """However often one interrupts the waiting, nobody waits for ever."""
    out = python(
        "import threading, time\n"
        "flags = [signals.Flag()]\n"
        "def handle(*_):\n"
        "    flags[-1].set()\n"
        "    flags.append(signals.Flag())\n"
        "signal.signal(signal.SIGUSR1, handle)\n"
        "def storm():\n"
        "    while True:\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "threading.Thread(target=storm, daemon=True).start()\n"
        "for _ in range(200):\n"
        "    flags[-1].wait(0.001)\n"
        "print(len(flags) > 2)\n"
    )

    assert out == ["True"]
