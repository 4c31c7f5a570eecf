"""How the protocols between workers compare."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import dask.array as da
from pydantic import Field

from workbench.workloads.fields import FloatType, Resolved, Seed, Shape, Sized, Words

if TYPE_CHECKING:
    from distributed import Client

Blocks = Annotated[
    str,
    Words(
        allowed="sizes of blocks with commas between them, such as '2MiB, 8MiB, 32MiB'",
        description="Sizes of the blocks that travel, with commas between them: small ones tell more of latency.",
        unit="bytes or elements",
        examples=("2MiB, 8MiB, 32MiB", "128MiB"),
    ),
]

Protocols = Annotated[
    str,
    Words(
        allowed="some of tcp, tls and ucx with commas between them",
        description="Which are compared: some of tcp, tls and ucx, with commas between them. One that can't be had "
        "here is left out, and the answer says why.",
        examples=("tcp, tls, ucx", "tcp, ucx"),
    ),
]

Repetitions = Annotated[
    int,
    Field(ge=1, le=100),
    Words(
        allowed="a whole number from 1 to 100",
        description="Rounds, in each of which every protocol has its turn with a fresh array. Four or more show how "
        "far times vary.",
    ),
]


def transposed_sum(
    client: Client, shape: tuple[int, int], block: tuple[int, int], dtype: str, seed: int
) -> tuple[float, float]:
    """Sum of a fresh random array and its transpose, and how many seconds it took once the array was there."""
    from dask.distributed import wait

    rs = da.random.RandomState(seed)
    with client.as_current():
        x = client.persist(rs.random(size=shape, chunks=tuple(block)).astype(dtype))
        wait(x)
        began = time.perf_counter()
        total = client.persist((x + x.T).sum())
        wait(total)
        seconds = time.perf_counter() - began
    # On a GPU it lies there until it is read.
    return float(client.compute(total.to_backend("numpy")).result()), seconds


def rounds(
    clients: Mapping[str, Client],
    shape: tuple[int, int],
    chunks: Sequence[Any],
    repetitions: int,
    dtype: str,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Measure each protocol and each size of blocks in turn, so that a machine that slows down slows them all."""
    for client in clients.values():
        # The first time pays for connections that the others find open.
        transposed_sum(client, shape, chunks[-1], dtype, seed)
    for repetition in range(1, repetitions + 1):
        for block in chunks:
            order = list(clients) if repetition % 2 else list(clients)[::-1]
            for protocol in order:
                value, seconds = transposed_sum(clients[protocol], shape, block, dtype, seed + repetition)
                yield {
                    "protocol": protocol,
                    "chunks": list(block),
                    "repetition": repetition,
                    "seconds": seconds,
                    "value": value,
                }


def protocol_sweep(
    shape: Annotated[Shape, Sized("square", "256MiB")],
    n_workers: Annotated[int, Resolved()],
    threads_per_worker: Annotated[int, Resolved()],
    chunks: Blocks = "2MiB, 8MiB, 32MiB",
    protocols: Protocols = "tcp, tls, ucx",
    repetitions: Repetitions = 5,
    dtype: FloatType = "float64",
    seed: Seed = 0,
) -> list[dict[str, Any]]:
    """Compare TCP, TLS and UCX between workers: which is faster here, and by how much.

    The sum of a random array and its transpose is computed over each protocol with blocks of several sizes. The
    protocols take turns, each time with an array that no worker has seen, and must all give the same sum. The workers
    are as many, and have as many threads, as those of the cluster on which it is run; clusters of its own are started
    for it, one for each protocol, and stopped at the end. After the post "Experiments in high performance networking
    with UCX and DGX" (2019).
    """
    from dask.distributed import Client, LocalCluster
    from distributed.security import Security

    with contextlib.ExitStack() as opened:
        clients = {}
        for protocol in protocols:
            cluster = LocalCluster(
                n_workers=n_workers,
                threads_per_worker=threads_per_worker,
                protocol=protocol,
                security=Security.temporary() if protocol == "tls" else None,
                dashboard_address="127.0.0.1:0",
            )
            clients[protocol] = opened.enter_context(Client(opened.enter_context(cluster)))
        return list(rounds(clients, shape, chunks, repetitions, dtype, seed))
