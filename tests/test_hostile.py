"""Text that comes from elsewhere is shown and does nothing: in pages, figures and terminals."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bokeh.resources import Resources

from tests import views
from tests.hostile import START, TEXT, hostile_batch, hostile_run, keep_hostile_cluster, keep_hostile_run
from workbench.clusters.plan import explained
from workbench.clusters.spec import ClusterSpec
from workbench.errors import on_one_line, printable
from workbench.figures.answers import pictures
from workbench.figures.report import report_html
from workbench.figures.topology import topology_of
from workbench.figures.totals import Totals
from workbench.monitor.events import Batch
from workbench.session import Session
from workbench.storage.variables import dataset
from workbench.views.comparisons import page

BOKEH = Resources(mode="inline", components=["bokeh", "bokeh-widgets"]).js_raw
COMMANDS = (
    ["show", "last"],
    ["show", "last", "--log"],
    ["show", "last", "--json"],
    ["runs"],
    ["runs", "--json"],
    ["runs", "--comparisons"],
    ["show", "last-comparison"],
    ["show", "last-comparison", "--json"],
    ["ls"],
    ["logs", "calm-otter"],
    ["cancel", "last"],
    ["workloads", TEXT.replace("\0", "")],
)
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AGK]|\r\n")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Elements(HTMLParser):
    """Elements of a page, and what their scripts hold, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        for text in BOKEH:  # which takes seconds to read
            html = html.replace(text, "")
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def assert_harmless(html: str, scripts: int = 0) -> None:
    """Check that a page has the elements that it would have without the text."""
    assert "hostile" in html, "the text isn't in it"
    found = Elements(html).tags
    assert [tag for tag, _ in found if tag == "script"] == ["script"] * scripts
    assert not [tag for tag, attributes in found if "hostile" in tag or any(map(_is_code, attributes))]
    assert not [each for tag, each in found if tag == "img" and not (each.get("src") or "").startswith("data:image/")]


def _is_code(attribute: str) -> bool:
    return attribute.startswith("on") or "hostile" in attribute


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_a_report_holds_hostile_text_and_no_element_of_it() -> None:
    answer = dataset({TEXT: ((f"{TEXT} ", "time"), np.arange(6.0).reshape(2, 3), {"long_name": TEXT, "units": TEXT})})
    run, batch = hostile_run(), hostile_batch()
    html = report_html(run, batch, pictures(answer, run.result or {}))
    # BokehJS is two scripts and one that sets its log level; the last is ours.
    assert_harmless(html, scripts=4)
    ours = html.rpartition("<script>")[2].partition("</script>")[0]
    assert "<" not in ours.partition("workbench({")[2]
    assert "hostile" in ours


def test_the_scripts_that_a_report_brings_cannot_end_early() -> None:
    assert not [text for text in BOKEH if re.search("</?script", text, re.IGNORECASE)]


def test_views_hold_hostile_text_and_no_element_of_it(data_folder: Path) -> None:
    run, other = keep_hostile_run(), keep_hostile_run("hostile-2")
    comparison = Session().compare_runs([run.id, other.id])
    keep_hostile_cluster()
    of_run = (f"run:{run.id}", "result", f"run-log:{run.id}", f"run-answer:{run.id}")
    for view in ("runs", *of_run, "clusters", "log-tail:calm-otter", "comparisons", f"comparison:{comparison.id}"):
        assert_harmless(views.html_of(view))
    assert_harmless(page(comparison, Session().summary(comparison)))


def test_totals_in_a_notebook_hold_hostile_text_and_no_element_of_it() -> None:
    totals = Totals()
    totals.feed([Batch(START), hostile_batch()])
    assert "&lt;/SCRI" in totals.html()
    assert_harmless(totals.html())


def test_what_lies_between_gpus_is_told_in_known_letters_only() -> None:
    rows = [["X", "NV2<img src=x onerror=alert(1)>"], ["SYS", "X"]]
    assert topology_of({"topology": {"gpus": ["a", "b"], "cards": [], "rows": rows}}) is None
    assert topology_of({"topology": 3}) is None


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        ("cpu", {}),
        ("slurm", {"walltime": 3600, "directives": (TEXT, '--x="""\nimport evil\n"""\\')}),
        ("slurm", {"walltime": 3600, "directives": (TEXT, '--x="""\nimport evil\n"""\\'), "scheduler": "job"}),
        ("ssh", {"hosts": (f"a\nimport evil\n{TEXT}",), "user": TEXT}),
    ],
)
def test_code_to_paste_runs_nothing_that_an_option_holds(profile: str, options: dict[str, Any]) -> None:
    spec = ClusterSpec(
        profile=profile,
        n_workers=2,
        threads_per_worker=1,
        memory_limit=2**30,
        protocol="tcp",
        python="/usr/bin/x\nimport evil",
        options=options,
    )
    imported = {each.name for node in ast.walk(ast.parse(explained(spec).code)) for each in getattr(node, "names", ())}
    assert "evil" not in imported


def assert_nothing_moves(output: bytes) -> None:
    """Check what a terminal gets: our own colours, and text."""
    assert b"hostile" in output
    text = OURS.sub(b"", output).decode()
    assert not FORBIDDEN.findall(text)


@pytest.mark.parametrize("terminal", [False, True])
def test_no_command_lets_foreign_text_reach_the_terminal(data_folder: Path, terminal: bool) -> None:
    Session().compare_runs([keep_hostile_run().id, keep_hostile_run("hostile-2").id])
    keep_hostile_cluster()
    code = f"from workbench.cli import main\nfor each in {COMMANDS!r}: main(each)"
    # So wide that nothing is folded.
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "3000"}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = b""
    while part := _read(ours):
        output += part
    os.close(ours)
    assert process.wait(60) == 0
    assert b"Traceback" not in output, output.decode()
    assert (b"\x1b[" in output) == terminal
    assert_nothing_moves(output)
    # A name is one line: what follows a break in it begins none, except in the log.
    assert len(re.findall(rb"^FAKE LINE$", output.replace(b"\r", b""), re.MULTILINE)) == 1


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 2**16)
    except OSError:  # how a pseudo-terminal says that nobody writes any more
        return b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;eA==\x07a\x1b[31mb\x9b2Jc", "abc".replace("c", "2Jc")),
        ("open \x1b]0;and no end\nnext", "open \nnext"),
        ("a\u202eb\u2066c\u200ed\u2028e\x85f\x7f", "abcdef"),
        ("tab\tand\r\nline", "tab\tand\nline"),
        ("größe 尺寸 🙂", "größe 尺寸 🙂"),
    ],
)
def test_printable_text_keeps_words_and_nothing_that_moves(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert on_one_line(f" {text}\n ") == " ".join(shown.split())
