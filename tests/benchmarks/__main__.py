"""Run every benchmark of this folder in turn: `python -m tests.benchmarks [name …]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(names: list[str]) -> None:
    known = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"Unknown benchmark '{unknown[0]}'. Choose among: {', '.join(known)}.")
    for name in names or known:
        print(f"\n== {name} ==", flush=True)
        sys.argv = [f"bench_{name}"]
        runpy.run_path(str(FOLDER / f"bench_{name}.py"), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
