"""The addresses of runs that travel: a run as a zip file, and one that comes as a zip file."""

# ruff: noqa: D102  The sentence of a class tells what its verbs do.

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workbench.errors import BadInputError
from workbench.server.handlers import Handler
from workbench.views import answers

if TYPE_CHECKING:
    from workbench.session import Session


class Export(Handler):
    """The run as a zip file, to be imported elsewhere."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        name, content = await self.ask(lambda session: _exported(session, run_id))
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.set_header("Cache-Control", "no-store")
        self.finish(content, set_content_type="application/zip")


class Imports(Handler):
    """Take in a run from a zip file, which is the request's body; `new_id` in the query gives it another id."""

    @authenticated
    @authorized
    async def post(self) -> None:
        body, new_id = self.request.body, self.get_query_argument("new_id", "false")
        if new_id not in ("true", "false"):
            raise BadInputError(f"new_id is {new_id!r:.40}. Give true or false.")
        run = await self.ask(lambda session: session.import_run(io.BytesIO(body), new_id=new_id == "true"))
        self.answer(answers.run_answer(run), 201)


def _exported(session: Session, run_id: str) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="workbench-export-") as folder:
        path = session.export_run(run_id, Path(folder))
        return path.name, path.read_bytes()
