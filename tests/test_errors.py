"""The sentences in which errors speak."""

from __future__ import annotations

import pickle

import pytest

from workbench.errors import BadInputError, NotFoundError
from workbench.workloads.registry import template


def test_a_name_of_thousands_of_characters_is_repeated_in_part_only() -> None:
    with pytest.raises(NotFoundError) as refused:
        template("x" * 5000)
    told = str(refused.value)
    assert told.startswith("Unknown workload 'xxx")
    assert "Choose one of: " in told
    assert "x" * 100 not in told


def test_a_path_is_told_whole_and_an_error_travels_between_processes() -> None:
    path = "/somebody/s/very/long/path" * 8
    error = pickle.loads(pickle.dumps(BadInputError(f"{path} is missing.")))
    assert str(error) == f"{path} is missing."
