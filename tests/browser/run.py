"""The tests in a real browser: `make test-browser`.

    python tests/browser/run.py [--if-possible] [pytest's options]

Finds a browser (`browsers.py`) and runs the tests of this folder; where there is none it fails and
says what to do. When all pass, `passed.txt` keeps the digest of what they
look at: widgets, drawings, chapters and these tests. Commit it.

With `--if-possible`, as in `make test`, a browser that is not there is no failure but the last
and loudest line of the run, and what `passed.txt` knows is not asked again: one test runs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from browsers import NoBrowser, obtain

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PASSED = FOLDER / "passed.txt"
#: What a browser shows, as files of the repository.
SHOWN = ("d2lmini/widgets/**/*", "d2lmini/draw/**/*", "chapters/**/*", "tests/browser/*.py")
SHOWN_SUFFIXES = {".py", ".js", ".css", ".html", ".ipynb"}
NOT_RUN = "NO BROWSER: THE TESTS OF THE WIDGETS IN JUPYTERLAB (make test-browser) WERE NOT RUN"
ONE_TEST = "test_browser_stepper.py"


def digest() -> str:
    """Of all that a browser shows, whatever the line ends of the checkout."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in SHOWN for path in ROOT.glob(pattern)}):
        if path.suffix in SHOWN_SUFFIXES and ".ipynb_checkpoints" not in path.parts:
            found.update(path.relative_to(ROOT).as_posix().encode())
            found.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return found.hexdigest()


def main(arguments: list[str]) -> int:
    if_possible = "--if-possible" in arguments
    try:
        browser = obtain()
    except NoBrowser as problem:
        print(problem, NOT_RUN, sep="\n", flush=True)
        return 0 if if_possible else 1
    print(f"browser: {browser}", flush=True)
    options = [argument for argument in arguments if argument != "--if-possible"]
    tests = FOLDER
    settled = PASSED.exists() and PASSED.read_text(encoding="utf-8").split() == [digest()]
    if if_possible and settled and not options:
        tests = FOLDER / ONE_TEST
        print(
            f"all tests passed on this tree of widgets and chapters: {ONE_TEST} alone", flush=True
        )
    command = [sys.executable, "-m", "pytest", "-q", str(tests), *options]
    status = subprocess.run(command, cwd=ROOT).returncode
    if status == 0 and tests == FOLDER and not options:
        PASSED.write_text(digest() + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
