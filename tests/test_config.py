"""Settings that make no sense are named with what they may be, before anything is done with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import pytest

from workbench import config
from workbench.errors import BadInputError


@pytest.mark.parametrize(
    ("read", "key", "given", "allowed"),
    [
        (config.path, "data-folder", 3, "Give the path of a folder"),
        (config.path, "data-folder", " ", "Give the path of a folder"),
        (config.path, "data-folder", "~nobody-of-this-name/x", "Give a path without ~"),
        (config.path, "sysfs", ["/sys"], "Give the path of a folder"),
        (config.switch, "encrypt", "perhaps", "Give true or false"),
        (config.switch, "encrypt", None, "Give true or false"),
        (config.seconds, "idle-timeout", "soon", "Give a duration"),
        (config.size, "memory-reserve.bytes", "lots", "Give a size"),
    ],
)
def test_a_setting_that_can_not_be_is_named(read: Callable[[str], Any], key: str, given: Any, allowed: str) -> None:
    with dask.config.set({f"workbench.{key}": given}), pytest.raises(BadInputError, match=allowed) as refused:
        read(key)
    assert str(refused.value).startswith(f"The setting workbench.{key} is ")


def test_a_blank_data_folder_never_means_the_working_folder() -> None:
    with dask.config.set({"workbench.data-folder": ""}), pytest.raises(BadInputError, match="data-folder"):
        config.data_folder()


def test_a_folder_with_other_files_keeps_its_rights_and_is_no_data_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with dask.config.set({"workbench.data-folder": str(shared)}):
        (shared / "letter.txt").touch()
        with pytest.raises(BadInputError, match=r"holds other files \('letter.txt'\)"):
            config.data_folder()
        assert shared.stat().st_mode & 0o777 == 0o755
        (shared / "letter.txt").unlink()
        assert config.data_folder().stat().st_mode & 0o777 == 0o700


def test_a_switch_in_the_environment_may_be_a_number() -> None:
    with dask.config.set({"workbench.encrypt": 0}):
        assert config.switch("encrypt") is False
