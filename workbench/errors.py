"""What can go wrong in a way that a person can mend.

Each face turns these into its own form in one place: the server into a status with `{"message"}`, the panels into
a line of text, the command line into an exit code and one line on stderr.
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
"""Sequences that move or colour a terminal, control characters but tab and newline, and marks that reorder text."""
_LONGEST_WORD = 300
"""Characters: as long as a path is in earnest. A name of thousands of them is repeated in part only."""

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80

PACKAGES = {
    "cloud": ("s3fs>=2025.1", "gcsfs>=2025.1", "aiohttp>=3.12"),
    "kubernetes": ("dask-kubernetes>=2026.3",),
    "gateway": ("dask-gateway>=2026.3",),
    "fast": ("numba>=0.64,<0.65",),
    "lab": (
        "ipykernel>=6.29",
        "ipython>=8.20",
        "ipywidgets>=8.1",
        "jupyter-client>=8",
        "jupyter-server>=2.15,<3",
        "jupyter-server-proxy>=4.5",
        "jupyterlab>=4.4,<5",
        "panel>=1.9.4,<2",
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
"""What each extra of pyproject.toml brings; a test compares the two."""


def install(extra: str) -> str:
    """Command that installs what an extra brings, by the packages' own names: nobody owns ours on PyPI yet."""
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
"""Packages by the module that they bring. Others are never suggested: anyone can own a package of a module's name."""


def install_module(module: str) -> str | None:
    """Return the command that installs the package with a module, None where it isn't known which package that is."""
    package = MODULES.get(module.partition(".")[0])
    return package and f"pip install {package}"


def whole(text: str, most: int = 500) -> str:
    """`text` on one line, and of a longer one the whole sentences that so many characters hold."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    end = line.rfind(". ", 0, most)
    return line[: end + 1] if end > 0 else f"{line[:most]}…"


def quoted(value: object) -> str:
    """Return what was given, as Python writes it; of a long text or list its beginning and its end."""
    return _BRIEF.repr(value)


def printable(text: str) -> str:
    """Return text that a terminal shows as it is: without `_CONTROLS`, and with ? for halves of characters."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()


def on_one_line(text: str) -> str:
    """Return a foreign name as one printable line: a line break in it could pass for a line of ours."""
    return " ".join(printable(text).split())


def said(error: BaseException) -> str:
    """Return what an error says, which a person's class of errors may be unable to."""
    try:
        return printable(str(error))
    except Exception as err:  # noqa: BLE001  it is their code
        return f"(its text failed with {type(err).__name__})"


def named(error: BaseException) -> str:
    """'ValueError: no such thing', on one line and without a full stop."""
    return f"{type(error).__name__}: {whole(said(error))}".rstrip(". :")


def reason_of(error: BaseException) -> str:
    """Return why something can't be read: where the first fault of a pydantic ValidationError is, and which."""
    if not hasattr(error, "errors"):
        return str(getattr(error, "strerror", None) or error).rstrip(".")
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"]))).rstrip(".")


class WorkbenchError(Exception):
    """A sentence for a person: what was given, what is allowed, what to do.

    `status` is the HTTP status it maps to, `exit_code` the command line's.
    """

    status = 400
    exit_code = 2

    def __init__(self, *sentence: object) -> None:
        super().__init__(*(_shortened(redact(part)) if isinstance(part, str) else part for part in sentence))

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of it (its hook for that): lines of the person's own, and the sentence."""
        ours = ("-packages", str(Path(__file__).parent))
        lines = (each for each in traceback.extract_tb(self.__traceback__) if not any(map(each.filename.count, ours)))
        return [*traceback.format_list(lines), f"{type(self).__name__}: {self}"]


class BadInputError(WorkbenchError):
    """A parameter that can't be used; nothing was started."""


class BadParameterError(BadInputError):
    """A parameter of a workload, or what is asked of a file, that can't be used; `parameter` is its name."""

    def __init__(self, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.parameter = parameter

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.parameter)


class NotFoundError(WorkbenchError):
    """A cluster, run or workload of a name that doesn't exist."""

    status = 404


class DamagedError(NotFoundError):
    """A file that is there, and can't be read: what was in it is gone."""


class ConflictError(WorkbenchError):
    """A request that is well formed but clashes with what is running, such as a name in use."""

    status = 409


class UntrustedError(ConflictError):
    """Something that a folder defines, which the user hasn't trusted yet; see `workbench.trust`."""


class MissingError(WorkbenchError):
    """A package, driver or program that the request needs isn't there; the sentence says how to get it."""

    status = 409


class FailedError(WorkbenchError):
    """A cluster or a run that was started and failed."""

    status = 409
    exit_code = 1


class StorageError(FailedError):
    """A file of ours that can't be written or read now: the disk is full, it may not be written to, it is locked.

    It passes. Whoever holds something that matters tries again.
    """

    status = 507


def _shortened(text: str) -> str:
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:60]}…{word[0][-20:]}", text)
