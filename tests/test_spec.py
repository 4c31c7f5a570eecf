from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from pydantic import ValidationError

from workbench.clusters.plan import explained
from workbench.clusters.profiles import registered
from workbench.clusters.spec import ClusterSpec, measured
from workbench.errors import FailedError

GIB = 2**30


def spec(**fields: Any) -> ClusterSpec:
    return ClusterSpec(**{"profile": "cpu", "n_workers": 2, "threads_per_worker": 3, "memory_limit": GIB, **fields})


def test_unknown_sizes_are_none_and_no_number_stands_for_them() -> None:
    spec = ClusterSpec(n_workers=2, threads_per_worker=None, memory_limit=None, profile="ssh", elsewhere=True)
    assert not spec.is_known
    assert spec.chosen(["memory", "n_workers", "threads_per_worker"]) == {"n_workers": 2}
    assert spec.describe() == "2 workers, sized by their machines"
    with pytest.raises(FailedError, match="memory of its workers is known once they have arrived"):
        _ = spec.memory
    with pytest.raises(FailedError, match="number of threads of its workers is known once they have arrived"):
        _ = spec.threads
    workers = [{"nthreads": 4, "memory_limit": 2**30}, {"nthreads": 2, "memory_limit": 0}]
    found = measured(spec, workers, 2**30)
    assert (found.n_workers, found.threads_per_worker, found.memory_limit) == (2, 2, 2**29)


def test_json_gives_the_same_spec_back() -> None:
    made = spec(python="/opt/python", idle_timeout=None, devices=("GPU-1", "GPU-2"), why=("Because.",), profile="gpus")
    again = ClusterSpec.model_validate_json(made.model_dump_json())
    assert again == made
    assert again.why == made.why


def test_a_spec_is_frozen_and_can_be_a_key() -> None:
    with pytest.raises(ValidationError):
        spec().n_workers = 3  # type: ignore[misc]
    assert len({spec(), spec(), spec(n_workers=3)}) == 2


def test_the_reasons_take_no_part_in_comparison() -> None:
    assert spec(why=("One.",)) == spec(why=("Another.",))
    assert hash(spec(why=("One.",))) == hash(spec(why=("Another.",)))
    assert spec() != spec(threads_per_worker=4)


def test_memory_and_threads_are_those_of_all_workers() -> None:
    assert (spec().memory, spec().threads) == (2 * GIB, 6)


def test_a_spec_describes_itself_in_one_line() -> None:
    assert spec().describe() == "2 workers × 3 threads, 2 GiB (1 GiB each)"
    tcp = spec(n_workers=1, threads_per_worker=1, protocol="tcp")
    assert tcp.describe() == "1 worker × 1 thread, 1 GiB, not encrypted"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_workers", -2),
        ("n_workers", 1.5),
        ("n_workers", True),
        ("n_workers", "2"),
        ("threads_per_worker", 0),
        ("memory_limit", 0),
        ("memory_limit", "1GiB"),
        ("protocol", "tcp://"),
        ("profile", "A TPU"),
        ("idle_timeout", 0),
        ("idle_timeout", math.inf),
        ("idle_timeout", math.nan),
    ],
)
def test_a_bad_field_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        spec(**{field: value})


def test_json_of_a_spec_of_another_version_still_reads() -> None:
    old = '{"profile": "cpu", "n_workers": 2, "threads_per_worker": 3, "memory_limit": 1073741824, "ucx_tls": null}'
    assert ClusterSpec.model_validate_json(old) == spec()


# What the code does is tested with real processes, in test_host.py.


@pytest.mark.parametrize("made", [spec(), spec(protocol="tcp"), spec(python="/opt/my env/bin/python")])
def test_the_code_is_dask_alone(made: ClusterSpec) -> None:
    imported = [
        node for node in ast.walk(ast.parse(explained(made).code)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert {str(getattr(node, "module", "")).split(".")[0] for node in imported} <= {"dask", "distributed"}
    assert "workbench" not in explained(made).code


def test_the_code_encrypts_only_when_the_spec_does() -> None:
    assert "Security.temporary()" in explained(spec()).code
    assert "Security" not in explained(spec(protocol="tcp")).code


def test_the_code_names_the_python_it_is_for() -> None:
    assert explained(spec(python="/opt/bin/python")).code.startswith("# Run with: /opt/bin/python\n")


ODD = '\U0001f600 "it\'s" \\'

QUEUED = {"walltime": 60, "queue": ODD, "prologue": [ODD], "directives": [ODD]}

AS_CHOSEN: dict[str, dict[str, Any]] = {
    "cpu": {},
    "gpu": {"devices": ("GPU-1",), "device_memory_limit": GIB},
    "gpus": {"devices": ("GPU-1", "GPU-2"), "device_memory_limit": GIB, "rmm_pool_size": GIB, "cupy": True},
    "ucx": {"protocol": "ucx", "options": {"ucx_tls": "tcp"}},
    "address": {"protocol": "tls", "options": {"address": "tls://far:8786", "ca": ODD, "cert": ODD, "key": ODD}},
    "gateway": {
        "options": {"address": "https://far", "auth": "basic", "cluster_options": {"a": True, "b": None, "c": [ODD]}}
    },
    "kubernetes": {"options": {"image": ODD, "namespace": ODD}},
    "ssh": {"options": {"hosts": ["a", "b"], "user": ODD, "key": ODD, "remote_python": ODD}},
    "lsf": {"options": QUEUED},
    "pbs": {"options": QUEUED},
    "sge": {"options": QUEUED | {"scheduler": "job"}},
    "slurm": {"options": QUEUED, "protocol": "tcp"},
}


@pytest.mark.parametrize("name", sorted(registered()))
def test_the_code_of_each_profile_is_python_and_holds_what_was_chosen(name: str) -> None:
    code = explained(spec(profile=name, **AS_CHOSEN[name])).code
    nodes = [*ast.walk(compile(code, name, "exec", ast.PyCF_ONLY_AST))]
    # Of JSON, which would fail only when it runs.
    assert not {"true", "false", "null"} & {node.id for node in nodes if isinstance(node, ast.Name)}
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    assert name in ("cpu", "gpu", "gpus", "ucx") or any(ODD in str(each) for each in values)
    assert name != "gateway" or {True, None} <= {*values}
