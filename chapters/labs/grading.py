"""Checks for exercises on schedules: which operations may run side by side? Never on seconds.

    with d2lmini.profile() as trace:
        answer()
    overlaps(trace, "copy", "dot")
    at_most_waits(trace, 1)

Seconds differ from machine to machine and from run to run; the dependencies do not. Two operations
may run side by side if neither depends on the other, for its value or for the room; if the program
issued the second without waiting for the first; and if there is a worker for each. All this is in a
trace, of the threaded engine or of the stepped engine.

A check that passes returns a sentence. A check that fails raises `CheckFailed`, an AssertionError
that names the obstacle, its line, and what to try: another hint for each kind of mistake.

A word selects operations: "copy" for all copies between devices (if there are others than those of
`asnumpy` and its like, without these), "dot" for all products of matrices, the name of another
operation, or a place ("gpu(0)").

Whatever makes a thread wait for the engine counts: also joining a thread that waits, the result of
a future, an event that a pushed function sets, and asking `engine.stats()` until nothing is
pending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any

from d2lmini.base import callsite
from d2lmini.context import Context
from d2lmini.profiler.event_graph import ISSUE, EventGraph
from d2lmini.profiler.memory import DeviceMemory
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import Trace

#: Operators that multiply matrices.
PRODUCTS = {"dot", "batch_dot", "linalg_gemm", "linalg_gemm2", "FullyConnected"}

#: This many neighbours in program order, on either side, are tried as partners.
_NEAR = 8


class CheckFailed(AssertionError):
    """An answer fails an exercise's check; `hint` names the kind of mistake in a word."""

    def __init__(self, hint: str, text: str):
        super().__init__(text)
        self.hint = hint


class CheckPassed(str):
    """The result of a check; a notebook shows it without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


# -- which operations may overlap ------------------------------------------------------------------

_HINTS = {
    "waits": "{y} is issued only when the program has waited for {x} ({x.where}): {wait}. Issue "
    "both first, then wait",
    "needs": "{y} ({y.where}) uses what {x} makes ({x.where}). Let it work on the data of the "
    "step before",
    "room": "{y} ({y.where}) writes where {x} ({x.where}) reads or wrote, so it has to wait for "
    "the room. Give it an array of its own (two, in turns)",
    "child": "{y} ({y.where}) is issued by an operation that needs {x} ({x.where}). Issue it where "
    "the program runs, before it needs {x}",
    "worker": "{x} and {y} run at {x.place}, which has one worker. Put one of them on another "
    "device, or copy with as_in_context, which runs on the link",
    "inline": "{x} is so small that it runs where it is called ({x.where}), and is over when {y} "
    "is issued. Make it larger, or turn the dial: engine.inline_below = 0",
}


def overlaps(trace: Trace, a: str, b: str, but: int = 1) -> CheckPassed:
    """Check that each of the operations `a`, except a few, may run beside an operation of `b`.

    The first copy has no partner, so one may lack a partner. CheckFailed, with a hint: "missing",
    "waits", "needs", "room", "worker", "inline".
    """
    first, second = _choose(trace, a), _choose(trace, b)
    graph = trace.events
    alone = [found for one in first if (found := _find_obstacle(graph, one, second))]
    if len(alone) <= min(but, len(first) - 1):
        return CheckPassed(f"{a} may run beside {b}")
    most = Counter(why for why, _, _ in alone).most_common(1)[0][0]
    _, x, y = next(found for found in reversed(alone) if found[0] == most)
    # By what the program knew, before `y` was issued, that `x` was over.
    path = graph.path(x.number, y.number, ISSUE)
    wait = next((what for node in path if (what := graph.passes(node))), None)
    line = "" if wait is None else f"{wait.where} ({wait.kind})"
    text = f"{a}: {len(alone)} of {len(first)} cannot run beside {b}. "
    raise CheckFailed(most, text + _HINTS[most].format(x=x, y=y, wait=line))


def _find_obstacle(
    graph: EventGraph, operation: Operation, others: list[Operation]
) -> tuple[str, Operation, Operation] | None:
    """What keeps the operation from running beside the nearest of the others, and both in program
    order; None if it may run beside one of those near."""
    here = bisect_left([other.number for other in others], operation.number)
    near = others[max(0, here - _NEAR) : here + _NEAR]
    found = []
    for other in sorted(near, key=lambda other: abs(other.number - operation.number)):
        x, y = sorted((operation, other), key=lambda one: one.number)
        found.append((graph.between(x, y), x, y))
        if not found[-1][0]:
            return None
    # An operation between it and the one that uses it is no mistake; an operation between it and
    # the one on the other side may be.
    return next((row for row in found[:4] if row[0] != "needs"), found[0])


def _choose(trace: Trace, what: str) -> list[Operation]:
    """The operations that the word selects; CheckFailed if there are none."""
    ran = [operation for operation in trace.operations if operation.began_ns]
    if what == "copy":
        found = [operation for operation in ran if operation.is_copy]
        reads = {number for wait in trace.waits if (number := _own_copy(trace, wait))}
        found = [copy for copy in found if copy.number not in reads] or found
    else:
        names = PRODUCTS if what == "dot" else {what}
        found = [op for op in ran if op.name in names or what in (op.name.strip("_"), op.place)]
    if not found:
        names = ", ".join(dict.fromkeys(operation.name for operation in ran)) or "none at all"
        raise CheckFailed("missing", f"no operation {what!r} ran; there were {names}")
    return found


# -- how often the program waits -------------------------------------------------------------------


def at_most_waits(trace: Trace, n: int, before: Operation | None = None) -> CheckPassed:
    """Check that the program waits at most `n` times; `before`: until it issues this operation.

    Back-pressure is not a wait of the program, and reading what a thread has waited for already is
    no second wait. CheckFailed, with a hint: "hidden", "waitall", "polling", "reading", "waiting",
    after the most frequent kind of wait.
    """
    waits = blocking_waits(trace)
    if before is not None:
        waits = [wait for wait in waits if wait.pushed < before.number]
    when = "in all" if before is None else f"before {before}"
    if len(waits) > n:
        raise _too_many(waits, n, when)
    return CheckPassed(f"at most {_count(n, 'wait')} {when}")


def blocking_waits(trace: Trace) -> list[Wait]:
    """The waits of the program that could block: all but those for what the same thread has waited
    for already. A wait for what a pushed function sets is of the kind "event"."""
    found: list[Wait] = []
    earlier: dict[str, list[Wait]] = {}
    for wait in _waits_and_events(trace):
        if wait.kind == "backpressure":
            continue
        before = earlier.setdefault(wait.thread, [])
        if not any(_covers(trace, other, wait) for other in before):
            found.append(wait)
            before.append(wait)
    return found


def _waits_and_events(trace: Trace) -> list[Wait]:
    """The waits of the trace, and between them those for an event that an operation set."""
    found, tellers = list(trace.waits), {}
    for notice in trace.notices:
        if notice.kind == "tell" and notice.operation:
            tellers[notice.token] = notice.operation
    woken = [n for n in trace.notices if n.kind == "wait" and n.token in tellers]
    for n in reversed(woken):
        event = Wait("event", -1, tellers[n.token], n.pushed, n.site, n.thread, 0, 0)
        found.insert(n.waits, event)
    return found


def _covers(trace: Trace, other: Wait, wait: Wait) -> bool:
    """Is all that `wait` waits for over since `other`, an earlier wait of the thread?"""
    if wait.target is None or wait.kind == "wait_to_write":
        return other.target is None and other.pushed >= wait.pushed
    copy = _own_copy(trace, wait)
    numbers = (trace.true_dependencies(copy) or (0,)) if copy else (wait.operation,)
    if other.target is None:
        return other.pushed >= max(numbers)
    if not max(numbers):
        return other.target == wait.target
    return all(n <= other.pushed and _is_for(trace, other, trace[n]) for n in numbers if n)


def _is_for(trace: Trace, wait: Wait, operation: Operation) -> bool:
    """Is an operation, issued before a wait for a Var, over when the wait is?"""
    touched = operation.writes + (operation.reads if wait.kind == "wait_to_write" else ())
    number = operation.number
    if wait.target in touched or wait.operation == number:
        return True
    return number < wait.operation and bool(trace.events.path(number, wait.operation))


def _own_copy(trace: Trace, wait: Wait) -> int:
    """The number of the copy to the host that a wait made itself, to read an array of a device; 0
    if it made none."""
    if not wait.operation or wait.operation != wait.pushed:
        return 0
    last = trace[wait.operation]
    return last.number if last.is_copy and last.site == wait.site else 0


def _too_many(waits: list[Wait], allowed: int, when: str) -> CheckFailed:
    lines: dict[tuple[Any, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        lines[callsite.same_line(wait.site), wait.kind].append(wait)
    wait, *others = max(lines.values(), key=len)
    kind = wait.kind
    if wait.instead is not None:
        hint, advice = "hidden", wait.instead
    elif kind == "waitall":
        hint, advice = "waitall", "wait for the one value that is needed, or after the loop"
    elif kind in ("stats", "explain"):
        hint, advice = "polling", "asking until nothing is pending waits too: leave it out"
    elif kind.startswith("wait_") or kind == "event":
        hint, advice = "waiting", "the engine keeps the order by itself: leave it out"
    else:
        hint, advice = "reading", "keep the array (append it, add it up) and read after the loop"
    return CheckFailed(
        hint,
        f"{_count(len(waits), 'wait')} {when}, allowed are {allowed}. "
        f"{_count(1 + len(others), 'time')} of them at {wait.where} ({kind}): {advice}",
    )


# -- how much memory arrays take -------------------------------------------------------------------


def peak_bytes(trace: Trace, ctx: Context, nbytes: int) -> CheckPassed:
    """Check that arrays of the trace took at most `nbytes` on the device, at any moment. Arrays
    from before the trace do not count; NumPy copies that the program keeps (`asnumpy`) count as the
    CPU's. (On the threaded engine the peak depends on how far the program ran ahead; a bound on
    pending bytes makes it certain, or `engine.stepped()`.)

    CheckFailed, with a hint: "ahead" (issued faster than computed), "kept" (many results of one
    line), "large" (a single array), "many" (none of these); "missing".
    """
    report = trace.memory()
    if ctx not in report.devices:
        raise CheckFailed("missing", f"nothing was computed on {ctx}; pass ctx={ctx}")
    seen = report[ctx]
    peak = seen.peak_bytes - seen.older_bytes
    if ctx.is_cpu:
        _check_copies(trace, seen, nbytes)
    if peak <= nbytes:
        return CheckPassed(f"at most {nbytes / 1e6:.1f} MB on {ctx}")
    first = seen.holders[0]
    unfinished = [size for when_ns, size in seen.pending if when_ns <= seen.peak_ns][-1]
    if first.nbytes / first.arrays > nbytes:
        hint, advice = "large", "One array alone is too large: take a part of the batch"
    elif unfinished > nbytes:
        hint = "ahead"
        advice = (
            "The program runs ahead of the computing: read a result once in a while, or bound it "
            "with engine.limit_pending"
        )
    elif first.arrays > 2:
        hint = "kept"
        advice = (
            "They are kept: in a list, or by record() until backward(). Keep what you need of them "
            "(their sum), and let them go"
        )
    else:
        hint = "many"
        advice = "Let go of arrays that are not needed any more, or write in place"
    raise CheckFailed(
        hint,
        f"{peak / 1e6:.1f} MB on {ctx} at the peak, allowed are {nbytes / 1e6:.1f} MB; "
        f"{first.nbytes / 1e6:.1f} MB are {_count(first.arrays, 'array')} of {first.where}. "
        f"{advice}",
    )


def _check_copies(trace: Trace, seen: DeviceMemory, nbytes: int) -> None:
    """CheckFailed if the NumPy copies that the program keeps, and its arrays, take more than
    `nbytes`."""
    copied, arrays = 0, 0
    for copy in trace.copies:
        copied += copy.nbytes
        arrays += 1 if copy.nbytes > 0 else -1
        live = next(size for when_ns, size in reversed(seen.live) if when_ns <= copy.when_ns)
        both = copied + max(0, live - seen.begin_bytes)
        if both > nbytes and copied > copy.nbytes > 0:
            raise CheckFailed(
                "kept",
                f"{both / 1e6:.1f} MB, allowed are {nbytes / 1e6:.1f} MB; {copied / 1e6:.1f} MB "
                f"are {_count(arrays, 'NumPy array')}, the last at {callsite.describe(copy.site)}. "
                "A copy takes memory as an array does: keep what you need of them (their sum)",
            )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
