"""Definitions of a cloned folder are used only after the user has trusted its content."""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import py_compile
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.views import html_of
from workbench import config, named_choices, trust
from workbench.cli import main
from workbench.clusters.budget import refusal
from workbench.clusters.profiles.saved_profiles import saved
from workbench.errors import ConflictError, UntrustedError
from workbench.hardware import inventory
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service


class Hostile:
    """A cloned project, and what it got to do."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.ran = folder.parent / "ran"
        self.received: list[str] = []
        program = folder / "python.sh"
        program.write_text(f'#!/bin/sh\necho program >>{self.ran}\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        (folder / "workloads").mkdir()
        (folder / "workloads" / "evil.py").write_text(
            f"open({str(self.ran)!r}, 'a').write('import\\n')\n"
            "import beside\n\n\ndef steal(n=1):\n    return beside.two * n\n"
        )
        (folder / "workloads" / "beside.py").write_text("two = 2\n")
        (folder / "workbench.yaml").write_text(
            f"""
workbench:
  profiles:
    evil: {{profile: cpu, python: {program}}}
    gate: {{profile: gateway, address: "http://127.0.0.1:{port}", auth: jupyterhub}}
  presets:
    svd_of_file:
      loot: {{path: "http://127.0.0.1:{port}/a.npy", token_variable: A_SECRET, k: 1}}
"""
        )

    @property
    def done(self) -> list[str]:
        """Programs that it ran, and requests that it received."""
        return [*(self.ran.read_text().split() if self.ran.exists() else ()), *self.received]


@pytest.fixture
def hostile(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Hostile]:
    """Provide a hostile project as the working folder, with a server to which it wants secrets sent."""

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.received.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    folder = tmp_path / getattr(request, "param", "clone")
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("A_SECRET", "s3cr3t")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "s3cr3t")
    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        made = Hostile(folder, server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


def _look_at_everything() -> str:
    """Return what the views of a page show, that has chosen everything that the folder defines."""
    shown = html_of("trust")
    for profile in ("evil", "gate"):
        chosen = {"profile": profile, "workload": "steal", "compare.on": profile}
        for view in ("start", "plan-form", "work", "compare"):
            shown += html_of(view, chosen)
    return shown + html_of("work", {"workload": "svd_of_file", "run.svd_of_file.preset": "loot"})


def test_opening_a_cloned_project_imports_sends_and_runs_nothing(
    hostile: Hostile, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _look_at_everything()
    assert (
        "This folder defines 2 workload files (beside.py, evil.py), 2 profiles (evil, gate) and 1 preset "
        "(svd_of_file.loot). Trust it?" in shown
    )
    for words in (["workloads"], ["hardware"], ["workloads", "svd_of_file"]):
        assert main(words) == 0
    assert "evil.py:Youhaven'ttrustedthisfolderyet." in "".join(capsys.readouterr().out.split())
    for words in (
        ["run", "steal", "--on", "cpu"],
        ["workloads", "steal"],
        ["up", "evil"],
        ["up", "gate"],
        ["run", "array_sum", "--on", "evil", "-p", "size=1MiB"],
        ["run", "svd_of_file", "--on", "cpu", "--preset", "loot"],
        ["compare", "steal", "--on", "cpu", "--on", "evil"],
        ["forecast", "steal", "--on", "cpu"],
    ):
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("trust it: workbench trust")
    assert hostile.done == []


def test_what_was_trusted_is_used_until_a_byte_of_it_changes(hostile: Hostile) -> None:
    session = Session()
    waiting = session.untrusted()
    assert waiting is not None
    with pytest.raises(ConflictError, match="was changed since you saw it"):
        session.trust("another")
    session.trust(waiting.sha)
    assert session.untrusted() is None
    assert session.workload("steal").origin == "evil.py here"
    assert session.workload("svd_of_file").preset("loot").parameters["token_variable"] == "A_SECRET"
    refusal(session.plan("evil"), inventory(), ())
    assert {"import", "program"} <= set(hostile.done)
    for name in ("workbench.yaml", "workloads/beside.py", "workloads/evil.py", "python.sh"):
        path = hostile.folder / name
        about = path.stat()
        before = path.read_bytes()
        # As an update may that keeps size and time.
        path.write_bytes(before.replace(b"2", b"3").replace(b"k: 1", b"k: 4"))
        if path.read_bytes() == before:
            path.write_bytes(before.replace(b"n=1", b"n=4").replace(b"echo program", b"echo Program"))
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        with pytest.raises(UntrustedError):
            session.workload("steal")
        with pytest.raises(UntrustedError):
            session.plan("evil")
        path.write_bytes(before)
        assert session.workload("steal")
    (hostile.folder / "workloads" / "more.py").write_text("")
    assert session.untrusted() is not None


# The author of the project chose its name.
@pytest.mark.parametrize("hostile", ["clone", "site-packages"], indirect=True)
def test_bytecode_beside_a_trusted_workload_is_not_run(hostile: Hostile, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(f"open({str(hostile.ran)!r}, 'a').write('bytecode\\n')\ntwo = 2\n")
    for name in ("beside", "evil"):
        cached = hostile.folder / "workloads" / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(other), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    session = Session()
    session.trust(session.untrusted().sha)  # type: ignore[union-attr]
    assert session.workload("steal")
    assert hostile.done == ["import"]


def test_what_is_changed_between_the_look_and_the_import_does_not_run(hostile: Hostile) -> None:
    """As by somebody else who may write there; here the first file does it, so that it happens each time."""
    evil, beside = (hostile.folder / "workloads" / name for name in ("evil.py", "beside.py"))
    swap = f"open({str(hostile.ran)!r}, 'a').write('swapped')\ntwo = 2\n"
    evil.write_text(
        f"from pathlib import Path\nPath(__file__).with_name('beside.py').write_text({swap!r})\n"
        "import beside\n\n\ndef steal(n=1):\n    return beside.two * n\n"
    )
    waiting = named_choices.untrusted()
    assert waiting is not None
    named_choices.trust_folder(waiting.folder, waiting.sha)
    reasons = "".join(map(str, Session().broken_workloads()))
    assert "beside.py was changed since you trusted its folder" in reasons
    assert "swapped" in beside.read_text()
    assert hostile.done == []
    # Now the folder as a whole is another one, and a file of it that is named by its path isn't run either.
    code = "import sys; from workbench.workloads.importing import contents; print(contents(sys.argv[1]).error)"
    done = subprocess.run([sys.executable, "-c", code, str(evil)], capture_output=True, text=True, check=True)
    assert "was changed since you trusted it" in done.stdout


def test_a_profile_that_is_swapped_between_reading_and_the_look_at_trust_is_not_used(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read_file = hostile.folder / "workbench.yaml", trust.read_file
    harmless = "workbench: {profiles: {mine: {profile: cpu}}}\n"
    hostile_text = file.read_text()
    file.write_text(harmless)
    waiting = named_choices.untrusted()
    assert waiting is not None
    named_choices.trust_folder(waiting.folder, waiting.sha)
    assert "mine" in saved()
    file.write_text(hostile_text)

    def read_and_swap(path: Path, most: int) -> bytes | None:
        content = read_file(path, most)
        if path == file:
            file.write_text(harmless)
        return content

    monkeypatch.setattr(trust, "read_file", read_and_swap)
    assert "evil" not in saved()


def test_the_page_trusts_what_it_showed(hostile: Hostile) -> None:
    waiting = Session().untrusted()
    assert waiting is not None
    later = {"trust.later": waiting.sha}
    assert "Not trusted: 2" in html_of("trust", later)
    (hostile.folder / "workloads" / "beside.py").write_text("two = 3\n")
    # The answer was to another content.
    assert "Trust it?" in html_of("trust", later)
    with pytest.raises(ConflictError, match="was changed since you saw it"):
        _trust_on_the_page(waiting.sha)
    _trust_on_the_page(Session().untrusted().sha)  # type: ignore[union-attr]
    assert html_of("trust") == ""
    assert "Steal" in html_of("work")


def _trust_on_the_page(sha: str) -> None:
    async def ask() -> None:
        service = Service("/", logging.getLogger(__name__), make_session=Session)
        try:
            await perform(service, "trust", {"sha": sha})
        finally:
            await service.close()

    asyncio.run(ask())


@pytest.mark.parametrize(("typed", "code"), [("n\n", 2), ("y\n", 0)])
def test_a_command_at_a_terminal_asks_before_it_uses_a_workload_of_the_folder(
    hostile: Hostile, typed: str, code: int
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    command = [sys.executable, "-P", "-m", "workbench", "workloads", "steal", "--json"]
    asked = subprocess.run(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, timeout=100)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "Trust it? [y/N]" in said
    assert asked.returncode == code
    assert (code == 0) is (b'"title": "Steal"' in asked.stdout) is bool(hostile.done)


def test_trust_names_the_folder_and_needs_a_yes(hostile: Hostile, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust"]) == 2
    assert "was not trusted" in capsys.readouterr().err
    assert main(["trust", str(hostile.folder.parent / "none")]) == 2
    assert main(["trust", str(hostile.folder.parent)]) == 0
    assert "defines no workloads" in capsys.readouterr().out
    assert main(["trust", "--yes"]) == 0
    assert "Trusted until it changes" in capsys.readouterr().out
    assert Session().untrusted() is None
    assert (config.data_folder() / "trusted").stat().st_mode & 0o777 == 0o700


def test_trust_is_listed_and_withdrawn(hostile: Hostile, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == "No folder is trusted.\n"
    assert main(["trust", "--yes"]) == 0
    assert main(["workloads", "steal"]) == 0
    capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"{hostile.folder}: trusted\n"
    assert main(["trust", "--withdraw", str(hostile.folder)]) == 0
    assert f"{hostile.folder} is trusted no longer" in capsys.readouterr().out
    assert main(["workloads", "steal"]) == 2
    assert Session().untrusted() is not None
    assert main(["trust", "--withdraw"]) == 0
    assert "was not trusted" in capsys.readouterr().out
    # Also of one that is gone.
    assert main(["trust", "--yes"]) == 0
    hostile.folder.rename(hostile.folder.with_name("moved"))
    capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"{hostile.folder}: defines nothing now\n"
    assert main(["trust", "--withdraw", str(hostile.folder)]) == 0
    assert main(["trust", "--list"]) == 0
    assert "No folder is trusted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "is a FIFO"),
        ("[" * 60_000, "nested more than 16 levels"),
        ("workbench: {profiles: {a: " + "{x: " * 20 + "1" + "}" * 22, "nested more than 16 levels"),
        (
            "workbench:\n  presets:\n    a0: &a0 [x, x]\n"
            + "".join(f"    a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
            "more than",
        ),
        ("workbench: &a [*a]", "levels deep"),
        ("workbench: {profiles: {a: !!int ''}}", "can't be read"),
        ("#" * 2**17 + "\n", "larger than 128 kiB"),
    ],
    ids=["fifo", "deep", "deep profile", "references", "endless", "empty number", "large"],
)
def test_a_workbench_yaml_that_would_hang_or_overflow_is_one_sentence(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is None:
        os.mkfifo("workbench.yaml")
    else:
        Path("workbench.yaml").write_text(text, encoding="utf-8")
    assert sentence in str(saved()["workbench.yaml"].problem)
    assert named_choices.untrusted() is None


def test_a_fifo_among_the_workloads_holds_up_nobody(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("workloads").mkdir()
    os.mkfifo("workloads/pipe.py")
    waiting = named_choices.untrusted()
    assert waiting is not None
    Session().trust(waiting.sha)
    (pipe,) = Session().broken_workloads()
    assert "is a FIFO" in pipe.why
