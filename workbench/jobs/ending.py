"""The end of a record's process: it finished its work, failed, or was cancelled."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.jobs import folders
from workbench.redaction import redact

CANCEL_PATIENCE = 20.0
"""Seconds that a cancelled run gets to free its workers."""


class Cancelled(BaseException):
    """A request to end this process."""


def cancellable(parting: int = 0) -> None:
    """Make SIGTERM raise `Cancelled`, once; `parting` seconds later, if not 0, the kernel ends the process."""

    def cancel(*_: object) -> None:
        ignore_cancellation()
        signal.alarm(parting)
        raise Cancelled

    signal.signal(signal.SIGTERM, cancel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ignore_cancellation() -> None:
    """Ignore SIGTERM from now on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def outcome(work: Callable[[], dict[str, Any]], folder: Path, explain: Callable[[Exception], str]) -> dict[str, Any]:
    """Run `work` and return the record's changes: its result, or the status 'cancelled' or 'failed' with a message."""
    try:
        if folders.end_requested(folder):
            raise Cancelled
        return work()
    except Cancelled:
        return {"status": "cancelled"}
    except Exception as err:  # noqa: BLE001  the one place that turns errors into messages
        ignore_cancellation()
        with contextlib.suppress(OSError):  # of a log on a full disk
            print(redact(traceback.format_exc()), end="", file=sys.stderr)
        return {"status": "failed", "error": explain(err)}
    finally:
        ignore_cancellation()
