"""rest-api.yml says all that the server answers: every path and verb of it is asked here, and every answer conforms."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.server.conftest import Answer
from workbench.runs import store
from workbench.runs.run import Run
from workbench.server.handlers import Rest, addresses
from workbench.views.verbs import TABLE

TEXT = importlib.resources.files("workbench.server").joinpath("rest-api.yml").read_text()
DESCRIPTION = yaml.safe_load(TEXT)
API = OpenAPI.from_dict(DESCRIPTION)

CPU = {"profile": "cpu", "choices": {"n_workers": 1, "threads_per_worker": "1", "memory": "512MiB"}}

GOOD = [
    ("POST", "/profiles", {**CPU, "name": "night"}, 201),
    ("DELETE", "/profiles/night", None, 200),
    ("POST", "/trust", {"sha": "0123"}, 200),
    ("POST", "/presets", {"workload": "array_sum", "name": "mine", "parameters": {"size": "1GiB"}}, 201),
    ("DELETE", "/presets/array_sum/mine", None, 200),
    ("POST", "/clusters", {**CPU, "name": "bold-heron", "force": True}, 202),
    ("GET", "/clusters/calm-otter", None, 200),
    ("PATCH", "/clusters/calm-otter", {"n_workers": 3}, 202),
    ("PATCH", "/clusters/calm-otter", {"n_workers": 3, "force": True}, 202),
    ("PATCH", "/clusters/calm-otter", {"minimum": 1, "maximum": 2}, 202),
    ("POST", "/clusters/calm-otter/restart", {}, 202),
    ("POST", "/clusters/calm-otter/restart", {"worker": "tcp://0"}, 202),
    ("POST", "/runs", {"workload": "array_sum", "cluster": "calm-otter", "parameters": {"size": "1GiB"}}, 202),
    ("POST", "/runs", {"workload": "array_sum", "cluster": "calm-otter", "settings": "array.rechunk.threshold=5"}, 202),
    ("POST", "/measurements", {"workload": "array_sum", "cluster": "calm-otter", "parameters": {"size": "1GiB"}}, 202),
    ("GET", "/runs/done/report", None, 200),
    ("GET", "/runs/done/pictures/scree", None, 404),
    ("GET", "/runs/done/export", None, 200),
    ("POST", "/runs/done/save", {"path": "out.npz"}, 202),
    ("DELETE", "/runs/done/save", None, 202),
    ("DELETE", "/tour", None, 200),
    ("POST", "/examples", {"path": "/tmp/example.npy"}, 201),
    ("GET", "/docs/how-to/slurm", None, 200),
    ("GET", "/figures/cluster/calm-otter?theme=dark", None, 200),
    ("GET", "/figures/run/done", None, 200),
    ("POST", "/figures/cluster/calm-otter/patches", {}, 200),
    ("POST", "/figures/cluster/calm-otter/patches", {"range": {"start": 1, "end": 2, "width": 300}}, 200),
    ("POST", "/figures/run/done/patches", {}, 404),
    ("POST", "/views/runs", {}, 200),
    ("POST", "/views/gpus:gpus", {}, 200),
    ("POST", "/credentials", {"credential": "Your keys for s3", "server": "https://a.org"}, 201),
    ("POST", "/comparisons", {"workload": "array_sum", "on": ["cpu", "gpu"], "repeats": 2}, 202),
    ("POST", "/comparisons", {"runs": ["done", "going"]}, 202),
    ("GET", "/comparisons/measured/page", None, 200),
    ("GET", "/figures/comparison/measured?theme=dark", None, 200),
    ("POST", "/figures/comparison/measured/patches", {}, 200),
    ("POST", "/comparisons/measured/cancel", {}, 202),
    ("DELETE", "/comparisons/measured", None, 200),
    ("GET", "/bokeh/bokeh.min.js?v=3", None, 200),
    ("POST", "/state", {}, 200),
    ("POST", "/state", {"since": 1, "wait": 1}, 200),
    ("POST", "/runs/going/cancel", {}, 202),
    ("PATCH", "/runs/done", {"name": "the first", "star": True}, 200),
    ("DELETE", "/runs/done", None, 200),
    ("GET", "/dashboard/nobody/status", None, 404),
    ("HEAD", "/dashboard/nobody/status", None, 404),
    ("GET", "/dask/no-key/status", None, 404),
    ("HEAD", "/dask/no-key/status", None, 404),
    ("DELETE", "/clusters/calm-otter", None, 202),
    ("DELETE", "/clusters", None, 202),
]

REFUSED = [
    ("POST", "/clusters", {"profile": "gpu"}, 409),
    ("POST", "/clusters", {"profile": "cpu", "choices": {"n_workers": 0}}, 400),
    ("GET", "/clusters/nobody", None, 404),
    ("PATCH", "/clusters/calm-otter", {"n_workers": "x"}, 400),
    ("POST", "/runs", {"workload": "array_sum", "cluster": "nobody"}, 404),
    ("DELETE", "/runs/going", None, 409),
    ("GET", "/docs/how-to/nothing", None, 404),
    ("GET", "/runs/going/report", None, 409),
    ("GET", "/runs/going/export", None, 409),
    ("POST", "/figures/run/going/patches", {}, 409),
    ("POST", "/views/secrets", {}, 404),
    ("POST", "/credentials", {"credential": "HOME", "server": "https://a.org"}, 400),
    ("POST", "/comparisons", {"workload": "array_sum", "repeats": 0}, 400),
    ("POST", "/comparisons", {"workload": "array_sum", "frob": 1}, 400),
    ("POST", "/comparisons", {"runs": ["nobody"]}, 404),
    ("POST", "/comparisons", {"runs": 3}, 400),
    ("POST", "/comparisons", {"on": ["cpu"]}, 400),
    ("POST", "/figures/comparison/nobody/patches", {}, 404),
    ("GET", "/bokeh/secrets.js", None, 404),
    ("POST", "/state", {"wait": "x"}, 400),
    ("GET", "/stream", None, 400),
]


@pytest.fixture
def furnished(session: Any, data_folder: Any) -> Any:
    """Return a session with a cluster, a finished run and a running one."""
    session.add("calm-otter")
    check = {"passed": True, "what": "The mean is 11."}
    spec = session.records["calm-otter"].spec
    session.add_run(
        "going", status="running", progress={"done": 1, "total": 2, "by_name": {"sum": {"done": 1, "total": 2}}}
    )
    done = Run(
        id="done", workload="array_sum", cluster="calm-otter", status="done", spec=spec, check=check, seconds=1.0
    )
    store.create(done)
    session.all_runs["done"] = done
    session.add_comparison("measured")
    return session


def split(path: str) -> tuple[str, dict[str, str]]:
    path, _, query = path.partition("?")
    return path, dict(part.split("=") for part in query.split("&") if part)


def request_of(verb: str, path: str, body: Any) -> MockRequest:
    path, query = split(path)
    data = None if body is None else json.dumps(body).encode()
    return MockRequest(
        "http://localhost",
        verb.lower(),
        f"/workbench/api{path}",
        args=query,
        data=data,
        headers={"Authorization": "token x"},
    )


def response_of(answer: Answer) -> MockResponse:
    kind = answer.headers.get("Content-Type", "text/plain").split(";")[0]
    content = answer.content if isinstance(answer.content, bytes) else json.dumps(answer.content).encode()
    return MockResponse(content, status_code=answer.status, content_type=kind)


async def ask(api: Callable[..., Any], verb: str, path: str, body: Any) -> Answer:
    path, query = split(path)
    answer: Answer = await api(verb, path[1:], body, params=query)
    return answer


async def test_every_path_and_verb_is_answered_as_described(api: Any, furnished: Any) -> None:
    asked = set()
    for verb, path, body, status in GOOD:
        request = request_of(verb, path, body)
        API.validate_request(request)
        answer = await ask(api, verb, path, body)
        assert answer.status == status, (verb, path, answer)
        if verb != "HEAD":
            API.validate_response(request, response_of(answer))
        asked.add((verb, template_of(split(path)[0])))
    assert asked == operations() - {("GET", "/stream")}


async def test_every_refusal_is_a_4xx_with_a_sentence(api: Any, furnished: Any) -> None:
    for verb, path, body, status in REFUSED:
        answer = await ask(api, verb, path, body)
        assert answer.status == status, (verb, path, answer)
        if path != "/stream":
            API.validate_response(request_of(verb, path, body), response_of(answer))


async def test_what_the_stream_sends_and_takes_is_described(jp_ws_fetch: Any, furnished: Any) -> None:
    page = await jp_ws_fetch("workbench", "api", "stream")

    async def say(**message: Any) -> None:
        schema("PageMessage").validate(message)
        await page.write_message(json.dumps(message))

    async def hear(kind: str) -> None:
        while True:
            message = json.loads(await asyncio.wait_for(page.read_message(), 5))
            schema("ServerMessage").validate(message)
            if message["type"] == kind:
                return

    try:
        await hear("state")
        await say(type="watch", watch="a", cluster="calm-otter", theme="dark")
        await say(type="range", watch="a", start=1, end=2, width=3)
        await hear("patches")
        await say(type="unwatch", watch="a")
        await say(type="watch", watch="c", comparison="measured")
        await hear("patches")
        await say(type="watch", watch="b", cluster="nobody")
        await hear("gone")
        await page.write_message("{")
        await hear("error")
    finally:
        page.close()


def schema(name: str) -> Any:
    registry = Registry().with_resource("urn:api", DRAFT202012.create_resource(DESCRIPTION))
    return Draft202012Validator({"$ref": f"urn:api#/components/schemas/{name}"}, registry=registry)


def test_every_address_is_described_and_every_description_has_an_address() -> None:
    described = {path for path, _ in asked_by()}
    assert described == set(DESCRIPTION["paths"])
    for path, has in asked_by():
        assert {verb for verb, of in operations() if of == path} == has, path


def asked_by() -> list[tuple[str, set[str]]]:
    """Return the documented paths of the server's handlers, with the verbs of each."""
    known = {pattern.removeprefix("workbench/api"): handler for pattern, handler in addresses()}
    assert known.pop("/(.*)") is Rest
    verbs = {
        pattern: {verb.upper() for verb in ("get", "post", "patch", "delete", "head") if verb in handler.__dict__}
        for pattern, handler in known.items()
    }
    verbs |= {"/" + re.sub(r"\{\w+\}", "[^/]+", pattern): set(verbs) for pattern, verbs in TABLE.items()}
    found = []
    for pattern, has in verbs.items():
        paths = [path for path in DESCRIPTION["paths"] if re.fullmatch(pattern, filled(path))]
        assert paths, pattern
        found.extend((path, has) for path in paths)
    return found


def operations() -> set[tuple[str, str]]:
    """Verb and path of each operation in the description."""
    verbs = ("get", "post", "patch", "delete", "put", "head")
    return {(verb.upper(), path) for path, item in DESCRIPTION["paths"].items() for verb in item if verb in verbs}


def template_of(path: str) -> str:
    """Return the documented path of an address: the one with the fewest placeholders."""
    fitting = [each for each in DESCRIPTION["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path)]
    return min(fitting, key=lambda each: each.count("{"))


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "some", path)
