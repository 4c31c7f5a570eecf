"""Settings, in Dask's own configuration under the key `workbench`; workbench.yaml comments each."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from workbench import formats, private
from workbench.errors import BadInputError, StorageError, quoted
from workbench.redaction import redact

T = TypeVar("T")

_PATIENCE = 20.0  # seconds for a lock: ending what a dead cluster left takes up to ten
_AGAIN = 0.5  # seconds until what couldn't be written is tried again
_DEFAULTS = resources.files("workbench") / "workbench.yaml"
"""A resource: on workers this package may come from a zip file."""


def _ensure_defaults() -> None:
    if isinstance(_DEFAULTS, Path):
        dask.config.ensure_file(source=str(_DEFAULTS), comment=True)
    dask.config.update_defaults(yaml.safe_load(_DEFAULTS.read_text(encoding="utf-8")))


_ensure_defaults()


def get(key: str) -> Any:
    """Value of `workbench.<key>`."""
    return dask.config.get(f"workbench.{key}")


def seconds(key: str) -> float | None:
    """Duration at `workbench.<key>` in seconds, None where it is switched off."""
    value = get(key)
    if value is None:
        return None
    try:
        return float(parse_timedelta(value))
    except (ValueError, TypeError, KeyError) as err:
        raise BadInputError(
            f"The setting workbench.{key} is {value!r}. Give a duration such as '90s', '10m' or '1h'."
        ) from err


def size(key: str) -> int:
    """Size at `workbench.<key>` in bytes."""
    value = get(key)
    try:
        return int(parse_bytes(value))
    except (ValueError, TypeError) as err:
        raise BadInputError(
            f"The setting workbench.{key} is {value!r}. Give a size such as '512MiB' or '2GiB'."
        ) from err


def path(key: str) -> Path | None:
    """Path at `workbench.<key>`, None where none is given."""
    value = get(key)
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value).strip():
        raise BadInputError(f"The setting workbench.{key} is {quoted(value)}. Give the path of a folder.")
    try:
        return Path(value).expanduser()
    except RuntimeError as err:  # ~somebody, whom this machine doesn't know
        raise BadInputError(f"The setting workbench.{key} is {quoted(value)}. {err}. Give a path without ~.") from err


def switch(key: str) -> bool:
    """Return whether `workbench.<key>` is on."""
    value = get(key)
    if value not in (True, False):  # a variable of the environment may well say 0 or 1
        raise BadInputError(f"The setting workbench.{key} is {quoted(value)}. Give true or false.")
    return bool(value)


_OURS = {
    "confirmed.jsonl",
    "clusters",
    "runs",
    "comparisons",
    "workloads",
    "described",
    "trusted",
    "toured",
}
"""Names of which a data folder has some, once it was used."""


def data_folder() -> Path:
    """Folder of this person's clusters and runs, made with mode 0700 when it is missing."""
    folder = path("data-folder")
    if folder is None:
        import platformdirs

        folder = platformdirs.user_data_path("dask-workbench")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not private.is_own(folder.stat(), folder / "file"):
            raise OSError(errno.EPERM, "it is another user's")
        if folder.stat().st_mode & 0o077:
            _check_ours(folder)
            folder.chmod(0o700)
    except OSError as err:
        raise BadInputError(
            f"The data folder {folder} can't be used ({err.strerror}). Set workbench.data-folder, or the variable "
            "DASK_WORKBENCH__DATA_FOLDER, to a folder that you may write to."
        ) from err
    return folder


def _check_ours(folder: Path) -> None:
    """Raise BadInputError where a folder is somebody's already, whose rights must stay: /tmp, or a home."""
    there = {each.name for each in folder.iterdir()}
    if there and not there & _OURS:
        raise BadInputError(
            f"The data folder {folder} holds other files ({min(there)!r}) and others may read it. Set "
            "workbench.data-folder, or the variable DASK_WORKBENCH__DATA_FOLDER, to a folder of its own, which is made "
            "if it is missing."
        )


_LITTLE_ROOM = 2**16  # bytes: as much as a record may take


def trouble() -> str | None:
    """Return why the data folder can't be written to now, and what to do; None where it can."""
    folder = data_folder()
    if not os.access(folder, os.W_OK):
        return f"{folder} can't be written to now: it is read-only, or not yours. {_ALL_GO_ON}"
    if shutil.disk_usage(folder).free < _LITTLE_ROOM:
        return f"The disk that holds {folder} is full. Make room there. {_ALL_GO_ON}"
    return None


_ALL_GO_ON = "Clusters and runs go on, but what is shown of them may be old until it can be written again."


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in a StorageError why what the block writes at `path` can't be written. A folder that is gone is no such."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as err:
        raise StorageError(
            f"{path} can't be written ({err.strerror or err}). Make room on that disk, or let yourself write there; "
            "then try again."
        ) from err


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time run the block. Raises StorageError where that isn't possible within some seconds."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(private.locked(path, _PATIENCE))
        except OSError as err:
            raise StorageError(f"{path} can't be locked ({err.strerror or err}). Mend that, then try again.") from err
        yield


def patiently(write: Callable[[], T], patience: float) -> T:
    """Return what `write` does, which is tried again for `patience` seconds while a StorageError keeps it from it."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return write()
        except StorageError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN)


LOG_TAIL = 2**18
"""Bytes of a log that are shown: a process may have printed gigabytes."""


def read_tail(path: Path, most: int = LOG_TAIL) -> str:
    """Return the last whole lines of a log, at most `most` bytes, without secrets; say how much is left out."""
    try:
        with path.open("rb") as file:
            left_out = max(0, file.seek(0, os.SEEK_END) - most)
            file.seek(left_out)
            content = file.read(most)
    except FileNotFoundError:
        return ""
    if not left_out:
        return redact(content.decode(errors="replace"))
    end = content.find(b"\n") + 1
    note = f"… The first {formats.size(left_out + end)} of {path.name} are left out.\n"
    return note + redact(content[end:].decode(errors="replace"))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` so that a reader sees either the old file or the new one, never half of one.

    Raises FileNotFoundError where its folder is gone, and StorageError where the disk is full or may not be written to;
    what was there before is as it was.
    """
    # On a shared disk, another machine may have a process of the same pid.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with writing(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            temporary.replace(path)
        except OSError:
            # A reader of a folder that may not be written to gets another error from this, which says less.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
