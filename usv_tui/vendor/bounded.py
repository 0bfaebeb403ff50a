"""A question to a library that may hang: asked in a thread of its own, waited for so long."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NoAnswer(Exception):
    """The time is over and the call has not come back; its thread is left behind."""


def within(limit_s: float, question: Callable[[], T], name: str = "usv-ask") -> T:
    """The answer, or whatever the question raises.

    The thread is a daemon, so that a call that hangs keeps neither the caller nor the process.

    Raises:
        NoAnswer: there was none in time.
    """
    answers: list[T] = []
    failures: list[BaseException] = []

    def put() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # noqa: BLE001  raised again below, in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=put, name=name, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failures:
        raise failures[0]
    if not answers:
        raise NoAnswer(f"no answer within {limit_s:g} s")
    return answers[0]
