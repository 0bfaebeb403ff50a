import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import of_struct, records, sample_blocks
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import AnyRecord, Command, Samples, decode, encode

KINDS = typing.get_args(AnyRecord)


@pytest.mark.parametrize("kind", [k for k in KINDS if k is not Samples], ids=lambda k: k.__name__)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    """Decoding what was encoded gives the same record of the same kind, whatever its fields."""
    record = data.draw(of_struct(kind))

    back = decode(encode(record))

    assert back == record
    assert type(back) is kind


@given(sample_blocks())
def test_a_block_of_samples_comes_back_as_it_was(block):
    """Samples survive encoding to the nanosecond, flags included."""
    back = decode(encode(block))

    assert back == block
    assert list(back.samples()) == list(block.samples())


@given(sample_blocks())
def test_slots_are_numbered_within_their_rounds(block):
    """Slot i of a block belongs to round `round + i // size`, at position i modulo size."""
    samples = list(block.samples())

    assert [(s.round, s.slot) for s in samples] == [
        (block.round + i // block.size, i % block.size) for i in range(len(block.bench))
    ]
    assert [s.flags for s in samples] == block.all_flags()
    assert [s.inner for s in samples] == block.inners()
    assert [s.host_ns for s in samples] == (block.host_ns or block.window_ns)


@pytest.mark.parametrize("kind", [Command, RunConfig, WorkRequest], ids=lambda k: k.__name__)
@given(data=st.data())
def test_what_is_sent_to_a_worker_arrives_as_it_was(kind, data):
    """Commands and requests cross a process boundary unchanged."""
    sent = data.draw(of_struct(kind))

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=kind) == sent


@given(st.lists(records(), max_size=6))
def test_a_batch_is_told_apart_record_by_record(batch):
    """A list of records of any kinds decodes to the same list: every tag is its own."""
    data = msgspec.msgpack.encode(batch)

    assert msgspec.msgpack.decode(data, type=list[AnyRecord]) == batch
