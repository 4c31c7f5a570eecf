"""Results whose parts aren't what their names say: refused where a record is read, or shown without an error."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from workbench import terminal
from workbench.figures.run_pictures import measurements_html
from workbench.runs import facts
from workbench.runs.answers import provenance
from workbench.runs.comparing.agreement import Answer, agreement
from workbench.runs.run import Run

CERTIFICATE = {
    "sentence": "Very likely right.",
    "bound": [1e-9, None],
    "of_largest": [1e-9, 1e-5],
    "shares": [0.9, 0.1],
}
QUARTILES = [1e8, 2e8, 3e8]
SVD = {
    "singular_values": [3.0, 1e-9],
    "explained_variance": [9.0, 1e-18],
    "explained_variance_ratio": [0.9, 0.1],
    "separated": [True, None],
    "certificate": CERTIFICATE,
}
PCA = {
    **SVD,
    "scatter": {"samples": ["a", "b"], "scores": [[1.0, 2.0], [3.0, 4.0]], "label": "pop", "labels": ["x", "y"]},
}
TRANSPOSED = {
    "value": 3.0,
    "bandwidth": {
        "workers": ["tls://127.0.0.1:1", "tls://127.0.0.1:2"],
        "matrix": [[None, {"count": 3, "bandwidth": QUARTILES}], [None, None]],
        "n_messages": 3,
        "overall": QUARTILES,
        "sentence": "3 messages.",
        "transport": "tls",
    },
}
HOSTILE = (
    "s",
    "",
    7,
    -1,
    -1e308,
    1e308,
    True,
    None,
    [],
    [1],
    [None],
    ["x"],
    {},
    {"a": 1},
    {"bound": "x"},
    [[1], [2, 3]],
)


def places(part: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, each in inside:
        yield from places(each, (*at, name))


def changed(result: dict[str, Any], at: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the result with another value there; without the value if it is `places`."""
    copied = copy.deepcopy(result)
    inside = copied
    for name in at[:-1]:
        inside = inside[name]
    if value is places:
        del inside[at[-1]]
    else:
        inside[at[-1]] = value
    return copied


def run_of(result: Any) -> Run:
    return Run(id="a-1", workload="svd", cluster="otter", status="done", created=5.0, seconds=1.0, result=result)


def read(run: Run, other: Run) -> None:
    """All that reads a result."""
    told = run.model_dump(mode="json")
    measurements_html(told)
    facts.run_html(run)
    facts.headline(run.workload, run.result or {})
    with Console(width=80).capture():
        terminal.show_run(run)
    provenance(run)
    answers = [Answer(each.id, each.id, each.result, "float64", True) for each in (run, other)]
    assert agreement(answers).how


@pytest.mark.parametrize("result", [SVD, PCA, TRANSPOSED], ids=["svd", "pca", "transpose"])
def test_no_result_of_another_form_breaks_what_reads_it(result: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(terminal, "_print", lambda *parts, **style: None)
    sound = run_of(result)
    read(sound, sound)
    refused = 0
    for at in places(result):
        for value in (places, *HOSTILE):
            try:
                run = run_of(changed(result, at, value))
            except ValidationError:
                refused += 1
                continue
            try:
                read(run, sound)
            except Exception as err:
                raise AssertionError(f"{at} = {value!r}: {type(err).__name__}: {err}") from err
    assert refused > 100


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("s", r"certificate: Input should be .*dictionary"),
        ({**CERTIFICATE, "bound": "x"}, r"certificate\.bound: Input should be a valid list"),
        ({**CERTIFICATE, "bound": [1.0]}, r"singular_values has 2 values, and the certificate is of 1"),
    ],
)
def test_what_is_refused_is_named(part: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        run_of({**SVD, "certificate": part})
