"""The simulated GPU for the command line: which card, which scenario, and the pieces of a run."""

from pathlib import Path

from usv_tui.engine.worker import Prepared
from usv_tui.errors import UsageError
from usv_tui.session.card import prepared
from usv_tui.sim import CARDS, describe, find_card, find_scenario, load
from usv_tui.sim.device import SimSession


class Simulation:
    """One simulated card in one scenario; `start` begins its time."""

    def __init__(
        self, card: str, scenario: str, seed: int, file: str = "", *, blocker: bool = False
    ) -> None:
        """Check the names.

        Raises:
            UsageError: unknown card or scenario (the message lists what exists), or a file that
                has no simulated kernels.
        """
        self._card = find_card(card)
        self._scenario = find_scenario(scenario)
        self._seed = seed
        self._file = file
        self._blocker = blocker
        if file and "usv_tui.sim" not in Path(file).read_text(encoding="utf-8", errors="replace"):
            raise UsageError(
                f"{file} cannot run on a simulated GPU: its callables do real work",
                "let its factories return usv_tui.sim.kernel(...), as benchmarks/sim_demo.py does,"
                " or run `usv-tui demo`",
            )

    @property
    def device(self) -> str:
        """As `--device` takes it."""
        return f"sim:{self._card.key}:{self._scenario.name}"

    @property
    def title(self) -> str:
        """What stands where a file's name would."""
        return self._file or f"demo-{self._scenario.name}"

    @property
    def look_for(self) -> str:
        """What to look for in this scenario."""
        return self._scenario.look_for

    @property
    def label(self) -> str:
        """What the header, the journal and every table say."""
        return f"SIMULATED {self._card.name}, {self._scenario.name}"

    @property
    def initial_lock(self) -> str:
        """The lock that the scenario has the session ask for, as `--lock` takes it; or empty."""
        mhz = self._scenario.initial_lock_mhz(self._scenario.fit(self._card))
        return "" if mhz is None else str(mhz)

    def start(self) -> tuple[Prepared, SimSession]:
        """The card's time begins; what the worker needs, and the session for its sensors."""
        session = load(self._scenario.name, self._card.key, seed=self._seed, blocker=self._blocker)
        suite = None if self._file else session.suite
        return prepared(self.device, session.gpu, session.timer, suite), session


def listing() -> str:
    """Scenarios and cards, for `demo --list`."""
    rows = describe()
    width = max(len(name) for name, _, _ in rows)
    lines = []
    for name, summary, look_for in rows:
        lines += [f"{name:<{width}}  {summary}", f"{'':<{width}}  look for: {look_for}"]
    cards = "  ".join(f"{key} ({card.name})" for key, card in CARDS.items())
    return "\n".join([*lines, "", f"cards (--card): {cards}"])
