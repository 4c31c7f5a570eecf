"""A run as one portable file: `workbench save RUN FILE.zip` writes it, `workbench import` reads it, on any machine.

It is a zip of these members and no others, so that any language can read it:

==============  ======================================================================================================
member          content
==============  ======================================================================================================
run.json        JSON object: `format` ("dask-workbench run"), `version` (1), `exported` (seconds since the epoch),
                `machine` (name of the host it ran on), `package` (version of dask-workbench that wrote it) and `run`
events.parquet  the workers' tasks with their times, as `workbench.monitor.record` describes it; not in every file
gpus.parquet    samples of its GPUs, as `workbench.monitor.gpu_record` describes them; not in every file
log.txt         output of the run's process; not in every file
answer.zarr/…   the arrays saved with it, a Zarr store; only if requested. Arrays saved elsewhere are not
                included: `run.answers.kept` and `saved` list both
==============  ======================================================================================================

`run` is what `workbench show RUN --json` prints: workload, parameters as given and as used, the spec of the cluster,
the inventory of the machine, versions, times (seconds, and seconds since the epoch), result, check, diagnosis and
energy. Fields that a later version adds may be ignored; a change that can't be ignored makes `version` 2.

An imported run keeps its machine, which is shown with it: see `Run.imported`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from workbench import __version__, config
from workbench.errors import BadInputError, ConflictError, NotFoundError, quoted, reason_of, whole
from workbench.formats import count, size
from workbench.jobs import folders, records
from workbench.paths import check_openable
from workbench.redaction import redact, redact_json
from workbench.runs import store
from workbench.runs.answers import FILE, Answers, check_store
from workbench.runs.run import Imported, Run

FORMAT = "dask-workbench run"
VERSION = 1

MEMBERS = ("run.json", "events.parquet", "gpus.parquet", "log.txt")
MOST_BYTES = 2**31
"""Largest size of an unpacked file: a record of a hundred million tasks."""
MOST_MEMORY = 2**28
"""Largest memory to read its tables, or one of its arrays: a record of some hundred thousand tasks."""
MOST_MEMBERS = 2**16
MOST_EACH = {"run.json": 2**23, "log.txt": 2**24}
"""Largest size of members that compress well; of a longer log the end is exported."""
MOST_METADATA = 2**22
"""Largest size of each file that describes a store."""
MOST_VALUES = 500_000
"""Largest size of run.json. A list takes two bytes there, and a hundred in memory."""
MOST_RATIO = 50
"""Largest ratio of the other members' size to the zip's: an export stores them uncompressed."""
MOST_ROWS = 200_000_000
"""Largest number of rows that a table may claim; a few bytes can claim any number."""

_CHUNK = 2**20
_DIRECTORY = 128 * MOST_MEMBERS
"""Largest size of a zip's list of members, which is read at once."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_OF_STORE = re.compile(rf"{re.escape(FILE)}/((?!\.)[^/\\\0-\x1f]+/)?(zarr\.json|c(/\d+)*)")
"""Names of files of a Zarr store of version 3, as `runs.answer_storage` writes it: metadata and chunks."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def export_run(run: Run, path: Path, *, replace: bool = False, with_answers: bool = False) -> Path:
    """Write a run that has ended to `path`, or into that folder, and return the path.

    `with_answers` includes the arrays saved with it. Raises ConflictError while the run is active,
    and if the file exists and isn't to be replaced.
    """
    if run.active:
        raise ConflictError(f"The run {run.id} is still {run.status}. It can be exported when it has ended.")
    path = path / f"{run.id}.zip" if path.is_dir() else path
    check_openable(path)
    if path.exists() and not replace:
        raise ConflictError(f"{path} is there already. Give another name, or --replace.")
    if not path.parent.is_dir():
        raise NotFoundError(f"There is no folder {path.parent}. Make it first, or give another one.")
    with config.writing(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".workbench-export-") as place:
        temporary = Path(place) / "run.zip"
        with temporary.open("wb") as file:
            write_run(run, file, with_answers=with_answers)
        temporary.replace(path)
    return path


_CONTENTS = {"events.parquet": "the task stream", "gpus.parquet": "GPU samples", "log.txt": "the log"}


def contents(run: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return what an export without answers contains, and its size in bytes before the record is compressed."""
    folder = store.folder(run["id"])
    there = {name: (folder / name).stat().st_size for name in _CONTENTS if (folder / name).exists()}
    return ("parameters and result", *(_CONTENTS[name] for name in there)), len(json.dumps(run)) + sum(there.values())


def write_run(run: Run, file: IO[bytes], *, with_answers: bool = False) -> None:
    """Write a run that has ended to an open file."""
    folder = store.folder(run.id)
    if (folder / "events.arrows").exists():
        from workbench.monitor.record import finish_recording

        with config.writing(folder / "events.parquet"):
            finish_recording(folder / "events.parquet")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        description = {
            "format": FORMAT,
            "version": VERSION,
            "exported": time.time(),
            "machine": run.imported.machine if run.imported else socket.gethostname(),
            "package": __version__,
            "run": run.model_dump(mode="json", exclude={"pid", "pid_created", "place", "imported", "cost", "title"}),
        }
        archive.writestr("run.json", redact_json(json.dumps(description, indent=1)))
        for name in MEMBERS[1:]:
            if not (folder / name).exists():
                continue
            if name == "log.txt":
                archive.writestr(name, config.read_tail(folder / name, MOST_EACH[name] // 2))
            else:
                # Parquet is compressed already.
                archive.write(folder / name, name, zipfile.ZIP_STORED)
        for path in sorted((folder / FILE).rglob("*")) if with_answers else ():
            if path.is_file():
                archive.write(path, f"{FILE}/{path.relative_to(folder / FILE)}", zipfile.ZIP_STORED)


def import_run(path: Path | IO[bytes], *, new_id: bool = False, max_size: int | None = None) -> Run:
    """Import a run that `export_run` wrote, and return it; `new_id` gives it another id, if its own is taken.

    `max_size` limits its bytes unpacked and in memory: MOST_BYTES and MOST_MEMORY by default.
    Raises BadInputError if the file is not a whole and sound export, and ConflictError if a run of its id is
    there already; nothing was taken in then.
    """
    name = str(path) if isinstance(path, Path) else "The file"
    # os.path.isfile is False for a name that is too long, where Path.is_file would raise an error.
    if isinstance(path, Path) and not os.path.isfile(path):  # noqa: PTH113
        raise NotFoundError(f"There is no file '{path}'. Give one that `workbench save` wrote.")
    most, memory = MOST_BYTES if max_size is None else max_size, max(MOST_MEMORY, max_size or 0)
    parent = config.data_folder()
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with config.writing(parent), tempfile.TemporaryDirectory(dir=parent, prefix=".import-") as place:
        folder = Path(place)
        _unpack(path, folder, name, most)
        run = _read_run(folder, name)
        if (log := folder / "log.txt").exists():
            text = log.read_text(encoding="utf-8", errors="replace")
            log.write_text(redact(text), encoding="utf-8", newline="")
        _check_tables(folder, name, memory)
        _check_arrays(run, folder, name, memory)
        return _store(run, folder, new_id=new_id)


_MORE = "If you trust where it comes from, allow more: --max-size 4GiB"


class _Modest:
    """A file that limits each read to the size of an export's list of members."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name

    def read(self, n: int = -1) -> bytes:
        """Read bytes. Raises BadInputError for too many."""
        if n > _DIRECTORY:
            raise BadInputError(f"{self._name} lists its members in {size(n)}. An export has at most {MOST_MEMBERS}.")
        return self._file.read(n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _unpack(path: Path | IO[bytes], folder: Path, name: str, most: int) -> None:
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("rb")) if isinstance(path, Path) else path
            archive = stack.enter_context(zipfile.ZipFile(cast(IO[bytes], _Modest(file, name))))
            _check_members(archive.infolist(), name)
            room, stored = most, MOST_RATIO * _length(path)
            for member in archive.infolist():
                described = member.filename.endswith(".json")
                each = MOST_EACH.get(member.filename, min(stored, MOST_METADATA) if described else stored)
                (folder / member.filename).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (folder / member.filename).open("wb") as target:
                    copied = _copy(source, target, min(room, each) + 1)
                if copied > room:
                    raise BadInputError(f"{name} would be unpacked to more than {size(most)}. {_MORE}")
                if copied > each:
                    raise BadInputError(
                        f"{name} holds {quoted(member.filename)}, which would be unpacked to more than {size(each)}: "
                        "more than an export holds. Nothing was taken in."
                    )
                room -= copied
                stored -= 0 if member.filename in MOST_EACH else copied
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as err:
        raise BadInputError(f"{name} is not a whole zip file ({err}). Give one that `workbench save` wrote.") from err
    except OSError as err:
        if err.errno in _NO_ROOM:
            raise  # It is the data folder that can't be written.
        raise BadInputError(f"{name} can't be read ({err.strerror or err}).") from err
    except Exception as err:
        # Each kind of compression has its own error for a broken stream.
        if type(err).__name__ not in ("error", "LZMAError", "ZstdError"):
            raise
        raise BadInputError(f"{name} is damaged ({err}). Have it exported and sent again.") from err


def _length(path: Path | IO[bytes]) -> int:
    if isinstance(path, Path):
        return path.stat().st_size
    before = path.tell()
    try:
        return path.seek(0, os.SEEK_END)
    finally:
        path.seek(before)


def _check_members(members: list[zipfile.ZipInfo], name: str) -> None:
    names = [member.filename for member in members]
    strange = next((each for each in names if each not in MEMBERS and not _OF_STORE.fullmatch(each)), None)
    if strange is not None:
        raise BadInputError(
            f"{name} holds {quoted(strange)}, and the export of a run holds only {', '.join(MEMBERS)} and the metadata "
            f"and chunks of a Zarr store, {FILE}. Nothing was taken in."
        )
    if "run.json" not in names:
        raise BadInputError(f"{name} has no run.json. Give a file that `workbench save` wrote.")
    if len(set(names)) < len(names):
        raise BadInputError(f"{name} holds a member twice. Give a file that `workbench save` wrote.")
    if len(names) > MOST_MEMBERS:
        raise BadInputError(f"{name} holds {len(names)} members. The export of a run has at most {MOST_MEMBERS}.")


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> int:
    """Copy at most so many bytes and return the number: a zip may lie about a member's size."""
    copied = 0
    while copied < most and (part := source.read(min(_CHUNK, most - copied))):
        copied += len(part)
        target.write(part)
    return copied


def _read_run(folder: Path, name: str) -> Run:
    try:
        content = (folder / "run.json").read_bytes()
        if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise BadInputError(
                f"The run.json in {name} has more than {count(MOST_VALUES)} values. No run has so many."
            )
        document = json.loads(content)
    except (ValueError, RecursionError) as err:
        raise BadInputError(f"The run.json in {name} is not JSON ({err}).") from err
    if not isinstance(document, dict) or document.get("format") != FORMAT or not isinstance(document.get("run"), dict):
        raise BadInputError(f"The run.json in {name} doesn't describe a run. Give a file that `workbench save` wrote.")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise BadInputError(f"The run.json in {name} has the version {quoted(version)}; known are 1 to {VERSION}.")
    if version > VERSION:
        raise BadInputError(
            f"{name} was written by a later dask-workbench (format {version}, this one reads up to {VERSION}). "
            "Update dask-workbench."
        )
    imported = Imported(machine=str(document.get("machine") or "another machine")[:200], at=time.time())
    try:
        whole_run = {**document["run"], "pid": None, "pid_created": None, "place": ""}
        run = Run.model_validate_json(redact_json(json.dumps(whole_run)))
        # Computed fields are shown in lists of runs, which a damaged run must not break.
        run.model_dump()
    except (ValueError, TypeError, LookupError, AttributeError) as err:
        raise BadInputError(f"The run in {name} can't be read: {reason_of(err)}.") from err
    if not _ID.fullmatch(run.id):
        raise BadInputError(f"The run in {name} has the id {quoted(run.id)}, which can't be one.")
    if run.active:
        raise BadInputError(f"The run in {name} is said to be {run.status}. Only one that has ended can be taken in.")
    return run.model_copy(update={"imported": imported, "answers": _answers_of(run, folder)})


def _answers_of(run: Run, folder: Path) -> Answers | None:
    """Return the imported arrays of a run; arrays saved elsewhere lie on its own machine."""
    if run.answers is None:
        return None
    there = (folder / FILE / "zarr.json").is_file()
    changes = {} if there else {"kept": (), "kept_bytes": 0}
    saved = run.answers.saved if run.answers.saved and "://" in run.answers.saved else None
    return run.answers.model_copy(update={**changes, "saved": saved})


def _check_tables(folder: Path, name: str, memory: int) -> None:
    import pyarrow as pa

    from workbench.monitor.record import check_record, fits

    for member in ("events.parquet", "gpus.parquet"):
        if not (folder / member).exists():
            continue
        try:
            check_record(folder / member, most_rows=MOST_ROWS, most_bytes=2 * MOST_BYTES)
        except (pa.ArrowException, OSError) as err:
            reason = whole(str(err), 200) or "no Parquet"
            raise BadInputError(f"The {member} in {name} can't be read ({reason}).") from err
        except BadInputError as err:
            raise BadInputError(f"The {member} in {name} {err}") from err
    if (folder / MEMBERS[1]).exists() and not fits(folder / MEMBERS[1], memory):
        raise BadInputError(f"Reading the tables in {name} would take more than {size(memory)}. {_MORE}")


def _check_arrays(run: Run, folder: Path, name: str, memory: int) -> None:
    """Raise BadInputError if the arrays don't match the record, or would not fit in memory."""
    if run.answers is None or not run.answers.kept:
        return
    try:
        check_store(str(folder / FILE), run.answers, memory)
    except BadInputError as err:
        raise BadInputError(f"The arrays in {name} can't be used: {err}") from err
    except Exception as err:
        # Zarr and its codecs raise errors of any kind on broken data.
        raise BadInputError(f"The arrays in {name} can't be read: {reason_of(err)}.") from err


def _store(run: Run, folder: Path, *, new_id: bool) -> Run:
    try:
        records.claim_folder(store.folder(run.id))
    except ConflictError as err:
        if not new_id:
            raise ConflictError(
                f"There is a run {run.id} already. To keep both, give the one that comes a new id: --new-id"
            ) from err
        run = run.model_copy(update={"id": folders.new_id(store.name_of(run.workload))})
        records.claim_folder(store.folder(run.id))
    target = store.folder(run.id)
    try:
        for name in (*MEMBERS[1:], FILE):
            if (folder / name).exists():
                (folder / name).replace(target / name)
        # The record is written last, so that a listed run is complete.
        return store.save(run)
    except BaseException:
        records.discard(target)
        raise
