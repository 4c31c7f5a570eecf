from __future__ import annotations

import json
import sys
from typing import Any

import jsonschema
import numpy as np
import pytest

from workbench.errors import BadInputError, NotFoundError
from workbench.runs.run import Run
from workbench.workloads import template, templates

NAMES = ("array_sum", "transpose_sum", "tall_skinny_svd", "compressed_svd", "svd_of_file")
RANDOM = NAMES[:-1]
IN_DASK: dict[str, dict[str, Any]] = {
    "array_sum": {"generator": "RandomState"},
    "tall_skinny_svd": {"method": "dask"},
    "compressed_svd": {"method": "dask"},
}
"""Parameters that make each workload plain Dask, as in the posts."""
SMALL: dict[str, dict[str, Any]] = {
    "array_sum": {"shape": "400, 300", "chunks": "100, 150"},
    "transpose_sum": {"shape": [300, 300], "chunks": 100},
    "tall_skinny_svd": {"shape": "2000x10", "chunks": "500"},
    "compressed_svd": {"shape": [600, 80], "chunks": [200, 40], "k": "3", "dtype": "float64", "compute": "yes"},
}

INT32 = 2**32
BAD: list[tuple[str, dict[str, Any], str]] = [
    # names
    ("array_sum", {"siez": "2GiB"}, "siez"),
    ("array_sum", {"": 1}, ""),
    ("array_sum", {"SIZE": "2GiB"}, "SIZE"),
    ("array_sum", {"k": 3}, "k"),
    ("array_sum", {"reduction": "median"}, "reduction"),
    ("transpose_sum", {"path": "x.npy"}, "path"),
    ("compressed_svd", {"center": True}, "center"),
    # sizes
    ("array_sum", {"size": "large"}, "size"),
    ("array_sum", {"size": ""}, "size"),
    ("array_sum", {"size": "GiB"}, "size"),
    ("array_sum", {"size": "2 apples"}, "size"),
    ("array_sum", {"size": "-2GiB"}, "size"),
    ("array_sum", {"size": -1}, "size"),
    ("array_sum", {"size": -0.25}, "size"),
    ("array_sum", {"size": 0}, "size"),
    ("array_sum", {"size": "0"}, "size"),
    ("array_sum", {"size": "0B"}, "size"),
    ("array_sum", {"size": "0%"}, "size"),
    ("array_sum", {"size": "150%"}, "size"),
    ("array_sum", {"size": 1.5}, "size"),
    ("array_sum", {"size": float("nan")}, "size"),
    ("array_sum", {"size": "nan"}, "size"),
    ("array_sum", {"size": float("inf")}, "size"),
    ("array_sum", {"size": "inf"}, "size"),
    ("array_sum", {"size": True}, "size"),
    ("array_sum", {"size": None}, "size"),
    ("array_sum", {"size": ["2GiB"]}, "size"),
    ("array_sum", {"size": {"bytes": 3}}, "size"),
    ("array_sum", {"size": "7B"}, "size"),
    ("array_sum", {"size": "2EiB"}, "size"),
    ("array_sum", {"size": 10**30}, "size"),
    ("array_sum", {"size": "9" * 400}, "size"),
    ("array_sum", {"size": b"2GiB"}, "size"),
    ("array_sum", {"size": "2GiB", "shape": [10, 10]}, "size"),
    ("compressed_svd", {"size": "3B"}, "size"),
    # shapes
    ("array_sum", {"shape": "abc"}, "shape"),
    ("array_sum", {"shape": 100}, "shape"),
    ("array_sum", {"shape": [100]}, "shape"),
    ("array_sum", {"shape": [10, 10, 10]}, "shape"),
    ("array_sum", {"shape": "10, 10, 10"}, "shape"),
    ("array_sum", {"shape": []}, "shape"),
    ("array_sum", {"shape": [0, 10]}, "shape"),
    ("array_sum", {"shape": [10, -10]}, "shape"),
    ("array_sum", {"shape": [10.5, 10]}, "shape"),
    ("array_sum", {"shape": "10.5, 10"}, "shape"),
    ("array_sum", {"shape": [True, 10]}, "shape"),
    ("array_sum", {"shape": [float("nan"), 10]}, "shape"),
    ("array_sum", {"shape": [2**40, 2**40]}, "shape"),
    ("array_sum", {"shape": [10**30, 2]}, "shape"),
    ("transpose_sum", {"shape": [100, 200]}, "shape"),
    ("tall_skinny_svd", {"shape": [20, 100]}, "shape"),
    # blocks
    ("array_sum", {"shape": [100, 100], "chunks": 200}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": [100, 101]}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": 0}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": -1}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": [50, 0]}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": [50, 50, 50]}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": [[50, 50], [50, 50]]}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": "many"}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": "4B"}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": "0MiB"}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": True}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": 2.5}, "chunks"),
    ("array_sum", {"shape": [100, 100], "chunks": None}, "chunks"),
    ("array_sum", {"size": "1PiB", "chunks": 100}, "chunks"),
    ("tall_skinny_svd", {"shape": [1000, 20], "chunks": [100, 10]}, "chunks"),
    ("tall_skinny_svd", {"shape": [1000, 20], "chunks": "100B"}, "chunks"),
    # the rest
    ("array_sum", {"dtype": "int8"}, "dtype"),
    ("array_sum", {"dtype": "complex128"}, "dtype"),
    ("array_sum", {"dtype": "object"}, "dtype"),
    ("array_sum", {"dtype": 64}, "dtype"),
    ("tall_skinny_svd", {"dtype": "uint8"}, "dtype"),
    ("array_sum", {"seed": "abc"}, "seed"),
    ("array_sum", {"seed": -1}, "seed"),
    ("array_sum", {"seed": INT32}, "seed"),
    ("array_sum", {"seed": 1.5}, "seed"),
    ("array_sum", {"seed": True}, "seed"),
    ("array_sum", {"seed": None}, "seed"),
    ("array_sum", {"seed": {1}}, "seed"),
    ("compressed_svd", {"k": 0}, "k"),
    ("compressed_svd", {"k": -3}, "k"),
    ("compressed_svd", {"k": "ten"}, "k"),
    ("compressed_svd", {"k": 2.5}, "k"),
    ("compressed_svd", {"k": float("nan")}, "k"),
    ("compressed_svd", {"k": True}, "k"),
    ("compressed_svd", {"k": [10]}, "k"),
    ("compressed_svd", {"k": ""}, "k"),
    ("compressed_svd", {"shape": [1000, 50], "k": 51}, "k"),
    ("compressed_svd", {"shape": [50, 1000], "k": 51}, "k"),
    ("compressed_svd", {"n_power_iter": -1}, "n_power_iter"),
    ("compressed_svd", {"n_power_iter": 51}, "n_power_iter"),
    ("compressed_svd", {"n_power_iter": "some"}, "n_power_iter"),
    ("compressed_svd", {"iterator": "qr"}, "iterator"),
    ("compressed_svd", {"iterator": None}, "iterator"),
    ("compressed_svd", {"compute": "perhaps"}, "compute"),
    ("compressed_svd", {"compute": 2}, "compute"),
    ("compressed_svd", {"tolerance": 0}, "tolerance"),
    ("compressed_svd", {"tolerance": -0.1}, "tolerance"),
    ("compressed_svd", {"tolerance": 1.1}, "tolerance"),
    ("compressed_svd", {"tolerance": "nan"}, "tolerance"),
    ("compressed_svd", {"tolerance": "a little"}, "tolerance"),
]


@pytest.mark.parametrize(("workload", "raw", "parameter"), BAD, ids=[f"{name}-{raw!r:.50}" for name, raw, _ in BAD])
def test_a_bad_parameter_gets_one_sentence_that_names_it(workload: str, raw: dict[str, Any], parameter: str) -> None:
    with pytest.raises(BadInputError) as refused:
        template(workload).validate(raw, memory=2**30, threads=2)
    sentence = str(refused.value)
    assert refused.value.parameter == parameter  # type: ignore[attr-defined]
    assert workload in sentence
    assert parameter in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert "Give " in sentence or "Choose " in sentence
    assert len(sentence) < 400


def test_the_sentence_shows_what_was_given_and_what_is_allowed() -> None:
    with pytest.raises(BadInputError) as refused:
        template("compressed_svd").validate({"k": "ten"})
    assert str(refused.value) == (
        "k of compressed_svd is 'ten'. Give a whole number, at least 1 and at most the shorter side of the array."
    )


def test_a_misspelt_name_is_recognised() -> None:
    with pytest.raises(BadInputError, match=r"array_sum has no parameter 'chunk'\. Did you mean chunks\?"):
        template("array_sum").validate({"chunk": 3})


def test_a_fraction_without_a_cluster_is_refused() -> None:
    with pytest.raises(BadInputError, match="fraction of a cluster's memory, and no cluster was named"):
        template("array_sum").validate({"size": "0.25"})


def test_an_unknown_workload_lists_those_there_are() -> None:
    with pytest.raises(NotFoundError, match=r"Unknown workload 'sum'\. Choose one of: array_sum, transpose_sum"):
        template("sum")


def test_there_are_workloads_on_arrays_dataframes_and_files() -> None:
    ours = [*NAMES[:2], "dataframe_join", *NAMES[2:], "reduce_file"]
    assert [found.name for found in templates()][: len(ours)] == ours


@pytest.mark.parametrize(
    ("raw", "name", "resolved"),
    [
        ({"shape": "[1000, 800]"}, "shape", [1000, 800]),
        ({"shape": "1000,800"}, "shape", [1000, 800]),
        ({"shape": "(1000, 800)"}, "shape", [1000, 800]),
        ({"shape": "1000x800"}, "shape", [1000, 800]),
        ({"shape": "1000 × 800"}, "shape", [1000, 800]),
        ({"shape": "1,000 × 12,800"}, "shape", [1000, 12_800]),
        ({"seed": "1,000,000"}, "seed", 1_000_000),
        ({"shape": (1000, 800)}, "shape", [1000, 800]),
        ({"shape": np.array([1000, 800]).tolist()}, "shape", [1000, 800]),
        ({"shape": "1e3, 8e2"}, "shape", [1000, 800]),
        ({"shape": (np.int64(1000), 800)}, "shape", [1000, 800]),
        ({"shape": "none", "size": "8MB"}, "shape", [1000, 1000]),
        ({"size": "8MB"}, "shape", [1000, 1000]),
        ({"size": 8_000_000}, "shape", [1000, 1000]),
        ({"size": "8000000"}, "shape", [1000, 1000]),
        ({"size": "8e6"}, "shape", [1000, 1000]),
        ({"size": "0.008"}, "shape", [1000, 1000]),
        ({"size": 0.008}, "shape", [1000, 1000]),
        ({"size": "0.8%"}, "shape", [1000, 1000]),
        ({"size": 1}, "shape", [11180, 11180]),
        ({"shape": [100, 100], "chunks": "50"}, "chunks", [50, 50]),
        ({"shape": [100, 100], "chunks": "50, 20"}, "chunks", [50, 20]),
        ({"shape": [100, 100], "chunks": "20kB"}, "chunks", [50, 50]),
        ({"shape": [100, 100], "chunks": "1GiB"}, "chunks", [100, 100]),
        ({"seed": " 7 "}, "seed", 7),
        ({"dtype": "float32"}, "dtype", "float32"),
    ],
    ids=str,
)
def test_text_stands_for_what_it_says(raw: dict[str, Any], name: str, resolved: Any) -> None:
    assert template("array_sum").validate(raw, memory=10**9).resolved[name] == resolved


@pytest.mark.parametrize("name", RANDOM)
def test_what_was_given_can_be_given_again(name: str) -> None:
    chosen = template(name)
    first = chosen.validate(SMALL[name], threads=2)
    again = chosen.validate(json.loads(json.dumps(first.given)), threads=2)
    assert again == first
    json.dumps(first.resolved)


@pytest.mark.parametrize("name", NAMES)
def test_the_form_is_a_json_schema_with_words_for_each_field(name: str) -> None:
    schema = template(name).schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for field in schema["properties"].values():
        assert field["title"]
        assert field["description"].endswith(".")
    assert schema["additionalProperties"] is False
    hidden = {"format", "blocks"}
    assert not hidden & set(schema["properties"])


@pytest.mark.parametrize("name", RANDOM)
def test_the_form_filled_with_its_defaults_is_valid(name: str) -> None:
    chosen = template(name)
    schema = chosen.schema()
    defaults = {field: entry["default"] for field, entry in schema["properties"].items()}
    jsonschema.validate(json.loads(json.dumps(defaults)), schema)
    assert chosen.validate(defaults, threads=2).resolved == chosen.validate({}, threads=2).resolved


def test_the_form_says_bounds_units_and_choices() -> None:
    fields = template("compressed_svd").schema()["properties"]
    assert fields["k"]["minimum"] == 1
    assert fields["n_power_iter"]["maximum"] == 50
    assert fields["dtype"]["enum"] == ["float64", "float32", "uint8"]
    assert fields["size"]["unit"] == "bytes or fraction"
    assert fields["tolerance"]["exclusiveMinimum"] == 0
    assert list(fields)[:4] == ["preset", "scale", "size", "shape"]


@pytest.mark.parametrize("name", NAMES)
def test_the_source_is_plain_dask(name: str) -> None:
    source = template(name).source
    compile(source, name, "exec")
    # Ours comes in only where method or generator ask for it.
    assert all(line.startswith("    ") for line in source.splitlines() if "import workbench" in line)
    assert "Annotated" not in source
    assert template(name).summary in template(name).help


def test_the_source_keeps_the_code_of_the_posts() -> None:
    assert "return (x + 1)[::2, ::2].sum()" in template("array_sum").source
    assert "return (x + x.T).sum()" in template("transpose_sum").source
    assert "da.linalg.svd_compressed(" in template("compressed_svd").source


@pytest.mark.parametrize(("name", "ours"), [(name, ours) for name in RANDOM for ours in (False, True)])
def test_a_cell_gives_the_same_result_as_the_workload(name: str, ours: bool, quick_client: Any) -> None:
    chosen = template(name)
    parameters = chosen.validate(SMALL[name] | ({} if ours else IN_DASK.get(name, {})), threads=2)
    expected, check = chosen.compute(parameters, quick_client)
    assert check.passed, check.what
    code = chosen.cell(parameters)
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patched:
        if not ours and "import workbench" not in code and "from workbench" not in code:
            # Without this package, plain Dask does it.
            patched.setitem(sys.modules, "workbench", None)
        exec(compile(code, "cell", "exec"), found)
    results = {each: found[each].compute() for each in chosen.gathered(found)}
    (name, *_), (values, *_) = expected.keys(), expected.values()
    assert chosen.summarise(results)[name] == pytest.approx(values, rel=1e-12)


def test_a_cell_ends_with_the_result_and_connects_where_a_cluster_is_named() -> None:
    parameters = template("array_sum").validate({"shape": [10, 10]})
    code = template("array_sum").cell(parameters, "calm-otter")
    assert code.rstrip().endswith("value.compute()")
    assert 'import workbench\n\nclient = workbench.connect("calm-otter")\n' in code
    assert "shape=(10, 10)" in code


@pytest.mark.parametrize("name", RANDOM)
def test_the_answer_is_the_same_without_a_cluster(name: str) -> None:
    chosen = template(name)
    summary, check = chosen.compute(chosen.validate(SMALL[name]))
    assert check.passed, check.what
    assert set(summary) - {"certificate"} == ({"singular_values"} if name.endswith("svd") else {"value"})
    assert ("certificate" in summary) == (name == "compressed_svd")
    json.dumps(summary)


@pytest.mark.parametrize("name", RANDOM)
def test_needs_are_stated_in_numbers_and_words(name: str) -> None:
    chosen = template(name)
    needs = chosen.needs(chosen.validate({"size": "1GiB"}, threads=4))
    assert 0.95 * 2**30 < needs.input_bytes <= 2**30
    assert 0 < needs.held_per_worker <= needs.held_total
    assert needs.sentence.endswith(".")


def test_more_threads_in_a_worker_need_more_of_its_memory() -> None:
    chosen = template("array_sum")
    given = {"size": "8GiB", "generator": "RandomState"}
    one, four = (chosen.needs(chosen.validate(given, threads=4, threads_per_worker=count)) for count in (1, 4))
    assert four.held_per_worker == 4 * one.held_per_worker


def test_recomputing_needs_less_memory_than_holding() -> None:
    chosen = template("compressed_svd")
    for method, passes in (("dask", 6), ("workbench", 9)):
        given = {"size": "8GiB", "method": method}
        hold, again = (chosen.needs(chosen.validate(given | {"compute": value})) for value in ("false", "true"))
        assert hold.held_total - again.held_total == hold.input_bytes
        assert hold.passes == passes


def test_an_array_that_would_take_most_of_the_memory_is_not_held() -> None:
    chosen = template("compressed_svd")
    small, large = (chosen.validate({"size": size}, memory=2**32, threads=2) for size in ("1GiB", "3GiB"))
    assert not small.resolved["compute"]
    assert large.resolved["compute"]
    assert "more than half of the memory" in large.notes[-1]
    assert chosen.needs(large).held_total < chosen.needs(small).held_total


def test_on_gpus_an_array_is_held_that_fits_the_cards() -> None:
    chosen = template("compressed_svd")
    # Blocks may fill 0.8 of a card of 80 GB; the host has much more, or much less.
    for memory in (2**35, 2**40):
        cluster = {"memory": memory, "threads": 1, "on_gpu": True, "device_memory": 64 * 10**9}
        fits, spills = (chosen.validate({"size": size}, **cluster) for size in ("44GiB", "56GiB"))
        assert not fits.resolved["compute"]
        assert spills.resolved["compute"]
        assert "more than three quarters of what arrays may fill of the GPUs" in spills.notes[-1]


def test_the_blocks_explain_themselves() -> None:
    chosen = template("array_sum")
    in_dask = {"generator": "RandomState"}
    large = chosen.validate({"shape": [20_000, 20_000], **in_dask}, threads=2)
    assert large.resolved["chunks"] == [2000, 2000]
    assert large.notes[0].startswith(
        "100 blocks of 2,000 × 2,000 (30.5 MiB) for 2 threads: about 30.5 MiB were quickest"
    )
    small = chosen.validate({"shape": [2000, 2000], **in_dask}, threads=4)
    assert "so that every thread gets several" in small.notes[0]
    assert chosen.validate({"shape": [100, 100], "chunks": 50}).notes == ()


@pytest.mark.parametrize("threads", [None, 1, 2, 80])
@pytest.mark.parametrize("size", ["100B", "1MiB", "100MiB", "2GiB", "200GB", "2TB", "500TB"])
@pytest.mark.parametrize("name", RANDOM)
def test_default_blocks_fit_any_array(name: str, size: str, threads: int | None) -> None:
    k = {"k": 1} if name == "compressed_svd" else IN_DASK.get(name, {})
    resolved = template(name).validate({"size": size} | k, threads=threads).resolved
    counts = [-(-length // part) for length, part in zip(resolved["shape"], resolved["chunks"], strict=True)]
    assert np.prod(counts) <= 21_000
    assert all(1 <= part <= length for part, length in zip(resolved["chunks"], resolved["shape"], strict=True))
    # No block is much smaller than the others.
    for length, part, count in zip(resolved["shape"], resolved["chunks"], counts, strict=True):
        assert length - (count - 1) * part >= min(part, length) / 2 - 2 * count


def test_a_template_is_light_to_list() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from workbench.workloads import templates\n"
        "[each.schema() for each in templates()]\n"
        "print([name for name in ('distributed', 'zarr', 'h5py', 'bokeh') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("compressed_svd", {"shape": [4000, 200], "method": "dask"}),
        ("compressed_svd", {"shape": [4000, 200], "method": "dask", "n_power_iter": 5}),
        ("compressed_svd", {"shape": [4000, 200], "method": "workbench", "tol": 1e-6}),
    ],
)
def test_the_quicker_of_two_ways_through_the_same_array_has_the_higher_speed(name, given):
    chosen = template(name)
    needs = chosen.needs(chosen.validate(given))
    # Once 34.8 s were shown with 28.1 MiB/s, and 18.9 s with 25.8, since the passes were foreseen and counted.
    assert needs.array_bytes == needs.input_bytes == 4000 * 200
    slow, quick = (
        Run(id=f"r-{s}", workload=name, cluster="c", bytes=needs.array_bytes, seconds=s) for s in (34.8, 18.9)
    )
    assert slow.bytes_per_second < quick.bytes_per_second
    assert slow.bytes_per_second * slow.seconds == pytest.approx(needs.array_bytes)
    untimed = slow.model_copy(update={"seconds": None})
    assert untimed.bytes_per_second is None
