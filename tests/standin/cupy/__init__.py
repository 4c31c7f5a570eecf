"""A stand-in for CuPy on machines without a GPU: its arrays are NumPy's, and say that they lie on a device.

Put tests/standin on PYTHONPATH of scheduler and workers, and `import cupy` there finds this. It is as strict as CuPy:
it has CuPy's names and no others (names.txt), refuses arguments that CuPy doesn't take, NumPy's arrays in place of its
own, and copies to the host that nobody asked for. With CUPY_TF32=1 products in float32 have eleven bits.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import on_host

from . import recorded

__version__ = f"{recorded.VERSION}+standin"


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    """An array on a device that isn't there."""

    __array_priority__ = 100

    def __init__(self, held: Any) -> None:
        self._held = np.asarray(held)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self._held.shape, "typestr": self._held.dtype.str, "data": (0, True)}

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in recorded.NAMES:
            return NotImplemented
        if len(kwargs.get("out", ())) == 1:
            kwargs["out"] = kwargs["out"][0]
        return _function(ufunc.__name__, ufunc)(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        full = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
        if full not in recorded.NAMES:
            return NotImplemented
        return _found(*full.rpartition(".")[::2])(*args, **kwargs)

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self._held.ctypes.data)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        return self._held.copy()

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: Any) -> Any:
        return _given(self._held[_taken(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._held[_taken(index)] = _taken(value)

    def __float__(self) -> float:
        return float(self._held)

    def __int__(self) -> int:
        return int(self._held)

    def __bool__(self) -> bool:
        return bool(self._held)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full = recorded.known("ndarray.", name)
        found = getattr(self._held, name)
        if callable(found):
            return _function(full, found)
        return _given(found) if isinstance(found, np.ndarray) else found


# Dask, distributed and Dask-CUDA have code for arrays of a module called cupy, which ours is none of. Its name stands
# for this one, or each worker would make a class of its own of what another sends it.
ndarray.__module__ = "standin"
sys.modules["standin"] = sys.modules[__name__]


def _taken(value: Any) -> Any:
    """`value` with the arrays inside in place of ours; NumPy's own are refused, but for single numbers."""
    if isinstance(value, ndarray):
        return value._held
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (tuple, list)):
        return type(value)(_taken(item) for item in value)
    if isinstance(value, dict):
        return {name: _taken(item) for name, item in value.items()}
    return value


def _given(value: Any) -> Any:
    """`value` with ours in place of its arrays, and of single numbers, which CuPy leaves on the device."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(value)
    if isinstance(value, tuple):
        return tuple(_given(item) for item in value)
    if isinstance(value, list):
        return [_given(item) for item in value]
    return value


_PRODUCTS = {"matmul", "linalg.matmul", "dot", "ndarray.dot", "tensordot", "inner", "einsum"}


def _function(full: str, found: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function under the name of CuPy's, for our arrays and with CuPy's arguments."""

    def function(*args: Any, **kwargs: Any) -> Any:
        recorded.fits(full, args, kwargs)
        args, kwargs = _taken(args), _taken(kwargs)
        if full in _PRODUCTS and os.environ.get("CUPY_TF32", "0") != "0":
            args = tuple(_tf32(value) for value in args)
        return _given(found(*args, **kwargs))

    return function


def _tf32(value: Any) -> Any:
    """Numbers of single precision rounded to the eleven bits that TF32 has."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    bits = value.view(np.uint32).astype(np.uint64) + 0x1000 & 0xFFFFE000
    return bits.astype(np.uint32).view(np.float32)


def _found(module: str, name: str) -> Any:
    """What CuPy has under this name: ours, or NumPy's for our arrays."""
    prefix = f"{module}." if module else ""
    full = recorded.known(prefix, name)
    if full in _OURS:
        return _OURS[full]
    owner = getattr(np, module) if module else np
    if not hasattr(owner, name):
        raise NotImplementedError(f"The stand-in for CuPy lacks {full}: write it in tests/standin.")
    found = getattr(owner, name)
    return found if inspect.isclass(found) or not callable(found) else _function(full, found)


class _Module(types.ModuleType):
    """A module of CuPy's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _found(self.__name__.removeprefix("cupy."), name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _found("", name)


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> ndarray:
    if isinstance(a, ndarray) and dtype is None and not copy:
        return a
    return ndarray(np.asarray(a._held if isinstance(a, ndarray) else a, dtype, order, copy=copy))


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def _cholesky(a: ndarray) -> ndarray:
    """NumPy's, or where it has none some triangle without a word, as CuPy's is."""
    try:
        return ndarray(np.linalg.cholesky(a._held))
    except np.linalg.LinAlgError:
        return ndarray(np.tril(a._held))


class RawModule:
    """Kernels in CUDA C, compiled for this processor from the same text."""

    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        self._code = code

    def get_function(self, name: str) -> Any:
        return on_host.kernel(self._code, name, lambda array: array._held)


class RandomState:
    """NumPy's, of which only what CuPy's has can be asked."""

    def __init__(self, seed: Any = None, method: int = 100) -> None:
        self._state = np.random.RandomState(seed)

    def __getattr__(self, name: str) -> Any:
        full = recorded.known("random.RandomState.", name)

        def draw(*args: Any, **kwargs: Any) -> Any:
            recorded.fits(full, args, kwargs)
            # Of NumPy's only those that draw whole numbers can be told their type.
            dtype = kwargs.pop("dtype", None) if name != "randint" else None
            drawn = ndarray(getattr(self._state, name)(*_taken(args), **_taken(kwargs)))
            return drawn if dtype is None else drawn.astype(dtype)

        return draw


class Device:
    """The one device there is."""

    id = 0
    mem_info = (14 * 2**30, 16 * 2**30)

    def __init__(self, device: int | None = None) -> None:
        pass

    def synchronize(self) -> None:
        pass


_state = RandomState(0)
_pool = types.SimpleNamespace(total_bytes=lambda: 0, used_bytes=lambda: 0, free_all_blocks=lambda: None)
_OURS = {
    "linalg.cholesky": _cholesky,
    "random.RandomState": RandomState,
    "random.random": _state.random_sample,
    "cuda.Device": Device,
    "cuda.get_current_stream": lambda: types.SimpleNamespace(synchronize=lambda: None),
    "cuda.device": types.SimpleNamespace(get_cublas_handle=lambda: 0),
    "cuda.is_available": lambda: True,
    "cuda.runtime.getDeviceProperties": lambda device: {"name": b"SIMULATED GPU"},
    "cuda.runtime.driverGetVersion": lambda: 13000,
    "cuda.runtime.runtimeGetVersion": lambda: 13000,
    "get_default_memory_pool": lambda: _pool,
}
linalg, random, cuda = (_Module(f"cupy.{name}") for name in ("linalg", "random", "cuda"))
_OURS["cuda.runtime"] = _Module("cupy.cuda.runtime")
sys.modules.update({module.__name__: module for module in (linalg, random, cuda)})


# Dask imports cupy while it is imported itself, and then wants the class above.
from dask.array.dispatch import concatenate_lookup, numel_lookup, tensordot_lookup  # noqa: E402
from dask.sizeof import sizeof  # noqa: E402
from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray  # noqa: E402
from distributed.protocol.serialize import dask_deserialize, dask_serialize  # noqa: E402

# What `dask.array.backends.register_cupy` registers for CuPy's.
concatenate_lookup.register(ndarray, np.concatenate)
tensordot_lookup.register(ndarray, np.tensordot)


@numel_lookup.register(ndarray)
def _numel(array: ndarray, **kwargs: Any) -> Any:
    # Dask imports cupy while it imports this.
    from dask.array.backends import _numel_arraylike

    return _numel_arraylike(array, **kwargs)


@sizeof.register(ndarray)
def _size(array: ndarray) -> int:
    return int(array._held.nbytes)


@dask_serialize.register(ndarray)
def _serialize(array: ndarray) -> Any:
    header, frames = serialize_numpy_ndarray(array._held)
    return header, frames


@dask_deserialize.register(ndarray)
def _deserialize(header: Any, frames: Any) -> ndarray:
    # As CuPy does where the device that the block is to lie on is gone.
    if Path(os.environ.get("STANDIN_TAKES_NOTHING_IN", "")).is_file():
        raise RuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
    return ndarray(deserialize_numpy_ndarray(header, frames))
