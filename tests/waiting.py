"""Waiting for what comes to be in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 60.0, about: Callable[[], Any] = lambda: "") -> Any:
    """Return the first answer that isn't false; fail, with what `about` tells, when that takes too long."""
    deadline, pause = time.monotonic() + seconds, 0.02
    while not (found := true()):
        assert time.monotonic() < deadline, f"it did not come true in time: {str(about())[-500:]}"
        # What is waited for long is asked less often: it needs the processor itself.
        time.sleep(pause)
        pause = min(1.1 * pause, 0.05)
    return found
