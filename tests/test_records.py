from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.views import html_of
from tests.waiting import until
from workbench.cli import main as cli
from workbench.clusters import control, records
from workbench.clusters.connect import connect
from workbench.clusters.engine import Job
from workbench.clusters.handle import State
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, NotFoundError
from workbench.jobs import processes
from workbench.views.answers import cluster_answer


@pytest.fixture
def data_folder(data_folder: Path) -> Iterator[Path]:
    """Provide an empty data folder; remove its records at the end, since stopping clusters would stop this process."""
    yield data_folder
    for name in records.names():
        records.remove(name)


def record(spec: ClusterSpec, name: str = "calm-otter", **fields: Any) -> ClusterRecord:
    """Return a record whose host is this process by default."""
    alive = {"pid": os.getpid(), "pid_created": processes.created(os.getpid()), "place": processes.place()}
    return ClusterRecord(name=name, spec=spec, created=time.time(), **{**alive, **fields})


def dead_process() -> dict[str, Any]:
    """Pid and start of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = processes.created(process.pid)
    process.communicate(b"\n")
    return {"pid": process.pid, "pid_created": created}


def test_a_record_is_read_as_it_was_written(data_folder: Path, spec: ClusterSpec) -> None:
    written = record(spec, status="ready", clients=("Client-1",), adaptive=(1, 3))
    records.create(written)
    assert records.read("calm-otter") == written
    assert records.read_all() == (written,)


def test_folders_and_files_are_the_users_alone(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec))
    for path in [data_folder, *data_folder.rglob("*")]:
        if path.name != ".lock":
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"status": "starting"}, ", or stop it first: workbench down calm-otter"),
        ({"status": "ready"}, ", or stop it first: workbench down calm-otter"),
        ({"status": "ready", "can": ()}, ", or detach from it first: workbench down calm-otter"),
        ({"status": "stopping"}, ", or wait until it has ended."),
        ({"status": "lost", "called": "somebody.1234"}, ", or stop it first: workbench down calm-otter"),
        ({"status": "lost"}, None),
        ({"status": "lost", "can": ()}, None),
        ({"status": "failed"}, None),
    ],
)
def test_a_name_in_use_is_a_conflict_that_says_what_frees_it(
    data_folder: Path, spec: ClusterSpec, fields: dict[str, Any], what: str | None
) -> None:
    records.create(record(spec, **fields))
    if what is None:
        records.create(record(spec))
        assert records.read("calm-otter").status == "starting"
        return
    with pytest.raises(ConflictError) as refused:
        records.create(record(spec))
    assert (
        str(refused.value) == f"There is a cluster 'calm-otter' already ({fields['status']}). Choose another name{what}"
    )


@pytest.mark.parametrize("status", ["failed", "lost"])
def test_the_name_of_a_cluster_that_is_over_can_be_used_again(
    data_folder: Path, spec: ClusterSpec, status: Any
) -> None:
    records.create(record(spec, status=status))
    (records.folder("calm-otter") / "host.log").write_text("old")
    again = record(spec)
    records.create(again)
    assert records.read("calm-otter") == again
    assert records.log("calm-otter") == ""


def test_one_of_many_who_claim_a_name_gets_it(data_folder: Path, spec: ClusterSpec) -> None:
    gate = threading.Barrier(8)

    def claim(number: int) -> bool:
        gate.wait()
        try:
            records.create(record(spec, message=str(number)))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(8))) == 1


def test_an_unknown_name_says_which_exist(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec))
    records.create(record(spec, "bold-heron"))
    with pytest.raises(NotFoundError, match=r"'warm-yak'.*bold-heron, calm-otter"):
        records.read("warm-yak")


def test_without_any_cluster_an_unknown_name_says_how_to_start_one(data_folder: Path) -> None:
    with pytest.raises(NotFoundError, match=r"No cluster is running. Start one"):
        records.read("warm-yak")


@pytest.mark.parametrize("name", ["../secret", "/etc", "", ".lock", "a/b"])
def test_a_name_leads_to_no_other_folder(data_folder: Path, name: str) -> None:
    with pytest.raises(NotFoundError):
        records.read(name)
    with pytest.raises(NotFoundError):
        records.remove(name)


def test_a_cluster_whose_host_died_is_lost_with_the_last_lines_of_its_log(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec, status="ready", n_workers=2, clients=("Client-1",), **dead_process()))
    folder = records.folder("calm-otter")
    (folder / "host.log").write_text("".join(f"line {number}\n" for number in range(100)))
    (folder / "tls").mkdir()
    (folder / "tls" / "key.pem").write_text("secret")
    found = records.read("calm-otter")
    assert (found.status, found.n_workers, found.clients) == ("lost", 0, ())
    assert "was killed (signal 9)" in str(found.message)
    assert found.log_tail[-1] == "line 99"
    assert not (folder / "tls").exists()
    assert ClusterRecord.model_validate_json((folder / "record.json").read_text()) == found


def test_a_start_whose_host_died_has_failed_and_quotes_its_last_words(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec, **dead_process()))
    (records.folder("calm-otter") / "host.log").write_text("Traceback\nModuleNotFoundError: No module named 'dask'\n")
    found = records.read("calm-otter")
    assert found.status == "failed"
    assert "No module named 'dask'" in str(found.message)


def test_a_host_that_died_while_it_stopped_leaves_nothing(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec, status="stopping", **dead_process()))
    assert records.read_all() == ()
    assert records.names() == ()


def test_a_pid_that_was_given_to_another_process_is_not_the_host(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec, status="ready", pid_created=(processes.created(os.getpid()) or 0) - 3600))
    assert records.read("calm-otter").status == "lost"


def test_the_start_of_a_process_is_not_reckoned_from_the_clock() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        created = processes.created(process.pid)
        assert created == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=2)
        assert processes.find(process.pid, created) is not None
        assert processes.find(process.pid, created - 100) is None
        process.communicate(b"\n")


def test_a_cluster_is_not_idle_for_the_time_in_which_nobody_saw_it(data_folder: Path, spec: ClusterSpec) -> None:
    from workbench.clusters.owner import _Owner

    made = record(spec.model_copy(update={"idle_timeout": 0.2}), status="ready")
    records.create(made)
    owner = _Owner(made)
    # The clock was set forward, or the machine slept.
    owner.ready_at = since = time.time() - 9999
    state = State(arrived=2, requested=2, idle_since=since)
    owner._take(state)
    assert not owner.ended.is_set()
    time.sleep(0.3)
    owner._take(state)
    assert owner.why_ended == "nothing to do for 200 ms"


def test_a_start_without_a_process_is_given_a_moment(data_folder: Path, spec: ClusterSpec) -> None:
    records.create(record(spec, pid=None, pid_created=None))
    assert records.read("calm-otter").status == "starting"
    records.write(record(spec, pid=None, pid_created=None).model_copy(update={"created": time.time() - 100}))
    assert records.read("calm-otter").status == "failed"


def test_a_cluster_on_another_machine_is_shown_with_its_name_and_not_touched(
    data_folder: Path, spec: ClusterSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    records.create(record(spec, status="ready", place="elsewhere", node="node-7", **dead_process()))
    before = (records.folder("calm-otter") / "record.json").read_bytes()
    assert_untouchable("It is on node-7, which shares this data folder", capsys)
    assert (records.folder("calm-otter") / "record.json").read_bytes() == before
    with pytest.raises(ConflictError, match=r"'calm-otter' already .unknown.*node-7"):
        records.create(record(spec))


def test_a_cluster_with_a_profile_of_another_version_is_shown_and_not_touched(
    data_folder: Path, spec: ClusterSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    records.create(record(spec, status="ready", node="login-1", **dead_process()))
    path = records.folder("calm-otter") / "record.json"
    path.write_text(path.read_text().replace('"profile":"cpu"', '"profile":"nomad"'))
    before = path.read_bytes()
    # Who has that profile knows what there is to end.
    assert "There is no profile 'nomad' here any more." in str(records.read("calm-otter").message)
    assert path.read_bytes() == before
    path.write_text(path.read_text().replace('"n_workers":2', '"n_workers":"few"'))
    before = path.read_bytes()
    assert_untouchable("on login-1 with profile 'nomad' by another version", capsys)
    assert path.read_bytes() == before


def assert_untouchable(says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every face shows the only cluster as unknown and says this, and no verb does anything to it."""
    (found,) = records.read_all()
    assert (found.status, found.is_over) == ("unknown", False)
    assert says in str(found.message)
    for verb in (control.stop(found), control.scale(found.name, 1, force=True), control.restart_workers(found.name)):
        with pytest.raises(ConflictError, match=r"unknown|left as it is"):
            asyncio.run(verb)
    with pytest.raises(ConflictError, match=re.escape(says)):
        connect("calm-otter")
    assert cli(["ls"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "unknown" in shown
    assert says in shown
    assert cli(["down", "calm-otter"]) != 0
    assert says in capsys.readouterr().err
    assert cli(["down", "--all"]) == 0
    assert f"Left as it is: calm-otter. {found.message}" in capsys.readouterr().out
    assert cluster_answer(found, "/")["status"] == "unknown"
    assert says in unescape(html_of("clusters"))


@pytest.mark.parametrize(("seconds", "said"), [(75, "1 min"), (1e6, "11 d")])
def test_silence_of_another_machine_changes_nothing_until_a_person_gives_the_cluster_up(
    data_folder: Path, spec: ClusterSpec, seconds: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = (Job(id="7", state="running"),)
    records.create(record(spec, status="ready", place="elsewhere", node="node-7", jobs=jobs, **dead_process()))
    folder = records.folder("calm-otter")
    (folder / "tls").mkdir()
    (folder / "tls" / "key.pem").write_text("secret")
    (folder / "heartbeat").touch()
    # A machine whose clock is ahead sees the same as one from which nothing comes.
    os.utime(folder / "heartbeat", (0, time.time() - seconds))
    before = contents(folder)
    assert_untouchable(f"No sign of life from node-7 for {said}", capsys)
    assert "workbench down calm-otter --forget" in str(records.read("calm-otter").message)
    assert contents(folder) == before
    assert cli(["down", "calm-otter", "--forget"]) == 0
    assert "If its process still runs on node-7, that ends it" in capsys.readouterr().out
    assert records.names() == ()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the contents of the files of a folder, and their times of writing."""
    return {str(each): (each.read_bytes(), each.stat().st_mtime_ns) for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name": "calm-otter"}', b"\xff\xfe", b'{"name": 3, "spec": {}}'])
def test_an_unreadable_record_is_lost_with_a_sentence(data_folder: Path, spec: ClusterSpec, text: bytes) -> None:
    records.create(record(spec))
    (records.folder("calm-otter") / "record.json").write_bytes(text)
    (found,) = records.read_all()
    assert (found.name, found.status) == ("calm-otter", "lost")
    assert "can't be read" in str(found.message)
    records.remove("calm-otter")
    assert records.read_all() == ()


def test_fields_of_a_later_version_are_ignored(data_folder: Path, spec: ClusterSpec) -> None:
    made = record(spec, status="ready")
    records.create(made)
    path = records.folder("calm-otter") / "record.json"
    path.write_text(path.read_text()[:-1] + ', "colour": "blue"}')
    assert records.read("calm-otter") == made


def test_half_a_folder_is_no_cluster_and_its_name_is_free(data_folder: Path, spec: ClusterSpec) -> None:
    records.folder("calm-otter").mkdir(parents=True)
    (records.folder("calm-otter") / "host.log").write_text("half")
    assert records.read_all() == ()
    records.create(record(spec))
    assert records.read("calm-otter").status == "starting"


def test_what_a_killed_process_left_half_removed_is_swept_away(data_folder: Path, spec: ClusterSpec) -> None:
    left = records.clusters_folder() / ".bold-heron.1a2b3c.gone"
    left.mkdir()
    records.create(record(spec))
    assert not left.exists()


def test_many_readers_at_once_find_the_same_truth(data_folder: Path, spec: ClusterSpec) -> None:
    for name in ("calm-otter", "bold-heron", "warm-yak"):
        records.create(record(spec, name, status="ready", **dead_process()))
    code = "from workbench.clusters import records; print([r.status for r in records.read_all()])"
    readers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [item.status for item in records.read_all()], range(32)))
    assert all(statuses == ["lost"] * 3 for statuses in found)
    assert all(reader.communicate()[0].strip() == "['lost', 'lost', 'lost']" for reader in readers)


def test_only_marked_processes_of_the_hosts_session_are_leftovers(data_folder: Path, spec: ClusterSpec) -> None:
    mark = record(spec).marker
    marked = {**os.environ, processes.MARKER: mark}
    sleep = [sys.executable, "-c", "print(flush=True); input()"]
    children = [
        subprocess.Popen(sleep, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, start_new_session=leads)
        for env, leads in [(marked, True), (marked, False), (None, True)]
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    found = [[process.pid for process in processes.leftovers(child.pid, mark)] for child in children]
    for child in children:
        child.communicate(b"\n")
    assert found == [[children[0].pid], [], []]


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory has no folder elsewhere")
def test_what_processes_that_are_ended_had_in_shared_memory_is_removed() -> None:
    mark = f"shared#{uuid.uuid4().hex}"
    told = (
        "import multiprocessing as m, time; s = m.get_context('spawn').Semaphore();"
        "print(s._semlock.name, flush=True); time.sleep(60)"
    )
    begun = subprocess.Popen(
        [sys.executable, "-c", told],
        env={**os.environ, processes.MARKER: mark},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with begun:
        assert begun.stdout is not None
        shared = Path(f"/dev/shm/sem.{begun.stdout.readline().strip().removeprefix('/')}")
        assert shared.exists()
        # Itself, and what removes it, which may still be about to start.
        left = until(lambda: found if len(found := processes.leftovers(begun.pid, mark)) == 2 else None)
        processes.end(left)
    assert not shared.exists()
    assert processes.leftovers(begun.pid, mark) == []


def test_a_job_that_the_queue_has_not_told_of_is_not_pending_where_its_worker_is_there(spec: ClusterSpec) -> None:
    jobs = (Job(id="1", state="running"), Job(id="2", state="pending", reason="Priority"))
    found = record(spec, status="ready", jobs=jobs, n_workers=1, n_workers_expected=2)
    assert found.waiting == "1 of 2 workers; 1 pending: Priority"
    assert found.model_copy(update={"n_workers": 2}).waiting == "2 of 2 workers"
