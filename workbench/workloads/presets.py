"""The experiments of the posts and of a textbook, as parameters of their workloads."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.errors import NotFoundError


class Preset(BaseModel):
    """Parameters that somebody has used before."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    source: str
    """The text in which it is."""
    parameters: dict[str, Any]


FIRST_STEPS = "GPU Dask Arrays, first steps (2019)"
UCX = "Experiments in high performance networking with UCX and DGX (2019)"
LARGE_SVDS = "Large SVDs (2020)"
TEXTBOOK = "A textbook's chapter on Dask and GPUs"

_AS_IN_THE_POST = {"k": 10, "method": "dask", "n_power_iter": 0, "tolerance": 1.0, "chunks": [20_000, 5_000]}
"""Without power iterations the values are rough, so that the check may only say how rough."""

SUM = (
    Preset(
        name="post",
        title="2 TB, the sum of the post: 1 min 37 s on one V100, 19 s on eight",
        source=FIRST_STEPS,
        parameters={"shape": [500_000, 500_000], "chunks": [10_000, 10_000], "generator": "RandomState"},
    ),
)

TRANSPOSE = (
    Preset(
        name="post",
        title="40 000 × 40 000 in blocks of 128 MiB",
        source=UCX,
        parameters={"shape": [40_000, 40_000], "chunks": "128MiB"},
    ),
)

TALL = (
    Preset(
        name="textbook",
        title="10 000 × 1 000 in ten blocks",
        source=TEXTBOOK,
        parameters={"shape": [10_000, 1_000], "chunks": [1_000, 1_000], "method": "dask"},
    ),
    Preset(
        name="ucx",
        title="1 000 000 × 1 000 in a hundred blocks, made first and then timed",
        source=UCX,
        parameters={"shape": [1_000_000, 1_000], "chunks": [10_000, 1_000], "persist": True, "method": "dask"},
    ),
    Preset(
        name="tall",
        title="10 000 000 × 20, 1.6 GB",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20], "method": "dask"},
    ),
)

COMPRESSED = (
    Preset(
        name="laptop",
        title="1 000 000 × 20 000, made again at each pass: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"shape": [1_000_000, 20_000], "dtype": "uint8", "compute": True, **_AS_IN_THE_POST},
    ),
    Preset(
        name="dgx2",
        title="200 GB, 10 000 000 × 20 000 genotypes held in memory: 10 to 15 s on sixteen GPUs",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20_000], "dtype": "uint8", "persist": True, **_AS_IN_THE_POST},
    ),
)


def find(workload: str, presets: tuple[Preset, ...], name: str) -> Preset:
    """One of the presets of a workload. NotFoundError lists which there are."""
    for preset in presets:
        if preset.name == name:
            return preset
    there = f"Choose one of: {', '.join(preset.name for preset in presets)}." if presets else "It has none."
    raise NotFoundError(f"{workload} has no preset {name!r}. {there}")
