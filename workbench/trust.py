"""Trust in a folder: its definitions are used only after the user has trusted their content.

A cloned project may bring workloads, which are code, and profiles, which name programs and addresses. The data folder
has one file per trusted folder, with the hash of everything that would be used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from workbench import config, formats
from workbench.errors import BadInputError, reason_of
from workbench.paths import check_openable

FILE = "workbench.yaml"
FOLDER = "workloads"

_SUFFIXES = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
_MOST_BYTES = 2**24
_MOST_ENTRIES = 10_000


def read_file(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file, or None if there is no file.

    Raises BadInputError if it can't be read, has more than `most` bytes, or is a FIFO or a device, which may block
    forever.
    """
    check_openable(path)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            content = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise BadInputError(f"{path} can't be read: {reason_of(err)}.") from err
    if len(content) > most:
        raise BadInputError(f"{path} can't be read: it is larger than {formats.size(most)}.")
    return content


def workload_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder with functions that are workloads; in a package, such files have another purpose."""
    inside = folder / FOLDER
    return () if (inside / "__init__.py").exists() else tuple(sorted(inside.glob("[!_.]*.py")))


def fingerprint(folder: Path, digests: Mapping[Path, str]) -> str:
    """Return the hash of everything that a folder defines, computed from the hashes of its files."""
    whole = hashlib.sha256()
    for path, digest in digests.items():
        whole.update(b"%s\0%s\n" % (os.fsencode(path.relative_to(folder)), digest.encode()))
    return whole.hexdigest()


def read_digests(folder: Path, programs: Iterable[Path] = ()) -> dict[Path, str]:
    """Return the files with content that a user trusts with a folder, each with its hash.

    These are its workloads, the modules that they may import, and the programs in it that its profiles name. Raises
    BadInputError if they are too large to be read at every check.
    """
    # An interpreter may be larger than all handwritten code.
    abouts = {path: path.stat() for path in programs if path.is_file()}
    shas = {path: _digest(path, _stamp(about), about.st_size) for path, about in abouts.items()}
    room = _MOST_BYTES
    for path in (folder / FILE, *(_code(folder / FOLDER) if workload_files(folder) else ())):
        try:
            about = path.stat()
        except OSError:
            continue
        room -= about.st_size
        if room < 0:
            raise BadInputError(
                f"{folder / FOLDER} has more than {formats.size(_MOST_BYTES)} of code, so it can't be trusted. Keep "
                "only workloads and their modules there."
            )
        shas[path] = _digest(path, _stamp(about))
    return shas


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    # Unlike mtime, ctime can't be set.
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _code(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that Python can import, through links to folders as well."""
    seen: set[str] = set()
    n_entries = 0
    for place, folders, files in os.walk(folder, followlinks=True):
        n_entries += len(folders) + len(files)
        if n_entries > _MOST_ENTRIES:
            raise BadInputError(
                f"{folder} has more than {_MOST_ENTRIES} entries, so it can't be trusted. Keep only workloads and "
                "their modules there."
            )
        real = os.path.realpath(place)
        # Bytecode is never read; see workbench.workloads.importing.
        folders[:] = sorted(each for each in folders if each != "__pycache__") if real not in seen else []
        seen.add(real)
        yield from (Path(place, each) for each in sorted(files) if each.endswith(_SUFFIXES))


@lru_cache(maxsize=4096)
def _digest(path: Path, _stamp: tuple[int, ...], most: int = _MOST_BYTES) -> str:
    try:
        content = read_file(path, most)
    except BadInputError as err:  # for example a FIFO, which its reader reports as well
        return str(err)
    return "" if content is None else hashlib.sha256(content).hexdigest()


def trusted_sha(folder: Path) -> str | None:
    """Return the hash of the content of a folder that the user trusts, or None."""
    try:
        stored = json.loads(_record(folder).read_bytes())
    except (OSError, ValueError):
        return None
    match stored:
        case {"folder": of, "sha": str(sha)} if of == os.path.realpath(folder):
            return sha
    return None


def trust(folder: Path, sha: str) -> None:
    """Store that the user trusts this content of a folder; it replaces the content trusted before."""
    path = _record(folder)
    with config.writing(path), contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    config.write_atomically(path, json.dumps({"folder": os.path.realpath(folder), "sha": sha}))


def trusted() -> dict[Path, str]:
    """Return the folders that the user trusts, each with the hash of the trusted content."""
    shas = {}
    for path in sorted((config.data_folder() / "trusted").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            stored = json.loads(path.read_bytes())
            shas[Path(stored["folder"])] = str(stored["sha"])
    return shas


def withdraw(folder: Path) -> bool:
    """Revoke trust in a folder, even if it no longer exists; return whether it was trusted."""
    path = _record(folder)
    with config.writing(path):
        was_trusted = path.exists()
        path.unlink(missing_ok=True)
    return was_trusted


def _record(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:24]
    return config.data_folder() / "trusted" / f"{name}.json"
