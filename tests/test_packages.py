"""Installed packages as they are now, even if they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.packages import entry_points, installed_version


def install(folder: Path, name: str, version: str, told: str = "") -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(told)


def test_a_package_is_found_when_it_comes_and_gone_when_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_version("somebodys-tea") is None
    assert entry_points("somebodys.group") == ()
    install(tmp_path, "somebodys_tea", "1.2", "[somebodys.group]\ntea = tea:steep\n")
    assert installed_version("somebodys-tea") == "1.2"
    assert [each.value for each in entry_points("somebodys.group")] == ["tea:steep"]
    (tmp_path / "somebodys_tea-1.2.dist-info").rename(tmp_path / "gone")
    assert installed_version("somebodys-tea") is None
    assert entry_points("somebodys.group") == ()
