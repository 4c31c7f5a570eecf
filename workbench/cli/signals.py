"""Ctrl-C and its kin while a command starts or waits for something: nothing that it started is left behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def ending_on(*signals: signal.Signals) -> Iterator[None]:
    """End the block in good order on these signals, as Ctrl-C does."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = {number: signal.signal(number, end) for number in signals}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def holding_back_signals() -> Iterator[None]:
    """Let signals wait until the end of the block: what it starts must be known before it can be stopped."""
    held: list[int] = []
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, lambda caught, _: held.append(caught)) for number in watched}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for came in held:
        signal.raise_signal(came)
