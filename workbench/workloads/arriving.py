"""Modules of a person's, in a run's process and where its tasks run; there they travel as source text.

They are imported below a package, whose name tells what is in all of them, and their import statements are made to say
so. Each process has one copy of each, and two runs of different code share nothing: no module, and no key of a task.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import logging
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from errno import ENOENT
from functools import update_wrapper
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.readers import FileReader
from importlib.util import find_spec, spec_from_file_location
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

import dask.config
from distributed.diagnostics.plugin import WorkerPlugin

_ARRIVING, _LOOKING = 10.0, 0.05
"""Seconds within which this package comes to a worker, if it comes, and between two looks."""

Source = tuple[str, str, bool]
"""Text of a module, the path of its file, and whether it is a package; of one without a file, that of its folder."""


class Sources(Protocol):
    """Modules by their names, such as a dict has them."""

    def get(self, name: str, /) -> Source | None:
        """Return a module of the person's; None for others."""


class Text(SourceFileLoader):
    """Makes a module of its text; its file may be on no disk here."""

    def __init__(self, name: str, source: Source, names: ast.NodeTransformer) -> None:
        super().__init__(name, source[1])
        self._text, self._names = source[0], names
        self._known: dict[str, Any] = {}

    def get_code(self, name: str) -> CodeType:
        """Compile the text."""
        tree = ast.fix_missing_locations(self._names.visit(ast.parse(self._text, self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def get_source(self, name: str) -> str:
        """Return the text, for lines of tracebacks."""
        return self._text

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return one that travels."""
        return Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run the text, and know what it made."""
        super().exec_module(module)
        self.know(module)

    def know(self, module: ModuleType) -> None:
        """Take what a module holds now for what every process has that imports it."""
        self._known = {name: _mark(value) for name, value in vars(module).copy().items()}

    def changed(self, module: ModuleType) -> dict[str, Any]:
        """Values that a module didn't hold when it had been imported."""
        return {
            name: value
            for name, value in vars(module).copy().items()
            if not name.startswith("__") and not isinstance(value, ModuleType | FunctionType | type)
            if not _same(_mark(value), self._known.get(name, self))
        }

    def get_resource_reader(self, name: str | None = None) -> FileReader:
        """Return what reads files beside a module. Raises FileNotFoundError where its folder isn't on this machine."""
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise FileNotFoundError(ENOENT, "Modules travel to workers, files beside them don't", str(folder))
        return FileReader(self)


class Module(ModuleType):
    """A module that travels by its name, and with what it holds where any of the run's was changed after its import."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how it is made where it arrives."""
        there = _modules(self.__name__.partition(".")[0])
        if self in there and not any(map(_changed, there)):
            return importlib.import_module, (self.__name__,)
        others = {name: value for name, value in vars(self).copy().items() if isinstance(value, Module)}
        return _copied, (self.__name__,), _changed(self) | others


def _modules(package: str) -> list[Module]:
    there = sys.modules.copy().items()
    return [each for name, each in there if name.startswith(f"{package}.") and isinstance(each, Module)]


def _changed(module: Module) -> dict[str, Any]:
    loader = module.__spec__ and module.__spec__.loader
    return loader.changed(module) if isinstance(loader, Text) else {}


def unseen(package: str) -> Iterator[tuple[str, str, str]]:
    """Names of a module, a class there, and a value that its methods use, and that was changed since the import."""
    for module in _modules(package):
        values = _changed(module).keys()
        kinds = [each for each in vars(module).values() if isinstance(each, type)] if values else []
        for kind in (each for each in kinds if each.__module__ == module.__name__):
            methods = [each.__code__ for each in vars(kind).values() if isinstance(each, FunctionType)]
            for value in sorted(values & {name for code in methods for name in code.co_names}):
                yield module.__name__, kind.__name__, value


def _copied(name: str) -> Module:
    """Return a copy of a module, for values of its own; its functions use these."""
    module, copy = importlib.import_module(name), Module(name)
    for each, value in vars(module).copy().items():
        if isinstance(value, FunctionType) and value.__globals__ is vars(module):
            again = FunctionType(value.__code__, vars(copy), value.__name__, value.__defaults__, value.__closure__)
            again.__kwdefaults__ = value.__kwdefaults__
            value = update_wrapper(again, value)
            del value.__wrapped__
        setattr(copy, each, value)
    return copy


class _Inside(pickle.Pickler):
    """Writes what is in a container, and of modules and functions which they are."""

    def persistent_id(self, value: Any) -> int | None:
        """Return what stands for a value."""
        return id(value) if isinstance(value, ModuleType | FunctionType) else None


def _mark(value: Any) -> Any:
    """By what a value is known again: itself, or what is in it where that may change."""
    if isinstance(value, dict | list | set):
        with contextlib.suppress(Exception):
            written = BytesIO()
            _Inside(written).dump(value)
            return written.getvalue()
    return value


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, bytes) and isinstance(other, bytes) and one == other)


_BY_NAME = ("importlib.import_module", "importlib.resources.files")


class _Names(ast.NodeTransformer):
    """Has imports name a person's modules below the package in which they are."""

    def __init__(self, under: str, sources: Sources) -> None:
        self._under, self._sources = under, sources
        self._by_name = {*_BY_NAME}
        """Calls as the text has them; somebody's own `files` may take anything."""

    def visit_Import(self, node: ast.Import) -> Any:
        """Make `import a.b` of one's own `import under.a.b` and `from under import a`."""
        made: list[ast.stmt] = []
        for alias in node.names:
            if not self._is_own(alias.name):
                self._learn(alias.name, alias.asname or alias.name)
                made.append(ast.Import([alias]))
                continue
            if "." in alias.name:
                made.append(ast.Import([ast.alias(self._below(alias.name), alias.asname)]))
            if "." not in alias.name or not alias.asname:
                made.append(ast.ImportFrom(self._under, [ast.alias(alias.name.partition(".")[0], alias.asname)], 0))
        return [ast.copy_location(each, node) for each in made]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Make `from a import b` of one's own `from under.a import b`."""
        if not node.level and node.module and self._is_own(node.module):
            node.module = self._below(node.module)
        for alias in node.names:
            self._learn(f"{node.module}.{alias.name}", alias.asname or alias.name)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        """Do so where a module is imported by a call with its name, too."""
        self.generic_visit(node)
        by_name = ast.unparse(node.func) in self._by_name
        match node.args:
            case [ast.Constant(str(name)) as first, *_] if by_name and self._is_own(name):
                first.value = self._below(name)
        return node

    def _learn(self, name: str, called: str) -> None:
        self._by_name |= {
            f"{called}{each.removeprefix(name)}" for each in _BY_NAME if f"{each}.".startswith(f"{name}.")
        }

    def _is_own(self, name: str) -> bool:
        return self._sources.get(name.partition(".")[0]) is not None

    def _below(self, name: str) -> str:
        return f"{self._under}.{name}"


class _Alias(Loader):
    """Makes a module of a name another one, which is imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def exec_module(self, module: ModuleType) -> None:
        """Have the other one in its place."""
        sys.modules[module.__name__] = importlib.import_module(self._name)


class Beside(WorkerPlugin, MetaPathFinder):
    """Lets a process import a person's modules while a run lasts."""

    def __init__(self, name: str, under: str, sources: Sources) -> None:
        self.name, self.under, self.sources = name, under, sources
        self._folder: TemporaryDirectory[str] | None = None

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Where a module comes from, if it is one of these. Raises ImportError where it may be one of two runs'."""
        if name == self.under:
            return ModuleSpec(name, None, is_package=True)
        below = name.removeprefix(f"{self.under}.")
        source = self.sources.get(below)
        if source is None:
            return None
        if below == name:
            if any(each.under != self.under and each.sources.get(name) for each in _finders()):
                raise ImportError(
                    f"Two runs on this worker have a module {name}, and its name alone doesn't tell which. Import it "
                    "with a statement, or wait until the other run has ended.",
                    name=name,
                )
            return ModuleSpec(name, _Alias(f"{self.under}.{name}"))
        _, file, is_package = source
        if not file.endswith(".py"):
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [file]
            return spec
        text = Text(name, source, _Names(self.under, self.sources))
        folders = [str(Path(file).parent)] if is_package else None
        return spec_from_file_location(name, file, loader=text, submodule_search_locations=folders)

    def setup(self, worker: Any = None, folder: str | Path | None = None) -> None:
        """Offer them, and no longer those of another run by names that these have, too.

        What processes that this one starts need of it lies in the worker's folder, or in `folder`.
        """
        for name, module in sys.modules.copy().items():
            if any(_is_below(module, each.under) and name != module.__name__ for each in _finders()):
                del sys.modules[name]
        sys.meta_path.insert(0, self)
        # Processes that this one starts have its path: joblib's, say.
        with contextlib.suppress(OSError):
            text = f"import pickle, sys\nsys.meta_path.insert(0, pickle.loads({pickle.dumps(self)!r}))\n"
            self._folder = TemporaryDirectory(
                # That of a process that is killed goes with all else that it had on the disk.
                prefix="workbench-modules-",
                dir=getattr(worker, "local_directory", folder),
            )
            package = Path(self._folder.name, self.under)
            package.mkdir()
            (package / "__init__.py").write_text(text, encoding="utf-8")
            sys.path.append(self._folder.name)

    def teardown(self, worker: Any = None) -> None:
        """Offer them no longer, and forget those that were imported, unless another run has the same."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._folder is not None:
            sys.path[:] = [each for each in sys.path if each != self._folder.name]
            self._folder.cleanup()
        if all(each.under != self.under for each in _finders()):
            for name, module in sys.modules.copy().items():
                if _is_below(module, self.under):
                    del sys.modules[name]


class Late(WorkerPlugin):
    """Brings one of these, which needs this package, to workers to which the package is perhaps still being sent.

    A worker that joins sets up all its plugins at once, and ends where one fails. It may be somebody else's: whatever
    becomes of this one, it goes on. This class arrives as source text.
    """

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._plugin: Any = None

    async def setup(self, worker: Any) -> None:
        """Set it up as soon as the package is there. Raises what goes wrong on a worker that is up already."""
        joins, deadline = worker.status.name != "running", time.monotonic() + _ARRIVING
        # Another revision may be installed there, which must not be imported before ours has come.
        sent = "workbench.zip"
        while time.monotonic() < deadline and (
            find_spec("workbench") is None
            or (sent in worker.plugins and not any(path.endswith(f"/{sent}") for path in sys.path))
        ):
            await asyncio.sleep(_LOOKING)
        try:
            self._plugin = pickle.loads(self._packed)
            self._plugin.setup(worker)
        except Exception:
            if not joins:
                raise
            logging.getLogger("distributed.worker").exception("Functions of a run of dask-workbench can't be had here")

    def teardown(self, worker: Any) -> None:
        """Take it away again."""
        if self._plugin is not None:
            self._plugin.teardown(worker)


def _finders() -> list[Beside]:
    return [each for each in sys.meta_path if isinstance(each, Beside)]


def _is_below(module: Any, package: str) -> bool:
    return isinstance(module, ModuleType) and f"{module.__name__}.".startswith(f"{package}.")


def offer(beside: Beside) -> None:
    """Let the scheduler, which reads graphs, import them, too."""
    beside.setup(folder=dask.config.get("temporary-directory", None))
