"""The sentences in which errors speak."""

from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest

from workbench.clusters import records
from workbench.errors import PACKAGES, BadInputError, NotFoundError, install, named, quoted
from workbench.workloads.lookup import template

ROOT = Path(__file__).parents[1]


def test_a_name_of_thousands_of_characters_is_repeated_in_part_only() -> None:
    with pytest.raises(NotFoundError) as refused:
        template("x" * 5000)
    told = str(refused.value)
    assert told.startswith("Unknown workload 'xxx")
    assert "Choose one of: " in told
    assert "x" * 100 not in told


@pytest.mark.parametrize("name", ["no such name " * 40, "it's " * 100, "x" * 280])
def test_what_is_repeated_in_part_keeps_its_quotation_marks(name: str) -> None:
    with pytest.raises(NotFoundError, match=r"^Unknown cluster (['\"]).{20,60}\.\.\..*\1\. "):
        records.read(name)
    assert quoted({"a": [name]}).endswith("]}")


def test_a_path_is_told_whole_and_an_error_travels_between_processes() -> None:
    path = "/somebody/s/very/long/path" * 8
    error = pickle.loads(pickle.dumps(BadInputError(f"{path} is missing.")))
    assert str(error) == f"{path} is missing."


def test_nobody_is_told_to_install_a_name_or_clone_an_address_that_somebody_else_could_take() -> None:
    told = re.compile(r"dask-workbench\[|pip install [^\n`”]*dask-workbench|github\.com/dask-workbench|git clone")
    kinds = {".py", ".ts", ".tsx", ".md", ".ipynb", ".toml", ".yaml", ".yml", ".json", ".sh", ".txt"}
    places = [path for name in ("workbench", "labext/src", "notebooks", "binder") for path in (ROOT / name).rglob("*")]
    files = [path for path in (*places, *ROOT.glob("*")) if path.suffix in kinds and path.is_file()]
    files = [path for path in files if "labextension" not in path.parts]
    assert len(files) > 100
    assert [str(path) for path in files if told.search(path.read_text())] == []


def test_hints_name_what_the_extras_bring() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: list(packages) for name, packages in PACKAGES.items()} == {name: extras[name] for name in PACKAGES}
    assert set(extras) - set(PACKAGES) == {"docs", "test"}
    assert install("cuda13").startswith("pip install 'dask-cuda[cu13]==26.10.*' 'cupy-cuda13x[ctk]>=14.2' ")


def test_an_error_without_a_text_or_with_colours_is_told_plainly() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert named(MuteError()) == "MuteError: (its text failed with RuntimeError)"
    assert named(ValueError("\x1b[31mred\x1b[0m \udcff\x07\x1b]0;title\x07")) == "ValueError: red ?"


def test_a_message_is_whole_without_its_command_which_a_page_leaves_out() -> None:
    package = ROOT / "workbench"
    shown = (
        each
        for each in package.rglob("*.py")
        if "cli" not in each.parts and each.name not in ("terminal.py", "magic.py")
    )
    before = re.compile(r"(\w+): (?:workbench [a-z]|\{self\.command\})")
    words = {word.lower() for each in shown for word in before.findall(each.read_text(encoding="utf-8"))}
    assert not words & {"see", "then", "to", "with"}
