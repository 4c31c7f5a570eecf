"""The documentation: pages made from the code are complete, and what readers copy from the others runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import _parser
from workbench.clusters.profiles import registered
from workbench.hardware import inventory
from workbench.workloads.registry import templates

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generated() -> Any:
    """The Sphinx extension that makes pages from the code. It needs no Sphinx."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        yield importlib.import_module("generated")
    finally:
        sys.path.remove(str(DOCS / "_ext"))


def test_the_reference_has_each_workload_profile_and_command_with_its_options(generated: Any) -> None:
    pages = generated.make_pages()
    for workload in templates():
        page = pages[f"reference/workloads/{workload.name}"]
        assert all(f"`{name}`" in page for name in workload.schema()["properties"])
    for name, profile in registered().items():
        page = pages[f"reference/profiles/{name}"]
        assert all(f"`{option}`" in page for option in profile.choices(inventory()).model_fields)
    for name in generated.subcommands(_parser()):
        assert f"\n## {name}\n" in pages["reference/command-line"]


def test_no_generated_page_is_in_git(generated: Any) -> None:
    names = [f"docs/{name}.md" for name in generated.make_pages()]
    tracked = subprocess.run(["git", "ls-files", *names], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ignored = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True, check=True)
    assert tracked == ""
    assert ignored.stdout.split() == names
