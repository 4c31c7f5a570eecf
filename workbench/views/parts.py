"""Pieces that the views share: what a click does is said by attributes, see labext/src/page/page.ts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from workbench import credentials
from workbench.errors import WorkbenchError
from workbench.figures.markup import icon_button, tag
from workbench.formats import count
from workbench.views.answers import API


def live(name: str, **attributes: Any) -> str:
    """Place of another view, which is made and kept up to date while it can be seen."""
    return tag("div", data_live=name, **attributes)


def figure(**shown: str) -> str:
    """Place of a drawing that is fed with events: of a `cluster` at work, or of the record of a `run`."""
    return tag("div", data_figure=shown)


def button(label: str, *, kind: str | None = None, **attributes: Any) -> str:
    """Button with a word on it; 'accept' is what one came for, 'warn' what one may regret."""
    plain = {"type": "button", "class_": f"wb-Button jp-mod-styled{f' jp-mod-{kind}' if kind else ''}"}
    return tag("button", escape(label), **plain | attributes)


def text_field(name: str, label: str | None, value: Any = "", **attributes: Any) -> str:
    """Field for one line of text, which nothing corrects or completes; a choice of the page by that name.

    `label` is None where another element says what it is.
    """
    plain = {"type": "text", "spellcheck": "false", "autocomplete": "off", "class_": "jp-mod-styled"}
    return tag("input", name=name, value=value, aria_label=label, **plain | attributes)


def checkbox(name: str, **attributes: Any) -> str:
    """Box to tick; a choice of the page by that name."""
    return tag("input", type="checkbox", name=name, **attributes)


def link(label: str, **attributes: Any) -> str:
    """Button that looks like a link."""
    return button(label, class_="wb-Link", **attributes)


def command(name: str, /, **args: Any) -> dict[str, Any]:
    """Attributes of what has the place of the page do something when it is clicked, such as open a tab of Lab."""
    return {"data_command": f"dask-workbench:{name}", "data_args": args}


def more(what: str, shown: int, further: int, left: int) -> str:
    """Link to `further` ones of a list that shows `shown`, where some are `left`."""
    if left <= 0:
        return ""
    choose = {f"{what}.shown": shown + further}
    label = f"Show more ({count(left)} older)"
    return link(label, data_choose=choose, data_workbench=f"older-{what}")


def line(
    hook: str, title: str, status: str, beside: Iterable[str], *below: str, tick: str = "", id: str | None = None
) -> str:
    """Line of a list that one can work with: what stands beside the dot that shows its state, and below.

    With an id, a page that has the line is sent only that.
    """
    dot = tag("span", class_="wb-Dot", title=status)
    shared = {"data_line": True, "data_workbench": hook, "data_status": status, "class_": f"wb-Run wb-mod-{status}"}
    head = tag("div", tick, dot, *beside, class_="wb-Run-line")
    return tag("li", head, *below, id=id, aria_label=f"{title}, {status}", **shared)


def foot(words: str, icons: Iterable[str], outcome: str = "") -> str:
    """What is said below a line of a list, and what can be done with it."""
    muted = tag("span", escape(words), class_="wb-Muted", title=words)
    return tag("div", outcome, muted, tag("span", *icons, class_="wb-Icons"), class_="wb-Run-foot")


def radios(
    choice: str, label: str, looks: tuple[str, str], offered: Iterable[tuple[str, str, str]], chosen: str | None
) -> str:
    """Buttons of which one is chosen; arrows go from one to the next.

    `looks` are classes of all together, and of each; `offered` of each what is chosen by it, stands on it, and is said.
    """
    buttons = (
        button(
            title,
            class_=looks[1],
            title=about,
            role="radio",
            aria_checked="true" if name == chosen else "false",
            tabindex=0 if name == chosen else -1,
            data_choose={choice: name},
            data_workbench=f"{choice}-{name}",
        )
        for name, title, about in offered
    )
    return tag("div", *buttons, class_=looks[0], role="radiogroup", aria_label=label)


def confirmed(icon: str, label: str, question: str | None, request: str, hook: str, **attributes: Any) -> str:
    """Icon of what can't be undone: with a question the first click asks it, and the second does it."""
    return icon_button(icon, label, data_confirm=question, data_request=request, data_workbench=hook, **attributes)


def notice(place: str, hook: str | None = None) -> str:
    """Where the page says what went wrong with a request that begins with `place`."""
    return tag("p", class_="wb-Problem wb-Notice", role="alert", data_notice=place, data_workbench=hook)


def confirming(error: WorkbenchError) -> str:
    """Button by which a person lets a credential be sent to a server; '' of another error."""
    if not isinstance(error, credentials.UnconfirmedError):
        return ""
    asked = {"credential": error.credential, "server": error.server}
    send = button(
        credentials.question(**asked),
        # All of the name of the server has to be seen.
        class_="wb-Button jp-mod-styled jp-mod-warn wb-mod-whole",
        data_request="POST credentials",
        data_body=asked,
        data_workbench="confirm-sending",
    )
    return tag("div", send, class_="wb-Row") + notice("POST credentials")


def keeping(
    name: str, label: str, typed: str, *, hook: str, title: str, request: str, forget: str, **asked: Any
) -> str:
    """A field for a name, a button that keeps something under it, and where there is `forget`, what forgets it."""
    field = text_field(name, label, typed, placeholder="Keep as …", title=title, data_workbench=f"{hook}-name")
    attributes = {f"data_{key}": value for key, value in asked.items()}
    keep = button("Keep", disabled=not typed, data_request=request, data_workbench=hook, **attributes)
    return tag("div", field, keep, forget, class_="wb-Row wb-Start") + notice(request, f"{hook}-problem")


def fold(id_: str, label: str, *, is_open: bool = False, **attributes: Any) -> str:
    """Button with a caret that opens and closes the element of that id, such as a `drawer`."""
    caret = tag("span", class_="wb-Caret", aria_hidden="true")
    fixed = {"type": "button", "class_": "wb-Toggle", "data_fold": id_, "aria_controls": id_}
    return tag("button", caret, label, aria_expanded="true" if is_open else "false", **fixed, **attributes)


def drawer(id_: str, *body: str, is_open: bool = False) -> str:
    """What is seen only when something that names it is clicked, or from the start."""
    return tag("div", *body, id=id_, class_="wb-Drawer", hidden=not is_open)


def folds(prefix: str = "", /, **bodies: tuple[str, str]) -> str:
    """Words side by side, each of which unfolds what is below them: by a hook, the word and what it unfolds.

    `prefix` tells these folds from others of the same hooks on the page.
    """
    names = {hook: f"wb-fold-{prefix}{hook.replace('_', '-')}" for hook in bodies}
    words = (
        fold(names[hook], escape(word), data_workbench=hook.replace("_", "-")) for hook, (word, _) in bodies.items()
    )
    below = (drawer(names[hook], body) for hook, (_, body) in bodies.items())
    return tag("div", *words, class_="wb-Folds") + "".join(below)


_PAGES = {
    "hardware": "how-to/choose-hardware",
    "clusters": "how-to/use-a-cluster",
    "workloads": "how-to/run-a-workload",
    "runs": "how-to/read-a-diagnosis",
    "compare": "how-to/compare-fairly",
}
"""Page of the documentation about each section of the sidebar."""


def explained(page: str, title: str) -> str:
    """Button that opens a page of the documentation; `title` says what it is about."""
    said = {"title": f"Help: {title}", "aria_label": f"Help: {title}"}
    place = f"{API}/docs/{page}"
    return tag("button", "?", class_="wb-IconButton wb-Question", **said, data_page=place, data_workbench="help")


def section(id_: str, title: str, body: str, *, note: str = "", actions: str = "") -> str:
    """A part of the sidebar that folds."""
    words = tag("span", escape(title), class_="wb-Section-title") + note
    toggle = fold(f"wb-section-{id_}", words, is_open=True)
    header = tag("header", tag("h2", toggle), actions, explained(_PAGES[id_], title), class_="wb-Section-header")
    inside = tag("div", body, id=f"wb-section-{id_}", class_="wb-Section-body")
    return tag("section", header, inside, class_="wb-Section", data_workbench=f"section-{id_}")
