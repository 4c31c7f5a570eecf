"""Costs of the extension for JupyterLab: JavaScript, start of the server, and the delay of changes in the sidebar.

`python -m tests.benchmarks lab`, or this file with `--repeats N`. The server is started with our extension and without
it, in turn, until its REST answers. A change is a record that another process writes; it has arrived when the
WebSocket that the sidebar listens to delivers it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from tornado.websocket import websocket_connect

from workbench.clusters import records
from workbench.clusters.spec import ClusterSpec

_STATIC = Path(__file__).parents[2] / "workbench" / "labextension" / "static"
_TOKEN = "bench"
_CHANGES = 20


def bundle() -> int:
    """Bytes of the extension's own JavaScript."""
    return sum(path.stat().st_size for path in _STATIC.glob("*.js"))


@contextmanager
def server(folder: Path, port: int, *, extension: bool = True) -> Iterator[float]:
    """Start a Jupyter server; seconds until it answered."""
    settings = folder / "config"
    settings.mkdir(exist_ok=True)
    enabled = {"ServerApp": {"jpserver_extensions": {"workbench": extension}}}
    (settings / "jupyter_server_config.json").write_text(json.dumps(enabled))
    environment = {
        **os.environ,
        "HOME": str(folder),
        "JUPYTER_CONFIG_DIR": str(settings),
        "DASK_WORKBENCH__DATA_FOLDER": str(folder / "data"),
    }
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable,
            *(
                "-m",
                "jupyter",
                "lab",
                "--no-browser",
                "--allow-root",
                f"--port={port}",
                f"--ServerApp.root_dir={folder}",
            ),
            f"--IdentityProvider.token={_TOKEN}",
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={_TOKEN}"):
                    break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None:
                    raise SystemExit(f"JupyterLab ended with exit code {process.returncode}.") from None
                time.sleep(0.01)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


async def changes(port: int, folder: Path) -> list[float]:
    """Return the milliseconds between the writing of a record and the message to the page."""
    socket = await websocket_connect(f"ws://127.0.0.1:{port}/workbench/api/stream?token={_TOKEN}")
    spec = ClusterSpec(n_workers=1, threads_per_worker=1, memory_limit=2**28)
    record = records.ClusterRecord(name="bench-otter", spec=spec, status="failed", created=time.time())
    delays = []
    with dask.config.set({"workbench.data-folder": str(folder / "data")}):
        records.folder(record.name).mkdir(parents=True, mode=0o700)
        for number in range(_CHANGES + 1):
            await asyncio.sleep(0.3)
            records.write(record.model_copy(update={"message": f"change {number}"}))
            began = time.perf_counter()
            while f"change {number}" not in str(await asyncio.wait_for(socket.read_message(), 10)):
                pass
            delays.append(1000 * (time.perf_counter() - began))
    socket.close()
    return delays[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    print(f"JavaScript of the extension: {bundle()} bytes   goal: at most 60 000")
    times: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeat in range(chosen.repeats + 1):
            for extension in (True, False) if repeat % 2 else (False, True):
                with server(folder, 18_400 + extension, extension=extension) as seconds:
                    if repeat:
                        times[extension].append(seconds)
        for extension, values in times.items():
            print(
                f"Jupyter's start {'with' if extension else 'without'} it: {statistics.median(values):.2f} s "
                f"({min(values):.2f} to {max(values):.2f})"
            )
        slower = statistics.median(a - b for a, b in zip(times[True], times[False], strict=True))
        print(f"  slower by {slower:.2f} s (pairs, median)   goal: at most 0.3 s")
        with server(folder, 18_402):
            delays = asyncio.run(changes(18_402, folder))
    spread = f"({min(delays):.0f} to {max(delays):.0f})"
    print(f"A change reaches the page after {statistics.median(delays):.0f} ms {spread}   goal: at most 100 ms")


if __name__ == "__main__":
    main()
