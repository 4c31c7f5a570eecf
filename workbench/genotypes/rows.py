"""Packed rows in a Dask array whose blocks are read where they are needed, and sliced before they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from workbench.genotypes.packing import packed_width
from workbench.linalg import asked
from workbench.linalg.blocks import beside, slices
from workbench.linalg.keys import fresh, lasting

ReadRows = Callable[[int, int], np.ndarray[Any, Any]]
"""Gives the packed rows from the first up to, not including, the last; travels to workers."""

# Read and decoded in a fraction of a second, and small beside a worker's memory with a block in each thread.
BLOCK_BYTES = 8 * 2**20
_LEAST_BYTES = 2**18
_LEAST_BLOCKS = 16
_MOST_BYTES = 16 * BLOCK_BYTES
# Of many samples: a task also adds sums of each sample, which takes as long as some fifty rows do.
_LEAST_ROWS = 1024


@dataclass(frozen=True, eq=False)
class PackedRows:
    """What `da.from_array` takes blocks of: a shape and a way to read some of the rows."""

    read: ReadRows
    shape: tuple[int, int]
    ndim: int = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Bytes."""
        return np.dtype(np.uint8)

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        if isinstance(rows, slice):
            wanted = range(self.shape[0])[rows]
            if not wanted:
                return np.empty((0, self.shape[1]), np.uint8)[(slice(None), *rest)]
            first, last = min(wanted), max(wanted)
            found = self.read(first, last + 1)[:: abs(wanted.step)]
            return (found if wanted.step > 0 else found[::-1])[(slice(None), *rest)]
        row = range(self.shape[0])[rows]
        return self.read(row, row + 1)[(0, *rest)]


def block_rows(
    n_variants: int, n_samples: int, rows: int | Literal["auto"] = "auto", *, multiple: int = 1, bytes_each: int = 0
) -> int:
    """Rows of a block: as asked, or as many as keep it near 8 MiB and leave work for many threads.

    `multiple` is how many rows lie together in the file; `bytes_each` is what a row takes there, if more than packed.
    """
    if rows != "auto":
        return max(1, min(asked.whole("rows", rows, "variants in a block"), n_variants))
    packed = max(1, packed_width(n_samples))
    width = max(packed, bytes_each)
    most = at_most(BLOCK_BYTES, width) // width
    few = max(_LEAST_BYTES // width, n_variants // _LEAST_BLOCKS)
    wanted = max(1, min(most, few))
    if multiple * packed > _MOST_BYTES:  # rather read a chunk of the file more than once than hold so much
        multiple = 1
    return max(1, min(n_variants, max(1, round(wanted / multiple)) * multiple))


def at_most(nbytes: int, width: int) -> int:
    """Bytes of a block, of rows of `width` bytes: as given, or more where samples are so many that rows are few."""
    return max(nbytes, min(_LEAST_ROWS * width, _MOST_BYTES))


def cut(x: da.Array, heights: Sequence[Sequence[int]]) -> da.Array:
    """Each block of rows cut into views of so many: Dask's own slices would be copies."""
    if all(len(each) == 1 for each in heights):
        return x
    name = lasting("cut", x.name, heights)
    graph: dict[Any, Any] = {}
    for block, each in enumerate(heights):
        graph |= {(name, len(graph) + i, 0): (_rows, (x.name, block, 0), part) for i, part in enumerate(slices(each))}
    whole = HighLevelGraph.from_collections(name, graph, dependencies=[x])
    return da.Array(whole, name, (tuple(chain.from_iterable(heights)) or (0,), (x.shape[1],)), meta=x._meta)


def taken(x: da.Array, rows: np.ndarray[Any, Any]) -> da.Array:
    """Some rows; those that ascend are taken from their own blocks, by a bit for each row: Dask would shuffle them."""
    if not (rows.size and rows[0] >= 0 and rows[-1] < len(x) and (np.diff(rows) > 0).all()):
        return x[rows]
    first = int(rows[0])
    x, stays = x[first : int(rows[-1]) + 1], np.zeros(int(rows[-1]) + 1 - first, bool)
    if rows.size == stays.size:
        return x
    stays[rows - first] = True
    parts = [stays[part] for part in slices(x.chunks[0])]
    here = [(block, part) for block, part in enumerate(parts) if part.any()]
    name = lasting("rows", x.name, rows)
    graph = {
        (name, i, 0): (_rows, (x.name, block, 0), np.packbits(part), part.size) for i, (block, part) in enumerate(here)
    }
    whole = HighLevelGraph.from_collections(name, graph, dependencies=[x])
    return da.Array(whole, name, (tuple(int(part.sum()) for _, part in here), (x.shape[1],)), meta=x._meta)


def _rows(block: Any, rows: Any, count: int | None = None) -> Any:
    return block[rows if count is None else beside(np.unpackbits(rows, count=count).view(bool), block)]


def packed_array(read: ReadRows, n_variants: int, n_samples: int, rows: int) -> da.Array:
    """Packed rows of a file as a lazy array in blocks of `rows`."""
    source = PackedRows(read, (n_variants, packed_width(n_samples)))
    chunks = (rows, max(1, source.shape[1]))
    meta = np.empty((0, 0), np.uint8)
    return da.from_array(
        source, chunks=chunks, name=fresh("genotypes"), asarray=False, fancy=False, meta=meta, inline_array=True
    )
