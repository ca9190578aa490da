"""A run as a text: one line for each step, with thread, place, source and what was done."""

from __future__ import annotations

from collections.abc import Iterator

from d2lmini.interleavings.records import Step
from d2lmini.interleavings.scheduler import Run

#: Of a run with more steps, only the ends of each stretch of one thread are shown.
_LONG, _ENDS = 60, 3


def write_story(run: Run) -> str:
    """The steps of `run`. A line before a step says where a thread was interrupted."""
    rows = [_describe_step(step) for step in run.trace]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = []
    for number, (step, shown) in enumerate(zip(run.trace, _select_shown(run), strict=True)):
        if step.preempts:
            lines.append(f"      -- {run.threads[step.after[0]]} is interrupted --")
        if shown > 0:
            thread, place, source, what = rows[number]
            lines.append(
                f"{number + 1:>4}  {thread:<{widths[0]}}  {place:<{widths[1]}}  "
                f"{source:<{widths[2]}}  {what}".rstrip()
            )
        elif shown < 0:
            lines.append(f"      ... {-shown} steps of {step.thread}")
    return "\n".join(lines)


def _describe_step(step: Step) -> tuple[str, str, str, str]:
    operation = step.operation
    what = operation.what
    if operation.target is not step.thread and not what.startswith(("sleeps", "yields")):
        what = f"{what} {operation.target}".strip()
    if step.result:
        what += f": {step.result}"
    source = operation.site.source
    if len(source) > 44:
        source = source[:41] + "..."
    return str(step.thread), str(operation.site), source, what


def _select_shown(run: Run) -> Iterator[int]:
    """For each step 1 if it is shown, -n if a line stands for n steps from here on, else 0."""
    if len(run.trace) <= _LONG:
        yield from (1 for _ in run.trace)
        return
    begin = 0
    while begin < len(run.trace):
        end = begin
        while end < len(run.trace) and run.trace[end].thread is run.trace[begin].thread:
            end += 1
        hidden = end - begin - 2 * _ENDS
        for i in range(begin, end):
            if hidden < 2 or i < begin + _ENDS or i >= end - _ENDS:
                yield 1
            else:
                yield -hidden if i == begin + _ENDS else 0
        begin = end
