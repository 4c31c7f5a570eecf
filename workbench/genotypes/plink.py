"""PLINK 1 files: a .bed file of two-bit genotypes with its .bim (variants) and .fam (samples).

Source of the format: "PLINK binary biallelic genotype table", PLINK 1.9's file format reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes.kernels import last_byte
from workbench.genotypes.packing import PER_BYTE, block_rows, packed_array, packed_width
from workbench.genotypes.values import IN_FAMILY, Genotypes, Variants
from workbench.labels import TEXT, as_text
from workbench.linalg.arrays import tiles
from workbench.storage import places
from workbench.storage.places import Place

SUFFIXES = (".bed", ".bim", ".fam")
_UPPER = tuple(map(str.upper, SUFFIXES))
_MAGIC = b"\x6c\x1b"
_START = 3
# Bytes that are checked when a file is opened; the rest is checked when it is read.
_FIRST_BYTES = 2**16
# Bytes recoded at a time: intermediate results stay in the second-level cache. With fewer, threads would wait for the
# GIL.
_RECODED = 2**17
# Bytes of a table that are split into Python strings at a time.
_PIECE = 2**22
_THREE = "a PLINK .bed file with a .bim and a .fam of the same name next to it"
_SEX = {"1": "male", "2": "female"}


def is_plink(path: str) -> bool:
    """Return whether a path is that of a .bed, .bim or .fam file; all three may be in capitals."""
    return path.endswith((*SUFFIXES, *_UPPER))


def three_files(path: str) -> tuple[str, str, str]:
    """Return the paths of .bed, .bim and .fam, given one of them or their common stem."""
    stem = path[:-4] if is_plink(path) else path
    bed, bim, fam = _UPPER if path.endswith(_UPPER) else SUFFIXES
    return stem + bed, stem + bim, stem + fam


@dataclass(frozen=True)
class _ReadBed:
    """Reader of rows of a .bed file in our own codes, which checks the number of samples."""

    place: Place
    n_samples: int

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return packed_width(self.n_samples)

    def __call__(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        packed = self._as_written(start, stop)
        for part in tiles(packed, _RECODED // self.width + 1):
            codes = packed[part]
            # 00, 01, 10, 11 stand for 2, missing, 1, 0: the upper bit is turned, the lower one is the sum of both.
            codes[:] = ~codes & 0xAA | (codes ^ codes >> 1) & 0x55
        return packed

    def _as_written(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        first, count = _START + start * self.width, (stop - start) * self.width
        with places.sentences_about(self.place, _THREE):
            if self.place.is_url:
                content = np.array(np.frombuffer(self.place.read(first, first + count), np.uint8))
            else:
                content = np.fromfile(self.place.path, np.uint8, count, offset=first)
        if content.size != count:
            raise BadInputError(f"{self.place} ends before row {stop - 1}: it was cut short while it was in use.")
        packed = content.reshape(stop - start, self.width)
        self._check_padding(packed, start)
        return packed

    def _check_padding(self, packed: np.ndarray[Any, Any], start: int) -> None:
        """Raise if rows don't end with zeros after the last sample, as in PLINK: the file's length can't show it."""
        if self.n_samples % PER_BYTE == 0:
            return
        (rows,) = np.nonzero(packed[:, -1] & ~last_byte(self.n_samples))
        if not rows.size:
            return
        fam, n = three_files(self.place.path)[2], self.n_samples
        most = PER_BYTE * self.width
        lines = f"{most}" if most == n + 1 else f"{n + 1} to {most}"
        raise BadInputError(
            f"{self.place} has genotypes of more samples than {fam}, which has {n}: row {start + int(rows[0])} goes on "
            f"after them, where PLINK writes zeros. Expected {lines} lines in the .fam: it was cut short, or belongs "
            "to another. If the .fam is right: plink1.9 --bfile NAME --make-bed --out NEW writes zeros there."
        )


def read_plink(
    path: str | Path, *, rows: int | Literal["auto"] = "auto", storage_options: places.Options | None = None
) -> Genotypes:
    """Return the genotypes of a PLINK .bed file, whose counted allele is A1.

    Parameters
    ----------
    path
        Path or URL of the .bed, .bim or .fam file, or what their names have in common.
    rows
        Variants in a block.
    storage_options
        Options for fsspec about a URL's server.

    Raises
    ------
    BadInputError
        One of the three files is missing, damaged, or doesn't belong to the others.
    """
    place = places.full(path, storage_options)
    bed, bim, fam = (Place(each, place.options) for each in three_files(place.path))
    with places.sentences_about(bed, _THREE):
        start, size = bed.read(0, _START), bed.size()
    _check_start(bed, start)
    samples, table = _samples(fam)
    variants = _variants(bim)
    assert variants.id is not None
    n_variants, n_samples = len(variants.id), len(samples)
    _check_size(bed, size, n_variants, n_samples)
    read = _ReadBed(bed, n_samples)
    if n_variants and n_samples:
        read(0, min(n_variants, max(1, _FIRST_BYTES // read.width)))
    packed = packed_array(read, n_variants, n_samples, block_rows(n_variants, n_samples, rows))
    genotypes = Genotypes(packed, samples, variants, table, source=bed.path)
    assert variants.position is not None
    off = np.asarray(variants.position) < 0
    if not off.any():
        return genotypes
    remark = f"{formats.count(int(off.sum()), 'variant')} at negative positions left out, as PLINK does."
    return replace(genotypes[~off], remarks=(remark,))


def _check_start(bed: Place, start: bytes) -> None:
    if start[:2] != _MAGIC:
        first_bytes = start.hex(" ") or "nothing"
        raise BadInputError(f"{bed} is no PLINK .bed file: it starts with {first_bytes}, expected 6c 1b 01.")
    if start[2:] == b"\x00":
        raise BadInputError(
            f"{bed} is written sample by sample (6c 1b 00), expected variant by variant (6c 1b 01). "
            "Write it again: plink1.9 --bfile NAME --make-bed --out NEW"
        )
    if start[2:] != b"\x01":
        first_bytes = start.hex(" ")
        raise BadInputError(
            f"{bed} starts with {first_bytes}, expected 6c 1b 01. If PLINK 2 wrote it: plink2 --pfile NAME --make-bed"
        )


def _check_size(bed: Place, size: int, n_variants: int, n_samples: int) -> None:
    width = packed_width(n_samples)
    expected = _START + n_variants * width
    if size == expected:
        return
    explanation = f"{n_variants} variants in the .bim × {width} bytes for {n_samples} samples in the .fam"
    hint = "it was cut short, or one of the three belongs to another."
    if size > expected:
        hint = "one of the three files belongs to another."
    fits, remainder = divmod(size - _START, width) if width else (0, 1)
    would = [f"{fits} variants"] if fits > 0 and not remainder else []
    fits, remainder = divmod(size - _START, n_variants) if n_variants else (0, 1)
    would += [f"{PER_BYTE * (fits - 1) + 1} to {PER_BYTE * fits} samples"] if fits > 0 and not remainder else []
    if would:
        hint += f" It would fit {', or '.join(would)}."
    raise BadInputError(f"{bed} has {size} bytes, expected {expected} ({explanation} and 3 to start with): {hint}")


def _variants(bim: Place) -> Variants:
    whole = np.dtype(np.int64)
    columns = _columns(
        bim,
        {6: (TEXT, TEXT, None, whole, TEXT, TEXT), 5: (TEXT, TEXT, whole, TEXT, TEXT)},
        "contig, id, centimorgans, position, A1 and A2",
    )
    contig, id, position, a1, a2 = columns
    return Variants(contig, position, id, np.stack([a2, a1], axis=1))


def _samples(fam: Place) -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    columns = _columns(fam, {6: [TEXT] * 6, 5: [TEXT] * 5}, "family, sample, father, mother, sex and phenotype")
    family, name, father, mother, sex = columns[:5]
    # Samples are named without their family if these names are unique, as in most files.
    repeats = len(set(name)) < len(name)
    table = {"family": family, "father": father, "mother": mother}
    table["sex"] = as_text([_SEX.get(code, "unknown") for code in sex])
    if len(columns) == 6:
        table["phenotype"] = _phenotype(columns[5])
    return (family + "_" + name, table | {IN_FAMILY: name}) if repeats else (name, table)


def _phenotype(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the numbers, with NaN for -9 and NA, or the words as they are."""
    try:
        return np.array([np.nan if word in ("-9", "NA") else float(word) for word in column], np.float64)
    except ValueError:
        return column


def _columns(
    place: Place, kinds: Mapping[int, Sequence[np.dtype[Any] | None]], what: str
) -> list[np.ndarray[Any, Any]]:
    """Return the columns of a text file without a header, separated by spaces or tabs, piece by piece.

    `kinds` are the types of the columns of a file that has so many; None is not wanted.
    """
    parts: list[list[np.ndarray[Any, Any]]] = []
    with places.sentences_about(place, f"{_THREE}; this one has the columns {what}"):
        content, width, n_lines, start = place.read(), 0, 0, 0
        while start < len(content):
            end = content.find(b"\n", start + _PIECE) + 1 or len(content)
            raw, encoding, start = content[start:end], "utf-8" if start else "utf-8-sig", end
            try:
                piece = raw.decode(encoding)
            except UnicodeDecodeError as err:
                number = n_lines + raw.count(b"\n", 0, err.start) + 1
                raise BadInputError(
                    f"{place}, line {number}, isn't written in UTF-8. "
                    "If it is Latin-1: iconv -f latin1 -t utf-8 OLD > NEW"
                ) from None
            words = piece.split()
            if words and not width:
                first = piece.lstrip().partition("\n")[0]
                width = len(first.split())
                if first.startswith("#") or first.upper().split()[:2] == ["FID", "IID"]:
                    raise BadInputError(
                        f"{place} starts with a header, {first[:40]!r}, expected none: {what}. Remove that line."
                    )
            if words and (width not in kinds or not _regular(raw, width)):
                for number, line in enumerate(map(str.split, piece.split("\n")), n_lines + 1):
                    if line and (len(line) != width or width not in kinds):
                        raise BadInputError(
                            f"{place}, line {number} has {len(line)} columns, expected {max(kinds)}: {what}."
                        )
            if words:
                columns = [(words[i::width], kind) for i, kind in enumerate(kinds[width]) if kind]
                parts.append([_of_kind(column, kind, place) for column, kind in columns])
            n_lines += raw.count(b"\n")
    if not parts:
        return [np.empty(0, kind) for kind in kinds[max(kinds)] if kind]
    return [np.concatenate(column) for column in zip(*filter(None, parts), strict=True)]


def _regular(text: bytes, width: int) -> bool:
    """Return whether each line has this many words, or none."""
    characters = np.frombuffer(b"\n" + text + b"\n", np.uint8)
    space = characters <= ord(" ")
    begins = np.flatnonzero(space[:-1] & ~space[1:])
    numbers = np.diff(np.searchsorted(begins, np.flatnonzero(characters == ord("\n"))))
    return bool(((numbers == width) | (numbers == 0)).all())


def _of_kind(words: Sequence[str], kind: np.dtype[Any], place: Place) -> np.ndarray[Any, Any]:
    if kind == TEXT:
        return np.array(words, TEXT)
    try:
        return np.array(list(map(int, words)), kind)
    except (ValueError, OverflowError) as err:
        raise BadInputError(f"{place} has a position that is no whole number ({err}).") from err
