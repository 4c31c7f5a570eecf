"""Columns on the samples from elsewhere, such as the population that each belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.values import Genotypes, as_text
from workbench.storage import places

_TABLE = "a text table: a header, then a line for each sample, separated by tabs, commas or spaces"


def with_labels(
    genotypes: Genotypes,
    labels: str | Path | Mapping[str, Sequence[Any]],
    storage_options: places.Options | None = None,
) -> Genotypes:
    """Genotypes with further columns in their `sample_table`.

    `labels` is a mapping of columns in the order of the samples, or the path of a text table with a header, of
    which the column that knows most of the samples names them; its lines may be in any order and about others too.
    Where it is a URL, `storage_options` are what fsspec is told of the server. Raises BadInputError where the table
    knows none of the samples, or a column has another length.
    """
    if isinstance(labels, Mapping):
        columns = {name: _column(values) for name, values in labels.items()}
    else:
        columns = _read(places.full(labels, storage_options), genotypes.samples)
    return replace(genotypes, sample_table={**genotypes.sample_table, **columns})


def _column(values: Any) -> np.ndarray[Any, Any]:
    words = isinstance(values, (list, tuple)) and all(isinstance(each, str) for each in values)
    return as_text(values) if words else np.atleast_1d(np.asarray(values))


def _read(place: places.Place, samples: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    with places.sentences_about(place, _TABLE):
        lines = [line for line in place.read().decode().splitlines() if line.strip()]
    if len(lines) < 2:
        raise BadInputError(f"{place} has no line below a header. Expected {_TABLE}.")
    separator = next((mark for mark in "\t," if mark in lines[0]), None)
    cells = [[cell.strip() for cell in line.split(separator)] for line in lines]
    header = [name.lstrip("#") for name in cells[0]]
    for number, line in enumerate(cells[1:], 2):
        if len(line) < len(header):
            raise BadInputError(f"{place}, line {number} has {len(line)} columns, expected {len(header)}.")
    wanted = samples.tolist()
    columns = [[line[i] for line in cells[1:]] for i in range(len(header))]
    known = [len(set(wanted).intersection(column)) for column in columns]
    key = int(np.argmax(known))
    if wanted and not known[key]:
        raise BadInputError(
            f"{place} knows none of the samples, the first of which is {wanted[0]!r}. Expected {_TABLE}."
        )
    line_of = {name: i for i, name in enumerate(columns[key])}
    return {
        header[i]: as_text([column[line_of[name]] if name in line_of else "" for name in wanted])
        for i, column in enumerate(columns)
        if i != key
    }
