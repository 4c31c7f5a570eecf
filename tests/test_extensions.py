"""Scientific fields as packages of their own, without which everything else works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from workbench.workloads import extensions, listing

ROOT = Path(__file__).parents[1]
GROUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][extensions.GROUP]
CORE = ("registry", "answers_drawn", "measured", "parts", "contents")


@pytest.mark.parametrize("field", GROUP)
def test_without_a_field_everything_else_works(field: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "workbench", tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__", field))
    about = tmp_path / "dask_workbench-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dask-workbench\nVersion: 0.1.0\n")
    others = [f"{name} = {value}\n" for name, value in GROUP.items() if name != field]
    (about / "entry_points.txt").write_text(f"[{extensions.GROUP}]\n{''.join(others)}")
    files = [path for name in CORE if (path := ROOT / "tests" / f"test_{name}.py").exists()]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_what_no_field_can_be_made_of_is_told_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, value, extensions.GROUP) for name, value in BAD.items()]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    extensions.loaded.cache_clear()
    try:
        assert extensions.extensions() == ()
        told = {each.where: each.why for each in listing.listed().broken}
    finally:
        extensions.loaded.cache_clear()
    assert told["nowhere:EXTENSION"] == "It can't be imported: No module named 'nowhere'."
    assert told["json:dumps"] == "It is no workbench.workloads.extensions.Extension."


BAD = {"gone": "nowhere:EXTENSION", "other": "json:dumps"}
