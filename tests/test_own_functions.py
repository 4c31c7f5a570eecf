"""A person's function is a workload: its form, its run, what it returns, and what is said where it can't be one."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import dask.array as da
import nbclient
import nbformat
import numpy as np
import pandas
import pytest
import xarray
from distributed import wait

import workbench
from tests.conftest import using_data_folder
from tests.trusted import trust_here
from tests.views import html_of
from tests.waiting import until
from workbench.clusters import records
from workbench.errors import BadInputError, ConflictError, FailedError, NotFoundError
from workbench.runs import failures, store
from workbench.runs.facts import facts, headline
from workbench.runs.run import WATCHED, Run
from workbench.runs.submit import finish, submit
from workbench.session import Session
from workbench.storage import writing
from workbench.storage.targets import target
from workbench.workloads import function_results, importing, listing, template, user_functions
from workbench.workloads.declaring import workload
from workbench.workloads.values import Function

FILE = '''
from pathlib import Path
from typing import Annotated, Literal

import helper
import workbench


def side(n):
    return n


def is_right(value, n):
    return value == 3 * n * n, "three for each element"


@workbench.workload(title="Three times the sum", check=is_right, needs=lambda n: 8 * n * n)
def total(n: Annotated[int, workbench.Field(ge=1, le=500), workbench.Words(unit="elements")] = 100):
    """Sum of threes.

    Parameters
    ----------
    n : int
        Side of the square,
        in elements.

    Returns
    -------
    n : float
        Not this.
    """
    import dask.array as da

    print("made", n)
    return da.map_blocks(helper.triple, da.ones((n, n), chunks=50), dtype=float).sum()


@workbench.workload()
def kinds(
    n: int,
    how: Literal["sum", 3] = "sum",
    folder: Path = Path("."),
    weights: list[float] = (0.5, 1),
    scale: float | None = None,
    flag=True,
    shape: workbench.Shape = (2, 2),
):
    return locals()


@workbench.workload()
def unnamed(x):
    return x


@workbench.workload()
def complex_(z: complex = 1j):
    return z


@workbench.workload()
def fails(n: int = 0):
    return 1 / n
'''
HELPER = "FACTOR = 3\n\n\ndef triple(x):\n    return FACTOR * x\n"


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Raise the time limit of imports, since other tests keep the machine busy."""
    monkeypatch.setattr(user_functions, "DEADLINE", 60.0)


@pytest.fixture
def project(tmp_path):
    """Provide a folder with a file of workloads and a module next to it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.py").write_text(FILE)
    (folder / "helper.py").write_text(HELPER)
    return folder


DECLARED = """
import workbench


@workbench.workload(presets={"small": {"n": 3, "how": "mean"}, "large": {"n": 500}})
def total(n: int = 100, how: str = "sum"):
    return n


@workbench.workload(presets={"Large one": {"n": 2}})
def capital(n: int = 1):
    return n


@workbench.workload(presets={"large": {"m": 2}})
def other(n: int = 1):
    return n


@workbench.workload(presets={"large": {"n": object()}})
def odd(n: int = 1):
    return n


@workbench.workload(presets=[1])
def listed(n: int = 1):
    return n
"""


def test_a_preset_that_is_declared_fills_the_form_and_what_is_given_beside_it_takes_its_place(tmp_path, data_folder):
    (tmp_path / "mine.py").write_text(DECLARED)
    chosen = template(f"{tmp_path}/mine.py:total")
    assert [(each.name, each.title, each.source) for each in chosen.offered] == [
        ("small", "small: n=3, how=mean", "mine.py"),
        ("large", "large: n=500", "mine.py"),
    ]
    checked = chosen.validate({"preset": "small", "how": "sum"})
    assert (checked.resolved, checked.preset) == ({"n": 3, "how": "sum"}, "small")
    with pytest.raises(BadInputError, match=r"has no preset 'other'\. Choose one of: small, large"):
        chosen.validate({"preset": "other"})
    for name, message in {
        "capital": "capital has a preset 'Large one'. Give it a name of lower-case letters",
        "other": "The preset large of other has 'm', which is no parameter. It has: n.",
        "odd": "The preset large of odd holds more than text, numbers and lists of them.",
        "listed": "presets of listed are [1]. Give parameters by name",
    }.items():
        with pytest.raises(BadInputError, match=re.escape(message)):
            template(f"{tmp_path}/mine.py:{name}")


PREPARED = """
import numpy as np

import workbench


def prepare(n, chunks, cluster):
    if n > 1000:
        raise ValueError(f"n is {n}. Give at most 1000.")
    if chunks == "auto":
        return {"chunks": np.int64(n // (cluster.threads or 1))}, f"{cluster.threads} threads share {n} rows."
    return {}


def code(n, chunks):
    return f"import dask.array as da\\n\\nda.ones({n}, chunks={chunks}).sum().compute()"


@workbench.workload(prepare=prepare, code=code, needs=lambda chunks: 8 * chunks)
def total(n: int = 100, chunks: int | str = "auto"):
    import dask.array as da

    return da.ones(n, chunks=chunks).sum()


@workbench.workload(prepare=lambda n: eval(str(n)))
def wrong(n: int | str = ""):
    return n
"""


def test_a_function_prepares_its_parameters_for_the_cluster_and_writes_its_own_cell(tmp_path, data_folder):
    (tmp_path / "mine.py").write_text(PREPARED)
    chosen = template(f"{tmp_path}/mine.py:total")
    checked = chosen.validate({"n": 120}, threads=4)
    assert (checked.resolved, checked.notes) == ({"n": 120, "chunks": 30}, ("4 threads share 120 rows.",))
    assert checked.given == {"n": 120}
    assert chosen.needs(checked).held_total == 240
    code = chosen.cell(checked, "calm-otter")
    assert code.startswith('import workbench\n\nclient = workbench.connect("calm-otter")\n')
    assert code.endswith("da.ones(120, chunks=30).sum().compute()\n")
    assert chosen.validate({"n": 120, "chunks": 7}, threads=4).resolved["chunks"] == 7
    with pytest.raises(BadInputError, match=r"prepare of total failed: ValueError: n is 2000\. Give at most 1000\."):
        chosen.validate({"n": 2000})
    for returned_, message in {
        "7": "prepare of wrong returned 7. Let it return parameters, such as {'n': 1000}, or these and sentences.",
        "{'m': 1}": "wrong has no parameter 'm'.",
        "{'n': []}": "n of wrong is ",
        "{}, [1]": "Let it return parameters",
    }.items():
        with pytest.raises(BadInputError, match=re.escape(message)):
            template(f"{tmp_path}/mine.py:wrong").validate({"n": returned_})


def test_the_form_of_a_function_comes_of_its_signature_and_docstring_and_nothing_is_imported(project, data_folder):
    chosen = template(f"{project}/mine.py:total")
    n = chosen.schema()["properties"]["n"]
    assert (chosen.name, chosen.title, chosen.summary) == ("mine.py:total", "Three times the sum", "Sum of threes.")
    assert " ".join(chosen.help.split()) == "Sum of threes. Returns: n : float Not this."
    assert (n["minimum"], n["maximum"], n["unit"], n["default"]) == (1, 500, "elements", 100)
    assert n["description"] == "Side of the square, in elements."
    assert "print" in chosen.source
    assert not {"mine", "helper"} & sys.modules.keys()
    with pytest.raises(BadInputError, match=r"^n of total is '0'\. Give a whole number from 1 to 500\.$"):
        chosen.validate({"n": "0"})
    needs = chosen.needs(chosen.validate({"n": 200}))
    assert needs.held_total == 8 * 200 * 200
    kinds = template(f"{project}/mine.py:kinds")
    given = {"n": "1e3", "how": "3", "folder": "data", "weights": "1, 2.5", "scale": "none", "shape": "3x4"}
    checked = kinds.validate(given)
    assert checked.resolved == {
        "n": 1000,
        "how": 3,
        "folder": str(Path("data").absolute()),
        "weights": [1, 2.5],
        "scale": None,
        "flag": True,
        "shape": [3, 4],
    }
    assert kinds.validate({"n": 1, "scale": 2}).resolved["scale"] == 2.0
    with pytest.raises(
        BadInputError, match=r"weights of kinds is 'x, y'\. Give values with commas between, each a num"
    ):
        kinds.validate({"n": 1, "weights": "x, y"})
    with pytest.raises(BadInputError, match=r"^kinds needs n\. Give a whole number\.$"):
        kinds.validate({})
    with pytest.raises(BadInputError, match="x of unnamed has neither an annotation nor a default"):
        template(f"{project}/mine.py:unnamed")
    with pytest.raises(BadInputError, match="z of complex_ is annotated with complex, which a form can't ask for"):
        template(f"{project}/mine.py:complex_")
    with pytest.raises(NotFoundError, match=r"mine.py has no function 'totl'\. Did you mean total\? It has: total, ki"):
        template(f"{project}/mine.py:totl")
    with pytest.raises(NotFoundError, match=r"There is no file /.*/nobody\.py"):
        template("nobody.py:total")


def test_what_is_in_a_file_is_asked_once_until_it_changes_or_one_beside_it(project, data_folder, monkeypatch):
    asked = []
    ask = user_functions._ask_process
    monkeypatch.setattr(user_functions, "_ask_process", lambda *about: asked.append(about) or ask(*about))
    where = str(project / "mine.py")
    first = user_functions.contents(where)
    assert user_functions.contents(where) == first
    user_functions._remembered.clear()
    assert user_functions.contents(where) == first
    assert len(asked) == 1
    (project / "helper.py").write_text(HELPER + "\n")
    assert user_functions.contents(where).sha != first.sha


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def f(:\n", r"^bad\.py can't be read: line 1: invalid syntax\.$"),
        ("import os\nimport notthere\n", r"^bad\.py can't be imported: line 2: ModuleNotFoundError: No module named"),
        ("import sys\n\nsys.exit(1)\n", r"^bad\.py can't be imported: line 3: it ends Python\.$"),
        ("import os\nos._exit(0)\n", r"^bad\.py can't be imported: it ended the process that imported it\.$"),
        ("for n in range(100_000):\n    print(n)\nx = 1\n", r"^bad\.py has no public function\.$"),
    ],
)
def test_a_file_that_is_no_workload_is_told_in_a_sentence_with_the_line(tmp_path, data_folder, text, sentence):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises((BadInputError, NotFoundError), match=sentence):
        template(f"{tmp_path}/bad.py")


NO_FORM = """
async def a():
    pass

def b(*args):
    pass

def c(n: int = 3, /):
    pass

def d(n: int = 'abc'):
    pass

def e(x=float('nan')):
    pass
"""


def test_a_function_that_no_form_can_ask_for_says_why(tmp_path, data_folder):
    (tmp_path / "bad.py").write_text(NO_FORM)
    for name, sentence in {
        "a": r"^a is asynchronous\. Give a plain function\.$",
        "b": r"^\*args of b has no name to be given by\.",
        "c": r"^n of c is positional-only, and parameters are given by name\. Remove the /",
        "d": r"^n of d has the default 'abc', which can't be given\. Use a whole number",
        "e": r"^The default of x of e is nan, which isn't plain data",
    }.items():
        with pytest.raises(BadInputError, match=sentence):
            template(f"{tmp_path}/bad.py:{name}")


WRAPPED = """
import functools

@functools.lru_cache
def cached(x: float = 1):
    return x

def bare(function):
    def wrapper():
        return function()
    return wrapper

@bare
def hidden():
    return 1

part = functools.partial(cached, 3)
short = lambda n: n
"""


def test_a_cached_function_is_a_workload_and_what_is_there_and_can_be_none_says_why(tmp_path, data_folder):
    (tmp_path / "fns.py").write_text(WRAPPED)
    cached = template(f"{tmp_path}/fns.py:cached")
    assert repr(cached.validate({}).resolved) == "{'x': 1.0}"
    for given in ("nan", "-inf", float("nan")):
        with pytest.raises(
            BadInputError, match=r"^x of cached is .*\. Give a number, which neither nan nor infinity is"
        ):
            cached.validate({"x": given})
    for name, why in {
        "hidden": "is a function called wrapper. Where a decorator made it, let that use functools.wraps",
        "part": "is a partial, which has no help and text as a function has. Write a function that calls it",
        "short": "is a lambda, which has no help and no types. Write it with def",
    }.items():
        with pytest.raises(BadInputError) as refused:
            template(f"{tmp_path}/fns.py:{name}")
        assert str(refused.value) == f"fns.py has {name}, but it {why}."


def test_a_file_whose_import_does_not_end_is_told_with_the_line_that_goes_on(tmp_path, data_folder, monkeypatch):
    monkeypatch.setattr(user_functions, "DEADLINE", 6.0)
    (tmp_path / "bad.py").write_text("while True:\n    pass\n")
    sentence = r"^bad\.py took longer than 6 s to be imported: line \d was still going on\."
    with pytest.raises(BadInputError, match=sentence):
        template(f"{tmp_path}/bad.py")
    # Nor does the next command wait for it.
    user_functions._remembered.clear()
    monkeypatch.setattr(user_functions, "_ask_process", lambda *_: pytest.fail("It was asked again."))
    with pytest.raises(BadInputError, match=sentence):
        template(f"{tmp_path}/bad.py")
    monkeypatch.setattr(user_functions, "_FORGET", 0.0)
    assert user_functions.known(f"{tmp_path}/bad.py") is None


def test_a_file_that_imports_no_dask_is_described_without_it(tmp_path, data_folder):
    (tmp_path / "light.py").write_text(
        "import sys\n\ndef f(there=any('dask.array' in each for each in sys.modules)): ...\n"
    )
    assert template(f"{tmp_path}/light.py:f").schema()["properties"]["there"]["default"] is False


def test_a_file_for_which_there_was_no_time_is_late_wherever_that_showed(tmp_path, data_folder, monkeypatch):
    monkeypatch.setattr(user_functions, "DEADLINE", 1e-5)  # over before the first line of the file
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(BadInputError, match=r"^slow\.py took longer than .* to be imported: "):
        template(f"{tmp_path}/slow.py")


def test_what_a_function_returns_is_told_apart_into_values_and_arrays(quick_client):
    import dask.dataframe
    import pandas as pd

    array = xarray.DataArray(da.ones((4, 5), chunks=2), dims=("time", "lon"), coords={"time": [1, 2, 3, 4]})
    found = {
        "total": da.ones(10).sum(),
        "large": da.ones((2000, 200)),
        "delayed": dask.delayed(max)(1, 2),
        "nested": [dask.delayed(abs)(-1)],
        "field": array,
        "table": pd.DataFrame({"v": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="k")),
        "odd": {1, 2},
        "nan": float("nan"),
        "deep": {"largest": [float("inf"), 1.0]},
        "names": pd.DataFrame({"n": ["x", "y"], "gap": ["x", None]}),
        "small": np.arange(3),
        "certificate": 5,
    }
    built = function_results.named(found, "f")
    persisted = function_results.collections(built)
    assert list(persisted) == ["total", "large", "field", "delayed", "nested"]
    persisted = dict(zip(persisted, quick_client.persist(list(persisted.values())), strict=True))
    wait(list(persisted.values()))
    gathered = function_results.gathered(persisted)
    assert gathered == ("total", "field", "delayed", "nested")
    futures = quick_client.compute([persisted[name] for name in gathered])
    results = built | persisted | dict(zip(gathered, quick_client.gather(futures), strict=True))
    values = function_results.values(results)
    assert values == {
        "total": 10.0,
        "delayed": 2,
        "nested": [1],
        "odd": "{1, 2}",
        "nan": "nan",
        "deep": {"largest": ["inf", 1.0]},
        "small": [0, 1, 2],
        "certificate_": 5,
    }
    arrays = function_results.arrays(results)
    assert {name: each.dims for name, each in arrays.items()} == {
        "large": ("large_0", "large_1"),
        "field": ("time", "lon"),
        "table.v": ("k",),
        "names.n": ("names_row",),
        "small": ("small_0",),
    }
    assert list(arrays["names.n"].data) == ["x", "y"]
    (said,) = function_results.remarks(results, "f")
    assert said.startswith("Of names not kept: gap.")
    far = dask.dataframe.from_pandas(pd.DataFrame({"v": [1.0, 2.0], "t": ["a", "b"]}), npartitions=2)
    assert [each.data.shape for each in function_results.arrays({"far": far}).values()] == [(2,)]
    assert function_results.remarks({"far": far}, "f")[0].startswith("Of far not kept: t.")
    assert isinstance(arrays["large"].data, da.Array)
    assert list(arrays["field"].coords["time"]) == [1, 2, 3, 4]
    assert list(arrays["table.v"].coords["k"]) == ["a", "b"]
    needs = function_results.needs({"large": built["large"]}, threads_per_worker=2)
    assert (needs.input_bytes, needs.held_per_worker) == (3_200_000, 3 * 3_200_000)  # of its one block
    several = da.ones((2000, 200), chunks=(500, 200))
    assert function_results.needs({"several": several}, threads_per_worker=2).held_per_worker == 2 * 3 * 800_000
    assert needs.sentence.startswith("Estimated from its graph")


def _saved(found, path):
    results = function_results.named(found, "f")
    writing.write(function_results.arrays(results), target(path), mark="mine-1")
    return xarray.open_dataset(path, engine="h5netcdf" if path.suffix == ".nc" else "zarr")


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_what_xarray_knows_of_an_array_stays_with_it(tmp_path, name):
    lat = np.linspace(-80, 80, 12).reshape(3, 4)
    lat[1, 1] = np.nan
    days = xarray.date_range("2000-01-29", periods=5, calendar="360_day", use_cftime=True)
    coords = {"time": days, "lat": (("y", "x"), lat), "height": 2.0, "lead": ("time", np.arange(5).astype("m8[h]"))}
    attrs = {"units": "K", "valid_range": np.array([0.0, 400.0]), "cells": np.int16(3)}
    sst = xarray.DataArray(np.arange(60.0).reshape(5, 3, 4), coords, ("time", "y", "x"), attrs=attrs)
    other = sst.assign_coords(time=xarray.date_range("2000-01-29", periods=5, calendar="noleap", use_cftime=True))
    parts = {"sst": sst, "mean": sst.mean("time"), "at": sst.coords["time"], "other": other}
    with _saved(parts, tmp_path / name) as found:
        np.testing.assert_array_equal(found["sst"], sst)
        np.testing.assert_array_equal(found["mean"].coords["lat"], lat)
        assert list(found["time"].values) == list(found["at"].values) == list(days)
        assert found.sel(time="2000-01").sizes["time"] == 2
        assert found["time_other"].dt.calendar == "noleap"
        np.testing.assert_array_equal(found["lead"], coords["lead"][1])
        assert float(found["height"]) == 2
        assert (found["sst"].attrs["units"], found["sst"].attrs["cells"]) == ("K", 3)
        assert found["sst"].attrs["valid_range"] == "[0.0, 400.0]"
    with _saved(sst.rename("heat"), tmp_path / f"named-{name}") as found:
        assert found["heat"].attrs["units"] == "K"
    stacked = sst.isel(time=0, drop=True).stack(place=("y", "x")).assign_coords(place_id=("place", np.arange(12)))
    with _saved({"of": stacked}, tmp_path / f"stacked-{name}") as found:
        assert set(found["of"].coords) == {"lat", "y", "x", "height", "place_id"}
        np.testing.assert_array_equal(found["of"], np.arange(12.0))


def test_places_that_arrays_were_selected_at_stay_with_each(tmp_path):
    field = xarray.DataArray(np.arange(12.0).reshape(3, 4), {"lat": [-60, 0, 60]}, ("lat", "lon"))
    with _saved({"south": field.sel(lat=-60), "north": field.sel(lat=60)}, tmp_path / "out.nc") as found:
        np.testing.assert_array_equal(found["north"], field[2])
        assert (int(found["south.lat"]), int(found["north.lat"])) == (-60, 60)


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_arrays_of_any_name_are_kept_under_one_that_can_be_saved(tmp_path, name):
    found = {"time": np.ones(3), "a b/c": np.arange(4), "": np.zeros(2), "a b_c": np.ones(2), "..": np.full(2, 7.0)}
    found |= {"table": pandas.DataFrame({"NO₂ µg/m³": [1.0, 2.0], 7: [3.0, 4.0]})}
    found |= {"objects": np.array([{}, []], dtype=object), "spans": np.array([1, 2], "m8[D]")}
    (names, lost) = function_results.remarks(function_results.named(found, "f"), "f")
    assert "'a b/c' as a b_c_2, '' as unnamed" in names
    assert lost == "objects of f holds object, which isn't kept: numbers, dates and text are."
    with _saved(found, tmp_path / name) as saved:
        assert set(saved) == {"time", "a b_c", "a b_c_2", "unnamed", "unnamed_2", "spans", "table.NO₂ µg_m³", "table.7"}
        np.testing.assert_array_equal(saved["a b_c_2"], np.arange(4))
        np.testing.assert_array_equal(saved["spans"], found["spans"])


def test_a_generator_and_an_object_that_is_too_large_are_said_to_be_so(monkeypatch):
    with pytest.raises(FailedError, match="value of f is a generator, which holds no values yet"):
        function_results.named((n for n in range(3)), "f")
    assert list(function_results.named((1, 2), "f", ("u", "v"))) == ["u", "v"]
    monkeypatch.setattr(function_results, "LARGEST", 100)
    large = {"x": np.ones(1000)}
    assert not function_results.arrays(large)
    assert "x of f is one object of 7.81 kiB in one process and is not kept" in function_results.remarks(large, "f")[0]


def test_arrays_in_lists_and_dicts_are_parts_of_the_answer():
    found = {
        "pair": [da.ones(4), np.zeros(30)],
        "fit": {"w": np.ones(30), "n": 2},
        "fit.n": 3,
        "sums": [da.ones(4).sum()],
    }
    built = function_results.named(found, "f")
    assert list(built) == ["pair_1", "pair_2", "fit.w", "fit.n", "fit.n_", "sums"]
    assert isinstance(built["pair_1"], da.Array)
    assert list(function_results.arrays(built)) == ["pair_1", "pair_2", "fit.w"]
    assert function_results.values(function_results.named([1, {"a": 2}], "f")) == {"value": [1, {"a": 2}]}
    many = function_results.named([np.ones(30)] * 101, "f")
    assert function_results.remarks(many, "f")[0].startswith(
        "value of f has more than 100 parts, so its arrays aren't kept"
    )


def test_parts_whose_names_have_one_text_are_all_kept():
    deep = {"x": np.ones(30)}
    found = {1: 2, "1": 3, "certificate": 4, "certificate_": 5, "deep": {1: [{True: 6, "True": 7}]}}
    built = function_results.named(found | {"fit": {1: deep, "1": deep}}, "f")
    assert function_results.values(built) == {
        "1": 2,
        "1_": 3,
        "certificate_": 4,
        "certificate__": 5,
        "deep": {"1": [{"true": 6, "True": 7}]},
    }
    assert list(function_results.arrays(built)) == ["fit.1.x", "fit.1.x_"]
    nested = {"one": {1: 6, "1": {"\udcff": 7, "?": 8}}}
    assert function_results.values(function_results.named(nested, "f")) == {"one": {"1": 6, "1_": {"?": 7, "?_": 8}}}


def test_the_terminal_shows_each_part_by_the_name_that_it_was_given(capsys):
    from workbench import terminal

    result = function_results.values(function_results.named({"energy": 3, "n": 1, "N": 2, 1: 4, "1": 5}, "f"))
    function = Function(reference="/mine.py:f", source="", sha="")
    terminal.show_run(
        Run(id="f-1", workload="f", cluster="c", status="done", created=0.0, function=function, result=result)
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:6] == [
        ["energy", "3"],
        ["n", "1"],
        ["N", "2"],
        ["1", "4"],
        ["1_", "5"],
    ]


@pytest.mark.parametrize(("notes", "texts"), [((), ["It returned nothing."]), (("x isn't kept.",), [])])
def test_a_run_says_that_its_function_returned_nothing(notes, texts):
    function = Function(reference="/mine.py:f", source="", sha="")
    run = Run(
        id="f-1", workload="f", cluster="c", status="done", created=0.0, function=function, result={}, notes=notes
    )
    assert [each.text for each in facts(run) if each.group == "answer"] == texts


def test_what_is_masked_is_missing_and_no_number_and_long_doubles_are_said_to_be_shorter():
    masked = np.ma.masked_equal([1.0, -9999, 3], -9999)
    whole = masked.astype(int)
    found = {"a": masked, "b": da.from_array(masked), "c": whole, "d": da.ma.masked_equal(da.from_array(whole.data), 1)}
    found |= {"e": np.ma.masked_array([1, 2], mask=False), "f": np.ones(2, np.longdouble)}
    found["t"] = np.ma.masked_array(np.array(["2020-01-01", "2020-01-02"], "M8[D]"), [True, False])
    arrays = {name: np.asarray(each.data) for name, each in function_results.arrays(found).items()}
    for name in "abc":
        np.testing.assert_array_equal(arrays[name], [1, np.nan, 3])
    np.testing.assert_array_equal(arrays["d"], [np.nan, -9999, 3])
    assert (arrays["e"].dtype.kind, arrays["f"].dtype, type(arrays["e"])) == ("i", np.float64, np.ndarray)
    assert list(np.isnat(arrays["t"])) == [True, False]
    assert function_results.values(found)["c"] == [1.0, "nan", 3.0]
    assert [said.partition(" of ")[0] for said in function_results.remarks(found, "g")] == ["c", "d", "f"]
    assert (
        function_results.remarks(found, "g")[0]
        == "c of g holds int64 and is kept as float64, with NaN where it is masked."
    )


class _Figure:
    def __repr__(self):
        return "<Figure>"


def test_tables_and_matrices_of_any_kind_are_kept_or_said_not_to_be():
    import pyarrow
    from scipy import sparse

    levels = pandas.MultiIndex.from_product([["v"], ["sum", "mean"]])
    rows = pandas.MultiIndex.from_tuples([("x", 1), ("x", 2)], names=["k", None])
    found = {
        "m": sparse.csr_matrix(np.eye(3)),
        "levels": pandas.DataFrame([[1, 2.0], [3, 4.0]], rows, levels),
        "twice": pandas.DataFrame([[1, 2.0], [3, 4.0]], columns=["a", "a"]),
        "arrow": pyarrow.table({"a": [1, 2]}),
        "figure": _Figure(),
        "date": pandas.Timestamp("2020-01-01"),
    }
    built = function_results.named(found, "f")
    arrays = function_results.arrays(built)
    tables = ["levels.v.sum", "levels.v.mean", "twice.a", "twice.a_2", "arrow.a"]
    assert list(arrays) == ["m.data", "m.indices", "m.indptr", *tables]
    assert [list(each.values) for each in arrays["levels.v.sum"].coords.values()] == [["x", "x"], [1, 2]]
    assert function_results.values(built)["date"] == "Timestamp('2020-01-01 00:00:00')"
    assert (function_results.values(built)["m.shape"], function_results.values(built)["m.format"]) == ([3, 3], "csr")
    assert function_results.remarks(built, "f") == ("Of figure of f, a _Figure, only this text is kept: <Figure>",)


def test_text_that_no_file_holds_is_kept_as_far_as_it_can_be():
    assert function_results.values(function_results.named({"a\udcff": {"b": "\udcff"}}, "f")) == {"a?": {"b": "?"}}


def test_a_declared_function_stays_the_function_that_it_is():
    def total(n=3):
        return n

    assert workload(title="Total")(total) is total
    assert workload(total) is total


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spec):
    with using_data_folder(tmp_path_factory.mktemp("own") / "data"):
        session = Session()
        session.start(spec, name="own", force=True)
        yield session.wait("own", timeout=60)


def test_a_run_of_a_function_is_kept_with_its_code_and_judged_by_its_check(cluster, project):
    reference = f"{project}/mine.py:total"
    run = finish(submit(reference, {"n": 200}, cluster, settings={"array.rechunk.threshold": "5"}).id)
    assert run.error is None
    assert run.settings == {"array.rechunk.threshold": 5}
    assert (run.status, run.result) == ("done", {"value": 120_000.0})
    assert run.check.passed
    assert run.check.what == "is_right of mine.py: three for each element."
    assert run.workload == "mine.py:total"
    assert run.id.startswith("total-")
    assert run.function.reference == reference
    assert "da.map_blocks" in run.function.source
    assert run.needs["sentence"].startswith("Estimated from its graph")
    # The next is forecast from it: of the same numbers also what it needs.
    session, there = Session(), records.read("own")
    again = session.forecast(reference, {"n": 200}, there)
    assert again.verdict == "fits"
    assert (again.basis, again.rough) == ("history", True)
    assert again.source == "1 run on such a cluster; too few to say how far it may be off"
    assert again.seconds["low"] < run.seconds < again.seconds["high"]
    # The same code is run or none.
    sha = run.function.sha
    (project / "helper.py").write_text(HELPER.replace("3", "4"))
    with pytest.raises(ConflictError, match="has changed meanwhile"):
        submit(reference, {}, records.read("own"), sha=sha)
    failed = finish(submit(f"{project}/mine.py:fails", {}, cluster).id)
    assert "mine.py, line 63: ZeroDivisionError: division by zero." in failed.error
    assert failed.check is None


ALL_DECLARED = """
import workbench


def prepare(given, cluster, **parameters):
    return {"n": 8}, f"{sorted(given)} of {sorted(parameters)} on {cluster.threads}"


def needs(n, threads_per_worker):
    return workbench.Needs.of(held=n * threads_per_worker, sentence="Little.")


def check(answer, client):
    return workbench.Check(passed=answer == 8, what="It is eight.", detail=type(client).__name__)


@workbench.workload(prepare=prepare, needs=needs, check=check, code=lambda on_gpu: f"gpu = {on_gpu}")
def eight(n: int = 1):
    return n
"""


def test_a_function_declares_all_that_a_built_in_workload_does(tmp_path, cluster):
    (tmp_path / "mine.py").write_text(ALL_DECLARED)
    chosen = template(f"{tmp_path}/mine.py:eight")
    checked = chosen.validate({"n": "3"}, threads=4, threads_per_worker=2, missing=frozenset({"numba"}))
    assert (checked.resolved, checked.notes) == ({"n": 8}, ("['n'] of ['n'] on 4",))
    assert chosen.needs(checked) == workbench.Needs.of(held=16, sentence="Little.")
    assert [chosen.cell(checked, on_gpu=on_gpu).splitlines()[-1] for on_gpu in (False, True)] == [
        "gpu = False",
        "gpu = True",
    ]
    run = finish(submit(f"{tmp_path}/mine.py:eight", {}, cluster).id)
    assert (run.check.passed, run.check.what, run.check.detail) == (True, "It is eight.", "Client"), run.error


CHAINS = """
def chains():
    import dask.array as da

    a = da.ones((400, 400), chunks=100)
    return ((a[::2] + 1).rechunk((50, 200)).sum(axis=0) * 2).sum()


def computed():
    return chains().compute()
"""


def test_settings_of_graphs_hold_for_one_run_and_what_changes_nothing_is_said(cluster, tmp_path):
    (tmp_path / "mine.py").write_text(CHAINS)

    def ran(name, **settings):
        run = finish(submit(f"{tmp_path}/mine.py:{name}", {}, cluster, settings=settings).id)
        assert (run.error, run.result) == (None, {"value": 320_000.0})
        return run.progress.total, run.notes[-1]

    usual, _ = ran("chains")
    more, note = ran("chains", **{"optimization.fuse.active": "false"})
    assert more > usual
    assert note.startswith("Estimated from its graph")
    same, note = ran("chains", **{"optimization.fuse.ave-width": "5"})
    assert same == usual
    assert note.startswith("optimization.fuse.ave-width: nothing was changed by it. This Dask fuses chains")
    _, note = ran("computed", **{"optimization.fuse.active": "false"})
    assert note.startswith("optimization.fuse.active: nothing was changed by it. This computes as it goes")


MANY_KINDS = """
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import get_client


def kinds():
    numbers = da.from_array(np.array([1, -9999, 3]), chunks=2)
    column = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}), npartitions=2).a
    return {
        "sum": column.sum(),
        "mean": [column.mean()],
        "pair": [da.ones((3, 2)), np.zeros(3)],
        "fit": {"gaps": da.ma.masked_equal(numbers, -9999)},
        "text": "a\\udcff",
        "long": np.longdouble(2),
        "future": get_client().submit(abs, -3),
        # Names of ours that mean something else.
        "seconds_to_make": 1000.0,
        "seconds_at": None,
        "seconds_x": 2.5,
        "time_x": 4,
        "singular_values": "none",
        "explained_variance_ratio": 3,
        "separated": [True],
    }


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


def mute():
    raise MuteError
"""


def test_an_answer_of_many_kinds_is_kept_and_saved(cluster, tmp_path):
    (tmp_path / "many.py").write_text(MANY_KINDS)
    run = finish(submit(f"{tmp_path}/many.py:kinds", {"save": f"{tmp_path}/out.npz"}, cluster).id)
    assert run.error is None
    told = {"sum": 3.0, "mean_1": 1.5, "text": "a?", "long": 2.0, "future": 3}
    told |= {"seconds_to_make_": 1000.0, "seconds_at": None, "seconds_x": 2.5, "singular_values_": "none"}
    told |= {"explained_variance_ratio_": 3, "separated": [True]}
    assert {name: run.result[name] for name in told} == told
    assert 0 < run.seconds < 900
    assert "seconds_x 2.5" in headline(run.workload, run.result)
    with np.load(tmp_path / "out.npz") as saved:
        assert set(saved) >= {"pair_1", "pair_2", "fit.gaps"}
        np.testing.assert_array_equal(saved["fit.gaps"], [1, np.nan, 3])
    failed = finish(submit(f"{tmp_path}/many.py:mute", {}, cluster).id)
    assert (failed.status, failed.error.partition(". ")[0]) == (
        "failed",
        "many.py, line 37: MuteError: (its text failed with RuntimeError)",
    )


READS = """
from pathlib import Path
from typing import Annotated

import numpy as np
import workbench

Name = Annotated[str, workbench.Words(path=True)]


def read(
    path: workbench.Path, more: list[Path], winds: Path | None = None, name: Name | None = None, remove: str = "mean",
    to: Path | None = None,
):
    assert (type(path), type(name), isinstance(winds, Path), remove) == (str, str, True, "mean")
    return [float(np.load(each)) for each in (path, winds, name, *more)]
"""


def test_a_relative_path_is_of_the_folder_where_it_is_given_also_as_a_text(cluster, project, tmp_path, monkeypatch):
    (project / "reads.py").write_text(READS)
    np.save(project / "in.npy", 1.0)
    np.save(tmp_path / "in.npy", 2.0)
    monkeypatch.chdir(tmp_path)
    given = dict.fromkeys(("path", "winds", "name"), "in.npy")
    run = finish(submit(f"{project}/reads.py:read", given | {"more": ["in.npy"]}, cluster).id)
    assert (run.error, *run.result.values()) == (None, [2.0, 2.0, 2.0, 2.0])
    there = str(tmp_path / "in.npy")
    assert run.parameters == dict.fromkeys(given, there) | {"more": [there]}
    chosen, scope = template(f"{project}/reads.py:read"), {}
    exec(chosen.cell(chosen.validate(given | {"more": ["in.npy"]})), scope)
    assert scope["answer"] == [2.0, 2.0, 2.0, 2.0]
    # A default is one of the function's folder, in which its tasks needn't run.
    assert template(f"{project}/mine.py:kinds").validate({"n": 1}).resolved["folder"] == str(project)


LATE = """
import dask.array as da


def in_task(block):
    import parts.inner

    return parts.inner.scaled(block)


def lazily(n: int = 4):
    import helper
    return da.map_blocks(helper.triple, da.ones(n, chunks=2), dtype=float).sum()


def later(n: int = 4):
    return da.map_blocks(in_task, da.ones(n, chunks=2), dtype=float).sum()
"""


def test_a_function_may_import_a_module_beside_it_and_a_task_may_not(cluster, project):
    _written(project, {"late.py": LATE, "parts/inner.py": "def scaled(x):\n    return 10 * x\n"})
    first = finish(submit(f"{project}/late.py:lazily", {}, cluster).id)
    assert (first.error, first.result) == (None, {"value": 12.0})
    # What was changed is another code, and no worker keeps the old one.
    (project / "helper.py").write_text(HELPER.replace("3", "30"))
    second = finish(submit(f"{project}/late.py:lazily", {}, cluster).id)
    assert (second.error, second.result) == (None, {"value": 120.0})
    failed = finish(submit(f"{project}/late.py:later", {}, cluster).id)
    assert failed.error.startswith(
        "Tasks can't import parts, which is next to late.py on this machine only. Import it at the top of late.py, or "
        "send it to the workers with client.upload_file(…)."
    )


LAZY = """
def lazy(n: int = 20_000):
    import dask.array as da

    return da.ones((n, n), chunks=n).sum()
"""


def test_what_ended_well_on_such_a_cluster_is_not_refused_there_for_what_its_graph_made_one_expect(cluster, project):
    (project / "lazy.py").write_text(LAZY)
    first = finish(submit(f"{project}/lazy.py:lazy", {}, cluster).id)
    assert (first.error, first.result) == (None, {"value": 4e8})
    assert "If so: Won't fit" in first.notes[0]
    told = Session().forecast(f"{project}/lazy.py:lazy", {}, records.read("own"))
    assert told.verdict is None
    assert f"It fitted such workers in the run {first.id}." in told.sentence
    assert finish(submit(f"{project}/lazy.py:lazy", {}, cluster).id).status == "done"
    # Of workers with less memory that run tells nothing.
    smaller = cluster.spec.model_copy(update={"memory_limit": cluster.spec.memory_limit // 2})
    assert Session().forecast(f"{project}/lazy.py:lazy", {}, smaller).verdict == "won't fit"


PACKAGED = """
import dask.array as da

from . import numbers_
from .deep.helper import double
from .late import TEN


def in_task(block):
    return TEN * numbers_.scaled(double(block))


def relative(n: int = 4):
    return da.map_blocks(in_task, da.ones(n, chunks=2), dtype=float).sum()
"""


def test_a_function_in_a_package_is_imported_as_part_of_it_here_and_on_workers(cluster, tmp_path):
    deep = tmp_path / "package" / "deep"
    deep.mkdir(parents=True)
    for path, text in {
        "__init__.py": "FACTOR = 3\n",
        "package.py": PACKAGED,
        "numbers_.py": "from beside import by\nfrom package import FACTOR\n\nscaled = lambda x: by(x, FACTOR)\n",
        "../beside.py": "def by(x, n):\n    return n * x\n",
        "late.py": "TEN = 10\n",
        "deep/__init__.py": "",
        "deep/helper.py": "def double(x):\n    return 2 * x\n",
        "deep/more.py": "from ..package import relative\n\n\ndef again(n: int = 2):\n    return relative(n)\n",
    }.items():
        (tmp_path / "package" / path).write_text(text)
    run = finish(submit(f"{tmp_path}/package/package.py:relative", {}, cluster).id)
    assert (run.error, run.result) == (None, {"value": 240.0})
    inner = finish(submit(f"{tmp_path}/package/deep/more.py", {}, cluster).id)
    assert (inner.error, inner.result) == (None, {"value": 120.0})
    with pytest.raises(NotFoundError, match=r"named with its file, such as package/package\.py:relative\.$"):
        template("package.package:relative")


SHIPPED = {
    "things.py": """
import enum
import functools
import threading
from dataclasses import dataclass

import mine

LOCK = threading.Lock()


class Kind(enum.Enum):
    A = 1


@dataclass(frozen=True)
class Square:
    side: int

    class Inside:
        pass

    def area(self):
        return self.side**2 * len(table(2))


@functools.lru_cache
def table(n):
    return [0] * n if n < 2 else table(n - 1) + [0]


def is_square(given, kind):
    return isinstance(given, mine.shapes.Square) and kind is mine.shapes.Kind.A


def locked(x):
    with LOCK:
        return x
""",
    "shapes.py": """
import mine
from things import Kind, Square, is_square, table


def scaled(x):
    return x * mine.SCALE
""",
    "tools/deep.py": "def two():\n    return 2\n",
    "mine.py": """
import dask
import dask.array as da

import shapes
import tools.deep
from shapes import table

SCALE = 1


def scaled(x):
    return shapes.scaled(x) * len(table(tools.deep.two()))


def around(n):
    def inside(block):
        return block * shapes.Kind.A.value * n

    return inside


def one(n: int = 2):
    global SCALE
    SCALE = n
    ones, square = da.ones(4, chunks=2), shapes.Square(3)
    return {
        "area": dask.delayed(square.area)(),
        "is": dask.delayed(shapes.is_square)(square, shapes.Kind.A),
        "apart": dask.delayed(shapes.is_square)(square, shapes.Kind.A).compute(scheduler="processes", num_workers=1),
        "back": dask.delayed(shapes.Square)(n).compute() == shapes.Square(n),
        "inside": dask.delayed(isinstance)(square.Inside(), square.Inside),
        "scaled": da.map_blocks(scaled, ones, dtype=float).sum(),
        "around": da.map_blocks(around(n), ones, dtype=float).sum(),
    }


def locked():
    import things

    return dask.delayed(things.locked)(1)
""",
}


def _written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)


def test_modules_that_import_each_other_travel_with_classes_caches_and_values_of_the_call(cluster, tmp_path):
    lock = "LOCK = threading.Lock()"
    _written(tmp_path, SHIPPED | {"things.py": SHIPPED["things.py"].replace(lock, "")})
    for n in (2, 3):
        run = finish(submit(f"{tmp_path}/mine.py:one", {"n": n}, cluster).id)
        told = {"area": 18, "is": True, "apart": True, "back": True, "inside": True}
        assert (run.error, run.result) == (None, told | {"scaled": 8.0 * n, "around": 4.0 * n})
    (tmp_path / "things.py").write_text(SHIPPED["things.py"])
    failed = finish(submit(f"{tmp_path}/mine.py:locked", {}, cluster).id)
    assert failed.error.startswith(
        "cannot pickle '_thread.lock' object: tasks need such a value of mine.py or of a module"
    )


AT_ONCE = """
import time
from pathlib import Path

import kinds
import late


def waiting(block):
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    return block * late.factor(kinds.Kind.A)


def total(n: int = 2):
    import dask.array as da

    return da.map_blocks(waiting, da.ones(n, chunks=1), dtype=float).sum()
"""


def test_runs_at_once_of_versions_of_a_file_each_have_their_own_answer(cluster, tmp_path):
    late = "from kinds import Kind\n\n\ndef factor(kind):\n    return {} if kind is Kind.A else 0\n"
    kinds = "import enum\n\n\nclass Kind(enum.Enum):\n    A = 1\n"
    _written(tmp_path, {"mine.py": AT_ONCE, "kinds.py": kinds})
    runs = []
    # The last is of the same code as the one before it.
    for factor in (2, 3, 3):
        (tmp_path / "late.py").write_text(late.format(factor))
        runs.append(submit(f"{tmp_path}/mine.py:total", {}, cluster).id)
        until(lambda: store.get(runs[-1]).status == "running", about=lambda: store.get(runs[-1]))
    (tmp_path / "go").touch()
    assert [finish(run).result for run in runs] == [{"value": 4.0}, {"value": 6.0}, {"value": 6.0}]


LACKING = """import dask


def lacking():
    return dask.delayed(lambda: open("beside.txt").read())()
"""


def test_the_line_is_named_of_a_function_that_came_without_its_file(tmp_path):
    """As from cloudpickle 3.1.3 on; a function of somebody else's may have come so, too."""
    from workbench.workloads.values import Function

    (tmp_path / "mine.py").write_text("f = 1\n\ndef lacking():\n    return (lambda: 1 / 0)()\n")
    function = Function(reference=f"{tmp_path}/mine.py:lacking", source="", sha="")
    run = Run(id="f-1", workload="f", cluster="c", function=function)
    for code, said in (
        ("\n\n\n(lambda: 1 / 0)()", "mine.py, line 4: ZeroDivisionError"),
        ("\n\n(lambda: 1 / 0)()", "ZeroDivisionError"),
        ("\n\n\ndef other(): 1 / 0\nother()", "ZeroDivisionError"),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile(code, "<dynamic-code>", "exec"), {})
        assert failures.sentence(caught.value, run, None).startswith(said)


def test_a_file_beside_a_module_is_not_there_for_tasks(cluster, tmp_path):
    _written(tmp_path, {"mine.py": LACKING, "beside.txt": ""})
    failed = finish(submit(f"{tmp_path}/mine.py:lacking", {}, cluster).id)
    said = rf"mine\.py, line 5: beside\.txt is in {tmp_path}, where the function is called, and its tasks work in other"
    assert re.match(said, failed.error)


def test_the_standard_library_is_nobodys_own_where_it_lies_below_a_persons_file():
    module = ModuleType("mine")
    module.__file__ = str(Path(asyncio.__file__).parents[3] / "mine.py")
    assert asyncio.__file__ not in importing.own_modules(module)


def test_a_folder_that_cannot_be_a_package_has_files_as_any(tmp_path, data_folder):
    folder = tmp_path / "json"
    folder.mkdir()
    for name, text in {"__init__": "", "mine": "import beside\n\n\ndef f(n=1):\n    return n\n", "beside": ""}.items():
        (folder / f"{name}.py").write_text(text)
    assert [each.name for each in user_functions.functions(f"{folder}/mine.py")] == ["f"]


def test_the_page_finds_a_function_of_any_file_and_has_its_form(tmp_path: Path, data_folder: Path) -> None:
    path = tmp_path / "analysis.py"
    path.write_text("def total(n: int = 7):\n    return n\n\n\ndef bad(n):\n    return n\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no function", encoding="utf-8")
    folder = html_of("work", {"browse.functions": str(tmp_path)})
    assert str(path) in folder
    assert "notes.txt" not in folder
    inside = html_of("work", {"browse.functions": str(path)})
    assert f"{path}:total" in inside
    assert "n of bad has neither an annotation nor a default" in inside
    choices = {"workload": f"{path}:total"}
    form = html_of("work", choices)
    assert 'name="run.analysis.py:total.n"' in form
    assert f"{path}:total" in html_of("compare", choices)
    path.unlink()
    gone = html_of("work", choices)
    assert f"There is no file {path}" in gone
    assert 'data-workbench="run-button"' in gone


def test_fields_of_paths_are_found_by_their_type_and_not_by_their_name(tmp_path: Path, data_folder: Path) -> None:
    (tmp_path / "reads.py").write_text(READS, encoding="utf-8")
    np.savez(tmp_path / "two.npz", a=np.ones((2, 3)), b=np.ones(4))
    chosen = {"workload": f"{tmp_path}/reads.py:read", "run.reads.py:read.winds": f"{tmp_path}/two.npz"}
    html = html_of("work", chosen)
    droppable = [each for each in re.findall("<input[^>]*>", html) if "data-drop" in each]
    fields = ["path", "to", "winds", "name"]
    assert re.findall(r'name="run\.reads\.py:read\.(\w+)"', "".join(droppable)) == [*fields, "save"]
    assert re.findall(r'data-workbench="browse-(?!functions)(\w+)"', html) == fields
    assert re.search(r"NumPy arrays, \d+ B: 2 arrays", html)
    assert template("eofs").paths == ("path", "save")
    genotypes = ("path", "labels", "keep_samples", "remove", "leave_out", "save")
    assert template("genotype_pca").paths == genotypes


def test_files_in_workloads_and_packages_are_listed_beside_ours_and_what_is_broken_says_why(
    tmp_path, data_folder, monkeypatch
):
    here = Path(__file__).parent
    about = tmp_path / "somebodys_workload-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-workload\nVersion: 1.0\n")
    points = "tea = somebodys_workload:steep\ngone = no_such_module:f\nmany = many_workloads\n"
    (tmp_path / "many_workloads.py").write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    (about / "entry_points.txt").write_text(f"[workbench.workloads]\n{points}")
    for path in (str(tmp_path), str(here)):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{here}:{here.parent}")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, data_folder):
        (folder / "workloads").mkdir(parents=True, exist_ok=True)
    (tmp_path / "workloads" / "mine.py").write_text("def double(n=1):\n    return 2 * n\n")
    (tmp_path / "workloads" / "bad.py").write_text("1 / 0\n")
    (data_folder / "workloads" / "double.py").write_text("def double(n=1):\n    return n + n\n")
    for folder in (tmp_path, data_folder):
        (folder / "workloads" / "clash.py").write_text("def array_sum():\n    return 1\n")
    trust_here()
    session = Session()
    assert all(each.origin == "dask-workbench" for each in session.workloads(wait=False))
    found = {each.name: each.origin for each in session.workloads() if each.origin != "dask-workbench"}
    assert found == {
        "clash:array_sum": "clash.py here",
        "double": "mine.py here",
        "double:double": "double.py added",
        "tea": "package somebodys-workload",
        "many:one": "package somebodys-workload",
        "many:two": "package somebodys-workload",
    }
    whys = {Path(where).name: why for where, why in session.broken_workloads(wait=False)}
    assert whys["bad.py"] == "bad.py can't be imported: line 1: ZeroDivisionError: division by zero."
    assert whys["clash.py:array_sum"].startswith("Another workload is called clash:array_sum.")
    assert whys["no_such_module"].startswith("no_such_module can't be imported: ModuleNotFoundError")
    tea = session.workload("tea")
    assert (tea.title, tea.schema()["properties"]["n"]["unit"]) == ("Tea", "cups")
    assert "somebodys_workload" not in sys.modules
    loaded = user_functions.loaded(tea.pinned, tea.name)
    result, check = loaded.compute(loaded.validate({"n": 8}))
    assert (result, check.passed, check.what) == (
        {"value": 2.0},
        True,
        "is_full of somebodys_workload: 8 cups of a quarter of a litre.",
    )


def _run_in_a_kernel(folder, *cells):
    """Run the cells of a notebook in a folder, and return the output of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return ["".join(each.get("text", "") for each in cell.outputs) for cell in notebook.cells]


WORKS_BESIDE = """%%workload beside
import dask.array as da
import helper
from pathlib import Path

def in_task(block):
    return 10 * helper.triple(block)

def beside(path: Path = Path("helper.py"), n: int = 4):
    assert path.is_absolute() and Path("helper.py").exists()
    return da.map_blocks(in_task, da.ones(n, chunks=2), dtype=float).sum()
"""


def test_a_cell_works_in_the_folder_of_its_notebook_with_the_modules_beside_it(cluster, project):
    (project / "beside.py").write_text("")  # has the name of the workload
    called = "print(beside(Path('helper.py').absolute(), 2).compute())"
    said = _run_in_a_kernel(project, "%load_ext workbench", WORKS_BESIDE, called)
    assert said[1].startswith("Saved as the workload beside. Run it from the sidebar, or with: workbench run beside")
    assert said[2] == "60.0\n"
    run = finish(submit("beside", {}, cluster).id)
    assert (run.error, run.result) == (None, {"value": 120.0})
    assert template("beside").validate({}).resolved["path"] == f"{project}/helper.py"
    project.rename(project.with_name("gone"))
    with pytest.raises(BadInputError, match=rf"beside\.py works in the folder {project}, which isn't there"):
        user_functions.find(str(listing.added_folder() / "beside.py"))


def _named(name, seconds, peak=100, sha="1"):
    from workbench.runs import store
    from workbench.runs.run import Diagnosis, Peak, Run
    from workbench.workloads.values import Function

    for number, each in enumerate(seconds):
        held = Peak(worker="0", task="sum", bytes=peak + number, limit=1000)
        store.create(
            Run(
                id=f"total-{name}{number}",
                workload="mine.py:total",
                cluster="c",
                status="done",
                created=float(number),
                seconds=each,
                result={"value": 1.0},
                function=Function(reference="/mine.py:total", source="", sha=sha),
                diagnosis=Diagnosis(seconds=1, threads=1, workers=1, shares={}, sentence="", peak=held),
            )
        )
        store.mark(f"total-{name}{number}", name=name)


def test_runs_of_one_name_are_pooled_and_a_gate_fails_only_what_is_surely_slower(data_folder, capsys):
    from workbench.cli import main
    from workbench.runs import store

    _named("v1", [1.0, 1.01, 0.99, 1.02, 1.0])
    _named("v2", [1.3, 1.31, 1.32, 1.29, 1.3], peak=200, sha="2")
    _named("v3", [1.0, 1.02, 1.01, 0.98, 1.01])
    _named("few", [9.0])
    assert store.find("v2").id == "total-v24"
    groups = ["compare", "--runs", "v1", "v2"]
    assert main([*groups, "--fail-if-slower", "10%", "--fail-if-memory-over", "500%"]) == 3
    said = capsys.readouterr()
    assert "v2: time 1.3 times that of v1" in said.err
    assert "over the limit of 1.1 times" in said.err
    assert "They are of different code." in " ".join(said.out.split())
    assert ("RUNS" in said.out, "HARDWARE" in said.out) == (True, False)
    assert "v2: memory" in said.err
    assert "within the limit of 6 times" in said.err
    assert main([*groups, "--fail-if-memory-over", "10%"]) == 3
    capsys.readouterr()
    # The limit lies in the interval: more than a tenth slower is likely, and not sure.
    _named("noisy", [1.0, 1.3, 1.05, 1.25, 1.2])
    assert main(["compare", "--runs", "v1", "noisy", "--fail-if-slower", "10%"]) == 0
    assert re.search(r"undecided at the limit of 1\.1 times: repeat \d+ more times", capsys.readouterr().err)
    assert main(["compare", "--runs", "v1", "v3", "--fail-if-slower", "10%"]) == 0
    capsys.readouterr()
    assert main(["compare", "--runs", "v1", "few", "--fail-if-slower", "10%"]) == 2
    assert "few: its time can't be judged. It has the time of 1 run, 4 of each are needed" in capsys.readouterr().err
    assert main(["compare", "--runs", "v1", "nobody"]) == 2
    assert main(["compare", "--runs", "v1", "v2", "--fail-if-slower", "fast"]) == 2
    assert "The limit is 'fast'. Give a percentage such as 10%." in capsys.readouterr().err


def test_a_gate_judges_what_can_be_and_says_why_it_can_not_judge_the_rest(data_folder, capsys):
    from workbench.cli import main
    from workbench.runs import store

    _named("v1", [1.0, 1.01, 0.99, 1.02, 1.0])
    _named("quick", [1.3, 1.31, 1.32, 1.29, 1.3])
    _named("broken", [1.0])
    for run in store.of_name("quick"):
        store.update(run.id, diagnosis=None)
    store.update("total-broken0", status="failed", error="No module named 'mine'.")
    command = ["compare", "--fail-if-memory-over", "10%"]
    groups = ["--runs", "v1", "quick"]
    assert main([*command, *groups, "--fail-if-slower", "10%"]) == 3
    assert "its runs are too short for a worker to be sampled" in capsys.readouterr().err
    assert main([*command, *groups, "--fail-if-slower", "50%"]) == 2
    capsys.readouterr()
    for groups in (["--runs", "v1", "broken"], ["--runs", "broken", "v1"]):
        assert main([*command, *groups]) == 1
        said = capsys.readouterr()
        assert "has runs that failed: No module named 'mine'." in said.err
        assert "All answers are the same" not in said.out


def test_what_is_watched_keeps_its_answer_and_its_tags(quick_client, data_folder):
    with workbench.watch(quick_client, name="v1", tags={"git": "3fa29c"}) as run:
        run.answer = {"total": da.ones(10).sum().compute(), "tasks": "many"}
        with pytest.raises(BadInputError, match="The answer isn't computed yet"):
            run.answer = da.ones(10)
    assert run.result["total"] == 10.0
    assert run.result["tasks"] > 0
    assert run.result["tasks_"] == "many"
    assert run.parameters["tags"] == {"git": "3fa29c"}


@pytest.mark.parametrize("apart", [{"value": 2.0}, {"value": [1, 2, 4]}])
def test_a_gate_fails_where_answers_of_watched_groups_differ(data_folder, capsys, apart):
    from workbench.cli import main
    from workbench.runs import store

    for name, answer in (("p", {"value": [1, 2, 3]}), ("q", apart), ("same", {"value": [1, 2, 3]})):
        _named(name, [1.0, 1.01, 0.99, 1.02])
        given = {"name": name, "tags": {"git": name}, "source": f"run({name})"}
        for run in store.of_name(name):
            watched = {"workload": WATCHED, "parameters": given, "resolved": given, "function": None}
            store.delete(run.id)
            store.create(run.model_copy(update=watched | {"result": {"tasks": 3, "tasks_of_others": 0, **answer}}))
    gate = ["compare", "--fail-if-slower", "90%", "--runs", "p"]
    assert main([*gate, "q"]) == 1
    assert "The answers do not agree. The answers of p and q differ: " in " ".join(capsys.readouterr().err.split())
    assert main([*gate, "same"]) == 0


def test_a_page_hears_of_a_function_that_was_added(data_folder: Path) -> None:
    before = listing.stamp()
    listing.added_folder().mkdir(parents=True)
    (listing.added_folder() / "total.py").write_text("def total() -> int:\n    return 1\n")
    assert len(listing.stamp()) == len(before) + 1


def test_a_file_that_is_looked_at_by_a_process_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(3)\npathlib.Path('over').touch()\n"
    )
    (tmp_path / "tmp").mkdir()
    code = f"from workbench.workloads import user_functions; user_functions.contents({str(tmp_path / 'slow.py')!r})"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}) as asks:
        until((tmp_path / "begun").exists, 60)
        asks.kill()
    until((tmp_path / "over").exists, 30)
    assert [*(tmp_path / "tmp").iterdir()] == []
