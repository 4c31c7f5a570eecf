"""Profiles: ours, and those that other packages bring."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dask
import pytest
from pydantic import BaseModel

from tests import commands
from tests.trusted import trust_here
from tests.views import html_at
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.plan import explained, plan
from workbench.clusters.profiles import Broken, registered
from workbench.clusters.profiles.lookup import profiles
from workbench.clusters.profiles.saved_profiles import forget, saved
from workbench.clusters.start import start_spec
from workbench.errors import BadInputError, FailedError, MissingError, NotFoundError
from workbench.hardware import inventory
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service

ENTRY_POINTS = """
[workbench.profiles]
tea = somebodys_profile:Tea
broken = no_such_module:Profile
misnamed = somebodys_profile:Tea
ends = somebodys_profile.ends:Profile
cpu = somebodys_profile:Tea
unsummed = somebodys_profile.breaks:Unsummed
unlisted = somebodys_profile.breaks:Unlisted
wrong = somebodys_profile.breaks:Wrong
refuses = somebodys_profile.breaks:Refuses
unnamed = somebodys_profile.breaks:Unnamed
unlettered = somebodys_profile.breaks:Unlettered
unmodelled = somebodys_profile.breaks:Unmodelled
"""


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """Paths on which a package is installed that brings profiles, one of which can't be imported."""
    about = tmp_path / "somebodys_profile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-profile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return [str(tmp_path), str(Path(__file__).parent)]


@pytest.fixture
def brought(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package for this process."""
    for path in installed:
        monkeypatch.syspath_prepend(path)
    registered.cache_clear()
    yield
    registered.cache_clear()


def test_our_own_profiles_are_all_there() -> None:
    assert list(registered())[:5] == ["cpu", "gpu", "gpus", "ucx", "address"]
    assert {each.name for each in registered().values()} == {*registered()}
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*project["entry-points"]["workbench.profiles"]} == {*registered()}
    assert [name for name, each in registered().items() if isinstance(each, Broken)] == []


def test_a_profile_of_another_package_is_offered_and_planned(brought: None) -> None:
    offered = {each.name: each for each in profiles(inventory())}
    assert (offered["tea"].title, offered["tea"].available) == ("Tea", True)
    spec = plan("tea", inventory(), n_workers=2, kind="black")  # type: ignore[call-arg]
    assert (spec.n_workers, spec.options, spec.why) == (2, {"kind": "black"}, ("Tea is black, as chosen.",))


def test_one_that_cant_be_imported_says_why_and_breaks_nothing(brought: None) -> None:
    offered = {each.name: each for each in profiles(inventory())}
    assert not offered["broken"].available
    assert "can't be imported (no_such_module:Profile: No module named" in (offered["broken"].reason or "")
    assert "is no Profile with the name 'misnamed'" in (offered["misnamed"].reason or "")
    assert "can't be imported (somebodys_profile.ends:Profile: it ends Python" in (offered["ends"].reason or "")
    assert offered["cpu"].title == "CPU"
    with pytest.raises(MissingError, match="The broken profile can't be had here"):
        plan("broken", inventory())


def test_one_that_breaks_when_it_is_asked_says_so_and_breaks_nothing(brought: None, data_folder: Path) -> None:
    offered = {each.name: each for each in profiles(inventory())}
    assert (offered["tea"].available, offered["unlisted"].available) == (True, True)
    assert offered["unsummed"].reason == (
        "summary() of the unsummed profile, of somebodys_profile.breaks:Unsummed, broke (KeyError: 'cups'). "
        "Report this to its author."
    )
    assert isinstance(Session().nearby(), tuple)
    with pytest.raises(FailedError, match=r"^plan\(\) of the unlisted profile, of .* broke \(KeyError: 'cups'\)\."):
        plan("unlisted", inventory())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("refuses", "unavailable() of the refuses profile, of {}:Refuses, gave False, which is no text and not None."),
        ("unnamed", "title of {}:Unnamed is 3, which is no text."),
        ("unlettered", "options of {}:Unlettered is 'kind', which is no tuple of names."),
        ("unmodelled", "model of {}:Unmodelled is <class 'dict'>, which is no pydantic model."),
    ],
)
def test_one_that_says_of_itself_what_it_should_not_is_told_with_what_was_expected(
    brought: None, name: str, sentence: str
) -> None:
    offered = {each.name: each for each in profiles(inventory())}
    assert offered[name].reason == f"{sentence.format('somebodys_profile.breaks')} Report this to its author."


def test_one_that_answers_with_other_things_is_told_with_what_was_expected(
    brought: None, installed: list[str], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*installed, str(Path(__file__).parents[1])]))
    with pytest.raises(
        FailedError, match=r"^plan\(\) of the wrong .* gave \{'n_workers': 1\}, which is no ClusterSpec\."
    ):
        plan("wrong", inventory())
    spec = plan("tea", inventory()).model_copy(update={"profile": "wrong"})
    with pytest.raises(
        FailedError, match=r"^code\(\) of the wrong .* gave None, which is no text\. Report this to its author\.$"
    ):
        explained(spec)
    with pytest.raises(FailedError, match=r"engine\(\) of the wrong profile gave None, which is no Engine\."):
        start_spec(spec, agreed=True)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kind": "mint"}, "kind is 'mint'. Input should be 'green' or 'black'."),
        ({"n_workers": 9}, "n_workers is 9. Input should be less than or equal to 2."),
        ({"memory": "1GiB"}, "memory is '1GiB', and the tea profile takes no memory. It takes: n_workers, kind."),
        ({"sugar": True}, "sugar is True, and the tea profile takes no sugar. It takes: n_workers, kind."),
    ],
)
def test_its_choices_are_judged_by_its_own_model(brought: None, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        plan("tea", inventory(), **given)
    assert sentence in str(caught.value)


def test_it_is_started_from_the_terminal(installed: list[str], data_folder: Path) -> None:
    paths = os.pathsep.join([*installed, str(Path(__file__).parents[1])])

    def workbench(*arguments: str) -> Any:
        command = [sys.executable, "-m", "workbench", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    told = workbench("up", "tea", "--kind", "black", "--yes", "--name", "pot")
    assert (told["status"], told["profile"], told["n_workers"]) == ("ready", "tea", 1)
    # A user without the package, as this process is, can do the same with it, and dismiss its remains.
    (seen,) = commands.answer("ls")
    assert (seen["status"], seen["profile"], seen["n_workers"]) == ("ready", "tea", 1)
    assert commands.answer("scale", "pot", "2")["n_workers"] == 2
    os.kill(records.read("pot").pid or 0, signal.SIGKILL)
    (seen,) = commands.answer("ls")
    assert (seen["status"], "There is no profile 'tea' here any more." in seen["message"]) == ("lost", True)
    assert commands.answer("down", "pot")["dismissed"] == ["pot"]
    assert commands.answer("ls") == []


def test_it_is_a_way_to_compute_on_the_page(brought: None) -> None:
    from tests.server.conftest import FakeSession
    from workbench.views import machine
    from workbench.views.context import Context, Machine

    session: Any = FakeSession()
    context = Context(session, {}, Machine(session), {"profile": "tea"})
    html = machine.start(context, "")
    assert 'data-workbench="profile-tea"' in html
    assert "1 worker × 1 thread, 512 MiB" in html
    assert 'data-workbench="field-kind"' in machine.plan_form(context, "")


def test_one_whose_package_is_gone_or_broken_is_dismissed_on_the_page(brought: None, data_folder: Path) -> None:
    spec = plan("tea", inventory())
    for name in ("broken", "nowhere", "unmodelled"):
        made = {"spec": spec.model_copy(update={"profile": name}), "created": time.time(), "status": "lost"}
        records.create(records.ClusterRecord(name=name, **made))
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def story() -> None:
        html = await html_at(service, "clusters")
        assert html.count('data-workbench="dismiss"') == 3
        await service.close()

    asyncio.run(story())


def test_the_address_of_a_scheduler_is_kept_under_a_name(data_folder: Path) -> None:
    assert main(["up", "tcp://127.0.0.1:8786", "--save-as", "far"]) == 0
    assert saved()["far"].choices == {"address": "tcp://127.0.0.1:8786"}


def test_choices_are_kept_under_a_name_and_come_to_the_same_spec(
    data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "cpu", "--workers", "2", "--memory", "1GiB", "--save-as", "night"]) == 0
    assert capfd.readouterr().out.startswith("Saved: night, a profile of your own: 2 workers")
    assert plan("night", inventory()) == plan("cpu", inventory(), n_workers=2, memory="1GiB")
    assert plan("night", inventory(), n_workers=1).n_workers == 1
    offered = {each.name: each for each in profiles(inventory())}
    assert offered["night"].summary == "CPU with n_workers=2, memory=1GiB. From what you kept."
    assert main(["up", "night", "--memory", "512MiB", "--save-as", "small-night"]) == 0
    assert plan("small-night", inventory()) == plan("cpu", inventory(), n_workers=2, memory="512MiB")
    assert main(["up", "night", "--forget"]) == 0
    with pytest.raises(BadInputError, match="Unknown profile 'night'"):
        plan("night", inventory())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "cpu", "--save-as", "cpu"], "There is a profile 'cpu' already"),
        (["up", "cpu", "--save-as", "Night Queue"], "A profile can't be called 'Night Queue'"),
        (["up", "tpu", "--save-as", "night"], "Unknown profile 'tpu'"),
        (["up", "cpu", "--memory", "lots", "--save-as", "night"], "memory is 'lots'"),
        (["up", "cpu", "kind", "--save-as", "night"], "Given 'kind'. After the profile come its options"),
        (["up", "night", "--forget"], "You saved no profile 'night'. You saved: none."),
    ],
)
def test_what_cant_be_kept_is_told_and_nothing_is_kept(
    data_folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(arguments) == 2
    assert sentence in capfd.readouterr().err
    assert not (data_folder / "profiles.yaml").exists()


def test_a_team_keeps_profiles_in_a_file_of_its_folder(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "workbench.yaml"
    with dask.config.set({"workbench.profiles": {"night": {"profile": "cpu"}, "dawn": {"profile": "cpu"}}}):
        file.write_text(
            "workbench: {profiles: {night: {profile: cpu, n_workers: 2}, odd: 3, cpu: {profile: ucx}, "
            "typo: {profile: cpu, n_wokers: 2}, big: {profile: cpu, n_workers: lots}, gone: {profile: nosuch}, "
            "several: {profile: [cpu]}}}"
        )
        trust_here()
        offered = {each.name: each for each in profiles(inventory())}
        assert offered["night"].summary == "CPU with n_workers=2. From workbench.yaml here."
        assert offered["dawn"].summary == "CPU. From Dask's configuration."
        assert offered["odd"].reason == (
            f"It names no profile (in workbench.yaml here). Give one of: {', '.join(registered())}."
        )
        assert "takes no n_wokers" in (offered["typo"].reason or "")
        assert "n_workers is 'lots'" in (offered["big"].reason or "")
        assert "There is no profile 'nosuch' (in workbench.yaml here)" in (offered["gone"].reason or "")
        assert "There is no profile ['cpu'] (in workbench.yaml here)" in (offered["several"].reason or "")
        assert offered["cpu"].title == "CPU"
        assert "can't be called so" in (offered["cpu-of-your-own"].reason or "")
        with pytest.raises(NotFoundError, match=r"It is defined in workbench\.yaml or in Dask's configuration"):
            forget("night")
    for text in ("{", "workbench: {profiles: [1]}", "[1]", "\x00"):
        file.write_text(text)
        assert "workbench.yaml" in next(
            each.reason or "" for each in profiles(inventory()) if each.name == "workbench.yaml"
        )
        assert plan("cpu", inventory()).profile == "cpu"
        with pytest.raises(BadInputError, match=r"'night'\. Choose one of: cpu, [a-z, ]*\. .*workbench\.yaml"):
            plan("night", inventory())


def test_a_file_means_what_a_person_reads_in_it_and_no_word_in_it_breaks_the_others(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {
        "dated": "{profile: slurm, walltime: 2026-01-01}",
        "listed": "{profile: slurm, queue: [main]}",
        "halves": "{profile: slurm, n_workers: 2.5}",
        "flag": "{profile: ssh, hosts: a, port: true}",
        "keyed": "{profile: cpu, on: 1}",
        "numbered": "{profile: cpu, 3: 1}",
        "no": "{profile: slurm, queue: no, walltime: 1:30:00, account: 0123, n_workers: ~}",
        "paid": "{profile: no, account: 12, n_workers: 2}",
        "egg": "{profile: hen}",
        "hen": "{profile: egg}",
    }
    text = "".join(f"    {name}: {about}\n" for name, about in lines.items())
    (tmp_path / "workbench.yaml").write_text(f"workbench:\n  profiles:\n{text}")
    trust_here()
    # What isn't had here is still judged by its choices.
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/sbatch")
    reasons = {each.name: str(each.reason) for each in profiles(inventory())}
    assert "walltime is '2026-01-01'. Give a duration with its unit" in reasons["dated"]
    assert "queue is ['main']. Give a text, in a file in quotes." in reasons["listed"]
    assert "n_workers is 2.5. Give a whole number of worker processes" in reasons["halves"]
    assert "port is True. Give a whole number." in reasons["flag"]
    assert "the cpu profile takes no on." in reasons["keyed"]
    assert "the cpu profile takes no 3." in reasons["numbered"]
    assert "It is based on itself, by way of" in reasons["egg"]
    spec = plan("no", inventory())
    assert {name: spec.options[name] for name in ("queue", "walltime", "account")} == {
        "queue": "no",
        "walltime": 5400,
        "account": "0123",
    }
    # One that is based on another of one's own.
    spec = plan("paid", inventory())
    assert (spec.profile, spec.n_workers, spec.options["account"], spec.options["queue"]) == ("slurm", 2, "12", "no")
    # Dask reads its own configuration, as YAML 1.1.
    with dask.config.set({"workbench.profiles": {"day": {"profile": "slurm", "walltime": date(2026, 1, 1)}}}):
        (day,) = (each for each in profiles(inventory()) if each.name == "day")
        assert "walltime is datetime.date(2026, 1, 1). Give a duration with its unit" in str(day.reason)


def test_a_profile_is_kept_and_forgotten_on_the_page(data_folder: Path) -> None:
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def story() -> None:
        kept = {"name": "night", "profile": "cpu", "choices": {"n_workers": "2"}}
        await perform(service, "keep_profile", kept)
        chosen = {"profile": "night"}
        html = await html_at(service, "start", chosen)
        assert "2 workers" in html
        form = await html_at(service, "plan-form", chosen)
        assert 'data-workbench="forget"' in form
        await perform(service, "forget_profile", chosen)
        with pytest.raises(NotFoundError, match="You saved no profile 'night'"):
            await perform(service, "forget_profile", chosen)
        await service.close()

    asyncio.run(story())


def test_a_choice_that_a_profile_lacks_is_refused_though_its_model_ignores_it() -> None:
    class Cups(BaseModel):
        cups: int = 1

    class Loose(Broken):
        model = Cups

    loose = Loose("loose", "")
    loose.choices = lambda _: Cups  # type: ignore[assignment, method-assign, misc]
    loose.refuse_unknown({"cups": 2, "sugar": None}, inventory())
    with pytest.raises(BadInputError, match=r"sugar is 3, and the loose profile takes no sugar\. It takes: cups"):
        loose.refuse_unknown({"cups": 2, "sugar": 3}, inventory())
