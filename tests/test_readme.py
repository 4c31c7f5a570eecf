"""What people copy from README: its Python and its commands run in its order, and name what there is."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
import pytest
import zarr
from IPython.core.interactiveshell import InteractiveShell

from tests.conftest import using_data_folder
from tests.test_eofs import winds_of
from tests.waiting import until
from workbench.cli import _parse, main
from workbench.cli.clusters import up_options
from workbench.cli.compare import _sweep
from workbench.cli.runs import workload_parameters
from workbench.clusters import records
from workbench.clusters.choices import AllChoices
from workbench.clusters.lines import OPTIONS
from workbench.clusters.profiles import registered
from workbench.hardware import inventory
from workbench.runs import store
from workbench.runs.comparing.compare import plan_comparison, read_request, usual_lines
from workbench.session import Session

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

SMALLER = {
    "(4000, 4000), chunks=1000": "(400, 400), chunks=100",
    'workbench.start("cpu", name="second")': 'workbench.start("cpu", name="second", n_workers=1, memory="1GiB")',
    "up cpu --name first": "up cpu --name first --workers 1 --memory 1GiB",
    "--threads 1 --memory 8GiB": "--threads 1 --memory 1GiB",
    "size=512MiB": "size=16MiB",
    "--scale 0.01": "--scale 0.0001",
    "forecast array_sum": "forecast array_sum --no-calibrate",
}
"""The same with less of it."""

NOT_HERE = {
    "retina": "scikit-image fetches that picture from the network",
}
"""Lines of Python that are left out, by a word in them, and why."""


NOT_RUN = {
    "app": "it serves until Ctrl-C; test_app asks it",
    "up gpus": "there is no GPU",
    "up ssh": "there are no such machines; test_ssh has some",
    "up kubernetes": "there is no such cluster; test_kubernetes has a stand-in",
    "up slurm": "there is no such queue; test_slurm has one",
    "attach": "there is no such scheduler; test_attach has one",
    "up gateway": "there is no such server; test_gateway has one",
    "up ucx": "it needs the extra ucx and asks a person",
    "compare transpose_sum": "it starts a cluster for each protocol, and measures for a minute",
    "compare array_sum": "it starts clusters, and measures for a minute",
    "compare tall_skinny_svd": "the same",
    "calibrate": "it keeps all processors busy for some seconds, in test_forecast already",
}
"""Commands that are only checked, by how they begin, and why."""


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Those of the console, in README's order, without `workbench` and the comment."""
    found = re.findall(r"^\$ workbench (.*)$", "".join(snippets("console")), re.MULTILINE)
    return [shlex.join(shlex.split(command, comments=True)) for command in found]


def commands_in_sentences() -> list[str]:
    return re.findall(r"`workbench ([^`]+)`", README)


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
    winds_of(n_times=400).to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")
    return tmp_path


def cell_of(snippet: str) -> str:
    for text, less in SMALLER.items():
        snippet = snippet.replace(text, less)
    return "\n".join(line for line in snippet.splitlines() if not any(word in line for word in NOT_HERE))


def ran_before(run_id: str) -> None:
    """Keep the latest run under this id as well."""
    latest = store.find("last")
    # A run is done before its record is packed.
    until(lambda: not list(store.folder(latest.id).glob("*.arrows")))
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


def write_what_commands_name(folder: Path) -> None:
    """The digits are README's own; the retina is noise, smaller; populations have names like any others."""
    exec(next(cell_of(snippet) for snippet in snippets("python") if "digits.zarr" in snippet), {})
    zarr.save("retina.zarr", np.random.default_rng(0).random((141, 423)))
    lines = [f"s{number} {'north' if number % 2 else 'south'}" for number in range(80)]
    (folder / "analysis.py").write_text("def my_function(n: int):\n    return n\n")
    (folder / "populations.tsv").write_text("\n".join(["sample population", *lines]).replace(" ", "\t") + "\n")


def smaller(command: str) -> str:
    for text, less in SMALLER.items():
        command = command.replace(text, less)
    # Each starting its own takes long; one that runs already does the same.
    there = records.names()
    return re.sub(r"--on ('.*?'|\S+)", f"--cluster {there[0]}", command) if there else command


def test_readmes_commands_run_in_their_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    write_what_commands_name(folder)
    for command in commands():
        if command.startswith(tuple(NOT_RUN)):
            continue
        if "array_sum-3fa29c" in command and "array_sum-3fa29c" not in [run.id for run in store.select()]:
            ran_before("array_sum-3fa29c")
        somebody_else = using_data_folder(folder / "else") if command.startswith("import") else contextlib.nullcontext()
        with somebody_else:
            code = main(shlex.split(smaller(command)))
        out, err = capsys.readouterr()
        assert code == 0, f"workbench {smaller(command)}\n{out}\n{err}"
        if "digits.zarr" in command:
            assert all(f"{value:.4f}" in README for value in store.find("last").result["singular_values"])
    assert [Path(url2pathname(urlsplit(address).path)).is_file() for address in shown] == [True] * 3
    assert records.names() == ()


def check_cluster(options: argparse.Namespace) -> None:
    assert options.profile in registered()
    AllChoices.model_validate(
        {choice: getattr(options, option[2:].replace("-", "_")) for option, choice in OPTIONS.items()}
    )


@pytest.mark.parametrize("command", [*commands(), *commands_in_sentences()])
def test_a_command_in_readme_names_what_there_is(command: str, folder: Path) -> None:
    write_what_commands_name(folder)
    asked = _parse(shlex.split(command))
    if command.startswith("up "):
        check_cluster(asked)
    if command.startswith("compare ") and asked.workload is not None:
        parameters = workload_parameters(asked)
        on = asked.on or usual_lines(asked.workload, parameters, inventory())
        given = {"workload": asked.workload, "parameters": parameters, "on": on, "sweep": _sweep(asked.sweep)}
        request = read_request(given)
        assert len(plan_comparison(request, inventory(), ()).rows) > 1
    elif getattr(asked, "workload", None):
        Session().workload(asked.workload).validate(workload_parameters(asked), memory=2**33, threads=2)
        if asked.on is not None:
            check_cluster(up_options(asked.on))


def test_what_readme_makes_is_a_target() -> None:
    text = "".join(snippets("sh")) + "\n".join(re.findall(r"`(make [^`]+)`", README))
    lines = re.findall(r"^make (.*)$", text, re.MULTILINE)
    asked = {word for line in lines for word in shlex.split(line, comments=True)}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert asked >= {"lab", "test", "check"}
    assert asked <= set(targets)


def test_what_is_left_out_is_there_and_says_why() -> None:
    assert all(any(word in snippet for snippet in snippets("python")) for word in NOT_HERE)
    assert all(any(command.startswith(word) for command in commands()) for word in NOT_RUN)
    assert len(commands()) > 20
    assert len(commands_in_sentences()) > 0
