"""A scheduler that runs already, wherever it is: its address is all that is needed. It is never stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import psutil
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from workbench.clusters import security as keys
from workbench.clusters.handle import Asked, State, Verb
from workbench.clusters.profiles import Around, Profile
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, MissingError, reason_of, whole
from workbench.formats import duration
from workbench.threads import finish

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

    from workbench.hardware import Inventory

_PORT = 8786
"""Of a Dask scheduler to which nobody gave another."""

_CONNECTING = 3.0
_ANSWERING = 4.0
"""Seconds for a connection, and for an answer over it. Dask's own time-outs leave the greeting out."""

_HEAD, _MOST_PARTS = 8, 1000
"""Bytes that a message begins with, and parts of one that a scheduler may greet with."""

_INTERVAL = 2.0
_UNHEARD = 60.0
"""Seconds between two questions, and seconds without an answer after which the scheduler is taken for gone."""


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "://" not in text:
        text = f"tcp://{text}"
    parts = urlsplit(text)
    try:
        port = parts.port or _PORT
    except ValueError:
        port = 0
    if not port or parts.scheme not in ("tcp", "tls", "ucx") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("Give the address of a scheduler such as tcp://host:8786 or tls://host:8786")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def spec_of(address: str, **files: str | os.PathLike[str] | None) -> ClusterSpec:
    """Return the spec of a scheduler that runs already, also by its scheduler file.

    Raises BadInputError where address or files can't be used.
    """
    from workbench.clusters.plan import plan
    from workbench.hardware import inventory

    found = _of_file(address) if str(address).endswith(".json") else address
    given: Any = {"address": found, **{name: path for name, path in files.items() if path is not None}}
    return plan("address", inventory(), **given)


def _of_file(path: str) -> str:
    """Address in a scheduler file, as `dask scheduler --scheduler-file` writes it."""
    try:
        return str(json.loads(Path(path).expanduser().read_bytes())["address"])
    except OSError as err:
        raise BadInputError(f"The scheduler file {path} can't be read ({reason_of(err)}). Give its path.") from err
    except (ValueError, LookupError, TypeError) as err:
        raise BadInputError(
            f"{path} is no scheduler file: it holds no address. `dask scheduler --scheduler-file` writes one."
        ) from err


def _file(value: Any) -> Any:
    if not isinstance(value, str | Path) or not str(value).strip():
        return None
    return str(Path(value).expanduser().absolute())


_File = Annotated[str | None, BeforeValidator(_file), WithJsonSchema({"type": "string"})]


class AddressChoices(BaseModel):
    """What a person says of a scheduler that runs already."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Annotated[
        str,
        BeforeValidator(_address),
        WithJsonSchema({"type": "string", "examples": ["tcp://host:8786"]}),
    ] = Field(
        title="Address",
        description="Of the scheduler, such as tcp://host:8786. It prints it when it starts.",
    )
    ca: _File = Field(None, title="CA file", description="Certificate of who signed the scheduler's, for tls://.")
    cert: _File = Field(None, title="Certificate", description="Your own, for tls://.")
    key: _File = Field(None, title="Key", description="Of your certificate, for tls://.")


class Address(Profile):
    """A scheduler that runs already."""

    name = "address"
    title = "Address"
    verb = "Attach"
    options = tuple(AddressChoices.model_fields)

    def summary(self, inventory: Inventory) -> str:
        """Return one line on what it is."""
        return "A Dask scheduler that runs already, here or elsewhere: paste its address."

    def choices(self, inventory: Inventory) -> type[AddressChoices]:
        """Return what a person may say of it."""
        return AddressChoices

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec of which only the address is known before the scheduler was asked."""
        chosen = self.checked(given, AddressChoices)
        scheme = urlsplit(chosen.address).scheme
        _check_keys(chosen, scheme)
        return ClusterSpec(
            profile=self.name,
            n_workers=1,
            threads_per_worker=1,
            memory_limit=1,
            protocol="tls" if scheme == "tls" else "ucx" if scheme == "ucx" else "tcp",
            idle_timeout=None,
            elsewhere=True,
            options=chosen.model_dump(exclude_none=True),
            why=(
                "It runs already: workers, threads and memory are what its scheduler says.",
                "It is never stopped from here, for somebody else may have started it: you detach from it.",
            ),
        )

    def check(self, spec: ClusterSpec) -> None:
        """Raise a WorkbenchError where no scheduler answers at the address, in 10 s at most."""
        reach(spec)

    def code(self, spec: ClusterSpec) -> str:
        """Return the code that connects to it."""
        files = [(name, spec.options[key]) for key, name in _KEYS.items() if key in spec.options]
        if not files and not spec.encrypt:
            return f"from dask.distributed import Client\n\nclient = Client({json.dumps(spec.options['address'])})\n"
        told = "".join(f"    {name}={json.dumps(path)},\n" for name, path in files)
        return (
            "from dask.distributed import Client\nfrom distributed.security import Security\n\n"
            f"security = Security(\n{told}    require_encryption=True,\n)\n"
            f"client = Client({json.dumps(spec.options['address'])}, security=security)\n"
        )

    async def launch(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> Attached:
        """Ask the scheduler what it has."""
        attached = Attached(spec)
        await attached.begin()
        return attached


_KEYS = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}


def _check_keys(chosen: AddressChoices, scheme: str) -> None:
    given = {name: getattr(chosen, name) for name in _KEYS}
    if scheme != "tls":
        name = next((name for name, path in given.items() if path), None)
        if name is not None:
            raise BadInputError(f"{name} is {given[name]!r:.80}, and {chosen.address} isn't encrypted. Use tls://.")
        return
    if not given["ca"]:
        raise BadInputError("ca is missing, and tls:// needs the certificate that the scheduler's is signed with.")
    if bool(given["cert"]) != bool(given["key"]):
        name = "key" if given["cert"] else "cert"
        raise BadInputError(f"{name} is missing. A certificate of your own and its key go together.")


# -- is there a scheduler?


class About(NamedTuple):
    """What a scheduler says of itself."""

    identity: dict[str, Any]
    versions: dict[str, str]


def reach(spec: ClusterSpec) -> About:
    """Ask the scheduler what it is.

    Raises
    ------
    BadInputError
        Nothing answers there, or what answers is no scheduler: the sentence says which.
    MissingError
        It speaks UCX, and distributed-ucxx isn't installed.
    """
    address = str(spec.options["address"])
    parts = urlsplit(address)
    _check_ucx(parts.scheme)
    if parts.scheme != "ucx":
        _check_port(address, spec)
    try:
        found = finish(_asked(spec))
    except TimeoutError as err:
        raise BadInputError(_silent(address)) from err
    except OSError as err:
        raise BadInputError(_other(address, b"", str(err) or type(err).__name__)) from err
    kind = str(found.identity.get("type"))
    if "Scheduler" not in kind:
        raise BadInputError(f"At {address} is a Dask {kind.lower()}. Give the address of its scheduler.")
    return found


async def _asked(spec: ClusterSpec) -> About:
    async with asyncio.timeout(_ANSWERING):
        return await _identity(spec)


async def _identity(spec: ClusterSpec) -> About:
    from distributed.core import rpc

    security = keys.of_files(spec.options) if spec.encrypt else None
    arguments = security.get_connection_args("client") if security else {}
    async with rpc(spec.options["address"], connection_args=arguments, timeout=_ANSWERING) as scheduler:
        identity = await scheduler.identity()
        told = await scheduler.versions()
    host, packages = told.get("host", {}), told.get("packages", {})
    return About(identity, {"python": str(host.get("python", "")).partition(".final")[0], "dask": packages.get("dask")})


def _check_ucx(scheme: str) -> None:
    from importlib.util import find_spec

    if scheme == "ucx" and find_spec("distributed_ucxx") is None:
        from workbench.errors import install

        raise MissingError(f"An address with ucx:// needs distributed-ucxx: {install('ucx')}.")


def _check_port(address: str, spec: ClusterSpec) -> None:
    """Raise BadInputError where nothing listens, or doesn't let us in."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or _PORT), _CONNECTING) as plain:
            if spec.encrypt:
                with _context(spec).wrap_socket(plain) as encrypted:
                    said = _greeting(encrypted)
            else:
                said = _greeting(plain)
    except ssl.SSLCertVerificationError as err:
        raise BadInputError(
            f"The scheduler at {address} has a certificate that {spec.options['ca']} didn't sign "
            f"({err.verify_message}). Give the right CA file."
        ) from err
    except ssl.SSLError as err:
        if "CERTIFICATE_REQUIRED" in (err.reason or ""):
            raise BadInputError(_other(address, b"")) from err
        raise BadInputError(
            f"What listens at {address} speaks no TLS that fits ({err.reason or err}). Use tcp:// if it isn't "
            "encrypted, and see that cert and key are the ones that it knows."
        ) from err
    except _SilentError as err:
        raise BadInputError(_silent(address)) from err
    except TimeoutError as err:
        raise BadInputError(
            f"Nobody answered at {address} within {duration(_CONNECTING)}. Check host and port, and firewalls between."
        ) from err
    except socket.gaierror as err:
        raise BadInputError(f"There is no host {parts.hostname!r} ({err.strerror}). Check the address.") from err
    except OSError as err:
        raise BadInputError(
            f"Nothing listens at {address} ({err.strerror or err}). Check host and port: a scheduler prints its "
            "address when it starts."
        ) from err

    # It begins with the number of parts that follow. Dask would believe any number, and ask for as much memory.
    if len(said) < _HEAD or int.from_bytes(said, "little") > _MOST_PARTS:
        raise BadInputError(_other(address, said))


class _SilentError(Exception):
    """A server that says nothing."""


def _greeting(plain: socket.socket) -> bytes:
    """The first that a server says, as a scheduler does before it is asked; empty where it hangs up."""
    plain.settimeout(_ANSWERING)
    try:
        return plain.recv(_HEAD)
    except TimeoutError as err:
        raise _SilentError from err
    except ConnectionResetError:
        return b""


def _context(spec: ClusterSpec) -> ssl.SSLContext:
    # As Dask does: the host's name isn't looked at, only who signed.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(spec.options["ca"])
        if spec.options.get("cert"):
            context.load_cert_chain(spec.options["cert"], spec.options["key"])
    except ssl.SSLError as err:
        raise BadInputError(f"The files for TLS can't be used ({err.reason or err}). Give PEM files.") from err
    except OSError as err:
        files = ", ".join(str(spec.options[name]) for name in _KEYS if name in spec.options)
        raise BadInputError(f"One of the files for TLS can't be read ({err.strerror}): {files}.") from err
    return context


def _silent(address: str) -> str:
    """What accepts a connection and says nothing."""
    if _answer_to_a_browser(address).startswith(b"HTTP/"):
        return (
            f"At {address} is a web server, perhaps the scheduler's dashboard. Give the scheduler's own address, whose "
            f"port is {_PORT} unless it was given another."
        )
    if address.startswith("tcp:") and _speaks_tls(address):
        return f"What listens at {address} speaks TLS. Use tls:// with ca, cert and key."
    return (
        f"What listens at {address} said nothing within {duration(_ANSWERING)}: it is no scheduler of Dask, or "
        "one that is stuck. Check the port."
    )


def _other(address: str, said: bytes, why: str = "it hung up") -> str:
    """What speaks otherwise than a scheduler that we can talk to."""
    if said.startswith(b"SSH-"):
        return f"At {address} is an SSH server. Give a scheduler's address, whose port is usually {_PORT}."
    if address.startswith("tls:") and not said:
        return f"The scheduler at {address} hung up. It may ask for a certificate of yours: give cert and key."
    why = f"it said {said!r}" if said else whole(why)
    return f"What listens at {address} is no Dask scheduler that this Dask can talk to ({why})."


def _answer_to_a_browser(address: str) -> bytes:
    parts = urlsplit(address)
    place = parts.hostname or "", parts.port or _PORT
    with contextlib.suppress(OSError), socket.create_connection(place, 1) as plain:
        plain.settimeout(1)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return plain.recv(64)
    return b""


def _speaks_tls(address: str) -> bool:
    parts = urlsplit(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((parts.hostname or "", parts.port or _PORT), 1) as plain:
            plain.settimeout(1)
            with context.wrap_socket(plain):
                return True
    except ssl.SSLError as err:
        # One that asks for our certificate has spoken TLS; another protocol is a wrong version number.
        return err.reason not in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", None)
    except OSError:
        return False


# -- while one is attached


class Attached:
    """A scheduler of somebody else's. Nothing is changed there."""

    contact = None
    dashboard = None
    can: tuple[Verb, ...] = ()

    def __init__(self, spec: ClusterSpec) -> None:
        self.address: str = spec.options["address"]
        self.versions: dict[str, str] = {}
        self._spec = spec
        self._identity: dict[str, Any] = {}
        self._machine: Mapping[str, Any] | None = None
        self._heard = time.monotonic()
        self._known: frozenset[str] = frozenset()
        self._problem: str | None = None
        self._asking: asyncio.Task[str] | None = None

    async def begin(self) -> None:
        """Ask it for the first time."""
        await self._ask()

    def serve(self, asked: Asked) -> None:
        """Do nothing: what its scheduler answers to is not ours to say."""

    async def fill(self) -> None:
        """Return at once: it has the workers that it has."""
        self._asking = asyncio.create_task(self._keep_asking())

    async def state(self) -> State:
        """Return what it said last."""
        workers = list(self._identity.get("workers", {}).values())
        unheard = time.monotonic() - self._heard
        trouble = (
            f"It hasn't answered for {duration(round(unheard))}." if unheard > 3 * _INTERVAL + _ANSWERING else None
        )
        if not workers:
            trouble = trouble or "It has no workers."
        return State(
            arrived=len(workers),
            requested=len(workers),
            trouble=trouble or self._problem,
            spec=_spec_of(self._spec, workers, self._machine),
            machine=self._machine,
        )

    async def finished(self) -> str:
        """Raise FailedError when it has gone."""
        assert self._asking is not None
        return await self._asking

    async def scale(self, n: int) -> None:
        """Never called."""

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Never called."""

    async def restart(self) -> None:
        """Never called."""

    async def close(self) -> None:
        """Let go of it."""
        if self._asking is not None:
            self._asking.cancel()

    async def _keep_asking(self) -> str:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self._ask()
            except (OSError, TimeoutError, ValueError) as err:
                # Dask tries again until its time is up, and then doesn't say why.
                refused = await asyncio.to_thread(_refuses, self.address)
                if time.monotonic() - self._heard > (_CONNECTING if refused else _UNHEARD):
                    raise FailedError(
                        f"The scheduler at {self.address} {'has ended' if refused else 'no longer answers'}. "
                        "Attach to it again when it is back."
                    ) from err

    async def _ask(self) -> None:
        found = await _asked(self._spec)
        self._identity, self.versions = found.identity, {name: each for name, each in found.versions.items() if each}
        self._heard = time.monotonic()
        workers = frozenset(self._identity.get("workers", {}))
        if workers - self._known:
            with contextlib.suppress(OSError, TimeoutError):
                self._machine = await asyncio.wait_for(asyncio.to_thread(_machine, self._spec), _ANSWERING)
        self._known = workers


def _refuses(address: str) -> bool:
    """Whether nobody listens at the port any more."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or _PORT), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _machine(spec: ClusterSpec) -> dict[str, Any] | None:
    """What the workers run on; None where that is this machine."""
    from distributed import Client

    from workbench.travelling import ask, machine_elsewhere

    client: Client
    with Client(
        spec.options["address"],
        security=keys.of_files(spec.options) if spec.encrypt else None,
        timeout=_ANSWERING,
        set_as_default=False,
    ) as client:
        return machine_elsewhere(ask(client))


def _spec_of(spec: ClusterSpec, workers: list[dict[str, Any]], machine: Mapping[str, Any] | None) -> ClusterSpec:
    """What the workers turned out to be; where they differ, each counts for the smallest."""
    if not workers:
        return spec
    total = machine["memory"]["total"] if machine else psutil.virtual_memory().total
    # What one without a limit of its own may take.
    without = max(1, total // len(workers))
    return spec.model_copy(
        update={
            "n_workers": len(workers),
            "threads_per_worker": min(max(1, int(each["nthreads"])) for each in workers),
            "memory_limit": min(int(each["memory_limit"] or without) for each in workers),
        }
    )
