"""A live session without a worker or a sensor: what it is told comes from the test."""

from usv_tui.gate import Gate
from usv_tui.model import RunConfig
from usv_tui.records import AnyRecord, Command
from usv_tui.session.controller import LiveSession
from usv_tui.session.live import Loss
from usv_tui.timesource import NS_PER_S, ManualTime

BEGIN_NS = 5 * NS_PER_S


class FakeSource:
    """Gives the records that were put into it and keeps the commands that it got."""

    def __init__(self) -> None:
        self.queue: list[AnyRecord] = []
        self.commands: list[Command] = []
        self.running: tuple[int, ...] | None = ()
        self.stacks = 0
        self.losses: list[Loss] = []
        self.is_over = True
        """Whether it ends when it is closed."""
        self.last_words: list[AnyRecord] = []
        """What it says when it is closed."""
        self.why_no_fresh_worker = "no row was lost"
        self.renewed = 0

    def why_not_renew(self) -> str:
        """As the test has it."""
        return self.why_no_fresh_worker

    def renew(self) -> str:
        """Noted."""
        self.renewed += not self.why_no_fresh_worker
        return self.why_no_fresh_worker

    def drain(self) -> list[AnyRecord]:
        """Everything new."""
        found, self.queue = self.queue, []
        return found

    def command(self, command: Command) -> None:
        """Keep it."""
        self.commands.append(command)

    def current(self) -> tuple[int, ...] | None:
        """The rows inside a call."""
        return self.running

    def tell_stack(self) -> None:
        """Noted."""
        self.stacks += 1

    def give_up(self, loss: Loss) -> None:
        """Noted."""
        self.losses.append(loss)

    def close(self, timeout_s: float) -> bool:
        """Say the last words."""
        self.queue += self.last_words
        return self.is_over


class FakeWatcher:
    """A poller that does nothing and says what the test lets it say."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.text = ""

    def start(self) -> None:
        """Noted."""
        self.calls.append("start")

    def state(self) -> str:
        """As set."""
        return self.text

    def pause(self) -> None:
        """Noted."""
        self.calls.append("pause")

    def resume(self) -> None:
        """Noted."""
        self.calls.append("resume")

    def stop(self, timeout_s: float = 0.3) -> bool:
        """Noted."""
        self.calls.append("stop")
        return True


def open_session(**options: object) -> tuple[LiveSession, FakeSource, ManualTime]:
    """A session on a clock that moves only when told."""
    source, clock = FakeSource(), ManualTime(BEGIN_NS)
    session = LiveSession(
        source,  # type: ignore[arg-type]
        suite="file.py",
        config=options.pop("config", RunConfig()),  # type: ignore[arg-type]
        gate=Gate(clock),
        time_source=clock,
        **options,  # type: ignore[arg-type]
    )
    return session, source, clock
