"""No secret is in a record, an export, a report, a log, a task key or a command line."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from workbench import config, named_choices
from workbench.cli import main
from workbench.clusters import profiles
from workbench.clusters.plan import plan
from workbench.errors import WorkbenchError
from workbench.hardware import inventory
from workbench.redaction import complaint, redact, redacted
from workbench.runs import store
from workbench.runs.run import Run
from workbench.session import Session
from workbench.storage import places
from workbench.storage.targets import target
from workbench.storage.variables import dataset
from workbench.storage.writing import write
from workbench.views.run_files import report
from workbench.workloads import template

SECRET = "hunter2hunter2"
URL = f"http://me:{SECRET}@data.example.org/x.npy"

FUNCTION = """
import os

def leak(n: int = 1):
    secret = os.environ["A_TOKEN"]
    print(f"read http://me:{secret}@data.example.org, with A_TOKEN={secret}")
    if n == 2:
        raise ValueError(f"no access to https://{secret}@data.example.org/?sig={secret}")
    return {"url": f"http://me:{secret}@data.example.org", "token": secret, "value": 1}
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Yield the address of an array that a server gives to clients with the token."""
    content = io.BytesIO()
    np.save(content, np.arange(60.0).reshape(12, 5))

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {SECRET}"
            allowed = allowed and self.path == "/x.npy"
            self.send_response(200 if allowed else 401 if self.path == "/x.npy" else 404)
            self.send_header("Content-Length", str(len(content.getvalue()) if allowed else 0))
            self.end_headers()
            if allowed and self.command == "GET":
                self.wfile.write(content.getvalue())

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/x.npy"
        server.shutdown()


def _holding(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_run_leaves_no_secret_in_any_file_task_key_or_command_line(
    data_folder: Path,
    tmp_path: Path,
    served: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    (tmp_path / "analysis.py").write_text(FUNCTION)
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes().decode(errors="replace"))
                except OSError:
                    continue

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        assert main(["up", "cpu", "--workers", "1", "--memory", "1GiB", "--name", "quiet-otter"]) == 0
        assert main(["run", f"{tmp_path}/analysis.py:leak", "--cluster", "quiet-otter"]) == 0
        assert main(["run", f"{tmp_path}/analysis.py:leak", "--cluster", "quiet-otter", "-p", "n=2"]) == 1
        guarded = ["-p", f"path={served}", "-p", "token_variable=A_TOKEN", "-p", "k=2"]
        assert main(["run", "svd_of_file", "--cluster", "quiet-otter", *guarded]) == 0
        # What holds a secret is refused in one sentence, which doesn't repeat it.
        for words in (
            ["run", "svd_of_file", "--cluster", "quiet-otter", "-p", f"path={URL}", "-p", "k=2"],
            ["run", "array_sum", "--cluster", "quiet-otter", "-p", f"save=s3://me:{SECRET}@bucket/out.zarr"],
            ["run", "array_sum", "--cluster", "quiet-otter", "--config", f"array.backend={URL}"],
            [
                "workloads",
                "svd_of_file",
                "--save-preset",
                "mine",
                "-p",
                f"path=https://h/x.npy?sig={SECRET}",
                "-p",
                "k=2",
            ],
            ["up", "address", "--address", f"tcp://me:{SECRET}@127.0.0.1:8786"],
            ["compare", "svd_of_file", "--on", "cpu", "--on", "cpu", "-p", f"path={URL}", "-p", "k=2"],
            ["look", "https://b.s3.amazonaws.com/x.npy?X-Amz-Credential=K&X-Amz-Signature=" + SECRET],
        ):
            assert main(words) == 2, words
    finally:
        ended.set()
        watching.join()
    runs = Session().runs()
    assert [each.status for each in runs] == ["done", "failed", "done"]
    exports = tmp_path / "exports"
    exports.mkdir()
    for run in runs:
        with zipfile.ZipFile(Session().export_run(run.id, exports, with_answers=True)) as archive:
            archive.extractall(exports / run.id)
        if run.status == "failed" or run.workload == "svd_of_file":
            (exports / f"{run.id}.html").write_text(report(run))
        for events in data_folder.glob(f"runs/{run.id}/events.parquet"):
            assert SECRET not in str(pyarrow.parquet.read_table(events).to_pylist())
        assert SECRET not in f"{run.model_dump_json()}{Session().log(run.id)}"
    # So that it was looked for in something.
    assert "data.example.org" in Session().log(runs[2].id)
    assert len(list(exports.rglob("run.json"))) == 3
    assert _holding(data_folder) == _holding(exports) == []
    assert any("workbench.clusters.host" in each for each in seen)
    assert not [each for each in seen if SECRET in each]
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("profile", "choices"),
    [
        ("gateway", {"address": f"http://me:{SECRET}@127.0.0.1:1"}),
        ("gateway", {"address": "http://127.0.0.1:1", "proxy_address": f"gateway://me:{SECRET}@127.0.0.1:2"}),
        ("kubernetes", {"env": f"{{PASSWORD: {SECRET}}}"}),
        ("kubernetes", {"env": f"{{PASSWORD: {SECRET}"}),
        ("kubernetes", {"env": f"{{HARMLESS: {SECRET}}}"}),
        ("kubernetes", {"image": f"https://{SECRET}@registry.example.org/dask"}),
        ("slurm", {"prologue": f"export HF_TOKEN={SECRET}"}),
        ("ssh", {"hosts": "node-1", "password": SECRET}),
        ("ssh", {"hosts": f"node-1,me:{SECRET}@node-2"}),
    ],
)
def test_a_profile_with_a_secret_is_neither_planned_nor_kept(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, profile: str, choices: dict[str, str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/sbatch")
    monkeypatch.setattr(profiles.registered()["kubernetes"], "unavailable", lambda *_: None)
    for ask in (
        lambda: plan(profile, inventory(), **choices),
        lambda: Session().keep_profile("mine", profile, **choices),
    ):  # type: ignore[arg-type]
        with pytest.raises(WorkbenchError, match=r"stored|takes no password") as caught:
            ask()
        assert SECRET not in str(caught.value)
    assert _holding(data_folder) == []


def test_a_record_that_is_given_secrets_stores_none(data_folder: Path) -> None:
    run = store.create(
        Run(id="svd_of_file-old", workload="svd_of_file", cluster="c", status="done", created=time.time())
    )
    (store.folder(run.id) / "log.txt").write_text(f"asked {URL}\n")
    variables = {"HARMLESS": SECRET, "TOKEN": "$A_TOKEN"}
    options = {"env": variables, "proxy": URL, "cluster_options": {"cores": 2, "extra": variables}}
    spec = {"profile": "kubernetes", "n_workers": 1, "threads_per_worker": 1, "memory_limit": 1, "options": options}
    old = {
        "spec": spec,
        "parameters": {"path": URL, "password": SECRET},
        "error": f"401 of {URL}",
        "result": {"a": URL},
    }
    store.update(run.id, **old)
    store.mark(run.id, note=f"from {URL}")
    assert [path.name for path in _holding(data_folder)] == ["log.txt"]
    (run,) = store.select()
    assert run.spec is not None
    hidden = {"HARMLESS": "…", "TOKEN": "$A_TOKEN"}
    assert run.spec.options["env"] == hidden
    assert run.spec.options["cluster_options"] == {"cores": 2, "extra": hidden}
    assert run.parameters == {"path": "http://…@data.example.org/x.npy", "password": "…"}
    with zipfile.ZipFile(Session().export_run(run.id, data_folder.parent)) as archive:
        exported = "".join(archive.read(name).decode() for name in archive.namelist())
    assert SECRET not in f"{run.model_dump_json()}{Session().log(run.id)}{report(run)}{exported}"
    of_pods, of_gateway = (
        {"profile": profile, name: {"HARMLESS": SECRET}}
        for profile, name in {"kubernetes": "env", "gateway": "environment"}.items()
    )
    named_choices.write("profiles", {"night": of_pods, "day": of_gateway})
    assert SECRET not in (config.data_folder() / "profiles.yaml").read_text()


@pytest.mark.parametrize("text", ["{A_TOKEN: %s}", '{"a": [{"A_TOKEN": "%s"}]}'])
def test_a_secret_among_names_and_values_is_refused_as_a_form_gives_them(text: str) -> None:
    assert complaint("environment", text % SECRET) is not None
    assert complaint("environment", text % "") is None
    assert complaint("environment", "{" * 5000) is complaint("environment", "{A_TOKEN: $A_TOKEN}") is None


@pytest.mark.parametrize(
    "name", ["sig", "auth", "jwt", "hmac", "passphrase", "code", "key", "X-Amz-Signature", "access_token"]
)
def test_what_a_url_proves_access_with_is_refused_and_hidden(name: str) -> None:
    url = f"https://h/x.npy?year=2020&{name}={SECRET}"
    assert complaint("path", url) is not None
    assert redact(url) == f"https://h/x.npy?year=2020&{name}=…"


def test_a_password_before_a_host_is_hidden_without_a_scheme() -> None:
    assert redact(f"ssh me:{SECRET}@node-1 failed") == "ssh me:…@node-1 failed"
    assert redacted({"hosts": [f"me:{SECRET}@node-1"]}) == {"hosts": ["me:…@node-1"]}


def test_what_is_printed_as_names_and_values_is_hidden() -> None:
    printed = {"a_password": SECRET, "n": 1}
    shown = redact(f"{printed} {json.dumps({'token': SECRET, 'b': '$TOKEN'})}")
    assert shown == "{'a_password': '…', 'n': 1} " + json.dumps({"token": "…", "b": "$TOKEN"}, ensure_ascii=False)
    assert redact("{'token': '$A_TOKEN', 'token_variable': 'A_TOKEN'}") == (
        "{'token': '$A_TOKEN', 'token_variable': 'A_TOKEN'}"
    )


def test_attributes_of_saved_arrays_hold_no_secret(tmp_path: Path) -> None:
    told = {"source": URL, "password": SECRET, "units": "K"}
    answer = dataset({"x": (("a",), np.ones(3), told)}, {"a": np.arange(3)}, told)
    for kind in ("zarr", "nc"):
        write(answer, target(str(tmp_path / f"x.{kind}")), mark="mine-1")
    assert _holding(tmp_path) == []


def test_text_without_a_secret_stays_as_it_is() -> None:
    for text in (
        "tcp://10.0.0.1:8786",
        "abfs://container@account.dfs.core.windows.net/x",
        "ssh://me@host/x",
        "https://host/data@v1/x.npy?year=2020",
        "export HF_TOKEN=$(cat ~/.token); token_variable=HF_TOKEN",
        "Give a token, such as token: a name",
        "https://host/x.npy?country_code=de&sort_key=a",
        "me@node-1:/x and git@github.com:org/x and mailto:me@example.org",
        "daskgateway:latest@sha256:0123456789abcdef",
    ):
        assert redact(text) == text
        assert complaint("path", text) is None
    assert redacted({"token_variable": "HF_TOKEN", "n_tokens": 3, "env": {"a": "b"}}) == {
        "token_variable": "HF_TOKEN",
        "n_tokens": 3,
        "env": {"a": "b"},
    }
    with pytest.raises(WorkbenchError, match=r"path has a user name or password"):
        places.full(URL)
    assert SECRET not in str(WorkbenchError(f"{URL} is not there"))
    assert template("array_sum").validate({"size": "1MiB"}, memory=2**30)


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("https://b.s3.amazonaws.com/x.npy?X-Amz-Credential=K&X-Amz-Signature=abc", "s3://BUCKET/KEY and set AWS_ACC"),
        ("https://storage.googleapis.com/b/x.npy?X-Goog-Signature=abc", "gs://BUCKET/KEY and set GOOGLE_APPLICATION_"),
        ("https://a.blob.core.windows.net/c/x.npy?sv=2020&sig=abc", "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/"),
        ("https://d.cloudfront.net/x.npy?Key-Pair-Id=K&Signature=abc", "its path."),
    ],
)
def test_a_presigned_url_is_refused_with_what_to_give_instead(url: str, instead: str) -> None:
    with pytest.raises(WorkbenchError) as refused:
        places.full(url)
    said = str(refused.value)
    assert said.startswith("path is a presigned URL. Its signature is a secret, which would be stored")
    assert "Download the file first and give its path" in said
    assert instead in said
    assert "abc" not in said
