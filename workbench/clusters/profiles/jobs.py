"""A cluster whose workers are jobs in a queue, with its scheduler in this process or in a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from workbench import config, formats
from workbench.clusters import security
from workbench.clusters.engine import Engine, Job, queued
from workbench.clusters.periodic import repeat
from workbench.clusters.reachability import Place, key_files
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, whole

logger = logging.getLogger("workbench.host")

_OFTEN, _SELDOM = 2.0, 15.0
"""Seconds between two requests to the queue: while workers are missing, and while all are there."""
_PATIENCE = 10.0
_CANCELLING = 5.0
_POLL = 0.1
_LEFT = "it is no longer in the queue"
_SCHEDULER = "scheduler"


FILE = "scheduler.json"
"""File that a scheduler in a job writes to the cluster's folder, which this machine and its node must share."""


class Commands(ABC):
    """Commands of a kind of queue, and the jobs that they submit."""

    title: ClassVar[str]
    submit: ClassVar[str]
    """Command that submits the script on its standard input."""
    cancel: ClassVar[str]
    """Command that cancels a job by its id."""

    @abstractmethod
    def job(self, spec: ClusterSpec, folder: Path, job_name: str, name: str, scheduler: str) -> Any:
        """Return dask-jobqueue's job of this name: of workers of the scheduler's address, or of the scheduler."""

    @abstractmethod
    def asking(self, job_name: str) -> Sequence[str]:
        """Return the command that lists the jobs of this name, and perhaps others."""

    @abstractmethod
    def jobs(self, answer: str, job_name: str) -> dict[str, Job]:
        """Return the listed jobs of this name, by id. Raises ValueError or LookupError if it can't parse the answer."""

    def never_starts(self, job: Job) -> bool:
        """Return whether a job will wait forever."""
        return False

    def remedy(self, job: Job) -> str:
        """Return advice on how a job ended, after a space; '' without any."""
        return ""

    @abstractmethod
    def cancelling(self, job_name: str) -> Sequence[str]:
        """Return the command that cancels all jobs of this name."""

    def cancelling_one(self, number: str) -> Sequence[str]:
        """Return the command that cancels one job."""
        return (self.cancel, number)


class JobsEngine(Engine):
    """Jobs with workers, and one with the scheduler if the spec says so."""

    def __init__(self, queue: Commands, *args: Any) -> None:
        super().__init__(*args)
        self.called = f"dask-{self.folder.name}-{secrets.token_hex(3)}"
        self.group = per_job(self.spec)
        self._queue = queue
        self._jobs: dict[str, Job] = {}
        """Jobs by name: of the worker, or 'scheduler'."""
        self._number = 0
        self._arrived_once: set[str] = set()
        self._due = 0.0
        self._listing: asyncio.Task[Any] | None = None

    async def start(self) -> Place:
        """Start the scheduler: at once in this process, or in a job, which writes its address when it runs.

        Raises FailedError if the queue refuses it, or if it has ended.
        """
        self._listing = asyncio.create_task(repeat(self._list_when_due, _OFTEN))
        if not has_scheduler_job(self.spec):
            from distributed.utils import get_ip

            # As files, whose paths the job scripts name.
            self.security = security.load_keys(self.folder) if self.spec.encrypt else None
            interface = self.spec.options.get("interface")
            at = {"interface": interface} if interface else {"host": get_ip()}
            return await self.serve(**at)
        await self._submit(_SCHEDULER)
        self.remedy = (
            f"It runs in job {self._jobs[_SCHEDULER].id}. Give interface, the network between this machine and the "
            "nodes, or choose scheduler=here."
        )
        while True:
            with contextlib.suppress(OSError, ValueError, LookupError):  # not written yet, or not all of it
                address = str(json.loads((self.folder / FILE).read_bytes())["address"])
                return Place(address, *(key_files(self.folder) if self.spec.encrypt else ()))
            if reason := await self.gone():
                raise FailedError(f"{reason} The logs are in {self.folder}.")
            self._refuse_endless([self._jobs[_SCHEDULER]])
            await asyncio.sleep(_POLL)

    async def gone(self) -> str | None:
        job = self._jobs.get(_SCHEDULER)
        return f"The scheduler is gone. {self._all_ended([job])}" if job and job.state == "ended" else None

    def check_start(self) -> None:
        """Raise FailedError if all jobs have ended, or will never start."""
        jobs = self._worker_jobs()
        ended = [job for job in jobs if job.state == "ended"]
        if jobs and len(ended) == len(jobs):
            raise FailedError(f"{self._all_ended(ended)} The logs are in {self.folder}.")
        self._refuse_endless(jobs)

    def _refuse_endless(self, jobs: Sequence[Job]) -> None:
        """Raise FailedError if the queue took jobs but will start none of them."""
        if jobs and all(map(self._queue.never_starts, jobs)):
            raise FailedError(f"The queue took {formats.count(len(jobs), 'job')}: {queued(jobs)}.")

    def trouble(self) -> str | None:
        """Return a message on how the jobs ended, if all have."""
        jobs = self._worker_jobs()
        if self.workers or not jobs or any(job.state != "ended" for job in jobs):
            return None
        return f"{self._all_ended(jobs)} Scale it to submit them again, or stop it."

    async def jobs(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    def started(self) -> int:
        """Return the number of workers whose jobs haven't ended, or never ran: those would only fail again."""
        alive = [name for name, job in self._jobs.items() if job.state != "ended" or name not in self._arrived_once]
        return self.group * len([name for name in alive if name != _SCHEDULER])

    async def have(self, n: int) -> None:
        """Submit or cancel jobs, also in place of those that have ended. Raises FailedError if the queue refuses."""
        for name in [name for name, job in self._jobs.items() if job.state == "ended" and name != _SCHEDULER]:
            del self._jobs[name]
        names = [name for name in self._jobs if name != _SCHEDULER]
        for name in await self.retire(names, len(names) - n // self.group):
            if number := self._jobs.pop(name).id:
                await _output(self._queue.cancelling_one(number))
        for _ in range(n // self.group - len(names)):
            self._number += 1
            await self._submit(f"job-{self._number}")

    async def _submit(self, name: str) -> None:
        """Submit a job of this name. Raises FailedError if the queue refuses it."""
        n_workers = 0 if name == _SCHEDULER else self.group
        job = self._queue.job(self.spec, self.folder, self.called, name, self.place.address)
        try:
            self._jobs[name] = Job(id=await submit(self._queue, job), state="pending", workers=n_workers)
        except FailedError as err:
            self._jobs[name] = Job(id="", state="ended", reason=str(err), workers=n_workers)
            raise FailedError(f"The queue refused a job: {err}.") from err

    async def close(self) -> None:
        """Close the scheduler and cancel all jobs, even one that is being submitted."""
        if self._listing is not None:
            self._listing.cancel()
        await super().close()
        await cancel(self._queue, self.called)

    def _worker_jobs(self) -> list[Job]:
        return [job for name, job in self._jobs.items() if name != _SCHEDULER]

    def _all_ended(self, ended: Sequence[Job]) -> str:
        """Return a message on how the first of them ended, with the last line of its log."""
        first = ended[0]
        # The output of a job that was canceled isn't the reason.
        line = _complaint(self.folder, first.id) if first.id and not first.reason.startswith("CANCELLED") else ""
        which = f"Job {first.id}".rstrip() if len(ended) == 1 else f"All {len(ended)} jobs have ended. Job {first.id}"
        return f"{which} ended: {first.reason}{f' ({line})' if line else ''}.{self._queue.remedy(first)}"

    async def _list_when_due(self) -> None:
        """Query the queue, less often while all workers are there."""
        loop = asyncio.get_running_loop()
        complete = len(self.workers) >= self.started() and all(job.state == "running" for job in self._worker_jobs())
        if not complete or self.scheduler is None or loop.time() > self._due:
            self._due = loop.time() + _SELDOM
            await self._list()

    async def _list(self) -> None:
        """Query the queue for the jobs. If it doesn't answer, nothing changes."""
        # Jobs submitted meanwhile may not be listed yet.
        before = dict(self._jobs)
        listed = await _listed(self._queue, self.called)
        if listed is None:
            return
        for name, job in before.items():
            # Queues forget ended jobs, after some minutes or at once; how they ended is then unknown.
            if name in self._jobs and job.id and (job.state != "ended" or job.id in listed):
                now = listed.get(job.id) or Job(id=job.id, state="ended", reason=_LEFT)
                self._jobs[name] = now.model_copy(update={"workers": job.workers})
        self._arrived_once |= {self.unit_of(each) for each in self.workers.values()}
        if self._jobs != before:
            self.changed()


async def submit(queue: Commands, job: Any) -> str:
    """Submit a job of dask-jobqueue's and return its id. Raises FailedError with the queue's reason."""
    try:
        process = await asyncio.create_subprocess_exec(queue.submit, stdin=-1, stdout=-1, stderr=-1)
        async with asyncio.timeout(_PATIENCE):
            output, complaint = await process.communicate(str(job.job_script()).encode())
    except (OSError, TimeoutError) as err:
        raise FailedError(str(err) or f"{queue.submit} did not answer within {formats.duration(_PATIENCE)}") from err
    number = re.search(job.job_id_regexp, output.decode(errors="replace"))
    if process.returncode or number is None:
        raise FailedError(said(complaint.decode(errors="replace") or output.decode(errors="replace")))
    return number["job_id"]


async def cancel(queue: Commands, job_name: str) -> None:
    """Cancel all jobs of this name, and check that none is left. Raises FailedError if one may be."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CANCELLING
    while loop.time() < deadline:
        await _output(queue.cancelling(job_name))
        listed = await _listed(queue, job_name)
        if listed is not None and all(job.state == "ended" for job in listed.values()):
            return
        await asyncio.sleep(_POLL)
    command = shlex.join(queue.cancelling(job_name))
    raise FailedError(f"Jobs named {job_name} may be left in the queue. Cancel them: {command}")


async def _listed(queue: Commands, job_name: str) -> dict[str, Job] | None:
    """Return the jobs that the queue lists; None if it doesn't answer, or if its answer can't be parsed."""
    answer = await _output(queue.asking(job_name))
    try:
        return None if answer is None else queue.jobs(answer, job_name)
    except (ValueError, LookupError) as err:
        logger.warning("What %s says of jobs can't be read: %r", queue.title, err)
        return None


async def _output(command: Sequence[str]) -> str | None:
    """Return the output of a command, None if it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as err:
        logger.info("%s can't be started: %s", command[0], err)
        return None
    try:
        answer, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        return None
    return answer.decode(errors="replace") if process.returncode == 0 else None


def _complaint(folder: Path, job: str) -> str:
    """Return the last line of a job's logs that names an error, without SLURM's own messages on how it ended."""
    lines: list[str] = []
    for log in folder.iterdir():
        if re.search(rf"(?<!\d){job}(?!\d)", log.name) and log.is_file():
            lines += config.read_tail(log).splitlines()
    words = ("rror", "No such", "not found", "denied")
    errors = [line for line in lines if any(word in line for word in words) and not line.startswith("slurmstepd")]
    # Bash first names the copy of the script that it runs.
    return re.sub(r"^\S*slurm_script: line \d+: ", "", whole(errors[-1]).rstrip(".")) if errors else ""


def said(text: str) -> str:
    """Return the error message of a queue's command, without the command's own name before it."""
    lines = [re.sub(r"^(\w+: )?(error: )?", "", line).rstrip(". ") for line in text.splitlines()]
    return whole("; ".join(dict.fromkeys(filter(None, lines)))) or "it doesn't say why"


def per_job(spec: ClusterSpec) -> int:
    """Return the number of workers in each job of a spec."""
    return int(spec.options.get("workers_per_job", 1))


def has_scheduler_job(spec: ClusterSpec) -> bool:
    """Return whether the scheduler of a spec has its own job."""
    return spec.options.get("scheduler") == "job"
