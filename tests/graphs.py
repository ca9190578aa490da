"""Random typed graphs for tests of what works on graphs: passes, the planner, programs.

A strategy of Hypothesis draws a `Graph`: variables of a few shapes, a score of calls that use them
and one another (elementwise and broadcasting ops, views, reductions, products, ops of several
outputs, ops that draw, BatchNorm, which changes its moving statistics), and one to four outputs.

    @given(graphs())
    def test_a_pass_keeps_meaning(graph):
        check_same(graph, graph.outputs, a_pass(graph.outputs))

`evaluate` is the oracle: node by node, every value in memory of its own. Values stay near 1, so
that nothing overflows and an error of some roundings can be told from a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from d2lmini.device.errstate import run_quietly
from d2lmini.graph.backward import gradients
from d2lmini.graph.ir import Draw, Entry, Node, compute, topological
from d2lmini.graph.typed import infer_types
from d2lmini.ops.core import registry
from d2lmini.ops.random_state import Key
from d2lmini.ops.spec import Spec
from d2lmini.symbol.symbol import Traced


@dataclass
class Graph:
    """A typed graph: its variables in order, its outputs, the mode it was made for."""

    variables: list[Node]
    outputs: list[Entry]
    training: bool

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """One array for each variable, the same ones for the same seed; variances are positive."""
        rng = np.random.default_rng(seed)
        return [_array(rng, node) for node in self.variables]

    def keys(self) -> list[Key]:
        """What its nodes draw with."""
        return [Key(7, 0, i) for i in range(draws(self.outputs))]

    def with_gradients(self) -> Graph:
        """The joint graph: its outputs and the gradients of the floating ones, each weighted by a
        variable head_grad0, ..., for the variables that have one."""
        floating = [e for e in self.outputs if e[0].specs[e[1]].dtype.kind == "f"]
        heads = [
            Node(None, f"head_grad{i}", specs=(e[0].specs[e[1]],)) for i, e in enumerate(floating)
        ]
        wanted = [(v, 0) for v in self.variables if v.specs[0].dtype.kind == "f"]
        found = gradients(floating, [(g, 0) for g in heads], wanted)
        grads = [g for g in found if g is not None]
        return Graph(self.variables + heads, self.outputs + grads, self.training)

    def __repr__(self) -> str:
        lines = [f"{'training' if self.training else 'predict'}:"]
        for node in topological(self.outputs):
            inputs = ", ".join(str(e and (e[0].name, e[1])) for e in node.inputs)
            op = "variable" if node.op is None else node.op.name
            lines.append(f"  {node.name} = {op}({inputs}) {node.attrs} -> {node.specs}")
        return "\n".join([*lines, f"  outputs {self.outputs}"])


def draws(outputs: Sequence[Entry]) -> int:
    """How many keys a run needs: one more than the largest number of a Draw."""
    used = [v.number for n in topological(outputs) for v in n.attrs.values() if type(v) is Draw]
    return max(used, default=-1) + 1


def _array(rng: np.random.Generator, node: Node) -> np.ndarray:
    spec = node.specs[0]
    if spec.dtype.kind != "f":
        return rng.integers(0, 3, spec.shape).astype(spec.dtype)
    values = rng.uniform(-1.5, 1.5, spec.shape)
    if node.name.endswith("var"):
        values = abs(values) + 0.5
    return np.asarray(values, spec.dtype)


def evaluate(
    variables: Sequence[Node], outputs: Sequence[Entry], arrays: Sequence[np.ndarray],
    keys: Sequence[Any],
) -> tuple[list[np.ndarray], list[np.ndarray]]:  # fmt: skip
    """The outputs, and what the variables hold afterwards; `arrays` stay as they are."""
    held = {node: array.copy() for node, array in zip(variables, arrays, strict=True)}
    values: dict[Entry, Any] = {(node, 0): array for node, array in held.items()}

    def run() -> None:
        for node in topological(outputs):
            if node.op is None:
                continue
            given = [None if e is None else values[e] for e in node.inputs]
            results = compute(np, node, given, keys)
            assert len(results) == len(node.specs), node
            for i, (y, spec) in enumerate(zip(results, node.specs)):
                y = np.array(y)
                assert (y.shape, y.dtype) == (spec.shape, spec.dtype), (node, y.shape, y.dtype)
                values[node, i] = y

    run_quietly(run)
    return [values[e].copy() for e in outputs], [held[node] for node in variables]


def check_same(
    graph: Graph, before: Sequence[Entry], after: Sequence[Entry], tolerance: float = 2e-5
) -> None:
    """Both lists of outputs have the same specs and values, and change the variables alike; to
    `tolerance`, relative to the largest element, or to the bit if it is 0."""
    assert [n.specs[i] for n, i in before] == [n.specs[i] for n, i in after]
    keys = [Key(7, 0, i) for i in range(max(draws(before), draws(after)))]
    arrays = graph.arrays()
    expected = evaluate(graph.variables, before, arrays, keys)
    got = evaluate(graph.variables, after, arrays, keys)
    for a, b in zip(expected[0] + expected[1], got[0] + got[1], strict=True):
        assert_close(a, b, tolerance)


def assert_close(expected: np.ndarray, got: np.ndarray, tolerance: float = 2e-5) -> None:
    """Same shape, dtype and values, relative to the largest of them; to the bit for tolerance 0."""
    assert (expected.shape, expected.dtype) == (got.shape, got.dtype)
    if tolerance == 0 or expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        assert tolerance or got.tobytes() == expected.tobytes()
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    scale = max(1.0, float(abs(expected[finite]).max(initial=0)))
    np.testing.assert_allclose(got[finite], expected[finite], rtol=0, atol=tolerance * scale)


# -- drawing one -----------------------------------------------------------------------------------

SHAPES = [(4,), (2, 3), (2, 3, 4), (2, 4, 3), (1, 3), (3, 1), (2, 3, 2, 2), (1,)]
UNARY = ["tanh", "sigmoid", "relu", "negative", "abs", "sin", "floor", "sign", "_copy", "BlockGrad",
         "zeros_like", "ones_like", "softsign", "erf"]  # fmt: skip
SCALAR = ["_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar",
          "_maximum_scalar", "_minimum_scalar", "_greater_scalar"]  # fmt: skip
BINARY = ["broadcast_add", "broadcast_sub", "broadcast_maximum", "broadcast_minimum",
          "broadcast_greater"]  # fmt: skip

Pool = list[Traced]


class _Maker:
    """Draws one call after another; `pool` holds the values that there are."""

    def __init__(self, draw: Callable[[Any], Any], training: bool):
        self.draw = draw
        self.training = training
        self.pool: Pool = []
        self.count = 0

    def variable(self, shape: tuple[int, ...], dtype: str = "float32", name: str = "x") -> Traced:
        """A new variable."""
        node = Node(None, f"{name}{self.count}", specs=(Spec(shape, dtype),))
        self.count += 1
        return Traced(((node, 0),))

    def any(self, fits: Callable[[Traced], bool] = lambda x: True) -> Traced:
        """A value of the pool that fits; a new variable if there is none."""
        candidates = [x for x in self.pool if fits(x)]
        if candidates:
            # The last ones are likelier: graphs become deep.
            return self.draw(st.sampled_from(candidates + candidates[-3:]))
        for shape in SHAPES:
            x = self.variable(shape)
            if fits(x):
                self.pool.append(x)
                return x
        raise AssertionError("no shape fits")

    def floating(self, fits: Callable[[Traced], bool] = lambda x: True) -> Traced:
        """Like `any`, float32."""
        return self.any(lambda x: x.dtype is np.float32 and fits(x))

    def add(self, *values: Traced) -> None:
        """These are in the pool from now on."""
        self.pool.extend(values)

    def unary(self) -> None:
        self.add(registry[self.draw(st.sampled_from(UNARY))](self.floating()))

    def scalar(self) -> None:
        number = self.draw(st.sampled_from([0, 1, 2, -1, 0.5, 3, 1.5]))
        name = self.draw(st.sampled_from(SCALAR))
        if name == "_div_scalar" and abs(number) < 1:
            number = 2
        y = registry[name](self.any(), scalar=number)
        self.add(y.tanh() if abs(number) > 2 and y.dtype is np.float32 else y)

    def power(self) -> None:
        self.add((self.floating() ** self.draw(st.sampled_from([1, 2]))).tanh())

    def binary(self) -> None:
        x = self.any()
        y = self.any(lambda y: y.dtype is x.dtype and _broadcast(x.shape, y.shape))
        if self.draw(st.booleans()):
            x, y = y, x
        if x.dtype is np.float32 and self.draw(st.booleans()):
            self.add((x * y).tanh())
        else:
            self.add(registry[self.draw(st.sampled_from(BINARY))](x, y))

    def same(self) -> None:
        x = self.floating()
        y = self.floating(lambda y: y.shape == x.shape)
        kind = self.draw(st.sampled_from(["elemwise_add", "elemwise_sub", "add_n", "where"]))
        if kind == "where":
            self.add(registry["where"](x > 0, y, x))
        else:
            self.add(registry[kind](*[x, y, x][: 3 if kind == "add_n" else 2]).tanh())

    def reduction(self) -> None:
        x = self.floating(lambda x: x.ndim > 0)
        name = self.draw(st.sampled_from(["sum", "mean", "max"]))
        axis = self.draw(st.sampled_from([None, *range(x.ndim)]))
        y = registry[name](x, axis=axis, keepdims=self.draw(st.booleans()))
        self.add(y.sin() if name == "sum" else y)

    def view(self) -> None:
        x = self.any(lambda x: x.ndim > 0)
        kind = self.draw(st.sampled_from(["reshape", "flatten", "expand_dims", "squeeze", "_full"]))
        if kind == "reshape":
            n = x.size
            shapes = [(n,), (1, n), (n, 1), x.shape] + [(2, n // 2)] * (n % 2 == 0)
            self.add(registry["reshape"](x, shape=self.draw(st.sampled_from(shapes))))
        elif kind == "expand_dims":
            self.add(registry[kind](x, axis=self.draw(st.integers(0, x.ndim))))
        elif kind == "_full":
            self.add(x + registry["ones_like"](x) * 0)
        else:
            self.add(registry[kind](x))

    def transposed(self) -> None:
        x = self.any(lambda x: x.ndim > 1)
        if self.draw(st.booleans()):
            axes = self.draw(st.permutations(range(x.ndim)))
            self.add(registry["transpose"](x, axes=tuple(axes)))
        else:
            self.add(registry["swapaxes"](x, dim1=0, dim2=x.ndim - 1))

    def part(self) -> None:
        x = self.any(lambda x: x.ndim > 0 and x.size > 0)
        kind = self.draw(st.sampled_from(["slice_axis", "slice", "reverse", "broadcast_to"]))
        n = x.shape[0]
        if kind == "slice_axis":
            end = self.draw(st.sampled_from([None, 1, n]))
            self.add(registry[kind](x, axis=0, begin=0, end=end))
        elif kind == "slice":
            step = self.draw(st.sampled_from([1, 2, -1]))
            self.add(registry[kind](x, begin=(None,), end=(None,), step=(step,)))
        elif kind == "reverse":
            self.add(registry[kind](x, axis=(0,)))
        else:
            self.add(registry[kind](x, shape=(n, *[2 if s == 1 else s for s in x.shape[1:]])))

    def cast(self) -> None:
        dtype = self.draw(st.sampled_from(["float32", "float64", "int32"]))
        self.add(registry["cast"](self.any(), dtype=dtype))

    def joined(self) -> None:
        x = self.floating(lambda x: x.ndim > 0)
        y = self.floating(lambda y: y.shape == x.shape)
        self.add(registry["concat"](x, y, dim=x.ndim - 1))

    def parted(self) -> None:
        x = self.floating(lambda x: x.ndim > 0 and x.shape[-1] % 2 == 0 and x.size > 0)
        self.add(*registry["split"](x, num_outputs=2, axis=x.ndim - 1))

    def several(self) -> None:
        x = self.floating(lambda x: x.ndim > 1)
        if self.draw(st.booleans()):
            mean = registry["mean"](x, axis=(0,), keepdims=True)
            apart = registry["square"](registry["broadcast_sub"](x, mean))
            self.add(mean, registry["mean"](apart, axis=(0,)))
        else:
            C = x.shape[-1]
            gamma, beta = self.variable((C,), name="gamma"), self.variable((C,), name="beta")
            self.add(registry["LayerNorm"](x, gamma, beta, eps=0.1))

    def product(self) -> None:
        x = self.floating(lambda x: x.ndim == 2)
        w = self.floating(lambda w: w.ndim == 2 and w.shape[1] == x.shape[1])
        n = w.shape[0]
        self.add(registry["FullyConnected"](x, w, num_hidden=n, no_bias=True).tanh())

    def softmax(self) -> None:
        self.add(registry["softmax"](self.floating(lambda x: x.ndim > 0), axis=-1))

    def chance(self) -> None:
        x = self.floating()
        kind = self.draw(st.sampled_from(["Dropout", "_random_uniform_like"]))
        attrs = {"p": self.draw(st.sampled_from([0, 0.5]))} if kind == "Dropout" else {}
        self.add(registry[kind](x, **attrs))

    def batch_norm(self) -> None:
        x = self.floating(lambda x: x.ndim > 1 and x.shape[0] > 1)
        C = x.shape[1]
        names = ("gamma", "beta", "moving_mean", "moving_var")
        states = [self.variable((C,), name=f"n{self.count}_{name}") for name in names]
        states = [Traced(((_renamed(s._entry[0], name), 0),)) for s, name in zip(states, names)]
        fix = self.draw(st.booleans())
        y = registry["BatchNorm"](x, *states, fix_gamma=fix, eps=0.5)
        self.add(y)
        if self.draw(st.booleans()):  # the same statistics, changed twice
            self.add(registry["BatchNorm"](y.tanh(), *states, fix_gamma=fix, eps=0.5))

    KINDS = (
        unary, unary, scalar, scalar, power, binary, binary, same, reduction, view, view,
        transposed, part, cast, joined, parted, several, product, softmax,
    )  # fmt: skip


def _renamed(node: Node, ending: str) -> Node:
    return Node(None, f"{node.name}_{ending}", specs=node.specs)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return len(np.broadcast_shapes(a, b)) <= 4 and np.prod(np.broadcast_shapes(a, b)) <= 500
    except ValueError:
        return False


@st.composite
def graphs(
    draw: Any, most: int = 14, random: bool = True, mutating: bool = True, outputs: int = 4
) -> Graph:
    """A random typed graph of up to `most` calls; `random` and `mutating` allow such ops."""
    maker = _Maker(draw, draw(st.booleans()))
    kinds = list(maker.KINDS) + [_Maker.chance] * random + [_Maker.batch_norm] * mutating
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)):
        maker.add(maker.variable(shape))
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most)):
        kind(maker)
        # Shapes that grow without end would make slow tests.
        maker.pool = [x for x in maker.pool if x.size <= 500 and x.ndim <= 4] or maker.pool[:1]
    made = [x for x in maker.pool if x._entry[0].op is not None] or maker.pool
    last = made[-8:]
    chosen = draw(st.lists(st.sampled_from(last), min_size=1, max_size=outputs))
    entries = [x._entry for x in chosen]
    specs = {node: node.specs[0] for node in topological(entries) if node.op is None}
    variables, heads = infer_types(entries, specs, maker.training)
    return Graph(list(variables.values()), heads, maker.training)
