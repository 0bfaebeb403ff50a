"""The fold, kept in its file now and then and at its end: so a long session opens soon.

It holds what the fold holds, all but older raw samples, and is used only by the version that wrote
it and only where the file before it is sound: opened so, a session says what folding it would say.
"""

import hashlib
import importlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from usv_tui.records import Image
from usv_tui.session import journal
from usv_tui.session.columns import Column
from usv_tui.session.row_store import MAX_WINDOW, RowStore
from usv_tui.session.store import Store

_MOST_STATE = 1 << 28
_PART_BYTES = 1 << 21
_TAIL = MAX_WINDOW + MAX_WINDOW // 4
"""Raw samples of a row that are kept: the longest rolling window."""
_MARK = b"\xa5image"
"""How such a record begins, behind the head of its array."""
_LEAST_LOOKS = 120
_LEAST_SAMPLES = 200_000
_NOT_KEPT = ("_on_fault", "_spill", "archive")
_MODULES = (
    *("usv_tui.codes", "usv_tui.model", "usv_tui.records", "usv_tui.stats."),
    *("usv_tui.vendor.kinds", "usv_tui.telemetry.energy", "usv_tui.session."),
)

_SOURCES = (
    *("*.py", "session/*.py", "stats/*.py", "telemetry/*.py", "diagnosis/*.py"),
    "report/**/*.py",
)


class _Unfit(Exception):
    """Something that is not, or cannot be, kept."""


@cache
def program() -> str:
    """What the fold is made of: a digest of its sources, since any change of them may change it."""
    root = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=8)
    for name in _SOURCES:
        for path in sorted(root.glob(name)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_worth_it(store: Store) -> bool:
    """Folding it again would take long."""
    return store.verdicts.looks > _LEAST_LOOKS or store.samples > _LEAST_SAMPLES


def records_of(store: Store) -> list[Image]:
    """The image of a fold as records, for its file."""
    state = zlib.compress(msgspec.msgpack.encode(_pack(store)), 1)
    parts = [state[i : i + _PART_BYTES] for i in range(0, len(state), _PART_BYTES)]
    return [Image(store.last_ns, program(), i, len(parts), p) for i, p in enumerate(parts)]


class Kept(NamedTuple):
    """An image in a file."""

    end: journal.Span
    """Its last frame: what follows it is to be folded in."""
    make: Callable[[], Store | None]
    """The fold as far as it; None where it cannot be read."""


def kept(path: Path) -> Iterator[Kept]:
    """The images of this version that the sound head of a file holds, the last one first.

    Raises:
        UsageError: it cannot be read.
    """
    parts: list[bytes] = []
    end: journal.Span | None = None
    for span in reversed(journal.frames_beginning_with(path, _MARK)):
        for record in reversed(journal.records_at(path, span)):
            if not isinstance(record, Image) or record.version != program():
                end = None
                continue
            if record.part == record.parts - 1:
                parts, end = [], span
            parts.append(record.state)
            if record.part == 0 and end is not None and len(parts) == record.parts:
                yield Kept(end, partial(unpacked, parts[::-1], path))


def restored(path: Path) -> tuple[Store | None, journal.Reader]:
    """The fold up to the last image in a file, if there is one, and who reads what follows.

    Raises:
        UsageError: it cannot be read.
    """
    for found in kept(path):
        store = found.make()
        if store is not None:
            return store, journal.Reader(path, after=found.end, last_ns=store.last_ns)
    return None, journal.Reader(path)


def unpacked(parts: Sequence[bytes], path: Path | None = None) -> Store | None:
    """The fold whose image this is; None where it cannot be read."""
    try:
        raw = zlib.decompressobj().decompress(b"".join(parts), _MOST_STATE)
        store = _unpack(msgspec.msgpack.decode(raw))
    except (_Unfit, zlib.error, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    if not isinstance(store, Store):
        return None
    store.archive = None if path is None else path.absolute()
    return store


# -- to plain data: atoms as they are, everything else as [kind, …]


def _pack(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, Enum):
        return ["enum", _name(value), value.value]
    for kind, of, plain in _SEQUENCES:
        if type(value) is of:
            return [kind, [_pack(item) for item in plain(value)]]
    if type(value) in (dict, Counter):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return [kind, [[_pack(k), _pack(v)] for k, v in value.items()]]
    if isinstance(value, np.generic):
        return _pack(value.item())
    if isinstance(value, np.ndarray):
        return _packed_array(value)
    if isinstance(value, Column):
        return ["column", value.first, value.n, _packed_array(np.asarray(value.view()))]
    if isinstance(value, tuple):
        return ["named", _name(value), [_pack(item) for item in value]]
    return ["object", _name(value), [[k, _pack(v)] for k, v in _attributes(value)]]


_SEQUENCES: tuple[tuple[str, type, Callable[[Any], Any]], ...] = (
    ("list", list, list),
    ("tuple", tuple, list),
    ("set", set, sorted),
    ("frozenset", frozenset, sorted),
)


def _name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, deque):
        yield from (("maxlen", value.maxlen), ("items", list(value)))
    elif isinstance(value, msgspec.Struct):
        yield from ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif is_dataclass(value) and not hasattr(value, "__dict__"):
        yield from ((name, getattr(value, name)) for name in value.__dataclass_fields__)
    elif isinstance(value, RowStore):
        yield from _with_short_tail(value)
    else:
        yield from ((k, v) for k, v in vars(value).items() if k not in _NOT_KEPT)


def _with_short_tail(row: RowStore) -> Iterator[tuple[str, Any]]:
    short = row.shortened(_TAIL)
    yield from vars(short).items()


def _packed_array(values: np.ndarray) -> list[Any]:
    """Byte by byte of all elements: so it packs better."""
    flat = np.ascontiguousarray(values)
    planes = flat.reshape(-1).view(np.uint8).reshape(flat.size, flat.itemsize).T
    return ["array", flat.dtype.str, list(flat.shape), planes.tobytes()]


# -- and back


def _unpack(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    make = _MAKERS.get(value[0]) if value and isinstance(value[0], str) else None
    if make is None:
        raise _Unfit
    return make(*value[1:])


def _items(items: list[Any]) -> Iterator[Any]:
    return (_unpack(item) for item in items)


def _class(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module.startswith(_MODULES) or "." in path:
        raise _Unfit
    try:
        found = getattr(importlib.import_module(module), path)
    except (ImportError, AttributeError):
        raise _Unfit from None
    if not isinstance(found, type) or found.__module__ != module:
        raise _Unfit
    return found


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind not in "biuf":
        raise _Unfit
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(kind).reshape(shape).copy()


def _column(first: int, n: int, array: list[Any]) -> Column[Any]:
    values = _unpack(array)
    column: Column[Any] = Column(values.dtype.type)
    column.extend(values)
    if n - first != len(values):
        raise _Unfit
    column.first, column.n = first, n
    return column


def _object(name: str, attributes: list[Any]) -> Any:
    values = {key: _unpack(item) for key, item in attributes}
    if name == "collections:deque":
        return deque(values["items"], values["maxlen"])
    of = _class(name)
    if issubclass(of, msgspec.Struct):
        return of(**values)
    if of is Store:
        made = Store()
        vars(made).update(values)
        return made
    made = object.__new__(of)
    for key, item in values.items():
        object.__setattr__(made, key, item)
    return made


_MAKERS: dict[str, Callable[..., Any]] = {
    "list": lambda items: list(_items(items)),
    "tuple": lambda items: tuple(_items(items)),
    "set": lambda items: set(_items(items)),
    "frozenset": lambda items: frozenset(_items(items)),
    "dict": lambda pairs: {_unpack(k): _unpack(v) for k, v in pairs},
    "counter": lambda pairs: Counter({_unpack(k): _unpack(v) for k, v in pairs}),
    "named": lambda name, items: tuple.__new__(_class(name), list(_items(items))),
    "enum": lambda name, value: _class(name)(value),
    "array": _array,
    "column": _column,
    "object": _object,
}
