"""Commands for the records of runs: export, save, import, replay."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import shown, tell, tell_json
from workbench.cli.clusters import new_session
from workbench.cli.words import add_command, add_run_name
from workbench.errors import BadInputError

if TYPE_CHECKING:
    from workbench.runs.store import Run


def _export(arguments: argparse.Namespace) -> int:
    given = {"replace": arguments.force, "with_answers": arguments.with_answers}
    path = new_session().export_run(arguments.run, arguments.file or Path.cwd(), **given)
    return tell_json({"path": str(path)}) if arguments.json else tell(str(path))


def _save(arguments: argparse.Namespace) -> int:
    from workbench.views.saving import save

    run = new_session().show(arguments.run)
    with shown("blocks", run) as told:
        to = save(run, arguments.file, arguments.kind, only=arguments.only, replace=arguments.replace, told=told)
    return tell_json({"path": to}) if arguments.json else tell(to)


def _import(arguments: argparse.Namespace) -> int:
    run = new_session().import_run(arguments.file, new_id=arguments.new_id)
    if arguments.json:
        return tell_json(run.model_dump(mode="json"))
    machine = run.imported.machine if run.imported else "another machine"
    return tell(f"{run.id}: a run of {run.workload} on {machine}. See it with: workbench replay {run.id}")


def _replay(arguments: argparse.Namespace) -> int:
    run = new_session().show(arguments.run)
    path = report_of(run)
    if arguments.json:
        return tell_json({"path": str(path)})
    if not arguments.no_browser:
        import webbrowser

        # The page begins to play by itself where its address ends like this.
        webbrowser.open(f"{path.as_uri()}#replay")
    return tell(str(path))


def report_of(run: Run) -> Path:
    """Write the report of a run that has ended, and return its path."""
    from workbench.runs import store

    if run.active:
        raise BadInputError(f"The run {run.id} is still {run.status}. Its report is there when it has ended.")
    from workbench.figures.report import write_report

    return write_report(run, store.folder(run.id))


def add_record_commands(commands: Any) -> None:
    """Add the commands for the records of runs."""
    export = add_command(
        commands, "export", _export, "write a run with its events and its log to a file that others can import"
    )
    add_run_name(export)
    export.add_argument("file", metavar="FILE.zip", type=Path, nargs="?", help="here, under the run's id, by default")
    export.add_argument("--force", action="store_true", help="replace the file")
    export.add_argument("--with-answers", action="store_true", help="and with the arrays that are kept with it")

    save = add_command(commands, "save", _save, "write a run's answer to a file for other programs, or a picture of it")
    add_run_name(save)
    endings = ".zarr, .npz, .npy, .nc, .tsv (a table of the first array), .eigenvec (for PLINK), .png, .svg or .pdf"
    save.add_argument("file", metavar="FILE", help=f"a path or URL that ends with {endings}")
    save.add_argument("--as", dest="kind", metavar="KIND", help="one of these kinds, whatever the ending")
    save.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this array, may be given again; or this picture"
    )
    save.add_argument("--replace", action="store_true", help="replace what is there")

    taken = add_command(commands, "import", _import, "take in a run that was exported, here or elsewhere")
    taken.add_argument("file", metavar="FILE.zip", type=Path)
    taken.add_argument("--new-id", action="store_true", help="give it another id, where its own is taken")

    replay = add_command(
        commands, "replay", _replay, "play what a run's cluster did as it happened, in the browser, without a cluster"
    )
    add_run_name(replay)
    replay.add_argument("--no-browser", action="store_true", help="only write the page and print its path")
