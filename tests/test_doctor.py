"""`workbench doctor`: what is wrong is named with what to type, and nothing is printed that is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulated import SimulatedNvml
from workbench.cli import doctor, main


def found(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]], str]:
    code = main(["doctor", "--json"])
    text = capsys.readouterr().out
    return code, json.loads(text), text


def test_a_sound_installation_has_nothing_wrong(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings, _ = found(capsys)
    assert code == 0, [each for each in findings if each["state"] == "wrong"]
    areas = {"Python", "Packages", "Data folder", "Temporary folder", "Home folder", "Network", "Limits", "Hardware"}
    assert areas | {"GPUs", "Clusters"} <= {each["about"] for each in findings}
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("ok     Python: ")


def test_a_proxy_is_named_without_its_password_and_the_home_without_the_user(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:s3cret-word@proxy:3128")
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.setenv("HOME", str(data_folder.parent))
    _, findings, text = found(capsys)
    assert "s3cret-word" not in text
    assert str(data_folder.parent) not in text
    (about,) = [each for each in findings if "http_proxy" in each["message"]]
    assert about["remedy"] == 'export no_proxy="localhost,127.0.0.1"'


def test_versions_of_dask_that_differ_are_wrong(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {"dask": "2026.9.0", "distributed": "2026.7.1"}
    monkeypatch.setattr(doctor, "installed_version", versions.get)
    code, findings, _ = found(capsys)
    assert code == 1
    (wrong,) = [each for each in findings if each["state"] == "wrong"]
    assert wrong["remedy"] == "pip install distributed==2026.9.0"
    assert any("no sidebar" in each["message"] and "jupyterlab" in each["remedy"] for each in findings)


def test_a_gpu_that_cannot_be_used_says_what_to_install(simulated_nvml: SimulatedNvml) -> None:
    finding = doctor._gpus(simulated_nvml.inventory(), "CuPy is not installed")
    assert finding.state == "wrong"
    assert finding.message.startswith("SIMULATED GPU 0")
    assert "cupy-cuda13x" in finding.remedy


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def _folders() -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "_CHECKS", (_folders,))
    (finding,) = doctor.find()
    assert (finding.about, finding.state) == ("folders", "wrong")
