"""`net.compare_hybrid(x)`: compares the compiled net with an eager run and locates differences.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Net(nn.HybridBlock):
...     bent = False
...     def hybrid_forward(self, F, x):
...         y = F.exp(x)
...         return F.tanh(y) if self.bent else F.relu(y)
>>> net = Net(prefix="net_")
>>> net.hybridize()
>>> y = net(nd.ones(2))
>>> net.compare_hybrid(nd.ones(2))
equal: 1 output, largest difference 0
>>> net.bent = True                          # a branch in Python, which the trace has fixed
>>> net.compare_hybrid(nd.ones(2))
different: output 0 by 1.73, gradient of input 0 by 2.67
first at net_relu0 (relu), which the Python does not compute now; there it writes net_tanh0 (tanh)

Both runs get the same inputs, parameters and random numbers; the gradients are compared too. Then
the graph of the compiled net is computed op by op, and each value is looked up among the results of
the same op in the eager run. The first value not found is the first difference. If all values are
found, the compiler is at fault, and the result names the first node that is compiled wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np

from d2lmini import autograd, random_state
from d2lmini.gluon.compiled import CompiledForward, PlacedTrace
from d2lmini.gluon.flatten_args import flatten, regroup
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.ir import Node, topological
from d2lmini.graph.symbolic_trace import SymbolicTrace
from d2lmini.ndarray import NDArray
from d2lmini.scopes import contextmanager
from d2lmini.symbol import Symbol


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; true when the runs agree.

    differences  the outputs and gradients that differ too much, and by how much: {"output 0": 0.5}
    largest      the largest difference of all
    node, op     the first node that differs, and its op; None if there is none
    why          the reason, if known
    outputs      the number of outputs compared
    """

    differences: dict[str, float]
    largest: float
    outputs: int
    node: str | None = None
    op: str | None = None
    why: str = ""

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if self:
            s = "" if self.outputs == 1 else "s"
            return f"equal: {self.outputs} output{s}, largest difference {self.largest:.3g}"
        parts = ", ".join(f"{what} by {size:.3g}" for what, size in self.differences.items())
        where = "" if self.node is None else f"\nfirst at {self.node} ({self.op}), {self.why}"
        return f"different: {parts}" + (where or f"\n{self.why}")


def compare(
    block: Any, inputs: tuple, train: bool = False, rtol: float = 1e-4, atol: float = 1e-5
) -> Comparison:
    """Run `block` eagerly and compiled on the same inputs; compare outputs and the gradients of
    inputs and parameters. train: in training mode. See this module's docstring."""
    compiled: CompiledForward = block._compiled()
    flat, form = flatten(list(inputs))
    log: list[tuple[str, NDArray]] = []
    with _restore_after(block), imperative(block), _log_ops(log):
        eager = _run(block, flat, form, train)
    with _restore_after(block):
        now = _run(block, flat, form, train)
    differences, largest = {}, 0.0
    for what in [*eager, *[name for name in now if name not in eager]]:
        size = _difference(eager.get(what), now.get(what))
        largest = max(largest, size)
        told = what.removeprefix("recorded ") in differences
        if size and not told and not _close(eager.get(what), now.get(what), rtol, atol):
            differences[what] = size
    n = sum(what.startswith("output") for what in now)
    if not differences:
        return Comparison({}, largest, n)
    with _restore_after(block):
        node, why = _first(block, compiled, flat, form, train, log, rtol, atol)
    if node is None:
        return Comparison(differences, largest, n, why=why)
    assert node.op is not None
    return Comparison(differences, largest, n, node.name, node.op.name, why)


def _run(block: Any, flat: list[Any], form: Any, train: bool) -> dict[str, np.ndarray]:
    """Outputs, computed without and with recording, and gradients for head gradients of ones."""
    found = {} if train else _outputs_of(block, flat, form)
    xs = [x if x is None else x.copy() for x in flat]
    wanted = {f"input {i}": x for i, x in enumerate(xs)
              if x is not None and np.issubdtype(x.dtype, np.floating)}  # fmt: skip
    for x in wanted.values():
        x.attach_grad()
    with autograd.record(train_mode=train):
        heads = flatten(block(*regroup(xs, form)[0]))[0]
    ctx = _first_array(xs)._ctx
    learnt = [p for p in block.collect_params().values() if p.grad_req != "null"]
    wanted.update({p.name: p.data(ctx) for p in learnt})
    kind = "output" if train else "recorded output"
    found.update({f"{kind} {i}": y.asnumpy() for i, y in enumerate(heads) if y is not None})
    recorded = [y for y in heads if y is not None and y._node is not None]
    if recorded and wanted:
        grads = autograd.grad(recorded, list(wanted.values()))
        found.update({f"gradient of {w}": g.asnumpy() for w, g in zip(wanted, grads)})
    return found


def _outputs_of(block: Any, flat: list[Any], form: Any) -> dict[str, np.ndarray]:
    xs = [x if x is None else x.copy() for x in flat]
    heads = flatten(block(*regroup(xs, form)[0]))[0]
    return {f"output {i}": y.asnumpy() for i, y in enumerate(heads) if y is not None}


def _first_array(values: Sequence[Any]) -> Any:
    return next(x for x in values if x is not None)


def _difference(a: Any, b: Any) -> float:
    """The largest difference of two arrays; inf if one is missing or the shapes differ."""
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    size = float(np.max(np.abs(a.astype("float64") - b.astype("float64"))))
    return size if size == size else (0.0 if np.array_equal(a, b, equal_nan=True) else float("inf"))


def _close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    return (
        a is not None and b is not None and a.shape == b.shape
        and np.allclose(a, b, rtol, atol, equal_nan=True)
    )  # fmt: skip


_ELSE = (
    "whose value no op of the eager run has: on arrays the Python does something else than on "
    "Symbols (x[0] is a row of an array and an output of a Symbol, for instance)"
)


# -- where they part -------------------------------------------------------------------------------


def _first(
    block: Any, compiled: CompiledForward, flat: list[Any], form: Any, train: bool,
    log: list[tuple[str, NDArray]], rtol: float, atol: float,
) -> tuple[Node | None, str]:  # fmt: skip
    """The first node of the compiled graph whose value the eager run lacks, and why."""
    ctx = _first_array(flat)._ctx
    with autograd.train_mode() if train else autograd.predict_mode():
        placed = compiled.place(block, flat, form, ctx)
        found = _rewritten(block, placed.trace, flat, form)
        if found is not None:
            return found
        values = _values(placed, flat)
        eager: dict[str, list[np.ndarray]] = {}
        for name, array in log:
            eager.setdefault(name, []).append(array.asnumpy())
        for node, arrays in values.items():
            assert node.op is not None
            # Views, which arrays make without an op, are not in the log.
            alike = eager.get(node.op.name)
            for y in arrays if alike else ():
                if not any(_close(y, eager_y, rtol, atol) for eager_y in alike or ()):
                    return node, _ELSE
        return _find_miscompiled(placed, flat, values, rtol, atol)


def _values(placed: PlacedTrace, flat: list[Any]) -> dict[Node, list[np.ndarray]]:
    """The values of all nodes of the graph, computed op by op."""
    found: dict[Node, list[np.ndarray]] = {}

    def watch(node: Node, _: Any, outputs: list[Any]) -> None:
        found[node] = [y.asnumpy() for y in outputs]

    placed.op_by_op(flat, watch)
    return found


def _rewritten(
    block: Any, trace: SymbolicTrace, flat: list[Any], form: Any
) -> tuple[Node | None, str] | None:
    """The first node where a new trace of the Block's Python differs from the compiled graph; None
    if the graphs are equal."""
    fresh, _ = CompiledForward(block)._trace(block, flat, form, _first_array(flat)._ctx)
    was, now = _number_nodes(trace), _number_nodes(fresh)
    for (before, sources), (after, others) in zip(was, now):
        assert before.op is not None and after.op is not None
        if before.op is not after.op:
            written = f"writes {after.name} ({after.op.name})"
            return before, f"which the Python does not compute now; there it {written}"
        if before.own_attrs != after.own_attrs:
            return before, f"traced with {before.own_attrs}, now it is {after.own_attrs}"
        if sources != others:
            return before, "which takes other inputs now"
    if len(was) != len(now) or _outputs(trace, was) != _outputs(fresh, now):
        return None, "the Python returns something else now"
    return None


def _number_nodes(trace: SymbolicTrace) -> list[tuple[Node, list[Any]]]:
    """The nodes of a graph, each with the sources of its inputs."""
    nodes = topological(trace.symbol._entries)
    numbers = {node: i for i, node in enumerate(nodes)}
    return [
        (node, [e and (numbers[e[0]], e[1]) for e in node.inputs])
        for node in nodes
        if node.op is not None
    ]


def _outputs(trace: SymbolicTrace, nodes: list[tuple[Node, list[Any]]]) -> list[Any]:
    numbers = {node: i for i, (node, _) in enumerate(nodes)}
    return [(numbers.get(node, node.name), i) for node, i in trace.symbol._entries]


def _find_miscompiled(
    placed: PlacedTrace,
    flat: list[Any],
    values: dict[Node, list[np.ndarray]],
    rtol: float,
    atol: float,
) -> tuple[Node | None, str]:
    """The first node whose value changes when the graph up to that node is compiled."""
    arrays = dict(zip(placed.op.variables, placed.arrays_for(flat)))
    for node, expected in values.items():
        graph = Symbol(tuple((node, i) for i in range(len(expected))))
        part = CachedOp(graph, trace=placed.trace)
        with random_state.rewound():
            results = part(*[arrays[variable] for variable in part.variables])
        for y, result in zip(expected, results if isinstance(results, list) else [results]):
            if not _close(y, result.asnumpy(), rtol, atol):
                return node, "which the compiled program computes otherwise than the op itself"
    return None, "each value of the graph is right: it is the backward program that differs"


# -- the same conditions for both ------------------------------------------------------------------


@contextmanager
def imperative(block: Any) -> Iterator[None]:
    """A scope in which a net and all Blocks in it run eagerly."""
    found: list[tuple[Any, Any]] = []

    def leave_out(part: Any) -> None:
        if "forward" in part.__dict__:
            found.append((part, part.__dict__.pop("forward")))

    block.apply(leave_out)
    try:
        yield
    finally:
        for part, forward in found:
            part.__dict__["forward"] = forward


@contextmanager
def _restore_after(block: Any) -> Iterator[None]:
    """A scope that restores moving averages, gradients and random generators at its end."""
    moving = [p for p in block.collect_params().values() if p.grad_req == "null" and p._data]
    before = [[x.copy() for x in p._data] for p in moving]
    with random_state.rewound():
        try:
            yield
        finally:
            for parameter, copies in zip(moving, before):
                for array, copy in zip(parameter._data, copies):
                    array[:] = copy


@contextmanager
def _log_ops(log: list[tuple[str, NDArray]]) -> Iterator[None]:
    """A scope that logs the results of all ops on arrays: (op, result)."""
    arrays: Any = NDArray
    apply, mine = arrays._apply, get_ident()

    def noting(op: Any, *how: Any, **more: Any) -> Any:
        result = apply(op, *how, **more)
        for y in result if isinstance(result, list) else [result]:
            if isinstance(y, NDArray) and get_ident() == mine:
                log.append((op.name, y))
        return result

    arrays._apply = staticmethod(noting)
    try:
        yield
    finally:
        arrays._apply = staticmethod(apply)
