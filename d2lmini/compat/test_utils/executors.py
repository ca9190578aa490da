"""Helpers of tests around executors, graphs and iterators.

>>> from d2lmini import sym, test_utils
>>> x, y = sym.var("x"), sym.var("y")
>>> test_utils.same_symbol_structure(x + 1, y + 1), test_utils.same_symbol_structure(x + 1, -x)
(True, False)
>>> test_utils.check_speed(sym.tanh(x), N=2, typ="forward", x=(2, 3)) > 0    # seconds a run
True
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.compat.executor import Executor
from d2lmini.compat.io import DataBatch, DataIter
from d2lmini.compat.test_utils.environment import default_context
from d2lmini.context import Context
from d2lmini.symbol import Symbol


class DummyIter(DataIter):
    """An iterator that gives the first batch of `real_iter` without end: for measuring speed."""

    def __init__(self, real_iter: Any):
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """True if two graphs have the same operators, node by node."""
    one, two = ([node["op"] for node in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return one == two


def numeric_grad(
    executor: Executor,
    location: Any,
    aux_states: Any = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """The gradients of the executor's first output, summed, by central differences: for each
    argument (f(x + eps/2) - f(x - eps/2)) / eps. location, aux_states: NumPy arrays, by name or in
    the order of the executor's."""
    places = _by_name(executor.arg_dict, location)
    for name, value in places.items():
        executor.arg_dict[name][:] = value
    for name, value in _by_name(executor.aux_dict, aux_states or {}).items():
        executor.aux_dict[name][:] = value

    def value_at(name: str, x: np.ndarray) -> float:
        executor.arg_dict[name][:] = x
        output = executor.forward(is_train=use_forward_train)[0]
        return float(output.asnumpy().astype(float).sum())

    gradients = {}
    for name, given in places.items():
        x = np.array(given, dtype=dtype)
        gradients[name] = central_differences(partial(value_at, name), x, eps).astype(dtype)
        executor.arg_dict[name][:] = x
    return gradients


def central_differences(
    value_at: Callable[[np.ndarray], float], x: np.ndarray, eps: float
) -> np.ndarray:
    """The gradient of a function at `x`, float64: (f(x + eps/2) - f(x - eps/2)) / eps for each
    element."""
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[place] += eps / 2
        low[place] -= eps / 2
        step = float(high[place]) - float(low[place])  # eps after rounding
        gradient[place] = (value_at(high) - value_at(low)) / step
    return gradient


def _by_name(arrays: Mapping[str, Any], given: Any) -> dict[str, Any]:
    return dict(given if isinstance(given, Mapping) else zip(arrays, given, strict=True))


def check_speed(
    sym: Any,
    location: Mapping[str, Any] | None = None,
    ctx: Context | None = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """The seconds that a run of the Symbol takes, on average over N runs after a first one.

    location: the inputs by name; without it the shapes come by name, and the numbers are random.
    typ: 'whole' for forward and backward, 'forward' for forward alone; ValueError otherwise.
    """
    if typ not in ("whole", "forward"):
        raise ValueError(f"check_speed: typ is 'whole' or 'forward', got {typ!r}")
    shapes = kwargs if location is None else {k: v.shape for k, v in location.items()}
    executor = sym.simple_bind(grad_req=grad_req or "write", ctx=ctx or default_context(), **shapes)
    if location is None:
        location = {k: np.random.normal(size=v.shape) for k, v in executor.arg_dict.items()}
    for name, value in location.items():
        executor.arg_dict[name][:] = value

    def run() -> None:
        outputs = executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(out_grads=outputs)

    run()
    engine.waitall()
    begin_s = time.perf_counter()
    for _ in range(N):
        run()
    engine.waitall()
    return (time.perf_counter() - begin_s) / N
