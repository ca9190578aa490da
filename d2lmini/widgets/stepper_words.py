"""The events of a play, and their reasons, in words.

>>> from d2lmini import nd
>>> from d2lmini.widgets.stepper_play import Playback
>>> from d2lmini.widgets.stepper_program import record_program
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     c = a * 3
...     a += 1
>>> play = Playback(record_program(program))
>>> for sentence in beginning(play):
...     print(sentence)
The program has issued 4 operations; none has begun.
1 a = nd.ones((2,)) may begin: nothing that it needs is pending.
2 b = a * 2 must wait: 1 has yet to write a.
And so must 3 and 4.
>>> for _ in range(4):
...     told = step(play)
>>> for sentence in told:
...     print(sentence)
3 c = a * 3 begins on cpu 2: it reads a, writes c. 2 reads a at the same time.
4 a += 1 must wait: 2 and 3 still read a.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from d2lmini.ops.shown import shown_name
from d2lmini.widgets.stepper_play import Playback
from d2lmini.widgets.stepper_program import Operation, Wait


def title(play: Playback, number: int, most: int = 36) -> str:
    """ "4 a += 1": the number and the line; the name where a line has issued several operations."""
    operation = play.program.operations[number]
    lines = Counter(
        (operation.where, operation.line) for operation in play.program.operations.values()
    )
    line = code_of(operation)
    if not line or lines[operation.where, operation.line] > 1:
        line = shown_name(operation.name)
    return f"{number} {line if len(line) <= most else line[: most - 1] + '…'}"


def code_of(step: Operation | Wait) -> str:
    """The line of an operation or a wait, without the comment."""
    return step.line.split("  #")[0].strip()


def why_not(play: Playback, number: int) -> str:
    """Why an operation does not begin now; "" if it may."""
    status, names = play.status[number], play.program.names
    operation = play.program.operations[number]
    if status == "later":
        if operation.by:
            return f"{operation.by} issues it when it begins"
        assert play.awaited is not None
        wait, left = play.awaited
        line = code_of(wait) or "a line"
        return f"the program has not issued it: it waits at {line} for {some(left)}"
    if status == "waiting":
        parts = []
        for var, _, those in play.ahead(number):
            for verb in ("read", "write"):
                of_verb = [n for n, wrote in those if wrote == (verb == "write")]
                at_work = [n for n in of_verb if n in play.began_us]
                yet = [n for n in of_verb if n not in play.began_us]
                if at_work:
                    parts.append(f"{some(at_work)} still {_verb(verb, at_work)} {names[var]}")
                if yet:
                    have = "have" if len(yet) > 1 else "has"
                    parts.append(f"{some(yet)} {have} yet to {verb} {names[var]}")
        return "; ".join(parts)
    if status == "ready":
        if any(move.number == number for move in play.able()):
            return ""
        n = operation.workers
        workers = "the worker" if n == 1 else "both workers" if n == 2 else f"all {n} workers"
        return f"it is ready, but {workers} of {operation.place} {'is' if n == 1 else 'are'} busy"
    return f"it runs on {play.worker[number]}" if status == "running" else f"it is {status}"


def beginning(play: Playback) -> list[str]:
    """The state before the first move, in words."""
    issued = [n for n, status in play.status.items() if status != "later"]
    count = "1 operation" if len(issued) == 1 else f"{len(issued)} operations"
    said = [f"The program has issued {count}; none has begun."]
    return said + _may(play, issued) + _must_wait(play, issued) + _program(play)


def step(play: Playback, number: int | None = None) -> list[str]:
    """Make a move (see `Playback.step`) and describe it; [] if there was none."""
    before = dict(play.status)
    event = play.step(number)
    if event is None:
        return []
    n = event.number
    operation, names = play.program.operations[n], play.program.names
    touched = {*operation.reads, *operation.writes}
    told = title(play, n)
    if event.kind == "begin":
        said = [f"{told} begins on {event.worker}: {_uses(operation, names)}.{_beside(play, n)}"]
        new = [k for k, status in before.items() if status == "later" != play.status[k]]
        said += [f"It issues {some(new)}."] if new else []
        held = [k for k in _in_line(play, touched) if play.status[k] == "waiting"]
        said += _must_wait(play, [k for k in held if _waits_only_for_running(play, k)])
        return said + _wait_for_a_worker(play, operation.place)
    how = {"failed": " with an error", "skipped": ", skipped: what it needs is missing"}
    said = [f"{told} ends at {event.time_us:.4g} us{how.get(operation.status, '')}."]
    freed = [k for k, s in play.status.items() if s == "ready" and before[k] == "waiting"]
    still = [k for k in _in_line(play, touched) if play.status[k] == "waiting"]
    new = [k for k, s in play.status.items() if before[k] == "later" != s]
    if new:
        said.append(f"The program has what it waited for, and issues {some(new)}.")
    elif any(s == "later" for s in before.values()) or not play.able():
        said += _program(play)
    said += _may(play, freed + [k for k in new if play.status[k] == "ready"])
    said += _must_wait(play, still)
    if not play.able():
        said.append(f"All is over. They began in the order {', '.join(map(str, play.order))}.")
    return said


def _in_line(play: Playback, variables: set[int]) -> list[int]:
    """The operations in the queues of these Vars."""
    return sorted({n for var in variables for n, _, _ in play.line(var)})


def _waits_only_for_running(play: Playback, number: int) -> bool:
    return all(n in play.began_us for _, _, those in play.ahead(number) for n, _ in those)


def _uses(operation: Operation, names: dict[int, str]) -> str:
    """ "it reads a, writes c"."""
    both = [names[v] for v in operation.writes if v in operation.reads]
    reads = [names[v] for v in operation.reads if v not in operation.writes]
    writes = [names[v] for v in operation.writes if v not in operation.reads]
    parts = [("reads", reads), ("writes", writes), ("changes", both)]
    return "it " + (", ".join(f"{verb} {', '.join(n)}" for verb, n in parts if n) or "runs")


def _beside(play: Playback, number: int) -> str:
    """The operations that read the same Var at the same time."""
    said = []
    for var in play.program.operations[number].reads:
        others = [n for n, wrote, holds in play.line(var) if holds and not wrote and n != number]
        others = [n for n in others if play.status[n] == "running"]
        if others:
            name = play.program.names[var]
            said.append(f" {some(others)} {_verb('read', others)} {name} at the same time.")
    return "".join(said)


def _may(play: Playback, numbers: Sequence[int]) -> list[str]:
    able = {move.number for move in play.able() if move.begins}
    may = [n for n in numbers if n in able]
    if not may:
        return []
    told = title(play, may[0]) if len(may) == 1 else some(may)
    they = "it needs" if len(may) == 1 else "they need"
    return [f"{told} may begin: nothing that {they} is pending."]


def _must_wait(play: Playback, numbers: Sequence[int]) -> list[str]:
    waiting = [n for n in numbers if play.status[n] == "waiting"]
    if not waiting:
        return []
    first, *others = waiting
    said = [f"{title(play, first)} must wait: {why_not(play, first)}."]
    return said + ([f"And so must {some(others)}."] if others else [])


def _wait_for_a_worker(play: Playback, place: str) -> list[str]:
    able = {move.number for move in play.able() if move.begins}
    ready = [n for n, status in play.status.items() if status == "ready" and n not in able]
    ready = [n for n in ready if play.program.operations[n].place == place]
    if not ready:
        return []
    told = title(play, ready[0]) if len(ready) == 1 else some(ready)
    are, wait = ("is", "waits") if len(ready) == 1 else ("are", "wait")
    return [f"{told} {are} ready and {wait} for a worker."]


def _program(play: Playback) -> list[str]:
    if play.awaited is None:
        return []
    wait, left = play.awaited
    return [f"The program waits at {code_of(wait) or 'a line'} for {some(left)}."]


def some(numbers: Sequence[int] | set[int]) -> str:
    """ "2, 3 and 4"."""
    words = [str(n) for n in sorted(numbers)]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _verb(verb: str, who: Sequence[int]) -> str:
    return verb if len(who) > 1 else f"{verb}s"
