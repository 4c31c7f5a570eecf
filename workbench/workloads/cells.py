"""Save a notebook's cell to a file that is a workload."""

from __future__ import annotations

import ast
import builtins
import symtable
import tempfile
from pathlib import Path
from types import ModuleType

from workbench import config
from workbench.errors import BadInputError, ConflictError
from workbench.formats import listed
from workbench.workloads import importing, listing, user_functions
from workbench.workloads.builtin import templates


def save(cell: str, name: str = "") -> str:
    """Save a cell to a file of its own, which is a workload, and return the workload's name.

    The file works in the notebook's folder and imports modules from there. Saving a cell again replaces its file.

    Parameters
    ----------
    cell
        Text of the cell, without the magic's line.
    name
        Function that is the workload, if the cell defines several.

    Raises
    ------
    WorkbenchError
        The cell uses a name that it doesn't define, the function can't be a workload, or its name is taken. Nothing was
        saved.
    """
    if missing := _undefined(cell):
        raise BadInputError(
            f"{listed(missing)} {'is' if len(missing) == 1 else 'are'}n't defined in this cell. A workload's cell is a "
            "file of its own: import or define what it uses in the cell, or give the function a parameter."
        )
    text = importing.head(Path.cwd()) + cell
    with tempfile.TemporaryDirectory() as folder:
        tried = Path(folder, "cell.py")
        tried.write_text(text, encoding="utf-8")
        name = user_functions.find_once(tried, name).description.name
    path = listing.added_folder() / f"{name}.py"
    if name in {each.name for each in templates()}:
        raise ConflictError(f"There is a built-in workload {name}. Give your function another name.")
    if path.exists() and not importing.is_added(path):
        raise ConflictError(f"{path} exists and wasn't saved by %%workload. Give your function another name.")
    path.parent.mkdir(exist_ok=True, mode=0o700)
    config.write_atomically(path, text)
    return name


def _undefined(cell: str) -> list[str]:
    """Return the names that a cell uses and neither defines nor imports, as far as its text shows."""
    try:
        nodes = list(ast.walk(ast.parse(cell)))
        module = symtable.symtable(cell, "<cell>", "exec")
    except SyntaxError:
        return []  # reported with its line when the file is imported
    if any(isinstance(each, ast.alias) and each.name == "*" for each in nodes):
        return []
    scopes = [module]
    for scope in scopes:
        scopes += scope.get_children()
    used = [each for scope in scopes for each in scope.get_symbols() if scope is module or each.is_global()]
    defined = {each.get_name() for each in used if each.is_assigned() or each.is_imported()}
    # IPython adds display and get_ipython.
    ours = {name for name, value in vars(builtins).items() if not _is_of_ipython(value)}
    return sorted({each.get_name() for each in used} - defined - ours - vars(ModuleType("")).keys() - {"__file__"})


def _is_of_ipython(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("IPython")
