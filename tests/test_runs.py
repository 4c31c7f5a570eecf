import asyncio
import contextlib
import os
import re
import signal
import sys
import time

import dask.config
import numpy as np
import psutil
import pytest
from distributed.comm import CommClosedError

import workbench
from tests.waiting import until
from workbench import remote, threads
from workbench.clusters import control, forking, records
from workbench.clusters.connect import connect
from workbench.clusters.spec import ClusterSpec
from workbench.clusters.start import Cluster
from workbench.errors import BadInputError, ConflictError, FailedError, NotFoundError
from workbench.remote import executing_keys
from workbench.runs import runner, store, submit as submit_module
from workbench.runs.run import Run
from workbench.runs.submit import cancel, finish, submit
from workbench.session import Session
from workbench.workloads.values import Needs, Parameters

LONG = {"size": "24GiB", "chunks": 1000}


@pytest.fixture(scope="module", autouse=True)
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with dask.config.set({"workbench.data-folder": str(folder)}):
        yield folder


def start_cluster(name, n_workers=2):
    spec = ClusterSpec(profile="cpu", n_workers=n_workers, threads_per_worker=1, memory_limit=2**30, protocol="tcp")
    session = Session()
    session.start(spec, name=name, force=True, agreed=True)
    return session.wait(name, timeout=60)


@pytest.fixture(scope="module")
def cluster():
    yield start_cluster("calm-otter")
    Session().stop("calm-otter")


@pytest.fixture
def mortal(monkeypatch):
    """Provide a cluster that a test may kill, and that gives up a task when one worker has died of it."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    record = start_cluster("short-lived", n_workers=1)
    yield record
    with contextlib.suppress(NotFoundError):
        Session().stop("short-lived")


def under_way(record):
    """Return a long run that has finished some of its tasks."""
    run = submit("array_sum", LONG, record)
    return until(lambda: (now := store.get(run.id)).progress.done > 3 and now)


def log_of(run):
    return (store.folder(run.id) / "log.txt").read_text()


def executing(client):
    return [key for keys in client.processing().values() for key in keys]


def test_a_cluster_may_be_given_as_what_started_it_or_as_a_client_of_it(cluster, quick_client):
    ours = Cluster(cluster.name)
    with ours.connect() as client:
        assert client.dashboard_link is None
        for given in (ours, client):
            run = workbench.run("array_sum", given, size="1MiB")
            assert re.fullmatch(r"<Run array_sum-\w+: array_sum on calm-otter, done in [^,]+, check passed>", repr(run))
        with workbench.watch(ours):
            ours.client.submit(sum, [1, 2]).result()
    ours.client.close()
    for given, said in ((quick_client, "a Client of no cluster"), (3, "3, which is no cluster")):
        with pytest.raises(BadInputError, match=f"cluster is {said}.* Give the name of one"):
            workbench.run("array_sum", given)
    with pytest.raises(BadInputError, match=r"a function of a notebook gets one by %%workload"):
        workbench.run(print, cluster.name)


@pytest.fixture(scope="module")
def finished(cluster):
    return finish(submit("array_sum", {"size": "64MiB"}, cluster, inventory={"cpu": {"threads": 2}}).id, timeout=60)


def test_a_sum_runs_to_its_answer_and_everything_about_it_is_kept(cluster, finished):
    run = finished
    assert run.status == "done", log_of(run)
    assert run.check.passed
    assert run.result["value"] == pytest.approx(11 * (run.resolved["shape"][0] / 2) ** 2, rel=0.01)
    assert run.parameters == {"size": "64MiB"}
    assert run.resolved["dtype"] == "float64"
    assert run.spec == cluster.spec
    assert run.inventory == {"cpu": {"threads": 2}}
    assert {"python", "workbench", "dask", "distributed", "numpy"} <= set(run.versions)
    assert run.created <= run.started <= run.started + run.seconds <= run.stopped
    assert run.bytes_per_second == pytest.approx(run.bytes / run.seconds)
    assert run.progress.done == run.progress.total > 10
    assert sum(count.total for count in run.progress.by_name.values()) == run.progress.total
    assert run.progress.stage is None
    assert run.error is None
    assert log_of(run) == ""


def test_a_run_leaves_no_process_and_no_client_behind(cluster, finished):
    until(lambda: not store.alive(finished))
    until(lambda: not any(finished.id in client for client in records.read(cluster.name).clients))


def test_cancelling_a_run_that_has_ended_says_so(finished):
    with pytest.raises(ConflictError, match=f"{finished.id} has ended already \\(done\\)"):
        cancel(finished.id)


@pytest.fixture
def held_back(monkeypatch):
    """Have runs submitted without a runner; call it with one to start that."""
    start = submit_module._start_runner
    monkeypatch.setattr(submit_module, "_start_runner", lambda run, python: run)
    return lambda run: finish(start(store.get(run.id), sys.executable).id, timeout=60)


def test_a_run_computes_the_parameters_that_were_resolved_when_it_was_submitted(cluster, held_back):
    run = submit("array_sum", {"size": "8MiB", "seed": 1}, cluster)
    store.update(run.id, resolved={**run.resolved, "shape": [200, 200], "chunks": [100, 100]})
    ended = held_back(run)
    assert ended.status == "done", log_of(run)
    assert ended.result["value"] == pytest.approx(11 * 100**2, rel=0.05)
    assert ended.resolved["shape"] == [200, 200]


def test_a_file_that_changed_after_a_run_was_submitted_is_an_error_and_no_false_record(cluster, held_back, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((2000, 10)))
    run = submit("svd_of_file", {"path": str(path), "k": 3}, cluster)
    same = submit("svd_of_file", {"path": str(path), "k": 3}, cluster)
    assert held_back(same).status == "done", log_of(same)
    np.save(path, np.full((2000, 10), 2.0))
    ended = held_back(run)
    assert (ended.status, ended.result) == ("failed", None)
    assert f"{path} was changed after the run was submitted (mtime " in ended.error
    assert "Run it again." in ended.error


def test_writing_the_record_between_building_and_computing_is_not_timed():
    class Clock:
        now = 0.0

        def passes(self, seconds, result=None):
            self.now += seconds
            return result

    clock, noted = Clock(), []

    class Chosen:
        def build(self, parameters):
            return clock.passes(2.0, {"value": 1, "seconds_to_make": 0.5})

        def collections(self, built):
            return {"value": 1}

        def measured(self, built, threads_per_worker):
            return clock.passes(50.0, Needs(sentence=""))

    def note(needs):
        # As while another process has locked the record, or the disk is slow.
        noted.append(clock.passes(100.0, needs))

    parameters = Parameters(workload="f", given={}, resolved={})
    results, _, seconds = runner.timed(
        Chosen(), parameters, lambda *_: clock.passes(3.0, {"value": 1}), note, lambda: clock.now
    )
    assert (results, seconds, len(noted)) == ({"value": 1}, 4.5, 1)


def test_the_events_of_a_run_and_where_its_time_went_are_kept_with_it(finished):
    from workbench.monitor.record import read_events
    from workbench.runs.explaining.diagnosis import awaited, diagnosed

    until((store.folder(finished.id) / "events.parquet").exists)
    events = read_events(store.folder(finished.id) / "events.parquet")
    assert len(events.tasks) >= finished.progress.total / 2
    assert min(events.tasks.start) > finished.started - 1
    run = awaited(finished)
    assert run.diagnosis is not None, log_of(run)
    assert store.get(run.id).diagnosis == run.diagnosis
    assert sum(run.diagnosis.shares.values()) == pytest.approx(1)
    assert run.diagnosis.workers == 2
    assert run.diagnosis.seconds == pytest.approx(run.seconds, abs=1e-5)  # a difference of two times since 1970
    older = run.model_copy(update={"diagnosis": None})
    assert diagnosed(older).diagnosis == run.diagnosis


def test_a_host_that_forks_no_runner_makes_a_run_slower_and_nothing_else(cluster):
    sockets = records.folder(cluster.name) / "owner.sock"
    hidden = sockets.rename(sockets.with_name("hidden"))
    try:
        run = finish(submit("array_sum", {"size": "16MiB"}, cluster).id, timeout=60)
    finally:
        hidden.rename(sockets)
    assert run.status == "done", log_of(run)


def test_a_runner_has_the_environment_and_the_settings_of_the_caller(cluster, tmp_path, monkeypatch):
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "come_since.py").write_text("here = 7\n")
    (tmp_path / "mine.py").write_text(
        "import os\n\n\ndef told():\n    import come_since\n    from workbench import config\n\n"
        "    token = len(os.environ['MY_TOKEN'])\n"
        "    return {'here': come_since.here, 'token': token, 'kept': config.size('answers.each')}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "added"), prepend=os.pathsep)
    monkeypatch.setenv("MY_TOKEN", "x" * 100_000)
    monkeypatch.setenv("DASK_WORKBENCH__ANSWERS__EACH", "3 MiB")
    # A cold one would have them anyway.
    monkeypatch.setattr(submit_module.processes, "start_detached", None)
    run = finish(submit(f"{tmp_path}/mine.py:told", {}, cluster).id, timeout=60)
    assert run.error is None, log_of(run)
    assert (run.result["here"], run.result["token"], run.result["kept"]) == (7, 100_000, 3 * 2**20)


def test_a_process_is_not_forked_where_packages_have_come_since(monkeypatch):
    monkeypatch.setattr(forking, "_AT_START", ())
    with pytest.raises(FailedError, match="Packages have come or gone"):
        asyncio.run(forking.fork({}))


def test_whoever_waits_hears_of_progress_and_of_the_end(cluster):
    run = submit("array_sum", {"size": "512MiB", "chunks": 1000}, cluster)
    heard = []
    finish(run.id, heard.append, timeout=60)
    assert heard[-1].status == "done"
    assert {"running", "done"} <= {told.status for told in heard}
    counts = [told.progress.done for told in heard]
    assert counts == sorted(counts)
    assert any(0 < told.progress.done < told.progress.total for told in heard)


def test_several_runs_at_once_on_one_cluster_each_count_their_own_tasks(cluster):
    sizes = {"32MiB": 1000, "33MiB": 500}
    runs = [submit("array_sum", {"size": size, "chunks": chunks}, cluster) for size, chunks in sizes.items()]
    ended = [finish(run.id, timeout=60) for run in runs]
    assert [run.status for run in ended] == ["done", "done"]
    assert all(run.check.passed for run in ended)
    alone = [finish(submit("array_sum", run.parameters, cluster).id, timeout=60) for run in ended]
    assert [run.progress.total for run in ended] == [run.progress.total for run in alone]


@pytest.mark.parametrize(
    ("workload", "parameters", "error"),
    [
        ("array_sum", {"sise": "1GiB"}, BadInputError),
        ("array_sum", {"size": "-1GiB"}, BadInputError),
        ("array_sum", {"size": float("nan")}, BadInputError),
        ("array_sum", {"shape": [10, 10], "chunks": [20, 20]}, BadInputError),
        ("svd_of_file", {"path": "/nowhere/at/all.npy"}, BadInputError),
        ("frobnicate", {}, NotFoundError),
    ],
)
def test_bad_parameters_start_nothing_and_leave_nothing(cluster, workload, parameters, error):
    # By name: the diagnosis of a run before this comes after its end.
    before = {run.id for run in store.select(limit=None)}
    processes = psutil.pids()
    with pytest.raises(error):
        submit(workload, parameters, cluster)
    assert {run.id for run in store.select(limit=None)} == before
    assert not [pid for pid in set(psutil.pids()) - set(processes) if _is_runner(pid)]


def _is_runner(pid):
    try:
        return "workbench.runs.runner" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def test_a_cluster_that_is_not_ready_is_refused(cluster):
    with pytest.raises(ConflictError, match="calm-otter is stopping"):
        submit("array_sum", {"size": "1MiB"}, cluster.model_copy(update={"status": "stopping"}))


def test_cancelling_frees_the_workers_and_leaves_the_cluster_usable(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = under_way(cluster)
    assert psutil.Process(run.pid).cwd() == str(tmp_path), "a run works in the folder of its caller"
    began = time.monotonic()
    cancel(run.id)
    run = finish(run.id, timeout=20)
    assert run.status == "cancelled"
    assert run.error is None
    assert 0 < run.progress.done < run.progress.total
    assert time.monotonic() - began < 6
    with connect(cluster.name) as client:
        assert executing(client) == []
        assert client.submit(sum, [1, 2]).result(timeout=5) == 3
    assert finish(submit("array_sum", {"size": "16MiB"}, cluster).id, timeout=60).status == "done"


def test_a_run_is_cancelled_though_another_wants_the_same_tasks(cluster):
    runs = [submit("transpose_sum", {"size": "1GiB"}, cluster) for _ in range(3)]
    until(lambda: all(store.get(run.id).progress.stage == "computing" for run in runs))
    for run in runs[:2]:
        cancel(run.id)
    assert [finish(run.id, timeout=20).status for run in runs[:2]] == ["cancelled"] * 2
    kept = finish(runs[2].id, timeout=60)
    assert (kept.status, kept.check.passed) == ("done", True), log_of(kept)
    assert "computed the same there at the same time" in kept.notes[-1]
    with connect(cluster.name) as client:
        assert "AssertionError" not in threads.finish(control.logs(cluster.name))["scheduler"]
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0


def test_cancelling_right_after_the_start_cancels_too(cluster):
    run = submit("array_sum", LONG, cluster)
    cancel(run.id)
    assert finish(run.id, timeout=20).status == "cancelled"


def test_only_a_worker_that_stays_in_a_cancelled_task_is_restarted(cluster):
    with connect(cluster.name) as client:
        before = client.run(os.getpid)
        assert len(before) == 2
        stuck, other = before
        future = client.submit(time.sleep, 100, workers=[stuck], pure=False)
        until(lambda: client.run(executing_keys)[stuck])
        runner._free_workers(client)
        assert future.status == "pending"
        after = until(lambda: (pids := client.run(os.getpid)) and len(pids) == 2 and pids)
        assert after[other] == before[other]
        assert before[stuck] not in after.values()
        assert client.submit(sum, [1, 2]).result(timeout=10) == 3


def test_a_runner_that_is_killed_leaves_a_run_that_is_lost_and_a_cluster_that_is_free(cluster):
    run = under_way(cluster)
    os.kill(run.pid, signal.SIGKILL)
    lost = until(lambda: (now := store.get(run.id)).status == "lost" and now)
    assert f"pid {run.pid}" in lost.error
    with connect(cluster.name) as client:
        until(lambda: executing(client) == [])
        assert client.submit(sum, [1, 2]).result(timeout=10) == 3


def test_a_runner_that_was_stopped_for_a_while_has_the_last_word(cluster):
    run = submit("array_sum", {"size": "1GiB", "chunks": 1000}, cluster)
    run = until(lambda: (now := store.get(run.id)).progress.done > 3 and now)
    os.kill(run.pid, signal.SIGSTOP)
    try:
        os.utime(store.folder(run.id) / "heartbeat", (0, time.time() - 75))
        # As for a reader on another machine, and as an older version on it wrote.
        store.update(run.id, place="elsewhere", node="node-7")
        assert "No sign of life from node-7 for 1 min" in store.get(run.id).error
        store.update(run.id, status="lost", error="Its runner process was ended from outside.")
    finally:
        os.kill(run.pid, signal.SIGCONT)
    run = until(lambda: (now := store.get(run.id)).status == "done" and now, about=lambda: store.get(run.id))
    assert run.result["value"] > 0
    assert run.check.passed
    assert run.error is None


def test_a_cluster_that_is_killed_ends_its_run_with_a_sentence(mortal):
    run = under_way(mortal)
    os.kill(mortal.pid, signal.SIGKILL)
    run = finish(run.id, timeout=20)
    assert run.status == "failed"
    assert "The cluster short-lived ended while the run was going on." in run.error
    assert "killed" in run.error
    assert "Traceback" in log_of(run)


def test_a_cluster_that_is_killed_while_a_run_connects_to_it_ends_the_run_at_once(mortal):
    # Its scheduler takes connections, and never answers: a client would try for half a minute.
    os.kill(mortal.pid, signal.SIGSTOP)
    run = submit("array_sum", LONG, mortal)
    until(lambda: "runs.runner" in " ".join(psutil.Process(run.pid).cmdline()) and open_connections(run.pid))
    os.kill(mortal.pid, signal.SIGKILL)
    killed = time.monotonic()
    run = finish(run.id, timeout=30)
    assert time.monotonic() - killed < 5
    assert run.status == "failed"
    assert "The process that holds the cluster was killed (signal 9)" in run.error


def open_connections(pid):
    return [each for each in psutil.Process(pid).net_connections("tcp") if each.status != psutil.CONN_LISTEN]


def test_a_worker_that_ends_while_workers_get_a_plugin_is_no_reason_to_fail():
    class Scheduler:
        def __init__(self, failures):
            self.failures = failures

        def add_plugin(self, plugin, name):
            pass

        async def register_worker_plugin(self, comm, plugin, name, *, idempotent):
            self.failures -= 1
            if self.failures >= 0:
                raise CommClosedError("in <TLS>: Stream is closed")
            return {"tcp://one": {"status": "OK"}}

    asyncio.run(remote.add_to_workers(b"", "x", "client", Scheduler(2)))
    with pytest.raises(CommClosedError):
        asyncio.run(remote.add_to_workers(b"", "x", "client", Scheduler(9)))


def test_a_cluster_that_is_stopped_ends_its_run_with_a_sentence(mortal):
    run = under_way(mortal)
    Session().stop(mortal.name)
    run = finish(run.id, timeout=20)
    assert run.status == "failed"
    assert "The cluster short-lived ended while the run was going on. It was stopped." in run.error


def test_a_task_that_takes_more_memory_than_there_is_fails_with_a_remedy(mortal):
    run = submit(
        "array_sum", {"shape": [20_000, 20_000], "chunks": 20_000, "generator": "RandomState"}, mortal, force=True
    )
    run = finish(run.id, timeout=90)
    assert run.status == "failed"
    assert "smaller chunks" in run.error
    assert "Traceback" in log_of(run)


def test_a_run_whose_cluster_was_stopped_before_it_connected_says_so(data_folder):
    run = Run(id="a", workload="array_sum", cluster="gone-otter", created=time.time())
    with pytest.raises(NotFoundError) as caught:
        records.read(run.cluster)
    assert (
        runner._explain(caught.value, run) == "The cluster gone-otter ended while the run was going on. It was stopped."
    )
