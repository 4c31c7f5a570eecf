"""BokehJS from the installed bokeh package, without importing it."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from pathlib import Path

from workbench.errors import MissingError, NotFoundError, quoted

SCRIPTS = ("bokeh.min.js", "bokeh-widgets.min.js", "bokeh-tables.min.js", "bokeh-gl.min.js", "bokeh-api.min.js")


@functools.lru_cache(maxsize=2 * len(SCRIPTS))
def read(name: str, *, compressed: bool) -> bytes:
    """Return one of SCRIPTS, gzipped if `compressed`. Raises NotFoundError for any other name."""
    if name not in SCRIPTS:
        raise NotFoundError(f"There is no script {quoted(name)}. Possible: {', '.join(SCRIPTS)}.")
    content = (_folder() / name).read_bytes()
    return gzip.compress(content, mtime=0) if compressed else content


def _folder() -> Path:
    spec = importlib.util.find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise MissingError("The figures need bokeh: pip install 'bokeh>=3.9,<3.11'.")
    return Path(spec.origin).parent / "server" / "static" / "js"
