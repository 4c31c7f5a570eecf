"""The start page runs from top to bottom and finds the right answers; Binder's files name what exists."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from workbench.clusters import records
from workbench.clusters.profiles import registered

ROOT = Path(__file__).parent.parent
START = ROOT / "notebooks" / "start.ipynb"
TUTORIALS = ("first-steps-gpu-arrays", "gpu-cluster", "large-svds", "ucx-and-dgx", "your-own-data")
DIGITS = (567.0066, 542.2519, 504.6306)
ONCE = ("repeats=2", "repeats=1, warmup=0")
SMALLER = {
    "first-steps-gpu-arrays": (
        ("SCALE = 0.0002", "SCALE = 0.00004"),
        ONCE,
        ('("RandomState", "default_rng", "tiles")', '("RandomState", "tiles")'),
        ('size="200MB"', 'size="20MB"'),
        ("n_rows=1_000_000", "n_rows=100_000"),
    ),
    "large-svds": (("SCALE = 0.002", "SCALE = 0.0005"),),
    "your-own-data": (ONCE, ("SCALE = 1.0", "SCALE = 0.5")),
}
"""Text that replaces others in cells: what is shown and checked stays, with fewer numbers and runs."""


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    texts = (output if output.output_type == "stream" else output.get("data", {}) for output in cell.outputs)
    return "".join(text.get("text") or text.get("text/markdown") or text.get("text/plain", "") for text in texts)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.conftest import using_data_folder

    notebook = nbformat.read(START, as_version=4)
    with using_data_folder(tmp_path_factory.mktemp("data")):
        # Warnings about the transport of a kernel that lives for half a minute say nothing of the notebook.
        client = nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(START.parent)}})
        client.execute()
        from workbench.clusters import records

        notebook.left_over = [record.name for record in records.read_all()]
    return notebook


def test_the_start_page_does_the_main_job_in_five_cells(executed: Any) -> None:
    assert len(code_cells(executed)) == 5
    assert [
        output for cell in executed.cells for output in cell.get("outputs", []) if output.output_type == "error"
    ] == []


def test_it_names_all_profiles(executed: Any) -> None:
    text = text_of(code_cells(executed)[0])
    assert [line.split()[0] for line in text.splitlines()[1:]] == list(registered())
    assert "cpu        yes" in text


def test_it_explains_the_plan_and_shows_the_code(executed: Any) -> None:
    text = text_of(code_cells(executed)[1])
    assert "as chosen" in text
    assert "LocalCluster(" in text
    assert "ready" in text


def test_its_compressed_svd_is_checked(executed: Any) -> None:
    text = text_of(code_cells(executed)[2])
    values = json.loads(re.search(r"singular values: (\[.*\])", text).group(1))  # type: ignore[union-attr]
    assert len(values) == 5
    assert values == sorted(values, reverse=True)
    assert "check passed:" in text


def test_it_shows_a_figure_and_the_right_sum(executed: Any) -> None:
    import numpy as np

    *_, watch, last = code_cells(executed)
    # A page without a kernel, such as nbconvert's, shows the totals of what was computed in this cell and later ones.
    kept = [html for output in watch.outputs if "wb-static" in (html := output.get("data", {}).get("text/html", ""))]
    assert re.search(r"<p><b>[a-z-]+</b>: \d+ tasks on \d+ worker", kept[0])
    assert "data:image/svg+xml;base64," in kept[0]
    assert "<script" not in kept[0]
    # The mean of numbers between 0 and 1 is one half: twice the sum of 25 million of them is 25 million, give or take.
    found = float(re.search(r"the sum of 4\.: (\S+)", text_of(last)).group(1))  # type: ignore[union-attr]
    assert found == pytest.approx(5000**2, abs=6 * 2 * np.sqrt(5000**2 / 12))


def test_its_digits_have_the_singular_values_that_everybody_finds(executed: Any) -> None:
    text = text_of(code_cells(executed)[4])
    values = json.loads(re.search(r"\[.*?\]", text).group(0))  # type: ignore[union-attr]
    assert values == pytest.approx(DIGITS, abs=1e-3)
    assert "check passed:" in text


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs_from_top_to_bottom_and_leaves_no_cluster(
    name: str, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Commands in cells are those of this environment.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for given, smaller in SMALLER.get(name, ()):
        (cell,) = [cell for cell in code_cells(notebook) if given in cell.source]
        cell.source = cell.source.replace(given, smaller)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = "".join(map(text_of, code_cells(notebook)))
    assert "check passed: False" not in text
    if name == "your-own-data":
        # Apart from the wave, only noise is left.
        first, second, third, _ = map(float, re.findall(r"mode \d: +([\d.]+)%", text))
        assert first == pytest.approx(second, rel=0.05)
        assert second > 20 > 1 > third
        assert "#FID\tIID\tPC1" in text
        assert "run.zip" in text
    elif name == "large-svds":
        assert_compressed_blocks_hold_a_quarter_and_give_the_same_values(text)
        assert "The true error is" in text
        assert "same value: True" in text
        assert text.count("The check passed") == 2
    elif name == "ucx-and-dgx":
        assert "TLS here, over tls" in text
        assert "TCP here, over tcp" in text
        assert text.count("check passed: True") == 4
        # The card that the text's rule gives to GPU 2 is across the sockets.
        assert "| 2 | ib1 | SYS | ib2 | PIX |" in text
        assert_simulated_devices_are_labelled(notebook)
    elif name == "gpu-cluster":
        assert "7 GPUs, the idle ones of 8: 0, 1, 2, 4, 5, 6, 7" in text
        assert "The check passed" in text
        assert "ended: [0, 0, 0]" in text
        assert_simulated_devices_are_labelled(notebook)
    else:
        assert text.count("check passed: True") == 2
    assert records.names() == ()
    assert not any(cell.outputs for cell in code_cells(nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)))


def assert_simulated_devices_are_labelled(notebook: Any) -> None:
    for heading, cell in pairwise(notebook.cells):
        if "GPU-simulated" in cell.source:
            assert "SIMULATED" in heading.source
            assert "SIMULATED" in text_of(cell).splitlines()[0]


def assert_compressed_blocks_hold_a_quarter_and_give_the_same_values(text: str) -> None:
    plain, bits, blosc = (float(held) for held in re.findall(r"([\d.]+) MiB held", text))
    assert plain == pytest.approx(4 * bits, rel=0.02)
    assert blosc < plain / 3
    assert "the same values: True" in text


def test_a_watched_cell_keeps_its_table_and_its_run(tmp_path: Path) -> None:
    from tests.conftest import using_data_folder
    from workbench.runs import store

    notebook = nbformat.read(ROOT / "notebooks" / "watch.ipynb", as_version=4)
    with using_data_folder(tmp_path / "data"):
        nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
        mean, watched = store.select()
    _, cell, history, last = code_cells(notebook)
    kept, figure = [output for output in cell.outputs if output.output_type == "display_data"]
    html = kept.data["text/html"]
    assert re.search(r"<b>sum of a transpose</b>: \d\d+ tasks on 2 workers", html)
    assert re.search(r"<td[^>]*>[a-z_-]+</td>.*data:image/svg\+xml;base64,.*Done in ", html)
    assert "<script" not in html
    assert "application/vnd.jupyter.widget-view+json" in figure.data
    assert (watched.status, watched.parameters["name"]) == ("done", "sum of a transpose")
    assert watched.id in kept.data["text/plain"]
    assert watched.id in text_of(history)
    assert (mean.status, mean.parameters["name"]) == ("done", "mean of columns")
    assert "done" in text_of(last)


def test_it_leaves_no_cluster_behind(executed: Any) -> None:
    assert executed.left_over == []


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert [cell.execution_count for cell in code_cells(notebook)] == [None] * len(code_cells(notebook))
    assert [output for cell in code_cells(notebook) for output in cell.outputs] == []
    # Bokeh loads its scripts from another server unless it is given them, and shows nothing where there is none.
    assert not re.search(r"output_notebook\((?!INLINE)", "\n".join(cell.source for cell in notebook.cells))


def test_binder_installs_from_what_exists() -> None:
    script = ROOT / "binder" / "postBuild"
    assert script.stat().st_mode & stat.S_IXUSR
    command = next(line for line in script.read_text().splitlines() if "pip install" in line)
    assert (ROOT / re.search(r"-c <\(.* (\S+)\)", command).group(1)).exists()  # type: ignore[union-attr]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[(.+)\]'", command).group(1)  # type: ignore[union-attr]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert not any(word in command for word in ("cuda", "cupy", "ucx"))


def test_binder_has_a_python_that_the_package_takes() -> None:
    major, minor = re.fullmatch(r"python-(\d+)\.(\d+)\n", (ROOT / "binder" / "runtime.txt").read_text()).groups()  # type: ignore[union-attr]
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (int(major), int(minor)) >= tuple(map(int, required.removeprefix(">=").split(".")))


def test_binder_and_make_open_the_notebook_that_exists() -> None:
    readme = (ROOT / "binder" / "README.md").read_text()
    opened = re.search(r"urlpath=lab/tree/(\S+\.ipynb)", readme).group(1)  # type: ignore[union-attr]
    assert (ROOT / opened).exists()
    assert os.path.normpath(ROOT / "binder" / re.search(r"\]\((\S+\.ipynb)\)", readme).group(1)) == str(START)  # type: ignore[union-attr]
    assert "notebooks" in (ROOT / "Makefile").read_text()
