"""The how-to and explanation pages of the documentation, for a reader without a network.

They are Markdown, in the installed package or in docs/ of a clone. One HTML page contains all of them and shows one: it
is isolated from Jupyter, so its links can lead to other parts of it, but to no other page of the server.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from workbench.errors import NotFoundError, quoted
from workbench.markup import fragment, tag

if TYPE_CHECKING:
    from markdown_it.token import Token

_PACKAGE = Path(__file__).parent.parent
_FOLDERS = ("how-to", "explanations")
_INDEX = "index"

_COMMENT = re.compile(r"^% .*\n+", re.M)
_TOCTREE = re.compile(r"^```\{toctree\}.*?^```\n?", re.M | re.S)
_CODE_BLOCK = re.compile(r"^```\{code-block\} (\w+)\n(?::caption: (\S+)\n)?\n?", re.M)
_ROLE = re.compile(r"\{[\w:]+\}`([^`<]*[^`<\s])(?:\s*<[^>`]*>)?`")

_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --back: #fff; --soft: #f3f4f6; --line: #d0d4da; --link: #0a58ca; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --back: #16181b; --soft: #23262b; --line: #41464d; --link: #8ab4ff; }
}
body { display: flex; flex-wrap: wrap; gap: 0 40px; margin: 0 auto; padding: 24px 16px 60px; max-width: 1080px;
  font: 15px/1.6 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif;
  background: var(--back); color: var(--text); }
main { flex: 1 1 420px; min-width: 0; max-width: 760px; }
nav { flex: 0 1 220px; font-size: 14px; }
nav ul { margin: 0 0 14px; padding: 0; list-style: none; }
nav h2 { margin: 10px 0 4px; font-size: 15px; }
nav p { margin: 0 0 2px; }
article { display: none; }
article:target, article:has(:target) { display: block; }
main:not(:has(:target)) > .asked { display: block; }
h1 { margin: 0 0 12px; font-size: 26px; line-height: 1.25; }
h2 { margin: 28px 0 8px; font-size: 18px; }
h3 { font-size: 15px; }
a { color: var(--link); }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
code { padding: 1px 4px; border-radius: 3px; background: var(--soft); }
pre { padding: 10px 12px; border-radius: 4px; background: var(--soft); overflow-x: auto; }
pre code { padding: 0; }
.table { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
"""


@cache
def pages() -> Mapping[str, str]:
    """Return the text of each page as plain Markdown, by name such as `how-to/slurm`."""
    shipped = _PACKAGE / "help"
    folder = shipped if shipped.is_dir() else _PACKAGE.parent / "docs"
    return {
        f"{part}/{path.stem}": _plain(path.read_text(encoding="utf-8"))
        for part in _FOLDERS
        for path in sorted((folder / part).glob("*.md"))
    }


def find(name: str) -> str:
    """Return the full name of a page, given that or its last part. Raises NotFoundError."""
    page = next((each for each in pages() if name in (each, posixpath.basename(each))), None)
    if page is None:
        raise NotFoundError(f"Unknown page {quoted(name)}. Available pages: {', '.join(pages())}.")
    return page


def title(name: str) -> str:
    """Return the heading of a page. Raises NotFoundError."""
    return pages()[find(name)].partition("\n")[0].removeprefix("# ")


def document(name: str) -> str:
    """Return HTML that shows this page and contains the others for its links. Raises NotFoundError."""
    head = tag("title", f"{title(name)} – dask-workbench") + tag("style", Markup(_STYLE))
    contents = fragment(*(tag("h2", title(each)) + _html(each, without_title=True) for each in _indices()))
    articles = (
        tag("article", _html(each), id=each, class_="asked" if each == name else None)
        for each in pages()
        if each not in _indices()
    )
    body = tag("main", *articles) + tag("nav", contents, aria_label="Pages")
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f'<!DOCTYPE html><html lang="en"><head>{meta}{head}</head><body>{body}</body></html>'


def _indices() -> list[str]:
    return [each for part in _FOLDERS if (each := f"{part}/{_INDEX}") in pages()]


def _plain(text: str) -> str:
    """Return a page without the markup of Sphinx."""
    text = _TOCTREE.sub("", _COMMENT.sub("", text))
    text = _CODE_BLOCK.sub(lambda match: (f"`{match[2]}`:\n\n" if match[2] else "") + f"```{match[1]}\n", text)
    return _ROLE.sub(r"\1", text).rstrip() + "\n"


@cache
def _html(name: str, *, without_title: bool = False) -> Markup:
    """Return a page as HTML. HTML in its text is shown as text."""
    # Imported on first use: it takes a tenth of a second.
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(pages()[name])
    if without_title:
        tokens = tokens[3:]
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.tag != "h1":
            token.attrs["id"] = f"{name}/{_slug(inline.content)}"
    for token in tokens:
        if token.children:
            token.children = _linked(name, token.children)
    html: str = reader.renderer.render(tokens, reader.options, {})
    return Markup(html.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>"))


def _linked(name: str, tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of a paragraph; a link to a page that isn't included becomes plain text."""
    result: list[Token] = []
    dropped = 0
    for token in tokens:
        if token.type == "link_open":
            target = _target(name, str(token.attrs["href"]))
            if target is None:
                dropped += 1
                continue
            token.attrs["href"] = target
        elif token.type == "link_close" and dropped:
            dropped -= 1
            continue
        result.append(token)
    return result


def _target(name: str, address: str) -> str | None:
    """Return the target of a page's link; None if the target isn't included."""
    if re.match(r"https?:", address):
        return address
    path, _, heading = address.partition("#")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)).removesuffix(".md") if path else name
    if there not in pages():
        return None
    return f"#{there}/{heading}" if heading else f"#{there}"


def _slug(heading: Any) -> str:
    """Return the anchor of a heading, as MyST makes it."""
    return re.sub(r"[^\w\- ]", "", str(heading).lower()).replace(" ", "-")
