"""Jobs of SLURM."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from workbench import config
from workbench.clusters.engine import Job
from workbench.clusters.profiles.jobs import said
from workbench.clusters.profiles.queues import Queue
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError

_PATIENCE = 8.0
_PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")
_LIMITS = ("PartitionTimeLimit", "PartitionNodeLimit", "PerJobLimit", "BadConstraints")
_NEVER = " (more than is allowed there, so it never starts: ask for less)"
"""Suffix for reasons that never go away: sbatch accepts such jobs, unless its site makes it refuse them."""


class Slurm(Queue):
    """Workers that are jobs of SLURM."""

    name = "slurm"
    title = "SLURM"
    kind = "SLURMCluster"
    submit = "sbatch"
    cancel = "scancel"
    tried = True
    log = "-o {folder}/job-%j.log"

    def check(self, spec: ClusterSpec) -> None:
        """Raise a WorkbenchError if SLURM would refuse the job, or doesn't answer."""
        super().check(spec)
        scripts = self.scripts(spec, Path(config.data_folder(), "clusters", "NAME"))
        for script in scripts:
            try:
                done = subprocess.run(
                    ["sbatch", "--test-only"],
                    input=script,
                    capture_output=True,
                    text=True,
                    timeout=_PATIENCE / len(scripts),
                )
            except subprocess.TimeoutExpired as err:
                raise FailedError("SLURM doesn't answer. Try again in a while; see: sinfo") from err
            if done.returncode:
                raise BadInputError(f"SLURM would refuse the job: {said(done.stderr)}.")

    def asking(self, job_name: str) -> Sequence[str]:
        """Return the squeue command, including jobs that have just ended."""
        return ("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "all", "-n", job_name, "-o", "%i|%T|%V|%S|%r")

    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        found = {}
        lines = [line.split("|", 4) for line in answer.splitlines() if line.count("|") >= 4]
        for number, word, submitted, start, reason in lines:
            state: Literal["pending", "running", "ended"] = (
                "pending" if word in _PENDING else "running" if word in _RUNNING else "ended"
            )
            waits = "" if reason == "None" else f"{reason}{_NEVER if reason.endswith(_LIMITS) else ''}"
            why = {"pending": waits, "running": "", "ended": word}[state]
            expected = float(start) if state == "pending" and start.isdecimal() else None
            began = state == "running" and start.isdecimal() and submitted.isdecimal()
            waited = float(start) - float(submitted) if began else None
            found[number] = Job(id=number, state=state, reason=why, start=expected, waited=waited)
        return found

    def never_starts(self, job: Job) -> bool:
        return job.reason.endswith(_NEVER)

    def remedy(self, job: Job) -> str:
        if job.reason != "TIMEOUT":
            return ""
        return (
            " Its walltime was over. Give a longer walltime, or let the workers follow the load, which submits others: "
            "workbench scale NAME --adapt 1 8."
        )

    def cancelling(self, job_name: str) -> Sequence[str]:
        return ("scancel", "-n", job_name)
