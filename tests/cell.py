"""The page's end of what is shown in a cell: what labext/src/page does, as far as messages tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from itertools import count
from typing import Any

from tests.waiting import until
from workbench.panels import Workbench
from workbench.panels.live import Figure
from workbench.panels.thread import do, soon
from workbench.views.answers import to_json

_numbers = count()
_names = (f"page-{number}" for number in count())


class Place:
    """One place where a panel is shown. `said` is what went wrong."""

    def __init__(self, panel: Figure | Workbench) -> None:
        panel._repr_mimebundle_()
        self.panel = panel
        self.name = next(_names)
        self.said: list[str] = []
        self.came: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.is_away = False
        """True for a page that was reloaded: it takes in nothing and says nothing."""
        self._others = panel.post
        panel.post = self._hear  # type: ignore[method-assign]
        self.say(type="hello")

    def say(self, **message: Any) -> None:
        soon(self.panel.receive, json.dumps({"page": self.name, **message})).result()

    def acts(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the answer to an action of the page."""
        number = next(_numbers)
        self.say(type="action", id=number, name=name, arguments=arguments)
        self.until(lambda: number in self.answers)
        return self.answers[number]

    def until(self, true: Callable[[], Any], seconds: float = 20.0) -> Any:
        return until(true, seconds, lambda: self.came)

    def _hear(self, name: str, message: dict[str, Any]) -> None:
        message = json.loads(to_json(message))
        if name != self.name:
            self._others(name, message)
        elif not self.is_away:
            self.came.append(message)
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "here":
                do(self.panel.receive, json.dumps({"page": self.name, "type": "here"}))
            case "patches":
                self._draw(message)
            case "error":
                self.said.append(message["message"])
            case "answer":
                self.answers[message["id"]] = message

    def _draw(self, message: dict[str, Any]) -> None:
        raise NotImplementedError


class Cell(Place):
    """Shows a figure in a theme: `sources` are the columns of its data sources, `gone` why no more comes."""

    def __init__(self, panel: Figure | Workbench, theme: str = "light", **watched: str) -> None:
        self.sources: dict[str, dict[str, list[Any]]] = {}
        self.status: dict[str, Any] = {}
        self.gone: str | None = None
        super().__init__(panel)
        self.say(type="watch", watch="figure", theme=theme, **(watched or {"cluster": "any"}))

    def column(self, source: str, name: str) -> list[Any]:
        return self.sources.get(source, {}).get(name, [])

    def _take(self, message: dict[str, Any]) -> None:
        super()._take(message)
        if message["type"] == "gone":
            self.gone = message["message"]

    def _draw(self, message: dict[str, Any]) -> None:
        self.status = message["status"]
        for patch in message["patches"]:
            before = self.sources.setdefault(patch["source"], {}) if patch["mode"] != "replace" else {}
            columns = patch["columns"]
            if patch["mode"] == "stream":
                columns = {name: [*before.get(name, []), *new] for name, new in columns.items()}
            self.sources[patch["source"]] = before | columns


class Person(Place):
    """Looks at views, chooses, and clicks."""

    def __init__(self, panel: Workbench) -> None:
        self.views: dict[str, str] = {}
        self.chosen: dict[str, Any] = {}
        super().__init__(panel)

    def looks_at(self, view: str) -> str:
        """HTML of a view as it is now."""
        if view not in self.views:
            self.say(type="watch", watch=view, view=view)
            self.until(lambda: view in self.views)
        return self.views[view]

    def reads(self, view: str) -> str:
        """Text of a view as it is now."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.looks_at(view))).split())

    def finds(self, view: str, text: str, seconds: float = 20.0) -> str:
        """Text of a view once it says this."""
        return str(until(lambda: text in self.reads(view) and self.reads(view), seconds, lambda: self.reads(view)))

    def chooses(self, **choices: Any) -> None:
        """Names have two underscores for each dot: `plan__cpu__n_workers`."""
        changed = {name.replace("__", "."): value for name, value in choices.items()}
        self.chosen = {name: value for name, value in {**self.chosen, **changed}.items() if value is not None}
        self.say(type="choose", choices=changed)

    def button(self, view: str, hook: str, within: str = "") -> dict[str, str | None] | None:
        """Attributes of the first element of this hook, in the item which has the hook `within`; None without one."""
        html = self.looks_at(view)
        if within:
            html = html.partition(f'data-workbench="{within}"')[2]
            html = re.split("<li id=|<article", html, maxsplit=1)[0]
        return attributes(html, hook)

    def clicks(self, view: str, hook: str, within: str = "") -> dict[str, Any]:
        """Click a button once it is enabled, and return the answer to its action."""

        def enabled() -> dict[str, str | None] | None:
            found = self.button(view, hook, within)
            return found if found is not None and "disabled" not in found else None

        found = until(enabled, about=lambda: (hook, self.reads(view)))
        body = json.loads(found.get("data-arguments") or "{}")
        for field, name in json.loads(found.get("data-take") or "{}").items():
            below = {each.removeprefix(name): value for each, value in self.chosen.items() if each.startswith(name)}
            if name.endswith("."):
                body[field] = {**body.get(field, {}), **below}
            elif name in self.chosen:
                body[field] = self.chosen[name]
        answer = self.acts(str(found["data-action"]), **body)
        if "value" in answer and found.get("data-then"):
            self.chooses(**json.loads(found["data-then"]))
        return answer

    def _draw(self, message: dict[str, Any]) -> None:
        view = message["watch"]
        before = _items(self.views.get(view, ""))
        self.views[view] = re.sub(r'<li id="([^"]+)" data-same></li>', lambda item: before[item[1]], message["html"])


def attributes(html: str, hook: str) -> dict[str, str | None] | None:
    """Attributes of the first element of this hook."""
    return _Finder(hook, html).found


def _items(html: str) -> dict[str, str]:
    return {item[1]: item[0] for item in re.finditer(r'<li id="([^"]+)".*?</li>', html, re.DOTALL)}


class _Finder(HTMLParser):
    def __init__(self, hook: str, html: str) -> None:
        super().__init__()
        self.found: dict[str, str | None] | None = None
        self._hook = hook
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if self.found is None and dict(attributes).get("data-workbench") == self._hook:
            self.found = dict(attributes)
