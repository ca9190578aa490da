"""Feed hostile files to every reader of d2lmini: the long run behind docs/tried.md.

    python tests/fuzz/run.py                                  # all targets, 20 000 inputs each
    python tests/fuzz/run.py --inputs 100000 params symbol    # these, more

Each input is a valid file after a few accidents. Prints a row for each target and each failure
once, with the bytes that led to it; the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="names; all if none is given")
    parser.add_argument("--inputs", type=int, default=20_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    import targets

    failed = False
    for name in options.targets or targets.TARGETS:
        if name not in targets.TARGETS:
            parser.error(f"no target {name!r}; there are {', '.join(targets.TARGETS)}")
        began, random = time.perf_counter(), Random(options.seed)
        with open(os.devnull, "w") as nowhere, _quiet(nowhere), targets.Run(name) as run:
            seeds = run.target.seeds
            for _ in range(options.inputs):
                run.feed(run.target.mutate(random, random.choice(seeds), seeds))
        failed |= _report(name, run, began)
    return int(failed)


@contextlib.contextmanager
def _quiet(nowhere: Any) -> Any:
    """Readers that print their progress do so elsewhere; warnings are not counted."""
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _report(name: str, run: Any, began: float) -> bool:
    took = time.perf_counter() - began
    rate = run.inputs / took
    out = sys.__stdout__
    print(f"{name:10} {run.inputs:8} inputs {rate:8.0f}/s {len(run.failures):3} failures", file=out)
    for kind, (words, data) in sorted(run.failures.items()):
        print(f"    {kind}: {words}\n        {data[:400]!r} ({len(data)} bytes)", file=out)
    out.flush()  # type: ignore[union-attr]
    return bool(run.failures)


if __name__ == "__main__":
    sys.exit(main())
