import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import dask.config
import psutil
import pytest

from tests.views import html_of
from workbench.cli import main
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, NotFoundError, StorageError
from workbench.jobs import folders, processes, records
from workbench.runs import store
from workbench.runs.run import WATCHED, Count, Progress, Run
from workbench.runs.submit import cancel
from workbench.workloads.values import Check

SPEC = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**30, why=("two cores",))


@pytest.fixture(autouse=True)
def data_folder(tmp_path):
    with dask.config.set({"workbench.data-folder": str(tmp_path)}):
        yield tmp_path


def a_run(run_id="array_sum-aaaaaa", **changes):
    about = {"workload": "array_sum", "cluster": "calm-otter", "created": time.time(), "place": processes.place()}
    return Run(id=run_id, **about | changes)


def an_ended_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    created = psutil.Process(process.pid).create_time()
    process.wait()
    return {"pid": process.pid, "pid_created": created}


def this_process():
    return {"pid": os.getpid(), "pid_created": processes.created(os.getpid())}


def test_what_runs_cannot_be_looked_for_by_is_told():
    for looked_for in (store.select, store.count):
        with pytest.raises(BadInputError, match=r"by 'foo'\. Choose among: workload, status"):
            looked_for(foo=1)


def test_names_and_notes_in_any_script_are_found_in_small_letters_and_large():
    for run_id, name in (("total-aaaaaa", 'Nächtlich "a"'), ("total-bbbbbb", "夜間 🌙")):
        store.create(a_run(run_id, parameters={"path": "GRÖSSE.npy"}))
        store.mark(run_id, name=name, note="ΔT")
    for text, found in (("NÄCHT", 1), ('lich "A"', 1), ("夜間", 1), ("🌙", 1), ("δt", 2), ("größe", 2), ("ü", 0)):
        assert (store.count(text=text), len(store.select(text=text))) == (found, found), text
    assert store.find('Nächtlich "a"').id == "total-aaaaaa"
    assert [run.id for run in store.of_name("夜間 🌙")] == ["total-bbbbbb"]


MARKS = """
import sys
from workbench.runs import store

run_ids = [run.id for run in store.select()]
print("ready", flush=True)
sys.stdin.readline()
for run_id in run_ids:
    store.mark(run_id, **eval(sys.argv[1]))
"""


def test_a_name_and_a_star_that_two_processes_set_at_once_are_both_kept(data_folder):
    environment = {**os.environ, "DASK_WORKBENCH__DATA_FOLDER": str(data_folder)}
    for number in range(50):
        store.create(a_run(f"total-{number:06}", status="done"))
    both = [
        subprocess.Popen(
            [sys.executable, "-c", MARKS, repr(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for given in ({"name": "nightly"}, {"star": True})
    ]
    assert [each.stdout.readline() for each in both] == ["ready\n", "ready\n"]
    for each in both:
        each.stdin.write("\n")
        each.stdin.flush()
    for each in both:
        each.communicate(timeout=60)
    assert {(run.marks.name, run.marks.star) for run in store.select()} == {("nightly", True)}


def test_a_run_comes_back_as_it_was_kept():
    run = a_run(
        parameters={"size": "2GiB"},
        resolved={"shape": [10, 10], "seed": 0},
        notes=("chosen for the memory",),
        status="done",
        spec=SPEC,
        inventory={"cpu": {"threads": 2}},
        versions={"dask": "1"},
        started=1.5,
        stopped=2.5,
        seconds=1.0,
        bytes=800,
        result={"value": 1.25},
        check=Check(passed=True, what="closed form"),
        progress=Progress(done=3, total=3, by_name={"sum": Count(done=3, total=3)}),
        needs={"passes": 1},
        **this_process(),
    )
    store.create(run)
    assert store.get(run.id) == run
    assert store.get(run.id).spec == SPEC
    assert store.get(run.id).bytes_per_second == 800.0


def test_a_run_with_what_is_not_known_left_out_comes_back_too():
    run = store.create(a_run())
    assert store.get(run.id) == run


def test_updating_changes_what_is_named_and_nothing_else():
    run = store.create(a_run(parameters={"size": 1}, **this_process()))
    changed = store.update(run.id, status="running", started=5.0)
    assert changed == run.model_copy(update={"status": "running", "started": 5.0})
    assert store.get(run.id) == changed


def test_a_status_that_does_not_exist_is_refused():
    run = store.create(a_run())
    with pytest.raises(ValueError, match="status"):
        store.update(run.id, status="paused")


def test_an_unknown_run_says_which_exist():
    store.create(a_run("svd-123456"))
    with pytest.raises(NotFoundError, match=r"no run 'nope'.*svd-123456"):
        store.get("nope")


def test_an_unknown_run_says_when_there_is_none():
    with pytest.raises(NotFoundError, match="There is none yet"):
        store.get("nope")


def test_an_id_that_is_taken_is_refused():
    store.create(a_run())
    with pytest.raises(ConflictError, match="array_sum-aaaaaa"):
        store.create(a_run())


@pytest.mark.parametrize("run_id", ["", "../clusters", "..", ".hidden", "a/b"])
def test_an_id_never_leads_out_of_the_folder_of_runs(run_id):
    with pytest.raises(BadInputError):
        store.folder(run_id)


def test_runs_are_listed_newest_first_and_filtered():
    for number, (workload, status) in enumerate([("a", "done"), ("b", "failed"), ("a", "failed"), ("a", "done")]):
        store.create(a_run(f"{workload}-{number}", workload=workload, status=status, created=100.0 + number))
    assert [run.id for run in store.select()] == ["a-3", "a-2", "b-1", "a-0"]
    assert [run.id for run in store.select(limit=2)] == ["a-3", "a-2"]
    assert [run.id for run in store.select(limit=2, offset=1)] == ["a-2", "b-1"]
    assert store.select(offset=4) == ()
    assert (store.count(), store.count(workload="a", status="done")) == (4, 2)
    assert [run.id for run in store.select(workload="a", status="done")] == ["a-3", "a-0"]
    assert [run.id for run in store.select(since=102.0)] == ["a-3", "a-2"]
    assert store.select(workload="c") == ()


@pytest.mark.parametrize(("filters", "word"), [({"limit": 0}, "limit"), ({"status": "paused"}, "status")])
def test_a_filter_that_can_not_be_is_named(filters, word):
    with pytest.raises(BadInputError, match=word):
        store.select(**filters)


def test_runs_are_found_by_the_beginning_or_end_of_the_id_and_as_the_last():
    store.create(a_run("a-1234", created=1.0, status="done"))
    store.create(a_run("b-5678", created=2.0, status="done"))
    assert store.find("a").id == "a-1234"
    assert store.find("5678").id == "b-5678"
    assert store.find("last").id == "b-5678"


def test_a_beginning_that_fits_several_runs_names_them():
    store.create(a_run("a-1234", status="done"))
    store.create(a_run("a-5678", status="done"))
    with pytest.raises(BadInputError, match=r"fits 2 runs.*a-1234"):
        store.find("a-")


def test_deleting_forgets_the_run_and_its_folder():
    run = store.create(a_run(status="done"))
    (store.folder(run.id) / "log.txt").write_text("hello")
    store.delete(run.id)
    assert not store.folder(run.id).exists()
    assert store.select() == ()


def test_a_run_that_goes_on_is_not_deleted():
    run = store.create(a_run(status="running", **this_process()))
    with pytest.raises(ConflictError, match="is still running"):
        store.delete(run.id)
    assert store.get(run.id) == run


def test_a_run_whose_runner_died_is_lost_and_says_how_far_it_was():
    run = store.create(a_run(status="running", **an_ended_process()))
    store.update(run.id, progress=Progress(done=12, total=80))
    lost = store.get(run.id)
    assert lost.status == "lost"
    assert f"pid {run.pid}" in lost.error
    assert "12 of 80 tasks" in lost.error
    assert lost.stopped == pytest.approx(time.time(), abs=5)
    assert store.get(run.id) == lost


def test_a_pid_that_was_given_to_another_process_is_not_the_runner():
    created = psutil.Process().create_time() - 100
    run = store.create(a_run(status="running", pid=os.getpid(), pid_created=created))
    assert store.get(run.id).status == "lost"


def test_a_run_whose_runner_lives_is_left_alone():
    run = store.create(a_run(status="running", **this_process()))
    assert store.get(run.id) == run
    assert [each.status for each in store.listed()] == ["running"]


def test_a_run_on_another_machine_goes_on_in_silence_until_a_person_gives_it_up_and_its_runner_has_the_last_word():
    about = {"place": "elsewhere", "node": "node-7", "created": 1.0, "pid": 1, "pid_created": 1.0}
    run = store.create(a_run(status="running", **about))
    folders.give_sign_of_life(store.folder(run.id))
    assert store.get(run.id) == run
    os.utime(store.folder(run.id) / "heartbeat", (0, time.time() - 75))
    assert store.select(status="lost") == ()
    found = store.get(run.id)
    assert found.status == "running"
    assert "No sign of life from node-7 for 1 min" in found.error
    assert cancel(run.id).status == "lost"
    assert "Given up: no sign of life from node-7 for 1 min" in store.get(run.id).error
    assert store.writer(run).note(status="done", seconds=80.0, result={"value": 3.0}, error=None)
    found = store.get(run.id)
    assert (found.status, found.result, found.error) == ("done", {"value": 3.0}, None)


def test_a_run_that_never_got_a_runner_is_lost_after_a_while():
    young, old = a_run("young"), a_run("old", created=time.time() - 1000)
    store.create(young)
    store.create(old)
    assert [each.id for each in store.listed() if each.status == "lost"] == ["old"]
    assert "never started" in store.get("old").error
    assert store.get("young").status == "starting"


def test_a_run_that_was_cancelled_before_its_runner_could_hear_it_is_cancelled():
    run = store.create(a_run(**an_ended_process()))
    (store.folder(run.id) / "cancel").touch()
    assert store.get(run.id).status == "cancelled"


def test_the_filter_by_status_knows_of_runners_that_died():
    store.create(a_run(status="running", **an_ended_process()))
    assert store.select(status="running") == ()
    assert [run.status for run in store.select(status="lost")] == ["lost"]


def test_progress_is_told_while_the_run_goes_on():
    run = store.create(a_run(status="running", **this_process()))
    progress = Progress(done=1, total=4, by_name={"sum": Count(done=1, total=4)})
    store.writer(run).note(progress=progress)
    assert store.get(run.id).progress == progress
    assert store.select()[0].progress == progress


def test_the_record_and_what_is_said_of_it_are_for_their_owner_only():
    run = store.create(a_run())
    store.mark(run.id, star=True)
    for path in (store.folder(run.id), *store.folder(run.id).rglob("*")):
        assert path.stat().st_mode & 0o077 == 0


def _write_some(folder, who, start):
    start.wait(20)
    with dask.config.set({"workbench.data-folder": folder}):
        for number in range(15):
            run = store.create(a_run(f"{who}-{number}"))
            store.update(run.id, status="done", seconds=1.0)


def test_several_processes_write_at_once_and_nothing_is_lost(data_folder):
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    writers = [context.Process(target=_write_some, args=(str(data_folder), who, start)) for who in range(3)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert [run.status for run in store.select(limit=None)] == ["done"] * 45


def test_a_watched_run_has_the_name_that_it_was_given_in_every_list_and_report(data_folder, capsys):
    from workbench.cli import main
    from workbench.figures.report import report_html
    from workbench.monitor.events import Batch

    about = {"workload": WATCHED, "parameters": {"name": "sum of a transpose", "source": "x.sum()"}}
    run = store.create(a_run("watched-aaaaaa", status="done", seconds=1.0, result={"tasks": 9}, **about))
    other = a_run("watched-bbbbbb", status="done", workload=WATCHED)
    assert (run.title, other.title, a_run().title) == ("sum of a transpose", "watched", "array_sum")
    for command in (["runs"], ["show", "last"], ["runs", "--json"]):
        assert main(command) == 0
        assert "sum of a transpose" in capsys.readouterr().out
    assert "<h1>sum of a transpose<" in report_html(run, Batch(time=0.0))
    assert "sum of a transpose" in html_of("runs")


def test_a_run_of_a_workload_that_is_gone_is_listed_and_shown(capsys):
    store.create(a_run("array_mean-aaaaaa", workload="array_mean", status="done", seconds=1.0, result={"value": 11.0}))
    for command in (["runs"], ["show", "array_mean-aaaaaa"]):
        assert main(command) == 0
        assert "array_mean" in capsys.readouterr().out
    assert "array_mean" in html_of("runs")
    assert "array_mean" in html_of("run:array_mean-aaaaaa:")
    assert main(["run", "array_mean", "--on", "cpu"]) == 2
    assert "Unknown workload 'array_mean'. Choose one of: array_sum" in capsys.readouterr().err


def test_a_runner_that_comes_after_its_run_was_called_lost_computes_it():
    run = store.create(a_run(created=time.time() - 1000))
    assert store.get(run.id).status == "lost"
    taken = store.claim(run.id, **this_process())
    assert (taken.status, taken.error, taken.stopped) == ("starting", None, None)
    store.writer(taken).note(status="done", seconds=1.0)
    assert (store.get(run.id).status, store.get(run.id).error) == ("done", None)


def test_of_two_runners_one_computes_and_the_other_ends():
    run = store.create(a_run())
    assert store.claim(run.id, **an_ended_process()) is not None
    assert store.claim(run.id, **this_process()) is None
    store.delete(run.id)
    assert store.claim(run.id, **this_process()) is None
    assert store.select() == ()


def test_what_its_process_writes_last_is_kept_when_a_reader_calls_it_lost_meanwhile(data_folder):
    run = store.create(a_run(status="running", place="elsewhere", node="node-7", created=1.0, **this_process()))
    writer = store.writer(run)
    # The reader's clock is a year ahead, and its user gives the run up.
    os.utime(store.folder(run.id), (0, 0))
    assert cancel(run.id).status == "lost"
    writer.note(status="done", seconds=2.0, result={"value": 5})
    assert (store.get(run.id).status, store.get(run.id).result) == ("done", {"value": 5})


def test_a_change_that_cannot_be_written_is_written_with_the_next_one(monkeypatch):
    run = store.create(a_run(status="running", **this_process()))
    writer, whole = store.writer(run), records.write
    monkeypatch.setattr(records, "write", _no_room)
    assert not writer.note(result={"value": 3})
    assert (writer.record.result, store.get(run.id).result) == ({"value": 3}, None)
    monkeypatch.setattr(records, "write", whole)
    assert writer.note(status="done")
    assert (store.get(run.id).status, store.get(run.id).result) == ("done", {"value": 3})


def _no_room(*_):
    raise StorageError("The disk is full.")


def test_progress_that_comes_too_late_changes_nothing():
    run = store.create(a_run(status="running", **this_process()))
    writer = store.writer(run)
    writer.note(status="done", progress=Progress(done=4, total=4))
    writer.note_while_active(progress=Progress(done=3, total=4))
    assert store.get(run.id).progress == Progress(done=4, total=4)


def test_a_run_that_was_deleted_is_not_made_again_by_its_process():
    run = store.create(a_run(status="done", **this_process()))
    store.delete(run.id)
    store.writer(run).note(notes=("late",))
    assert not store.folder(run.id).exists()
    with pytest.raises(NotFoundError):
        store.update(run.id, notes=("late",))


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1]", b'{"workload": 3}', b"\xff\xfe", "folder", "fifo"])
def test_a_record_that_cannot_be_read_costs_that_run_and_says_so(content, data_folder):
    good = store.create(a_run("good-aaaaaa", status="done"))
    path = data_folder / "runs" / "array_sum-bbbbbb" / "record.json"
    path.parent.mkdir()
    if content == "folder":
        path.mkdir()
    elif content == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    # Nothing of these is a run.
    (data_folder / "runs" / "notes.txt").write_text("mine")
    (data_folder / "runs" / "empty").mkdir()
    assert {run.id for run in store.select()} == {good.id, "array_sum-bbbbbb"}
    (damaged,) = store.select(status="lost")
    assert (damaged.workload, damaged.active) == ("array_sum", False)
    assert "Its record is damaged (" in damaged.error
    store.delete(damaged.id)
    assert store.select() == (good,)


def test_a_list_reads_each_record_once_and_again_when_it_changed(monkeypatch):
    for number in range(3):
        store.create(a_run(f"total-{number}", status="done", created=float(number)))
    read, seen = records.read_bytes, []
    monkeypatch.setattr(records, "read_bytes", lambda path: seen.append(str(path)) or read(path))
    assert store.count() == 3
    seen.clear()
    assert (store.count(workload="array_sum"), seen) == (3, [])
    store.update("total-1", status="failed")
    assert store.count(status="failed") == 1
    assert {Path(path).parent.name for path in seen} == {"total-1"}
    store.mark("total-2", name="night")
    assert store.count(text="NIGHT") == 1


def test_parameters_are_found_as_they_are_typed():
    store.create(a_run(parameters={"size": "2GiB", "chunks": [500, 1000], "source": 'print("x")\n'}))
    assert [store.count(text=text) for text in ("size=2gib", "chunks=1000", 'print("x")', "size=3")] == [1, 1, 1, 0]


def test_numbers_that_json_does_not_have_come_back():
    run = store.create(a_run(status="done", resolved={"limit": float("inf"), "fill": float("nan")}))
    found = store.get(run.id).resolved
    assert found["limit"] == float("inf")
    assert found["fill"] != found["fill"]


def test_sqlite_is_not_used():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, workbench.runs.store; print('sqlite3' in sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n", done.stderr
