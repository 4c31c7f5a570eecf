"""The handle of a cluster whose workers are jobs in a queue, with its scheduler in this process or in a job, too."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.utils import get_ip

from workbench import config, formats
from workbench.clusters import security
from workbench.clusters.attached import abouts, another_python
from workbench.clusters.handle import Job, State, queued
from workbench.clusters.profiles.local import LocalHandle
from workbench.clusters.profiles.queues import Queue, apart, in_whole_jobs, per_job, said
from workbench.clusters.profiles.scheduler_job import SchedulerJob
from workbench.clusters.reaching import ANSWERING, Place, reach
from workbench.clusters.repeating import repeat
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, whole
from workbench.travelling import About, differences, machine_elsewhere, missing

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

logger = logging.getLogger("workbench.host")

_OFTEN, _SELDOM = 2.0, 15.0
"""Seconds between two questions to the queue: while workers are missing, and while all are there."""
_PATIENCE = 10.0
_CANCELLING = 5.0
_ARRIVING = 0.05
_SILENT = 3 * _OFTEN + ANSWERING
"""Seconds after which it is said that nothing was heard from a scheduler that is elsewhere."""
_LEFT = "it is no longer in the queue"


class JobsHandle(LocalHandle):
    """Jobs, each of which is a worker."""

    def __init__(
        self, queue: Queue, job_name: str, cluster: Any, spec: ClusterSpec, folder: Path, changed: Callable[[], None]
    ) -> None:
        super().__init__(cluster, spec, folder, changed, None)
        self._queue = queue
        self._job_name = self.called = job_name
        self._each = per_job(spec)
        if self._each > 1:
            self.together, self.following = _job_of, _in_jobs_of(self._each)
        self._folder = folder
        self._changed = changed
        self._told: dict[str, Job] = {}
        self._told_at = 0.0
        self._due = 0.0
        self._seen: set[object] = set()
        self._asking: asyncio.Task[None] | None = None
        self._queued = self._scheduler if isinstance(self._scheduler, SchedulerJob) else None
        self._gone = asyncio.Event()
        self._place = Place(self.address, *(security.files(folder) if spec.encrypt else ()))
        self._looked: frozenset[str] = frozenset()
        self._abouts: list[About] = []

    @classmethod
    async def begin(cls, queue: Queue, spec: ClusterSpec, folder: Path, changed: Callable[[], None]) -> JobsHandle:
        """Start the scheduler, where it runs here. Nothing is submitted yet."""
        job_name = f"dask-{folder.name}-{secrets.token_hex(3)}"
        submitted = _submitted(queue.job_class())
        place = {} if "interface" in spec.options else {"host": get_ip()}
        cluster = queue.cluster_class()(
            **queue.submission(spec, folder),
            job_name=job_name,
            job_cls=submitted,
            security=security.kept(folder) if spec.encrypt else None,
            scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0", **place},
            silence_logs=False,
            asynchronous=True,
        )
        if apart(spec):
            job = queue.scheduler_job(submitted, spec, job_name, folder)
            cluster.scheduler = SchedulerJob(job, folder, security.files(folder) if spec.encrypt else ())
        else:
            await cluster
        return cls(queue, job_name, cluster, spec, folder, changed)

    async def reachable(self) -> None:
        """Return when the scheduler is there: at once, or when its job runs and said where.

        Raises FailedError where the queue refuses it, where it has ended, and where this machine can't reach it.
        """
        self._asking = asyncio.create_task(repeat(self._ask_all, _OFTEN))
        if self._queued is None:
            return
        await self._queued.job.start()
        while (place := self._queued.find()) is None:
            if self._gone.is_set():
                raise FailedError(f"{self._scheduler_ended()} The logs are in {self._folder}.")
            self._refuse_endless(self._scheduler_job())
            await asyncio.sleep(_ARRIVING)
        self.address, self._place = place.address, place
        try:
            self.versions = (await asyncio.to_thread(reach, place)).versions
        except BadInputError as err:
            raise FailedError(
                f"The scheduler runs in job {self._queued.job.job_id}, and can't be reached from here. {err} Give "
                "interface, the network between this machine and the nodes, or choose scheduler=here."
            ) from err
        await self._cluster

    async def finished(self) -> str:
        """Return when the scheduler was closed. Raises FailedError when its job has ended."""
        if self._queued is None:
            return await super().finished()
        await self._gone.wait()
        raise FailedError(self._scheduler_ended())

    async def fill(self) -> None:
        """Submit the jobs; return when some workers are there, and of the others it is known that they wait.

        Raises FailedError where the queue refuses them, or all have ended.
        """
        self._cluster.scale(self._spec.n_workers)
        await self._cluster
        began = time.monotonic()
        while not self._is_up(began):
            await asyncio.sleep(_ARRIVING)
        # Some may have started since.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ask(), _OFTEN)

    def _is_up(self, began: float) -> bool:
        arrived, jobs = len(self._scheduler.workers), self._jobs()
        ended = [job for job in jobs if job.state == "ended"]
        if jobs and len(ended) == len(jobs):
            raise FailedError(f"{self._all_ended(ended)} The logs are in {self._folder}.")
        self._refuse_endless(jobs)
        waiting = [job for job in jobs if job.state == "pending" and job.reason]
        missing = self._spec.n_workers - arrived
        known = self._each * (len(waiting) + len(ended)) >= missing and self._told_at > began
        return missing <= 0 or (arrived > 0 and known)

    def _refuse_endless(self, jobs: Sequence[Job]) -> None:
        """Raise FailedError where the queue took jobs of which it starts none."""
        if jobs and all(map(self._queue.never_starts, jobs)):
            raise FailedError(f"The queue took {formats.count(len(jobs), 'job')}: {queued(jobs)}.")

    async def state(self) -> State:
        state, jobs = await super().state(), self._jobs()
        self._seen |= self._here().keys()
        all_ended = jobs and not state.arrived and all(job.state == "ended" for job in jobs)
        trouble = f"{self._all_ended(jobs)} Scale it to submit them again, or stop it." if all_ended else None
        trouble = trouble or self._silence()
        other = next(filter(None, (another_python(each.python) for each in self._abouts)), None)
        return state._replace(
            jobs=(*self._scheduler_job(), *jobs),
            trouble=trouble or other,
            warning=differences(self._abouts) or state.warning,
            machine=machine_elsewhere(self._abouts),
            missing=missing(self._abouts),
        )

    async def scale(self, n: int) -> None:
        """Have `n` workers, in place of those that have ended, too. Raises FailedError where the queue refuses."""
        self._forget(lambda _: True)
        n = in_whole_jobs(n, self._each)
        here = self._here()
        # Dask itself would take any of them for one that still waits.
        waiting = [name for name in self._cluster.worker_spec if name not in here]
        for name in waiting[max(0, n // self._each - len(here)) :]:
            del self._cluster.worker_spec[name]
        await super().scale(n)
        await self._cluster

    async def adapt(self, minimum: int, maximum: int) -> None:
        await super().adapt(in_whole_jobs(minimum, self._each), in_whole_jobs(maximum, self._each))

    async def close(self) -> None:
        """Close the scheduler and cancel all jobs, also one that is being submitted."""
        if self._asking is not None:
            self._asking.cancel()
        try:
            await super().close()
        finally:
            await cancel(self._queue, self._job_name)

    def _here(self) -> dict[object, list[WorkerState]]:
        """Workers that are there, by the names of their jobs."""
        here: dict[object, list[WorkerState]] = {}
        for worker in self._scheduler.workers.values():
            here.setdefault(self.together(worker) if self.together else worker.name, []).append(worker)
        return here

    def _leaving(self, n: int) -> list[object]:
        """Names of all workers of the jobs that have least to do: a job goes as a whole."""
        jobs = sorted(self._here().values(), key=lambda these: sum(len(worker.processing) for worker in these))
        return [worker.name for these in jobs[: max(0, len(jobs) - n // self._each)] for worker in these]

    def _jobs(self) -> tuple[Job, ...]:
        here = self._here()
        return tuple(self._job(job, name in here) for name, job in self._cluster.workers.items())

    def _job(self, job: Any, is_here: bool = False) -> Job:
        if job.status == Status.failed:
            return Job(id="", state="ended", reason=job.refusal, workers=self._each)
        told = self._told.get(job.job_id) or Job(id=str(job.job_id), state="running" if is_here else "pending")
        return told.model_copy(update={"workers": self._each})

    def _scheduler_job(self) -> tuple[Job, ...]:
        """The job of the scheduler, where it has one that was submitted."""
        if self._queued is None or self._queued.job.job_id is None:
            return ()
        told = self._job(self._queued.job, is_here=bool(self.address))
        return (told.model_copy(update={"workers": 0}),)

    def _scheduler_ended(self) -> str:
        return f"The scheduler is gone. {self._all_ended(self._scheduler_job())}"

    def _silence(self) -> str | None:
        """Return for how long nothing was heard from a scheduler that is elsewhere; None where it answers."""
        if self._queued is None or not self._queued.heard:
            return None
        unheard = time.monotonic() - self._queued.heard
        return f"Its scheduler hasn't answered for {formats.duration(round(unheard))}." if unheard > _SILENT else None

    def _all_ended(self, ended: Sequence[Job]) -> str:
        """Return how the first of them ended, with the last line that it said."""
        first = ended[0]
        # What one says as it is cancelled isn't why.
        line = _complaint(self._folder, first.id) if first.id and not first.reason.startswith("CANCELLED") else ""
        which = f"Job {first.id}".rstrip() if len(ended) == 1 else f"All {len(ended)} jobs have ended. Job {first.id}"
        return f"{which} ended: {first.reason}{f' ({line})' if line else ''}."

    async def _ask_all(self) -> None:
        """Ask the queue, a scheduler in a job of its own, and new workers."""
        complete = len(self._scheduler.workers) >= self._requested and self._adaptive is None
        complete = complete and self._queued is None
        if not complete or time.monotonic() > self._due:
            self._due = time.monotonic() + _SELDOM
            await self._ask()
        # Not before it was heard for the first time: until then nothing is connected to it.
        if self._queued is not None and self._queued.heard:
            with contextlib.suppress(OSError, TimeoutError):
                await self._queued.look()
        await self._look()

    async def _look(self) -> None:
        """Ask what the workers run on, when there are new ones."""
        workers = frozenset(self._scheduler.workers)
        if workers - self._looked:
            with contextlib.suppress(OSError, TimeoutError):
                self._abouts = await asyncio.wait_for(asyncio.to_thread(abouts, self._place), ANSWERING)
        self._looked = workers

    async def _ask(self) -> None:
        """Ask the queue for the jobs. One that doesn't answer has nothing new."""
        submitted = {job.job_id for job in self._cluster.workers.values() if job.job_id}
        submitted |= {job.id for job in self._scheduler_job()}
        began = time.monotonic()
        found = await _listed(self._queue, self._job_name)
        if found is None:
            return
        before = dict(self._told)
        # The queue forgets what has ended: some minutes later, or at once, nobody would know how.
        ended = {id for id, job in before.items() if job.state == "ended"}
        left = {id: Job(id=id, state="ended", reason=_LEFT) for id in submitted - found.keys() - ended}
        self._told |= found | left
        self._told_at = began
        if self._adaptive is not None:
            # Another takes the place of a worker that left in time; one that never came would only fail again.
            self._forget(lambda name: name in self._seen)
        if any(job.state == "ended" for job in self._scheduler_job()):
            self._gone.set()
        if self._told != before:
            self._changed()

    def _forget(self, which: Callable[[object], bool]) -> None:
        """Have the cluster count no longer on jobs that have ended."""
        for name, job in list(self._cluster.workers.items()):
            if self._job(job).state == "ended" and which(name):
                del self._cluster.workers[name]
                self._cluster.worker_spec.pop(name, None)


async def cancel(queue: Queue, job_name: str) -> None:
    """Cancel all jobs of this name, and look that none is left. Raises FailedError where one may be."""
    deadline = time.monotonic() + _CANCELLING
    while time.monotonic() < deadline:
        await _said(queue.cancelling(job_name))
        found = await _listed(queue, job_name)
        if found is not None and all(job.state == "ended" for job in found.values()):
            return
        await asyncio.sleep(2 * _ARRIVING)
    command = shlex.join(queue.cancelling(job_name))
    raise FailedError(f"Jobs named {job_name} may be left in the queue. Cancel them: {command}")


async def _listed(queue: Queue, job_name: str) -> dict[str, Job] | None:
    """Return what the queue lists of the jobs; None where it doesn't answer, or nothing that can be read."""
    answer = await _said(queue.asking(job_name))
    try:
        return None if answer is None else queue.jobs(answer, job_name)
    except (ValueError, LookupError) as err:
        logger.warning("What %s says of jobs can't be read: %r", queue.title, err)
        return None


def _job_of(worker: WorkerState) -> str:
    """Name of the job of a worker, to which Dask adds a number where there are several."""
    return str(worker.name).rpartition("-")[0]


def _in_jobs_of(each: int) -> type[Adaptive]:
    """What asks for whole jobs: for one worker too many Dask would cancel the job before it is up, again and again."""

    class Following(Adaptive):
        async def target(self) -> int:
            return in_whole_jobs(await super().target(), each)

    return Following


def _submitted(kind: Any) -> Any:
    """Class of a job whose submission, where it is refused, says why."""

    class Submitted(kind):
        refusal = ""

        @contextlib.contextmanager
        def job_file(self) -> Iterator[str]:
            """Write the script: dask-jobqueue's file is removed and made anew, so that another user could be first."""
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="workbench-", suffix=".sh") as file:
                file.write(self.job_script())
                file.flush()
                yield file.name

        async def start(self) -> None:
            try:
                await super().start()
            except (RuntimeError, OSError, ValueError) as err:
                self.status = Status.failed
                self.refusal = said(str(err).partition("stderr:")[2] or str(err))
                raise FailedError(f"The queue refused a job: {self.refusal}.") from err

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed

    return Submitted


async def _said(command: Sequence[str]) -> str | None:
    """Return what a command prints, None where it fails or takes long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as err:
        logger.info("%s can't be asked: %s", command[0], err)
        return None
    try:
        answer, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        return None
    return answer.decode(errors="replace") if process.returncode == 0 else None


def _complaint(folder: Path, job: str) -> str:
    """Last line of a job's logs that names an error; of how it was ended SLURM itself has told."""
    lines: list[str] = []
    for log in folder.iterdir():
        if re.search(rf"(?<!\d){job}(?!\d)", log.name) and log.is_file():
            lines += config.read_tail(log).splitlines()
    words = ("rror", "No such", "not found", "denied")
    named = [line for line in lines if any(word in line for word in words) and not line.startswith("slurmstepd")]
    # Bash says first which copy of the script it runs.
    return re.sub(r"^\S*slurm_script: line \d+: ", "", whole(named[-1]).rstrip(".")) if named else ""
