"""Every op on CuPy's arrays (the fake's): what it gives equals what it gives on NumPy's.

The rows are those of `op_rows/`. `Eager` is the simplest kind of value there can be, an array and
the module that computes with it: an op is computed where it is called, and gradient rules, which
are written in ops, run on it too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fakes.cupy_arrays import no_host_sync
from fakes.cupy_module import cupy
from op_rows.case import Case
from op_rows.table import GRADIENT_ROWS, OP_ROWS, each, find, saved_value

from d2lmini.base import MXNetError
from d2lmini.cuda.kernels import random_numbers as kernels
from d2lmini.device import parallel
from d2lmini.ops import random_state
from d2lmini.ops.core import Op, as_specs, registry
from d2lmini.ops.fluent import Fluent
from d2lmini.ops.kernels import kernel_for, kind_of
from d2lmini.ops.random_ops import draw
from d2lmini.ops.spec import Spec


class Eager(Fluent):
    """An array of NumPy or CuPy to which ops apply at once."""

    __slots__ = ("array", "xp")

    def __init__(self, xp: Any, array: Any):
        assert isinstance(array, xp.ndarray), f"{type(array)} is no array of {xp.__name__}"
        self.xp = xp
        self.array = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    ndim = property(lambda self: self.array.ndim)
    context = property(lambda self: "here")
    size = property(lambda self: self.array.size)
    _spec = property(lambda self: Spec(self.array.shape, self.array.dtype))

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict, out: Any = None) -> Any:
        xp = next(x.xp for x in inputs if x is not None)
        assert out is None, "rules make new arrays"
        results = compute(xp, op, [None if x is None else x.array for x in inputs], attrs)
        wrapped = [Eager(xp, r) for r in results]
        shown = op.outputs(**attrs) if callable(op.outputs) else len(wrapped)
        return wrapped[0] if shown == 1 else wrapped[:shown]

    def reshape(self, *shape: Any, **attrs: Any) -> Any:
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return registry["Reshape"](self, shape=shape, **attrs)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return registry["cast"](self, dtype=dtype)

    def as_in_context(self, ctx: str) -> Eager:
        assert ctx == "here"
        return self


def on(xp: Any, array: np.ndarray) -> Any:
    """A copy of a NumPy array for `xp`."""
    return array.copy() if xp is np else xp.asarray(array)


def specs_of(op: Op, arrays: list, attrs: dict) -> list[Spec]:
    given = {k: v for k, v in attrs.items() if k not in op.injects}
    return as_specs(op.infer(*(Spec(a.shape, a.dtype) for a in arrays if a is not None), **given))


def compute(xp: Any, op: Op, arrays: list, attrs: dict, out: Any = None) -> list:
    """The op's own function; its results are what `infer` promised."""
    attrs = dict(attrs)
    if "training" in op.injects:
        attrs.setdefault("training", True)
    if op.random:
        attrs["rng"] = random_state.Key(3, 5, 0)
    promised = specs_of(op, arrays, attrs)
    if out is not None:
        attrs["out"] = out
    specs = [Spec(a.shape, a.dtype) for a in arrays if a is not None]
    with np.errstate(all="ignore"):
        results = kernel_for(op, kind_of(xp), specs, promised)(xp, *arrays, **attrs)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if promised or results != [None]:
        assert all(isinstance(r, (xp.ndarray, np.generic)) for r in results)
        assert [Spec(r.shape, r.dtype) for r in results] == promised
    return [np.asarray(r) if xp is np else r for r in results if r is not None]


def bound(xp: Any, case: Case) -> tuple[Op, list, dict]:
    """The op of a row, its arrays on `xp` and its attributes."""
    op = find(case.op)
    inputs, attrs = op.bind(tuple(Eager(np, np.asarray(a)) for a in case.inputs), dict(case.attrs))
    return op, [None if x is None else on(xp, x.array) for x in inputs], attrs


def check(case: Case, got: list, want: list) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        half = w.dtype == np.float16
        rtol, atol = max(case.rtol, 2e-3 if half else 1e-5), max(case.atol, 1e-3 if half else 1e-5)
        np.testing.assert_allclose(g.raw, w, rtol=rtol, atol=atol)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels draw other numbers than NumPy does; here they are given NumPy's."""
    job = parallel._ParallelJob

    def fill(
        xp: Any, name: str, key: Any, out: Any, *values: float, piece: tuple[int, ...] = ()
    ) -> Any:
        names = random_state.Key(*key)
        words = {"uniform": ("low", "high"), "normal": ("loc", "scale")}
        parameters = dict(zip(words[name], values, strict=True))
        raw = np.empty(out.shape, out.dtype)
        if not piece:
            with mock.patch.object(parallel, "_ParallelJob", job):
                draw(np, name, names, raw, parameters)
        else:
            raw[...] = names.generator(*piece).random(out.shape, dtype="float32")
        out[...] = xp.asarray(raw)
        return out

    monkeypatch.setattr(kernels, "fill", fill)


#: The rows for which the host waits for the GPU: (op, attribute, its value) and why.
WAITING = {
    ("take", "mode", "raise"): "to raise is to know that an index lies outside",
}


def may_wait(case: Case) -> bool:
    return any(op == case.op and case.attrs.get(name) == v for op, name, v in WAITING)


@contextmanager
def watched(case: Case) -> Iterator[None]:
    """A scope in which the host must not wait, unless it is said to, and nothing is handed to other
    workers: they have streams of their own, or none."""
    with (
        mock.patch.object(
            parallel, "_ParallelJob", side_effect=AssertionError("handed out in pieces")
        ),
        nullcontext() if may_wait(case) else no_host_sync(),
    ):
        yield


@pytest.mark.law
@each(OP_ROWS)
def test_op_equals_numpys(case: Case):
    """Values, and what is changed in place; nothing waits for the device."""
    op, arrays, attrs = bound(np, case)
    want = compute(np, op, arrays, attrs)
    _, there, _ = bound(cupy, case)
    with watched(case):
        got = compute(cupy, op, there, attrs)
    check(case, got, want)
    check(case, [a for a in there if a is not None], [a for a in arrays if a is not None])


OUT_ROWS = [c for c in OP_ROWS if find(c.op).takes_out]


@pytest.mark.law
@each(OUT_ROWS)
def test_op_writes_where_it_is_told(case: Case):
    op, arrays, attrs = bound(np, case)
    want = compute(np, op, arrays, attrs)
    _, there, _ = bound(cupy, case)
    places = [cupy.empty(w.shape, w.dtype) for w in want]
    with watched(case):
        compute(cupy, op, there, attrs, tuple(places) if len(places) > 1 else places[0])
    check(case, places, want)


@pytest.mark.law
@each(GRADIENT_ROWS)
def test_gradient_rule_equals_numpys(case: Case):
    def gradients(xp: Any) -> list:
        op, arrays, attrs = bound(xp, case)
        inputs = tuple(None if a is None else Eager(xp, a) for a in arrays)
        results = [Eager(xp, r) for r in compute(xp, op, arrays, attrs)]
        rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        g = [Eager(xp, on(xp, rng.uniform(-1, 1, r.shape).astype(r.dtype))) for r in results]
        saved = [saved_value(op, place, part, inputs, results) for place, part in op.keeps]
        found = op.gradients(g[0] if len(g) == 1 else g, saved, attrs, (True,) * len(inputs))
        return [f.array for f in found if f is not None]

    try:
        want = gradients(np)
    except MXNetError as refusal:  # not differentiable there, so neither here
        with pytest.raises(MXNetError, match=re.escape(str(refusal))):
            gradients(cupy)
        return
    with watched(case):
        got = gradients(cupy)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
    check(case, got, want)


@pytest.mark.parametrize("case", [c for c in OP_ROWS if may_wait(c)], ids=lambda c: c.id)
def test_what_is_said_to_wait_does(case: Case):
    op, arrays, attrs = bound(cupy, case)
    with no_host_sync(), pytest.raises(AssertionError, match="waits"):
        compute(cupy, op, arrays, attrs)
