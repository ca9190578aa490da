"""What a tree of the library does, written down, and compared with what another tree does.

    PYTHONPATH=OLD python tests/tools/baseline record DIR_OLD
    PYTHONPATH=NEW python tests/tools/baseline record DIR_NEW --like DIR_OLD
    python tests/tools/baseline compare DIR_OLD DIR_NEW
    PYTHONPATH=NEW python tests/tools/baseline record DIR_NEW --quick     # each eighth program

Use one checkout's copy of this tool for both trees: then both run the same programs. The tool goes
by public names, so that it survives new names inside. `--like` takes what inner names would be
needed for, the rows of operations and the stored traces, from the other record.

A record has these parts, each made by a process of its own and kept in a file `PART.json`:

    api         public names with their usage and first line; names that `import mxnet` offers
    bits        hashes of every array that some hundred programs keep, on one engine each:
                bits-naive, bits-threaded, bits-queued, bits-stepped
    printed     `print(net.program())` of nets, forward and backward
    traces      account, replay, diff of stored traces, and of exact ones (stepped engine)
    calls       calls and files of ours in a few small steps

The exit status of `compare` is 1 if anything differs but counts, first lines, and new names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:1] = [str(HERE.parent), str(HERE.parents[1])]

ENGINES: dict[str, dict[str, Any]] = {
    "naive": {"kind": "naive"},
    "threaded": {"kind": "threaded", "workers": 2},
    "queued": {"kind": "threaded", "workers": 4, "inline_below": 0},
    "stepped": {"kind": "stepped", "seed": 1},
}
PARTS = ("api", "printed", "traces", "calls", *(f"bits-{name}" for name in ENGINES))


def part(name: str, folder: Path, like: Path | None, quick: bool) -> None:
    """Make one part of a record, in this process."""
    import d2lmini

    # Each part imports its own: what one of them misses in a tree does not take the others along.
    module = importlib.import_module(f"baseline.{name if '-' not in name else 'corpus'}")
    if name == "traces":
        stored = "traces.stored.json"
        found: Any = module.record(folder / stored, like and like / stored)
    elif "-" not in name:
        found = module.record()
    else:
        programs = module.programs(folder / "rows.pickle", like and like / "rows.pickle")
        chosen = programs[::8] if quick else programs
        found = module.record(chosen, ENGINES[name.removeprefix("bits-")])
    tree = str(Path(d2lmini.__file__).resolve().parents[1])
    assert tree == os.environ["PYTHONPATH"].split(os.pathsep)[0], f"it is {tree} that was imported"
    found = {"tree": tree, "found": found}
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def record(folder: Path, like: Path | None, quick: bool, parts: list[str], jobs: int) -> int:
    """Make the parts, each in a process of its own; how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    # Lines are described relative to the working directory: it is the same for every tree.
    paths = [
        str(Path(path).resolve())
        for path in os.environ.get("PYTHONPATH", str(ROOT)).split(os.pathsep)
    ]
    print(f"the tree is {paths[0]}", flush=True)
    place: Any = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}}
    waiting, running, failed = list(parts), {}, 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            words = [sys.executable, "-W", "ignore", str(HERE), "part", name, str(folder)]
            words += ["--like", str(like)] * (like is not None) + ["--quick"] * quick
            running[name] = subprocess.Popen(words, **place), time.monotonic()
        for name, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                failed += process.returncode != 0
                said = "done" if process.returncode == 0 else f"FAILED ({process.returncode})"
                print(f"{name:14} {said}, {time.monotonic() - began:.0f} s", flush=True)
        time.sleep(0.2)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("record", "part"):
        sub = commands.add_parser(command)
        if command == "part":
            sub.add_argument("name")
        sub.add_argument("folder", type=Path)
        sub.add_argument("--like", type=Path, help="the record of the other tree")
        sub.add_argument("--quick", action="store_true", help="each eighth program")
        sub.add_argument("--parts", default=" ".join(PARTS), help="of: %(default)s")
        sub.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    sub = commands.add_parser("compare")
    sub.add_argument("old", type=Path)
    sub.add_argument("new", type=Path)
    sub.add_argument("--most", type=int, default=40, help="lines of each part that are shown")
    options = parser.parse_args()
    if options.command == "compare":
        from baseline import compare

        return compare.compare(options.old, options.new, PARTS, options.most)
    if options.command == "part":
        part(options.name, options.folder, options.like, options.quick)
        return 0
    parts = options.parts.split()
    like = options.like and options.like.resolve()
    return record(options.folder.resolve(), like, options.quick, parts, options.jobs) > 0


if __name__ == "__main__":
    sys.exit(main())
