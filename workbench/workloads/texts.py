"""Texts of the functions and classes of a notebook, whose cells are no file."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

from workbench.errors import BadInputError

_LITERALS = (bool, int, float, complex, str, bytes)


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
            live = inspect.unwrap(_unbound(vars(kept).get(each.name)))
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


def _unbound(member: Any) -> Any:
    """The function of a property."""
    return member.fget if isinstance(member, property) else member
