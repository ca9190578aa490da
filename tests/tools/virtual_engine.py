"""An engine with one worker on a virtual clock, so that tests of timers need not be patient.

`push(issue_s, work_s)` takes issue_s of the caller's time and then work_s of the worker's, and
`waitall` turns the clock to the end of all work. `install` puts it where the timers look, together
with a `profile()` that traces it and a machine of two cores, `elsewhere` of them busy with others.
"""

import importlib
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

from d2lmini.d2l import load
from d2lmini.profiler.records import Wait

TIMERS = ("d2lmini.d2l.benchmark", "d2lmini.d2l.compare")


class VirtualTrace(SimpleNamespace):
    @property
    def order(self):
        return [(tuple(operation.after), ()) for operation in self.operations]


class VirtualEngine:
    def __init__(self) -> None:
        self.now = 0.0
        self.ends: list[float] = []
        self.cpu = 0.0
        self.cores = 2
        self.elsewhere = 0.0
        self.trace: VirtualTrace | None = None

    def push(self, issue_s: float, work_s: float, after=(), threads=1, inline=False) -> None:
        """after: as numbers in a trace, what it needs; threads: that share its work."""
        self.spend(issue_s)
        worker_is_free = max([self.now, *([] if inline else self.ends[-1:])])
        if self.trace is not None:
            self.trace.operations.append(
                SimpleNamespace(
                    number=len(self.trace.operations) + 1,
                    name="work",
                    place="cpu",
                    inline=inline,
                    run_ns=round(work_s * 1e9),
                    after=after,
                )
            )
        self.cpu += work_s * threads
        if inline:
            self.now += work_s
        else:
            self.ends.append(worker_is_free + work_s)

    def spend(self, seconds: float) -> None:
        self.now += seconds
        self.cpu += seconds

    def waitall(self) -> None:
        begin = self.now
        self.now = max([self.now, *self.ends[-1:]])
        if self.trace is not None:
            frame = sys._getframe(1)
            thread = threading.current_thread().name
            pushed = len(self.trace.operations)
            site = (frame.f_code, frame.f_lasti)
            span = (round(begin * 1e9), round(self.now * 1e9))
            self.trace.waits.append(Wait("waitall", None, 0, pushed, site, thread, *span))

    @contextmanager
    def profile(self):
        self.trace = trace = VirtualTrace(operations=[], waits=[], workers={"cpu": 1}, end_ns=0)
        yield trace
        self.trace = None
        self.waitall()
        trace.end_ns = round(self.now * 1e9)

    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(pending=sum(end > self.now for end in self.ends))

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.cpu

    def install(self, monkeypatch) -> "VirtualEngine":
        clock = SimpleNamespace(perf_counter=self.perf_counter, process_time=self.process_time)
        for timer in TIMERS:
            # By name, since `d2l.compare` the function hides `d2l.compare` the module.
            module = importlib.import_module(timer)
            monkeypatch.setattr(module, "engine", self)
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "profile", self.profile)
        monkeypatch.setattr(load, "snapshot", self.snapshot)
        return self

    def snapshot(self) -> load.Snapshot:
        busy_s = self.cpu + self.elsewhere * self.now
        return load.Snapshot(self.cores, busy_s, self.cpu, self.now)
