"""Required and hoped-for targets, compared with the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.benchmarks.svd import cases
from tests.benchmarks.svd.tables import Row, best

Case = dict[str, Row]


@dataclass(frozen=True)
class Target:
    """A ratio between ours and a peer."""

    work: str
    case: str
    ours: str
    """Prefix of the names of our methods that take part."""
    peer: str
    must: float
    stretch: float | None = None
    field: str = "seconds"
    within: float | None = None
    """Our values need only be this right, instead of no less accurate than the peer."""
    values: bool = False
    """Our values, if not our vectors, need be no less accurate than the peer's."""
    at_most: bool = False
    """Of memory, the part that ours takes."""


def _genotypes(case: str, what: str, size: str = "") -> list[Target]:
    """With what is in memory in this form, packed or in bytes."""
    ten, best, sklearn = cases.DASK_TEN, cases.DASK_BEST, cases.SKLEARN
    numpy, fast = f"ours NumPy, {what}", f"ours fast, {what}"
    by_numpy, by_fast = f"genotype PCA{size}, NumPy only, {what}", f"genotype PCA{size}, fast, {what}"
    return [
        Target(f"{by_numpy}, against {ten}", case, numpy, ten, 18, 25),
        Target(f"{by_numpy}, against {best}", case, numpy, best, 3, 5),
        Target(f"{by_numpy}, memory of dask f64's", case, numpy, ten, 0.18, 0.12, "peak", at_most=True),
        Target(f"{by_fast}, against {ten}", case, fast, ten, 30, 45),
        Target(f"{by_fast}, against {best}", case, fast, best, 5, 8),
        Target(f"{by_fast}, against {sklearn}", case, fast, sklearn, 5, 8),
    ]


def _arpack(case: str, size: str = "") -> list[Target]:
    shown = f"packed{size}, against ARPACK f32 at errors ≤ 1e-6"
    return [
        Target(f"{kernel}, {shown}", case, f"ours {kernel}, packed", cases.ARPACK, 3, 5, within=1e-6)
        for kernel in ("NumPy", "fast")
    ]


def targets() -> list[Target]:
    """Return the issue's targets that are ratios between methods of one case."""
    found = [*_genotypes(cases.WEAK, "packed"), *_genotypes(cases.WEAK, "bytes"), *_arpack(cases.WEAK)]
    size = ", 400 000 × 5 000"
    found += [*_genotypes(cases.LARGE, "packed", size), *_arpack(cases.LARGE, size)]
    for ours in ("ours NumPy, .bed", "ours fast, .bed"):
        name = f"{ours.removeprefix('ours ')}, against plink2 exact, CPU seconds, errors ≤ 1e-6"
        found.append(Target(name, cases.PATTERSON, ours, cases.PLINK, 10, 20, "cpu", within=1e-6))
    beside = {10: {"PCAone": 15, "PCAone, out of core": 25}, 40: {"PCAone": 15, "PCAone, Arnoldi": 9}}
    for k, musts in beside.items():
        for peer, must in musts.items():
            name = f"k = {k}, against {peer}, by values"
            found.append(Target(name, cases.PCAONE[k], "ours fast", peer, must, values=True))
    for what, must, stretch in (("lz4", 12, 20), ("2-bit", 20, 40)):
        for kernel in ("NumPy", "fast"):
            name = f"from Zarr {what}, {kernel}, against da.from_zarr + svd_compressed"
            peer = f"from_zarr, {cases.DASK_TEN}"
            found.append(Target(name, cases.DISK, f"ours {kernel}, {what}", peer, must, stretch))
    for columns in (100, 20):
        for condition, must, stretch in (("1e+08", 8, 12), ("1e+12", 6, 9)):
            case = f"tall, {columns} columns, condition {condition}"
            found.append(Target(case, case, "ours", "dask", must, stretch))
            found.append(Target(f"{case}, memory of dask's", case, "ours", "dask", 0.6, None, "peak", at_most=True))
    found.append(Target("array sum, NumPy", cases.SUM, "ours NumPy, fused", cases.POST, 2.2))
    found.append(Target("array sum, fast", cases.SUM, "ours fast, fused", cases.POST, 12, 18))
    return found


def table(rows: list[Row], certificate: dict[str, Any] | None) -> str:
    """All lines whose case was measured."""
    named: dict[str, Case] = {}
    for row in rows:
        if "failed" not in row:
            named.setdefault(row["case"], {})[row["method"]] = row
    lines = ["**Must and stretch**", "", "| work | must | stretch | measured | |", "|---|---|---|---|---|"]
    lines += [_line(target, named[target.case]) for target in targets() if target.peer in named.get(target.case, {})]
    lines += _first(named.get(cases.PCAONE[10], {}))
    lines += _orthogonal(named)
    for kernel in ("NumPy", "fast"):
        lines += _growth(named.get(cases.GROWTH, {}), kernel)
    lines += _certified(named.get(cases.WEAK, {}), certificate)
    return "\n".join(lines)


def _line(target: Target, case: Case) -> str:
    peer = case[target.peer]
    ours = [row for name, row in case.items() if row["ours"] and name.startswith(target.ours)]
    # The memory is that of the method whose time counts.
    within = peer["error"] if target.values else target.within
    chosen, counted = best(ours, peer, "cpu" if target.field == "cpu" else "seconds", within)
    if chosen is None:
        return f"| {target.work} | {target.must} | {target.stretch or '–'} | not measured | |"
    ratio = peer[target.field] / chosen[target.field]
    ratio = 1 / ratio if target.at_most else ratio
    shown = f"{ratio:.2f}" if target.at_most else f"{ratio:.1f} ×"
    if "error" in chosen:
        name = chosen["method"].removeprefix("ours ")
        shown += f" ({name}: error {chosen['error']:.1e}, the peer's {peer['error']:.1e})"
    verdict = _verdict(ratio, target.must, target.stretch, target.at_most) if counted else "lower accuracy, not counted"
    sign = "≤ " if target.at_most else ""
    stretch = f"{sign}{target.stretch}" if target.stretch else "–"
    return f"| {target.work} | {sign}{target.must} | {stretch} | {shown} | {verdict} |"


def _verdict(value: float, must: float, stretch: float | None, at_most: bool) -> str:
    def reached(wanted: float) -> bool:
        return value <= wanted if at_most else value >= wanted

    if stretch is not None and reached(stretch):
        return "stretch reached"
    return "pass" if reached(must) else "not reached"


def _first(case: Case) -> list[str]:
    if cases.FIRST not in case:
        return []
    seconds = case[cases.FIRST]["seconds"]
    # numba loads its compiled functions from a cache; patched LLVM text was quicker, and nobody could maintain it.
    verdict = _verdict(seconds, 0.95, 0.5, True)
    return [f"| first call of a process, k = 10 | ≤ 0.95 s | ≤ 0.5 s | {seconds:.2f} s | {verdict} |"]


def _orthogonal(named: dict[str, Case]) -> list[str]:
    found = {name: case["ours"]["orthogonality"] for name, case in named.items() if "ours" in case}
    if not found:
        return []
    worst = max(found.values())
    verdict = _verdict(worst, 1e-13, None, True)
    return [f"| tall-skinny, ‖UᵀU − I‖ of all {len(found)} | ≤ 1e-13 | – | {worst:.1e} | {verdict} |"]


def _growth(case: Case, kernel: str) -> list[str]:
    one, eight = (case.get(f"ours {kernel}, rows × {factor}") for factor in (1, 8))
    if one is None or eight is None:
        return []
    time = eight["seconds"] / one["seconds"]
    each = time * one["passes"] / eight["passes"]
    # Of the whole process, as a limit counts it.
    memory = eight["process"] / one["process"] - 1
    passes = f"{one['passes']} and {eight['passes']} passes, {each:.1f} × a pass"
    # Fewer passes over more rows would flatter us.
    judged = _verdict(max(time, each), 9, 8.2, True)
    held = f"{memory:+.0%} ({one['process'] / 1e6:.0f} and {eight['process'] / 1e6:.0f} MB with Python)"
    work = f"eight times the rows, beyond the memory limit, {kernel}"
    return [
        f"| {work}: time | ≤ 9 | ≤ 8.2 | {time:.1f} × ({passes}) | {judged} |",
        f"| {work}: more memory | ≤ 10 % | – | {held} | {_verdict(memory, 0.1, None, True)} |",
    ]


def _certified(case: Case, certificate: dict[str, Any] | None) -> list[str]:
    found = []
    if certificate:
        wrong, runs = certificate["accepted and wrong"], certificate["runs"]
        verdict = _verdict(wrong, 0, None, True)
        found.append(
            f"| certificate: accepted and wrong, {certificate['cases']} cases × {certificate['seeds']} seeds "
            f"| 0 | – | {wrong} of {certificate['accepted']} accepted ({runs} runs) | {verdict} |"
        )
    ratios = {name: row["bound"] / row["error"] for name, row in case.items() if "bound" in row}
    for tol in ("1e-3", "1e-4"):
        here = [ratio for name, ratio in ratios.items() if name.endswith(tol) and "svd_compressed" not in name]
        if here:
            verdict = _verdict(max(here), 12, None, True).replace("pass", "stretch reached")
            shown = f"{min(here):.1f} to {max(here):.1f}"
            found.append(
                f"| certificate: bound over true error, genotypes, tol={tol} | ≥ 1 | ≤ 12 | {shown} | {verdict} |"
            )
    return found
