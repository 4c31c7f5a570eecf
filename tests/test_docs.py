"""The documentation: pages made from the code are complete, and what readers copy from the others runs."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dask
import pytest
import yaml

import workbench
from tests.conftest import using_data_folder
from workbench.cli import _parse, _parser, main
from workbench.clusters import records
from workbench.clusters.profiles import registered
from workbench.clusters.start import Cluster
from workbench.hardware import inventory
from workbench.workloads import extensions
from workbench.workloads.builtin import templates

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

BLOCK = re.compile(
    r"(?:^% not run: ([^\n]+)\n\n)?^```(\{code-block\} )?(\w+)\n(?::caption: (\S+)\n\n)?(.*?)^```$", re.M | re.S
)


def test_the_reference_has_each_workload_profile_and_command_with_its_options_and_is_not_in_git(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    # The Sphinx extension that makes pages from the code. It doesn't need Sphinx.
    generated = importlib.import_module("generated")
    pages = generated.make_pages()
    for workload in templates():
        page = pages[f"reference/workloads/{workload.name}"]
        assert all(f"`{name}`" in page for name in workload.schema()["properties"])
        # The build runs this, and puts what it draws into the page.
        _parse(shlex.split(generated.figures.command(workload.name))[1:])
        assert f"$ {generated.figures.command(workload.name)}\n" in page
        assert f"\n:file: {workload.name}.html\n" in page
    assert generated.figures.RUNS.keys() == {workload.name for workload in templates()}
    for name, profile in registered().items():
        page = pages[f"reference/profiles/{name}"]
        assert all(f"`{option}`" in page for option in profile.choices(inventory()).model_fields)
    for name in generated.subcommands(_parser()):
        assert f"\n## {name}\n" in pages["reference/command-line"]
    names = [f"docs/{name}.md" for name in pages]
    tracked = subprocess.run(["git", "ls-files", *names], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ignored = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True, check=True)
    assert tracked == ""
    assert ignored.stdout.split() == names


# --- what readers copy ------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A fenced block of a page."""

    not_run: str | None
    """Reason not to run it, from a comment above the block."""
    language: str
    file: str | None
    """Name of the file that it is the content of."""
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Words of each command after `$ workbench`."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "console" else ()
        return [shlex.split(line.removeprefix("$ workbench"), comments=True) for line in lines if line.startswith("$")]


def written_pages() -> list[Path]:
    """Return the pages that are in git."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "docs"], cwd=ROOT, capture_output=True)
    return sorted(ROOT / name for name in listed.stdout.decode().split() if name.endswith(".md"))


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(reason or None, language, file or None, text)
        for reason, _, language, file, text in BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


PAGES = {str(page.relative_to(DOCS).with_suffix("")): read_blocks(page) for page in written_pages()}


def can_run(block: Block) -> bool:
    return block.language in ("python", "console") and not block.not_run and not block.file


def install_entry_points(folder: Path) -> None:
    """Install the package whose pyproject.toml is in a folder of Python's path, as `pip install -e .` would."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))


def forget_entry_points() -> None:
    """Have them looked up anew: they are looked for once in a process."""
    registered.cache_clear()
    extensions.loaded.cache_clear()


SHARED = {
    'workbench.start("cpu", n_workers=1, memory="1GiB")': "shared()",
    "LocalCluster(n_workers=1,": "LocalCluster(n_workers=1, processes=False, protocol='tcp',",
    " --on cpu": " --cluster docs",
    "--no-dashboard": "--no-nanny --no-dashboard",
    "--measure array_sum --on 'cpu --memory 2GiB'": "--measure array_sum --cluster docs",
}
"""What would start a cluster or a process for itself, and what is quicker. A page starts one with `workbench up`."""


@contextmanager
def shared() -> Iterator[Cluster]:
    """Provide the cluster that all pages share, and close the client that a page has had."""
    cluster = Cluster("docs")
    yield cluster
    cluster.client.close()


def on_shared(text: str) -> str:
    for starts, shared in SHARED.items():
        text = text.replace(starts, shared)
    return text


@pytest.fixture(scope="module")
def ran() -> set[str]:
    """Runs and forecasts of the pages so far, without numbers: those that differ in numbers only take the same path."""
    return set()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of a cluster that runs already, in a data folder that all pages share."""
    with using_data_folder(tmp_path_factory.mktemp("docs")):
        workbench.start("cpu", n_workers=1, memory="1GiB", name="docs")
        yield "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide an empty working folder, from which Python imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    before = set(sys.modules)
    yield tmp_path
    forget_entry_points()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", [name for name, blocks in PAGES.items() if any(map(can_run, blocks))])
def test_what_readers_copy_from_a_page_runs_in_its_order(
    page: str, folder: Path, cluster: str, ran: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "shared": shared}
    for block in PAGES[page]:
        if block.file:
            (folder / block.file).write_text(on_shared(block.text))
            if block.file == "pyproject.toml":
                install_entry_points(folder)
                forget_entry_points()
        elif can_run(block) and block.language == "python":
            exec(compile(on_shared(block.text), f"{page}.md", "exec"), names)
        elif can_run(block):
            for words in block.commands:
                command = on_shared(shlex.join(words))
                if words[0] in ("run", "forecast"):
                    if (path := re.sub(r"\d+", "N", command)) in ran:
                        continue
                    ran.add(path)
                code = main(shlex.split(command))
                out, err = capsys.readouterr()
                assert code == 0, f"workbench {command}\n{out}\n{err}"
    assert records.names() == (cluster,), "the page leaves a cluster running"


def test_no_block_is_overlooked() -> None:
    for page, blocks in zip(written_pages(), PAGES.values(), strict=True):
        fences = re.findall(r"^```(?:\{code-block\} )?\w+$", page.read_text(encoding="utf-8"), re.M)
        assert len(blocks) == len(fences), page.name


def test_what_is_not_run_is_right_in_its_form() -> None:
    for name, blocks in PAGES.items():
        for block in blocks:
            if block.file == "workbench.yaml":
                assert yaml.safe_load(block.text)["workbench"].keys() <= dask.config.get("workbench").keys()
            if block.language == "python":
                compile(block.text, f"{name}.md", "exec")
            for command in block.commands:
                _parse(command)


def test_commands_in_sentences_exist() -> None:
    """`workbench NAME …` in a sentence names a command, and `make TARGET` a target."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page in written_pages():
        text = page.read_text(encoding="utf-8")
        for words in re.findall(r"`workbench ([a-z]+)\b[^`.]*`", text):
            assert words in _parser().format_help(), f"{page.name}: workbench {words}"
        for target in re.findall(r"(?:`|^)make ([\w-]+)", text, re.M):
            assert target in targets, f"{page.name}: make {target}"


def test_the_citation_names_this_version_and_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"], citation["title"]) == (
        workbench.__version__,
        project["license"],
        project["name"],
    )
