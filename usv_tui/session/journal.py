"""The session on disk: append-only frames that read up to the last whole one after any accident.

File = magic, then frames. Frame = length (u32), CRC-32 of the payload (u32), payload. Payload =
zlib of a MessagePack array of records, everything since the last flush. The kernel has the bytes
after each flush, so a killed process loses at most one flush interval.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import platformdirs

from usv_tui.errors import UsageError
from usv_tui.records import SCHEMA, AnyRecord, Start, encode_batch

MAGIC = b"USVJ\x01\r\n\x1a"
_FRAME = struct.Struct("<II")
_MAX_FRAME = 1 << 30

_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])


def sessions_dir() -> Path:
    """Where sessions are kept when no path is given: the user's state directory."""
    return Path(platformdirs.user_state_dir("usv-tui", appauthor=False)) / "sessions"


class Journal:
    """Writes one session. A write error (a full disk) ends the journal, never the run."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            UsageError: the path cannot be written, or exists already.
        """
        self.path = path
        self.failure = ""
        """Why nothing is written any more; empty while all is well."""
        self.bytes_written = 0
        self._pending: list[AnyRecord] = []
        if path.parent.exists() and not path.parent.is_dir():
            raise UsageError(
                f"cannot write {path}: {path.parent} is not a directory",
                "give a writable path with --save",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise UsageError(
                f"{path} exists already", "sessions are never overwritten: give another --save"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}", "give a writable path with --save"
            ) from None
        self._write(MAGIC)

    def add(self, records: Iterable[AnyRecord]) -> None:
        """Keep records for the next flush."""
        self._pending.extend(records)

    def flush(self) -> None:
        """Hand everything kept to the kernel as one frame."""
        pending, self._pending = self._pending, []
        if not pending or self.failure:
            return
        payload = zlib.compress(encode_batch(pending), 1)
        self._write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)

    def close(self) -> None:
        """Flush and close. Never raises."""
        self.flush()
        if self._fd >= 0:
            try:
                os.close(self._fd)
            except OSError as error:
                self._fail(error)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._fail(error)
            return
        self.bytes_written += len(data)

    def _fail(self, error: OSError) -> None:
        word = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        self.failure = f"the session is no longer saved to {self.path}: {word}"


def read(path: Path) -> Iterator[AnyRecord]:
    """The records of a session, up to the last whole frame.

    Raises:
        UsageError: no such file, not a session, or written by a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not data.startswith(MAGIC):
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            return
        raise UsageError(f"{path} is not a usv-tui session", "sessions end in .usv")
    offset = len(MAGIC)
    while offset + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, offset)
        offset += _FRAME.size
        payload = data[offset : offset + length]
        if length > _MAX_FRAME or len(payload) < length or zlib.crc32(payload) != crc:
            return
        offset += length
        try:
            records = _decoder.decode(zlib.decompress(payload))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{path} has records that this version does not know: {error}",
                f"this version reads schema {SCHEMA}; update usv-tui",
            ) from None
        for record in records:
            if isinstance(record, Start) and record.schema > SCHEMA:
                raise UsageError(
                    f"{path} was written with schema {record.schema}",
                    f"this version reads up to {SCHEMA}: update usv-tui",
                )
            yield record
