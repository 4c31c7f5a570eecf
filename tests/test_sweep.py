"""protocol_sweep: TCP, TLS and UCX between workers, in turn, with a sentence on which is faster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import using_data_folder
from tests.test_budget import machine
from tests.test_ucx import needs_ucx, with_ucx
from workbench import terminal
from workbench.clusters import control, launch, records
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError
from workbench.runs import store, sweep
from workbench.runs.store import Progress, Run
from workbench.session import Session
from workbench.workloads import template
from workbench.workloads.sweep import answers_agree

SMALL = {"size": "8MiB", "chunks": "2MiB", "repetitions": 1}


def rows(ucx: float = 2.5, *, rounds: int = 6, blocks: tuple[int, ...] = (500, 1000)) -> list[dict[str, Any]]:
    """Rounds in which tls takes as long as tcp give or take, and ucx `ucx` times as long."""
    return [
        {
            "protocol": protocol,
            "chunks": [block, block],
            "repetition": repetition,
            "seconds": block / 1000 * factor * (1 + 0.01 * ((repetition * place) % 5)),
            "value": 4_000_000.0 + repetition,
            "bandwidth": 1e8 / factor,
            "n_messages": 4,
            "transport": "ucx (tcp on lo)" if protocol == "ucx" else protocol,
        }
        for repetition in range(1, rounds + 1)
        for block in blocks
        for place, (protocol, factor) in enumerate((("tcp", 1.0), ("tls", 1.005), ("ucx", ucx)), 1)
    ]


def test_the_sentence_says_which_is_faster_and_by_how_much() -> None:
    told = sweep.sentence(rows(), {})
    assert told.startswith("Between tcp and tls no difference shows: tls takes 1.0")
    assert "; ucx takes 2.5" in told
    assert told.endswith("times as long as tcp (6 rounds of blocks of 500 × 500, 1000 × 1000).")


def test_two_protocols_that_differ_are_told_apart_and_one_alone_is_not_compared() -> None:
    pair = [row for row in rows() if row["protocol"] != "tls"]
    assert sweep.sentence(pair, {}).startswith("tcp is the fastest here: ucx takes 2.5")
    alone = [row for row in rows() if row["protocol"] == "tcp"]
    left_out = {"ucx": "The ucx profile needs distributed-ucxx."}
    assert sweep.sentence(alone, left_out) == (
        "Only tcp was measured (6 rounds of blocks of 500 × 500, 1000 × 1000). "
        "ucx was left out: The ucx profile needs distributed-ucxx."
    )


def test_one_round_is_too_few_to_tell() -> None:
    assert "too few rounds to tell" in sweep.sentence(rows(rounds=1, blocks=(500,)), {})


def test_the_table_has_medians_and_the_transports_really_used() -> None:
    lines = sweep.text(sweep.outcome(rows(), {})).splitlines()
    assert lines[0].split() == ["BLOCKS", "PROTOCOL", "SECONDS", "MB/s"]
    assert len(lines) == 1 + 6 + 1
    assert lines[-1] == "Transports really used: tcp: tcp; tls: tls; ucx: ucx (tcp on lo)."


def test_answers_that_differ_fail_the_check() -> None:
    resolved = {"shape": [2000, 2000], "dtype": "float64"}
    measured = rows()
    assert answers_agree(resolved, {"rows": measured}, None).passed
    measured[0]["value"] += 0.01
    verdict = answers_agree(resolved, {"rows": measured}, None)
    assert not verdict.passed
    assert "differ by 2.5e-09" in verdict.what
    measured[0]["value"] = 1.0
    assert not answers_agree(resolved, {"rows": measured}, None).passed


def test_its_cell_is_plain_dask() -> None:
    chosen = template("protocol_sweep")
    cell = chosen.cell(chosen.validate(SMALL, threads=2), "calm-otter")
    compile(cell, "cell", "exec")
    assert "LocalCluster(" in cell
    assert "workbench" not in cell
    assert cell.rstrip().endswith(")\nrows")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"protocols": "tcp, smoke"}, "Give some of tcp, tls and ucx with commas between them."),
        ({"chunks": "2MiB, large"}, "chunks of protocol_sweep is 'large'"),
        ({"shape": "100, 200"}, "Give as many rows as columns"),
    ],
)
def test_what_cannot_be_swept_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match="protocol_sweep") as refused:
        template("protocol_sweep").validate(given, threads=2)
    assert says in str(refused.value)


def test_the_clusters_are_as_large_as_the_one_it_is_run_on() -> None:
    spec = ClusterSpec(n_workers=3, threads_per_worker=2, memory_limit=2**29)
    other = sweep.spec_for(spec, "ucx")
    assert (other.profile, other.protocol, other.n_workers, other.memory) == ("ucx", "ucx", 3, spec.memory)
    assert sweep.spec_for(spec, "tcp").profile == "cpu"


@pytest.fixture(scope="module")
def idle_cluster(tmp_path_factory: pytest.TempPathFactory, spec: ClusterSpec) -> Iterator[str]:
    """A cluster that lends its size, and has nothing to do."""
    with using_data_folder(tmp_path_factory.mktemp("data")):
        record = launch.launch(spec, name="calm-otter", force=True)
        yield asyncio.run(control.wait(record.name, timeout=60)).name


@needs_ucx
def test_a_sweep_measures_all_protocols_and_leaves_no_cluster(idle_cluster: str) -> None:
    session = Session()
    run = asyncio.run(session.wait_run(session.run("protocol_sweep", SMALL, idle_cluster, agreed=True).id, timeout=120))
    assert (run.status, run.error) == ("done", None)
    assert run.check is not None
    assert run.check.passed, run.check.what
    assert run.result is not None
    assert [row["transport"] for row in run.result["summary"]] == ["tcp", "tls", "ucx (tcp on lo)"]
    assert run.result["left_out"] == {}
    assert (run.progress.done, run.progress.total, run.progress.unit) == (3, 3, "measurements")
    assert records.names() == (idle_cluster,)
    # What was measured here takes the place of what was measured elsewhere.
    why = session.plan("ucx", n_workers=2, memory="1GiB").why
    assert any(f"measured here on {time.strftime('%Y-%m-%d')} ({run.id})" in sentence for sentence in why)


def test_a_sweep_that_is_cancelled_takes_its_clusters_with_it(idle_cluster: str) -> None:
    session = Session()
    run = session.run("protocol_sweep", SMALL | {"protocols": "tcp", "repetitions": 100}, idle_cluster)
    deadline = time.monotonic() + 60
    while session.show(run.id).progress.done == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    asyncio.run(session.cancel(run.id))
    assert asyncio.run(session.wait_run(run.id, timeout=30)).status == "cancelled"
    assert records.names() == (idle_cluster,)


def test_what_counts_names_its_unit_wherever_progress_is_shown(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    kept = Run(id=store.new_id("protocol_sweep"), workload="protocol_sweep", cluster="calm-otter", created=1e9)
    run = store.create(kept)
    with terminal.progress(run) as on_change:
        on_change(run.model_copy(update={"progress": Progress(done=1, total=3, unit="measurements")}))
    assert "measurements" in capsys.readouterr().err
    terminal.show_run(run.model_copy(update={"progress": Progress(done=1, total=3, unit="measurements")}))
    assert "1 of 3 measurements" in capsys.readouterr().out


def test_only_a_sweep_of_this_machine_counts(data_folder: Path) -> None:
    def keep(model: str | None, **changes: Any) -> None:
        inventory = with_ucx().model_dump(mode="json")
        inventory["cpu"]["model"] = model
        spec = ClusterSpec(n_workers=2, threads_per_worker=1, memory_limit=2**29)
        told = {"result": sweep.outcome(rows(**changes), {}), "spec": spec, "inventory": inventory}
        kept = Run(id=store.new_id("protocol_sweep"), workload="protocol_sweep", cluster="calm-otter", created=1e9)
        store.create(kept)
        store.update(kept.id, status="done", **told)

    assert sweep.ucx_measured(with_ucx()) is None
    keep("Another one", ucx=9.0)
    assert sweep.ucx_measured(with_ucx()) is None
    keep(machine().cpu.model, ucx=2.5)
    told = str(sweep.ucx_measured(with_ucx()))
    assert told.startswith("UCX was slower than TCP between 2 workers without GPUs, measured here on 2001-09-0")
    assert "took 2.5" in told
    assert "over ucx (tcp on lo)." in told
