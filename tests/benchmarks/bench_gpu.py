"""The posts' experiments on a GPU, compared with the posts' times and with plain CuPy.

    python -m tests.benchmarks.bench_gpu [--into FOLDER] [--part 1.0] [--only WORD] [--limit SECONDS]

Each experiment is a run, on a cluster of one GPU and, where there are several, of all. Plain CuPy computes the same in
a process of its own, where it fits on the card. What the card reaches when it only copies, or multiplies matrices, is
measured too: `of_bandwidth` and `of_peak` are parts of that. gpu-DATE.json is written anew after each experiment, and
one that fails or takes longer than its limit is in the summary and holds up no other. On simulated devices each
side of an array is SIMULATED_SIDES times shorter, which the JSON says.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.clusters import cuda

RESULTS = Path(__file__).parent / "results"
_LIMIT = 90.0
"""Seconds for one experiment, and as many for the same in plain CuPy."""

PACKED = (10_000_000, 20_000)
"""Variants and samples of the goal, 50 GB in two bits each."""
SIMULATED_SIDES = 100
"""On devices that are simulated each side of an array that is measured, and of its blocks, is so many times shorter."""
_OF_CARD = 0.6
"""Part of a card's memory that packed genotypes may take; the products need some, too."""
_CHANCE = 0.001
"""Part by which answers from different random numbers of the same kind may differ at the posts' sizes."""
_DRIFT = 0.1  # F_ST
_ROWS = 4096

Measured = dict[str, Any]


def experiments(part: float, shorter: int = 1) -> tuple[Measured, ...]:
    """Workload and parameters of each, a `part` as high as in the post, with the seconds that the post took.

    Each side of an array and of its blocks is `shorter` times shorter than that.
    """

    def scaled(rows: int, columns: int, block: int) -> list[int]:
        # Dask's SVD of a held array in one block loses it (dask 2026.7.1), so there are two at the least.
        return [max(2 * block, int(rows * part) // block * block) // shorter, columns // shorter]

    as_in_post = {
        "k": 10,
        "method": "dask",
        "n_power_iter": 0,
        "tolerance": 1.0,
        "dtype": "uint8",
        "chunks": [20_000 // shorter, 5_000 // shorter],
    }
    return (
        {
            "name": "array_sum, 2 TB",
            "workload": "array_sum",
            "parameters": {
                "shape": scaled(500_000, 500_000, 10_000),
                "chunks": [10_000 // shorter, 10_000 // shorter],
                "generator": "RandomState",
            },
            "post": {"one V100": 97.0, "eight V100": 19.0},
            "plain": "plain_sum",
        },
        {
            "name": "array_sum, 2 TB, every number made and none stored",
            "workload": "array_sum",
            "parameters": {
                "shape": scaled(500_000, 500_000, 50_000),
                "chunks": [50_000 // shorter, 50_000 // shorter],
                "generator": "fused",
            },
            "post": {"one V100": 97.0, "eight V100": 19.0},
            "plain": None,
        },
        {
            "name": "tall_skinny_svd, 1 000 000 × 1 000",
            "workload": "tall_skinny_svd",
            "parameters": {
                "shape": scaled(1_000_000, 1_000, 10_000),
                "chunks": [10_000 // shorter, 1_000 // shorter],
                "persist": True,
                "method": "dask",
            },
            "post": {},
            "plain": "plain_svd",
        },
        {
            "name": "compressed_svd, 20 GB of uint8",
            "workload": "compressed_svd",
            "parameters": {"shape": scaled(1_000_000, 20_000, 20_000), "persist": True, **as_in_post},
            "post": {"laptop": 150.0},
            "plain": "plain_compressed",
        },
        {
            "name": "compressed_svd, 200 GB of uint8, made again at each pass",
            "workload": "compressed_svd",
            "parameters": {"shape": scaled(10_000_000, 20_000, 20_000), "compute": True, **as_in_post},
            "post": {"sixteen V100 (DGX-2)": 15.0},
            "plain": None,
        },
    )


def main() -> None:
    """Measure, print and write; the exit code is 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--part", type=float, default=1.0, help="of the posts' rows, such as 0.01 for a try (1.0)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="those with it in their name")
    parser.add_argument("--limit", type=float, default=_LIMIT, help=f"seconds for one experiment ({_LIMIT:g})")
    arguments = parser.parse_args()
    problem = cuda.problem()
    if problem is not None:
        print(f"There is no GPU to measure: {problem}.")
        return
    words = [re.sub(r"\W+", "-", word) for word in arguments.only]
    path = arguments.into / f"{'-'.join(['gpu', time.strftime('%Y-%m-%d'), *words])}.json"
    found = head(arguments.part, arguments.limit)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DASK_WORKBENCH__DATA_FOLDER", folder)
        with Clusters() as clusters:
            chained(chosen(steps(found, clusters, arguments.limit), arguments.only), found, path)
    print("", *lines(found), path, sep="\n")
    sys.exit(any(failed(each) for each in found["experiments"]))


def simulated(devices: Sequence[str]) -> bool:
    """Return whether devices of these names are simulated."""
    return any("SIMULATED" in name for name in devices)


def head(part: float, limit: float) -> Measured:
    """Return the machine's description, and the speeds that the card reaches."""
    from workbench.hardware import inventory

    there = inventory()
    gpus = [gpu for gpu in there.visible_gpus() if gpu.uuid is not None]
    names = [gpu.name for gpu in gpus]
    shorter = SIMULATED_SIDES if simulated(names) else 1
    return {
        "date": time.strftime("%Y-%m-%d"),
        "driver": there.cuda.driver_version,
        "part": part,
        "devices": names,
        "memory_total": gpus[0].memory_total,
        "simulated": SIMULATED if simulated(names) else None,
        "sides_divided_by": shorter,
        "versions": versions(),
        "limits": in_a_process("limits", {"shorter": shorter}, limit),
        "experiments": [],
    }


SIMULATED = (
    "The devices are SIMULATED and CuPy is a stand-in made of NumPy: no time here is a GPU's. Each side of an array "
    f"that is measured, and of its blocks, is {SIMULATED_SIDES} times shorter than its name says."
)

Step = tuple[Measured, Callable[[], Measured]]
"""Known data of an experiment before it starts, and the function that measures it."""


def steps(found: Measured, clusters: Clusters, limit: float) -> list[Step]:
    """All experiments, in their order."""
    told: list[Step] = []
    n_gpus, shorter = len(found["devices"]), found["sides_divided_by"]
    for profile, count in (("gpu", 1), ("gpus", n_gpus))[: min(2, n_gpus)]:
        for each in experiments(found["part"], shorter):
            known = {**marked(each, shorter), "profile": profile, "n_gpus": count}
            told.append((known, partial(on_cluster, clusters, known, found, limit)))
    known = marked(on_the_card(found["part"], found["memory_total"], shorter), shorter)
    measure = partial(in_a_process, "packed_components", {**known["parameters"], "limit": limit}, limit)
    return [*told, (known, measure)]


def marked(each: Measured, shorter: int) -> Measured:
    """Return an experiment, marked as simulated in its name; then it isn't compared with the post's times."""
    return each if shorter == 1 else {**each, "name": f"SIMULATED, each side 1/{shorter}: {each['name']}", "post": {}}


def chosen(told: Sequence[Step], words: Sequence[str]) -> list[Step]:
    """Return the experiments with one of the words in their name; all if no words are given."""
    kept = [step for step in told if not words or any(word in step[0]["name"] for word in words)]
    if not kept:
        names = "; ".join(known["name"] for known, _ in told)
        sys.exit(f"No experiment has {' or '.join(map(repr, words))} in its name. There are: {names}.")
    return kept


def chained(told: Sequence[Step], found: Measured, path: Path) -> None:
    """Add each experiment to `found` and write that to `path`, whatever became of those before."""
    for known, measure in told:
        try:
            measured = measure()
        except Exception as err:  # noqa: BLE001 - the others are measured all the same
            measured = {"seconds": None, "error": f"{type(err).__name__}: {err}"}
        found["experiments"].append({"check": None, "warning": None, **known, **measured})
        written = path.with_suffix(".part")
        written.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        written.replace(path)
        print(lines_of(found["experiments"][-1])[0], flush=True)


def failed(each: Measured) -> bool:
    """Return whether an experiment, its plain CuPy version, or its check failed."""
    plain = each["plain"]
    unchecked = each["check"] is not None and not each["check"]["passed"]
    return each["seconds"] is None or unchecked or (isinstance(plain, dict) and plain["seconds"] is None)


class Clusters:
    """One cluster at a time, started when an experiment needs it, and anew after one that didn't end well."""

    def __init__(self) -> None:
        self._record: Any = None
        self._profile = ""

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def of(self, profile: str) -> Any:
        """Return the record of the cluster of this profile."""
        from workbench.session import Session

        if self._record is None or self._profile != profile:
            self.stop()
            session = Session()
            # Under a name of its own: an earlier benchmark that was killed may have left a cluster.
            self._record, self._profile = session.start(session.plan(profile), force=True), profile
            self._record = session.wait(self._record.name, timeout=60)
        return self._record

    def stop(self) -> None:
        """Stop the cluster, if there is one: a kernel that runs can't be stopped otherwise."""
        from workbench.session import Session

        record, self._record = self._record, None
        if record is not None:
            Session().stop(record.name)


def on_cluster(clusters: Clusters, known: Measured, found: Measured, limit: float) -> Measured:
    """One experiment, tried twice where its limit allows it: the first one compiles CuPy's kernels."""
    from workbench.runs.submit import cancel, finish, submit

    record = clusters.of(known["profile"])
    tries = 1 if found["simulated"] else 2
    runs: list[Any] = []
    began = time.monotonic()
    while len(runs) < tries and not (runs and (runs[-1].status != "done" or _left(began, limit) < runs[-1].seconds)):
        run = finish(submit(known["workload"], known["parameters"], record).id, timeout=_left(began, limit))
        if run.active:
            cancel(run.id)
            clusters.stop()
            break
        runs.append(run)
    told = of_runs(known, runs, found["limits"]) if runs else {"seconds": None, "error": f"stopped after {limit:g} s"}
    if told["seconds"] is None:
        clusters.stop()
    elif known["plain"] is not None and known["profile"] == "gpu":
        # The card's memory is the cluster's while that runs.
        clusters.stop()
        plain = in_a_process(known["plain"], known["parameters"], limit)
        told["plain"] = the_same(plain, told, _CHANCE * found["sides_divided_by"])
    return told


def _left(began: float, limit: float) -> float:
    return began + limit - time.monotonic()


def of_runs(each: Measured, runs: list[Any], limits: Measured) -> Measured:
    """Return the results of the runs of one experiment."""
    last = runs[-1]
    if last.status != "done":
        return {"seconds": None, "error": last.error}
    seconds = min(run.seconds for run in runs)
    told = {
        "seconds": seconds,
        "all_seconds": [run.seconds for run in runs],
        "result": {name: value for name, value in (last.result or {}).items() if name != "singular_values"},
        "answer": _answer(last.result or {}),
        "check": last.check.model_dump() if last.check else None,
        "on_gpu": last.on_gpu.sentence if last.on_gpu else None,
        "warning": last.on_gpu.warning if last.on_gpu else None,
        "joules": last.energy.joules if last.energy else None,
        "bytes_per_second": last.bytes / seconds if last.bytes else None,
    }
    n_gpus = max(1, len(last.spec.devices))
    if last.bytes and "bytes_per_second" in limits:
        # An element is written once and read once at the least.
        told["of_bandwidth"] = 2 * last.bytes / seconds / (n_gpus * limits["bytes_per_second"])
    if each["workload"] == "tall_skinny_svd" and "float64_per_second" in limits:
        rows, columns = last.resolved["shape"]
        # QR with its Q takes 4 m n², and Q times the small U 2 m n² more.
        told["of_peak"] = 6 * rows * columns**2 / seconds / (n_gpus * limits["float64_per_second"])
    return told


def _answer(result: Measured) -> float:
    """Return the sum, or the first singular value."""
    return float(result["value"] if "value" in result else result["singular_values"][0])


def the_same(plain: Measured, ours: Measured, chance: float = _CHANCE) -> Measured:
    """`plain`, or an error where its answer isn't ours but for the chance that made other numbers of the same kind."""
    if plain["seconds"] is None or math.isclose(plain["answer"], ours["answer"], rel_tol=chance):
        return plain
    return {"seconds": None, "error": f"it answers {plain['answer']!r}, and the run {ours['answer']!r}"}


def on_the_card(part: float, memory: int | None, shorter: int = 1) -> Measured:
    """Components of genotypes that are packed to two bits on one card, as many of the goal's variants as fit there."""
    shape = packed_shape(part, memory)
    return {
        "name": f"components of {shape[0]} × {shape[1]} genotypes in 2 bits",
        "workload": None,
        "parameters": {"shape": [side // shorter for side in shape], "k": 10},
        "post": {"200 GB of uint8 on sixteen V100 (DGX-2)": 15.0},
        "plain": None,
        "profile": "gpu",
        "n_gpus": 1,
    }


def packed_shape(part: float, memory: int | None) -> list[int]:
    """Variants and samples that take at most so much of a card's memory when they are packed."""
    n_variants, n_samples = PACKED
    n_variants = max(1, int(n_variants * part))
    if memory is not None:
        n_variants = min(n_variants, int(_OF_CARD * memory) // (n_samples // 4))
    return [n_variants, n_samples]


def packed_components(shape: list[int], k: int, limit: float = _LIMIT) -> Measured:
    """Return the seconds of `workbench.genotypes.pca` on the card, and how accurate the values are."""
    import dask

    from workbench.genotypes import pca

    started = time.monotonic()
    with dask.config.set(scheduler="threads", num_workers=4):
        genotypes = packed_genotypes("cupy", *shape, n_populations=k + 1)
        # Making them isn't part of the time: a file would be read, and the goal's posts held theirs in memory.
        genotypes = replace(genotypes, packed=genotypes.packed.persist())
        seconds: list[float] = []
        while len(seconds) < 2 and not (seconds and _left(started, limit) < 1.5 * seconds[0]):
            began = time.perf_counter()
            # What comes back is in the host's memory, so the card is done.
            found = pca(genotypes, k, keep=True)
            seconds.append(time.perf_counter() - began)
    told = found.certificate
    return {
        "seconds": min(seconds),
        "all_seconds": seconds,
        "packed_bytes": genotypes.packed.nbytes,
        "singular_values": found.singular_values.tolist(),
        "certificate": told.sentence,
        "reached": told.status != "not reached",
        "passes": told.passes,
    }


def packed_genotypes(module: str, n_variants: int, n_samples: int, *, n_populations: int, seed: int = 0) -> Any:
    """Genotypes of populations that drifted apart, drawn block by block with `cupy` or `numpy` where they then lie."""
    import dask.array as da
    import numpy as np

    from workbench.genotypes import Genotypes, device
    from workbench.genotypes.operator import blocked
    from workbench.genotypes.packing import packed_width

    samples, width = np.arange(n_samples).astype(str), packed_width(n_samples)
    # In the blocks that the operator wants, or it would copy them all into others on the card.
    empty = Genotypes(da.empty((n_variants, width), dtype=np.uint8, chunks=-1), samples)
    heights = blocked(empty, largest=device.LARGEST_BLOCK).chunks[0]
    meta = importlib.import_module(module).asarray(np.empty((0, 0), np.uint8))
    packed = da.map_blocks(
        _drawn, module, heights, n_samples, n_populations, seed, dtype=np.uint8, chunks=(heights, (width,)), meta=meta
    )
    return Genotypes(packed, samples)


def _drawn(
    module: str, heights: Any, n_samples: int, n_populations: int, seed: int, block_id: tuple[int, int] = (0, 0)
) -> Any:
    """Packed rows; frequencies drift as in Balding and Nichols' model, but by a normal distribution of its variance."""
    import numpy as np

    from workbench.genotypes.packing import pack

    xp, height = importlib.import_module(module), heights[block_id[0]]
    packed = xp.empty((height, -(-n_samples // 4)), np.uint8)
    rs = xp.random.RandomState(seed * 1_000_003 + block_id[0])
    # A byte for each genotype of some rows at a time: those of a block would take a good part of the card.
    for start in range(0, height, _ROWS):
        part = packed[start : start + _ROWS]
        part[:] = pack(_counts(rs, len(part), n_samples, n_populations))
    return packed


def _counts(rs: Any, height: int, n_samples: int, n_populations: int) -> Any:
    import numpy as np

    from workbench.linalg.gpu import namespace

    ancestral = rs.uniform(0.05, 0.95, size=(height, 1))
    xp = namespace(ancestral)
    apart = rs.normal(size=(height, n_populations)) * xp.sqrt(_DRIFT * ancestral * (1 - ancestral))
    levels = xp.clip(256 * (ancestral + apart), 0, 255).astype(np.uint8)
    levels = levels[:, xp.asarray(np.arange(n_samples) * n_populations // n_samples)]
    first, second = (rs.randint(0, 256, size=(height, n_samples), dtype="uint8") < levels for _ in range(2))
    return first.astype(np.uint8) + second.astype(np.uint8)


def in_a_process(name: str, parameters: Measured, limit: float = _LIMIT) -> Measured:
    """Call a function of this module in a new process, which frees the card at its end; return its measurements."""
    call = f"bench_gpu.{name}(**json.load(sys.stdin))"
    code = f"import json, sys\nfrom tests.benchmarks import bench_gpu\nprint(json.dumps({call}))"
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, input=json.dumps(parameters), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"seconds": None, "error": f"stopped after {limit:g} s"}
    if done.returncode:
        return {"seconds": None, "error": done.stderr.strip().splitlines()[-1]}
    told: Measured = json.loads(done.stdout)
    return told


def limits(shorter: int = 1) -> Measured:
    """Bytes a second that the card copies, reads and writes together, and float64 operations when it multiplies."""
    import cupy

    length, side = 2**28 // shorter, 8192 // shorter
    source, target = cupy.ones(length), cupy.empty(length)
    a = cupy.random.random((side, side))
    copying = best(lambda: cupy.copyto(target, source), 20)
    multiplying = best(lambda: a @ a, 5)
    return {
        "bytes_per_second": 2 * source.nbytes / copying,
        "float64_per_second": 2 * side**3 / multiplying,
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


def best(function: Any, times: int) -> float:
    """Return the shortest of `times` measurements, after one to warm up."""
    import cupy

    seconds = []
    for _ in range(times + 1):
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        function()
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def timed(function: Callable[[], Any], times: int) -> Measured:
    """Return the shortest of `times` measurements, and the answer."""
    answers: list[Any] = []
    return {"seconds": best(lambda: answers.append(function()), times), "answer": float(answers[-1])}


def plain_sum(shape: list[int], chunks: list[int], **_: Any) -> Measured:
    """Return the seconds of array_sum in a loop over its blocks, with one generator."""
    import cupy

    def run() -> Any:
        rs = cupy.random.RandomState(0)
        total = cupy.zeros(())
        for _ in range((shape[0] // chunks[0]) * (shape[1] // chunks[1])):
            total += (rs.normal(10, 1, size=tuple(chunks)) + 1)[::2, ::2].sum()
        return total.get()

    return timed(run, 1)


def plain_svd(shape: list[int], **_: Any) -> Measured:
    """Return the seconds of an SVD of the whole matrix, which is a QR first: CuPy's gesvd alone takes minutes here."""
    import cupy

    x = cupy.random.RandomState(0).random_sample(tuple(shape))

    def run() -> Any:
        q, r = cupy.linalg.qr(x)
        u, s, _vh = cupy.linalg.svd(r)
        return (q @ u, s)[1][0]

    return timed(run, 1)


def plain_compressed(shape: list[int], chunks: list[int], k: int, **_: Any) -> Measured:
    """Return the seconds of a compressed SVD of a matrix that is on the card, block of rows by block of rows."""
    import cupy

    rs = cupy.random.RandomState(0)
    step = chunks[0]
    x = cupy.concatenate([rs.randint(0, 3, size=(step, shape[1]), dtype="uint8") for _ in range(shape[0] // step)])

    def run() -> Any:
        omega = rs.normal(size=(shape[1], k + 10))
        blocks = [x[row : row + step] for row in range(0, len(x), step)]
        q, _ = cupy.linalg.qr(cupy.concatenate([block.astype("float64") @ omega for block in blocks]))
        parts = zip(blocks, range(0, len(x), step), strict=True)
        small = sum(q[row : row + step].T @ block.astype("float64") for block, row in parts)
        return cupy.linalg.svd(small, full_matrices=False)[1][0]

    return timed(run, 2)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that take part."""
    import platform

    from workbench.packages import installed_version

    names = ["dask-workbench", "dask", "distributed", "dask-cuda", "numba-cuda", "numba", "numpy"]
    names += ["cupy-cuda13x", "rmm-cu13", "distributed-ucxx-cu13", "cupy-cuda12x", "rmm-cu12", "distributed-ucxx-cu12"]
    found = {name: installed_version(name) for name in names}
    return {"python": platform.python_version(), **{name: value for name, value in found.items() if value is not None}}


def lines(found: Measured) -> list[str]:
    """Everything for a person."""
    card = found["limits"]
    told = [f"{', '.join(found['devices'])}, {found['date']}, part {found['part']:g} of the posts' sizes"]
    if "error" in card:
        told.append(f"what the card reaches is not known: {card['error']}")
    else:
        copying, multiplying = (card[name] / 1e12 for name in ("bytes_per_second", "float64_per_second"))
        told.append(f"copies {copying:.2f} TB/s, multiplies {multiplying:.1f} Tflop/s")
    ended = sum(not failed(each) for each in found["experiments"])
    told.append(f"{ended} of {len(found['experiments'])} experiments ended well")
    return told + [line for each in found["experiments"] for line in lines_of(each)]


def lines_of(each: Measured) -> list[str]:
    """One experiment for a person."""
    accuracy = each.get("certificate")
    head = f"{each['name']} on {each['n_gpus']} GPU{'s' if each['n_gpus'] > 1 else ''}: "
    if each["seconds"] is None:
        return [head + f"failed: {each['error']}"]
    parts = [f"{each['seconds']:.2f} s"]
    parts += [f"the post {seconds:g} s on {what}" for what, seconds in each["post"].items()]
    if isinstance(each["plain"], dict):
        plain = each["plain"]
        parts.append(
            "plain CuPy " + (f"failed: {plain['error']}" if plain["seconds"] is None else f"{plain['seconds']:.2f} s")
        )
    shares = {"of_bandwidth": "of the bandwidth", "of_peak": "of the peak"}
    parts += [f"{100 * each[name]:.0f} % {words}" for name, words in shares.items() if name in each]
    check = "" if each["check"] is None or each["check"]["passed"] else f"  The check failed: {each['check']['what']}"
    return [head + ", ".join(parts), *filter(None, (check, each["warning"], accuracy and f"  {accuracy}"))]


if __name__ == "__main__":
    main()
