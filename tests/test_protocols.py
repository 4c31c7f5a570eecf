"""TCP, TLS and UCX between workers, compared: what is said of them, and where the lines come from."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.test_budget import machine
from tests.test_measured import dgx1
from tests.test_ucx import needs_ucx
from workbench.clusters import records
from workbench.clusters.spec import ClusterSpec
from workbench.errors import NotFoundError
from workbench.runs import store
from workbench.runs.comparing.compare import usual_lines
from workbench.runs.comparing.comparisons import Comparison, Row, Sample
from workbench.runs.comparing.html import summary_html
from workbench.runs.comparing.table import as_markdown, export, summarise
from workbench.views.comparisons import page

_SPEED = {"tcp": 1.0, "ucx": 2.5}


def row(protocol: str, **changes: Any) -> Row:
    """Return a row in which ucx takes 2.5 times as long as tcp."""
    factor, block = _SPEED[protocol], 1000
    profile = "ucx" if protocol == "ucx" else "gpus" if "devices" in changes else "cpu"
    spec = {"profile": profile, "protocol": protocol, "n_workers": 2, "threads_per_worker": 1, "memory_limit": 2**29}
    carried = {"overall": [8e7 / factor, 1e8 / factor, 1.2e8 / factor], "n_messages": 4, "sentence": "4 messages."}
    carried |= {"workers": ["a", "b"], "matrix": [[None, None]] * 2}
    over = "ucx (tcp on lo)" if protocol == "ucx" else protocol
    place = list(_SPEED).index(protocol) + 1
    samples = tuple(
        Sample(
            run=f"{protocol}-{block}-{turn}",
            round=turn,
            seconds=block / 1000 * factor * (1 + 0.01 * ((turn * place) % 5)),
            result={"value": 4e6, "bandwidth": {**carried, "transport": over}},
        )
        for turn in range(1, 7)
    )
    line = f"cpu {protocol}, chunks={block}"
    resolved = {"chunks": [block, block], "dtype": "float64"}
    about = {"on": line, "label": line, "workload": "transpose_sum", "resolved": resolved}
    return Row(**about, spec=ClusterSpec.model_validate(spec | changes), samples=samples)


def comparison(*rows: Row, **fields: Any) -> Comparison:
    about = {"id": "compare-transpose_sum-abcdef", "workload": "transpose_sum", "status": "done", "created": 1e9}
    return Comparison(rows=rows, **about | fields)


def test_each_row_tells_how_fast_data_travelled_and_over_what() -> None:
    found = comparison(row("tcp"), row("ucx"))
    summary = summarise(found)
    assert [(each.bandwidth, each.transport) for each in summary.rows] == [
        ((8e7, 1e8, 1.2e8), "tcp"),
        ((3.2e7, 4e7, 4.8e7), "ucx (tcp on lo)"),
    ]
    assert "| 95 (76 – 114) MiB/s over tcp |" in as_markdown(summary)
    _, ucx = csv.DictReader(io.StringIO(export(found, "csv")))
    assert (ucx["transport"], float(ucx["bandwidth_median"])) == ("ucx (tcp on lo)", 4e7)
    assert "38 (31 – 46) MiB/s over ucx (tcp on lo)" in summary_html(summary)


def test_a_comparison_on_gpus_shows_what_lies_between_them() -> None:
    told = {"topology": dgx1().model_dump(mode="json")}

    def shown(gpus: list[Any], **changes: Any) -> str:
        found = comparison(row("tcp", **changes), inventory=told | {"gpus": gpus})
        return page(found, summarise(found))

    devices = ("GPU-0", "GPU-1")
    assert "Between GPUs and network cards" not in shown([])
    for simulated in (True, False):
        text = shown([{"name": "GPU 0", "simulated": simulated}], devices=devices)
        (title,) = re.findall(r"<caption>(Between.*?)</caption>", text)
        assert title.endswith(" · SIMULATED GPUs") is simulated
        assert ("<h1>SIMULATED · " in text) is simulated


def test_a_preset_whose_text_is_about_ucx_brings_a_line_for_each_protocol() -> None:
    lines = ("cpu --no-encrypt --workers 2", "cpu --workers 2", "ucx --workers 2")
    assert usual_lines("transpose_sum", {"preset": "post"}, machine()) == lines
    assert usual_lines("tall_skinny_svd", {"preset": "tall"}, machine()) == ("cpu",)
    assert usual_lines("transpose_sum", {}, machine()) == ("cpu",)
    with pytest.raises(NotFoundError, match="has no preset 'nobody'"):
        usual_lines("transpose_sum", {"preset": "nobody"}, machine())


@needs_ucx
def test_the_protocols_are_measured_in_turn_on_real_clusters(data_folder: Path) -> None:
    line = "cpu --workers 2 --threads 1 --memory 1GiB"
    lines = [line, line.replace("cpu", "ucx")]
    given = {"parameters": {"size": "32MiB", "chunks": "2MiB", "persist": True}, "repeats": 1, "warmup": 0}
    found = workbench.compare("transpose_sum", on=lines, agreed=True, **given)
    assert found.agree is True
    assert [each.transport for each in found.rows] == ["tls", "ucx (tcp on lo)"]
    assert all(each.bandwidth and each.check and each.check.passed for each in found.rows)
    assert store.get(found.rows[0].runs[0]).result["seconds_to_make"] > 0
    assert records.names() == ()
