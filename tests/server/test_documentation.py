"""Pages of the documentation: the sidebar opens them, and no link in them leads to nowhere."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import html_of
from workbench.views import documentation
from workbench.views.documentation import document, pages, title

API = "workbench/api/"


class Found(HTMLParser):
    """Ids and links of a page, and which article each link is in; the words that no code element has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self._code = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        about = dict(attrs)
        self.ids += [about["id"] or ""] if "id" in about else []
        self.links += [about["href"] or ""] if "href" in about else []
        self._code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.words += "" if self._code else data


async def test_each_section_of_the_sidebar_opens_a_page_with_its_title(api: Any, service: Any, session: Any) -> None:
    views = [await html_of(service, name) for name in ("sidebar", "clusters")]
    opened = dict(re.findall(r'aria-label="Help: ([^"]+)" data-page="([^"]+)"', "".join(views)))
    assert list(opened) == ["Hardware", "Workload", "Runs", "Compare", "Clusters"]
    for address in opened.values():
        answer = await api("GET", unescape(address).removeprefix(API))
        assert answer.status == 200
        name = address.removeprefix(f"{API}docs/")
        html = answer.content.decode()
        assert f"<title>{title(name)} – dask-workbench</title>" in html
        assert f'<article id="{name}" class="asked"><h1>{title(name)}</h1>' in html
        assert answer.headers["Content-Security-Policy"].startswith("sandbox")


def test_every_link_of_every_page_leads_to_a_part_that_is_there_and_every_page_is_among_the_contents() -> None:
    found = Found(document("how-to/slurm"))
    assert len(found.ids) == len(set(found.ids))
    inside = [each for each in found.links if not each.startswith("https://")]
    assert {each.removeprefix("#") for each in inside} <= set(found.ids)
    contents = Found(document("how-to/slurm").partition("<nav")[2])
    assert {f"#{name}" for name in pages() if not name.endswith("/index")} == set(contents.links)


def test_what_only_sphinx_reads_is_not_shown() -> None:
    words = Found(document("how-to/own-function")).words
    assert not re.search(r"\{[\w:-]+\}|toctree|^%|:caption:|\]\(|```", words, re.M)


def test_html_roles_and_bad_links_in_a_page_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "docs" / "how-to"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text(
        "# A <b>\n\n<script>x</script> {doc}`this page <b>` and {ref}`that` [js](javascript:x) [no](../no.md#h)"
        " [b](b.md#two-words)\n\n% hidden\n\n```{code-block} python\n:caption: c.py\n\n1 < 2\n```\n"
    )
    (folder / "b.md").write_text("# B\n\n## Two words\n")
    monkeypatch.setattr(documentation, "_PACKAGE", tmp_path / "workbench")
    for kept in (pages, documentation._html):
        kept.cache_clear()
    try:
        found = Found(html := document("how-to/a"))
    finally:
        for kept in (pages, documentation._html):
            kept.cache_clear()
    assert found.tags.isdisjoint({"script", "b"})
    assert found.links == ["#how-to/b/two-words"]
    assert "how-to/b/two-words" in found.ids
    assert "this page and that" in found.words
    assert "hidden" not in html
    assert "<code>c.py</code>" in html
