"""A run as one HTML file: its arguments, its result, and the activity of the cluster. Opens without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from html import escape
from typing import Any

import xarray as xr
from bokeh.resources import Resources

from workbench.clusters.spec import EXPLANATIONS, SIZES
from workbench.figures.colors import DARK, LIGHT, Theme
from workbench.figures.diagnosis import diagnosis_html
from workbench.figures.live import LiveFigure
from workbench.figures.markup import check_html, facts as facts_html, joined, paragraph, script_json, tag, values_html
from workbench.figures.measured import Section, plain, sections, sections_html, sections_items
from workbench.figures.reactions import script
from workbench.formats import count, duration, rate, size
from workbench.monitor.events import Batch
from workbench.runs.run import SIMULATED
from workbench.workloads.listing import title_of

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1500px; padding: 20px 16px 40px; box-sizing: border-box;
  font: 14px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif;
  background: BACKGROUND; color: TEXT; }
h1 { font-size: 22px; margin: 0 0 2px; }
h2 { font-size: 15px; margin: 26px 0 6px; }
p { margin: 4px 0; }
.muted, dt { color: MUTED; }
h1, dd, b, span { unicode-bidi: isolate; }
.status { display: inline-block; padding: 1px 9px; border-radius: 10px; font-size: 13px; font-weight: 600;
  border: 1px solid currentColor; vertical-align: 3px; margin-left: 8px; }
.good, .wb-mod-passed { color: GOOD; } .bad, .wb-mod-wrong { color: BAD; }
.wb-Check span { font-weight: 600; }
.facts { display: flex; flex-wrap: wrap; gap: 6px 34px; margin: 14px 0; }
.facts b { display: block; font-size: 19px; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 1px 16px; margin: 4px 0; }
dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.error { border-left: 4px solid BAD; padding: 6px 12px; margin: 12px 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
details summary { cursor: pointer; }
pre { overflow-x: auto; font-size: 12.5px; margin: 6px 0; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 0 40px; }
@media (max-width: 500px) {
  [data-workbench=values] { font-size: 12px; }
  [data-workbench=values] * { padding-right: 5px !important; }
}
"""

_GOOD = {"light": "#1b7a34", "dark": "#6fcf87"}
_BAD = {"light": "#b3261e", "dark": "#ff8a80"}

_HOW_TO_MOVE = '<p class="muted">Drag to move along the time axis, turn the wheel over the tasks to zoom.</p>'
_NOTHING_RECORDED = "This run has no recorded events: none were recorded, or its folder was deleted."

_SHORT = 48
"""Largest length of the title in large type; longer text is a sentence below."""
_WIDTH = 3_000
_RECTANGLES = 5_000
_RECTANGLES_PER_LANE = 120


def report_html(run: Any, events: Batch | None, arrays: xr.Dataset | None = None) -> str:
    """Return the whole report of a run, or of a run's JSON, as one self-contained HTML page.

    `events` are None if nothing was recorded. `arrays` are the saved arrays of the answer, which are drawn as pictures.
    """
    facts = run if isinstance(run, Mapping) else run.model_dump(mode="json")
    measured, found = sections(facts, arrays), facts.get("diagnosis")
    body = "\n".join(
        part
        for part in (
            _heading(facts),
            paragraph(facts.get("error") or "", "error"),
            values_html(facts.get("result") or {}),
            _check(facts),
            _figures(facts),
            sections_html(measured),
            f"<h2>Where the time went</h2>{diagnosis_html(found)}" if found else "",
            "<h2>What the cluster did</h2>",
            f'<div id="figure"></div>{_HOW_TO_MOVE}' if events else paragraph(_NOTHING_RECORDED, "muted"),
            _details(facts),
        )
        if part
    )
    return _page(titled(facts), body, _scripts(events, measured))


def figure_page(title: str, body: str, item: Callable[[str], Any]) -> str:
    """Return a self-contained page that shows the result of `item` for its theme in the element `figure`."""
    return _page(title, body, _with_bokeh({"figure": {theme: item(theme) for theme in ("light", "dark")}}))


def _page(title: str, body: str, script: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{_colored(LIGHT)}\n@media (prefers-color-scheme: dark) {{{_colored(DARK)}}}</style>\n"
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


def _heading(run: Mapping[str, Any]) -> str:
    status = str(run.get("status", ""))
    tone = "good" if status == "done" else "bad" if status in ("failed", "lost") else "muted"
    began = run.get("started") or run.get("created")
    place = joined(
        (
            datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d %H:%M:%S %z") if began else None,
            f"on {run['cluster']}" if run.get("cluster") else None,
            f"imported from {run['imported']['machine']}" if run.get("imported") else None,
            f"run {run.get('id', '')}",
        )
    )
    return (
        f'<h1>{escape(titled(run))}<span class="status {tone}">{escape(status)}</span></h1>'
        f'<p class="muted">{escape(place)}</p>'
    )


def titled(run: Mapping[str, Any]) -> str:
    """Return the name of a run, marked if its GPUs were simulated."""
    workload, title = str(run.get("workload") or "run"), run.get("title")
    name = title if title and title != workload else title_of(workload)
    return f"{SIMULATED if run.get('simulated') else ''}{name}"


def _figures(run: Mapping[str, Any]) -> str:
    facts, longer = [], []
    if run.get("seconds") is not None:
        facts.append((duration(run["seconds"]), "to build and compute"))
    if run.get("bytes"):
        facts.append((size(run["bytes"]), "of data"))
    if run.get("bytes_per_second"):
        facts.append((rate(run["bytes_per_second"]), "on average"))
    if run.get("energy"):
        facts.append((f"{count(round(run['energy']['joules']))} J", "by the GPUs"))
    for key, value in plain(run.get("result")).items():
        name, text = key.replace("_", " "), _result(value)
        if len(text) <= _SHORT:
            facts.append((text, name))
        else:
            longer.append(text if text.endswith(".") else f"{name.capitalize()}: {text}")
    cells = "".join(
        f'<div><b>{escape(value)}</b><span class="muted">{escape(what)}</span></div>' for value, what in facts
    )
    return (
        (f'<div class="facts">{cells}</div>' if cells else "")
        + "".join(tag("p", escape(each)) for each in (*longer, run.get("text_comparison")) if each)
        + _on_gpu(run.get("on_gpu"))
    )


def _result(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        shown = ", ".join(str(item) if isinstance(item, int) else f"{item:.6g}" for item in value[:4])
        return f"{shown}, … ({len(value)})" if len(value) > 4 else shown
    return value if isinstance(value, str) else json.dumps(value)


def _check(run: Mapping[str, Any]) -> str:
    """Return the check in one line with a light, and the size of the error, folded."""
    detail = str((run.get("check") or {}).get("detail") or "")
    by_how_much = f'<details class="muted"><summary>By how much</summary>{escape(detail)}</details>' if detail else ""
    return check_html(run) + by_how_much


def _on_gpu(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    text = f"<p><b>On the GPU?</b> {escape(str(found.get('sentence', '')))}</p>"
    return text + (
        f'<p><b class="bad">Warning.</b> {escape(str(found["warning"]))}</p>' if found.get("warning") else ""
    )


def _details(run: Mapping[str, Any]) -> str:
    spec = run.get("spec") or {}
    size = {name: value for name, value in spec.items() if name not in EXPLANATIONS}
    code = _folded("The same cluster in Dask code", spec["code"]) if spec.get("code") else ""
    sections = [
        ("Parameters", _list(run.get("parameters"))),
        ("As they were used", _list(run.get("resolved")) + _sentences(run.get("notes"))),
        ("Cluster", _list(size) + _sentences(spec.get("why")) + code),
        ("Versions", _list(run.get("versions"))),
    ]
    filled = "".join(f"<section><h2>{title}</h2>{body}</section>" for title, body in sections if body)
    everything = json.dumps(run, indent=2, default=str, ensure_ascii=False)
    return f'<div class="columns">{filled}</div>{_folded("The whole record as JSON", everything)}'


def _folded(title: str, text: str) -> str:
    return f"<details><summary class='muted'>{title}</summary><pre>{escape(text)}</pre></details>"


def _list(values: Mapping[str, Any] | None) -> str:
    facts = {
        str(name): escape(_shown(name, value))
        for name, value in (values or {}).items()
        if value not in (None, "", [], {})
    }
    return facts_html(facts) if facts else ""


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "idle_timeout":
        return duration(value)
    if name in SIZES and value:
        return size(value)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _sentences(sentences: Iterable[str] | None) -> str:
    return "".join(paragraph(sentence, "muted") for sentence in sentences or ())


def _scripts(events: Batch | None, measured: list[Section]) -> str:
    items = sections_items(measured)
    if events is None:
        return _with_bokeh(items) if items else ""
    light, dark = (_figure(theme, events) for theme in (LIGHT, DARK))
    record = light.record_values((LIGHT, DARK), _most_rectangles(light))
    return _with_bokeh({"figure": {"light": light.item(), "dark": dark.item()}, **items}, record)


def _with_bokeh(items: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> str:
    library = Resources(mode="inline", components=["bokeh", "bokeh-widgets"])
    ours = f"{script('report')}workbench({script_json({'items': items, 'record': record})})"
    return "\n".join(f"<script>{text}</script>" for text in (*library.js_raw, ours))


def _figure(theme: Theme, events: Batch) -> LiveFigure:
    figure = LiveFigure(theme.name)
    figure.feed([events])
    figure.apply(figure.patches())
    figure.apply(figure.show_range(*figure.window(), _WIDTH, limit=_most_rectangles(figure)))
    return figure


def _most_rectangles(figure: LiveFigure) -> int:
    return max(_RECTANGLES, _RECTANGLES_PER_LANE * len(figure.timeline.lanes))
