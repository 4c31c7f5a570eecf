"""Leaves the arrays of an answer with its run, and where a person wants them, within the data folder's budget."""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench import config, formats, remote
from workbench.errors import BadInputError, NotFoundError, WorkbenchError, quoted
from workbench.jobs import processes
from workbench.runs import store
from workbench.runs.answers import FILE, NAMING, Answers, Array, labelled, lacking, mark_at, provenance
from workbench.storage import writing
from workbench.storage.labelled import apart
from workbench.storage.places import Place
from workbench.storage.targets import PICTURES, SAVED, Target, target
from workbench.travelling import Travelling, unable
from workbench.workloads.values import Labelled

if TYPE_CHECKING:
    from distributed import Client


class Left(NamedTuple):
    """What came of it."""

    answers: Answers
    notes: tuple[str, ...] = ()
    error: WorkbenchError | None = None
    """Why the arrays could not be saved where they were to be."""


def leave(run_id: str, arrays: Mapping[str, Labelled], to: Target | None, client: Client | None = None) -> Left:
    """Keep small arrays with the run, save all to the target if there is one, and say what lies where.

    Without a client they are NumPy's, and this process writes them.
    """
    run = store.get(run_id)
    hands = writing.Hands() if client is None else _Workers(client)
    sized = {name: writing.with_lengths(each.data) for name, each in arrays.items()}
    arrays = apart({name: replace(each, data=sized[name]) for name, each in arrays.items()})
    described = {
        name: Array(shape=data.shape, dtype=str(data.dtype), dims=tuple(arrays[name].dims), bytes=data.nbytes)
        for name, data in sized.items()
    }
    small = _small(described, config.size("answers.each"))
    # What is written twice is computed once.
    lazy = [name for name in small if hasattr(sized[name], "dask")]
    if lazy and client is not None:
        sized |= dict(zip(lazy, client.persist([sized[name] for name in lazy]), strict=True))
    arrays = {name: Labelled(sized[name], each.dims, each.coords, each.attrs) for name, each in arrays.items()}
    answers, notes = Answers(arrays=described), tuple[str, ...]()
    if small:
        answers, notes = _kept(run, {name: arrays[name] for name in arrays if name in small}, answers, hands)
    if to is None:
        return Left(answers, notes)
    begun, hands.kept = sweep(to, run), 0
    try:
        writing.write(arrays, to, provenance(run), mark=run_id, hands=hands, begun=begun)
    except WorkbenchError as err:
        return Left(answers, (*notes, *hands.notes), err)
    if hands.kept:
        blocks = formats.count(hands.kept, "block")
        notes = (*notes, f"{blocks} that an earlier run had saved before it was killed are the same, and were left.")
    saved = {"saved": str(to), "mark": (run_id,) if to.kind in NAMING else mark_at(str(to), to.kind)}
    return Left(answers.model_copy(update=saved), (*notes, *hands.notes))


def _small(described: Mapping[str, Array], most: int) -> tuple[str, ...]:
    """Names of the smallest, as many as take no more than `most` bytes together."""
    chosen: list[str] = []
    for name in sorted(described, key=lambda name: described[name].bytes):
        most -= described[name].bytes
        if most < 0:
            break
        chosen.append(name)
    return tuple(name for name in described if name in chosen)


def _kept(
    run: store.Run, arrays: Mapping[str, Labelled], answers: Answers, hands: writing.Hands
) -> tuple[Answers, tuple[str, ...]]:
    """Keep arrays in the run's folder; the answer with what was kept, and a sentence on what was dropped for it."""
    place = _kept_at(run.id)
    dropped = store.make_room(sum(answers.arrays[name].bytes for name in arrays))
    notes = () if not dropped else (f"To keep these arrays, those of {', '.join(dropped)} were dropped, the oldest.",)
    try:
        writing.write(arrays, Target(place, "zarr", True), provenance(run), mark=run.id, hands=hands)
    except WorkbenchError as err:
        return answers.model_copy(update={"remark": f"They could not be kept: {err}"}), notes
    kept = {"kept": tuple(arrays), "kept_bytes": place.size()}
    return answers.model_copy(update=kept), notes


def _kept_at(run_id: str) -> Place:
    return Place(str(store.folder(run_id) / FILE))


class _Workers(writing.Hands):
    """Workers write their blocks where they reach the place; else these come through this process, one by one."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    @cached_property
    def on_one_machine(self) -> bool:
        """Whether all of them see the same pages of a file."""
        told = self._client.run(Travelling(remote.machine), on_error="ignore")
        return {*map(str, told.values()), remote.machine()} == {remote.machine()}

    def store(self, sources: list[Any], targets: list[Any], path: str) -> None:
        """Write each block of the sources where it belongs in the targets, which lie below `path`."""
        from distributed.client import as_completed, futures_of

        lacking, came = self._lacking(path), "the arrays"
        if lacking is None:
            written = self._client.persist(self._tasks(sources, targets, None if "://" in path else path))
            futures = futures_of(written)
            # For all of them: what is removed while a worker writes to it would come again.
            for _ in as_completed(futures):
                self.count()
            wait_for(futures)
            done = self._client.gather(self._client.compute(written))
            self.kept += writing.became(writing.KEPT, done)
            refused = writing.became(writing.REFUSED, done)
            if not refused:
                return
            # One that came meanwhile, and may have left since.
            lacking = self._lacking(path) or ("A worker that came later", "it was elsewhere")
            came = formats.count(refused, "block")
        else:
            done = [np.full(source.numblocks, writing.REFUSED) for source in sources]
        host, reason = lacking
        self.notes = (f"{host} can't write to {Path(path).parent} ({reason}): {came} came through one process.",)
        self.count(0, of=writing.became(writing.REFUSED, done))
        for source, to, each in zip(sources, targets, done, strict=True):
            for (place, block), told in zip(writing.regions(source), each.flat, strict=True):
                if told == writing.REFUSED:
                    to[place] = self._client.compute(block).result()
                    self.count()

    def _lacking(self, path: str) -> tuple[str, str] | None:
        """A machine with workers that can't write there, and why; all are asked, since each may have its own disks.

        A scheduler opens what is sent to workers, so it must have zarr as well; it needs no folder.
        """
        if (without := self._client.run_on_scheduler(Travelling(remote.unwritable_zarr), "://")) is not None:
            return tuple(without)
        return unable(self._client, remote.unwritable_zarr, path)


def wait_for(futures: Sequence[Any]) -> None:
    """Wait for all of them, and no longer than for the first that failed."""
    from distributed.client import as_completed

    for batch in as_completed(futures).batches():
        for future in batch:
            if future.status != "finished":
                future.result()


def clear(run_id: str, to: Target | None) -> None:
    """Remove what a run that was cancelled left unfinished, when no worker writes any more."""
    for place in (_kept_at(run_id), *((to.place,) if to else ())):
        writing.remove(writing.unfinished(place, run_id))


def sweep(to: Target, run: store.Run) -> Place | None:
    """Remove what processes that were killed left unfinished beside a target; but give what `run` can go on with.

    That is of the same workload, function and parameters.
    """
    before, _, after = writing.unfinished(to.place, "*").name.partition("*")
    found = None
    for name in to.place.beside("").names():
        if not (name.startswith(before) and name.endswith(after)):
            continue
        whose, there = _ended(name.removeprefix(before).removesuffix(after)), to.place.beside(name)
        # What another user has put there is neither gone on with nor removed.
        if whose is None or not writing.is_own(there):
            continue
        if found is None and _computed(whose) == _computed(run):
            found = there
        else:
            writing.remove(there)
    return found


def _computed(run: store.Run) -> tuple[Any, ...]:
    return run.workload, run.resolved, run.function and run.function.sha


def mark_of_saver(run_id: str) -> str:
    """Mark of what this process writes of a run that has ended."""
    pid = os.getpid()
    return f"{run_id}+{_here()}-{pid}-{processes.created(pid) or 0:.0f}-{secrets.token_hex(2)}"


def _here() -> str:
    return f"{zlib.crc32(processes.place().encode()):x}"


def _ended(mark: str) -> store.Run | None:
    """The run that somebody wrote of under this mark who has ended; None where that isn't known."""
    run_id, _, saver = mark.partition("+")
    here, pid, created, *_ = saver.split("-") if saver else (_here(), "0", "0")
    try:
        run = store.get(run_id)
    except WorkbenchError:
        return None
    goes_on = run.active or here != _here() or processes.find(int(pid), float(created))
    return None if goes_on else run


def wanted(
    run: store.Run, path: Any, kind: str | None = None, *, only: Sequence[str] = (), replace: bool = False
) -> tuple[Target, dict[str, Labelled]]:
    """Where a run's answer is to be written, when it may, and which arrays: none for a picture.

    Raises NotFoundError where some of them are not kept.
    """
    if not isinstance(run, store.Run):
        raise BadInputError(
            f"run is {quoted(run)}. Give the run itself, such as workbench.Session().show({quoted(run)})."
        )
    to = target(path, kind, replace=replace, kinds=SAVED)
    if to.kind in PICTURES:
        return to, {}
    found = labelled(run)
    for name in only or (run.answers.arrays if run.answers else ("",)):
        if name not in found:
            raise NotFoundError(lacking(run, name or None))
    return to, {name: found[name] for name in only or found}


def chosen_target(save: str | None, *, replace: bool) -> Target | None:
    """Where a run is to save its arrays, when it may: asked before it computes them."""
    if save is None:
        return None
    to = target(save, replace=replace)
    writing.try_out(to)
    return to
