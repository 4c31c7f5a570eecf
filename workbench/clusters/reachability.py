"""Check for a scheduler at an address; if there is none, say what is there, in one message within ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from workbench.errors import BadInputError, MissingError, install, quoted, whole
from workbench.formats import duration
from workbench.threads import finish, load

if TYPE_CHECKING:
    from distributed.security import Security

PORT = 8786
"""Default port of a Dask scheduler."""

CONNECTING = 3.0
ANSWERING = 4.0
"""Seconds for a connection, and for an answer over it. Dask's own time-outs exclude the greeting."""

KEYS = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
"""Files of TLS keys for a client, and Dask's names for them."""

_HEAD, _MOST_PARTS = 8, 1000
"""Bytes at the start of a message, and the largest number of parts in a scheduler's greeting."""


class Place(NamedTuple):
    """Address of a scheduler and, for tls://, the paths of a client's PEM files."""

    address: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    contact: str | None = None
    """Address of a scheduler for processes that lack its protocol; None if there is only one."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Place:
        """Return the place named by the options of a spec."""
        return cls(*(options.get(name) for name in cls._fields))  # type: ignore[arg-type]

    @property
    def scheme(self) -> str:
        """Dask's name of the protocol, such as "tcp"."""
        return self.address.partition("://")[0]

    @property
    def port(self) -> tuple[str, int]:
        """Host and port number."""
        parts = urlsplit(self.address)
        return parts.hostname or "", parts.port or PORT

    @property
    def files(self) -> dict[str, str]:
        """Given files, by Dask's names for them."""
        return {theirs: path for ours, theirs in KEYS.items() if (path := getattr(self, ours))}

    @property
    def security(self) -> Security | None:
        """Security object for Dask's clients; None without encryption."""
        load("distributed")
        from distributed.security import Security

        return Security(require_encryption=True, **self.files) if self.files else None


def key_files(folder: Path) -> tuple[str, ...]:
    """Return the paths of CA, certificate and key of a cluster whose record is in `folder`; they may not exist yet."""
    return tuple(str(folder / "tls" / f"{name}.pem") for name in KEYS)


class About(NamedTuple):
    """Identity and versions that a scheduler reports."""

    identity: dict[str, Any]
    versions: dict[str, str]


def reach(place: Place) -> About:
    """Ask the scheduler for its identity.

    Raises BadInputError if nothing answers there, or something other than a scheduler: the message says which.
    """
    address = place.address
    if place.scheme in ("tcp", "tls"):
        _check_port(place)
    try:
        about = finish(ask(place))
    except TimeoutError as err:
        raise BadInputError(_silent(place)) from err
    except OSError as err:
        raise BadInputError(_other(place, b"", str(err) or type(err).__name__)) from err
    if not is_scheduler(about.identity):
        raise BadInputError(
            f"At {address} is a Dask {str(about.identity.get('type')).lower()}. Give the address of its scheduler."
        )
    return about


async def ask(place: Place) -> About:
    """Ask the scheduler for its identity, with a time-out. Raises OSError for another protocol."""
    load("distributed")
    try:
        async with asyncio.timeout(ANSWERING):
            return await _identity(place)
    except (struct.error, MemoryError) as err:
        # The server's greeting looked like Dask's by chance.
        raise OSError("what it says is no message of Dask's") from err


async def _identity(place: Place) -> About:
    know(place.address)
    async with asking(place.address, place.security, ANSWERING) as scheduler:
        identity = await scheduler.identity()
        # A nanny doesn't support this request.
        answer = await scheduler.versions() if is_scheduler(identity) else {}
    return About(identity, versions_in(answer))


def versions_in(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of 'python' and 'dask', if known, in a scheduler's answer."""
    python = str(answer.get("host", {}).get("python", "")).partition(".final")[0]
    versions = {"python": python, "dask": answer.get("packages", {}).get("dask")}
    return {name: each for name, each in versions.items() if each}


async def check_answers(address: str, security: Security | None, timeout: float) -> None:
    """Return when the server has answered. Raises OSError or, after `timeout` seconds, TimeoutError."""
    async with asyncio.timeout(timeout), asking(address, security, timeout) as scheduler:
        await scheduler.identity()


def asking(address: str, security: Security | None, timeout: float | None = None) -> Any:
    """Return Dask's RPC to an address; `timeout` is for the connection."""
    load("distributed")
    from distributed.core import rpc

    arguments = security.get_connection_args("client") if security else {}
    return rpc(address, connection_args=arguments, timeout=timeout)


def is_scheduler(identity: Mapping[str, Any]) -> bool:
    """Return whether this identity is that of a scheduler, not of a worker or a nanny."""
    return "Scheduler" in str(identity.get("type"))


def know(address: str) -> None:
    """Register the protocol of the address with Dask. Raises MissingError if the package for it is missing."""
    scheme = address.partition("://")[0]
    if scheme in ("tcp", "tls", ""):
        return
    load("distributed")
    from distributed.comm.registry import get_backend

    try:
        if scheme == "gateway":
            import_module("dask_gateway")
        get_backend(scheme)
    except (ImportError, ValueError) as err:
        raise MissingError(f"Dask lacks what an address with {scheme}:// needs: {install(scheme)}.") from err


def check_proxy(place: Place) -> None:
    """Raise BadInputError if no proxy for schedulers, such as a Dask-Gateway's, listens."""
    why = None
    try:
        # The proxy closes the connection for an unknown name, but it speaks TLS.
        if _answer_to_tls(place, CONNECTING, "daskgateway-none") == "WRONG_VERSION_NUMBER":
            why = "what listens there speaks no TLS, as the gateway's web server does"
    except OSError as err:
        why = err.strerror or str(err)
    if why is not None:
        raise BadInputError(
            f"proxy_address is {quoted(place.address)}, where clients would reach its schedulers: {why}. Give host and "
            "port of the gateway's proxy for schedulers, from its administrator."
        )


def _check_port(place: Place) -> None:
    """Raise BadInputError if nothing listens, or the server refuses us."""
    address = place.address
    try:
        with socket.create_connection(place.port, CONNECTING) as plain:
            if place.scheme == "tls":
                with _context(place).wrap_socket(plain) as encrypted:
                    reply = greeting(encrypted)
            else:
                reply = greeting(plain)
    except ssl.SSLCertVerificationError as err:
        raise BadInputError(
            f"The scheduler at {address} has a certificate that {place.ca} didn't sign "
            f"({err.verify_message}). Give the right CA file."
        ) from err
    except ssl.SSLError as err:
        if "CERTIFICATE_REQUIRED" in (err.reason or ""):
            raise BadInputError(_other(place, b"")) from err
        raise BadInputError(
            f"What listens at {address} speaks no TLS that fits ({err.reason or err}). Use tcp:// if it isn't "
            "encrypted, and see that cert and key are the ones that it knows."
        ) from err
    except TimeoutError as err:
        raise BadInputError(
            f"Nobody answered at {address} within {duration(CONNECTING)}. Check host and port, and firewalls between."
        ) from err
    except socket.gaierror as err:
        raise BadInputError(f"There is no host {place.port[0]!r} ({err.strerror}). Check the address.") from err
    except OSError as err:
        raise BadInputError(
            f"Nothing listens at {address} ({err.strerror or err}). Check host and port: a scheduler prints its "
            "address when it starts."
        ) from err
    if reply is None:
        raise BadInputError(_silent(place))
    if not is_dask(reply):
        raise BadInputError(_other(place, reply))


def is_dask(greeting: bytes) -> bool:
    """Return whether this greeting may come from a Dask server.

    A message begins with the number of its parts. Dask would trust any number, and allocate memory for it.
    """
    return len(greeting) == _HEAD and int.from_bytes(greeting, "little") <= _MOST_PARTS


def greeting(plain: socket.socket, patience: float = ANSWERING) -> bytes | None:
    """Return a server's greeting, as schedulers send one; empty if it closes the connection, None if it is silent."""
    plain.settimeout(patience)
    try:
        return plain.recv(_HEAD)
    except ConnectionResetError:
        return b""
    except TimeoutError:
        return None


def _context(place: Place) -> ssl.SSLContext:
    # As in Dask: the host name isn't checked, only the signature.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(place.ca)
        if place.cert:
            context.load_cert_chain(place.cert, place.key)
    except ssl.SSLError as err:
        raise BadInputError(f"The files for TLS can't be used ({err.reason or err}). Give PEM files.") from err
    except OSError as err:
        files = ", ".join(place.files.values())
        raise BadInputError(f"One of the files for TLS can't be read ({err.strerror}): {files}.") from err
    return context


def _silent(place: Place) -> str:
    """Return a message about a server that accepts a connection and is silent."""
    if _answer_to_a_browser(place).startswith(b"HTTP/"):
        return (
            f"At {place.address} is a web server, perhaps the scheduler's dashboard. Give the scheduler's own address, "
            f"whose port is {PORT} unless it was given another."
        )
    with contextlib.suppress(OSError):
        # A server that asks for our certificate speaks TLS.
        if place.scheme == "tcp" and _answer_to_tls(place, 1) not in _NO_TLS:
            return f"What listens at {place.address} speaks TLS. Use tls:// with ca, cert and key."
    return (
        f"What listens at {place.address} said nothing within {duration(ANSWERING)}: it is no scheduler of Dask, or "
        "one that is stuck. Check the port."
    )


def _other(place: Place, reply: bytes, why: str = "it hung up") -> str:
    """Return a message about a server that isn't a scheduler we can talk to."""
    if reply.startswith(b"SSH-"):
        return f"At {place.address} is an SSH server. Give a scheduler's address, whose port is usually {PORT}."
    if place.scheme == "tls" and not reply:
        return f"The scheduler at {place.address} hung up. It may ask for a certificate of yours: give cert and key."
    why = f"it said {reply!r}" if reply else whole(why)
    return f"What listens at {place.address} is no Dask scheduler that this Dask can talk to ({why})."


def _answer_to_a_browser(place: Place) -> bytes:
    with contextlib.suppress(OSError), socket.create_connection(place.port, 1) as plain:
        plain.settimeout(1)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return plain.recv(64)
    return b""


_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", None)


def _answer_to_tls(place: Place, patience: float, name: str | None = None) -> str | None:
    """Return the library's reason for a failed TLS handshake; empty if it succeeds. Raises OSError for no answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(place.port, patience) as plain:
            plain.settimeout(patience)
            context.wrap_socket(plain, server_hostname=name).close()
    except ssl.SSLError as err:
        return err.reason
    return ""


def refuses(place: Place) -> bool:
    """Return whether nothing listens at the port any more."""
    try:
        socket.create_connection(place.port, 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
