"""What the compiler rewrites, at the edges of dtypes: each program as written and in all modes.

A program is a function `net(F, x, y, b)` of a few calls. Each call triggers a rewriting (a number
beside an array, constants, views of views, casts, a choice that is known, sums of copies, what is
computed twice, a pooled activation, a bias, a fused chain) or is there to be rewritten with it. The
dtypes are all that arrays have. Arrays hold the limits of the dtype and the numbers beside them,
zeros of both signs, infinities, nan and subnormal numbers; attributes are also numbers that the
dtype does not hold; axes have the sizes 0, 1, and more than the dtype counts.

    python tests/generators/run.py --programs 1000 rules

Eagerly nothing is rewritten, so that is the oracle: values and gradients of all modes, of the first
call and the second, have to be its bits (nan is nan). Where the compiler promises less (sums of
many numbers, products of matrices, pooled activations: other roundings) these are equal to some
roundings, and nan, infinities and signs of zeros are at the same places.
"""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import d2lmini
from d2lmini import MXNetError, autograd, gluon, nd, sym
from d2lmini.base.dtypes import finfo, is_float
from d2lmini.gluon import nn
from d2lmini.graph.ir import Node
from generators.agree import Disagreement

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "uint8", "int64", "int8")
SHAPES = ((2, 3), (1, 3), (3, 1), (1, 1), (1,), (4,), (2, 1, 3), (1, 2, 1, 2), (0, 3), (2, 0))
NUMBERS = (
    0, 1, -1, 2, 0.5, -0.0, 0.0, 1.5, 1.001, 1 + 2**-9, -0.7, 3, 255, 256, 257, 300, -129, 65504,
    65520, 70000, 2**24 + 1, 2**31, 1e-8, 6e-8, 1e39, -1e300, 2**53 + 1,
)  # fmt: skip
#: Sizes of an axis beyond what float16, bfloat16 count; the last two are cut into blocks.
COUNTS = (257, 300, 2049, 65520, 70000)
FAMILIES = (
    "add", "sub", "mul", "div", "mod", "power", "maximum", "minimum", "hypot", "equal",
    "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or",
    "logical_xor",
)  # fmt: skip
UNARY = (
    "negative", "abs", "square", "sign", "floor", "ceil", "trunc", "fix", "rint", "round", "relu",
)  # fmt: skip
OF_FLOATS = (
    "exp", "tanh", "sigmoid", "sqrt", "log1p", "softsign", "reciprocal", "rsqrt", "sin", "erf",
)  # fmt: skip


class Program:
    """One drawn program: `text` defines `net`, `arrays` are its inputs, `heads` draws head
    gradients; `roundings` is how many its results may differ by."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.dtype = rng.choice(FLOATS * 2 + INTEGERS + ("bool",))
        self.np_dtype = np.dtype(nd.zeros(1, dtype=self.dtype).dtype)
        self.floating = is_float(self.np_dtype)
        self.edges = rng.random() < 0.6
        self.shape = rng.choice(SHAPES)
        self.roundings = 0
        self.lines: list[str] = []
        self.pool = ["x", "y"]
        kinds = list(_KINDS)
        first = rng.choice(kinds)
        if first in (_count, _layer, _pooled, _fused):
            first(self)
        else:
            for kind in [first, *rng.choices(kinds[: -len(_ALONE)], k=rng.randint(0, 4))]:
                kind(self)
        names = list(dict.fromkeys([self.pool[-1], *rng.sample(self.pool, rng.randint(0, 1))]))
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {', '.join(names)}"])
        self.text = f"def net(F, x, y, b):\n{body}"
        # The gradients of three uses are added up in the order of a walk, which is another one.
        self.shared = any(len(re.findall(rf"\b{name}\b", body)) > 3 for name in _names(body))
        if self.shared and not self.edges:
            self.roundings = max(self.roundings, 8)
        small = tuple(n if rng.random() < 0.4 else 1 for n in self.shape)
        self.arrays = [self.array(self.shape), self.array(self.shape), self.array(small)]

    def add(self, expression: str) -> None:
        """Another value of the program's shape."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        self.pool.append(name)

    def let(self, expression: str) -> str:
        """Another value, of any shape, which only what follows uses."""
        self.lines.append(f"c{len(self.lines)} = {expression}")
        return f"c{len(self.lines) - 1}"

    def any(self) -> str:
        """One of the values: often a late one."""
        return self.rng.choice([*self.pool, *self.pool[-2:]])

    def number(self) -> str:
        return repr(self.rng.choice(NUMBERS))

    def full(self, shape: tuple[int, ...], number: Any, dtype: str = "") -> str:
        """An array of one number; as a Symbol an empty one has to be made of another."""
        if 0 in shape:
            return "F.zeros_like(x)"
        return f"F.full({shape}, {number}, dtype={dtype or self.dtype!r})"

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers at the edges of the dtype, or tame ones."""
        n = int(np.prod(shape))
        if self.dtype == "bool":
            values: Any = [self.rng.random() < 0.5 for _ in range(n)]
        elif not self.floating:
            ends = np.iinfo(self.np_dtype)
            near = [ends.min, ends.min + 1, ends.max, ends.max - 1, 2**24 + 1, 2**53 + 1]
            near = [v for v in near if ends.min <= v <= ends.max]
            few = [v for v in (0, 1, 2, 3, 7, -1, -5) if v >= ends.min]
            values = [self.rng.choice(few + near * self.edges) for _ in range(n)]
        elif self.edges and n < 100:
            ends = finfo(self.np_dtype)
            most, least = float(ends.max), float(ends.smallest_normal)
            near = [0.0, most, most * (1 - float(ends.eps)), least, least / 4, 1.0, 0.1, 3.0, 1e-4]
            near += [1 + float(ends.eps), np.inf, np.nan, 2.5, 1 / float(ends.eps)]
            values = [self.rng.choice(near) * self.rng.choice((1, -1)) for _ in range(n)]
        else:
            values = np.random.default_rng(self.rng.randrange(2**31)).uniform(0.25, 2, n)
        return np.array(values).astype(self.np_dtype).reshape(shape)


def _names(body: str) -> set[str]:
    return set(re.findall(r"\b[xybcv]\d*\b", body))


# -- calls that the compiler rewrites --------------------------------------------------------------


def _beside(p: Program) -> None:
    """A number beside an array, on either side: x + 0, x * 1.001, max(x, 300)."""
    family, x, n = p.rng.choice(FAMILIES), p.any(), p.number()
    operator = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "power": "**"}
    if family in operator:
        p.add(
            f"{x} {operator[family]} {n}" if p.rng.random() < 0.7 else f"{n} {operator[family]} {x}"
        )
    elif family in ("maximum", "minimum"):
        p.add(f"F.{family}({x}, {n})" if p.rng.random() < 0.5 else f"F.{family}({n}, {x})")
    else:
        p.add(f"{x} {p.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {n}")


def _chain(p: Program) -> None:
    """Numbers one after the other: x * 2 / 3, x + 8388608 - 8388608."""
    kinds = p.rng.choice((("*", "/"), ("+", "-")))
    steps = [f" {p.rng.choice(kinds)} {p.number()}" for _ in range(p.rng.randint(2, 3))]
    p.add(p.any() + "".join(steps))


def _constant(p: Program) -> str:
    """An array that the compiler knows, in the program's shape or one that broadcasts to it."""
    rng = p.rng
    shape = tuple(rng.choice((n, n, 1)) for n in p.shape) if rng.random() < 0.4 else p.shape
    value = p.number() if p.dtype != "bool" else rng.choice(("0", "1"))
    made = p.let(rng.choice((
        p.full(shape, value), f"F.zeros_like({p.any()})", p.full(shape, 0), p.full(shape, 1),
        f"F.ones_like({p.any()})",
    )))  # fmt: skip
    for _ in range(rng.randint(0, 2)):
        n, op = p.number(), rng.choice("+-*")
        steps = [
            f"F.{rng.choice(UNARY)}({made})",
            f"{made} {op} {n}",
            f"{n} {op} {made}",
            f"F.clip({made}, -1, {n})",
            f"F.transpose(F.transpose({made}))",
        ]
        steps += [f"F.{rng.choice(OF_FLOATS)}({made})"] * p.floating
        made = p.let(rng.choice(steps))
    return made


def _beside_constant(p: Program) -> None:
    """A known array beside another one, on either side."""
    pair = [p.any(), _constant(p)]
    p.rng.shuffle(pair)
    p.add(f"F.broadcast_{p.rng.choice(FAMILIES)}({pair[0]}, {pair[1]})")


def _choice(p: Program) -> None:
    """A choice that is known, also by numbers that the condition's dtype does not hold."""
    dtype = p.rng.choice((p.dtype, "int32", "uint8", "float32", "float16"))
    number = p.rng.choice(("0.5", "-0.5", "1e-9", "256", "0.0", "-0.0", "1", "1e-50", "512.0"))
    condition = p.full(p.shape, number, dtype)
    if p.rng.random() < 0.4:
        condition = p.rng.choice((f"F.ones_like({p.any()})", f"{_whole(p)} * 0", p.any()))
    p.add(f"F.where({condition}, {p.any()}, {p.any()})")


def _whole(p: Program) -> str:
    """A constant in the program's shape."""
    return p.let(p.full(p.shape, p.number()))


def _view(p: Program) -> None:
    """Steps that name or order the axes anew, and back into the program's shape."""
    rng, x, y, ndim = p.rng, p.any(), p.any(), len(p.shape)
    for _ in range(rng.randint(1, 3)):
        a = rng.randrange(ndim)
        n, wide = p.shape[a], f"F.expand_dims({x}, axis={a})"
        ways = [
            f"F.transpose(F.transpose({x}))", f"F.squeeze({wide}, axis={a})", f"F.add_n({x})",
            f"F.swapaxes(F.swapaxes({x}, dim1=0, dim2={a}), dim1={a}, dim2=0)",
            f"F.sum({wide}, axis={a})", f"F.mean({wide}, axis={a})", f"F.identity({x})",
            f"F.broadcast_to({x}, shape={p.shape})", f"F.tile({x}, reps={(1,) * ndim})",
            f"F.slice_axis({x}, axis={a}, begin=0, end=None)", f"F.reshape_like({x}, {x})",
            f"F.reverse(F.reverse({x}, axis={a}), axis={a})",
            f"F.stack({x}, axis={a}).reshape({p.shape})",
            f"F.concat(F.concat({x}, {y}, dim={a}), {x}, dim={a})"
            f".slice_axis(axis={a}, begin={n}, end={2 * n})",
        ]  # fmt: skip
        if 0 not in p.shape:
            ways += [
                f"F.max({wide}, axis={a})", f"F.reshape(F.flatten({x}), shape={p.shape})",
                f"F.reshape(F.reshape({x}, shape=(-1, 1)), shape={p.shape})",
                f"F.split(F.concat({x}, {y}, dim={a}), num_outputs=2, axis={a})[1]",
            ]  # fmt: skip
        x = p.let(rng.choice(ways))
    p.add(f"F.identity({x})")


def _cast(p: Program) -> None:
    """Into another dtype and back."""
    through = [p.rng.choice(FLOATS + INTEGERS) for _ in range(p.rng.randint(1, 2))]
    if p.edges and p.floating:  # what C makes of an infinity as an integer is not defined
        through = [name for name in through if name in FLOATS]
    x = p.any()
    for name in [*through, p.dtype]:
        x = f"F.cast({x}, dtype={name!r})"
    p.add(x)


def _twice(p: Program) -> None:
    """The same call twice, or with its operands in the other order."""
    f, x, y = p.rng.choice(FAMILIES), p.any(), p.any()
    a, b = p.let(f"F.broadcast_{f}({x}, {y})"), p.let(f"F.broadcast_{f}({y}, {x})")
    p.pool += [a, b]
    p.add(f"{p.rng.choice((a, b))} - {p.any()}")


def _signs(p: Program) -> None:
    """Signs, powers and functions that undo or repeat one another."""
    x, y = p.any(), p.any()
    u = p.rng.choice(UNARY)
    p.add(p.rng.choice((
        f"{x} + F.negative({y})", f"{x} - F.negative({y})", f"F.negative({x}) * F.negative({y})",
        f"F.negative(F.negative({x}))", f"{x} * {x}", f"{x} * -1", f"{x} ** 2", f"{x} ** 0.5",
        f"F.{u}(F.{u}({x}))", f"F.add_n({x}, {y})", f"F.add_n({x}, {y}, {x})",
        f"F.Activation({x}, act_type='relu')", f"F.relu(F.relu({x}) - {y})",
    )))  # fmt: skip


def _small(p: Program) -> None:
    """An operand that is spread out, and the sum over its copies."""
    f, x = p.rng.choice(FAMILIES[:8]), p.any()
    if p.rng.random() < 0.5:
        p.add(f"F.broadcast_{f}({x}, b)")
    else:
        p.add(f"F.broadcast_{f}({x}, F.sum({p.any()} * b, axis=0, keepdims=True))")
        p.roundings = max(p.roundings, 4)


def _unary(p: Program) -> None:
    p.add(f"F.{p.rng.choice(UNARY + OF_FLOATS * p.floating)}({p.any()})")


def _count(p: Program) -> None:
    """Sums and means over copies: more than the dtype can count."""
    rng = p.rng
    n = rng.choice(COUNTS)
    p.edges, p.shape, p.roundings = False, (2, 1), 40
    wide = p.let(rng.choice((
        f"F.broadcast_to(x, shape=(2, {n}))", f"F.broadcast_axis(x, axis=1, size={n})",
        f"F.broadcast_add(x * 0.001, F.zeros((1, {n}), dtype={p.dtype!r}))",
        f"F.broadcast_mul(F.broadcast_to(x, shape=(2, {n})), b)",
        f"F.broadcast_add(F.broadcast_to(x, shape=(2, {n})), b)",
    )))  # fmt: skip
    scale = rng.choice((1, 1e-4, 2.0**-20))
    p.add(rng.choice((
        f"F.sum({wide} * {scale}, axis=1, keepdims=True)", f"F.mean({wide}, axis=1, keepdims=True)",
        f"F.sum({wide}, axis=1, keepdims=True) * {scale}",
        f"F.broadcast_mul(F.mean({wide}, axis=1, keepdims=True), b)",
        f"F.mean(F.relu({wide}) * F.mean({wide}, axis=1, keepdims=True), axis=(0, 1))",
    )))  # fmt: skip


def _layer(p: Program) -> None:
    """A layer with a bias and an activation."""
    p.edges, p.roundings = p.edges and p.rng.random() < 0.3, 24
    p.shape = (p.rng.choice((1, 2, 5)), p.rng.choice((1, 3)))
    act = p.rng.choice(("F.relu", "F.tanh", "F.identity"))
    bias = p.let("F.sum(b + F.zeros_like(x), axis=1)" if p.shape[0] == 1 else "F.sum(y, axis=1)")
    p.add(f"{act}(F.FullyConnected(x, y, {bias}, num_hidden={p.shape[0]}))")


def _pooled(p: Program) -> None:
    """The largest of some activations: of finite numbers, and no two that round to one value."""
    p.shape, p.roundings, p.edges = p.rng.choice(((1, 2, 4, 4), (2, 1, 5, 3))), 4, False
    x = p.let(f"(x - y) * {p.rng.choice((1, 0.01, 1e4))}")
    act = p.rng.choice(("relu", "sigmoid", "tanh", "softrelu", "softsign"))
    pad = p.rng.choice(((0, 0), (1, 1)))
    p.add(
        f"F.Pooling(F.Activation({x}, act_type={act!r}), kernel=(2, 2), stride=(2, 2), "
        f"pool_type='max', pad={pad})"
    )


def _fused(p: Program) -> None:
    """A chain on so many numbers that it is computed in blocks, and its sum."""
    p.edges, p.roundings = False, 64
    p.shape = p.rng.choice(((256, 257), (1, 66000), (66000, 1)))
    for _ in range(p.rng.randint(2, 4)):
        p.rng.choice((_unary, _beside, _beside_constant, _twice, _signs))(p)
    a = p.rng.choice((0, 1, (0, 1)))
    p.add(f"F.{p.rng.choice(('sum', 'mean', 'max', 'min'))}({p.any()}, axis={a})")


_ALONE = (_count, _layer, _pooled, _fused)
_KINDS = (
    _beside, _chain, _beside_constant, _choice, _view, _cast, _twice, _signs, _small, _unary,
    *_ALONE,
)  # fmt: skip


# -- running them ----------------------------------------------------------------------------------


def draw(seed: int) -> str:
    """The text of a program, with its dtype and its inputs."""
    p = Program(seed)
    shown = [f"{n} = {a.tolist() if a.size < 40 else a.shape}" for n, a in zip("xyb", p.arrays)]
    return "\n".join([f"# {p.dtype}", p.text, *shown])


def eager(net: Callable[..., Any]) -> Any:
    return nn.HybridLambda(net)


def hybridized(**flags: bool) -> Callable[..., Any]:
    """A mode: with these flags of `hybridize`."""

    def mode(net: Callable[..., Any]) -> Any:
        block = nn.HybridLambda(net)
        block.hybridize(**flags)
        return block

    return mode


def imported(net: Callable[..., Any]) -> Any:
    """A mode: by the text of a file, in which attributes are strings."""

    def call(*arrays: Any) -> Any:
        # Symbols of known shapes: their operators broadcast, as those of arrays do.
        nodes = [Node(None, name, specs=(x._spec,)) for name, x in zip("xyb", arrays)]
        inputs = [sym.Symbol(((node, 0),)) for node in nodes]
        outputs = net(sym, *inputs)
        group = sym.Group(list(outputs)) if isinstance(outputs, tuple) else outputs
        found = sym.load_json(group.tojson())
        used = [i for i, x in enumerate(inputs) if x.name in found.list_inputs()]
        if not used:  # a SymbolBlock is called with arrays
            return eager(net)(*arrays)
        return gluon.SymbolBlock(found, [inputs[i] for i in used])(*[arrays[i] for i in used])

    return call


def lazy(net: Callable[..., Any]) -> Any:
    def call(*arrays: Any) -> Any:
        with d2lmini.lazy():
            return net(nd, *arrays)

    return call


MODES: dict[str, Callable[..., Any]] = {
    "hybridized": hybridized(),
    "static": hybridized(static_alloc=True, static_shape=True),
    "mirrored": hybridized(backward_do_mirror=True),
    "imported": imported,
    "lazy": lazy,
}


def run(p: Program, mode: Callable[..., Any]) -> list[list[Any]]:
    """Values and gradients of two calls, or that there was an error."""
    names: dict[str, Any] = {}
    exec(p.text, names)
    found: list[list[Any]] = []
    try:
        net = mode(names["net"])
        for _ in range(2):
            inputs = [nd.array(a, dtype=p.dtype) for a in p.arrays]
            for x in inputs if p.floating else ():
                x.attach_grad()
            with autograd.record() if p.floating else contextlib.nullcontext():
                outputs = net(*inputs)
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            if p.floating:
                p.rng.seed(1)
                heads = [nd.array(p.array(y.shape), dtype=y.dtype) for y in outputs]
                autograd.backward(outputs, heads)
                outputs += [x.grad for x in inputs] * (not p.shared or not p.edges)
            found.append([x.asnumpy() for x in outputs])
    except (MXNetError, TypeError, ValueError):
        found.append([])
    return found


def check(seed: int) -> bool:
    """Disagreement where a mode does not give what eager gives. There are no twins."""
    p = Program(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(p, eager)
        for name, mode in MODES.items():
            if mode is imported and [] in expected:  # a graph has no error in what nothing uses
                continue
            problem = difference(p, expected, run(p, mode))
            if problem:
                raise Disagreement(f"seed {seed}, {name}: {problem}\n{draw(seed)}")
    return False


def difference(p: Program, expected: list[list[Any]], got: list[list[Any]]) -> str:
    """What differs first, or ""."""
    if [len(call) for call in expected] != [len(call) for call in got]:
        return f"{expected} and {got}"
    for call, (before, after) in enumerate(zip(expected, got)):
        for i, (x, y) in enumerate(zip(before, after)):
            if (x.shape, x.dtype) != (y.shape, y.dtype) or not is_same(x, y, p.roundings):
                return f"call {call}, result {i}: {x}\nand {y}"
    return ""


def is_same(x: np.ndarray, y: np.ndarray, roundings: int) -> bool:
    """Equal to the bit, but for the bits of nan; or to so many roundings of the largest number,
    with nan, infinities and signs of zeros at the same places."""
    if not is_float(x.dtype):
        return bool((x == y).all())
    ends = finfo(x.dtype)
    a, b = x.astype("float64"), y.astype("float64")
    finite = np.isfinite(a)
    zeros = (a == 0) & (b == 0)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return False
    if not np.array_equal(np.signbit(a[zeros]), np.signbit(b[zeros])):
        return False
    room = float(ends.eps) * abs(a[finite]).max(initial=0) + float(ends.smallest_subnormal)
    return bool((abs(a[finite] - b[finite]) <= roundings * room).all())
