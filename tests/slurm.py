"""SLURM on this machine for tests: munged, slurmctld and slurmd on the loopback, all they write in one folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")

_CONFIGURATION = """
ClusterName=workbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName=node-1 NodeAddr=127.0.0.1 NodeHostname={host} Port={node} CPUs=4 RealMemory=8000
PartitionName=main Nodes=node-1 Default=YES MaxTime=60 State=UP
PartitionName=off Nodes=node-1 MaxTime=60 State=DOWN
"""


# Where daemons are, which users needn't have on theirs.
_PATH = f"{os.environ['PATH']}:/usr/sbin"


def lacking() -> str | None:
    """Return why SLURM can't run here, None where it can."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    return f"these programs are missing: {', '.join(absent)}" if absent else None


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Run it; the path of its configuration, for SLURM_CONF. It has a queue `main`, and `off`, which never starts."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    # munged wants no folder above its socket that others may write to, unless forced.
    munged = ["munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key"]
    munged += [f"--{kind}-file={folder}/munged.{kind}" for kind in ("pid", "log", "seed")]
    configuration = folder / "slurm.conf"
    text = _CONFIGURATION.format(
        user=getpass.getuser(), folder=folder, host=platform.node(), controller=_port(), node=_port()
    )
    configuration.write_text(text.lstrip())
    environment = {**os.environ, "SLURM_CONF": str(configuration), "PATH": _PATH}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_running(munged, environment))
        until(lambda: (folder / "munge.socket").exists())
        stack.enter_context(_running(["slurmctld", "-D", "-f", str(configuration)], environment))
        stack.enter_context(_running(["slurmd", "-D", "-N", "node-1", "-f", str(configuration)], environment))
        ask = ["sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%N"]
        until(lambda: "node-1" in subprocess.run(ask, env=environment, capture_output=True, text=True).stdout)
        yield configuration


def queued(configuration: Path) -> list[str]:
    """Return the jobs that wait or run."""
    ask = ["squeue", "-h", "-o", "%i %j %T"]
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    return subprocess.run(ask, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def open_partition(configuration: Path, name: str, state: str) -> None:
    """Let a queue start jobs, or not: UP or DOWN."""
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    subprocess.run(["scontrol", "update", f"PartitionName={name}", f"State={state}"], env=environment, check=True)


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    command = [str(shutil.which(command[0], path=_PATH)), *command[1:]]
    daemon = subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield
    finally:
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
