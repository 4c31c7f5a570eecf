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
from workbench.workloads.builtin import templates

ROOT = Path(__file__).parents[1]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
FIELDS = POINTS.pop(extensions.GROUP)
ALL_OF_IT = """
import importlib, pkgutil, sys
import numpy as np
import workbench
from workbench.session import Session

for each in pkgutil.walk_packages(workbench.__path__, "workbench."):
    if not each.name.endswith(("__main__", "._bits", "._lanes", "cuda13")):
        importlib.import_module(each.name)
np.save("x.npy", np.arange(12.0).reshape(4, 3))
assert Session().look("x.npy").arrays[0].shape == (4, 3)
for template in Session().workloads():
    template.schema(), template.help
    print(template.name)
"""


def test_without_scientific_fields_everything_else_works(tmp_path: Path) -> None:
    """No field imports another, as import-linter checks: without all of them each is missing to the core alone."""
    shutil.copytree(ROOT / "workbench", tmp_path / "workbench", ignore=shutil.ignore_patterns(*FIELDS, "labextension"))
    about = tmp_path / "dask_workbench-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dask-workbench\nVersion: 0.1.0\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {of}\n" for name, of in each.items()) for group, each in POINTS.items()
    )
    (about / "entry_points.txt").write_text("".join(groups))
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALL_OF_IT],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "DASK_WORKBENCH__DATA_FOLDER": str(tmp_path / "data")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    of_fields = {template.name for each in extensions.extensions() for template in each.workloads}
    assert of_fields
    assert done.stdout.split() == [each.name for each in templates() if each.name not in of_fields]


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
