"""A function of a notebook as a file: its text and that of what it names, and nothing of the notebook's state."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_origin

from workbench import config
from workbench.errors import BadInputError, ConflictError, quoted
from workbench.workloads import importing, own
from workbench.workloads.registry import templates

_LITERALS = (bool, int, float, complex, str, bytes)
_LONGEST = 10_000  # characters of a constant
_MODULES = {"datetime": "datetime", "np": "numpy", "typing": "typing", "zoneinfo": "zoneinfo"}
"""Modules by the names that they have in the texts of their values: `datetime.date(2026, 1, 1)`."""
_CLASSES = ("pathlib", "decimal", "fractions", "collections")
"""Modules whose values' texts begin with a class: `PosixPath('data')`."""


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
    if not importing.is_function(function) or not name.isidentifier():
        raise BadInputError(f"{quoted(function)} is no plain function with a name. Define it with def, and add that.")
    if name in {each.name for each in templates()}:
        raise ConflictError(f"There is a workload {name} of ours already. Give your function another name.")
    path = own.added_folder() / f"{name}.py"
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


def file_of(function: Callable[..., Any]) -> str:
    """Text of a file that defines a function and all that it names. Raises BadInputError naming what can't be had."""
    writing = _File()
    name = function.__name__
    writing.take(name, function, inspect.unwrap(function).__globals__)
    text = writing.text()
    missing = writing.missing | dict.fromkeys(_undefined(text) - writing.missing.keys(), "isn't defined")
    if missing:
        said = "; ".join(f"{each} {why}" for each, why in sorted(missing.items()))
        raise BadInputError(f"{name} can't be added: {said}. Make it in the function, or give it a parameter.")
    return text


class _File:
    """What is in the file so far, by the notebook's names."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.constants: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        """Each behind what it uses."""
        self.missing: dict[str, str] = {}

    def text(self) -> str:
        """The whole."""
        imports = sorted(self.imports, key=_rank)
        parts = ("\n".join(imports), "\n".join(self.constants.values()), *self.definitions.values())
        return "\n\n\n".join(part.rstrip() for part in parts if part) + "\n"

    def take(self, name: str, value: Any, globals_: dict[str, Any]) -> None:
        """Take in a function or class, and what it names."""
        made_of = _made_of(value)
        there = made_of.__name__
        if there != name and globals_.get(there) is value:
            self.take(there, value, globals_)
            self._define(name, f"{name} = {there}")
            return
        if name in self.definitions:
            return
        text = text_of(name, value)
        if there not in (name, "<lambda>"):
            raise BadInputError(f"{name} is {there}, of which there is another now. Define it under its own name.")
        code = getattr(made_of, "__code__", None)
        if code is not None and code.co_flags & annotations.compiler_flag:
            self.imports["from __future__ import annotations"] = None
        self._define(name, "")  # One that calls itself is not looked at again.
        for each in sorted(_names(text)):
            self._name(each, getattr(made_of, "__globals__", globals_), text)
        self._define(name, text)

    def _define(self, name: str, text: str) -> None:
        self.definitions.pop(name, None)
        self.definitions[name] = text

    def _name(self, name: str, globals_: dict[str, Any], text: str) -> None:
        """Take in what a text means by a name."""
        known = name in self.definitions or name in self.constants or hasattr(ModuleType(name), name)
        if known or not (name in globals_ or hasattr(builtins, name)):
            return
        value = globals_[name] if name in globals_ else getattr(builtins, name)
        # IPython wraps open.
        if _is_of_python(name) and _made_of(value) is getattr(builtins, name):
            return
        line = _import(name, value)
        if line is not None:
            self.imports[line] = None
            if isinstance(value, ModuleType):
                self.imports |= dict.fromkeys(_loaded(name, value, text))
        elif isinstance(value, type) or isinstance(_made_of(value), FunctionType):
            self.take(name, value, globals_)
        elif not (self._constant(name, value, globals_) or self._annotation(name, value, globals_)):
            self.missing[name] = f"is a {type(value).__name__} of the notebook, which no file can hold"

    def _annotation(self, name: str, value: Any, globals_: dict[str, Any]) -> bool:
        """Take in what an annotation is, such as `Annotated[int, Field(ge=1)]`; False of anything else."""
        text = assigned(name) if get_origin(value) is not None else None
        if text is None or not _makes(text, dict(globals_), value):
            return False
        for each in sorted(_names(text)):
            self._name(each, globals_, text)
        self._define(name, f"{name} = {text}")
        return True

    def _constant(self, name: str, value: Any, globals_: dict[str, Any]) -> bool:
        """Take in a value of which the text makes an equal one; False of any other."""
        text = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
        try:
            if len(text) > _LONGEST:
                return False
            tree = ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
        scope: dict[str, Any] = {}
        imports: dict[str, None] = {}
        mine: dict[str, type] = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name):
                continue
            if node.id in ("inf", "nan"):
                node.id = f"float('{node.id}')"
                continue
            made = globals_.get(node.id)
            if isinstance(made, type) and made.__module__ == "__main__":
                mine[node.id] = scope[node.id] = made
                continue
            found = _meant(node.id)
            if found is None:
                return False
            if found is not getattr(builtins, node.id, None):
                # The notebook may mean another by this name.
                node.id = node.id if globals_.get(node.id, found) is found else f"_{node.id}"
                scope[node.id] = found
                imports[str(_import(node.id, found))] = None
        text = ast.unparse(tree)
        if not _makes(text, scope, value):
            return False
        self.imports |= imports
        for each, kind in mine.items():
            self.take(each, kind, globals_)
        if mine:
            self._define(name, f"{name} = {text}")
        else:
            self.constants[name] = f"{name} = {text}"
        return True


def _meant(name: str) -> Any:
    """The module or class that the text of a value means by a name; None where nobody knows."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    homes = (builtins, *(sys.modules[each] for each in _CLASSES if each in sys.modules))
    return next((found for each in homes if isinstance(found := getattr(each, name, None), type)), None)


def _rank(line: str) -> tuple[bool, bool, str]:
    """Order of imports: `import a.b` binds a, which one behind it may give another meaning."""
    return not line.startswith("from __future__"), " as " in line or line.startswith("from "), line


def _names(text: str) -> set[str]:
    """Names that a text uses and doesn't make itself, with those that it makes only in functions."""
    module = symtable.symtable(text, "<cell>", "exec")
    # Of its defaults, decorators and bases.
    found = {each.get_name() for each in module.get_symbols() if not (each.is_assigned() or each.is_imported())}
    for scope in _scopes(module):
        found |= {each.get_name() for each in scope.get_symbols() if each.is_global()}
    return found


def _scopes(module: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    waiting = module.get_children()
    while waiting:
        yield (scope := waiting.pop())
        waiting += scope.get_children()


def _undefined(text: str) -> set[str]:
    """Names that nothing in a file defines."""
    module = symtable.symtable(text, "<file>", "exec")
    made = {each.get_name() for each in module.get_symbols() if each.is_assigned() or each.is_imported()}
    for scope in _scopes(module):
        made |= {each.get_name() for each in scope.get_symbols() if each.is_global() and each.is_assigned()}
    known = {*made, *vars(ModuleType("")), *filter(_is_of_python, vars(builtins))}
    return _names(text) - known


def _is_of_python(name: str) -> bool:
    """Whether a name is a builtin, and none such as display, which IPython brings."""
    found = getattr(builtins, name, None)
    return found is not None and not str(getattr(found, "__module__", "")).startswith("IPython")


def _made_of(value: Any) -> Any:
    """The function that a value says that it wraps; the value where it says nothing."""
    try:
        return value if isinstance(value, type) else inspect.unwrap(value)
    except ValueError:  # One that has every attribute.
        return value


def _loaded(name: str, module: ModuleType, text: str) -> Iterator[str]:
    """Lines that import those modules within a package which a text means by attributes of it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and (inside := ast.unparse(node)).startswith(f"{name}."):
            rest = inside.removeprefix(f"{name}.")
            there = sys.modules.get(f"{module.__name__}.{rest}")
            with contextlib.suppress(AttributeError):
                # dask.delayed is a function, too.
                if there is not None and attrgetter(rest)(module) is there:
                    yield f"import {there.__name__}"


def _makes(text: str, scope: dict[str, Any], value: Any) -> bool:
    """Whether a text makes an equal value."""
    with contextlib.suppress(Exception):  # whatever a class of the notebook raises
        made = eval(text, scope)
        # NaN is not equal to itself.
        return type(made) is type(value) and bool(made == value or repr(made) == repr(value))
    return False


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


# --- texts of what cells define, which are no file -------------------------------------------------------------------


def text_of(name: str, value: Any) -> str:
    """Text that defines what a variable holds: a function, what decorators made of one, a lambda, or a class.

    Raises BadInputError saying why it can't be had.
    """
    if isinstance(value, type):
        return _of_class(value)
    function = inspect.unwrap(value)
    if function.__closure__:
        inside = ", ".join(function.__code__.co_freevars)
        called = name if function.__name__ == name else f"{name}, a function called {function.__name__},"
        raise BadInputError(
            f"{called} uses {inside} of the function around it. Where a decorator made it, let that use "
            "functools.wraps; otherwise give these as parameters."
        )
    try:
        if function.__name__ == "<lambda>":
            text = f"{name} = {_of_lambda(function)}"
        else:
            text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError) as err:
        raise BadInputError(f"The text of {name} isn't there any more. Run the cell that defines it again.") from err
    if _depth(value) > len(getattr(ast.parse(text).body[0], "decorator_list", ())):
        raise BadInputError(
            f"{name} is made of {function.__name__} by something that isn't above its def. Write that there, as a "
            "decorator."
        )
    return text


def _depth(value: Any) -> int:
    """How many wrap a function."""
    depth, stop = 0, inspect.unwrap(value)
    while value is not stop:
        value, depth = value.__wrapped__, depth + 1
    return depth


def _of_lambda(function: FunctionType) -> str:
    """Text of a lambda, of which several may stand in its line."""
    lines, _ = inspect.findsource(function)
    found = {
        ast.unparse(node)
        for node in ast.walk(ast.parse("".join(lines)))
        if isinstance(node, ast.Lambda)
        and node.lineno == function.__code__.co_firstlineno
        and _does(function.__code__) in map(_does, _codes(ast.Expression(node)))
    }
    if len(found) != 1:
        raise OSError(f"{len(found)} of this kind")
    return found.pop()


def _codes(tree: ast.Expression | ast.Module) -> Iterator[CodeType]:
    """All code that is in a text, with annotations as values and as texts: which they are, another cell may say."""
    mode = "eval" if isinstance(tree, ast.Expression) else "exec"
    waiting = [compile(tree, "<cell>", mode, flags, True) for flags in (0, annotations.compiler_flag)]
    while waiting:
        yield (code := waiting.pop())
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]


def _does(code: CodeType) -> tuple[Any, ...]:
    """What tells code from other code, whatever lines they are in."""
    inside = tuple(_does(each) if isinstance(each, CodeType) else (type(each), each) for each in code.co_consts)
    return code.co_name, code.co_code, inside, code.co_names, code.co_varnames, code.co_freevars


def _of_class(kept: type) -> str:
    """Text of a class, which Python itself finds in files only."""
    for cell, tree in _cells():
        lines = cell.splitlines()
        for node in reversed([each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if node.name == kept.__qualname__ and _is_of(node, kept):
                return textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]))
    try:
        return textwrap.dedent(inspect.getsource(kept))
    except (OSError, TypeError) as err:
        raise BadInputError(
            f"No cell that was run has the text of {kept.__name__}, a class. Define it with class in a cell of its own."
        ) from err


def assigned(name: str) -> str | None:
    """Text of what a cell gave a variable last."""
    for _, tree in _cells():
        for node in reversed(tree.body):
            if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]:
                return ast.unparse(node.value)
    return None


def _cells() -> Iterator[tuple[str, ast.Module]]:
    """Texts of the cells that were run here, the last first, and what they are as Python."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    waiting = list(shell.history_manager.input_hist_parsed) if shell is not None else []
    while waiting:
        text = waiting.pop()
        with contextlib.suppress(SyntaxError):
            tree = ast.parse(text)
            yield text, tree
            # What stands below %%time, say.
            waiting += [
                shell.transform_cell(ast.literal_eval(node.args[-1]))
                for node in ast.walk(tree)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_ipython().run_cell_magic"
            ]


def _is_of(node: ast.ClassDef, kept: type) -> bool:
    """Whether a class can be of this text, as far as its methods, annotations and plain values tell."""
    annotated = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
    if annotated != set(inspect.get_annotations(kept)):
        return False
    does = [_does(code) for code in _codes(ast.Module([node], []))]
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            member: Any = vars(kept).get(each.name)
            member = member.fget if isinstance(member, property) else member
            live = inspect.unwrap(member)
            if live is None or (inspect.isfunction(live) and _does(live.__code__) not in does):
                return False
        elif isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, ast.Constant):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            for target in targets:
                value = vars(kept).get(ast.unparse(target))
                value = value.value if isinstance(value, Enum) else value
                if isinstance(value, _LITERALS) and value != each.value.value:
                    return False
    return True
