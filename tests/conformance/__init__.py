"""Other projects' own tests, run as their wheels ship them, with our functions in place of theirs.

Each module here is a plugin of pytest. It puts ours in place before their file is imported, and names the tests that
don't apply, with the reason. Such a test has to fail: if it passes, it applies.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest


def outcome(plugin: str, module: str, folder: Path, **variables: str) -> dict[str, int]:
    """Return the number of tests of `module` that pass or fail with `plugin`, by pytest's word. Prints failures."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "DASK_SCHEDULER": "sync"} | variables
    # Their settings are theirs and ours are ours: neither is read.
    alone = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "--no-header", "-q", "--tb=short"]
    asked = [sys.executable, "-m", "pytest", *alone, "-p", f"tests.conformance.{plugin}", "--pyargs", module]
    done = subprocess.run(asked, env=env | _ONE_THREAD, cwd=folder, capture_output=True, text=True, timeout=600)
    last = done.stdout.strip().rpartition("\n")[2]
    found = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-5_000:])
    return found


_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}


def keep(config: pytest.Config, items: list[Any], pattern: str) -> None:
    """Leave only the tests whose whole names match `pattern`."""
    chosen = [item for item in items if re.fullmatch(pattern, item.name)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def name_what_does_not_apply(items: Iterable[Any], reasons: Mapping[str, str]) -> None:
    """Expect those whose whole names match one of `reasons` to fail, for that reason."""
    for item in items:
        for pattern, reason in reasons.items():
            if re.fullmatch(pattern, item.name):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
