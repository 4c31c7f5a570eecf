"""Other projects' tests of their functions pass with ours, apart from the exceptions in `tests/conformance`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import outcome

NEITHER = {"deselected", "skipped", "warning", "warnings"}


@pytest.mark.timeout(660)
def test_svds_pass_dasks_own_tests(tmp_path: Path) -> None:
    found = outcome("dask_linalg", "dask.array.tests.test_linalg", tmp_path)
    assert found.keys() <= {"passed", "xfailed", *NEITHER}, found
    assert found["passed"] >= 85
    assert found["xfailed"] == 3


@pytest.mark.timeout(660)
def test_pca_passes_scikit_learns_own_tests(tmp_path: Path) -> None:
    found = outcome("sklearn_pca", "sklearn.decomposition.tests.test_pca", tmp_path, SKLEARN_RUN_FLOAT32_TESTS="1")
    assert found.keys() <= {"passed", "xfailed", *NEITHER}, found
    assert found["passed"] >= 35
    assert found["xfailed"] == 13
