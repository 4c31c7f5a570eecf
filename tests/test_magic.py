"""The cell magics in a shell of their own; in a kernel the notebook watch.ipynb shows %%watch."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench.runs import store
from workbench.workloads import listing, template


@pytest.fixture
def shell(data_folder: Path) -> Any:
    """Provide a shell with the magics, as in a terminal."""
    before = sys.modules["__main__"]
    made = InteractiveShell()
    made.run_line_magic("load_ext", "workbench")
    yield made
    made.reset()
    made.history_manager.end_session()
    # A shell takes the place of the main module, from which processes started later would be prepared, and hang.
    sys.modules["__main__"] = before


def watched(shell: Any, line: str, cell: str) -> tuple[Any, str]:
    """Value of the cell, and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        value = shell.run_cell_magic("watch", line, cell)
    return value, printed.getvalue()


def test_a_cell_gives_its_value_and_its_names_and_is_kept_as_a_run(shell: Any, quick_client: Client) -> None:
    cell = "import dask.array as da\ntotal = da.ones(30, chunks=10).sum().compute()\ntotal + 1"
    value, printed = watched(shell, '--name "sum of ones"', cell)
    assert value == 31
    assert shell.user_ns["total"] == 30
    (run,) = store.select()
    assert (run.status, run.parameters) == ("done", {"name": "sum of ones", "source": cell})
    assert f"Kept as {run.id}" in printed
    assert watched(shell, "", "total;")[0] is None
    assert watched(shell, "", "x = 1")[0] is None


def test_a_client_can_be_named_by_its_variable(shell: Any, quick_cluster: Any) -> None:
    with Client(quick_cluster, set_as_default=False) as client:
        shell.user_ns["mine"] = client
        assert watched(shell, "--client mine", "mine.submit(sum, [20, 22]).result()")[0] == 42
    (run,) = store.select()
    assert run.result == {"tasks": 1, "tasks_of_others": 0}
    with pytest.raises(UsageError, match="There is no variable 'yours'"):
        shell.run_cell_magic("watch", "--client yours", "1")


def test_an_error_in_the_cell_is_the_cells_error(shell: Any, quick_client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        watched(shell, "", "1 / 0")
    (run,) = store.select()
    assert (run.status, run.error) == ("failed", "ZeroDivisionError: division by zero")


def test_without_a_client_it_says_so_in_a_sentence_and_computes_nothing(shell: Any) -> None:
    with pytest.raises(UsageError, match=r"no Dask client.*threads of the kernel.*workbench\.connect") as told:
        shell.run_cell_magic("watch", "", "computed = True")
    assert str(told.value).count("\n") == 0
    assert "computed" not in shell.user_ns
    assert store.select() == ()


def test_a_cell_computes_where_its_run_cannot_be_kept_and_says_why(
    shell: Any, quick_client: Client, data_folder: Path
) -> None:
    data_folder.parent.mkdir(parents=True, exist_ok=True)
    data_folder.write_text("No folder can be made here.", encoding="utf-8")
    value, printed = watched(
        shell, "--name adding", "from dask.distributed import get_client\nget_client().submit(sum, [20, 22]).result()"
    )
    assert value == 42
    assert "adding: 1 task on" in printed
    assert "Done in" in printed
    (why,) = re.findall("This is not kept: (.*)", printed)
    assert str(data_folder) in why
    data_folder.unlink()


CELL = """import numpy as np
SIDE = 20

def _triple(x):
    return 3 * x

def total(n: int = SIDE):
    global LAST
    LAST = n
    return [float(_triple(np.ones(each)).sum()) for each in range(n)][-1], LAST
"""


def test_a_cell_is_saved_as_a_workload_and_run(shell: Any, data_folder: Path) -> None:
    shell.run_cell_magic("workload", "", CELL)
    assert shell.user_ns["total"](3) == (6.0, 3)
    chosen = template("total")
    assert chosen.origin == "total.py added"
    path = Path(chosen.where)
    # Line numbers of errors are those of the cell.
    assert path.read_text(encoding="utf-8").splitlines()[1:] == CELL.splitlines()
    shell.run_cell_magic("workload", "total", "def total(n: int = 1): return n\n\ndef double(n: int): return 2 * n")
    assert [each.name for each in listing.listed().workloads if each.origin == chosen.origin] == ["total"]
    assert template("total").validate({}).resolved == {"n": 1}
    assert [each.name for each in (data_folder / "workloads").iterdir()] == ["total.py"]


REFUSED = {
    "def f(n: int = 1): return df.sum()": r"^df isn't defined in this cell\. A workload's cell is a file of its own",
    "def f(n: int = 1): return display(df)\n\nx = y": r"^df, display and y aren't defined in this cell\.",
    "def f(n: int = 1):\n    return 1 +": r"^cell\.py can't be read: line 3: invalid syntax\.$",
    "1 / 0": r"^cell\.py can't be imported: line 2: ZeroDivisionError: division by zero\.$",
    "def f(z: complex): return z": r"^z of f is annotated with complex, which a form can't ask for",
    "def f(): return 1\n\ndef g(): return 2": r"^cell\.py has several functions\. It has: f, g\.$",
    "def array_sum(n: int = 1): return n": r"^There is a built-in workload array_sum\. Give your function another",
    "def mine(n: int = 1): return n": r"/mine\.py exists and wasn't saved by %%workload\. Give your function another",
}


@pytest.mark.parametrize(("cell", "sentence"), REFUSED.items())
def test_a_cell_that_cannot_be_a_workload_says_why_and_nothing_is_saved_or_run(
    shell: Any, data_folder: Path, cell: str, sentence: str
) -> None:
    shell.user_ns["df"] = 1
    (data_folder / "workloads").mkdir(parents=True)
    (data_folder / "workloads" / "mine.py").write_text("# mine\n")
    with pytest.raises(UsageError, match=sentence):
        shell.run_cell_magic("workload", "", cell)
    assert "f" not in shell.user_ns
    assert [each.read_text() for each in (data_folder / "workloads").iterdir()] == ["# mine\n"]
    assert not list((data_folder / "described").glob("*"))
