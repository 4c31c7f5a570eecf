"""Cell magics: `%%watch` shows the Dask work of a cell, and `%%workload` saves a cell as a workload."""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from workbench.errors import BadInputError, StorageError, WorkbenchError
from workbench.formats import duration
from workbench.monitor.feed import Feed
from workbench.panels.live import CellWatch

if TYPE_CHECKING:
    from workbench.monitor.events import Batch
    from workbench.runs.watching import Watching


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
        figure = CellWatch(name or "This cell")
        try:
            watching = _watching(self._client(arguments.client), name, cell, figure.take)
        except WorkbenchError as err:
            raise UsageError(str(err)) from None
        has_kernel = getattr(self.shell, "kernel", None) is not None
        with contextlib.ExitStack() as blocks:
            stop, message = _started(watching, figure, blocks)
            if has_kernel:
                display(figure)
            began, status = time.monotonic(), "Failed"
            try:
                value = _executed(self.shell, cell)
                status = "Done"
            except KeyboardInterrupt:
                status = "Cancelled"
                raise
            finally:
                took = duration(time.monotonic() - began)
                stop()
                figure.end(f"{status} in {took}. {message}")
                if not has_kernel:
                    print(figure.text())
        return value

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


def _watching(client: Any, name: str | None, cell: str, on_batch: Callable[[Batch], None]) -> Watching:
    from workbench.runs.watching import Watching, current_client

    if client is None and current_client() is None:
        raise BadInputError(
            "There is no Dask client, so this cell would compute in threads of the kernel, where nothing can be "
            "watched. Make one in a cell before: client = workbench.connect('calm-otter'), or distributed.Client()."
        )
    return Watching(client, name=name, source=cell.rstrip(), on_batch=on_batch)


def _started(watching: Watching, figure: CellWatch, blocks: contextlib.ExitStack) -> tuple[Callable[[], None], str]:
    """Start recording until the blocks end; return a function that stops it, and a message about the record."""
    try:
        blocks.enter_context(watching)
    except (BadInputError, StorageError) as err:
        # The cell is computed even if no record can be written.
        feed = blocks.enter_context(Feed(watching.client, figure.take, separate=True))
        return feed.close, f"This is not kept: {err}"
    return watching.stop, f"Kept as {watching.id}: workbench show {watching.id}"


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
