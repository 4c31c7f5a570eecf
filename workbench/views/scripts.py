"""Scripts and styles of pages: our own, and BokehJS from the installed bokeh package, without importing it."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from pathlib import Path

from workbench.errors import MissingError, NotFoundError, quoted

SCRIPTS = ("bokeh.min.js", "bokeh-widgets.min.js", "bokeh-tables.min.js", "bokeh-gl.min.js", "bokeh-api.min.js")


_VIEWS = Path(__file__).parent
PAGE = next(_VIEWS.glob("page.*.js"), _VIEWS / "page.js")
"""Our script for pages outside of JupyterLab. Its name contains its hash, because browsers cache scripts by name."""


def styles(view: str) -> str:
    """Return the styles of a cell that shows a view, "page" or "figure"."""
    names = ["cell.css"] if view == "figure" else ["page.raw.css", "cell.css"]
    return "\n".join((_VIEWS / name).read_text(encoding="utf-8") for name in names)


@functools.lru_cache(maxsize=2 * len(SCRIPTS))
def read(name: str, *, compressed: bool) -> bytes:
    """Return PAGE or one of SCRIPTS, gzipped if `compressed`. Raises NotFoundError for any other name."""
    if name not in (PAGE.name, *SCRIPTS):
        raise NotFoundError(f"There is no script {quoted(name)}. Possible: {', '.join(SCRIPTS)}.")
    content = (PAGE if name == PAGE.name else _folder() / name).read_bytes()
    return gzip.compress(content, mtime=0) if compressed else content


def _folder() -> Path:
    spec = importlib.util.find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise MissingError("The figures need bokeh: pip install 'bokeh>=3.9,<3.11'.")
    return Path(spec.origin).parent / "server" / "static" / "js"
