"""What UCX says that it can do, by programs that stand in for `ucx_info`, and by the real one where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from workbench.hardware import UcxTransport, ucx_transports

DEVICES = """\
#
# Memory domain: mlx5_0
#     Component: ib
#
#      Transport: rc_mlx5
#         Device: mlx5_0:1
#           Type: network
#  System device: mlx5_0 (0)
#
#      capabilities:
#            bandwidth: 11794.23/ppn + 0.00 MB/sec
#       error handling: buffer (zcopy), remote access, peer failure, ep_check
#
# Memory domain: posix
#     Component: posix
#
#      Transport: posix
#         Device: memory
#           Type: intra-node
#       error handling: ep_check
#
# Connection manager: tcp
#      max_conn_priv: 2064 bytes
"""


def ucx_info(folder: Path, script: str) -> Path:
    program = folder / "bin" / "ucx_info"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def answering(folder: Path, devices: str) -> Path:
    (folder / "devices").write_text(devices)
    return ucx_info(folder, f'[ "$1" = -v ] && echo "# Library version: 1.21.0" || cat {folder}/devices')


def test_transports_are_read_with_device_kind_and_whether_they_tell_of_a_lost_peer(tmp_path: Path) -> None:
    found = ucx_transports(program=answering(tmp_path, DEVICES))
    assert found.transports == (
        UcxTransport(name="rc_mlx5", device="mlx5_0:1", kind="network"),
        UcxTransport(name="posix", device="memory", kind="intra-node"),
    )
    assert (found.version, found.infiniband, found.reason) == ("1.21.0", True, None)
    assert found.names() == ("rc_mlx5", "posix")


@pytest.mark.parametrize(
    ("name", "infiniband"),
    [("rc_verbs", True), ("ud_mlx5", True), ("dc_mlx5", True), ("tcp", False), ("cuda_ipc", False), ("rdmacm", False)],
)
def test_infiniband_is_rc_ud_or_dc(tmp_path: Path, name: str, infiniband: bool) -> None:
    devices = f"#      Transport: {name}\n#         Device: x\n"
    assert ucx_transports(program=answering(tmp_path, devices)).infiniband is infiniband


def test_a_program_that_fails_hangs_or_is_missing_gives_a_sentence(tmp_path: Path) -> None:
    failing = ucx_transports(program=ucx_info(tmp_path, "echo libucp.so.0: not found >&2; exit 127"))
    assert failing.transports == ()
    assert str(failing.reason).endswith("failed: libucp.so.0: not found.")
    hanging = ucx_transports(program=ucx_info(tmp_path, "exec sleep 30"), timeout=0.2)
    assert "no answer within 200 ms" in str(hanging.reason)
    missing = ucx_transports(program=tmp_path / "nothing")
    assert "can't be run (No such file or directory)" in str(missing.reason)


def test_a_program_that_lists_nothing_is_said_to(tmp_path: Path) -> None:
    assert str(ucx_transports(program=answering(tmp_path, "")).reason).endswith("lists no transport.")


@pytest.mark.parametrize("prefers", ["true", "1"])
def test_a_system_ucx_is_asked_where_dask_is_told_to_prefer_it(tmp_path: Path, prefers: str) -> None:
    system = answering(tmp_path, DEVICES)
    environ = {"PATH": f"{system.parent}:/usr/bin:/bin", "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY": prefers}
    assert ucx_transports(environ=environ).program == str(system)


@pytest.mark.skipif(find_spec("libucx") is None, reason="libucx isn't installed")
def test_the_ucx_of_the_wheel_offers_tcp_and_no_infiniband() -> None:
    found = ucx_transports()
    assert found.reason is None
    assert "tcp" in found.names()
    assert not found.infiniband
