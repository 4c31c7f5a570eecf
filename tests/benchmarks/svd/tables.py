"""The rows of a run as Markdown, with ratios between those alone that may be compared."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

# What is rounding in float64 counts as equally accurate.
ROUNDING = {"error": 1e-13, "sine": 1e-9, "orthogonality": 1e-13}
HEAD = (
    "| method | rounds | seconds | least–most | × | CPU s | × | peak MB | × | error of s | sine | ‖QᵀQ − I‖ | bound |",
    "|---" * 13 + "|",
)
NOTE = (
    "Seconds are medians. Peak is the highest resident memory of the method's own process less what was resident "
    "before it started, the data among it. Errors are the worst of all rounds, against float64 LAPACK: of s relative "
    "to each value, the sine of the largest angle between the spaces of right vectors. × of a peer: how many times "
    "what the quickest of ours takes that is no less accurate in s and sine; of memory, what part of the peer's ours "
    "takes. A ratio at lower accuracy is in brackets and doesn't count."
)


def as_accurate(ours: Row, peer: Row, within: float | None = None) -> bool:
    """Return whether ours is at least as accurate as a peer; `within` only requires values of that accuracy."""
    if within is not None:
        return bool(ours["error"] <= within)
    fields = ("error", "sine") + (("orthogonality",) if "bound" not in ours else ())
    return all(ours[field] <= max(peer[field], ROUNDING[field]) for field in fields if field in peer and field in ours)


def best(rows: list[Row], peer: Row, field: str = "seconds", within: float | None = None) -> tuple[Row | None, bool]:
    """Return the fastest row that may be compared with a peer and True; else the fastest row, or None, and False."""
    counted = [row for row in rows if as_accurate(row, peer, within)]
    return min(counted or rows, key=lambda row: row[field], default=None), bool(counted)


def table(name: str, rows: list[Row]) -> str:
    """One case."""
    lines = [f"**{name}**", "", *HEAD]
    ours = [row for row in rows if row["ours"] and "failed" not in row]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['method']} | {row['failed']} |" + " |" * 11)
            continue
        chosen, counted = (None, False) if row["ours"] else best(ours, row)
        ratios = ["", "", ""]
        if chosen:
            found = (row["seconds"] / chosen["seconds"], row["cpu"] / chosen["cpu"], chosen["peak"] / row["peak"])
            shown = [f"{found[0]:.1f}", f"{found[1]:.1f}", f"{found[2]:.2f}"]
            ratios = shown if counted else [f"({each})" for each in shown]
        deviation = f"{row['deviation']:.1f} standard deviations" if "deviation" in row else ""
        lines.append(
            f"| {row['method']} | {row['rounds']} | {row['seconds']:.2f} | {row['least']:.2f}–{row['most']:.2f} "
            f"| {ratios[0]} | {row['cpu']:.2f} | {ratios[1]} | {row['peak'] / 1e6:.0f} | {ratios[2]} "
            f"| {_small(row, 'error') or deviation} | {_small(row, 'sine')} | {_small(row, 'orthogonality')} "
            f"| {_small(row, 'bound')}{_passes(row)} |"
        )
    return "\n".join(lines)


def _small(row: Row, field: str) -> str:
    return f"{row[field]:.1e}" if field in row else ""


def _passes(row: Row) -> str:
    return f" in {row['passes']} passes" if "passes" in row else ""
