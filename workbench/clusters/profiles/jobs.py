"""A cluster whose workers are jobs in a queue, with its scheduler in this process or in a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.utils import get_ip

from workbench import config, formats
from workbench.clusters.attached import Served
from workbench.clusters.handle import VERBS, Job, State, queued
from workbench.clusters.profiles.queues import FILE, Queue, apart, in_whole_jobs, per_job, said
from workbench.clusters.reaching import reach
from workbench.clusters.repeating import repeat
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, whole

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger("workbench.host")

_OFTEN, _SELDOM = 2.0, 15.0
"""Seconds between two requests to the queue: while workers are missing, and while all are there."""
_PATIENCE = 10.0
_CANCELLING = 5.0
_POLL = 0.1
_LEFT = "it is no longer in the queue"
_SCHEDULER = "scheduler"


class JobsHandle(Served):
    """Jobs with workers, and one with the scheduler if the spec says so."""

    can = VERBS

    def __init__(self, queue: Queue, spec: ClusterSpec, folder: Path, changed: Callable[[], None]) -> None:
        super().__init__(spec, folder)
        self._queue, self._changed = queue, changed
        self.called = f"dask-{folder.name}-{secrets.token_hex(3)}"
        self._each = per_job(spec)
        self._jobs: dict[str, Job] = {}
        """Jobs by name: of the worker, or 'scheduler'."""
        self._number = 0
        self._arrived_once: set[str] = set()
        self._due = 0.0
        self._listing: asyncio.Task[Any] | None = None
        self._gone = asyncio.Event()

    async def start(self, keys: Security | None) -> None:
        """Start the scheduler, if it runs in this process. Nothing is submitted yet."""
        if apart(self._planned):
            return
        interface = self._planned.options.get("interface")
        await self.serve(keys, **({"interface": interface} if interface else {"host": get_ip()}))

    async def reachable(self) -> None:
        """Return when the scheduler answers: at once, or when its job runs and has written its address.

        Raises FailedError if the queue refuses it, if it has ended, or if this machine can't reach it.
        """
        self._listing = asyncio.create_task(repeat(self._list_when_due, _OFTEN))
        if self._here is None:
            await self._submit(_SCHEDULER)
            await self._wait_for_scheduler()
            try:
                await asyncio.to_thread(reach, self.place)
            except BadInputError as err:
                raise FailedError(
                    f"The scheduler runs in job {self._jobs[_SCHEDULER].id}, and can't be reached from here. {err} "
                    "Give interface, the network between this machine and the nodes, or choose scheduler=here."
                ) from err
        await self.begin()

    async def _wait_for_scheduler(self) -> None:
        while not self.address:
            with contextlib.suppress(OSError, ValueError, LookupError):  # not written yet, or not all of it
                self.found(str(json.loads((self._folder / FILE).read_bytes())["address"]))
            if self._gone.is_set():
                raise FailedError(f"{self._scheduler_ended()} The logs are in {self._folder}.")
            self._refuse_endless([self._jobs[_SCHEDULER]])
            await asyncio.sleep(_POLL)

    async def finished(self) -> str:
        """Return when the scheduler was closed. Raises FailedError when its job has ended."""
        if self._here is not None:
            return await super().finished()
        await self._gone.wait()
        raise FailedError(self._scheduler_ended())

    async def is_up(self) -> bool:
        """Return whether some workers have arrived, and the others are known to wait.

        Raises FailedError if all have ended.
        """
        jobs, arrived = self._worker_jobs(), len(self._identity["workers"])
        ended = [job for job in jobs if job.state == "ended"]
        if jobs and len(ended) == len(jobs):
            raise FailedError(f"{self._all_ended(ended)} The logs are in {self._folder}.")
        self._refuse_endless(jobs)
        known = [*ended, *(job for job in jobs if job.state == "pending" and job.reason)]
        missing = self._planned.n_workers - arrived
        return missing <= 0 or (arrived > 0 and self._each * len(known) >= missing)

    def _refuse_endless(self, jobs: Sequence[Job]) -> None:
        """Raise FailedError if the queue took jobs but will start none of them."""
        if jobs and all(map(self._queue.never_starts, jobs)):
            raise FailedError(f"The queue took {formats.count(len(jobs), 'job')}: {queued(jobs)}.")

    def without_workers(self) -> str | None:
        """Return a message on how the jobs ended, if all have."""
        jobs = self._worker_jobs()
        if self._identity.get("workers") or not jobs or any(job.state != "ended" for job in jobs):
            return None
        return f"{self._all_ended(jobs)} Scale it to submit them again, or stop it."

    async def state(self) -> State:
        # The workers have the planned sizes of the jobs.
        return (await super().state())._replace(spec=None)

    async def jobs(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    def rounded(self, n: int) -> int:
        return in_whole_jobs(n, self._each)

    def started(self) -> int:
        return self._each * len(self._worker_jobs())

    async def scale(self, n: int) -> None:
        """Scale to `n` workers, also replacing those that have ended. Raises FailedError if the queue refuses."""
        self._forget_ended(lambda _: True)
        await super().scale(n)

    async def have(self, n: int) -> None:
        names = [name for name in self._jobs if name != _SCHEDULER]
        surplus = len(names) - n // self._each
        if surplus > 0:
            await self._end(self.leaving(names, surplus))
        for _ in range(-surplus):
            self._number += 1
            await self._submit(f"job-{self._number}")

    async def _end(self, names: Sequence[str]) -> None:
        await self.retire(names)
        for name in names:
            if number := self._jobs.pop(name).id:
                await _output(self._queue.cancelling_one(number))

    async def _submit(self, name: str) -> None:
        """Submit a job of this name. Raises FailedError if the queue refuses it."""
        n_workers = 0 if name == _SCHEDULER else self._each
        job = self._queue.job(self._planned, self._folder, self.called, name, self.address)
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

    def owner_of(self, worker: Mapping[str, Any]) -> str:
        """Return the name of a worker's job, to which Dask adds a number if there are several workers."""
        name = str(worker["name"])
        return name if self._each == 1 else name.rpartition("-")[0]

    def _worker_jobs(self) -> list[Job]:
        return [job for name, job in self._jobs.items() if name != _SCHEDULER]

    def _scheduler_ended(self) -> str:
        return f"The scheduler is gone. {self._all_ended([self._jobs[_SCHEDULER]])}"

    def _all_ended(self, ended: Sequence[Job]) -> str:
        """Return a message on how the first of them ended, with the last line of its log."""
        first = ended[0]
        # The output of a job that was canceled isn't the reason.
        line = _complaint(self._folder, first.id) if first.id and not first.reason.startswith("CANCELLED") else ""
        which = f"Job {first.id}".rstrip() if len(ended) == 1 else f"All {len(ended)} jobs have ended. Job {first.id}"
        return f"{which} ended: {first.reason}{f' ({line})' if line else ''}.{self._queue.remedy(first)}"

    async def _list_when_due(self) -> None:
        """Query the queue, less often while all workers are there."""
        loop = asyncio.get_running_loop()
        complete = len(self._identity.get("workers", {})) >= (self._requested or 0) and self._following is None
        if not complete or self._here is None or loop.time() > self._due:
            self._due = loop.time() + _SELDOM
            await self._list()

    async def _list(self) -> None:
        """Query the queue for the jobs. If it doesn't answer, nothing changes."""
        # Jobs submitted meanwhile may not be listed yet.
        before = dict(self._jobs)
        found = await _listed(self._queue, self.called)
        if found is None:
            return
        for name, job in before.items():
            # Queues forget ended jobs, after some minutes or at once, and then nothing tells how they ended.
            if name in self._jobs and job.id and (job.state != "ended" or job.id in found):
                now = found.get(job.id) or Job(id=job.id, state="ended", reason=_LEFT)
                self._jobs[name] = now.model_copy(update={"workers": job.workers})
        if self._following is not None:
            # Replace a worker that arrived and left; one that never arrived would only fail again.
            self._arrived_once |= {self.owner_of(each) for each in self._identity.get("workers", {}).values()}
            self._forget_ended(self._arrived_once.__contains__)
        scheduler = self._jobs.get(_SCHEDULER)
        if scheduler is not None and scheduler.state == "ended":
            self._gone.set()
        if self._jobs != before:
            self._changed()

    def _forget_ended(self, which: Callable[[str], bool]) -> None:
        """Remove jobs that have ended."""
        ended = [name for name, job in self._jobs.items() if job.state == "ended" and name != _SCHEDULER]
        for name in filter(which, ended):
            del self._jobs[name]


async def submit(queue: Queue, job: Any) -> str:
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


async def cancel(queue: Queue, job_name: str) -> None:
    """Cancel all jobs of this name, and check that none is left. Raises FailedError if one may be."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CANCELLING
    while loop.time() < deadline:
        await _output(queue.cancelling(job_name))
        found = await _listed(queue, job_name)
        if found is not None and all(job.state == "ended" for job in found.values()):
            return
        await asyncio.sleep(_POLL)
    command = shlex.join(queue.cancelling(job_name))
    raise FailedError(f"Jobs named {job_name} may be left in the queue. Cancel them: {command}")


async def _listed(queue: Queue, job_name: str) -> dict[str, Job] | None:
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
    named = [line for line in lines if any(word in line for word in words) and not line.startswith("slurmstepd")]
    # Bash first names the copy of the script that it runs.
    return re.sub(r"^\S*slurm_script: line \d+: ", "", whole(named[-1]).rstrip(".")) if named else ""
