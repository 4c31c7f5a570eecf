"""Random numbers of the stand-in: NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np


class RandomState:
    def __init__(self, seed: Any = None) -> None:
        self._state = np.random.RandomState(seed)

    def __getattr__(self, name: str) -> Any:
        import cupy

        return lambda *args, **kwargs: cupy.asarray(getattr(self._state, name)(*args, **kwargs))
