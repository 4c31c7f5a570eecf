"""Code that people copy from the README: its Python and commands run in order, and its names exist."""

from __future__ import annotations

import re
import shlex
import shutil
import warnings
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from workbench.cli import main
from workbench.clusters import records
from workbench.runs import store

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

SMALLER = {
    "(4000, 4000), chunks=1000": "(400, 400), chunks=100",
    'workbench.start("cpu")': 'workbench.start("cpu", n_workers=1, memory="1GiB")',
    "up cpu --name first": "up cpu --name first --workers 1 --memory 1GiB",
}
"""The same with less of it."""


def snippets(language: str) -> str:
    found = "".join(re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
    for text, less in SMALLER.items():
        found = found.replace(text, less)
    return found


@pytest.fixture
def folder(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with the files that the README reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "digits.npy", tmp_path / "notebooks")
    return tmp_path


def test_readmes_python_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        # Of noise no component is far from the next one, and that is said.
        warnings.simplefilter("ignore")
        exec(compile(snippets("python"), "README.md", "exec"), {})
    assert "right to" in capsys.readouterr().out
    assert records.names() == ()


def test_readmes_commands_run_in_their_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    for command in re.findall(r"^\$ workbench (.*)$", snippets("console"), re.MULTILINE):
        code = main(shlex.split(command))
        out, err = capsys.readouterr()
        assert code == 0, f"workbench {command}\n{out}\n{err}"
    assert all(f"{value:.4f}" in README for value in store.find("last").result["singular_values"])
    assert [Path(url2pathname(urlsplit(address).path)).is_file() for address in shown] == [True]
    assert records.names() == ()


def test_what_readme_makes_is_a_target() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {first or second for first, second in re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", README, re.MULTILINE)}
    assert {"lab", "test", "check", "docs"} <= named <= set(targets)


def test_readme_links_to_files_that_exist() -> None:
    links = [each for each in re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", README) for each in each if each]
    missing = [each for each in links if "://" not in each and not (ROOT / each).exists()]
    assert links
    assert not missing


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
