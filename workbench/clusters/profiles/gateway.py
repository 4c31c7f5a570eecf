"""Clusters of a Dask-Gateway, new or running: the gateway's own options are part of the form."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import dask.config
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from workbench import credentials
from workbench.clusters import security as keys
from workbench.clusters.choices import IdleTimeout, NamedValues, Text, Workers, check_variables
from workbench.clusters.engine import Engine
from workbench.clusters.profiles import Around, Nearby, Profile
from workbench.clusters.profiles.this_machine import idle_timeout
from workbench.clusters.reachability import Place, check_proxy
from workbench.clusters.spec import ClusterSpec, measured
from workbench.errors import BadInputError, FailedError, MissingError, named, quoted, reason_of, whole
from workbench.formats import count, duration, literal
from workbench.hardware import Inventory
from workbench.redaction import hide_variables
from workbench.threads import finish

if TYPE_CHECKING:
    from dask_gateway import Gateway as Client
    from distributed.security import Security

_ASKING = 3.0
_FRESH = 10.0
"""Seconds for a server to answer, and for which its answer is reused: a form is drawn at every key."""
_CHANGING = 8.0
"""Seconds for it to accept a change, of the ten that an owner has to end a cluster: aiohttp would wait for 300."""


class Server(NamedTuple):
    """Address of a gateway, and the kind of login there."""

    address: str
    proxy_address: str | None = None
    auth: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Server:
        """Return the server named by the options of a spec."""
        return cls(*(options.get(name) for name in cls._fields))  # type: ignore[arg-type]

    def client(self, auth: Any = None) -> Client:
        """Return dask-gateway's own client, for use in an event loop; `auth` replaces the server's login."""
        from dask_gateway import Gateway

        return Gateway(self.address, proxy_address=self.proxy_address, auth=auth or self.auth, asynchronous=True)

    @property
    def credential(self) -> str:
        """Name of the credentials sent to log in."""
        kind = self.auth or dask.config.get("gateway.auth.type", None)
        names = {"jupyterhub": "Your JUPYTERHUB_API_TOKEN", "kerberos": "Your Kerberos ticket"}
        return names.get(kind, "Your name and password for gateways")

    async def about(self) -> About:
        """Ask for the server's options and clusters. Raises BadInputError or MissingError if that fails."""
        from aiohttp import ClientError

        try:
            async with asyncio.timeout(_ASKING), self.client(_confirmed_login(self)) as client:
                options = await _options(self, client)
                return About(options, await _running(self, client))
        except TimeoutError as err:
            raise BadInputError(
                f"address is {quoted(self.address)}, and nobody answered there within {duration(_ASKING)}. Check host "
                "and port, and firewalls between."
            ) from err
        except (OSError, ClientError) as err:
            raise BadInputError(
                f"address is {quoted(self.address)}, and nothing can be reached there ({_short(err)}). Give the "
                "address of a Dask-Gateway, from its administrator."
            ) from err
        except ImportError as err:
            raise MissingError(f"auth is {self.auth}, which needs a package: {_short(err)}.") from err


def _confirmed_login(server: Server) -> Any:
    """Return a login for a gateway that asks for one, used only if the gateway is configured or confirmed."""
    from dask_gateway.auth import GatewayAuth, get_auth

    class Confirmed(GatewayAuth):
        def pre_request(self, answer: Any) -> Any:
            # Another path may belong to someone else, as on a JupyterHub.
            if server.address != _normal(_configured("address")):
                credentials.check(server.credential, server.address, "address")
            try:
                self.login = get_auth(server.auth)
            except TypeError as err:
                raise BadInputError(
                    f"gateway.auth.kwargs of Dask's configuration don't fit auth {server.auth} ({_short(err)}). Leave "
                    "auth out, or change them."
                ) from err
            except ValueError as err:  # there is no token
                raise BadInputError(f"The gateway at {server.address} can't be queried: {_short(err)}.") from err
            return self.login.pre_request(answer)

        def post_response(self, answer: Any, context: Any = None) -> None:
            self.login.post_response(answer, context)

    return Confirmed()


class About(NamedTuple):
    """Options of a gateway, as it declares them, and the names of its running clusters."""

    options: tuple[Option, ...]
    clusters: tuple[str, ...]


_Number = Annotated[int | float, Field(ge=-(2**63), le=2**63)] | None


class Bounds(BaseModel, frozen=True):
    """Type and bounds of an option, as a gateway declares them."""

    type: str
    min: _Number = None
    max: _Number = None
    options: Annotated[tuple[str | int | float | bool, ...], Field(min_length=1)] | None = None


class Option(BaseModel, frozen=True):
    """An option of a gateway, as it declares it."""

    field: Annotated[str, Field(pattern=r"^[A-Za-z]\w{0,99}$")]
    label: Annotated[str, Field(max_length=200)] | None = None
    default: Any
    spec: Bounds

    @property
    def is_mapping(self) -> bool:
        """True if its value maps names to values, such as environment variables."""
        return self.spec.type == "mapping"


async def _options(server: Server, client: Client) -> tuple[Option, ...]:
    """Return the options that the server declares."""
    from aiohttp import ClientResponseError
    from dask_gateway import GatewayServerError

    try:
        declared = await client.cluster_options(use_local_defaults=False)
    except (ClientResponseError, GatewayServerError, ValueError, LookupError, TypeError, RecursionError) as err:
        status = getattr(err, "status", None)
        if status in (401, 403):
            raise BadInputError(
                f"The gateway at {server.address} doesn't let you in ({status} {getattr(err, 'message', '')}). Check "
                "auth, and the user, password or token: gateway.auth in Dask's configuration, or JUPYTERHUB_API_TOKEN."
            ) from err
        raise BadInputError(
            f"address is {quoted(server.address)}, where a web server answers, and no Dask-Gateway that this one can "
            f"use ({_short(err)}). Give the address from its administrator, with its path."
        ) from err
    try:
        options = tuple(map(_option, declared._fields.values()))  # the fields have no public name
        # The server's own values of variables are neither checked nor shown.
        defaults = {each.field: {} if each.is_mapping else each.default for each in options}
        ours = GatewayChoices.model_fields
        values = {name: value for name, value in defaults.items() if name not in ours}
        _model(About(options, ())).model_validate({"address": server.address, **values})
    except Exception as err:  # pydantic raises one of many if a server declares something invalid
        raise BadInputError(
            f"The gateway at {server.address} declares options that can't be used ({_short(err)}). Ask its "
            "administrator."
        ) from err
    return options


def _option(declared: Any) -> Option:
    """Convert an option of dask-gateway's to a validated value."""
    bounds = {name: getattr(declared, name, None) for name in Bounds.model_fields if name != "type"}
    kind = Bounds(type=type(declared).__name__.lower(), **bounds)
    return Option(field=declared.field, label=declared.label, default=declared.value, spec=kind)


async def _running(server: Server, client: Client) -> tuple[str, ...]:
    """Return the names of the clusters that run there."""
    try:
        return TypeAdapter(tuple[str, ...]).validate_python(
            [each.name for each in await client.list_clusters(status="running")]
        )
    except (LookupError, TypeError, AttributeError, RecursionError, ValidationError) as err:
        raise BadInputError(
            f"The gateway at {server.address} lists clusters in a way that can't be read ({named(err)}). Ask its "
            "administrator."
        ) from err


_answers: dict[tuple[Server, str], tuple[float, About | BadInputError]] = {}


def _about(server: Server) -> About:
    """Return the server's answer, cached for a moment."""
    as_whom = server, str(dask.config.get("gateway.auth", None))
    at, answer = _answers.get(as_whom, (0.0, None))
    if answer is None or time.monotonic() - at > _FRESH:
        try:
            answer = finish(server.about())
        except BadInputError as err:
            answer = err
        if len(_answers) > 100:
            _answers.clear()
        _answers[as_whom] = time.monotonic(), answer
    if isinstance(answer, BadInputError):
        raise BadInputError(str(answer))
    return answer


def _short(err: BaseException) -> str:
    return whole(reason_of(err) if isinstance(err, Exception) else str(err)).rstrip(".") or type(err).__name__


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip().rstrip("/")
    parts = urlsplit(text if "://" in text else f"http://{text}")
    with contextlib.suppress(ValueError, BadInputError):
        if parts.scheme in ("http", "https") and credentials.origin(parts.geturl()) and "@" not in parts.netloc:
            return parts.geturl()
    raise ValueError("Give the address of a Dask-Gateway such as https://hub.example.org/services/dask-gateway")


def _normal(address: Any) -> Any:
    """Return an address as a form has it; None if it is invalid."""
    with contextlib.suppress(ValueError):
        return _address(address)


def _proxy(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = urlsplit(value if "://" in value else f"gateway://{value.strip()}")
    with contextlib.suppress(ValueError):
        if parts.hostname and parts.port:
            return f"gateway://{parts.netloc}"
    raise ValueError("Give host and port, such as gateway://host:8786")


def _writable(value: int) -> int:
    if abs(value) >= 2**63:
        raise ValueError("Give a smaller number, which a form can show")
    return value


def _named(value: dict[str, Any]) -> dict[str, str]:
    if not all(isinstance(each, str) and re.fullmatch(r"\$\w+", each.strip()) for each in value.values()):
        raise ValueError("Values of variables are not stored")
    return {name: each.strip() for name, each in value.items()}


_KINDS: Mapping[str, Any] = {
    "integer": Annotated[int, AfterValidator(_writable)],
    "float": float,
    "bool": bool,
    "string": str,
    "mapping": Annotated[NamedValues, AfterValidator(_named)],
}


def _configured(name: str) -> Any:
    """Return a setting of Dask's configuration of gateways, with environment variables filled in."""
    value = dask.config.get(f"gateway.{name}", None)
    with contextlib.suppress(LookupError, ValueError):
        return value.format(**os.environ) if isinstance(value, str) else value
    return value


_Address = Annotated[
    str,
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "examples": ["https://hub.example.org/services/dask-gateway"]}),
    Field(title="Gateway", description="Address of its server, from its administrator."),
]


class GatewayChoices(BaseModel, frozen=True, extra="forbid", protected_namespaces=()):
    """Choices for any gateway; its server declares the rest."""

    address: _Address
    proxy_address: Annotated[Text, BeforeValidator(_proxy)] = Field(
        None,
        title="Its schedulers",
        description="Host and port of its proxy for schedulers. Left out: those of the gateway itself.",
    )
    auth: Literal["basic", "jupyterhub", "kerberos"] | None = Field(
        None,
        title="Who you are",
        description="How you prove it. Passwords stand in Dask's configuration (gateway.auth.kwargs), a token in "
        "JUPYTERHUB_API_TOKEN. Left out: as gateway.auth.type says.",
    )
    cluster: Text = Field(None, title="Cluster", description="One that runs there, to attach to. Left out: a new one.")
    n_workers: Workers = Field(None, description="Of a new cluster. Left out: 2.")
    idle_timeout: IdleTimeout = None


def _model(about: About | None) -> type[GatewayChoices]:
    """Return the model of the choices, with the options that the server declares, if it was contacted."""
    own_fields = GatewayChoices.model_fields
    fields: dict[str, Any] = {"address": (_Address, _configured("address") or ...)}
    if about is not None:
        if about.clusters:
            schema = WithJsonSchema({"type": "string", "enum": list(about.clusters)})
            fields["cluster"] = (Annotated[str | None, schema], own_fields["cluster"])
        fields |= {each.field: _field(each) for each in about.options if each.field not in own_fields}
    return create_model("GatewayChoices", __base__=GatewayChoices, **fields)


def _field(option: Option) -> tuple[Any, Any]:
    """Return the model's field for an option: type, bounds, label and default."""
    kind = _KINDS.get(option.spec.type, Any)
    if option.spec.type == "select":
        kind = Literal[option.spec.options or ()]
    default = (dask.config.get("gateway.cluster.options", None) or {}).get(option.field, option.default)
    description = "An option of this gateway."
    if option.is_mapping:
        default = hide_variables(default)
        description += " Each value by the name of a variable here, for values are not stored: {NAME: $NAME}"
    bounds = {"ge": option.spec.min, "le": option.spec.max}
    present: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    return kind, Field(default, title=option.label, description=description, **present)


class Gateway(Profile):
    """A cluster that a Dask-Gateway starts, or one that runs there."""

    name = "gateway"
    title = "Gateway"
    line = "A cluster that a Dask-Gateway starts elsewhere, with the options that it offers."
    model = GatewayChoices
    needs = ("dask-gateway", "gateway")
    attaches = True
    protocol = "gateway"
    options = (*Server._fields, "cluster")

    def takes(self, name: str) -> bool:
        """Return True: only its server knows its options."""
        return True

    def choices(self, inventory: Inventory, given: Mapping[str, Any] = {}) -> type[BaseModel]:
        """Return the model of the choices, with the options of the server at the given or configured address."""
        with contextlib.suppress(BadInputError, MissingError, credentials.UnconfirmedError):
            return _model(_about(self._server(given)))
        return _model(None)

    def _server(self, given: Mapping[str, Any]) -> Server:
        model = _model(None)
        own_choices = {name: each for name, each in given.items() if name in model.model_fields}
        return Server.of(self.checked(own_choices, model).model_dump())

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec with workers and options; the rest is known when it runs."""
        given = {name: value for name, value in given.items() if value not in ("", None)}
        server = self._server(given)
        about = _about(server)
        choices: Any = self.checked(given, _model(about))
        offered = [each.field for each in about.options]
        options = {name: value for name, value in choices.model_dump(include=set(offered)).items() if name in given}
        for each in about.options:
            if each.is_mapping and each.field in options:
                check_variables(options[each.field], each.field, server.address)
        ours = choices.cluster is None
        cluster = {"cluster": choices.cluster, "cluster_options": options if ours else None}
        return ClusterSpec(
            profile=self.name,
            n_workers=(choices.n_workers or 2) if ours else 0,
            threads_per_worker=None,
            memory_limit=None,
            protocol="tls",
            idle_timeout=idle_timeout(choices.idle_timeout) if ours else None,
            elsewhere=True,
            options={name: value for name, value in {**server._asdict(), **cluster}.items() if value is not None},
            why=_why(choices, about, options),
        )

    def _complaint(self, error: Any, given: Mapping[str, Any], model: type[BaseModel]) -> str:
        name = str(error["loc"][0])
        if name in model.model_fields and model.model_fields[name].annotation == dict[str, Any]:
            # Without the given value, which may be a secret.
            return (
                f"{name} is to name where each value comes from, for values would be stored with clusters and runs. "
                "Give a variable of this environment, such as {NAME: $NAME}."
            )
        return super()._complaint(error, given, model)

    def describe(self, spec: ClusterSpec) -> str:
        subject = spec.options.get("cluster") or count(spec.n_workers, "worker")
        return f"{subject} at {spec.options['address']}"

    def check(self, spec: ClusterSpec) -> None:
        """Raise a WorkbenchError if the gateway can't be used, in 10 s at most."""
        server = Server.of(spec.options)
        about = finish(server.about())
        name = spec.options.get("cluster")
        if name and name not in about.clusters:
            raise BadInputError(
                f"cluster is {quoted(name)}, and none of that name of yours runs at {server.address}. There are: "
                f"{', '.join(about.clusters) or 'none'}."
            )
        check_proxy(Place(finish(_proxy_of(server))))

    def code(self, spec: ClusterSpec) -> str:
        arguments = {name: value for name, value in Server.of(spec.options)._asdict().items() if value}
        gateway = "".join(f"    {name}={literal(value)},\n" for name, value in arguments.items())
        name = spec.options.get("cluster")
        options = spec.options.get("cluster_options", {})
        options_code = "".join(f"    {option}={literal(value)},\n" for option, value in options.items())
        # If a variable is named instead of a value, the code reads the variable.
        options_code = re.sub(r"""(: )["']\$(\w+)["']""", r"""\1os.environ["\2"]""", options_code)
        imports = "import os\n\n" if "os.environ" in options_code else ""
        creation = f"new_cluster(\n{options_code})" if options_code else "new_cluster()"
        call = f"connect({literal(name)})" if name else f"{creation}\ncluster.scale({spec.n_workers})"
        return (
            f"{imports}from dask_gateway import Gateway\n\ngateway = Gateway(\n{gateway})\n"
            f"cluster = gateway.{call}\nclient = cluster.get_client()\nprint(client)\n"
        )

    def running(self) -> tuple[Nearby, ...]:
        """Return the clusters at the gateway that Dask's configuration names."""
        with contextlib.suppress(BadInputError, MissingError, ImportError, credentials.UnconfirmedError):
            server = self._server({})
            proxy = finish(_proxy_of(server))
            return tuple(
                Nearby(f"{proxy}/{name}", None, None, f"Gateway {server.address}") for name in _about(server).clusters
            )
        return ()

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> GatewayEngine:
        return GatewayEngine(spec, security, folder, changed)

    async def end(self, spec: ClusterSpec, called: str) -> None:
        engine = GatewayEngine(spec)
        engine.called = called
        await engine.close()


def _resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the values of the variables that they name; the name stays if one isn't set."""
    return {
        name: {key: os.environ.get(each[1:], each) for key, each in value.items()} if isinstance(value, dict) else value
        for name, value in options.items()
    }


async def _proxy_of(server: Server) -> str:
    async with server.client() as client:
        address: str = client.proxy_address
        return address


async def _place(client: Client, name: str, folder: Path) -> Place:
    """Return the place of a cluster's scheduler once it runs, and save its keys in the folder."""
    while (report := await client.get_cluster(name)).status.name == "PENDING":
        await asyncio.sleep(0.3)
    if report.status.name != "RUNNING":
        raise FailedError(
            f"The gateway could not start it: {name} is {report.status.name.lower()}. Its own log says why; ask "
            "the administrator of the gateway."
        )
    texts = {"tls_ca_file": report.tls_cert, "tls_client_cert": report.tls_cert, "tls_client_key": report.tls_key}
    return Place(report.scheduler_address, *keys.keep(folder, texts))


def _why(choices: Any, about: About, options: Mapping[str, Any]) -> tuple[str, ...]:
    if choices.cluster is not None:
        return ("It runs already, and goes on when you detach from it.",)
    unset = [each.field for each in about.options if each.field not in options]
    return (
        "The gateway starts it elsewhere: it takes nothing of this machine, and is stopped from here.",
        *([f"Chosen of the gateway's options: {_list(options)}."] if options else []),
        *([f"As the gateway has it: {_list({name: getattr(choices, name) for name in unset})}."] if unset else []),
        "Threads and memory of its workers are what they say when they have arrived.",
    )


def _list(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


class GatewayEngine(Engine):
    """A cluster at a gateway, started and changed through the gateway."""

    remedy = "It runs there. Give proxy_address: where the gateway's proxy listens for Dask."

    def __init__(self, spec: ClusterSpec, *args: Any) -> None:
        super().__init__(spec, *args)
        self.called = spec.options.get("cluster", "")
        self.can = ("scale", "adapt") if self.called else ("scale", "adapt", "stop")
        self._gateway = Server.of(spec.options).client()

    async def start(self) -> Place:
        from dask_gateway import GatewayClusterError

        try:
            self.called = self.called or await self._gateway.submit(**_resolved(self.spec.options["cluster_options"]))
            self.changed()
            return await _place(self._gateway, self.called, self.folder)
        except (GatewayClusterError, ValueError) as err:
            raise FailedError(f"The gateway refused it: {_short(err)}.") from err

    async def have(self, n: int) -> None:
        await self._changed(self._gateway.scale_cluster(self.called, n))

    async def _changed(self, asking: Any) -> None:
        """Raise FailedError with the gateway's message if it does less than requested."""
        from aiohttp import ClientError
        from dask_gateway import GatewayClusterError, GatewayServerError

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                async with asyncio.timeout(_CHANGING):
                    await asking
        except (UserWarning, ValueError, GatewayClusterError, GatewayServerError) as err:
            # It then scales to its limit, which doesn't help a user who wants more.
            reason = re.sub(r"\.? *Scaling to \d+ instead", ". Ask for fewer", _short(err))
            raise FailedError(f"The gateway says: {reason}.") from err
        except (ClientError, OSError, TimeoutError) as err:
            raise FailedError(self._shut_out(err)) from err

    def _shut_out(self, err: BaseException) -> str:
        """Return a message about a gateway that no longer answers us."""
        status = getattr(err, "status", None)
        address = self._gateway.address
        if status in (401, 403):
            return (
                f"The gateway at {address} no longer lets you in ({status}): your login has expired or was withdrawn. "
                f"{self.called} goes on there; with a new login Python ends it: "
                f'dask_gateway.Gateway("{address}").stop_cluster("{self.called}")'
            )
        return f"The gateway at {address} doesn't answer ({_short(err)}), and {self.called} may go on there."

    async def close(self) -> None:
        """End the cluster if we started it, else detach from it."""
        try:
            if "stop" in self.can and self.called:
                await self._changed(self._end())
        finally:
            await self._gateway.close()

    async def _end(self) -> None:
        # The gateway doesn't know the name if the cluster has already ended.
        with contextlib.suppress(ValueError):
            await self._gateway.stop_cluster(self.called)

    async def gone(self) -> str | None:
        from aiohttp import ClientError

        try:
            status = (await self._gateway.get_cluster(self.called)).status.name
        except ValueError:
            status = "UNKNOWN"
        except (ClientError, OSError, TimeoutError):
            return None
        return None if status == "RUNNING" else f"The gateway ended {self.called}, which is {status.lower()} now."

    def measured(self, spec: ClusterSpec, memory: int) -> ClusterSpec:
        return measured(spec, tuple(self.workers.values()), memory)
