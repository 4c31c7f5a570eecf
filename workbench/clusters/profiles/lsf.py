"""Jobs of LSF. Written from its manual and sample answers of other clusters, and never run on a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from workbench.clusters.engine import Job
from workbench.clusters.profiles.queues import Queue

_PENDING = ("PEND", "PSUSP", "WAIT")
_ENDED = ("DONE", "EXIT", "ZOMBI")


class Lsf(Queue):
    """Workers that are jobs of LSF."""

    name = "lsf"
    title = "LSF"
    kind = "LSFCluster"
    submit = "bsub"
    cancel = "bkill"
    account = "project"
    log = "-o {folder}/job-%J.log"

    def clock(self, seconds: int) -> str:
        """Return hours and minutes, since LSF reads no seconds."""
        return super().clock(seconds)[:-3]

    def asking(self, job_name: str) -> Sequence[str]:
        """Return the bjobs command, including jobs that have just ended."""
        return ("bjobs", "-a", "-J", job_name, "-o", "jobid stat exit_code exit_reason pend_reason", "-json")

    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        # If LSF doesn't answer at once, it prints a message first.
        told = json.loads(answer[answer.index("{") :])["RECORDS"]
        return {each["JOBID"]: _job(each) for each in told if "STAT" in each}

    def cancelling(self, job_name: str) -> Sequence[str]:
        return ("bkill", "-J", job_name, "0")


def _job(record: Mapping[str, str]) -> Job:
    number, word, code = record["JOBID"], record["STAT"], record.get("EXIT_CODE")
    if word in _PENDING:
        return Job(id=number, state="pending", reason=record.get("PEND_REASON", "").rstrip("; "))
    if word in _ENDED:
        ended = f"{word}, exit code {code}" if code else word
        return Job(id=number, state="ended", reason=record.get("EXIT_REASON") or ended)
    return Job(id=number, state="running")
