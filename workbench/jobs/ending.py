"""How the process of a record ends: it did what it is there for, it failed, or somebody asked it to end."""

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


class Cancelled(BaseException):
    """Somebody asked this process to end."""


def cancellable(parting: int = 0) -> None:
    """From here on SIGTERM raises `Cancelled`, once; `parting` seconds later the kernel ends it, whatever it awaits."""

    def cancel(*_: object) -> None:
        ignore_cancellation()
        signal.alarm(parting)
        raise Cancelled

    signal.signal(signal.SIGTERM, cancel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ignore_cancellation() -> None:
    """Let nothing interrupt what comes now."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def outcome(work: Callable[[], dict[str, Any]], folder: Path, explain: Callable[[Exception], str]) -> dict[str, Any]:
    """What changes of the record: what `work` gives, or that it was cancelled, or failed and why, in a sentence."""
    try:
        if folders.asked_to_end(folder):
            raise Cancelled
        return work()
    except Cancelled:
        return {"status": "cancelled"}
    except Exception as err:  # noqa: BLE001  the one place where what went wrong is turned into a sentence
        ignore_cancellation()
        with contextlib.suppress(OSError):  # of a log on a full disk
            print(redact(traceback.format_exc()), end="", file=sys.stderr)
        return {"status": "failed", "error": explain(err)}
    finally:
        ignore_cancellation()
