"""Cell magics: `%%watch` shows the Dask work of a cell, and `%%workload` saves a cell as a workload.

A kernel that computes a cell receives no messages of the page, so nothing here waits for one. Instead, a thread draws a
static picture repeatedly and replaces the previous one. The last picture is saved.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display
from markupsafe import Markup, escape

from workbench.errors import BadInputError, StorageError, WorkbenchError
from workbench.figures.picture import Picture
from workbench.formats import duration
from workbench.markup import tag
from workbench.monitor.feed import Feed

if TYPE_CHECKING:
    from workbench.monitor.events import Batch
    from workbench.runs.watching import Watching

_INTERVAL = 0.5  # seconds
_SHARE = 0.1
"""Largest share of the time that drawing may take: the cell computes in the same process."""


@magics_class
class WorkbenchMagics(Magics):  # type: ignore[misc,unused-ignore]
    """The cell magics %%watch and %%workload."""

    @magic_arguments()
    @argument("--name", help="What to call the run in the history.")
    @argument("--client", help="Variable that holds a Dask client; Dask's current one by default.")
    @cell_magic
    def watch(self, line: str, cell: str) -> Any:
        """Show progress, task stream, memory and GPUs of the Dask work that this cell starts, and keep them."""
        __tracebackhide__ = True
        arguments = parse_argstring(self.watch, line)
        name = None if arguments.name is None else arguments.name.strip("\"'")
        below = Below(self.shell)
        try:
            watching = _watching(self._client(arguments.client), name, cell, below)
        except WorkbenchError as err:
            raise UsageError(str(err)) from None
        with contextlib.ExitStack() as blocks:
            try:
                below.follow(blocks.enter_context(watching))
            except (BadInputError, StorageError) as err:
                # The cell is computed even if no record can be written.
                below.follow(blocks.enter_context(Feed(watching.client, below.receive, apart=True)), name, str(err))
            blocks.enter_context(below)
            return _executed(self.shell, cell)

    @magic_arguments()
    @argument("name", nargs="?", default="", help="Function that is the workload, if the cell defines several.")
    @cell_magic
    def workload(self, line: str, cell: str) -> Any:
        """Run this cell and save it as a workload, which works in this folder and imports modules from it."""
        __tracebackhide__ = True
        from workbench.workloads.cells import save

        try:
            name = save(cell, parse_argstring(self.workload, line).name)
        except WorkbenchError as err:
            raise UsageError(str(err)) from None
        print(f"Saved as the workload {name}. Run it from the sidebar, or with: workbench run {name}")
        return _executed(self.shell, cell)

    def _client(self, variable: str | None) -> Any:
        if variable is None:
            return None
        if variable not in self.shell.user_ns:
            raise UsageError(f"There is no variable {variable!r}. Give the name of one that holds a Dask client.")
        return self.shell.user_ns[variable]


def _watching(client: Any, name: str | None, cell: str, below: Below) -> Watching:
    from workbench.runs.watching import Watching, current_client

    if client is None and current_client() is None:
        raise BadInputError(
            "There is no Dask client, so this cell would compute in threads of the kernel, where nothing can be "
            "watched. Make one in a cell before: client = workbench.connect('calm-otter'), or distributed.Client()."
        )
    return Watching(client, name=name, source=cell.rstrip(), on_batch=below.receive)


class Below:
    """The picture below a cell, drawn in a thread while the cell runs."""

    def __init__(self, shell: Any) -> None:
        # In a terminal each new picture would be one more line.
        self._live = getattr(shell, "kernel", None) is not None
        self._picture = Picture()
        self._waiting: deque[Batch] = deque()
        self._ended = threading.Event()
        self._handle: Any = None
        self._began = 0.0

    def receive(self, batch: Batch) -> None:
        """Add a batch of events."""
        self._waiting.append(batch)

    def follow(self, what: Watching | Feed, name: str | None = None, problem: str = "") -> None:
        """Draw this in the `with` block: a run, or a feed that can't be saved as one because of a problem."""
        if isinstance(what, Feed):
            self._stop, self._name = what.close, name
            self._kept, self._kept_html = f"This is not kept: {problem}", escape(f"This is not kept: {problem}")
        else:
            self._stop, self._name = what.stop, what.name
            self._kept = f"Kept as {what.id}: workbench show {what.id}"
            self._kept_html = Markup("Kept as <code>{0}</code>: <code>workbench show {0}</code>").format(what.id)

    def __enter__(self) -> None:
        self._began = time.monotonic()
        if self._live:
            self._show(self._content("running"))
        # The output of the thread belongs to this cell, which the context identifies.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._follow,), name="watch-cell", daemon=True)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._ended.set()
        self._thread.join()
        self._stop()
        status = "done" if error is None else "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
        self._show(self._content(status, finished=True))

    def _follow(self) -> None:
        pause = _INTERVAL
        while self._live and not self._ended.wait(pause):
            began = time.thread_time()
            if self._waiting:
                self._show(self._content("running"))
            pause = max(_INTERVAL, (time.thread_time() - began) / _SHARE)

    def _content(self, status: str, *, finished: bool = False) -> dict[str, str]:
        self._picture.feed(self._waiting.popleft() for _ in range(len(self._waiting)))
        took = duration(time.monotonic() - self._began)
        name = self._name or "This cell"
        about = f": {status}{' in' if finished else ','} {took}. {self._picture.summary()}."
        said, head = f"{name}{about}", tag("p", tag("b", name), about)
        if not finished:
            # A new image would flicker.
            return {"text/html": tag("div", head, self._picture.svg()), "text/plain": said}
        foot = tag("p", tag("small", self._kept_html))
        return {
            "text/html": tag("div", head, self._picture.image(), self._picture.table(), foot),
            "text/plain": f"{said} {self._kept}",
        }

    def _show(self, content: dict[str, str]) -> None:
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=self._live or None)
        else:
            self._handle.update(content, raw=True)


def _executed(shell: Any, cell: str) -> Any:
    """Return the value of the cell's last expression, or None if it doesn't end with one."""
    __tracebackhide__ = True
    text = shell.transform_cell(cell)
    tree = shell.transform_ast(shell.compile.ast_parse(text))
    name = shell.compile.cache(text, shell.execution_count, raw_code=cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, name, "exec"), shell.user_ns)
    if last is None:
        return None
    value = eval(shell.compile(ast.Expression(last.value), name, "eval"), shell.user_ns)
    return None if text.rstrip().endswith(";") else value
