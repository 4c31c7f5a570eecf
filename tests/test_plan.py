"""From a choice to a spec, and the sentences that explain it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import dask
import pytest

from tests.test_budget import GIB, machine
from workbench.clusters.choices import ClusterChoices, properties
from workbench.clusters.plan import plan
from workbench.clusters.profiles.cpu import MEASURED
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, MissingError
from workbench.hardware import Cpu, Inventory


def shape(usable: int, **choices: Any) -> tuple[int, int]:
    spec = plan("cpu", machine(usable=usable, memory=1024 * GIB), **choices)
    return spec.n_workers, spec.threads_per_worker


def why(inventory: Inventory, **choices: Any) -> str:
    return " ".join(plan("cpu", inventory, **choices).why)


def test_without_choices_few_processes_keep_all_cores_busy_with_at_most_eight_threads_each() -> None:
    shapes = {n: shape(n) for n in (1, 2, 4, 8, 10, 12, 16, 24, 80, 96)}
    assert shapes == {
        1: (1, 1),
        2: (1, 2),
        4: (1, 4),
        8: (1, 8),
        10: (2, 5),
        12: (2, 6),
        16: (2, 8),
        24: (3, 8),
        80: (10, 8),
        96: (12, 8),
    }


def test_for_every_number_of_cores_the_split_uses_nearly_all_and_never_more() -> None:
    for usable in range(1, 513):
        n_workers, threads = shape(usable)
        assert threads <= 8
        assert usable - 3 <= n_workers * threads <= usable, usable


def test_one_core_all_threads_all_processes_and_a_mix_are_reachable() -> None:
    assert shape(80, n_workers=1, threads_per_worker=1) == (1, 1)
    assert shape(80, n_workers=1) == (1, 80)
    assert shape(80, threads_per_worker=1) == (80, 1)
    assert shape(80, n_workers=10) == (10, 8)
    assert shape(80, threads_per_worker=8) == (10, 8)


def test_one_that_is_given_is_kept_where_it_is_more_than_the_cores() -> None:
    assert shape(4, n_workers=6) == (6, 1)
    assert shape(4, threads_per_worker=9) == (1, 9)


def test_the_measured_sentence_says_what_the_results_say() -> None:
    date = re.search(r"\d{4}-\d\d-\d\d", MEASURED)
    assert date is not None
    results = (Path(__file__).parent / "benchmarks" / "results" / f"split-{date[0]}.md").read_text()
    rows = re.findall(r"^\| `(.+?)` \| ([\d.]+ s) .*?\| ([\d.]+ s) ", results, flags=re.MULTILINE)
    assert len(rows) == 3
    for _, threads, processes in rows:
        assert MEASURED.index(threads) < MEASURED.index(processes)
    assert "| work | 1 × 2 | 2 × 1 |" in results


def test_what_was_measured_is_told_apart_from_what_is_a_rule() -> None:
    two, four, eighty = (why(machine(usable=n)) for n in (2, 4, 80))
    assert MEASURED in two
    assert "rule" not in two
    assert f"{MEASURED}; for more cores it is a rule, not measured." in four
    assert "10 processes of 8 threads" in eighty
    assert "was not measured here" in eighty


def test_the_sentences_name_cores_memory_and_where_the_memory_comes_from() -> None:
    sentences = plan("cpu", machine(usable=8, memory=20 * GIB), n_workers=3, promised=3 * GIB).why
    assert sentences == (
        "8 cores may be used.",
        "3 processes of 2 threads: processes as chosen, 8 usable cores shared out.",
        "2 usable cores of 8 left to the scheduler, Jupyter and others.",
        "10 GiB for all workers together, 3.33 GiB for each: two thirds of what the budget leaves (20 GiB of "
        "memory, less 2 GiB in reserve, less 3 GiB given to running clusters), so that it can grow or another "
        "cluster start.",
    )


def test_cores_that_may_not_be_used_are_explained_by_affinity_and_quota() -> None:
    limited = Cpu(model=None, physical_cores=None, threads=64, usable=4, affinity=8, quota=4.5)
    told = why(machine().model_copy(update={"cpu": limited}))
    assert (
        "4 cores of 64 may be used by this process: its affinity names 8 and its control group grants 4.5 CPUs." in told
    )


def test_a_choice_says_what_is_allowed() -> None:
    assert all("allowed" in about for about in properties().values())


def test_memory_of_all_workers_together_is_shared_out() -> None:
    spec = plan("cpu", machine(), n_workers=4, memory="8GiB")
    assert (spec.memory_limit, spec.memory) == (2 * GIB, 8 * GIB)
    assert "8 GiB for all workers together, 2 GiB for each, as chosen. The budget leaves 18 GiB." in spec.why


def test_memory_in_bytes_and_as_text_are_the_same() -> None:
    assert plan("cpu", machine(), memory=3 * GIB) == plan("cpu", machine(), memory="3 GiB")


def test_more_threads_than_cores_and_more_memory_than_is_left_are_warned_of() -> None:
    told = why(machine(usable=2), n_workers=2, threads_per_worker=4, memory="21GiB")
    assert "Warning: 8 threads for 2 usable cores" in told
    assert "Warning: the budget leaves 18 GiB" in told
    assert "so this has to be forced" in told
    assert "Warning: only 20 GiB is free at this moment" in told
    assert "Warning: the budget leaves 18 GiB" in why(machine(), memory="19GiB")
    assert "Warning" not in why(machine(usable=2), n_workers=2, threads_per_worker=1, memory="8GiB")


def test_with_no_memory_left_and_none_chosen_the_plan_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConflictError, match=r"Too little memory is left .*less 19 GiB given"):
        plan("cpu", machine(), promised=19 * GIB)
    assert plan("cpu", machine(), promised=19 * GIB, memory="2GiB").memory == 2 * GIB


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        (
            {"n_workers": 2, "memory": "200MiB"},
            "memory is 200 MiB, which is 100 MiB for each worker, and a worker needs 128 MiB. "
            "Give at least 256 MiB of memory, or at most 1 worker.",
        ),
        (
            {"memory": 1},
            "memory is 1 B, which is 1 B for each worker, and a worker needs 128 MiB. Give at least 128 MiB of memory.",
        ),
        (
            {"n_workers": 1000},
            "n_workers is 1000, which is 18.4 MiB for each worker, and a worker needs 128 MiB. "
            "Give at most 144 workers.",
        ),
    ],
)
def test_too_little_memory_for_a_worker_is_refused(choices: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError) as refused:
        plan("cpu", machine(), **choices)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("name", ["n_workers", "threads_per_worker"])
@pytest.mark.parametrize("given", [0, -2, "x", "1.5", 2.5, float("nan"), float("inf"), True, [1], {}])
def test_a_count_that_is_none_is_refused_by_name(name: str, given: Any) -> None:
    with pytest.raises(BadInputError) as refused:
        plan("cpu", machine(), **{name: given})
    assert str(refused.value).startswith(f"{name} is {given!r}. Give a whole number")


def test_more_threads_than_a_system_bears_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"threads_per_worker is 100000\. Give a whole number .* from 1 to 1024"):
        plan("cpu", machine(), threads_per_worker=100_000)


@pytest.mark.parametrize("given", [0, -1, "-1GiB", "lots", "8 bananas", float("nan"), "1e999", True, [1], "nanGiB"])
def test_a_memory_that_is_none_is_refused_as_it_was_given(given: Any) -> None:
    with pytest.raises(BadInputError) as refused:
        plan("cpu", machine(), memory=given)
    assert str(refused.value) == (
        f"memory is {given!r}. Give the memory of all workers together, in bytes or as a size such as '8GiB'."
    )


@pytest.mark.parametrize("given", [0, -1, "soon", "0s", float("nan"), float("inf"), True, [1], "5 parsecs"])
def test_an_idle_timeout_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(BadInputError, match="Give a duration above 0 such as '90s', '10m' or '1h', or 'never'"):
        plan("cpu", machine(), idle_timeout=given)


@pytest.mark.parametrize(("name", "given"), [("encrypt", "perhaps"), ("python", 3)])
def test_other_choices_that_cannot_be_used_are_refused_by_name(name: str, given: Any) -> None:
    with pytest.raises(BadInputError, match=rf"^{name} is {given!r}\. Give "):
        plan("cpu", machine(), **{name: given})


def test_text_from_a_command_line_and_empty_fields_of_a_form_are_understood() -> None:
    empty = {"n_workers": "", "threads_per_worker": " ", "memory": "", "encrypt": "", "python": "", "idle_timeout": ""}
    assert plan("cpu", machine(), **empty) == plan("cpu", machine())
    spec = plan("cpu", machine(), n_workers="2", threads_per_worker="3", encrypt="no", idle_timeout="10m")
    assert (spec.n_workers, spec.threads_per_worker, spec.protocol, spec.idle_timeout) == (2, 3, "tcp", 600.0)


def test_encryption_and_lease_come_from_the_settings_unless_chosen() -> None:
    assert plan("cpu", machine()).protocol == "tls"
    assert plan("cpu", machine()).idle_timeout == 3600.0
    with dask.config.set({"workbench.encrypt": False, "workbench.idle-timeout": None}):
        assert plan("cpu", machine()).protocol == "tcp"
        assert plan("cpu", machine()).idle_timeout is None
        assert plan("cpu", machine(), encrypt=True).protocol == "tls"
        assert plan("cpu", machine(), idle_timeout="2h").idle_timeout == 7200.0
    assert plan("cpu", machine(), idle_timeout="never").idle_timeout is None


def test_the_interpreter_keeps_its_links_and_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert plan("cpu", machine(), python=link).python == str(link)
    assert plan("cpu", machine(), python="./python").python == str(link)
    assert plan("cpu", machine()).python is None


def test_an_unknown_profile_says_which_there_are_and_one_that_cannot_be_had_says_why() -> None:
    with pytest.raises(BadInputError, match=r"^Unknown profile 'tpu'. Choose one of: cpu, gpu, .*\.$"):
        plan("tpu", machine())
    with pytest.raises(MissingError, match=r"^The ucx profile can't be had here\. Needs distributed-ucxx: pip install"):
        plan("ucx", machine())


def test_a_plan_is_json_both_ways() -> None:
    spec = plan("cpu", machine(), n_workers=2)
    again = ClusterSpec.model_validate_json(spec.model_dump_json())
    assert (again, again.why) == (spec, spec.why)


def test_the_schema_of_the_choices_can_draw_a_form() -> None:
    properties = ClusterChoices.model_json_schema()["properties"]
    assert list(properties) == ["n_workers", "threads_per_worker", "memory", "encrypt", "idle_timeout", "python"]
    assert all({"title", "description", "type"} <= set(field) for field in properties.values())
    assert properties["n_workers"]["minimum"] == 1
    assert properties["memory"]["unit"] == "bytes"
    assert properties["idle_timeout"]["unit"] == "seconds"
    assert all("default" not in field for field in properties.values())
