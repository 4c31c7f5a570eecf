"""Build hook: remove a built Lab extension that is older than its sources, so that the next hook builds it anew.

Pages of the documentation that the sidebar opens go into the wheel. From a clone they are read where they are, so an
editable installation gets none.
"""

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCES = ("labext/src", "labext/style", "labext/schema")
_FILES = ("labext/package.json", "labext/yarn.lock", "labext/webpack.config.js", "labext/page.build.mjs")


class StaleHook(BuildHookInterface):
    """Before `pip install .` in a clone. A source distribution has no .git, and brings the extension built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add pages, and compare the times of files: `git pull` gives those that it changes the present one."""
        root = Path(self.root)
        if self.target_name == "wheel" and version == "standard":
            folders = {f"docs/{name}": f"workbench/help/{name}" for name in ("how-to", "explanations")}
            build_data["force_include"] |= {str(root / name): place for name, place in folders.items()}
        built = root / "workbench" / "labextension"
        if not (root / ".git").exists() or not (built / "package.json").exists():
            return
        paths = [root / name for name in _FILES]
        paths += [path for each in _SOURCES for path in (root / each).rglob("*")]
        paths += root.glob("workbench/views/*.raw.css")
        if max(path.stat().st_mtime for path in paths if path.exists()) > (built / "package.json").stat().st_mtime:
            shutil.rmtree(built)
