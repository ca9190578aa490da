"""The tests in a real browser: `make test-browser`.

    python tests/browser/run.py [--if-possible] [pytest's options]

Finds a browser, or gets one (`browsers.py`), and runs the tests of this folder; where there is none
to be had it fails and says what to do. With `--if-possible`, as in `make test`, that is no failure
but the last and loudest line of the run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from browsers import NoBrowser, obtain

FOLDER = Path(__file__).resolve().parent
NOT_RUN = "NO BROWSER: THE TESTS OF THE WIDGETS IN JUPYTERLAB (make test-browser) WERE NOT RUN"


def main(arguments: list[str]) -> int:
    if_possible = "--if-possible" in arguments
    try:
        browser = obtain()
    except NoBrowser as problem:
        print(problem, NOT_RUN, sep="\n", flush=True)
        return 0 if if_possible else 1
    print(f"browser: {browser}", flush=True)
    rest = [argument for argument in arguments if argument != "--if-possible"]
    command = [sys.executable, "-m", "pytest", "-q", str(FOLDER), *rest]
    return subprocess.run(command, cwd=FOLDER.parents[1]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
