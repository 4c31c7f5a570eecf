"""Behavior of a cluster and its runs on a full or read-only disk: `python -m tests.full_disk PLACE`.

PLACE is a small file system of its own that may be filled and mounted anew. Prints what was seen as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import psutil

from tests import commands
from workbench import config
from workbench.clusters import control, records
from workbench.clusters.connect import connect
from workbench.clusters.launch import launch
from workbench.clusters.spec import ClusterSpec
from workbench.errors import WorkbenchError
from workbench.runs import store, submit
from workbench.runs.run import Run
from workbench.runs.watching import watch

NAME = "calm-otter"


def main(place: Path) -> dict[str, Any]:
    """Look at a cluster before, while and after its disk is full."""
    seen: dict[str, Any] = {}
    folder = config.data_folder()
    fill(place)
    seen["before the first run"] = {
        "runs": terminal("runs"),
        "created": sentence(lambda: store.create(Run(id="total-aaaaaa", workload="total", cluster=NAME))),
        "left": [each.name for each in folder.glob("runs/*")],
    }
    make_room(place)

    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=768 * 2**20)
    record = asyncio.run(control.wait(launch(spec, name=NAME, force=True).name, timeout=60))
    try:
        family = processes_of(record.pid)
        first = submit.finish(submit.submit("array_sum", {"size": "8MiB"}, record).id, timeout=60)
        seen["first"] = first.status
        second = submit.finish(submit.submit("array_sum", {"size": "8MiB"}, record).id, timeout=60)
        # As much as a record of some size, or a kept array.
        (store.folder(second.id) / "more").write_bytes(bytes(2**18))

        fill(place)
        seen["on a full disk"] = look_at_clusters() | {
            "started": sentence(lambda: submit.submit("array_sum", {"size": "8MiB"}, record)),
            "deleted": sentence(lambda: store.delete(second.id)),
        }
        make_room(place)

        with connect(NAME) as client:
            with watch(client, name="on a full disk") as watched:
                fill(place)
                answer = float(da.ones((1000, 1000), chunks=500).sum().compute())
            seen["watched"] = {"answer": answer, "in this process": watched.status}
            make_room(place)
            seen["watched"]["after"] = until(lambda: row_of(watched.id)["status"], "done")
            seen["watched"]["tasks"] = row_of(watched.id)["result"]["tasks"]

            run = submit.submit("array_sum", {"size": "512MiB", "chunks": "4MiB"}, record)
            until(lambda: store.get(run.id).status, "running")
            fill(place)
            client.run_on_scheduler(wait_for_no_task)
            time.sleep(1.5)
            seen["computed on a full disk"] = {"runner lives": store.alive(store.get(run.id))}
            make_room(place)
            ended = submit.finish(run.id, timeout=60)
            seen["computed on a full disk"] |= {
                "status": ended.status,
                "check": ended.check is not None and ended.check.passed,
                "done": ended.progress.done == ended.progress.total > 100,
                "error": ended.error,
            }

        asked = {"shape": [160_000, 20], "chunks": [40_000, 20], "save": str(place / "out.zarr")}
        large = submit.finish(submit.submit("tall_skinny_svd", asked, record).id, timeout=60)
        seen["saved"] = {
            "status": large.status,
            "error": large.error,
            "sentence": large.answers and large.answers.sentence,
            "check": large.check is not None and large.check.passed,
            "left": [each.name for each in place.iterdir() if "out" in each.name],
        }

        # Over itself: what has its log open for writing would forbid it otherwise.
        subprocess.run(["mount", "--bind", place, place], check=True)
        # What is open for writing just now forbids it, too.
        assert until(lambda: subprocess.run(["mount", "-o", "remount,bind,ro", place], check=False).returncode, 0) == 0
        seen["on a read-only disk"] = look_at_clusters()
        subprocess.run(["umount", "-l", place], check=True)
        seen["same processes"] = processes_of(record.pid) == family
        seen["clients after"] = until(lambda: len(records.read(NAME).clients), 0)
        seen["warning after"] = records.read(NAME).warning
        seen["last"] = submit.finish(submit.submit("array_sum", {"size": "8MiB"}, record).id, timeout=60).status
        return seen
    finally:
        asyncio.run(control.stop(records.read(NAME)))


def look_at_clusters() -> dict[str, Any]:
    """Use the cluster and the terminal."""
    with connect(NAME) as client:
        answer = client.submit(sum, [1, 2]).result()
        time.sleep(1.5)  # a second look of the host at its record
    return {
        "answer": answer,
        "warning": records.read(NAME).warning,
        "runs": terminal("runs"),
        "clusters": terminal("ls"),
    }


async def wait_for_no_task(dask_scheduler: Any) -> None:
    """Return when all that the scheduler computes was given back."""
    while dask_scheduler.tasks:
        await asyncio.sleep(0.1)


def processes_of(pid: int | None) -> set[int]:
    """Pids of a process and all that it started."""
    host = psutil.Process(pid)
    return {host.pid, *(child.pid for child in host.children(recursive=True))}


def row_of(run_id: str) -> dict[str, Any]:
    """Return a run as another process reads it."""
    found: dict[str, Any] = json.loads(elsewhere("show", run_id, "--json")["out"])
    return found


def terminal(*arguments: str) -> dict[str, Any]:
    """Run `workbench` in this process."""
    return dict(zip(("code", "out", "err"), commands.run(*arguments), strict=True))


def elsewhere(*arguments: str) -> dict[str, Any]:
    """Run `workbench` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def sentence(action: Callable[[], object]) -> str | None:
    """Return the message of the action's error; None if it succeeds."""
    try:
        action()
    except WorkbenchError as err:
        return str(err)
    return None


def until(value: Callable[[], Any], wanted: Any) -> Any:
    """`value` when it is as wanted, or as it is after a while."""
    deadline = time.monotonic() + 30
    while (found := value()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def fill(place: Path) -> None:
    """Leave not a byte."""
    with (place / "filler").open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def make_room(place: Path) -> None:
    """Take away what fills it."""
    (place / "filler").unlink()


if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    print(json.dumps(main(Path(sys.argv[1]))))
