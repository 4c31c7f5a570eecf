"""A stand-in for PBS, Grid Engine or LSF, by the command in its first argument: one job runs at a time, here.

What it prints has the form of what real ones print; see tests/test_queues.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["QUEUE_HERE"])
BUSY = {
    "pbs": "Not Running: Insufficient amount of resource: ncpus (R: 1 A: 0 T: 1)",
    "lsf": "Job slot limit reached;",
}


def submitted(script: str) -> int:
    """Keep a job, which runs unless another does."""
    number = len(list(FOLDER.glob("*.json"))) + 100
    named = re.search(r"^#(?:PBS -N|\$ -N|BSUB -J) (\S+)", script, re.MULTILINE)
    runs = not any(alive(job) for job in jobs())
    kept = {"id": str(number), "name": named and named[1], "pid": None, "ended": False}
    if runs:
        with (FOLDER / f"{number}.log").open("w") as log:
            begun = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, start_new_session=True)
        kept["pid"] = begun.pid
    keep(kept)
    return number


def keep(job: dict[str, Any]) -> None:
    (FOLDER / f"{job['id']}.json").write_text(json.dumps(job))


def jobs(name: str | None = None) -> list[dict[str, Any]]:
    told = [json.loads(each.read_text()) for each in sorted(FOLDER.glob("*.json"))]
    return [job for job in told if name in (None, job["name"])]


def alive(job: dict[str, Any]) -> bool:
    if job["pid"] is None or job["ended"]:
        return False
    with contextlib.suppress(OSError):
        os.kill(job["pid"], 0)
        return True
    return False


def ended(job: dict[str, Any]) -> bool:
    return bool(job["ended"] or (job["pid"] and not alive(job)))


def end(job: dict[str, Any]) -> None:
    if alive(job):
        os.killpg(job["pid"], signal.SIGKILL)
    keep({**job, "ended": True})


def pbs(job: dict[str, Any]) -> dict[str, Any]:
    about = {"Job_Name": job["name"], "job_state": "F" if ended(job) else "R" if alive(job) else "Q"}
    more = {"F": {"Exit_status": 271}, "Q": {"comment": BUSY["pbs"]}}
    return {**about, **more.get(about["job_state"], {})}


def sge(job: dict[str, Any]) -> str:
    letters = "r" if alive(job) else "qw"
    return (
        f'<job_list state="{"running" if alive(job) else "pending"}"><JB_job_number>{job["id"]}</JB_job_number>'
        f"<JB_name>{job['name'][:10]}</JB_name><state>{letters}</state><full_job_name>{job['name']}</full_job_name>"
        "</job_list>"
    )


def lsf(job: dict[str, Any]) -> dict[str, str]:
    told = {"JOBID": job["id"], "STAT": "RUN", "EXIT_CODE": "", "EXIT_REASON": "", "PEND_REASON": ""}
    if ended(job):
        return told | {"STAT": "EXIT", "EXIT_CODE": "137", "EXIT_REASON": "TERM_OWNER: job killed by owner"}
    return told if alive(job) else told | {"STAT": "PEND", "PEND_REASON": BUSY["lsf"]}


def main(command: str, *words: str) -> None:
    """Do as such a command does."""
    name = words[words.index("-J") + 1] if "-J" in words else words[-1] if words else None
    if command in ("qsub", "bsub"):
        script = Path(words[0]).read_text(encoding="utf-8") if words else sys.stdin.read()
        number = submitted(script)
        print({"qsub": f"{number}.here", "bsub": f"Job <{number}> is submitted to queue <normal>."}[command])
    elif command == "qselect":
        print("\n".join(f"{job['id']}.here" for job in jobs(name) if "-x" in words or not ended(job)))
    elif command == "qstat" and "-xml" in words:
        print(f"<job_info><job_info>{''.join(sge(job) for job in jobs() if not ended(job))}</job_info></job_info>")
    elif command == "qstat":
        print(json.dumps({"Jobs": {f"{job['id']}.here": pbs(job) for job in jobs() if f"{job['id']}.here" in words}}))
    elif command == "bjobs":
        print(json.dumps({"COMMAND": "bjobs", "JOBS": len(jobs(name)), "RECORDS": [lsf(job) for job in jobs(name)]}))
    else:
        for job in jobs():
            if job["name"] in words or job["id"] in words or f"{job['id']}.here" in words:
                end(job)


if __name__ == "__main__":
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        main(*sys.argv[1:])
