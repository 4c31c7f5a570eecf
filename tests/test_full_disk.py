"""A disk that is really full, mounted for these tests only: nothing ends, nothing is lost, the reason is reported."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench import config
from workbench.errors import StorageError

_MOUNTED = 'mount -t tmpfs -o size=16m,mode=700 tmpfs "$1" && exec "$2" -m tests.full_disk "$1"'


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of `tests.full_disk`."""
    apart = ["unshare", "-rm"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("No file system can be mounted here: that takes root, or user namespaces.")
    place = tmp_path_factory.mktemp("disk")
    environment = os.environ | {"DASK_WORKBENCH__DATA_FOLDER": str(place / "data")}
    done = subprocess.run(
        [*apart, "sh", "-c", _MOUNTED, "sh", str(place), sys.executable],
        env=environment,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("when", "reason"), [("on a full disk", "is full"), ("on a read-only disk", "it is read-only, or not yours")]
)
def test_a_cluster_whose_record_cannot_be_written_goes_on_and_tells_the_true_reason(
    seen: dict[str, Any], when: str, reason: str
) -> None:
    assert seen[when]["answer"] == 3
    assert reason in seen[when]["warning"]
    assert seen[when]["clusters"]["code"] == 0
    assert reason in seen[when]["clusters"]["out"]
    assert seen["same processes"]


@pytest.mark.parametrize("when", ["on a full disk", "on a read-only disk"])
def test_the_history_is_read_where_nothing_can_be_written(seen: dict[str, Any], when: str) -> None:
    runs = seen[when]["runs"]
    assert (runs["code"], runs["err"]) == (0, "")
    assert "done" in runs["out"]


def test_what_cannot_be_begun_on_a_full_disk_says_so_and_advises_to_move_nothing_away(seen: dict[str, Any]) -> None:
    said = seen["on a full disk"]["started"]
    assert "(No space left on device). Make room on that disk" in said
    assert "ove it away" not in said
    assert "memory" not in said


def test_a_disk_that_is_full_before_the_first_run_is_told_and_nothing_is_called_damaged(seen: dict[str, Any]) -> None:
    first = seen["before the first run"]
    assert (first["runs"]["code"], first["runs"]["err"]) == (0, "")
    assert "(No space left on device). Make room on that disk" in first["created"]
    assert first["left"] == []


def test_deleting_a_run_makes_room_on_a_full_disk(seen: dict[str, Any]) -> None:
    assert seen["on a full disk"]["deleted"] is None


def test_what_was_watched_on_a_full_disk_is_kept_when_there_is_room(seen: dict[str, Any]) -> None:
    watched = seen["watched"]
    assert (watched["answer"], watched["in this process"], watched["after"]) == (1e6, "done", "done")
    assert watched["tasks"] > 4


def test_a_run_computed_on_a_full_disk_keeps_its_answer_until_there_is_room(seen: dict[str, Any]) -> None:
    assert seen["computed on a full disk"] == {
        "runner lives": True,
        "status": "done",
        "check": True,
        "done": True,
        "error": None,
    }


def test_an_answer_that_does_not_fit_says_so_in_a_sentence_and_leaves_nothing_half_written(
    seen: dict[str, Any],
) -> None:
    saved = seen["saved"]
    assert (saved["status"], saved["check"], saved["left"]) == ("failed", True, [])
    assert "out.zarr can't be written (No space left on device" in saved["error"]
    assert "They could not be kept" in saved["sentence"]


def test_all_is_as_before_when_there_is_room(seen: dict[str, Any]) -> None:
    assert (seen["first"], seen["last"]) == ("done", "done")
    assert (seen["clients after"], seen["warning after"]) == (0, None)


def test_a_file_that_does_not_fit_leaves_the_one_before_and_no_half_of_another(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    config.write_atomically(path, "before")
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(StorageError, match=r"record.json can't be written \(File too large\)"):
            config.write_atomically(path, "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("record.json", "before")]
