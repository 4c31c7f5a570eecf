"""What people copy from README: its Python runs in its order, and each of its commands is one."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from workbench.cli import _parse
from workbench.runs import store

README = (Path(__file__).parent.parent / "README.md").read_text()

SMALLER = {
    "(4000, 4000), chunks=1000": "(400, 400), chunks=100",
    'workbench.start("cpu", name="second")': 'workbench.start("cpu", name="second", n_workers=1, memory="1GiB")',
}
"""The same with less of it."""

NOT_HERE = {
    "retina": "scikit-image fetches that picture from the network",
}
"""Lines of Python that are left out, by a word in them, and why."""


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = "".join(snippets("console")).splitlines()
    return [line.removeprefix("$ workbench ") for line in lines if line.startswith("$ workbench ")]


@contextlib.contextmanager
def a_shell() -> Iterator[InteractiveShell]:
    before = sys.modules["__main__"]
    shell = InteractiveShell()
    try:
        yield shell
    finally:
        shell.reset()
        shell.history_manager.end_session()
        # A shell takes the place of the main module, from which processes started later would be prepared, and hang.
        sys.modules["__main__"] = before


def write_study(folder: Path, n_variants: int = 600, n_samples: int = 80) -> None:
    """A file of PLINK's that says nothing in particular."""
    drawn = np.random.default_rng(0).integers(0, 256, n_variants * n_samples // 4, dtype=np.uint8)
    (folder / "study.bed").write_bytes(b"\x6c\x1b\x01" + drawn.tobytes())
    (folder / "study.bim").write_text("".join(f"1\tv{i}\t0\t{i + 1}\tA\tG\n" for i in range(n_variants)))
    (folder / "study.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(n_samples)))


@pytest.fixture
def folder(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the snippets take for granted."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    return tmp_path


def cell_of(snippet: str) -> str:
    for text, less in SMALLER.items():
        snippet = snippet.replace(text, less)
    return "\n".join(line for line in snippet.splitlines() if not any(word in line for word in NOT_HERE))


def ran_before(run_id: str) -> None:
    """Keep the latest run under this id as well."""
    latest = store.find("last")
    shutil.copytree(store.folder(latest.id), store.folder(run_id))
    store.create(latest.model_copy(update={"id": run_id, "created": 1.0}))


def test_readmes_python_runs_in_its_order(folder: Path) -> None:
    with a_shell() as shell, warnings.catch_warnings():
        # Of noise no component is far from the next one, and that is said.
        warnings.simplefilter("ignore")
        for snippet in snippets("python"):
            if "array_sum-3fa29c" in snippet:
                ran_before("array_sum-3fa29c")
            done = shell.run_cell(cell_of(snippet))
            assert done.success, f"{snippet}\n{done.error_before_exec or done.error_in_exec!r}"
        assert store.select()[0].title == "sum of a transpose"
        shell.run_cell("cluster.stop()")


def test_every_command_in_readme_is_one() -> None:
    assert len(commands()) > 20
    for command in commands():
        assert callable(_parse(shlex.split(command, comments=True)).command)


def test_what_is_left_out_is_there_and_says_why() -> None:
    assert all(any(word in snippet for snippet in snippets("python")) for word in NOT_HERE)
