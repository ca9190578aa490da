"""One library in a process of its own: reads a request a line, answers a line of JSON.

    hello                  {"library": "numpy 2.4.6", "python": "3.11.7", "threads": "2 threads"}
    prepare WORKLOAD|MODE  {"rows": ["numpy", "numpy out"], "problems": {}}
    run ROW                {"seconds": 0.0021}

`prepare` makes the inputs, runs every way to do the workload once, and checks the answer: a row
whose answer is wrong is a problem, not a time. The process runs until its input ends. Whatever a
library prints goes to stderr, so that it cannot be taken for an answer.

    $ echo "hello" | python tests/benchmarks/peer.py numpy
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import sys
import time
import traceback
from typing import Any

from peers.side import Side, Turn
from row import Workload
from workloads import WORKLOADS

# A library that cannot wait for everything may, after its clock has stopped, compute for this
# share of a moment; more means that the clock stopped too early.
QUIET_S, QUIET_SHARE = 0.05, 0.2


class Peer:
    """The sides that this process hosts, and the turns prepared for the present workload."""

    def __init__(self, name: str) -> None:
        self.sides: list[Side] = [
            make() for make in importlib.import_module(f"peers.{name}_side").sides
        ]
        self.rows: dict[str, tuple[Side, Turn, int | None]] = {}

    def hello(self) -> dict[str, Any]:
        side = self.sides[0]
        return {
            "library": f"{side.library} {getattr(side.lib, '__version__', '')}".strip(),
            "python": platform.python_version(),
            "threads": side.threads(),
        }

    def prepare(self, name: str, mode: str) -> dict[str, Any]:
        self.rows = {}
        for side in self.sides:
            side.scopes.close()
        gc.collect()
        workload, problems = WORKLOADS[name], {}
        for side in self.sides:
            for row, method in side.programs(workload.program).items():
                try:
                    problem = self.prepare_row(row, side, method, workload, mode)
                except Exception as error:
                    traceback.print_exc()
                    problem = f"{type(error).__name__}: {error}".splitlines()[0]
                if problem:
                    problems[row] = problem
        return {"rows": [row for row in self.rows if row not in problems], "problems": problems}

    def prepare_row(
        self, row: str, side: Side, method: str, workload: Workload, mode: str
    ) -> str | None:
        n, calls = workload.modes[mode]
        inputs = [side.array(x) for x in workload.inputs(mode)] or [n]
        turn = side.program(method)(calls, *inputs)
        self.rows[row] = (side, turn, workload.ops and calls * workload.ops)
        self.run(row)
        _, result = turn()
        if not side.waits_for_all:
            busy = time.process_time()
            time.sleep(QUIET_S)
            busy = time.process_time() - busy
            if busy > QUIET_SHARE * QUIET_S:
                return f"the clock stopped early: {busy:.3f} s of work in the {QUIET_S} s after it"
        return workload.problem(mode, side.to_numpy(result))

    def run(self, row: str) -> dict[str, Any]:
        side, turn, operations = self.rows[row]
        before = side.executed()
        seconds, _ = turn()
        after = side.executed()
        if before is not None and after is not None:
            if operations is None:  # from now on
                assert after > before, f"{row}: nothing was executed"
                self.rows[row] = (side, turn, after - before)
            elif after - before != operations:
                raise AssertionError(
                    f"{row}: {after - before} operations executed, the workload counts {operations}"
                )
        return {"seconds": seconds}


def main(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = Peer(name)
    for line in sys.stdin:
        request, *words = line.strip().split(" ", 1)
        arguments = words[0].split("|") if words else []
        try:
            answer = getattr(peer, request)(*arguments)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
