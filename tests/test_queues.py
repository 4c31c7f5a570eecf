"""Queues that can't be had here: their job scripts, answers as real ones gave them, and stand-ins that run jobs."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import answer
from tests.waiting import until
from workbench import connect
from workbench.clusters.engine import Job, queued
from workbench.clusters.profiles import Around
from workbench.clusters.profiles.lookup import profile
from workbench.hardware import inventory

pytestmark = pytest.mark.daemons

CHOSEN: dict[str, Any] = {
    "n_workers": 3,
    "threads_per_worker": 4,
    "memory": "48GiB",
    "queue": "long",
    "account": "genes",
    "walltime": "90m",
    "interface": "lo",
    "directives": "-m a",
    "prologue": "module load python",
}

SCRIPTS = {
    "pbs": {
        "#PBS -q long",
        "#PBS -A genes",
        "#PBS -l select=1:ncpus=4:mem=16GB",
        "#PBS -l walltime=01:30:00",
        "#PBS -m a",
    },
    "sge": {"#$ -q long", "#$ -P genes", "#$ -l h_rt=01:30:00", "#$ -m a"},
    "lsf": {"#BSUB -q long", '#BSUB -P "genes"', "#BSUB -n 4", "#BSUB -W 01:30", "#BSUB -m a"},
}


def test_a_preview_can_be_had_in_a_thread_and_leaves_signals_alone() -> None:
    told = (
        "import signal, threading; from workbench.clusters.profiles import Around;"
        "from workbench.clusters.profiles.lookup import profile;"
        "from workbench.hardware import inventory; found = profile('slurm');"
        "spec = found.plan({}, Around(inventory())); said = [];"
        "thread = threading.Thread(target=lambda: said.append(found.preview(spec)));"
        "thread.start(); thread.join(); assert said;"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    subprocess.run([sys.executable, "-c", told], check=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_job_script_says_what_was_chosen(name: str) -> None:
    found = profile(name)
    spec = found.plan(CHOSEN, Around(inventory()))
    script = found.preview(spec) or ""
    assert SCRIPTS[name] <= {*script.splitlines()}
    assert "module load python" in script.splitlines()
    assert "--nthreads 4 --memory-limit 16.00GiB --nanny --death-timeout 60 --local-directory" in script
    assert '--local-directory "$WORKBENCH_SPILL" --lifetime 4860s' in script
    assert "/clusters/NAME/" in script
    compile(found.code(spec), "code", "exec")


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_walltime_is_half_an_hour_where_dask_jobqueue_has_set_its_own_default(name: str) -> None:
    import dask_jobqueue  # noqa: F401

    assert profile(name).plan({}, Around(inventory())).options["walltime"] == 1800


PBS = """{"timestamp":1676400000, "pbs_version":"2022.1.1", "pbs_server":"pbs-01", "Jobs":{
 "7013474.pbs-01":{"Job_Name":"dask-night-1", "job_state":"R", "comment":"Job run at Tue Feb 14 at 02:10"},
 "7013475.pbs-01":{"Job_Name":"dask-night-1", "job_state":"Q", "Hold_Types":"n",
   "comment":"Not Running: Insufficient amount of resource: ncpus",
   "estimated":{"exec_vnode":"(cx3-10-8:ncpus=4:mem=8388608kb)", "start_time":"Tue Feb 14 02:10:01 2023"}},
 "7013476.pbs-01":{"Job_Name":"dask-night-1", "job_state":"Q"},
 "7013477.pbs-01":{"Job_Name":"dask-night-1", "job_state":"H"},
 "7013478.pbs-01":{"Job_Name":"dask-night-1", "job_state":"F", "Exit_status":-29, "comment":"Job run and failed"}}}"""

SGE = """<?xml version='1.0'?>
<job_info xmlns:xsd="http://www.w3.org/2001/XMLSchema">
  <queue_info>
    <job_list state="running"><JB_job_number>555</JB_job_number><JB_name>dask-night</JB_name>
      <JB_owner>me</JB_owner><state>r</state><slots>8</slots><full_job_name>dask-night-1</full_job_name></job_list>
    <job_list state="running"><JB_job_number>556</JB_job_number><JB_name>other</JB_name><state>r</state></job_list>
  </queue_info>
  <job_info>
    <job_list state="pending"><JB_job_number>557</JB_job_number><JB_name>dask-night</JB_name><state>qw</state>
      <full_job_name>dask-night-1</full_job_name></job_list>
    <job_list state="pending"><JB_job_number>558</JB_job_number><JB_name>dask-night</JB_name>
      <state>hqw</state><full_job_name>dask-night-1</full_job_name></job_list>
    <job_list state="pending"><JB_job_number>559</JB_job_number><JB_name>dask-night</JB_name>
      <state>Eqw</state><full_job_name>dask-night-1</full_job_name></job_list>
  </job_info>
</job_info>"""

LSF = """LSF is processing your request. Please wait ...
{"COMMAND":"bjobs", "JOBS":4, "RECORDS":[
 {"JOBID":"22005", "STAT":"RUN", "EXIT_CODE":"", "EXIT_REASON":"", "PEND_REASON":""},
 {"JOBID":"22006", "STAT":"PEND", "EXIT_CODE":"", "EXIT_REASON":"", "PEND_REASON":"New job is waiting for scheduling;"},
 {"JOBID":"22007", "STAT":"EXIT", "EXIT_CODE":"130", "EXIT_REASON":"TERM_OWNER: job killed by owner", "PEND_REASON":""},
 {"JOBID":"22008", "STAT":"EXIT", "EXIT_CODE":"1", "EXIT_REASON":"", "PEND_REASON":""},
 {"JOBID":"22009", "ERROR":"Job <22009> is not found"}]}"""

ANSWERS = {
    "pbs": (
        PBS,
        ("7013474", "running", ""),
        ("7013475", "pending", "Insufficient amount of resource: ncpus"),
        ("7013476", "pending", ""),
        ("7013477", "pending", "held"),
        ("7013478", "ended", "exit status -29"),
    ),
    "sge": (
        SGE,
        ("555", "running", ""),
        ("557", "pending", "qw"),
        ("558", "pending", "hqw"),
        ("559", "pending", "Eqw"),
    ),
    "lsf": (
        LSF,
        ("22005", "running", ""),
        ("22006", "pending", "New job is waiting for scheduling"),
        ("22007", "ended", "TERM_OWNER: job killed by owner"),
        ("22008", "ended", "EXIT"),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_queue_says_of_its_jobs_is_read_with_states_and_reasons(name: str) -> None:
    answer, *expected = ANSWERS[name]
    found: Any = profile(name)
    jobs = found.jobs(answer, "dask-night-1")
    assert [(job.id, job.state, job.reason) for job in jobs.values()] == expected
    assert list(jobs) == [number for number, _, _ in expected]


def test_when_pbs_expects_a_job_to_start_is_told() -> None:
    pbs: Any = profile("pbs")
    starts = [job.start for job in pbs.jobs(PBS, "dask-night-1").values()]
    assert starts == [None, time.mktime((2023, 2, 14, 2, 10, 1, 0, 0, -1)), None, None, None]
    assert pbs.jobs("", "dask-night-1") == {}


@pytest.mark.parametrize(("name", "answer"), [("pbs", "{"), ("sge", "<job_info>"), ("lsf", "No LSF here")])
def test_an_answer_that_cant_be_read_is_told_from_one_without_jobs(name: str, answer: str) -> None:
    found: Any = profile(name)
    with pytest.raises(ValueError, match=r"."):
        found.jobs(answer, "dask-night-1")


COMMANDS = {
    "pbs": ("qsub", "qselect", "qstat", "qdel"),
    "sge": ("qsub", "qstat", "qdel"),
    "lsf": ("bsub", "bjobs", "bkill"),
}
WAITS = {
    "pbs": "Insufficient amount of resource: ncpus (R: 1 A: 0 T: 1)",
    "sge": "qw",
    "lsf": "Job slot limit reached",
}


def test_a_job_makes_a_folder_of_its_own_to_spill_to_and_removes_those_of_killed_jobs(tmp_path: Path) -> None:
    spec = profile("pbs").plan({}, Around(inventory()))
    lines = (profile("pbs").preview(spec) or "").rstrip().splitlines()[:-1]
    dead, living = tmp_path / "workbench-job-dead", tmp_path / "workbench-job-living"
    for folder in (dead, living):
        folder.mkdir()
        os.utime(folder, (1e9, 1e9))
    os.mkfifo(tmp_path / "workbench-job-fifo")
    (tmp_path / "workbench-job-link").symlink_to(Path.cwd())
    script = "\n".join([*lines, 'stat -c "%a %n" "$WORKBENCH_SPILL"'])
    held = os.open(living, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=20
    )
    os.close(held)
    assert (done.returncode, done.stderr) == (0, "")
    mode, made = done.stdout.split()
    assert (mode, Path(made).parent, Path(made).exists()) == ("700", tmp_path, False)
    left = {each.name.removeprefix("workbench-job-") for each in tmp_path.iterdir()}
    assert left == {"living", "fifo", "link"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_cluster_runs_in_a_stand_in_and_tells_why_a_job_waits(
    name: str, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = shlex.quote(str(Path(__file__).with_name("queue_here.py")))
    for command in COMMANDS[name]:
        words = f'{shlex.quote(sys.executable)} {stand_in} {command} "$@"'
        (tmp_path / command).write_text(f"#!/bin/sh\nexec {words}\n")
        (tmp_path / command).chmod(0o755)
    (tmp_path / "jobs").mkdir()
    monkeypatch.setenv("QUEUE_HERE", str(tmp_path / "jobs"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    told = answer("up", name, "--workers", "2", "--memory", "1400MiB", "--interface", "lo", "--name", "night")
    try:
        assert (told["status"], told["n_workers"], told["n_workers_expected"]) == ("ready", 1, 2)
        jobs = [Job(**job) for job in told["jobs"]]
        assert {job.state for job in jobs} == {"running", "pending"}
        assert queued(jobs) == f"1 pending: {WAITS[name]}"
        with connect("night") as client:
            (place,) = client.run(lambda dask_worker: dask_worker.local_directory).values()
        assert Path(place).relative_to(tmp_path).parts[0].startswith("workbench-job-")
        (waits,) = (job.id for job in jobs if job.state == "pending")
        subprocess.run([COMMANDS[name][-1], waits], check=True)
        until(lambda: ("ended", waits) in [(job["state"], job["id"]) for job in answer("ls")[0]["jobs"]])
    finally:
        answer("down", "night")
    kept = [json.loads(each.read_text()) for each in (tmp_path / "jobs").glob("*.json")]
    assert [job["ended"] for job in kept] == [True, True]
