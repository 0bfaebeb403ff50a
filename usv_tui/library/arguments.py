"""What is wrong with an argument, in one line, before anything is timed.

Wrong kinds are TypeErrors and wrong values ValueErrors, as programs written for usv expect; both
are `UsageError`s of this package.
"""

import math
from collections.abc import Mapping
from typing import Any

from usv_tui import plain
from usv_tui.errors import UsageError


class BadValue(UsageError, ValueError):
    """A wrong argument, also for programs that catch usv's ValueError."""


class BadKind(UsageError, TypeError):
    """An argument of a wrong kind, also for programs that catch a TypeError."""


def callables(fns: object) -> None:
    """Names with what is to be timed.

    Raises:
        BadKind: something else.
    """
    if not isinstance(fns, Mapping):
        raise BadKind(f"fns is a {_kind(fns)}", "give a dict: {name: callable}")
    for name, fn in fns.items():
        if not callable(fn):
            what = f"fns[{plain.value(name)}]" if name else "fn"
            raise BadKind(f"{what} is {plain.value(fn)}", "give a function of no arguments")


def whole(name: str, value: Any, least: int, wanted: str = "") -> int:
    """A whole number, or text or a float that means one.

    Raises:
        BadKind: no number.
        BadValue: too small.
    """
    return int(_number(name, value, least, wanted or f"a whole number from {least}"))


def seconds(name: str, value: Any) -> None:
    """None, or a finite number of at least 0.

    Raises:
        BadKind: no number.
        BadValue: negative or not finite.
    """
    if value is not None:
        _number(name, value, 0, "a number of seconds from 0")


def work(name: str, value: object) -> None:
    """None, or numbers from 0 by name.

    Raises:
        BadKind: something else.
        BadValue: negative or not finite.
    """
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise BadKind(f"{name} is a {_kind(value)}", "give a dict: {name: number of one call}")
    for row, amount in value.items():
        if amount is not None:
            _number(
                f"{name} of {plain.name(str(row))}" if row else name, amount, 0, "a number from 0"
            )


def results(name: str, value: object) -> None:
    """Results by name.

    Raises:
        BadKind: something else.
    """
    if not isinstance(value, Mapping):
        raise BadKind(f"{name} is a {_kind(value)}", "give a dict: {name: measurement}")


def text(name: str, value: object, wanted: str) -> None:
    """None, a text or a path.

    Raises:
        BadKind: something else.
    """
    if value is not None and not (isinstance(value, str) or hasattr(value, "__fspath__")):
        raise BadKind(f"{name} is {plain.value(value)}", wanted)


def _number(name: str, value: Any, least: float, wanted: str) -> float:
    try:
        number = float(value)
    except TypeError:
        raise BadKind(f"{name} is {plain.value(value)}", f"give {wanted}") from None
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < least:
        raise BadValue(f"{name}={plain.value(value)}", f"give {wanted}")
    return number


def _kind(value: object) -> str:
    return type(value).__name__
