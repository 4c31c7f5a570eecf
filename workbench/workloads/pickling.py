"""Pickling of a user's modules by value for tasks.

Dask pickles a function by reference wherever plain pickle can, also in a module that is registered with cloudpickle
(dask/distributed#2268), but never one in `__main__`. So functions and classes claim to be there, like those of a
notebook: then their code is sent with the tasks, and is part of the tasks' keys.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import lru_cache
from itertools import accumulate
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

_ONLY_HERE = {"__builtins__", "__cached__", "__loader__", "__packed__", "__path__", "__spec__"}
_packing = ContextVar("_packing", default=False)


class Shipped(ModuleType):
    """A module that is pickled once and unpickled once in each process.

    The scheduler pickles each task separately, which takes 20 ms for a module of 50 functions.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        if _packing.get():
            state = {name: value for name, value in vars(self).items() if name not in _ONLY_HERE}
            return Shipped, (self.__name__,), state
        return _unpacked, (vars(self).get("__packed__") or _packed(self),)


def ship(module: ModuleType) -> None:
    """Make a just imported module, and its functions and classes, be pickled by value."""
    cloudpickle.register_pickle_by_value(module)
    _move(vars(module).values(), module.__name__)
    for name in accumulate(module.__name__.split("."), "{}.{}".format):
        sys.modules[name].__class__ = Shipped


def _move(values: Iterable[Any], module: str) -> None:
    """Make functions and classes of a module claim to be in `__main__`."""
    for value in list(values):
        while isinstance(value, (FunctionType, type, type(_unpacked))) and value.__module__ == module:
            value.__module__ = "__main__"
            if isinstance(value, type):
                _move(vars(value).values(), module)
            value = getattr(value, "__wrapped__", None)


def _packed(module: ModuleType) -> bytes:
    """Return the pickle of a module with all modules that it refers to."""
    token = _packing.set(True)
    try:
        return zlib.compress(cloudpickle.dumps(module), 1)
    finally:
        _packing.reset(token)


@lru_cache(maxsize=32)
def _unpacked(packed: bytes) -> ModuleType:
    module: ModuleType = pickle.loads(zlib.decompress(packed))
    vars(module)["__packed__"] = packed
    return module


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    cached = lru_cache(**parameters)(function)
    cached.__module__ = "__main__"  # that of the function may not have arrived yet
    return cached


def _reduce_cached(cached: Any) -> Any:
    """Pickle a function with a cache by value, with an empty cache, which cloudpickle can't."""
    if cached.__module__ != "__main__":
        return cached.__qualname__
    return _cached, (cached.__wrapped__, cached.cache_parameters())


copyreg.pickle(type(_unpacked), _reduce_cached)
