"""An example of a package that brings a workload: a plain function, and in its pyproject.toml

[project.entry-points."workbench.workloads"]
tea = "somebodys_workload:steep"
"""

from __future__ import annotations

from typing import Annotated

import dask.array as da

from workbench import Field, Words, workload


def is_full(cups: float, n: int) -> tuple[bool, str]:
    """Check that each cup holds a quarter of a liter."""
    return cups == 0.25 * n, f"{n} cups of a quarter of a litre"


@workload(title="Tea", check=is_full)
def steep(n: Annotated[int, Field(ge=1), Words(unit="cups")] = 4) -> da.Array:
    """Litres of tea.

    Parameters
    ----------
    n
        How many cups.
    """
    return da.full(n, 0.25, chunks=1).sum()
