"""What changes in a page without Python: functions of labext/src/figures, as Bokeh takes JavaScript."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from bokeh.models import CustomJS, CustomJSTickFormatter, CustomJSTransform

_FOLDER = Path(__file__).parent / "scripts"


@cache
def script(name: str) -> str:
    """JavaScript that gives the function of labext/src/figures/`name`.ts the name `workbench`."""
    return (_FOLDER / f"{name}.js").read_text(encoding="utf-8")


def reaction(name: str, /, **values: Any) -> CustomJS:
    """Callback that calls a function with models and values, by their names."""
    return CustomJS(args=values, code=_call(name, values))


def formatter(name: str, /, **values: Any) -> CustomJSTickFormatter:
    """Labels of an axis: a function of `tick` and all `ticks`, and of these values."""
    return CustomJSTickFormatter(args=values, code=_call(name, [*values, "tick", "ticks"]))


def transformed(name: str, /, **values: Any) -> CustomJSTransform:
    """Column that is computed in the page: a function of the column `xs`, and of these values."""
    return CustomJSTransform(args=values, v_func=_call(name, [*values, "xs"]))


def _call(name: str, values: Any) -> str:
    return f"{script(name)}return workbench({{{', '.join(values)}}})"
