"""The stand-in for CuPy forgives nothing that CuPy doesn't, and what that finds stays mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STANDIN = Path(__file__).parent / "standin"
HEAD = "import cupy, json\nimport dask, dask.array as da\nimport numpy as np\n"


def there(code: str, **env: str) -> Any:
    """What `code` leaves in `told`, in a Python whose CuPy is the stand-in."""
    path = os.pathsep.join([str(STANDIN), str(STANDIN.parents[1])])
    command = [sys.executable, "-c", f"{HEAD}{code}\nprint(json.dumps(told))"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path} | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ("cupy.errstate()", "CuPy 14.2.0 has no errstate"),
        ("cupy.vecdot(x, x)", "has no vecdot"),
        ("np.block([x, x])", "no implementation found"),
        ("cupy.linalg.svd(x, hermitian=True)", "unexpected keyword argument 'hermitian'"),
        ("x.sum(where=True)", "unexpected keyword argument 'where'"),
        ("np.add(x, x, where=True)", "unexpected keyword argument 'where'"),
        ("cupy.random.RandomState(0).random(3)", "has no random.RandomState.random"),
        ("np.asarray(x)", "Implicit conversion"),
        ("x + np.ones(3)", "Unsupported type"),
        ("x.__array_namespace__()", "__array_namespace__"),
    ],
)
def test_what_cupy_lacks_or_refuses_its_stand_in_does_too(call: str, refused: str) -> None:
    code = f"x = cupy.ones((3, 3))\ntry:\n    told = repr({call})\nexcept (AttributeError, TypeError) as err:\n"
    assert refused in there(f"{code}    told = str(err)")


def test_what_cupy_has_its_stand_in_does() -> None:
    code = "x = cupy.asarray(np.arange(6.0).reshape(2, 3))\n"
    found = "float((x + 1)[:, ::2].sum()), float(np.linalg.norm(x)), x.get().tolist(), cupy.linalg.svd(x)[1].shape"
    assert there(f"{code}told = {found}") == [14.0, 55**0.5, [[0, 1, 2], [3, 4, 5]], [2]]


DATA = """
rng = np.random.default_rng(0)
x = rng.binomial(2, 1 / (1 + np.exp(rng.normal(size=(6000, 3)) @ rng.normal(size=(3, 200)) / 2))).astype("uint8")
dask.config.set(scheduler="synchronous")
"""
COMPRESSED = """
from workbench.linalg import svd_compressed
blocks = da.from_array(x, chunks=(1500, 200)).map_blocks(cupy.asarray, meta=cupy.asarray(x[:0]))
found = svd_compressed(blocks, 3, tol=1e-2, seed=0, keep=True).s.compute().get()
exact = np.linalg.svd(x.astype(float), compute_uv=False)[:3]
"""
GENOTYPES = """
from workbench.genotypes import open_genotypes, pca
found = pca(open_genotypes(cupy.asarray(x)), 3, tol=1e-2, seed=0, keep=True, kernel="numpy").singular_values
p = x.mean(axis=1, keepdims=True) / 2
exact = np.linalg.svd((x - 2 * p) / np.sqrt(p * (1 - p)), compute_uv=False)[:3]
"""


@pytest.mark.parametrize("code", [COMPRESSED, GENOTYPES], ids=["compressed", "genotypes"])
def test_where_cupy_multiplies_in_tf32_the_values_are_as_accurate(code: str) -> None:
    # With products in TF32 they are off by some 5e-06.
    for setting in ("0", "1"):
        assert there(f"{DATA}{code}told = float(abs(found / exact - 1).max())", CUPY_TF32=setting) < 1e-6


def test_genotypes_are_calibrated_on_gpus_as_our_kernel_draws_them_and_not_as_cupy_does() -> None:
    code = "from workbench.hardware import rates\ncupy.random.RandomState.randint = None\n"
    assert there(f'{code}told = rates.measure("integers", 0, on_gpu=True)') > 0


def test_half_of_the_memory_or_more_of_the_cards_is_kept_between_passes() -> None:
    code = """
from workbench.linalg.compressed import most_kept
GB = 10**9
card = {"gpu-memory-total": 80 * GB, "managed_bytes": 0, "memory": 1 * GB}
class Client:
    def scheduler_info(self, n_workers): return {"workers": {"a": {"memory_limit": 32 * GB, "metrics": card}}}
    def get(self): pass
with dask.config.set(scheduler=Client().get):
    told = [most_kept(False) / GB, most_kept(True) / GB]
    card["managed_bytes"] = 20 * GB
    told.append(most_kept(True) / GB)
told.append(most_kept(True) / 2**30)
"""
    assert there(code) == pytest.approx([15.5, 48, 28, 0.6 * 16])
