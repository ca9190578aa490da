"""Which browser the tests drive.

`D2LMINI_BROWSER` names an executable of the Chromium family and wins. Then comes the Chromium that
`playwright install` keeps, then Chromium, Chrome or Edge as the system knows them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ON_PATH = """
chromium chromium-browser google-chrome google-chrome-stable chrome microsoft-edge
microsoft-edge-stable msedge
""".split()
# Where installers put them that leave the PATH alone; %NAME% is an environment variable.
IN_FOLDERS = """
/Applications/Google Chrome.app/Contents/MacOS/Google Chrome
/Applications/Chromium.app/Contents/MacOS/Chromium
/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge
%PROGRAMFILES%/Google/Chrome/Application/chrome.exe
%PROGRAMFILES(X86)%/Google/Chrome/Application/chrome.exe
%LOCALAPPDATA%/Google/Chrome/Application/chrome.exe
%PROGRAMFILES(X86)%/Microsoft/Edge/Application/msedge.exe
%PROGRAMFILES%/Microsoft/Edge/Application/msedge.exe
""".strip().splitlines()

HOW_TO = (
    "no browser was found; install Chromium, Chrome or Edge, or run "
    "`python -m playwright install chromium`, or name one: D2LMINI_BROWSER=/path/to/chromium"
)


class NoBrowser(RuntimeError):
    """There is no browser."""


def find() -> Path | None:
    """The executable of a browser of the Chromium family that starts on this machine."""
    named = os.environ.get("D2LMINI_BROWSER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise NoBrowser(f"D2LMINI_BROWSER names {named!r}, which is no executable file")
        return Path(found)
    places = [_playwrights_own(), *map(shutil.which, ON_PATH), *map(_filled_in, IN_FOLDERS)]
    return next((Path(place) for place in places if place and _starts(place)), None)


def _playwrights_own() -> str | None:
    """Where playwright keeps its Chromium, whether it is there or not."""
    code = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as playwright: print(playwright.chromium.executable_path)"
    )
    # In a process of its own: the driver cannot be started within a running one.
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() or None


def _filled_in(place: str) -> str | None:
    for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
        if f"%{name}%" in place:
            folder = os.environ.get(name)
            return place.replace(f"%{name}%", folder) if folder else None
    return place


def _starts(place: str) -> bool:
    """Whether it is there with its libraries; Ubuntu's may be a script that says "use snap"."""
    if not Path(place).is_file():
        return False
    if sys.platform == "win32":  # asked for its version, Chrome opens a window there
        return True
    try:
        asked = subprocess.run([place, "--version"], capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return asked.returncode == 0


def obtain() -> Path:
    """The browser that is there; NoBrowser says how to get one."""
    browser = find()
    if browser is None:
        raise NoBrowser(HOW_TO)
    return browser
