"""Questions to the process that owns a cluster, over a socket in the cluster's folder that only its person may open.

A line of JSON names a verb and its arguments. The owner says at once that it has read it, and answers when it is done.
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
"""Seconds for a question, and for the word that it was read."""
_READ = b"read\n"
_LONGEST = 2**22  # bytes: an environment may be as large as the system lets it

Verbs = Mapping[str, Callable[..., Awaitable[Any]]]
"""What an owner does when it is asked."""


async def ask(folder: Path, verb: str, *, on_read: Callable[[], None] = lambda: None, **arguments: Any) -> Any:
    """Return what the owner of the cluster in `folder` answers; `on_read` is called when it has begun to do it.

    Raises FailedError with its sentence where it could not do it, and OSError where nobody reads the question.
    """
    async with asyncio.timeout(_PATIENCE):
        with short(folder) as path:
            reader, writer = await asyncio.open_unix_connection(f"{path}/{_SOCKET}", limit=_LONGEST)
        writer.write(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
        said = await reader.readline()
    on_read()
    with contextlib.closing(writer):
        line = await reader.readline()
    if said != _READ or not line:
        raise ConnectionResetError("it ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise FailedError(answer["error"])
    return answer["answer"]


@contextlib.asynccontextmanager
async def answering(folder: Path, verbs: Verbs) -> AsyncIterator[None]:
    """Answer such questions until the block ends, as the owner of the cluster in `folder`."""
    from tornado.netutil import bind_unix_socket

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who asked may have gone.
        with contextlib.suppress(OSError, ValueError):
            question = json.loads(await asyncio.wait_for(reader.readline(), _PATIENCE))
            doing = asyncio.ensure_future(_answer(verbs, question["verb"], question["arguments"]))
            # Until it waits for something: what it promises is in the record before the asker goes on.
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
        logger.warning("It can't be asked for anything: a socket in %s is not possible (%s)", folder, err)
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
    except Exception as err:  # of whatever started the cluster; who asked is told
        logger.error("It could not %s", verb, exc_info=err)
        return {"error": f"It could not {verb}: {whole(str(err) or type(err).__name__).rstrip('.')}."}


@contextlib.contextmanager
def short(folder: Path) -> Iterator[str]:
    """A short path to the folder: a socket's may have a hundred characters only."""
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
