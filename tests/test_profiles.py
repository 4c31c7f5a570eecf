"""Profiles: ours, and those that other packages bring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.clusters import profiles
from workbench.clusters.plan import plan
from workbench.clusters.profiles import registered
from workbench.errors import BadInputError, MissingError
from workbench.hardware import inventory

ENTRY_POINTS = """
[workbench.profiles]
tea = somebodys_profile:Tea
broken = no_such_module:Profile
misnamed = somebodys_profile:Tea
cpu = somebodys_profile:Tea
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
    """The same for this process."""
    for path in installed:
        monkeypatch.syspath_prepend(path)
    registered.cache_clear()
    yield
    registered.cache_clear()


def test_our_own_profiles_are_all_there() -> None:
    assert list(registered()) == ["cpu", "gpu", "gpus", "ucx", "address"]


def test_a_profile_of_another_package_is_offered_and_planned(brought: None) -> None:
    offered = {each.name: each for each in profiles.profiles(inventory())}
    assert (offered["tea"].title, offered["tea"].available) == ("Tea", True)
    spec = plan("tea", inventory(), n_workers=2, kind="black")  # type: ignore[call-arg]
    assert (spec.n_workers, spec.options, spec.why) == (2, {"kind": "black"}, ("Tea is black, as chosen.",))


def test_one_that_cant_be_imported_says_why_and_breaks_nothing(brought: None) -> None:
    offered = {each.name: each for each in profiles.profiles(inventory())}
    assert not offered["broken"].available
    assert "can't be imported (no_such_module:Profile: No module named" in (offered["broken"].reason or "")
    assert "is no Profile with the name 'misnamed'" in (offered["misnamed"].reason or "")
    assert offered["cpu"].title == "CPU"
    with pytest.raises(MissingError, match="The broken profile can't be had here"):
        plan("broken", inventory())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kind": "mint"}, "kind is 'mint'. Input should be 'green' or 'black'."),
        ({"n_workers": 9}, "n_workers is 9. Input should be less than or equal to 2."),
        ({"memory": "1GiB"}, "memory is '1GiB', and the tea profile takes no memory. It takes: n_workers, kind."),
        ({"sugar": True}, "plan() has no 'sugar'. Choose from:"),
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

    assert "tea" in {each["name"] for each in workbench("hardware")["profiles"]}
    told = workbench("up", "tea", "--set", "kind=black", "--name", "pot")
    assert (told["status"], told["profile"], told["n_workers"]) == ("ready", "tea", 1)
    assert workbench("run", "array_sum", "--cluster", "pot", "-p", "size=4MiB")["status"] == "done"
    assert workbench("down", "pot")["stopped"] == ["pot"]


def test_it_is_a_way_to_compute_on_the_page(brought: None) -> None:
    from tests.server.conftest import FakeSession
    from workbench.views import machine
    from workbench.views.page import Machine, Sight

    session: Any = FakeSession()
    sight = Sight(session, {}, Machine(session), None, "/", {"profile": "tea"})  # type: ignore[arg-type]
    html = machine.start(sight, "")
    assert 'data-workbench="profile-tea"' in html
    assert "1 worker × 1 thread, 512 MiB" in html
    assert 'data-workbench="field-kind"' in machine.plan_form(sight, "")
