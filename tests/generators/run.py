"""Run many drawn programs: every engine, and the real MXNet where it is installed.

    python tests/generators/run.py                               # all generators, 200 programs each
    python tests/generators/run.py --programs 1000 --seed 7 rules
    python tests/generators/run.py --minutes 10                  # as many as come in ten minutes

Seeds count up from `--seed` (default: today's date), so a failure names the program that shows it.
The exit status is 1 if a program failed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
#: Failures of one generator that are shown whole.
SHOWN = 3


def names() -> list[str]:
    """The generators: modules of this folder that define `draw`."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if "\ndef draw(" in path.read_text(encoding="utf-8"):
            found.append(path.stem)
    return found


def main() -> int:
    today = int(datetime.date.today().strftime("%Y%m%d")) * 1_000_000
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("generators", nargs="*", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--programs", type=int, default=200, help="of each generator")
    parser.add_argument(
        "--minutes", type=float, help="stop each generator after its share of these"
    )
    parser.add_argument("--seed", type=int, default=today)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "tools")]
    importlib.import_module("check_memory").turn_on()
    chosen = options.generators or names()
    failed = 0
    for name in chosen:
        end = time.monotonic() + (options.minutes or 1e9) * 60 / len(chosen)
        failed += _run(name, options.seed, options.programs, end)
    return int(failed > 0)


def _run(name: str, first: int, programs: int, end: float) -> int:
    """Run programs of one generator and print its row; how many failed."""
    check = importlib.import_module("generators.agree").check
    generator = importlib.import_module(f"generators.{name}")
    began, ran, failures, twins = time.monotonic(), 0, 0, 0
    for seed in range(first, first + programs):
        if time.monotonic() > end:
            break
        ran += 1
        try:
            twins += check(generator, seed)
        except Exception:
            failures += 1
            if failures <= SHOWN:
                print(f"--- {name}, seed {seed}\n{traceback.format_exc()}", flush=True)
    took = time.monotonic() - began
    steps = getattr(generator, "steps", 0)  # of generators that count them
    print(
        f"{name:14} {ran:7} programs {twins:7} with a twin {failures:4} failed {took:7.0f} s"
        + (f" {steps:9,} steps" if steps else ""),
        flush=True,
    )
    return failures


if __name__ == "__main__":
    sys.exit(main())
