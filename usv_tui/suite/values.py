"""What callables take and return, as values: copied, compared, overwritten.

Tensors and arrays are leaves; tuples, lists and dicts of them are looked through.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

_DEPTH = 6


def is_tensor(value: object) -> bool:
    """True for torch's tensors, subclasses included; by type, whatever it says that it is."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def is_array(value: object) -> bool:
    """True for tensors and arrays, subclasses included."""
    return issubclass(type(value), np.ndarray) or is_tensor(value)


def leaves(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors and arrays in a value."""
    if is_array(value):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item, depth - 1)


def size_bytes(value: Any) -> int:
    """Bytes of all tensors and arrays in a value."""
    return sum(_bytes(leaf) for leaf in leaves(value))


def _bytes(leaf: Any) -> int:
    return int(leaf.nbytes if isinstance(leaf, np.ndarray) else leaf.numel() * leaf.element_size())


def _quiet() -> AbstractContextManager[object]:
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def _each(value: Any, change: Callable[[Any], Any], depth: int = _DEPTH) -> Any:
    """The same containers with every leaf replaced; other values as they are."""
    if is_array(value):
        return change(value)
    if depth and type(value) is dict:
        return {key: _each(item, change, depth - 1) for key, item in value.items()}
    if depth and type(value) in (tuple, list):
        return type(value)(_each(item, change, depth - 1) for item in value)
    return value


def clone(value: Any) -> Any:
    """A copy with memory of its own, off any graph; a leaf that wants gradients still does."""
    with _quiet():
        return _each(value, _clone)


def _clone(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    made = leaf.detach().clone()
    if leaf.requires_grad and leaf.is_leaf:
        made.requires_grad_(True)
    return made


def overwrite(old: Any, new: Any) -> Any:
    """Put new content into old memory where it fits; what does not fit is the new value itself."""
    with _quiet():
        return _overwrite(old, new, _DEPTH)


def _overwrite(old: Any, new: Any, depth: int) -> Any:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.shape != new.shape or old.dtype != new.dtype or not old.flags.writeable:
            return new
        old[...] = new
        return old
    if is_tensor(old) and is_tensor(new):
        return _overwrite_tensor(old, new)
    if depth and type(old) is dict and type(new) is dict and old.keys() == new.keys():
        return {key: _overwrite(old[key], new[key], depth - 1) for key in new}
    if depth and type(old) in (tuple, list) and type(old) is type(new) and len(old) == len(new):
        return type(new)(_overwrite(a, b, depth - 1) for a, b in zip(old, new, strict=True))
    return new


def _overwrite_tensor(old: Any, new: Any) -> Any:
    same = old.shape == new.shape and old.dtype == new.dtype and old.device == new.device
    if not same or old.stride() != new.stride() or old.is_inference():
        return new
    try:
        old.copy_(new)
    except RuntimeError:  # expanded or otherwise overlapping memory
        return new
    return old


def equal(a: Any, b: Any, depth: int = _DEPTH) -> bool:
    """The same content; NaN is equal to NaN, and what cannot be compared is equal."""
    if is_tensor(a) and is_tensor(b):
        return a.shape == b.shape and _same_tensors(a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and bool(np.all((a == b) | (_nan(a) & _nan(b))))
    if depth and isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[k], b[k], depth - 1) for k in a)
    if depth and isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(equal(x, y, depth - 1) for x, y in zip(a, b, strict=True))
    return True


def _same_tensors(a: Any, b: Any) -> bool:
    torch = sys.modules["torch"]
    try:
        with _quiet():
            return bool(torch.equal(a, b)) or bool(((a == b) | (_nan(a) & _nan(b))).all())
    except Exception:  # noqa: BLE001  sparse, quantised and strangers' tensors have no equality
        return True


def _nan(value: Any) -> Any:
    return value != value  # noqa: PLR0124  true for NaN alone, in every kind of array


def places(value: Any) -> frozenset[int]:
    """Where the memory of a value's leaves begins: two values that share one share memory."""
    return frozenset(p for p in map(_place, leaves(value)) if p)


def _place(leaf: Any) -> int:
    if isinstance(leaf, np.ndarray):
        while isinstance(leaf.base, np.ndarray):
            leaf = leaf.base
        return int(leaf.__array_interface__["data"][0])
    try:
        return int(leaf.untyped_storage().data_ptr())
    except Exception:  # noqa: BLE001  fake, sparse and strangers' tensors have no memory of theirs
        return 0


def poisoned(value: Any) -> Any:
    """Other content of the same kind and size of figures; None where there is none to be had.

    No NaN and nothing huge: a callable that goes on from its own last result must not be harmed.
    """
    if isinstance(value, np.ndarray):
        return _poison(value, np.array_equal, np.flip)
    if not is_tensor(value) or value.numel() == 0:
        return None
    torch = sys.modules["torch"]
    with _quiet():
        return _poison(value, torch.equal, lambda t: t.flip(tuple(range(t.dim()))))


def _poison(value: Any, same: Callable[..., bool], flip: Callable[[Any], Any]) -> Any:
    kind = str(value.dtype).removeprefix("torch.")
    if kind == "bool":
        return ~value
    if kind.startswith(("float", "bfloat")) and not kind.startswith("float8"):
        made = 1 - value
        return None if _is_odd(made) or same(made, value) else made
    if kind.startswith(("int", "uint")) and value.ndim:
        made = flip(value)
        return None if same(made, value) else made
    return None


def _is_odd(value: Any) -> bool:
    try:
        return not math.isfinite(float(value.sum()))
    except (RuntimeError, TypeError, ValueError):
        return True


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def is_plain(value: Any, depth: int = _DEPTH) -> bool:
    """Whether all of it is there: arrays, tensors, numbers and texts, and containers of them.

    Classes of strangers may be work that is yet to be done.
    """
    kind = type(value)
    if kind in (tuple, list):
        return depth > 0 and all(is_plain(item, depth - 1) for item in value)
    if kind is dict:
        return depth > 0 and all(is_plain(item, depth - 1) for item in value.values())
    if kind is np.ndarray:
        return bool(value.dtype != object)
    return kind in _PLAIN or issubclass(kind, np.generic) or _is_own_tensor(kind)


def _is_own_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    return torch is not None and kind in (getattr(torch, "Tensor", None), parameter)


def plain(value: Any, like: Any) -> Any:
    """A stranger's array as a plain one, where it stands for one: its class may say anything."""
    if type(like) is np.ndarray and (isinstance(value, np.ndarray) or hasattr(value, "__array__")):
        return np.array(value, copy=True, subok=False)
    return value


def read(value: Any, depth: int = _DEPTH) -> None:
    """Have the figures of something, of whatever class it is."""
    if is_array(value):
        clone(value)
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            if depth:
                read(item, depth - 1)
    elif hasattr(value, "__array__"):
        np.asarray(value)
    elif depth and hasattr(value, "__dict__"):
        for item in list(vars(value).values()):
            if is_array(item) or isinstance(item, Mapping | tuple | list):
                read(item, depth - 1)
