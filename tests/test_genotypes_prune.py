"""Linked variants are thinned out as sgkit does it, on packed blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.peers import found_by_peers
from workbench.errors import BadInputError
from workbench.genotypes import MISSING, Genotypes, Variants, prune as prune_module
from workbench.genotypes.packing import pack
from workbench.genotypes.pca import pca
from workbench.genotypes.prune import ld_prune
from workbench.genotypes.scaling import Rule

Matrix = np.ndarray[Any, Any]
ROWS, SAMPLES = 300, 61


def linked_counts(missing: float = 0.05) -> Matrix:
    """Return counts in which neighbors are often alike, some missing, some monomorphic."""
    rng = np.random.default_rng(0)
    x = rng.binomial(2, 0.4, (ROWS, SAMPLES)).astype(np.uint8)
    for i in range(1, ROWS):
        same = rng.random(SAMPLES) < rng.choice([0.0, 0.6, 0.9])
        x[i, same] = x[i - 1, same]
    x[rng.random(x.shape) < missing] = MISSING
    x[7], x[100] = 1, MISSING
    return x


def genotypes(x: Matrix, rows: int = 64, **variants: Any) -> Genotypes:
    packed = da.from_array(pack(x), chunks=(rows, -1))
    return Genotypes(packed, np.arange(x.shape[1]), Variants(**variants))


def one_by_one(x: Matrix, windows: list[tuple[int, int]], r2: float) -> Matrix:
    """Return the mask from a loop over pairs; each row is compared within the last window that has started."""
    stays = np.ones(len(x), bool)
    for i in range(len(x)):
        stop = [stop for start, stop in windows if start <= i][-1]
        for j in range(i + 1, stop):
            both = (x[i] != MISSING) & (x[j] != MISSING)
            a, b = x[i][both].astype(float), x[j][both].astype(float)
            if stays[i] and len(a) and a.std() and b.std() and np.corrcoef(a, b)[0, 1] ** 2 >= r2:
                stays[j] = False
    return stays


def prune(*given: Any, **more: Any) -> Matrix:
    with dask.config.set(scheduler="sync"):
        return ld_prune(*given, **more)


@pytest.mark.parametrize(
    ("size", "step", "rows"),
    [(20, None, 7), (20, 1, 300), (20, 5, 64), (20, 50, 7), (1, None, 64), (130, None, 7), (500, None, 64)],
)
def test_windows_of_variants_are_compared_pair_by_pair(size: int, step: int | None, rows: int) -> None:
    x = linked_counts()[: ROWS if size < 500 else 90]
    windows = [(start, min(start + size, len(x))) for start in range(0, len(x), step or size)]
    found = prune(genotypes(x, rows), size, 0.2, step=step)
    assert (found == one_by_one(x, windows, 0.2)).all()
    assert size == 1 or 0 < found.sum() < len(x)


def test_windows_of_base_pairs_end_with_their_contig() -> None:
    x = linked_counts()
    rng = np.random.default_rng(1)
    position = np.concatenate([np.sort(rng.integers(1, 3000, 140)), np.sort(rng.integers(1, 4000, 160))])
    contig = np.repeat(["1", "2"], [140, 160])
    windows = []
    for start, stop in ((0, 140), (140, 300)):
        places = position[start:stop]
        for left in range(0, int(places[-1]), 250):
            ends = np.searchsorted(places, [left, left + 250]) + start
            windows.append((int(ends[0]), int(ends[1])))
    found = prune(genotypes(x, contig=contig, position=position), 250, 0.3, unit="bp")
    assert (found == one_by_one(x, windows, 0.3)).all()


_SGKIT = """
import sgkit
x = given["x"]
data = sgkit.simulate_genotype_call_dataset(n_variant=len(x), n_sample=x.shape[1])
data["call_dosage"] = ("variants", "samples"), x
kept = sgkit.ld_prune(sgkit.window_by_variant(data, size=25), threshold=0.2)
found["stays"] = np.isin(data.variant_position.values, kept.variant_position.values)
"""


def test_sgkit_keeps_the_same(tmp_path: Path) -> None:
    x = linked_counts()
    found = found_by_peers(tmp_path, _SGKIT, x=np.where(x == MISSING, -1, x.astype(np.int8)))
    assert (prune(genotypes(x), 25, 0.2) == found["stays"]).all()


def test_a_window_longer_than_any_genome_holds_all() -> None:
    source = genotypes(linked_counts(), position=np.arange(ROWS))
    assert (prune(source, 10**30, 0.2) == prune(source, ROWS, 0.2)).all()
    assert (prune(source, 10**30, 0.2, unit="bp") == prune(source, ROWS, 0.2)).all()


def test_answers_come_in_batches_whose_size_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = genotypes(linked_counts(), 7)
    expected = prune(source, 40, 0.1, step=3)
    for batch in (1, 2):
        monkeypatch.setattr(prune_module, "BATCH", batch)
        assert (prune(source, 40, 0.1, step=3) == expected).all()


def test_an_answer_has_a_bit_for_each_place_of_a_window_however_many_are_linked() -> None:
    x = np.repeat(np.random.default_rng(0).integers(0, 3, (1, SAMPLES), np.uint8), ROWS, axis=0)
    ends = np.minimum(np.arange(ROWS) + 100, ROWS)
    stays, linked = prune_module._Comparing(SAMPLES, 0.5, None)([pack(x)], ends, np.tile([True, False], (ROWS, 1)))
    assert stays.all()
    assert linked.nbytes <= ROWS * 13
    assert np.unpackbits(linked).sum() == (ends - np.arange(ROWS) - 1).sum()


def test_what_takes_no_part_removes_nothing() -> None:
    x = linked_counts(missing=0)
    kept = np.arange(ROWS) % 2 == 0
    found = prune(genotypes(x), 20, 0.2, kept=kept, rule=Rule(maf=0.1))
    assert not found[~kept].any()
    assert not found[7]
    assert found.sum() < kept.sum()


def test_a_pca_of_what_was_pruned_says_how_much() -> None:
    source = genotypes(linked_counts())
    with dask.config.set(scheduler="sync"):
        result = pca(source, 3, ld_prune=(20, 0.2))
        alone = pca(source, 3, kept=ld_prune(source, 20, 0.2, rule=Rule()))
    assert result.dropped["linked"] > 50
    assert result.dropped["all missing"] == 1
    np.testing.assert_allclose(result.singular_values, alone.singular_values)


@pytest.mark.parametrize(
    ("given", "more", "sentence"),
    [
        ((0,), {}, "window is a whole number of variants"),
        (("wide",), {}, "window is a whole number of variants and at least 1, not 'wide'"),
        ((10, 0), {}, "r2 is a squared correlation"),
        ((10,), {"step": 0.5}, "step is a whole number"),
        ((10,), {"unit": "cM"}, "Choose one of: variants, bp"),
        ((10,), {"unit": "bp"}, "need positions, which these variants lack"),
        ((10,), {"kept": np.ones(3, bool)}, "kept is a mask of 300 true or false values"),
        ((10,), {"kept": np.arange(ROWS)}, "not int64 of shape"),
    ],
)
def test_what_can_not_be_used_is_said(given: Any, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        prune(genotypes(linked_counts()), *given, **more)


def test_positions_out_of_order_are_refused() -> None:
    source = genotypes(linked_counts(), position=np.arange(ROWS)[::-1])
    with pytest.raises(BadInputError, match="in the order of their positions"):
        prune(source, 10, unit="bp")
