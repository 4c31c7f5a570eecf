"""Storage of an answer's arrays with its run, and at the user's target, within the data folder's budget."""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from workbench import config, formats, remote
from workbench.errors import BadInputError, NotFoundError, WorkbenchError, quoted
from workbench.jobs import processes
from workbench.runs import store
from workbench.runs.answers import FILE, NAMING, Answers, Array, lacking, mark_at, provenance, there
from workbench.runs.array_budget import make_room
from workbench.runs.run import Run
from workbench.sent_code import Travelling, unable
from workbench.storage import writing
from workbench.storage.exports import regions, tabled
from workbench.storage.places import Place
from workbench.storage.targets import PICTURES, SAVED, Target, target, what_is_at
from workbench.storage.variables import is_lazy
from workbench.storage.writing import OLD, PART
from workbench.workloads import extensions

if TYPE_CHECKING:
    from distributed import Client


class Left(NamedTuple):
    """Result of saving a run's arrays."""

    answers: Answers
    notes: tuple[str, ...] = ()
    error: WorkbenchError | None = None
    """Reason why the arrays weren't saved to the target."""


def leave(run_id: str, answer: xr.Dataset, to: Target | None, client: Client | None = None) -> Left:
    """Save small arrays with the run, and all of them to the target if there is one; describe them.

    Without a client they are NumPy's, and this process writes them.
    """
    run = store.get(run_id)
    writer = writing.Writer() if client is None else _Workers(client)
    answer = answer.assign_attrs(provenance(run))
    described = {
        str(name): Array(shape=each.shape, dtype=str(each.dtype), dims=tuple(map(str, each.dims)), bytes=each.nbytes)
        for name, each in answer.items()
    }
    small = _small(described, config.size("answers.each"))
    # What is written twice is computed once.
    lazy = {name: each for name in small if is_lazy(each := answer.variables[name])}
    if lazy and client is not None:
        persisted = client.persist([each.data for each in lazy.values()])
        answer = answer.assign({name: lazy[name].copy(data=data) for name, data in zip(lazy, persisted, strict=True)})
    answers, notes = Answers(arrays=described), tuple[str, ...]()
    if small:
        answers, notes = _save(run, answer[list(small)], answers, writer)
    if to is None:
        return Left(answers, notes)
    sweep(to)
    try:
        writing.write(answer, to, mark=run_id, writer=writer)
    except WorkbenchError as err:
        return Left(answers, (*notes, *writer.notes), err)
    saved = {"saved": str(to), "mark": (run_id,) if to.kind in NAMING else mark_at(str(to), to.kind)}
    return Left(answers.model_copy(update=saved), (*notes, *writer.notes))


def _small(described: Mapping[str, Array], most: int) -> tuple[str, ...]:
    """Return the names of the smallest, as many as take no more than `most` bytes together."""
    names: list[str] = []
    for name in sorted(described, key=lambda name: described[name].bytes):
        most -= described[name].bytes
        if most < 0:
            break
        names.append(name)
    return tuple(name for name in described if name in names)


def _save(run: Run, answer: xr.Dataset, answers: Answers, writer: writing.Writer) -> tuple[Answers, tuple[str, ...]]:
    """Save arrays in the run's folder; return their description, and a message if older runs' arrays were dropped."""
    store_path = _store_path(run.id)
    dropped = make_room(sum(answers.arrays[str(name)].bytes for name in answer))
    notes = () if not dropped else (f"To keep these arrays, those of {', '.join(dropped)} were dropped, the oldest.",)
    try:
        writing.write(answer, Target(store_path, "zarr", True), mark=run.id, writer=writer)
    except WorkbenchError as err:
        return answers.model_copy(update={"remark": f"They could not be kept: {err}"}), notes
    fields = {"kept": tuple(map(str, answer)), "kept_bytes": store_path.size()}
    return answers.model_copy(update=fields), notes


def _store_path(run_id: str) -> Place:
    return Place(str(store.folder(run_id) / FILE))


class _Workers(writing.Writer):
    """Writer of blocks on the workers that reach the folder; other blocks come through this process, one by one."""

    is_local = False

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def store(self, sources: list[Any], targets: list[Any], path: str) -> None:
        """Write each block of the sources to its place in the targets, which are Zarr arrays below `path`."""
        lacking, what = self._lacking(path), "the arrays"
        if lacking is None:
            masks = self._write_blocks(sources, targets, None if "://" in path else path)
            n_left = sum(int((~each).sum()) for each in masks)
            if not n_left:
                return
            # A worker joined meanwhile, and may have left since.
            lacking = self._lacking(path) or ("A worker that came later", "it was elsewhere")
            what = formats.count(n_left, "block")
        else:
            masks = [np.zeros(source.numblocks, bool) for source in sources]
        host, reason = lacking
        self.notes = (f"{host} can't write to {Path(path).parent} ({reason}): {what} came through one process.",)
        self.count(0, of=sum(int((~each).sum()) for each in masks))
        for source, to, each in zip(sources, targets, masks, strict=True):
            for (place, block), is_written in zip(regions(source), each.flat, strict=True):
                if not is_written:
                    to[place] = self._client.compute(block).result()
                    self.count()

    def _write_blocks(self, sources: list[Any], targets: list[Any], path: str | None) -> list[Any]:
        """Write blocks on the workers, and return for each source a mask of those that were written."""
        from distributed.client import as_completed, futures_of

        tasks = self._client.persist(self._tasks(sources, targets, path))
        futures = futures_of(tasks)
        # Wait for all of them: a folder that is removed while a worker writes to it would be created again.
        for _ in as_completed(futures):
            self.count()
        wait_for(futures)
        return list(self._client.gather(self._client.compute(tasks)))

    def _lacking(self, path: str) -> tuple[str, str] | None:
        """Return a machine with workers that can't write there, and the reason; each may have its own disks.

        A scheduler unpickles data for workers, so it must have zarr as well; it needs no folder.
        """
        if (without := self._client.run_on_scheduler(Travelling(remote.unwritable_zarr), "://")) is not None:
            return tuple(without)
        return unable(self._client, remote.unwritable_zarr, path)


def wait_for(futures: Sequence[Any]) -> None:
    """Wait for all of them, or until the first one fails."""
    from distributed.client import as_completed

    for batch in as_completed(futures).batches():
        for future in batch:
            if future.status != "finished":
                future.result()


def clear(run_id: str, to: Target | None) -> None:
    """Remove unfinished files of a cancelled run, when no worker writes any more."""
    for place in (_store_path(run_id), *((to.place,) if to else ())):
        writing.remove(writing.unfinished(place, run_id))


def sweep(to: Target) -> None:
    """Remove unfinished files of killed processes next to a target, and restore what they had moved."""
    before = f".{to.place.name}."
    for name in to.place.sibling("").names():
        mark, _, kind = name.removeprefix(before).rpartition(".")
        there = to.place.sibling(name)
        # Another user's folder is left alone.
        if not (name.startswith(before) and kind in (PART, OLD) and _is_orphaned(mark) and writing.is_own(there)):
            continue
        if kind == OLD and what_is_at(to.place) is None:
            Path(there.path).rename(to.place.path)
        else:
            writing.remove(there)


def mark_of_saver(run_id: str) -> str:
    """Return the mark of this process's files for a run that has ended."""
    pid = os.getpid()
    return f"{run_id}+{_here()}-{pid}-{processes.created(pid) or 0:.0f}-{secrets.token_hex(2)}"


def _here() -> str:
    return f"{zlib.crc32(processes.place().encode()):x}"


def _is_orphaned(mark: str) -> bool:
    """Return whether no process is known to write under this mark of a run any more."""
    run_id, _, saver = mark.partition("+")
    here, pid, created, *_ = saver.split("-") if saver else (_here(), "0", "0")
    try:
        run = store.get(run_id)
    except WorkbenchError:
        return False
    return not (run.active or here != _here() or processes.find(int(pid), float(created)))


def wanted(
    run: Run, path: Any, kind: str | None = None, *, only: Sequence[str] = (), replace: bool = False
) -> tuple[Target, xr.Dataset]:
    """Return the target of a run's answer, if it may be written, and the arrays: none for a picture.

    Raises NotFoundError if some of them are not saved.
    """
    if not isinstance(run, Run):
        raise BadInputError(
            f"run is {quoted(run)}. Give the run itself, such as workbench.Session().show({quoted(run)})."
        )
    to = target(path, kind, replace=replace, kinds=(*SAVED, *extensions.writers()))
    if to.kind in PICTURES:
        return to, xr.Dataset()
    arrays = there(run)
    for name in only or (run.answers.arrays if run.answers else ("",)):
        if name not in arrays:
            raise NotFoundError(lacking(run, name or None))
    names = [*(only or arrays)]
    if only and to.kind == "tsv":
        # A table is of the array with columns; an array with a value for each of its rows is a further column.
        names.sort(key=lambda name: arrays[name].ndim, reverse=True)
        fitting = tabled(arrays[names])
        if rest := [name for name in names if name not in fitting]:
            raise BadInputError(
                f"{names[0]} and {formats.listed(rest)} don't fit into one table: their rows differ. "
                "Save each in a file of its own."
            )
    return to, arrays[names].assign_attrs(provenance(run))


def chosen_target(save: str | None, *, replace: bool) -> Target | None:
    """Return the target of a run's arrays, if it may be written: checked before they are computed."""
    if save is None:
        return None
    to = target(save, replace=replace)
    writing.try_out(to)
    return to
