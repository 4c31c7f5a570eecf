from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests import extras

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="RAPIDS has wheels for Linux only."),
    pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="uv, which installs, isn't here: make install"),
]


def packages_of(extra: str) -> list[str]:
    try:
        return extras.resolved(extra)
    except extras.NoIndexError as err:
        pytest.skip(f"No package index can be asked: {err}")


@pytest.mark.parametrize("major", [12, 13])
def test_each_extra_for_cuda_brings_what_serialises_a_block_and_what_a_pool_needs(major: int) -> None:
    names = {package.partition("==")[0] for package in packages_of(f"cuda{major}")}
    assert names >= {"numba", "numba-cuda", f"rmm-cu{major}", f"cupy-cuda{major}x", "dask-cuda", "distributed"}


def test_with_the_extra_alone_a_block_of_cupy_can_be_spilled_and_travel(tmp_path: Path) -> None:
    assert extras.answers(extras.light(packages_of("cuda13")), tmp_path / "empty") == extras.ANSWERS
