"""A figure as the Lab tab embeds it: Bokeh's JSON, the names in it, and the scripts that draw it. Imports bokeh."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import bokeh
from bokeh.util.serialization import make_id

from workbench.figures.colors import THEMES
from workbench.figures.layout import COLUMNS
from workbench.figures.live import LiveFigure
from workbench.views.answers import api_url

SCRIPTS = ("bokeh.min.js", "bokeh-widgets.min.js")
"""What the figure needs of BokehJS, in the order in which it must run."""


def document(theme: str, base_url: str, *, simulated: bool) -> dict[str, Any]:
    """Return an empty figure for a page to embed; `names` are what patches and the page find in it."""
    return {
        "item": _renumbered(_item(theme, simulated)),
        "names": {name: name for name in (*COLUMNS, "time", "empty")},
        "bokeh": scripts(base_url),
    }


def scripts(base_url: str) -> dict[str, Any]:
    """Return what a page must load before it embeds a figure."""
    return {
        "version": bokeh.__version__,
        "scripts": [f"{api_url(base_url, 'bokeh', script)}?v={bokeh.__version__}" for script in SCRIPTS],
    }


@cache
def _item(theme: str, simulated: bool) -> str:
    """Bokeh takes half a second to make it, and each is like the other: what is shown comes as patches."""
    return json.dumps(LiveFigure(theme, simulated=simulated).item())


def _renumbered(item: str) -> dict[str, Any]:
    """Figure whose models have ids that no other figure has: there may be several on one page."""
    ids = {old: make_id() for old in dict.fromkeys(re.findall(r'"id": "(p\d+)"', item))}
    renumbered: dict[str, Any] = json.loads(re.sub(r'"(p\d+)"', lambda found: f'"{ids.get(found[1], found[1])}"', item))
    return renumbered


def warm_up() -> None:
    """Do what is done once for the first record that is opened: imports, and tables that Bokeh and pyarrow fill."""
    import pyarrow as pa

    import workbench.monitor.record  # noqa: F401

    # With the first value that it makes, pyarrow imports pandas.
    pa.scalar(0)
    for theme in THEMES:
        _item(theme, False)
