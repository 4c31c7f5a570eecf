"""Commands for the records of runs: open, export, save, import, replay."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workbench.cli.answers import answer, complain, shown
from workbench.cli.clusters import new_session
from workbench.cli.words import add_command, add_run_name, size_given


def _export(arguments: argparse.Namespace) -> int:
    given = {"replace": arguments.force, "with_answers": arguments.with_answers}
    session = new_session()
    run = session.show(arguments.run)
    path = session.export_run(run.id, arguments.file or Path.cwd(), **given)
    left_out = run.answers.apart if run.answers and arguments.with_answers else None
    if left_out:
        complain(f"{path} has not all arrays. Not in it: {left_out}")
    return answer(arguments, {"path": str(path), "left_out": left_out}, str(path))


def _save(arguments: argparse.Namespace) -> int:
    from workbench.views.saving import save

    run = new_session().show(arguments.run)
    with shown("blocks", run, arguments) as told:
        to = save(run, arguments.file, arguments.kind, only=arguments.only, replace=arguments.replace, told=told)
    return answer(arguments, {"path": to}, to)


def _import(arguments: argparse.Namespace) -> int:
    from workbench.runs.exchange import import_run

    run = import_run(arguments.file, new_id=arguments.new_id, max_size=arguments.max_size)
    machine = run.imported.machine if run.imported else "another machine"
    text = f"{run.id}: a run of {run.workload} on {machine}. See it with: workbench replay {run.id}"
    return answer(arguments, run, text)


def _open(arguments: argparse.Namespace) -> int:
    """Write the report of a finished run, and open it."""
    from workbench.views.recorded import write

    path = write(new_session().show(arguments.run))
    if not (arguments.json or arguments.no_browser):
        import webbrowser

        webbrowser.open(f"{path.as_uri()}{arguments.part}")
    return answer(arguments, {"path": str(path)}, str(path))


def add_record_commands(commands: Any) -> None:
    """Add the commands for the records of runs."""
    _add_open(commands, "open", "write the report of a run as one HTML file, and open it in the browser")

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
    said = "how large it may be when it is unpacked (2GiB), and in memory (256MiB)"
    taken.add_argument("--max-size", metavar="SIZE", type=size_given, help=said)
    taken.add_argument("--new-id", action="store_true", help="give it another id, where its own is taken")

    text = "play what a run's cluster did as it happened, in the browser, without a cluster"
    # The page starts to play if its address ends with this.
    _add_open(commands, "replay", text).set_defaults(part="#replay")


def _add_open(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = add_command(commands, name, _open, text)
    add_run_name(parser)
    parser.add_argument("--no-browser", action="store_true", help="only write the page and print its path")
    parser.set_defaults(part="")
    return parser
