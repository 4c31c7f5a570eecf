"""Pages and files: reports, pictures, exports, the documentation. Reading them has no effects. No tornado here."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from workbench.errors import NotFoundError
from workbench.views.answers import API
from workbench.views.service import Service

if TYPE_CHECKING:
    from workbench.session import Session

HTML, ZIP = "text/html; charset=UTF-8", "application/zip"


class File(NamedTuple):
    """A page or a file."""

    content: str | bytes
    kind: str = HTML
    """The content type."""
    name: str | None = None
    """Name for a download."""


async def read_file(service: Service, path: str) -> File:
    """Return a page or a file by its address below `workbench/api`, quoted as in a URL. Raises WorkbenchError."""
    for pattern, read in _FILES.items():
        if match := re.fullmatch(pattern, path):
            names = [name and unquote(name) for name in match.groups()]
            return await service.ask(lambda session: read(session, *names))  # noqa: B023
    raise NotFoundError(f"There is no address {API}/{unquote(path)[:80]}.")


def _report(session: Session, run: str) -> File:
    from workbench.views.run_files import report

    return File(report(session.show(run)))


def _picture(session: Session, run: str, picture: str) -> File:
    from workbench.views.run_files import picture_bytes

    content = picture_bytes(session.show(run), picture, "png")
    # The name goes into a header.
    name = re.sub(r"[^\w.-]+", "-", f"{run}-{picture}", flags=re.ASCII)
    return File(content, "image/png", f"{name}.png")


def _export(session: Session, ids: str, with_answers: str | None = None) -> File:
    with tempfile.TemporaryDirectory(prefix="workbench-export-") as folder:
        paths = [session.export_run(run, Path(folder), with_answers=bool(with_answers)) for run in ids.split(",")]
        if len(paths) == 1:
            return File(paths[0].read_bytes(), ZIP, paths[0].name)
        all_of_them = io.BytesIO()
        with zipfile.ZipFile(all_of_them, "w") as archive:
            for path in paths:
                archive.write(path, path.name)
        return File(all_of_them.getvalue(), ZIP, "runs.zip")


def _comparison(session: Session, comparison: str) -> File:
    from workbench.views.comparisons import page

    record = session.comparison(comparison)
    return File(page(record, session.summary(record)))


def _documentation(_: Session, part: str, page: str) -> File:
    from workbench.views.documentation import document

    return File(document(f"{part}/{page}"))


_FILES: dict[str, Callable[..., File]] = {
    "runs/([^/]+)/report": _report,
    "runs/([^/]+)/pictures/([^/]+)": _picture,
    "runs/([^/]+)/export(-with-answers)?": _export,
    "comparisons/([^/]+)/page": _comparison,
    "docs/([^/]+)/([^/]+)": _documentation,
}
"""Functions by address."""
