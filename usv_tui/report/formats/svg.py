"""SVG: the run as one picture. Needs matplotlib (extra `svg`)."""

import importlib
import io
from typing import Any

from usv_tui import plain
from usv_tui.errors import UsageError
from usv_tui.report.formats import picture
from usv_tui.session.opened import Opened


def text(session: Opened) -> str:
    """The picture.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
        backend: Any = importlib.import_module("matplotlib.backends.backend_svg")
    except ImportError:
        raise UsageError("SVG needs matplotlib", "pip install 'usv-tui[svg]'") from None
    strips = list(picture.strips(session))
    figure = figures.Figure(figsize=(11, 4 + 1.3 * len(strips)), layout="constrained")
    axes = figure.subplots(
        1 + len(strips), 1, sharex=True, squeeze=False, height_ratios=[3] + [1] * len(strips)
    )[:, 0]
    _times(axes[0], session)
    for axis, strip in zip(axes[1:], strips, strict=True):
        axis.plot(strip.t_s, strip.values, color="#444444", linewidth=1)
        axis.set_ylabel(strip.title)
    for axis in axes:
        axis.grid(visible=True, alpha=0.25)
        for at_s, _ in picture.marks(session):
            axis.axvline(at_s, color="#999999", linestyle=":", linewidth=1)
    axes[-1].set_xlabel("seconds since the start")
    figure.suptitle(_escaped(_title(session)), fontsize=11)
    backend.FigureCanvasSVG(figure)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "usv-tui"})
    head, _, rest = out.getvalue().partition("\n")
    return f"{head}\n<!-- usv-tui session -->\n{rest}"


def _times(axis: Any, session: Opened) -> None:
    unit = picture.unit_of(session)
    lines = list(picture.lines(session))
    for line in lines:
        axis.fill_between(line.t_s, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0)
        label = _escaped(line.name)
        axis.plot(line.t_s, line.median, color=line.colour, linewidth=1.4, label=label)
    axis.set_ylabel(f"time a call, {unit.name}")
    middles = [float(m) for line in lines for m in line.median if m > 0]
    if middles and max(middles) > 20 * min(middles):
        axis.set_yscale("log")
    if lines:
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def _title(session: Opened) -> str:
    snapshot = session.snapshot
    device = snapshot.device.name if snapshot.device else ""
    return " · ".join(plain.line(w) for w in (snapshot.suite, snapshot.simulated or device) if w)


def _escaped(words: str) -> str:
    """A dollar sign begins no formula."""
    return words.replace("$", r"\$")
