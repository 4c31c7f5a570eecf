"""Dask's array backend "cupy" for a process without a GPU: each block is made by the worker that keeps it.

Dask's own backend needs a GPU in the process that builds a graph, since it makes an empty CuPy array for the type of
the blocks. Here that array is NumPy's, and the graph contains the name of CuPy's function, which is looked up only
where it is unpickled: on the scheduler and the workers.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.backends import ArrayBackendEntrypoint, NumpyBackendEntrypoint, array_creation_dispatch

from workbench.errors import BadInputError
from workbench.linalg.keys import fresh
from workbench.sent_code import cluster_client, workers_of


class Remote:
    """A function or class that is pickled as its name.

    Called in this process, for types and shapes only, it does what `here` does.
    """

    def __init__(self, module: str, name: str, here: Callable[..., Any]) -> None:
        self._module = module
        self._name = name
        self._here = here
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of `here`."""
        return self._here(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, (f"{self._module}:{self._name}",)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return self._module, self._name


class CupyOnWorkers(ArrayBackendEntrypoint):
    """Dask's array backend whose blocks are CuPy's on the workers, and NumPy's from this process's point of view."""

    _random_state = Remote("cupy.random", "RandomState", np.random.RandomState)
    _to_device = Remote("cupy", "asarray", np.asarray)

    @property
    def RandomState(self) -> Any:  # noqa: N802  Dask's name
        """Return CuPy's RandomState."""
        return self._random_state

    @property
    def default_bit_generator(self) -> Any:
        """Raise an error: Dask would make the generator here, on a GPU, and not on a worker."""
        raise BadInputError(
            "da.random.default_rng needs a GPU in this process, and there is none. Use da.random.RandomState(seed), "
            "whose blocks are made on the workers."
        )

    @classmethod
    def to_backend(cls, data: da.Array, **kwargs: Any) -> da.Array:
        """Move every block to its worker's GPU; a block on a GPU stays."""
        return data.map_blocks(cls._to_device, dtype=data.dtype, meta=data._meta, token="to-device")


class NumpyOfWorkers(NumpyBackendEntrypoint):
    """Dask's array backend "numpy", which can't distinguish arrays on the workers' GPUs from NumPy's here."""

    _to_host = Remote("cupy", "asnumpy", np.asarray)

    @classmethod
    def to_backend(cls, data: da.Array, **kwargs: Any) -> da.Array:
        """Copy every block from its worker's GPU; a NumPy block stays as it is."""
        # Without GPUs, CuPy may not be installed either.
        if dask.config.get("array.backend", "numpy") != "cupy":
            return super().to_backend(data, **kwargs)
        return data.map_blocks(cls._to_host, dtype=data.dtype, meta=data._meta, token=TO_HOST)


TO_HOST = "to-host"
"""Name of the step in which a result leaves the GPU because it is read."""


WAITING = "wait-for-gpu"
"""Name of the tasks that wait until a worker's GPU has finished its work."""


def wait_for_gpus(client: Any = None) -> None:
    """Wait until the GPUs have finished their work: one task on each worker, or this process, waits for its own GPU.

    Other tasks end when their kernels are launched. `client` is the cluster's; None is Dask's current one.
    """
    client = client or cluster_client()
    if client is None:
        _finish()
        return
    name, workers = fresh(WAITING), workers_of(client)
    waiting = [client.submit(_finish, workers=[each], key=(name, i)) for i, each in enumerate(workers)]
    client.gather(waiting)


def _finish() -> None:
    importlib.import_module("cupy").cuda.Device().synchronize()


def _made_on_host(name: str) -> Callable[..., da.Array]:
    def make(*args: Any, **kwargs: Any) -> da.Array:
        with dask.config.set({"array.backend": "numpy"}):
            array = getattr(da, name)(*args, **kwargs)
        return CupyOnWorkers.to_backend(array)

    make.__name__ = name
    return make


for _function in ("ones", "zeros", "empty", "full", "arange"):
    setattr(CupyOnWorkers, _function, staticmethod(_made_on_host(_function)))


def register() -> None:
    """Make `array.backend = "cupy"` mean this backend in this process, from now on."""
    numpy = NumpyOfWorkers()
    # Copy the functions that Dask registered on its own backend.
    numpy.__dict__.update(vars(array_creation_dispatch.dispatch("numpy")))
    array_creation_dispatch.register_backend("numpy", numpy)
    array_creation_dispatch.register_backend("cupy", CupyOnWorkers())


@contextlib.contextmanager
def on_workers() -> Iterator[None]:
    """Set `array.backend` to "cupy" within the block and restore it afterwards."""
    before = dict(array_creation_dispatch._lookup)
    register()
    try:
        with dask.config.set({"array.backend": "cupy"}):
            yield
    finally:
        array_creation_dispatch._lookup.clear()
        array_creation_dispatch._lookup.update(before)
