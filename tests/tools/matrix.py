"""Run the matrix (`noxfile.py`) and say what ran where: on the screen and in build/matrix.md.

    python tests/tools/matrix.py [options of nox] [-- options of its sessions]     (make test-all)

Whatever was not run, because its interpreter or its compiler is not on this machine, stands at the
end in capitals; the exit status is that of what ran.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "matrix"
RESULTS = {"success": "passed", "skipped": "NOT RUN", "failed": "FAILED", "aborted": "FAILED"}


def main(words: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    report = FOLDER / "report.json"
    status = subprocess.call(
        [
            sys.executable,
            "-m",
            "nox",
            "-f",
            str(ROOT / "noxfile.py"),
            "--report",
            str(report),
            *words,
        ]
    )
    if not report.exists():
        return status or 1
    rows = rows_of(json.loads(report.read_text(encoding="utf-8"))["sessions"])
    text = table(rows)
    (FOLDER.parent / "matrix.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nbuild/matrix.md has this table")
    missing = [name for name, result, _ in rows if result == "NOT RUN"]
    if missing:
        print(f"\nNOT RUN, WHAT THEY NEED IS NOT ON THIS MACHINE: {'; '.join(missing)}")
    return status


def rows_of(sessions: list[dict]) -> list[tuple[str, str, str]]:
    """Session, result, how many tests of the tree it ran."""
    return [
        (session["signatures"][-1], RESULTS[session["result"]], counts(session["signatures"][-1]))
        for session in sessions
    ]


def counts(session: str) -> str:
    """What pytest has left of a session."""
    path = FOLDER / f"{session}.xml"
    if not path.exists():
        return ""
    suite = xml.parse(path).getroot()[0]
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - failed - skipped
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def table(rows: list[tuple[str, str, str]]) -> str:
    """The rows as Markdown, with the machine they are of."""
    lines = [f"{platform.system()}, {platform.machine()}", "", "| session | result | tests |"]
    lines += ["| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
