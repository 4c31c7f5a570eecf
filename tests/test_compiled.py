"""Compiled functions are loaded from numba's cache, and an unusable cache costs time, but changes no result."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from workbench.compiled import installed

pytestmark = pytest.mark.skipif(not installed(), reason="the extra `fast` is not installed")

LOOPS = """if True:
    import numba
    from numba import types
    from workbench.compiled import cached
    from scale_of_a_test import SCALE

    @cached(types.float64(types.float64[::1]), constants=SCALE)
    def added(x):
        whole = 0.0
        for each in x:
            whole += SCALE / each
        return whole
"""
CODE = """if True:
    import sys, types
    import numpy as np
    if "small" in sys.argv:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    if "text" in sys.argv:
        loops = types.ModuleType("loops_that_were_sent")
        exec(compile(sys.argv[2], "loops_that_were_sent", "exec"), loops.__dict__)
    else:
        import loops_of_a_test as loops
    print(loops.added(np.array([1.0, 4.0, 0.5])), bool(loops.added.stats.cache_hits))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loops_of_a_test.py").write_text(LOOPS)
    (tmp_path / "code" / "scale_of_a_test.py").write_text("SCALE = 1.0")
    return tmp_path / "code"


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a process with the loops of this folder."""
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    env = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(folder.parent / "home")}
    return subprocess.Popen([sys.executable, "-Bc", CODE, *arguments], env=env, stdout=-1, stderr=-1, text=True)


def is_compiled(process: subprocess.Popen[str], answer: float = 3.25) -> bool:
    """Return whether numba compiled for the sum, which is right, rather than load what it had saved."""
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    number, loaded = out.split()
    assert float(number) == answer
    return loaded == "False"


def saved(folder: Path, suffix: str = ".nb?") -> list[Path]:
    return sorted(folder.rglob(f"*{suffix}"))


def test_two_may_compile_at_once_and_a_third_loads_it_unless_it_is_damaged_or_a_constant_changed(folder: Path) -> None:
    both = [begun(folder) for _ in range(2)]
    assert sum(is_compiled(each) for each in both) >= 1
    assert [each.parent.name for each in saved(folder)] == ["__pycache__"] * 2
    for suffix, damaged in ((".nbc", lambda whole: whole[:-9]), (".nbi", lambda whole: bytes(len(whole)))):
        (file,) = saved(folder, suffix)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole))
        assert is_compiled(begun(folder))
        assert len(file.read_bytes()) > 0.9 * len(whole)
    assert not is_compiled(begun(folder))
    # Of another file.
    (folder / "scale_of_a_test.py").write_text("SCALE = 2.0")
    assert is_compiled(begun(folder), 6.5)


def test_where_nothing_can_be_saved_it_is_compiled_each_time(folder: Path) -> None:
    assert is_compiled(begun(folder, "small"))
    (folder / "__pycache__").rmdir()
    (folder / "__pycache__").write_text("a file where a folder is wanted")
    assert is_compiled(begun(folder))
    assert not saved(folder)
    (home,) = {each.parent for each in saved(folder.parent)}
    assert home.is_relative_to(folder.parent / "home")
    for each in saved(home):
        each.unlink()
    home.rmdir()
    home.write_text("another one")
    assert is_compiled(begun(folder))


def test_what_comes_as_text_or_in_a_zip_file_is_compiled_each_time(folder: Path) -> None:
    assert is_compiled(begun(folder, "text", LOOPS))
    with zipfile.ZipFile(folder.parent / "code.zip", "w") as file:
        for each in folder.glob("*.py"):
            file.write(each, each.name)
    assert is_compiled(begun(folder.parent / "code.zip"))
    assert not saved(folder.parent)
