"""Small runs of every workload of ours with every option, for tests of what workers need."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import tifffile
import zarr
from distributed import Client
from pyarrow import parquet

from tests.test_genotypes_pca import bed_file
from tests.test_genotypes_reading import vcf_zarr
from tests.winds import winds_of
from workbench.clusters.spec import ClusterSpec
from workbench.runs import answer_storage
from workbench.runs.forecasting.forecast import lacking
from workbench.runs.forecasting.verdicts import size_of
from workbench.sent_code import make_ready, missing
from workbench.storage import writing
from workbench.storage.targets import KINDS, target
from workbench.workloads import template
from workbench.workloads.registry import Template
from workbench.workloads.values import BadParameterError

Case = tuple[str, dict[str, Any]]

_CLUSTER = {"threads": 2, "memory": 2**30}
_NOT_FOR_TASKS = ("preset", "anon", "replace", "overwrite")


def on_bare_workers(folder: Path) -> list[Case]:
    """Return parameters of the workloads whose tasks need no more than Dask and NumPy."""
    x = np.random.default_rng(0).random((60, 12))
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x)
    bed = _bed(folder)
    some = {"leave_out": "1:3-5", "remove": ["s1"]}
    limits = {"maf": 0.01, "max_missing": 0.5, "hwe": 1e-9, **some}
    return [
        ("array_sum", {"shape": [300, 300], "chunks": 150}),
        ("transpose_sum", {"shape": [200, 200], "chunks": 100}),
        ("tall_skinny_svd", {"shape": [400, 10], "chunks": [100, 10]}),
        ("compressed_svd", {"shape": [300, 60], "chunks": [100, 60], "k": 3}),
        ("svd_of_file", {"path": f"{folder}/x.npy"}),
        ("svd_of_file", {"path": f"{folder}/x.npz", "k": 3}),
        ("reduce_file", {"path": f"{folder}/x.npy"}),
        ("reduce_file", {"path": f"{folder}/x.npz", "over": "0", "missing": "leave out"}),
        ("genotype_pca", {"path": bed, "n_components": 2, "ld_window": 20, "ld_step": 3, **limits}),
        ("genotype_pca", {"n_variants": 400, "n_samples": 40, "n_components": 2}),
        ("genotype_qc", {"path": bed, "leave_out": "1:3-5", "keep_samples": ["s1", "s2", "s3"]}),
        ("genotype_relatedness", {"path": bed, "cutoff": -1, **limits}),
        ("genotype_project", {"path": bed, "components": _components(folder, bed), "remove": ["s1"]}),
    ]


def of_files(folder: Path) -> list[Case]:
    """Return parameters of workloads whose tasks need what reads or writes files, or pandas."""
    winds = winds_of(n_times=24).fillna(0)
    winds.to_netcdf(folder / "winds.nc", engine="h5netcdf")
    packing = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -1}
    winds.to_netcdf(folder / "packed.nc", engine="h5netcdf", encoding={"u": packing})
    winds.to_zarr(folder / "winds.zarr", consolidated=False)
    return [
        ("dataframe_join", {"n_rows": 2000, "partition": 1000}),
        ("eofs", {"path": f"{folder}/winds.nc", "variable": "u", "k": 2, "weights": "none"}),
        ("eofs", {"path": f"{folder}/winds.zarr", "variable": "u", "k": 2, "missing": "leave out"}),
        ("reduce_file", {"path": f"{folder}/packed.nc", "array": "u", "over": "time", "missing": "leave out"}),
        ("svd_of_file", {"path": f"{folder}/packed.nc", "array": "u", "k": 2, "select": "time=1980"}),
        ("pack_genotypes", {"path": _bed(folder), "to": str(folder / "packed")}),
    ]


def of_formats(folder: Path) -> list[Case]:
    """Return parameters for a file of each further format."""
    x = np.random.default_rng(0).random((60, 12))
    calls = np.random.default_rng(0).integers(0, 2, (60, 13, 2))
    zarr.save_array(str(folder / "x.zarr"), x)
    with zarr.storage.ZipStore(folder / "x.zip", mode="w") as store:
        zarr.save_array(store, x)
    tifffile.imwrite(folder / "x.tif", np.random.default_rng(0).integers(0, 200, (6, 20, 16)).astype("uint16"))
    table = pd.DataFrame(x, columns=[*"abcdefghijkl"])
    parquet.write_table(pa.table(table), folder / "x.parquet")
    table.to_csv(folder / "x.csv", index=False)
    return [
        *(("reduce_file", {"path": f"{folder}/x.{kind}"}) for kind in ("zarr", "zip", "tif", "parquet", "csv")),
        ("eofs", {"path": f"{folder}/x.tif", "k": 2}),
        ("genotype_pca", {"path": str(vcf_zarr(folder / "x.vcz", calls)), "n_components": 2}),
    ]


def _bed(folder: Path) -> str:
    return bed_file(folder, np.random.default_rng(0).integers(0, 3, (300, 30)).astype("int8"), ["1"] * 300)


def _components(folder: Path, bed: str) -> str:
    """Path of what genotype_pca found, saved."""
    workload, to = template("genotype_pca"), target(str(folder / "components.zarr"))
    with dask.config.set(scheduler="synchronous"):
        arrays = workload.arrays(workload.build(workload.validate({"path": bed, "n_components": 2})))
        writing.write(arrays, to, mark="components")
    return str(to)


def with_options(cases: list[Case], *, but: Collection[str] = ()) -> Iterator[Case]:
    """Yield each case, and more of each workload's first, so that each value of each option with a few is in one."""
    done = set(but)
    for name, given in cases:
        if name in done:
            yield name, given
            continue
        done.add(name)
        workload = template(name)
        fields = workload.schema()["properties"]
        usual = {option: field.get("default") for option, field in fields.items()}
        options = {
            option: values
            for option, field in fields.items()
            if option not in _NOT_FOR_TASKS and _counts(field.get("only"), given)
            if (values := _values(field, given.get(option, usual[option])))
        }
        found = [given]
        for number in range(max(map(len, options.values()), default=0)):
            chosen = {option: values[number % len(values)] for option, values in options.items()}
            together = {**given, **chosen}
            if _is_possible(workload, together):
                found.append(together)
            else:
                found += [{**given, option: value} for option, value in chosen.items()]
        told = [
            {**given, **{option: case[option] for option in case if case[option] != usual[option]}} for case in found
        ]
        for number, case in enumerate(told):
            if case not in told[:number] and _is_possible(workload, case):
                yield name, case


def _counts(only: str | None, given: Mapping[str, Any]) -> bool:
    """Return whether an option counts, or may count with another option's other value."""
    if only is None or "=" in only:
        return True
    return (only.removeprefix("!") in given) != only.startswith("!")


def _values(field: Mapping[str, Any], given: Any) -> list[Any]:
    """Return the values that an option has, others than the one that is given first."""
    kinds = [field, *field.get("anyOf", ())]
    found = [
        value for kind in kinds for value in kind.get("enum", [True, False] if kind.get("type") == "boolean" else ())
    ]
    return sorted(found, key=lambda value: value == given)


def _is_possible(workload: Template, given: Mapping[str, Any]) -> bool:
    try:
        workload.validate(given, **_CLUSTER)
    except BadParameterError:
        return False
    return True


def failures(cases: Iterable[Case], client: Client) -> list[str]:
    """Compute and check all cases on the client's workers, and tell what failed, or was refused for what they lack."""
    found, there = [], missing(make_ready(client))
    spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29, missing=there)
    for number, (name, given) in enumerate(cases):
        if name == "pack_genotypes":
            given = {**given, "to": f"{given['to']}-{number}.zarr"}
        try:
            told = _computed(template(name), given, client, spec)
        except Exception as err:  # noqa: BLE001  all failures are reported together
            told = "".join(traceback.format_exception(err)[-3:])
        if told:
            found.append(f"{name} {given}: {told}")
    return found


def _computed(workload: Template, given: Mapping[str, Any], client: Client, spec: ClusterSpec) -> str | None:
    parameters = workload.validate(given, **size_of(spec))
    if (lacks := lacking(workload, parameters, spec)) is not None:
        return lacks
    built = workload.build(parameters)
    collections = workload.collections(built)
    persisted = client.persist(list(collections.values())) if collections else ()
    results = built | dict(zip(collections, persisted, strict=True))
    results |= {each: results[each].compute() for each in workload.gathered(collections)}
    workload.summarise(results)
    # Not the dataset: workers would need xarray for it.
    answer = workload.arrays(results, parameters.resolved)
    dask.compute(*(each.data for each in answer.values()) if answer is not None else ())
    check = workload.check(parameters, results, client)
    return None if check is None or check.passed else check.what


def unwritten(client: Client, folder: Path) -> list[str]:
    """Have workers save the arrays of an answer as each kind of file, and tell what failed."""
    workload = template("tall_skinny_svd")
    results = workload.build(workload.validate({"shape": [400, 10], "chunks": [100, 10], "method": "dask"}))
    arrays, found = workload.arrays(results), []
    for kind in KINDS:
        some = arrays if kind != "npy" else arrays[["u"]]
        writer = answer_storage._Workers(client)
        try:
            writing.write(some, target(str(folder / f"answer.{kind}")), mark="answer", writer=writer)
        except Exception as err:  # noqa: BLE001
            found.append(f"{kind}: {err!r}")
        found += writer.notes
    return found
