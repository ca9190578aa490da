"""Checks for exercises on schedules: which operations may run side by side? Never on seconds.

    with d2lmini.profile() as trace:
        answer()
    check.overlaps(trace, "copy", "dot")
    check.at_most_waits(trace, 1, per="batch")

Seconds differ from machine to machine and from run to run; the dependencies do not. Two operations
may run side by side if neither depends on the other, for its value or for the room; if the program
issued the second without waiting for the first; and if there is a worker for each. All this is in a
trace, of the threaded engine or of the stepped engine.

A check that passes returns a sentence. A check that fails raises `Wrong`, an AssertionError that
names the obstacle, its line, and what to try: another hint for each kind of mistake.

A word selects operations: "copy" for all copies between devices (if there are others than those of
`asnumpy` and its like, without these), the name of an operation ("dot";
other operators that compute the same count too), a place ("gpu(0)"), or a piece of the line that
issued them ("loss(net(X)").

Whatever makes a thread wait for the engine counts: also joining a thread that waits, the result of
a future, an event that a pushed function sets, and asking `engine.stats()` until nothing is
pending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import count
from typing import Any

from d2lmini import callsite
from d2lmini.context import Context
from d2lmini.d2l.batches import find_ends, waits_of_parts
from d2lmini.profiler.memory import DeviceMemory
from d2lmini.profiler.obstacles import Obstacles, own_copy
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import Trace

#: This many neighbours in program order, on either side, are tried as partners.
_NEAR = 8


class Wrong(AssertionError):
    """The schedule fails an exercise's check; `hint` names the kind of mistake in a word."""

    def __init__(self, hint: str, text: str):
        super().__init__(text)
        self.hint = hint


class Sentence(str):
    """The result of a check; a notebook shows it without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def overlaps(trace: Trace, a: str, b: str, but: int = 1) -> Sentence:
    """Check that each of the operations `a`, except a few, may run beside an operation of `b`.

    The first copy has no partner, so one may lack a partner. Wrong, with a hint: "missing",
    "waits", "needs", "room", "stream", "worker", "inline".
    """
    return _partners(trace, _choose(trace, a), _choose(trace, b), a, b, but)


def parallel(trace: Trace, *kinds: str) -> Sentence:
    """Check that operations of these kinds may run side by side: each beside one of every other
    kind, or, if there is only one kind, beside another of its own.

    Two places that do the same work must do so step by step: the third "dot" of one beside the
    third "dot" of the other, unless it needs the other's result. Wrong, with a hint as in
    `overlaps`.
    """
    if len(kinds) == 1:
        chosen = _choose(trace, kinds[0])
        return _partners(trace, chosen, chosen, kinds[0], kinds[0], 0)
    for a in kinds:
        for b in kinds:
            if a != b:
                first, second = _choose(trace, a), _choose(trace, b)
                left = _without_counterparts(trace, first, second, a, b)
                if left:
                    _partners(trace, left, second, a, b, 0)
    return Sentence(f"{' and '.join(kinds)} may run side by side")


def before(trace: Trace, a: str, b: str) -> Sentence:
    """Check that each `a` is over before `b` begins, in every legal order.

    If there are equally many of both, they are compared pair by pair; if there are twice as many
    of one, or three times, by groups in turn; else all with all. Wrong, with a hint: "missing",
    "late" (issued after it), "free" (nothing orders them).
    """
    first, second = _choose(trace, a), _choose(trace, b)
    obstacles = Obstacles(trace)
    for x, y in _pairs(first, second):
        if x.number > y.number:
            raise Wrong(
                "late",
                f"{x} is issued after {y}: {x.where}. What is issued later never comes first for "
                "its value: move the line up",
            )
        if obstacles.between(x, y) not in ("needs", "room", "stream", "waits", "inline"):
            raise Wrong(
                "free",
                f"nothing orders {x} and {y}, so {y} may begin first ({y.where}). Let it read what "
                "the other makes; the order of lines, and priority, promise nothing",
            )
    return Sentence(f"{a} is over before {b} begins")


def at_most_waits(trace: Trace, n: int, per: str | int | None = None) -> Sentence:
    """Check that the program waits at most `n` times.

    per     None: in all. A number: n times for each of that many batches. A word: n times between
            one such operation and the next. "batch" is an update of weights, by a Trainer or by
            hand; waits before the first batch, between epochs and after the last are free
    Back-pressure is not a wait of the program, and reading what a thread has waited for already is
    no second wait. Wrong, with a hint: "hidden", "waitall", "polling", "reading", "waiting", after
    the most frequent kind of wait; "missing".
    """
    waits = Obstacles(trace).blocking_waits()
    if per is None or isinstance(per, int):
        allowed = n * (1 if per is None else per)
        parts = [waits]
    else:
        allowed = n
        parts = waits_of_parts(trace, _ends(trace, per), waits, per == "batch")
    most = max(parts, key=len, default=[])
    if len(most) > allowed:
        raise _too_many(trace, most, allowed, per)
    what = "in all" if per is None else f"for each {per}" if isinstance(per, str) else f"x {per}"
    return Sentence(f"at most {_count(n, 'wait')} {what}")


def no_hidden_waits(trace: Trace) -> Sentence:
    """Check that every line that waits says so (`lint_waits`). Wrong, with the kind of wait as
    hint."""
    for row in trace.waits().hidden:
        raise Wrong(row.kind, f"{row.where} waits ({row.kind}) and does not say so: {row.instead}")
    return Sentence("every line that waits says so")


def peak_bytes(trace: Trace, ctx: Context, nbytes: int) -> Sentence:
    """Check that arrays of the trace took at most `nbytes` on the device, at any moment. Arrays
    from before the trace do not count; NumPy copies that the program keeps (`asnumpy`) count as the
    CPU's. (On the threaded engine the peak depends on how far the program ran ahead; a bound on
    pending bytes makes it certain, or `engine.stepped()`.)

    Wrong, with a hint: "ahead" (issued faster than computed), "kept" (many results of one line),
    "large" (a single array), "many" (none of these); "missing".
    """
    _check_something_ran(trace)
    report = trace.memory()
    if ctx not in report.devices:
        raise Wrong("missing", f"nothing was computed on {ctx}; pass ctx={ctx}, or as_in_context")
    seen = report[ctx]
    peak = seen.peak_bytes - seen.older_bytes
    if ctx.is_cpu:
        _check_copies(trace, seen, nbytes)
    if peak <= nbytes:
        return Sentence(f"at most {nbytes / 1e6:.1f} MB on {ctx}")
    first = seen.holders[0]
    text = (
        f"{peak / 1e6:.1f} MB on {ctx} at the peak, allowed are {nbytes / 1e6:.1f} MB; "
        f"{first.nbytes / 1e6:.1f} MB are {_count(first.arrays, 'array')} of {first.where}. "
    )
    if first.nbytes / first.arrays > nbytes:
        raise Wrong("large", text + "One array alone is too large: take a part of the batch")
    unfinished = [size for when_ns, size in seen.pending if when_ns <= seen.peak_ns][-1]
    if unfinished > nbytes:
        raise Wrong(
            "ahead",
            text + "The program runs ahead of the computing: read a result once in a while, or "
            "bound it with engine.limit_pending",
        )
    if first.arrays > 2:
        raise Wrong(
            "kept",
            text + "They are kept: in a list, or by record() until backward(). Keep what you need "
            "of them (their sum), and let them go",
        )
    raise Wrong("many", text + "Let go of arrays that are not needed any more, or write in place")


def _check_copies(trace: Trace, seen: DeviceMemory, nbytes: int) -> None:
    """Wrong if the NumPy copies that the program keeps, and its arrays, take more than `nbytes`."""
    copied, arrays, largest = 0, 0, 0
    for copy in trace.copies:
        copied += copy.nbytes
        arrays += 1 if copy.nbytes > 0 else -1
        live = next(size for when_ns, size in reversed(seen.live) if when_ns <= copy.when_ns)
        largest = max(largest, copy.nbytes)
        both = copied + max(0, live - seen.begin_bytes)
        if both > nbytes and copied > copy.nbytes > 0:
            raise Wrong(
                "kept",
                f"{both / 1e6:.1f} MB, allowed are {nbytes / 1e6:.1f} MB; {copied / 1e6:.1f} MB "
                f"are {_count(arrays, 'NumPy array')}, the last at {callsite.describe(copy.site)}. "
                "A copy takes memory as an array does: keep what you need of them (their sum)",
            )


# -- which operations ------------------------------------------------------------------------------

#: Operators that compute the same as the one of this name.
_ALIKE = {
    "dot": "batch_dot linalg_gemm linalg_gemm2 FullyConnected",
    "add": "elemwise_add broadcast_add plus_scalar add_n",
    "mul": "elemwise_mul broadcast_mul mul_scalar",
    "relu": "Activation maximum_scalar",
    "tanh": "Activation",
    "sigmoid": "Activation",
    "copyto": "copy assign",
}


def _choose(trace: Trace, what: str) -> list[Operation]:
    """The operations that the word selects; Wrong if there are none."""
    ran = [operation for operation in trace.operations if operation.began_ns]
    if what == "copy":
        found = [operation for operation in ran if operation.is_copy]
        reads = {number for wait in trace.waits if (number := own_copy(trace, wait))}
        found = [copy for copy in found if copy.number not in reads] or found
    else:
        alike = {what, *_ALIKE.get(what, "").split()}
        found = [
            operation
            for operation in ran
            if operation.name.lstrip("_") in alike or what in (operation.name, operation.place)
        ]
        found = found or [operation for operation in ran if what in operation.line]
    if not found:
        names = ", ".join(dict.fromkeys(operation.name for operation in ran)) or "none at all"
        raise Wrong("missing", f"no operation {what!r} ran; there were {names}")
    return found


def _check_something_ran(trace: Trace) -> None:
    if not any(operation.began_ns for operation in trace.operations):
        raise Wrong("missing", "nothing was computed: no operation ran within the trace")


def _ends(trace: Trace, per: str) -> list[int]:
    """The numbers of the operations that end a batch, or another unit."""
    if per != "batch":
        return [operation.number for operation in _choose(trace, per)]
    _check_something_ran(trace)
    ends = find_ends(trace)
    if not ends:
        raise Wrong(
            "missing",
            "no operation updates weights, so the end of a batch is unknown: call trainer.step, or "
            "say per=number of batches, or per='an operation that runs once a batch'",
        )
    return ends


# -- what is in the way ----------------------------------------------------------------------------

_HINTS = {
    "waits": "{y} is issued only when the program has waited for {x} ({x.where}): {wait}. Issue "
    "both first, then wait",
    "needs": "{y} ({y.where}) uses what {x} makes ({x.where}). Let it work on the data of the "
    "step before",
    "room": "{y} ({y.where}) writes where {x} ({x.where}) reads or wrote, so it has to wait for "
    "the room. Give it an array of its own (two, in turns)",
    "stream": "{x} ({x.where}) and {y} ({y.where}) are on one stream, {x.worker}, whose operations "
    "run in the order of their launches. Launch one of them on a stream of its own",
    "worker": "{x} and {y} run at {x.place}, which has one worker. Put one of them on another "
    "device, or copy with as_in_context, which runs on the link",
    "inline": "{x} is so small that it runs where it is called ({x.where}), and is over when {y} "
    "is issued. Make it larger, or turn the dial: engine.inline_below = 0",
}


#: Added to "needs" if other operations use the array, too: perhaps each uses a view of it.
_VIEWS = (
    ". Or is it only the array that they share? To the engine a view is its whole array: if each "
    "operation needs a part, give each part an array of its own (one copy for each)"
)


def _partners(
    trace: Trace, first: list[Operation], second: list[Operation], a: str, b: str, but: int
) -> Sentence:
    """Check that each of `first`, except a few, finds one of `second` to run beside."""
    obstacle = Obstacles(trace)
    numbers = [operation.number for operation in second]
    alone: list[tuple[str, Operation, Operation]] = []
    for operation in first:
        here = bisect_left(numbers, operation.number)
        near = [y for y in second[max(0, here - _NEAR) : here + _NEAR] if y is not operation]
        near.sort(key=lambda y: abs(y.number - operation.number))
        obstacles = [] if near else [("missing", operation, operation)]
        for other in near:
            x, y = sorted((operation, other), key=lambda one: one.number)
            obstacles.append((obstacle.between(x, y), x, y))
            if not obstacles[-1][0]:
                break
        else:
            # An operation between it and the one that uses it is no mistake; an operation between
            # it and the one on the other side may be.
            alone.append(next((o for o in obstacles[:4] if o[0] != "needs"), obstacles[0]))
    if len(alone) <= min(but, len(first) - 1):
        return Sentence(f"{a} may run beside {b}")
    most = Counter(why for why, _, _ in alone).most_common(1)[0][0]
    _, x, y = next(found for found in reversed(alone) if found[0] == most)
    if most == "missing":
        raise Wrong(most, f"{x} is the only {a}: there is nothing for it to run beside")
    raise _stand_apart(obstacle, most, x, y, f"{_count(len(alone), a)} of {len(first)}", b)


def _stand_apart(
    obstacles: Obstacles, why: str, x: Operation, y: Operation, a: str, b: str
) -> Wrong:
    wait = obstacles.wait_between(x, y)
    line = "" if wait is None else f"{wait.where} ({wait.kind})"
    text = _HINTS[why].format(x=x, y=y, wait=line)
    if why == "needs" and _share_an_array(obstacles, x, y):
        text += _VIEWS
    return Wrong(why, f"{a} cannot run beside {b}. {text}")


def _share_an_array(obstacles: Obstacles, x: Operation, y: Operation) -> bool:
    """Is the array, by whose value `y` depends on `x`, used by other operations, too?"""
    trace = obstacles.trace
    maker = trace[obstacles.path(x.number, y.number, by_value=True)[-2]]
    arrays = set(maker.writes) & set(y.reads)
    others = (operation for operation in trace.operations if operation not in (maker, y))
    return any(arrays & {*operation.reads, *operation.writes} for operation in others)


def _without_counterparts(
    trace: Trace, first: list[Operation], second: list[Operation], a: str, b: str
) -> list[Operation]:
    """Compare each of `first` with its counterpart in `second`, the n-th of a name with the n-th;
    Wrong if the program keeps them apart. Returns those without, which need some partner."""
    obstacles = Obstacles(trace)
    numbers: dict[str, count[int]] = defaultdict(count)
    named = {(y.name, next(numbers[y.name])): y for y in second}
    shared = {name for name, _ in named} & {x.name for x in first}
    numbers.clear()
    left, apart = [], []
    for operation in first:
        other = named.get((operation.name, next(numbers[operation.name])))
        if other is None or other is operation:
            left.append((operation, "missing"))
            continue
        x, y = sorted((operation, other), key=lambda one: one.number)
        why = obstacles.between(x, y)
        if why in ("needs", "room"):
            left.append((operation, why))
        elif why:
            apart.append((why, x, y))
    if apart:
        why, x, y = apart[0]
        times = f"{_count(len(apart), 'operation')} of {a}"
        raise _stand_apart(obstacles, why, x, y, times, f"the same of {b}")
    # A sum over all, say, is at one place only: it needs the others, and is no mistake.
    together = len(left) < len(first)
    return [x for x, why in left if not (together and (why != "missing" or x.name not in shared))]


def _pairs(first: list[Operation], second: list[Operation]) -> list[tuple[Operation, Operation]]:
    """The pairs to compare: one of `first` with its share of `second`, or all with all."""
    n, m = len(first), len(second)
    if m % n == 0:
        return [(first[i * n // m], y) for i, y in enumerate(second)]
    if n % m == 0:
        return [(x, second[i * m // n]) for i, x in enumerate(first)]
    return [(x, y) for x in first for y in second]


def _too_many(trace: Trace, waits: list[Wait], allowed: int, per: str | int | None) -> Wrong:
    """The message for more waits than allowed."""
    lines: dict[tuple[Any, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        lines[callsite.same_line(wait.site), wait.kind].append(wait)
    wait, *others = max(lines.values(), key=len)
    times, kind = 1 + len(others), wait.kind
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
    where = f" for one {per}" if isinstance(per, str) else ""
    return Wrong(
        hint,
        f"{_count(len(waits), 'wait')}{where}, allowed are {allowed}. {_count(times, 'time')} of "
        f"them at {wait.where} ({kind}): {advice}",
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} copies" if noun == "copy" else f"{n} {noun}s"
