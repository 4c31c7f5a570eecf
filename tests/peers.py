"""scikit-allel and sgkit, asked in the environment .venv-peers, since they pin an older Dask and Zarr than ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PYTHON = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"
_AROUND = (
    "import sys\nimport numpy as np\ngiven, found = np.load(sys.argv[1]), {}\n%s\nnp.savez(sys.argv[2], **found)\n"
)


def found_by_peers(folder: Path, code: str, **given: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays that `code` puts into `found`, computed from the arrays in `given`."""
    if not PYTHON.exists():
        pytest.skip("needs the peers' environment: make .venv-peers/.installed")
    np.savez(folder / "given.npz", **given)
    # Their own packages, and none of ours; what they warn of is theirs, too.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}
    asked = [str(PYTHON), "-c", _AROUND % code, str(folder / "given.npz"), str(folder / "found.npz")]
    done = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz") as arrays:
        return dict(arrays)
