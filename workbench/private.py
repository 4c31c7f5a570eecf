"""Files and folders that no other user of this machine can read, replace or block.

In a shared folder such as /tmp anyone may take a name first: with a FIFO, which blocks when opened, with a link, or
with a folder of their own. SSH workers get this module as source text: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SOCKETS, SPILL = "workbench-host-", "workbench-spill-"
"""Prefixes of the names of the temporary folders of a cluster's process: for its sockets, and for spilled data."""

CRASHED = "The process that holds the cluster crashed."
"""Last line of the log of such a process."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKED = (errno.EAGAIN, errno.EACCES)
_AGAIN = 0.02  # seconds until the next attempt at a lock that another process holds

_NOBODY, _ALL_USERS = 65534, ["0", "0", "4294967295"]

_made: list[Path] = []


def open_file(path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a regular file of this user, and return its descriptor. Never wait, and follow no link.

    Raises OSError if something else is there.
    """
    try:
        descriptor = os.open(path, flags | _FILE, 0o600)
    except OSError as err:
        if err.errno == errno.ELOOP:
            raise OSError(err.errno, "it is a link; move it away", os.fspath(path)) from err
        raise
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and is_own(about, path):
        return descriptor
    os.close(descriptor)
    kind = "another user's" if stat.S_ISREG(about.st_mode) else "no regular file"
    raise OSError(errno.EPERM, f"it is {kind}; move it away", os.fspath(path))


def is_own(about: os.stat_result, path: str | os.PathLike[str]) -> bool:
    """Return whether a file or folder at a path is this user's."""
    if about.st_uid == os.geteuid():
        return True
    # A network disk may give root's files to nobody, or everyone's files to one user.
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=Path(path).absolute().parent) as probe:
        return os.fstat(probe.fileno()).st_uid == about.st_uid
    return False


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], patience: float) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is missing.

    Raises OSError if another process holds it for `patience` seconds, or the file can't be opened.
    """
    descriptor, deadline = open_file(path), time.monotonic() + patience
    try:
        while not take(descriptor):
            if time.monotonic() > deadline:
                raise OSError(errno.EAGAIN, f"another process has locked it for {patience:g} s", os.fspath(path))
            time.sleep(_AGAIN)
        yield
    finally:
        os.close(descriptor)


def take(descriptor: int) -> bool:
    """Lock an open file or folder until its descriptor is closed; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        if err.errno not in _LOCKED:
            raise
        return False
    return True


def make_folder(prefix: str, parent: str | None = None) -> Path:
    """Make a folder of mode 0700 with an unpredictable name, reserved for this process until it ends.

    `parent` is the folder for temporary files by default. Folders with this prefix of the user's killed processes are
    removed. Raises OSError if the parent belongs to another user, who could replace the folder.
    """
    place = _place(parent)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(prefix, parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        # Another process may have swept it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, _FOLDER)
            try:
                mine = take(descriptor)
            except OSError:
                mine = True  # a disk without locks, where no process sweeps
            if mine and folder.is_dir():
                # The descriptor stays open, and with it the lock.
                _made.append(folder)
                _check_parent(folder)
                return folder
            os.close(descriptor)


def _check_parent(folder: Path) -> None:
    """Raise OSError if the parent of a folder belongs to neither root nor this user."""
    owner = folder.parent.stat().st_uid
    if owner in (0, os.geteuid(), folder.stat().st_uid):
        return
    with contextlib.suppress(OSError):
        # In a container without root's rights, files of the host's root appear to belong to nobody.
        if owner == _NOBODY and Path("/proc/self/uid_map").read_text(encoding="utf-8").split() != _ALL_USERS:
            return
    raise OSError(errno.EPERM, "it is another user's", str(folder.parent))


def remove_folders() -> None:
    """Remove all folders that this process made."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


def sweep(prefix: str, parent: str | None = None) -> None:
    """Remove folders with this prefix that this user made and no living process holds; skip anything else."""
    for path in _place(parent).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, _FOLDER)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid() and take(descriptor):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _place(parent: str | None) -> Path:
    return Path(parent or tempfile.gettempdir()).expanduser().absolute()
