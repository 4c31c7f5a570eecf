"""Sphinx extension: write the pages that are made from the code, and copy the notebooks, before Sphinx reads them.

Every page has a function here that returns its text in MyST Markdown. Git ignores what is written.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import figures
import layers

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ("start", "first-steps-gpu-arrays", "large-svds", "ucx-and-dgx", "gpu-cluster", "your-own-data", "watch")


def setup(app: Any) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("config-inited", lambda app, _: write(Path(app.srcdir)))
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir, "reference", "workloads")))
    app.connect("autodoc-process-docstring", escape_names, priority=900)
    app.connect("build-finished", refuse_network)
    return {"parallel_read_safe": True}


def write(docs: Path) -> None:
    """Write all pages below `docs`, and remove pages of an earlier build that no longer exist."""
    pages = {f"{name}.md": text for name, text in make_pages().items()}
    for folder in ("reference/workloads", "reference/profiles"):
        for path in (docs / folder).glob("*.md"):
            if f"{folder}/{path.name}" not in pages:
                path.unlink()
    for name, text in pages.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads again what is newer than its cache.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for name in NOTEBOOKS:
        shutil.copy2(ROOT / "notebooks" / f"{name}.ipynb", docs / "tutorials" / f"{name}.ipynb")


def draw(folder: Path) -> None:
    """Run each workload and write the figure of its page, in a process of its own; raise where a run fails."""
    subprocess.run([sys.executable, figures.__file__, str(folder)], check=True, stdout=subprocess.DEVNULL)


def escape_names(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Escape names such as components_, as scikit-learn has them, which reStructuredText takes for links."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...", "..")) else re.sub(r"(?<=\w)_(?=[\s,.;:)\]]|$)", r"\\_", line)
        for line in lines
    ]


def refuse_network(app: Any, exception: Exception | None) -> None:
    """Warn of each page that would load something from another server when it is read."""
    from sphinx.util.logging import getLogger

    loads = re.compile(r"""<(?:script|img|iframe|link rel="stylesheet")[^>]*?(?:src|href)="((?:https?:)?//[^"]+)""")
    for page in Path(app.outdir).rglob("*.html") if exception is None else ():
        if found := loads.search(page.read_text(encoding="utf-8")):
            getLogger(__name__).warning("%s loads %s: pages must work without a network.", page.name, found[1])


def make_pages() -> dict[str, str]:
    """Return the text of each generated page by its name."""
    return {
        "reference/workloads/index": workload_list(),
        **{f"reference/workloads/{each.name}": workload_page(each) for each in workloads()},
        "reference/profiles/index": profile_list(),
        **{f"reference/profiles/{each.name}": profile_page(each) for each in profiles()},
        "reference/settings": settings_page(),
        "reference/command-line": command_line_page(),
        "reference/api": api_page(),
        "reference/formats": formats_page(),
        "contributors/_layers": layers.fragment(),
    }


# --- workloads --------------------------------------------------------------------------------------------------------


def workloads() -> tuple[Any, ...]:
    """Return the built-in workloads."""
    from workbench.workloads.builtin import templates

    return templates()


def workload_list() -> str:
    """Return the page that lists the workloads."""
    rows = [(f"[`{each.name}`]({each.name}.md)", each.title, prose(each.summary)) for each in workloads()]
    return (
        "# Workloads\n\nA workload is a plain function of Dask code. Its signature is its form.\n\n"
        + table(("name", "title", "what it computes"), rows)
        + toctree(each.name for each in workloads())
    )


def workload_page(workload: Any) -> str:
    """Return the page of one workload."""
    properties = workload.schema()["properties"]
    presets = [(f"`{each.name}`", prose(each.title)) for each in workload.presets]
    return "\n\n".join(
        [
            f"# {workload.name}",
            f"**{workload.title}.** {prose(workload.help)}",
            fenced("console", f"$ {figures.command(workload.name)}"),
            "## A run",
            "This command on two workers of one thread each, as it went when this page was built: its tasks by name. "
            '`workbench.panels.Replay("last")` shows when each thread did which of them.'
            + (" Its file is made up: give yours." if "path" in figures.RUNS[workload.name] else ""),
            fenced("{raw} html", f":file: {workload.name}.html"),
            "## Parameters",
            options(properties),
            *(["## Presets", table(("name", "experiment"), presets)] if presets else []),
            "## Source",
            "This is the function, as `workbench workloads` and the notebook cell show it.",
            fenced("py", workload.source),
        ]
    )


# --- profiles ---------------------------------------------------------------------------------------------------------


def profiles() -> list[Any]:
    """Return the built-in profiles."""
    from workbench.clusters.profiles import registered

    return [each for each in registered().values() if type(each).__module__.startswith("workbench.")]


def profile_line(profile: Any) -> str:
    """Return one line about a profile that does not depend on this machine."""
    return prose(getattr(profile, "line", None) or inspect.getdoc(type(profile)).splitlines()[0])


def profile_list() -> str:
    """Return the page that lists the profiles."""
    rows = [
        (f"[`{each.name}`]({each.name}.md)", each.title, profile_line(each), f"`{each.needs[1]}`" if each.needs else "")
        for each in profiles()
    ]
    return (
        "# Profiles\n\nA profile is one way to get a cluster. `workbench hardware` says which can be had on a machine, "
        "and why the others cannot.\n\n"
        + table(("name", "title", "what it starts", "extra"), rows)
        + toctree(each.name for each in profiles())
    )


def profile_page(profile: Any) -> str:
    """Return the page of one profile."""
    from workbench.clusters.lines import option_of
    from workbench.hardware import inventory

    properties = profile.choices(inventory()).model_json_schema()["properties"]
    flags = {choice: option_of(choice) for choice in properties}
    needs = f"It needs `{profile.needs[0]}`: install the extra `{profile.needs[1]}`." if profile.needs else ""
    start = "attach ADDRESS" if profile.name == "address" else f"up {profile.name}"
    return "\n\n".join(
        [
            f"# {profile.name}",
            f"**{profile.title}.** {profile_line(profile)} {needs}".rstrip(),
            fenced("console", f"$ workbench {start}"),
            "## Options",
            "In Python an option is an argument of `workbench.start` and `workbench.plan`. On the command line it has "
            "the flag below its name. What is left out is chosen to match the "
            "hardware.",
            options(properties, flags),
        ]
    )


# --- settings, command line, API, formats -----------------------------------------------------------------------------


def settings_page() -> str:
    """Return the page of settings, from workbench.yaml and its comments."""
    import yaml

    text = (ROOT / "workbench" / "workbench.yaml").read_text(encoding="utf-8")
    defaults, rows, comment = yaml.safe_load(text)["workbench"], [], []
    for line in text.partition("\nworkbench:\n")[2].splitlines():
        if line.startswith("  #"):
            comment.append(line.strip("# "))
        elif found := re.match(r"  ([\w-]+):", line):
            value = yaml.safe_dump(defaults[found[1]], default_flow_style=True, width=1000).split("\n")[0]
            rows.append((f"`{found[1]}`", f"{prose(' '.join(comment))} Default: `{value}`."))
            comment = []
    return (
        "# Settings\n\nSettings are part of Dask's configuration under the key `workbench`. Change them in "
        "`~/.config/dask/workbench.yaml`, by a variable such as `DASK_WORKBENCH__IDLE_TIMEOUT=2h`, or in Python by "
        '`dask.config.set({"workbench.idle-timeout": "2h"})`.\n\n'
        + fenced("yaml", "workbench:\n  idle-timeout: 2h\n  monitor:\n    batch-interval: 200ms")
        + f"\n\n{table(('name', 'meaning'), rows)}"
    )


def command_line_page() -> str:
    """Return the page of commands, made from their parser."""
    from workbench.cli import _parser

    parser = _parser()
    parts = [
        "# Command line",
        f"{parser.description} The exit code is 0 for success, 1 for a run, a cluster or a row of a comparison "
        "that failed, 2 for bad input, and 130 after Ctrl-C. Every command takes `--json` and then prints its answer "
        "as JSON.",
    ]
    for name, command in subcommands(parser).items():
        parts += [f"## {name}", prose(command.description or ""), fenced("text", usage(command))]
        rows = [(argument(action), prose(expand(action, command))) for action in visible(command)]
        if rows:
            parts.append(table(("argument", "meaning"), rows))
        if command.epilog:
            parts.append(prose(re.sub(r"(workbench .*)", r"`\1`", command.epilog)))
    return "\n\n".join(parts)


def subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by name."""
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return found.choices


def visible(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, without those that all commands have."""
    common = ("help", "json")
    return [each for each in parser._actions if each.dest not in common and each.help != argparse.SUPPRESS]


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage line of a command at a width that a page has."""
    formatter = argparse.HelpFormatter(parser.prog, width=96)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def argument(action: argparse.Action) -> str:
    """Return how an argument is written."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest)
    names = action.option_strings or [value]
    written = f"{', '.join(names)} {value}" if action.option_strings and value else ", ".join(names)
    return f"`{written.strip()}`"


def expand(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return the help of an argument, with argparse's placeholders filled in."""
    return argparse.HelpFormatter(parser.prog)._expand_help(action) if action.help else ""


API = {
    "workbench": "Clusters, runs and workloads",
    "workbench.storage": "Files",
    "workbench.linalg": "SVD and PCA of Dask arrays",
    "workbench.genotypes": "Genotypes",
    "workbench.panels": "Figures in notebooks",
}
"""Modules whose public names are the Python API, with the title of each section."""


def api_page() -> str:
    """Return the page of the Python API; Sphinx fills in signatures and docstrings."""
    parts = ["# Python API"]
    for module, title in API.items():
        parts += [f"## {title}", f"From `{module}`."]
        parts += [entry(module, name) for name in public_names(module)]
    return "\n\n".join(parts)


def public_names(module: str) -> list[str]:
    """Return the public names of a module that are classes or functions of this package."""
    loaded = import_module(module)
    names = getattr(loaded, "__all__", [name for name in vars(loaded) if not name.startswith("_")])
    found = {name: getattr(loaded, name) for name in names}
    return [
        name
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("workbench.")
    ]


def entry(module: str, name: str) -> str:
    """Return the directive that documents one name."""
    value = getattr(import_module(module), name)
    kind = "exception" if inspect.isclass(value) and issubclass(value, BaseException) else None
    kind = kind or ("class" if inspect.isclass(value) else "function")
    members = "\n   :members:" if kind == "class" else ""
    return fenced("{eval-rst}", f".. auto{kind}:: {module}.{name}{members}")


FORMATS = {
    "workbench.runs.exchange": ("Exported runs", "{eval-rst}"),
    "workbench.monitor.record": ("Events", "{eval-rst}"),
    "workbench.monitor.gpu_record": ("Samples of GPUs", "{eval-rst}"),
    "workbench.genotypes.layout": ("Packed genotypes", "text"),
}
"""Modules whose docstrings describe a file format: title, and how the docstring is marked up."""


def formats_page() -> str:
    """Return the page of file formats, from the docstrings of the modules that write them."""
    parts = ["# File formats", "Any reader of JSON, Parquet and Zarr can use these files."]
    for module, (title, markup) in FORMATS.items():
        text = inspect.getdoc(import_module(module)) or ""
        parts += [f"## {title}", fenced(markup, text)]
    return "\n\n".join(parts)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def options(properties: Mapping[str, Any], flags: Mapping[str, str] | None = None) -> str:
    """Return a table of the properties of a JSON Schema, and of the flags that some have."""
    rows = []
    for name, schema in properties.items():
        flag = (flags or {}).get(name)
        rows.append((f"`{name}`" + (f"\n\n`{flag}`" if flag else ""), describe(schema)))
    return table(("name", "meaning"), rows)


def describe(schema: Mapping[str, Any]) -> str:
    """Return the description of a property, what is allowed, and its default."""
    words = prose(schema.get("description") or schema.get("title") or "")
    if schema.get("allowed"):
        words += f" Allowed: {prose(schema['allowed'])}."
    elif schema.get("enum"):
        words += f" One of {', '.join(f'`{each}`' for each in schema['enum'])}."
    if schema.get("default") in (None, {}, []):
        return words
    value = schema["default"]
    return f"{words} Default: `{str(value).lower() if isinstance(value, bool) else value}`."


def prose(text: str) -> str:
    """Return text in which Markdown and HTML find nothing to mark up, except code in backticks."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(each if each.startswith("`") else re.sub(r"([\\*_<>\[\]#$|{}~])", r"\\\1", each) for each in pieces)


def fenced(language: str, text: str) -> str:
    """Return text in a fence."""
    return f"````{language}\n{text.rstrip()}\n````"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; a list-table, for cells of several sentences. The last column is the widest."""
    head = tuple(head)
    widths = " ".join([*["1"] * (len(head) - 1), "3" if len(head) == 2 else "2"])
    lines = ["````{list-table}", ":header-rows: 1", f":widths: {widths}", ""]
    for row in [tuple(head), *map(tuple, rows)]:
        for column, cell in enumerate(row):
            text = textwrap.indent(cell.strip(), "    ").strip()
            lines.append(f"{'* ' if column == 0 else '  '}- {text}".rstrip())
    return "\n".join([*lines, "````"])


def toctree(names: Iterable[str]) -> str:
    """Return a hidden table of contents."""
    return "\n\n" + fenced("{toctree}", ":hidden:\n\n" + "\n".join(names)) + "\n"
