"""When a device whose driver is read through files is lost, and when it only fails for a moment."""

from collections.abc import Iterable

from usv_tui.errors import DeviceLost
from usv_tui.vendor.sysfs import GONE, SysFile

LOST_LOOKS, LOST_AFTER_NS = 3, 2_000_000_000
"""Looks in a row, over so long, in which no file answered: then the device is lost."""


class Silence:
    """Watches whether any file of a device still answers.

    One file that fails, or all of them for a moment (a reset), is not the end of a device.
    """

    def __init__(self) -> None:
        self._errors: list[OSError] = []
        """Of this look."""
        self._has_answered = False
        self._since: tuple[int, int] | None = None
        """When the looks without any answer began, and how many there were."""

    def begin(self) -> None:
        """A new look at the device begins."""
        self._errors, self._has_answered = [], False

    def failed(self, error: Exception) -> None:
        """A file gave no value; what is no error of the system's was an answer too."""
        if isinstance(error, OSError):
            self._errors.append(error)

    def answered(self) -> None:
        """A file gave a value."""
        self._has_answered = True

    def judge(self, now_ns: int, files: Iterable[SysFile], what: str) -> None:
        """End the look.

        Raises:
            DeviceLost: none of the files has answered, look after look.
        """
        if self._has_answered:
            self._since = None
        if not self._errors or self._has_answered:
            return
        since_ns, looks = self._since or (now_ns, 0)
        self._since = (since_ns, looks + 1)
        is_long = looks + 1 >= LOST_LOOKS and now_ns - since_ns >= LOST_AFTER_NS
        if is_long and not any(map(_answers, files)):
            raise DeviceLost(f"the {what} no longer answers: {self._errors[-1].strerror}")


def _answers(file: SysFile) -> bool:
    """A refusal other than "gone" is an answer too."""
    try:
        file.read()
    except OSError as error:
        return error.errno not in GONE
    return True
