import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow.parquet
import pytest

from tests.feeds import tasks_of
from workbench.errors import NotFoundError
from workbench.monitor.events import Batch, Progress, Task, WorkerSample
from workbench.monitor.record import Recorder, finish_recording, read_events

ADD = Task("('add-1', 0)", "add", "tcp://a:1", 7, "compute", 10.0, 11.0, 80, "ok")
SPILL = Task("sum-2", "sum", "tcp://b:1", 9, "disk-write", 11.0, 11.5, 8, "erred")
SAMPLE = WorkerSample("tcp://a:1", "0", 10.5, 150.0, 2**30, 2**32, 5, 2, 4)


def count(total, done):
    return {"total": total, "done": done, "erred": 0, "processing": 1}


FIRST = Batch(11.0, tasks_of([ADD]), (SAMPLE,), Progress(11.0, {"add": count(2, 1), "old": count(1, 1)}))
SECOND = Batch(12.0, tasks_of([SPILL]), (replace(SAMPLE, time=11.5),), Progress(12.0, {"add": count(2, 2)}))


def test_what_was_recorded_is_read_again(tmp_path):
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(FIRST)
        recorder.write(SECOND)
    batch = read_events(tmp_path / "events.parquet")
    assert list(batch.tasks) == [ADD, SPILL]
    assert batch.samples == (SAMPLE, replace(SAMPLE, time=11.5))
    assert batch.progress == Progress(12.0, {"add": count(2, 2), "old": count(1, 1)})
    assert batch.time == 12.0


def test_the_stream_becomes_one_parquet_file(tmp_path):
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(FIRST)
        assert [path.name for path in tmp_path.iterdir()] == ["events.arrows"]
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]
    table = pyarrow.parquet.read_table(tmp_path / "events.parquet")
    assert table["event"].to_pylist() == ["task", "worker", "progress", "progress"]


def test_a_run_in_progress_can_be_read(tmp_path):
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(FIRST)
        assert list(read_events(tmp_path / "events.parquet").tasks) == [ADD]


def test_a_recording_without_events_is_empty(tmp_path):
    Recorder(tmp_path / "events.parquet").close()
    batch = read_events(tmp_path / "events.parquet")
    assert len(batch.tasks) == 0
    assert batch.samples == ()
    assert batch.progress is None


def test_what_comes_after_closing_is_left_out(tmp_path):
    recorder = Recorder(tmp_path / "events.parquet")
    recorder.close()
    recorder.close()
    recorder.write(FIRST)
    assert len(read_events(tmp_path / "events.parquet").tasks) == 0


def test_a_run_without_a_recording_says_so(tmp_path):
    with pytest.raises(NotFoundError, match="No events were recorded"):
        read_events(tmp_path / "events.parquet")


@pytest.mark.parametrize("cut", [0, 1, 7, 40])
def test_a_stream_that_was_cut_off_is_read_up_to_its_last_whole_batch(tmp_path, cut):
    recorder = Recorder(tmp_path / "events.parquet")
    stream = tmp_path / "events.arrows"
    recorder.write(FIRST)
    whole = stream.stat().st_size
    recorder.write(SECOND)
    content = stream.read_bytes()[: whole + cut]
    stream.write_bytes(content)
    assert list(read_events(tmp_path / "events.parquet").tasks) == [ADD]
    finish_recording(tmp_path / "events.parquet")
    assert list(read_events(tmp_path / "events.parquet").tasks) == [ADD]


def test_a_stream_cut_off_in_its_header_is_an_empty_recording(tmp_path):
    Recorder(tmp_path / "events.parquet")
    stream = tmp_path / "events.arrows"
    for size in (0, 3, 100):
        stream.write_bytes(stream.read_bytes()[:size])
        assert len(read_events(tmp_path / "events.parquet").tasks) == 0


def _record_for_ever(path):
    recorder = Recorder(path)
    while True:
        recorder.write(FIRST)


def test_a_writer_killed_in_the_middle_of_writing_leaves_what_it_wrote(tmp_path):
    path = tmp_path / "events.parquet"
    writer = multiprocessing.get_context("spawn").Process(target=_record_for_ever, args=(path,))
    writer.start()
    stream = tmp_path / "events.arrows"
    deadline = time.monotonic() + 30
    while not (stream.exists() and stream.stat().st_size > 20_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    batch = read_events(path)
    assert len(batch.tasks) > 5
    assert set(batch.tasks) == {ADD}


TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "key", [f"('normal-{TOKEN}', 3, 0)", f"sum-{TOKEN}", "('a', 'b', 3)", f"two\nlines-{TOKEN}", ""]
)
def test_a_key_of_any_form_comes_back_as_it_was(tmp_path, key):
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(replace(FIRST, tasks=tasks_of([replace(ADD, key=key), ADD])))
    assert [task.key for task in read_events(tmp_path / "events.parquet").tasks] == [key, ADD.key]


def test_a_task_of_a_large_record_takes_few_bytes(tmp_path):
    from tests.benchmarks.bench_views import batches

    given = list(batches(20_000))
    with Recorder(tmp_path / "events.parquet") as recorder:
        for batch in given:
            recorder.write(batch)
    assert (tmp_path / "events.parquet").stat().st_size < 40 * 20_000
    read = read_events(tmp_path / "events.parquet")
    assert read.tasks[-1].key == given[-1].tasks[-1].key
    assert read.tasks[-1].stop == pytest.approx(given[-1].tasks[-1].stop, abs=1e-6)
    assert len(read.tasks) == sum(len(batch.tasks) for batch in given)


def test_a_process_of_ours_records_without_pandas_which_others_find_all_the_same(tmp_path):
    code = (
        "import sys, pathlib; from workbench.monitor import record; from workbench.monitor.events import *\n"
        "record.fill_first_table(without_pandas=True)\n"
        "path = pathlib.Path(sys.argv[1]) / 'events.parquet'\n"
        "with record.Recorder(path) as recorder:\n"
        "    recorder.write(Batch(1.0, NO_TASKS, (), Progress(1.0, {'sum': {'total': 1, 'done': 1, 'erred': 0}})))\n"
        "assert record.read_events(path).progress.counts['sum']['done'] == 1\n"
        "print('pandas' in sys.modules); import pandas; print(pandas.DataFrame({'a': [1]}).shape)"
    )
    found = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == ["False", "(1, 1)"]
