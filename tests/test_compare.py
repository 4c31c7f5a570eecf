"""Results of a comparison's times, without a cluster: statistics, agreement, table, plan, figure."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import random
import re
import time

import dask.config
import pytest

from tests.views import html_of
from workbench.cli import main
from workbench.clusters.lines import read_line
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, NotFoundError
from workbench.hardware import inventory
from workbench.jobs import folders, processes
from workbench.runs import store
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.agreement import Answer, agreement, difference
from workbench.runs.comparing.compare import plan_comparison, read_request, submit
from workbench.runs.comparing.comparisons import Comparison, Request, Row, Sample
from workbench.runs.comparing.gate import judge
from workbench.runs.comparing.html import bars_html, summary_html
from workbench.runs.comparing.past import compare_runs
from workbench.runs.comparing.table import as_markdown, export, summarise
from workbench.runs.run import WATCHED, Run
from workbench.runs.statistics import Spread, advice, compared, more_repeats, spread, student
from workbench.session import Session
from workbench.views.answers import read_state
from workbench.views.comparisons import page
from workbench.workloads.values import Check

GIB = 2**30


def machine(cores=4, memory=16 * GIB):
    """Return a machine of this size, independent of the one that runs the tests."""
    here = inventory()
    cpu = here.cpu.model_copy(update={"threads": cores, "affinity": cores, "quota": None, "physical_cores": cores})
    limits = here.memory.model_copy(
        update={"total": memory, "available": memory, "cgroup_limit": None, "limit": memory}
    )
    return here.model_copy(update={"cpu": cpu, "memory": limits, "gpus": ()})


def times(middle, count=5, noise=0.02, seed=0):
    source = random.Random(seed)
    return [middle * source.gauss(1, noise) for _ in range(count)]


def row(on, seconds, *, threads=1, devices=(), result=1.5, passed=True, resolved=None, swept=None, reason=None):
    spec = ClusterSpec(
        profile="gpu" if devices else "cpu",
        n_workers=1,
        threads_per_worker=threads,
        memory_limit=GIB,
        devices=devices,
    )
    check = Check(passed=passed, what="1.5 is within 1.5 ± 0.1.")
    samples = tuple(
        Sample(run=f"{on}-{place}", round=place, seconds=each, bytes=GIB, result={"value": result}, check=check)
        for place, each in enumerate(seconds)
    )
    return Row(
        on=on,
        label=on,
        workload="array_sum",
        spec=spec if seconds else None,
        resolved={"dtype": "float64", **(resolved or {})},
        swept=swept or {},
        samples=samples,
        reason=reason,
    )


def comparison(*rows, **fields):
    about = {"id": "compare-array_sum-abcdef", "workload": "array_sum", "status": "done", "created": 1.0}
    return Comparison(rows=rows, **about | fields)


# -- gate


def test_a_gate_needs_rounds_that_both_rows_have():
    first, other = row("cpu", times(1.0)), row("gpu", times(1.0))
    later = [each.model_copy(update={"round": each.round + 3}) for each in other.samples]
    (found,) = judge(comparison(first, other.model_copy(update={"samples": tuple(later)})), slower=0.1)
    assert found.outcome == "too few"
    assert "2 rounds have it of both, 4 are needed" in found.sentence


# -- statistics


def test_the_spread_of_times_is_their_median_extremes_and_quartiles():
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(median=3.0, min=1.0, max=5.0, q1=2.0, q3=4.0)
    assert spread([2.0]) == Spread(median=2.0, min=2.0, max=2.0, q1=2.0, q3=2.0)


def ratio(seconds, reference, *, paired=True):
    return compared(dict(enumerate(seconds)), dict(enumerate(reference)), paired=paired)


def simulated(truth, seed, mode="side by side"):
    """Two rows, the second of which takes `truth` times as long, on a machine that drifts and is busy now and then."""
    source = random.Random(f"{truth} {seed} {mode}")
    count, noise = source.choice((1, 2, 3, 4, 5, 5, 6, 9, 15, 30)), source.choice((0.005, 0.02, 0.1, 0.4))
    busy, drift = source.choice((0, 0, 0.05, 0.3)), source.choice((1, 1, 1.02, 1.2))
    rows = [[], []]
    for turn in range(count):
        for seconds, middle in zip(rows, (10.0, 10.0 * truth), strict=True):
            stray = source.choice((1.5, 3)) if source.random() < busy else 1
            seconds.append(middle * source.lognormvariate(0, noise) * stray * (drift**turn if mode != "past" else 1))
    return summarise(comparison(row("one", rows[0]), row("two", rows[1]), mode=mode))


@pytest.mark.parametrize(
    ("truths", "mode"),
    [((1.0,), "side by side"), ((0.5, 0.9, 0.94, 0.97, 1.03, 1.06, 1.1, 2.0), "past")],
)
def test_at_most_one_statement_in_twenty_is_wrong_of_equal_and_of_unequal_clusters(truths, mode):
    stated, wrong = 0, 0
    for seed in range(800):
        truth = truths[seed % len(truths)]
        found = simulated(truth, seed, mode)
        said = found.rows[1].difference
        stated += said != "undecided"
        wrong += {"faster": truth >= 1, "slower": truth <= 1, "equal": not 1 / 1.05 <= truth <= 1.05}.get(said, False)
        assert ("Undecided: " in found.verdict) == (said == "undecided"), found.verdict
        assert ("Equal within 5 %" in found.verdict) == (said == "equal"), found.verdict
    assert stated >= 120
    assert wrong <= 40


def test_an_interval_that_holds_one_is_no_evidence_of_equality():
    found = summarise(comparison(row("one", [2.0, 3.6, 2.0, 4.0]), row("two", [2.0, 6.3, 0.5, 3.2])))
    assert (found.rows[1].ratio_low, found.rows[1].ratio_high) == pytest.approx((0.21, 2.82), rel=0.01)
    assert found.rows[1].difference == "undecided"
    said = r"Undecided: the machine was busy; repeat \d+ more times\."
    assert re.fullmatch(said, found.verdict), found.verdict
    close = summarise(comparison(row("one", [1.0, 1.001, 0.999, 1.002]), row("two", [1.003, 1.004, 1.002, 1.006])))
    # Surely slower, and by too little to matter.
    assert close.rows[1].ratio_low > 1
    assert (close.rows[1].difference, close.verdict) == ("equal", "Equal within 5 %, by 4 repeats of each.")


def test_what_makes_a_whole_round_slow_does_not_hide_a_difference():
    drift = [1, 1.3, 1.7, 2.2, 2.9]
    one, two = (
        [middle * each for each, middle in zip(drift, times(t, 5, 0.01, seed), strict=True)]
        for t, seed in ((1, 1), (1.2, 2))
    )
    found = comparison(row("one", one), row("two", two))
    assert summarise(found).rows[1].difference == "slower"
    # Of runs of the past nobody knows which belong together.
    assert summarise(found.model_copy(update={"mode": "past"})).rows[1].difference == "undecided"
    # A round that one of them lacks makes no pair.
    two = row("two", two)
    two = two.model_copy(update={"samples": two.samples[1:]})
    assert summarise(comparison(row("one", one), two)).rows[1].difference == "slower"


def test_as_many_repeats_as_are_advised_decide_most_comparisons():
    for truth, limit in ((1.05, None), (1.0, None), (1.0, 1.1), (1.3, 1.1)):
        decided = []
        for seed in range(60):
            few = ratio(times(truth, 4, 0.06, seed), times(1, 4, 0.06, seed + 500))
            more = more_repeats(few, limit)
            if more is None:
                # The estimate lies at the limit by chance.
                assert limit is not None
                continue
            found = ratio(*(times(middle, 4 + more, 0.06, seed + 1000 * middle) for middle in (truth, 1)))
            at = 1 if limit is None else limit
            decided.append(found.low > at or found.high < at or found.difference == "equal")
        assert sum(decided) >= 36, (truth, limit)
    assert more_repeats(ratio([1.0], [2.0])) == 3
    assert more_repeats(ratio([1.0, 20.0, 0.05, 1.0], [1.0, 0.05, 20.0, 1.0])) is None
    # Nobody repeats a run 805 times.
    assert advice(805) == advice(None) != advice(80)


@pytest.mark.parametrize("paired", [True, False])
def test_times_a_tenth_apart_are_told_apart_and_the_interval_holds_the_true_ratio(paired):
    found = [ratio(times(1.1, seed=seed), times(1, seed=seed + 1000), paired=paired) for seed in range(200)]
    assert sum(each.difference == "slower" for each in found) > 160
    assert sum(each.low <= 1.1 <= each.high for each in found) > 185


def test_the_interval_is_students():
    from scipy import stats

    assert [student(n) for n in (1, 2, 3, 4, 9, 29, 200)] == pytest.approx(
        [stats.t.ppf(0.975, n) for n in (1, 2, 3, 4, 9, 29, 200)], rel=2e-3
    )
    assert [student(n, 0.8) for n in (1, 2.5, 7, 50)] == pytest.approx(
        [stats.t.ppf(0.9, n) for n in (1, 2.5, 7, 50)], rel=3e-2
    )
    one, two = times(1.3, 6, 0.1), times(1, 6, 0.1, 1)
    logs = [math.log(a / b) for a, b in zip(one, two, strict=True)]
    low, high = stats.t.interval(0.95, 5, loc=sum(logs) / 6, scale=stats.sem(logs))
    found = ratio(one, two)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-3)
    assert ratio(two, one).low == pytest.approx(1 / found.high)


def test_three_times_are_too_few_to_be_sure():
    assert ratio(times(2, 3), times(1, 3)).difference == "undecided"
    assert ratio([2.0], [1.0, 1.1], paired=False)[:4] == (pytest.approx(2.0 / 1.1**0.5), None, None, "undecided")
    assert ratio(times(0.5, 30), times(1, 30)).difference == "faster"


def test_each_round_has_an_order_of_its_own_that_the_record_gives_again():
    found = comparison(*(row(name, [1.0]) for name in "abc"), seed=7)
    orders = [found.order([0, 1, 2], round_) for round_ in range(600)]
    assert orders == [comparison(seed=7).order([0, 1, 2], round_) for round_ in range(600)]
    assert orders != [comparison(seed=8).order([0, 1, 2], round_) for round_ in range(600)]
    # In turns each would always come after the same other.
    for order in itertools.permutations(range(3)):
        assert 70 <= orders.count(list(order)) <= 130
    assert summarise(found).seed == 7


# -- agreement


def test_answers_that_differ_by_rounding_agree_and_others_do_not():
    assert difference({"value": 1e9}, {"value": 1e9 * (1 + 1e-15)}, "float64") is None
    assert "value is" in difference({"value": 1e9}, {"value": 1e9 * (1 + 1e-12)}, "float64")
    assert difference({"value": 1e9}, {"value": 1e9 * (1 + 1e-6)}, "float32") is None
    values = [5.0, 3.0, 1e-9]
    assert difference({"s": values}, {"s": [5.0, 3.0, 1.001e-9]}, "float64") is None
    assert "number 2" in difference({"s": values}, {"s": [5.0, 3.1, 1e-9]}, "float64")
    assert difference({"n": 3}, {"n": 4}, "float64") is not None
    assert difference({"n": 3}, {}, "float64") is not None


def test_an_answer_near_zero_agrees_within_the_rounding_of_what_was_added_up():
    # Two orders of adding up a million numbers that cancel.
    one = Answer("a", "x", {"value": 1.2e-13}, "float64", True, bytes=8_000_000)
    two = one._replace(who="b", result={"value": -3.4e-13})
    assert agreement([one, two]).agree is None
    assert "Whether the answers of a and b differ by more than rounding is undecided" in agreement([one, two]).how
    assert agreement([each._replace(rounding=1e-9) for each in (one, two)]) == (
        True,
        "All answers are the same up to rounding.",
    )
    assert agreement([each._replace(rounding=1e-14) for each in (one, two)]).agree is False
    assert agreement([one, two._replace(result={"value": 1e-5})]).agree is False
    summary = summarise(comparison(row("one", times(6), result=1e-14), row("two", times(3), result=-2e-14)))
    assert (summary.agree, "two is the fastest" in summary.verdict) == (None, True)


def test_rows_on_other_numbers_agree_by_their_checks_and_it_is_said_so():
    one, other = Answer("a", "x", {"value": 1.0}, "float64", True), Answer("b", "y", {"value": 2.0}, "float64", True)
    assert agreement([one, other]).agree is True
    assert "each passed its own check" in agreement([one, other]).how
    assert agreement([one, other._replace(passed=None)]).agree is None
    assert agreement([one, other._replace(passed=False)]) == (False, "The check of b failed.")
    assert agreement([one]).agree is None
    assert "a and b differ" in agreement([one, other._replace(data="x")]).how


# -- the table


def test_the_table_says_which_is_faster_and_by_how_much():
    found = summarise(comparison(row("one", times(6)), row("two", times(3, seed=1)), row("same", times(6, 9, seed=2))))
    assert found.agree is True
    assert "two is the fastest" in found.verdict
    assert "1.98 times as fast as one" in found.verdict
    assert "Equal within 5 %: one, same." in found.verdict
    assert found.rows[1].ratio == pytest.approx(0.5, rel=0.05)
    assert [each.difference for each in found.rows] == [None, "faster", "equal"]
    assert found.rows[0].bytes_per_second == pytest.approx(GIB / 6, rel=0.05)


def test_a_price_in_the_settings_gives_the_cost_of_a_run():
    with dask.config.set({"workbench.prices": {"cpu": 36}}):
        found = comparison(row("one", [100.0] * 4))
        assert summarise(found).rows[0].cost == pytest.approx(1)
        assert "| cost |" in export(found, "markdown")
    assert "| cost |" not in export(found, "markdown")


def test_a_run_costs_what_it_did_when_it_began_and_not_what_it_would_today():
    then = row("one", [100.0] * 4)
    then = then.model_copy(
        update={"samples": tuple(each.model_copy(update={"price_per_hour": 72.0}) for each in then.samples)}
    )
    with dask.config.set({"workbench.prices": {"cpu": 36}}):
        assert [each.cost for each in summarise(comparison(then, row("two", [100.0] * 4))).rows] == pytest.approx(
            [2, 1]
        )


def test_answers_that_do_not_agree_make_the_times_worth_nothing():
    found = summarise(comparison(row("one", times(6)), row("two", times(3), result=1.6)))
    assert found.agree is False
    assert found.verdict.startswith("The answers do not agree")


def test_an_outlier_does_not_pass_for_equality():
    same = times(6, seed=1, noise=0.002)
    found = summarise(comparison(row("one", times(6, noise=0.002)), row("two", [*same[:4], 12.5])))
    assert found.rows[1].difference == "undecided"


def test_what_could_not_be_had_stands_in_the_table_with_its_reason():
    found = comparison(row("one", times(6)), row("gpu", [], reason="No | GPU."))
    assert "| One GPU | – |" in export(found, "markdown")
    assert "No \\| GPU." in export(found, "markdown")
    assert summarise(comparison(row("gpu", [], reason="No GPU."))).verdict == "Nothing was measured."
    assert summarise(comparison(row("one", []), status="running")).verdict == "Nothing has been measured yet."


def test_csv_and_json_hold_the_numbers():
    found = comparison(row("one", [1.0, 2.0, 3.0, 4.0]), row("two", [2.0, 4.0, 6.0, 8.0]))
    first, second = csv.DictReader(io.StringIO(export(found, "csv")))
    assert (first["on"], float(first["seconds_median"]), first["repeats"], first["check"]) == (
        "one",
        2.5,
        "4",
        "passed",
    )
    assert float(second["ratio"]) == pytest.approx(2)
    told = json.loads(export(found, "json"))
    assert told["rows"][0]["seconds"]["all"] == [1.0, 2.0, 3.0, 4.0]
    assert told["rows"][1]["check"]["passed"] is True


def test_a_sweep_over_workers_gives_a_scaling_curve():
    request = Request(workload="array_sum", on=("cpu --threads 1",), sweep={"workers": (1, 2, 4)})
    rows = [
        row(f"cpu --threads 1 --workers {n}", times(2 + 8 / n, noise=0), threads=n, swept={"workers": n})
        for n in (1, 2, 4)
    ]
    (curve,) = summarise(comparison(*rows, request=request)).scaling
    assert [point.speedup for point in curve.points] == pytest.approx([1, 10 / 6, 2.5])
    assert [point.efficiency for point in curve.points] == pytest.approx([1, 10 / 12, 10 / 16])
    assert "Scaling, CPU with 1 thread" in export(comparison(*rows, request=request), "markdown")


# -- lines and plans


def test_a_line_reads_every_option_of_up_and_is_written_again():
    gpus = "gpus --workers 2 --threads 1 --memory 8GiB --devices 0,1 --device-memory-limit 4GiB --no-encrypt"
    for text in (gpus, "slurm --directives=--exclusive --scheduler-directives='-p main'"):
        assert read_line(str(read_line(text))) == read_line(text)
    assert str(read_line(gpus)) == gpus
    assert str(read_line("slurm --queue gpu --workers 4")) == "slurm --queue gpu --workers 4"
    assert str(read_line("--cluster calm-otter")) == "--cluster calm-otter"
    assert read_line("cpu --threads=2").choices == {"threads_per_worker": "2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("--workers 2", "a profile comes first"),
        ("cpu --workers", "--workers needs a value"),
        ("cpu 1", "Given '1'. After the profile come its options"),
        ("slurm --queue --workers 2", "--queue needs a value"),
        ("--cluster", "the name of one cluster"),
        ("cpu 'x", "can't be read"),
    ],
)
def test_a_line_that_can_not_be_read_says_why(text, said):
    with pytest.raises(BadInputError, match=said):
        read_line(text)


def plan(here=None, there=(), **given):
    return plan_comparison(read_request({"workload": "array_sum", **given}), here or machine(), there)


def test_all_rows_get_the_same_shape_and_blocks_and_each_all_the_memory():
    lines = ["cpu --workers 1 --threads 1", "cpu --workers 1 --threads 4", "numpy"]
    planned = plan(parameters={"size": "0.5GiB"}, on=lines)
    assert planned.mode == "side by side"
    first, second, _ = planned.rows
    assert first.resolved == second.resolved
    assert first.parameters.keys() == {"shape", "chunks", "generator"}
    assert any("once for all rows" in note for note in planned.notes)
    # As many bytes, and so the same blocks, as alone on this machine.
    (alone,) = plan(parameters={"size": "0.5GiB"}, on=lines[:1]).rows
    assert [row.spec.memory for row in planned.rows] == [alone.spec.memory] * 3
    assert alone.spec.memory > 14 * GIB


def test_what_runs_already_takes_its_memory_from_every_row_of_a_comparison():
    running = ClusterRecord(
        name="calm-otter", spec=ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=4 * GIB)
    )
    alone, beside = (plan(there=there, on=["cpu", "cpu --threads 1"]).rows for there in ((), (running,)))
    assert [a.spec.memory - b.spec.memory for a, b in zip(alone, beside, strict=True)] == pytest.approx(
        [4 * GIB] * 2, rel=0.01
    )


def test_a_row_that_wont_fit_is_named_with_the_blocks_that_would():
    large = {"shape": [50_000, 50_000], "chunks": 40_000, "generator": "RandomState"}
    found = plan(on=("cpu --workers 1 --threads 1 --memory 2GiB",), parameters=large)
    (said,) = (note for note in found.notes if "Won't fit" in note)
    assert said.startswith("cpu --workers 1 --threads 1 --memory 2GiB: Won't fit: needs ")
    assert "chunks=" in said


def test_a_row_that_can_not_be_had_does_not_take_the_others_along():
    planned = plan(on=["cpu", "gpu"])
    assert [row.reason is None for row in planned.rows] == [True, False]
    assert "gpu profile can't be had" in planned.rows[1].reason


def test_clusters_that_compute_in_turn_may_each_have_all_the_memory():
    assert plan(on=["cpu --memory 10GiB", "cpu --memory 10GiB --threads 1"]).mode == "side by side"


def test_a_cluster_that_runs_is_used_as_it_is():
    with pytest.raises(NotFoundError):
        plan(on=["--cluster nobody"])


def test_a_sweep_makes_a_row_of_each_value_and_shares_the_cluster():
    planned = plan(on=["cpu --workers 1"], sweep={"chunks": ["500", "1000"]}, parameters={"size": "64MiB"})
    assert [row.label for row in planned.rows] == ["cpu --workers 1, chunks=500", "cpu --workers 1, chunks=1000"]
    assert len(comparisons.places(planned.rows)) == 1
    assert [row.resolved["chunks"] for row in planned.rows] == [[500, 500], [1000, 1000]]
    assert not any("swept parameter changes them" in note for note in planned.notes)
    drawn = {"size": "64MiB", "generator": "RandomState"}
    planned = plan(on=["cpu --workers 1"], sweep={"chunks": ["500", "1000"]}, parameters=drawn)
    assert any("swept parameter changes them" in note for note in planned.notes)


def test_a_sweep_over_workers_holds_the_threads_still():
    planned = plan(on=["cpu"], sweep={"workers": [1, 2, 4]})
    assert [row.spec.threads for row in planned.rows] == [1, 2, 4]
    assert any("--threads 1 in every row" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": []}, "on is empty"),
        ({"repeats": 0}, "repeats is 0. Give a whole number from 1"),
        ({"warmup": "x"}, "warmup is 'x'"),
        ({"sweep": {"chunks": []}}, "sweep of chunks is empty"),
        ({"sweep": {"frob": [1]}}, "'frob' is no parameter of array_sum"),
        ({"weak": True}, "no option 'weak'"),
        ({"sweep": {"seed": list(range(65))}}, "65 rows"),
        ({"parameters": {"size": "lots"}}, "size of array_sum is 'lots'"),
        ({"settings": "size"}, "isn't KEY=VALUE. Give one such as array.rechunk.threshold=5"),
        ({"size": "1MiB"}, "no option 'size'. Choose among: workload, parameters, on"),
        ({"on": ["tpu"]}, "Unknown profile 'tpu'"),
        ({"workload": "pack_genotypes", "parameters": {"path": "a.bed", "to": "a.zarr"}}, "writes to one path"),
    ],
)
def test_a_request_that_can_not_be_used_says_why(given, said):
    with pytest.raises(BadInputError, match=said):
        plan(**given)


# -- kept


def test_comparisons_are_kept_found_and_forgotten(data_folder):
    comparisons.create(comparison(row("one", times(1))))
    assert comparisons.find("last").id == "compare-array_sum-abcdef"
    assert comparisons.find("abcdef").rows[0].seconds == tuple(times(1))
    with pytest.raises(NotFoundError, match="The latest are compare-array_sum-abcdef"):
        comparisons.find("nobody")
    comparisons.delete("compare-array_sum-abcdef")
    assert comparisons.select() == ()


def test_a_record_that_asked_for_what_is_no_more_is_still_listed(data_folder):
    asked = comparison(row("one", times(1)), request=Request(workload="array_sum"))
    comparisons.create(asked)
    file = comparisons.folder(asked.id) / "record.json"
    file.write_text(file.read_text().replace('"repeats"', '"weak":false,"repeats"'))
    assert '"weak"' in file.read_text()
    assert [each.status for each in comparisons.select()] == ["done"]


def test_one_whose_process_is_gone_is_lost_and_keeps_what_it_measured(data_folder):
    about = {"status": "running", "pid": 2**22 + 1, "place": processes.place()}
    comparisons.create(comparison(row("one", times(1)), **about))
    found = comparisons.get("compare-array_sum-abcdef")
    assert found.status == "lost"
    assert found.rows[0].seconds


def test_a_comparison_on_another_machine_goes_on_in_silence_until_a_person_gives_it_up(data_folder):
    about = {"status": "running", "pid": 1, "pid_created": 1.0, "place": "elsewhere", "node": "node-7"}
    kept = comparisons.create(comparison(row("one", times(1)), **about))
    folders.give_sign_of_life(comparisons.folder(kept.id))
    assert comparisons.get(kept.id) == kept
    file = comparisons.folder(kept.id) / "record.json"
    os.utime(comparisons.folder(kept.id) / "heartbeat", (0, time.time() - 75))
    before = file.read_bytes()
    found = comparisons.get(kept.id)
    assert found.status == "running"
    assert "No sign of life from node-7 for 1 min" in found.error
    assert file.read_bytes() == before
    assert comparisons.cancel(kept.id).status == "lost"


def test_nothing_is_kept_where_nothing_can_be_had(data_folder):
    with pytest.raises(FailedError, match="None of these can be had"):
        submit(read_request({"workload": "array_sum", "on": ["gpu"]}), machine())
    assert comparisons.select() == ()


def test_runs_of_the_past_show_in_what_they_differ(data_folder, capsys):
    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=GIB)
    about = {"workload": "array_sum", "cluster": "calm-otter", "status": "done", "result": {"value": 1.0}}
    cpu = {"cpu": {"model": "Old", "usable": 2}}
    versions = {"dask": "2026.7.1", "numpy": "2.4.6"}
    first = Run(id="array_sum-aaaaaa", spec=spec, seconds=2.0, inventory=cpu, versions=versions, **about)
    newer = {"threads_per_worker": 2}
    second = first.model_copy(
        update={
            "id": "array_sum-bbbbbb",
            "seconds": 1.0,
            "spec": spec.model_copy(update=newer),
            "inventory": {"cpu": {"model": "New", "usable": 2}},
            "versions": versions | {"numpy": "2.5.0"},
        }
    )
    for run in (first, second):
        store.create(run)
    found = summarise(compare_runs(["aaaaaa", "bbbbbb"]))
    assert {(each.kind, each.name): each.values for each in found.differences} == {
        ("spec", "threads_per_worker"): (1, 2),
        ("versions", "numpy"): ("2.4.6", "2.5.0"),
        ("machine", "processor"): ("Old", "New"),
    }
    assert found.rows[1].ratio == 0.5
    assert found.verdict.endswith("Undecided: repeat 3 more times.")
    assert main(["compare", "--runs", "aaaaaa", "bbbbbb", "--markdown"]) == 0
    assert "| versions: numpy | 2.4.6 | 2.5.0 |" in capsys.readouterr().out
    with pytest.raises(BadInputError, match="Give from 2"):
        compare_runs(["aaaaaa"])


def test_runs_of_the_past_are_told_apart_by_the_parameters_in_which_they_differ(data_folder):
    for name, n in (("total-aaaaaa", 400), ("total-bbbbbb", 600)):
        about = {"workload": "total", "cluster": "calm", "status": "done", "seconds": 1.0}
        store.create(Run(id=name, parameters={"n": n, "k": 3}, **about))
    before = read_state(Session(), "/")
    found = summarise(compare_runs(["aaaaaa", "bbbbbb"]))
    assert read_state(Session(), "/")["compared"] != before["compared"]  # Or pages would show it half a minute later.
    assert [row.on for row in found.rows] == ["total-aaaaaa (n=400) on calm", "total-bbbbbb (n=600) on calm"]


def test_runs_that_kept_no_answer_are_not_said_to_have_the_same(data_folder, capsys):
    # One returned 9 000 000 and the other 18 000 000; what is kept of both is that they had nine tasks.
    about = {"workload": WATCHED, "cluster": "calm-otter", "status": "done", "result": {"tasks": 9}}
    for name, given in (("watched-aaaaaa", {"name": "nine"}), ("watched-bbbbbb", {"name": "eighteen"})):
        store.create(Run(id=name, seconds=2.0, parameters=given, **about))
    found = summarise(compare_runs(["aaaaaa", "bbbbbb"]))
    assert found.agree is None
    assert found.agreement == (
        "watched-aaaaaa (nine) on calm-otter and watched-bbbbbb (eighteen) on calm-otter kept no answer, "
        "so there is none to compare."
    )
    assert main(["compare", "--runs", "aaaaaa", "bbbbbb"]) == 0
    said = capsys.readouterr().out
    assert "kept no answer" in said
    assert "the same" not in said


def test_answers_are_compared_where_some_are_kept_and_the_others_named():
    one = Answer("a", "x", {"value": 1.0}, "float64", None)
    found = agreement([one, one._replace(who="b"), one._replace(who="c", result=None)])
    assert found == (True, "All answers are the same. c kept no answer, so there is none to compare.")


def test_the_command_line_shows_saves_and_lists(data_folder, capsys, tmp_path):
    comparisons.create(comparison(row("one", times(6)), row("two", times(3, seed=1))))
    assert main(["runs", "--comparisons"]) == 0
    assert main(["show", "last-comparison"]) == 0
    assert "RELATIVE TIME" in capsys.readouterr().out
    for name in ("table.md", "table.csv", "table.json", "table.html"):
        assert main(["save", "last-comparison", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 100
    assert main(["save", "last-comparison", str(tmp_path / "table.md")]) == 2
    assert main(["save", "last-comparison", str(tmp_path / "table.pdf")]) == 2
    capsys.readouterr()
    assert main(["show", "last-comparison", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agree"] is True
    assert main(["compare", "array_sum", "--runs", "last"]) == 2
    assert main(["compare", "array_sum", "--on", "gpu"]) == 1


# -- the figure


def test_a_comparison_is_one_html_in_tab_notebook_and_page(data_folder):
    found = comparisons.create(comparison(row("one", times(6)), row("<two>", times(3, seed=1))))
    summary = summarise(found)
    shown = summary_html(summary)
    assert summary._repr_html_() == shown
    assert shown in html_of(f"comparison:{found.id}")
    assert shown in page(found, summary)
    assert "&lt;two&gt;" in shown
    assert "times as fast" in shown
    for outside in ("<script", "<link", "src="):
        assert outside not in page(found, summary)


def test_a_line_is_told_in_words():
    told = {
        text: read_line(text).words()
        for text in (
            "cpu",
            "cpu --workers 1 --threads 1",
            "cpu --workers 2 --threads 1 --no-encrypt",
            "cpu --threads 2 --memory 2GiB",
            "numpy",
            "gpu",
            "--cluster calm-otter",
            "slurm --workers 2 --queue long",
            "their-own --workers 1",
        )
    }
    assert list(told.values()) == [
        "CPU",
        "One core",
        "CPU with 2 workers × 1 thread, not encrypted",
        "CPU with 2 threads, memory 2GiB",
        "NumPy",
        "One GPU",
        "calm-otter",
        "SLURM with 2 workers, queue long",
        "their-own with 1 worker",
    ]
    summary = summarise(comparison(row("cpu --workers 2", [1.0])))
    for text in (summary_html(summary), as_markdown(summary)):
        assert "CPU with 2 workers" in text


def test_bars_in_the_sidebar_are_drawn_to_one_scale():
    bars = bars_html(summarise(comparison(row("one", times(6)), row("two", times(3, seed=1)))))
    one, two = (float(share) for share in re.findall(r"width: ([\d.]+)%", bars))
    assert one == pytest.approx(2 * two, abs=4)
    # The longest of all times ends where the scale does.
    assert re.findall(r"right: ([\d.]+)%", bars)[0] == "0.0"


@pytest.mark.parametrize(
    ("sweep", "values"),
    [
        ("workers", r"1,2[\d,]*"),
        ("size", "64 MiB, 128 MiB, 256 MiB"),
        ("method", "workbench,dask"),
        ("persist", "true,false"),
        ("k", "7"),
        ("chunks", "100, 200;"),
        ("config.array.rechunk.threshold", "5"),
        ("n_power_iter", None),  # of another method
        ("save", None),
    ],
)
def test_the_form_sweeps_parameters_and_the_settings_that_stand_in_the_workloads_form(sweep, values, data_folder):
    chosen = {"workload": "compressed_svd", "run.compressed_svd.k": 7, "run.compressed_svd.chunks": "100, 200"}
    settings = {"settings.compressed_svd": "array.rechunk.threshold=5"}
    html = html_of("compare", chosen | settings | {"compare.sweep": sweep})
    found = re.findall(r'<input name="compare\.values\.([^"]*)" value="([^"]*)"', html)
    assert [name for name, _ in found] == ([sweep] if values else [])
    assert all(re.fullmatch(values, value) for _, value in found)
