"""Jobs of PBS. Written from OpenPBS's own manual pages, and never run on a real one."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.clusters.engine import Job
from workbench.clusters.profiles.queues import Queue

_PENDING = "QHWTM"
_ENDED = "FX"
"""Letters of states; the others mean running, or about to end."""


class Pbs(Queue):
    """Workers that are jobs of PBS."""

    name = "pbs"
    title = "PBS"
    kind = "PBSCluster"
    submit = "qsub"
    cancel = "qdel"
    log = "-j oe -o {folder}/"

    def asking(self, job_name: str) -> Sequence[str]:
        """Return the qstat command, including jobs that have ended if the server keeps their history."""
        # qstat -f takes no name, and without a job it would list those of all users.
        asks = 'ids=$(qselect -x -N "$0") || exit; [ -z "$ids" ] || qstat -x -f -F json $ids'
        return ("sh", "-c", asks, job_name)

    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        reported = json.loads(answer, strict=False).get("Jobs", {}) if answer.strip() else {}
        found = (_job(name.partition(".")[0], about) for name, about in reported.items())
        return {each.id: each for each in found}

    def cancelling(self, job_name: str) -> Sequence[str]:
        return ("sh", "-c", 'qselect -N "$0" | xargs -r qdel', job_name)


def _job(number: str, about: Mapping[str, Any]) -> Job:
    letter, comment = about["job_state"], about.get("comment", "")
    if letter in _PENDING:
        return Job(id=number, state="pending", reason=_why(letter, comment), start=_start(about))
    if letter in _ENDED:
        return Job(id=number, state="ended", reason=f"exit status {about.get('Exit_status', 'unknown')}")
    return Job(id=number, state="running")


def _why(letter: str, comment: str) -> str:
    """Return why it waits; empty until PBS's scheduler has considered it."""
    return comment.removeprefix("Not Running: ") or ("held" if letter == "H" else "")


def _start(about: Mapping[str, Any]) -> float | None:
    with contextlib.suppress(LookupError, TypeError, ValueError):
        return time.mktime(time.strptime(about["estimated"]["start_time"]))
    return None
