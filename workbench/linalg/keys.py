"""Keys of tasks: either all that a task's value depends on is in its key, or no other call has it.

A scheduler computes tasks of one key once and gives their value to whoever asks for the key: to another client, another
run, or another array in the same `dask.compute`. A key that leaves out something gives one caller the answer of
another, without an error. So every name that this package gives to a graph is made here, in one of two ways:

fresh
    What is computed at once and by one call alone: the passes over an array. And what is read from outside, files and
    memory: nothing cheap tells whether they are still as they were at the last call.
lasting
    What stays lazy and is a function of its inputs: equal names for equal values, so that two graphs with the same part
    compute it once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

from dask.base import tokenize


def fresh(what: str) -> str:
    """A name for tasks of this call alone."""
    return f"{what}-{uuid.uuid4().hex}"


def in_pass(what: str, number: int) -> str:
    """Return what the tasks are called that go through all of an array for the `number`-th time."""
    return f"{what}-pass-{number}"


def pass_in(name: str) -> int:
    """The number of the pass that `fresh(in_pass(…))` named, 0 where it is the name of something else."""
    found = re.fullmatch(r".*-pass-(\d+)-[0-9a-f]{32}", name)
    return int(found[1]) if found else 0


def lasting(what: str, *inputs: Any) -> str:
    """A name for what follows from `inputs`: they have to hold all that the values depend on."""
    return f"{what}-{tokenize(*inputs)}"


def tree(
    graph: dict[Any, Any], keys: list[Any], fan_in: int, add: Callable[[list[Any]], Any], named: Callable[[int], Any]
) -> list[list[Any]]:
    """`keys` and those of their sums, level by level up to one: `add` of so many of the level below, named by level."""
    levels = [keys]
    while len(levels[-1]) > 1 or len(levels) == 1:
        groups = [levels[-1][i : i + fan_in] for i in range(0, len(levels[-1]), fan_in)]
        sums = [(*named(len(levels)), i) for i in range(len(groups))]
        graph.update({key: (add, group) for key, group in zip(sums, groups, strict=True)})
        levels.append(sums)
    return levels
