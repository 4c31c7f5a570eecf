"""HTML elements shared by the views. Attributes define the effect of a click, see labext/src/page/page.ts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from workbench import credentials
from workbench.errors import WorkbenchError
from workbench.formats import count
from workbench.markup import fragment, icon_button, tag
from workbench.views.answers import API


def live(name: str, **attributes: Any) -> Markup:
    """Return a placeholder for another view, which is made and updated while it is visible."""
    return tag("div", data_live=name, **attributes)


def figure(**shown: str) -> Markup:
    """Return a placeholder for a figure of events: of a running `cluster`, or from the record of a `run`."""
    return tag("div", data_figure=shown)


def button(label: str, *, kind: str | None = None, **attributes: Any) -> Markup:
    """Return a button with a label; its `kind` is 'accept' for the main action, 'warn' for a risky one."""
    plain = {"type": "button", "class_": f"wb-Button jp-mod-styled{f' jp-mod-{kind}' if kind else ''}"}
    return tag("button", label, **plain | attributes)


def text_field(name: str, label: str | None, value: Any = "", **attributes: Any) -> Markup:
    """Return a field for one line of text, without spell check and completion: a choice of the page by that name.

    `label` is None if another element labels the field.
    """
    plain = {"type": "text", "spellcheck": "false", "autocomplete": "off", "class_": "jp-mod-styled"}
    return tag("input", name=name, value=value, aria_label=label, **plain | attributes)


def checkbox(name: str, **attributes: Any) -> Markup:
    """Return a checkbox: a choice of the page by that name."""
    return tag("input", type="checkbox", name=name, **attributes)


def link(label: str, **attributes: Any) -> Markup:
    """Return a button that looks like a link."""
    return button(label, class_="wb-Link", **attributes)


def command(name: str, /, **args: Any) -> dict[str, Any]:
    """Return attributes for an element whose click runs a command of the page's host, such as JupyterLab."""
    return {"data_command": f"dask-workbench:{name}", "data_args": args}


def action(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return attributes for an element whose click performs an action of Python's, see `views.actions`."""
    return {"data_action": name, "data_arguments": arguments or None}


def more(what: str, shown: int, further: int, left: int) -> Markup:
    """Return a link that shows `further` items of a list, in addition to `shown`; '' if none are `left`."""
    if left <= 0:
        return Markup("")
    choose = {f"{what}.shown": shown + further}
    label = f"Show more ({count(left)} older)"
    return link(label, data_choose=choose, data_workbench=f"older-{what}")


def line(
    hook: str, title: str, status: str, after: Iterable[str], *below: str, tick: str = "", id: str | None = None
) -> Markup:
    """Return an interactive item of a list: a dot for its state, the elements next to the dot, and those below.

    With an id, a page that already has the item is sent only the id.
    """
    dot = tag("span", class_="wb-Dot", title=status)
    shared = {"data_line": True, "data_workbench": hook, "data_status": status, "class_": f"wb-Run wb-mod-{status}"}
    head = tag("div", tick, dot, *after, class_="wb-Run-line")
    return tag("li", head, *below, id=id, aria_label=f"{title}, {status}", **shared)


def foot(words: str, icons: Iterable[str], outcome: str = "") -> Markup:
    """Return the last line of a list's item: its outcome, a note and its actions."""
    muted = tag("span", words, class_="wb-Muted", title=words)
    return tag("div", outcome, muted, tag("span", *icons, class_="wb-Icons"), class_="wb-Run-foot")


def radios(
    choice: str,
    label: str,
    looks: tuple[str, str],
    offered: Iterable[tuple[str, str, str]],
    chosen: str | None,
    groups: Mapping[str, str] = {},
) -> Markup:
    """Return a group of radio buttons.

    `looks` are the classes of the group and of each button, `offered` the value, label and tooltip of each. `groups`
    are titles by value, each shown above the first button that has it.
    """
    offers = list(offered)
    titles = [groups.get(name, "") for name, _, _ in offers]
    heads = (
        tag("span", title, class_="wb-Group", aria_hidden="true") if title and title not in titles[:place] else ""
        for place, title in enumerate(titles)
    )
    buttons = (
        tag(
            "label",
            tag("input", type="radio", name=choice, value=name, checked=name == chosen),
            title,
            class_=looks[1],
            title=about,
            data_workbench=f"{choice}-{name}",
        )
        for name, title, about in offers
    )
    shown = (head + each for head, each in zip(heads, buttons, strict=True))
    # Within a form of their own: another page in the same document may have radio buttons of these names.
    return tag("form", tag("div", *shown, class_=looks[0], role="radiogroup", aria_label=label))


def confirmed(icon: str, label: str, question: str | None, hook: str, **attributes: Any) -> Markup:
    """Return an icon for an irreversible action: with a question, the first click asks it and the second acts."""
    return icon_button(icon, label, data_confirm=question, data_workbench=hook, **attributes)


def notice(about: str, hook: str | None = None) -> Markup:
    """Return a placeholder for errors of an action, by its name, or of all with an argument such as `run=r1`."""
    return tag("p", class_="wb-Problem wb-Notice", role="alert", data_notice=about, data_workbench=hook)


def confirming(error: WorkbenchError) -> Markup:
    """Return a button that allows sending a credential to a server; '' for another error."""
    if not isinstance(error, credentials.UnconfirmedError):
        return Markup("")
    arguments = {"credential": error.credential, "server": error.server}
    send = button(
        credentials.question(**arguments),
        # The full name of the server has to be visible.
        class_="wb-Button jp-mod-styled jp-mod-warn wb-mod-whole",
        **action("confirm", **arguments),
        data_workbench="confirm-sending",
    )
    return tag("div", send, class_="wb-Row") + notice("confirm")


def keeping(
    name: str, label: str, typed: str, *, hook: str, title: str, action: str, forget: str, **data: Any
) -> Markup:
    """Return a field for a name, a button that saves something under it, and `forget`, a button that deletes it."""
    field = text_field(name, label, typed, placeholder="Keep as …", title=title, data_workbench=f"{hook}-name")
    attributes = {f"data_{key}": value for key, value in data.items()}
    keep = button("Keep", disabled=not typed, data_action=action, data_workbench=hook, **attributes)
    return tag("div", field, keep, forget, class_="wb-Row wb-Start") + notice(action, f"{hook}-problem")


def fold(id_: str, label: str, *, is_open: bool = False, **attributes: Any) -> Markup:
    """Return a button with a caret that opens and closes the element of that id, such as a `drawer`."""
    caret = tag("span", class_="wb-Caret", aria_hidden="true")
    fixed = {"type": "button", "class_": "wb-Toggle", "data_fold": id_, "aria_controls": id_}
    return tag("button", caret, label, aria_expanded="true" if is_open else "false", **fixed, **attributes)


def drawer(id_: str, *body: str, is_open: bool = False) -> Markup:
    """Return an element that a `fold` of the same id opens and closes."""
    return tag("div", *body, id=id_, class_="wb-Drawer", hidden=not is_open)


def folds(prefix: str = "", /, **bodies: tuple[str, str]) -> Markup:
    """Return labels side by side that unfold content below them: label and content are given by hook.

    `prefix` distinguishes these folds from others with the same hooks on the page.
    """
    names = {hook: f"wb-fold-{prefix}{hook.replace('_', '-')}" for hook in bodies}
    words = (fold(names[hook], word, data_workbench=hook.replace("_", "-")) for hook, (word, _) in bodies.items())
    below = (drawer(names[hook], body) for hook, (_, body) in bodies.items())
    return tag("div", *words, class_="wb-Folds") + fragment(*below)


_PAGES = {
    "hardware": "how-to/choose-hardware",
    "clusters": "how-to/use-a-cluster",
    "workloads": "how-to/run-a-workload",
    "runs": "how-to/read-a-diagnosis",
    "compare": "how-to/compare-fairly",
}
"""Page of the documentation for each section of the sidebar."""


def explained(page: str, title: str) -> Markup:
    """Return a button that opens a page of the documentation; `title` is its topic."""
    labels = {"title": f"Help: {title}", "aria_label": f"Help: {title}"}
    place = f"{API}/docs/{page}"
    return tag("button", "?", class_="wb-IconButton wb-Question", **labels, data_page=place, data_workbench="help")


def section(id_: str, title: str, body: str, *, note: str = "", actions: str = "") -> Markup:
    """Return a foldable section of the sidebar."""
    words = tag("span", title, class_="wb-Section-title") + note
    toggle = fold(f"wb-section-{id_}", words, is_open=True)
    header = tag("header", tag("h2", toggle), actions, explained(_PAGES[id_], title), class_="wb-Section-header")
    inside = tag("div", body, id=f"wb-section-{id_}", class_="wb-Section-body")
    return tag("section", header, inside, class_="wb-Section", data_workbench=f"section-{id_}")
