"""A figure as the Lab tab embeds it: Bokeh's JSON, the names in it, and the scripts that draw it. Imports bokeh."""

from __future__ import annotations

from typing import Any

import bokeh

from workbench.figures.layout import COLUMNS
from workbench.figures.live import LiveFigure
from workbench.server.answers import api_url


def document(theme: str, name: str, base_url: str) -> dict[str, Any]:
    """Return an empty figure for a page to embed; `names` are what patches and the page find in it."""
    figure = LiveFigure(theme, name)
    item = figure.item()
    return {
        "item": item,
        "names": {name: name for name in (*COLUMNS, "time", "empty")},
        "bokeh": {
            "version": bokeh.__version__,
            "scripts": [f"{api_url(base_url, 'bokeh', script)}?v={bokeh.__version__}" for script in _scripts(figure)],
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
