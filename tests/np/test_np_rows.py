"""Every row of `np_rows` here, in NumPy and in the real MXNet 1.9.1 (where one is at hand): values,
shapes, dtypes, errors; gradients; hybridized; queued; on a device."""

from __future__ import annotations

import builtins
import re

import numpy as onp
import pytest
from gpu_kinds import some_gpus
from np_rows import evaluate
from np_rows.case import Row
from np_rows.table import ROWS
from oracle import Oracle, OracleDied, OracleError
from rows import by, over

import d2lmini as mx
from d2lmini import autograd, engine, np, npx
from d2lmini.base import MXNetError
from d2lmini.gluon import HybridBlock
from d2lmini.symbol import NotImplementedForSymbol

ERRORS = {"MXNetError": MXNetError, "Exception": Exception}


def each(rows: list[Row]):
    """A test of each name under test."""
    return over("row", by(lambda row: row.name, rows), name=lambda row: row.id)


def run(row: Row) -> list:
    """What the row gives here, part by part."""

    def make(values, kind):
        return np.array(values, dtype=values.dtype)

    return evaluate.flatten(evaluate.evaluate(row.text, make, np=np, npx=npx, autograd=autograd))


def plain(parts: list) -> list[tuple]:
    return [evaluate.plain(part) for part in parts]


def assert_equal(ours: tuple, theirs: tuple, row: Row, dtype: bool = True) -> None:
    """Two parts, (kind, value) each: arrays of one shape and dtype, or the same of another kind."""
    (kind, value), (other, wanted) = ours, theirs
    if isinstance(wanted, (str, type(None), type)):
        assert value == wanted
        return
    assert onp.shape(value) == onp.shape(wanted)
    if "array" in (kind, other):
        assert kind == other
        if dtype:
            assert value.dtype == wanted.dtype
    loose = {"float16": 2e-3}.get(str(getattr(value, "dtype", "")), 0)
    rtol, atol = max(row.rtol, loose), max(row.atol, loose)
    onp.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol)


FINE = [row for row in ROWS if not row.error]


@each([row for row in FINE if row.numpy])
def test_equals_numpy(row: Row):
    text = row.text
    if isinstance(row.numpy, str):
        text = row.numpy if "(" in row.numpy else text.replace(f"np.{row.name}", row.numpy, 1)
    with onp.errstate(all="ignore"):
        value = evaluate.evaluate(text, lambda values, kind: values, np=onp)
    wanted = evaluate.flatten(value)
    found = plain(run(row))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted):
        kind = "array" if ours[0] == "array" else type(theirs).__name__
        assert_equal(ours, (kind, theirs), row, dtype=False)
        if ours[0] == "array":
            assert ours[1].dtype.kind == onp.asarray(theirs).dtype.kind


@each(ROWS)
def test_equals_mxnet(row: Row, mxnet: Oracle):
    """Equal, or both refuse; where the row says why not, it is indeed not so."""
    try:
        theirs, _ = mxnet.ask(evaluate.answer, row.text)
    except OracleDied as problem:
        pytest.skip(f"MXNet crashes on this row: {problem}")
    except OracleError:
        theirs = None
    if row.error:
        assert (theirs is None) == (not row.mxnet), "refused by both, or the row says why not"
        return
    ours = plain(run(row))
    if row.mxnet:
        assert theirs is None or not _alike(ours, theirs, row), "MXNet agrees by now"
        return
    assert theirs is not None, "MXNet refuses this"
    assert len(ours) == len(theirs)
    for mine, yours in zip(ours, theirs):
        assert_equal(mine, yours, row)


def _alike(ours: list, theirs: list, row: Row) -> bool:
    try:
        for mine, yours in zip(ours, theirs, strict=True):
            assert_equal(mine, yours, row)
    except (AssertionError, ValueError):
        return False
    return True


@each([row for row in ROWS if row.error])
def test_refused(row: Row):
    """The error is of this class, names something, and the engine works afterwards."""
    error = ERRORS.get(row.error) or getattr(builtins, row.error)
    with pytest.raises(error) as caught:
        plain(run(row))
    assert str(caught.value)


# -- gradients -------------------------------------------------------------------------------------

#: An array of floats, and any array, in the text of a row.
FLOAT, DRAWN = re.compile(r"\b[fpuds]\("), re.compile(r"\b[fpuldhsnikbq]\(")

SMOOTH = [row for row in FINE if row.grad and FLOAT.search(row.text)]


def gradients(row: Row, dtype: str | None):
    """The value, the weights, the inputs and their gradients here; floats in `dtype`, if given."""
    inputs = []

    def make(values, kind):
        floats = kind in evaluate.FLOATS
        x = np.array(values, dtype=dtype if floats and dtype else values.dtype)
        if floats:
            x.attach_grad()
            inputs.append(x)
        return x

    with autograd.record():
        found = evaluate.evaluate(row.text, make, np=np, npx=npx, autograd=autograd)
    parts = evaluate.flatten(found)
    rng = onp.random.default_rng(len(row.text))
    weights = [
        rng.uniform(-1, 1, y.shape).astype(y.dtype)
        if isinstance(y, np.ndarray) and y.dtype.kind == "f" else None for y in parts
    ]  # fmt: skip
    pairs = [(y, np.array(w, dtype=w.dtype)) for y, w in zip(parts, weights) if w is not None]
    autograd.backward([y for y, _ in pairs], [w for _, w in pairs])
    return weights, inputs, [x.grad.asnumpy() for x in inputs]


@each([row for row in SMOOTH if row.name not in ("npx.dropout", "npx.batch_norm", "x.detach")])
def test_gradient_equals_differences(row: Row):
    """In float64, along a random direction. (Some differ on purpose outside of `record`.)"""
    weights, inputs, grads = gradients(row, "float64")
    rng = onp.random.default_rng(7)
    steps = [rng.uniform(-1, 1, x.shape) for x in inputs]

    def loss(distance: float) -> float:
        moved = iter(zip(inputs, steps))

        def make(values, kind):
            if kind not in evaluate.FLOATS:
                return np.array(values, dtype=values.dtype)
            x, step = next(moved)
            return np.array(x.asnumpy() + distance * step)

        found = evaluate.evaluate(row.text, make, np=np, npx=npx, autograd=autograd)
        pairs = zip(evaluate.flatten(found), weights)
        return sum(float((y.asnumpy() * w).sum()) for y, w in pairs if w is not None)

    h = 1e-5
    slope = (loss(h) - loss(-h)) / (2 * h)
    along = sum(float((g * step).sum()) for g, step in zip(grads, steps))
    onp.testing.assert_allclose(along, slope, rtol=1e-4, atol=1e-6)


@each([row for row in SMOOTH if not row.mxnet and not row.slope])
def test_gradient_equals_mxnet(row: Row, mxnet: Oracle):
    weights, _, grads = gradients(row, None)
    try:
        _, theirs = mxnet.ask(evaluate.answer, row.text, weights)
    except OracleError as problem:
        pytest.skip(f"MXNet has no gradient here: {str(problem).strip().splitlines()[-1]}")
    for ours, wanted in zip(grads, theirs, strict=True):
        assert ours.dtype == wanted.dtype
        loose = {"float16": 1e-2}.get(str(ours.dtype), 0)
        onp.testing.assert_allclose(
            ours, wanted, rtol=max(10 * row.rtol, loose), atol=max(10 * row.atol, loose)
        )


# -- the other ways to run -------------------------------------------------------------------------


@each(FINE)
def test_hybridized_equals_eager(row: Row):
    """The same in a net that is compiled; TypeError names what a graph cannot do."""
    inputs = []

    def make(values, kind):
        inputs.append(np.array(values, dtype=values.dtype))
        return inputs[-1]

    eager = plain(
        evaluate.flatten(evaluate.evaluate(row.text, make, np=np, npx=npx, autograd=None))
    )
    if not inputs or any(kind != "array" for kind, _ in eager):
        return

    class Net(HybridBlock):
        def hybrid_forward(self, F, *values):
            given = iter(values)
            return evaluate.flatten(
                evaluate.evaluate(
                    row.text, lambda drawn, kind: next(given), np=F.np, npx=F.npx, autograd=None
                )
            )

    net = Net()
    net.hybridize()
    with mx.util.np_array(), mx.util.np_shape():
        if not row.traced:
            with pytest.raises(NotImplementedForSymbol, match=r"np\.\w+|hybridized"):
                net(*inputs)
            return
        found = [net(*inputs), net(*inputs)][1]
    for ours, wanted in zip(plain(evaluate.flatten(found)), eager, strict=True):
        assert_equal(ours, wanted, row)


@each([row for row in FINE if row.traced])
def test_queued_and_serial_execution_agree(row: Row):
    mx.random.seed(3)
    inline = plain(run(row))
    for kind, options in (("threaded", {"inline_below": 0.0, "workers": 2}), ("naive", {})):
        with engine.use(kind, **options):
            mx.random.seed(3)
            for ours, wanted in zip(plain(run(row)), inline, strict=True):
                assert ours[0] == wanted[0]
                onp.testing.assert_array_equal(ours[1], wanted[1])


@pytest.mark.law
@each(FINE[::5])
def test_on_a_device(row: Row, gpu_kind):
    """Arrays that come of arrays on a device are there, too."""
    wanted = plain(run(row))
    with some_gpus(gpu_kind, 2) as gpus:
        with gpus[1]:
            found = run(row)
        for part in found:
            if isinstance(part, np.ndarray) and DRAWN.search(row.text):
                assert part.ctx == gpus[1]
        for ours, theirs in zip(plain(found), wanted, strict=True):
            if ours[0] != "str":
                assert_equal(ours, theirs, row)
