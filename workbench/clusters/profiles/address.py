"""A scheduler that already runs, anywhere: it needs only its address. It is never stopped."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import psutil
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from workbench.clusters.choices import File
from workbench.clusters.engine import Engine
from workbench.clusters.profiles import Around, Profile, registered
from workbench.clusters.profiles.lookup import profile
from workbench.clusters.reachability import KEYS, PORT, Place, reach, refuses
from workbench.clusters.spec import ClusterSpec, measured
from workbench.errors import BadInputError, ConflictError, MissingError, quoted, reason_of
from workbench.formats import literal

if TYPE_CHECKING:
    from distributed.security import Security


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "://" not in text:
        text = f"tcp://{text}"
    if text.startswith("inproc:"):
        raise ValueError(
            "Only the process that started such a scheduler reaches it. Start it with processes=True, or with a port "
            "such as tcp://127.0.0.1:8786"
        )
    parts = urlsplit(text)
    try:
        port = parts.port or PORT
    except ValueError:
        port = 0
    is_gateway = parts.scheme == "gateway"
    is_known = parts.scheme in ("tcp", "tls") or any(each.protocol == parts.scheme for each in registered().values())
    if not port or not is_known or not parts.hostname or (parts.path not in ("", "/")) != is_gateway:
        raise ValueError("Give the address of a scheduler such as tcp://host:8786 or tls://host:8786")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path if is_gateway else ''}"


def spec_of(address: str, **files: str | os.PathLike[str] | None) -> ClusterSpec:
    """Return the spec of a scheduler that already runs, given its address or its scheduler file.

    Raises BadInputError if address or files are invalid.
    """
    from workbench.clusters.plan import plan
    from workbench.hardware import inventory

    choices: Any = {
        "address": address_in(str(address)),
        **{name: path for name, path in files.items() if path is not None},
    }
    return plan("address", inventory(), **choices)


def address_in(path: str) -> str:
    """Return the address in a scheduler file, as `dask scheduler --scheduler-file` writes it; or an address as it is.

    Raises BadInputError if the file holds no address.
    """
    if not path.endswith(".json"):
        return path
    try:
        return str(json.loads(Path(path).expanduser().read_bytes())["address"])
    except OSError as err:
        raise BadInputError(f"The scheduler file {path} can't be read ({reason_of(err)}). Give its path.") from err
    except (ValueError, LookupError, TypeError) as err:
        raise BadInputError(
            f"{path} is no scheduler file: it holds no address. `dask scheduler --scheduler-file` writes one."
        ) from err


class AddressChoices(BaseModel, frozen=True, extra="forbid"):
    """Choices for a scheduler that already runs."""

    address: Annotated[
        str,
        BeforeValidator(_address),
        WithJsonSchema({"type": "string", "examples": ["tcp://host:8786"]}),
    ] = Field(
        title="Address",
        description="Address of the scheduler, such as tcp://host:8786. It prints it when it starts.",
    )
    ca: File = Field(None, title="CA file", description="Certificate of who signed the scheduler's, for tls://.")
    cert: File = Field(None, title="Certificate", description="Your own, for tls://.")
    key: File = Field(None, title="Key", description="Of your certificate, for tls://.")


class Address(Profile):
    """A scheduler that already runs."""

    name = "address"
    title = "Address"
    line = "A Dask scheduler that runs already, here or elsewhere: paste its address."
    model = AddressChoices
    verb = "Attach"
    attaches = True
    options = tuple(AddressChoices.model_fields)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec with only the address, since the scheduler isn't contacted yet."""
        choices = self.checked(given, AddressChoices)
        scheme = urlsplit(choices.address).scheme
        if scheme == "gateway":
            return _at_gateway(choices.address, around)
        _check_keys(choices, scheme)
        return ClusterSpec(
            profile=self.name,
            n_workers=0,
            threads_per_worker=None,
            memory_limit=None,
            protocol=scheme,
            idle_timeout=None,
            elsewhere=True,
            options=choices.model_dump(exclude_none=True),
            why=(
                "It runs already: workers, threads and memory are what its scheduler says.",
                "It is never stopped from here, for somebody else may have started it: you detach from it.",
            ),
        )

    def describe(self, spec: ClusterSpec) -> str:
        return f"{spec.options['address']}, with the workers that it has"

    def check(self, spec: ClusterSpec) -> None:
        reach(Place.of(spec.options))

    def seen(self, spec: ClusterSpec) -> ClusterSpec:
        workers = list(reach(Place.of(spec.options)).identity.get("workers", {}).values())
        if not workers:
            raise ConflictError(f"The scheduler at {spec.options['address']} has no workers. Give it some first.")
        return measured(spec, workers, psutil.virtual_memory().total)

    def code(self, spec: ClusterSpec) -> str:
        place = Place.of(spec.options)
        if place.scheme != "tls":
            return f"from dask.distributed import Client\n\nclient = Client({literal(place.address)})\n"
        files = "".join(f"    {name}={literal(path)},\n" for name, path in place.files.items())
        return (
            "from dask.distributed import Client\nfrom distributed.security import Security\n\n"
            f"security = Security(\n{files}    require_encryption=True,\n)\n"
            f"client = Client({literal(place.address)}, security=security)\n"
        )

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> Attached:
        return Attached(spec, security, folder, changed)


class Attached(Engine):
    """A scheduler that was started outside dask-workbench. Nothing is changed there."""

    can = ()
    remedy = "Attach to it again when it is back."

    async def start(self) -> Place:
        return Place.of(self.spec.options)

    async def gone(self) -> str | None:
        # Dask retries until its time is up, and then doesn't report the reason.
        if await asyncio.to_thread(refuses, self.place):
            return f"The scheduler at {self.place.address} has ended. {self.remedy}"
        return None

    def measured(self, spec: ClusterSpec, memory: int) -> ClusterSpec:
        return measured(spec, tuple(self.workers.values()), memory)


def _at_gateway(address: str, around: Around) -> ClusterSpec:
    """Return the spec of a cluster at the gateway that Dask's configuration names."""
    gateway = profile("gateway")
    reason = gateway.unavailable(around)
    if reason is not None:
        raise MissingError(reason)
    proxy, _, cluster = address.rpartition("/")
    return gateway.plan({"cluster": cluster, "proxy_address": proxy}, around)


def _check_keys(choices: AddressChoices, scheme: str) -> None:
    files = {name: getattr(choices, name) for name in KEYS}
    if scheme != "tls":
        name = next((name for name, path in files.items() if path), None)
        if name is not None:
            raise BadInputError(f"{name} is {quoted(files[name])}, and {choices.address} isn't encrypted. Use tls://.")
        return
    if not files["ca"]:
        raise BadInputError("ca is missing, and tls:// needs the certificate that the scheduler's is signed with.")
    if bool(files["cert"]) != bool(files["key"]):
        name = "key" if files["cert"] else "cert"
        raise BadInputError(f"{name} is missing. A certificate of your own and its key go together.")
