"""The one place where a file of a person's is imported: in a run's process, and in one that only tells what is in it.

`python -m workbench.workloads.importing` reads a question as JSON and writes the answer, see `own`, which asks. What
the file prints goes nowhere, and a file that takes too long is ended with the line at which it was.
"""

from __future__ import annotations

import ast
import contextlib
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
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from workbench import kept, trust
from workbench.errors import BadInputError, said, whole
from workbench.paths import check_openable
from workbench.workloads.declaring import declared
from workbench.workloads.signatures import NoFieldError, told_help, told_parameters

if TYPE_CHECKING:
    from workbench.workloads.arriving import Source

_STANDARD = sysconfig.get_path("stdlib")  # which may be below a home, in the venv of a Python that is there

_MARK = "# Written by workbench.add; run the notebook's cell again to change it.\n"
_WORKS_IN = "# It works in "

_roots: set[str] = set()
"""Folders in which files that were imported here, or the packages that these are in, are found by their names."""

_UNDER = re.compile(r"\byours_[0-9a-f]{12}(\.|$)")
"""What names of modules begin with in a run, see `arriving`."""


class Described(BaseModel, frozen=True):
    """What is known of a function without importing it."""

    name: str
    title: str
    help: str
    source: str
    fields: dict[str, dict[str, Any]] = {}
    problem: str | None = None
    """Why it can't be a workload; None where it can."""
    checked: bool = False
    """Whether a check of its answer is declared."""
    needs: bool = False
    """Whether it is declared what it needs."""


class Contents(BaseModel, frozen=True):
    """What a file, or a module of a package, holds."""

    functions: tuple[Described, ...] = ()
    others: dict[str, str] = {}
    """What else it has that can be called, and why that is no workload."""
    error: str | None = None
    """Why it can't be imported, with the line; None where it can."""
    files: tuple[tuple[str, int, int], ...] = ()
    """Path, time of change (ns) and size of what was imported: while these stand, so does this."""
    sha: str = ""
    """Of the text of all of them."""


class CannotImportError(BadInputError):
    """A file of a person's that can't be imported; the sentence names the line."""


def is_added(path: Path) -> bool:
    """Whether `workbench.add` wrote a file: with one workload, by whose name it is called, and what that calls."""
    return _notebook_of(path) is not None


def head(folder: Path) -> str:
    """Return what begins the file of a function that was added from a notebook in this folder."""
    return f"{_MARK}{_WORKS_IN}{json.dumps(str(folder))}\n"


def folder_of(where: str) -> Path:
    """Folder where a file works and has modules beside it: its own, or the notebook's that it was added from."""
    return _notebook_of(Path(where)) or Path(where).parent


def _notebook_of(path: Path) -> Path | None:
    """Folder of the notebook that a file was added from, as `head` wrote it; None of other files."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        first, second = file.readline(), file.readline()
    is_ours = first == _MARK and second.startswith(_WORKS_IN)
    return Path(json.loads(second.removeprefix(_WORKS_IN))) if is_ours else None


def working_folder(where: str) -> Path:
    """Return the folder in which a file works. Raises CannotImportError where it is gone."""
    folder = folder_of(where)
    if not folder.is_dir():
        instead = "Add the function from a notebook that is elsewhere." if is_added(Path(where)) else "Is it mounted?"
        raise CannotImportError(f"{Path(where).name} works in the folder {folder}, which isn't there. {instead}")
    return folder


def load(where: str, sha: str | None = None) -> ModuleType:
    """Import a file, or a module of a package by its name. Raises CannotImportError.

    For a run, whose `sha` is given, a file and what lies beside it are imported as `arriving` has them.
    """
    path = Path(where)
    try:
        return _import_file(path, sha) if path.suffix == ".py" else importlib.import_module(where)
    except CannotImportError:
        raise
    except SyntaxError as err:
        file = Path(err.filename).name if err.filename else path.name
        line = "" if err.lineno is None else f"line {err.lineno}: "
        raise CannotImportError(f"{file} can't be read: {line}{err.msg}.") from err
    except (Exception, SystemExit) as err:
        why = "it ends Python" if isinstance(err, SystemExit) else whole(f"{type(err).__name__}: {said(err)}", 300)
        # The innermost line of the person's own, in this file or beside it.
        files = traceback.extract_tb(err.__traceback__)
        frames = [each for each in files if each.filename == where or _is_own(each.filename, folder_of(where))]
        line = f"line {frames[-1].lineno}: " if frames else ""
        other = f" ({Path(frames[-1].filename).name})" if frames and Path(frames[-1].filename) != path else ""
        raise CannotImportError(f"{path.name} can't be imported: {line}{why.rstrip('.')}{other}.") from err


_trusted: dict[str, str] = {}
"""Real paths of files in folders that the user has trusted, each with the hash of what was trusted of it."""
_trusted_folders: set[str] = set()


def _enforce_trust(path: Path) -> None:
    """Import only what the user has trusted, where a file is one of a folder's workloads and that is trusted.

    Between the look at the folder and the import, somebody else may write there: so each text is compared before it
    runs. Raises CannotImportError where the folder was changed since.
    """
    folder = path.parent.parent
    sha = trust.trusted_sha(folder) if path.parent.name == trust.FOLDER else None
    if sha is None:
        return  # named by its path, which is a user's own decision
    digests = kept.digests(folder)
    if trust.fingerprint(folder, digests) != sha:
        raise CannotImportError(f"{folder} was changed since you trusted it. See what it defines: workbench trust")
    _trusted.update({os.path.realpath(each): digest for each, digest in digests.items()})
    _trusted_folders.add(os.path.realpath(path.parent))


def _check_trusted(path: str, text: bytes) -> bytes:
    """Return the text of a file. Raises CannotImportError where its folder is trusted with another one."""
    real = os.path.realpath(path)
    is_inside = any(Path(real).is_relative_to(each) for each in _trusted_folders)
    if is_inside and _trusted.get(real) != hashlib.sha256(text).hexdigest():
        raise CannotImportError(f"{path} was changed since you trusted its folder. See it again: workbench trust")
    return text


def _import_file(path: Path, sha: str | None) -> ModuleType:
    check_openable(path)
    _enforce_trust(path)
    # After the standard library, which a random.py of a person's must not stand in for; before installed packages.
    at = next((n for n, each in enumerate(sys.path) if each.endswith("-packages")), len(sys.path))
    added, folder = is_added(path), folder_of(str(path))
    above, name = folder, path.stem
    # What is added is in no package, as its notebook isn't.
    while not added and above.name and "." not in f"{above.name}{path.stem}" and (above / "__init__.py").is_file():
        above, name = above.parent, f"{above.name}.{name}"
    _roots.add(str(above))
    sys.path[at:at] = dict.fromkeys(each for each in (str(above), str(folder)) if each not in sys.path)
    _import_from_source(above)
    top = name.partition(".")[0]
    there = importlib.util.find_spec(top) if "." in name else None
    # Not where the standard library, say, has another package of this name.
    packaged = there is not None and Path(there.origin or "").resolve() == (above / top / "__init__.py").resolve()
    # A module beside the notebook may have the name of what is added.
    taken = added or path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = name.removesuffix(".__init__") if packaged else f"{path.stem}_of_yours" if taken else path.stem
    if sha is not None:
        from workbench.workloads.arriving import Beside

        name = name if packaged else name.replace(".", "_")
        under = f"yours_{hashlib.sha256(f'{path} {sha}'.encode()).hexdigest()[:12]}"
        sys.meta_path.insert(0, Beside("modules", under, _Folders((above, folder), {name: _source(path)})))
        return importlib.import_module(f"{under}.{name}")
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
    """Imports a module from its text, as the user trusted it: bytecode next to it may say something else."""

    def path_stats(self, path: str) -> Any:
        """Raise OSError, so that bytecode is neither read nor written."""
        raise OSError(path)

    def get_data(self, path: str) -> bytes:
        """Return the text of a module, as it was trusted."""
        return _check_trusted(path, super().get_data(path))


def _import_from_source(folder: Path) -> None:
    """Have Python import a user's modules in a folder without their bytecode."""

    def finder(path: str) -> FileFinder:
        if not _is_own(f"{path}/any.py", folder):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    for path in [each for each in sys.path_importer_cache if _is_own(f"{each}/any.py", folder)]:
        del sys.path_importer_cache[path]


class _Folders:
    """Modules that lie in folders, by their names there."""

    def __init__(self, folders: tuple[Path, ...], known: Mapping[str, Source] | None = None) -> None:
        self._folders = folders
        self._known: dict[str, Source | None] = {**(known or {})}

    def get(self, name: str, /) -> Source | None:
        """Return a module's text, path, and whether it is a package; None where there is none, or another has it."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> Source | None:
        top, *_ = parts = name.split(".")
        # Where the standard library has one of that name, that is imported.
        if not all(parts) or top in sys.stdlib_module_names or (top != name and self.get(top) is None):
            return None
        places = [each.joinpath(*parts) for each in self._folders]
        paths = [path for each in places for path in (each / "__init__.py", each.with_name(f"{parts[-1]}.py"))]
        path = next((each for each in paths if each.is_file() and _is_own(str(each), self._folders[0])), None)
        if path is None:
            # A package may have no file.
            path = next((each for each in places if each.is_dir()), None)
            other = PathFinder.find_spec(top)
            if path is None or (other is not None and other.origin) or not _is_own(f"{path}.py", self._folders[0]):
                return None
        taken = getattr(sys.modules.get(name), "__file__", None)
        return None if taken and Path(taken).resolve() != path.resolve() else _source(path)


def _source(path: Path) -> Source:
    if path.is_dir():
        return "", str(path), True
    text = _check_trusted(str(path), path.read_bytes())
    return importlib.util.decode_source(text), str(path), path.name == "__init__.py"


def plain(text: str) -> str:
    """Return a module's name, or a text with such in it, as a person has it."""
    return _UNDER.sub("", text)


def own_modules(module: ModuleType) -> dict[str, ModuleType]:
    """Return a module of a person's and those beside it that it imported, by the paths of their files.

    Beside a file in a package is what lies beside the package, too. Beside an installed one is what others installed.
    """
    file, above = module.__file__ or "", _above(module)
    top, *inside = plain(module.__name__).split(".")
    installed = above / top if inside else Path(file).parent
    folder = above if str(above) in _roots else installed
    found = {
        str(each.__file__): each
        for each in list(sys.modules.values())
        if isinstance(each, ModuleType) and _is_own(getattr(each, "__file__", None) or "", folder)
    }
    return ({file: module} if file else {}) | found


def _above(module: ModuleType) -> Path:
    """Folder where a module, or the package that it is in, is found by its name."""
    file = Path(module.__file__ or "")
    if is_added(file):
        return folder_of(str(file))
    return Path(*file.parts[: -1 - plain(module.__name__).count(".") - (file.name == "__init__.py")])


def _is_own(file: str, folder: Path) -> bool:
    """Whether a file is of the folder, and none of what is installed below it or of this package."""
    path, ours = Path(file), Path(__file__).parents[1]
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return False
    # Whoever made the folder chose its name and those above.
    installed = "-packages" in str(path.relative_to(folder))
    return not installed and not any(path.is_relative_to(each) for each in (sys.prefix, _STANDARD, ours))


def imported_later(module: ModuleType) -> dict[str, Source]:
    """Modules beside a person's file that functions import only when they are called, and those that these import."""
    folders = _Folders((_above(module), folder_of(module.__file__ or "")))
    found: dict[str, Source] = {}
    waiting = [
        name
        for path, each in own_modules(module).items()
        for function in ast.walk(_parsed(_source(Path(path))[0]))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in _imported(function, plain(each.__package__ or ""))
    ]
    while waiting:
        name = waiting.pop()
        if name in found or (source := folders.get(name)) is None:
            continue
        found[name] = source
        waiting += _imported(_parsed(source[0]), name if source[2] else name.rpartition(".")[0])
    return found


def modules_beside(module: ModuleType) -> dict[str, Source]:
    """Return what is needed where tasks run: a person's file, and what it imports now or later."""
    found = {plain(each.__name__): _source(Path(path)) for path, each in own_modules(module).items()}
    found |= imported_later(module)
    folders = _Folders((_above(module), folder_of(module.__file__ or "")))
    above = {each for name in found for each in accumulate(name.split("."), "{}.{}".format)} - found.keys()
    # Packages without a file.
    return found | {name: source for name in sorted(above) if (source := folders.get(name)) is not None}


def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])  # whoever imports it is told


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Names that may be of modules that statements within a node import, each after the packages that it is in."""
    for each in ast.walk(node):
        names: list[str] = []
        if isinstance(each, ast.Import):
            names = [alias.name for alias in each.names]
        elif isinstance(each, ast.ImportFrom):
            above = package.split(".")[: 1 - each.level or None] if each.level else []
            start = ".".join(filter(None, (*above, each.module)))
            names = [start, *(f"{start}.{alias.name}" for alias in each.names)]
        elif isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in ("import_module", "files"):
            names = [str(first.value) for first in each.args[:1] if isinstance(first, ast.Constant)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: n + 1]) for n in range(len(parts)) if all(parts))


def load_later(module: ModuleType) -> None:
    """Import now what `imported_later` names, as far as it can be: only what is there can travel."""
    under = module.__name__.removesuffix(plain(module.__name__))
    for name in imported_later(module):
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(f"{under}{name}")


def _files(module: ModuleType) -> list[str]:
    """Paths of a module and of all beside it that it imports, now or later."""
    later = (path for _, path, _ in imported_later(module).values() if path.endswith(".py"))
    return sorted({*own_modules(module), *later})


def sha_of(module: ModuleType) -> str:
    """Hash of the text of a module and of those beside it that it imports."""
    found = hashlib.sha256()
    for path in _files(module):
        found.update(Path(path).read_bytes())
    return found.hexdigest()


def contents(where: str) -> Contents:
    """Import a file and tell what is in it."""
    try:
        module = load(where)
        return Contents(
            functions=tuple(map(_described, functions(module).values())),
            others=dict(_others(module)),
            files=tuple(_stamps(_files(module))),
            sha=sha_of(module),
        )
    except CannotImportError as err:
        return Contents(error=str(err), files=tuple(_stamps([where])))


def functions(module: ModuleType) -> dict[str, Any]:
    """Functions of a module that are workloads: those that are declared as such, or else all public ones."""
    there = {
        name: each
        for name, each in vars(module).items()
        if is_function(each)
        and (each.__module__, each.__name__) == (module.__name__, name)
        and not name.startswith("_")
    }
    return {name: each for name, each in there.items() if hasattr(each, "__workbench__")} or there


def is_function(value: Any) -> bool:
    """Whether a value is a function, or what functools.lru_cache and others make of one, who say what they wrap."""
    return inspect.isfunction(value) or inspect.isfunction(inspect.getattr_static(value, "__wrapped__", None))


def _others(module: ModuleType) -> Iterator[tuple[str, str]]:
    """What else can be called by a name of a module, and why it is no workload."""
    found = functions(module)
    for name, each in vars(module).items():
        if name in found or name.startswith("__") or not callable(each):
            continue
        if not inspect.isfunction(each):
            what = "class" if isinstance(each, type) else type(each).__name__
            why = f"is a {what}, which has no help and text as a function has. Write a function that calls it"
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
    fields, problem = {}, None
    try:
        fields = told_parameters(function)
        json.dumps(fields, allow_nan=False)
    except (NoFieldError, TypeError, ValueError) as err:
        problem = (
            str(err) if isinstance(err, NoFieldError) else f"{name} has bounds or examples that are no plain data."
        )
    return Described(
        name=name,
        title=about.title or name.replace("_", " ").capitalize(),
        help=told_help(function),
        source=inspect.getsource(function),
        fields={} if problem else fields,
        problem=problem,
        checked=about.check is not None,
        needs=about.needs is not None,
    )


def stamp(path: str) -> tuple[str, int, int] | None:
    """Path, time of change and size of a file; None where there is none."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return path, about.st_mtime_ns, about.st_size


def _stamps(paths: Any) -> Iterator[tuple[str, int, int]]:
    return (found for path in sorted(paths) if (found := stamp(path)) is not None)


def needed(where: str, name: str, parameters: Mapping[str, Any]) -> Any:
    """Ask the function that was declared for it what a workload needs."""
    from workbench.workloads.signatures import argument

    function = functions(load(where))[name]
    told = told_parameters(function)
    return called(declared(function).needs, {each: argument(told[each], value) for each, value in parameters.items()})


def called(function: Any, parameters: Mapping[str, Any], *first: Any) -> Any:
    """Call a function beside a workload with those parameters of the workload that it names."""
    taken = inspect.signature(function).parameters
    everything = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    return function(*first, **{name: value for name, value in parameters.items() if everything or name in taken})


def main() -> None:
    """Answer the question of the standard input into the open file that it names."""
    question = json.load(sys.stdin)
    # What most files begin with takes seconds on a busy machine, for which theirs isn't to blame.
    importlib.import_module("dask.array")
    with os.fdopen(question["stack"], "w", encoding="utf-8") as stack:
        faulthandler.dump_traceback_later(question["deadline"], exit=True, file=stack)
        if question["name"] is None:
            answer = contents(question["where"]).model_dump_json()
        else:
            answer = json.dumps(needed(question["where"], question["name"], question["parameters"]))
        faulthandler.cancel_dump_traceback_later()
    with os.fdopen(question["answer"], "w", encoding="utf-8") as file:
        file.write(answer)


if __name__ == "__main__":
    # Under the name by which it is imported, so that there is one class of each kind.
    from workbench.workloads import importing

    importing.main()
