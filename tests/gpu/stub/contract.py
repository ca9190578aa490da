"""Every row of the tables of operations and of layers, forward and backward, on gpu(0) of the stub.

    python tests/gpu/stub/run.py contract                 compare with the committed table
    python tests/gpu/stub/run.py contract --write         write the table anew

Shapes and dtypes must be what the array promises before it is there, and what the CPU makes of the
same row; what raises on the GPU must raise on the CPU. Nothing may go to the null stream or
be refused. How many kernels a row launches, and how often
the host waits, must be what `launches.txt` says, of CuPy's version that the table names: a line for
an operation or a layer has the numbers of all its rows, sorted (`2 x3, 5`: three rows of 2, one of
5). A change that alters the table is committed with it, so that the difference is read.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from common import FAULTS, SYNCS, Since, fresh, grouped, quiet, said, stub, table

# isort: split
import cupy
import numpy as np
from agreement import as_list, inputs_of, moving
from gluon_rows import loss, nn, rnn
from gluon_rows.runner import examine_here
from op_rows.table import ROWS, find

from d2lmini import autograd, cpu, engine, gpu

TABLE = Path(__file__).with_name("launches.txt")
NETS = (*nn.ROWS, *rnn.ROWS, *loss.ROWS)


class Table:
    """What rows asked of the stub: for each operation or layer a number of each of its rows.

    launches  kernels
    waits     how often the host waited
    faults    what should not be: {what: names}
    """

    def __init__(self) -> None:
        self.launches: dict[str, list[int]] = defaultdict(list)
        self.waits: dict[str, list[int]] = defaultdict(list)
        self.faults: dict[str, set[str]] = defaultdict(set)

    def add(self, name: str, since: Since) -> None:
        """Count what was asked since then, by a row of that name."""
        self.launches[name].append(since("launch"))
        self.waits[name].append(sum(since.among(SYNCS).values()))
        for what in since.among(FAULTS):
            self.faults[what].add(name)

    def lines(self) -> list[str]:
        """The table as text."""
        return [
            f"{name} | {counted(self.launches[name])} | {counted(self.waits[name])}"
            for name in sorted(self.launches)
        ]


def counted(numbers: list[int]) -> str:
    """Numbers in their order, equal ones together.

    >>> counted([5, 2, 2, 2])
    '2 x3, 5'
    """
    groups = sorted(Counter(numbers).items())
    return ", ".join(f"{number} x{n}" if n > 1 else str(number) for number, n in groups)


def promised(arrays: list, what: str) -> list[tuple]:
    """Shape and dtype of each, as said and as fetched: AssertionError if they differ."""
    promises = [(tuple(x.shape), np.dtype(x.dtype).name) for x in arrays]
    engine.waitall()
    for x, promise in zip(arrays, promises, strict=True):
        values = x.asnumpy()
        came = (values.shape, values.dtype.name)
        assert came == promise, f"{what} promised as {promise} came as {came}"
    return promises


def run(case, ctx, backward: bool, account: Table | None) -> list[tuple] | None:
    """Shapes and dtypes of what a row gives, or of its gradients; None if it has no gradients."""
    fresh()
    with ctx:
        inputs = inputs_of(case)
        places = moving(case, inputs) if backward else []
        if backward and not places:
            return None
        for x in places:
            x.attach_grad()
        engine.waitall()
        since = Since()
        with autograd.record(backward):
            results = as_list(find(case.op)(*inputs, **case.attrs))
        if backward:
            heads = [r for r in results if np.dtype(r.dtype).kind == "f"]
            if not heads:
                return None
            autograd.backward(heads)
        engine.waitall()
        if account is not None:
            account.add(f"{case.op}{' backward' if backward else ''}", since)
        if backward:
            return promised([x.grad for x in places], "a gradient")
        return promised(results, "a result")


def outcome(case, ctx, backward: bool, account: Table | None = None):
    """What `run` gives, or raises."""
    try:
        return run(case, ctx, backward, account)
    except Exception as problem:
        quiet()
        return problem


def examine(only: list[str], account: Table) -> tuple[list[tuple[str, str]], Counter]:
    """All rows of operations: the failures as (what, row), and how many there were of what."""
    failures, rows = [], Counter()
    with engine.use("naive"):
        for case in ROWS:
            if only and case.op not in only:
                continue
            for backward in (False, True) if case.grad else (False,):
                name = f"{case.id}{' backward' if backward else ''}"
                want = outcome(case, cpu(), backward)
                if isinstance(want, Exception):
                    failures.append((f"on the CPU: {said(want)}", name))
                    continue
                if want is None:
                    continue
                rows["backward" if backward else "forward"] += 1
                got = outcome(case, gpu(0), backward, account)
                if isinstance(got, Exception):
                    failures.append((said(got), name))
                elif got != want:
                    failures.append((f"{got}, and on the CPU {want}", name))
    return failures, rows


def examine_nets(account: Table) -> list[tuple[str, str]]:
    """All rows of layers, each called in all its modes, with gradients: the failures."""
    failures = []
    with engine.use("naive"):
        for row in NETS:
            try:
                want = examine_here(row)
            except Exception as problem:
                quiet()
                failures.append((f"on the CPU: {said(problem)}", row.id))
                continue
            fresh()
            since = Since()
            try:
                with gpu(0):
                    got = examine_here(row)
                engine.waitall()
            except Exception as problem:
                quiet()
                failures.append((said(problem), row.id))
                continue
            account.add(f"net {row.build.partition('(')[0]}", since)
            for key in want:
                if key != "about" and (got[key].shape, got[key].dtype) != (
                    want[key].shape,
                    want[key].dtype,
                ):
                    failures.append((f"{key} differs in shape or dtype from the CPU's", row.id))
    return failures


def compare(lines: list[str], write: bool) -> bool:
    """Is the table as it was committed? Prints the lines that are not."""
    head = (
        f"# operation or layer | launches of its rows | waits of its rows; CuPy {cupy.__version__}"
    )
    text = "\n".join([head, *lines]) + "\n"
    if write:
        TABLE.write_text(text, encoding="utf-8")
        print(f"\nwritten: {TABLE.name}, {len(lines)} lines")
        return True
    before = TABLE.read_text(encoding="utf-8").splitlines()
    gone, come = sorted({*before} - {head, *lines}), sorted({head, *lines} - {*before})
    for sign, changed in (("-", gone), ("+", come)):
        for line in changed:
            print(f"  {sign} {line}")
    if before[0] != head:
        print(f"\nNOT COMPARED: the table is of another CuPy: {before[0]}")
        return True
    if gone or come:
        print("\nthe numbers of launches or waits are not those of launches.txt (--write)")
    return not (gone or come)


def main(words: list[str]) -> int:
    begin = time.monotonic()
    account, only = Table(), [word for word in words if word != "--write"]
    failures, rows = examine(only, account)
    if not only:
        failures += examine_nets(account)
    print(", ".join(f"{n} rows {what}" for what, n in rows.items()), end="; ")
    print(f"{len(NETS)} nets; {time.monotonic() - begin:.0f} s; {stub.counts()['launch']} launches")
    table("rows that fail", grouped(failures))
    table("on the null stream, or refused", account.faults)
    waiting = {name for name, waits in account.waits.items() if any(waits)}
    table("what waits", {"streamSynchronize and the like": waiting})
    same = bool(only) or compare(account.lines(), "--write" in words)
    return 0 if same and not failures and not account.faults else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
