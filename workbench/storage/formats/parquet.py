"""Tables in Parquet: one file, or a folder of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from workbench import formats
from workbench.storage import places
from workbench.storage.formats.base import Format, Found, Held, Listed, bad, held_as, known
from workbench.storage.formats.tables import as_matrix, columns_of
from workbench.storage.formats.zarr import entries
from workbench.storage.places import Place


def is_part(name: str) -> bool:
    """Return whether a file in a folder is a part of a Parquet table, by the names that writers use."""
    return name.endswith((".parquet", ".parq")) and not name.startswith(("_", "."))


def parquet_parts(place: Place) -> list[Place]:
    """Return the files of a Parquet table, those of a folder by the numbers in their names."""
    fs, root = place.storage()
    if fs.isfile(root):
        return [place]
    names = sorted(
        filter(is_part, entries(fs, root)),
        key=lambda name: [int(each) if each.isdigit() else each for each in re.split(r"(\d+)", name)],
    )
    return [Place(f"{place.path.rstrip('/')}/{name}", place.options) for name in names]


def find_parquet(place: Place, array: str | None) -> Found:
    """Describe columns of a Parquet table."""
    from pyarrow.parquet import ParquetFile

    parts = parquet_parts(place)
    names: list[str] = []
    ends, rows = [0], 0
    for part in parts:
        with places.sentences_about(part, "a Parquet file"), part.open() as file, ParquetFile(file) as table:
            twice = [name for name, count in Counter(table.schema_arrow.names).items() if count > 1]
            if twice:
                raise bad(f"{part} has several columns called {twice[0]!r}. Give each a name of its own.")
            columns = columns_of(part, array, table.schema_arrow)
            if names and columns != names:
                raise bad(f"The columns of {part} aren't those of {parts[0].name}: {', '.join(columns[:20])}.")
            names = columns
            ends.append(ends[-1] + table.metadata.num_rows)
            rows = rows or (table.metadata.row_group(0).num_rows if table.metadata.num_row_groups else 0)
    recipe = {
        "options": dict(place.options),
        "files": [part.path for part in parts],
        "ends": ends[1:],
        "columns": names,
    }
    return replace(as_matrix(place, array, names, "parquet", ends[-1], rows, len(table.schema_arrow)), recipe=recipe)


def look_parquet(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    from pyarrow.parquet import ParquetFile

    parts = parquet_parts(place)
    n_rows = n_groups = 0
    for part in parts:
        with places.sentences_about(part, "a Parquet file"), part.open() as file, ParquetFile(file) as table:
            n_rows, n_groups = n_rows + table.metadata.num_rows, n_groups + table.num_row_groups
            columns = table.schema_arrow
    files = f" in {formats.count(len(parts), 'file')}" if len(parts) > 1 else ""
    arrays = tuple(_column(each.name, n_rows, each.type) for each in columns)
    return arrays, (f"{formats.count(n_groups, 'group')} of rows{files}.",)


def _column(name: str, n_rows: int, kind: Any) -> Held:
    try:
        return held_as(name, (n_rows,), kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return held_as(name, (n_rows,), np.dtype(object))


def read_parquet(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of the columns of a Parquet table, from those groups of rows that contain it.

    `options` name its files, the number of rows up to the end of each, and the columns.
    """
    import fsspec
    from pyarrow.parquet import ParquetFile

    ends, blocks = options["ends"], []
    begin, end = np.searchsorted(ends, (where[0].start, where[0].stop - 1), "right")
    for number in range(begin, end + 1):
        above = ends[number - 1] if number else 0
        start, stop = max(where[0].start - above, 0), min(where[0].stop, ends[number]) - above
        with (
            fsspec.open(options["files"][number], "rb", **known(path, options["options"])) as file,
            ParquetFile(file) as table,
        ):
            names = options["columns"][where[1]]
            groups = np.cumsum([table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)])
            first, last = np.searchsorted(groups, (start, stop - 1), "right")
            groups_read = table.read_row_groups(list(range(first, last + 1)), columns=names)
        rows = groups_read.slice(start - (groups[first - 1] if first else 0), stop - start)
        blocks.append(np.column_stack([rows[name].to_numpy().astype("float64") for name in names]))
    return np.concatenate(blocks)


PARQUET = Format(
    "Parquet",
    look_parquet,
    starts=lambda start, place: start.startswith(b"PAR1"),
    find=find_parquet,
    readers={"parquet": read_parquet},
    modules=("pyarrow",),
    is_table=True,
)
