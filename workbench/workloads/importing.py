"""The only place that imports a user's file: in a run's process, and in a process that only describes it.

`python -m workbench.workloads.importing` reads a question as JSON, from `user_functions`, and writes the answer. The
file's prints are discarded, and a file that takes too long is ended with the line that it had reached.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from workbench import named_choices, trust
from workbench.errors import BadInputError, quoted, said, whole
from workbench.paths import check_openable
from workbench.workloads import signatures
from workbench.workloads.declaring import called, declared

_STANDARD = sysconfig.get_path("stdlib")  # may be below the user's home

_MARK = re.compile(r'# Written by %%workload in ("(?:[^"\\]|\\.)*")')
"""First line of a file saved from a cell, with the notebook's folder as JSON.

It replaces the cell's first line, so that lines keep their numbers.
"""

_roots: set[str] = set()
"""Folders in which the imported files, or their packages, are found by their names."""


class Described(BaseModel, frozen=True):
    """Facts about a function, known without importing it."""

    name: str
    title: str
    help: str
    source: str
    form: dict[str, Any] = {}
    """JSON Schema of its parameters."""
    problem: str | None = None
    """Reason why it can't be a workload; None if it can."""
    declares: tuple[str, ...] = ()
    """Functions declared with it: prepare, needs, check, code."""
    presets: dict[str, dict[str, Any]] = {}
    """Parameters that are declared as presets, by name."""


class Contents(BaseModel, frozen=True):
    """Contents of a file, or a module of a package."""

    functions: tuple[Described, ...] = ()
    others: dict[str, str] = {}
    """Other callables in it, with the reason why each is no workload."""
    error: str | None = None
    """Error that prevents its import, with the line; None if it can be imported."""
    files: tuple[tuple[str, int, int], ...] = ()
    """Path, modification time (ns) and size of each imported file: while these are unchanged, the answer is valid."""
    sha: str = ""
    """Hash of the text of all of them."""


class CannotImportError(BadInputError):
    """A user's file can't be imported; the message names the line."""


def is_added(path: Path) -> bool:
    """Return whether %%workload wrote a file: the workload is the function with the file's name."""
    return _notebook_of(path) is not None


def head(folder: Path) -> str:
    """Return the first line of a file saved from a cell of a notebook in this folder."""
    return f"# Written by %%workload in {json.dumps(str(folder))}. Run the cell again to change this file.\n"


def folder_of(where: str) -> Path:
    """Return the folder where a file works and imports modules: its own, or that of the notebook it was saved from."""
    return _notebook_of(Path(where)) or Path(where).parent


def _notebook_of(path: Path) -> Path | None:
    """Return the folder of the notebook that a file was saved from; None for other files."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        match = _MARK.match(file.readline())
    return None if match is None else Path(json.loads(match[1]))


def working_folder(where: str) -> Path:
    """Return the folder in which a file works. Raises CannotImportError if it is gone."""
    folder = folder_of(where)
    if not folder.is_dir():
        instead = "Run its %%workload cell in another folder." if is_added(Path(where)) else "Is it mounted?"
        raise CannotImportError(f"{Path(where).name} works in the folder {folder}, which isn't there. {instead}")
    return folder


def load(where: str, *, ships: bool = False) -> ModuleType:
    """Import a file, or a module of a package by its name. Raises CannotImportError.

    With `ships`, the file and the modules next to it are sent to tasks, also those that are imported later.
    """
    path = Path(where)
    _FromSource.ships = ships
    try:
        return _import_file(path) if path.suffix == ".py" else importlib.import_module(where)
    except CannotImportError:
        raise
    except SyntaxError as err:
        file = Path(err.filename).name if err.filename else path.name
        line = "" if err.lineno is None else f"line {err.lineno}: "
        raise CannotImportError(f"{file} can't be read: {line}{err.msg}.") from err
    except (Exception, SystemExit) as err:
        why = "it ends Python" if isinstance(err, SystemExit) else whole(f"{type(err).__name__}: {said(err)}", 300)
        # The innermost line of the user's own code, in this file or next to it.
        files = traceback.extract_tb(err.__traceback__)
        frames = [each for each in files if each.filename == where or _is_own(each.filename, folder_of(where))]
        line = f"line {frames[-1].lineno}: " if frames else ""
        other = f" ({Path(frames[-1].filename).name})" if frames and Path(frames[-1].filename) != path else ""
        raise CannotImportError(f"{path.name} can't be imported: {line}{why.rstrip('.')}{other}.") from err


_trusted: dict[str, str] = {}
"""Real paths of files in trusted folders, each with the hash of its trusted text."""
_trusted_folders: set[str] = set()


def _enforce_trust(path: Path) -> None:
    """Import only trusted files of a folder's workloads, if the folder is trusted.

    Another user may write to the folder between the check and the import: so each text is compared before it
    runs. Raises CannotImportError if the folder was changed since.
    """
    folder = path.parent.parent
    sha = trust.trusted_sha(folder) if path.parent.name == trust.FOLDER else None
    if sha is None:
        return  # named by its path, which is a user's own decision
    digests = named_choices.digests(folder)
    if trust.fingerprint(folder, digests) != sha:
        raise CannotImportError(f"{folder} was changed since you trusted it. See what it defines: workbench trust")
    _trusted.update({os.path.realpath(each): digest for each, digest in digests.items()})
    _trusted_folders.add(os.path.realpath(path.parent))


def _check_trusted(path: str, text: bytes) -> bytes:
    """Return the text of a file. Raises CannotImportError if its folder is trusted with another text."""
    real = os.path.realpath(path)
    is_inside = any(Path(real).is_relative_to(each) for each in _trusted_folders)
    if is_inside and _trusted.get(real) != hashlib.sha256(text).hexdigest():
        raise CannotImportError(f"{path} was changed since you trusted its folder. See it again: workbench trust")
    return text


def _import_file(path: Path) -> ModuleType:
    check_openable(path)
    _enforce_trust(path)
    # After the standard library, which a user's random.py must not replace; before installed packages.
    at = next((n for n, each in enumerate(sys.path) if each.endswith("-packages")), len(sys.path))
    added, folder = is_added(path), folder_of(str(path))
    above, name = folder, path.stem
    # A file saved from a cell belongs to no package, like its notebook.
    while not added and above.name and "." not in f"{above.name}{path.stem}" and (above / "__init__.py").is_file():
        above, name = above.parent, f"{above.name}.{name}"
    _roots.add(str(above))
    sys.path[at:at] = dict.fromkeys(each for each in (str(above), str(folder)) if each not in sys.path)
    _import_from_source(above)
    top = name.partition(".")[0]
    outer = importlib.util.find_spec(top) if "." in name else None
    # Python may find another package of this name, for example in the standard library.
    packaged = outer is not None and Path(outer.origin or "").resolve() == (above / top / "__init__.py").resolve()
    # A module next to the notebook may have the name of the added workload.
    is_taken = added or path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = name.removesuffix(".__init__") if packaged else f"{path.stem}_of_yours" if is_taken else path.stem
    if packaged:
        return importlib.import_module(name)
    loader = _FromSource(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Classes of the file find it here when they are pickled.
    sys.modules[name] = module
    loader.exec_module(module)
    return module


class _FromSource(SourceFileLoader):
    """Importer of a module from its text, as the user trusted it: bytecode next to it may differ."""

    ships = False
    """True if modules are sent to tasks."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's text."""
        super().exec_module(module)
        if self.ships:
            from workbench.workloads.pickling import ship

            ship(module)

    def path_stats(self, path: str) -> Any:
        """Raise OSError, so that bytecode is neither read nor written."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """Return the text of a module, as it was trusted."""
        return _check_trusted(path, super().get_data(path))


def _import_from_source(folder: Path) -> None:
    """Make Python import a user's modules in a folder without their bytecode."""

    def finder(path: str) -> FileFinder:
        if not _is_own(f"{path}/any.py", folder):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    for path in [each for each in sys.path_importer_cache if _is_own(f"{each}/any.py", folder)]:
        del sys.path_importer_cache[path]


def own_modules(module: ModuleType) -> dict[str, ModuleType]:
    """Return a user's module and its neighbors that it imported, by the paths of their files.

    Neighbors of a file in a package include those of the package. An installed file has no neighbors of the user's.
    """
    file, above = module.__file__ or "", _above(module)
    top, *inside = module.__name__.split(".")
    installed = above / top if inside else Path(file).parent
    folder = above if str(above) in _roots else installed
    neighbors = {
        str(each.__file__): each
        for each in list(sys.modules.values())
        if isinstance(each, ModuleType) and _is_own(getattr(each, "__file__", None) or "", folder)
    }
    return ({file: module} if file else {}) | neighbors


def _above(module: ModuleType) -> Path:
    """Return the folder in which a module, or its package, is found by its name."""
    file = Path(module.__file__ or "")
    if is_added(file):
        return folder_of(str(file))
    return Path(*file.parts[: -1 - module.__name__.count(".") - (file.name == "__init__.py")])


def is_next_to(where: str, name: str) -> bool:
    """Return whether a module of this name is next to a file or to the file's package."""
    return PathFinder.find_spec(name.partition(".")[0], [str(folder_of(where)), *_roots]) is not None


def _is_own(file: str, folder: Path) -> bool:
    """Return whether a file is of the folder, and not of a package installed below it or of this package."""
    path, ours = Path(file), Path(__file__).parents[1]
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return False
    # The folder's name and those above are the user's choice.
    installed = "-packages" in str(path.relative_to(folder))
    return not installed and not any(path.is_relative_to(each) for each in (sys.prefix, _STANDARD, ours))


def sha_of(module: ModuleType) -> str:
    """Return the hash of the text of a module and of those next to it that it has imported."""
    digest = hashlib.sha256()
    for path in sorted(own_modules(module)):
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def contents(where: str) -> Contents:
    """Import a file and describe its contents."""
    try:
        module = load(where)
        return Contents(
            functions=tuple(map(_described, functions(module).values())),
            others=dict(_others(module)),
            files=tuple(_stamps(own_modules(module))),
            sha=sha_of(module),
        )
    except CannotImportError as err:
        return Contents(error=str(err), files=tuple(_stamps([where])))


def functions(module: ModuleType) -> dict[str, Any]:
    """Return the functions of a module that are workloads: declared ones, or else all public ones."""
    public = {
        name: each
        for name, each in vars(module).items()
        if is_function(each)
        # A module that is sent to workers claims that its functions are in __main__.
        and getattr(inspect.unwrap(each), "__globals__", None) is vars(module)
        and each.__name__ == name
        and not name.startswith("_")
    }
    return {name: each for name, each in public.items() if hasattr(each, "__workbench__")} or public


def is_function(value: Any) -> bool:
    """Return whether a value is a function, or a wrapper such as functools.lru_cache makes, with `__wrapped__`."""
    return inspect.isfunction(value) or inspect.isfunction(inspect.getattr_static(value, "__wrapped__", None))


def _others(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Return other callables of a module by name, with the reason why each is no workload."""
    workloads = functions(module)
    for name, each in vars(module).items():
        if name in workloads or name.startswith("__") or not callable(each):
            continue
        if not inspect.isfunction(each):
            kind = "class" if isinstance(each, type) else type(each).__name__
            why = f"is a {kind}, which has no help and text as a function has. Write a function that calls it"
        elif each.__name__ == "<lambda>":
            why = "is a lambda, which has no help and no types. Write it with def"
        elif each.__name__ != name:
            why = f"is a function called {each.__name__}. Where a decorator made it, let that use functools.wraps"
        elif each.__module__ != module.__name__:
            why = f"is of {each.__module__}. Name it with its own file"
        elif name.startswith("_"):
            why = "is private. Give it a name without an underscore before it"
        else:
            why = "isn't declared as others there are. Write @workbench.workload above it"
        yield name, f"it {why}."


def _described(function: Any) -> Described:
    about, name = declared(function), function.__name__
    form, problem = {}, None
    try:
        form = signatures.schema(function)
        json.dumps(form, allow_nan=False)
    except signatures.NoFieldError as err:
        problem = str(err)
    except (TypeError, ValueError):
        problem = f"{name} has bounds or examples that are no plain data."
    problem = problem or _wrong_presets(name, about.presets, form["properties"])
    return Described(
        name=name,
        title=about.title or name.replace("_", " ").capitalize(),
        help=signatures.help_of(function),
        source=inspect.getsource(function),
        form={} if problem else form,
        problem=problem,
        declares=about.functions,
        presets={} if problem else dict(about.presets or {}),
    )


def _wrong_presets(name: str, presets: Any, fields: Mapping[str, Any]) -> str | None:
    """Return a message about invalid declared presets; None if all are valid."""
    if presets is None:
        return None
    if not isinstance(presets, Mapping) or not all(isinstance(each, Mapping) for each in presets.values()):
        return f"presets of {name} are {quoted(presets)}. Give parameters by name, such as {{'large': {{'n': 1000}}}}."
    for preset, parameters in presets.items():
        if not named_choices.is_name(preset):
            return f"{name} has a preset {quoted(preset)}. Give it a name of lower-case letters, digits, - and _."
        if strange := [each for each in parameters if each not in fields]:
            names = ", ".join(fields) or "none"
            return f"The preset {preset} of {name} has {quoted(strange[0])}, which is no parameter. It has: {names}."
        try:
            json.dumps(parameters, allow_nan=False)
        except (TypeError, ValueError):
            return f"The preset {preset} of {name} holds more than text, numbers and lists of them."
    return None


def stamp(path: str) -> tuple[str, int, int] | None:
    """Return path, modification time and size of a file; None where there is none."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return path, about.st_mtime_ns, about.st_size


def _stamps(paths: Any) -> Iterator[tuple[str, int, int]]:
    return (each for path in sorted(paths) if (each := stamp(path)) is not None)


def answered(where: str, name: str, asked: str, parameters: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """Call a function that was declared with a workload: its `prepare`, `needs` or `code`."""
    from workbench.workloads.values import Surroundings

    function = functions(load(where))[name]
    arguments = signatures.arguments(signatures.schema(function), parameters)
    if "cluster" in around:
        around = {**around, "cluster": Surroundings(**around["cluster"])}
    answer = called(getattr(declared(function), asked), arguments, **around)
    return json.loads(json.dumps(answer, default=_plain))


def _plain(value: Any) -> Any:
    """Return a path as text, a model as its fields, and a NumPy number as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value.item()


def _begins_with_dask(where: str) -> bool:
    """Return whether a file imports Dask with one of its own lines, as opposed to in a function."""
    try:
        check_openable(Path(where))
        return re.search(rb"^(import|from) +dask\b", Path(where).read_bytes(), re.MULTILINE) is not None
    except (OSError, ValueError, BadInputError):
        return False  # a module of a package; importing reports errors of a file


def main() -> None:
    """Answer the question on standard input, in the open file that it names."""
    question = json.load(sys.stdin)
    # Import Dask before the deadline starts: it takes a second, or many on a busy machine.
    if _begins_with_dask(question["where"]):
        importlib.import_module("dask.array")
    with os.fdopen(question["stack"], "w", encoding="utf-8") as stack:
        faulthandler.dump_traceback_later(question["deadline"], exit=True, file=stack)
        if question["name"] is None:
            answer = contents(question["where"]).model_dump_json()
        else:
            answer = json.dumps(
                answered(**{name: question[name] for name in ("where", "name", "asked", "parameters", "around")})
            )
        faulthandler.cancel_dump_traceback_later()
    with os.fdopen(question["answer"], "w", encoding="utf-8") as file:
        file.write(answer)


if __name__ == "__main__":
    # Import it by its name, so that its classes aren't defined twice.
    from workbench.workloads import importing

    importing.main()
