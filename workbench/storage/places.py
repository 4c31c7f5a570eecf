"""Files and folders with data, on this machine or behind a URL."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from workbench import credentials
from workbench.errors import BadInputError, FailedError, MissingError, WorkbenchError, install, install_module
from workbench.paths import check_openable
from workbench.redaction import complaint

Options = Mapping[str, Any]

TOKEN = "token_variable"
"""Option with the name of the environment variable that holds a token. No form, graph or record has a secret."""
TOKEN_SERVER = "token_server"
"""Server that gets the token, if not every server: of files read together one may be elsewhere."""
TOKENS = {
    **dict.fromkeys(("http", "https"), None),
    **dict.fromkeys(("abfs", "abfss", "az"), "sas_token"),
    "hf": "token",
}
"""fsspec's names for a token, by protocol; the web has a header for it."""

_CODECS = {"zfpy": "zfpy", "pcodec": "pcodec", "crc32c": "crc32c", "msgpack2": "msgpack"}
"""Modules that codecs of numcodecs need without depending on them."""
_WITHOUT_KEYS = {
    *("file", "local", "memory", "data", "http", "https", "ftp", "zip", "tar", "simplecache", "filecache"),
    *("blockcache", "reference", "github", "s3", "s3a", "gs", "gcs", "hf", "abfs", "abfss", "az"),
}
"""Protocols of fsspec that send no keys, or only to the server that is configured for them."""

_ENTRIES = 1000
_PATTERN = re.compile(r"[*?[]")
_REFUSED = (401, 403)
_TELLING = {"size", "mtime", "ETag", "etag", "LastModified", "last_modified", "Last-Modified", "updated", "created"}
"""fsspec's names for facts that change when a file is written."""
_BUSY = (429, 500, 502, 503, 504)
_PART = 206
_CACHED = 2**26
"""Bytes up to which a file is read at once, and again where its connection breaks."""
_PAUSES = (0.2, 0.5, 1, 2)
"""Seconds before each retry of a request to a web server."""
_NO_PARTS = ("block_size=0", "Cannot seek streaming HTTP file")
"""fsspec's messages where a web server sends files as a whole only, or doesn't report their size."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOUD = tuple(f"{each}://" for each in ("s3", "s3a", "gs", "gcs", "http", "https"))
"""URLs whose packages come with the extra `cloud`."""
_S3 = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_KEYS = {
    **dict.fromkeys(("gs", "gcs"), "GOOGLE_APPLICATION_CREDENTIALS"),
    **dict.fromkeys(("abfs", "abfss", "az"), "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}


@dataclass(frozen=True)
class Place:
    """A path from the root, or a URL with its server's options for fsspec (`storage_options`); it is sent to workers.

    The options may name an environment variable that holds a token (`with_token`).
    """

    path: str
    options: Options = field(default_factory=dict)

    def __str__(self) -> str:
        return self.path

    def __truediv__(self, name: str) -> Place:
        """Return the place of this name in this folder."""
        return Place(f"{self.path}/{name}", self.options)

    def __add__(self, ending: str) -> Place:
        """Return the place with this ending added to its name."""
        return Place(self.path + ending, self.options)

    def sibling(self, name: str) -> Place:
        """Return the place of this name in the same folder."""
        return Place(f"{self.path.rpartition('/')[0]}/{name}", self.options)

    @property
    def is_url(self) -> bool:
        """True if it is on another machine, or in another kind of storage."""
        return "://" in self.path or "::" in self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def zarr_options(self) -> dict[str, Any]:
        """Zarr's argument for the options, which it refuses for paths."""
        settings = with_token(self.path, self.options, whole=True)
        return {"storage_options": settings} if self.is_url and settings else {}

    def storage(self, *, whole: bool = False) -> tuple[Any, str]:
        """Return the file system of fsspec, and the path in it; `whole` if files are read at once, see `with_token`.

        Folder listings are not cached: files that other processes or libraries write must be visible.
        """
        import fsspec

        if not self.is_url:
            check_openable(self.path)
        if self.path.startswith(("gs://", "gcs://")):
            # gcsfs logs a traceback at each retry, and raises the error in the end.
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        caching = {"use_listings_cache": False} if self.is_url and "::" not in self.path else {}
        fs, root = fsspec.core.url_to_fs(self.path, **caching, **with_token(self.path, self.options, whole=whole))
        return fs, root

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading."""
        fs, root = self.storage()
        with fs.open(root, "rb") as file:
            yield file

    def kind(self) -> str | None:
        """Return the kind of the entry: "file", "folder", or None if there is nothing."""
        fs, root = self.storage()
        if fs.isfile(root):
            return "file"
        return "folder" if fs.isdir(root) else None

    def size(self) -> int:
        """Return the bytes of a file, or of all files of a folder."""
        fs, root = self.storage()
        return int(fs.du(root))

    def stamp(self) -> list[str]:
        """Return lines that change when a file, or one in a folder, is written; none if that is unknown."""
        return [f"{name} {key} {value}" for name, info in self.state().items() for key, value in info.items()]

    def state(self, *, deep: bool = True) -> dict[str, dict[str, Any]]:
        """Return the facts that change when a file is written, by file name; for a folder those of its files.

        Without `deep`, of a folder only itself and its first entries are looked at, and behind a URL only itself: a
        Zarr array may have millions of chunks.
        """
        fs, root = self.storage()
        try:
            files_found = {root: fs.info(root)}
            if files_found[root]["type"] == "directory":
                if deep:
                    files_found = fs.find(root, detail=True)
                elif not self.is_url:
                    files_found |= {name: fs.info(name) for name in sorted(fs.ls(root, detail=False))[:_ENTRIES]}
        except (OSError, NotImplementedError):
            return {}
        # A server's folder page changes without the files. On a local disk "created" changes with a link or a mode.
        telling = _TELLING if self.is_url else _TELLING - {"created"}
        files = [(name, info) for name, info in sorted(files_found.items()) if info.get("mimetype") != "text/html"]
        return {name: {key: info[key] for key in sorted(telling & set(info))} for name, info in files}

    def read(self, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the bytes of a file, or a part of them."""
        fs, root = self.storage(whole=True)
        content = bytes(fs.cat_file(root, start=start, end=stop))
        if stop is not None and len(content) > stop - (start or 0):
            return content[start:stop]  # a web server that knows no ranges sends the whole file
        return content

    def names(self) -> list[str]:
        """Return the names in a folder; none where a server can't list."""
        fs, root = self.storage()
        try:
            return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(root, detail=False)]
        except (OSError, NotImplementedError):
            return []

    def remove(self, *, folder: bool = False) -> None:
        """Remove a file, or a folder with all its contents."""
        fs, root = self.storage()
        fs.rm(root, recursive=folder)


def modules_of(path: str) -> tuple[str, ...]:
    """Return the modules imported to read a URL: fsspec's own file systems need another package."""
    from fsspec.registry import known_implementations

    scheme = path.partition("://")[0] if "://" in path else ""
    module = known_implementations.get(scheme, {}).get("class", "fsspec").partition(".")[0]
    if scheme in ("http", "https"):
        return ("aiohttp",)
    return () if module == "fsspec" else (module,)


def full(path: Any, options: Options | None = None) -> Place:
    """Return the place of a path, made absolute, or of a URL.

    Raises
    ------
    BadInputError
        It is neither, or a path with options.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise BadInputError(f"A path or URL is needed, not {path!r}.")
    text = str(path).removeprefix("file://")
    if Place(text).is_url:
        if (why := complaint("path", text)) is not None:
            raise BadInputError(why)
        return Place(text.rstrip("/"), dict(options or {}))
    if options:
        raise BadInputError(f"storage_options are for URLs, and {text} is a path on this machine: leave them out.")
    # Path.absolute keeps '..', which a later `removesuffix` or a comparison would stumble over.
    return Place(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100


def matches(path: str) -> list[str]:
    """Return the path from the root if something is there, else its matches as a pattern, such as /series/*.nc."""
    absolute = Path(path)
    if absolute.exists():
        return [path]
    if not absolute.is_absolute() or not _PATTERN.search(path):
        return []
    return sorted(map(str, Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor)))))


def overlap(one: str, other: str) -> bool:
    """Return whether one of two paths or URLs is the other, or lies in it, after resolving links."""
    real = [path.rstrip("/") if Place(path).is_url else os.path.realpath(path) for path in (one, other)]
    return any(inner == outer or inner.startswith(f"{outer}/") for inner, outer in (real, real[::-1]))


def server_of(path: str) -> str:
    """Return the server of a URL with its protocol: 'https://data.example.org' of 'https://data.example.org/x.nc'."""
    protocol, separator, address = path.partition("://")
    return f"{protocol}{separator}{address.partition('/')[0]}"


def check_protocols(path: str) -> None:
    """Raise UnconfirmedError if a URL's server would get keys not chosen for it, such as those of SSH."""
    for part in path.split("::"):
        protocol, separator, _ = part.partition("://")
        if not separator or protocol in _WITHOUT_KEYS:
            continue
        # Imported only for URLs: a form checks its path at each key.
        import fsspec

        # An unknown protocol is refused when it is opened.
        if protocol in fsspec.available_protocols():
            credentials.check(f"Your keys for {protocol}", credentials.origin(part), "path")


def with_token(path: str, options: Options, *, whole: bool = False) -> dict[str, Any]:
    """Return the options for fsspec about a URL's server, with the token from an environment variable.

    Requests to web servers are repeated if the server is busy or a connection breaks in the middle of a part of a file;
    with `whole` in the middle of a file too. Leave `whole` out to list files or to read a file as a stream.
    Web servers get a token as `Authorization: Bearer TOKEN`; a value with a space, such as 'Basic …', unchanged.

    Raises
    ------
    BadInputError
        The environment of this process has no such variable, or such URLs are read without a token.
    """
    settings = {name: value for name, value in options.items() if name not in (TOKEN, TOKEN_SERVER)}
    if path.startswith(("http://", "https://")):
        settings["client_kwargs"] = {
            "middlewares": (_patiently_whole if whole else _patiently,),
            **settings.get("client_kwargs", {}),
        }
    if whole and path.startswith(("s3://", "s3a://")):
        # Otherwise s3fs requests the size of each chunk first. Chunks are read in parallel anyway.
        settings["max_concurrency"] = 1
    variable, server = options.get(TOKEN), server_of(path)
    if variable is None or options.get(TOKEN_SERVER, server) != server:
        return settings
    token = os.environ.get(variable, "").strip()
    if not token:
        raise BadInputError(
            f"On {platform.node()} the environment has no {variable}, which {TOKEN} names. Set it before Jupyter, a "
            "cluster or its workers start there."
        )
    protocol = path.partition("://")[0]
    if protocol not in TOKENS:
        raise BadInputError(
            f"{TOKEN} is for {', '.join(f'{each}://' for each in TOKENS)}, not for {path}: leave it out."
        )
    if name := TOKENS[protocol]:
        return {**settings, name: token}
    header = {"Authorization": token if " " in token else f"Bearer {token}"}
    return {**settings, "client_kwargs": {**settings.get("client_kwargs", {}), "headers": header}}


async def _patiently(request: Any, send: Any, *, whole: bool = False) -> Any:
    """Repeat a request if a web server is busy or hangs up, as s3fs and gcsfs do by themselves."""
    import aiohttp

    pauses = list(_PAUSES) if request.method in ("GET", "HEAD") else []
    while True:
        try:
            response = await send(request)
            if response.status == _PART or (whole and response.ok and 0 < (response.content_length or 0) <= _CACHED):
                await response.read()  # cached for the caller
            if not pauses or response.status not in _BUSY:
                return response
            response.release()
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError):
            if not pauses:
                raise
        await asyncio.sleep(pauses.pop(0))


async def _patiently_whole(request: Any, send: Any) -> Any:
    return await _patiently(request, send, whole=True)


@contextmanager
def sentences_about(place: Place | str, expected: str) -> Iterator[None]:
    """Turn errors of reading a file into one message: the place, what is wrong, what was expected."""
    try:
        yield
    except WorkbenchError:
        raise
    except PermissionError as err:
        raise BadInputError(f"{place} can't be opened: you have no permission. {_permit(place)}.") from err
    except FileNotFoundError as err:
        cause = err.__cause__
        if type(cause).__name__ == "ClientConnectorCertificateError":
            raise BadInputError(
                f"{place} can't be opened: its server's certificate is signed by no known authority. Set "
                "SSL_CERT_FILE to a file with that authority's certificate, on workers too."
            ) from err
        if (status := getattr(cause, "status", None)) in _BUSY:
            raise BadInputError(f"{place} can't be read: its server answers {status}. Try again later.") from err
        own = str(place).startswith("memory:")
        advice = "Each process has a memory: of its own, a run as well. Give a path" if own else f"Expected {expected}"
        raise BadInputError(f"{place} isn't there. {advice}.") from err
    except ImportError as err:
        # fsspec's message says what a protocol needs, and its cause names the package.
        name = getattr(err.__cause__ or err, "name", None) or ""
        bring = install("cloud") if str(place).startswith(_CLOUD) else install_module(name)
        remedy = f"Try: {bring}" if bring else "Install the package that brings it."
        raise MissingError(f"Reading {place} needs a package: {err}. {remedy}") from err
    except Exception as err:  # the readers of each format and protocol raise what they like
        if getattr(err, "status", None) in _REFUSED:
            raise BadInputError(f"{place} can't be opened: its server asks who you are. {_permit(place)}.") from err
        if type(err).__name__ == "NoCredentialsError":
            raise BadInputError(f"{place} can't be opened: there are no keys for it. {_permit(place)}.") from err
        if any(each in str(err) for each in _NO_PARTS):
            raise BadInputError(
                f"{place} can't be read: its server can't send parts of it. Download it first."
            ) from err
        if (status := getattr(err, "status", None)) in _BUSY:
            raise BadInputError(f"{place} can't be read: its server answers {status}. Try again later.") from err
        if type(err).__name__ == "UnreadableError":
            raise BadInputError(str(err)) from err
        if type(err).__name__ == "UnknownCodecError":
            raise _unknown_codec(place, str(err)) from err
        reason = " ".join(str(err).split())[:200] or type(err).__name__
        raise BadInputError(f"{place} can't be read ({reason}). Expected {expected}.") from err


def _unknown_codec(place: object, text: str) -> Exception:
    """Return the error about a Zarr array with an unknown codec, from Zarr's message."""
    quoted = re.search(r"'+([^']+)'+", text)
    codec = quoted[1].removeprefix("numcodecs.") if quoted else text
    module = _CODECS.get(codec) or ("imagecodecs" if codec.startswith("imagecodecs_") else None)
    if module is None:
        return BadInputError(
            f"{place} is written with the codec {codec!r}, which is not known here. Install the package that brings "
            "it, or have it written with another codec, such as zstd."
        )
    return MissingError(f"{place} is written with the codec {codec!r}, which needs {module}: {install_module(module)}.")


def _permit(place: Place | str) -> str:
    scheme, address, _ = str(place).partition("://")
    if not address:
        return "Change its mode, or copy it"
    if scheme in ("http", "https", "hf"):
        return f"Put a token into a variable of the environment, of workers too, and give its name as {TOKEN}"
    return f"Give anon=true if it is public, else keys in the environment, of workers too: {_KEYS.get(scheme, _S3)}"


@contextmanager
def writing_to(place: Place) -> Iterator[None]:
    """Turn errors of the file system, or a server, into one message."""
    try:
        yield
    except Exception as err:
        # Errors of a server count only for a URL, and those of the disk only for a local path.
        if not (place.is_url if of_server(err) else isinstance(err, OSError)):
            raise
        reason = getattr(err, "strerror", None) or " ".join(str(err).split())[:200] or type(err).__name__
        remedy = "Make room there, or choose" if getattr(err, "errno", None) in _FULL else "Choose"
        raise FailedError(f"{place} can't be written ({reason}). {remedy} another path.") from err


def of_server(error: BaseException) -> bool:
    """Return whether the error comes from a package that explains a server's error itself."""
    return type(error).__module__.partition(".")[0] in ("aiohttp", "botocore", "gcsfs")
