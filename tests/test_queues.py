"""The job scripts of queues that can't be had here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from workbench.clusters.profiles import Around, profile
from workbench.hardware import inventory

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
        "import signal, threading; from workbench.clusters.profiles import Around, profile;"
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
    assert "--nthreads 4 --memory-limit 16.00GiB --nanny --death-timeout 60 --lifetime 4860s" in script
    assert "/clusters/NAME/" in script
    compile(found.code(spec), "code", "exec")
