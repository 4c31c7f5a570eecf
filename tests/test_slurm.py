"""Clusters of jobs, on a SLURM that these tests bring up, and the scripts of queues that can't be had."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask_jobqueue  # noqa: F401  Its defaults have to be in Dask's configuration before a test changes that.
import psutil
import pytest

from tests import slurm
from tests.commands import answer, printed
from tests.waiting import until
from workbench import connect, watch
from workbench.clusters import records
from workbench.clusters.engine import Job, queued
from workbench.clusters.plan import explained, plan
from workbench.clusters.profiles import Around
from workbench.clusters.profiles.lookup import profile
from workbench.clusters.profiles.slurm import Slurm
from workbench.errors import BadInputError
from workbench.hardware import inventory
from workbench.runs import recording, store

pytestmark = pytest.mark.daemons

NODE = Around(inventory(), version=lambda _: "1")


@pytest.fixture
def queue(slurm_configuration: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a SLURM without any jobs of the test at its end."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_configuration))
    yield slurm_configuration
    answer("down", "--all")
    until(lambda: slurm.queued(slurm_configuration) == [])
    until(lambda: not workers_of(data_folder))


def workers_of(folder: Path) -> list[str]:
    """Command lines of Dask's workers that use keys in the folder."""
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [line for line in lines if "dask_worker" in line and str(folder) in line]


def up(*arguments: str, workers: int = 1, memory: str = "", code: int = 0) -> Any:
    memory = memory or f"{700 * workers}MiB"
    small = ("--interface", "lo", "--workers", str(workers), "--memory", memory, "--name", "night")
    return answer("up", "slurm", *small, *arguments, code=code)


@pytest.mark.parametrize(
    ("scheduler", "apart", "workload"),
    [("here", 0, ("compressed_svd", "-p", "size=16MiB")), ("job", 1, ("genotype_pca", "-p", "n_variants=2000"))],
)
def test_a_cluster_of_jobs_computes_scales_follows_the_load_and_leaves_nothing(
    queue: Path, scheduler: str, apart: int, workload: tuple[str, ...]
) -> None:
    told = up("--queue", "main", "--scheduler", f"{scheduler}", workers=2)
    assert (told["status"], told["profile"], told["n_workers"], told["protocol"]) == ("ready", "slurm", 2, "tls")
    assert [(job["state"], job["workers"]) for job in told["jobs"]] == [("running", n) for n in [0] * apart + [1] * 2]
    assert {job["id"] for job in told["jobs"]} == {line.split()[0] for line in slurm.queued(queue)}
    assert answer("run", *workload, "--cluster", "night")["status"] == "done"
    assert answer("scale", "night", "1")["n_workers"] == 1
    until(lambda: len(slurm.queued(queue)) == 1 + apart)
    assert answer("scale", "night", "2")["n_workers"] == 2
    answer("scale", "night", "--adapt", "0", "2")
    until(lambda: len(slurm.queued(queue)) == apart)
    assert answer("run", "array_sum", "-p", "size=16MiB", "--cluster", "night")["status"] == "done"
    assert answer("down", "night")["stopped"] == ["night"]
    assert slurm.queued(queue) == []


def test_jobs_that_wait_say_why_beside_the_count_and_dont_fail_a_start(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKBENCH__START_TIMEOUT", "4s")
    command = [sys.executable, "-m", "workbench", "up", "slurm", "--interface", "lo", "--workers", "2"]
    with subprocess.Popen([*command, "--queue", "off", "--name", "night"], stderr=subprocess.PIPE, text=True) as waits:
        until(lambda: [each["jobs"] for each in answer("ls")] not in ([], [[]]))
        until(lambda: all(job["reason"] == "PartitionDown" for job in answer("ls")[0]["jobs"]))
        (seen,) = answer("ls")
        until(lambda: time.time() > seen["created"] + 6)
        (seen,) = answer("ls")
        assert (seen["status"], [job["state"] for job in seen["jobs"]]) == ("starting", ["pending", "pending"])
        assert "night: 0 of 2 workers; 2 pending: PartitionDown" in printed("ls")
        assert answer("down", "night")["stopped"] == ["night"]
        assert slurm.queued(queue) == []
        assert waits.wait(20) == 1


def test_jobs_with_several_workers_each_come_and_go_as_a_whole(queue: Path) -> None:
    told = up("--workers-per-job", "2", workers=4)
    assert (told["status"], told["n_workers"], told["threads_per_worker"]) == ("ready", 4, 1)
    assert [(job["state"], job["workers"]) for job in told["jobs"]] == [("running", 2)] * 2
    answer("scale", "night", "5")
    until(lambda: answer("ls")[0]["jobs"][-1]["reason"] != "")
    assert "night: 4 of 6 workers; 2 pending: " in printed("ls")
    assert answer("scale", "night", "1")["n_workers"] == 2
    until(lambda: len(slurm.queued(queue)) == 1)
    answer("down", "night")


def test_jobs_that_slurm_does_not_cancel_are_told_with_what_cancels_them(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = tmp_path / "scancel"
    refuses.write_text("#!/bin/sh\necho 'scancel: error: Access/permission denied' >&2\nexit 1\n")
    refuses.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        up(workers=5)
    said = answer("down", "night", code=1)
    assert "may be left in the queue. Cancel them: scancel -n " in said
    # That for which there was no room: the others' workers have ended.
    until(lambda: len(slurm.queued(queue)) == 1)
    subprocess.run(shlex.split(said.rpartition("Cancel them: ")[2].splitlines()[0]), check=True)
    until(lambda: slurm.queued(queue) == [])
    assert answer("ls")[0]["status"] == "lost"


def test_a_comparison_tells_what_was_waited_in_a_queue_apart_from_its_times(queue: Path) -> None:
    line = "slurm --interface lo --workers 1 --memory 700MiB --queue off"
    options = ("-p", "size=8MiB", "--repeats", "1", "--warmup", "0", "--yes", "--json")
    command = [sys.executable, "-m", "workbench", "compare", "array_sum", "--on", line, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as compares:
        until(lambda: any("PENDING" in job for job in slurm.queued(queue)), 60)
        waits = time.time()
        until(lambda: time.time() > waits + 3)  # SLURM tells whole seconds
        try:
            slurm.open_partition(queue, "off", "UP")
            told, _ = compares.communicate(timeout=100)
        finally:
            slurm.open_partition(queue, "off", "DOWN")
    notes = json.loads(told)["notes"]
    assert any(
        re.match(rf"{re.escape(line)} waited \d s in its queue, which is in no time here\.", each) for each in notes
    ), notes


def test_what_slurm_would_refuse_is_told_before_anything_is_started(queue: Path) -> None:
    assert "SLURM would refuse the job: invalid partition specified: nope" in up("--queue", "nope", code=2)
    assert "Requested node configuration is not available" in up(memory="900GiB", code=2)
    assert "interface is 'nope0', and this machine has: " in up("--interface", "nope0", code=2)
    assert answer("ls") == []


@pytest.mark.parametrize("scheduler", ["here", "job"])
def test_jobs_that_slurm_takes_and_never_starts_fail_the_start(queue: Path, scheduler: str) -> None:
    said = up("--walltime", "2h", "--scheduler", f"{scheduler}", code=1)
    assert "1 job: " in said
    assert "pending: PartitionTimeLimit (more than is allowed there, so it never starts: ask for less)." in said
    assert slurm.queued(queue) == []
    answer("down", "night")


def test_a_job_that_is_refused_when_workers_are_added_is_told_and_can_be_asked_for_again(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "sbatch"
    refuse = f'if [ -e {tmp_path}/full ]; then echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; fi'
    sbatch.write_text(f'#!/bin/sh\n{refuse}\nexec {shutil.which("sbatch")} "$@"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    up()
    (tmp_path / "full").touch()
    assert "The queue refused a job: QOSMaxSubmitJobPerUserLimit." in answer("scale", "night", "2", code=1)
    until(lambda: answer("ls")[0]["jobs"][-1]["reason"] == "QOSMaxSubmitJobPerUserLimit")
    (tmp_path / "full").unlink()
    assert answer("scale", "night", "2")["n_workers"] == 2
    answer("down", "night")


def test_a_scheduler_whose_job_waits_says_why_and_can_be_called_off(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_WORKBENCH__START_TIMEOUT", "4s")
    command = [sys.executable, "-m", "workbench", "up", "slurm", "--interface", "lo", "--scheduler", "job"]
    with subprocess.Popen([*command, "--queue", "off", "--name", "night"], stderr=subprocess.PIPE, text=True) as waits:
        until(lambda: [[job["reason"] for job in each["jobs"]] for each in answer("ls")] == [["PartitionDown"]])
        (seen,) = answer("ls")
        until(lambda: time.time() > seen["created"] + 6)
        assert "night: 0 of 1 workers; scheduler pending: PartitionDown" in printed("ls")
        assert answer("down", "night")["stopped"] == ["night"]
        assert slurm.queued(queue) == []
        assert waits.wait(20) == 1


def test_a_scheduler_whose_job_is_silent_or_ends_is_told_and_its_workers_are_cancelled(
    queue: Path, data_folder: Path
) -> None:
    scheduler, _ = up("--scheduler", "job")["jobs"]
    file = f"{data_folder}/clusters/night/scheduler.json"
    (process,) = (each for each in psutil.process_iter(["cmdline"]) if file in (each.info["cmdline"] or ()))
    process.suspend()
    until(lambda: "Its scheduler hasn't answered for" in (answer("ls")[0]["warning"] or ""))
    process.resume()
    until(lambda: answer("ls")[0]["warning"] is None)
    subprocess.run(["scancel", scheduler["id"]], check=True)
    until(lambda: answer("ls")[0]["status"] == "lost")
    assert f"The scheduler is gone. Job {scheduler['id']} ended: CANCELLED." in answer("ls")[0]["message"]
    until(lambda: slurm.queued(queue) == [])


def test_a_scheduler_that_cant_start_in_its_job_is_told_from_its_log(queue: Path) -> None:
    said = up("--python", "/nope/bin/python", "--scheduler", "job", code=1)
    assert "The scheduler is gone. Job " in said
    assert "ended: FAILED (/nope/bin/python: No such file or directory)." in said
    answer("down", "night")


def test_a_python_that_isnt_on_the_nodes_is_told_from_the_log_of_the_job(queue: Path) -> None:
    said = up("--python", "/nope/bin/python", code=1)
    assert "ended: FAILED (/nope/bin/python: No such file or directory)." in said
    answer("down", "night")


def test_a_job_that_somebody_cancels_is_told_and_scaling_submits_another(queue: Path) -> None:
    job, other = up(workers=2)["jobs"]
    subprocess.run(["scancel", other["id"]], check=True)
    until(lambda: "night: 1 of 2 workers; 1 ended: CANCELLED" in printed("ls"))
    subprocess.run(["scancel", job["id"]], check=True)
    told = f"All 2 jobs have ended. Job {job['id']} ended: CANCELLED. Scale it to submit them again, or stop it."
    until(lambda: answer("ls")[0]["warning"] == told, about=lambda: answer("ls"))
    assert answer("scale", "night", "1")["n_workers"] == 1
    answer("down", "night")


def test_a_run_whose_jobs_have_all_ended_says_so_and_what_to_do(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_STILL", 2.0)
    (job,) = up()["jobs"]
    with connect("night") as client, watch(client) as run:
        waiting = client.submit(time.sleep, 300)
        subprocess.run(["scancel", job["id"]], check=True)
        told = f"Job {job['id']} ended: CANCELLED. Scale it to submit them again, or stop it."
        until(lambda: store.get(run.id).progress.waits == told)
        waiting.cancel()
    answer("down", "night")


def test_a_cluster_some_of_whose_jobs_wait_can_be_used_and_all_are_cancelled_where_its_owner_was_killed(
    queue: Path,
) -> None:
    told = up(workers=5)
    assert (told["status"], told["n_workers"], told["n_workers_expected"]) == ("ready", 4, 5)
    assert sorted(job["state"] for job in told["jobs"]) == ["pending", *["running"] * 4]
    (record,) = records.read_all()
    os.kill(record.pid or 0, signal.SIGKILL)
    until(lambda: records.read_all()[0].status == "lost")
    until(lambda: slurm.queued(queue) == [])


def test_a_schedulers_job_has_directives_of_its_own(queue: Path) -> None:
    chosen = ("--scheduler", "job", "--directives=--exclusive", "--scheduler-directives=-p main")
    scheduler, worker = answer("up", "slurm", *chosen, "--preview")["preview"].split("#!/usr/bin/env bash")[1:]
    assert ("-p main" in scheduler, "--exclusive" in scheduler) == (True, False)
    assert ("-p main" in worker, "--exclusive" in worker) == (False, True)


def test_the_code_of_a_scheduler_in_a_job_runs_without_this_package(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    small = {"n_workers": 2, "memory": "1400MiB", "interface": "lo", "scheduler": "job"}
    code = plan("slurm", inventory(), **small).code  # type: ignore[arg-type]
    code += "client.wait_for_workers(2)\nprint(client.submit(sum, [1, 2]).result())\n"
    try:
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=90)
        assert done.stdout.splitlines()[-1:] == ["3"], done.stderr
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], check=True)


def test_the_job_script_is_seen_before_it_is_submitted_and_holds_no_secret(queue: Path) -> None:
    script = answer("up", "slurm", "--queue", "main", "--walltime", "2h", "--preview")["preview"]
    assert {"#SBATCH -p main", "#SBATCH -t 02:00:00", "#SBATCH -n 1"} <= set(script.splitlines())
    assert "--lifetime 6600s --lifetime-stagger 300s" in script
    assert "/tls/key.pem" in script
    assert "BEGIN" not in script
    assert slurm.queued(queue) == []


# What needs no SLURM.


def given(**choices: Any) -> Any:
    return explained(profile("slurm").plan(choices, NODE))


def test_the_code_gets_the_same_workers_with_dask_jobqueue_alone() -> None:
    code = given(n_workers=3, queue="gpu", directives="--gres=gpu:1; --exclusive", prologue="module load cuda").code
    compile(code, "code", "exec")
    for line in ('queue="gpu"', 'job_extra_directives=["--gres=gpu:1", "--exclusive"]', "cluster.scale(jobs=3)"):
        assert line in code
    assert 'job_script_prologue=["module load cuda"]' in code


def test_a_scheduler_in_a_job_of_its_own_has_a_script_that_is_seen_and_code() -> None:
    spec = given(n_workers=2, scheduler="job", interface="ib0", queue="gpu")
    scripts = spec.preview.split("#!/usr/bin/env bash")[1:]
    scheduler, worker = (script.strip().splitlines() for script in scripts)
    assert {"#SBATCH -p gpu", "#SBATCH --cpus-per-task=1", "#SBATCH --mem=4G"} <= {*scheduler}
    assert "-m distributed.cli.dask_scheduler --scheduler-file" in scheduler[-1]
    assert scheduler[-1].startswith('DASK_TEMPORARY_DIRECTORY="$WORKBENCH_SPILL" ')
    assert scheduler[-1].endswith("--interface ib0 --protocol tls")
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE=" in scheduler[-1]
    assert "-m distributed.cli.dask_worker tls://SCHEDULER" in worker[-1]
    assert "The scheduler is a job, too, of 1 core and 4 GiB" in spec.why[-1]
    code = spec.code
    compile(code, "code", "exec")
    assert "-m distributed.cli.dask_worker --scheduler-file" in code
    assert "[SCHEDULER] + 2 * [WORKER]" in code


def test_several_workers_share_a_job_in_plan_script_code_and_walltime() -> None:
    spec = given(n_workers=5, workers_per_job=2, threads_per_worker=3, memory="12GiB", walltime="10h")
    assert (spec.n_workers, spec.threads_per_worker, spec.memory_limit) == (6, 3, 2 * 2**30)
    assert "3 jobs of 6 cores and 4 GiB, 2 workers each (6 in place of 5: jobs come whole)" in spec.why[0]
    script = spec.preview
    assert {"#SBATCH --cpus-per-task=6", "#SBATCH --mem=4G", "#SBATCH -t 10:00:00"} <= {*script.splitlines()}
    assert "--nthreads 3 --memory-limit 2.00GiB --nworkers 2" in script
    assert "--lifetime 35400s" in script
    assert "processes=2" in spec.code
    assert "cluster.scale(jobs=3)" in spec.code


def test_a_site_says_how_many_workers_share_a_job() -> None:
    site = {"processes": 4, "cores": 8, "memory": "24GiB"}
    with dask.config.set({f"jobqueue.slurm.{name}": value for name, value in site.items()}):
        spec = given()
    assert (spec.n_workers, spec.threads_per_worker, spec.memory_limit) == (4, 2, 6 * 2**30)


@pytest.mark.parametrize(
    ("walltime", "seconds"), [("30m", 1800), ("2h", 7200), ("1-12:00:00", 129600), ("0:45:30", 2730)]
)
def test_a_walltime_is_read_as_slurm_or_dask_write_it(walltime: str, seconds: int) -> None:
    assert given(walltime=walltime).options["walltime"] == seconds


@pytest.mark.parametrize("walltime", ["30", "10s", "soon"])
def test_a_walltime_without_a_unit_or_too_short_is_refused(walltime: str) -> None:
    with pytest.raises(BadInputError, match=f"walltime is '{walltime}'"):
        given(walltime=walltime)


def test_what_a_site_says_in_jobqueue_yaml_counts_where_nothing_is_chosen() -> None:
    site = {
        "queue": "long",
        "cores": 8,
        "memory": "24GiB",
        "walltime": "04:00:00",
        "job-script-prologue": ["module load x"],
    }
    with dask.config.set({f"jobqueue.slurm.{name}": value for name, value in site.items()}):
        spec = given(walltime="1h", prologue="module load y")
    assert (spec.threads_per_worker, spec.memory_limit) == (8, 24 * 2**30)
    assert spec.options == {"queue": "long", "walltime": 3600, "prologue": ["module load x", "module load y"]}


def test_a_scheduler_that_others_can_reach_without_keys_needs_consent() -> None:
    slurm_profile = profile("slurm")
    assert slurm_profile.consent(given()) is None
    assert "every user of this machine" in (slurm_profile.consent(given(encrypt=False, interface="lo")) or "")
    assert "no encryption" in (slurm_profile.consent(given(encrypt=False)) or "")


def test_without_slurm_or_dask_jobqueue_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert "There is no sbatch here" in (profile("slurm").unavailable(NODE) or "")
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sbatch")
    reason = profile("slurm").unavailable(Around(inventory(), version=lambda _: None))
    assert reason == "Needs dask-jobqueue: pip install 'dask-jobqueue>=0.9'."


def test_squeue_is_read_with_reasons_estimates_and_how_a_job_ended() -> None:
    lines = (
        "7|PENDING|1795379990|1795383389|Priority",
        "8|RUNNING|1795379990|1795380000|None",
        "9|TIMEOUT|1795379990|1795380000|TimeLimit",
    )
    never = "11|PENDING|1795379990|N/A|PartitionTimeLimit"
    assert "so it never starts: ask for less" in Slurm().jobs(never, "night")["11"].reason
    answer = "\n".join([*lines, "10|PENDING|1795379990|N/A|None"])
    assert Slurm().jobs(answer, "night") == {
        "7": Job(id="7", state="pending", reason="Priority", start=1795383389),
        "8": Job(id="8", state="running", waited=10),
        "9": Job(id="9", state="ended", reason="TIMEOUT"),
        "10": Job(id="10", state="pending"),
    }


def test_what_is_said_of_jobs_is_short() -> None:
    # Of a day that isn't today, whose time alone would stand there.
    at = time.mktime((2099, 11, 24, 14, 20, 0, 0, 0, -1))
    waits = [Job(id=str(n), state="pending", reason="Priority", start=at + n) for n in range(6)]
    assert queued(waits) == "6 pending: Priority, start estimated 2099-11-24 14:20"
    mixed = [*waits[:2], Job(id="7", state="pending", reason="Resources"), Job(id="8", state="ended", reason="TIMEOUT")]
    assert queued(mixed).startswith("3 pending: Priority (2), Resources (1), start estimated")
    assert queued(mixed).endswith("; 1 ended: TIMEOUT")
    assert queued(job for job in mixed) == queued(mixed)
    assert queued([Job(id="9", state="running")]) == ""


def test_plan_says_what_a_profile_of_jobs_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sbatch")
    with pytest.raises(BadInputError, match=r"the slurm profile takes no devices\. It takes: queue, n_workers"):
        plan("slurm", inventory(), devices="0")


@pytest.mark.parametrize(("profile", "choices"), [("slurm", {}), ("ssh", {"hosts": ["a"]})])
def test_memory_that_is_too_little_for_a_worker_elsewhere_is_refused(
    profile: str, choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sbatch")
    with pytest.raises(BadInputError, match=r"memory is 4 B, which is 4 B for each worker, and a worker needs 128 MiB"):
        plan(profile, inventory(), n_workers=1, memory="4", **choices)
