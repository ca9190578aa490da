"""One JupyterLab and one browser for all tests, a fresh page for each.

Pictures go to build/screenshots, or to the folder that `D2LMINI_SCREENSHOTS` names.
"""

import os
from pathlib import Path

import pytest
from browsers import find
from lab_page import LabPage
from lab_server import ROOT, LabServer

FLAGS = """
--no-first-run --disable-background-networking --disable-component-update --disable-sync
--disable-dev-shm-usage --force-color-profile=srgb
""".split()
# Names other than this machine's do not resolve: what needs the network fails here, too.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab on a copy of the chapters."""
    with LabServer(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    """A headless browser of the Chromium family."""
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root, the usual user of a container.
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    flags = [*FLAGS, OFFLINE, *(["--no-sandbox"] if is_root else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def context(browser):
    """What pages share: the browser's cache, so that JupyterLab is read once."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    yield context
    context.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    return Path(os.environ.get("D2LMINI_SCREENSHOTS") or ROOT / "build" / "screenshots")


@pytest.fixture
def page(request, lab, context, pictures):
    """A page of the browser, named after the test; its kernels end with it."""
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]").replace("_", "-")
    page = LabPage(context.new_page(), lab, name, pictures)
    yield page
    if request.node.stash.get(_failed, False) and page.page.url != "about:blank":
        page.pictures.mkdir(parents=True, exist_ok=True)
        page.page.screenshot(path=page.pictures / f"FAILED-{name}.png")
    page.page.close()
    lab.stop_kernels()


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report
