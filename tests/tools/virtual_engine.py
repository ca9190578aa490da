"""An engine with one worker on a virtual clock, so that tests of timers need not be patient.

`push(issue_s, work_s)` takes issue_s of the caller's time and then work_s of the worker's, and
`waitall` turns the clock to the end of all work. `install` puts it where the timers look.
"""

import importlib
from types import SimpleNamespace

TIMERS = ("d2lmini.d2l.benchmark", "d2lmini.d2l.compare")


class VirtualEngine:
    def __init__(self) -> None:
        self.now = 0.0
        self.ends: list[float] = []

    def push(self, issue_s: float, work_s: float) -> None:
        self.now += issue_s
        worker_is_free = max([self.now, *self.ends[-1:]])
        self.ends.append(worker_is_free + work_s)

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def waitall(self) -> None:
        self.now = max([self.now, *self.ends[-1:]])

    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(pending=sum(end > self.now for end in self.ends))

    def perf_counter(self) -> float:
        return self.now

    def install(self, monkeypatch) -> "VirtualEngine":
        for timer in TIMERS:
            # By name, since `d2l.compare` the function hides `d2l.compare` the module.
            module = importlib.import_module(timer)
            monkeypatch.setattr(module, "engine", self)
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=self.perf_counter))
        return self
