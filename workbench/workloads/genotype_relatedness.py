"""Relatives among samples: the workload, what it needs and how it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from workbench import formats
from workbench.workloads import fields, studies
from workbench.workloads.fields import Resolved, Words
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Labelled, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes.relatives import Relatedness

Kinship = Annotated[
    float,
    Field(ge=-1, le=0.5, allow_inf_nan=False),
    Words(
        "Least kinship of the pairs that are listed: 0.354 for twins, 0.177 for first degree, 0.0884 for "
        "second, 0.0442 for third.",
        examples=(0.0884, 0.177),
    ),
]

_SHOWN = 20


def genotype_relatedness(
    path: fields.GenotypePath,
    cutoff: Kinship = 0.0884,
    array: fields.ArrayName | None = None,
    orientation: fields.Orientation | None = None,
    missing: fields.MissingCode | None = None,
    maf: studies.Rarest = 0.0,
    max_missing: studies.Unknown = 1.0,
    hwe: studies.Equilibrium = 0.0,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    leave_out: studies.RegionsOut | None = None,
    autosomes_only: studies.Autosomes = False,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> Any:
    """Which samples are related, by KING-robust kinship, and which to remove so that none are.

    All pairs are compared by the bits of packed blocks, each over the variants where both are known (Manichaikul et
    al., 2010). Variants on X and Y mislead: leave them out where there are some. The samples to remove are chosen one
    by one, always the one with most relatives left; save their names and give them as remove.
    """
    from workbench.genotypes import kinship, open_genotypes

    genotypes = open_genotypes(
        path,
        array=array,
        orientation=orientation,
        missing=missing,
        keep_samples=keep_samples,
        remove=remove,
        storage_options=options,
    )
    return kinship(
        genotypes,
        cutoff,
        maf=maf,
        max_missing=max_missing,
        hwe=hwe,
        leave_out=leave_out,
        autosomes_only=autosomes_only,
    )


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    where, (shape, _, remarks) = studies.looked_at("genotype_relatedness", values)
    if shape[1] < 2:
        raise BadParameterError("path of genotype_relatedness: there is one sample. Give two or more.", "path")
    return values | where | {"shape": shape}, remarks


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """Bits of all genotypes by sample, and for each pair of tiles the counts of all pairs in them."""
    from workbench.genotypes.relatives import TILE

    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    tile = min(TILE, n_samples)
    tiles = -(-n_samples // TILE)
    n_blocks = max(16, -(-packed // 2**23))
    # Four counts of each pair and six numbers that follow from them; and the bits of two tiles, joined.
    held = (80 * tile**2 + 4 * tile * -(-n_variants // 4)) * threads_per_worker
    n_tasks = n_blocks * (2 + tiles) + tiles * (tiles + 1) // 2
    return Needs.of(
        input_bytes=packed,
        held=held,
        kept=2 * packed,
        received=tile * -(-n_variants // 4),
        n_tasks=n_tasks,
        n_blocks=n_blocks,
        # Four counts of two words for 64 variants of each pair; a pass over planes counts as reading them.
        work={"read": 6.0 * packed + n_variants * n_samples**2 / 16},
        moved=packed * tiles,
        on_device=False,
        sentence=f"Compares {formats.count(n_samples * (n_samples - 1) // 2)} pairs in {formats.size(packed)} of bits "
        f"that stay in memory, by sample: {formats.size(held)} in one worker at a time.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """How many pairs of each degree, the closest, and how many samples to remove."""
    from workbench.genotypes.relatives import DEGREES

    found: Relatedness = results["related"]
    numbers = np.bincount(found.degree, minlength=5)
    names = np.asarray(found.samples)
    return {
        "variants": found.n_variants,
        "samples": len(found.samples),
        "pairs": len(found.pairs),
        "pairs_by_degree": {name: int(n) for name, n in zip((*DEGREES, "further"), numbers, strict=True) if n},
        "samples_to_remove": len(found.remove),
        "closest": [
            f"{names[i]} and {names[j]}: {phi:.4f}"
            for (i, j), phi in zip(found.pairs[:_SHOWN], found.kinship, strict=False)
        ],
    }


def _arrays(results: Mapping[str, Any]) -> dict[str, Labelled]:
    found: Relatedness = results["related"]
    columns = found.table()
    pairs = {name: ("pair", columns[name]) for name in ("sample_1", "sample_2", "degree")}
    return {
        "kinship": Labelled(found.kinship, ("pair",), pairs, {"cutoff": found.cutoff, "variants": found.n_variants}),
        **{name: Labelled(columns[name], ("pair",), pairs) for name in ("known", "hethet", "ibs0")},
        "remove": Labelled(found.remove, ("removed",)),
    }


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Some pairs counted otherwise: from their genotypes, unpacked; and none left among those that stay."""
    from workbench.genotypes import qc
    from workbench.genotypes.scaling import Rule
    from workbench.workloads.checks import computed

    found: Relatedness = results["related"]
    names = np.asarray(found.samples)
    gone = np.isin(names, found.remove)
    if (~gone[found.pairs]).all(axis=1).any():
        return Check(passed=False, what="Some pairs stay related without the samples to remove.")
    if not len(found.pairs):
        return Check(passed=True, what=f"No pair has a kinship of {found.cutoff:g} or more: there is nothing to check.")
    genotypes = studies.opened(resolved)
    limits = [resolved[name] for name in ("maf", "max_missing", "hwe")]
    if limits != [0, 1, 0]:
        genotypes = genotypes[Rule("center", *limits).verdict(qc(genotypes).counts) == 0]
    some = np.unique(np.linspace(0, len(found.pairs) - 1, 5).astype(int))
    people, places = np.unique(found.pairs[some], return_inverse=True)
    x = np.asarray(computed(client, genotypes.of_samples(people).counts(3))[0]).astype(np.int8)
    again = [_kinship(x[:, i], x[:, j]) for i, j in places.reshape(-1, 2)]
    off = float(np.abs(np.array(again) - found.kinship[some]).max())
    of = f"The kinship of {len(some)} pairs, from their genotypes one by one,"
    return Check(passed=off < 1e-12, what=f"{of} differs by {off:.1e}." if off >= 1e-12 else f"{of} is the same.")


def _kinship(x: Any, y: Any) -> float:
    """By the distance of both, as the paper's equation 11 can be written."""
    known = (x < 3) & (y < 3)
    least = min(int((x[known] == 1).sum()), int((y[known] == 1).sum()))
    return 0.5 - float(((x[known] - y[known]) ** 2).sum()) / (4 * least)


TEMPLATE = studies.template(
    genotype_relatedness,
    "related",
    title="Relatives among samples",
    resolver=_resolved,
    estimate=_needs,
    checker=_check,
    summary_of=_summary,
    arrays_of=_arrays,
)
