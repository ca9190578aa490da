"""A JupyterLab server of one's own: a temporary home, a copy of the chapters, a free port.

    with LabServer(folder) as lab:
        lab.write("try.ipynb", ["1 + 1"])
        lab.url("try.ipynb")

Nothing of the user's own settings is read and nothing of them is touched. Leaving the block stops
the kernels and the server.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

import matplotlib
import nbformat
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90
SETTINGS = {
    # The popup that asks whether to fetch news covers a corner of every picture.
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/apputils-extension/themes": {"theme": "JupyterLab Light"},
}


class LabServer:
    """JupyterLab with `folder` as home; its notebooks are in `root`."""

    def __init__(self, folder: Path):
        self.home = folder / "home"
        self.root = folder / "root"
        self.runtime = folder / "runtime"
        self.log = folder / "server.log"
        self.token = secrets.token_hex(16)
        for path in (self.home, self.root, self.runtime):
            path.mkdir(parents=True)
        # Chapters show pictures by ../img.
        for part in ("chapters", "img"):
            shutil.copytree(ROOT / part, self.root / part)
        for name, setting in SETTINGS.items():
            path = self.home / "settings" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(setting), encoding="utf-8")

    def __enter__(self) -> LabServer:
        options = [
            "--no-browser",
            "--ip=127.0.0.1",
            "--port=0",
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.root_dir={self.root}",
            "--LabApp.expose_app_in_browser=True",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--allow-root")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options],
                cwd=self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _environment(self) -> dict[str, str]:
        # MPLBACKEND, which tests set, would keep pictures out of the notebooks.
        foreign = ("JUPYTER", "IPYTHON", "MPLBACKEND")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {
            "HOME": self.home,
            "USERPROFILE": self.home,
            "JUPYTER_CONFIG_DIR": self.home / "config",
            "JUPYTER_DATA_DIR": self.home / "data",
            "JUPYTER_RUNTIME_DIR": self.runtime,
            "JUPYTERLAB_SETTINGS_DIR": self.home / "settings",
            "JUPYTERLAB_WORKSPACES_DIR": self.home / "workspaces",
            "IPYTHONDIR": self.home / "ipython",
            # Its list of fonts takes seconds to make, once.
            "MPLCONFIGDIR": matplotlib.get_cachedir(),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        return {**kept, **{name: str(value) for name, value in own.items()}}

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            for file in self.runtime.glob("jpserver-*.json"):
                try:
                    self.base = json.loads(file.read_text(encoding="utf-8"))["url"]
                    self.api("status")
                    return
                except (OSError, ValueError):
                    pass  # half written, or not listening yet
            time.sleep(0.2)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(encoding='utf-8')}")

    def api(self, path: str, method: str = "GET"):
        """What the server's REST interface answers."""
        request = urllib.request.Request(
            f"{self.base}api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def stop_kernels(self) -> None:
        for session in self.api("sessions"):
            self.api(f"sessions/{session['id']}", "DELETE")

    def stop(self) -> None:
        """Stop the kernels, then the server; kill what does not listen."""
        if self.process.poll() is None:
            try:
                self.stop_kernels()
                self.api("shutdown", "POST")
            except (AttributeError, OSError):
                self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def write(self, name: str, cells: list[str]) -> str:
        """Store a notebook of these code cells; its path below the root."""
        metadata = {"kernelspec": {"display_name": "", "language": "python", "name": "python3"}}
        notebook = new_notebook(cells=[new_code_cell(c.strip()) for c in cells], metadata=metadata)
        nbformat.write(notebook, self.root / name)
        return name

    def read(self, name: str) -> nbformat.NotebookNode:
        return nbformat.read(self.root / name, as_version=4)

    def url(self, path: str = "", workspace: str = "test") -> str:
        """The address at which JupyterLab opens a file; each workspace remembers its own tabs."""
        tree = f"/tree/{quote(path)}" if path else ""
        return f"{self.base}lab/workspaces/{workspace}{tree}?token={self.token}"
