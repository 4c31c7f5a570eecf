"""Comparisons over REST. Each verb asks the session; see rest-api.yml."""

# ruff: noqa: D102  The sentence of a class tells what its verbs do.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workbench.errors import BadInputError
from workbench.server.handlers import Handler
from workbench.views.bodies import parse_object, whole_number

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.session import Session

FORMATS = ("markdown", "csv", "json")

_KEYS = ("workload", "parameters", "on", "sweep", "weak", "repeats", "warmup", "agreed")


def comparison_answer(session: Session, comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as the faces show it: what it says by now, and how far it is."""
    progress = ("mode", "stage", "now", "done", "total", "created", "started", "stopped")
    return {
        **session.summary(comparison).model_dump(mode="json"),
        **comparison.model_dump(mode="json", include={"request", *progress}),
    }


class Comparisons(Handler):
    """Comparisons: list them, start one more, or put runs of the past beside one another."""

    @authenticated
    @authorized
    async def get(self) -> None:
        limit = whole_number("limit", self.get_query_argument("limit", "20"), 1, 1000)
        self.answer({"comparisons": await self.ask(lambda session: _all(session, limit))})

    @authenticated
    @authorized
    async def post(self) -> None:
        body = parse_object(self.request.body)
        begun = await self.look(**_wanted(body))
        self.answer(await self.ask(lambda session: comparison_answer(session, begun)), 202)


def _all(session: Session, limit: int) -> list[dict[str, Any]]:
    return [comparison_answer(session, each) for each in session.comparisons(limit=limit)]


def _wanted(body: dict[str, Any]) -> dict[str, Any]:
    """Return which method of the session begins what a request asks for, and with what."""
    if "runs" in body:
        runs = body["runs"].split() if isinstance(body["runs"], str) else body["runs"]
        if body.keys() != {"runs"} or not isinstance(runs, list) or not all(isinstance(each, str) for each in runs):
            raise BadInputError("To compare runs of the past, give their ids as runs, and nothing else.")
        return {"method": "compare_runs", "runs": runs}
    unknown = [key for key in body if key not in _KEYS]
    if unknown:
        raise BadInputError(f"Unknown key {unknown[0]!r:.80}. Allowed: {', '.join(_KEYS)}, or runs alone.")
    if not isinstance(body.get("workload"), str):
        raise BadInputError("workload is missing. Give the name of one.")
    # An empty field of a form is one that was left out.
    given = {key: value for key, value in body.items() if value not in (None, "") and key not in ("workload", "agreed")}
    agreed = body.get("agreed") in (True, "true")
    return {"method": "compare", "workload": body["workload"], "agreed": agreed, **given}


class OneComparison(Handler):
    """One comparison: look, forget."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        self.answer(await self.ask(lambda session: comparison_answer(session, session.comparison(name))))

    @authenticated
    @authorized
    async def delete(self, name: str) -> None:
        found = await self.ask(lambda session: session.comparison(name))
        await self.ask(lambda session: session.delete_comparison(found.id))
        self.answer(await self.ask(lambda session: comparison_answer(session, found)))


class CancelComparison(Handler):
    """Ask a comparison to end: what it started is stopped, what it measured is kept."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        self.body({})
        session = await self.session()
        found = await session.cancel_comparison(name)
        self.answer(await self.ask(lambda session: comparison_answer(session, found)), 202)


class ComparisonTable(Handler):
    """The table as text."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        form = self.get_query_argument("format", "markdown")
        if form not in FORMATS:
            raise BadInputError(f"format is {form!r:.40}. Give one of: {', '.join(FORMATS)}.")
        self.answer({"format": form, "text": await self.ask(lambda session: _text(session, name, form))})


def _text(session: Session, name: str, form: Any) -> str:
    from workbench.runs.comparing.table import export

    return export(session.comparison(name), form)


class ComparisonPage(Handler):
    """The comparison as one HTML file that opens offline."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        text = await self.ask(lambda session: _page(session, name))
        self.finish(text, set_content_type="text/html; charset=UTF-8")

    @property
    def content_security_policy(self) -> str:
        """Let the page run its own scripts, cut off from the Jupyter server that it came from."""
        return "sandbox allow-scripts allow-downloads; default-src 'unsafe-inline' 'unsafe-eval' data: blob:"


def _page(session: Session, name: str) -> str:
    from workbench.figures.comparison import page

    return page(session.comparison(name))
