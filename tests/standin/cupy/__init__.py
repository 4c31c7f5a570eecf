"""A stand-in for CuPy on machines without a GPU: its arrays are NumPy's, and say that they lie on a device.

Put tests/standin on PYTHONPATH of scheduler and workers, and `import cupy` there finds this. It is as strict as CuPy:
it has CuPy's names and no others (names.txt), refuses arguments that CuPy doesn't take, NumPy's arrays in place of its
own, and copies to the host that nobody asked for. With CUPY_TF32=1 products in float32 have eleven bits. Code of Dask,
distributed and Dask-CUDA for CuPy's arrays works on these: their memory is the host's.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import on_host

from . import recorded

__version__ = f"{recorded.VERSION}+standin"


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    """An array on a device that isn't there."""

    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if memptr is None:
            self._held = np.empty(shape, dtype, order)
        else:
            # NumPy refuses what lies beyond the memory, where CuPy reads it.
            self._held = np.ndarray(shape, dtype, memptr.mem._bytes, memptr.ptr - memptr.mem.ptr, strides, order)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        held = self._held
        return {
            "shape": held.shape,
            "typestr": held.dtype.str,
            "descr": held.dtype.descr,
            "stream": 1,
            "version": 3,
            "strides": None if held.flags.c_contiguous else held.strides,
            "data": (held.ctypes.data if held.size else 0, False),
        }

    def __reduce__(self) -> Any:
        return array, (self.get(),)

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
    def data(self) -> MemoryPointer:
        start, end = np.lib.array_utils.byte_bounds(self._held)
        return MemoryPointer(UnownedMemory(start, end - start, self._held, 0), self._held.ctypes.data - start)

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


def _on_device(held: Any) -> ndarray:
    made = ndarray.__new__(ndarray)
    made._held = np.asarray(held)
    return made


class BaseMemory:
    """Memory of the device that isn't there."""

    device_id = 0

    def __init__(self, ptr: int, size: int, owner: Any) -> None:
        self.ptr, self.size = ptr, size
        shown = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (ptr, False)}
        self._bytes = np.asarray(types.SimpleNamespace(__array_interface__=shown, owner=owner))


class UnownedMemory(BaseMemory):
    """Memory that something else keeps alive."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        super().__init__(ptr, size, owner)


class MemoryPointer:
    """A place in memory, which lives as long as this."""

    device_id = 0

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


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
        return _on_device(value)
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
    """Return the object that CuPy has under this name: ours, or NumPy's for our arrays."""
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


def array(
    object: Any,
    dtype: Any = None,
    copy: Any = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    if isinstance(object, ndarray):
        object = object._held
    elif hasattr(object, "__cuda_array_interface__"):
        object = _shown(object.__cuda_array_interface__, object)._held
    return _on_device(np.array(object, dtype, copy=copy, order=order, ndmin=ndmin))


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> ndarray:
    if isinstance(a, ndarray) and dtype is None and not copy:
        return a
    return array(a, dtype, copy, order or "K")


def _shown(interface: dict[str, Any], owner: Any) -> ndarray:
    """Return the array of another library's interface, in the same memory."""
    dtype = np.dtype(interface["typestr"])
    size = dtype.itemsize * math.prod(interface["shape"])
    memory = UnownedMemory(interface["data"][0], size, owner)
    return ndarray(interface["shape"], dtype, MemoryPointer(memory, 0), interface.get("strides"))


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def _cholesky(a: ndarray) -> ndarray:
    """NumPy's, or where it has none some triangle without a word, as CuPy's is."""
    try:
        return _on_device(np.linalg.cholesky(a._held))
    except np.linalg.LinAlgError:
        return _on_device(np.tril(a._held))


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
            # NumPy has a type argument only in functions that draw whole numbers.
            dtype = kwargs.pop("dtype", None) if name != "randint" else None
            drawn = _on_device(getattr(self._state, name)(*_taken(args), **_taken(kwargs)))
            return drawn if dtype is None else drawn.astype(dtype)

        return draw


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime."""


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
    "cuda.MemoryPointer": MemoryPointer,
    "cuda.UnownedMemory": UnownedMemory,
    "cuda.memory.BaseMemory": BaseMemory,
    "cuda.memory.MemoryPointer": MemoryPointer,
    "cuda.memory.UnownedMemory": UnownedMemory,
    "random.RandomState": RandomState,
    "random.random": _state.random_sample,
    "cuda.Device": Device,
    "cuda.get_current_stream": lambda: types.SimpleNamespace(synchronize=lambda: None),
    "cuda.is_available": lambda: True,
    "cuda.runtime.CUDARuntimeError": CUDARuntimeError,
    "cuda.runtime.getDeviceCount": lambda: 1,
    "cuda.runtime.getDeviceProperties": lambda device: {"name": b"SIMULATED GPU"},
    "cuda.runtime.driverGetVersion": lambda: 13000,
    "cuda.runtime.runtimeGetVersion": lambda: 13000,
    "get_default_memory_pool": lambda: _pool,
}
linalg, random, cuda, runtime, memory = (
    _Module(f"cupy.{name}") for name in ("linalg", "random", "cuda", "cuda.runtime", "cuda.memory")
)
_OURS |= {"cuda.runtime": runtime, "cuda.memory": memory}
sys.modules.update({module.__name__: module for module in (linalg, random, cuda, runtime, memory)})
