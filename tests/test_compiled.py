"""What numba has compiled once is loaded without it, and a cache that can't be used costs time, not answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.compiled import installed

pytestmark = pytest.mark.skipif(not installed(), reason="the extra `fast` is not installed")

LOOPS = """if True:
    from numba import carray, cfunc, types

    numbers = types.CPointer(types.float64)

    @cfunc(types.void(numbers, types.intp, numbers))
    def added(x, n, total):
        x, whole = carray(x, n), 0.0
        for i in range(n):
            whole += 1 / x[i]
        carray(total, 1)[0] = whole
"""
CODE = """if True:
    import sys
    import numpy as np
    from workbench.compiled import loops
    total = np.zeros(1)
    loops("loops_of_a_test", added=3)["added"](np.array([1.0, 4.0, 0.5]), 3, total)
    print(total[0], "numba" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loops_of_a_test.py").write_text(LOOPS)
    return tmp_path / "code"


def begun(folder: Path, home: Path | None = None) -> subprocess.Popen[str]:
    """A process of its own with the loops of this folder, whose person's cache is at `home`."""
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    env = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(home or folder / "home")}
    return subprocess.Popen([sys.executable, "-c", CODE], env=env, stdout=-1, stderr=-1, text=True)


def compiled(process: subprocess.Popen[str]) -> bool:
    """Whether numba was imported for the sum, which is right."""
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    number, numba = out.split()
    assert float(number) == 3.25
    return numba == "True"


def kept(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if ".o" in each.suffixes]


def test_two_may_compile_at_once_and_a_third_needs_no_numba(folder: Path) -> None:
    both = [begun(folder) for _ in range(2)]
    assert [compiled(each) for each in both] == [True, True]
    assert not compiled(begun(folder))
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("fault", ["cut short", "empty", "other bytes", "another state's"])
def test_what_is_kept_and_damaged_or_old_is_compiled_anew(fault: str, folder: Path) -> None:
    assert compiled(begun(folder))
    (file,) = kept(folder)
    whole = file.read_bytes()
    if fault == "another state's":
        module, _, processor, _ = file.name.rsplit(".", 3)
        file.rename(file.with_name(f"{module}.0000.{processor}.o"))
    else:
        bad = {"cut short": whole[:-9], "empty": b"", "other bytes": whole[:900] + b"\0\1" + whole[902:]}
        file.write_bytes(bad[fault])
    assert compiled(begun(folder))
    assert kept(folder) == [file]
    assert not compiled(begun(folder))


def test_where_python_can_keep_nothing_the_persons_cache_is_used_and_without_it_none(
    folder: Path, tmp_path: Path
) -> None:
    blocked = folder / "__pycache__"
    blocked.write_text("a file where a folder is wanted")
    assert compiled(begun(folder, tmp_path / "home"))
    assert [each.parent for each in kept(tmp_path)] == [tmp_path / "home" / "dask-workbench"]
    assert not compiled(begun(folder, tmp_path / "home"))
    assert compiled(begun(folder, blocked))
