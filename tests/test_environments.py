"""Environments that a cluster can run in, probed for real: a virtual environment without packages, and things that
are no Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.clusters.environments import check_environment, environments, own_versions
from workbench.errors import BadInputError, MissingError

HERE = own_versions()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a virtual environment without packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture
def furnished(bare: Path, tmp_path: Path) -> Path:
    """Copy of it with the metadata of every package that is needed, in the versions that are here."""
    folder = tmp_path / "furnished"
    shutil.copytree(bare, folder, symlinks=True)
    for package, version in HERE.items():
        if package != "python":
            install(folder, package, version.partition("+")[0])
    (packages_of(folder) / "workbench").symlink_to(Path(workbench.__file__).parent)
    return folder


def packages_of(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))


def install(folder: Path, package: str, version: str | None) -> None:
    """Write the metadata of a package, which is all that the probe may look at; None removes it."""
    for old in packages_of(folder).glob(f"{package.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(old)
    if version is not None:
        info = packages_of(folder) / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def python_of(folder: Path) -> str:
    return str(folder / "bin" / "python")


def script(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def kernel(python: str, title: str = "A kernel", language: str = "python") -> Mapping[str, Any]:
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return {"resource_dir": "", "spec": {"argv": argv, "display_name": title, "language": language}}


def test_this_interpreter_is_the_first_and_has_no_problems() -> None:
    first = environments({})[0]
    assert (first.python, first.name, first.problems) == (sys.executable, "current", ())
    assert first.versions == HERE
    assert {"python", "dask", "distributed", "dask-workbench", "numpy"} <= set(HERE)


def test_the_installed_kernelspecs_are_read_where_none_are_given() -> None:
    assert environments()[0].python == sys.executable


def test_an_environment_without_packages_is_listed_with_what_it_lacks(bare: Path) -> None:
    _, other = environments({"bare": kernel(python_of(bare), "Bare")})
    assert (other.python, other.name, other.title) == (python_of(bare), "bare", "Bare")
    assert other.versions == {"python": HERE["python"]}
    (problem,) = other.problems
    lacking = "dask, distributed, dask-workbench, numpy, cloudpickle, msgpack and cryptography"
    assert f": no {lacking} in {python_of(bare)}. Run: " in problem
    assert f"{python_of(bare)} -m pip install dask=={HERE['dask']} distributed=={HERE['distributed']}" in problem


def test_starting_in_an_environment_without_packages_is_refused_with_the_remedy(bare: Path) -> None:
    with pytest.raises(MissingError, match=": no dask, distributed, dask-workbench") as refused:
        check_environment(python_of(bare))
    # By its folder: nobody owns its name on PyPI.
    assert str(refused.value).endswith(f" distributed=={HERE['distributed']} {Path(workbench.__file__).parents[1]}")


def test_another_revision_of_the_same_version_is_refused(furnished: Path) -> None:
    there = packages_of(furnished) / "workbench"
    there.unlink()
    shutil.copytree(Path(workbench.__file__).parent, there, ignore=shutil.ignore_patterns("labextension", "*.js"))
    assert check_environment(python_of(furnished)).versions == HERE
    with (there / "paths.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(MissingError, match=r": dask-workbench is \S+\+\w{8} in .*, and \S+\+\w{8} here\. Run: "):
        check_environment(python_of(furnished))


def test_an_environment_with_the_same_versions_is_accepted_under_its_own_path(furnished: Path) -> None:
    found = check_environment(python_of(furnished))
    assert (found.python, found.problems) == (python_of(furnished), ())
    assert found.versions == HERE
    assert os.path.realpath(found.python) != found.python


@pytest.mark.parametrize("package", ["distributed", "dask-workbench"])
def test_one_lacking_package_is_named_alone(furnished: Path, package: str) -> None:
    install(furnished, package, None)
    with pytest.raises(MissingError, match=rf": no {package} in \S+\. Run: "):
        check_environment(python_of(furnished))


def test_another_dask_is_refused_with_both_versions(furnished: Path) -> None:
    install(furnished, "dask", "2024.1.0")
    with pytest.raises(MissingError) as refused:
        check_environment(python_of(furnished))
    assert f": dask is 2024.1.0 in {python_of(furnished)}, and {HERE['dask']} here. Run: " in str(refused.value)
    assert f"dask=={HERE['dask']} distributed=={HERE['distributed']}" in str(refused.value)


def test_another_numpy_is_not_refused(furnished: Path) -> None:
    install(furnished, "numpy", "1.26.4")
    assert check_environment(python_of(furnished)).problems == ()


def test_another_python_is_not_refused(tmp_path: Path) -> None:
    answer = json.dumps({"prefix": str(tmp_path), "versions": HERE | {"python": "3.99.1"}})
    python = script(tmp_path / "python3.99", f"#!/bin/sh\n[ \"$1\" = -V ] && echo Python 3.99.1 || echo '{answer}'\n")
    assert check_environment(python).problems == ()


def test_what_a_python_prints_at_its_start_does_not_hide_its_answer(furnished: Path) -> None:
    (packages_of(furnished) / "sitecustomize.py").write_text("import sys\nif '-c' in sys.orig_argv: print('Welcome')\n")
    assert check_environment(python_of(furnished)).versions == HERE


def test_none_and_this_interpreter_are_the_current_environment() -> None:
    assert check_environment(None) == check_environment(sys.executable) == environments({})[0]


@pytest.mark.parametrize("given", ["/nowhere/bin/python", "no-such-python-9"])
def test_a_path_that_is_not_there_is_refused(given: str) -> None:
    with pytest.raises(BadInputError) as refused:
        check_environment(given)
    assert str(refused.value) == f"python is {given!r}, which isn't there. Give the path of a Python interpreter."


def test_the_folder_of_an_environment_is_answered_with_its_interpreter(bare: Path) -> None:
    with pytest.raises(BadInputError, match=f"a folder. Give its interpreter: {python_of(bare)}"):
        check_environment(str(bare))


def test_a_file_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(BadInputError, match="which can't be executed"):
        check_environment(tmp_path / "python")


def test_a_program_that_is_no_python_is_refused_and_given_no_code(tmp_path: Path) -> None:
    program = script(tmp_path / "shell", f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho shell 1.0\n')
    with pytest.raises(BadInputError, match="shell isn't a Python interpreter"):
        check_environment(program)
    assert (tmp_path / "calls").read_text() == "-V\n"


def test_a_python_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    program = script(tmp_path / "python", "#!/bin/sh\nexec sleep 30\n")
    with pytest.raises(BadInputError, match=r"python didn't answer within 200 ms"):
        check_environment(program, timeout=0.2)


def test_a_python_that_answers_nonsense_is_quoted(tmp_path: Path) -> None:
    program = script(tmp_path / "python", "#!/bin/sh\necho Python 3.12.0\necho no module named json\n")
    with pytest.raises(BadInputError, match=r"didn't report its versions\. It printed: no module named json"):
        check_environment(program)


def test_a_program_the_system_cannot_load_is_refused(tmp_path: Path) -> None:
    program = script(tmp_path / "python", "#!/nowhere/interpreter\n")
    with pytest.raises(BadInputError, match="can't be run"):
        check_environment(program)


def test_kernels_of_other_languages_are_left_out_and_broken_ones_are_listed_with_their_problem() -> None:
    found = environments({"ir": kernel("R", language="R"), "gone": kernel("/nowhere/bin/python", "Gone")})
    assert [environment.name for environment in found] == ["current", "gone"]
    assert found[1].problems == (
        "python is '/nowhere/bin/python', which isn't there. Give the path of a Python interpreter.",
    )


def test_an_environment_is_listed_once_however_many_kernels_lead_to_it(bare: Path) -> None:
    specs = {
        "a": kernel(python_of(bare)),
        "b": kernel(str(bare / "bin" / "python3")),
        "here": kernel(sys.executable),
        "named": kernel("python"),
    }
    assert [environment.name for environment in environments(specs)] == ["current", "a"]


def test_a_kernel_named_on_the_path_is_found_there(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python-of-the-lab").symlink_to(python_of(bare))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    _, other = environments({"lab": kernel("python-of-the-lab")})
    assert other.python == str(tmp_path / "python-of-the-lab")
    assert other.versions["python"] == HERE["python"]


def test_probing_imports_none_of_the_packages(furnished: Path) -> None:
    # The environment has only metadata, so that any import would fail, and this process must not load them either.
    code = (
        "import sys; from workbench.clusters.environments import check_environment\n"
        f"check_environment({python_of(furnished)!r})\n"
        "print([m for m in ('distributed', 'numpy', 'jupyter_client') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
