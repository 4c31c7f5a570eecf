"""Waiting for what comes to be in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 60.0, about: Callable[[], Any] = lambda: "") -> Any:
    """Return the first answer that isn't false; fail, with what `about` tells, when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"it did not come true in time: {str(about())[-500:]}"
        time.sleep(0.02)
    return found
