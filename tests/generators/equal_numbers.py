"""Calls whose numbers are equal but differ, one after the other: 0.0 and -0.0, 1 and True.

What a call keeps for later ones (attributes, plans, kernels, launches) is found by equality. So the
second call of a pair must not get what the first one left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from d2lmini import nd
from d2lmini.device.errstate import run_quietly
from d2lmini.ops.core import Op, registry
from d2lmini.ops.signature import converter_of

EQUAL = [(0, 0.0, -0.0, False), (1, 1.0, True), (-1, -1.0)]
POINTS = np.array([1.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 0.5])


def ops_with_a_number() -> list[tuple[Op, str]]:
    """Each op of one array with an attribute that keeps the kind of a number, and its name."""
    keeps = converter_of("Number")
    return [
        (op, name)
        for op in dict.fromkeys(registry.values())
        for name, converter in op.converters.items()
        if converter is keeps and op.input_names == ("data",)
    ]


def pairs() -> Iterator[tuple[Any, Any]]:
    """Equal numbers that differ, in both orders."""
    for group in EQUAL:
        yield from permutations(group, 2)


def check(op: Op, name: str, ctx: Any, dtype: str, times: int = 3) -> None:
    """AssertionError where a call's bits are not those of the op's own kernel on NumPy arrays.

    The attributes come as an operator gives them, and as a call by name."""
    points = (POINTS if "float" in dtype else POINTS[np.isfinite(POINTS)]).astype(dtype)
    x = nd.array(points, ctx=ctx, dtype=dtype)
    others = {word: 2 for word in op.required if word != name}
    for pair in pairs():
        for is_bound in (False, True):
            op.plans.clear()
            for number in pair:
                attrs = {**op.defaults, **others, name: number}
                want = run_quietly(partial(op.compute, np, points, **attrs)).tolist()
                for _ in range(times):
                    got = op(x, **attrs) if is_bound else x._apply(op, (x,), attrs)
                    # The texts differ where zeros have other signs, and nan is nan.
                    assert str(got.asnumpy().tolist()) == str(want), (op.name, pair, number)
