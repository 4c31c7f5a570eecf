"""Pictures of answers: what is drawn of which arrays, on a page and in files."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.views import html_of
from workbench.cli import main
from workbench.figures.answers import Dots, Line, Map, Picture, pictures
from workbench.figures.paper import page_png, write_picture
from workbench.figures.report import report_html
from workbench.runs import store
from workbench.runs.answers import Answers, Array
from workbench.runs.run import Run
from workbench.storage.variables import dataset
from workbench.views.run_files import pictures_of, small_pictures
from workbench.workloads.svd_of_file import OF_FILE as SVD

TEXT = np.dtypes.StringDType()
RNG = np.random.default_rng(0)
RESULT = {
    "singular_values": [3.0, 2.0],
    "certificate": {"bound": [1e-3, None], "of_largest": [1e-3, 1.0], "sentence": "Proved."},
}
SAMPLES = dataset(
    {"scores": (("sample", "component"), RNG.normal(size=(60, 5)))},
    {"sample": [f"s{i}" for i in range(60)], "population": ("sample", np.array(["here", "there"] * 30, TEXT))},
)
CLIMATE = dataset(
    {
        "patterns": (("mode", "lat", "lon"), RNG.normal(size=(3, 20, 30))),
        "series": (("time", "mode"), RNG.normal(size=(48, 3))),
    },
    {
        "lat": np.linspace(90, -90, 20),
        "lon": np.arange(30.0),
        "time": np.arange("2000-01", "2004-01", dtype="datetime64[M]"),
    },
)
NOTHING = dataset({})


def test_samples_are_drawn_two_components_at_a_time_with_the_label_that_tells_them_apart() -> None:
    found = {each.name: each for each in pictures(SAMPLES, {"explained_variance_ratio": [0.5, 0.25, 0.1, 0, 0]})}
    assert [name for name in found if name.startswith("scores")] == ["scores-1-2", "scores-3-4"]
    dots = found["scores-1-2"].drawn
    assert isinstance(dots, Dots)
    assert (dots.label, dots.labels[:2], dots.names[:2]) == ("population", ("here", "there"), ("s0", "s1"))
    np.testing.assert_array_equal(dots.y, np.asarray(SAMPLES["scores"].data)[:, 1])
    assert found["scores-1-2"].across == "component 1 (50 % of the variance)".capitalize()


@pytest.mark.parametrize("k", [3, None])
def test_what_so_many_components_leave_out_is_drawn_of_an_svd(k: int | None, tmp_path: Path, data_folder: Path) -> None:
    x = RNG.normal(size=(300, 8)) * 0.5 ** np.arange(8)
    np.save(tmp_path / "x.npy", x)
    built = SVD.build(parameters := SVD.validate({"path": str(tmp_path / "x.npy"), "k": k, "tol": 1e-6}))
    results = built | {name: built[name].compute() for name in "usv"}
    found = {each.name: each for each in pictures(SVD.arrays(results, parameters.resolved), SVD.summarise(results))}
    u, s, v = np.linalg.svd(x, full_matrices=False)
    errors = [np.linalg.norm(x - (u[:, :n] * s[:n]) @ v[:n]) / np.linalg.norm(x) for n in range(1, (k or 8) + 1)]
    (line,) = found["error"].drawn  # type: ignore[misc]
    np.testing.assert_allclose(line.y, np.multiply(100, errors), atol=1e-4)


def test_patterns_are_maps_and_series_lines_over_time() -> None:
    found = {each.name: each for each in pictures(CLIMATE, {})}
    assert list(found) == ["patterns-1", "patterns-2", "patterns-3", "series"]
    drawn = found["patterns-2"].drawn
    assert isinstance(drawn, Map)
    np.testing.assert_array_equal(drawn.values, np.asarray(CLIMATE["patterns"].data)[1])
    assert found["series"].drawn[0].x.dtype.kind == "M"  # type: ignore[index]


def test_other_arrays_are_lines_and_maps_in_colours_of_their_values() -> None:
    arrays = {"t": (("lat", "lon"), RNG.random((4, 5)) + 280), "n": ("bin", np.arange(3))}
    arrays |= {"c": (("a", "b", "c"), np.zeros((2, 2, 2))), "w": ("d", np.array(["a", "b"]))}
    coords = {"lat": np.arange(4.0), "left": ("bin", np.arange(3.0)), "right": ("bin", np.arange(1.0, 4))}
    found = {each.name: each.drawn for each in pictures(dataset(arrays, coords), {})}
    assert list(found) == ["t", "n"]
    assert isinstance(found["t"], Map)
    assert found["t"].range == (arrays["t"][1].min(), arrays["t"][1].max())
    np.testing.assert_array_equal(found["n"][0].x, [0.5, 1.5, 2.5])  # type: ignore[index]
    low, high = Map(np.arange(2.0), np.arange(1.0), np.array([[-1.0, np.nan], [4.0, 0.0]])).range
    assert (low, high) == (-4, 4)


def test_of_many_rows_a_sample_is_drawn() -> None:
    (u,) = pictures(dataset({"u": (("row", "component"), RNG.normal(size=(73_282, 2)))}), {})
    assert u.title == "u, 300 of 73,282 rows, spread evenly"
    assert [len(line.x) for line in u.drawn] == [300, 300]  # type: ignore[union-attr]


def test_a_long_label_of_an_axis_is_not_cut_in_a_small_picture() -> None:
    dots, label = Dots(RNG.random(9), RNG.random(9), (), (), ""), "Component 2 (1.2 % of the variance)"
    png = page_png(Picture("scores", "scores", "Component 1", label, dots), is_small=True)
    with Image.open(io.BytesIO(base64.b64decode(png))) as drawn:
        ink = np.asarray(drawn.convert("RGBA"))[..., 3]
    assert not ink[[0, -1]].any()


def test_the_names_of_lines_stand_above_them() -> None:
    from matplotlib.figure import Figure

    from workbench.figures.paper import _draw

    axes = _draw(Figure(layout="constrained"), Picture("v", "v", "row", "", (Line(RNG.random(9), RNG.random(9), "a"),)))
    axes.figure.canvas.draw()
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1


def test_what_so_many_components_leave_out_follows_from_their_shares() -> None:
    (_, error) = pictures(NOTHING, {"explained_variance_ratio": [0.75, 0.25]})
    np.testing.assert_allclose(error.drawn[0].y, [50.0, 0.0])  # type: ignore[index]


def test_a_value_is_drawn_with_how_far_it_may_be_off() -> None:
    (scree,) = pictures(NOTHING, RESULT)
    (line,) = scree.drawn  # type: ignore[misc]
    np.testing.assert_allclose(line.high - line.y, [3e-3, 0.0])


@pytest.mark.parametrize(("kind", "first"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_every_picture_can_be_a_file(kind: str, first: bytes) -> None:
    one_of_each = [each for each in pictures(SAMPLES.merge(CLIMATE), RESULT) if not each.name.endswith(("2", "3", "4"))]
    for each in one_of_each:
        file = io.BytesIO()
        write_picture(each, file, kind)
        assert file.getvalue().startswith(first)


@pytest.fixture
def run(data_folder: Path) -> str:
    return store.create(Run(id="svd-1", workload="svd", cluster="c", status="done", result=RESULT, seconds=1.0)).id


def test_pictures_of_an_answer_stand_small_beside_its_words(run: str) -> None:
    found = small_pictures(run, 0)
    assert [title for _, title, _ in found] == [each.title for each in pictures_of(store.get(run))]
    for _, _, png in found:
        with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
            assert picture.size == (960, 460)
            # Nothing behind it, on a dark page too.
            assert picture.convert("RGBA").getpixel((1, 1))[3] == 0


def test_a_picture_of_a_run_is_saved_as_what_the_path_ends_with(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scree.svg"
    assert main(["save", run, str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert "Scree plot" in path.read_text()
    assert main(["save", run, str(path)]) == 2
    assert f"{path} is there already." in capsys.readouterr().err
    assert main(["save", run, str(path), "--as", "png", "--replace"]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_there_is_none_of_lists_which_there_are(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["save", run, str(tmp_path / "x.png"), "--only", "map"]) == 2
    assert "has no picture 'map'. Choose one of: scree." in capsys.readouterr().err
    assert list(tmp_path.glob("*.png")) == []


def test_a_picture_in_a_folder_that_isnt_there_is_refused_in_a_sentence(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["save", run, str(tmp_path / "nowhere" / "x.png")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_the_report_has_the_pictures_of_an_answer() -> None:
    run = Run(id="eofs-1", workload="eofs", cluster="c", status="done", result=RESULT)
    drawn = pictures(CLIMATE, RESULT)
    html = report_html(run, None, drawn)
    assert [each.title for each in drawn] == re.findall("<figcaption>([^<]*)</figcaption><img alt=", html)
    for data in re.findall('src="data:image/png;base64,([^"]*)"', html):
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            assert picture.size == (1260, 640)
    assert "<img" not in report_html(run, None)


def test_a_report_without_matplotlib_says_how_to_have_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.figures.run_pictures.can_write", lambda: False)
    run = Run(id="eofs-1", workload="eofs", cluster="c", status="done", result=RESULT)
    assert "There are no pictures: they need the extra pictures" in report_html(run, None, pictures(CLIMATE, {}))


def test_the_page_offers_to_open_save_and_draw_what_a_run_answered(run: str) -> None:
    answers = Answers(arrays={"s": Array(shape=(2,), dtype="float64", dims=("component",), bytes=16)}, saved="s.zarr")
    store.update(run, answers=answers)
    whole, html = html_of(f"run:{run}"), html_of(f"run-answer:{run}")
    assert f'data-live="run-answer:{run}"' in whole
    assert "s (2 float64): 16 B, saved to s.zarr." in whole
    assert f"/runs/{run}/pictures/scree" in html
    assert ".arrays" in whole
    assert "Copy to notebook" in whole
    assert f'data-live="saving:{run}"' in whole
    form = html_of(f"saving:{run}", {f"save.{run}.path": "x.npz"})
    assert f'data-action="save_run" data-arguments="{{&#34;run&#34;: &#34;{run}&#34;}}"' in form


def test_a_map_of_a_southward_axis_has_north_at_the_top() -> None:
    from matplotlib.figure import Figure

    from workbench.figures.paper import _draw

    (picture, *_) = pictures(CLIMATE, {})
    (south, north) = sorted(_draw(Figure(), picture).get_ylim())
    assert (south < -90 + 5, north > 90 - 5) == (True, True)
    low, high = _draw(Figure(), picture).get_ylim()
    assert low < high


def test_vectors_along_the_pixels_of_a_stack_are_pictures_with_the_first_row_at_the_top() -> None:
    v = np.arange(24.0).reshape(2, 12)
    results = {"u": np.ones((5, 2)), "s": np.ones(2), "v": v, "kept": None}
    arrays = SVD.arrays(results, {"axes": ((0,), (1, 2)), "lengths": (5, 3, 4)})
    assert arrays["v"].data is v
    first = next(each for each in pictures(arrays, {}) if each.name == "v-1")
    np.testing.assert_array_equal(first.drawn.values, v[0].reshape(3, 4))
    assert first.drawn.from_top
    np.testing.assert_array_equal(first.drawn.y, [0, 1, 2])
    # Where pixels are left out, none has a place any more.
    gone = SVD.arrays(results | {"kept": {"column": np.arange(12)}}, {"axes": ((0,), (1, 2)), "lengths": (5, 3, 4)})
    assert not gone["v"].attrs
