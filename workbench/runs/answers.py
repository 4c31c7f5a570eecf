"""Arrays of a run's answer: their locations, and how to read them again."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, computed_field

from workbench import formats
from workbench.errors import BadInputError, NotFoundError, WorkbenchError
from workbench.threads import load

if TYPE_CHECKING:
    import xarray as xr

    from workbench.runs.run import Run

FILE = "answer.zarr"
"""Store in a run's folder with its arrays."""

NAMING = ("zarr", "nc")
"""Kinds of files that contain the name of their run."""

Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Array(BaseModel, frozen=True):
    """One array of an answer."""

    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    bytes: Bytes
    """Bytes in memory."""

    def words(self) -> str:
        """Return a description such as '4,000 × 3 float64'."""
        return f"{formats.by(self.shape) or 'one'} {self.dtype}"


class Answers(BaseModel, frozen=True):
    """The arrays of an answer by name, and where they lie."""

    arrays: dict[str, Array]
    kept: tuple[str, ...] = ()
    """Names of the arrays saved with the run."""
    kept_bytes: Bytes = 0
    """Bytes of these on disk."""
    saved: str | None = None
    """Path or URL where all were saved."""
    mark: tuple[str, ...] = ()
    """Fingerprint of `saved`: a Zarr store or NetCDF names its run, a NumPy file has a size and a time."""
    dropped: Annotated[float, Field(ge=0, le=2e11)] | None = None
    """Time when the arrays saved with the run were dropped for later ones (seconds since the epoch)."""
    remark: str | None = None
    """Reason why some are not saved."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Summary of the arrays, their size and location."""
        return " ".join(filter(None, (f"{_words(self.arrays)}, {self._where}.", self.remark)))

    @property
    def apart(self) -> str | None:
        """Summary of the arrays that aren't saved with the run, and their location; None if all are."""
        elsewhere = {name: each for name, each in self.arrays.items() if name not in self.kept}
        where = f"saved to {self.saved}" if self.saved else "and saved nowhere"
        return f"{_words(elsewhere)}, {where}." if elsewhere else None

    @property
    def _where(self) -> str:
        names = "" if len(self.kept) == len(self.arrays) else f"{', '.join(self.kept)} "
        with_run = f"{names}kept with the run" if self.kept else None
        saved = f"saved to {self.saved}" if self.saved else None
        if self.dropped is not None:
            with_run = "no longer kept, to make room for later ones"
        return " and ".join(filter(None, (saved, with_run))) or "not kept: save=PATH saves them"


def _words(arrays: Mapping[str, Array]) -> str:
    summary = ", ".join(f"{name} ({each.words()})" for name, each in arrays.items())
    return f"{summary}: {formats.size(sum(each.bytes for each in arrays.values()))}"


_IN_MEMORY = 64 * 2**20
"""Bytes of all arrays of an answer together up to which each is read when it is needed."""
_FIRST = 3
"""Values at the beginning of an array that are printed."""


class Arrays(Mapping[str, Any]):
    """Arrays of an answer by name: NumPy's if they are small together, else Dask's.

    A missing one raises NotFoundError with the reason.
    """

    def __init__(self, arrays: Mapping[str, Any], run: Run) -> None:
        self._arrays = dict(arrays)
        self._run = run
        self._small = sum(each.nbytes for each in self._arrays.values()) <= _IN_MEMORY

    def __getitem__(self, name: str) -> Any:
        if name not in self._arrays:
            raise NotFoundError(lacking(self._run, name))
        if self._small:
            self._arrays[name] = _read(self._arrays[name])
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        lines = (f"{name}: {_preview(each)}" for name, each in self._arrays.items())
        return "\n".join((f"Arrays of {self._run.id}", *lines))


def _read(array: Any) -> Any:
    # Threads of this process: the cluster of the moment may not see the file.
    return array.compute(scheduler="threads") if hasattr(array, "dask") else array


def _preview(array: Any) -> str:
    """Return shape, data type and first values of an array."""
    first = array[(0,) * (array.ndim - 1)][:_FIRST] if array.ndim and array.size else array
    values = ", ".join(f"{each:.6g}" if array.dtype.kind in "fc" else str(each) for each in _read(first).ravel())
    more = ", …" if array.size > first.size else ""
    return f"{formats.by(array.shape) or 'one'} {array.dtype}, {formats.size(array.nbytes)}: {values}{more}"


def lacking(run: Run, name: str | None = None) -> str:
    """Return why a run has no such array, or none at all."""
    if run.answers is None:
        return f"The run {run.id} has no arrays{f': {run.error}' if run.error else '.'}"
    if name is not None and name not in run.answers.arrays:
        return f"The run {run.id} has no array {name!r}. It has {', '.join(run.answers.arrays)}."
    try:
        _saved(run, run.answers)
    except WorkbenchError as err:
        rest = f" Kept with the run: {', '.join(run.answers.kept)}." if run.answers.kept else ""
        return f"{err}{rest} Run it again with save=PATH."
    return f"The run {run.id} has {run.answers.sentence} Run it again with save=PATH."


def arrays(run: Run) -> Arrays:
    """Return the arrays of a run's answer by name."""
    return Arrays({str(name): each.data for name, each in there(run).items()}, run)


def there(run: Run) -> xr.Dataset:
    """Return the readable arrays of a run's answer; `lacking` says why another one can't be read."""
    data, answers = stored_arrays(run), run.answers
    if answers is None:
        return data
    if len(data) < len(answers.arrays):
        with contextlib.suppress(WorkbenchError):
            data = _saved(run, answers).assign(data.variables)
    return data[[name for name in answers.arrays if name in data]]


def stored_arrays(run: Run) -> xr.Dataset:
    """Return the arrays in the run's folder, for pages: others may be slow to read, or missing."""
    import xarray as xr

    from workbench.runs.store import folder

    if run.answers is not None and run.answers.kept:
        with contextlib.suppress(FileNotFoundError, KeyError):
            return _from_zarr(str(folder(run.id) / FILE), run.answers)
    return xr.Dataset()


def dataset(run: Run) -> xr.Dataset:
    """Return the arrays of a run's answer with certificate and provenance as attributes."""
    from workbench.storage.variables import indexed

    data = there(run)
    if not data or (run.answers and run.answers.saved and len(data) < len(run.answers.arrays)):
        raise NotFoundError(lacking(run))
    return indexed(data).assign_attrs(provenance(run))


def provenance(run: Run) -> dict[str, Any]:
    """Return attributes with the arrays' origin: workload, parameters, cluster, versions, times, certificate.

    Attributes are text and numbers; nested values are JSON.
    """
    certificate = (run.result or {}).get("certificate")
    return {
        "source": f"dask-workbench {run.versions.get('workbench', '')}".strip(),
        "run": run.id,
        "workload": run.workload,
        "parameters": json.dumps(run.resolved),
        "cluster": run.spec.describe() if run.spec else run.cluster,
        "versions": json.dumps(run.versions),
        "created": formats.iso(run.created),
        **({} if run.seconds is None else {"seconds": run.seconds}),
        **({} if run.check is None else {"check": f"{run.check.what} {run.check.detail}".strip()}),
        **({} if certificate is None else {"certificate": certificate["sentence"]}),
        **({} if certificate is None else {"certificate_details": json.dumps(certificate)}),
    }


def _saved(run: Run, answers: Answers) -> xr.Dataset:
    """Return arrays from where all were saved; NotFoundError if they are gone, BadInputError if none can be read."""
    import xarray as xr

    from workbench.storage.places import sentences_about
    from workbench.storage.targets import kind_of

    if answers.saved is None:
        return xr.Dataset()
    if run.imported is not None:
        # A record may name any address, which would then get a request with this machine's credentials.
        raise NotFoundError(
            f"The run {run.id} came from {run.imported.machine}, where its arrays were saved to {answers.saved}. "
            "What another machine saved is not opened by itself: open it with Zarr or xarray, if you trust it."
        )
    path, kind = answers.saved, kind_of(answers.saved)
    read = {"zarr": _from_zarr, "npz": _from_numpy, "npy": _from_numpy, "nc": _from_netcdf}[kind]
    message = f"The arrays of the run {run.id} are no longer at {path}"
    with sentences_about(path, f"the arrays of the run {run.id}"):
        try:
            mark = mark_at(path, kind)
            if mark != (answers.mark or ((run.id,) if kind in NAMING else mark)):
                by = f"the run {mark[0]} replaced them" if mark and kind in NAMING else "something else is there"
                raise NotFoundError(f"{message}: {by}.")
            data = read(path, answers)
        except (FileNotFoundError, KeyError) as err:
            raise NotFoundError(f"{message}.") from err
    for name, each in data.items():
        _check_fits(each, answers.arrays[str(name)], path)
    return data


def mark_at(path: str, kind: str) -> tuple[str, ...]:
    """Return the fingerprint of arrays at a path or URL (`Answers.mark`); empty where there is none."""
    from workbench.storage.places import full

    if kind not in NAMING:
        return tuple(full(path).stamp())
    if kind == "zarr":
        import zarr

        attrs = dict(zarr.open_group(path, mode="r").attrs)
    else:
        import xarray

        with xarray.open_dataset(path, engine="h5netcdf") as file:
            attrs = file.attrs
    return (str(attrs["run"]),) if "run" in attrs else ()


def _check_fits(data: Any, expected: Array, path: str) -> None:
    """Raise NotFoundError if these numbers don't match the record; NetCDF has no float16."""
    import numpy as np

    dtype = np.dtype(expected.dtype)
    if data.shape != expected.shape or (dtype.kind in "iufc" and not np.can_cast(dtype, data.dtype)):
        actual = f"{' × '.join(map(str, data.shape))} {data.dtype}"
        raise NotFoundError(f"{path} holds {actual} where {expected.words()} was saved: something else is there.")


def _members(path: str) -> dict[str, Any]:
    """Return arrays of a store; BadInputError if reading one would run code in it: it may have been imported."""
    import zarr

    from workbench.storage.zarrs import safe

    return {name: safe(each, path) for name, each in zarr.open_group(path, mode="r").arrays()}


def check_store(path: str, answers: Answers, most: int) -> None:
    """Raise an error if a store doesn't match the record, or reading it would take too much memory.

    Without any chunk a store may claim any shape. A block is read whole, and compressed, it may claim any size.
    """
    members = _members(path)
    n_bytes = sum(max(math.prod(each.shape), math.prod(each.chunks)) * _item(each) for each in members.values())
    n_blocks = sum(math.prod(each.cdata_shape) for each in members.values())
    if n_bytes > most // 2 or n_blocks > _MOST_BLOCKS:
        raise BadInputError(
            f"they would take {formats.size(n_bytes)} in {formats.count(n_blocks, 'block')}. At most "
            f"{formats.size(most // 2)} in {_MOST_BLOCKS} are taken in. If you trust where they come from, allow more: "
            "--max-size 4GiB"
        )
    for name, each in members.items():
        _check_blocks(each, Path(path) / name / "c", most // 4)
    for name in answers.kept:
        if name not in members:
            raise BadInputError(f"there is no {name!r}.")
        _check_fits(members[name], answers.arrays[name], name)
    _from_zarr(path, answers)


_MOST_BLOCKS = 2**16
_TEXT = 64
"""Bytes that a short text takes."""


def _item(array: Any) -> int:
    return _TEXT if array.dtype.kind == "T" else int(array.dtype.itemsize)


def _check_blocks(array: Any, folder: Path, most: int) -> None:
    """Raise BadInputError if a block isn't written as by `storage.writing`, or is too large."""
    import pyarrow as pa

    codecs = [each.to_dict()["name"] for each in array.metadata.codecs]
    is_text, length = array.dtype.kind == "T", math.prod(array.chunks)
    if codecs != ["vlen-utf8" if is_text else "bytes", "zstd"]:
        raise BadInputError(f"{array.name} is written with {', '.join(map(str, codecs))}, and an export with zstd.")
    n_bytes = most if is_text else array.dtype.itemsize * length
    for block in folder.rglob("*"):
        if not block.is_file():
            continue
        try:
            with pa.input_stream(str(block), compression="zstd") as file:
                content = file.read(n_bytes + 1)
        except (pa.ArrowException, OSError) as err:
            raise BadInputError(f"{array.name} has a block that is damaged.") from err
        is_sound = int.from_bytes(content[:4], "little") == length if is_text else len(content) == n_bytes
        if len(content) > n_bytes or not is_sound:
            raise BadInputError(f"{array.name} has a block that holds more or less than it is to hold.")


def _from_zarr(path: str, answers: Answers) -> xr.Dataset:
    load("dask.array")
    import xarray as xr

    from workbench.storage.variables import dataset, dates
    from workbench.storage.zarrs import from_store

    arrays: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    for name, each in _members(path).items():
        attrs = each.attrs.asdict()
        data = dates(from_store(each) if name in answers.arrays else each[...], attrs)
        # Decoded dates have their unit and calendar already.
        attributes = {key: value for key, value in attrs.items() if data.dtype.kind not in "MO" or key not in _COUNTED}
        if (array := answers.arrays.get(name)) is not None:
            arrays[name] = xr.Variable(array.dims, data, attributes)
        else:
            coords[name] = xr.Variable(each.metadata.dimension_names or (), data, attributes)
    return dataset(arrays, coords)


_COUNTED = ("units", "calendar")


def _from_numpy(path: str, answers: Answers) -> xr.Dataset:
    load("dask.array")
    import dask.array as da
    import numpy as np
    from dask import delayed

    from workbench.storage.variables import dataset

    variables = {}
    for name, each in answers.arrays.items():
        if path.endswith(".npy") and "://" not in path and each.shape:
            data = da.from_array(np.load(Path(path), mmap_mode="r"))
        else:
            data = da.from_delayed(delayed(_loaded)(path, name, each), each.shape, np.dtype(each.dtype))
        variables[name] = each.dims, data
    return dataset(variables, None if path.endswith(".npy") else _labels(path, answers))


def _labels(path: str, answers: Answers) -> dict[str, Any]:
    """Return a .npz's arrays for the name of a dimension: it has no other record of dimensions."""
    import numpy as np

    from workbench.storage.places import full

    dims = {dim for each in answers.arrays.values() for dim in each.dims} - set(answers.arrays)
    with full(path).open() as file, np.load(file, allow_pickle=False) as archive:
        return {dim: archive[dim] for dim in dims.intersection(archive.files)}


def _loaded(path: str, name: str, expected: Array) -> Any:
    import numpy as np

    from workbench.storage.places import full

    with full(path).open() as file, contextlib.ExitStack() as stack:
        content = np.load(file, allow_pickle=False)
        data = stack.enter_context(content)[name] if hasattr(content, "files") else content
    _check_fits(data, expected, path)
    return data


def _from_netcdf(path: str, answers: Answers) -> xr.Dataset:
    import xarray as xr

    return xr.open_dataset(path, engine="h5netcdf", chunks={})[list(answers.arrays)]
