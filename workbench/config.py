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

_PATIENCE = 20.0  # seconds to wait for a lock: cleaning up after a dead cluster takes up to ten
_AGAIN = 0.5  # seconds between attempts to write
_DEFAULTS = resources.files("workbench") / "workbench.yaml"
"""A resource: on workers this package may come from a zip file."""


def _ensure_defaults() -> None:
    if isinstance(_DEFAULTS, Path):
        dask.config.ensure_file(source=str(_DEFAULTS), comment=True)
    dask.config.update_defaults(yaml.safe_load(_DEFAULTS.read_text(encoding="utf-8")))


_ensure_defaults()


def get(key: str) -> Any:
    """Return the value of `workbench.<key>`."""
    return dask.config.get(f"workbench.{key}")


def seconds(key: str) -> float | None:
    """Return the duration at `workbench.<key>` in seconds, or None if it is switched off."""
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
    """Return the size at `workbench.<key>` in bytes."""
    value = get(key)
    try:
        return int(parse_bytes(value))
    except (ValueError, TypeError) as err:
        raise BadInputError(
            f"The setting workbench.{key} is {value!r}. Give a size such as '512MiB' or '2GiB'."
        ) from err


def path(key: str) -> Path | None:
    """Return the path at `workbench.<key>`, or None if it isn't set."""
    value = get(key)
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value).strip():
        raise BadInputError(f"The setting workbench.{key} is {quoted(value)}. Give the path of a folder.")
    try:
        return Path(value).expanduser()
    except RuntimeError as err:  # ~name of a user unknown to this machine
        raise BadInputError(f"The setting workbench.{key} is {quoted(value)}. {err}. Give a path without ~.") from err


def switch(key: str) -> bool:
    """Return whether `workbench.<key>` is on."""
    value = get(key)
    if value not in (True, False):  # an environment variable may be 0 or 1
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
"""Entries of a data folder; one that was used has at least one."""


def data_folder() -> Path:
    """Return the folder of the user's clusters and runs; create it with mode 0700 if it is missing."""
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
    """Raise BadInputError if a folder has other uses, such as /tmp or a home, so its mode must not change."""
    names = {each.name for each in folder.iterdir()}
    if names and not names & _OURS:
        raise BadInputError(
            f"The data folder {folder} holds other files ({min(names)!r}) and others may read it. Set "
            "workbench.data-folder, or the variable DASK_WORKBENCH__DATA_FOLDER, to a folder of its own, which is made "
            "if it is missing."
        )


_LITTLE_ROOM = 2**16  # bytes: the size of a large record


def trouble() -> str | None:
    """Return why the data folder can't be written to and what to do, or None if it can."""
    folder = data_folder()
    if not os.access(folder, os.W_OK):
        return f"{folder} can't be written to now: it is read-only, or not yours. {_ALL_GO_ON}"
    if shutil.disk_usage(folder).free < _LITTLE_ROOM:
        return f"The disk that holds {folder} is full. Make room there. {_ALL_GO_ON}"
    return None


_ALL_GO_ON = "Clusters and runs go on, but what is shown of them may be old until it can be written again."


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of writing `path` into a StorageError with the reason, except for a missing folder."""
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
    """Let one process at a time run the block. Raises StorageError if the lock stays taken for 20 seconds."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(private.locked(path, _PATIENCE))
        except OSError as err:
            raise StorageError(f"{path} can't be locked ({err.strerror or err}). Mend that, then try again.") from err
        yield


def patiently(write: Callable[[], T], patience: float) -> T:
    """Return the result of `write`; retry after a StorageError, for `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return write()
        except StorageError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN)


LOG_TAIL = 2**18
"""Limit of a log's shown bytes: a process may have printed gigabytes."""


def read_tail(path: Path, most: int = LOG_TAIL) -> str:
    """Return the last lines of a log, at most `most` bytes, without secrets; a note says what is left out."""
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
    """Replace `path` by `content`, so that readers see either the old file or the new one.

    Raises FileNotFoundError if its folder is missing, and StorageError if the disk is full or not writable; the old
    file then stays.
    """
    # On a shared disk, a process of another machine may have the same pid.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with writing(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            temporary.replace(path)
        except OSError:
            # In a read-only folder, unlink would raise an error that says less.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
