"""Rows of gluon nets, run by the library and by the real MXNet, and compared.

A table is a list of `Row`s. `compare(row, examine_here(row), examine_in(mxnet, row))` is the whole
test of a row against MXNet (`test_gluon_rows.py`). `check_gradients(row, mode)` is the test that
needs no MXNet: gradients of all inputs and parameters along random directions against differences,
in float64. What is done to a row, and the keys of the result, are in `peer.examine`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from oracle import Oracle

from gluon_rows import peer


@dataclass(frozen=True)
class Row:
    """One net and what it is called with; the expressions are evaluated in both libraries.

    build       gives the net; may use mx, nd, np, gluon, nn, rnn, loss, autograd
    inputs      NumPy arrays, or shapes that stand for seeded float32 numbers in [-2, 2)
    call        the call, of `net` and the list `x` of its inputs; may give nested lists
    modes       'train' and 'predict' (recorded, with gradients), 'infer' (not recorded)
    dtype       what the net is cast to, and drawn inputs are
    constant    numbers of the inputs that no gradient is asked for (integers never have one)
    grad        False leaves the row out of `check_gradients` (kinks, random numbers, float16)
    mxnet       False leaves the row out of the comparison; the reason is in `why`
    differs     parts of keys (see `peer.examine`) that are not compared; the reason is in `why`
    is_np       run with `np.ndarray`s, after `npx.set_np()`
    """

    build: str
    inputs: tuple = ((2, 3),)
    call: str = "net(*x)"
    modes: tuple[str, ...] = ("train", "predict", "infer")
    dtype: str = "float32"
    constant: tuple[int, ...] = ()
    rtol: float = 1e-4
    atol: float = 1e-5
    grad: bool = True
    mxnet: bool = True
    differs: tuple[str, ...] = ()
    why: str = ""
    is_np: bool = False

    @property
    def id(self) -> str:
        """A readable test name."""
        shapes = "_".join("x".join(map(str, a.shape)) or "scalar" for a in self.arrays())
        call = "" if self.call == "net(*x)" else "-" + self.call
        kind = "" if self.dtype == "float32" else "-" + self.dtype
        space = "-np" if self.is_np else ""
        return f"{self.build}{call}-{shapes}{kind}{space}".replace(" ", "")

    def arrays(self, dtype: str | None = None) -> list[np.ndarray]:
        """The inputs as arrays; floating ones as `dtype` if that is given."""
        arrays = []
        for i, input_ in enumerate(self.inputs):
            if isinstance(input_, tuple):
                input_ = peer.draw(input_, 50 + i, -2, 2).astype(self.dtype)
            arrays.append(input_.astype(dtype) if dtype and peer.differentiable(input_) else input_)
        return arrays

    def plain(self) -> dict[str, Any]:
        """The fields that travel to the other interpreter."""
        fields = {**asdict(self), "n_inputs": len(self.inputs)}
        del fields["inputs"]
        return fields


def examine_here(row: Row) -> dict[str, Any]:
    """What this library says to a row."""
    import d2lmini

    return peer.examine(d2lmini, row.plain(), row.arrays())


def examine_in(mxnet: Oracle, row: Row) -> dict[str, Any]:
    """What MXNet says to a row."""
    return mxnet.ask(peer.examine, row.plain(), row.arrays())


def compare(row: Row, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Assert that both said the same: names, shapes, dtypes, repr, and all numbers."""
    assert mine.keys() == theirs.keys()
    assert json.loads(mine["about"]) == json.loads(theirs["about"])
    for key in mine.keys() - {"about"}:
        if any(part in key for part in row.differs):
            continue
        assert mine[key].shape == theirs[key].shape, key
        assert mine[key].dtype == theirs[key].dtype, key
        np.testing.assert_allclose(
            mine[key].astype("float64"), theirs[key].astype("float64"),
            rtol=row.rtol, atol=row.atol, err_msg=f"{row.build}: {key}",
        )  # fmt: skip


def check_gradients(row: Row, mode: str, step: float = 1e-6, tolerance: float = 1e-5) -> int:
    """Assert that the gradients of inputs and parameters, each along a random direction, are the
    slopes of differences; how many were checked.

    The quantity is the sum of all outputs, weighted with the head gradients of `peer.run`. In
    float64: the net is cast, and floating inputs are drawn so.
    """
    import d2lmini as mx

    scope = peer.names(mx)
    plain = row.plain()
    net = eval(row.build, scope)
    parameters = []
    if hasattr(net, "initialize"):
        net.initialize()
        net.cast("float64")
    inputs = row.arrays("float64")
    xs = [mx.nd.array(a, dtype=a.dtype) for a in inputs]
    peer.forward(scope, plain, net, xs)
    if hasattr(net, "collect_params"):
        parameters = list(net.collect_params().values())
    got = peer.run(mx, scope, plain, net, parameters, inputs, mode)

    def quantity() -> float:
        mx.random.seed(0)
        with mx.autograd.record(train_mode=mode == "train"):
            heads = peer.forward(scope, plain, net, xs)
        weights = [peer.draw(h.shape, 100 + i) for i, h in enumerate(heads)]
        return float(sum((h.asnumpy() * w).sum() for h, w in zip(heads, weights, strict=True)))

    def slope(value: np.ndarray, put: Any, direction: np.ndarray) -> float:
        ends = []
        for sign in (1, -1):
            put(mx.nd.array(value + sign * step * direction, dtype="float64"))
            ends.append(quantity())
        put(mx.nd.array(value, dtype="float64"))
        return (ends[0] - ends[1]) / (2 * step)

    checked = 0
    for key, gradient in got.items():
        part, _, which = key.partition("/")
        if part not in ("in", "grad"):
            continue
        i = int(which.partition(":")[0])
        direction = peer.draw(gradient.shape, 200 + i)
        if part == "in":
            expected = slope(inputs[i], lambda v, i=i: xs.__setitem__(i, v), direction)
        else:
            value = parameters[i].data().asnumpy()
            expected = slope(value, parameters[i].set_data, direction)
        np.testing.assert_allclose(
            float((gradient * direction).sum()), expected,
            rtol=tolerance, atol=tolerance, err_msg=f"{row.build}: {mode}/{key}",
        )  # fmt: skip
        checked += 1
    return checked
