"""Where a row's tensors are: on which devices its results and what it reaches lie."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.diagnosis.checks import BenchFault
from usv_tui.suite.reach import objects

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


def elsewhere(home: Where, fn: Callable[[], object], result: object) -> list[Where]:
    """On which other devices a row has tensors, beside this one.

    Raises:
        BenchFault: it has them on others only: what is timed here would be nothing.
    """
    returned, held = devices(objects(result)), devices(objects(fn))
    away = [where for where in returned or held if where != home]
    if away and home not in (returned or held):
        raise BenchFault(
            Code.OTHER_DEVICE,
            f"its tensors are on {away[0]}, and the events of {home} see nothing there",
            f"put them on the `device` that the set-up is given, or --device {away[0]} times it",
        )
    return [where for where in dict.fromkeys([*returned, *held]) if where != home]


def _device(item: Any) -> Where:
    is_without_memory = str(type(item).__module__).startswith("torch._subclasses")
    if is_without_memory or not hasattr(type(item), "data_ptr"):
        return Where("", 0)
    try:
        device = item.device
        return Where(str(device.type), int(getattr(device, "index", None) or 0))
    except Exception:  # noqa: BLE001  a tensor of somebody's own may raise anything
        return Where("", 0)
