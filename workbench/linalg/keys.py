"""Keys of tasks: a key contains everything its task's value depends on, or is unique to one call.

A scheduler computes tasks of one key once and gives their value to every client, run or array that requests the key. A
key that leaves something out gives one caller another's answer, without an error. So every name in this package's
graphs is made here, in one of two ways:

fresh
    For values computed at once and by one call alone: the passes over an array. And for files and memory: there is no
    cheap check that they are unchanged since the last call.
lasting
    For lazy values that are functions of their inputs: equal names for equal values, so that two graphs with the same
    part compute it once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

from dask.base import tokenize


def fresh(what: str) -> str:
    """Return a name for tasks of this call alone."""
    return f"{what}-{uuid.uuid4().hex}"


def in_pass(what: str, number: int) -> str:
    """Return the name of the tasks of the `number`-th pass over an array."""
    return f"{what}-pass-{number}"


def pass_in(name: str) -> int:
    """Return the number of the pass that `fresh(in_pass(…))` named, 0 where it is the name of something else."""
    match = re.fullmatch(r".*-pass-(\d+)-[0-9a-f]{32}", name)
    return int(match[1]) if match else 0


def lasting(what: str, *inputs: Any) -> str:
    """Return a name for a value that follows from `inputs`, which have to contain everything that it depends on."""
    return f"{what}-{tokenize(*inputs)}"


def tree(
    graph: dict[Any, Any], keys: list[Any], fan_in: int, add: Callable[[list[Any]], Any], named: Callable[[int], Any]
) -> list[list[Any]]:
    """Return `keys` and those of their sums, level by level up to one.

    `add` takes a group of keys of the level below.
    """
    levels = [keys]
    while len(levels[-1]) > 1 or len(levels) == 1:
        groups = [levels[-1][i : i + fan_in] for i in range(0, len(levels[-1]), fan_in)]
        sums = [(*named(len(levels)), i) for i in range(len(groups))]
        graph.update({key: (add, group) for key, group in zip(sums, groups, strict=True)})
        levels.append(sums)
    return levels
