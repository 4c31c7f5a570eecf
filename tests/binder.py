"""Check of Binder's image: `make binder` repeats repo2docker's steps in a clean folder as another user."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Error, Page, expect, sync_playwright

from tests.hub import OPEN
from tests.other_python import find
from tests.packages import checkout, step, variables
from tests.ui.conftest import _free_port, chromium, show_lab
from tests.waiting import until

_USER = "1000"
_MOST = 1.2e9
"""Bytes that the image may take beyond its system."""

# Those that repo2docker freezes for this Python. The extension has to work with them: pip replaces them only where the
# package takes no version so old.
_FROZEN = "jupyterlab==4.4.9 notebook==7.4.7 jupyterhub>=5"

_RUN_ALL = """
async () => {
    const {commands, shell} = window.jupyterapp
    await shell.currentWidget.sessionContext.ready
    await commands.execute('notebook:run-all-cells')
}
"""

# By JupyterLab's model, since cells outside the view are not in the page.
_CHECKED = """
() => {
    const {cells} = window.jupyterapp.shell.currentWidget.content.model.toJSON()
    const last = cells.filter(each => each.cell_type === 'code').at(-1)
    return JSON.stringify(last.outputs).includes('check passed:')
}
"""
_STEPS = """
mount --bind {folder}/home /home
cd /home/jovyan
exec setpriv --reuid {user} --regid {user} --clear-groups env HOME=/home/jovyan PATH=/home/env/bin:/usr/bin:/bin \\
  TMPDIR=/home/tmp bash -euc '
{python} -m venv /home/env
pip install --quiet --no-cache-dir {frozen}
touch /home/tmp/frozen
bash binder/postBuild
touch /home/tmp/built
exec jupyter lab --no-browser --port={port} --LabApp.expose_app_in_browser=True \\
  --IdentityProvider.token=binder'
"""


def main() -> None:
    """Build, measure, open the first notebook in a browser, and run it."""
    if os.getuid() != 0:
        sys.exit(
            "Another user is needed, and a clean folder for it: run this as root, in a container or a virtual machine."
        )
    # That of binder/runtime.txt where there is one.
    python = Path((sys.version_info[:2] != (3, 12) and find()) or sys.executable).resolve()
    with tempfile.TemporaryDirectory(prefix="binder-") as name:
        folder, port = Path(name), _free_port()
        folder.chmod(0o755)
        home = folder / "home"
        checkout(home / "jovyan")
        (home / "tmp").mkdir()
        for path in (home, *home.rglob("*")):
            os.chown(path, int(_USER), int(_USER))
        needed = str(python.parents[1])
        steps = (OPEN + _STEPS).format(
            folder=folder, user=_USER, python=python, frozen=_FROZEN, port=port, needed=f"'{needed}'"
        )
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", steps]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=variables(Path("/usr/bin"), home), stdout=log, stderr=log)
        try:
            watch(process, folder, port)
        except BaseException:
            print((folder / "log").read_text()[-4000:])
            raise
        finally:
            process.kill()
            process.wait()


def watch(process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    """Follow the steps, and do what a person does who follows the link."""

    def done(name: str) -> bool:
        time.sleep(0.5)
        assert process.poll() is None, "a step failed"
        return (folder / "home" / "tmp" / name).exists()

    with step("an environment like repo2docker's is made"):
        until(lambda: done("frozen"), 1800)
    with step("postBuild runs"):
        until(lambda: done("built"), 1800)
    sizes = {name: size(folder / "home" / name) for name in ("env", "jovyan", "tmp")}
    print({name: f"{each / 1e6:.0f} MB" for name, each in sizes.items()})
    with step("start.ipynb is open beside the sidebar, and Run All ends with its check"):
        run_all(port)
    assert sum(sizes.values()) <= _MOST, f"the image may have {_MOST / 1e9} GB"


def run_all(port: int) -> None:
    """Open the notebook that the link opens, run it, and take a picture."""
    shot = Path(__file__).parent / "ui" / "screenshots" / "binder.png"
    shot.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        address = f"http://127.0.0.1:{port}/lab/tree/notebooks/start.ipynb?token=binder"
        until(lambda: answers(page, address), 120)
        try:
            show_lab(page, address)
            expect(page.locator("#dask-workbench")).to_be_visible(timeout=60_000)
            expect(page.locator(".jp-NotebookPanel .jp-CodeCell").first).to_be_visible(timeout=60_000)
            page.evaluate(_RUN_ALL)
            page.wait_for_function(_CHECKED, timeout=180_000)
            figure = page.locator(".jp-NotebookPanel .bk-Figure").first
            expect(figure).to_be_visible(timeout=120_000)
            figure.scroll_into_view_if_needed()
        finally:
            page.screenshot(path=shot)
            print(f"A picture is in {shot}")
            browser.close()


def answers(page: Page, address: str) -> bool:
    """Return whether the server answers; it takes a while to start."""
    try:
        page.goto(address)
    except Error:
        time.sleep(1)
        return False
    return True


def size(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
