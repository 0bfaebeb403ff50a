import errno
import os
import random
import re
import struct
import tracemalloc
import zlib

import msgspec
import pytest

from tests.fakes import session as fake
from usv_tui.errors import UsageError
from usv_tui.records import SCHEMA, End, Noted, Output
from usv_tui.session import journal as journal_module
from usv_tui.session.journal import MAGIC, Journal, read, sessions_dir
from usv_tui.session.store import Store


@pytest.fixture
def path(tmp_path):
    """Where the session goes."""
    return tmp_path / "deep" / "er" / "run.usv"


def write(path, *batches):
    """A closed session of so many flushes."""
    journal = Journal(path)
    for batch in batches:
        journal.add(batch)
        journal.flush()
    journal.close()
    return journal


def frame(payload):
    """One frame as it stands in the file."""
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


# -- writing


def test_a_session_reads_as_it_was_written(path):
    """What was added comes back in order, and missing folders were made."""
    records = [*fake.two_rows(), End(9, "quit")]

    write(path, records[:2], records[2:])

    assert list(read(path)) == records


def test_what_is_not_flushed_yet_is_written_by_close(path):
    """Closing flushes, and closing twice is harmless."""
    journal = Journal(path)
    journal.add(fake.two_rows())

    journal.close()
    journal.close()

    assert list(read(path)) == fake.two_rows()
    assert journal.failure == ""


def test_after_each_flush_the_file_is_whole(path):
    """A process that dies between two flushes loses only what came after the first."""
    journal = Journal(path)
    journal.add(fake.two_rows())
    journal.flush()
    journal.add([End(9, "quit")])

    assert list(read(path)) == fake.two_rows()
    journal.close()


def test_nothing_new_writes_nothing(path):
    """A flush without records leaves the file as it is."""
    journal = Journal(path)
    before = path.stat().st_size

    journal.flush()

    assert path.stat().st_size == before == journal.bytes_written == len(MAGIC)
    journal.close()


def test_an_existing_file_is_never_overwritten(path):
    """A second session at the same path is refused, and the first stays as it was."""
    write(path, fake.two_rows())
    before = path.read_bytes()

    with pytest.raises(UsageError, match=r"exists already .*never overwritten"):
        Journal(path)

    assert path.read_bytes() == before


def test_an_unwritable_path_is_one_clear_line(tmp_path):
    """A path below a file cannot be made: the line names it and the way out."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"cannot write .*run.usv.*--save") as caught:
        Journal(tmp_path / "file" / "run.usv")

    assert int(caught.value.exit_code) == 2


def test_a_sample_costs_about_ten_bytes(path):
    """Noisy windows of two rows, in blocks of 20 rounds and flushes of 50 blocks: < 12 B each."""
    noise = random.Random(1)
    blocks, t = [], 0
    for i in range(50):
        pairs = [(j % 2, round(noise.gauss(1e6, 2e4))) for j in range(40)]
        blocks.append(fake.block(pairs, t, round_=20 * i, size=2))
        t += 40_100_000

    journal = write(path, blocks)

    assert journal.bytes_written / 2000 < 12


# -- a disk that is full


class FullDisk:
    """An `os.write` that takes so many bytes and then has no space left."""

    def __init__(self, room):
        self.room = room
        self.calls = 0

    def __call__(self, fd, data):
        self.calls += 1
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        return REAL_WRITE(fd, taken)


REAL_WRITE = os.write


@pytest.mark.parametrize("room", [0, 5, len(MAGIC), len(MAGIC) + 3, len(MAGIC) + 60])
def test_a_full_disk_ends_the_journal_and_not_the_run(path, monkeypatch, room):
    """Whenever the space runs out: no exception, one line that says so, and a readable prefix."""
    disk = FullDisk(room)
    monkeypatch.setattr(journal_module.os, "write", disk)

    journal = write(path, fake.two_rows(), [End(9, "quit")])

    assert journal.failure == f"the session is no longer saved to {path}: the disk is full"
    assert list(read(path)) == []


def test_after_a_failure_nothing_more_is_written(path, monkeypatch):
    """When space returns, no frame is put behind a torn one, where no reader would find it."""
    disk = FullDisk(len(MAGIC) + 10)
    monkeypatch.setattr(journal_module.os, "write", disk)
    journal = Journal(path)
    journal.add(fake.two_rows())
    journal.flush()
    disk.room = 1 << 20
    size = path.stat().st_size

    journal.add([End(9, "quit")])
    journal.close()

    assert path.stat().st_size == size


def test_another_write_error_is_told_in_the_systems_words(path, monkeypatch):
    """A disk that breaks is not called a full one."""

    def broken(fd, data):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(journal_module.os, "write", broken)

    journal = write(path, fake.two_rows())

    assert journal.failure.endswith(os.strerror(errno.EIO))


def test_a_write_in_pieces_is_finished(path, monkeypatch):
    """A kernel that takes a few bytes at a time gets the whole frame all the same."""
    monkeypatch.setattr(
        journal_module.os, "write", lambda fd, data: REAL_WRITE(fd, bytes(data)[:7])
    )

    write(path, fake.two_rows())

    assert list(read(path)) == fake.two_rows()


@pytest.mark.parametrize(
    "record",
    [
        Output(1, "half a character: \udc80"),
        fake.row(0, "big", params={"n": 2**70}),
        fake.note("odd", value=object()),
    ],
    ids=["lone surrogate", "large integer", "any object"],
)
def test_what_cannot_be_encoded_is_written_as_text(path, record):
    """A user's odd string, number or object neither stops the run nor costs other records."""
    journal = write(path, [fake.start()], [record, End(9, "quit")])

    found = list(read(path))

    assert journal.failure == ""
    assert [type(r) for r in found] == [type(fake.start()), type(record), End]


# -- reading


def test_a_session_cut_at_any_byte_reads_a_prefix(path):
    """Every one of the file's bytes as the last one: the whole flushes before it, nothing else."""
    batches = [fake.two_rows(2), [fake.phase("ended", detail="quit")], [End(9, "quit")]]
    sizes = [len(MAGIC)]
    journal = Journal(path)
    for batch in batches:
        journal.add(batch)
        journal.flush()
        sizes.append(journal.bytes_written)
    journal.close()
    content = path.read_bytes()

    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        whole = sum(size <= cut for size in sizes[1:])
        assert list(read(path)) == [r for batch in batches[:whole] for r in batch]


def damage(found):
    """The reasons that the reader gives for what it left out."""
    notices = [r.notice for r in found if isinstance(r, Noted)]
    return [n.evidence["reason"] for n in notices if n.code == "damaged session"]


def test_damage_costs_one_flush_and_is_told_in_its_place(path):
    """One flipped bit in the middle of three flushes: the others read, a notice stands between."""
    write(path, fake.two_rows(), [fake.phase("paused")], [End(9, "quit")])
    sizes = [len(frame_) for frame_ in frames(path)]
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + sizes[0] + 12] ^= 1
    path.write_bytes(content)

    found = list(read(path))

    assert [*found[:-2], found[-1]] == [*fake.two_rows(), End(9, "quit")]
    assert damage(found) == ["its checksum is wrong"]
    assert found[-2].notice.evidence["bytes"] == sizes[1]


def joined(found):
    """How many bytes the reader says that it left to another session."""
    notices = [r.notice for r in found if isinstance(r, Noted)]
    return [n.evidence["bytes"] for n in notices if n.code == "joined sessions"]


@pytest.mark.parametrize("cut", [0, 7])
def test_of_joined_sessions_the_first_is_read_and_the_rest_told(path, tmp_path, cut):
    """Files put one behind the other are not one session twice as long; a cut first one neither."""
    write(path, fake.two_rows(), [End(9, "quit")])
    alone = path.read_bytes()
    both = tmp_path / "both.usv"
    both.write_bytes(alone[: len(alone) - cut] + alone)

    found = list(read(both))

    begun = fake.two_rows()
    kept = [r for r in found if not isinstance(r, Noted)]
    assert kept == ([*begun, End(9, "quit")] if cut == 0 else begun)
    assert joined(found) == [len(alone) - (len(MAGIC) if cut else 0)]


@pytest.mark.parametrize("how", ["joined", "flipped"])
def test_a_session_that_is_not_whole_is_not_complete(path, how):
    """Whatever its last record says: something is missing, or does not belong to it."""
    write(path, fake.two_rows(), [fake.phase("paused")], [End(9, "quit")])
    content = bytearray(path.read_bytes())
    if how == "joined":
        content += bytes(content)
    else:
        content[len(MAGIC) + len(frames(path)[0]) + 12] ^= 1
    path.write_bytes(content)
    store = Store()
    store.apply(read(path))

    assert not store.course.is_whole
    assert not store.snapshot(9).complete
    assert [told.level for told in store.snapshot(9).told] == ["error"]


def frames(path):
    """The frames of an undamaged file."""
    data, found = path.read_bytes()[len(MAGIC) :], []
    while data:
        end = 8 + struct.unpack("<I", data[:4])[0]
        found.append(data[:end])
        data = data[end:]
    return found


def columns(**changed):
    """A block of samples with some columns replaced, as MessagePack."""
    block = msgspec.structs.replace(fake.block([(0, 5), (1, 6)]), **changed)
    return msgspec.msgpack.encode([block])


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"no deflate", "does not unpack"),
        (zlib.compress(b"\xc1"), "does not know such records"),
        (zlib.compress(bytes(1 << 27), 1), "does not unpack to 32 MiB"),
        (zlib.compress(b"\x91" * 100_000), "nested too deeply|does not know"),
        (zlib.compress(columns(window_ns=[1])), "unequal length"),
        (zlib.compress(columns(inner=[1, 2, 3])), "unequal length"),
        (zlib.compress(columns(host_ns=[1])), "unequal length"),
        (zlib.compress(columns(window_ns=[1, 2**63])), "does not know such records"),
        (zlib.compress(columns(t0_ns=2**63)), "does not know such records"),
        (zlib.compress(columns(inner=[0])), "does not know such records"),
        (zlib.compress(columns(size=0)), "does not know such records"),
        (zlib.compress(columns(bench=[-1, 0])), "does not know such records"),
        (zlib.compress(msgspec.msgpack.encode([["hologram", 1, 2]])), "does not know such records"),
        (zlib.compress(msgspec.msgpack.encode({"not": "a list"})), "does not know such records"),
        (zlib.compress(b"\x90")[:-1], "does not unpack"),
        (zlib.compress(b"\x90") + b"more", "does not unpack"),
    ],
)
def test_a_frame_whose_checksum_holds_and_whose_content_does_not_is_told(path, payload, why):
    """Neither a traceback nor silence, and what stands before and behind it reads."""
    write(path, fake.two_rows())
    with path.open("ab") as out:
        out.write(frame(payload))
        out.write(frame(zlib.compress(msgspec.msgpack.encode([End(9, "quit")]), 1)))

    found = list(read(path))

    assert [r for r in found if not isinstance(r, Noted)] == [*fake.two_rows(), End(9, "quit")]
    assert len(damage(found)) == 1
    assert re.search(why, damage(found)[0])


def test_a_bomb_is_not_unpacked(path):
    """A frame of kilobytes that would become a gigabyte takes no such memory."""
    write(path, fake.two_rows())
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)) + packer.flush()
    with path.open("ab") as out:
        out.write(frame(bomb))

    tracemalloc.start()
    found = list(read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert damage(found)
    assert peak < 200 << 20


@pytest.mark.parametrize(
    "record",
    [
        fake.row(0, "a", group=1),
        fake.row(0, name=7),
        fake.row(0, "a", parent="x"),
        fake.note("odd", value={"deep": [[[[object()]]]]}),
        fake.note("odd", value=10**5000),
        msgspec.structs.replace(fake.start(), at_ns=2**63),
    ],
    ids=["group", "name", "parent", "nested object", "huge integer", "time"],
)
def test_what_is_written_can_be_read(path, record):
    """A record that no reader would take is replaced by one that says so; the others stay."""
    write(path, [*fake.two_rows(), record, End(9, "quit")])

    found = list(read(path))

    assert found[: len(fake.two_rows())] == fake.two_rows()
    assert found[-1] == End(9, "quit")
    assert len(found) == len(fake.two_rows()) + 2


def test_a_very_long_flush_becomes_several_frames(path):
    """What a reader would take for a bomb is never written, and nothing is lost."""
    lines = [Output(i, random.Random(i).randbytes(300).hex()) for i in range(20_000)]

    write(path, lines)

    assert list(read(path)) == lines
    assert len(frames(path)) > 1


def test_an_absurd_length_ends_the_reading(path):
    """A frame that claims more than a frame can hold is not waited for or allocated."""
    write(path, fake.two_rows())
    with path.open("ab") as out:
        out.write(struct.pack("<II", (1 << 32) - 1, 0) + b"x" * 100)

    assert list(read(path)) == fake.two_rows()


@pytest.mark.parametrize("content", [b"print('hello')\n", b"USVJ\x02\r\n\x1a", b"\x00" * 64])
def test_something_else_is_not_a_session(path, content):
    """A file of another kind is named as such."""
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"run.usv is not a usv-tui session"):
        list(read(path))


def test_a_missing_file_and_a_directory_are_one_clear_line(tmp_path):
    """What cannot be opened is told with the system's reason."""
    with pytest.raises(UsageError, match=r"cannot read .*gone.usv: No such file"):
        list(read(tmp_path / "gone.usv"))
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        list(read(tmp_path))


def test_a_newer_schema_is_refused_with_the_way_out(path):
    """A session of a later version is not read half: the line names both schemas."""
    newer = msgspec.structs.replace(fake.start(), schema=SCHEMA + 1)
    write(path, [newer])

    with pytest.raises(
        UsageError,
        match=rf"schema {SCHEMA + 1}, by a newer usv-tui .*up to {SCHEMA}: update usv-tui",
    ):
        list(read(path))


def test_a_later_versions_extra_fields_are_ignored(path):
    """A record with one field more still reads: fields are only ever added at the end."""
    write(path, [fake.start()])
    longer = [*msgspec.to_builtins(End(9, "quit")), "something new"]
    with path.open("ab") as out:
        out.write(frame(zlib.compress(msgspec.msgpack.encode([longer]))))

    assert list(read(path)) == [fake.start(), End(9, "quit")]


def test_sessions_live_in_the_users_state_directory(monkeypatch, tmp_path):
    """The default place follows XDG_STATE_HOME."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert sessions_dir() == tmp_path / "usv-tui" / "sessions"


@pytest.mark.parametrize("how", [journal_module.check, lambda path: list(read(path))])
def test_a_pipe_is_refused_at_once(tmp_path, how):
    """Nobody may ever write into it: it is not waited for."""
    os.mkfifo(tmp_path / "s.usv")

    with pytest.raises(UsageError, match="no plain file"):
        how(tmp_path / "s.usv")


def test_it_is_known_whether_a_session_is_being_written(tmp_path):
    """From its first byte until it is closed, also while a forked child has its descriptor."""
    path = tmp_path / "s.usv"
    made = Journal(path)
    assert journal_module.is_written(path)
    child = os.dup(made._fd)  # as a fork would

    made.close()

    assert not journal_module.is_written(path)
    os.close(child)
    assert not journal_module.is_written(tmp_path / "none.usv")
