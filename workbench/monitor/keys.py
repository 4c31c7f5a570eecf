"""Keys of tasks in columns: a million of them share a few names, hashes and counters.

A key's text is `key`, followed by '-' and the 32 hexadecimal digits of `token` where there is one. With the numbers
`i`, `j`, `k`, `l` (as many as aren't null) it goes on: `('text', i, j)` where `is_tuple`, else `text-i`. A text of any
other form is in `key` as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NUMBERS = ("i", "j", "k", "l")

FIELDS = (
    pa.field("key", pa.string()),
    pa.field("token", pa.binary(16)),
    pa.field("is_tuple", pa.bool_()),
    *(pa.field(name, pa.int32()) for name in NUMBERS),
)

# No zero before a number, and nine digits at most: it must come back as the same text, and fit into 32 bits.
_NUMBER = r"0|[1-9][0-9]{0,8}"
_TUPLE = (
    r"^\('(?P<text>[^'\\]*)', (?P<i>NUMBER)(?:, (?P<j>NUMBER))?(?:, (?P<k>NUMBER))?(?:, (?P<l>NUMBER))?\)$".replace(
        "NUMBER", _NUMBER
    )
)
_COUNTED = rf"^(?P<text>.*)-(?P<i>{_NUMBER})$"
_HASHED = r"^(?s:(?P<text>.*))-(?P<token>[0-9a-f]{32})$"


class Keys(Sequence[str]):
    """Texts of keys, each made when it is asked for."""

    def __init__(
        self,
        texts: Sequence[str | None],
        codes: npt.NDArray[np.int32],
        tokens: npt.NDArray[np.uint8] | None,
        is_tuple: npt.NDArray[np.bool_],
        numbers: tuple[npt.NDArray[np.int32], ...],
    ) -> None:
        self._texts = texts
        self._codes = codes
        self._tokens = tokens
        self._is_tuple = is_tuple
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        text = self._texts[self._codes[index]] or ""
        token = self._tokens[index] if self._tokens is not None else None
        if token is not None and token.any():
            text = f"{text}-{token.tobytes().hex()}"
        numbers = [str(column[index]) for column in self._numbers if column[index] >= 0]
        if not numbers:
            return text
        return f"('{text}', {', '.join(numbers)})" if self._is_tuple[index] else f"{text}-{numbers[0]}"

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))


def split_keys(texts: pa.Array) -> dict[str, pa.Array]:
    """Columns of `FIELDS` for these texts, of which some may be null."""
    import pyarrow.compute as pc

    tuples, counted = pc.extract_regex(texts, _TUPLE), pc.extract_regex(texts, _COUNTED)
    is_tuple = pc.is_valid(tuples)
    text = pc.coalesce(pc.struct_field(tuples, "text"), pc.struct_field(counted, "text"), texts)
    first = pc.coalesce(pc.struct_field(tuples, "i"), pc.struct_field(counted, "i"))
    others = {name: pc.struct_field(tuples, name) for name in NUMBERS[1:]}
    return {
        **_hashes(text),
        "is_tuple": pc.if_else(pc.is_valid(texts), is_tuple, None),
        **{name: _integers(column) for name, column in {"i": first, **others}.items()},
    }


def read_keys(table: pa.Table) -> Keys:
    """Keys in the columns of a table."""
    encoded = _combined(table["key"])
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
    return Keys(
        encoded.dictionary.to_pylist() or [""],
        codes,
        _token_bytes(_combined(table["token"])),
        _combined(table["is_tuple"]).fill_null(False).to_numpy(zero_copy_only=False),
        tuple(_combined(table[name]).fill_null(-1).to_numpy(zero_copy_only=False) for name in NUMBERS),
    )


def _hashes(texts: pa.Array) -> dict[str, pa.Array]:
    import pyarrow.compute as pc

    # Blocks of one array share their hash, so few texts have to be looked at.
    encoded = texts.dictionary_encode()
    known = encoded.dictionary
    found = pc.extract_regex(known, _HASHED)
    tokens = pc.struct_field(found, "token").to_pylist()
    # Sixteen zeros stand for none when they are read.
    packed = [bytes.fromhex(token) if token and token.strip("0") else None for token in tokens]
    hashed = pc.is_valid(pa.array(packed, pa.binary(16)))
    rests = pc.if_else(hashed, pc.struct_field(found, "text"), known)
    return {
        "key": rests.take(encoded.indices),
        "token": pa.array(packed, pa.binary(16)).take(encoded.indices),
    }


def _integers(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.int32())


def _token_bytes(tokens: pa.Array) -> npt.NDArray[np.uint8] | None:
    if tokens.null_count == len(tokens):
        return None
    # Null rows are zeros in what was read from Parquet, which Arrow doesn't promise.
    held: Any = np.frombuffer(tokens.buffers()[1], np.uint8)[16 * tokens.offset :][: 16 * len(tokens)]
    rows = held.reshape(-1, 16)
    valid = tokens.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid[:, None], rows, np.uint8(0)) if tokens.null_count else rows


def _combined(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
    return chunks.combine_chunks() if chunks.num_chunks != 1 else chunks.chunk(0)
