"""What a front end shows of a session: pure functions of the fold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from usv_tui import plain
from usv_tui.model import CacheMode, RowState, RunConfig
from usv_tui.records import Chosen
from usv_tui.session.row_store import RowStore
from usv_tui.session.snapshot import DuetView, RowView, Snapshot
from usv_tui.stats.rolling import Stats
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.session.store import Store

_FEW_SEVERE, _SEVERE_SHARE = 5, 0.002
_ABOVE_BULK = 3.0
"""Stragglers are told where they are more, and make the std so many times the bulk's."""
_RATE_NS = 2 * NS_PER_S


def snapshot(store: "Store", now_ns: int) -> Snapshot:
    """Everything a front end shows, now."""
    start = store.start
    end_ns = store.course.end.at_ns if store.course.end is not None else now_ns
    config = start.config if start else RunConfig()
    if store.chosen is not None:
        config = _with_device(config, store.chosen)
    return Snapshot(
        at_ns=now_ns,
        start_ns=store.start_ns,
        wall_unix_ns=start.wall_unix_ns if start else 0,
        suite=start.suite if start else "",
        config=config,
        environment={**start.environment, **store.threads} if start else {},
        simulated=start.simulated if start else "",
        timer=store.timer,
        device=store.device,
        reading=store.reading,
        telemetry_state=_telemetry_words(store),
        clocks=store.clocks,
        clocks_during=store.clocks_during,
        phase=store.course.phase,
        phase_detail=store.course.detail,
        pace=store.pace or config.pace,
        elapsed_s=max(0, end_ns - store.start_ns) / NS_PER_S if start else 0.0,
        rounds=store.rounds,
        samples=store.samples,
        samples_per_s=_sample_rate(store, now_ns),
        window=store.window,
        rows=tuple(_row_views(store)),
        ghosts=store.ghosts.source,
        duet=_duet(store),
        baseline=store.baseline,
        advice=store.verdicts.advice,
        untrusted=store.verdicts.analysis.untrusted,
        solo_low_mhz=dict(store.verdicts.analysis.solo_low_mhz),
        log=tuple(store.log.lines),
        log_total=store.log.total,
        told=store.log.notes.told,
        not_told=store.log.notes.left_out,
        neighbours=store.log.notes.neighbours,
        epochs=tuple(store.epochs),
        skipped=tuple(store.skipped),
        progress=store.course.headway,
        stop_reason=store.course.stop_reason,
        complete=store.course.is_complete,
        banner=_banner(store),
    )


def _duet(store: "Store") -> DuetView | None:
    duet = store.duet
    if len(duet.versions) < 2:
        return None
    base, head = duet.versions[min(duet.versions)], duet.versions[max(duet.versions)]
    last = duet.ended[-1] if duet.ended else None
    return DuetView(
        (base.label, head.label),
        (base.what, head.what),
        duet.launch.number if duet.launch else 0,
        duet.done,
        duet.rows_of(max(duet.versions)),
        None if last is None else last.handover_ns,
        None if last is None else last.share,
    )


def where_it_stands(store: "Store") -> str:
    """Why it ended before the first sample, and what the worker was at."""
    busy = [
        f"{plain.name(row.info.name)} {row.state}"
        for row in store.rows.values()
        if row.state in (RowState.PREPARING, RowState.COMPILING)
    ]
    at = ", ".join(busy) or store.course.last_phase
    why = store.course.stop_reason or "the run was ended"
    return f": {why} (while {at}{', which had not returned' if busy else ''})"


def _banner(store: "Store") -> str:
    """The worst of what a user must not overlook."""
    if store.course.fatal or store.course.fault:
        return store.course.fatal or store.course.fault
    if store.verdicts.analysis.untrusted:
        return "the control row differs from its baseline: no ratio of this run can be trusted"
    return store.course.distortion


def _telemetry_words(store: "Store") -> str:
    if store.watching is not None:
        return store.watching
    if store.telemetry_columns.t_ns.n:
        return ""
    return "no readings" if store.course.has_ended else "not read yet"


def _sample_rate(store: "Store", now_ns: int) -> float:
    """Samples a second over the last two, or since the first one; 0 after as long a rest."""
    first_ns = store.first_sample_ns
    if first_ns is None:
        return 0.0
    # What is newer than the last sample is on its way, unless it has been for long.
    to_ns = store.last_sample_ns if now_ns - store.last_sample_ns < NS_PER_S // 2 else now_ns
    from_ns = max(first_ns, to_ns - _RATE_NS)
    tops = (row for row in store.rows.values() if row.info.parent is None)
    n = sum(row.count_between(from_ns, to_ns) for row in tops)
    return n * NS_PER_S / (to_ns - from_ns) if to_ns > from_ns else 0.0


def _row_views(store: "Store") -> Iterable[RowView]:
    shares = store.reasons.shares
    children: dict[int, list[RowStore]] = {}
    for row in store.rows.values():
        if row.info.parent is not None:
            children.setdefault(row.info.parent, []).append(row)
    for row in store.rows.values():
        if row.info.parent is None:
            yield from _with_phases(store, row, children, shares)


def _with_phases(
    store: "Store",
    row: RowStore,
    children: Mapping[int, list[RowStore]],
    shares: tuple[tuple[str, float], ...],
) -> Iterable[RowView]:
    """A row, its phases below it, and what none of them accounts for."""
    view = _row_view(store, row, shares)
    yield view
    parts = children.get(row.info.bench)
    if not parts:
        return
    for part in parts:
        yield from _with_phases(store, part, children, shares)
    rest = _rest([part.statistics(store.window) for part in parts], view)
    yield RowView(
        bench=-1 - row.info.bench,
        name="unaccounted",
        parent=row.info.bench,
        state=row.state,
        rolling=rest[0],
        whole=rest[1],
    )


def _row_view(store: "Store", row: RowStore, shares: tuple[tuple[str, float], ...]) -> RowView:
    info = row.info
    rolling, whole = row.statistics(store.window)
    base = store.baseline_of(row)
    cal = row.calibrated
    rival = None if info.rival is None else store.rows.get(info.rival)
    beside = rival.statistics(store.window) if rival is not None else (Stats(), Stats())
    return RowView(
        bench=info.bench,
        name=info.name,
        group=info.group,
        parent=info.parent,
        control_of=info.control_of,
        state=row.state,
        detail=row.detail,
        rolling=rolling,
        whole=whole,
        n_all=row.t_ns.n,
        n_excluded=row.n_excluded,
        left_out=row.left_out,
        stalls=row.stalls,
        trend=row.trend,
        word=row.word,
        drift=row.drift,
        effect=row.effect,
        ratio=row.ratio if base is not None and row.ratio_to == base.info.bench else None,
        is_baseline=base is None and info.parent is None,
        baseline_name=base.info.name if base is not None else "",
        ghost_s=store.ghosts.medians_s.get(info.name),
        flops=info.flops,
        bytes=info.bytes,
        inner=cal.inner if cal else 1,
        cache=cal.cache if cal else str(_cache_wanted(store)),
        refill=cal.refill if cal else 0,
        here_s=cal.here_ns / NS_PER_S if cal and cal.here_ns else None,
        alone_s=cal.alone_ns / NS_PER_S if cal and cal.alone_ns else None,
        mode=cal.mode if cal else "eager",
        badges=(*row.all_badges, *_stragglers(whole)),
        energy_j=row.energy.joules,
        energy_label=row.energy.label,
        before_lock=store.lane.before_lock.get(info.bench),
        throttled=shares,
        version=info.version,
        plain_name=info.plain_name if store.duet.is_plain else info.name,
        rival=info.rival,
        is_beside=info.bench in store.duet.beside,
        base_rolling=beside[0],
        base_whole=beside[1],
        versus=store.duet.report().get(info.bench),
        launch_ratio=store.duet.now(info.bench) if rival is not None else None,
        error=row.error,
        error_kind=row.error_kind,
        traceback=row.traceback,
    )


def _stragglers(of: Stats) -> tuple[str, ...]:
    """How many samples are far outside the bulk, where they make most of the spread."""
    is_much = of.severe >= max(_FEW_SEVERE, _SEVERE_SHARE * of.n)
    if not is_much or not of.madn_s or (of.std_s or 0.0) < _ABOVE_BULK * of.madn_s:
        return ()
    return (f"{of.severe:,} stragglers",)


def _cache_wanted(store: "Store") -> CacheMode | str:
    return store.start.config.cache if store.start else "warm"


def _rest(parts: Sequence[tuple[Stats, Stats]], row: RowView) -> tuple[Stats, Stats]:
    """What is left of a row's mean time without its phases: means add up, medians need not."""

    def left(total: Stats, means: Iterable[float | None]) -> Stats:
        known = [mean for mean in means if mean is not None]
        if total.mean_s is None or len(known) < len(parts):
            return Stats()
        rest_s = max(0.0, total.mean_s - sum(known))
        return Stats(n=total.n, median_s=rest_s, mean_s=rest_s)

    return (
        left(row.rolling, (rolling.mean_s for rolling, _ in parts)),
        left(row.whole, (whole.mean_s for _, whole in parts)),
    )


def _with_device(config: RunConfig, chosen: Chosen) -> RunConfig:
    values = {name: getattr(config, name) for name in config.__struct_fields__}
    values.update(device=chosen.device, device_reason=chosen.reason)
    return RunConfig(**values)
