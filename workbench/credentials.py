"""Servers that may get a credential: those named in the settings, and those that the user confirmed.

A form's content may come from someone else: a copied address, a preset of a cloned folder, a link. So no secret is
sent because of a form alone. A click on a button that names both, or a command in a terminal, confirms a credential
for one server. The data folder stores this in `confirmed.jsonl`, which may be edited or removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urlsplit

from workbench.errors import BadInputError, BadParameterError, ConflictError, quoted

_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_PORTS = {"http": 80, "https": 443}
_commanded: ContextVar[bool] = ContextVar("commanded", default=False)


class UnconfirmedError(ConflictError):
    """A credential that the user has to confirm first, for this server."""

    def __init__(self, credential: str, server: str, parameter: str | None = None) -> None:
        super().__init__(
            f"{question(credential, server)}? Confirm it with a click on the button in the Workbench that says so, or "
            "once by a command in a terminal."
        )
        self.credential, self.server, self.parameter = credential, server, parameter


def question(credential: str, server: str) -> str:
    """Return the text of the button that confirms it."""
    return f"Send {credential[0].lower() if ' ' in credential else credential[0]}{credential[1:]} to {server}"


def check(credential: str, server: str, parameter: str | None = None) -> None:
    """Check that a credential may be sent to a server.

    Parameters
    ----------
    credential
        A variable of the environment, or words such as "Your keys for s3".
    server
        Address of the server, as `origin` returns it or with a path.

    Raises
    ------
    BadInputError
        It is a variable that the settings don't allow.
    UnconfirmedError
        The user hasn't confirmed this credential for this server.
    """
    if (credential, server) in _confirmed():
        return
    if _commanded.get():
        print(f"{question(credential, server)}: this command says so, and it is remembered.", file=sys.stderr)
        _remember(credential, server)
        return
    _check_allowed(credential, parameter)
    raise UnconfirmedError(credential, server, parameter)


def confirm(credential: str, server: str) -> None:
    """Store that a credential may be sent to a server. Raises BadInputError for a variable that isn't allowed."""
    _check_allowed(credential)
    _remember(credential, server)


def stamp() -> int:
    """Return a number that changes when something is confirmed."""
    path = _file()
    return path.stat().st_mtime_ns if path.exists() else 0


@contextlib.contextmanager
def by_command(commanded: bool = True) -> Iterator[None]:
    """Confirm credentials in the block without asking, and report them on stderr: the user typed a command or code."""
    token = _commanded.set(commanded)
    try:
        yield
    finally:
        _commanded.reset(token)


def is_commanded() -> bool:
    """Return whether this code runs for a command; see `by_command`."""
    return _commanded.get()


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, as the sender of the request understands them: 'https://host:8443'.

    Raises BadInputError for a URL that two programs could understand differently.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        # In the form a browser shows for a name that only resembles another: xn--…
        host = host if ":" in host else host.encode("idna").decode()
    except (ValueError, UnicodeError) as err:
        raise BadInputError(f"{quoted(url)} is no URL: {err}.") from err
    if not re.fullmatch(r"[\w.:-]+", host, re.ASCII) or re.search(r"[\\\s]", parts.netloc) or not url.isprintable():
        raise BadInputError(f"{quoted(url)} has no clear name of a server. Give a URL such as https://host/file.")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port and port != _PORTS.get(parts.scheme) else "")


def _check_allowed(credential: str, parameter: str | None = None) -> None:
    if _VARIABLE.fullmatch(credential) is None:
        return
    from workbench import config

    allowed = config.get("token-variables")
    if not isinstance(allowed, list | tuple) or not all(isinstance(each, str) for each in allowed):
        raise BadInputError(
            f"The setting workbench.token-variables is {quoted(allowed)}. Give a list of names, such as [MY_TOKEN]."
        )
    if credential not in allowed:
        raise BadParameterError(
            f"{credential} isn't among the variables that a form may name ({', '.join(allowed) or 'none'}). Where it "
            "holds a token for data, add it to workbench.token-variables in ~/.config/dask/workbench.yaml, and start "
            "Jupyter again.",
            parameter,
        )


def _file() -> Path:
    # Imported here because workers import importers of this module, and need no settings.
    from workbench import config

    return config.data_folder() / "confirmed.jsonl"


def _confirmed() -> set[tuple[str, str]]:
    with contextlib.suppress(FileNotFoundError):
        lines = _file().read_text(encoding="utf-8", errors="replace").splitlines()
        return {pair for line in lines if (pair := _pair(line)) is not None}
    return set()


def _pair(line: str) -> tuple[str, str] | None:
    with contextlib.suppress(ValueError, TypeError):
        credential, server = json.loads(line)
        return str(credential), str(server)
    return None


def _remember(credential: str, server: str) -> None:
    """Add a line. Two concurrent writers lose nothing, because each line is written in one piece."""
    from workbench import config

    if (credential, server) in _confirmed():
        return
    path = _file()
    with config.writing(path):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, f"{json.dumps([credential, server])}\n".encode())
        finally:
            os.close(file)
