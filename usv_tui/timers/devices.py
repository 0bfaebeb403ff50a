"""Which accelerators torch knows here, and what times them: one family for each kind.

Takes `torch` as an argument and imports nothing of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from usv_tui.timers.abilities import ask, is_hip
from usv_tui.timers.families import cuda, generic, mps, xpu

_INFINITY_CACHE = {"gfx942": 256 << 20, "gfx950": 256 << 20}
"""Behind the L2 of these chips is a last-level cache that their properties do not list."""
_OWN_MODULES = (mps.KIND, xpu.KIND)
"""Kinds that torch had before there was `torch.accelerator`."""


class Family(NamedTuple):
    """A kind of accelerator, and what times it."""

    kind: str
    """cuda (ROCm, too), xpu, mps, or the name of a backend from outside of torch."""
    gpu: Any
    """What the kind can do, under the names of `torch.cuda`."""
    clock: str
    """What its times are."""
    unproven: str = ""
    """Why its figures deserve a second look; empty for kinds that were tried."""

    @property
    def module(self) -> str:
        """What people call the module of the kind."""
        return f"torch.{self.kind}"


def family_of(torch: Any, kind: str = cuda.KIND) -> Family:
    """What times a kind of accelerator that is here."""
    if kind == cuda.KIND:
        return Family(kind, cuda.api(torch), cuda.CLOCK)
    if kind == xpu.KIND:
        return Family(kind, xpu.api(torch), generic.clock(kind), xpu.UNPROVEN)
    if kind == mps.KIND:
        return Family(kind, mps.api(torch), mps.CLOCK, mps.UNPROVEN)
    return Family(kind, generic.api(torch, kind), generic.clock(kind))


def current_kind(torch: Any) -> str | None:
    """The kind of accelerator that torch would take by itself; None when it sees none."""
    accelerator = getattr(torch, "accelerator", None)
    if ask(accelerator, "is_available"):
        kind = getattr(ask(accelerator, "current_accelerator"), "type", None)
        if kind is not None:
            return str(kind)
    for kind in (cuda.KIND, *_OWN_MODULES):
        if ask(getattr(torch, kind, None), "is_available"):
            return kind
    return None


def is_here(torch: Any, kind: str) -> bool:
    """Whether torch can use an accelerator of this kind now."""
    if kind == cuda.KIND:
        return bool(ask(torch.cuda, "is_available"))
    return kind == current_kind(torch) or bool(ask(getattr(torch, kind, None), "is_available"))


def is_known(torch: Any, kind: str) -> bool:
    """Whether torch has ever heard of such a kind, here or not."""
    device = getattr(torch, "device", None)
    if not isinstance(device, type):
        return hasattr(torch, kind)
    try:
        device(kind)
    except (RuntimeError, TypeError):
        return False
    return kind not in ("cpu", "meta")


def names(torch: Any) -> list[str]:
    """Every accelerator that torch sees, as torch names it; also where its kind is not current."""
    kinds = [kind for kind in (cuda.KIND, *_OWN_MODULES) if is_here(torch, kind)]
    current = current_kind(torch)
    kinds = list(dict.fromkeys(([current] if current else []) + kinds))
    return [f"{kind}:{i}" for kind in kinds for i in range(count(family_of(torch, kind)))]


def count(family: Family) -> int:
    """How many devices of the kind there are: one where that cannot be asked for."""
    return int(ask(family.gpu, "device_count", default=1))


def device_name(family: Family, index: int) -> str:
    """What a device calls itself; empty when it does not tell."""
    named = ask(family.gpu, "get_device_name", index)
    properties = ask(family.gpu, "get_device_properties", index)
    return str(named or getattr(properties, "name", "") or "")


def cache_bytes(torch: Any, device: str) -> int | None:
    """The largest cache of a device; None when torch does not tell."""
    kind = device.partition(":")[0]
    properties = ask(family_of(torch, kind).gpu, "get_device_properties", device)
    sizes = [int(getattr(properties, "L2_cache_size", 0) or 0), xpu.cache_bytes(properties)]
    if is_hip(torch):
        arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
        sizes.append(_INFINITY_CACHE.get(arch, 0))
    return max(sizes) or None


def is_used(torch: Any, kind: str) -> bool:
    """Whether this process has brought a kind of accelerator up; one that cannot tell may be."""
    is_up = ask(family_of(torch, kind).gpu, "is_initialized")
    return is_here(torch, kind) if is_up is None else bool(is_up)


def waits_for(torch: Any, kind: str) -> Callable[[], object] | None:
    """What waits for a kind of accelerator; None when nothing does."""
    found: Callable[[], object] | None = getattr(family_of(torch, kind).gpu, "synchronize", None)
    return found
