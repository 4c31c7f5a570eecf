"""Writing of a run's answer for other programs: here, or in a process, `python -m workbench.views.saving RUN`.

That process executes the record in `runs.background_saves`, and outlives the page that requested it. SIGTERM cancels
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import BadInputError, WorkbenchError, quoted
from workbench.jobs import folders, processes
from workbench.jobs.ending import cancellable, outcome
from workbench.jobs.records import PATIENCE, Writer
from workbench.runs import answer_storage, background_saves, store
from workbench.runs.run import Run
from workbench.storage import writing
from workbench.storage.exports import table
from workbench.storage.targets import PICTURES, target
from workbench.workloads import extensions

_PARTING = 20  # seconds for blocks being written when it is cancelled: a disk may hang


def save(
    run: Run,
    path: str | Path,
    kind: str | None = None,
    *,
    only: Sequence[str] = (),
    replace: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> str:
    """Write the arrays of a run's answer, or a picture of it, for other programs; return the path or URL.

    Parameters
    ----------
    kind
        zarr, npz, npy, nc, tsv (a table of the first array), png, svg or pdf for a picture, or a kind of an extension,
        such as eigenvec (PLINK's files of that and other endings). By default, the ending determines it.
    only
        Names of the arrays to write, or the name of the picture. By default, all arrays, or the most informative
        picture.
    on_progress
        Called with the number of written blocks and the total.
    """
    to, answer = answer_storage.wanted(run, path, kind, only=only, replace=replace)
    answer_storage.sweep(to)
    writer, mark = writing.Writer(on_progress), answer_storage.mark_of_saver(run.id)
    if to.kind in PICTURES:
        from workbench.views.run_files import picture_bytes

        if len(only) > 1:
            raise BadInputError(f"{', '.join(only)} are {len(only)} pictures, and a file holds one. Name one of them.")
        writing.write_parts([picture_bytes(run, next(iter(only), None), to.kind)], to, mark=mark)
    elif to.kind == "tsv":
        writing.write_parts(_encoded(table(answer, writer.count)), to, mark=mark)
    elif to.kind in (writers := extensions.writers()):
        files = writers[to.kind](answer)
        stem = str(to).removesuffix(f".{to.kind}")
        # Check all paths before the first is written.
        places = {name: target(f"{stem}.{name}", to.kind, replace=replace, kinds=[to.kind]) for name in files}
        for name, lines in files.items():
            writing.write_parts(_encoded(lines), places[name], mark=mark)
    else:
        writing.write(answer, to, mark=mark, writer=writer)
    return str(to)


def _encoded(lines: Any) -> Any:
    return (f"{line}\n".encode() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Save as recorded for the run that is the only argument; return the exit code, 0 for success."""
    (run_id,) = sys.argv[1:] if arguments is None else arguments
    cancellable(_PARTING)
    saving, folder = background_saves.get(run_id), background_saves.folder(run_id)
    writer = Writer(folder, saving)

    def done() -> dict[str, Any]:
        options = saving.model_dump(include={"path", "kind", "only", "replace"})

        def on_progress(done: int, total: int) -> None:
            writer.note_while_active(done=done, total=total)

        save(store.get(run_id), **options, on_progress=on_progress)
        return {"status": "done"}

    def failed(err: Exception) -> str:
        return str(err) if isinstance(err, WorkbenchError) else f"{saving.path} can't be written: {quoted(err)}."

    writer.note(status="running", **processes.itself())
    with folders.signs_of_life(folder):
        changes = outcome(done, folder, failed)
    writer.note(patience=PATIENCE, **changes)
    return 0 if changes["status"] == "done" else 1


if __name__ == "__main__":
    sys.exit(main())
