"""A figure as a page embeds it: Bokeh's JSON, and the scripts that draw it. Imports bokeh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import bokeh

from workbench.figures.colors import THEMES
from workbench.figures.layout import item
from workbench.views.answers import api_url

SCRIPTS = ("bokeh.min.js", "bokeh-widgets.min.js")
"""Scripts of BokehJS that the figure needs, in the order in which they must run."""


def document(theme: str, base_url: str) -> dict[str, Any]:
    """Return an empty figure for a page to embed."""
    return {"item": with_own_ids(item(theme)), "bokeh": scripts(base_url)}


def scripts(base_url: str) -> dict[str, Any]:
    """Return the version and scripts that a page must load before it embeds a figure."""
    return {
        "version": bokeh.__version__,
        "scripts": [f"{api_url(base_url, 'scripts', script)}?v={bokeh.__version__}" for script in SCRIPTS],
    }


def with_own_ids(figure: dict[str, Any]) -> dict[str, Any]:
    """Return a figure whose models have unique ids, since a page may have several figures."""
    ids: dict[str, str] = {}

    def renumbered(value: Any) -> Any:
        if isinstance(value, dict):
            # Models and references to them have ids; a column of data may also be named id.
            names = {"root_id", *(["id"] if value.get("type") == "object" or value.keys() == {"id"} else [])}
            return {
                key: ids.setdefault(each, uuid4().hex) if key in names and isinstance(each, str) else renumbered(each)
                for key, each in value.items()
            }
        return [renumbered(each) for each in value] if isinstance(value, list | tuple) else value

    renewed: dict[str, Any] = renumbered(figure)
    return renewed


def _warm_up_records() -> None:
    """Do the one-time work for opening records: imports, and the first table of pyarrow."""
    from workbench.monitor.record import fill_first_table

    fill_first_table()


WARM_UP: tuple[Callable[[], Any], ...] = (_warm_up_records, *(partial(item, theme) for theme in THEMES))
"""One-time work for opening records, in parts that take a quarter of a second each."""
