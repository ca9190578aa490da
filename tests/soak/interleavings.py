"""The engine in every order that it allows, for every small program there is.

    python tests/soak/interleavings.py --operations 3 --arrays 2

A program is a row of operations, each of which reads some of the arrays and writes one of them:
fresh, or in place. All programs of so many operations over so many arrays are made, but for those
that are another one with its arrays renamed. Each is run in every legal order of the stepped
engine, if there are not more than `--most`, and with the operations beginning and ending between
the pushes. All must give, to the bit, what the serial engine gives.

>>> programs = list(all_programs(2, 2))
>>> len(programs), programs[0]
(18, ((0, (), True), (0, (), True)))
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from legal_orders import explore

from d2lmini import nd

#: What an operation writes, what else it reads, and does it keep what was there (in place)?
Operation = tuple[int, tuple[int, ...], bool]
Program = tuple[Operation, ...]


def all_programs(operations: int, arrays: int) -> Iterator[Program]:
    """Every program once, whatever its arrays are called: the first that is named is 0, the next
    new one 1, and so on."""
    others = [subset for k in range(arrays) for subset in itertools.combinations(range(arrays), k)]
    kinds = [
        (target, reads, in_place)
        for target in range(arrays)
        for reads in others
        for in_place in (True, False)
        if target not in reads and (in_place or reads)  # writing what nobody gave is no operation
    ]
    for program in itertools.product(kinds, repeat=operations):
        named = [x for target, reads, _ in program for x in (*reads, target)]
        if list(dict.fromkeys(named)) == list(range(len(set(named)))):
            yield program


def run(program: Program, arrays: int) -> list[np.ndarray]:
    """The arrays after the program. Its operations do not commute: a wrong order shows."""
    held = [nd.array([i + 1.0, -i]) for i in range(arrays)]
    for step, (target, reads, in_place) in enumerate(program):
        total = held[target] * 3 if in_place else nd.zeros((2,))
        for k in reads:
            total = total + held[k] * (k + 2)
        total = total + (step + 1)
        if in_place:
            held[target][:] = total
        else:
            total.copyto(held[target])
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=3)
    parser.add_argument("--arrays", type=int, default=2)
    parser.add_argument("--most", type=int, default=100_000, help="orders of one program")
    parser.add_argument(
        "--minutes", type=float, default=60, help="then stop and say how far it got"
    )
    asked = parser.parse_args()
    began_s, orders, wrong, done = time.monotonic(), 0, 0, 0
    programs = list(all_programs(asked.operations, asked.arrays))
    for program in programs:
        if time.monotonic() - began_s > 60 * asked.minutes:
            break
        found = explore(partial(run, program, asked.arrays), asked.most)
        orders += found.orders
        if found.wrong:
            wrong += 1
            print(f"{program}\n{found.wrong}")
        done += 1
    print(
        f"{done} of {len(programs)} programs of {asked.operations} operations over {asked.arrays} "
        f"arrays: {orders} orders in {time.monotonic() - began_s:.0f} s, {wrong} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
