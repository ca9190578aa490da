"""Run the chapters and print which of their claims about speed hold on this machine.

    python tests/benchmarks/claims.py [--strict] [--json FILE] [chapter.ipynb ...]    (make claims)

A claim is what a chapter hands to `d2l.compare(..., claim="...")`; d2lmini/d2l/claims.py explains
it. The table gives the verdict on the pair that the claim speaks of, how many times faster or
slower that is (median over the rounds, interval), and whether the claim holds; below it what
explains those that do not. The notebooks are run, not changed. Status 1 if a chapter stops with an
error; with --strict also if a claim does not hold, which elsewhere is a finding and not a fault.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]


def run_chapter(path: Path, claims_file: Path) -> str | None:
    """Execute one notebook in its own folder; the error's text if it fails."""
    env = {
        **os.environ,
        "D2LMINI_CLAIMS": str(claims_file),
        "D2LMINI_CHAPTER": path.stem,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, kernel_name="python3", timeout=600, resources=place)
    try:
        client.execute(env=env)
    # Whatever stops one chapter (an error, a time-out, a dead kernel), the others still run.
    except Exception as error:
        colours = r"\x1b\[[0-9;]*m"
        return re.sub(colours, "", f"{type(error).__name__}: {error}").strip()
    return None


def table(rows: list[dict]) -> str:
    """The claims as text, one line each, and how many of them hold; then those that do not, with
    what was measured and what explains it."""
    head = ("chapter", "claim", "verdict", "ratio", "holds")
    cells = [
        (row["chapter"], row["claim"], row["verdict"], ratio(row), "yes" if row["holds"] else "no")
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *cells)
    ]
    held = sum(bool(row["holds"]) for row in rows)
    lines += ["", f"{held} of {len(rows)} claims hold on this machine"]
    for row in rows:
        if not row["holds"]:
            # What the sentence says already is not said again.
            why = [w for w in row["why"].split("; ") if w and not row["sentence"].endswith(w)]
            found = [row["sentence"], *why]
            lines += ["", f"{row['chapter']}: {row['claim']}?", *("    " + each for each in found)]
    return "\n".join(lines)


def ratio(row: dict) -> str:
    """How many times faster or slower, and the interval: "1.9 (1.8-2.0)"."""
    value, low, high = row["ratio"]
    digits = 0 if value >= 10 else 1 if value >= 1.25 else 2
    return f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("chapters", nargs="*", type=Path, help="default: chapters/*.ipynb")
    options.add_argument("--strict", action="store_true", help="status 1 if a claim does not hold")
    options.add_argument("--json", type=Path, metavar="FILE", help="keep the claims, a line each")
    args = options.parse_args(argv)

    chapters = args.chapters or sorted((ROOT / "chapters").glob("*.ipynb"))
    errors = {}
    with tempfile.TemporaryDirectory() as folder:
        claims_file = Path(folder) / "claims.jsonl"
        claims_file.touch()
        for path in chapters:
            print(f"running {path.name} ...", file=sys.stderr, flush=True)
            error = run_chapter(path.resolve(), claims_file)
            if error:
                errors[path.name] = error
        lines = claims_file.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]

    if args.json:
        args.json.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(table(rows))
    for name, error in errors.items():
        print(f"\n{name} stopped:\n{error}")
    return int(bool(errors) or (args.strict and not all(row["holds"] for row in rows)))


if __name__ == "__main__":
    sys.exit(main())
