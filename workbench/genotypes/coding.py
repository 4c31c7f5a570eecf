"""What the four codes of two bits mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MISSING = 255
"""How a missing value is written in an array of counts that this package makes."""


@dataclass(frozen=True, slots=True)
class Coding:
    """How many copies of the counted allele each of the codes 0 to 3 stands for; None is a missing value.

    The codes lie in the bytes as PLINK has them: that of sample j is in byte j // 4 of its variant's row, in the two
    bits from 2 · (j mod 4) upwards.
    """

    copies: tuple[int | None, int | None, int | None, int | None]

    def table(self, missing: int = MISSING) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Copies of each code, with a number for the missing value."""
        return np.array([missing if count is None else count for count in self.copies], np.uint8)

    @property
    def missing_codes(self) -> tuple[int, ...]:
        """Codes that stand for a missing value."""
        return tuple(code for code, count in enumerate(self.copies) if count is None)


COUNTS = Coding((0, 1, 2, None))
"""Ours: the code is the count, and 3 is missing."""

PLINK = Coding((2, None, 1, 0))
"""That of a .bed file, of which allele A1 of the .bim file is counted (PLINK 1.9, "PLINK binary format")."""
