"""A real JupyterLab and a real browser.

pytest-jupyter's fixtures live in tests/server alone: two of them run for every test that sees them, and break
Playwright's synchronous interface.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, sync_playwright

import workbench
from tests.conftest import using_data_folder
from workbench import named_choices
from workbench.session import Session

T = TypeVar("T")

PACKAGE = Path(workbench.__file__).parent
LABEXTENSION = PACKAGE / "labextension"
SCREENSHOTS = Path(__file__).with_name("screenshots")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BASE_URL = "/user/t/"
TOKEN = "a-token-for-tests"
PATIENCE = 60.0


class Lab:
    """A `jupyter lab` of its own, with its own home and its own clusters; `notebooks` is the folder it shows."""

    def __init__(self, folder: Path, data_folder: Path) -> None:
        self.folder = folder
        self.data_folder = data_folder
        self._settings = folder / "config" / "settings"
        self._workspaces = folder / "config" / "workspaces"
        self.notebooks = folder / "notebooks"
        self.log = folder / "lab.log"
        self.token = TOKEN
        self.port = _free_port()
        self.root = f"http://127.0.0.1:{self.port}{BASE_URL}"
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("home", "config", "data", "runtime", "notebooks", "labextensions"):
            (folder / name).mkdir(exist_ok=True)
        # As an installation does it, for the case that the package isn't installed.
        enabled = folder / "config" / "jupyter_server_config.d"
        enabled.mkdir()
        shutil.copy(PACKAGE / "server" / "dask_workbench.json", enabled)
        if LABEXTENSION.exists():
            (folder / "labextensions" / "dask-workbench").symlink_to(LABEXTENSION, target_is_directory=True)

    @property
    def url(self) -> str:
        """Address to open in a browser, logged in."""
        return f"{self.root}lab?token={TOKEN}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        # Or JupyterLab asks whether it may fetch news.
        quiet = self._settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True, exist_ok=True)
        quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), env=self._environment(), cwd=self.notebooks, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def stop(self, sign: int = signal.SIGTERM) -> None:
        """End the server: SIGTERM lets it clean up, SIGKILL doesn't."""
        if self.process is None:
            return
        self.process.send_signal(sign)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def restart(self) -> None:
        """Kill the server without warning and start it again at the same address."""
        self.stop(signal.SIGKILL)
        self.start()

    def begin_anew(self) -> None:
        """End the server with its kernels and start another, which knows no settings and no open tabs."""
        self.stop()
        for folder in (self._settings, self._workspaces):
            shutil.rmtree(folder, ignore_errors=True)
        self.start()

    def get(self, path: str) -> Any:
        """Return the server's answer to a GET, as JSON."""
        request = urllib.request.Request(self.root + path, headers={"Authorization": f"token {TOKEN}"})
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.load(response)

    def _answers(self) -> bool:
        try:
            self.get("api/status")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={BASE_URL}",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={self.notebooks}",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.news_url=None",
            f"--LabApp.extra_labextensions_path={self.folder / 'labextensions'}",
        ]

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
        return os.environ | {
            "HOME": str(folder / "home"),
            "IPYTHONDIR": str(folder / "home" / "ipython"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(self._settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(self._workspaces),
            "DASK_WORKBENCH__DATA_FOLDER": str(self.data_folder),
            # Where the package isn't installed, kernels and hosts find it as this process does.
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Provide a JupyterLab for the tests of one file; its clusters are stopped at the end."""
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Run a JupyterLab with its files in `folder` and this process's environment."""
    if not (LABEXTENSION / "package.json").exists():
        pytest.fail("The Lab extension isn't built. Run: make install")
    with using_data_folder(folder / "workbench") as data_folder:
        running = Lab(folder, data_folder)
        # What is tested is what one sees every day; the tour of first steps has a test of its own.
        named_choices.end_tour()
        try:
            running.start()
            yield running
        finally:
            running.stop()
            Session().stop_all()


def chromium(playwright: Playwright) -> Browser:
    """Chromium or Chrome as it is installed."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail("These tests need Chromium or Chrome. Debian and Ubuntu: apt install chromium")
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    return playwright.chromium.launch(executable_path=found, args=options)


def show_lab(page: Page, url: str) -> None:
    """Open JupyterLab in a page, and wait until its layout is restored."""
    page.goto(url)
    page.wait_for_function("() => window.jupyterapp !== undefined", timeout=PATIENCE * 1000)
    page.evaluate("async () => { await window.jupyterapp.restored }")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. Of one file: Playwright's loop occupies the thread while it is there."""
    with sync_playwright() as playwright:
        started = chromium(playwright)
        yield started
        started.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Provide a browser's session of one file: it keeps Lab's scripts, which take three seconds of a core to load."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Yield an empty page in which nobody is logged in, and which remembers nothing of the test before.

    If the test fails, its last screenshot and its console are saved with the others.
    """
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: said.append(f"uncaught: {error}"))
    yield opened
    if getattr(request.node, "failed", False):
        _screenshot(opened, f"failed-{request.node.name}").with_suffix(".log").write_text("\n".join(said))
        # Or its second try finds the names of its clusters taken, kernels that have counted, and another theme.
        Session().stop_all()
        lab = request.node.funcargs.get("lab")
        if lab is not None:
            lab.begin_anew()
    with suppress(Error):  # an empty page, and one of a file, have no storage
        opened.evaluate("() => { localStorage.clear(); sessionStorage.clear() }")
    for each in context.pages:
        each.close()
    context.clear_cookies()


@pytest.fixture
def open_lab(lab: Lab, page: Page) -> Callable[[], Page]:
    """Return a function that opens or reopens JupyterLab in the page, and waits until its layout is restored.

    Without an open tab, Lab focuses its Launcher up to a second later, even while the user types elsewhere.
    """

    def opened() -> Page:
        show_lab(page, lab.url)
        page.wait_for_function(
            """() => [...window.jupyterapp.shell.widgets('main')].some(each => !each.id.startsWith('launcher'))
                || document.activeElement?.closest('.jp-Launcher')"""
        )
        return page

    return opened


@pytest.fixture
def nothing_left(lab: Lab) -> Iterator[None]:
    """Neither clusters nor open tabs of one test are there for the next."""
    yield
    for workspace in (lab.folder / "config" / "workspaces").glob("*"):
        workspace.unlink()
    Session().stop_all()


@pytest.fixture
def screenshot(page: Page) -> Callable[[str], Path]:
    """Return a function that saves a screenshot in tests/ui/screenshots, for a person to look at."""
    return lambda name: _screenshot(page, name)


def _screenshot(page: Page, name: str) -> Path:
    SCREENSHOTS.mkdir(exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path)
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Let the page know whether its test failed, and print the end of JupyterLab's log with the failure."""
    report = yield
    if report.when == "call":
        item.failed = report.failed  # type: ignore[attr-defined]
        lab = getattr(item, "funcargs", {}).get("lab")
        if report.failed and isinstance(lab, Lab):
            report.sections.append(("Log of JupyterLab", lab.log.read_text()[-3000:]))
    return report
