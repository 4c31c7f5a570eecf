"""Queues that take one row each: what lists and cancels their jobs. Tested with stand-ins, never on real ones."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from workbench.clusters.engine import Job
from workbench.clusters.profiles.queues import Queue, to_seconds


class Listed(Queue):
    """A queue whose jobs are found in the output of one command. In all rows {name} is the jobs' name."""

    listing: ClassVar[tuple[str, ...]]
    """Command that lists the jobs."""
    entry: ClassVar[str]
    """Pattern of a job: groups `id` and `state`, and reasons in groups `pending` and `ended` if the queue has some."""
    complete: ClassVar[str]
    """End of a complete answer."""
    pending: ClassVar[str]
    ended: ClassVar[str]
    """Patterns of states; the others mean running."""
    cancelling_all: ClassVar[tuple[str, ...]]

    account = "project"

    def asking(self, job_name: str) -> Sequence[str]:
        return [word.format(name=job_name, user=getpass.getuser()) for word in self.listing]

    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        if not answer.rstrip().endswith(self.complete):
            raise ValueError(f"it doesn't end with {self.complete}")
        found = re.finditer(self.entry.replace("{name}", re.escape(job_name)), answer, re.DOTALL)
        return {job.id: job for job in map(self._job, found)}

    def _job(self, entry: re.Match[str]) -> Job:
        word, state = entry["state"], _state(self, entry["state"])
        reason = "" if state == "running" else (entry.groupdict().get(state) or word).rstrip("; ")
        return Job(id=entry["id"], state=state, reason=reason)

    def cancelling(self, job_name: str) -> Sequence[str]:
        return [word.format(name=job_name) for word in self.cancelling_all]


def _state(row: Listed, word: str) -> Literal["pending", "running", "ended"]:
    return "pending" if re.fullmatch(row.pending, word) else "ended" if re.fullmatch(row.ended, word) else "running"


class Sge(Listed):
    """Workers that are jobs of a Grid Engine, which forgets jobs that have ended."""

    name = "sge"
    title = "Grid Engine"
    kind = "SGECluster"
    submit = "qsub"
    cancel = "qdel"
    log = "-o {folder}/"
    listing = ("qstat", "-u", "{user}", "-r", "-xml")
    entry = (
        r"<JB_job_number>(?P<id>\d+)</JB_job_number>(?:(?!</job_list>).)*?<state>(?P<state>\w+)</state>"
        r"(?:(?!</job_list>).)*?<full_job_name>{name}</full_job_name>"
    )
    complete = "</job_info>"
    pending = r"\w*w"
    ended = ""
    cancelling_all = ("qdel", "{name}")


class Lsf(Listed):
    """Workers that are jobs of LSF."""

    name = "lsf"
    title = "LSF"
    kind = "LSFCluster"
    submit = "bsub"
    cancel = "bkill"
    log = "-o {folder}/job-%J.log"
    listing = ("bjobs", "-a", "-J", "{name}", "-o", "jobid stat exit_reason pend_reason", "-json")
    entry = (
        r'"JOBID":\s*"(?P<id>\d+)",\s*"STAT":\s*"(?P<state>\w+)"[^}]*?"EXIT_REASON":\s*"(?P<ended>[^"]*)"[^}]*?'
        r'"PEND_REASON":\s*"(?P<pending>[^"]*)"'
    )
    complete = "}"
    pending = "PEND|PSUSP|WAIT"
    ended = "DONE|EXIT|ZOMBI"
    cancelling_all = ("bkill", "-J", "{name}", "0")

    def clock(self, seconds: int) -> str:
        """Return hours and minutes, since LSF reads no seconds."""
        return super().clock(seconds)[:-3]

    def site_walltime(self) -> int | None:
        """Return the seconds of dask-jobqueue's setting, which is in hours and minutes, too."""
        setting = self._site("walltime")
        return to_seconds(f"{setting}:00" if re.fullmatch(r"\d+:\d\d", str(setting)) else setting)
