"""The library in use for an hour, in every way at once: does anything grow, hang or go wrong?

    python tests/soak/soak.py --minutes 60 --seed 1

Stories (`stories`) are drawn one after the other from one seed. After each the engine must be idle,
with no failure unreported and no array left; now and then what the process holds is noted: resident
memory, threads, open files. Whatever differs from its truth ends the run with the story's name and
its seed, and `--only NAME --from SEED` tells that story again. A story that is not over within two
minutes ends it, too, with the stacks of all threads.

At the end: how often each story was told, and resident memory over time. It may not have grown by
more than 5 % between the median of the second fifth of the run (the first fills the caches) and
that of the last. The exit status is 0 if all of that held.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import random
import statistics
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from invariants import check_invariants
from stories import STORIES, Story

from d2lmini import engine, nd, storage

#: So long a story may take, in seconds.
PATIENCE_S = 120
#: So many stories between two notes.
NOTED_EVERY = 20
#: So much of resident memory may have been gained, as a part.
GROWTH = 0.05


class Unclean(AssertionError):
    """A story left something behind."""


def tell(story: Story, seed: int) -> None:
    """One story, and a look at what it left."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    try:
        story(random.Random(seed))
        nd.waitall()
        gc.collect()
        check_invariants()
        stats, live = engine.stats(), storage.stats().live
        if stats.pending or stats.pending_bytes or live:
            raise Unclean(f"{stats.pending} operations are pending, {live} bytes are held")
    finally:
        faulthandler.cancel_dump_traceback_later()


def note(process: psutil.Process, begin_s: float) -> dict[str, Any]:
    """What the process holds now."""
    return {
        "at_s": round(time.monotonic() - begin_s, 1),
        "rss_mb": round(process.memory_info().rss / 1e6, 2),
        "threads": threading.active_count(),
        "files": process.num_fds() if hasattr(process, "num_fds") else 0,
    }


def fifth(notes: list[dict[str, Any]], number: int, what: str) -> float:
    """The median over one fifth of the run, 0 to 4."""
    size = len(notes) / 5
    part = notes[int(number * size) : max(int(number * size) + 1, int((number + 1) * size))]
    return statistics.median(each[what] for each in part)


def verdict(notes: list[dict[str, Any]]) -> tuple[str, bool]:
    """In words, and did nothing grow?

    >>> flat = [{"rss_mb": 100 + i % 2, "threads": 5, "files": 9} for i in range(50)]
    >>> verdict(flat)
    ('resident memory 100.5 MB, then 100.5 MB (+0.0 %); threads 5, then 5; files 9, then 9', True)
    >>> verdict([{**each, "rss_mb": 100 + i} for i, each in enumerate(flat)])[1]
    False
    """
    early, late = fifth(notes, 1, "rss_mb"), fifth(notes, 4, "rss_mb")
    words = (
        f"resident memory {early:.1f} MB, then {late:.1f} MB ({100 * (late / early - 1):+.1f} %)"
    )
    held = late <= (1 + GROWTH) * early
    for what in ("threads", "files"):
        before, after = fifth(notes, 1, what), fifth(notes, 4, what)
        words += f"; {what} {before:g}, then {after:g}"
        held = held and after <= before + 2
    return words, held


def soak(minutes: float, seed: int, names: list[str]) -> tuple[Counter, list[dict[str, Any]]]:
    """Tell stories for so long; how often each, and what was noted."""
    process, chance = psutil.Process(), random.Random(seed)
    begin_s = time.monotonic()
    told: Counter[str] = Counter()
    notes = []
    while time.monotonic() - begin_s < 60 * minutes:
        name, drawn = chance.choice(names), chance.randrange(1 << 30)
        try:
            tell(STORIES[name], drawn)
        except BaseException:
            print(f"failed: --only {name!r} --from {drawn}, as number {sum(told.values()) + 1}")
            raise
        told[name] += 1
        if sum(told.values()) % NOTED_EVERY == 0:
            notes.append(note(process, begin_s))
    return told, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(STORIES), help="this story alone")
    parser.add_argument("--from", type=int, dest="drawn", help="the story's seed: tell it once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was noted")
    asked = parser.parse_args()
    warnings.simplefilter("error")
    # Python warns of threads beside a fork. That the engine forks well is what one story is about.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    names = [asked.only] if asked.only else sorted(STORIES)
    if asked.drawn is not None:
        tell(STORIES[names[0]], asked.drawn)
        return 0
    told, notes = soak(asked.minutes, asked.seed, names)
    for name, count in sorted(told.items()):
        print(f"{count:7} {name}")
    print(
        f"{sum(told.values()):7} in {asked.minutes:g} minutes, seed {asked.seed}: none went wrong"
    )
    if len(notes) < 10:
        print("too few to say whether anything grows: let it run longer")
        return 0
    words, held = verdict(notes)
    print(words)
    if asked.json:
        asked.json.write_text(json.dumps({"told": told, "notes": notes}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
