"""How two results differ, in words: for a row whose `check` fails."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usv_tui import plain

_MOST_ELEMENTS = 1 << 26
"""Larger results are not looked through."""
_NEAR = 1e-6
"""Elements that differ by less, relative to the largest value, are not counted."""


def difference(mine: Any, base: Any) -> str:
    """What tells two results apart; empty when nothing is seen.

    Numbers, arrays and tensors are compared by value, containers item by item, down to the first
    item that differs.
    """
    if isinstance(mine, Mapping) and isinstance(base, Mapping):
        keys = [*mine, *(key for key in base if key not in mine)]
        return _first(((key, mine.get(key), base.get(key)) for key in keys), len(mine), len(base))
    if _is_sequence(mine) and _is_sequence(base):
        pairs = ((i, a, b) for i, (a, b) in enumerate(zip(mine, base, strict=False)))
        return _first(pairs, len(mine), len(base))
    a, b = _array(mine), _array(base)
    if a is None or b is None:
        return _kinds(mine, base)
    words = [_shapes(a, b) if a.shape != b.shape else _values(a, b)]
    kinds = _dtype(mine), _dtype(base)
    if kinds[0] != kinds[1]:
        words.append(f"{kinds[0]} against {kinds[1]}")
    return ", ".join(word for word in words if word)


def hint(mine: Any, base: Any) -> str:
    """What usually makes right results differ."""
    lower = "" if _dtype(mine) == _dtype(base) else "another dtype: a wider tolerance; "
    return (
        f"{lower}other inputs: each set-up starts from the same seed, draw in the same order; "
        "work in place: give a reset"
    )


def _first(pairs: Any, n_mine: int, n_base: int) -> str:
    if n_mine != n_base:
        return f"{n_mine} items against {n_base}"
    for key, a, b in pairs:
        words = difference(a, b)
        if words:
            return f"in item {plain.value(key, 20)}: {words}"
    return ""


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _array(value: Any) -> NDArray[np.float64] | None:
    """The numbers of an array, a tensor or a number; None for anything else."""
    is_tensor = hasattr(value, "detach") and hasattr(value, "numel")
    if not is_tensor and not isinstance(value, bool | int | float | np.ndarray | np.generic):
        return None
    try:
        if (value.numel() if is_tensor else np.size(value)) > _MOST_ELEMENTS:
            return None
        source = value.detach().to("cpu").double().numpy() if is_tensor else value
        return np.asarray(source, dtype=np.float64)
    except Exception:  # noqa: BLE001  complex, sparse, quantised, or a device that is lost
        return None


def _dtype(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")


def _kinds(mine: Any, base: Any) -> str:
    names = type(mine).__name__, type(base).__name__
    if names[0] != names[1]:
        return f"a {names[0]} against a {names[1]}"
    try:
        is_same = bool(mine == base)
    except Exception:  # noqa: BLE001  a stranger's equality
        return ""
    return "" if is_same else f"{plain.value(mine, 40)} against {plain.value(base, 40)}"


def _shapes(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    return f"shape {a.shape} against {b.shape}"


def _values(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    odd = np.isfinite(a) != np.isfinite(b)
    if odd.any():
        return f"{np.count_nonzero(odd):,} of {a.size:,} elements are not finite in one of them"
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.where(a == b, 0.0, a - b))
    worst = float(np.nanmax(apart, initial=0.0))
    if worst == 0.0:
        return ""
    scale = float(np.nanmax(np.abs(b), initial=0.0, where=np.isfinite(b)))
    far = np.count_nonzero(apart > _NEAR * scale)
    share = far / a.size if math.isfinite(worst) else 1.0
    words = f"by up to {worst:.3g} where the baseline reaches {scale:.3g}"
    return words if a.size == 1 else f"{words}, in {share:.1%} of {a.size:,} elements"
