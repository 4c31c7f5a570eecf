"""Columns of tables, as arrays named like the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.errors import BadParameterError
from workbench.storage.formats.base import Found, check
from workbench.storage.places import Place


def split(line: str, delimiter: str = ",") -> list[str]:
    """Split a line into names, in quotes if they contain the delimiter."""
    import csv

    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def joined(names: Sequence[str]) -> str:
    """Join names into the line that `split` splits."""
    import csv
    import io

    csv.writer(line := io.StringIO(), lineterminator="").writerow(names)
    return line.getvalue()


def columns_of(place: Place, array: str | None, schema: Any) -> list[str]:
    """Return the selected columns' names, all of them numeric."""
    from pyarrow import types

    numbers = [
        each.name
        for each in schema
        if types.is_integer(each.type)
        or types.is_floating(each.type)
        or types.is_boolean(each.type)
        or types.is_null(each.type)
    ]
    labels = [name for name in schema.names if not name or name.startswith("__index_level_")]
    # pandas records its index columns by name; a RangeIndex is a dict and no column.
    labels += [each for each in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(each, str)]
    available = [name for name in schema.names if name not in labels] or list(schema.names)
    columns = split(array) if array else available
    others = [name for name in columns if name not in numbers]
    if others or not columns:
        problem = "is no column" if others and others[0] not in schema.names else "holds no numbers"
        raise NoNumbersError(f"{others[0]!r} of {place} {problem}.", numbers, others)
    return columns


class NoNumbersError(BadParameterError):
    """Columns without numbers were requested; `numbers` are those with numbers, `others` those without."""

    def __init__(self, problem: str, numbers: Sequence[str], others: Sequence[str]) -> None:
        offered = joined(numbers[:20]) or "none"
        super().__init__(f"{problem} Name columns of numbers as array: {offered}.", "array")
        self.what, self.numbers, self.others = problem, tuple(numbers), tuple(others)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.numbers, self.others)


def as_matrix(
    place: Place, array: str | None, columns: Sequence[str], format: str, n_rows: int, rows: int, n_columns: int
) -> Found:
    """Describe columns of a table as a matrix of `n_rows` rows, with blocks of `rows` rows."""
    shape, dtype = (n_rows, len(columns)), np.dtype("float64")
    remarks: tuple[str, ...] = ()
    check(place, None, shape, dtype)
    if array is None and len(columns) < n_columns:
        array, remarks = joined(columns), ("The row labels that pandas wrote are left out.",)
    return Found(place.path, array, format, shape, dtype, (max(1, rows), len(columns)), remarks=remarks)
