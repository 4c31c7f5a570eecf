import argparse
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.config
import pytest

from tests.conftest import using_data_folder
from tests.forks import Forks
from tests.waiting import until
from workbench.cli import main
from workbench.cli.answers import shown
from workbench.cli.clusters import new_lines
from workbench.clusters import records
from workbench.clusters.engine import Job
from workbench.clusters.plan import explained
from workbench.clusters.profiles import registered
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.runs import store
from workbench.runs.run import Run
from workbench.workloads.values import Check

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _in_a_data_folder(data_folder):
    """Each test has a data folder of its own."""


def workbench(*arguments, **options):
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)


def complaint(capsys, *arguments):
    """Exit code and the one line on stderr."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return code, err


def answer(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def a_kept_run(run_id="array_sum-aaaaaa", **changes):
    about = {"workload": "array_sum", "cluster": "calm-otter", "created": 1.0, "status": "done"}
    return store.create(Run(id=run_id, **about | changes))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frob"], "frob"),
        (["up"], "PROFILE"),
        (["up", "tpu"], "Unknown profile 'tpu'. Choose one of: cpu, gpu, gpus, ucx, address"),
        (["up", "gpu"], "gpu profile can't be had here"),
        (["up", "cpu", "--workers", "x"], "--workers is 'x'. Give a whole number of worker processes"),
        (["up", "cpu", "--workers", "0"], "--workers is '0'"),
        (["up", "cpu", "--workers", "-2"], "--workers is '-2'"),
        (["up", "--workers", "2", "cpu"], "Give the profile before its options"),
        (["up", "cpu", "--threads", "0"], "--threads is '0'"),
        (["up", "cpu", "--memory", "lots"], "memory is 'lots'"),
        (["up", "cpu", "--name", "../etc"], "../etc"),
        (["up", "cpu", "--frobnicate"], "--frobnicate"),
        (["scale", "nobody", "2"], "Unknown cluster 'nobody'"),
        (["scale", "nobody"], "Give a number of workers, --adapt MIN MAX, or --restart"),
        (["down"], "either names of clusters, or --all"),
        (["down", "nobody", "--all"], "either names of clusters, or --all"),
        (["down", "nobody"], "Unknown cluster 'nobody'"),
        (["logs", "nobody", "--follow"], "Unknown cluster 'nobody'"),
        (["logs", "nobody"], "Unknown cluster 'nobody'"),
        (["scale", "nobody", "--restart"], "Unknown cluster 'nobody'"),
        (["workloads", "frob"], "frob"),
        (["run", "array_sum"], "No cluster was given. Give --cluster NAME (none runs), or --on with a profile"),
        (["run", "array_sum", "--cluster", "a", "--on", "cpu"], "not allowed with"),
        (["run", "array_sum", "--cluster", "nobody"], "Unknown cluster 'nobody'"),
        (["run", "frob", "--on", "cpu"], "frob"),
        (["run", "array_sum", "--on", "tpu"], "Unknown profile 'tpu'"),
        (["run", "array_sum", "--on", "cpu --workers x"], "--workers is 'x'"),
        (["run", "array_sum", "--on", "cpu 'oops"], "can't be read (No closing quotation)"),
        (["run", "array_sum", "--on", ""], "Give one such as 'cpu --workers 2'"),
        (["run", "array_sum", "--on", "cpu", "-p", "size"], "-p: given 'size', allowed is KEY=VALUE"),
        (["run", "array_sum", "--on", "cpu", "-p", "sise=1GiB"], "sise"),
        (["run", "array_sum", "size=1GiB"], "Given 'size=1GiB' alone. A parameter is given as -p size=1GiB."),
        (["run", "array_sum", "--frobnicate"], "Unknown: --frobnicate. See: workbench run --help"),
        (["run", "array_sum", "--on", "cpu", "-p", "seed=1", "-p", " seed=2"], "-p: seed is given twice"),
        (["run", "array_sum", "--on", "cpu", "-p", "size=-5"], "size"),
        (["run", "array_sum", "--on", "cpu", "-p", "size=nan"], "size"),
        (["runs", "--limit", "0"], "limit"),
        (["run", "array_sum", "--on", "cpu --frob 1"], "cpu has no option --frob. It has: --workers, --threads"),
        (["up", "cpu", "--threads", "100000"], "from 1 to 1024"),
        (["up", "cpu", "--memory", "\udcff"], "'\\udcff' is not in UTF-8"),
        (["run", "svd_of_file", "--on", "cpu", "-p", "path=\udcff.npy"], "is not in UTF-8"),
        (["run", "genotype_pca", "--on", "cpu", "-p", f"path=/{'x' * 400}.bed"], "path of genotype_pca: "),
        (["import", ""], "There is no file"),
        (["import", "x" * 5000], "Give one that `workbench save` wrote"),
        (["runs", "--limit", "9" * 30], "limit"),
        (["runs", "--offset", "9" * 30], "offset"),
        (["runs", "--comparisons", "--limit", "-1"], "limit"),
        (["show", "last-comparison"], "There is no comparison yet"),
        (["save", "nothing", "x.md"], "There is no run 'nothing'"),
        (["workloads", "--save-preset", "mine"], "A preset is of one workload"),
        (["compare", "array_sum", "--sweep", "foo"], "--sweep: given 'foo', allowed is KEY=VALUE"),
        (["compare", "array_sum", "--save", "/nowhere/x.md"], "would lie in /nowhere, which is no folder"),
        (["forecast", "array_sum", "--measure", "--on", "cpu --workers 0"], "--workers is '0'"),
        (
            ["forecast", "array_sum", "--measure", "--on", "cpu --workers 1", "-p", "size=1MiB"],
            "can't be measured in part: it is small",
        ),
        (["runs", "--offset", "-1"], "offset"),
        (["runs", "--status", "paused"], "status: given 'paused'"),
        (["show", "nothing"], "There is no run 'nothing'"),
        (["show", "last"], "There is no run yet"),
        (["cancel", "nothing"], "There is no run 'nothing'"),
        (["show", "nothing", "--open"], "There is no run 'nothing'"),
    ],
    ids=lambda part: ascii(" ".join(part))[:80] if isinstance(part, list) else "",
)
def test_bad_input_is_one_line_with_exit_code_2_and_starts_nothing(capsys, data_folder, arguments, words):
    code, line = complaint(capsys, *arguments)
    assert code == 2
    assert words in line
    assert not list((data_folder / "clusters").glob("[!.]*"))
    assert not list((data_folder / "runs").glob("*"))


def test_a_time_out_that_is_none_starts_nothing(capsys, data_folder):
    with dask.config.set({"workbench.start-timeout": "soon"}):
        code, line = complaint(capsys, "up", "cpu", "--workers", "1")
    assert code == 2
    assert "The setting workbench.start-timeout is 'soon'. Give a duration" in line
    assert not list((data_folder / "clusters").glob("[!.]*"))


def test_a_process_says_bad_input_in_one_line_too():
    result = workbench("up", "cpu", "--workers", "many")
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_the_command_alone_shows_its_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "hardware" in out
    assert "run a workload on a cluster" in out


def test_hardware_as_json_has_exactly_the_promised_keys(capsys):
    told = answer(capsys, "hardware")
    assert list(told) == ["cpu", "memory", "gpus", "ucx", "profiles", "cuda", "network", "topology"]
    assert [profile["name"] for profile in told["profiles"]] == list(registered())
    for profile in told["profiles"]:
        assert {"name", "available", "reason"} <= set(profile)
        assert profile["available"] == (profile["reason"] is None)


def test_hardware_as_text_names_all_profiles(capsys):
    assert main(["hardware"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for profile in registered():
        assert any(line[:2] in ("✓ ", "✗ ") and profile in line.split() for line in lines)


def test_up_with_code_prints_code_that_compiles_and_starts_nothing(capsys, data_folder):
    assert main(["up", "cpu", "--workers", "3", "--memory", "3GiB", "--no-encrypt", "--code"]) == 0
    code = capsys.readouterr().out
    compile(code, "code", "exec")
    assert "n_workers=3" in code
    assert f"memory_limit={2**30}" in code
    assert 'protocol="tcp"' in code
    assert "workbench" not in code
    assert not list((data_folder / "clusters").glob("[!.]*"))


def test_without_clusters_and_runs_the_lists_are_empty(capsys):
    assert answer(capsys, "ls") == []
    assert answer(capsys, "runs") == []
    assert main(["ls"]) == 0
    assert "workbench up cpu" in capsys.readouterr().out


def test_lists_of_clusters_and_comparisons_are_read_without_writing(capsys, data_folder):
    assert [main(command) for command in (["ls"], ["runs", "--comparisons"])] == [0, 0]
    capsys.readouterr()
    assert complaint(capsys, "show", "nothing")[0] == 2
    assert list(data_folder.iterdir()) == []


def test_a_filter_that_fits_no_run_does_not_say_that_there_are_none(capsys):
    a_kept_run()
    assert [run["id"] for run in answer(capsys, "runs", "night")] == []
    assert main(["runs", "--workload", "transpose_sum"]) == 0
    assert capsys.readouterr().out == "No run fits. See all of them with: workbench runs\n"


def test_stopping_everything_when_nothing_runs_is_fine(capsys):
    assert answer(capsys, "down", "--all") == {"stopped": [], "detached": [], "dismissed": []}


def test_workloads_are_listed_with_schema_and_source(capsys):
    told = answer(capsys, "workloads")
    names = [workload["name"] for workload in told]
    assert {"array_sum", "transpose_sum", "tall_skinny_svd", "compressed_svd", "svd_of_file"} <= set(names)
    assert answer(capsys, "workloads", "array_sum") == told[names.index("array_sum")]


def test_a_workload_shows_its_parameters_with_defaults(capsys):
    assert main(["workloads", "array_sum"]) == 0
    out = capsys.readouterr().out
    assert "size" in out
    assert "2GiB" in out
    assert "da.random" not in out
    assert main(["workloads", "array_sum", "--source"]) == 0
    compile(capsys.readouterr().out, "source", "exec")


def test_runs_are_listed_and_shown_as_they_were_kept(capsys):
    run = a_kept_run(seconds=1.25, result={"value": 3.5}, check=Check(passed=True, what="closed form"))
    assert answer(capsys, "runs") == [run.model_dump(mode="json")]
    assert answer(capsys, "show", "last") == run.model_dump(mode="json")
    assert main(["show", run.id]) == 0
    out = capsys.readouterr().out
    assert "closed form" in out
    assert "3.5" in out


def test_a_run_keeps_the_code_that_starts_its_cluster(capsys):
    spec = explained(ClusterSpec(profile="cpu", n_workers=3, threads_per_worker=1, memory_limit=2**30))
    run = a_kept_run(spec=spec)
    assert main(["show", run.id, "--code"]) == 0
    out = capsys.readouterr().out
    compile(out, "code", "exec")
    assert "LocalCluster(\n        n_workers=3," in out
    assert answer(capsys, "show", run.id, "--code") == {"code": spec.code}
    assert "has no code that starts its cluster" in complaint(capsys, "show", a_kept_run("older-1").id, "--code")[1]


def test_runs_are_listed_a_page_at_a_time(capsys):
    for number in range(5):
        a_kept_run(f"array_sum-{number}", created=100.0 + number)
    assert [run["id"] for run in answer(capsys, "runs", "--limit", "2", "--offset", "2")] == [
        "array_sum-2",
        "array_sum-1",
    ]
    store.mark("array_sum-3", name="night")
    assert [run["id"] for run in answer(capsys, "runs", "night")] == ["array_sum-3"]
    assert answer(capsys, "runs", "--cluster", "nowhere") == []
    assert main(["runs", "--limit", "2"]) == 0
    assert "Runs 1 to 2 of 5. For older ones: --offset 2" in capsys.readouterr().out
    assert main(["runs", "--offset", "3"]) == 0
    assert "older" not in capsys.readouterr().out
    assert main(["runs", "--offset", "9"]) == 0
    assert "There are 5 runs" in capsys.readouterr().out


def test_the_log_of_a_run_is_shown(capsys):
    run = a_kept_run(status="failed")
    (store.folder(run.id) / "log.txt").write_text("Traceback: oh no\n")
    assert main(["show", run.id, "--log"]) == 0
    assert "oh no" in capsys.readouterr().out
    assert answer(capsys, "show", run.id, "--log") == {"log": "Traceback: oh no\n"}


def test_cancelling_a_run_that_has_ended_is_bad_input(capsys):
    run = a_kept_run()
    code, line = complaint(capsys, "cancel", run.id)
    assert code == 2
    assert "ended already" in line


def test_a_reader_that_has_enough_is_no_error():
    for number in range(30):
        a_kept_run(f"array_sum-{number:06}")
    shell = f"{shlex.quote(sys.executable)} -m workbench runs --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [shutil.which("bash"), "-c", shell], capture_output=True, text=True, timeout=30, env=environment
    )
    assert result.returncode in (0, 141)
    assert result.stderr == ""


def test_lab_passes_on_what_jupyter_lab_takes():
    result = workbench("lab", "--version")
    assert result.returncode == 0
    assert result.stdout.startswith("4.")


def test_importing_the_command_line_loads_neither_dask_arrays_nor_distributed():
    heavy = ("distributed", "dask.array", "rich", "bokeh")
    code = f"import sys, workbench.cli; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.stdout.strip() == "[]"


def test_listing_runs_loads_neither_dask_arrays_nor_distributed(data_folder):
    answers = {"arrays": {"u": {"shape": [2, 2], "dtype": "float64", "dims": ["a", "b"], "bytes": 32}}}
    run = Run(id="svd-1", workload="svd", cluster="otter", status="done", created=1.0, answers=answers)
    store.create(run)
    code = "import sys\nfrom workbench.cli import main\nmain(['runs']), main(['show', 'svd-1'])\n"
    code += "print([name for name in ('distributed', 'dask.array') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "Arrays kept with runs take" in " ".join(result.stdout.split()), result.stderr
    assert result.stdout.splitlines()[-1] == "[]"


# ---------------------------------------------------------------- real clusters


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """Provide a data folder with one running cluster for several tests."""
    with using_data_folder(tmp_path_factory.mktemp("shared")) as folder:
        up = workbench("up", "cpu", "--workers", "2", "--threads", "1", "--memory", "2GiB", "--name", "ab", "--json")
        yield folder, up


@pytest.fixture
def up(shared_folder):
    """Start a cluster, and return the output of `workbench up --json`."""
    folder, result = shared_folder
    with dask.config.set({"workbench.data-folder": str(folder)}):
        yield result


def test_up_returns_when_the_cluster_is_ready_and_prints_it(up):
    assert up.returncode == 0
    assert up.stderr == ""
    told = json.loads(up.stdout)
    promised = "name status profile scheduler_address n_workers threads_per_worker memory_limit protocol"
    assert list(told)[:8] == promised.split()
    assert told["name"] == "ab"
    assert told["status"] == "ready"
    assert told["profile"] == "cpu"
    assert told["scheduler_address"].startswith("tls://127.0.0.1:")
    assert (told["n_workers"], told["threads_per_worker"], told["memory_limit"]) == (2, 1, 2**30)
    assert told["protocol"] == "tls"


def test_a_cluster_is_listed_scaled_and_heard(up, capsys):
    assert [cluster["name"] for cluster in answer(capsys, "ls")] == ["ab"]
    assert answer(capsys, "scale", "ab", "1")["n_workers"] == 1
    assert answer(capsys, "scale", "ab", "--adapt", "1", "2")["adaptive"] == [1, 2]
    assert answer(capsys, "scale", "ab", "2")["n_workers"] == 2
    assert "host" in answer(capsys, "logs", "ab")["logs"]
    assert answer(capsys, "scale", "ab", "--restart")["status"] == "ready"


def test_logs_are_followed_until_the_cluster_ends(capsys):
    assert main(["up", "cpu", "--workers", "1", "--memory", "512MiB", "--name", "followed"]) == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "workbench", "logs", "followed", "--follow"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert main(["scale", "followed", "2"]) == 0
        assert main(["down", "followed", "followed"]) == 0
        rest = process.stdout.read()
    assert process.returncode == 0
    assert first.startswith("host: ")
    added = [line for line in rest.splitlines() if line.startswith("scheduler: ") and "Register worker" in line]
    assert len(added) == len(set(added)) >= 1


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        ([], ["a"], ["a"]),
        (["a"], ["a", "b"], ["b"]),
        (["a", "b"], ["b", "c"], ["c"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a"], ["b"], ["b"]),
        (["a", "b"], ["a", "b"], []),
    ],
)
def test_only_new_lines_of_a_log_are_printed_though_old_ones_are_dropped(before, now, added):
    assert new_lines(before, now) == added


def test_errors_are_json_for_programs(capsys):
    assert main(["run", "array_sum", "--on", "cpu", "-p", "size=lots", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith("size of array_sum is 'lots'")
    assert (error["exit_code"], error["parameter"]) == (2, "size")
    assert main(["frob", "--json"]) == 2
    assert "invalid choice: 'frob'" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_there_are_twenty_commands_and_the_help_of_each_fits_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    names = re.findall(r"^    ([a-z]+)\b", capsys.readouterr().out, flags=re.M)
    assert len(names) == 20
    for name in names:
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        lines = shown.splitlines()
        assert "--json" in shown, name
        assert len(lines) <= 60, name
        # argparse doesn't break the options of which one may be given.
        assert max(len(line) for line in lines if " | " not in line) <= 80, name


COMPLETED = {
    "workbench down --a": {"--all"},
    "workbench run compressed": {"compressed_svd"},
    "workbench up slurm --wall": {"--walltime"},
    "workbench up slurm --scheduler ": {"here", "job"},
    "workbench run tall_skinny_svd -p per": {"persist="},
    "workbench show array_sum-": {"array_sum-aaaaaa"},
}


def test_the_shell_completes_commands_options_and_names(tmp_path, data_folder):
    a_kept_run()
    found, ours = tmp_path / "found", os.environ | {"PYTHONPATH": str(ROOT)}
    with Forks("import workbench.cli", ours) as forks:
        for line, expected in COMPLETED.items():
            completing = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
            completing |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(found), "_ARGCOMPLETE_IFS": "\n"}
            forks.ask("from workbench.cli import main; main([])", ours | completing)
            assert {each.strip() for each in found.read_text().split("\n")} == expected, line


def test_a_name_in_use_is_refused(up, capsys):
    code, line = complaint(capsys, "up", "cpu", "--workers", "1", "--memory", "512MiB", "--name", "ab")
    assert code == 2
    assert "a cluster 'ab' already" in line


def test_a_run_prints_its_record_and_is_kept(up, capsys):
    told = answer(capsys, "run", "array_sum", "--cluster", "ab", "-p", "size=32MiB", "-p", "seed=3")
    promised = {"id", "workload", "parameters", "status", "seconds", "result", "check", "cluster", "versions"}
    assert promised <= set(told)
    assert told["status"] == "done"
    assert told["parameters"] == {"size": "32MiB", "seed": 3}
    assert isinstance(told["result"]["value"], float)
    assert told["check"]["passed"] is True
    assert told["cluster"] == "ab"
    assert answer(capsys, "show", told["id"]) == told
    assert answer(capsys, "runs", "--workload", "array_sum")[0] == told


def test_an_answer_that_fails_its_check_has_exit_code_1(up, capsys):
    svd = ["compressed_svd", "--cluster", "ab", "-p", "shape=2000,200", "-p", "method=dask", "-p", "n_power_iter=0"]
    assert main(["run", *svd, "-p", "tolerance=1e-9", "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["status"] == "done"
    assert told["check"]["passed"] is False
    assert "did not pass the check" in err


def test_a_run_that_fails_has_exit_code_1_and_a_sentence(up, capsys, tmp_path):
    import numpy as np

    path = tmp_path / "nan.npy"
    np.save(path, np.full((50, 5), np.nan))
    code = main(["run", "svd_of_file", "--cluster", "ab", "-p", f"path={path}", "--json"])
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert code == 1
    assert told["status"] == "failed" or not told["check"]["passed"]
    assert err.startswith(f"workbench: The run {told['id']} ")
    assert "Traceback" not in err


def test_a_run_on_a_cluster_of_its_own_is_forced_past_the_budget_and_leaves_no_cluster(capsys):
    run = ("run", "array_sum", "--on", "cpu --workers 1 --memory 100TiB --no-encrypt", "--yes", "-p", "size=1MiB")
    code, line = complaint(capsys, *run)
    assert code == 2
    assert line.rstrip().endswith("or force it.")
    told = answer(capsys, *run, "--force")
    assert (told["status"], told["check"]["passed"], told["spec"]["protocol"]) == ("done", True, "tcp")
    assert answer(capsys, "ls") == []


def test_interrupting_a_run_cancels_it_and_stops_the_cluster_of_its_own():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "workbench", "run", "array_sum", "--on", "cpu --workers 1 --memory 1GiB"]
    process = subprocess.Popen(
        [*command, "-p", "size=20GiB"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: any(run.progress.done for run in store.select()))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    (run,) = store.select()
    assert f"{run.id} is cancelled." in err
    assert f"The cluster {run.cluster}, which was started for this, is being stopped." in err
    assert run.status == "cancelled"
    assert records.read_all() == ()


def test_a_start_that_is_terminated_leaves_no_cluster():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "workbench", "up", "cpu", "--workers", "1", "--memory", "1GiB"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until(records.read_all)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "Traceback" not in err
    assert records.read_all() == ()


def test_a_report_is_written_and_its_path_printed(up, capsys):
    run = answer(capsys, "run", "array_sum", "--cluster", "ab", "-p", "size=16MiB")
    told = answer(capsys, "show", run["id"], "--report")
    assert Path(told["path"]).read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


COMMANDS = [
    ["--help"],
    ["up", "--help"],
    ["hardware"],
    ["ls"],
    ["workloads"],
    ["workloads", "array_sum"],
    ["runs"],
    ["show", "array_sum-aaaaaa"],
    ["runs", "--comparisons"],
    ["up", "cpu", "--code"],
    ["runs", "--json"],
]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_encoding_that_lacks_our_signs_breaks_no_command(monkeypatch, encoding):
    a_kept_run(notes=("… × ✓ 李",), error="… × ✓ 李", resolved={"name": "… ✓ 李"})
    for command in COMMANDS:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        assert main(command) == 0, command
        assert written.getvalue(), command


def test_output_that_nobody_reads_is_no_failure(monkeypatch, capfd):
    a_kept_run()
    for command in COMMANDS:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            assert main(command) == 0, command
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_where_there_is_no_terminal_a_line_now_and_then_tells_how_far_it_is(capsys, spec, as_json):
    record = ClusterRecord(name="calm-otter", spec=spec, stage="workers", n_workers_expected=2)
    with shown("stages", record, argparse.Namespace(json=as_json), every=0.05) as on_change:
        time.sleep(0.2)
        on_change(
            record.model_copy(update={"n_workers": 1, "jobs": (Job(id="7", state="pending", reason="Priority"),)})
        )
        time.sleep(0.2)
    out, err = capsys.readouterr()
    lines = (err if as_json else out).splitlines()
    assert (err == "", out == "") == (not as_json, as_json)
    assert lines[0] == "calm-otter: 0 of 2 workers"
    assert lines[-1] == "calm-otter: 1 of 2 workers; 1 pending: Priority"


def test_starting_and_running_need_not_be_waited_for_and_clusters_are_stopped_together(capsys):
    assert main(["up", "cpu", "--workers", "1", "--memory", "256MiB", "--name", "other", "--no-wait"]) == 0
    capsys.readouterr()
    begun = answer(capsys, "up", "cpu", "--workers", "1", "--memory", "512MiB", "--name", "calm-otter", "--no-wait")
    assert (begun["name"], begun["status"]) == ("calm-otter", "starting")
    until(lambda: records.read("calm-otter").status == "ready")
    assert main(["run", "array_sum", "--cluster", "calm-otter", "-p", "size=4MiB", "--no-wait"]) == 0
    run = store.select()[0]
    assert capsys.readouterr().out == f"{run.id} was started. See how far it is: workbench show {run.id}\n"
    until(lambda: store.get(run.id).status == "done")
    code, line = complaint(capsys, "run", "array_sum", "--on", "cpu", "--no-wait")
    assert code == 2
    assert "--no-wait: the cluster of --on is stopped when the run has ended" in line
    code, line = complaint(capsys, "down", "other", "nobody")
    assert (code, "Unknown cluster 'nobody'" in line) == (2, True)
    assert {each.name for each in records.read_all()} == {"calm-otter", "other"}
    stopped = answer(capsys, "down", "calm-otter", "other")
    assert stopped == {"stopped": ["calm-otter", "other"], "detached": [], "dismissed": []}
    assert records.read_all() == ()


def test_help_after_a_profile_lists_its_options_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "slurm", "--help"]) == 0
    shown = capsys.readouterr().out
    wanted = {"--workers N", "--walltime TEXT", "--scheduler here|job", "--no-encrypt"}
    assert wanted <= {line.split("  ")[1].strip() for line in shown.splitlines() if line.startswith("  --")}
    assert ("Default: here." in shown, "--devices" in shown, "--ucx-tls" in shown) == (True, False, False)
    assert main(["up", "--help"]) == 0
    assert "workbench up slurm --help" in " ".join(capsys.readouterr().out.split())
