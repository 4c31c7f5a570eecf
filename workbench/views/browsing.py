"""Search for a file, a store or a function in folders: each entry is a button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from workbench.errors import WorkbenchError
from workbench.formats import shorten_middle, size
from workbench.markup import fragment, joined, paragraph, tag
from workbench.views.examples import empty, write_file
from workbench.views.parts import button, confirming, link

if TYPE_CHECKING:
    from workbench.storage.browsing import Entry, Folder
    from workbench.views.context import Context
    from workbench.workloads.importing import Described

_CODE = (".py", ".ipynb")
"""Endings of files that contain no data."""


class Sought(NamedTuple):
    """Target of a search: a file for a field, or a function."""

    browsed: str
    """Name of the page's choice for the current folder."""
    field: str
    """Name of the page's choice for the result."""
    server: Mapping[str, Any]
    """Options of a URL's server, from the form."""
    ending: str = ""
    """End of the names of the files to list, such as ".py" for its functions, `path:name`; '' for files with data."""

    @property
    def functions(self) -> bool:
        """True to search for a function of a Python file."""
        return self.ending == ".py"

    def found(self, value: str) -> dict[str, str | None]:
        """Return the choices that select a result and close the search."""
        return {self.field: value, self.browsed: None}

    def inside(self, path: str) -> dict[str, str | None]:
        """Return the choice that opens a folder, or a file of functions."""
        return {self.browsed: path}


async def browsing(context: Context, sought: Sought, title: str, late: Sequence[str], begin: str) -> Markup:
    """Return a link that opens and closes the search: recent values, and a folder, at first that of `begin`."""
    at = context.choices.get(sought.browsed)
    opened = "true" if at else "false"
    hook = sought.browsed.replace(".", "-")
    word = link(
        "Close" if at else title,
        data_choose={sought.browsed: None if at else begin},
        aria_expanded=opened,
        data_workbench=hook,
    )
    if not at:
        return word
    recent = fragment(*(_pick(each, sought.found(each)) for each in late))
    head = word + (paragraph("Used lately") + recent if recent else "")
    into = _functions if sought.functions and str(at).endswith(".py") else _folder
    try:
        return head + await into(context, sought, str(at))
    except WorkbenchError as err:
        home = link("Back to where Jupyter runs", data_choose=sought.inside("."))
        return head + paragraph(str(err), "wb-Problem") + confirming(err) + home


async def _folder(context: Context, sought: Sought, at: str) -> Markup:
    folder: Folder = await context.ask("browse", at, **sought.server)
    up = _pick("↑ the folder above", sought.inside(folder.above)) if folder.above else ""
    whole = ""
    if folder.is_store and not sought.functions:
        whole = link("Choose this folder, a Zarr store", data_choose=sought.found(folder.path))
    entries = (
        _pick(
            f"{each.name}/" if each.is_folder else joined((each.name, size(each.n_bytes) if each.n_bytes else None)),
            sought.inside(each.path) if each.is_folder or sought.functions else sought.found(each.path),
        )
        for each in folder.entries
        if each.is_folder or _fits(each, sought)
    )
    more = paragraph(f"{folder.more} more: type the path.") if folder.more else ""
    if not folder.more and not any(_fits(each, sought) for each in folder.entries):
        more = _empty(sought, folder.path, f"No {sought.ending or 'data'} file is here.")
    listed = tag("div", up, *entries, class_="wb-Listed", data_workbench="browsed")
    return paragraph(folder.path) + whole + listed + more


def _fits(entry: Entry, sought: Sought) -> bool:
    is_sought = entry.name.endswith(sought.ending) if sought.ending else not entry.name.endswith(_CODE)
    return not entry.is_folder and is_sought


def _empty(sought: Sought, folder: str, sentence: str) -> Markup:
    kind = {".py": "function", "": "data"}.get(sought.ending)
    return empty(sentence, write_file(kind, folder, sought.field, {sought.browsed: None}) if kind else "")


async def _functions(context: Context, sought: Sought, path: str) -> Markup:
    there: tuple[Described, ...] = await context.ask("functions", path)
    up = _pick("↑ its folder", sought.inside(str(Path(path).parent)))
    fit = (_pick(each.title, sought.found(f"{path}:{each.name}")) for each in there if not each.problem)
    listed = tag("div", up, *fit, class_="wb-Listed", data_workbench="browsed")
    unfit = (paragraph(each.problem) for each in there if each.problem)
    return (
        paragraph(path)
        + listed
        + fragment(*unfit)
        + ("" if there else _empty(sought, str(Path(path).parent), "It has no public function."))
    )


def _pick(label: str, choice: Mapping[str, str | None]) -> Markup:
    return button(shorten_middle(label), class_="wb-Entry", data_choose=choice, title=label)
