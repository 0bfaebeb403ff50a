"""Why the clock was held back: as two readings confirm it, counted over an epoch."""

from collections import Counter

from msgspec.structs import replace

from usv_tui.model import Reading, reason_words
from usv_tui.telemetry.sensors import confirmed_reasons


class Reasons:
    """What holds, and how often it held."""

    def __init__(self) -> None:
        self._raw: int | None = None
        self._counts: Counter[str] = Counter()
        self._total = 0

    def confirmed(self, reading: Reading) -> Reading:
        """A reading with the reasons that are shown; the raw mask is kept elsewhere."""
        if reading.reasons is None:
            return reading
        seen = confirmed_reasons(self._raw, reading.reasons)
        self._raw = reading.reasons
        self._total += 1
        self._counts.update(reason_words(seen))
        return reading if seen == reading.reasons else replace(reading, reasons=seen)

    def clear(self) -> None:
        """A new epoch."""
        self._counts.clear()
        self._total = 0

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """Each reason with its share of the readings, the most frequent first."""
        return tuple(
            (word, count / self._total)
            for word, count in self._counts.most_common()
            if word not in ("idle", "app clocks")
        )
