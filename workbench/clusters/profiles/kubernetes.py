"""Workers as pods of Kubernetes, by Dask's operator. Tested against the operator with a stand-in for the rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask.config
import yaml
from pydantic import AfterValidator, BaseModel, Field
from tornado.ioloop import IOLoop

from workbench import formats
from workbench.clusters.choices import (
    IdleTimeout,
    Memory,
    NamedValues,
    Text,
    Workers,
    WorkerThreads,
    check_variables,
)
from workbench.clusters.engine import Engine, Job
from workbench.clusters.profiles import Around, Profile
from workbench.clusters.profiles.this_machine import idle_timeout, memory_each
from workbench.clusters.reachability import Place
from workbench.clusters.spec import ClusterSpec, measured
from workbench.errors import BadInputError, FailedError, MissingError, whole
from workbench.formats import duration
from workbench.redaction import is_reference
from workbench.threads import finish

if TYPE_CHECKING:
    from dask_kubernetes.operator import KubeCluster
    from distributed.security import Security


logger = logging.getLogger("workbench.host")

_CHECKING = 8.0
_ANSWERING = 20
"""Seconds for the API to answer before a start, and for the operator to accept a cluster."""
_LOOKING = 1.0  # seconds between two checks of pods that start
_HOPELESS = {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
}
"""Reasons for a container to wait that won't go away."""
_STARTING = {"ContainerCreating", "PodInitializing"}
"""Reasons for a container to wait that soon go away."""
_SCHEDULER = ["dask", "scheduler"]
"""Replacement for dask-kubernetes' dask-scheduler, which newer versions of Dask lack."""


_SPILLING = [
    "sh",
    "-c",
    'DASK_TEMPORARY_DIRECTORY=`mktemp -d -p "${DASK_TEMPORARY_DIRECTORY:-${TMPDIR:-/tmp}}" workbench-spill-XXXXXXXX`; '
    'export DASK_TEMPORARY_DIRECTORY; exec "$@"',
    "sh",
]
"""Prefix of a worker's command, so that it spills to its own folder with mode 0700."""


def _named(value: Any) -> Any:
    if any(not is_reference(each) for each in value.values()):
        raise ValueError("Values of variables are not stored")
    return value


_Variables = Annotated[NamedValues, AfterValidator(_named)]


class KubernetesChoices(BaseModel, frozen=True, extra="forbid", coerce_numbers_to_str=True):
    """Choices for workers in pods."""

    n_workers: Workers = Field(None, description="Pods with a worker each. Left out: 2.")
    threads_per_worker: WorkerThreads = Field(None, description="Cores of each pod. Left out: no limit.")
    memory: Memory = Field(None, description="Of all workers together, such as 8GiB. Left out: no limit.")
    gpus: int = Field(0, ge=0, title="GPUs", description="Of each worker, which then is Dask-CUDA's.")
    image: str = Field(
        "ghcr.io/dask/dask:latest",
        title="Image",
        description="Of scheduler and workers. Its Python and Dask should be those that you work with.",
    )
    namespace: Text = Field(None, title="Namespace", description="Left out: that of your kubeconfig.")
    env: _Variables = Field(
        {},
        title="Environment",
        description="Variables of scheduler and workers, by the name of a variable here or a key of a Kubernetes "
        "secret: their values are not stored. Such as {OMP_NUM_THREADS: $OMP_NUM_THREADS, TOKEN: secret/mine/token}",
    )
    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        "ClusterIP",
        title="Service",
        description="How its scheduler is reached. ClusterIP: within, or by a port that is forwarded from here.",
    )
    idle_timeout: IdleTimeout = None


_IN_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""File that lets a pod use its own Kubernetes."""


class Kubernetes(Profile):
    """Workers as pods of Kubernetes."""

    name = "kubernetes"
    title = "Kubernetes"
    line = "Pods of Kubernetes, by Dask's operator. Tested with the operator, never yet on a real cluster."
    model = KubernetesChoices
    needs = ("dask-kubernetes", "kubernetes")
    attaches = True
    reached_by = "anyone who can reach its ports in Kubernetes"
    options = ("gpus", "image", "namespace", "env", "service")

    def unavailable(self, around: Around) -> str | None:
        """Return why it is unavailable here: its package is missing, or no Kubernetes is configured."""
        file = os.environ.get("KUBECONFIG") or "~/.kube/config"
        paths = [Path(path).expanduser() for path in file.split(os.pathsep)]
        missing = super().unavailable(around)
        if missing is None and not any(path.exists() for path in (*paths, _IN_A_POD)):
            return f"There is no kubeconfig ({file}): ask the administrator of the cluster for one, or set KUBECONFIG."
        return missing

    def _complaint(self, error: Any, given: Mapping[str, Any], model: type[BaseModel]) -> str:
        if error["loc"][0] != "env":
            return super()._complaint(error, given, model)
        # Without the given value, which may be a secret.
        return (
            "env is to name where each value comes from, for values would be stored with clusters and runs. Give a "
            "variable of this environment, such as {NAME: $NAME}, or a key of a Kubernetes secret, such as "
            "{NAME: secret/my-secret/key}."
        )

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        given = {name: value for name, value in given.items() if value not in ("", None)}
        configured = dask.config.get("kubernetes.image", None)
        choices = self.checked({**({"image": configured} if configured else {}), **given}, KubernetesChoices)
        n_workers, threads = choices.n_workers or 2, choices.threads_per_worker
        memory = None if choices.memory is None else memory_each(choices.memory, n_workers)
        options = choices.model_dump(include={*self.options}, exclude_none=True)
        options["env"] = {name: value.strip() for name, value in choices.env.items()}
        check_variables(options["env"], "env", f"pods of {choices.image}")
        return ClusterSpec(
            profile=self.name,
            n_workers=n_workers,
            threads_per_worker=threads,
            memory_limit=memory,
            protocol="tcp",
            idle_timeout=idle_timeout(choices.idle_timeout),
            elsewhere=True,
            options=options,
            why=(
                f"{formats.count(n_workers, 'pod')} of {choices.image}, which Kubernetes starts where there is "
                "room; they take nothing of this machine.",
                f"Each worker may use {_limits(threads, memory, choices.gpus)}.",
                "Not encrypted between pods: anyone who can reach their ports in Kubernetes may use it.",
                "This profile was tested with Dask's operator and a stand-in for Kubernetes, never on a real cluster.",
            ),
        )

    def check(self, spec: ClusterSpec) -> None:
        finish(_check(spec.options.get("namespace")))

    def preview(self, spec: ClusterSpec) -> str | None:
        """Return the manifest as it will be created; the name follows the cluster's."""
        return yaml.safe_dump(_manifest(spec, "my-dask"), sort_keys=False)

    def code(self, spec: ClusterSpec) -> str:
        arguments = {"name": "my-dask", "n_workers": spec.n_workers, **_arguments(spec)}
        arguments_code = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
        # If a variable is named instead of a value, the code reads the variable.
        arguments_code = re.sub(r"""'value': '\$(\w+)'""", r"""'value': os.environ["\1"]""", arguments_code)
        imports = "import os\n\n" if "os.environ" in arguments_code else ""
        namespace = spec.options.get("namespace")
        where = f", namespace={namespace!r}" if namespace else ""
        return (
            f"{imports}from dask.distributed import Client\n"
            "from dask_kubernetes.operator import KubeCluster, make_cluster_spec\n\n"
            f"spec = make_cluster_spec(\n{arguments_code})\n"
            "# It says dask-scheduler, which newer Dasks no longer have.\n"
            f'spec["spec"]["scheduler"]["spec"]["containers"][0]["args"][:1] = {_SCHEDULER!r}\n'
            f"cluster = KubeCluster(custom_cluster_spec=spec{where})\nclient = Client(cluster)\nprint(client)\n"
        )

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> KubernetesEngine:
        return KubernetesEngine(spec, security, folder, changed)

    async def end(self, spec: ClusterSpec, called: str) -> None:
        namespace = spec.options.get("namespace")
        try:
            resource = await _found(called, namespace)
            if resource is not None:
                async with asyncio.timeout(_CHECKING):
                    await resource.delete()
        except _faults() as err:
            raise FailedError(_goes_on(err, called, namespace or "default")) from err


def _faults() -> tuple[type[Exception], ...]:
    """Return the exceptions of an unreachable or refusing Kubernetes; ValueError if no login is possible."""
    import kr8s
    from httpx import HTTPError

    return kr8s.ServerError, kr8s.APITimeoutError, HTTPError, OSError, TimeoutError, ValueError, KeyError


async def _found(name: str, namespace: str | None) -> Any:
    """Return the DaskCluster of this name, None if Kubernetes has none. Raises one of `_faults`."""
    import kr8s
    from kr8s.asyncio.objects import new_class

    kind = new_class("DaskCluster", "kubernetes.dask.org/v1", namespaced=True)
    try:
        async with asyncio.timeout(_CHECKING):
            return await kind.get(name, namespace=namespace)
    except kr8s.NotFoundError:
        return None


def _goes_on(err: BaseException, name: str, namespace: str) -> str:
    return (
        f"Kubernetes didn't delete it ({whole(str(err) or type(err).__name__).rstrip('.')}), so that it may go on "
        f"there. Delete it: kubectl delete daskcluster {name} --namespace {namespace}"
    )


def _limits(cores: int | None, memory: int | None, gpus: int) -> str:
    limits = (
        formats.count(cores, "core") if cores else None,
        formats.size(memory) if memory else None,
        formats.count(gpus, "GPU") if gpus else None,
    )
    return ", ".join(each for each in limits if each) or "what its node has: nothing limits it"


def _variable(name: str, value: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a variable of a pod; its name stays if the environment has no value."""
    if value.startswith("$"):
        return {"name": name, "value": environment.get(value[1:], value)}
    _, secret, key = value.split("/")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _arguments(spec: ClusterSpec, environment: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the arguments of `make_cluster_spec` that KubeCluster takes, too, without those that are None."""
    options = spec.options
    limits = {
        "cpu": str(spec.threads_per_worker) if spec.threads_per_worker else None,
        "memory": str(spec.memory_limit) if spec.memory_limit else None,
        "nvidia.com/gpu": str(options["gpus"]) if options.get("gpus") else None,
    }
    limits = {name: value for name, value in limits.items() if value}
    idle = None if spec.idle_timeout is None else round(spec.idle_timeout)
    arguments = {
        "image": options["image"],
        "resources": {"requests": limits, "limits": limits} if limits else None,
        # Without any variable the operator fails, and makes no worker.
        "env": [
            _variable(name, value, environment) for name, value in options.get("env", {}).items() if is_reference(value)
        ],
        "worker_command": [*_SPILLING, "dask", *(["cuda"] if options.get("gpus") else []), "worker"],
        "scheduler_service_type": options.get("service", "ClusterIP"),
        # The operator ends idle clusters even if no process is left here to end them.
        "idle_timeout": idle,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _manifest(spec: ClusterSpec, name: str, environment: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the DaskCluster to create, with values of variables if the environment is given."""
    from dask_kubernetes.operator import make_cluster_spec

    manifest: dict[str, Any] = make_cluster_spec(name, n_workers=spec.n_workers, **_arguments(spec, environment))
    manifest["spec"]["scheduler"]["spec"]["containers"][0]["args"][:1] = _SCHEDULER
    # Without nulls, which YAML would show and the API drops.
    return json.loads(json.dumps(manifest), object_hook=lambda each: {k: v for k, v in each.items() if v is not None})


async def _check(namespace: str | None) -> None:
    import kr8s
    from httpx import HTTPError

    where = os.environ.get("KUBECONFIG", "~/.kube/config")
    try:
        async with asyncio.timeout(_CHECKING):
            api = await kr8s.asyncio.api(namespace=namespace)
            async with api.call_api("GET", base="/apis", version="kubernetes.dask.org/v1", url="daskclusters"):
                pass
    except (TimeoutError, kr8s.APITimeoutError) as err:
        raise FailedError(
            f"Kubernetes didn't answer within {duration(_CHECKING)}. Check the context of your kubeconfig ({where}), "
            "and whether a VPN is needed."
        ) from err
    except kr8s.NotFoundError as err:
        raise MissingError(_NO_OPERATOR) from err
    except kr8s.ServerError as err:
        status = err.response.status_code if err.response is not None else None
        if status == 404:
            raise MissingError(_NO_OPERATOR) from err
        raise BadInputError(
            f"Kubernetes doesn't let you list Dask's clusters in the namespace {api.namespace} ({status}: "
            f"{whole(str(err))}). Choose another namespace, or ask its administrator for the right to."
        ) from err
    except (ValueError, KeyError, FileNotFoundError) as err:
        raise BadInputError(
            f"Your kubeconfig ({where}) can't be used: {whole(str(err) or 'it is missing')}. Give one with a context "
            "that kubectl can use."
        ) from err
    except (HTTPError, OSError) as err:
        raise FailedError(f"Kubernetes can't be reached ({whole(str(err))}). Check your kubeconfig ({where}).") from err


_NO_OPERATOR = (
    "Kubernetes has no Dask operator. Its administrator installs it with: helm install --repo https://helm.dask.org "
    "--create-namespace -n dask-operator --generate-name dask-kubernetes-operator"
)


async def _started(cluster: KubeCluster) -> None:
    """Wait for its scheduler, and fail if a pod will never run."""
    start = asyncio.ensure_future(cluster)
    looks = asyncio.ensure_future(_hopeless(cluster))
    try:
        await asyncio.wait({start, looks}, return_when=asyncio.FIRST_COMPLETED)
        if looks.done() and not start.done():
            raise FailedError(looks.result())
        start.result()
    finally:
        for task in (start, looks):
            task.cancel()
        await asyncio.wait({start, looks}, timeout=1)


async def _hopeless(cluster: KubeCluster) -> str:
    """Return why one of its pods will never run; log the reasons of others that wait."""
    logged = set()
    while True:
        await asyncio.sleep(_LOOKING)
        async for name, why, sentence in _waiting(cluster):
            if why in _HOPELESS:
                return sentence
            if (name, why) not in logged:
                logged.add((name, why))
                # The log's last lines are shown if the start fails.
                logger.info(sentence)


async def _waiting(cluster: KubeCluster) -> AsyncIterator[tuple[str, str, str]]:
    """Yield the pods that don't run yet: name, reason and a message."""
    import kr8s

    selector = f"dask.org/cluster-name={cluster.name}"
    async for pod in kr8s.asyncio.get("pods", namespace=cluster.namespace, label_selector=selector):
        status = pod.raw.get("status", {})
        for container in status.get("containerStatuses", ()):
            waiting = container.get("state", {}).get("waiting")
            if waiting and waiting.get("reason") not in _STARTING:
                why, message = waiting.get("reason", "waiting"), whole(waiting.get("message", ""))
                yield pod.name, why, f"The pod {pod.name} can't start: {why}. {message}".strip()
        for each in status.get("conditions", ()):
            if each.get("type") == "PodScheduled" and each.get("status") == "False":
                why = each.get("reason", "not scheduled")
                yield pod.name, why, f"The pod {pod.name} waits: {why}. {whole(each.get('message', ''))}".strip()


class KubernetesEngine(Engine):
    """A cluster of the operator, started and changed through Kubernetes."""

    can = ("scale", "adapt", "stop")

    def __init__(self, spec: ClusterSpec, security: Security | None, folder: Path, *args: Any) -> None:
        super().__init__(spec, security, folder, *args)
        self.called = f"{folder.name.replace('_', '-')}-{uuid.uuid4().hex[:6]}"
        self._cluster: KubeCluster | None = None
        self._jobs: tuple[Job, ...] = ()
        self._looked = 0.0

    async def start(self) -> Place:
        from dask_kubernetes.operator import KubeCluster

        # It would report each request in the cluster's log.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._cluster = KubeCluster(
            custom_cluster_spec=_manifest(self.spec, self.called, os.environ),
            namespace=self.spec.options.get("namespace"),
            shutdown_on_close=True,
            resource_timeout=_ANSWERING,
            asynchronous=True,
            # Otherwise it starts at once, and nothing waits for that.
            loop=IOLoop.current(),
            quiet=True,
        )
        await _started(self._cluster)
        return Place(self._cluster.scheduler_address)

    async def jobs(self) -> tuple[Job, ...]:
        """Return the waiting pods, as Kubernetes last reported them; none before the scheduler runs."""
        if self._cluster is not None and self.place.address and time.monotonic() - self._looked > _LOOKING:
            with contextlib.suppress(Exception):  # on any error of Kubernetes: nothing new is known then
                async with asyncio.timeout(_LOOKING):
                    waiting = [
                        Job(id=name, state="pending", reason=why) async for name, why, _ in _waiting(self._cluster)
                    ]
                    self._jobs = tuple(waiting)
            self._looked = time.monotonic()
        return self._jobs

    async def have(self, n: int) -> None:
        from kr8s import NotFoundError

        assert self._cluster is not None
        try:
            await self._cluster.scale(n)
        except (NotFoundError, *_faults()) as err:
            raise FailedError(f"Kubernetes says: {whole(str(err)).rstrip('.')}.") from err

    async def close(self) -> None:
        if self._cluster is None:
            return
        try:
            # Its own time-out is for the pods to end, not for Kubernetes to answer.
            async with asyncio.timeout(_CHECKING):
                await self._cluster.close(timeout=_CHECKING)
        except _faults() as err:
            raise FailedError(_goes_on(err, self.called, self._cluster.namespace)) from err

    async def gone(self) -> str | None:
        assert self._cluster is not None
        # If nothing listens, the port may just no longer be forwarded.
        with contextlib.suppress(*_faults()):
            if await _found(self.called, self._cluster.namespace) is None:
                return f"Kubernetes has no {self.called} any more: it was deleted there."
        return None

    def measured(self, spec: ClusterSpec, memory: int) -> ClusterSpec:
        return measured(spec, tuple(self.workers.values()), memory)
