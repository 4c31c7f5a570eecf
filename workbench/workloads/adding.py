"""A function of a notebook as a file: its text and that of what it names, and nothing of the notebook's state."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import symtable
import sys
import textwrap
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from workbench import config
from workbench.errors import BadInputError, ConflictError
from workbench.workloads import importing, listing, own
from workbench.workloads.registry import templates

_PLAIN = (int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset)
_LONGEST = 10_000  # characters of a constant


def add(function: Callable[..., Any]) -> str:
    """Add a function of a notebook to the workloads, and return its name there.

    Its text is kept in a file of the data folder, with that of the functions, classes, constants and imports of the
    notebook that it names. It works in the folder in which the notebook works now, and imports modules beside it.
    Added again, it is replaced.

    Raises
    ------
    BadInputError
        Something that it names can't be kept in a file, or it can't be a workload; nothing was added.
    """
    name = getattr(function, "__name__", "")
    if not isinstance(function, FunctionType) or not name.isidentifier():
        raise BadInputError(f"{function!r:.80} is no plain function with a name. Define it with def, and add that.")
    if name in {each.name for each in templates()}:
        raise ConflictError(f"There is a workload {name} of ours already. Give your function another name.")
    path = listing.added_folder() / f"{name}.py"
    if path.exists() and not importing.is_added(path):
        raise ConflictError(f"{path} is there already, and wasn't added from a notebook. Give it another name.")
    text = importing.head(Path.cwd()) + file_of(function)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    before = path.read_text(encoding="utf-8") if path.exists() else None
    config.write_atomically(path, text)
    try:
        own.find(f"{path}:{name}")
    except BadInputError:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            config.write_atomically(path, before)
        raise
    return name


def file_of(function: FunctionType) -> str:
    """Text of a file that defines a function and all that it names. Raises BadInputError naming what can't be had."""
    imports: dict[str, None] = {}
    constants: dict[str, None] = {}
    definitions: dict[str, str] = {}
    missing: dict[str, str] = {}

    def take(kept: FunctionType | type, globals_: dict[str, Any]) -> None:
        source = _source(kept)
        definitions[kept.__name__] = ""  # One that calls itself is not looked at again.
        for name in _names(source):
            if name in definitions or (hasattr(builtins, name) and name not in globals_):
                continue
            if name not in globals_:
                missing[name] = "isn't defined"
                continue
            value = globals_[name]
            line = _import(name, value)
            if line is not None:
                imports[line] = None
            elif isinstance(value, FunctionType | type):
                take(value, globals_)
            elif (constant := _constant(value)) is not None:
                constants[f"{name} = {constant}"] = None
            else:
                missing[name] = f"is a {type(value).__name__} of the notebook, which no file can hold"
        # Behind what it uses.
        definitions.pop(kept.__name__)
        definitions[kept.__name__] = source

    if function.__closure__:
        inside = ", ".join(function.__code__.co_freevars)
        raise BadInputError(f"{function.__name__} uses {inside} of the function around it. Give these as parameters.")
    take(function, function.__globals__)
    if missing:
        said = "; ".join(f"{name} {why}" for name, why in missing.items())
        raise BadInputError(
            f"{function.__name__} can't be added: {said}. Make it in the function, or give it a parameter."
        )
    parts = ("\n".join(sorted(imports)), "\n".join(constants), *definitions.values())
    return "\n\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _source(kept: FunctionType | type) -> str:
    try:
        return textwrap.dedent(inspect.getsource(kept))
    except (OSError, TypeError) as err:
        raise BadInputError(
            f"The text of {kept.__name__} isn't there any more. Run the cell that defines it again."
        ) from err


def _names(source: str) -> dict[str, None]:
    """Names that a definition uses and doesn't make itself."""
    module = symtable.symtable(source, "<cell>", "exec")
    # Of its defaults, decorators and bases.
    found = {each.get_name() for each in module.get_symbols() if not each.is_assigned()}
    waiting = module.get_children()
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        found |= {each.get_name() for each in scope.get_symbols() if each.is_global()}
    return dict.fromkeys(sorted(found))


def _import(name: str, value: Any) -> str | None:
    """The line that imports a value, where it is of a module that can be imported."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    module = getattr(value, "__module__", None)
    there = getattr(value, "__name__", None) or getattr(value, "_name", None) or name
    if not isinstance(module, str) or module == "__main__" or module not in sys.modules:
        return None
    # The shortest path to it is the public one: Python 3.13 makes Path in pathlib._local, and nobody imports it there.
    for path in accumulate(module.split("."), "{}.{}".format):
        for each in (there, name):
            if getattr(sys.modules.get(path), str(each), None) is value:
                return f"from {path} import {each}" + ("" if each == name else f" as {name}")
    return None


def _constant(value: Any) -> str | None:
    """Plain data as code; None where it isn't such."""
    if not isinstance(value, _PLAIN):
        return None
    text = repr(value)
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        plain = repr(set(value)) if isinstance(value, frozenset) else text
        if len(text) <= _LONGEST and ast.literal_eval(plain) == value:
            return text
    return None
