"""Run every benchmark of this folder in turn: `python -m tests.benchmarks [name …] [--option …]`.

Options are for each of them, so name those that know it: `python -m tests.benchmarks forecast --write`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(arguments: list[str]) -> None:
    first = next((place for place, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    names, options = arguments[:first], arguments[first:]
    known = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"Unknown benchmark '{unknown[0]}'. Choose among: {', '.join(known)}.")
    for name in names or known:
        print(f"\n== {name} ==", flush=True)
        sys.argv = [f"bench_{name}", *options]
        runpy.run_path(str(FOLDER / f"bench_{name}.py"), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
