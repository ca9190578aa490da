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
3 c = a * 3 begins on cpu 2: it reads a, writes c.
4 a += 1 must wait: 2 and 3 still read a.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from d2lmini.engine.operation import Operation
from d2lmini.widgets.stepper_play import Playback


def why_not(play: Playback, number: int) -> str:
    """Why an operation does not begin now; "" if it may."""
    status, operation = play.status(number), play.program.operations[number - 1]
    if status == "later":
        if operation.by:
            return f"{operation.by} issues it when it begins"
        return f"the program has not issued it: it {_stands(play)}"
    if status == "waiting":
        return "; ".join(_name_holders(play, *ahead) for ahead in play.ahead(number))
    if status == "ready":
        if (number, True) in play.able():
            return ""
        workers = play.program.workers[operation.place]
        return f"it is ready, but {' and '.join(workers)} {'are' if workers[1:] else 'is'} busy"
    worker = play.jobs[number - 1].worker
    return f"it runs on {worker}" if status == "running" else f"it is {status}"


def _name_holders(play: Playback, var: int, those: list[tuple[int, bool]]) -> str:
    """ "2 and 3 still read a; 4 has yet to write a"."""
    parts, name = [], play.program.names[var]
    for verb, writes in (("read", False), ("write", True)):
        found = [n for n, wrote in those if wrote == writes]
        at_work = [n for n in found if play.jobs[n - 1].began >= 0]
        yet = [n for n in found if n not in at_work]
        if at_work:
            parts.append(f"{some(at_work)} still {verb}{'' if at_work[1:] else 's'} {name}")
        if yet:
            parts.append(f"{some(yet)} {'have' if yet[1:] else 'has'} yet to {verb} {name}")
    return "; ".join(parts)


def beginning(play: Playback) -> list[str]:
    """The state before the first move, in words."""
    issued = [n for n, status in play.statuses().items() if status != "later"]
    count = "1 operation" if len(issued) == 1 else f"{len(issued)} operations"
    said = [f"The program has issued {count}; none has begun."]
    return said + _may(play, issued) + _must_wait(play, issued) + _program(play)


def step(play: Playback, number: int | None = None) -> list[str]:
    """Make a move (see `Playback.step`) and describe it; [] if there was none."""
    before = play.statuses()
    move = play.step(number)
    if move is None:
        return []
    program, n, after = play.program, move.number, play.statuses()
    operation, told = program.operations[n - 1], program.titles[n - 1]
    issued = [k for k, status in before.items() if status == "later" != after[k]]
    line = {k for var in (*operation.reads, *operation.writes) for k, _, _ in play.line(var)}
    waiting = [k for k in sorted(line) if after[k] == "waiting"]
    if move.begins:
        said = [f"{told} begins on {play.jobs[n - 1].worker}: {_uses(play, operation)}"]
        said += [f"It issues {some(issued)}."] if issued else []
        return said + _must_wait(play, [k for k in waiting if play.waits_only_for_running(k)])
    how = {"failed": " with an error", "skipped": ", skipped: what it needs is missing"}
    said = [f"{told} ends at {play.now_us:.4g} us{how.get(operation.status, '')}."]
    if issued:
        said.append(f"The program has what it waited for, and issues {some(issued)}.")
    elif "later" in after.values() or not play.able():
        said += _program(play)
    freed = [k for k, status in after.items() if status == "ready" and before[k] == "waiting"]
    said += _may(play, freed + issued) + _must_wait(play, waiting)
    if not play.able():
        said.append(f"All is over. They began in the order {', '.join(map(str, play.order))}.")
    return said


def _uses(play: Playback, operation: Operation) -> str:
    """ "it reads a, writes c."."""
    names, reads, writes = play.program.names, operation.reads, operation.writes
    parts = {
        "reads": [names[var] for var in reads if var not in writes],
        "writes": [names[var] for var in writes if var not in reads],
        "changes": [names[var] for var in writes if var in reads],
    }
    does = ", ".join(f"{verb} {', '.join(those)}" for verb, those in parts.items() if those)
    return f"it {does or 'runs'}."


def _may(play: Playback, numbers: Sequence[int]) -> list[str]:
    may = [n for n in numbers if (n, True) in play.able()]
    if not may:
        return []
    who = some(may) if may[1:] else play.program.titles[may[0] - 1]
    they = "they need" if may[1:] else "it needs"
    return [f"{who} may begin: nothing that {they} is pending."]


def _must_wait(play: Playback, numbers: Sequence[int]) -> list[str]:
    waiting = [n for n in numbers if play.status(n) == "waiting"]
    if not waiting:
        return []
    first, *others = waiting
    said = [f"{play.program.titles[first - 1]} must wait: {why_not(play, first)}."]
    return said + ([f"And so must {some(others)}."] if others else [])


def _program(play: Playback) -> list[str]:
    return [f"The program {_stands(play)}."] if play.awaited else []


def _stands(play: Playback) -> str:
    assert play.awaited is not None
    wait, left = play.awaited
    return f"waits at {wait.line or 'a line'} for {some(left)}"


def some(numbers: Iterable[int]) -> str:
    """ "2, 3 and 4"."""
    words = [str(n) for n in sorted(numbers)]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
