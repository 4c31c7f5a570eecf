"""Help on a profile or a workload that is named before `--help`: its options, made from the model of its form."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench.errors import WorkbenchError


class Subject(NamedTuple):
    """A profile or workload as its help shows it."""

    summary: str
    options: Mapping[str, str]
    """What each option means, by how it is written: '--workers N' or '-p k=N'."""


def of_profile(name: str) -> Subject:
    """Return the options of a profile on this machine."""
    from workbench.clusters.lines import options_of
    from workbench.clusters.profiles.lookup import profile
    from workbench.hardware import inventory

    found, here = profile(name), inventory()
    return Subject(
        found.summary(here), {each.name: _meaning(each.description, each.default) for each in options_of(found, here)}
    )


def of_workload(name: str) -> Subject:
    """Return the parameters of a workload."""
    from workbench.clusters.choices import metavar
    from workbench.session import Session

    template = Session().workload(name)
    schema = template.schema()
    required = schema.get("required", ())
    parameters = {
        f"-p {name}={metavar(about)}": _meaning(
            about.get("description") or about["title"], about.get("default"), required=name in required
        )
        for name, about in schema["properties"].items()
        # They have options of their own.
        if name not in ("preset", "scale")
    }
    return Subject(template.summary, parameters)


def _meaning(description: str, default: Any, *, required: bool = False) -> str:
    if required:
        return f"{description} Required."
    return description if default in (None, "") else f"{description} Default: {default}."


def add_help(parser: argparse.ArgumentParser, subject: str, read: Callable[[str], Subject]) -> None:
    """Add `--help` to a command whose argument `subject` names a profile or a workload."""
    text = f"show this message, or after {subject.upper()} its options"
    parser.add_argument("-h", "--help", action=_Help, nargs=0, subject=subject, read=read, help=text)


class _Help(argparse.Action):
    """Action that prints the options of the subject given before `--help`, or else the help of the command."""

    def __init__(self, *args: Any, subject: str, read: Callable[[str], Subject], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subject, self.read = subject, read

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        name = getattr(namespace, self.subject, None)
        if name is None:
            parser.print_help()
            parser.exit()
        try:
            subject = self.read(name)
        except WorkbenchError as err:
            parser.error(str(err).rstrip("."))
        printer = argparse.ArgumentParser(
            usage=f"{parser.prog} {name} [options]",
            description=subject.summary,
            epilog=f"More options, for any {self.subject}: {parser.prog} --help",
            add_help=False,
        )
        group = printer.add_argument_group(f"options of {name}")
        for number, (option, meaning) in enumerate(subject.options.items()):
            # argparse prints the metavar of a positional argument as it is.
            group.add_argument(f"option{number}", metavar=option, help=meaning.replace("%", "%%"))
        printer.print_help()
        parser.exit()
