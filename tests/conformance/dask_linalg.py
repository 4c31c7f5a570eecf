"""Dask's tests of its `svd` and `svd_compressed`, asked of ours."""

from __future__ import annotations

from typing import Any

import dask.array.linalg
import pytest

from tests.conformance import keep, name_what_does_not_apply
from workbench import linalg

# `da.linalg.norm` calls svd for some orders. Of 32 shapes of a compressed SVD the least and the most are enough, and so
# is one type for the signs.
CALLS_ONE = r"test_(?!svd_compressed_shapes\[.*-1[05]|svd_flip_correction\[f8)(\w*svd|norm_2dim).*"

DOES_NOT_APPLY = {
    r"test_svd_compressed_compute\[.*": "The passes are made at once, whether or not `compute` says so.",
    r"test_svd_incompatible_chunking": "Blocks along both axes are joined, with a warning, and not refused.",
}

dask.array.linalg.svd = linalg.svd
dask.array.linalg.svd_compressed = linalg.svd_compressed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: a mark of Dask's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    keep(config, items, CALLS_ONE)
    name_what_does_not_apply(items, DOES_NOT_APPLY)
