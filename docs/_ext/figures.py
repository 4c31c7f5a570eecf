"""Run each workload on a small cluster, and keep the totals that a notebook keeps of it: `python figures.py FOLDER`.

In a process of its own, with a data folder of its own. Whatever fails ends it, and so the build of the documentation.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS: dict[str, dict[str, Any]] = {
    "array_sum": {"size": "64MiB", "chunks": "512"},
    "transpose_sum": {"size": "32MiB", "chunks": "500"},
    "dataframe_join": {"n_rows": 400_000, "partition": 50_000},
    "tall_skinny_svd": {"size": "32MiB", "chunks": "2MiB"},
    "compressed_svd": {"size": "8MiB", "k": 5, "chunks": "1MiB"},
    "svd_of_file": {"path": "example.npy", "k": 4, "chunks": "100kiB"},
    "reduce_file": {"path": "example.npy", "what": "histogram"},
    "eofs": {"path": "year.nc", "k": 4},
    "pack_genotypes": {"path": "counts.npy", "to": "study.zarr"},
    "genotype_pca": {"n_variants": 5000, "n_samples": 1000, "n_components": 4},
    "genotype_qc": {"path": "study.zarr"},
    "genotype_relatedness": {"path": "study.zarr"},
    "genotype_project": {"path": "study.zarr", "components": "components.zarr"},
}
"""Parameters of the run of each workload, in this order: a run may read what one before it has written."""


def command(name: str) -> str:
    """Return the command that repeats the run of a workload."""
    return " ".join([f"workbench run {name} --on cpu", *(f"-p {key}={value}" for key, value in RUNS[name].items())])


def write_files() -> None:
    """Write the files that runs read into the current folder."""
    import numpy as np
    import xarray as xr

    from workbench import genotypes
    from workbench.workloads.examples import write_example

    write_example("example.npy")
    random = np.random.default_rng(0)
    axes = {"time": xr.date_range("2022", periods=365), "lat": np.arange(-60.0, 61, 10), "lon": np.arange(0.0, 360, 10)}
    days = xr.DataArray(random.normal(size=(365, 13, 36)).astype("f4"), axes, tuple(axes), name="t2m")
    days.to_netcdf("year.nc", engine="h5netcdf", encoding={"t2m": {"chunksizes": (30, 13, 36)}})
    np.save("counts.npy", np.asarray(genotypes.simulate(5000, 200, n_populations=3, seed=1).counts()))


def main(folder: Path) -> None:
    """Write the totals of a run of each workload, as HTML."""
    import workbench
    from workbench.figures.totals import Totals
    from workbench.panels.static import titled
    from workbench.views.run_files import read_record

    write_files()
    with workbench.start("cpu", n_workers=2, threads_per_worker=1, memory="2GiB", name="docs") as cluster:
        for name, parameters in RUNS.items():
            run = workbench.run(name, cluster, **parameters)
            if run.status != "done" or (run.check is not None and not run.check.passed):
                raise RuntimeError(f"The run of {name} for its page: {run.status}, {run.error or run.check}")
            if name == "genotype_pca":
                workbench.save(run, "components.zarr")
            print(f"{name}: {run.seconds:.1f} s", flush=True)
            totals = Totals()
            totals.feed([read_record(run)])
            html, _ = titled(f"{run.title} on two workers", totals)
            (folder / f"{name}.html").write_text(f'<div class="run-figure">{html}</div>\n', encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["DASK_WORKBENCH__DATA_FOLDER"] = str(Path(scratch, "data"))
        os.chdir(scratch)
        main(target)
