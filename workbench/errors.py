"""Errors that a user can fix.

Each interface converts these in one place: the server into a status with `{"message"}`, the panels into a line of
text, the command line into an exit code and one line on stderr.
"""

from __future__ import annotations

import re
import reprlib
import shlex
import traceback
from pathlib import Path

from workbench.redaction import redact

_CONTROLS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|.)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Sequences that move or color a terminal, control characters but tab and newline, and marks that reorder text."""
_LONGEST_WORD = 300
"""Characters: longer than any real path. Longer words are repeated only in part."""

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80

PACKAGES = {
    "cloud": ("s3fs>=2025.1", "gcsfs>=2025.1", "aiohttp>=3.12"),
    "kubernetes": ("dask-kubernetes>=2026.3",),
    "gateway": ("dask-gateway>=2026.3",),
    "fast": ("numba>=0.64,<0.65",),
    "lab": (
        "anywidget>=0.9.18",
        "comm>=0.2.2",
        "ipykernel>=6.29",
        "ipython>=8.20",
        "ipywidgets>=8.1",
        "jupyter-client>=8",
        "jupyter-server>=2.15,<3",
        "jupyter-server-proxy>=4.5",
        "jupyterlab>=4.4,<5",
        "matplotlib>=3.10",
    ),
    "files": ("h5netcdf>=1.4", "scipy>=1.13", "cftime>=1.6.4"),
    "images": ("tifffile>=2025.5.21",),
    "grib": ("cfgrib>=0.9.15",),
    "ssh": ("asyncssh>=2.18",),
    **{f"cudf{major}": (f"cudf-cu{major}==26.10.*", f"dask-cudf-cu{major}==26.10.*") for major in (12, 13)},
    **{
        f"cuda{major}": (
            f"dask-cuda[cu{major}]==26.10.*",
            f"cupy-cuda{major}x[ctk]>=14.2",
            f"numba-cuda[cu{major}]>=0.22.2,<0.31",
            "numba>=0.64,<0.65",
            f"rmm-cu{major}==26.10.*",
        )
        for major in (12, 13)
    },
    "pictures": ("matplotlib>=3.10",),
    "slurm": ("dask-jobqueue>=0.9",),
    "ucx": ("distributed-ucxx-cu13==0.52.*",),
    "ucx12": ("distributed-ucxx-cu12==0.52.*",),
}
"""Packages of each extra in pyproject.toml; a test compares the two."""


def install(extra: str) -> str:
    """Return the command that installs an extra's packages by name, since our own name isn't on PyPI yet."""
    return f"pip install {' '.join(map(shlex.quote, PACKAGES[extra]))}"


MODULES: dict[str, str] = {
    name: name
    for name in (
        "adlfs",
        "aiohttp",
        "asyncssh",
        "bokeh",
        "cfgrib",
        "cftime",
        "cloudpickle",
        "crc32c",
        "dask",
        "distributed",
        "eccodes",
        "fsspec",
        "gcsfs",
        "h5netcdf",
        "h5py",
        "hdf5plugin",
        "imagecodecs",
        "msgpack",
        "netCDF4",
        "numba",
        "numcodecs",
        "numpy",
        "pandas",
        "pcodec",
        "psutil",
        "pyarrow",
        "pydantic",
        "s3fs",
        "scipy",
        "tifffile",
        "xarray",
        "zarr",
        "zfpy",
    )
} | {
    "google_crc32c": "google-crc32c",
    "huggingface_hub": "huggingface-hub",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Packages by their modules. Others are never suggested: anyone can own a package of a module's name."""


def install_module(module: str) -> str | None:
    """Return the command that installs the package with a module, None if the package is unknown."""
    package = MODULES.get(module.partition(".")[0])
    return package and f"pip install {package}"


def whole(text: str, most: int = 500) -> str:
    """Return `text` on one line, cut after the last full stop within `most` characters."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    end = line.rfind(". ", 0, most)
    return line[: end + 1] if end > 0 else f"{line[:most]}…"


def quoted(value: object) -> str:
    """Return the repr of a value; for a long text or list, only its start and end."""
    return _BRIEF.repr(value)


def printable(text: str) -> str:
    """Return text that a terminal shows unchanged: without `_CONTROLS`, and with ? for halves of characters."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()


def on_one_line(text: str) -> str:
    """Return foreign text as one printable line, since a line break in it could fake a line of ours."""
    return " ".join(printable(text).split())


def said(error: BaseException) -> str:
    """Return an error's text, even if the user's class fails to produce it."""
    try:
        return printable(str(error))
    except Exception as err:  # noqa: BLE001  it is the user's code
        return f"(its text failed with {type(err).__name__})"


def named(error: BaseException) -> str:
    """Return type and text of an error, 'ValueError: no such thing', on one line without a full stop."""
    return f"{type(error).__name__}: {whole(said(error))}".rstrip(". :")


def reason_of(error: BaseException) -> str:
    """Return why something can't be read; of a pydantic ValidationError, the first error and its location."""
    if not hasattr(error, "errors"):
        return str(getattr(error, "strerror", None) or error).rstrip(".")
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"]))).rstrip(".")


class WorkbenchError(Exception):
    """A message for the user: the given value, what is allowed, what to do.

    `status` is the HTTP status it maps to, `exit_code` the command line's.
    """

    status = 400
    exit_code = 2

    def __init__(self, *sentence: object) -> None:
        super().__init__(*(_shortened(redact(part)) if isinstance(part, str) else part for part in sentence))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows for it, by IPython's hook: the user's own code, and the message."""
        ours = ("-packages", str(Path(__file__).parent))
        lines = (each for each in traceback.extract_tb(self.__traceback__) if not any(map(each.filename.count, ours)))
        return [*traceback.format_list(lines), f"{type(self).__name__}: {self}"]


class BadInputError(WorkbenchError):
    """An invalid parameter; nothing was started."""


class BadParameterError(BadInputError):
    """An invalid parameter of a workload, or an invalid request to a file; `parameter` is its name."""

    def __init__(self, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.parameter = parameter

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.parameter)


class NotFoundError(WorkbenchError):
    """A cluster, run or workload that doesn't exist."""

    status = 404


class DamagedError(NotFoundError):
    """A file that exists, but can't be read: its contents are lost."""


class ConflictError(WorkbenchError):
    """A well-formed request that clashes with the current state, such as a name in use."""

    status = 409


class UntrustedError(ConflictError):
    """A definition in a folder that the user hasn't trusted yet; see `workbench.trust`."""


class MissingError(WorkbenchError):
    """A missing package, driver or program; the message says how to get it."""

    status = 409


class FailedError(WorkbenchError):
    """A cluster or a run that was started and failed."""

    status = 409
    exit_code = 1


class StorageError(FailedError):
    """A file of ours that can't be written or read now: the disk is full, access is denied, or it is locked.

    It is temporary: retry if the data matter.
    """

    status = 507


def _shortened(text: str) -> str:
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:60]}…{word[0][-20:]}", text)
