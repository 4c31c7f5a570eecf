"""Records damaged in every way that chance finds: each costs itself, in a sentence, and nobody is signalled."""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.feeds import tasks_of
from tests.views import html_of
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import DamagedError
from workbench.hardware.gauges import GpuSample
from workbench.jobs import processes
from workbench.monitor.events import Batch, Progress, Task, WorkerSample
from workbench.monitor.record import Recorder, read_events
from workbench.runs import store
from workbench.runs.comparing.past import compare_runs
from workbench.runs.explaining.diagnosis import diagnosed
from workbench.runs.run import Run
from workbench.session import Session
from workbench.views.comparisons import comparisons as compare_view

if TYPE_CHECKING:
    from workbench.views.context import Context

SPEC = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=2**30)
WRONG: tuple[Any, ...] = (None, -1, 0, 2**63, 10**40, -1e308, float("nan"), "", "x", "é" * 5000, [], {}, [None], True)
"""Values where something else is expected."""


@pytest.fixture
def kept(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs with all their files, two clusters and a comparison; a signal to any process fails."""
    monkeypatch.setattr(os, "kill", _refuse)
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("good-aaaaaa", "bad-bbbbbb"):
        store.create(Run(id=name, workload="array_sum", cluster="c", spec=SPEC, created=1e9, status="running"))
        told = {"result": {"value": 1.5}, "seconds": 1.0, "started": 10.0, "stopped": 11.0}
        store.update(name, status="done", versions={"dask": "1"}, resolved={"shape": [4, 4]}, **told)
        with Recorder(store.folder(name) / "events.parquet") as recorder:
            recorder.write(_batch())
        (store.folder(name) / "metrics.json").write_text('{"began": 10.0, "metrics": [], "workers": {}, "dtypes": {}}')
    for name in ("good-otter", "bad-otter"):
        records.create(ClusterRecord(name=name, spec=SPEC, status="lost", message="gone", place=processes.place()))
    compare_runs(["good-aaaaaa", "bad-bbbbbb"])
    return data_folder


def _refuse(pid: int, number: int) -> None:
    if number or pid <= 0:
        raise AssertionError(f"signal {number} to {pid}")


def _batch() -> Batch:
    rows = [
        Task(f"('sum-{i}', {i})", "sum", "tcp://h:1", 7, "compute", 10 + i / 10, 10.1 + i / 10, 8, "ok")
        for i in range(9)
    ]
    counts = {"sum": {"total": 9, "done": 9, "erred": 0, "processing": 0}}
    sample = WorkerSample("tcp://h:1", "0", 10.5, 90.0, 10**8, 10**9, 0, 1, 1)
    gpu = GpuSample("GPU-1", "A100", 0, "h", 10.5, utilisation=50.0, memory_used=2**31, throttle=("power cap",))
    return Batch(11.0, tasks_of(rows), (sample,), Progress(11.0, counts), gpus=(gpu,))


def look(capsys: pytest.CaptureFixture[str], folder: Path, *, closely: bool = True) -> str:
    """Do what can be done in a terminal with what is kept; what was said. The undamaged are shown throughout."""
    said = ""
    commands = [
        ("good-aaaaaa", "runs"),
        ("good-aaaaaa", "runs", "--json"),
        ("1.5", "show", "good-aaaaaa"),
        ("", "show", "bad-bbbbbb"),
    ]
    if closely:
        commands += [
            ("", "show", "bad-bbbbbb", "--report"),
            ("", "save", "bad-bbbbbb", str(folder / "out.zip"), "--replace"),
            ("", "compare", "--runs", "good-aaaaaa", "bad-bbbbbb"),
            ("", "runs", "--comparisons"),
        ]
    for expected, *command in commands:
        code = main(command)
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), command
        assert code == 0 or err, command
        assert expected in out, (command, out, err)
        assert "Traceback" not in out + err
        said += out + err
    return said


def damaged(text: bytes, chance: random.Random) -> Iterator[bytes]:
    """Bytes of a file in several states of decay."""
    yield b""
    yield text[: chance.randrange(len(text))]
    flipped = bytearray(text)
    for _ in range(5):
        flipped[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
    yield bytes(flipped)
    yield from (b"null", b"[]", b"{}", b'"x"', b"\xff\xfe\x00")


def wrong_in(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with one invalid part."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value))
        return value | {name: wrong_in(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.5:
        return [*value[:-1], wrong_in(value[-1], chance)]
    return chance.choice(WRONG)


@pytest.mark.parametrize("name", ["events.parquet", "gpus.parquet", "metrics.json", "marks/star"])
def test_a_damaged_file_of_a_run_costs_what_was_in_it(
    kept: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, chance = store.folder("bad-bbbbbb") / name, random.Random(name)
    store.mark("bad-bbbbbb", name="night", star=True)
    whole = path.read_bytes()
    for turn, content in enumerate(damaged(whole, chance)):
        path.write_bytes(content)
        said = look(capsys, kept, closely=turn == 1)
    if name == "events.parquet":
        assert f"{name} can't be read" in said
    elif name == "gpus.parquet":
        (told,) = read_events(path.with_name("events.parquet")).no_gpus or ()
        assert f"{name} can't be read" in told.reason
    else:
        for _ in range(10):
            path.write_text(json.dumps(wrong_in(json.loads(whole), chance)))
            assert main(["show", "bad-bbbbbb"]) == 0


@pytest.mark.parametrize("name", ["events.parquet", "gpus.parquet"])
def test_nulls_and_columns_of_no_use_in_a_table_cost_their_rows_or_that_table(
    kept: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.folder("bad-bbbbbb") / name
    whole = path.read_bytes()
    for column in pq.read_schema(path).names:
        for change in (_without, _with_nulls, _with_text):
            path.write_bytes(whole)
            pq.write_table(change(pq.read_table(path), column), path)
            diagnosed(store.get("bad-bbbbbb"))
            with contextlib.suppress(DamagedError):
                found = read_events(path.with_name("events.parquet"))
                assert {row.name for row in found.tasks} <= {"sum", "x"}
                assert len(found.gpus) <= 1
    look(capsys, kept)


def _without(table: pa.Table, column: str) -> pa.Table:
    return table.drop_columns([column])


def _with_nulls(table: pa.Table, column: str) -> pa.Table:
    at, field = table.schema.get_field_index(column), table.schema.field(column)
    values = [None if row % 2 else value for row, value in enumerate(table[column].to_pylist())]
    return table.set_column(at, field, pa.array(values, field.type))


def _with_text(table: pa.Table, column: str) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, pa.array(["x"] * len(table)))


def test_a_damaged_record_of_a_run_costs_that_run_and_says_so(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["null", "{}", '"x"', "[1]", "-1", "9" * 5000, '{"a": ' + "9" * 40 + "}", "1e308", '""']
    path = store.folder("bad-bbbbbb") / "record.json"
    whole, chance = json.loads(path.read_text()), random.Random(0)
    for field in sorted(Run.model_fields.keys() - {"id", "marks"}):
        for value in chance.sample(wrong, 3):
            path.write_text(json.dumps(whole | {field: "@"}).replace('"@"', value))
            assert main(["runs"]) == 0
            assert "good-aaaaaa" in capsys.readouterr().out
        assert main(["show", "bad-bbbbbb"]) == 0
    for content in (*damaged(json.dumps(whole).encode(), chance), json.dumps(whole | {"result": "x"}).encode()):
        path.write_bytes(content)
        assert main(["runs"]) == 0
        assert "good-aaaaaa" in capsys.readouterr().out
    assert "Its record is damaged (" in look(capsys, kept)
    assert store.get("bad-bbbbbb").status == "lost"
    store.delete("bad-bbbbbb")
    assert [run.id for run in store.select()] == ["good-aaaaaa"]


@pytest.mark.parametrize("pid", [-1, 0, 2**31, 2**63, 10**30])
def test_a_pid_of_no_process_is_never_signalled(kept: Path, pid: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = records.folder("bad-otter")
    told = json.loads((path / "record.json").read_text())
    for status in ("ready", "starting", "stopping"):
        for created in (None, 0.0, 1e9):
            told |= {"status": status, "pid": pid, "pid_created": created, "worker_pids": [pid]}
            path.mkdir(exist_ok=True)
            (path / "record.json").write_text(json.dumps(told))
            (path / "process").unlink(missing_ok=True)
            (path / "process").symlink_to(f"{pid} {created or ''}")
            assert main(["ls"]) == 0
            assert "good-otter" in capsys.readouterr().out
            main(["down", "bad-otter"])
    assert processes.find(pid, 0.0) is None
    assert processes.find(os.getpid(), math.nan) is None


def test_a_damaged_record_of_a_cluster_costs_that_cluster(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, chance = records.folder("bad-otter") / "record.json", random.Random("record.json")
    whole = path.read_bytes()
    contents = [*damaged(whole, chance)]
    contents += [json.dumps(wrong_in(json.loads(whole), chance)).encode() for _ in range(12)]
    for content in contents:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        for command in (["ls"], ["ls", "--json"]):
            assert main(command) == 0
            assert "good-otter" in capsys.readouterr().out
        assert main(["down", "bad-otter"]) in (0, 1, 2)
    # One that looks like another version's is left alone, also at the end of this test.
    shutil.rmtree(path.parent, ignore_errors=True)


def test_a_damaged_comparison_costs_that_comparison(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (kept / "comparisons").glob("*/record.json")
    whole, chance = path.read_bytes(), random.Random("comparison")
    good, session = compare_runs(["good-aaaaaa", "bad-bbbbbb"]), Session()
    contents = [*damaged(whole, chance)]
    contents += [json.dumps(wrong_in(json.loads(whole), chance)).encode() for _ in range(12)]
    told = 0
    for content in contents:
        path.write_bytes(content)
        assert main(["runs", "--comparisons"]) == 0
        listed = capsys.readouterr().out
        sidebar = compare_view(cast("Context", SimpleNamespace(session=session, choices={})), "")
        one = session.comparison(path.parent.name)
        for said in (listed, sidebar):
            assert good.id in said
            assert path.parent.name in said
            assert ("damaged" in said) == ("damaged" in (one.error or ""))
        told += "damaged" in listed
        assert main(["show", one.id]) in (0, 1, 2)
        assert "damaged" in "".join(capsys.readouterr()) or "damaged" not in listed
    assert told >= len(list(damaged(whole, chance)))
    path.write_bytes(b"[]")
    shown = html_of("comparisons")
    assert all(f'id="wb-comparison-{each}"' in shown for each in (good.id, path.parent.name))
    assert "is damaged (Input should be an object)" in html.unescape(html_of(f"comparison:{path.parent.name}"))
    session.delete_comparison(path.parent.name)
    assert [each.id for each in session.comparisons()] == [good.id]
