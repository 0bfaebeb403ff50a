import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import records
from usv_tui.errors import UsageError
from usv_tui.records import Noted, Start
from usv_tui.session.journal import MAGIC, Journal, read

# A start that stands for a newer schema is refused, and a second one ends it: see the unit tests.
READABLE = records().filter(lambda r: not isinstance(r, Start))
FLUSHES = st.lists(st.lists(READABLE, min_size=1, max_size=3), max_size=4)


def write(path, flushes):
    """Write a session; the file's size after each flush."""
    journal = Journal(path)
    sizes = [path.stat().st_size]
    for batch in flushes:
        journal.add(batch)
        journal.flush()
        sizes.append(path.stat().st_size)
    journal.close()
    return sizes


@given(FLUSHES, st.data())
def test_a_session_cut_at_any_byte_reads_up_to_its_last_whole_flush(flushes, data):
    """Whatever byte a crash cuts at, exactly the flushes that were whole come back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.usv"
        sizes = write(path, flushes)
        cut = data.draw(st.integers(0, sizes[-1]))
        path.write_bytes(path.read_bytes()[:cut])

        found = list(read(path))

    whole = sum(size <= cut for size in sizes[1:])
    assert found == [record for batch in flushes[:whole] for record in batch]


@given(FLUSHES.filter(bool), st.data())
def test_a_damaged_byte_costs_its_flush_alone(flushes, data):
    """A flipped bit loses the flush it is in, and a notice stands there or nothing comes behind.

    No record that was not written appears.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bad.usv"
        sizes = write(path, flushes)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(len(MAGIC), sizes[-1] - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)

        found = list(read(path))

    hit = sum(size <= at for size in sizes[1:])
    kept = [*flushes[:hit], *flushes[hit + 1 :]]
    told = [r for r in found if is_damage(r)]
    assert [r for r in found if not is_damage(r)] == [record for batch in kept for record in batch]
    assert len(told) <= 1
    assert told or not flushes[hit + 1 :]


@given(FLUSHES, st.integers(1, 5000))
def test_a_tail_of_zeros_is_a_cut(flushes, zeros):
    """What a file system leaves after a power cut reads as if the file ended there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zeros.usv"
        write(path, flushes)
        path.write_bytes(path.read_bytes() + bytes(zeros))

        found = list(read(path))

    assert found == [record for batch in flushes for record in batch]


def is_damage(record):
    """A notice of the reader's own."""
    return isinstance(record, Noted) and record.notice.code == "damaged session"


@given(st.binary(max_size=200))
def test_bytes_of_something_else_are_refused_or_empty(content):
    """Reading any file either yields nothing or says in one line that it is no session."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "other.usv"
        path.write_bytes(content)
        found, complaint = [], ""
        try:
            found = list(read(path))
        except UsageError as error:
            complaint = str(error)

    assert found == []
    assert "\n" not in complaint
