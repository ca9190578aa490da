"""The processes that hold the libraries, and the referee who lets one at a time compute."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PATIENCE_S = 600
# A turn is calm if other programs took at most this share of the cores during it and during the
# moment before it (which stands for it where it is too short to be judged itself).
CALM_SHARE, MOMENT_S = 0.08, 0.1


class Library:
    """A peer's process: asked a line, answers a line, suspended while nobody waits for it. The
    library d2lmini is that of the checkout `tree`."""

    def __init__(self, name: str, python: str, tree: Path = REPOSITORY) -> None:
        self.name = name
        environment = dict(os.environ)
        if name == "d2lmini":
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(tree), os.environ.get("PYTHONPATH")])
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
        """Its own, and that of the processes it started, ended or not."""
        try:
            live = [self.control, *self.control.children(recursive=True)]
            return sum(sum(process.cpu_times()[:4]) for process in live)
        except psutil.Error:
            return 0.0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Referee:
    """Gives turns; with patience, repeats one that other programs disturbed, up to a time limit.

    Whether a turn counts is decided by what others did, never by its own result.
    """

    def __init__(self, patience_s: float = 0):
        self.patience_s = patience_s
        self.given = 0
        self.calm = 0

    def turn(self, library: Library, row: str) -> dict[str, Any]:
        """A library's answer to `run ROW`."""
        end = time.perf_counter() + self.patience_s
        while True:
            start, busy, own = time.perf_counter(), busy_s(), library.cpu_s()
            if self.patience_s:
                time.sleep(MOMENT_S)
            answer = library.ask(f"run {row}")
            others = busy_s() - busy - (library.cpu_s() - own)
            calm = others <= CALM_SHARE * (time.perf_counter() - start) * (os.cpu_count() or 1)
            if calm or "error" in answer or time.perf_counter() >= end:
                self.given += 1
                self.calm += calm
                return answer


def busy_s() -> float:
    """Seconds the machine's cores have been busy since it started, all programs together."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
