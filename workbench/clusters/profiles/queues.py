"""Shared code of the queue profiles: workers as dask-jobqueue's jobs, with the scheduler in the owner or a job."""

from __future__ import annotations

import copy
import math
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import dask.config
import psutil
from dask.utils import format_bytes, parse_bytes, parse_timedelta
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from workbench import config, formats
from workbench.clusters.choices import (
    AllChoices,
    Count,
    Encrypt,
    IdleTimeout,
    Interpreter,
    Memory,
    Text,
    Workers,
    WorkerThreads,
    blank_is_none,
    without_defaults,
)
from workbench.clusters.profiles import Around, Profile
from workbench.clusters.profiles.jobs import FILE, Commands, JobsEngine, cancel, has_scheduler_job, per_job
from workbench.clusters.profiles.this_machine import encrypted, idle_timeout, memory_each
from workbench.clusters.reachability import key_files
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, quoted
from workbench.hardware import Inventory

if TYPE_CHECKING:
    from distributed.security import Security

DEATH_TIMEOUT = 60
"""Seconds after which a worker without a scheduler ends."""

_LEAST_WALLTIME = 60
_BEFORE = 0.1
"""Share of the walltime that a worker leaves for handing over its data, up to half of it varied at random."""
_LONGEST_BEFORE = 600

_OF_SCHEDULER: dict[str, Any] = {"cores": 1, "processes": 1, "memory": "4 GiB"}
"""Resources of a scheduler's job: it computes in one thread, and needs some kB for each task."""


_SPILL = """\
# Spill to a folder that other users of the node can't read. Folders that killed jobs left are removed.
WORKBENCH_DISK={disk}
mkdir -p "$WORKBENCH_DISK"
for left in "$WORKBENCH_DISK"/workbench-job-*; do
  if [ -d "$left" ] && [ -O "$left" ] && [ ! -L "$left" ]; then
    flock -n "$left" find "$left" -maxdepth 0 -type d -mmin +1 -exec rm -rf {{}} +
  fi
done
WORKBENCH_SPILL=$(mktemp -d "$WORKBENCH_DISK/workbench-job-XXXXXXXX") || exit 1
trap 'rm -rf "$WORKBENCH_SPILL"' EXIT
case $(stat -Lc %u "$WORKBENCH_DISK") in
  0 | $(stat -c %u "$WORKBENCH_SPILL")) ;;
  *) echo "Error: $WORKBENCH_DISK is another user's. Set temporary-directory to a folder of yours." >&2; exit 1 ;;
esac
exec 9< "$WORKBENCH_SPILL"
flock -n 9"""
"""Lines of a job script. Another user of the node could claim the name of Dask's dask-scratch-space first."""


def to_seconds(value: Any) -> Any:
    """Return the seconds of '30m', '2h', '0:30:00' or '1-12:00:00'."""
    if blank_is_none(value) is None or (isinstance(value, int) and not isinstance(value, bool)):
        return blank_is_none(value)
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", str(value).strip())
    if clock:
        days, hours, minutes, seconds = (int(each or 0) for each in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    try:
        # A bare number would be minutes to SLURM, and seconds to Dask.
        return int(parse_timedelta(value, default=False))
    except (KeyError, ValueError, TypeError) as err:
        raise ValueError("Give a duration with its unit, such as 30m, 2h or 1-12:00:00") from err


def _lines(value: Any) -> Any:
    return [each.strip() for each in re.split(r"[;\n]", value) if each.strip()] if isinstance(value, str) else value


_Walltime = Annotated[
    Annotated[int, Field(ge=_LEAST_WALLTIME)] | None,
    BeforeValidator(to_seconds),
    WithJsonSchema({"type": "string", "examples": ["30m", "2h", "1-12:00:00"]}),
]
_Lines = Annotated[list[str], BeforeValidator(_lines), WithJsonSchema({"type": "string"})]


class QueueChoices(BaseModel, frozen=True, extra="forbid", json_schema_extra=without_defaults):
    """Choices for a cluster of jobs; the defaults are dask-jobqueue's own settings."""

    queue: Text = Field(None, title="Queue", description="Queue or partition of the jobs. Left out: the default one.")
    n_workers: Workers = Field(None, description="Left out: as many as a job has.")
    workers_per_job: Count = Field(
        None,
        title="Workers per job",
        description="Worker processes that share the cores and memory of a job. Left out: as jobqueue.yaml says, or 1.",
    )
    threads_per_worker: WorkerThreads = Field(
        None, description="Cores of each worker. Left out: as jobqueue.yaml says of a job, or 1."
    )
    memory: Memory = Field(
        None,
        description="Of all workers together, such as 8GiB. Left out: as jobqueue.yaml says of a job, or 2GiB for "
        "each thread.",
    )
    walltime: _Walltime = Field(
        None,
        title="Walltime",
        description="Longest time of each job, such as 2h. Left out: as jobqueue.yaml says, or 30m.",
    )
    account: Text = Field(None, title="Account", description="Account or project that the jobs count for.")
    scheduler: Literal["here", "job"] = Field(
        "here",
        title="Scheduler",
        description="here: on this machine. job: in a job of its own, where the nodes don't reach this machine, or "
        "nothing may compute on it.",
    )
    interface: Text = Field(
        None,
        title="Interface",
        description="Network interface, such as ib0, on which scheduler and workers speak. "
        "Left out: the outward address.",
    )
    python: Interpreter = Field(
        None, title="Python", description="Path of the interpreter on the nodes. Left out: that of this environment."
    )
    directives: _Lines = Field(
        [],
        title="Directives",
        description="Further options of the submission, with semicolons between: --gres=gpu:1; --exclusive",
    )
    scheduler_directives: _Lines = Field(
        [],
        title="Scheduler's directives",
        description="Those of the scheduler's own job, such as --partition=cpu. Left out: Directives, as workers have.",
    )
    prologue: _Lines = Field(
        [], title="Prologue", description="Lines of the job script before the worker, such as: module load cuda"
    )
    encrypt: Encrypt = None
    idle_timeout: IdleTimeout = None


class Queue(Profile, Commands):
    """Jobs of one kind of queue, with workers."""

    model = QueueChoices
    needs = ("dask-jobqueue", "slurm")
    ends_with_owner = True
    kind: ClassVar[str]
    """Name of dask-jobqueue's class."""
    log: ClassVar[str]
    """Option of the submission that makes a job write its output to a folder."""
    tried: ClassVar[bool] = False
    """True if it has been run on a real queue."""
    account: ClassVar[str] = "account"
    """Name of the account in dask-jobqueue's class."""

    options = tuple(name for name in QueueChoices.model_fields if name not in AllChoices.model_fields)

    def summary(self, inventory: Inventory) -> str:
        tried = "" if self.tried else " Tested with a stand-in, never yet on a real one."
        return f"Workers that are jobs in a queue of {self.title}, and their scheduler here or in a job, too.{tried}"

    def unavailable(self, around: Around) -> str | None:
        """Return why it is unavailable here: dask-jobqueue or the queue's own commands are missing."""
        if shutil.which(self.submit) is None:
            return f"There is no {self.submit} here: work on a machine from which jobs are submitted."
        return super().unavailable(around)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec of jobs, with dask-jobqueue's settings as defaults."""
        choices = self.checked(given, QueueChoices)
        each = choices.workers_per_job or self._site("processes") or 1
        n_workers = each * math.ceil((choices.n_workers or each) / each)  # whole jobs
        threads = choices.threads_per_worker or max(1, (self._site("cores") or 1) // each)
        site = self._site("memory")
        memory = parse_bytes(site) // each if site else threads * 2**31
        if choices.memory is not None:
            memory = memory_each(choices.memory, n_workers)
        walltime = choices.walltime or self.site_walltime() or 1800
        options = {
            "queue": choices.queue or self._site("queue"),
            "workers_per_job": each if each > 1 else None,
            "account": choices.account or self._site(self.account),
            "walltime": walltime,
            "scheduler": choices.scheduler if choices.scheduler == "job" else None,
            "interface": choices.interface or self._site("interface"),
            "python": choices.python or self._site("python"),
            "directives": [*self._site_lines("job-extra-directives"), *choices.directives],
            "scheduler_directives": choices.scheduler_directives,
            "prologue": [*self._site_lines("job-script-prologue"), *choices.prologue],
            "local_directory": self._site("local-directory") or _quoted_setting("temporary-directory"),
        }
        spec = ClusterSpec(
            profile=self.name,
            n_workers=n_workers,
            threads_per_worker=threads,
            memory_limit=memory,
            protocol=encrypted(choices.encrypt),
            idle_timeout=idle_timeout(choices.idle_timeout),
            elsewhere=True,
            options={name: value for name, value in options.items() if value},
        )
        return spec.model_copy(update={"why": _why(spec, choices.n_workers)})

    def consent(self, spec: ClusterSpec) -> str | None:
        """Return the warning that the user must accept if the scheduler can be reached without keys."""
        if spec.encrypt:
            return None
        where = "the scheduler's node" if has_scheduler_job(spec) else "this machine"
        who = f"every user of {where}"
        if spec.options.get("interface") != "lo":
            who = f"anyone who reaches {where} over the network"
        return f"Warning: no encryption, so {who} can run code as you."

    def check(self, spec: ClusterSpec) -> None:
        """Raise BadInputError if the interface doesn't exist, or the queue would refuse such a job."""
        interface, interfaces = spec.options.get("interface"), sorted(psutil.net_if_addrs())
        if interface is not None and interface not in interfaces and not has_scheduler_job(spec):
            raise BadInputError(f"interface is {quoted(interface)}, and this machine has: {', '.join(interfaces)}.")

    def preview(self, spec: ClusterSpec) -> str:
        """Return the job scripts: of the scheduler, if it is a job, and of one worker."""
        return "\n".join(self.scripts(spec, Path(config.data_folder(), "clusters", "NAME")))

    def scripts(self, spec: ClusterSpec, folder: Path, scheduler: str = "") -> list[str]:
        """Return the job scripts of the scheduler, if it is a job, and of one worker."""
        scheduler = scheduler or f"{'tls' if spec.encrypt else 'tcp'}://SCHEDULER"
        names = ["scheduler", "WORKER"] if has_scheduler_job(spec) else ["WORKER"]
        return [str(self.job(spec, folder, f"dask-{folder.name}", name, scheduler).job_script()) for name in names]

    def job(self, spec: ClusterSpec, folder: Path, job_name: str, name: str, scheduler: str) -> Any:
        """Return a job of dask-jobqueue's, not submitted yet: the scheduler's, or that of workers of this name."""
        from workbench.clusters import security

        if name == "scheduler":
            return self.scheduler_job(self.job_class(), spec, job_name, folder)
        keys = {"security": security.paths(folder), "protocol": "tls://"} if spec.encrypt else {}
        return self.job_class()(scheduler, name=name, job_name=job_name, **self.submission(spec, folder), **keys)

    def scheduler_job(self, kind: Any, spec: ClusterSpec, name: str, folder: Path) -> Any:
        """Return a job of dask-jobqueue's that runs the scheduler, not submitted yet."""
        python = _word(spec.options.get("python", sys.executable))
        command = ["-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(folder / FILE)]
        command += ["--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        if "interface" in spec.options:
            command += ["--interface", spec.options["interface"]]
        # The scheduler has no option for its local folder.
        before = ['DASK_TEMPORARY_DIRECTORY="$WORKBENCH_SPILL"']
        if spec.encrypt:
            # Its options for keys can't be combined with an interface.
            key_paths = zip(("CA_FILE", "SCHEDULER__CERT", "SCHEDULER__KEY"), key_files(folder), strict=True)
            before += [f"DASK_DISTRIBUTED__COMM__TLS__{name}={shlex.quote(path)}" for name, path in key_paths]
            command.extend(("--protocol", "tls"))
        line = " ".join((*before, python, shlex.join(command)))

        class OfScheduler(kind):
            def job_script(self) -> str:
                """Replace the last line, which starts a worker, by the scheduler's."""
                head = str(super().job_script()).rstrip("\n").rpartition("\n")[0]
                return "\n".join((head, line, ""))

        submission = {**self.submission(spec, folder, spec.options.get("scheduler_directives")), **_OF_SCHEDULER}
        return OfScheduler(name="scheduler", job_name=name, **submission)

    def cluster_class(self) -> Any:
        """Return dask-jobqueue's class, imported here."""
        import distributed  # noqa: F401  First, since it takes the longest.

        handler = signal.signal
        # On import it sets a handler for SIGINT, which ends a kernel at an interrupt and fails in a thread.
        signal.signal = lambda *_: None
        try:
            return getattr(import_module("dask_jobqueue"), self.kind)
        finally:
            signal.signal = handler

    def job_class(self) -> Any:
        """Return dask-jobqueue's class of a job, with the paths of keys quoted: it would write them unquoted."""

        class Job(self.cluster_class().job_cls):  # type: ignore[misc]
            def __init__(self, *args: Any, security: Any = None, **kwargs: Any) -> None:
                super().__init__(*args, security=security and _quoted(security), **kwargs)

        return Job

    def arguments(self, spec: ClusterSpec) -> dict[str, Any]:
        """Return the arguments of dask-jobqueue's class."""
        options = spec.options
        python = _word(options.get("python", sys.executable))
        arguments: dict[str, Any] = {
            "queue": options.get("queue"),
            self.account: options.get("account"),
            "cores": spec.worker_threads * per_job(spec),
            "processes": per_job(spec),
            "memory": format_bytes(spec.worker_memory * per_job(spec)),
            "walltime": self.clock(options["walltime"]),
            "interface": options.get("interface"),
            "python": python if "python" in options or python != sys.executable else None,
            "death_timeout": DEATH_TIMEOUT,
            "worker_extra_args": [*self._site_lines("worker-extra-args"), *_lifetime(options["walltime"])],
            "job_extra_directives": options.get("directives"),
            "job_script_prologue": options.get("prologue"),
        }
        return {name: value for name, value in arguments.items() if value}

    def submission(self, spec: ClusterSpec, folder: Path, lines: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the arguments of our own jobs: with a log in the cluster's folder, and a folder to spill to.

        `lines` are directives.
        """
        lines = spec.options.get("directives", ()) if lines is None else lines
        log = self.log.format(folder=shlex.quote(str(folder)))
        spill = _SPILL.format(disk=spec.options.get("local_directory", "${TMPDIR:-/tmp}"))
        return {
            **self.arguments(spec),
            "job_extra_directives": [*lines, log],
            "job_script_prologue": [*spec.options.get("prologue", ()), *spill.splitlines()],
            "local_directory": '"$WORKBENCH_SPILL"',
        }

    def clock(self, seconds: int) -> str:
        """Return a walltime in the queue's format."""
        minutes, seconds = divmod(seconds, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"

    def site_walltime(self) -> int | None:
        """Return the seconds of dask-jobqueue's setting, None without one."""
        return to_seconds(self._site("walltime"))

    def code(self, spec: ClusterSpec) -> str:
        """Return a script that starts the same workers with dask-jobqueue alone."""
        lines = [f"    {name}={formats.literal(value)},\n" for name, value in self.arguments(spec).items()]
        if has_scheduler_job(spec):
            return self._code_of_two(spec)
        imports = ""
        if spec.encrypt:
            imports = "from distributed.security import Security\n"
            lines.append('    security=Security.temporary(),\n    shared_temp_directory="~",\n')
        return (
            f"from dask.distributed import Client\nfrom dask_jobqueue import {self.kind}\n{imports}\n"
            f"cluster = {self.kind}(\n{''.join(lines)})\n"
            f"cluster.scale(jobs={spec.n_workers // per_job(spec)})\nclient = Client(cluster)\nprint(client)\n"
        )

    def _code_of_two(self, spec: ClusterSpec) -> str:
        """Return a script that submits scheduler and workers separately, which dask-jobqueue itself doesn't."""
        folder = Path.home() / "dask-jobs"
        file = str(folder / FILE)
        scheduler, worker = self.scripts(spec, folder, f"--scheduler-file {shlex.quote(file)}")
        imports, keys, security_code = "", "", ""
        if spec.encrypt:
            ca, cert, key = key_files(folder)
            imports = "from distributed.security import Security\n"
            keys = (
                "keys = Security.temporary()\n"
                f"os.makedirs({str(Path(ca).parent)!r}, mode=0o700, exist_ok=True)\n"
                f"files = {{'tls_ca_file': {ca!r}, 'tls_client_cert': {cert!r}, 'tls_client_key': {key!r}}}\n"
                "for field, path in files.items():\n"
                "    with open(path, 'w') as file:\n        file.write(getattr(keys, field))\n\n"
            )
            security_code = ", security=keys"
        n_jobs = spec.n_workers // per_job(spec)
        return (
            f"import os\nimport subprocess\n\nfrom dask.distributed import Client\n{imports}\n"
            f"os.makedirs({str(folder)!r}, mode=0o700, exist_ok=True)\n{keys}"
            f"if os.path.exists({file!r}):  # of a scheduler of before\n    os.remove({file!r})\n"
            f"SCHEDULER = {_in_quotes(scheduler)}\nWORKER = {_in_quotes(worker)}\n"
            "# End them with the queue's own command.\n"
            f"for number, script in enumerate([SCHEDULER] + {n_jobs} * [WORKER]):\n"
            f'    script = script.replace("--name WORKER", f"--name worker-{{number}}")\n'
            f'    subprocess.run(["{self.submit}"], input=script, text=True, check=True)\n\n'
            f"client = Client(scheduler_file={file!r}{security_code})\nprint(client)\n"
        )

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> JobsEngine:
        return JobsEngine(self, spec, security, folder, changed)

    async def end(self, spec: ClusterSpec, called: str) -> None:
        """Cancel all jobs of this name."""
        await cancel(self, called)

    def _site(self, setting: str) -> Any:
        """Return a setting of dask-jobqueue, which sites provide in jobqueue.yaml."""
        return dask.config.get(f"jobqueue.{self.name}.{setting}", None)

    def _site_lines(self, setting: str) -> list[str]:
        return [str(each) for each in self._site(setting) or ()]


def _in_quotes(script: str) -> str:
    """Return a script as a multi-line Python string; quotes in its options are escaped."""
    escaped = script.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\\\n{escaped}"""'


def _word(python: str) -> str:
    """Return a path quoted for a script; anything else as it is, since it may be a site's command of several words."""
    return shlex.quote(python) if Path(python).exists() else python


def _quoted_setting(key: str) -> str | None:
    """Return the path in one of Dask's settings, quoted for a script."""
    path = dask.config.get(key, None)
    return path and shlex.quote(str(Path(path).expanduser()))


def _quoted(security: Security) -> Security:
    quoted_security = copy.copy(security)
    for field in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
        setattr(quoted_security, field, shlex.quote(getattr(security, field)))
    return quoted_security


def _lifetime(walltime: int) -> list[str]:
    before = min(_LONGEST_BEFORE, _BEFORE * walltime)
    return ["--lifetime", f"{math.floor(walltime - before)}s", "--lifetime-stagger", f"{math.floor(before / 2)}s"]


def _why(spec: ClusterSpec, requested: int | None) -> tuple[str, ...]:
    options, each = spec.options, per_job(spec)
    jobs = formats.count(spec.n_workers // each, "job")
    cores = formats.count(each * spec.worker_threads, "core")
    workers = "a worker each" if each == 1 else f"{each} workers each"
    if requested not in (None, spec.n_workers):
        workers += f" ({spec.n_workers} in place of {requested}: jobs come whole)"
    walltime, before = options["walltime"], min(_LONGEST_BEFORE, _BEFORE * options["walltime"])
    where = "its node" if has_scheduler_job(spec) else "this machine"
    place = f"interface {options['interface']}" if "interface" in options else f"the outward address of {where}"
    queue = f"queue {options['queue']}" if "queue" in options else "the default queue"
    keys = " Keys and logs" if spec.encrypt else " Logs"
    return (
        f"{jobs} of {cores} and {formats.size(each * spec.worker_memory)}, {workers}, in {queue}: the cluster can be "
        "used when the first is there.",
        f"Each job may take {formats.duration(walltime)}; about {formats.duration(round(before))} before, "
        f"{'its worker hands over what it holds and leaves' if each == 1 else 'its workers hand over what they hold'}.",
        f"{_where(spec)} listens on {place}, which the nodes must reach.{keys} are in "
        f"{config.data_folder()}, which they must see.",
    )


def _where(spec: ClusterSpec) -> str:
    if not has_scheduler_job(spec):
        return "The scheduler runs here and"
    return (
        f"The scheduler is a job, too, of {formats.count(_OF_SCHEDULER['cores'], 'core')} and "
        f"{_OF_SCHEDULER['memory']} with the same queue, walltime and directives: when it ends, all do. This machine "
        "must reach its node. It"
    )
