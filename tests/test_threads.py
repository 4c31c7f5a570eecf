"""Several threads of one process import Dask at once, as where a page opens many views."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

_AT_ONCE = """
import faulthandler, threading, time
faulthandler.dump_traceback_later(60, exit=True)
import workbench.session
from workbench.clusters.reachability import Place
from workbench.threads import load
from workbench.workloads.builtin import templates

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


_LATE = """
import signal
from workbench.errors import WorkbenchError
from workbench.workloads import registry, template
registry._ANSWERING = 1.0
try:
    template("svd_of_file").validate({"path": "PATH"}, memory=2**30)
except WorkbenchError as err:
    print(err)
print(signal.getitimer(signal.ITIMER_REAL)[0], signal.getsignal(signal.SIGALRM).name)
"""


def test_a_server_that_never_answers_ends_what_a_script_asks_of_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = f"http://127.0.0.1:{silent.getsockname()[1]}/x.npy"
        # Not here, where the timer is pytest's.
        told = subprocess.run([sys.executable, "-c", _LATE.replace("PATH", path)], capture_output=True, text=True)
    assert told.stdout.splitlines() == [
        f"path of svd_of_file: No answer within 1 s: the server or disk at {path} doesn't reply.",
        "0.0 SIG_DFL",
    ]
