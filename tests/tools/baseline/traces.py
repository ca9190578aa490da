"""What is read off traces: account, replay, diff, critical path, waits, memory.

Two sorts of traces. Exact ones: programs on the virtual clock of the stepped engine, the same on
each tree. Stored ones: recorded once on the threaded engine, with real times, written as JSON
(`dump`), and loaded (`load`) by every tree that is compared. `dump` and `load` are the one place of
this tool that knows what a trace consists of; they go by the documented fields of its records.
"""

from __future__ import annotations

import gc
import json
import linecache
import random
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any

import d2lmini
from d2lmini import autograd, engine, gluon, gpu, nd, profile, profiler
from d2lmini.ops.spec import Cost


def record(store: Path, like: Path | None) -> dict[str, Any]:
    """The texts of all traces; the stored ones are recorded here, or copied from `like`."""
    if like is not None:
        store.write_bytes(like.read_bytes())
    elif not store.exists():
        store.write_text(json.dumps([dump(trace) for trace in real()]), encoding="utf-8")
    stored = [load(each) for each in json.loads(store.read_text(encoding="utf-8"))]
    found = {}
    for kind, traces in (("stored", stored), ("exact", exact())):
        for i, trace in enumerate(traces):
            found[f"{kind} {i}"] = told(trace)
        for i, (a, b) in enumerate(pairwise(traces)):
            found[f"{kind} diff {i}"] = {"diff": text(lambda a=a, b=b: a.diff(b))}
    return found


def told(trace: Any) -> dict[str, Any]:
    """All that is asked of one trace."""
    questions: dict[str, Callable[[], Any]] = {
        "account": trace.account, "summary": trace.summary, "waits": trace.waits,
        "memory": trace.memory, "critical path": lambda: (path := trace.critical_path())
        and f"{path}\n{path.operations} {path.length_ns}",
        "parts": lambda: {str(k): part.ns for k, part in trace.account().parts.items()},
        "order": lambda: [(trace.needs(o.number), trace.makes_room(o.number))
                          for o in trace.operations],
        "graph": lambda: trace.graph(1, min(20, len(trace.operations))),
    }  # fmt: skip
    lines = sorted({wait.where.partition(": ")[0] for wait in trace.waits})
    changes = [{}, {"workers": 1}, {"workers": 3}, {"devices": 1}, {"link_gb_s": 2.0}]
    changes += [{"without_wait_at": line} for line in lines[:1]]
    for change in changes:
        questions[f"replay {change}"] = lambda change=change: times(trace.replay(**change))
    questions["diff with replay"] = lambda: trace.diff(trace.replay(workers=1))
    return {name: text(question) for name, question in questions.items()}


def text(question: Callable[[], Any]) -> str:
    try:
        # What the pools have cached tells of the process before the trace, not of the trace.
        return re.sub(r" at 0x\w+|, [\d.]+ MB cached at most", "", str(question()))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def times(trace: Any) -> str:
    """When and where each operation ran, and each wait, from the begin of the trace."""
    zero = trace.begin_ns
    rows = [
        f"{o} {o.place} {o.worker} "
        f"{[t and t - zero for t in (o.pushed_ns, o.ready_ns, o.began_ns, o.ended_ns)]}"
        for o in trace.operations
    ]
    rows += [f"{w.kind} {w.begin_ns - zero} {w.end_ns - zero} {w.pushed}" for w in trace.waits]
    return "\n".join([*rows, f"{trace.left_ns - zero} {trace.end_ns - zero} {trace.workers}"])


# -- programs that are traced ----------------------------------------------------------------------


def chains(seed: int, sleep: bool, rows: int = 40) -> Callable[[], None]:
    """Tasks of a few chains with joins and waits."""

    def run() -> None:
        rng = random.Random(seed)
        values = [nd.ones((rows + 10 * i, rows)) for i in range(4)]
        lines = [engine.new_var() for _ in values]
        for _ in range(30):
            i, j = rng.randrange(4), rng.randrange(4)
            if sleep:
                ms = rng.randint(1, 4)
                engine.push(lambda ms=ms: time.sleep(ms / 1e3), [lines[j]] * (i != j), [lines[i]])
            else:
                values[i] = values[i] * 0.5 + nd.dot(values[j], values[j].T).sum()
            if rng.random() < 0.15:
                engine.wait_for_var(lines[i]) if sleep else values[i].wait_to_read()
        nd.waitall()

    return run


def training(ctx: list[Any], hybrid: bool) -> Callable[[], None]:
    def run() -> None:
        d2lmini.random.seed(1)
        net = gluon.nn.HybridSequential(prefix="net_")
        net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(3))
        net.initialize(ctx=ctx)
        if hybrid:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        total = 0.0
        for _ in range(3):
            xs = gluon.utils.split_and_load(nd.ones((8, 6)), ctx)
            with autograd.record():
                ls = [(net(x) ** 2).sum() for x in xs]
            autograd.backward(ls)
            trainer.step(8)
            total += sum(float(l.asscalar()) for l in ls)

    return run


def programs() -> list[tuple[int, Callable[[], None]]]:
    """(virtual GPUs, program), ten of them."""
    two = [gpu(0), gpu(1)]
    return [
        (0, chains(1, False, 700)), (0, chains(2, False)),
        (0, chains(3, True)), (0, chains(4, True)),
        (0, training([d2lmini.cpu()], False)), (0, training([d2lmini.cpu()], True)),
        (2, training(two, False)), (2, training(two, True)), (1, training([gpu(0)], False)),
        (0, chains(5, True)),
    ]  # fmt: skip


def real() -> list[Any]:
    """Their traces on the threaded engine, every second with everything queued."""
    queued = {"workers": 2, "inline_below": 0}
    options = [queued, {"workers": 2}] * 5
    return [traced(n, run, "threaded", how) for (n, run), how in zip(programs(), options)]


def exact() -> list[Any]:
    """Their traces on the stepped engine's clock."""

    def duration(task: Any) -> float:
        return 10 + sum(map(ord, task.name)) % 50

    return [traced(n, run, "stepped", {"workers": 2, "times": duration}) for n, run in programs()]


def traced(gpus: int, run: Callable[[], None], kind: str, options: dict[str, Any]) -> Any:
    gc.collect()
    gc.disable()  # what is freed when shall not depend on the garbage of others
    with engine.use(kind, **options):
        if gpus:
            with d2lmini.virtual_gpus(gpus, link_gb_s=1), profile() as trace:
                run()
        else:
            with profile() as trace:
                run()
    gc.enable()
    return trace


# -- storing them ----------------------------------------------------------------------------------

OPERATION = """number name lane worker thread priority predicted_us reads writes pushed_ns ready_ns
    began_ns ended_ns failure""".split()
WAIT = "kind target operation pushed thread begin_ns end_ns call instead".split()
CHANGE = "when_ns nbytes operation serial live cached".split()
TRACE = "begin_ns end_ns left_ns workers blas_threads".split()


def dump(trace: Any) -> dict[str, Any]:
    """A trace as plain values."""

    def plain(record: Any, fields: list[str]) -> dict[str, Any]:
        found = {name: getattr(record, name) for name in fields}
        if hasattr(record, "ctx"):
            found["ctx"] = [record.ctx.device_type, record.ctx.device_id]
        if hasattr(record, "where"):
            found["where"] = record.where
        return found

    operations = [
        {**plain(o, OPERATION), "flops": o.flops, "nbytes": o.nbytes} for o in trace.operations
    ]
    return {
        **{name: getattr(trace, name) for name in TRACE},
        "operations": operations,
        "waits": [plain(w, WAIT) for w in trace.waits],
        "memory": [plain(c, CHANGE) for c in trace.memory],
        "shared": {n: list(cut) for n, cut in trace.shared.items()},
    }


def load(stored: dict[str, Any]) -> Any:
    """The trace that was dumped, made of this tree's records."""
    from baseline.api import class_anywhere

    Change = class_anywhere("Change")
    SplitRecord = class_anywhere("SplitRecord") or class_anywhere("Cut")
    trace = profiler.Trace()
    for name in TRACE:
        setattr(trace, name, stored[name])
    for each in stored["operations"]:
        operation = object.__new__(profiler.Operation)
        for name in OPERATION:
            value = each[name]
            setattr(operation, name, tuple(value) if isinstance(value, list) else value)
        operation.ctx = d2lmini.Context(*each["ctx"])
        operation.site = site_of(each["where"])
        operation.footprint = lambda cost=(each["flops"], each["nbytes"]): Cost(*cost)
        trace.operations.append(operation)
    for each in stored["waits"]:
        rest = {name: each[name] for name in WAIT}
        trace.waits.append(profiler.Wait(site=site_of(each["where"]), **rest))
    for each in stored["memory"]:
        rest = {name: each[name] for name in CHANGE}
        trace.memory.append(Change(ctx=d2lmini.Context(*each["ctx"]), **rest))
    trace.shared = {int(n): SplitRecord(*cut) for n, cut in stored["shared"].items()}
    return trace


_sites: dict[str, tuple[CodeType, int]] = {}
_texts: dict[str, dict[int, str]] = {}


def site_of(where: str) -> Any:
    """The site that is described as `FILE:LINE: TEXT`, in a file that only `linecache` knows."""
    match = re.fullmatch(r"(.*):(\d+)(?:: (.*))?", where)
    if not match:
        return None
    if where not in _sites:
        file, line = f"/stored/{Path(match[1]).name}", int(match[2])
        lines = _texts.setdefault(file, {})
        lines[line] = match[3] or ""
        held = [lines.get(i, "") + "\n" for i in range(1, max(lines) + 1)]
        linecache.cache[file] = sum(map(len, held)), None, held, file
        code = compile("\n" * (line - 1) + "pass", file, "exec")
        last = [start for start, _, at in code.co_lines() if at == line][-1]
        _sites[where] = code, last
    return _sites[where]
