"""The page's end of a figure in a cell: what labext/src/page does, as far as messages tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from workbench.panels.live import Figure
from workbench.panels.thread import wait_for

_numbers = count()
_names = (f"page-{number}" for number in count())


class Cell:
    """Shows a figure in a theme: `sources` are the columns of its data sources, `gone` why no more comes."""

    def __init__(self, figure: Figure, theme: str = "light") -> None:
        self.pages = figure.__panel__().pages
        self.name = next(_names)
        self.sources: dict[str, dict[str, list[Any]]] = {}
        self.status: dict[str, Any] = {}
        self.gone: str | None = None
        self.done: list[str] = []
        """What Python code asked for."""
        self.came: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.drops = False
        """Whether Panel drops what is sent."""
        self._others = self.pages.post
        self.pages.post = self._hear
        self.say(type="hello")
        self.say(type="watch", watch="figure", cluster="any", theme=theme)

    def say(self, **message: Any) -> None:
        wait_for(self.pages.receive, json.dumps({"page": self.name, **message}))

    def asked(self, path: str) -> dict[str, Any]:
        """What the page is answered."""
        number = next(_numbers)
        self.say(type="request", id=number, verb="GET", path=path, body={})
        self.until(lambda: number in self.answers)
        return self.answers[number]

    def until(self, true: Callable[[], Any], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"it did not come true in time: {str(self.came)[-500:]}"
            time.sleep(0.02)

    def column(self, source: str, name: str) -> list[Any]:
        return self.sources.get(source, {}).get(name, [])

    def _hear(self, text: str) -> None:
        message = json.loads(text)
        if message["page"] != self.name:
            self._others(text)
        elif not self.drops:
            self.came.append(message)
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "patches":
                self.status = message["status"]
                for patch in message["patches"]:
                    before = self.sources.get(patch["source"], {}) if patch["mode"] == "stream" else {}
                    columns = patch["columns"].items()
                    self.sources[patch["source"]] = {name: [*before.get(name, []), *new] for name, new in columns}
            case "gone":
                self.gone = message["message"]
            case "answer":
                self.answers[message["id"]] = message
            case "do":
                self.done.append(message["action"])
