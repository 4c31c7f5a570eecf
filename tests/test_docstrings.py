"""The examples in docstrings run, and say what comes out; the commands in hints and in the help are commands."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import inspect
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

import workbench
from tests.conftest import using_data_folder
from tests.waiting import until
from workbench.cli import _parse
from workbench.runs import store

ROOT = Path(__file__).parent.parent

NOT_RUN = {
    "workbench.compare(": "it starts two clusters, and its verdict is of the clock",
}
"""Docstrings whose examples are only compiled, by a word in them, and why."""


NEVER_RUN = re.compile(r"::\n\n +\S|```|\.\. code|\+SKIP")
"""Other ways to write code in a docstring."""


@functools.cache
def read_nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def read_docstrings(holding: str = "") -> Iterator[tuple[Path, int, str]]:
    """All of the package's files that hold a text, those of attributes too: file, line and text."""
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        if holding not in path.read_text(encoding="utf-8"):
            continue
        for node in read_nodes(path):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    yield path.relative_to(ROOT), node.lineno, inspect.cleandoc(text)


def read_examples() -> list[doctest.DocTest]:
    parse = doctest.DocTestParser().get_doctest
    # Each process that runs tests asks this, whichever it runs: most files hold none.
    found = [parse(text, {}, f"{path}:{line}", str(path), line) for path, line, text in read_docstrings(">>> ")]
    return [each for each in found if each.examples]


EXAMPLES = read_examples()


def write_study(folder: Path, n_variants: int = 600, n_samples: int = 80) -> None:
    """Write PLINK files with random genotypes."""
    drawn = np.random.default_rng(0).integers(0, 256, n_variants * n_samples // 4, dtype=np.uint8)
    (folder / "study.bed").write_bytes(b"\x6c\x1b\x01" + drawn.tobytes())
    (folder / "study.bim").write_text("".join(f"1\tv{i}\t0\t{i + 1}\tA\tG\n" for i in range(n_variants)))
    (folder / "study.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(n_samples)))


def ran_before(run_id: str) -> None:
    """Keep the latest run under this id as well."""
    latest = store.find("last")
    # A run is done before its record is packed.
    until(lambda: not list(store.folder(latest.id).glob("*.arrows")))
    without = shutil.ignore_patterns("process")
    shutil.copytree(store.folder(latest.id), store.folder(run_id), ignore=without)
    store.save(latest.model_copy(update={"id": run_id, "created": 1.0}))


class WhereShown(doctest.OutputChecker):
    """Compares what comes out where an example says it: what a notebook draws has no text."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Provide the surroundings of the examples: a cluster with its client, a study, two runs and their comparison."""
    folder = tmp_path_factory.mktemp("docstrings")
    with using_data_folder(folder / "workbench-data"), contextlib.chdir(folder):
        write_study(folder)
        with workbench.start("cpu", name="calm-otter", n_workers=1, threads_per_worker=1, memory="1GiB") as cluster:
            workbench.run("array_sum", "calm-otter", size="16MiB")
            ran_before("array_sum-3fa29c")
            workbench.Session().compare_runs(["last", "array_sum-3fa29c"])
            yield {"workbench": workbench, "da": da, "client": cluster.client}


@pytest.mark.parametrize("found", EXAMPLES, ids=lambda found: found.name)
def test_an_example_does_what_it_says(found: doctest.DocTest, surroundings: dict[str, Any]) -> None:
    if any(word in (found.docstring or "") for word in NOT_RUN):
        for example in found.examples:
            compile(example.source, found.name, "single")
        return
    module = import_module(".".join(Path(str(found.filename)).with_suffix("").parts).removesuffix(".__init__"))
    found.globs = vars(module) | surroundings
    said: list[str] = []
    with warnings.catch_warnings():
        # Of noise no component is far from the next one, and that is said.
        warnings.simplefilter("ignore")
        runner = doctest.DocTestRunner(WhereShown(), optionflags=doctest.ELLIPSIS)
        outcome = runner.run(found, out=said.append, clear_globs=False)
    for value in found.globs.values():
        if isinstance(value, Client) and value is not surroundings["client"]:
            value.close()
    assert outcome.failed == 0, "".join(said)


def test_code_in_docstrings_is_written_so_that_it_is_run() -> None:
    blocks = [f"{path}:{line}" for path, line, text in read_docstrings() if NEVER_RUN.search(text)]
    assert blocks == [], "Write it after >>>."


def test_what_is_not_run_is_there() -> None:
    assert all(any(word in (found.docstring or "") for found in EXAMPLES) for word in NOT_RUN)
    assert len(EXAMPLES) > len(NOT_RUN) + 5


def hints() -> Iterator[str]:
    """Commands at the end of sentences; what is filled in when they are said is NAME here."""
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        nodes = read_nodes(path)
        filled_in = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        pieces = {piece for node in filled_in for piece in node.values}
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant) and node not in pieces]
        for node in filled_in:
            texts.append("".join(str(each.value) if isinstance(each, ast.Constant) else "NAME" for each in node.values))
        for text in texts:
            yield from re.findall(r": workbench ([a-z](?:[^.\n]|\.\S)*)\.?$", text, re.MULTILINE)


def test_a_command_that_is_advised_is_one() -> None:
    advised = set(hints())
    assert len(advised) > 15
    for hint in advised:
        words = shlex.split(hint)
        if words[-1] == "--help":
            with pytest.raises(SystemExit) as ended:
                _parse(words)
            assert ended.value.code == 0
        else:
            assert callable(_parse(words).command), hint
