import io

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes import session as fake
from tests.strategies import of_type, records
from usv_tui.model import Count, Index, Ns
from usv_tui.records import Samples
from usv_tui.report import table
from usv_tui.session import export
from usv_tui.session.store import Store

HEAD = [fake.start(), fake.row(0, "a"), fake.row(1, "b"), fake.row(2, "phase", parent=0)]
HEAD += [fake.phase("measuring")]


@st.composite
def wild_blocks(draw):
    """Blocks of samples at the bounds of what a file may hold: any rows, any times, or none."""
    n = draw(st.integers(0, 6))

    def column(kind):
        return draw(st.lists(of_type(kind), min_size=n, max_size=n))

    return Samples(
        round=draw(of_type(Index)),
        size=draw(of_type(Count)),
        t0_ns=draw(of_type(Ns)),
        bench=draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)),
        dt_ns=column(Ns),
        window_ns=column(Ns),
        inner=[draw(of_type(Count))],
        host_ns=column(Ns) if draw(st.booleans()) else [],
    )


def everything_shown(stream):
    """All that export does with a session."""
    store = Store()
    store.apply(stream)
    store.conclude()
    snapshot = store.snapshot(store.last_ns)
    texts = [table.render(snapshot), table.render(snapshot, markdown=True)]
    for kind in ("json", "csv"):
        out = io.StringIO()
        export.write(kind, store, snapshot, out)
        texts.append(out.getvalue())
    return texts


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(records() | wild_blocks(), max_size=10), st.booleans())
def test_whatever_a_file_may_hold_can_be_shown(stream, has_head):
    """Records in any order, of any rows, with any values: a table, JSON and CSV come out."""
    assert len(everything_shown([*HEAD, *stream] if has_head else stream)) == 4


@pytest.mark.parametrize(
    "value",
    [b"bytes", msgspec.msgpack.Ext(5, b"x"), {1: "a key"}, {b"k": 1}, [float("nan")], 2**64 - 1],
    ids=["bin", "ext", "number as key", "bytes as key", "nan", "64 bits"],
)
def test_any_value_of_an_environment_becomes_json(value):
    """What MessagePack can hold and JSON cannot is exported as text or null."""
    start = msgspec.structs.replace(fake.start(), environment={"odd": value})

    json_text = everything_shown([start, *HEAD[1:]])[2]

    assert "odd" in msgspec.json.decode(json_text)["environment"]
