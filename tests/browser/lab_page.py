"""A notebook in a real browser: open it, run it, look at it.

    page = LabPage(context.new_page(), lab, "my-test")
    page.open("chapters/01-hybridize.ipynb")
    page.run_all()
    page.wait_until_done()
    page.assert_clean()

Cells are counted from 0 and only code cells count. Finished means that no prompt shows `[*]`: what
the kernel calls its status says "idle" in the middle of a busy cell. Events of the page are
delivered only within calls of playwright, so waiting is `page.wait(...)`, never `time.sleep`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab_server import LabServer
from playwright.sync_api import Locator, Page

LOAD_SECONDS = 60
# In JavaScript: the code cells of the notebook in front.
CELLS = "jupyterapp.shell.currentWidget.content.widgets.filter(w => w.model.type === 'code')"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


class LabPage:
    """One tab of the browser, and all that it complained about and asked for."""

    def __init__(self, page: Page, lab: LabServer, name: str, pictures: Path):
        self.page, self.lab, self.name, self.pictures = page, lab, name, pictures
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._on_request(request.url))
        page.on("websocket", lambda socket: self._on_request(socket.url))

    def _on_console(self, message) -> None:
        if message.type == "error":
            place = message.location.get("url", "")
            self.complaints.append(f"console: {message.text} ({place})")

    def _on_request(self, url: str) -> None:
        """Notes what does not stay on this machine."""
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "file") and parts.hostname != "127.0.0.1":
            self.strangers.append(url)

    # --- opening and running ---

    def open(self, path: str, kernel: bool = True) -> None:
        """Show the notebook at `path`; without `kernel` none is started for it.

        A workspace opens the notebooks that it remembers with their kernels: so it is a new one.
        """
        workspace = self.name if kernel else f"{self.name}-without-a-kernel"
        self.page.goto(self.lab.url(path if kernel else "", workspace=workspace))
        self.page.wait_for_function("() => window.jupyterapp", timeout=LOAD_SECONDS * 1000)
        self.page.evaluate("() => jupyterapp.restored")
        if not kernel:
            none = {"shouldStart": False, "canStart": True, "autoStartDefault": False}
            arguments = {"path": path, "kernelPreference": none}
            self.page.evaluate(
                "args => jupyterapp.commands.execute('docmanager:open', args).then(() => 0)",
                arguments,
            )
        self.wait_for_notebook(kernel)

    def wait_for_notebook(self, kernel: bool = True) -> None:
        """Until the cells are there, and a kernel for them."""
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=LOAD_SECONDS * 1000)
        if kernel:
            self.page.wait_for_function(
                "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel",
                timeout=LOAD_SECONDS * 1000,
            )

    def save(self) -> None:
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save').then(() => 0)")
        saved = "() => !jupyterapp.shell.currentWidget.context.model.dirty"
        self.page.wait_for_function(saved)

    def reload(self) -> None:
        """Save the notebook and load the page again; its kernel lives on."""
        self.save()
        self.page.reload()
        self.page.wait_for_function("() => window.jupyterapp", timeout=LOAD_SECONDS * 1000)
        self.wait_for_notebook()

    def restart_kernel(self) -> None:
        """Restart the notebook's kernel."""
        kernel = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        self.page.evaluate(f"() => {kernel}.restart()")

    def wait_until_disabled(self, view: Locator) -> None:
        """Until a widget says that its kernel has restarted and can no longer be operated."""
        banner = view.locator("xpath=ancestor-or-self::*[contains(@class, 'd2l-widget')]").locator(
            ".d2l-restarted"
        )
        self.wait(banner.count, "the banner after the restart")
        assert banner.inner_text() == "The kernel has restarted: run the cell again."
        assert banner.count() == 1
        for control in view.locator("button, input, [tabindex]").all():
            assert control.evaluate("each => each.closest('[inert]') !== null")
            control.focus()
            assert control.evaluate("each => each !== document.activeElement")

    def run_all(self) -> None:
        """Run menu, "Run All Cells"; returns when they are queued."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        self.page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
        self.wait(lambda: any(p != "[ ]:" for p in self.prompts()), "the first cell to start")

    def run_cell(self, number: int) -> None:
        """Run one cell; returns when it is queued."""
        self.page.evaluate(
            f"number => {{ const cells = {CELLS};"
            " const notebook = jupyterapp.shell.currentWidget.content;"
            " notebook.activeCellIndex = notebook.widgets.indexOf(cells[number]);"
            " notebook.deselectAll();"
            " jupyterapp.commands.execute('notebook:run-cell'); }",
            number,
        )
        self.wait(lambda: self.prompts()[number] != "[ ]:", f"cell {number} to start")

    def prompts(self) -> list[str]:
        """What stands before each cell: `[ ]:`, `[*]:` while it is queued or runs, then `[3]:`."""
        return self.page.evaluate(
            f"() => {CELLS}.map(w => w.node.querySelector('.jp-InputPrompt')?.textContent"
            " || `[${w.model.executionCount ?? ' '}]:`)"
        )

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 30) -> Any:
        """Until `condition()` is true, and what it then is; an error names `what` was awaited."""
        until = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > until:
                raise AssertionError(f"waited {timeout_s} s in vain for {what}; {self.state()}")
            self.page.wait_for_timeout(100)
        return value

    def wait_until_done(self, timeout_s: float = 120) -> None:
        """Until every cell has run."""
        finished = lambda: all(p.strip("[]:").isdigit() for p in self.prompts())  # noqa: E731
        self.wait(finished, "all cells to finish", timeout_s)

    def wait_until_done_with(self, number: int, timeout_s: float = 60) -> None:
        """Until one cell has run."""
        self.wait(
            lambda: self.prompts()[number].strip("[]:").isdigit(), f"cell {number}", timeout_s
        )

    def python(self, code: str) -> str:
        """What `code` prints in the notebook's kernel, after the cells that are queued."""
        run = """async code => {
            const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({ code, store_history: false });
            let text = '';
            future.onIOPub = message => {
                const content = message.content;
                if (message.header.msg_type === 'stream') text += content.text;
                if (message.header.msg_type === 'error') text += content.traceback.join('\\n');
            };
            await future.done;
            return text;
        }"""
        return self.page.evaluate(run, code)

    # --- looking ---

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook:visible .jp-CodeCell").nth(number)

    def output(self, number: int) -> Locator:
        """The output area of a cell."""
        return self.cell(number).locator(".jp-Cell-outputArea")

    def shown(self, number: int, css: str, timeout_s: float = 30) -> Locator:
        """The element in a cell's output, once it is there; AssertionError if the cell failed."""
        found = self.output(number).locator(css)
        self.wait(lambda: self.errors() or found.count(), f"{css} in cell {number}", timeout_s)
        assert not self.errors(), "\n".join(self.errors())
        return found.first

    def picture(self, name: str, what: Locator | None = None, themes=("light", "dark")) -> None:
        """Keep a screenshot of the window, or of one element, in each theme."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        for theme in themes:
            self.set_theme(theme)
            file = self.pictures / f"{self.name}-{name}-{theme}.png"
            if what is not None:
                what.scroll_into_view_if_needed()
                what.screenshot(path=file)
            else:
                self.page.screenshot(path=file)
        self.set_theme("light")

    def set_theme(self, theme: str) -> None:
        flag = str(theme == "light").lower()
        if self.page.evaluate("() => document.body.dataset.jpThemeLight") == flag:
            return
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', { theme })",
            THEMES[theme],
        )
        self.page.wait_for_function("flag => document.body.dataset.jpThemeLight === flag", arg=flag)
        self.page.wait_for_timeout(300)
        # Until what is drawn by script was drawn again, on a busy machine too.
        self.page.evaluate("() => new Promise(r => requestIdleCallback(r, { timeout: 3000 }))")

    # --- judging ---

    def errors(self) -> list[str]:
        """The errors that cells gave as output."""
        return self.page.evaluate(
            f"() => {CELLS}.flatMap(w => w.model.sharedModel.getOutputs())"
            ".filter(o => o.output_type === 'error' || o.name === 'stderr')"
            ".map(o => o.output_type === 'error' ? `${o.ename}: ${o.evalue}` : `stderr: ${o.text}`)"
        )

    def assert_clean(self) -> None:
        """No cell failed, the browser's console has no error, and nothing left this machine."""
        for found in (self.errors(), self.complaints, self.strangers):
            assert not found, "\n".join(found)

    def state(self) -> str:
        """For messages: prompts, errors and complaints."""
        return f"prompts {self.prompts()}, errors {self.errors()}, console {self.complaints}"
