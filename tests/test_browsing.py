"""Folders that a person looks into to find a file, on this machine and behind URLs."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.views import html_of
from workbench.errors import BadInputError
from workbench.runs import store
from workbench.runs.run import Run
from workbench.storage.browsing import MOST, browse


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, a folder, a Zarr store and something hidden."""
    np.save(tmp_path / "b.npy", np.ones(4))
    (tmp_path / "A.nc").write_bytes(b"CDF")
    (tmp_path / "more").mkdir()
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "zarr.json").write_text("{}")
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_folders_stand_before_files_and_a_store_is_chosen_like_a_file(folder: Path) -> None:
    found = browse(str(folder))
    assert [(each.name, each.is_folder) for each in found.entries] == [
        ("more", True),
        ("A.nc", False),
        ("b.npy", False),
        ("x.zarr", False),
    ]
    assert (found.path, found.above, found.is_store) == (str(folder), str(folder.parent), False)
    assert [each.n_bytes for each in found.entries] == [None, 3, 160, None]


def test_beside_a_file_lies_what_its_folder_holds(folder: Path) -> None:
    assert browse(str(folder / "b.npy")) == browse(str(folder))
    assert browse(str(folder / "x.zarr")).is_store


def test_above_the_root_is_nothing() -> None:
    assert browse("/").above is None
    assert all(each.path.startswith("/") and not each.path.startswith("//") for each in browse("/").entries)


def test_a_folder_of_many_says_how_many_more_there_are(tmp_path: Path) -> None:
    for number in range(MOST + 3):
        (tmp_path / f"{number:04}.npy").touch()
    found = browse(str(tmp_path))
    assert (len(found.entries), found.more) == (MOST, 3)


def test_a_url_is_browsed_up_to_its_bucket() -> None:
    fsspec.filesystem("memory").pipe({"/bucket/deep/x.npy": b"abc"})
    found = browse("memory://bucket/deep")
    assert [(each.path, each.n_bytes) for each in found.entries] == [("memory://bucket/deep/x.npy", 3)]
    assert found.above == "memory://bucket"
    assert browse("memory://bucket").above is None


@pytest.mark.parametrize("path", ["/nowhere/at/all", "\0"])
def test_what_is_not_there_is_told_in_a_sentence(path: str) -> None:
    with pytest.raises(BadInputError):
        browse(path)


def test_the_form_lists_a_folder_and_a_click_on_a_file_fills_the_field(folder: Path, data_folder: Path) -> None:
    chosen = {"workload": "svd_of_file"}
    html = unescape(html_of("work", chosen))
    assert 'data-choose="{"browse.path": "."}"' in html
    html = unescape(html_of("work", chosen | {"browse.path": str(folder)}))
    assert f'{{"run.svd_of_file.path": "{folder}/b.npy", "browse.path": null}}' in html
    assert f'{{"browse.path": "{folder}/more"}}' in html
    assert "browse.remove" not in html_of("work", {"workload": "eofs"})
    html = unescape(html_of("work", chosen | {"browse.path": "/nowhere"}))
    assert "/nowhere isn't there" in html
    assert "Back to where Jupyter runs" in html


def test_each_search_lists_the_files_that_can_be_what_it_is_for(folder: Path, data_folder: Path) -> None:
    for name in ("b.npy", "book.ipynb", "runs.zip", "script.py"):
        (folder / "more" / name).touch()
    for name, files in {"path": "b.npy runs.zip", "functions": "script.py", "import": "runs.zip"}.items():
        view = "importing" if name == "import" else "work"
        html = html_of(view, {"workload": "svd_of_file", f"browse.{name}": str(folder / "more")})
        listed = html.partition('data-workbench="browsed"')[2].partition("</div>")[0]
        assert re.findall(r'title="(\w.*?)"', listed) == files.split(), name


def test_paths_used_lately_are_those_that_mean_the_same_in_every_folder(folder: Path, data_folder: Path) -> None:
    for number, (given, read) in enumerate((("d.txt", "d.txt"), ("x.npy", "/data/x.npy"), ("s3://b/y", "s3://b/y"))):
        parameters, resolved = {"path": given}, {"path": read}
        run = Run(id=f"r{number}", workload="eofs", cluster="c", status="done", created=number, stopped=number)
        store.create(run.model_copy(update={"parameters": parameters, "resolved": resolved}))
    html = html_of("work", {"workload": "svd_of_file", "browse.path": str(folder)})
    late = html.partition("Used lately")[2].partition('data-workbench="browsed"')[0]
    assert re.findall(r'title="(.*?)"', late) == ["s3://b/y", "/data/x.npy"]
