"""How hard the device is driven: back to back, in bursts, or only when cool (asks C5)."""

from dataclasses import dataclass, field

from usv_tui import plain
from usv_tui.errors import UsageError

_MS = 1_000_000
_HINT = "steady, burst:ON_MS,OFF_MS or cool:DEGREES_C"
_LONGEST_MS = 3_600_000
_HOTTEST_C = 150


@dataclass
class Pace:
    """A pace mode and where in it the run is."""

    spec: str = "steady"
    on_ns: int = 0
    off_ns: int = 0
    cool_c: float | None = None
    _burst_began_ns: int = field(default=0, repr=False)

    @classmethod
    def parse(cls, spec: str) -> "Pace":
        """Read a pace.

        Raises:
            UsageError: not a pace.
        """
        kind, _, argument = spec.strip().partition(":")
        try:
            if kind == "steady" and not argument:
                return cls(spec)
            if kind == "burst":
                on_ms, off_ms = (float(part) for part in argument.split(","))
                if 0 < on_ms <= _LONGEST_MS and 0 < off_ms <= _LONGEST_MS:
                    return cls(spec, on_ns=round(on_ms * _MS), off_ns=round(off_ms * _MS))
            if kind == "cool" and 0 < (cool_c := float(argument.lstrip("≤<="))) <= _HOTTEST_C:
                return cls(spec, cool_c=cool_c)
        except ValueError:
            pass
        raise UsageError(f"--pace {plain.line(spec, 40) or repr(spec)}: no such pace", _HINT)

    def rest_ns(self, now_ns: int, temp_c: float | None) -> int:
        """How long to stand still now; 0 to go on."""
        if self.on_ns:
            if not self._burst_began_ns:
                self._burst_began_ns = now_ns
            if now_ns - self._burst_began_ns < self.on_ns:
                return 0
            self._burst_began_ns = 0
            return self.off_ns
        if self.cool_c is not None and temp_c is not None and temp_c > self.cool_c:
            return 200 * _MS
        return 0
