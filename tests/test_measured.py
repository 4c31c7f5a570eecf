"""A run's measurements of the network, and the links between GPUs, as figures and in the report."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.simulated import SimulatedNvml
from tests.test_topology import DGX1
from tests.test_transfers import both_ways
from workbench.figures.report import report_html
from workbench.figures.run_pictures import measurements_html
from workbench.figures.topology import topology_html
from workbench.hardware import Topology
from workbench.runs.facts import answer, facts_html
from workbench.runs.run import Run
from workbench.runs.singular_values import accuracy, values


def dgx1() -> Topology:
    head, *lines = (line.split() for line in DGX1.splitlines())
    return Topology(gpus=tuple(head[:8]), cards=tuple(head[8:]), rows=tuple(tuple(line[1:]) for line in lines))


def finished(**changes: Any) -> dict[str, Any]:
    return {"id": "transpose_sum-3fa29c", "workload": "transpose_sum", "status": "done", "cluster": "c", **changes}


def report_of(**changes: Any) -> str:
    return report_html(Run.model_validate(finished(**changes)), None)


def values_html(result: dict[str, Any]) -> str:
    return facts_html(answer("svd", result), "answer")


def test_the_topology_of_a_dgx1_is_drawn_with_its_legend_in_words() -> None:
    drawn = topology_html(dgx1())
    cells = re.findall(r'<td(?: style="background:(#\w+);[^"]*" title="([^"]*)")?>([A-Z0-9]+)</td>', drawn)
    assert len(cells) == 8 * 12
    assert cells[3][1:] == ("2 NVLinks", "NV2")
    colors = {letters: color for color, _, letters in cells}
    assert len({colors[letters] for letters in ("NV1", "NV2", "PIX", "PHB", "SYS")}) == 5
    assert "SYS: the link between NUMA nodes" in drawn


def test_simulated_gpus_are_drawn_as_they_are_linked(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(preset="dgx1").topology
    assert [row[:8] for row in found.rows] == [row[:8] for row in dgx1().rows]


def test_bounds_of_rounding_alone_are_not_shown_even_where_a_record_has_some() -> None:
    certificate = {"sentence": "Nothing but rounding.", "limit": "constant", "bound": [1e-2, 4.4e14]}
    result = {"singular_values": [2e-11, 8e-27], "certificate": certificate | {"of_largest": [1e-2, 0.2]}}
    told = values(result)
    assert told is not None
    assert [row[2] for row in told.rows] == ["–", "–"]
    page = report_of(result=result)
    assert "Nothing but rounding." in page
    assert "e+14" not in page.partition("The whole record")[0]


def test_what_cannot_be_told_is_a_question_mark() -> None:
    unknown = Topology(gpus=("GPU0",), cards=("<ib0>",), rows=(("X", None),))
    assert "<td>?</td>" in topology_html(unknown)
    assert "&lt;ib0&gt;" in topology_html(unknown)


def test_singular_values_have_the_digits_that_are_right() -> None:
    bound = [1e-12, 2e-4, 0.3]
    told = values({"singular_values": [12345.678901234, 2.5, 1.0], "certificate": {"bound": bound}})
    assert told is not None
    assert told.header == ("No.", "Singular value", "Right within")
    assert told.rows == (("1", "12345.67890", "1e-10 %"), ("2", "2.5000", "0.02 %"), ("3", "1.00", "30 %"))
    small = values(
        {"singular_values": [2.5, 1e-17], "certificate": {"bound": [1e-3, None], "of_largest": [1e-3, 3e-15]}}
    )
    assert small is not None
    assert [row[2] for row in small.rows] == ["0.1 %", "3e-13 % of the largest"]
    many = values({"singular_values": [1.0] * 130, "certificate": {"bound": [0.0] * 130}})
    assert many is not None
    assert (len(many.rows), many.left_out) == (100, 30)
    html = values_html({"singular_values": [1.0] * 130, "certificate": {"bound": [0.0] * 130}})
    assert "30 smaller ones" in html
    assert html.partition("90 more")[0].count("<tr>") == 11, "a header and ten values before what is folded"
    # A header that can't take two lines pushes the bounds out of a narrow sidebar.
    assert "nowrap" not in values_html({"singular_values": [1.0], "certificate": {"bound": [0.0]}}).split("<tbody>")[0]
    assert values({"singular_values": ["of a user's function"]}) is None
    plain_values = values({"singular_values": [2.5]})
    assert plain_values is not None
    assert plain_values.header == ("No.", "Singular value")
    assert values_html({"value": 1.0}) == '<p class="wb-Value">1</p>'


def test_a_certificate_speaks_percent_and_names_vectors_not_to_rely_on() -> None:
    certificate = {"bound": [1e-7, 9e-3], "status": "very likely", "groups": [[1, 1, 1e-6], [2, 2, 1.0]]}
    told = accuracy({"certificate": certificate})
    assert told == "Each value is very likely within 0.9 %. Vector 2 is not reliable: others are as large."
    small = accuracy({"certificate": {"bound": [1e-7, None], "status": "not reached"}})
    assert small.startswith("Each value is within 1e-05 %, except for those that can't be distinguished from zero.")
    assert "not reached" in small
    assert accuracy({"value": 1.0}) == ""


def test_the_report_shows_the_bandwidth_and_keeps_it_out_of_the_answers() -> None:
    result = {"value": 4.0, "bandwidth": both_ways()}
    assert [each.text for each in answer("transpose_sum", result)] == ["4"]
    html = report_of(result=result)
    assert "Over tcp. 16 messages above 1 MB between 2 workers." in html
    assert 'title=":4002 to :4001: 97 | 99 | 100 MiB/s, 8 messages"' in html


def test_the_topology_belongs_to_runs_on_gpus() -> None:
    known = {"topology": json.loads(dgx1().model_dump_json())}
    assert measurements_html(finished(inventory=known, spec={"devices": []})) == ""
    assert "<h2>Between the GPUs</h2>" in measurements_html(finished(inventory=known, spec={"devices": ["GPU-0"]}))


@pytest.mark.parametrize("simulated", [True, False])
def test_what_a_run_on_simulated_gpus_measured_says_so(simulated: bool) -> None:
    inventory = {"topology": json.loads(dgx1().model_dump_json())}
    result = {"value": 4.0, "bandwidth": both_ways()}
    run = finished(result=result, inventory=inventory, spec={"devices": ["GPU-0"]}, simulated=simulated)
    html = measurements_html(run)
    assert simulated is ("MiB/s, up to 197 · SIMULATED GPUs" in html)
    assert simulated is ("Between GPUs and network cards · SIMULATED GPUs" in html)
