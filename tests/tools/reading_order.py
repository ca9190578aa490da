"""The core in reading order: what `docs/reading-guide.md` shows, with the lines of each file."""

from __future__ import annotations

from pathlib import Path

from size_table import measure_file

LIBRARY = Path(__file__).resolve().parents[2] / "d2lmini"

#: Stop -> (file, what to look for).
STOPS: dict[str, list[tuple[str, str]]] = {
    "The engine": [
        (
            "engine/core.py",
            "the rules on one page: `Var`, `Task`, invariants, `claim` and `release`",
        ),
        ("engine/scheduler.py", "the life of a task, shared by all engines: push, run, complete"),
        ("engine/threaded.py", "worker threads: a heap of ready tasks for each lane"),
        ("engine/engine.py", "the one function through which every wait goes"),
        ("engine/failure.py", "an error kept on the Vars, and raised at the waits"),
    ],
    "One op": [
        ("ops/core.py", "`Op`: inputs and attributes from a signature, `bind`, `gradient`, `cost`"),
        ("ops/elementwise.py", "`Family`: the ops that one row of arithmetic makes"),
        ("ops/binary.py", "the rows: `add` to `logical_xor`, each with its gradients"),
        ("ops/linalg.py", "ops with rules of their own: `dot` and its gradient"),
    ],
    "One dispatch": [
        (
            "ndarray/dispatch.py",
            "`apply`: the fast path for small work, else a task for the engine",
        ),
        ("ndarray/plan.py", "what is known before a call runs, found again at the next"),
        ("ndarray/compute.py", "`OpTask`: what a worker does"),
        ("device/storage.py", "`Chunk`: memory from a pool, counted to the byte"),
    ],
    "The tape": [
        ("autograd/tape.py", "`record_op`: what is kept for backward; version checks"),
        ("autograd/backward_pass.py", "the reverse walk, and where gradients are written"),
    ],
    "One layer": [
        ("gluon/parameter.py", "one array for each device, and deferred initialization"),
        ("gluon/block.py", "children and parameters by assignment"),
        ("gluon/nn/basic.py", "`Dense`: `hybrid_forward(F, x, weight, bias)`"),
    ],
    "The graph kit": [
        ("graph/ir.py", "`Node`; `transform` makes a graph, `interpret` runs one"),
        ("graph/symbolic_trace.py", "a call with Symbols leaves its graph behind"),
    ],
    "One pass": [
        (
            "graph/passes.py",
            "common subexpressions: a whole pass on a page; the order of the passes",
        ),
        ("graph/fusion.py", "which ops run together, block by block"),
    ],
    "One printed program": [
        ("graph/plan.py", "an offset in one arena for each intermediate result"),
        ("graph/codegen.py", "the text of `print(net.program())`"),
        ("graph/cached_op.py", "a program for each kind of input, and its backward"),
    ],
    "The trainer": [
        ("optimizer/optimizer.py", "one task updates all parameters"),
        ("kvstore/local.py", "sums over devices"),
        ("gluon/trainer.py", "`step`: sums, then updates"),
    ],
}


def table() -> str:
    """The stops as a Markdown table, with lines of code and in all."""
    rows = ["| stop | file | lines of code | look for |", "| --- | --- | --- | --- |"]
    total = 0
    for stop, files in STOPS.items():
        for i, (name, what) in enumerate(files):
            path = LIBRARY / name
            lines = measure_file(path).lines
            total += lines
            head = f"**{stop}**" if i == 0 else ""
            rows.append(f"| {head} | [`{name}`](../d2lmini/{name}) | {lines} | {what} |")
    return "\n".join([*rows, f"| in all | | {total} | |", ""])
