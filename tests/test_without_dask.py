"""Rows of a comparison without Dask: the same numbers, the same answers, one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import workbench
from tests.test_backend import STANDIN
from workbench.clusters import records
from workbench.errors import BadInputError
from workbench.hardware import inventory
from workbench.runs import store
from workbench.runs.comparing.agreement import Answer, agreement
from workbench.runs.comparing.compare import plan_comparison, read_request
from workbench.runs.submit import finish, submit_alone
from workbench.session import Session
from workbench.workloads import without_dask
from workbench.workloads.builtin import templates
from workbench.workloads.lookup import template

ROOT = Path(__file__).parent.parent
CLUSTER = "cpu --workers 1 --threads 2 --memory 512MiB"
CASES = [
    ("array_sum", {"shape": [600, 500], "chunks": 200, "generator": "tiles"}),
    ("array_sum", {"shape": [600, 500], "chunks": 200, "generator": "RandomState", "dtype": "float32"}),
    ("array_sum", {"shape": [600, 500], "chunks": 200, "generator": "default_rng", "reduction": "mean"}),
    ("transpose_sum", {"shape": [600, 600], "chunks": 200}),
    ("tall_skinny_svd", {"shape": [2000, 20], "persist": True}),
    ("tall_skinny_svd", {"shape": [2000, 20], "method": "dask"}),
    ("compressed_svd", {"shape": [1500, 300], "k": 3, "chunks": 300}),
]


def answers_of(name, parameters):
    """Of a workload with Dask and without, with whether each passed its check."""
    chosen = template(name)
    checked = chosen.validate(parameters, memory=2**30, threads=2)
    result, check = chosen.compute(checked)
    found = without_dask.compute(chosen, checked, "numpy")
    one = Answer("dask", "x", result, checked.resolved["dtype"], check.passed)
    return one, one._replace(who="numpy", result=found.result, passed=found.check().passed), found


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_numpy_alone_gives_the_answer_that_dask_gives(name, parameters):
    one, other, _ = answers_of(name, parameters)
    assert other.passed
    assert agreement([one, other]).agree is True


def test_numpy_alone_decomposes_the_array_in_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(3, 1, (400, 30)))
    for given in ({"k": 2, "tol": 1e-6}, {"center": True}, {"center": True, "k": 2, "tol": 1e-6}):
        one, other, _ = answers_of("svd_of_file", {"path": str(tmp_path / "x.npy"), **given})
        assert agreement([one, other]).agree is True, given
        assert other.passed


def test_an_answer_of_numpy_that_is_wrong_fails_its_check():
    chosen = template("tall_skinny_svd")
    checked = chosen.validate({"shape": [2000, 20]}, memory=2**30, threads=2)
    wrong = chosen.alone._replace(compute=lambda xp, x, given: without_dask._svd(xp, 1.01 * x, given))
    assert without_dask.compute(chosen, checked, "numpy").check().passed
    from dataclasses import replace

    assert not without_dask.compute(replace(chosen, alone=wrong), checked, "numpy").check().passed


def test_cupy_alone_does_the_same_with_its_own_arrays():
    code = (
        "import cupy, numpy as np\n"
        "from workbench.workloads import without_dask\n"
        "from workbench.workloads.lookup import template\n"
        "for name, given in (('array_sum', {'generator': 'RandomState'}), ('tall_skinny_svd', {}),\n"
        "                    ('compressed_svd', {'k': 2})):\n"
        "    chosen = template(name)\n"
        "    checked = chosen.validate({'shape': [2000, 20], **given}, memory=2**30, threads=2, on_gpu=True)\n"
        "    kinds = []\n"
        "    compute = chosen.alone.compute\n"
        "    spied = chosen.alone._replace(compute=lambda xp, x, r: kinds.append(type(x)) or compute(xp, x, r))\n"
        "    object.__setattr__(chosen, 'alone', spied)\n"
        "    found = without_dask.compute(chosen, checked, 'cupy')\n"
        "    assert kinds == [cupy.ndarray], kinds\n"
        "    assert found.check().passed\n"
    )
    env = os.environ | {"PYTHONPATH": f"{STANDIN}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_a_row_beside_clusters_is_measured_by_a_process_that_tells_its_peak(data_folder):
    found = workbench.compare("array_sum", on=["numpy", CLUSTER], parameters={"size": "64MiB"}, repeats=1, warmup=0)
    assert [len(row.seconds.all) for row in found.rows] == [1, 1]
    assert found.rows[0].describe.startswith("one process without Dask")
    assert found.agree is True
    assert records.read_all() == ()
    run = store.get(found.rows[0].runs[0])
    assert (run.cluster, run.status, run.check.passed) == ("numpy", "done", True)
    # Twice the array, and more than a process that has imported NumPy.
    assert 2 * 64 * 2**20 < run.diagnosis.peak.bytes < 2**30


def test_a_run_without_dask_keeps_its_arrays(data_folder):
    asked = read_request({"workload": "tall_skinny_svd", "on": ["numpy"], "parameters": {"shape": [300, 20]}})
    (row,) = plan_comparison(asked, inventory(), ()).rows
    run = finish(submit_alone("tall_skinny_svd", row.parameters, row.spec).id)
    assert (run.status, run.check.passed) == ("done", True)
    assert run.answers.kept == ("u", "s", "v")
    np.testing.assert_allclose(run.arrays["s"][:5], run.result["singular_values"][:5])


def test_what_has_no_form_or_does_not_fit_is_a_row_with_its_reason():
    def reasons(workload, **parameters):
        asked = read_request({"workload": workload, "on": ["numpy"], "parameters": parameters})
        return [row.reason for row in plan_comparison(asked, inventory(), ()).rows]

    assert reasons("array_sum", size="1MiB") == [None]
    (said,) = reasons("array_sum", size="400GiB")
    assert "In one piece it needs 800 GiB" in said
    assert reasons("genotype_pca") == ["genotype_pca has no form without Dask."]
    # Whatever has one is offered one, or says why not.
    assert {each.name for each in templates() if each.alone is None} == {
        "dataframe_join",
        "eofs",
        "genotype_pca",
        "genotype_project",
        "genotype_qc",
        "genotype_relatedness",
        "pack_genotypes",
        "reduce_file",
    }


def test_a_row_without_dask_has_no_workers_to_choose_or_to_sweep():
    def rows(on, **more):
        asked = read_request({"workload": "array_sum", "on": on, "parameters": {"size": "1MiB"}, **more})
        return plan_comparison(asked, inventory(), ()).rows

    with pytest.raises(BadInputError, match="numpy is one process without Dask, and takes no options"):
        rows(["numpy --workers 2"])
    swept = rows(["numpy", "cpu --threads 1"], sweep={"workers": [1, 2]})
    assert [row.on for row in swept] == ["numpy", "cpu --threads 1 --workers 1", "cpu --threads 1 --workers 2"]


def test_without_a_gpu_there_is_no_row_of_cupy():
    asked = read_request({"workload": "array_sum", "on": ["cupy"], "parameters": {"size": "1MiB"}})
    (row,) = plan_comparison(asked, Session().hardware().model_copy(update={"gpus": ()}), ()).rows
    assert row.spec is None
    assert "GPU" in row.reason


def test_what_is_told_beside_an_answer_is_not_compared():
    one = Answer("a", "x", {"value": 1.0, "bandwidth": {"count": 3}, "seconds_to_make": 0.2}, "float64", True)
    other = one._replace(who="b", result={"value": 1.0, "bandwidth": {"count": 2}, "seconds_to_make": 0.3})
    assert agreement([one, other]) == (True, "All answers are the same.")
    assert agreement([one, other._replace(result={**other.result, "value": 2.0})]).agree is False


def test_an_exact_answer_lies_within_the_certificate_of_another():
    near = {"singular_values": [10.0, 5.0], "certificate": {"of_largest": [1e-9, 1e-3]}}
    one = Answer("a", "x", near, "float64", True)
    exact = one._replace(who="b", result={"singular_values": [10.0, 5.005]})
    assert agreement([one, exact]) == (True, "All answers are the same as far as their certificates reach.")
    assert agreement([one, exact._replace(result={"singular_values": [10.0, 5.02]})]).agree is False
    # Two with certificates come from the same steps: rounding alone may tell them apart.
    twice = one._replace(who="b", result={**near, "singular_values": [10.0, 5.005]})
    assert agreement([one, twice]).agree is False
