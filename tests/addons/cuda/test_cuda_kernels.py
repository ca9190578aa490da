"""Kernels for GPUs, tested without one: they compile for three generations of GPUs, and their text,
compiled by g++ (tests/fakes/cuda_shim.h), computes what NumPy computes.

All texts of a test go through the compiler at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from fakes import cuda_cpp, nvrtc
from fakes.cupy_module import cupy
from graphs import Graph, assert_close, evaluate, graphs
from hypothesis import HealthCheck, Phase, given, settings

from d2lmini import sym
from d2lmini.base import MXNetError
from d2lmini.cuda.kernels import (
    formulas,
    random_numbers,
    steps,
    windows,
)
from d2lmini.cuda.kernels.formulas import Operand, elementwise
from d2lmini.cuda.kernels.launch import Kernel
from d2lmini.cuda.kernels.symbols import names
from d2lmini.device.errstate import run_quietly
from d2lmini.graph import program as program_module
from d2lmini.graph.program import Program
from d2lmini.graph.typed import infer_types
from d2lmini.ops import conv, rnn_compute
from d2lmini.ops import update as um
from d2lmini.ops.core import Op, registry
from d2lmini.ops.index import scatter_add
from d2lmini.ops.pool import MAX, MEAN, MEAN_ON_IMAGE, SUM, reduce_windows
from d2lmini.ops.spec import Spec
from d2lmini.ops.symbolic import Proxy, trace
from d2lmini.ops.update_program import mixed_form
from d2lmini.ops.windows import geometry, inside, taps, windows_of, with_zeros

needs_cpp = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")
needs_nvrtc = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "NVRTC is here")

DTYPES = ("float16", "float32", "float64", "int32", "uint8", "bool")


@pytest.fixture(scope="module", autouse=True)
def all_texts_at_once(request: pytest.FixtureRequest) -> None:
    """Rehearse the tests: what they would launch is compiled in one go."""
    with cuda_cpp.rehearsal():
        for item in request.session.items:
            if item.module is request.module and needs_cpp.mark in item.own_markers:
                names_of = set(inspect.signature(item.obj).parameters)
                given = item.callspec.params if hasattr(item, "callspec") else {}
                if names_of == set(given):
                    item.obj(**given)


def same(got: np.ndarray, want: Any, tolerance: float = 0) -> None:
    """Equal, or nearly; in a rehearsal there are no results."""
    if cuda_cpp.rehearsed is None:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 20)


# -- every op that a group may hold ----------------------------------------------------------------


class Written(NamedTuple):
    """An op on arrays of a dtype: its kernel, the arrays, and what NumPy makes of them."""

    name: str
    kernel: Kernel
    arrays: list[np.ndarray]
    want: np.ndarray


def samples(dtype: str, seed: int) -> np.ndarray:
    """Numbers of all sizes, with the special ones of the dtype among them; 37 of them."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, 37).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        special = [0, 1, 2, 3, info.max, info.min]
        return np.array([*special, *rng.integers(max(info.min, -9), 9, 31)]).astype(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -2.5]
    values = [*special, *rng.normal(0, 2, 20), *rng.uniform(-1, 1, 7)]
    rng.shuffle(values)
    return np.array(values).astype(dtype)


def attributes(op: Op) -> Iterator[dict[str, Any]]:
    """Ways to call it."""
    attrs = {**op.defaults, **{key: 2 for key in op.required}}
    if "act_type" in attrs:
        for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
            yield {**attrs, "act_type": kind}
    elif "dtype" in attrs:
        for dtype in (*DTYPES, "int64", "int8"):
            yield {**attrs, "dtype": np.dtype(dtype)}
    elif "scalar" in attrs:
        for scalar in (2, -1.5):
            yield {**attrs, "scalar": scalar}
    else:
        yield attrs


def ops_in_groups() -> list[Op]:
    """All that `fusion` takes into a group."""
    return [
        op
        for op in dict.fromkeys(registry.values())
        if op.name in ("where", "add_n")
        or (
            op.elementwise
            and not (op.mutates or op.injects or op.variadic or "shape" in op.attr_names)
        )
    ]


def written(op: Op, dtype: str, attrs: dict[str, Any]) -> Written | None:
    """The op as a kernel; None if it does not take the dtype."""
    count = 3 if op.variadic else len(op.input_names)
    arrays = [samples(dtype, seed) for seed in range(count)]
    specs = [Spec(x.shape, x.dtype) for x in arrays]
    try:
        inferred = op.infer(*specs, **attrs)
        want = run_quietly(lambda: op.compute(np, *arrays, **attrs))
    except (MXNetError, TypeError, ValueError):
        return None
    if want.dtype != inferred.dtype:  # an optimizer's step on integers
        return None

    def formula(*given: Proxy) -> list[Proxy]:
        return [trace(names, op.compute, given, attrs)]

    made = elementwise("op", [Operand(x.dtype, x.shape) for x in arrays], (37,), formula)
    ((kernel, _),) = made.kernels
    return Written(f"{op.name} {dtype} {attrs}", kernel, arrays, want)


@functools.cache
def every_op() -> list[Written]:
    """All of them on all dtypes."""
    found = [written(op, d, a) for op in ops_in_groups() for a in attributes(op) for d in DTYPES]
    return [each for each in found if each is not None]


#: Relative errors of functions in C and in NumPy, in units of the dtype's eps.
ROUNDINGS = 16


@needs_cpp
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_of_a_group_computes_what_numpy_computes(dtype):
    found = [each for each in every_op() if each.arrays[0].dtype == dtype]
    assert len(found) > (20 if dtype == "bool" else 90)
    wrong = []
    for name, kernel, arrays, want in found:
        got = np.empty_like(want)
        cuda_cpp.run(kernel.source, kernel.name, (1,), [*arrays, got, got.size])
        if cuda_cpp.rehearsed is None and (problem := difference(kernel, want, got, arrays)):
            wrong.append(f"{name}: {problem}")
    assert not wrong, "\n".join(wrong)


def difference(
    kernel: Kernel, want: np.ndarray, got: np.ndarray, arrays: Sequence[np.ndarray]
) -> str:
    """What is not the same; empty if all is."""
    if want.dtype.kind == "f":
        eps = np.finfo(want.dtype).eps
        with np.errstate(all="ignore"):
            near = abs(got - want) <= ROUNDINGS * eps * np.maximum(abs(want), 1e-3)
        right = near | (got == want) | (np.isnan(got) & np.isnan(want))
        if "imum(" not in kernel.source:  # which of 0 and -0 is larger NumPy leaves open
            right &= (want != 0) | (np.signbit(got) == np.signbit(want)) | ~(want == got)
    else:
        right = got == want
        # What a nan or a number too large is as an integer, C leaves open.
        for x in arrays:
            if x.dtype.kind == "f":
                right |= ~(abs(x.astype(float)) < 100)
    if right.all():
        return ""
    i = int(np.flatnonzero(~right)[0])
    return f"{[x[i] for x in arrays]}: {want[i]!r}, not {got[i]!r}"


# -- how elements are found ------------------------------------------------------------------------


SHAPES = [
    ((8, 6, 5, 4), [(8, 6, 5, 4), (6, 1, 1), (1,), (8, 1, 1, 4)]),
    ((8, 12), [(12,), (8, 1), (8, 12)]),
    ((7, 3), [(3,), (7, 1)]),
    ((5, 1, 4), [(5, 1, 4), (1, 1, 4)]),
    ((37,), [(37,), ()]),
    ((2, 3, 4), [(3, 1), (2, 1, 4)]),
]


@needs_cpp
@pytest.mark.parametrize(("domain", "shapes"), SHAPES, ids=[str(d) for d, _ in SHAPES])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_broadcasting_in_order_and_not(domain, shapes, dtype):
    """Each input once in order, once as a view with other strides, once misaligned."""
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-8, 8, shape).astype(dtype) for shape in shapes]
    want = np.zeros(domain, dtype)
    for i, array in enumerate(arrays):
        want = want + (i + 1) * array

    def formula(*given: Proxy) -> list[Proxy]:
        total = given[0] * 1
        for i, x in enumerate(given[1:]):
            total = total + x * (i + 2)
        return [total, -total]

    for turned, begin in ((False, 0), (True, 0), (False, 1)):
        there = [_on_gpu(a, turned, begin) for a in arrays]
        item = np.dtype(dtype).itemsize
        inputs = [Operand(dtype, a.shape, tuple(s // item for s in a.strides)) for a in there]
        made = elementwise("total", inputs, domain, formula)
        y, z = cupy.empty(domain, dtype), cupy.empty(domain, dtype)
        made(cupy, *there, y, z)
        same(y.get(), want)
        same(z.get(), -want)


def _on_gpu(array: np.ndarray, turned: bool, begin: int) -> Any:
    """The values on the fake GPU: in order, from element `begin` of their memory on, or as the view
    of an array with its axes reversed, backwards along the last."""
    if turned and array.ndim:
        return cupy.asarray(array[..., ::-1].T.copy()).T[..., ::-1]
    memory = cupy.empty(array.size + begin, array.dtype)
    memory[begin:] = cupy.asarray(array.ravel())
    return memory[begin:].reshape(array.shape)


# -- programs --------------------------------------------------------------------------------------


class _Gpu:
    xp = cupy


def on_gpu(graph: Graph) -> Program:
    """The program that a GPU would run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_module, "device_of", lambda ctx: _Gpu)
        return Program("net", graph.variables, graph.outputs)


@functools.cache
def random_programs(count: int) -> list[tuple[Graph, Program]]:
    """Programs of random graphs, with their gradients; always the same."""
    found: list[tuple[Graph, Program]] = []

    @given(graphs(random=False, mutating=False))
    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def collect(graph: Graph) -> None:
        joint = graph.with_gradients()
        found.append((joint, on_gpu(joint)))

    collect()
    return found


@needs_cpp
def test_random_programs_on_a_gpu_equal_the_interpreter():
    """With gradients; every group is one kernel, all texts compiled at once."""
    programs = random_programs(60)
    assert sum("kernel(" in program.source for _, program in programs) > 20
    for graph, program in programs:
        arrays = graph.arrays()
        want, _ = evaluate(graph.variables, graph.outputs, arrays, graph.keys())
        got = run_on_gpu(program, arrays, graph.keys())
        for a, b in zip(want, got, strict=True):
            if cuda_cpp.rehearsed is None:
                assert_close(a, b)


def run_on_gpu(program: Program, arrays: Sequence[Any], keys: Sequence[Any] = ()) -> list[Any]:
    """The results of a program on the fake GPU."""
    memory = cupy.empty(max(program.plan.nbytes, 1), "uint8")

    def arena(offset: int, shape: tuple, dtype: Any) -> Any:
        return cupy.ndarray(shape, dtype, memory.data + offset)

    run = program._make(cupy, arena)
    found = run([cupy.asarray(a) for a in arrays], [None] * len(program.outputs), keys)
    return [y.get() for y in found]


def softmax_of(x: Any) -> Any:
    e = sym.exp(sym.broadcast_sub(x, x.max(axis=-1, keepdims=True)))
    return sym.broadcast_div(e, e.sum(axis=-1, keepdims=True))


def normalized(x: Any, axis: Any) -> Any:
    away = sym.broadcast_sub(x, x.mean(axis=axis, keepdims=True))
    variance = sym.square(away).mean(axis=axis, keepdims=True)
    return sym.Group([sym.relu(sym.broadcast_div(away, sym.sqrt(variance + 1e-3))), variance * 2])


#: Name -> the formula, the shape of x, and how many kernels there are.
REDUCING = {
    "softmax": (softmax_of, (6, 5), 1),
    "softmax of long rows": (softmax_of, (3, 600), 1),
    "LayerNorm and an activation": (lambda x: normalized(x, -1), (4, 5, 30), 1),
    "BatchNorm": (lambda x: normalized(x, (0, 2)), (4, 3, 5), 1),
    "sums along columns": (lambda x: sym.square(x).sum(axis=0), (30, 4), 1),
    "the norm of all": (lambda x: sym.sqrt(sym.square(x).sum()) + 1, (30, 4), 1),
    "two directions": (
        lambda x: sym.broadcast_sub(normalized(x, -1)[0], x.mean(axis=0, keepdims=True)), (6, 5), 2,
    ),
}  # fmt: skip


@needs_cpp
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", REDUCING)
def test_a_group_with_reductions_is_one_kernel(name, is_cut):
    """If its rows are cut into parts, one for each of its loops."""
    formula, shape, count = REDUCING[name]
    x = sym.var("x")
    y = formula(x)
    variables, outputs = infer_types(y._entries, {x._entry[0]: Spec(shape, "float32")}, False)
    graph = Graph(list(variables.values()), outputs, False)
    least = dict(MIN_PER_LANE=0, MIN_PART=2 if is_cut else 512)
    with mock.patch.multiple(formulas, **least):
        program = on_gpu(graph)
    assert is_cut or program.source.count("__global__") == count, program.source
    value = np.random.default_rng(0).normal(3, 2, shape).astype("float32")
    want, _ = evaluate(graph.variables, graph.outputs, [value], [])
    for got, right in zip(run_on_gpu(program, [value]), want, strict=True):
        same(got, right, 2e-5)
    joint = graph.with_gradients()
    with mock.patch.multiple(formulas, **least):
        program = on_gpu(joint)
    arrays = [value, *(np.ones_like(a) for a in joint.arrays()[1:])]
    want, _ = evaluate(joint.variables, joint.outputs, arrays, [])
    for got, right in zip(run_on_gpu(program, arrays), want, strict=True):
        same(got, right, 1e-4)


# -- the other kernels -----------------------------------------------------------------------------


GEOMETRIES = [
    (1, (7,), (3,), (2,), (1,), (1,)),
    (2, (6, 5), (3, 2), (1, 1), (1, 1), (1, 0)),
    (2, (7, 6), (2, 2), (2, 2), (1, 1), (0, 0)),
    (2, (9, 8), (3, 3), (2, 1), (2, 3), (2, 3)),
    (3, (4, 5, 6), (2, 3, 2), (1, 2, 3), (1, 1, 2), (1, 1, 0)),
    # All windows along an axis reach most of its pixels.
    (2, (4, 5), (3, 5), (1, 1), (1, 1), (0, 0)),
    (2, (9, 5), (3, 5), (2, 3), (3, 1), (0, 1)),
]


@needs_cpp
@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_columns_and_back(case, dtype):
    _, size, kernel, stride, dilate, pad = case
    geo = geometry(size, kernel, stride, dilate, pad)
    N, C = 2, 3
    rng = np.random.default_rng(1)
    image = rng.integers(-8, 8, (N, C, *size)).astype(dtype)
    seen = windows_of(with_zeros(np, image, geo), geo)
    rows, places = C * geo.taps, prod(geo.out)
    want = seen.reshape(N, rows, places)
    padded = np.zeros((N, C, *geo.padded), dtype)
    for tap, pixels in taps(geo):
        padded[(..., *pixels)] += seen[(slice(None), slice(None), *tap)]
    added = padded[inside(geo)]
    for side_by_side in (False, True):
        shape = (rows, N, places) if side_by_side else (N, rows, places)
        columns = cupy.empty(shape, dtype)
        windows.im2col(cupy, cupy.asarray(image), columns, geo, side_by_side)
        there = columns.get().swapaxes(0, 1) if side_by_side else columns.get()
        same(there, want)
        if not side_by_side:
            back = cupy.empty(image.shape, dtype)
            windows.col2im(cupy, columns, back, geo)
            same(back.get(), added)


@pytest.mark.law
@needs_cpp
@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("each", [1, 2])
def test_depthwise_convolution_and_its_gradients(case, dtype, each):
    """`each` filters a channel; sums of small whole numbers, which no order changes."""
    _, size, kernel, stride, dilate, pad = case
    geo = geometry(size, kernel, stride, dilate, pad)
    N, C = 3, 4
    rng = np.random.default_rng(4)
    x = rng.integers(-2, 3, (N, C, *size)).astype(dtype)
    w = rng.integers(-2, 3, (C * each, 1, *kernel)).astype(dtype)
    g = rng.integers(-1, 2, (N, C * each, *geo.out)).astype(dtype)
    for name, (a, b), shape in (
        ("convolve", (x, w), g.shape), ("convolve_data", (g, w), x.shape),
        ("convolve_weight", (x, g), w.shape),
    ):  # fmt: skip
        want = np.empty(shape, "float32")
        wide = (a.astype("float32"), b.astype("float32"))
        getattr(conv, name)(np, *wide, geo, C, want)
        place = cupy.empty(shape, dtype)
        getattr(conv, name)(cupy, cupy.asarray(a), cupy.asarray(b), geo, C, place)
        same(place.get(), want.astype(dtype))
        found = conv.choose_algorithm(cupy, N, w.shape, geo, C)
        assert found is (windows.DEPTHWISE if each == 1 else windows.IM2COL)


@pytest.mark.law
@needs_cpp
@pytest.mark.parametrize("case", [c for c in GEOMETRIES if set(c[4]) == {1}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("convention", ["valid", "full"])
def test_pooling_and_its_gradients(case, dtype, convention):
    _, size, kernel, stride, _, pad = case
    pool = geometry(size, kernel, stride, (), pad, convention == "full")
    rng = np.random.default_rng(2)
    x = rng.integers(-3, 3, (2, 2, *size)).astype(dtype)  # with ties
    if dtype == "float32":
        x[0, 0].flat[3] = np.nan
    y = np.empty((2, 2, *pool.out), dtype)
    g = rng.integers(-8, 8, y.shape).astype(dtype)
    for kind in (SUM, MEAN, MEAN_ON_IMAGE, MAX):
        reduce_windows(np, x, pool, kind, y)
        got = cupy.empty(y.shape, dtype)
        reduce_windows(cupy, cupy.asarray(x), pool, kind, got)
        same(got.get(), y, {"float32": 1e-6, "float16": 2e-3}[dtype] * (kind in (1, 2)))
        if kind == MAX:
            check_launched("_max_pooling_backward", g, x, y, pool=pool)
        else:
            bound = {"float32": 1e-5, "float16": 1e-1}[dtype] * (kind != SUM)
            check_launched("_pooling_spread", g, bound=bound, pool=pool, kind=kind)


def check_launched(name: str, *arrays: np.ndarray, bound: float = 0, **attrs: Any) -> None:
    """The kernel of an op computes what NumPy computes."""
    got = registry[name].kernel_for("cuda")(cupy, *map(cupy.asarray, arrays), **attrs)
    same(got.get(), registry[name].compute(np, *arrays, **attrs), bound)


def moments(shape: tuple, axes: tuple, dtype: Any) -> formulas.Launches:
    """The launches of a formula with reductions in two stages, and with values of elements and of
    groups, on arrays of `shape` and of its last axis."""
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    outs = [Operand(dtype, shape), Operand("float64", kept), Operand("float64", kept)]

    def formula(x: Proxy, weight: Proxy) -> list[Proxy]:
        x = x.astype(np.promote_types(dtype, "float32"))
        away = x - names.mean(x)
        variance = names.mean(away * away)
        first = names.sum(names.where(names.index_of(x) == 0, x, 0))
        values = away * weight / names.sqrt(variance), variance, names.max(x) - first
        return [value.astype(out.dtype) for value, out in zip(values, outs)]

    inputs = [Operand(dtype, shape), Operand(dtype, shape[-1:])]
    return formulas.reduction("moments", inputs, shape, axes, outs, formula)


@pytest.mark.law
@needs_cpp
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("limits", [(32, 512), (2, 4)], ids=["usual", "small"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4, 5), (0, 2)), ((7, 4, 1), (0, 2)), ((3, 70, 2), (1,)), ((6, 9, 1), (1,)),
     ((2, 3, 11), (2,)), ((2, 3, 2, 9), (2, 3)), ((1, 2, 1), (0, 2)), ((5, 4), (0, 1))],
)  # fmt: skip
def test_reductions_along_rows_and_columns(shape, axes, dtype, limits, is_cut):
    """Short and long rows, and columns; whole, or in parts that further kernels combine."""
    rng = np.random.default_rng(5)
    x, weight = rng.normal(100, 3, shape).astype(dtype), rng.normal(size=shape[-1:]).astype(dtype)
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    outs = [cupy.empty(shape, dtype), *(cupy.empty(kept, "float64") for _ in range(2))]
    least = dict(MIN_PER_LANE=0, MIN_PART=3 if is_cut else 512)
    with mock.patch.multiple(formulas, WARP=limits[0], LONG=limits[1], **least):
        launches = moments(shape, axes, np.dtype(dtype))
    launches(cupy, cupy.asarray(x), cupy.asarray(weight), *outs)
    wide, over = x.astype("float64"), dict(axis=axes, keepdims=True)
    variance = wide.var(**over)
    tolerance = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-11}[dtype]
    with np.errstate(invalid="ignore"):
        same(outs[0].get(), (wide - wide.mean(**over)) * weight / np.sqrt(variance), tolerance)
    same(outs[1].get(), variance, tolerance)
    first = np.moveaxis(wide, axes, range(len(axes)))[(0,) * len(axes)].reshape(kept)
    same(outs[2].get(), wide.max(**over) - first, tolerance)


@needs_cpp
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_cut", [False, True], ids=["in order", "beside another direction"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrent_layers_and_their_gradients(mode, is_cut, backwards, dtype):
    """As `rnn_compute` has them on the CPU, whose results are those of plain loops (op_rows)."""
    rng = np.random.default_rng(0)
    T, N, I, H = 4, 3, 2, 5
    plain = rnn_compute.KINDS[mode]
    G = plain.n_gates * H

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    x, g = drawn(T, N, I), drawn(T, N, 2 * H)
    weights = [drawn(G, I), drawn(G, H), drawn(G), drawn(G)]
    states = [drawn(N, H) for _ in range(2 if mode == "lstm" else 1)]
    heads = [drawn(N, H) for _ in states]

    def run(xp: Any) -> list[np.ndarray]:
        put = [xp.asarray(a) for a in (x, g, *weights)]
        mine, ends = [xp.asarray(s.copy()) for s in states], [xp.asarray(h.copy()) for h in heads]
        layer = rnn_compute.layer_of(xp, mode)
        fused = {"lstm": steps.FusedLSTM, "gru": steps.FusedGRU}
        assert type(layer) is (plain if xp is np else fused.get(mode, plain))
        w = rnn_compute.Weights(*put[2:])
        y, kept = ([xp.zeros((T, N, k * H), dtype) for k in parts] for parts in ((2,), layer.keeps))
        part = slice(H, None) if is_cut else slice(0, H)
        place, slopes = (y[0][:, :, part] if is_cut else xp.zeros((T, N, H), dtype)), put[1]
        last = layer.forward(put[0], w, list(mine), place, kept, backwards)
        found = [place, *kept, *last]
        dx, *dw = (xp.zeros(a.shape, dtype) for a in (x, *weights))
        grads, g_part = rnn_compute.Weights(*dw), slopes[:, :, part]
        layer.backward(put[0], w, mine, place, kept, g_part, ends, grads, dx, backwards)
        return [a if xp is np else a.get() for a in (*found, *ends, *dw, dx)]

    for got, want in zip(run(cupy), run(np), strict=True):
        same(got, want, 1e-4 if dtype == "float32" else 1e-12)


@needs_cpp
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_rows_are_added_up_in_order(dtype):
    rng = np.random.default_rng(3)
    taken = rng.integers(0, 5, 40)
    taken[taken == 2] = 3  # nobody took row 2
    g = rng.integers(-8, 8, (40, 3)).astype(dtype)
    want = np.zeros((6, 3), dtype)
    np.add.at(want, taken, g)
    out = cupy.empty((6, 3), dtype)
    scatter_add(cupy, cupy.asarray(taken), cupy.asarray(g), out.shape, out)
    same(out.get(), want)
    np.testing.assert_array_equal(scatter_add(np, taken, g, want.shape, None), want)


UPDATES = [
    op
    for op in dict.fromkeys(registry.values())
    if op.name.endswith("_update")
    and op.input_names[:2] == ("weight", "grad")
    and op.name[:3] not in ("mp_", "_mp")
]


@needs_cpp
@pytest.mark.parametrize("op", UPDATES, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_optimizer_steps_of_many_parameters(op, dtype):
    """float16 with a master copy; five parameters are two launches; the numbers may change."""
    rng = np.random.default_rng(4)
    mixed = dtype == "float16"
    clip = next(name for name in op.attr_names if name.startswith("clip_grad"))
    attrs = {**op.defaults, **{k: 0.1 for k in op.required}, "wd": 0.01, clip: 0.5}
    rule = mixed_form(op) if mixed else op
    each = [um.UpdateStep(rule, {**attrs, "wd": 0.01 * (i > 1)}) for i in range(5)]
    data = []
    for i, step in enumerate(each):
        for k in range(step.op.arity):
            kind = dtype if k < 2 else "float32"
            data.append(rng.uniform(0.1, 0.2, i % 5 + 1).astype(kind))
    there = [cupy.asarray(a) for a in data]
    texts = formulas.complete.cache_info().misses
    for factor in (1.0, 0.5):
        for xp, arrays in ((np, data), (cupy, there)):
            now = [s._replace(attrs=_scaled(s.attrs, factor)) for s in each]
            groups = um.groups_of(now, arrays)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(steps, "MAX_PARAMETERS", 2)
                run_quietly(um.run, xp, now, groups)
    for a, b in zip(data, there, strict=True):
        same(b.get(), a, 2e-3 if mixed else 2e-5)
    assert formulas.complete.cache_info().misses - texts <= 4  # with decay and without


def _scaled(attrs: dict[str, Any], factor: float) -> dict[str, Any]:
    return {k: v * factor if k in ("lr", "epsilon") else v for k, v in attrs.items()}


# -- random numbers --------------------------------------------------------------------------------


@needs_cpp
def test_philox_gives_the_published_numbers(monkeypatch):
    """Of the paper's own test of philox4x32 with 10 rounds: counter 0, key 0."""
    monkeypatch.setattr(random_numbers, "words_of", lambda key: (0, 0))
    low = random_numbers.fill(cupy, "integers", (), cupy.empty(1, "int64"), 0, 1 << 63).get()[0]
    assert hex(low) == "0x6627e8d5e169c58d"


@needs_cpp
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_numbers_have_the_moments_of_their_distribution(dtype):
    n = 20000
    for name, parameters, mean, variance in (
        ("uniform", (-1.0, 3.0), 1.0, 16 / 12),
        ("normal", (1.0, 2.0), 1.0, 4.0),
    ):
        y = random_numbers.fill(cupy, name, (1, 2, 3), cupy.empty(n, dtype), *parameters).get()
        y = y.astype("float64")
        if cuda_cpp.rehearsed is not None:
            continue
        assert abs(y.mean() - mean) < 5 * (variance / n) ** 0.5, (name, y.mean())
        assert abs(y.var() / variance - 1) < 0.12, (name, y.var())


# -- NVIDIA's compiler -----------------------------------------------------------------------------


@needs_nvrtc
def test_every_operation_is_rounded():
    """x * y + z is two instructions, so that a formula has the bits that it has on the CPU."""
    made = elementwise("axpy", [Operand("float32", (8,))] * 3, (8,), lambda x, y, z: [x * y + z])
    ((kernel, _),) = made.kernels
    assert b"fma.rn" not in nvrtc.compiled(kernel.source, "compute_90")
    assert b"fma.rn" in nvrtc.compiled(kernel.source, "compute_90", ("-std=c++17",))


# -- the launcher ----------------------------------------------------------------------------------


def test_arguments_are_packed_as_the_text_says():
    calls = []

    class Module:
        class RawKernel:
            def __init__(self, source, name, options):
                assert name == "k"

            def kernel(self, grid, block, args):
                calls.append((grid, block, args))

        class cuda:
            class function:
                CIntptr = int

    kernel = Kernel("k", 'extern "C" __global__ void k(float* y, const double a, const int n) {}')
    kernel(Module, 1000, "y", 1, 1000)
    ((grid, block, args),) = calls
    assert (grid, block) == ((4, 1, 1), (256, 1, 1))
    assert args == ("y", int(np.float64(1).view(np.int64)), 1000)
    kernel(Module, 0, "y", 1, 0)
    assert len(calls) == 1  # CUDA refuses an empty grid
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        kernel(Module, 1, "y", 1)
    with pytest.raises(OverflowError):
        kernel(Module, 1, "y", 1, 1 << 31)
