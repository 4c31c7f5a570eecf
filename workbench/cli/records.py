"""Commands for the records of runs: save and import."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import config
from workbench.cli.answers import answer, complain, shown
from workbench.cli.clusters import new_session
from workbench.cli.parsing import add_command, add_run_name, check_free, size_given
from workbench.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from workbench.runs.run import Run
    from workbench.session import Session


def _save(arguments: argparse.Namespace) -> int:
    session, ending = new_session(), Path(arguments.file).suffix
    try:
        run = session.show(arguments.run)
    except NotFoundError as err:
        from workbench.cli.compare import comparison_of, write_comparison

        comparison, path = comparison_of(session, arguments.run, err), Path(arguments.file)
        check_free(path, arguments.replace)
        write_comparison(comparison, path)
        return answer(arguments, {"path": str(path)}, str(path))
    if arguments.with_answers and ending != ".zip":
        raise BadInputError("--with-answers is for FILE.zip, which holds the whole run. Leave it out.")
    if arguments.kind is None and ending == ".zip":
        return _export(session, run, arguments)
    if arguments.kind is None and ending in (".html", ".htm"):
        from workbench.views.run_files import report

        path = Path(arguments.file)
        check_free(path, arguments.replace)
        with config.writing(path):
            path.write_text(report(run), encoding="utf-8")
        return answer(arguments, {"path": str(path)}, str(path))
    from workbench.views.saving import save

    with shown("blocks", run, arguments) as on_progress:
        to = save(
            run, arguments.file, arguments.kind, only=arguments.only, replace=arguments.replace, on_progress=on_progress
        )
    return answer(arguments, {"path": to}, to)


def _export(session: Session, run: Run, arguments: argparse.Namespace) -> int:
    options = {"replace": arguments.replace, "with_answers": arguments.with_answers}
    path = session.export_run(run.id, arguments.file, **options)
    left_out = run.answers.apart if run.answers and arguments.with_answers else None
    if left_out:
        complain(f"{path} has not all arrays. Not in it: {left_out}")
    return answer(arguments, {"path": str(path), "left_out": left_out}, str(path))


def _import(arguments: argparse.Namespace) -> int:
    from workbench.runs.exchange import import_run

    run = import_run(arguments.file, new_id=arguments.new_id, max_size=arguments.max_size)
    machine = run.imported.machine if run.imported else "another machine"
    text = f"{run.id}: a run of {run.workload} on {machine}. See it with: workbench show {run.id} --replay"
    return answer(arguments, run, text)


def add_record_commands(commands: Any) -> None:
    """Add the commands for the records of runs."""
    save = add_command(
        commands,
        "save",
        _save,
        "write a run's answer, a picture of it, its report or all of it to a file; or a comparison",
        epilog="Example: workbench save last u.npy --only u",
    )
    add_run_name(save)
    save.add_argument(
        "file",
        metavar="FILE",
        help="a path or URL that ends with .zarr, .npz, .npy, .nc, .tsv (a table of the first array) or .eigenvec (for "
        "PLINK) for the answer; .png, .svg or .pdf for a picture; .html for the report; .zip for the run with its "
        "events and log; for a comparison .md, .csv, .json or .html",
    )
    save.add_argument("--as", dest="kind", metavar="KIND", help="one of these kinds, whatever the ending")
    save.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this array, may be given again; or this picture"
    )
    save.add_argument("--replace", action="store_true", help="replace what is there")
    save.add_argument("--with-answers", action="store_true", help="for .zip: with the arrays that are stored with it")

    import_ = add_command(commands, "import", _import, "take in a run that was saved as .zip, here or elsewhere")
    import_.add_argument("file", metavar="FILE.zip", type=Path)
    text = "how large it may be when it is unpacked (2GiB), and in memory (256MiB)"
    import_.add_argument("--max-size", metavar="SIZE", type=size_given, help=text)
    import_.add_argument("--new-id", action="store_true", help="give it another id, where its own is taken")
