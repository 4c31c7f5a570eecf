"""Modules of a person's that tasks import where they run; travels as source text, as `workbench.remote` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

Sources = Mapping[str, tuple[str, str, bool]]
"""By the module's name: its text, the path of its file, and whether it is a package."""


class Text(Loader):
    """Makes a module of its text."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def exec_module(self, module: ModuleType) -> None:
        """Run the text."""
        module.__file__ = self.path
        exec(compile(self.text, self.path, "exec"), module.__dict__)


class Beside(WorkerPlugin, MetaPathFinder):
    """Lets a worker import these modules while a run lasts, and nothing else under their names."""

    def __init__(self, name: str, sources: Sources) -> None:
        self.name = name
        self._sources = sources

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Where a module comes from, if it is one of these."""
        if name not in self._sources:
            return None
        text, file, is_package = self._sources[name]
        return spec_from_loader(name, Text(text, file), is_package=is_package)

    def setup(self, worker: Any) -> None:
        """Offer them. Raises RuntimeError where the worker has others of these names, so that none is mistaken."""
        for name, (text, *_) in self._sources.items():
            there = sys.modules.get(name)
            if there is not None and _text_of(there) != text:
                whose = getattr(there, "__file__", None) or "another run"
                raise RuntimeError(
                    f"A worker has another module called {name} already (of {whose}). Wait until the other run has "
                    "ended, restart the workers, or give yours another name."
                )
        sys.meta_path.insert(0, self)

    def teardown(self, worker: Any) -> None:
        """Offer them no longer, and forget those that were imported."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name in self._sources:
            if _text_of(sys.modules.get(name)) is not None:
                del sys.modules[name]


def _text_of(module: Any) -> str | None:
    """Text that a module was made of here, None of any other."""
    return getattr(getattr(module, "__loader__", None), "text", None)
