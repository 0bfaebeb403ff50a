"""Hypothesis strategies for everything that a session may record, made from the types themselves.

A field that is added to a record or a noun is covered at once.
"""

import enum
import types
import typing
from typing import Any

import msgspec
from hypothesis import strategies as st

from usv_tui.model import Flag
from usv_tui.records import AnyRecord, ProbeClock, Samples

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(max_size=12)
PLAIN = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: INTEGERS,
    float: FLOATS,
    str: TEXTS,
    bytes: st.binary(max_size=12),
    bool: st.booleans(),
    type(None): st.none(),
    Any: PLAIN,
}


def of_type(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a type as it stands in a struct's annotations."""
    if wanted in _LEAVES:
        return _LEAVES[wanted]
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Annotated:
        bounds = arguments[1]
        return st.integers(bounds.ge, bounds.le)
    if origin is list:
        return st.lists(of_type(arguments[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([of_type(part) for part in arguments])
    if issubclass(wanted, enum.Enum):
        return st.sampled_from(list(wanted))
    return of_struct(wanted)


def of_struct(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Instances of a struct with every field drawn."""
    fields = msgspec.structs.fields(struct)
    return st.builds(struct, **{field.name: of_type(field.type) for field in fields})


@st.composite
def sample_blocks(draw: st.DrawFn) -> Samples:
    """Blocks as a timer makes them: columns of one length, times ascending, rows 0 to 3."""
    n = draw(st.integers(1, 12))
    size = draw(st.integers(1, 5))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=n, max_size=n))

    flags = st.integers(0, int(Flag.STALL) * 2 - 1)
    return Samples(
        round=draw(st.integers(0, 2**31 - 20)),
        size=size,
        t0_ns=draw(st.integers(0, 2**53)),
        bench=column(st.integers(0, 3)),
        dt_ns=sorted(column(st.integers(0, 10**9))),
        window_ns=column(st.integers(-5, 10**9)),
        inner=[draw(st.integers(1, 1000))] if draw(st.booleans()) else column(st.integers(1, 9)),
        host_ns=column(st.integers(0, 10**9)) if draw(st.booleans()) else [],
        flags=column(flags) if draw(st.booleans()) else [],
        flag=draw(flags),
    )


@st.composite
def probe_blocks(draw: st.DrawFn) -> ProbeClock:
    """In-stream clocks: both columns of one length."""
    points = draw(st.lists(st.tuples(st.integers(0, 2**53), FLOATS), max_size=5))
    return ProbeClock(draw(st.integers(0, 2**31)), [t for t, _ in points], [f for _, f in points])


def records() -> st.SearchStrategy[Any]:
    """Any record of the closed set, as a file may hold it."""
    columns = (Samples, ProbeClock)
    others = [of_struct(kind) for kind in typing.get_args(AnyRecord) if kind not in columns]
    return st.one_of(sample_blocks(), probe_blocks(), *others)
