"""The architecture as a diagram: layers from import-linter's contract, arrows from the imports in the source."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WIDTH, ROW, BOX, GAP, MARGIN = 760, 74, 34, 14, 12


def layers() -> list[list[str]]:
    """Return the layers of the package, the highest first, each with its parts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "layers")
    return [[part.strip() for part in layer.split("|")] for layer in contract["layers"]]


def imports() -> Counter[tuple[str, str]]:
    """Count the imports between parts of the package: (importing part, imported part)."""
    found: Counter[tuple[str, str]] = Counter()
    package = ROOT / "workbench"
    parts = {path.stem if path.suffix == ".py" else path.name for path in package.iterdir()}
    for path in package.rglob("*.py"):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        for module in imported(path):
            other = module.split(".")[0]
            if other in parts and other != part:
                found[part, other] += 1
    return found


def imported(path: Path) -> list[str]:
    """Return the modules of the package that a file imports, without the name of the package."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{each.name}" for each in node.names]
    return [name.removeprefix("workbench.") for name in names if name.startswith("workbench.")]


def svg() -> str:
    """Return the diagram as SVG, whose colors are the page's."""
    rows = layers()
    boxes: dict[str, tuple[float, float, float]] = {}
    for number, row in enumerate(rows):
        width = min(190.0, (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row))
        left = (WIDTH - len(row) * width - GAP * (len(row) - 1)) / 2
        for column, part in enumerate(row):
            boxes[part] = (left + column * (width + GAP), MARGIN + number * ROW, width)
    height = MARGIN * 2 + (len(rows) - 1) * ROW + BOX
    counts = direct({pair: n for pair, n in imports().items() if pair[0] in boxes and pair[1] in boxes})
    drawn = [arrow(boxes[upper], boxes[lower], n, upper, lower) for (upper, lower), n in sorted(counts.items())]
    drawn += [box(part, *place) for part, place in boxes.items()]
    title = "Parts of the package in layers; each line is an import of a lower part by a higher one."
    return (
        f'<svg class="layers" role="img" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{title}</title>{''.join(drawn)}</svg>"
    )


def direct(counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Leave out the imports that a path over other parts implies: they are most of them, and hide the rest."""
    below: dict[str, set[str]] = {}
    for upper, lower in counts:
        below.setdefault(upper, set()).add(lower)

    @cache
    def reach(part: str) -> set[str]:
        return below.get(part, set()).union(*map(reach, below.get(part, ())))

    return {
        (upper, lower): n
        for (upper, lower), n in counts.items()
        if not any(lower in reach(other) for other in below[upper] - {lower})
    }


def arrow(upper: tuple[float, float, float], lower: tuple[float, float, float], n: int, *names: str) -> str:
    """Return a line from the lower edge of a box to the upper edge of another, as wide as it has imports."""
    x1, y1, x2, y2 = upper[0] + upper[2] / 2, upper[1] + BOX, lower[0] + lower[2] / 2, lower[1]
    # Lines past several layers bend outwards, or they would all lie on one another.
    bend = (y2 - y1) / 2
    title = escape(f"{names[0]} imports {names[1]}: {n}")
    return (
        f'<path stroke-width="{min(0.6 + n**0.5 / 4, 4):.1f}" '
        f'd="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}">'
        f"<title>{title}</title></path>"
    )


def box(part: str, x: float, y: float, width: float) -> str:
    """Return a box with a name."""
    return (
        f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{x + width / 2:.0f}" y="{y + BOX / 2 + 5}" text-anchor="middle" font-size="14">{escape(part)}</text>'
    )


def docstring(part: str) -> str:
    """Return the first line of a part's docstring."""
    module = ROOT / "workbench" / f"{part}.py"
    path = module if module.exists() else ROOT / "workbench" / part / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def fragment() -> str:
    """Return the diagram and a table of the parts, which the page on the architecture includes."""
    from generated import prose, table

    rows = [(f"`{part}`", prose(docstring(part))) for layer in layers() for part in layer]
    return f'```{{raw}} html\n<div class="layers-frame" tabindex="0">{svg()}</div>\n```\n\n' + table(
        ("part", "contents"), rows
    )
