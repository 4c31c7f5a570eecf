"""The ucx profile on a machine without a GPU: real workers that speak UCX, and what keeps others free of it."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import commands
from tests.conftest import using_data_folder
from tests.test_budget import machine
from workbench.cli import main
from workbench.cli.clusters import check_consent
from workbench.clusters import control, launch, records
from workbench.clusters.lines import read_line
from workbench.clusters.plan import plan
from workbench.clusters.profiles import ucx
from workbench.clusters.profiles.ucx import UCX_MEASURED, UCX_OPEN
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.clusters.start import start_spec
from workbench.errors import BadInputError, MissingError
from workbench.hardware import Inventory, Ucx
from workbench.packages import installed_version
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.compare import consent, plan_comparison, read_request
from workbench.session import Session

needs_ucx = pytest.mark.skipif(
    not any(map(installed_version, ucx.UCX_PACKAGES)),
    reason="distributed-ucxx isn't installed, which is Dask's UCX.",
)


def with_ucx() -> Inventory:
    return machine().model_copy(update={"ucx": Ucx(installed=True, version="0.52.0", reason=None)})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRecord]:
    wanted = ClusterSpec(
        profile="ucx",
        protocol="ucx",
        n_workers=2,
        threads_per_worker=1,
        memory_limit=2**30,
        options={"ucx_tls": "tcp", "interface": "lo"},
    )
    with using_data_folder(tmp_path_factory.mktemp("data")):
        record = launch.launch(wanted, name="calm-otter", force=True, agreed=True)
        yield asyncio.run(control.wait(record.name, timeout=60))


def test_ucx_is_planned_like_cpu_and_says_that_it_is_slower_and_open() -> None:
    spec, plain = plan("ucx", with_ucx(), n_workers=2), plan("cpu", machine(), n_workers=2)
    assert (spec.profile, spec.protocol, spec.devices) == ("ucx", "ucx", ())
    assert (spec.threads_per_worker, spec.memory_limit) == (plain.threads_per_worker, plain.memory_limit)
    assert UCX_MEASURED in spec.why
    assert "0.44 of TCP's bandwidth" in UCX_MEASURED
    assert "no encryption and no password over UCX" in spec.why[-1]
    assert UCX_MEASURED not in plain.why


def test_there_is_no_tls_over_ucx() -> None:
    with pytest.raises(
        BadInputError, match=r"^encrypt is True, and there is no TLS over UCX\. Leave it out, or choose"
    ):
        plan("ucx", with_ucx(), encrypt=True)
    assert plan("ucx", with_ucx(), encrypt=False).protocol == "ucx"


def of(spec: ClusterSpec) -> ClusterRecord:
    return ClusterRecord(name="calm-otter", spec=spec)


def test_a_context_on_a_gpu_is_not_asked_for_where_there_is_none(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    spec = plan("ucx", with_ucx())
    environment = launch.environment(of(spec))
    assert environment["DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT"] == "False"
    assert environment["UCX_NET_DEVICES"] == "lo"
    monkeypatch.setenv("UCX_NET_DEVICES", "eth0")
    eth0 = plan("ucx", with_ucx())
    assert launch.environment(of(eth0))["UCX_NET_DEVICES"] == "eth0"
    # What was planned holds, whatever the environment says when it is started.
    assert launch.environment(of(spec))["UCX_NET_DEVICES"] == "lo"
    plain = launch.environment(of(plan("cpu", machine())))
    assert "DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT" not in plain


def test_an_environment_without_ucx_starts_nothing(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucx, "UCX_PACKAGES", ("surely-not-installed",))
    with pytest.raises(MissingError, match=r"The ucx profile needs surely-not-installed in .*distributed-ucxx-cu1"):
        launch.launch(plan("ucx", with_ucx()), force=True, agreed=True)
    assert records.names() == ()


def test_a_client_without_ucx_is_told_what_it_lacks(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucx.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingError, match=r"calm-otter speaks UCX, and .* lacks distributed-ucxx: pip install"):
        ucx.Ucx().connecting(plan("ucx", with_ucx()), "calm-otter")


def test_what_ucx_speaks_over_is_chosen_seen_and_in_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    line = read_line("ucx --workers 2 --ucx-tls tcp,sm --interface eth0")
    spec = plan("ucx", with_ucx(), **line.choices)
    assert spec.options == {"ucx_tls": "tcp,sm", "interface": "eth0"}
    assert "UCX is given UCX_TLS=tcp,sm, and UCX_NET_DEVICES=eth0." in spec.why
    told = ast.unparse(ast.parse(spec.code))
    assert "os.environ['UCX_TLS'] = 'tcp,sm'\nos.environ['UCX_NET_DEVICES'] = 'eth0'\nif __name__" in told
    assert (
        "UCX is given no UCX_TLS, so that UCX chooses its transports, and UCX_NET_DEVICES=lo."
        in plan("ucx", with_ucx()).why
    )
    assert "environ" not in plan("cpu", machine()).code


@pytest.mark.parametrize(
    ("profile", "choice", "sentence"),
    [
        ("ucx", {"ucx_tls": "tcp; rm"}, "ucx_tls is 'tcp; rm'. Give names of UCX transports"),
        ("ucx", {"interface": "two words"}, "interface is 'two words'. Give names of network interfaces"),
        ("cpu", {"ucx_tls": "tcp"}, "ucx_tls is 'tcp', and the cpu profile takes no ucx_tls"),
        ("cpu", {"interface": "lo"}, "interface is 'lo', and the cpu profile takes no interface"),
    ],
)
def test_what_ucx_cannot_be_told_is_refused(profile: str, choice: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        plan(profile, with_ucx(), **choice)


@needs_ucx
def test_a_client_over_ucx_computes_and_all_have_what_was_chosen_for_it(running: ClusterRecord) -> None:
    code = (
        "import os, workbench\nwith workbench.connect('calm-otter') as client:\n"
        "    print(sorted(client.run(os.getenv, 'UCX_TLS').values()), os.getenv('UCX_TLS'), "
        "client.submit(os.getenv, 'UCX_NET_DEVICES').result())"
    )
    # In a process of its own: UCX initialises once in a process, and for one event loop.
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (told.stdout.strip(), told.stderr) == ("['tcp', 'tcp'] tcp lo", "")


@needs_ucx
def test_workers_speak_ucx_and_who_controls_them_speaks_tcp(running: ClusterRecord) -> None:
    assert str(running.scheduler_address).startswith("ucx://")
    assert str(running.contact).startswith("tcp://127.0.0.1:")
    logs = asyncio.run(control.logs(running.name))
    assert len([who for who in logs if "ucx://" in who]) == 2
    code = (
        "import asyncio, sys\nfrom workbench.clusters import control, records\n"
        "asyncio.run(control.scale('calm-otter', 2))\nprint('ucxx' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "False"


@needs_ucx
def test_a_run_over_ucx_from_the_command_line(running: ClusterRecord) -> None:
    run = commands.answer("run", "transpose_sum", "--cluster", running.name, "-p", "size=16MiB")
    assert run["check"]["passed"]


@needs_ucx
def test_the_workers_can_be_restarted_and_scaled(running: ClusterRecord) -> None:
    asyncio.run(control.restart_workers(running.name))
    asyncio.run(control.scale(running.name, 1, force=True))


@needs_ucx
def test_who_says_no_at_the_terminal_starts_nothing(data_folder: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "workbench", "up", "ucx", "--workers", "2", "--memory", "2GiB"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        said = _until(ours, "[y/N]")
        os.write(ours, b"\n")
        said += _until(ours, "--yes")
        assert process.stdout is not None
        assert (process.stdout.read(), process.wait(timeout=60)) == ("", 2)
    os.close(ours)
    assert "listens on all network interfaces" in said
    assert "Nothing was started." in said
    assert "or agree (--yes" in said
    assert records.names() == ()


def _until(terminal: int, word: str) -> str:
    said = ""
    while word not in said:
        said += os.read(terminal, 4096).decode()
    return " ".join(said.split())


def test_consent_is_asked_for_only_where_there_is_something_to_agree_to(capsys: pytest.CaptureFixture[str]) -> None:
    check_consent(plan("cpu", machine(), n_workers=2), yes=False)
    check_consent(plan("ucx", with_ucx(), n_workers=2), yes=True)
    assert capsys.readouterr().err == ""
    with pytest.raises(
        BadInputError, match=r"Warning: no encryption.* Nothing was started\. Choose otherwise, or agree \(--yes"
    ):
        check_consent(plan("ucx", with_ucx(), n_workers=2), yes=False)
    check_consent(plan("cpu", machine(), encrypt=False), yes=True)
    with pytest.raises(BadInputError, match="Warning: no encryption, so every user of this machine can run code as"):
        check_consent(plan("cpu", machine(), encrypt=False), yes=False)


def test_no_way_to_start_a_cluster_over_ucx_goes_without_a_yes(data_folder: Path) -> None:
    spec = plan("ucx", with_ucx(), n_workers=2)
    for begin in (launch.launch, start_spec, Session().start):
        with pytest.raises(BadInputError, match=r"Nothing was started\. Choose otherwise"):
            begin(spec, force=True)
        # What a record of somebody else says about consent is not what counts.
        with pytest.raises(BadInputError, match=r"Nothing was started\. Choose otherwise"):
            begin(spec.model_copy(update={"consent": None}), force=True)
    assert records.names() == ()


def test_a_comparison_asks_where_it_starts_ucx_that_nobody_agreed_to_yet() -> None:
    def told(*on: str) -> str | None:
        return consent(plan_comparison(read_request({"workload": "array_sum", "on": on}), with_ucx(), ()).rows)

    assert told("cpu --workers 1", "ucx --workers 2") == UCX_OPEN
    assert told("cpu --workers 1", "cpu --workers 2") is None
    assert "every user of this machine" in str(told("cpu --workers 1", "cpu --workers 2 --no-encrypt"))


@needs_ucx
def test_where_nobody_can_answer_nothing_over_ucx_is_started(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ("up", "ucx", "--workers", "2", "--memory", "2GiB"),
        ("compare", "array_sum", "--on", "ucx --workers 2", "-p", "size=8MiB"),
        ("run", "array_sum", "--on", "ucx --workers 2 --memory 2GiB", "-p", "size=8MiB"),
        ("compare", "transpose_sum", "--preset", "post", "--scale", "0.001"),
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "listens on all network interfaces" in said
        assert "Nothing was started. Choose otherwise, or agree (--yes" in said
    assert (records.names(), comparisons.select()) == ((), ())
