"""A stand-in for Kubernetes on this machine, with Dask's real operator: `python -m tests.kubernetes_here FOLDER`.

It keeps objects in memory and serves them as the API does, as far as the operator and its clients ask: lists with
selectors, watches, patches, finalizers, what goes with its owner. Pods are processes of this Python, which listen on a
loopback address of their own. It writes `kubeconfig` to the folder, and `ready` when all runs. What it
can't know is what a real scheduler of pods, a network or an image does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Object = dict[str, Any]

GROUPS = {
    "v1": {"namespaces": "Namespace", "nodes": "Node", "pods": "Pod", "services": "Service", "events": "Event"},
    "apps/v1": {"deployments": "Deployment"},
    "kubernetes.dask.org/v1": {},
}
"""Kinds by plural; Dask's are read from its own definitions."""

ROOM = 4
"""Pods that run at a time. One for which there was no room stays so, unlike a real one."""

PATH = re.compile(
    r"/apis?/(?P<group>v1|[\w.-]+/v1)(/namespaces/(?P<ns>[\w-]+)(?=/))?/(?P<plural>\w+)"
    r"(/(?P<name>[\w.-]+)(/(?P<sub>\w+))?)?"
)


def read_definitions() -> None:
    for path in files("dask_kubernetes.operator.customresources").iterdir():
        if path.name.startswith("dask") and "patch" not in path.name:
            names = yaml.safe_load(path.read_text())["spec"]["names"]
            GROUPS["kubernetes.dask.org/v1"][names["plural"]] = names["kind"]


class Store:
    """All objects, and what happened to them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str | None, str], Object] = {}
        self.happened: list[tuple[str, str, Object]] = []
        self.more = asyncio.Condition()

    def of(self, plural: str, namespace: str | None = None, wanted: Callable[[Object], bool] = bool) -> list[Object]:
        return [
            each
            for (kind, ns, _), each in self.objects.items()
            if kind == plural and namespace in (None, ns) and wanted(each)
        ]

    async def tell(self, what: str, plural: str, thing: Object) -> None:
        self.happened.append((what, plural, thing))
        thing["metadata"]["resourceVersion"] = str(len(self.happened))
        # As it is now: it may be changed before it is sent.
        self.happened[-1] = (what, plural, json.loads(json.dumps(thing)))
        async with self.more:
            self.more.notify_all()

    async def create(self, plural: str, namespace: str | None, thing: Object) -> Object:
        about = thing.setdefault("metadata", {})
        about.setdefault("name", about.get("generateName", "") + uuid.uuid4().hex[:5])
        about |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
        if namespace:
            about["namespace"] = namespace
        key = (plural, namespace, about["name"])
        if key in self.objects:
            raise web.HTTPConflict(text=_failure(409, f'{plural} "{about["name"]}" already exists'))
        self.objects[key] = thing
        await self.tell("ADDED", plural, thing)
        return thing

    async def changed(self, plural: str, thing: Object) -> None:
        await self.tell("MODIFIED", plural, thing)
        if thing["metadata"].get("deletionTimestamp") and not thing["metadata"].get("finalizers"):
            await self.remove(plural, thing)

    async def delete(self, plural: str, thing: Object) -> None:
        if thing["metadata"].get("finalizers"):
            thing["metadata"].setdefault("deletionTimestamp", _now())
            await self.tell("MODIFIED", plural, thing)
        else:
            await self.remove(plural, thing)

    async def remove(self, plural: str, thing: Object) -> None:
        about = thing["metadata"]
        if self.objects.pop((plural, about.get("namespace"), about["name"]), None) is None:
            return
        await self.tell("DELETED", plural, thing)
        for (kind, _, _), each in list(self.objects.items()):
            if about["uid"] in {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}:
                await self.delete(kind, each)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failure(code: int, message: str) -> str:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return json.dumps({**told, "reason": "NotFound" if code == 404 else "Conflict"})


def _selected(query: Any) -> Callable[[Object], bool]:
    pairs = [each.partition("=") for each in query.get("labelSelector", "").split(",") if each]
    fields = [each.partition("=") for each in query.get("fieldSelector", "").split(",") if each]

    def field(thing: Any, path: str) -> Any:
        for part in path.split("."):
            thing = thing.get(part, {})
        return thing

    return lambda thing: (
        all(thing["metadata"].get("labels", {}).get(name) == value.lstrip("=") for name, _, value in pairs)
        and all(field(thing, name) == value.lstrip("=") for name, _, value in fields)
    )


def merged(old: Any, new: Any) -> Any:
    """JSON Merge Patch, RFC 7396."""
    if not isinstance(new, dict):
        return new
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in new.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def patched(thing: Any, steps: list[dict[str, Any]]) -> Any:
    """JSON Patch, RFC 6902, without moves and copies."""
    thing = json.loads(json.dumps(thing))
    for step in steps:
        *path, last = [each.replace("~1", "/").replace("~0", "~") for each in step["path"].split("/")[1:]]
        place = thing
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        if isinstance(place, list):
            at = len(place) if last == "-" else int(last)
            if step["op"] == "test" and place[at] != step["value"]:
                raise web.HTTPUnprocessableEntity(text=_failure(422, "test failed"))
            if step["op"] in ("remove", "replace"):
                place.pop(at)
            if step["op"] in ("add", "replace"):
                place.insert(at, step["value"])
        elif step["op"] == "remove":
            place.pop(last)
        elif step["op"] in ("add", "replace"):
            place[last] = step["value"]
        elif place.get(last) != step["value"]:
            raise web.HTTPUnprocessableEntity(text=_failure(422, "test failed"))
    return thing


class Api:
    """The part of Kubernetes that speaks HTTP."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path == "/version":
            return web.json_response({"major": "1", "minor": "30", "gitVersion": "v1.30.0"})
        if path == "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            groups = [_group(each) for each in GROUPS if "/" in each]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        about = path.removeprefix("/apis/").removeprefix("/api/")
        if about in GROUPS:
            return web.json_response({"kind": "APIResourceList", "groupVersion": about, "resources": _resources(about)})
        found = PATH.fullmatch(path)
        if found is None or found["plural"] not in GROUPS.get(found["group"], ()):
            raise web.HTTPNotFound(text=_failure(404, "the server could not find the requested resource"))
        answered: web.StreamResponse = await getattr(self, request.method.lower())(request, found)
        return answered

    async def get(self, request: web.Request, found: re.Match[str]) -> web.StreamResponse:
        plural, namespace, name = found["plural"], found["ns"], found["name"]
        if name:
            return web.json_response(self._one(found))
        wanted = _selected(request.query)
        if request.query.get("watch") in ("1", "true", "True"):
            return await self._watch(request, plural, namespace, wanted)
        kind = GROUPS[found["group"]][plural]
        version = {"resourceVersion": str(len(self.store.happened))}
        items = self.store.of(plural, namespace, wanted)
        return web.json_response(
            {"apiVersion": found["group"], "kind": f"{kind}List", "metadata": version, "items": items}
        )

    async def _watch(
        self, request: web.Request, plural: str, namespace: str | None, wanted: Callable[[Object], bool]
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        at = int(request.query.get("resourceVersion") or 0)
        while True:
            while at < len(self.store.happened):
                what, kind, thing = self.store.happened[at]
                at += 1
                if kind == plural and namespace in (None, thing["metadata"].get("namespace")) and wanted(thing):
                    try:
                        await stream.write(json.dumps({"type": what, "object": thing}).encode() + b"\n")
                    except ConnectionError:
                        return stream
            async with self.store.more:
                await self.store.more.wait_for(lambda: at < len(self.store.happened))  # noqa: B023

    async def post(self, request: web.Request, found: re.Match[str]) -> web.Response:
        thing = {"apiVersion": found["group"], "kind": GROUPS[found["group"]][found["plural"]]}
        thing |= await request.json()
        if found["plural"] == "services":
            thing["status"] = {"loadBalancer": {}}
            thing["spec"]["ports"] = [{**each, "nodePort": each["port"]} for each in thing["spec"]["ports"]]
        return web.json_response(await self.store.create(found["plural"], found["ns"], thing), status=201)

    async def patch(self, request: web.Request, found: re.Match[str]) -> web.Response:
        thing, change = self._one(found), await request.json()
        new = patched(thing, change) if isinstance(change, list) else merged(thing, change)
        thing.clear()
        thing |= new
        await self.store.changed(found["plural"], thing)
        return web.json_response(thing)

    async def put(self, request: web.Request, found: re.Match[str]) -> web.Response:
        thing = self._one(found)
        thing |= await request.json()
        await self.store.changed(found["plural"], thing)
        return web.json_response(thing)

    async def delete(self, request: web.Request, found: re.Match[str]) -> web.Response:
        thing = self._one(found)
        # A person who has lost the right to; the operator's own requests are of other things.
        if found["plural"] == "daskclusters" and found["name"].startswith("stays-") and not request.query:
            raise web.HTTPForbidden(text=_failure(403, f'{found["plural"]} "{found["name"]}" is forbidden'))
        await self.store.delete(found["plural"], thing)
        return web.json_response(thing)

    def _one(self, found: re.Match[str]) -> Object:
        key = (found["plural"], found["ns"], found["name"])
        if key not in self.store.objects:
            raise web.HTTPNotFound(text=_failure(404, f'{found["plural"]} "{found["name"]}" not found'))
        return self.store.objects[key]


def _group(version: str) -> Object:
    told = {"groupVersion": version, "version": "v1"}
    return {"name": version.partition("/")[0], "versions": [told], "preferredVersion": told}


def _resources(group: str) -> list[Object]:
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    return [
        {
            "name": plural,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": plural not in ("nodes", "namespaces"),
            "verbs": verbs,
            "shortNames": [],
            "categories": [],
        }
        for plural, kind in GROUPS[group].items()
    ]


class Kubelet:
    """Starts a process for the pod of each deployment, and ends it with the pod."""

    def __init__(self, store: Store, host: str, folder: Path) -> None:
        self.store, self.host, self.folder = store, host, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def run(self) -> None:
        while True:
            for deployment in self.store.of("deployments"):
                if not self._pods_of(deployment):
                    await self._pod(deployment)
            alive = {each["metadata"]["name"]: each for each in self.store.of("pods")}
            for name, process in list(self.processes.items()):
                if name not in alive:
                    _end(self.processes.pop(name))
                elif process.poll() is not None:
                    await self.store.remove("pods", alive[name])
            for pod in alive.values():
                await self._look(pod)
            await asyncio.sleep(0.1)

    def _pods_of(self, deployment: Object) -> list[Object]:
        owner = deployment["metadata"]["uid"]
        return self.store.of("pods", None, lambda each: each["metadata"]["ownerReferences"][0]["uid"] == owner)

    async def _pod(self, deployment: Object) -> None:
        about, template = deployment["metadata"], deployment["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{about['name']}-{uuid.uuid4().hex[:5]}",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{"kind": "Deployment", "name": about["name"], "uid": about["uid"]}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        container = template["spec"]["containers"][0]
        if float((container.get("resources") or {}).get("requests", {}).get("cpu", 0)) > 64:
            told = {"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **told}]
        elif len(self.processes) >= ROOM:
            told = {"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Too many pods."}
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **told}]
        elif container["image"].startswith("nosuch"):
            told = {"reason": "ErrImagePull", "message": "manifest unknown"}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": told}}]
        starts = len(pod["status"]) == 1
        if starts:
            told = {"reason": "ContainerCreating"}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": told}}]
        await self.store.create("pods", about["namespace"], pod)
        if starts:
            self._start(pod["metadata"]["name"], container)

    def _start(self, name: str, container: Object) -> None:
        variables = {each["name"]: str(each["value"]) for each in container.get("env") or ()}
        told = [variables.get(word[2:-1], word) if word.startswith("$(") else word for word in container["args"]]
        start = told.index("dask")
        before, told = told[:start], told[start:]
        limits = (container.get("resources") or {}).get("limits", {})
        if told[1] == "scheduler":
            told[told.index("0.0.0.0")] = self.host
            told += ["--port", "8786", "--dashboard-address", f"{self.host}:8787"]
        else:
            variables["DASK_SCHEDULER_ADDRESS"] = f"tcp://{self.host}:8786"
            told[told.index("8788")] = f"{self.host}:0"
            told += ["--host", self.host, "--no-nanny", "--nthreads", "1", "--memory-limit"]
            told += [limits.get("memory", "512MiB"), "--death-timeout", "20"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*before, sys.executable, "-m", *told],
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder), **variables},
                cwd=self.folder,
                start_new_session=True,
            )

    async def _look(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if pod["status"]["phase"] == "Running" or name not in self.processes:
            return
        if "scheduler" in name and not await _listens(self.host, 8786):
            return
        ready = [{"type": each, "status": "True"} for each in ("PodScheduled", "Ready", "ContainersReady")]
        pod["status"] = {
            "phase": "Running",
            "conditions": ready,
            "containerStatuses": [{"name": "dask", "ready": True, "state": {"running": {}}}],
        }
        await self.store.changed("pods", pod)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


@contextlib.asynccontextmanager
async def serving(store: Store) -> AsyncIterator[str]:
    """Serve the API, and yield its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Api(store).answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def _resolving(host: str) -> None:
    """Names of services lead to the pods, as Kubernetes' own DNS has it."""
    asked = socket.getaddrinfo

    def answered(name: Any, *args: Any, **kwargs: Any) -> Any:
        return asked(host if isinstance(name, str) and "-scheduler.default" in name else name, *args, **kwargs)

    socket.getaddrinfo = answered


async def main(folder: Path) -> None:
    # Kubernetes' own client reads it when it is imported.
    os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
    read_definitions()
    number = os.getpid()
    host = f"127.{1 + number % 200}.{number // 200 % 250}.{1 + number // 50_000 % 250}"
    _resolving(host)
    store = Store()
    kubelet = Kubelet(store, host, folder)
    await store.create("namespaces", None, {"kind": "Namespace", "metadata": {"name": "default"}})
    addresses = [{"type": "InternalIP", "address": host}]
    node = {"kind": "Node", "metadata": {"name": "here"}, "status": {"addresses": addresses}}
    await store.create("nodes", None, node)
    async with serving(store) as address:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": address}}],
            "users": [{"name": "me", "user": {"token": "none"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "default"}}],
            "current-context": "here",
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        import dask_kubernetes.operator.controller.controller  # noqa: F401  What it registers is run below.
        import kopf

        kopf.configure(verbose=True)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        ready = asyncio.Event()
        work = [
            asyncio.create_task(kubelet.run()),
            asyncio.create_task(
                kopf.operator(standalone=True, namespaces=["default"], ready_flag=ready, stop_flag=stop)
            ),
        ]
        await asyncio.wait({asyncio.create_task(ready.wait()), *work}, return_when=asyncio.FIRST_COMPLETED)
        (folder / "ready").touch()
        await asyncio.wait({asyncio.create_task(stop.wait()), *work}, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done() and not task.cancelled() and task.exception():
                print(repr(task.exception()), flush=True)
        for process in kubelet.processes.values():
            _end(process)
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
