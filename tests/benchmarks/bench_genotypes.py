"""Quality and relatives of genotypes compared with PLINK 2, in turn: `python -m tests.benchmarks genotypes`.

Simulated as in the targets: 60 000 variants × 3000 samples of twelve populations, F_ST 0.01, 1 % missing, from a .bed
file. Each measurement is a process of its own; ours is
given twice, with Python's start and imports, and without, as it is in a notebook. Both answers are compared: counts and
printed digits of each site and of each related pair. CPU seconds say more than seconds where
something else runs: the load is printed with them. `--quick` is a twentieth, `--rounds N`, `--write` keeps
results/genotypes-<date>.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
CUTOFF = 0.01
CASES: Mapping[str, tuple[str, ...]] = {
    "quality": ("--missing", "--freq", "--hardy"),
    "relatives": ("--make-king-table", "--king-table-filter", str(CUTOFF)),
}


def simulated(folder: Path, variants: int, samples: int) -> None:
    """Write a .bed file in which a few samples are children of others, so that there are relatives to find."""
    from tests.test_genotypes_pca import bed_file
    from workbench.genotypes import simulate

    x = simulate(variants, samples, n_populations=12, fst=0.01, missing=0.01, seed=1).counts().compute()
    rng = np.random.default_rng(0)
    for child in range(0, samples // 2, samples // 20):
        known = (x[:, child] < 3) & (x[:, child + 1] < 3)
        alleles = (rng.random((variants, 2)) < x[:, [child, child + 1]] / 2).sum(axis=1)
        x[known, child + 2] = alleles[known]
    bed_file(folder, x, [str(1 + 22 * i // variants) for i in range(variants)])


def ours(case: str, folder: Path) -> None:
    """One of the three, whose answer is left in a file, with its seconds and seconds of CPU after imports."""
    import distributed  # noqa: F401  (Dask imports it with the first computation)

    from workbench import genotypes

    start, cpu = time.perf_counter(), time.process_time()
    path, found = str(folder / "study.bed"), {}
    if case == "quality":
        quality = genotypes.qc(path)
        found = {"missing": quality.counts[:, 3], "frequency": quality.frequency, "p": quality.hwe}
        found["by_sample"] = quality.by_sample[:, 3]
    else:
        related = genotypes.kinship(path, CUTOFF)
        found = {"pairs": related.pairs, "kinship": related.kinship}
    took = time.perf_counter() - start, time.process_time() - cpu
    np.savez(folder / "ours.npz", took=took, **found)


def told(folder: Path, suffix: str, name: str) -> list[str]:
    header, *lines = [line.split() for line in (folder / f"told.{suffix}").read_text().splitlines()]
    return [line[header.index(name)] for line in lines]


def same(case: str, folder: Path) -> str:
    """Compare the answers, and return what was compared, or an error if they differ."""
    with np.load(folder / "ours.npz") as arrays:
        found = dict(arrays)
    if case == "quality":
        assert found["missing"].tolist() == list(map(int, told(folder, "vmiss", "MISSING_CT")))
        assert found["by_sample"].tolist() == list(map(int, told(folder, "smiss", "MISSING_CT")))
        np.testing.assert_allclose(found["frequency"], np.array(told(folder, "afreq", "ALT_FREQS"), float), rtol=5.1e-6)
        # PLINK says 0 below the smallest normal number.
        p, tiny = np.array(told(folder, "hardy", "P"), float), np.finfo(float).tiny
        np.testing.assert_allclose(found["p"], p, rtol=5.1e-6, atol=tiny)
        return f"{len(found['p'])} sites alike in all digits"
    names = zip(told(folder, "kin0", "IID1"), told(folder, "kin0", "IID2"), strict=True)
    pairs = [tuple(sorted(int(name[1:]) for name in pair)) for pair in names]
    kinship = dict(zip(pairs, map(float, told(folder, "kin0", "KINSHIP")), strict=True))
    mine = {tuple(sorted(pair)): phi for pair, phi in zip(found["pairs"].tolist(), found["kinship"], strict=True)}
    assert mine.keys() == kinship.keys()
    assert all(abs(phi - kinship[pair]) <= 5.1e-6 * abs(phi) for pair, phi in mine.items())
    return f"{len(pairs)} pairs alike in all digits"


def timed(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds, seconds of CPU and peak MB of a command."""
    script = "import resource,subprocess,sys;subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL);"
    script += "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(u.ru_utime+u.ru_stime,u.ru_maxrss/1024)"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=folder, capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - start
    cpu, peak = map(float, done.stdout.split()[-2:])
    return seconds, cpu, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        return ours(asked.one[0], Path(asked.one[1]))
    if shutil.which("plink2") is None:
        sys.exit("plink2 is not installed: sh tests/apt-install.sh plink2")
    variants, samples = (3000, 600) if asked.quick else (60_000, 3000)
    lines = [f"# Genotypes beside PLINK 2, {variants} variants × {samples} samples", ""]
    lines += ["| | seconds | least–most | CPU seconds | peak MB | |", "|---|---|---|---|---|---|"]
    root = str(Path(__file__).parents[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulated(folder, variants, samples)
        for case, arguments in CASES.items():
            alone = f"import sys; sys.path.insert(0, {root!r}); sys.argv[1:] = ['--one', {case!r}, {str(folder)!r}]; "
            alone += "from tests.benchmarks.bench_genotypes import main; main()"
            ways = {
                "ours": [sys.executable, "-W", "ignore", "-c", alone],
                "plink2": ["plink2", "--bfile", "study", *arguments, "--threads", str(os.cpu_count()), "--out", "told"],
            }
            rows: dict[str, list[tuple[float, float, float]]] = {way: [] for way in (*ways, "ours, after imports")}
            for turn in range(asked.rounds + 1):
                for way in list(ways)[:: -1 if turn % 2 else 1]:
                    rows[way].append(timed(ways[way], folder))
                with np.load(folder / "ours.npz") as arrays:
                    rows["ours, after imports"].append((*arrays["took"].tolist(), rows["ours"][-1][2]))
            agreed = same(case, folder)
            for way, measured in rows.items():
                middle = [statistics.median(column) for column in zip(*measured[1:], strict=True)]
                seconds = [row[0] for row in measured[1:]]
                spread = f"{middle[0]:.2f} | {min(seconds):.2f}–{max(seconds):.2f}"
                lines.append(f"| {case}, {way} | {spread} | {middle[1]:.2f} | {middle[2]:.0f} | {agreed} |")
                print(lines[-1], flush=True)
    load = f"Medians of {asked.rounds} rounds in turn, after one more; {os.cpu_count()} cores, "
    load += f"on which {os.getloadavg()[1]:.1f} processes wanted to run."
    lines += ["", load, ""]
    print(load)
    if asked.write:
        (RESULTS / f"genotypes-{datetime.date.today()}.md").write_text("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
