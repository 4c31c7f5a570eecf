"""Requests to the process that owns a cluster, over a private socket in the cluster's folder.

A line of JSON names a verb and its arguments. The owner confirms at once that it has read it, and answers when done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import FailedError, WorkbenchError, quoted, whole

logger = logging.getLogger("workbench.host")

_SOCKET = "owner.sock"
_PATIENCE = 5.0
"""Seconds for a request to be read and confirmed."""
_READ = b"read\n"
_LONGEST = 2**22  # bytes; an environment may be as large as the system allows

Verbs = Mapping[str, Callable[..., Awaitable[Any]]]
"""Actions of an owner, by verb."""


async def ask(folder: Path, verb: str, *, on_read: Callable[[], None] = lambda: None, **arguments: Any) -> Any:
    """Return the answer of the owner of the cluster in `folder`; call `on_read` when it has started the action.

    Raises FailedError with its message if the action failed, and OSError if no process reads the request.
    """
    async with asyncio.timeout(_PATIENCE):
        with short(folder) as path:
            reader, writer = await asyncio.open_unix_connection(f"{path}/{_SOCKET}", limit=_LONGEST)
        writer.write(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
        receipt = await reader.readline()
    on_read()
    with contextlib.closing(writer):
        line = await reader.readline()
    if receipt != _READ or not line:
        raise ConnectionResetError("it ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise FailedError(answer["error"])
    return answer["answer"]


@contextlib.asynccontextmanager
async def answering(folder: Path, verbs: Verbs) -> AsyncIterator[None]:
    """Answer such requests until the block ends, as the owner of the cluster in `folder`."""
    from tornado.netutil import bind_unix_socket

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may have disconnected.
        with contextlib.suppress(OSError, ValueError):
            question = json.loads(await asyncio.wait_for(reader.readline(), _PATIENCE))
            doing = asyncio.ensure_future(_answer(verbs, question["verb"], question["arguments"]))
            # Run it until it waits for something: its promises are in the record before the client continues.
            await asyncio.sleep(0)
            writer.write(_READ)
            answer = await doing
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    try:
        with short(folder) as path:
            listening = bind_unix_socket(f"{path}/{_SOCKET}", mode=0o600)
        server = await asyncio.start_unix_server(serve, sock=listening, limit=_LONGEST)
    except (OSError, ValueError) as err:
        logger.warning("The cluster can't receive requests: no socket can be made in %s (%s)", folder, err)
        yield
        return
    try:
        yield
    finally:
        server.close()


async def _answer(verbs: Verbs, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if verb not in verbs:
        return {"error": f"Nothing was done: its owner, of another version of dask-workbench, knows no {quoted(verb)}."}
    try:
        return {"answer": await verbs[verb](**arguments)}
    except WorkbenchError as err:
        return {"error": str(err)}
    except Exception as err:  # from any engine; the client gets the message
        logger.error("It could not %s", verb, exc_info=err)
        return {"error": f"It could not {verb}: {whole(str(err) or type(err).__name__).rstrip('.')}."}


@contextlib.contextmanager
def short(folder: Path) -> Iterator[str]:
    """Yield a short path to the folder: the path of a socket is limited to about a hundred characters."""
    if sys.platform != "linux":
        with tempfile.TemporaryDirectory() as path:
            (Path(path) / "to").symlink_to(folder)
            yield f"{path}/to"
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
