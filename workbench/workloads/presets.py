"""The experiments of the posts and of a textbook, as parameters of their workloads, at any scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from dask.utils import parse_bytes
from pydantic import BaseModel, ConfigDict

from workbench.errors import NotFoundError
from workbench.workloads.fields import Scale, Words
from workbench.workloads.values import BadParameterError


class Preset(BaseModel):
    """Parameters that somebody has used before."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    source: str
    """The text in which it is."""
    parameters: dict[str, Any]
    profile: str | None = None
    """Kind of cluster that the text is about; None where it tries several."""


DASK_CUDA = "Dask-CUDA’s benchmark local_cudf_merge"
FIRST_STEPS = "GPU Dask Arrays, first steps (2019)"
UCX = "Experiments in high performance networking with UCX and DGX (2019)"
LARGE_SVDS = "Large SVDs (2020)"
TEXTBOOK = "A textbook's chapter on Dask and GPUs"

_AS_IN_THE_POST = {"k": 10, "method": "dask", "n_power_iter": 0, "tolerance": 1.0, "chunks": [20_000, 5_000]}
"""Without power iterations the values are rough, so that the check may only say how rough."""

_LAPTOP = {"shape": [1_000_000, 20_000], "compute": True, **_AS_IN_THE_POST}

_LEAST_SIDE = 20
"""Below which no side is scaled: the narrowest array of the texts, and twice the components that they ask for."""

SUM = (
    Preset(
        name="post",
        title="2 TB, the sum of the post: 1 min 37 s on one V100, 19 s on eight",
        source=FIRST_STEPS,
        parameters={"shape": [500_000, 500_000], "chunks": [10_000, 10_000], "generator": "RandomState"},
    ),
)

MEAN = (SUM[0].model_copy(update={"title": "2 TB, the post's array: its mean failed on GPUs then"}),)

TRANSPOSE = (
    Preset(
        name="post",
        title="40 000 × 40 000 in blocks of 128 MiB, made first and then timed",
        source=UCX,
        parameters={"shape": [40_000, 40_000], "chunks": "128MiB", "persist": True},
        profile="ucx",
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
        profile="ucx",
    ),
    Preset(
        name="tall",
        title="10 000 000 × 20 in sixteen blocks, 1.6 GB",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20], "chunks": [625_000, 20], "method": "dask"},
    ),
)

COMPRESSED = (
    Preset(
        name="laptop",
        title="1 000 000 × 20 000 as the post's code has it, float64, 160 GB: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "float64", **_LAPTOP},
    ),
    Preset(
        name="laptop_uint8",
        title="1 000 000 × 20 000 of one byte each, the 20 GB that the post calls it: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "uint8", **_LAPTOP},
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


def fields(presets: tuple[Preset, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the form's fields with which a preset is chosen and scaled; none where there is no preset."""
    if not presets:
        return {}
    names = tuple(preset.name for preset in presets)
    words = Words(
        allowed=" or ".join(filter(None, (", ".join(names[:-1]), names[-1]))),
        description="An experiment of a text: its parameters, where no others are given.",
    )
    return {"preset": (Annotated[Literal[names] | None, words], None), "scale": (Scale, None)}


def filled(workload: str, preset: Preset | None, scale: float | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a preset at a scale, with those in their place that were given; a size replaces a shape."""
    own = {name: value for name, value in given.items() if name not in ("preset", "scale") and value not in (None, "")}
    sized = next((name for name in ("size", "shape") if name in own), None)
    if scale is not None and preset is None:
        raise BadParameterError(
            f"scale of {workload} is {scale:g}, of no preset. Name the preset that it scales.", "scale"
        )
    if scale is not None and sized is not None:
        raise BadParameterError(
            f"{workload} was given both scale ({scale:g}) and {sized} ({own[sized]!r}). Give one of them.", "scale"
        )
    if preset is None:
        return own
    theirs = dict(preset.parameters) if scale is None else scaled(preset.parameters, scale)
    if sized == "size":
        # Blocks of a larger array may not fit into a smaller one.
        theirs = {name: value for name, value in theirs.items() if name not in ("shape", "chunks")}
    return theirs | own


def scaled(parameters: dict[str, Any], scale: float) -> dict[str, Any]:
    """Parameters of arrays or dataframes so many times as large: of the same form and in as many blocks if can be."""
    if "n_rows" in parameters:
        return parameters | {name: math.ceil(scale * parameters[name]) for name in ("n_rows", "partition")}
    shape = parameters["shape"]
    small, large = sorted(shape)
    narrow = max(round(small * math.sqrt(scale)), min(small, _LEAST_SIDE))
    # What the shorter side may not give, the longer one does.
    long = narrow if small == large else max(round(small * large * scale / narrow), narrow)
    sides = [narrow if length == small else long for length in shape]
    return {**parameters, "shape": sides, "chunks": _scaled_chunks(parameters["chunks"], shape, sides)}


def _scaled_chunks(chunks: Any, shape: list[int], sides: list[int]) -> Any:
    if isinstance(chunks, str):
        return f"{round(parse_bytes(chunks) * math.prod(sides) / math.prod(shape))}B"
    counts = [math.ceil(length / part) for length, part in zip(shape, chunks, strict=True)]
    return [math.ceil(side / count) for side, count in zip(sides, counts, strict=True)]


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Say in what the parameters of a run differ from those of a text, both as the workload's function gets them."""
    if "n_rows" in theirs:
        return tuple(_other(name, theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name])
    told = []
    part = math.prod(ours["shape"]) / math.prod(theirs["shape"])
    if theirs["shape"] != ours["shape"]:
        told.append(f"{part:.3g} of its numbers, {ours['shape'][0]} × {ours['shape'][1]}")
    n_theirs, n_ours = (
        math.prod(math.ceil(a / b) for a, b in zip(each["shape"], each["chunks"], strict=True))
        for each in (theirs, ours)
    )
    if n_theirs != n_ours:
        told.append(f"{n_ours} blocks, not {n_theirs}")
    # The texts give no seed, and what is kept in between follows from the memory.
    others = [name for name in theirs if name not in ("shape", "chunks", "seed", "keep")]
    return (*told, *(_other(name, theirs[name], ours[name]) for name in others if theirs[name] != ours[name]))


def _other(name: str, theirs: Any, ours: Any) -> str:
    text = [str(value).lower() if isinstance(value, bool) else str(value) for value in (ours, theirs)]
    told = f"{name} {text[0]}, not {text[1]}"
    return f"{told}: every number is made, and none is stored" if (name, ours) == ("generator", "fused") else told
