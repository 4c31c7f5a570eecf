"""From a function of this package to the text of a notebook's cell that runs without it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from workbench.formats import literal

_LINE = 100
_OURS = ("workbench", "typing", "__future__", "collections.abc")


@lru_cache(maxsize=128)
def plain_source(function: Callable[..., Any]) -> str:
    """Source of a function without annotations: they make the form and mean nothing to whoever reads the code."""
    source = textwrap.dedent(inspect.getsource(function))
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    return "\n".join((_head(tree), *source.splitlines()[tree.body[0].lineno - 1 :]))


def _head(tree: ast.FunctionDef) -> str:
    for node in ast.walk(tree.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    names = ast.unparse(tree.args).replace("'", '"')
    line = f"def {tree.name}({names}):"
    if len(line) <= _LINE:
        return line
    return f"def {tree.name}(\n{''.join(f'    {each},{chr(10)}' for each in _arguments(tree.args))}):"


def _arguments(arguments: ast.arguments) -> list[str]:
    """Each argument with its default, as code."""
    names = [argument.arg for argument in arguments.args]
    defaults = [ast.unparse(value).replace("'", '"') for value in arguments.defaults]
    bare = len(names) - len(defaults)
    return names[:bare] + [f"{name}={value}" for name, value in zip(names[bare:], defaults, strict=True)]


def cell(
    function: Callable[..., Any],
    parts: Sequence[Callable[..., Any] | str],
    arguments: Mapping[str, Any],
    returns: Sequence[str],
    small: Sequence[str],
    values: Sequence[str],
    cluster: str | None,
    on_gpu: bool = False,
) -> str:
    """Notebook cell: imports, the functions, the call with its arguments, and what it returns computed."""
    sections = [_imports(tuple(each for each in (*parts, function) if not isinstance(each, str)))]
    if cluster is not None:
        sections.append(f'import workbench\n\nclient = workbench.connect("{cluster}")\n')
    if on_gpu:
        sections.append('dask.config.set({"array.backend": "cupy"})\n')
    sections += [f"{each if isinstance(each, str) else plain_source(each)}\n" for each in (*parts, function)]
    sections.append(f"{_call(function.__name__, arguments, returns)}\n{_computed(returns, small, values, on_gpu)}")
    return "\n\n".join(sections) + "\n"


def _call(name: str, arguments: Mapping[str, Any], returns: Sequence[str]) -> str:
    given = "".join(f"    {key}={literal(value)},\n" for key, value in arguments.items())
    return f"{', '.join(returns)} = {name}(\n{given})"


def _computed(returns: Sequence[str], small: Sequence[str], values: Sequence[str], on_gpu: bool) -> str:
    # What is read, plotted or written is better NumPy's.
    read = '.to_backend("numpy").compute()' if on_gpu else ".compute()"
    if not small:
        return ", ".join(returns)  # Values already.
    lazy = [name for name in returns if name not in values]
    if all(name in small for name in lazy):
        return "\n".join(f"{name}{read}" for name in small)
    names = ", ".join(lazy)
    shown = ", ".join((*(f"{name}{read}" for name in small), *values))
    return f"{names} = dask.persist({names})\n{shown}"


@lru_cache(maxsize=128)
def _imports(functions: tuple[Callable[..., Any], ...]) -> str:
    """Return the imports of the functions' modules that the functions use."""
    modules = list(dict.fromkeys(inspect.getmodule(function) for function in functions))
    used = {
        node.id for each in functions for node in ast.walk(ast.parse(plain_source(each))) if isinstance(node, ast.Name)
    }
    lines = {"import dask"}
    for module in modules:
        assert module is not None
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.Import) and any((name.asname or name.name) in used for name in node.names):
                lines.add(ast.unparse(node))
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in _OURS:
                lines |= {
                    ast.unparse(ast.ImportFrom(node.module, [name], 0))
                    for name in node.names
                    if (name.asname or name.name) in used
                }
    return "\n".join(sorted(lines))
