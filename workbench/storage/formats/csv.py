"""Tables of text: .csv and .tsv."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import IO, Any

import numpy as np

from workbench.storage.formats.base import Format, Found, Listed, bad, held_as, known
from workbench.storage.formats.tables import NoNumbersError, as_matrix, columns_of, joined, split
from workbench.storage.places import Place

_SAMPLE_BYTES = 1_000_000
_PIECE_BYTES = 4_000_000
"""Size of a piece of text; a block reads the pieces with its rows, so it consists of several."""
_PIECES = 4


def find_csv(place: Place, array: str | None) -> Found:
    """Describe columns of a table of text."""
    import io

    from pyarrow import csv, types

    with place.open() as file:
        sample = file.read(_SAMPLE_BYTES)
        sample = sample[: sample.rfind(b"\n") + 1] or sample
        try:
            head = sample.partition(b"\n")[0].decode("utf-8-sig")
        except UnicodeDecodeError:
            raise bad(f"{place} isn't written in UTF-8. Make it so: iconv -f latin1 -t utf-8 OLD > NEW.") from None
        delimiter = max("\t;,", key=re.sub(r'"[^"]*"', "", head).count)
        first = [each.strip() for each in split(head, delimiter)]
        below = len(sample.partition(b"\n")[0]) + 1
        lines = sample[below:].decode("utf-8", "replace").splitlines()
        if head.startswith("#") and any(lines[-1].count(each) != head.count(each) for each in "\t;," if lines):
            raise bad(f"{place} begins with a comment ({head[:40]}). Take out such lines: grep -v '^#' OLD > NEW.")
        if all(map(_is_number, first)):
            begin, names = 0, [f"column_{number}" for number in range(len(first))]
            remarks: tuple[str, ...] = ("The first line holds numbers, so it is a row and the columns have no names.",)
        else:
            begin = below
            names, remarks = _unlike(first)
        if not sample[begin:].strip():
            raise bad(f"{place} has no rows below its names. Give a table with at least one.")
        read = csv.read_csv(
            io.BytesIO(sample[begin:]), csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter=delimiter)
        )
        _check_decimals(place, read, split(array) if array else names)
        columns = columns_of(place, array, read.schema)
        flags = [name for name in columns if types.is_boolean(read.schema.field(name).type)]
        stamp = () if place.is_url else place.stamp()
        starts, ends = _known_pieces(place.path, begin, *stamp) if stamp else _pieces(file, begin)
    recipe = {"options": dict(place.options), "starts": starts, "ends": ends, "names": names, "delimiter": delimiter}
    rows = ends[-1] * min(_PIECES, len(ends)) // len(ends)
    found = as_matrix(place, array, columns, "csv", ends[-1], rows, len(names))
    return replace(found, recipe=recipe | {"columns": columns, "flags": flags}, remarks=(*remarks, *found.remarks))


def _check_decimals(place: Place, rows: Any, columns: Sequence[str]) -> None:
    """Raise BadParameterError if a column holds numbers with decimal commas."""
    from pyarrow import types

    for name in columns:
        if name not in rows.schema.names or not types.is_string(rows.schema.field(name).type):
            continue
        values = [each for each in rows[name].slice(0, 100).to_pylist() if each]
        if values and all(
            re.fullmatch(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*|\s*[+-]?\d+\s*", each, re.I) for each in values
        ):
            raise bad(
                f"{place} has decimal commas, such as {values[0].strip()} in the column {name!r}. Write it with "
                "decimal points: pandas.read_csv(OLD, sep=None, decimal=',').to_csv(NEW, index=False)."
            )


def _unlike(names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return unique names, as pandas makes them: a, a.1; and a message if it had to rename any."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    unique: list[str] = []
    taken = set(names)
    for name in names:
        again = name in twice and name in unique
        unique.append(next(each for n in itertools.count(1) if (each := f"{name}.{n}") not in taken) if again else name)
        taken.add(unique[-1])
    if not twice:
        return unique, ()
    called = ", ".join(name for name, name_before in zip(unique, names, strict=True) if name_before in twice[:4])
    return unique, (f"Columns with the same name are numbered, as pandas does: {called}.",)


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text or "nan")
        return True
    return False


def _pieces(file: IO[bytes], begin: int) -> tuple[list[int], list[int]]:
    """Split a file into pieces of whole lines; return their limits in bytes and the rows up to each end."""
    file.seek(begin)
    starts, ends = [begin], [0]
    while piece := file.read(_PIECE_BYTES):
        piece += file.readline()
        starts.append(starts[-1] + len(piece))
        ends.append(ends[-1] + piece.count(b"\n") + (not piece.endswith(b"\n")))
    return starts, ends[1:]


@lru_cache(maxsize=32)
def _known_pieces(path: str, begin: int, *_: str) -> tuple[list[int], list[int]]:
    """Return the pieces of a local file. A form asks at each key, and counting takes 1.2 s per GB."""
    with Place(path).open() as file:
        return _pieces(file, begin)


def look_csv(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    text: tuple[str, ...] = ()
    try:
        table = find_csv(place, None)
    except NoNumbersError as err:
        if not err.numbers:
            raise
        table = find_csv(place, joined(err.numbers))
        text = (f"Columns without numbers: {', '.join(err.others[:50])}. Name as array those that are meant.",)
    names = (table.recipe or {})["columns"]
    return (held_as("", table.shape, table.dtype),), (f"Columns: {', '.join(names[:50])}.", *text, *table.remarks)


def read_csv(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of columns of a table in text; `options` name them, and the limits of the file's pieces."""
    import io

    import fsspec
    from pyarrow import ArrowInvalid, csv

    starts, ends, names = options["starts"], options["ends"], options["names"]
    first, last = np.searchsorted(ends, (where[0].start, where[0].stop - 1), "right")
    above = ends[first - 1] if first else 0
    with fsspec.open(path, "rb", **known(path, options["options"])) as file:
        file.seek(starts[first])
        text = file.read(starts[last + 1] - starts[first])
    columns = options["columns"][where[1]]
    try:
        rows = csv.read_csv(
            io.BytesIO(text),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter=options["delimiter"]),
            csv.ConvertOptions(
                include_columns=columns,
                column_types={name: "bool" if name in options["flags"] else "float64" for name in columns},
            ),
        )
    except ArrowInvalid as err:
        raise ValueError(f"{path}, rows {above} to {ends[last] - 1}: {err}") from None
    if len(rows) < ends[last] - above:
        raise ValueError(f"{path} has empty lines below row {above}. Remove them.")
    rows = rows.slice(where[0].start - above, where[0].stop - where[0].start)
    return np.column_stack([rows[name].to_numpy().astype("float64") for name in columns])


CSV = Format(
    "Table of text",
    look_csv,
    starts=lambda start, place: bool(start) and place.name.lower().endswith((".csv", ".tsv")),
    find=find_csv,
    readers={"csv": read_csv},
    modules=("pyarrow",),
    is_table=True,
)
