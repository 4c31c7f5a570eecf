"""Two machines that one reaches by SSH: a private sshd on 127.0.0.2 and 127.0.0.3, with keys and files of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import asyncssh
import psutil
import pytest

from workbench.clusters.lines import option_of

_UNPACKED = Path(sys.prefix) / "sshd"
_HOSTS = ("127.0.0.2", "127.0.0.3")


class Hosts(NamedTuple):
    """Hosts for tests, as choices of the profile."""

    port: int
    key: str
    known_hosts: str
    folder: Path
    pid: int

    @property
    def name(self) -> str:
        """By which the machines call themselves."""
        return "node" if os.getuid() == 0 else socket.gethostname()

    def choices(self, **others: object) -> dict[str, object]:
        given = {"hosts": ",".join(_HOSTS), "port": self.port, "key": self.key, "known_hosts": self.known_hosts}
        return {**given, **others}

    def flags(self, **others: object) -> list[str]:
        return [part for name, value in self.choices(**others).items() for part in (option_of(name), str(value))]


def _sshd() -> tuple[str, dict[str, str]]:
    """Path of sshd and what it needs in its environment; skips where there is none."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    unpacked = _UNPACKED / "usr" / "sbin" / "sshd"
    if found is None and not unpacked.exists():
        pytest.skip("There is no sshd: `make test` unpacks Debian's into .venv/sshd, without installing it.")
    libraries = ":".join(str(each) for each in (_UNPACKED / "usr" / "lib").glob("*-linux-gnu"))
    return found or str(unpacked), {} if found else {"LD_LIBRARY_PATH": libraries}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Hosts]:
    """Run the server until the block ends."""
    sshd, environment = _sshd()
    for name in ("host", "client", "stranger"):
        made = asyncssh.generate_private_key("ssh-ed25519")
        made.write_private_key(folder / name)
        made.write_public_key(folder / f"{name}.pub")
        (folder / name).chmod(0o600)
    (folder / "authorized").write_text((folder / "client.pub").read_text())
    with socket.create_server((_HOSTS[0], 0)) as free:
        port = free.getsockname()[1]
    public = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"[{host}]:{port} {public}" for host in _HOSTS))
    lines = [
        f"Port {port}",
        *(f"ListenAddress {host}" for host in _HOSTS),
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/authorized",
        f"PidFile {folder}/pid",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "StrictModes no",
    ]
    (folder / "config").write_text("\n".join(lines) + "\n")
    command = [sshd, "-D", "-e", "-f", str(folder / "config")]
    if os.getuid() == 0:
        # What sshd wants of a machine when root runs it, without touching the machine.
        passwd = folder / "passwd"
        passwd.write_text(
            Path("/etc/passwd").read_text(encoding="utf-8") + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        prepare = f"mount --bind {passwd} /etc/passwd && mount -t tmpfs run /run && mkdir /run/sshd && hostname node"
        # A folder of this machine that isn't there, as where no disk is shared.
        (folder / "here").mkdir()
        prepare += f" && mount -t tmpfs here {folder}/here"
        # With a name and processes of its own, it is another machine for all who ask.
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
        command = [*apart, "sh", "-c", f'{prepare} && exec "$@"', "sh", *command]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
    try:
        _until_it_listens((_HOSTS[-1], port), process, folder)
        pid = next((each.pid for each in psutil.Process(process.pid).children()), process.pid)
        yield Hosts(port, str(folder / "client"), str(folder / "known_hosts"), folder, pid)
    finally:
        # The first of its processes, with which all of them end.
        for each in psutil.Process(process.pid).children() or [process]:
            each.terminate()
        process.wait(10)


def _until_it_listens(place: tuple[str, int], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(place, 1).close()
            return
        time.sleep(0.02)
    pytest.skip(f"sshd can't be run here by {getpass.getuser()}: {(folder / 'log').read_text()[-300:]}")


class Linked(NamedTuple):
    """One more machine, at the other end of a link that can be cut."""

    address: str
    ours: str
    pid: int
    link: str

    def cut(self) -> None:
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("link", "set", self.link, "up")


@contextlib.contextmanager
def linked(hosts: Hosts) -> Iterator[Linked]:
    """Run a server in its own network, with the same keys and port; skip the test if that is impossible."""
    link, ours, theirs = f"wb{os.getpid()}", "198.18.77.1", "198.18.77.2"
    sshd, environment = _sshd()
    if os.getuid() != 0 or not shutil.which("ip") or _ip("link", "add", link, "type", "veth", check=False):
        pytest.skip("Networks can't be made here: that needs root, and the program ip.")
    _ip("link", "del", link)
    config = (hosts.folder / "config").read_text().replace(_HOSTS[0], theirs)
    config = config.replace(f"ListenAddress {_HOSTS[1]}\n", "").replace("/pid\n", "/pid-linked\n")
    (hosts.folder / "linked").write_text(config)
    with Path(hosts.known_hosts).open("a", encoding="utf-8") as known:
        known.write(f"[{theirs}]:{hosts.port} {(hosts.folder / 'host.pub').read_text()}")
    wait = f"until ip address show | grep -q {theirs}; do sleep 0.05; done"
    prepare = f"mount --bind {hosts.folder}/passwd /etc/passwd && mount -t tmpfs run /run && mkdir /run/sshd && {wait}"
    command = ["unshare", "--mount", "--net", "sh", "-c", f'{prepare} && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*command, sshd, "-D", "-f", str(hosts.folder / "linked")], env={**os.environ, **environment}
    )
    try:
        there = f"/proc/{process.pid}/ns/net"
        while Path(there).readlink() == Path("/proc/self/ns/net").readlink():
            time.sleep(0.01)
        _ip("link", "add", link, "type", "veth", "peer", "name", "far", "netns", str(process.pid))
        _ip("address", "add", f"{ours}/30", "dev", link)
        _ip("link", "set", link, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{theirs}/30", "dev", "far"),
            ("link", "set", "far", "up"),
        ):
            subprocess.run(["nsenter", f"--net={there}", "ip", *words], check=True)
        _until_it_listens((theirs, hosts.port), process, hosts.folder)
        yield Linked(theirs, ours, process.pid, link)
    finally:
        process.terminate()
        process.wait(10)
        _ip("link", "del", link, check=False)


def _ip(*words: str, check: bool = True) -> int:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode
