"""Several threads of one process import Dask at once, as where a page opens many views."""

from __future__ import annotations

import subprocess
import sys

import pytest

_AT_ONCE = """
import faulthandler, threading, time
faulthandler.dump_traceback_later(60, exit=True)
import workbench.session
from workbench.clusters.reaching import Place
from workbench.threads import load
from workbench.workloads.registry import templates

others = [threading.Thread(target=each) for each in (templates, lambda: load("distributed"))]
for each in others:
    each.start()
time.sleep({pause})
assert Place("tls://there:1", "ca.pem").security is not None
for each in others:
    each.join()
"""


@pytest.mark.parametrize("pause", [0.02, 0.05])
def test_threads_that_import_dask_at_once_do_not_wait_for_each_other_for_ever(pause: float) -> None:
    # RAPIDS' finder waits for a package under the lock of all imports.
    pytest.importorskip("rapids_dask_dependency")
    told = subprocess.run([sys.executable, "-c", _AT_ONCE.format(pause=pause)], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
