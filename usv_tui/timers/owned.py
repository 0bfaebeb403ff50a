"""Where a row's tensors are: on which devices its results and what it reaches lie."""

from collections.abc import Iterable
from typing import Any, NamedTuple

_ON_HOST = ("cpu", "meta", "")


class Where(NamedTuple):
    """A device of torch's that is not the host."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


def devices(items: Iterable[Any]) -> list[Where]:
    """The devices that the tensors among these are on, each once."""
    found = dict.fromkeys(map(_device, items))
    return [where for where in found if where.kind not in _ON_HOST]


def _device(item: Any) -> Where:
    is_without_memory = type(item).__module__.startswith("torch._subclasses")
    if is_without_memory or not hasattr(type(item), "data_ptr"):
        return Where("", 0)
    try:
        device = item.device
        return Where(str(device.type), int(getattr(device, "index", None) or 0))
    except Exception:  # noqa: BLE001  a tensor of somebody's own may raise anything
        return Where("", 0)
