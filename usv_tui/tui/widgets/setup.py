"""What is measured with what: nothing about a run's conditions is left to guess."""

from collections.abc import Mapping

from textual.strip import Strip

from usv_tui.session.snapshot import Snapshot
from usv_tui.tui import text
from usv_tui.tui.view import Scene
from usv_tui.units import bytes_text

_FEW_WORDS = {"None": "unknown", "True": "yes", "False": "no"}


def facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Pairs of a name and what is known."""
    config, device, timer = snapshot.config, snapshot.device, snapshot.timer
    out = [("device", f"{config.device}: {config.device_reason or 'as asked'}")]
    if device is not None:
        out.append(("watched", _device_text(snapshot)))
    if timer is not None:
        resolution = "" if timer.resolution_ns is None else f", resolves {timer.resolution_ns} ns"
        floor = "" if timer.floor_ns is None else f", empty window {timer.floor_ns} ns"
        floor += " (the host's)" * timer.is_floor_host
        out.append(("timer", f"{timer.name}: {timer.reason}{resolution}{floor}"))
    clocks = snapshot.clocks
    locked = "" if clocks.locked_mhz is None else f" at {clocks.locked_mhz} MHz"
    why = clocks.evidence or clocks.reason
    out.append(("clocks", f"{clocks.hold.value}{locked}{', ' + why if why else ''}"))
    out.extend(_sensor_facts(snapshot))
    order = "interleaved" if config.interleave else "one after the other"
    out.append(("order", f"{order}, seed {config.seed}, pace {snapshot.pace}"))
    most = "" if config.max_time_s is None else f", of the run {config.max_time_s:g} s"
    out.append(("time limit", f"of an import, set-up or call {config.row_timeout_s:g} s{most}"))
    out.extend((item.word, f"{item.name}: {item.reason}") for item in snapshot.skipped)
    out.extend((key, _words(value)) for key, value in snapshot.environment.items())
    return out


def _words(value: object) -> str:
    """A value as text, whatever it holds, and never as a literal of Python's."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}".strip() for key, item in value.items()) or "none"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_words, value)) or "none"
    return _FEW_WORDS.get(repr(value), str(value))


def _device_text(snapshot: Snapshot) -> str:
    device = snapshot.device
    assert device is not None
    parts = [device.name, device.slice or device.uuid, device.driver or ""]
    if device.memory_bytes:
        parts.append(bytes_text(device.memory_bytes))
    if device.simulated:
        parts.append("simulated")
    parts.append(device.note)
    return "  ".join(p for p in parts if p)


def _sensor_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    if snapshot.device is None:
        return [("sensors", snapshot.telemetry_state)] if snapshot.telemetry_state else []
    out = []
    for field, sensor in snapshot.device.sensors.items():
        if sensor.reason is not None:
            out.append((field, f"none: {sensor.reason}"))
        else:
            label = f", {sensor.label}" if sensor.label else ""
            out.append((field, f"{sensor.source}{label}"))
    if snapshot.telemetry_state:
        out.append(("sensors", snapshot.telemetry_state))
    return out


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """As many facts as fit."""
    look = scene.look
    out: list[Strip] = []
    for name, what in facts(scene.snapshot)[:height]:
        words = text.clip(look.own(look.text(what)), width - 14, look.glyphs.ellipsis)
        runs = [(f" {text.left(look.text(name), 12)} ", look.dim), (words, look.base)]
        out.append(text.strip(runs, width, look.base))
    return text.exactly(out, width, height, look.base)
