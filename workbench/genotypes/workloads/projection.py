"""New samples among the principal components of others: the workload, what it needs, its answer and its check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import xarray as xr

from workbench import config, formats
from workbench.errors import BadInputError
from workbench.genotypes.workloads import studies
from workbench.jobs import folders
from workbench.storage import places
from workbench.storage.variables import dataset
from workbench.workloads import fields
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Text, Words
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes import Projection

Components = Annotated[
    Text,
    Words(
        "Components of the reference: the ID of a run of genotype_pca, the end of its ID, last, or the path "
        "of its answer saved as Zarr.",
        allowed="the ID of a run of genotype_pca, its end, or last, or the path of what it saved as Zarr",
        examples=("genotype_pca-3fa29c", "components.zarr"),
    ),
]
Corrected = Annotated[
    bool, Words("Divide scores by the shrinkage that theory predicts for unlinked variants (Lee et al., 2010).")
]
Ambiguous = Annotated[
    bool,
    Words(
        "Also use variants with the alleles A and T, or C and G. Only for files with the same strand, such as"
        " from one laboratory."
    ),
]

_ANSWER = "answer.zarr"


def genotype_project(
    components: Components,
    path: studies.GenotypePath,
    correct: Corrected = False,
    ambiguous: Ambiguous = False,
    labels: studies.Labels | None = None,
    array: fields.ArrayName | None = None,
    orientation: studies.Orientation | None = None,
    missing: studies.MissingCode | None = None,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> Any:
    """Compute scores of new samples on the principal components of a run of genotype_pca.

    Variants are matched by contig, position and alleles, whichever allele is counted. If that finds hardly any, as with
    another build, they are matched by their names. Projected scores are closer to the center than those of the
    reference samples. The result reports by how much, and correct divides the scores by it.
    """
    from workbench.genotypes import project

    genotypes = studies.opened("genotype_project", locals())
    return project(components, genotypes, correct=correct, ambiguous=ambiguous)


def _projection_resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    from workbench.genotypes import Reference

    where, (shape, remarks, _) = studies.looked_at("genotype_project", values)
    try:
        store = _store(values["components"])
        loadings = Reference.read(store).loadings.shape
    except BadInputError as err:
        raise BadParameterError(f"components of genotype_project: {err}", "components") from err
    return values | where | {"components": store, "shape": shape, "loadings": loadings}, remarks


def _store(text: str) -> str:
    """Return the path of the components of the run with this id, its beginning or end; else the path that `text` is."""
    stores = {path.parent.name: path for path in config.data_folder().glob(f"runs/*/{_ANSWER}")}
    if text == "last":
        late = (name for name in stores if name.startswith("genotype_pca-"))
        text = max(late, key=lambda name: stores[name].stat().st_mtime, default=text)
    store = stores.get(folders.one_of(list(stores), text, "runs"))
    return places.full(text).path if store is None else str(store)


def _projection_needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass over the variants that both have."""
    (n_variants, n_samples), (m, k) = resolved["shape"], resolved["loadings"]
    packed = min(m, n_variants) * -(-n_samples // 4)
    block = min(2**23, packed)
    # Counts of some rows in floating point, twice while they are centered.
    held = (2 * block + 256 * n_samples * 20 + 8 * k * n_samples) * threads_per_worker
    return Needs.of(
        input_bytes=packed,
        held=held,
        on_device=False,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes once: {formats.size(held)} in one worker "
        "at a time.",
    )


def _projection_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    found: Projection = results["projected"]
    return {
        "samples": len(found.samples),
        "variants_found": found.matched,
        "variants_lacking": found.lacking,
        "alleles_swapped": found.swapped,
        "strand_ambiguous": found.ambiguous,
        "shrinkage": [None if np.isnan(each) else float(each) for each in found.shrinkage],
        "message": found.sentence,
        **studies.without_genotypes(found),
    }


def _projection_arrays(results: Mapping[str, Any]) -> xr.Dataset:
    found: Projection = results["projected"]
    components = {"component": [f"PC{i + 1}" for i in range(found.scores.shape[1])]}
    samples = {"sample": found.samples} | {
        name: ("sample", column)
        for name, column in found.sample_table.items()
        if name not in ("sample", "component", "scores", "shrinkage")
    }
    attributes = {"corrected": found.corrected, "message": found.sentence}
    arrays = {
        "scores": (("sample", "component"), found.scores, attributes),
        "shrinkage": ("component", found.shrinkage),
    }
    return dataset(arrays, samples | components)


def _projection_check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Project one sample alone, which its place among the bits must not change."""
    from workbench.genotypes import project

    found: Projection = results["projected"]
    known = np.flatnonzero(~np.isin(found.samples, found.unknown_samples))
    if not np.isfinite(found.scores[known]).all():
        return Check(passed=False, what="Some scores are not finite.")
    if not known.size:
        return Check(passed=False, what="No sample has a genotype at any variant of the reference.")
    chosen = int(known[len(known) // 2])
    options = {name: resolved[name] for name in ("correct", "ambiguous")}
    alone = project(
        resolved["components"], studies.opened_for_check("genotype_project", resolved).of_samples([chosen]), **options
    )
    off = float(np.abs(alone.scores[0] - found.scores[chosen]).max() / (np.abs(found.scores[known]).max() or 1.0))
    return Check(
        passed=off < 1e-9,
        what=f"The scores of {found.samples[chosen]}, projected alone, differ by {off:.1e} of the most.",
    )


def _projection_code(on_gpu: bool, **resolved: Any) -> str:
    components = formats.literal(resolved["components"])
    return studies.code("genotype_project", resolved, "project", components, names=("correct", "ambiguous"))


PROJECTION = studies.template(
    workload(
        title="Project samples onto components",
        prepare=_projection_resolved,
        needs=_projection_needs,
        check=_projection_check,
        code=_projection_code,
    )(genotype_project),
    "projected",
    summary_of=_projection_summary,
    arrays_of=_projection_arrays,
    referring=("components",),
)
