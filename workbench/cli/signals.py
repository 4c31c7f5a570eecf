"""Handling of Ctrl-C and similar signals while a command starts or waits for something: it leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, NoReturn


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], Any], *signals: signal.Signals) -> Iterator[None]:
    """Handle these signals with `handler` until the end of the block."""
    try:
        before = {number: signal.signal(number, handler) for number in signals}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def ending_on(*signals: signal.Signals) -> contextlib.AbstractContextManager[None]:
    """End the block cleanly on these signals, as Ctrl-C does."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    return _handled(end, *signals)


@contextlib.contextmanager
def holding_back_signals() -> Iterator[None]:
    """Delay signals until the end of the block: whatever it starts must be known before it can be stopped."""
    numbers: list[int] = []
    with _handled(lambda number, _: numbers.append(number), signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield
    for number in numbers:
        signal.raise_signal(number)
