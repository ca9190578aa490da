"""`d2lmini lab [FOLDER]`: the chapters in JupyterLab.

The chapters are copied to FOLDER, which belongs to you, and opened there; nothing is downloaded,
and existing files are never overwritten. The copies have no outputs yet (`files.py`).

JupyterLab runs with its own safe defaults: for this machine only, behind a token.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from d2lmini.cli import files
from d2lmini.cli.files import CommandError

FIRST = "00-start-here.ipynb"
DEFAULT_FOLDER = "d2lmini-chapters"


def add_to(commands: Any) -> None:
    """Declare `lab`."""
    parser = commands.add_parser(
        "lab",
        help="read and run the chapters in JupyterLab",
        description="Copy the chapters to FOLDER, without their outputs, and open them in "
        "JupyterLab. A chapter that is there stays as it is: name another folder for new ones. "
        "Options of JupyterLab follow --, as in: d2lmini lab -- --no-browser --port 9999",
    )
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", default=DEFAULT_FOLDER,
        help=f"where they go; default: {DEFAULT_FOLDER}",
    )  # fmt: skip
    parser.add_argument("--copy", action="store_true", help="only copy the chapters; start nothing")
    parser.add_argument("jupyter", nargs="*", metavar="-- OPTION", help="options of JupyterLab")
    parser.set_defaults(do=open_lab)


def open_lab(options: argparse.Namespace) -> int:
    """Copy the chapters, if need be, and run JupyterLab; returns its exit status."""
    if not options.copy and importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed: pip install 'd2lmini[lab]'")
    folder, words = options.folder, options.jupyter
    if folder.startswith("-"):  # argparse takes the first word after -- for FOLDER
        folder, words = DEFAULT_FOLDER, [folder, *words]
    root = Path(folder).resolve()
    print(files.copy(root))
    if options.copy:
        return 0
    # A container's usual user is root; JupyterLab listens on this machine only.
    as_root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    command = [
        sys.executable, "-m", "jupyterlab",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/chapters/{FIRST}",
        *as_root, *words,
    ]  # fmt: skip
    return _run(command, files.environment())


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Replace this process by the command, where the system can, so that signals such as Ctrl-C
    reach it directly. Elsewhere wait until the command ends; returns its exit status."""
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes
    return subprocess.call(command, env=environment)
