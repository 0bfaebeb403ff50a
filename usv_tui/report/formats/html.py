"""HTML: one self-contained page whose plots answer the pointer. Needs plotly (extra `html`)."""

import html
import importlib
from typing import Any

import numpy as np

from usv_tui import plain
from usv_tui.errors import UsageError
from usv_tui.report import table
from usv_tui.report.formats import picture, rows
from usv_tui.session.opened import Opened
from usv_tui.session.snapshot import FloatArray

_PAGE = """<!doctype html>
<!-- usv-tui report -->
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 1rem }}
h1 {{ font-size: 1.3rem }} h2 {{ font-size: 1.05rem; margin-top: 2rem }}
pre {{ overflow-x: auto; background: #f6f6f4; padding: 1rem; font-size: 12.5px; line-height: 1.4 }}
</style></head><body>
<h1>{title}</h1>
<pre>{table}</pre>
<h2>Time a call over the run, and the device beneath</h2>
{run}
<h2>Distribution</h2>
{spread}
</body></html>
"""


def text(session: Opened) -> str:
    """The page.

    Raises:
        UsageError: plotly is not installed.
    """
    try:
        graphs: Any = importlib.import_module("plotly.graph_objects")
        subplots: Any = importlib.import_module("plotly.subplots")
    except ImportError:
        raise UsageError("HTML needs plotly", "pip install 'usv-tui[html]'") from None
    run = _run(session, graphs, subplots)
    spread = _spread(session, graphs)
    return _PAGE.format(
        title=html.escape(plain.line(session.snapshot.suite) or "usv-tui session"),
        table=html.escape(plain.lines(table.render(session.snapshot), most=1_000_000)),
        run=run.to_html(full_html=False, include_plotlyjs=True, config=_QUIET),
        spread=spread.to_html(full_html=False, include_plotlyjs=False, config=_QUIET),
    )


def _run(session: Opened, graphs: Any, subplots: Any) -> Any:
    strips = list(picture.strips(session))
    unit = picture.unit_of(session)
    figure = subplots.make_subplots(
        rows=1 + len(strips),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.03,
        row_heights=[3.0] + [1.0] * len(strips),
    )
    for line in picture.lines(session):
        name = html.escape(line.name)
        t_s, edge = _outline(line)
        band: dict[str, Any] = {
            "fill": "toself",
            "fillcolor": _pale(line.colour),
            "line": {"width": 0},
        }
        band |= {"mode": "lines", "showlegend": False, "legendgroup": name, "hoverinfo": "skip"}
        figure.add_trace(graphs.Scatter(x=t_s, y=edge, **band), 1, 1)
        shown = {"name": name, "legendgroup": name, "line": {"color": line.colour, "width": 1.6}}
        figure.add_trace(graphs.Scatter(x=line.t_s, y=line.median, mode="lines", **shown), 1, 1)
    for number, strip in enumerate(strips, start=2):
        grey = {"line": {"color": "#555555", "width": 1.2}, "showlegend": False}
        trace = graphs.Scatter(x=strip.t_s, y=strip.values, mode="lines", name=strip.title, **grey)
        figure.add_trace(trace, number, 1)
        figure.update_yaxes(title_text=strip.title, row=number, col=1)
    for at_s, label in picture.marks(session):
        figure.add_vline(x=at_s, line={"dash": "dot", "color": "#999999"})
        figure.add_annotation(x=at_s, y=1, yref="paper", text=html.escape(label), showarrow=False)
    figure.update_yaxes(title_text=f"time a call, {unit.name}", row=1, col=1)
    figure.update_xaxes(title_text="seconds since the start", row=1 + len(strips), col=1)
    figure.update_layout(height=420 + 130 * len(strips), **_STYLE)
    return figure


def _outline(line: picture.Line) -> tuple[FloatArray, FloatArray]:
    """The band from the lowest to the highest samples as polygons, one a stretch without a hole."""
    t_s: list[FloatArray] = []
    edge: list[FloatArray] = []
    holes = np.flatnonzero(np.isnan(line.t_s))
    for part in np.split(np.arange(line.t_s.size), holes):
        kept = part[np.isfinite(line.t_s[part])]
        t_s += [line.t_s[kept], line.t_s[kept][::-1], np.array([np.nan])]
        edge += [line.low[kept], line.high[kept][::-1], np.array([np.nan])]
    return np.concatenate(t_s), np.concatenate(edge)


_QUIET = {"displaylogo": False}
_STYLE: dict[str, Any] = {
    "template": "plotly_white",
    "hovermode": "x unified",
    "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
}


def _spread(session: Opened, graphs: Any) -> Any:
    unit = picture.unit_of(session)
    figure = graphs.Figure()
    for number, row in enumerate(rows.timed(session)):
        colour = picture.COLOURS[number % len(picture.COLOURS)]
        name = html.escape(plain.name(row.view.name))
        figure.add_trace(
            graphs.Box(x=_thinned(row.seconds / unit.seconds), name=name, marker_color=colour)
        )
    figure.update_layout(height=160 + 60 * len(figure.data), showlegend=False, **_STYLE)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title_text=f"time a call, {unit.name}")
    return figure


_MOST_POINTS = 5000


def _thinned(values: Any) -> Any:
    """Evenly spaced order statistics: a box plot of them is that of all."""
    ordered = sorted(values.tolist())
    step = max(1, len(ordered) // _MOST_POINTS)
    return [*ordered[::step], ordered[-1]]


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
