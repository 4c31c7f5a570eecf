"""A figure as the Lab tab embeds it: Bokeh's JSON, the names in it, and the scripts that draw it. Imports bokeh."""

from __future__ import annotations

from typing import Any

import bokeh

from workbench.figures.live import LiveFigure
from workbench.server.answers import api_url

NAMES = {
    "tasks": "tasks",
    "workers_cpu": "workers_cpu",
    "workers_memory": "workers_memory",
    "progress": "progress",
    "time": "time",
    "empty": "empty",
}
"""What a page looks for in the document: sources that patches name, the range of time, the words when it is empty."""


def document(theme: str, base_url: str) -> dict[str, Any]:
    """Return an empty figure for a page to embed."""
    figure = LiveFigure(theme=theme)
    return {
        "item": figure.item(),
        "names": NAMES,
        "bokeh": {
            "version": bokeh.__version__,
            "scripts": [f"{api_url(base_url, 'bokeh', name)}?v={bokeh.__version__}" for name in _scripts(figure)],
        },
    }


def _scripts(figure: LiveFigure) -> list[str]:
    """Return the scripts that the figure needs, in the order in which they must run."""
    modules = {type(model).__module__ for model in figure.model.references()}
    tables = any(module.startswith("bokeh.models.widgets.tables") for module in modules)
    widgets = tables or any(module.startswith("bokeh.models.widgets") for module in modules)
    return [
        "bokeh.min.js",
        *(["bokeh-widgets.min.js"] if widgets else []),
        *(["bokeh-tables.min.js"] if tables else []),
    ]
