"""Two versions in virtual time, by the very protocol: threads, pipes and turns, but no waiting.

A row's call takes `cost_ns`, times what the machine does to both versions alike at that moment
(`drift`), times a factor that each launch draws anew for each version and row (`between`), times
noise. Only who has the turn lets time pass, so a run is the same however busy the machine is.
"""

import math
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.engine.turns import Line, Turns
from usv_tui.engine.worker import Prepared
from usv_tui.gate import Gate
from usv_tui.model import Benchmark, RunConfig, Suite, WorkRequest
from usv_tui.records import AnyRecord, Version
from usv_tui.session.duet import Duet, Plan
from usv_tui.session.launches import Versus
from usv_tui.session.live import Ends, ThreadSource
from usv_tui.sim import SimCall, SimKernel, SimTimer, load
from usv_tui.timers.cache import Flusher
from usv_tui.timers.wall import Timer, WallTimer
from usv_tui.timesource import NS_PER_S, ManualTime

BEGIN_NS = 100 * NS_PER_S
MS = 1_000_000
LABELS = ("old", "new")

Rows = Mapping[str, float]
"""Nanoseconds of one call, by name."""


class DuetRun:
    """A whole comparison; `records` is what a session would be made of."""

    def __init__(
        self,
        rows: tuple[Rows, Rows],
        *,
        seed: int = 0,
        between: float = 0.0,
        noise: float = 0.003,
        drift: Callable[[float], float] = lambda _: 1.0,
        launches: int | None = None,
        launch_s: float = 1.0,
        build: Callable[[int, str], Callable[[], Any] | None] = lambda *_: None,
        check: Callable[[Any, Any], object] | None = None,
        results: str = "",
        card: str = "",
        **config: Any,
    ) -> None:
        """`card` is a simulated one that both share, as CARD:SCENARIO; then rows are kernels."""
        self.time = ManualTime(BEGIN_NS)
        self.gpu = None
        if card:
            kind, scenario = card.split(":")
            self.gpu = load(scenario, kind, seed, self.time).gpu
        self.records: list[AnyRecord] = []
        self._rows, self._seed, self._between = rows, seed, between
        self._noise, self._drift, self._build, self._check = noise, drift, build, check
        settings = {"warmup_max_s": 0.2, "inner": 1, "seed": seed} | config
        request = WorkRequest(path="file.py", config=RunConfig(**settings))
        versions = (Version(0, 0, LABELS[0], "as it was"), Version(0, 1, LABELS[1], "as it is"))
        plan = Plan(versions, (request, request), launches, launch_s, results, warmup_s=0.1)
        self.made: list[tuple[int, WorkRequest]] = []
        self.duet = Duet(self._make, plan, self.time)

    def _make(self, side: int, asked: WorkRequest, ends: Ends) -> ThreadSource:
        assert asked.duet is not None
        assert ends
        self.made.append((side, asked))
        make = self._builder if self.gpu is None else self._launcher
        benchmarks = tuple(
            Benchmark(
                name=name,
                build=make(side, asked.duet.number, name, cost_ns),
                group=name,
                check=self._check,
            )
            for name, cost_ns in self._rows[side].items()
        )
        prepared = Prepared(
            "sim:none",
            "virtual",
            {},
            Suite("file.py", benchmarks),
            self._timer(),
            Flusher(None, reason="none"),
        )
        turns = Turns(asked.duet, Line(*ends), self.time.now_ns)
        return ThreadSource(asked, Gate(self.time), self.time, prepared, turns=turns)

    def _timer(self) -> Timer:
        if self.gpu is None:
            return WallTimer("virtual", clock=self.time.now_ns)
        return SimTimer(self.gpu)

    def drawn(self, number: int, name: str) -> float:
        """Log of HEAD's factor over BASE's in a launch: what no pair of turns can know of."""
        return math.log(self._factor(1, number, name)[0] / self._factor(0, number, name)[0])

    def _factor(self, side: int, number: int, name: str) -> tuple[float, random.Random]:
        """By how much this launch differs from others for this row of this version."""
        draw = random.Random(f"{self._seed}:{side}:{number}:{name}")
        return math.exp(draw.gauss(0, self._between)), draw

    def _launcher(
        self, side: int, number: int, name: str, cost_ns: float
    ) -> Callable[[str], Callable[[], object]]:
        factor, _ = self._factor(side, number, name)
        kernel = SimKernel(name=name, t0_ns=cost_ns * factor, noise=self._noise)
        return lambda _: SimCall(kernel, self.gpu)

    def _builder(
        self, side: int, number: int, name: str, cost_ns: float
    ) -> Callable[[str], Callable[[], object]]:
        factor, draw = self._factor(side, number, name)

        def call() -> object:
            seconds = (self.time.now_ns() - BEGIN_NS) / NS_PER_S
            took = cost_ns * factor * self._drift(seconds) * math.exp(draw.gauss(0, self._noise))
            self.time.advance(max(1, round(took)))
            return None

        def build(_: str) -> Callable[[], object]:
            own = self._build(side, name)
            if own is None:
                return call

            def both() -> object:
                call()
                return own()

            return both

        return build

    def run(self, most_s: float = 60.0) -> dict[str, Versus]:
        """To the end; what is said of each row."""
        self.duet.start()
        wake = threading.Event()
        for _ in range(int(most_s / 0.001)):
            new = self.duet.drain()
            self.records += new
            if self.is_over:
                break
            if not new:
                wake.wait(0.001)
        assert self.is_over, "it does not end"
        self.duet.close(1.0)
        return self.report()

    @property
    def is_over(self) -> bool:
        """It has said its last word."""
        return any(getattr(record, "is_end", False) for record in self.records[-3:])

    def report(self) -> dict[str, Versus]:
        """By the row's plain name."""
        names = {info.bench: info.plain_name for info in self.duet.rows(1)}
        found = self.duet.launches.report()
        return {names[bench]: versus for bench, versus in found.items() if bench in names}
