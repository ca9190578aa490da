"""Every op against NumPy, from one table (`op_rows/`): values, dtype, shape, errors, gradients; and
against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`)."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
import sys

import mxnet_rows
import numpy as np
import pytest
from op_rows.case import Case
from op_rows.table import (
    GRADIENT_ROWS,
    OP_ROWS,
    ROWS,
    assert_equals_mxnet,
    each,
    expected,
    find,
    run,
    saved_value,
)
from oracle import Oracle, OracleDied

import d2lmini
from d2lmini import autograd, engine, nd
from d2lmini.base import MXNetError
from d2lmini.ops.core import _MISSING, Op, Spec, as_specs, invoke, registry


@each(ROWS)
def test_op_equals_numpy(case: Case):
    got, want = run(case), expected(case)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=case.rtol, atol=case.atol)


@each([case for case in ROWS if case.mxnet])
def test_op_equals_mxnet(case: Case, mxnet: Oracle):
    try:
        theirs = mxnet.ask(mxnet_rows.call_op, case.op, case.inputs, case.attrs)
    except OracleDied as problem:
        pytest.skip(f"MXNet crashes on this row: {problem}")
    assert_equals_mxnet(run(case), theirs, case)


@each(ROWS)
def test_queued_and_serial_execution_agree_to_the_bit(case: Case):
    """Inline, queued and on the naive engine: one result."""
    d2lmini.random.seed(7)
    inline = run(case)
    for kind, options in (("threaded", {"inline_below": 0.0, "workers": 3}), ("naive", {})):
        with engine.use(kind, **options):
            d2lmini.random.seed(7)
            for a, b in zip(inline, run(case), strict=True):
                assert a.tobytes() == b.tobytes()


@each([case for case in OP_ROWS if find(case.op).outputs == 1 and not find(case.op).random])
def test_what_out_held_is_overwritten_inline_and_queued(case: Case):
    """`out=` gives what a call without it gives, to the bit, whatever was there before."""
    want = run(case)
    for filler in (0, 1):
        for options in ({}, {"inline_below": 0.0}):
            with engine.use("threaded", **options):
                inputs = [
                    nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i
                    for i in case.inputs
                ]
                out = nd.full(want[0].shape, filler, dtype=want[0].dtype)
                find(case.op)(*inputs, out=out, **case.attrs)
                assert out.asnumpy().tobytes() == want[0].tobytes(), (filler, options)


@each(OP_ROWS)
def test_declaration_keeps_its_word(case: Case):
    """`infer` predicted what came; the cost is a number; the inputs are as they were."""
    op = find(case.op)
    given = [nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i for i in case.inputs]
    bound, attrs = op.bind(tuple(given), dict(case.attrs))
    before = [None if x is None else x.asnumpy() for x in bound]
    specs = [Spec(x.shape, x.dtype) for x in bound if x is not None]
    inferred = as_specs(op.infer(*specs, **attrs))
    results = invoke(op, bound, attrs)
    results = results if isinstance(results, list) else [results]
    # Outputs that only backward needs are inferred and not shown.
    shown = inferred[: len(results)]
    assert [(s.shape, s.dtype) for s in shown] == [(r.shape, r.dtype) for r in results]
    assert [r.asnumpy().dtype for r in results] == [s.dtype for s in shown]
    cost = op.cost(specs, **attrs)
    assert cost.flops >= 0 and cost.nbytes >= 0
    mutated = op.mutates(len(bound), attrs) if callable(op.mutates) else op.mutates
    for i, (x, values) in enumerate(zip(bound, before, strict=True)):
        if x is not None and i not in mutated:
            assert x.asnumpy().tobytes() == values.tobytes(), "an input was changed"


@each(GRADIENT_ROWS)
def test_gradient_rule_agrees_with_differences(case: Case):
    """Along a random direction, in float64: <g, J v> by central differences = <rule(g), v>."""
    op = find(case.op)
    rng = np.random.default_rng(3)
    arrays = [a.astype("float64") if a.dtype.kind == "f" else a for a in case.inputs]
    inputs, attrs = op.bind(tuple(nd.array(a, dtype=a.dtype) for a in arrays), dict(case.attrs))
    attrs = dict(attrs)  # the op remembers its own
    for name in ("dtype",):
        if attrs.get(name) is not None and np.dtype(attrs[name]).kind == "f":
            attrs[name] = np.dtype("float64")
    moving = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    directions = {i: rng.uniform(-1, 1, arrays[i].shape) for i in moving}

    def outputs(step: float) -> list[np.ndarray]:
        moved = list(inputs)
        for i in moving:
            moved[i] = nd.array(arrays[i] + step * directions[i], dtype="float64")
        result = invoke(op, tuple(moved), attrs)
        return [r.asnumpy() for r in (result if isinstance(result, list) else [result])]

    results = invoke(op, inputs, attrs)
    results = results if isinstance(results, list) else [results]
    if any(r.dtype not in (np.float64,) for r in results[:1]):
        pytest.skip("the output is not floating")
    heads = [rng.uniform(-1, 1, r.shape) for r in results]
    g = [nd.array(h, dtype=r.dtype) for h, r in zip(heads, results, strict=True)]
    saved = [saved_value(op, place, part, inputs, results) for place, part in op.keeps]
    needs = tuple(a.dtype.kind == "f" for a in arrays)
    grads = list(op.gradients(g[0] if len(g) == 1 else g, saved, attrs, needs))
    grads += [None] * (len(inputs) - len(grads))

    step = 1e-5
    plus, minus = outputs(step), outputs(-step)
    numeric = sum(
        (h * (p.astype("float64") - m)).sum() / (2 * step)
        for h, p, m in zip(heads, plus, minus, strict=True)
    )
    analytic = 0.0
    for i in moving:
        if grads[i] is not None:
            assert grads[i].shape == inputs[i].shape
            assert grads[i].dtype == inputs[i].dtype
            analytic += (grads[i].asnumpy() * directions[i]).sum()
    np.testing.assert_allclose(analytic, numeric, rtol=2e-4, atol=1e-6)


def test_every_op_declares_a_gradient_or_that_it_has_none():
    forgotten = sorted({op.name for op in registry.values() if op.rule is _MISSING})
    assert not forgotten, f"declare a gradient rule or grad=None: {forgotten}"


def test_every_op_has_a_row():
    tested = {find(case.op).name for case in ROWS if isinstance(find(case.op), Op)}
    # Ops without inputs are called through functions of nd: arange makes `_arange`.
    indirect = {f"_{case.op}" for case in ROWS if not case.inputs}
    indirect |= {"_setitem"}  # no outputs: test_indexing.py
    indirect |= {"_fused_update", "_scale_arrays"}  # no outputs: test_optimizer.py
    drawn = {op.name for op in registry.values() if op.random}  # test_random.py
    missing = sorted({op.name for op in registry.values()} - tested - indirect - drawn)
    assert not missing, f"add rows for: {missing}"


def test_the_contents_page_of_ops_leaves_no_file_out():
    modules = {module.name for module in pkgutil.iter_modules(d2lmini.ops.__path__)}
    modules -= {"symbolic", "shown"}  # for the compiler, and for pictures, which import them
    unread = sorted(m for m in modules if f"d2lmini.ops.{m}" not in sys.modules)
    assert not unread, f"import them in ops/__init__.py: {unread}"


def test_every_op_has_a_docstring():
    bare = sorted({op.name for op in registry.values() if not (op.__doc__ or "").strip()})
    assert not bare, f"say what they do: {bare}"


def test_examples_in_the_docstrings_of_ops_run():
    finder, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    ops = {op.name: op.__doc__ or "" for op in registry.values()}
    for name, text in ops.items():
        runner.run(finder.get_doctest(inspect.cleandoc(text), {"nd": nd}, name, None, None))
    failed, tried = runner.summarize(verbose=False)
    assert not failed and tried > 25


def test_rows_that_real_mxnet_does_not_get_say_why():
    silent = sorted({case.id for case in ROWS if not case.mxnet and not case.why})
    assert not silent, f"compare them, or say why not: {silent}"


@pytest.mark.parametrize(
    "call",
    [
        nd.shuffle,
        lambda x: nd.Embedding(x, nd.ones((3, 2)), input_dim=3, output_dim=2),
    ],
)  # fmt: skip
def test_what_mxnet_does_not_differentiate_is_an_error_in_backward(call):
    x = nd.ones((2, 2))
    x.attach_grad()
    with autograd.record():
        y = call(x)
    with pytest.raises(MXNetError, match=r"non-differentiable|has no gradient"):
        y.backward()
