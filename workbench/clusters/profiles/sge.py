"""Jobs of a Grid Engine. Written from its manual and sample answers of other engines, and never run on a real one."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from xml.etree import ElementTree

from workbench.clusters.engine import Job
from workbench.clusters.profiles.queues import Queue


class Sge(Queue):
    """Workers that are jobs of a Grid Engine."""

    name = "sge"
    title = "Grid Engine"
    kind = "SGECluster"
    submit = "qsub"
    cancel = "qdel"
    account = "project"
    log = "-o {folder}/"

    def asking(self, job_name: str) -> Sequence[str]:
        """Return the qstat command for this user's jobs, with their full names. It forgets jobs that have ended."""
        return ("qstat", "-u", getpass.getuser(), "-r", "-xml")

    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        try:
            listed = ElementTree.fromstring(answer).iter("job_list")
        except ElementTree.ParseError as err:
            raise ValueError(str(err)) from err
        ours = (each for each in listed if job_name in (each.findtext("full_job_name"), each.findtext("JB_name")))
        return {job.id: job for job in map(_job, ours)}

    def cancelling(self, job_name: str) -> Sequence[str]:
        return ("qdel", job_name)


def _job(listed: ElementTree.Element) -> Job:
    number, letters = listed.findtext("JB_job_number", ""), listed.findtext("state", "")
    if not letters.endswith("w"):
        return Job(id=number, state="running")
    reason = "error" if "E" in letters else "held" if "h" in letters else "waiting"
    return Job(id=number, state="pending", reason=f"{reason} ({letters})")
