"""Groups that reduce along rows or columns, then map: formulas of softmax and the normalizations
against the ops of that name, in blocks of any size, with any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from check_programs import check, compiled
from graphs import assert_close, graphs
from hypothesis import given, settings

from d2lmini import autograd, engine, nd, sym
from d2lmini.graph import fusion
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.fusion import Cut, Statement, axes_of_reduction, is_reduction, statements
from d2lmini.graph.lower import lower
from d2lmini.graph.program import Program

# -- formulas --------------------------------------------------------------------------------------


def softmax(x, axis):
    e = sym.exp(sym.broadcast_sub(x, sym.BlockGrad(x.max(axis=axis, keepdims=True))))
    return sym.broadcast_div(e, e.sum(axis=axis, keepdims=True))


def log_softmax(x, axis):
    d = sym.broadcast_sub(x, sym.BlockGrad(x.max(axis=axis, keepdims=True)))
    return sym.broadcast_sub(d, sym.log(sym.exp(d).sum(axis=axis, keepdims=True)))


def normalize(x, gamma, beta, axes, view):
    """gamma and beta are brought into the shape `view`."""
    d = sym.broadcast_sub(x, x.mean(axis=axes, keepdims=True))
    inverse = sym.rsqrt(sym.square(d).mean(axis=axes, keepdims=True) + 1e-5)
    scaled = sym.broadcast_mul(d, sym.broadcast_mul(inverse, gamma.reshape(view)))
    return sym.broadcast_add(scaled, beta.reshape(view))


def batch_norm(x, gamma, beta):
    """In training, without what the op does to the moving statistics."""
    moving = [f(gamma.shape, dtype=gamma.dtype) for f in (nd.zeros, nd.ones)]
    with autograd.train_mode():
        return nd.BatchNorm(x, gamma, beta, *moving, fix_gamma=False, eps=1e-5)


@dataclass
class Row:
    """A formula of Symbols, the op, the shapes of the inputs, and how many groups forward has."""

    formula: Callable
    op: Callable
    shapes: list[tuple[int, ...]]
    groups: int = 1
    dtype: str = "float32"


def norm(shape: tuple, axes: tuple, channel: int, op: Callable, **facts) -> Row:
    view = [1] * len(shape)
    view[channel] = -1
    formula = lambda x, gamma, beta: normalize(x, gamma, beta, axes, tuple(view))  # noqa: E731
    return Row(formula, op, [shape, (shape[channel],), (shape[channel],)], **facts)


def along(op: str, axis: int, *shape: int, **facts) -> Row:
    formula = {"softmax": softmax, "log_softmax": log_softmax}[op]
    return Row(
        lambda x: formula(x, axis), lambda x: getattr(nd, op)(x, axis=axis), [shape], **facts
    )


def layer_norm(*arrays):
    return nd.LayerNorm(*arrays, eps=1e-5)


def instance_norm(*arrays):
    return nd.InstanceNorm(*arrays, eps=1e-5)


ROWS = {
    "softmax of rows": along("softmax", -1, 331, 257),
    "softmax of many rows": along("softmax", -1, 70_000, 3),
    "softmax of long rows": along("softmax", -1, 2, 1 << 18),
    "softmax of too long rows": along("softmax", -1, 2, 600_000, groups=2),
    "softmax of one row": along("softmax", -1, 1, 70_000),
    "softmax of channels": along("softmax", 1, 7, 19, 23, 29),
    "softmax of channels of one image": along("softmax", 1, 1, 19, 70, 60),
    "softmax of the first axis": along("softmax", 0, 67, 1999),
    "softmax of float64": along("softmax", -1, 331, 257, dtype="float64"),
    "softmax of float16": along("softmax", -1, 331, 257, dtype="float16"),
    "softmax of few rows": along("softmax", -1, 33, 20, groups=0),
    "softmax of nothing": along("softmax", -1, 0, 20, groups=0),
    "log_softmax": along("log_softmax", -1, 331, 257),
    "log_softmax of float64": along("log_softmax", 1, 3, 37, 41, 17, dtype="float64"),
    "LayerNorm": norm((331, 257), (1,), 1, layer_norm),
    "LayerNorm of many rows": norm((70_000, 3), (1,), 1, layer_norm),
    "LayerNorm of sequences": norm((7, 31, 331), (2,), 2, layer_norm),
    "InstanceNorm": norm((7, 19, 23, 29), (2, 3), 1, instance_norm),
    "BatchNorm": norm((7, 19, 23, 29), (0, 2, 3), 1, batch_norm),
    "BatchNorm of many small images": norm((64, 331, 5, 5), (0, 2, 3), 1, batch_norm),
    "BatchNorm of float64": norm((7, 19, 23, 29), (0, 2, 3), 1, batch_norm, dtype="float64"),
    "BatchNorm of vectors": norm((331, 257), (0,), 1, batch_norm, groups=2),
}


def arrays_of(row: Row) -> list[nd.NDArray]:
    rng = np.random.default_rng(7)
    return [nd.array(rng.normal(size=shape), dtype=row.dtype) for shape in row.shapes]


def cached(row: Row, mirrors: bool = False) -> Callable:
    variables = [sym.var(f"x{i}") for i in range(len(row.shapes))]
    return CachedOp(row.formula(*variables), [("backward_do_mirror", mirrors)])


def run_with_gradients(f: Callable, arrays: list[nd.NDArray]) -> list[np.ndarray]:
    arrays = [x.copy() for x in arrays]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = f(*arrays)
    y.backward(nd.sin(nd.arange(y.size)).reshape(y.shape).astype(y.dtype) if y.size else None)
    return [a.asnumpy() for a in [y, *[x.grad for x in arrays]]]


@pytest.mark.parametrize("mirrors", [False, True], ids=["kept", "mirrored"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_formula_is_its_op(row, mirrors):
    """Forward and gradients, relative to the largest number: sums of many roundings."""
    arrays = arrays_of(row)
    net = cached(row, mirrors)
    room = {"float16": 5e-3, "float32": 3e-5, "float64": 1e-12}[row.dtype]
    for want, got in zip(run_with_gradients(row.op, arrays), run_with_gradients(net, arrays)):
        assert_close(want, got, room)
    net(*arrays)
    groups = {compiled.forward.source.count("in_blocks(") for compiled in net.cache.of(net.mark)}
    assert groups == {row.groups}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_bits_do_not_depend_on_workers(row):
    arrays = arrays_of(row)
    found = []
    for kind, workers in (("naive", None), ("threaded", 1), ("threaded", 2), ("threaded", 4)):
        with engine.use(kind, **({"workers": workers} if workers else {})):
            found.append(run_with_gradients(cached(row), arrays))
    for other in found[1:]:
        assert [a.tobytes() for a in other] == [a.tobytes() for a in found[0]]


OF_ROWS = [name for name in ROWS if name.startswith(("softmax", "log_softmax", "LayerNorm"))]


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 14])
def test_reductions_of_rows_do_not_depend_on_blocks(name, nbytes, monkeypatch):
    """NumPy reduces each row by itself, so blocks of other sizes give the same bits, and so do the
    ops one after the other."""
    row = ROWS[name]
    arrays = arrays_of(row)
    want = cached(row)(*arrays).asnumpy()
    monkeypatch.setattr(fusion, "ONE_BLOCK", 0)
    monkeypatch.setattr(fusion, "BLOCK_BYTES", nbytes)
    assert cached(row)(*arrays).asnumpy().tobytes() == want.tobytes()
    monkeypatch.setattr(fusion, "SMALLEST", 1 << 40)
    assert cached(row)(*arrays).asnumpy().tobytes() == want.tobytes()


# -- the law of groups -----------------------------------------------------------------------------


def check_complete(found: list[Statement]) -> None:
    """Whatever reads a reduction is in a later statement, or in blocks with all that is reduced."""
    done = set()
    for statement in found:
        own = set(statement.nodes)
        for node in statement.nodes:
            for source, _ in node.sources:
                assert source.op is None or source in done, f"{node} runs before {source}"
                if source in own and is_reduction(source):
                    cut = statement.cut
                    over = set(axes_of_reduction(source))
                    assert not over & set(range(cut.begin, cut.end)), f"{source} is cut"
            done.add(node)


def put_everything_in_blocks(patch: pytest.MonkeyPatch) -> None:
    """In blocks of a few elements, of columns too."""
    patch.setattr(fusion, "SMALLEST", 2)
    patch.setattr(fusion, "ONE_BLOCK", 0)
    patch.setattr(fusion, "BLOCK_BYTES", 32)
    patch.setattr(fusion, "RUN_BYTES", 1)


@given(graph=graphs())
@settings(deadline=None)
def test_no_reduction_is_read_before_it_is_complete(graph):
    with pytest.MonkeyPatch.context() as patch:
        put_everything_in_blocks(patch)
        check_complete(statements(lower(graph.with_gradients().outputs)))


def test_a_reduction_that_is_read_too_early_is_noticed(monkeypatch):
    """A fault that is planted: a group cut along the axis that its reduction reduces."""
    put_everything_in_blocks(monkeypatch)
    x = sym.var("x")
    y = softmax(x, 0)
    _, graph = compiled(y, {x: (40, 6)})
    program = Program("net", graph.variables, graph.outputs)
    assert program.source.count("in_blocks(") == 1 and "axis=1," in program.source
    check(program, graph)
    monkeypatch.setattr(fusion.Statement, "cut", Cut(0, 1))
    with pytest.raises(AssertionError):
        check(Program("net", graph.variables, graph.outputs), graph)
    with pytest.raises(AssertionError, match="max"):
        check_complete(statements(graph.outputs))
