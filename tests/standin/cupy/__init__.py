"""A stand-in for CuPy on machines without a GPU: its arrays are NumPy's, and say that they lie on a device.

Put tests/standin on PYTHONPATH of scheduler and workers, and `import cupy` there finds this. Mixing its arrays with
NumPy's is refused as CuPy refuses it, and numpy.asarray too.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import on_host

from . import random

__all__ = ["asarray", "asnumpy", "ndarray", "random"]
__version__ = "14.0.standin"


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
        if "out" in kwargs:
            kwargs["out"] = _taken(kwargs["out"])
        return _given(getattr(ufunc, method)(*(_taken(item) for item in inputs), **kwargs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _given(function(*_taken(args), **_taken(kwargs)))

    def __array_namespace__(self, **_: Any) -> Any:
        return _Namespace(np)

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self._held.ctypes.data)

    def get(self) -> Any:
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
        if name.startswith("__") or name == "_held":
            raise AttributeError(name)
        found = getattr(self._held, name)
        if callable(found):
            return lambda *args, **kwargs: _given(found(*_taken(args), **_taken(kwargs)))
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


class _Namespace:
    """The functions of a module of NumPy's, for ours; CuPy has them under the same names."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in __all__:
            return globals()[name]
        found = getattr(self._module, name)
        if inspect.ismodule(found):
            return _Namespace(found)
        if inspect.isclass(found) or not callable(found):
            return found
        return lambda *args, **kwargs: _given(found(*_taken(args), **_taken(kwargs)))


def asarray(value: Any, dtype: Any = None) -> ndarray:
    if dtype is not None:
        return ndarray(np.asarray(value.get() if isinstance(value, ndarray) else value, dtype))
    return value if isinstance(value, ndarray) else ndarray(value)


def asnumpy(value: Any) -> Any:
    return value.get() if isinstance(value, ndarray) else np.asarray(value)


class RawModule:
    """Kernels in CUDA C, compiled for this processor from the same text."""

    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        self._code = code

    def get_function(self, name: str) -> Any:
        return on_host.kernel(self._code, name, lambda array: array._held)


_functions = _Namespace(np)
ones, zeros, empty, linalg = _functions.ones, _functions.zeros, _functions.empty, _functions.linalg
# Dask's own backend registers these when a process without workers asks for it.
concatenate, take, tensordot, einsum = _functions.concatenate, _functions.take, _functions.tensordot, _functions.einsum
cuda = types.SimpleNamespace(
    get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
    device=types.SimpleNamespace(get_cublas_handle=lambda: 0),
)


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
