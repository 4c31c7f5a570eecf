"""Changes within a page without Python: functions of labext/src/figures, wrapped in Bokeh's JavaScript classes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from bokeh.models import CustomJS, CustomJSHover, CustomJSTicker, CustomJSTickFormatter

_FOLDER = Path(__file__).parent / "scripts"


@cache
def script(name: str) -> str:
    """Return JavaScript that binds the function of labext/src/figures/`name`.ts to the name `workbench`."""
    return (_FOLDER / f"{name}.js").read_text(encoding="utf-8")


def reaction(name: str, /, **values: Any) -> CustomJS:
    """Return a callback that calls a function with models and values, by name."""
    return CustomJS(args=values, code=_call(name, values))


def formatter(name: str, /, **values: Any) -> CustomJSTickFormatter:
    """Return a formatter of axis labels: a function of `tick`, all `ticks`, and these values."""
    return CustomJSTickFormatter(args=values, code=_call(name, [*values, "tick", "ticks"]))


def ticker(name: str, /, **values: Any) -> CustomJSTicker:
    """Return a ticker of an axis: a function of the shown range `cb_data`, and of these values."""
    return CustomJSTicker(args=values, major_code=_call(name, [*values, "cb_data"]))


def hovered(name: str) -> CustomJSHover:
    """Return the format of a value in a tooltip: a function of `value`."""
    return CustomJSHover(code=_call(name, ["value"]))


def _call(name: str, values: Any) -> str:
    return f"{script(name)}return workbench({{{', '.join(values)}}})"
