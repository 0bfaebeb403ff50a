"""What is watched beside the windows, over the whole run: memory, and what the host takes away."""

from collections.abc import Callable, Sequence
from typing import Any

from usv_tui.diagnosis.growth import LOADED, Growth
from usv_tui.diagnosis.host_watch import HostWatch
from usv_tui.engine.memory import MemoryWatch, Said
from usv_tui.timers.wall import Slot


class Attendant:
    """The runner's, called between windows. Without a watch it does nothing."""

    def __init__(
        self,
        memory: MemoryWatch | None = None,
        host: HostWatch | None = None,
        growth: Growth | None = None,
    ) -> None:
        self._growth = growth
        self._memory = memory
        self._host = host
        self._samples = 0

    def wants_windows(self, now_ns: int) -> bool:
        """Whether the next round shall be taken window by window, to look at each."""
        return self._host is not None and self._host.is_due(now_ns)

    def size(self) -> int | None:
        """Bytes in use by the process and the device; None where nobody watches them."""
        return None if self._memory is None else self._memory.size()

    def rebuilt(self) -> None:
        """Rows have other buffers from here on, which is no leak."""
        if self._memory is not None:
            self._memory.forget()

    def begin(self) -> None:
        """Right before a window that is taken by itself."""
        if self._host is not None:
            self._host.begin()

    def end(self, slot: Slot) -> None:
        """Right after it."""
        if self._host is not None:
            self._host.end(slot.bench)

    def count(self, samples: int) -> None:
        """So many samples have been taken since."""
        self._samples += samples

    def look(
        self, slots: Sequence[Slot], settle: Callable[[], object], *, is_final: bool = False
    ) -> list[Said]:
        """What is new. Rows may be called, so no window may be open; `settle` waits for each."""
        said: list[Said] = []
        grown = None if self._growth is None else self._growth.look()
        if grown is not None:
            said.append((LOADED, None, grown))
        if self._memory is not None:
            said += self._memory.look(self._samples, slots, is_final=is_final, settle=settle)
        if self._host is not None:
            said += [(code, bench, dict[str, Any](e)) for code, bench, e in self._host.look()]
        return said
