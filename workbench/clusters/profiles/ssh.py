"""Workers on machines reached by SSH, with the scheduler here."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from workbench import formats
from workbench.clusters.choices import AnyChoices, File, Memory, Text, Workers, WorkerThreads, whole_number
from workbench.clusters.profiles import Around, Profile
from workbench.clusters.profiles.this_machine import encrypted, idle_timeout, memory_each
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, on_one_line
from workbench.threads import finish

if TYPE_CHECKING:
    from distributed.security import Security

    from workbench.clusters.profiles.hosts import HostsEngine


def _hosts(value: Any) -> Any:
    if isinstance(value, str):
        value = re.split(r"[\s,]+", value.strip(" ,\n\t"))
    if not isinstance(value, list | tuple) or not value or not all(map(_is_host, value)):
        raise ValueError("Give names or addresses of machines with commas between them, such as node-1,node-2")
    return list(dict.fromkeys(value))


def _is_host(name: Any) -> bool:
    # Only names that neither ssh nor a shell could misread.
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_][\w.:-]{0,252}", name) is not None


_Port = Annotated[
    Annotated[int, Field(ge=1, lt=2**16)] | None,
    BeforeValidator(whole_number),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 2**16 - 1}),
]
_Gpus = Annotated[
    Annotated[int, Field(ge=1, le=64)] | None,
    BeforeValidator(whole_number),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 64}),
]


class SshChoices(AnyChoices):
    """Choices for workers on other machines."""

    hosts: Annotated[
        list[str], BeforeValidator(_hosts), WithJsonSchema({"type": "string", "examples": ["node-1,node-2"]})
    ] = Field(title="Hosts", description="Machines with workers, with commas between them, such as node-1,node-2.")
    n_workers: Workers = Field(None, description="Left out: one for each machine, or for each of its GPUs.")
    threads_per_worker: WorkerThreads = Field(
        None, description="Left out: a machine's cores, shared out among its workers."
    )
    memory: Memory = Field(
        None, description="Of all workers together, such as 8GiB. Left out: what each machine has, shared out."
    )
    user: Text = Field(None, title="User", description="There. Left out: as ~/.ssh/config says, or as here.")
    port: _Port = Field(None, title="Port", description="Of their SSH servers. Left out: 22, or as ~/.ssh/config says.")
    key: File = Field(
        None, title="Key file", description="Your private key. Left out: those in ~/.ssh, or the agent's."
    )
    known_hosts: File = Field(
        None, title="Known hosts", description="File with the machines' own keys. Left out: ~/.ssh/known_hosts."
    )
    remote_python: Text = Field(
        None, title="Python there", description="Path of the interpreter on the machines. Left out: the same as here."
    )
    gpus: _Gpus = Field(
        None, title="GPUs per host", description="A worker of Dask-CUDA's for each. Left out: workers on the cores."
    )
    listen: Text = Field(
        None,
        title="Listen at",
        description="Address or network interface of this machine at which the machines reach the scheduler. "
        "Left out: the one by which this machine reaches the first of them.",
    )


class Ssh(Profile):
    """Workers on machines reached by SSH."""

    name = "ssh"
    title = "SSH"
    line = "Workers on other machines, reached by SSH, with the scheduler here."
    model = SshChoices
    needs = ("asyncssh", "ssh")
    options = ("hosts", "user", "port", "key", "known_hosts", "remote_python", "gpus", "listen")

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec with a worker for each machine, or for each of their GPUs."""
        choices = self.checked(given, SshChoices)
        each = choices.gpus or 1
        n_workers = choices.n_workers or each * len(choices.hosts)
        if choices.gpus and n_workers > each * len(choices.hosts):
            raise BadInputError(
                f"n_workers is {n_workers}, and {formats.count(len(choices.hosts), 'machine')} with "
                f"{formats.count(each, 'GPU')} each have a GPU for {each * len(choices.hosts)} of them."
            )
        return ClusterSpec(
            profile=self.name,
            n_workers=n_workers,
            threads_per_worker=choices.threads_per_worker or (1 if choices.gpus else None),
            memory_limit=None if choices.memory is None else memory_each(choices.memory, n_workers),
            protocol=encrypted(choices.encrypt),
            idle_timeout=idle_timeout(choices.idle_timeout),
            elsewhere=True,
            options=choices.model_dump(include={*self.options}, exclude_none=True),
            why=tuple(_why(choices, n_workers)),
        )

    def check(self, spec: ClusterSpec) -> None:
        """Check every machine. Raises a WorkbenchError if one can't be reached or has another Python."""
        from workbench.clusters.profiles import hosts

        if "listen" in spec.options:
            hosts.address_of(spec.options["listen"])
        finish(hosts.ask(spec))

    def preview(self, spec: ClusterSpec) -> str:
        python, user = spec.options.get("remote_python", sys.executable), spec.options.get("user")
        lines = ["# What each of them runs, and the keys, come through its standard input, with whose end it ends."]
        for host, n in shared_out(spec.n_workers, spec.options["hosts"]).items():
            where = f"{user}@{host}" if user else host
            port = f"-p {spec.options['port']} " if "port" in spec.options else ""
            lines += [f"ssh {port}{where} {shlex.quote(python)} -c 'import json, sys …'"] * n
        return "\n".join(lines)

    def code(self, spec: ClusterSpec) -> str:
        """Return a script with Dask's SSHCluster, and the same by hand."""
        return _script(spec) + _by_hand(spec)

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> HostsEngine:
        from workbench.clusters.profiles.hosts import HostsEngine

        return HostsEngine(_per_host(spec), spec, security, folder, changed)


def shared_out(n_workers: int, hosts: list[str]) -> Counter[str]:
    """Return the number of workers on each machine."""
    return Counter(hosts[each % len(hosts)] for each in range(n_workers))


def _per_host(spec: ClusterSpec) -> int:
    """Return the number of workers that share a machine."""
    return spec.options.get("gpus") or max(shared_out(spec.n_workers, spec.options["hosts"]).values())


def _why(choices: SshChoices, n_workers: int) -> list[str]:
    workers, many = formats.count(n_workers, "worker"), len(choices.hosts)
    where = ", ".join(f"{n} on {host}" for host, n in shared_out(n_workers, choices.hosts).items())
    how = "as chosen" if choices.n_workers else "one for each GPU" if choices.gpus else "one for each machine"
    scaling = "More or fewer later" if choices.memory else "Fewer later, and more where a machine has memory left"
    why = [f"{workers}, {how}: {where}. {scaling}: each goes where fewest are."]
    if many > n_workers:
        why.append(f"Warning: {formats.count(many - n_workers, 'machine')} of {many} will have no worker.")
    if choices.threads_per_worker is None and not choices.gpus:
        why.append("Threads: the usable cores of a machine, as it reports them, shared among its workers.")
    if choices.memory is None:
        why.append("Memory: the usable memory of a machine, as it reports it, shared by threads.")
    at = f"at {choices.listen}, as chosen" if choices.listen else "at the address by which the first machine is reached"
    why.append(f"The scheduler runs here and listens {at}; the machines must be able to connect to it.")
    if encrypted(choices.encrypt) == "tls":
        why.append("Keys are made for this cluster and go through SSH; no file or command line there holds them.")
    else:
        why.append("Warning: not encrypted, so anyone who reaches the scheduler's port may run code on the machines.")
    return why


def _script(spec: ClusterSpec) -> str:
    options = spec.options
    hosts = [host for host, n in shared_out(spec.n_workers, options["hosts"]).items() for _ in range(n)]
    connect = {"username": "user", "port": "port", "client_keys": "key", "known_hosts": "known_hosts"}
    connecting = {name: options[ours] for name, ours in connect.items() if ours in options}
    worker: dict[str, Any] = {}
    if spec.threads_per_worker is not None:
        worker["nthreads"] = spec.threads_per_worker
    if spec.memory_limit is not None:
        worker["memory_limit"] = spec.memory_limit
    lines = [
        f"{formats.literal([hosts[0], *hosts])},  # the scheduler's machine, then one for each worker",
        f"connect_options={formats.literal(connecting)},",
        f"worker_options={formats.literal(worker)},",
        "scheduler_options={'port': 0, 'dashboard_address': ':0'},",
        f"remote_python={formats.literal(shlex.quote(options.get('remote_python', sys.executable)))},",
    ]
    if spec.encrypt:
        lines.append("# SSHCluster makes no keys: this is not encrypted.")
    if options.get("gpus"):
        lines.append("worker_class='dask_cuda.CUDAWorker',")
    body = "\n".join(f"        {line}" for line in lines)
    return (
        "from dask.distributed import Client, SSHCluster\n\n"
        'if __name__ == "__main__":\n'
        f"    cluster = SSHCluster(\n{body}\n    )\n    client = Client(cluster)\n    print(client)\n"
    )


def _by_hand(spec: ClusterSpec) -> str:
    options = spec.options
    nodes = shared_out(spec.n_workers, options["hosts"])
    first = next(iter(nodes))
    lines = ["The same by hand, a command on each machine, without encryption:", f"{first}: dask scheduler"]
    for host, n in nodes.items():
        command = ["dask", "cuda", "worker"] if options.get("gpus") else ["dask", "worker"]
        command.append(f"tcp://{first}:8786")
        if n > 1 and not options.get("gpus"):
            command += ["--nworkers", str(n)]
        if spec.threads_per_worker is not None:
            command += ["--nthreads", str(spec.threads_per_worker)]
        if spec.memory_limit is not None:
            command += ["--memory-limit", formats.size(spec.memory_limit).replace(" ", "")]
        lines.append(f"{host}: {shlex.join(command)}")
    return "\n" + "".join(f"# {on_one_line(line)}\n" for line in lines)
