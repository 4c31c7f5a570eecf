"""Text of notebook cells that do the same as a workload."""

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
    """Return the source of a function without annotations: they make the form and don't help to read the code."""
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
    """Return each argument with its default, as code."""
    names = [argument.arg for argument in arguments.args]
    defaults = [ast.unparse(value).replace("'", '"') for value in arguments.defaults]
    bare = len(names) - len(defaults)
    return names[:bare] + [f"{name}={value}" for name, value in zip(names[bare:], defaults, strict=True)]


def on_cluster(code: str, cluster: str | None, *, on_gpu: bool) -> str:
    """Return the notebook cell of code that begins with its imports, on a cluster of ours if one is named."""
    connect = "" if cluster is None else f'import workbench\n\nclient = workbench.connect("{cluster}")\n\n'
    cupy = 'import dask\n\ndask.config.set({"array.backend": "cupy"})\n\n' if on_gpu else ""
    return f"{connect}{cupy}{code.strip()}\n"


def calling(function: Callable[..., Any], arguments: Mapping[str, Any], result: str) -> str:
    """Return the code that imports a function and calls it."""
    passed = "".join(f"    {key}={literal(value)},\n" for key, value in arguments.items() if value is not None)
    return f"from {function.__module__} import {function.__name__}\n\n{result} = {function.__name__}(\n{passed})\n"


def computing(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    returns: Sequence[str],
    values: Sequence[str],
    on_gpu: bool,
) -> str:
    """Return the code that imports a function, calls it and computes what it returns but for `values`."""
    computed = ", ".join(name if name in values else f"{name}{to_host(on_gpu)}" for name in returns)
    return f"{calling(function, arguments, ', '.join(returns))}\n{computed}"


def to_host(on_gpu: bool) -> str:
    """Return code to follow a Dask array, which converts it to NumPy's."""
    return '.to_backend("numpy").compute()' if on_gpu else ".compute()"


def opening(resolved: Mapping[str, Any]) -> str:
    """Return code that opens a file with `storage.open` and assigns the selected part to `x`."""
    server = {name: resolved.get(name) for name in ("anon", "endpoint_url", "token_variable", "missing_chunks")}
    options = {name: value for name, value in server.items() if value not in (None, False, "refuse")}
    options_code = "".join(f", {name}={literal(value)}" for name, value in options.items())
    opened = f"storage.open({literal(resolved['path'])}{options_code})"
    if (columns := resolved.get("columns")) is not None:
        return f'x = {opened}[{literal(columns)}].to_dataarray("column").transpose("row", "column")'
    places = (
        f'"{dim}": {at if isinstance(at, int) else "slice(" + ", ".join(map(str, at)) + ")"}'
        for dim, at in (resolved.get("selected") or {}).items()
    )
    selected = ", ".join(places)
    part = f".isel({{{selected}}})" if selected else ""
    return f"x = {opened}[{literal(resolved['array'] or 'array')}]{part}"


def random_code(call: str, resolved: Mapping[str, Any]) -> str:
    """Return code that makes a random array of these parameters: `call` begins a call of a `da.random` generator."""
    shape, chunks = (tuple(resolved[name]) for name in ("shape", "chunks"))
    typed = "" if resolved["dtype"] in ("float64", "uint8") else f'.astype("{resolved["dtype"]}")'
    persisting = "\nx = x.persist()" if resolved.get("persist") else ""
    return f"x = da.random.{call}size={shape}, chunks={chunks}){typed}{persisting}"
