"""A run as one HTML file: its facts, and the activity of the cluster. Opens without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bokeh.resources import Resources
from markupsafe import Markup, escape

from workbench.figures.answers import Picture
from workbench.figures.colors import DARK, LIGHT, Theme
from workbench.figures.layout import item
from workbench.figures.live import LiveFigure
from workbench.figures.reactions import script
from workbench.figures.run_pictures import measurements_html, pictures_html
from workbench.markup import folded, joined, paragraph, script_json, tag
from workbench.monitor.events import Batch
from workbench.runs.facts import STYLE, TITLES, details_html, facts, facts_html
from workbench.runs.run import SIMULATED, Run
from workbench.workloads.listing import title_of

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1500px; padding: 20px 16px 40px; box-sizing: border-box;
  font: 14px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif;
  background: BACKGROUND; color: TEXT; }
h1 { font-size: 22px; margin: 0 0 2px; }
h2 { font-size: 15px; margin: 26px 0 6px; }
p { margin: 4px 0; }
figure { margin: 12px 0; }
.wb-Muted, dt { color: MUTED; }
h1, dd, b, span { unicode-bidi: isolate; }
.status { display: inline-block; padding: 1px 9px; border-radius: 10px; font-size: 13px; font-weight: 600;
  border: 1px solid currentColor; vertical-align: 3px; margin-left: 8px; }
.wb-mod-passed { color: GOOD; font-weight: 600; } .wb-mod-wrong, .wb-mod-warned { color: BAD; font-weight: 600; }
.wb-Checked { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: 12.5px; margin: 6px 0; }
@media (max-width: 500px) {
  [data-workbench=values] { font-size: 12px; }
  [data-workbench=values] * { padding-right: 5px !important; }
}
"""

_GOOD = {"light": "#1b7a34", "dark": "#6fcf87"}
_BAD = {"light": "#b3261e", "dark": "#ff8a80"}

_HOW_TO_MOVE = (
    "Drag to move along the time axis, turn the wheel over the tasks to zoom. Neighboring tasks shorter than a pixel "
    "are drawn as one; the replay in JupyterLab shows each."
)
_NOTHING_RECORDED = "This run has no recorded events: none were recorded, or its folder was deleted."

_WIDTH = 3_000
_RECTANGLES = 5_000
_RECTANGLES_PER_LANE = 120


def report_html(run: Run, events: Batch | None, pictures: Sequence[Picture] = ()) -> str:
    """Return the whole report of a run as one self-contained HTML page.

    `events` are None if nothing was recorded. `pictures` are those of the answer.
    """
    record, run_facts = run.model_dump(mode="json"), facts(run)
    everything = json.dumps(record, indent=2, default=str, ensure_ascii=False)
    time = facts_html(run_facts, "time")
    body = tag(
        "main",
        _heading(run, next((each.text for each in run_facts if each.label == "Parameters"), "")),
        facts_html(run_facts, "error"),
        facts_html(run_facts, "answer"),
        pictures_html(pictures),
        facts_html(run_facts, "check"),
        tag("h2", TITLES["time"]) + time if time else "",
        tag("h2", "What the cluster did"),
        tag("div", id="figure") + paragraph(_HOW_TO_MOVE) if events else paragraph(_NOTHING_RECORDED),
        measurements_html(record),
        folded("Details", details_html(run_facts)),
        folded("The whole record as JSON", tag("pre", everything)),
        class_="wb-Sheet",
    )
    return page(titled(run), body, _scripts(events) if events else "")


def page(title: str, body: Markup, script: str = "") -> str:
    """Return a self-contained page for light and dark browsers."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{STYLE}{_colored(LIGHT)}\n@media (prefers-color-scheme: dark) {{{_colored(DARK)}}}</style>\n"
        f"</head>\n<body>\n{body}\n{script}\n</body>\n</html>\n"
    )


def _colored(theme: Theme) -> str:
    colors = {
        "BACKGROUND": theme.background,
        "TEXT": theme.text,
        "MUTED": theme.muted,
        "GOOD": _GOOD[theme.name],
        "BAD": _BAD[theme.name],
    }
    style = _STYLE
    for name, color in colors.items():
        style = style.replace(name, color)
    return style


def _heading(run: Run, parameters: str) -> Markup:
    tone = {"done": "wb-mod-passed", "failed": "wb-mod-wrong", "lost": "wb-mod-wrong"}.get(run.status, "wb-Muted")
    began = run.started or run.created
    place = joined(
        (
            datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d %H:%M:%S %z") if began else None,
            f"on {run.cluster}",
            f"imported from {run.imported.machine}" if run.imported else None,
            f"run {run.id}",
        )
    )
    status = tag("span", run.status, class_=f"status {tone}")
    return tag("h1", titled(run), status) + paragraph(parameters) + paragraph(place)


def titled(run: Run) -> str:
    """Return the name of a run, marked if its GPUs were simulated."""
    name = run.title if run.title != run.workload else title_of(run.workload)
    return f"{SIMULATED if run.simulated else ''}{name}"


def _scripts(events: Batch) -> str:
    figures = {theme.name: _figure(theme, events) for theme in (LIGHT, DARK)}
    library = Resources(mode="inline", components=["bokeh", "bokeh-widgets"])
    ours = f"{script('report')}workbench({script_json(figures)})"
    return "\n".join(f"<script>{text}</script>" for text in (*library.js_raw, ours))


def _figure(theme: Theme, events: Batch) -> dict[str, Any]:
    """Return an empty figure, and the patches that fill it."""
    figure = LiveFigure(theme.name, refines=False)
    figure.feed([events])
    most = max(_RECTANGLES, _RECTANGLES_PER_LANE * len(figure.timeline.lanes))
    # The range first: it draws the tasks, so that the other patches don't draw them at the resolution of a screen.
    patches = [*figure.show_range(*figure.window(), _WIDTH, limit=most), *figure.patches()]
    return {"item": item(theme.name), "patches": [patch.values() for patch in patches]}
