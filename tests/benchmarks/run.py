"""The benchmark: d2lmini and its peers side by side, in turns, each in a process of its own.

    python tests/benchmarks/run.py                    # d2lmini, and NumPy of this interpreter
    python tests/benchmarks/run.py --quick --peer torch=/path/to/python --only small_add
    D2LMINI_JAX_PYTHON=/path/to/python make bench

How it measures: every library runs in its own process (`peer.py`) that lives through the whole
run, and computes only when it is its turn; the others are suspended by the operating system
meanwhile, so that no idle pool of threads spins beside it. In every round each library takes its
turn, and each round another one begins. All figures are medians over the turns of this one run;
the quartiles beside them tell how far to trust them, and so does the last line, which says how
busy other programs kept the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from report import Outcome, machine, markdown, targets, text
from workloads import TABLE, WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PEERS = ("d2lmini", "numpy", "torch", "jax", "mxnet")
PATIENCE_S = 600
# Calm: for so long other programs took at most this share of the cores.
CALM_S, CALM_SHARE = 0.1, 0.15


class Library:
    """A peer's process: asked a line, answers a line, suspended while nobody waits for it."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        environment = dict(os.environ)
        if name == "d2lmini":
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])
            )
        self.process = subprocess.Popen(
            [python, str(HERE / "peer.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.control = psutil.Process(self.process.pid)
        self.suspended = False

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(json.dumps({"error": "the process ended"}))

    def ask(self, request: str) -> dict[str, Any]:
        """Wake the process, send a request, wait for the answer, suspend the process again."""
        assert self.process.stdin is not None
        try:
            if self.suspended:
                self.control.resume()
                self.suspended = False
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.answers.get(timeout=PATIENCE_S))
            if "error" not in answer or self.process.poll() is None:
                self.control.suspend()
                self.suspended = True
        except queue.Empty:
            return {"error": f"no answer in {PATIENCE_S} s"}
        except (OSError, psutil.Error) as error:
            return {"error": f"the process ended ({type(error).__name__})"}
        return answer

    def cpu_s(self) -> float:
        try:
            times = self.control.cpu_times()
        except psutil.Error:
            return 0.0
        return times.user + times.system + times.children_user + times.children_system

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(
    workload: Workload, libraries: list[Library], mode: str, rounds: int, patience_s: float = 0
) -> Outcome:
    """All libraries through one workload: prepare each, then turns, each round begun by another."""
    outcome = Outcome(workload, {}, {})
    rows: list[tuple[Library, str]] = []
    for library in libraries:
        answer = library.ask(f"prepare {workload.name}|{mode}")
        if "error" in answer:
            outcome.problems[library.name] = answer["error"]
            continue
        outcome.problems.update(answer["problems"])
        rows += [(library, row) for row in answer["rows"]]
    outcome.seconds = {row: [] for _, row in rows}
    for turn in range(rounds * workload.turns):
        first = turn % max(1, len(rows))
        for library, row in rows[first:] + rows[:first]:
            if row in outcome.problems:
                continue
            await_calm(patience_s)
            answer = library.ask(f"run {row}")
            if "error" in answer:
                outcome.problems[row] = answer["error"]
                del outcome.seconds[row]
            else:
                outcome.seconds[row].append(answer["seconds"])
    return outcome


def await_calm(patience_s: float) -> None:
    """Wait until other programs leave the cores alone; all of ours are suspended meanwhile."""
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end:
        start = busy_s()
        time.sleep(CALM_S)
        if busy_s() - start <= CALM_SHARE * CALM_S * (os.cpu_count() or 1):
            return


def interpreters(given: list[str]) -> dict[str, str]:
    """Library -> interpreter, from `--peer` and the environment; this one for d2lmini and NumPy."""
    chosen = {"d2lmini": sys.executable, "numpy": sys.executable}
    for name in PEERS:
        if python := os.environ.get(f"D2LMINI_{name.upper()}_PYTHON"):
            chosen[name] = python
    for pair in given:
        name, _, python = pair.partition("=")
        if name not in PEERS or not python:
            raise SystemExit(f"--peer {pair}: expected NAME=PYTHON, NAME one of {', '.join(PEERS)}")
        chosen[name] = python
    return {name: chosen[name] for name in PEERS if name in chosen}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="the interpreter of a peer",
    )
    parser.add_argument(
        "--without", action="append", default=[], choices=PEERS, help="leave a library out"
    )
    parser.add_argument(
        "--only", action="append", default=[], choices=list(WORKLOADS), help="these workloads only"
    )
    parser.add_argument(
        "--quick", action="store_const", dest="mode", const="quick", help="fewer calls and rounds"
    )
    parser.add_argument(
        "--tiny",
        action="store_const",
        dest="mode",
        const="tiny",
        help="a test of the programs only",
    )
    parser.add_argument(
        "--rounds", type=int, help="turns of each library (full: 9, quick: 3, tiny: 1)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="S",
        help="before each turn, wait up to S seconds for other programs to leave the cores alone",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page")
    parser.set_defaults(mode="full")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run, print, and return 1 if a row has no time."""
    options = arguments(words)
    rounds = options.rounds or {"full": 9, "quick": 3, "tiny": 1}[options.mode]
    libraries, about = [], [machine()]
    start, busy = time.perf_counter(), busy_s()
    try:
        for name, python in interpreters(options.peer).items():
            if name in options.without:
                continue
            library = Library(name, python)
            libraries.append(library)
            hello = library.ask("hello")
            if "error" in hello:
                raise SystemExit(
                    f"{name}: {hello['error']}; try `{python} tests/benchmarks/peer.py {name}`"
                )
            about.append(f"{hello['library']}, Python {hello['python']}; {hello['threads']}")
        print("\n".join([*about, ""]), flush=True)
        outcomes = []
        for workload in TABLE:
            if not options.only or workload.name in options.only:
                outcomes.append(
                    measure(workload, libraries, options.mode, rounds, options.patience)
                )
                print(text(outcomes[-1]), flush=True)
        print("\n".join(["targets:", *(f"  {line}" for line in targets(outcomes)), ""]))
        ours = psutil.Process().cpu_times()
        own_s = sum(library.cpu_s() for library in libraries) + ours.user + ours.system
        cores_s = (time.perf_counter() - start) * (os.cpu_count() or 1)
        others = max(0.0, busy_s() - busy - own_s) / cores_s
        about.append(
            f"mode {options.mode}, {rounds} rounds; "
            f"other programs kept the cores {others:.0%} busy meanwhile"
        )
        print(about[-1])
        if options.markdown:
            options.markdown.write_text(markdown(outcomes, about), encoding="utf-8")
    finally:
        for library in libraries:
            library.close()
    return int(any(outcome.problems for outcome in outcomes))


def busy_s() -> float:
    """Seconds the machine's cores have been busy since it started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


if __name__ == "__main__":
    raise SystemExit(main())
