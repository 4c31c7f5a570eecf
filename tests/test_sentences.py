"""No two sentences of a comparison disagree, whatever was measured: hundreds of random ones, as they are shown."""

from __future__ import annotations

import math
import random
import re
from functools import partial

import pytest

from tests.test_compare import GIB, comparison, row
from workbench.runs.comparing.comparisons import Request
from workbench.runs.comparing.html import bars_html
from workbench.runs.comparing.table import as_markdown, cells, judged_text, remarks, summarise
from workbench.runs.statistics import compared, spread

NUMBER = r"(\d[\d.]*(?:e[+-]\d+)?|inf)"
RANGE = re.compile(rf"{NUMBER}(?: %)? \({NUMBER} (?:to|–) {NUMBER}\)")


def measured(source, middle):
    """Return times of one row: as many as requested, noisy, sometimes with an outlier."""
    noise = source.choice((0.0, 0.003, 0.02, 0.1, 0.4))
    found = [middle * math.exp(source.gauss(0, noise)) for _ in range(source.choice((1, 2, 3, 4, 5, 5, 6, 9)))]
    if source.random() < 0.2:
        found[source.randrange(len(found))] *= source.choice((0.3, 1.8, 4))
    return found


def random_comparison(seed):
    """Return a possible comparison, and its rows on cores and on GPUs that did the same work."""
    source = random.Random(seed)
    serial, parallel = source.choice((0, 0.2, 2)), source.choice((0.3, 4, 8))
    cores = source.sample((1, 2, 3, 4, 8), source.randint(0, 4))
    # Real times follow no simple law: some rows are off, and more cores may take longer.
    rows = [
        row(
            f"cpu --threads {n}", measured(source, (serial + parallel / n) * source.choice((1, 1, 1.3, 0.7))), threads=n
        )
        for n in cores
    ]
    for n in range(source.randint(0, 2)):
        middle = (serial + parallel / source.choice((0.4, 1, 2, 3.3, 20))) * source.choice((1, 1.01, 0.5))
        rows.append(row(f"gpu --devices {n}", measured(source, middle), devices=(f"GPU-{n}",)))
    if source.random() < 0.15:
        rows.append(row("cpu --workers 9", [], reason="It can't be had."))
    source.shuffle(rows)
    energy = [each.model_copy(update={"samples": tuple(_warm(one) for one in each.samples)}) for each in rows]
    fields = {}
    if source.random() < 0.5:
        fields["request"] = Request(workload="array_sum", sweep={"threads": (1, 2)})
    if source.random() < 0.1:
        energy = [each.model_copy(update={"workload": source.choice(("array_sum", "svd"))}) for each in energy]
    return comparison(*energy, **fields)


def _warm(sample):
    return sample.model_copy(update={"energy": 5.0})


def judged(seconds, reference):
    """Return the verdict from the times alone, which all messages must share."""
    return compared(dict(enumerate(seconds)), dict(enumerate(reference)), paired=True).difference


def everything_shown(found, summary):
    table = [text for line in cells(summary)[1] for text in line]
    return [summary.verdict, *remarks(summary), *table, as_markdown(summary), bars_html(summary)]


@pytest.mark.parametrize("part", range(4))
def test_no_two_sentences_of_a_comparison_disagree(part):
    for seed in range(100 * part, 100 * (part + 1)):
        found = random_comparison(seed)
        summary = summarise(found)
        texts = everything_shown(found, summary)
        for check in (ranges_hold_their_estimates, rows_agree, order_agrees, curves_agree):
            check(found, summary, texts, f"comparison {seed}: {summary.verdict}")


def ranges_hold_their_estimates(found, summary, texts, told):
    for text in texts:
        for middle, low, high in RANGE.findall(text):
            assert float(low) <= float(middle) <= float(high), (text, told)


def rows_agree(found, summary, texts, told):
    there = [(each, line) for each, line in zip(found.rows, summary.rows, strict=True) if line.seconds]
    bars = {line.on: judged_text(line) for _, line in there}
    header, body = cells(summary)
    for index, (each, line) in enumerate(there):
        alike = each.workload == there[0][0].workload
        expected = None if index == 0 or not alike else judged(each.seconds, there[0][0].seconds)
        assert line.difference == expected, told
        table = dict(zip(header, body[summary.rows.index(line)], strict=True))
        shown = (table.get("relative time", ""), bars[line.on])
        assert all(("equal within 5 %" in text) == (expected == "equal") for text in shown), (shown, told)
        assert all(("undecided" in text) == (expected == "undecided") for text in shown), (shown, told)
        assert ("times as fast" in bars[line.on]) == (expected == "faster"), told
        assert ("times as long" in bars[line.on]) == (expected == "slower"), told
        if expected in ("faster", "slower", "equal"):
            ends = [float(text) for text in re.findall(NUMBER, shown[0])][1:3]
            assert expected == "equal" or not ends[0] <= 1 <= ends[1], (shown, told)
            assert expected != "equal" or 0.95 <= ends[0] <= ends[1] <= 1.05, (shown, told)
        assert line.bytes_per_second * line.seconds.median == pytest.approx(GIB), told
        assert (line.energy is not None) == bool(each.spec.devices), told


def order_agrees(found, summary, texts, told):
    there = [(each, line) for each, line in zip(found.rows, summary.rows, strict=True) if line.seconds]
    verdict = summary.verdict
    claimed = re.findall(r"(\S+ --\w+ \d+) is the fastest", verdict)
    assert len(claimed) <= 1, told
    several = len({each.workload for each, _ in there}) > 1
    words = ("fastest", "faster", "slower", "Equal", "times as")
    if several:
        assert not any(word in verdict for word in words), told
        return
    for name in claimed:
        best = next(each for each, line in there if line.on == name)
        assert all(judged(best.seconds, each.seconds) == "faster" for each, _ in there if each is not best), told
        assert spread(best.seconds).median == min(line.seconds.median for _, line in there), told
        assert "is the fastest: " + name not in verdict, told
    pairs = [judged(a.seconds, b.seconds) for a, _ in there for b, _ in there if a is not b]
    if verdict.startswith("Equal within 5 %,"):
        assert set(pairs) == {"equal"}, told
        assert not any(word in verdict for word in words[:3]), told
    if "undecided" in pairs and "faster" not in pairs and not summary.scaling:
        assert not claimed, told
        assert "which of these" not in verdict, told
    for names in re.findall(r"Equal within 5 %: ([^.]*)\.", verdict):
        reference, *others = (next(each for each, line in there if line.title == name) for name in names.split(", "))
        assert all(judged(other.seconds, reference.seconds) == "equal" for other in others), told


def curves_agree(found, summary, texts, told):
    for curve in summary.scaling:
        first = curve.points[0]
        by_cores = {each.spec.threads: each for each in found.rows if each.seconds and not each.spec.devices}
        judge = partial(judged, reference=by_cores[first.cores].seconds)
        stands = [judge(by_cores[point.cores].seconds) for point in curve.points[1:]]
        for point, difference in zip(curve.points[1:], stands, strict=True):
            gain = point.cores / first.cores
            assert point.speedup == pytest.approx(gain * point.efficiency), told
            if point.low is not None and difference == "equal":
                assert point.low * gain <= 1 <= point.high * gain, told
            if difference in ("faster", "slower"):
                assert (point.efficiency * gain > 1) == (difference == "faster"), told


def test_what_comes_of_simulated_gpus_is_marked_in_every_face(capsys):
    from workbench.figures.report import report_html
    from workbench.runs.run import Run
    from workbench.terminal import show_run
    from workbench.views.runs import _run as in_view

    gpu = row("gpu", [1.0], devices=("GPU-1",))
    machine = {"cpu": {}, "gpus": [{"name": "SIMULATED GPU 0", "uuid": "GPU-1", "simulated": True}]}
    fields = {"workload": "array_sum", "cluster": "c", "status": "done", "seconds": 1.0, "result": {"value": 1.5}}
    run = Run(id="r", spec=gpu.spec, inventory=machine, **fields)
    pages = (
        in_view(run.model_dump(mode="json"), {"array_sum": "Sum or mean of an array"}, set(), None),
        report_html(run, None),
    )
    assert all("SIMULATED · Sum or mean of an array" in text for text in pages)
    assert run.model_dump(mode="json")["simulated"] is True
    show_run(run)
    assert "SIMULATED" in capsys.readouterr().out
    found = comparison(gpu, row("cpu", [2.0]), inventory=machine)
    assert (found.title, summarise(found).title) == ("SIMULATED · Sum or mean of an array",) * 2
    on_cores = run.model_copy(update={"spec": row("cpu", [1.0]).spec})
    assert not on_cores.simulated


@pytest.mark.parametrize("seed", range(5))
def test_no_bar_goes_backwards_while_tasks_are_added(seed):
    from rich import progress as rich

    from workbench.runs.run import Count, Progress, Run
    from workbench.terminal import progress as in_terminal
    from workbench.views.runs import progress as in_view

    chance, told = random.Random(seed), Progress()
    counts = dict.fromkeys("ab", Count())
    run = Run(id="r", workload="array_sum", cluster="c", status="running")
    bar = rich.Progress(disable=True)
    shares = {"view": [], "terminal": []}
    with in_terminal(run, bar) as on_change:
        for _ in range(40):
            name = chance.choice("ab")
            total = counts[name].total + (chance.random() < 0.1) * chance.randrange(9)
            counts[name] = Count(done=chance.randint(counts[name].done, total), total=total)
            done, total = (sum(getattr(each, what) for each in counts.values()) for what in ("done", "total"))
            told = Progress(done=done, total=total, by_name=dict(counts)).after(told)
            shown = run.model_copy(update={"progress": told})
            on_change(shown)
            assert bar.tasks[0].fields["words"] == (told.words() if total else "")
            shares["terminal"].append([bar.tasks[0].percentage] if bar.tasks[0].total else [])
            text = in_view(shown.model_dump(mode="json"))
            assert not total or told.words() in text
            shares["view"].append([float(each) for each in re.findall(r"width: ([0-9.]+)%", text)])
    for drawn in shares.values():
        held = [0.0]
        for now in drawn:
            assert all(share >= before for share, before in zip(now, held, strict=False))
            # A bar that is taken away because nobody knows the total stays away.
            held = now or ([math.inf] if any(held) else held)
        assert any(drawn)


def test_progress_of_several_passes_names_no_total_that_grows_and_no_number_of_passes_that_is_guessed():
    from workbench.runs.run import Progress, Run
    from workbench.session import Session
    from workbench.views.runs import progress as in_view

    found = Session().forecast("compressed_svd", {"size": "64MiB", "method": "workbench"})
    assert "at most 25 times, until the accuracy" in found.sentence
    run = Run(id="r", workload="compressed_svd", cluster="c", status="running", needs=found.needs)
    for done, total, passes in ((303, 312, 0), (572, 636, 4)):
        told = Progress(done=done, total=total, passes=passes, more=True)
        shown = run.model_copy(update={"progress": told})
        text = in_view(shown.model_dump(mode="json"))
        expected = (
            f"Pass 4: {done} tasks done; number of passes not known yet"
            if passes
            else f"{done} tasks done; more follow"
        )
        assert expected in text
        assert str(total) not in text
    once = run.model_copy(update={"progress": Progress(done=1, total=4)})
    assert "1 of 4" in in_view(once.model_dump(mode="json"))


def test_an_ended_run_says_why_in_few_lines(capsys):
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.facts import facts
    from workbench.runs.run import Progress, Run
    from workbench.terminal import show_run

    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=2**30)
    spec = spec.model_copy(update={"why": ("2 cores may be used.",), "code": "from dask import x\n"})
    failed = Run(id="r-1", workload="w", cluster="c", status="failed", error="No such file.", spec=spec)
    failed = failed.model_copy(update={"progress": Progress(done=0, total=3, more=True)})
    show_run(failed)
    printed = capsys.readouterr().out
    assert "workbench show r-1 --code" in printed
    assert "2 cores may be used" not in printed
    assert "from dask" not in printed
    assert "0 tasks done\n" in re.sub(" +\n", "\n", printed)
    cancelled = facts(failed.model_copy(update={"status": "cancelled", "error": "Cancelled before it began."}))
    assert [(each.label, each.status) for each in cancelled if each.group == "error"] == [("Reason", "warning")]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(3.9, "off by 3 %"), (19.0, "took 5 times as long"), (0.38, "was 10 times as fast")],
)
def test_a_time_far_from_its_forecast_is_given_as_a_factor(seconds, expected):
    from workbench.runs.facts import facts
    from workbench.runs.run import Run

    forecast = {"verdict": "fits", "basis": "history", "seconds": {"low": 3.8, "high": 3.8}}
    run = Run(id="r", workload="w", cluster="c", status="done", seconds=seconds, forecast=forecast)
    assert next(each.text for each in facts(run) if each.label == "Forecast").endswith(expected)


def test_singular_values_end_with_a_digit():
    from workbench.runs.singular_values import values

    found = values({"singular_values": [253220.64, 7.5]})
    assert found is not None
    assert [row[1] for row in found.rows] == ["253221", "7.50000"]
