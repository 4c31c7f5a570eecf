"""Sets of CPUs (or NUMA nodes): bit masks as drivers give them, lists as Linux writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

_BITS = 64  # of a word


def numbers(words: Sequence[int]) -> list[int]:
    """Numbers of the bits that are set in a mask of 64-bit words, in order."""
    return [
        place * _BITS + bit for place, word in enumerate(words) if word for bit in range(_BITS) if int(word) >> bit & 1
    ]


def text(cpus: Iterable[int]) -> str:
    """A list as Linux writes it: [0, 1, 2, 8] is '0-2,8'."""
    runs = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        run = [cpu for _, cpu in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)
