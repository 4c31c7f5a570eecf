"""Presets: the experiments of blog posts and a textbook as parameters, at any scale; and the user's own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from dask.utils import parse_bytes
from pydantic import BaseModel

from workbench import named_choices
from workbench.errors import ConflictError, NotFoundError, UntrustedError, quoted
from workbench.formats import by, count
from workbench.workloads.fields import Scale, Words
from workbench.workloads.values import BadParameterError


class Preset(BaseModel, frozen=True):
    """Parameters that have been used before."""

    name: str
    title: str
    source: str
    """Text with the experiment."""
    parameters: dict[str, Any]
    profile: str | None = None
    """Kind of cluster in the text; None where it tries several."""
    removable: bool = False
    """True if the user saved it, and may delete it."""


DASK_CUDA = "Dask-CUDA’s benchmark local_cudf_merge"
FIRST_STEPS = "GPU Dask Arrays, first steps (2019)"
UCX = "Experiments in high performance networking with UCX and DGX (2019)"
LARGE_SVDS = "Large SVDs (2020)"
TEXTBOOK = "A textbook's chapter on Dask and GPUs"


_LEAST_SIDE = 20
"""Least length of a scaled side: the narrowest array of the texts, and twice the components that they use."""


_LEAST_BLOCK = 10**6
"""Least numbers in a block, 8 MB: with fewer, Dask's time for a task exceeds that for its numbers."""


def own(names: Sequence[str]) -> tuple[dict[str, Preset], tuple[str, ...]]:
    """Return the user's presets for a workload of these names, and messages about those that can't be read."""
    presets: dict[str, Preset] = {}
    wrong: list[str] = []
    for place in named_choices.places("presets"):
        wrong += [place.error] if place.error else []
        for workload in dict.fromkeys(names):
            saved = place.content.get(workload) or {}
            for name, parameters in saved.items() if isinstance(saved, dict) else [(workload, saved)]:
                if not named_choices.is_name(name) or not isinstance(parameters, dict):
                    wrong.append(
                        f"A preset of {workload} is {quoted(name)}: {quoted(parameters)} (in {place.where}). Give a "
                        "name of lower-case letters, and parameters, such as {k: 4}."
                    )
                elif name not in presets:
                    # Convert YAML's dates to text, as in JSON and forms.
                    plain = json.loads(json.dumps(parameters, default=str))
                    presets[name] = named(name, plain, place.where, removable=place.where == named_choices.LAST[0])
    return presets, tuple(wrong)


def named(name: str, parameters: dict[str, Any], source: str, *, removable: bool = False) -> Preset:
    """Return a user's preset, titled by its parameters."""
    title = ", ".join(f"{key}={value}" for key, value in parameters.items())
    return Preset(name=name, title=f"{name}: {title}", source=source, parameters=parameters, removable=removable)


def keep(workload: str, presets: tuple[Preset, ...], name: str, parameters: Mapping[str, Any]) -> bool:
    """Save parameters of a workload under a name, in the data folder; return whether they replace others.

    Raises BadInputError or ConflictError if the name can't be used. `validate` checks the parameters.
    """
    named_choices.check_name(name, "preset", "winds")
    # The user's saved presets come before Dask's configuration, and after all others.
    theirs = next((each for each in presets if each.name == name and each.source not in named_choices.LAST), None)
    if theirs is not None:
        why = f"which isn't yours ({theirs.source})"
        raise ConflictError(f"{workload} has a preset {name!r} already, {why}. Choose another name.")
    with named_choices.changing():
        saved = named_choices.read("presets")
        mine = saved.get(workload) or {}
        named_choices.write("presets", {**saved, workload: {**mine, name: dict(parameters)}})
    return name in mine


def forget(workload: str, name: str) -> None:
    """Delete a saved preset. Raises NotFoundError if there is none of this name."""
    with named_choices.changing():
        saved = named_choices.read("presets")
        mine = dict(saved.get(workload) or {})
        if mine.pop(name, None) is None:
            raise NotFoundError(
                f"You saved no preset {quoted(name)} of {workload}. Your presets: {', '.join(mine) or 'none'}. Delete "
                f"those in {named_choices.FILE} in that file."
            )
        named_choices.write("presets", {**saved, workload: mine})


def find(workload: str, presets: Sequence[Preset], name: str, wrong: Sequence[str] = ()) -> Preset:
    """Return one of the presets of a workload. NotFoundError lists them, and the problems of others."""
    for preset in presets:
        if preset.name == name:
            return preset
    waiting = named_choices.untrusted()
    if waiting is not None and f"{workload}.{name}" in waiting.presets:
        raise UntrustedError(
            f"The preset {name} of {workload} is defined in {named_choices.FILE} of this folder, which you haven't "
            "trusted yet. See what it defines and trust it: workbench trust"
        )
    choices = f"Choose one of: {', '.join(preset.name for preset in presets)}." if presets else "It has none."
    raise NotFoundError(" ".join((f"{workload} has no preset {name!r}. {choices}", *wrong)))


def fields(presets: tuple[Preset, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the form's fields to choose and scale a preset; none where there is no preset."""
    if not presets:
        return {}
    words = Words("Parameters of an experiment from one of the source texts. Other fields override them.")
    names = tuple(preset.name for preset in presets)
    return {"preset": (Annotated[Literal[names] | None, words], None), "scale": (Scale, None)}


def filled(workload: str, preset: Preset | None, scale: float | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a preset at a scale, replaced by given ones; a size replaces a shape."""
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
    """Return the parameters of arrays or dataframes so many times as large, of the same form; see `_scaled_chunks`."""
    if "n_rows" in parameters:
        return parameters | {name: math.ceil(scale * parameters[name]) for name in ("n_rows", "partition")}
    shape = parameters["shape"]
    small, large = sorted(shape)
    narrow = max(round(small * math.sqrt(scale)), min(small, _LEAST_SIDE))
    # If the shorter side is limited, scale the longer one more.
    long = narrow if small == large else max(round(small * large * scale / narrow), narrow)
    sides = [narrow if length == small else long for length in shape]
    return {**parameters, "shape": sides, "chunks": _scaled_chunks(parameters["chunks"], shape, sides)}


def _scaled_chunks(chunks: Any, shape: list[int], sides: list[int]) -> Any:
    """Return as many blocks as before, but fewer if they would have less than `_LEAST_BLOCK` numbers.

    Each side that was cut keeps at least two pieces.
    """
    numbers = math.prod(sides)
    if isinstance(chunks, str):
        # At least two blocks, even with 4-byte numbers.
        least = min(8 * _LEAST_BLOCK, 2 * numbers)
        return f"{max(round(parse_bytes(chunks) * numbers / math.prod(shape)), least)}B"
    counts = [math.ceil(length / part) for length, part in zip(shape, chunks, strict=True)]
    while (excess := math.prod(counts) * _LEAST_BLOCK / numbers) > 1 and max(counts) > 2:
        factor = excess ** (-1 / sum(count > 2 for count in counts))
        counts = [max(2, int(count * factor)) if count > 2 else count for count in counts]
    return [math.ceil(side / count) for side, count in zip(sides, counts, strict=True)]


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe the differences between a run's parameters and a text's, both as the workload's function gets them."""
    if "n_rows" in theirs:
        return tuple(_other(name, theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name])
    differences = []
    part = math.prod(ours["shape"]) / math.prod(theirs["shape"])
    if theirs["shape"] != ours["shape"]:
        differences.append(f"{part:.3g} of its numbers, {by(ours['shape'])}")
    n_theirs, n_ours = (
        math.prod(math.ceil(a / b) for a, b in zip(each["shape"], each["chunks"], strict=True))
        for each in (theirs, ours)
    )
    if n_theirs != n_ours:
        differences.append(f"{count(n_ours, 'block')}, not {count(n_theirs)}")
    # The texts don't specify a seed.
    others = [name for name in theirs if name not in ("shape", "chunks", "seed")]
    return (*differences, *(_other(name, theirs[name], ours[name]) for name in others if theirs[name] != ours[name]))


def _other(name: str, theirs: Any, ours: Any) -> str:
    text = [str(value).lower() if isinstance(value, bool) else str(value) for value in (ours, theirs)]
    difference = f"{name} {text[0]}, not {text[1]}"
    return (
        f"{difference}: every number is made, and none is stored"
        if (name, ours) == ("generator", "fused")
        else difference
    )
