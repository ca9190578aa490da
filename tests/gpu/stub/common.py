"""What the checks share: where the project's tests are, the stub, which of its counts matter.

Import this before CuPy.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "tools")]

try:
    import gpu_stub_boot as stub
except ModuleNotFoundError:
    sys.exit("run this by `make test-cuda-stub`, with the Python that `build` makes")

#: Calls that keep the host waiting, or may.
SYNCS = ("streamSynchronize", "deviceSynchronize", "memcpy-SYNC", "memset-SYNC", "memcpyPeer-SYNC")
#: What should not happen: work on the null stream, which waits for all others; copies that cannot
#: run beside the host; what a GPU would refuse.
FAULTS = (
    "launch-NULLSTREAM",
    "memcpyAsync-NULLSTREAM",
    "memcpyPeerAsync-NULLSTREAM",
    "memsetAsync-NULLSTREAM",
    "eventRecord-NULLSTREAM",
    "launch-BADGRID",
    "eventRecord-WRONGDEVICE",
    "refused-while-capturing",
)


class Since:
    """What was asked of the stub since this was made."""

    def __init__(self) -> None:
        self.before = stub.counts()

    def __call__(self, name: str) -> int:
        return stub.counts().get(name, 0) - self.before.get(name, 0)

    def among(self, names: Iterable[str]) -> dict[str, int]:
        now = stub.counts()
        steps = {name: now.get(name, 0) - self.before.get(name, 0) for name in names}
        return {name: step for name, step in steps.items() if step}


def said(problem: BaseException) -> str:
    """The beginning of an error, without the names and values that differ from row to row."""
    lines = str(problem).splitlines() or [""]
    line = re.sub(r"\w+: node '\w+': ", "", lines[0])
    return f"{type(problem).__name__}: {line}"[:120]


def fresh() -> None:
    """Give the memory of gpu(0) back: then what comes next gets zeros, and since kernels leave
    these as they are, what a program decides by values it decides the same way each time."""
    from d2lmini import gpu

    gpu(0).empty_cache()


def quiet() -> None:
    """Let what an error left behind come to its end."""
    from d2lmini import engine

    with suppress(Exception):
        engine.waitall()


def table(title: str, found: dict[str, set[str]]) -> None:
    """Names below what they share."""
    print(f"\n{title}: {len(set().union(*found.values())) if found else 0}")
    for what, names in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"  {what}\n      {len(names)}: {', '.join(sorted(names))}"[:1000])


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """{what: names} of (what, name)."""
    groups: dict[str, set[str]] = defaultdict(set)
    for what, name in pairs:
        groups[what].add(name)
    return groups
