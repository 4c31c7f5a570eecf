"""What UCX can really do on this machine. It is asked by running a program, which takes half a second and more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import install
from workbench.formats import duration
from workbench.hardware.values import UcxTransport, UcxTransports

_INFINIBAND = ("rc", "ud", "dc")


def ucx_transports(
    *, program: Path | None = None, environ: Mapping[str, str] | None = None, timeout: float = 20
) -> UcxTransports:
    """Ask `ucx_info -d` which transports UCX offers here.

    Where no `program` is given, that is the one that belongs to the UCX which Dask loads: of the libucx wheel, or the
    system's with RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY. A broken driver can hold it for long, hence the `timeout`.
    """
    environ = os.environ if environ is None else environ
    program = program or _program(environ)
    if program is None:
        return _without(f"ucx_info wasn't found: {install('ucx')}, which brings UCX.")
    try:
        version = _run(program, "-v", environ, timeout)
        devices = _run(program, "-d", environ, timeout)
    except subprocess.TimeoutExpired:
        return _without(f"{program} gave no answer within {duration(timeout)}.", program)
    except subprocess.CalledProcessError as err:
        said = (err.stderr or "").strip().splitlines()
        return _without(f"{program} failed: {said[-1] if said else f'exit code {err.returncode}'}.", program)
    except OSError as err:
        return _without(f"{program} can't be run ({err.strerror}).", program)
    transports, found = tuple(parsed(devices)), re.search(r"version: (\S+)", version)
    return UcxTransports(
        version=found and found[1],
        program=str(program),
        transports=transports,
        infiniband=any(each.name.split("_")[0] in _INFINIBAND for each in transports),
        reason=None if transports else f"{program} lists no transport.",
    )


def parsed(output: str) -> Iterator[UcxTransport]:
    """Transports in what `ucx_info -d` prints."""
    for block in re.split(r"^#\s*Transport:", output, flags=re.MULTILINE)[1:]:
        name, *lines = block.splitlines()
        # What is told twice counts as it was told first.
        told = [[part.strip() for part in line.lstrip("#").split(":", 1)] for line in reversed(lines) if ":" in line]
        about = dict(told)
        yield UcxTransport(
            name=name.strip(),
            device=about.get("Device", ""),
            kind=about.get("Type"),
        )


def _program(environ: Mapping[str, str]) -> Path | None:
    on_path = shutil.which("ucx_info", path=environ.get("PATH", os.defpath))
    system = Path(on_path) if on_path else None
    if environ.get("RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "false").lower() != "false":
        return system or _in_wheel()
    return _in_wheel() or system


def _in_wheel() -> Path | None:
    spec = find_spec("libucx")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next((path for folder in folders if (path := Path(folder) / "bin" / "ucx_info").exists()), None)


def _run(program: Path, option: str, environ: Mapping[str, str], timeout: float) -> str:
    # The wheel's program doesn't know where its own libraries lie; for an installed one this changes nothing.
    libraries = ":".join(filter(None, (str(program.parent.parent / "lib"), environ.get("LD_LIBRARY_PATH"))))
    done = subprocess.run(
        [str(program), option],
        env={**environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=True,
    )
    return done.stdout


def _without(reason: str, program: Path | None = None) -> UcxTransports:
    return UcxTransports(
        version=None, program=str(program) if program else None, transports=(), infiniband=False, reason=reason
    )
