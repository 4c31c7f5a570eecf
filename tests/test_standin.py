"""The stand-in for CuPy forgives nothing that CuPy doesn't, and what that finds stays mended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras import ANSWERS
from tests.forks import Forks

STANDIN = Path(__file__).parent / "standin"
HEAD = "import cupy, json\nimport dask, dask.array as da\nimport numpy as np\n"
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(STANDIN), str(STANDIN.parents[1])])}
_forks: list[Forks] = []


@pytest.fixture(scope="module", autouse=True)
def _python_with_the_stand_in() -> Iterator[None]:
    with Forks(f"{HEAD}import workbench.linalg", os.environ | ENVIRONMENT) as made:
        _forks[:] = [made]
        yield


def there(code: str, **env: str) -> Any:
    """Return the variable that `code` sets for its result, in a Python whose CuPy is the stand-in."""
    return json.loads(_forks[0].ask(f"{HEAD}{code}\nprint(json.dumps(told))", os.environ | ENVIRONMENT | env))


def test_what_cupy_lacks_or_refuses_its_stand_in_does_too() -> None:
    calls = [
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
    ]
    code = "x, told = cupy.ones((3, 3)), []\n"
    for call, _ in calls:
        tried = f"try:\n    told.append(repr({call}))\nexcept (AttributeError, TypeError) as err:\n"
        code += f"{tried}    told.append(str(err))\n"
    for (call, refused), message in zip(calls, there(code), strict=True):
        assert refused in message, call


def test_what_cupy_has_its_stand_in_does() -> None:
    code = "x = cupy.asarray(np.arange(6.0).reshape(2, 3))\n"
    found = "float((x + 1)[:, ::2].sum()), float(np.linalg.norm(x)), x.get().tolist(), cupy.linalg.svd(x)[1].shape"
    assert there(f"{code}told = {found}") == [14.0, 55**0.5, [[0, 1, 2], [3, 4, 5]], [2]]


def test_what_distributed_has_for_blocks_of_cupy_is_for_its_stand_ins_too() -> None:
    code = """
from distributed.protocol import deserialize, serialize
from distributed.protocol.cuda import cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize
for given in (x := np.arange(24.0).reshape(4, 6)), x.T, x[::2, ::-1], x[:0], x[0, 0], np.float16(3):
    for serializer in "dask", "cuda", "pickle":
        back = deserialize(*serialize(cupy.asarray(given), serializers=[serializer]))
        assert type(back) is cupy.ndarray and back.dtype == given.dtype
        np.testing.assert_array_equal(back.get(), given)
told = [each.dispatch(cupy.ndarray).__name__ for each in (dask_serialize, dask_deserialize, cuda_serialize)]
"""
    assert there(code) == ANSWERS


def test_an_array_of_its_stand_in_shares_the_memory_that_it_is_given_and_keeps_it() -> None:
    code = """
x = cupy.asarray(np.arange(12.0).reshape(3, 4))
part = x[1:, 1:]
y = cupy.ndarray(part.shape, part.dtype, part.data, part.strides)
del part
x[1, 1] = 100
del x
try:
    beyond = cupy.ndarray((1000,), "u1", y.data)
except TypeError as err:
    beyond = str(err)
told = [y.get().tolist(), beyond]
"""
    shown, beyond = there(code)
    assert shown == [[100, 6, 7], [9, 10, 11]]
    assert "buffer is too small" in beyond


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


TALL = """
from workbench.linalg import svd, tall
copied, get = [], cupy.ndarray.get
cupy.ndarray.get = lambda array, *rest: (copied.append(array.nbytes), get(array, *rest))[1]
rng = np.random.default_rng(0)
x = rng.standard_normal((4000, 60)) * np.logspace(0, -9, 60) @ np.linalg.qr(rng.standard_normal((60, 60)))[0]
taken, last, first = [], tall._last, tall._first
tall._last = lambda step, *rest: (taken.append((step.route, len(step.multipliers), step.filled)), last(step, *rest))[1]
CHANGE
a = da.from_array(x, chunks=(900, 60)).map_blocks(cupy.asarray, meta=cupy.asarray(x[:0]))
factors = dask.persist(*([part.T for part in svd(a.T)][::-1] if WIDE else svd(a)), scheduler="synchronous")
kinds = {type(block).__module__ for each in factors for block in each.dask.values()}
before = sum(copied)
u, s, vh = (each.compute(scheduler="synchronous").get() for each in factors)
off = max(np.linalg.norm(u.conj().T @ u - np.eye(60), 2), np.linalg.norm(vh @ vh.conj().T - np.eye(60), 2),
          np.linalg.norm((u * s) @ vh - x, 2) / s[0], abs(s - np.linalg.svd(x, compute_uv=False)).max() / s[0])
told = [before, off, taken[0], sorted(kinds)]
"""


@pytest.mark.parametrize(
    ("change", "route", "wide"),
    [
        ("x = x + 1j * x[::-1]", ["done", 2, 0], "True"),
        ("x[:, 7] = x[:, 3]; x[:, 9] = 0", ["done", 2, 2], "False"),
        (
            "x, slope = rng.standard_normal((4000, 60)), cupy.asarray(np.logspace(0, -4, 60))\n"
            "tall._first = lambda sketch: first(tall.Total(sketch.matrix * slope, sketch.sums, sketch.rows))",
            ["done", 3, 0],
            "False",
        ),
        # Q's columns are equal, so that their Gram matrix has no Cholesky factor, and CuPy doesn't say so.
        (
            "def spoilt(sketch):\n    step = first(sketch)\n    left = step.multipliers[0]\n"
            "    left[:, 1:20] = left[:, :1]\n    return step\ntall._first = spoilt",
            ["tsqr", 0, 0],
            "False",
        ),
        ("tall._second = lambda step, gram: tall._given_up(step)", ["tsqr", 0, 0], "True"),
    ],
    ids=["complex and wide", "without rank", "one step more", "no Cholesky", "Householder and wide"],
)
def test_nothing_of_a_tall_svd_leaves_the_devices_but_what_is_read(change: str, route: list[Any], wide: str) -> None:
    copied, off, taken, kinds = there(TALL.replace("CHANGE", change).replace("WIDE", wide))
    assert (copied, taken, kinds) == (0, route, ["cupy"])
    assert off < 1e-13


def test_half_of_the_memory_or_more_of_the_cards_is_kept_between_passes() -> None:
    code = """
from workbench.linalg.compressed import most_in_memory
GB = 10**9
card = {"gpu-memory-total": 80 * GB, "managed_bytes": 0, "memory": 1 * GB}
class Client:
    class scheduler:
        identity = None
    def scheduler_info(self): pass
    def sync(self, asked, n_workers): return {"workers": {"a": {"memory_limit": 32 * GB, "metrics": card}}}
    def get(self): pass
with dask.config.set(scheduler=Client().get):
    told = [most_in_memory(False) / GB, most_in_memory(True) / GB]
    card["managed_bytes"] = 20 * GB
    told.append(most_in_memory(True) / GB)
told.append(most_in_memory(True) / 2**30)
"""
    assert there(code) == pytest.approx([15.5, 48, 28, 0.6 * 16])


def test_an_array_that_cupy_holds_alone_is_there_before_its_seconds_are_told() -> None:
    code = """
from workbench.workloads import without_dask, template
told = []
cupy.cuda.Device.synchronize = lambda self: told.append("waited")
chosen = template("transpose_sum")
_of = without_dask._of(chosen)
without_dask._of = lambda _: _of._replace(compute=lambda *given: (told.append("computed"), _of.compute(*given))[1])
without_dask.compute(chosen, chosen.validate({"shape": [40, 40], "persist": True}), "cupy")
"""
    assert there(code) == ["waited", "computed"]


def test_an_exact_svd_that_no_card_can_hold_is_refused_before() -> None:
    # 96 bytes for each of 15 000 × 15 000 elements are 20.1 GiB, and the card has 16.
    code = """
from workbench.linalg import svd
dask.config.set({"array.backend": "cupy"})
try:
    svd(da.zeros((10**5, 15_000), chunks=(1000, 15_000)))
except ValueError as err:
    told = str(err)
"""
    assert "needs about 20.1 GiB for it, in addition to the blocks, and the largest worker has 16 GiB" in there(code)
