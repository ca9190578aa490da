"""Programs against the plain interpreter: every op, random graphs, blocks, workers, their text."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import Graph, assert_close, evaluate, graphs
from hypothesis import given, settings
from op_rows.case import Case, draw
from test_ops import ROWS, find

from d2lmini import MXNetError, nd
from d2lmini.device.quiet import run_quietly
from d2lmini.graph import fusion
from d2lmini.graph.expressions import FORMULAS, formula_for, steps_of
from d2lmini.graph.program import Program
from d2lmini.graph.typed import typed
from d2lmini.ops.core import Op, registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol.node import Draw, Node


def compiled(heads, shapes: dict, training: bool = False, dtype: str = "float32", **options):
    """A Program and the typed graph it comes from; `shapes` by variable."""
    heads = heads if isinstance(heads, list) else [heads]
    entries = [entry for head in heads for entry in head._entries]
    specs = {x._entry[0]: Spec(shape, dtype) for x, shape in shapes.items()}
    variables, outputs = typed(entries, specs, training)
    graph = Graph(list(variables.values()), outputs, training)
    return Program("net", graph.variables, outputs, **options), graph


def check(program: Program, graph: Graph, tolerance: float = 2e-5, arrays=None) -> None:
    """`run` gives what the interpreter gives, into places as well, and changes the same inputs."""
    given = graph.arrays() if arrays is None else arrays
    keys = graph.keys()
    expected, held = evaluate(graph.variables, graph.outputs, given, keys)
    for placed in (False, True):
        arrays = [array.copy() for array in given]
        places = [np.full(s.shape, 7, s.dtype) if placed else None for s in program.specs]
        results = run_quietly(program.run, arrays, places, keys)
        for result, want in zip(results, expected, strict=True):
            assert_close(want, result, tolerance)
        for array, want in zip(arrays, held, strict=True):
            assert_close(want, array, tolerance)
        for i, result in enumerate(results):
            assert places[i] is None or result is places[i]
            others = arrays + results[:i]
            assert not any(np.may_share_memory(result, other) for other in others)


# -- every op --------------------------------------------------------------------------------------

OP_ROWS = [
    case
    for case in ROWS
    if isinstance(find(case.op), Op) and all(isinstance(i, np.ndarray) for i in case.inputs)
]


def node_of(case: Case) -> tuple[list[Node], Node]:
    """The row as a graph of one op."""
    op = find(case.op)
    variables = [
        Node(None, f"x{i}", specs=(Spec(x.shape, x.dtype),)) for i, x in enumerate(case.inputs)
    ]
    values = [nd.array(x, dtype=x.dtype) for x in case.inputs]
    inputs, attrs = op.bind(tuple(values), dict(case.attrs))
    attrs = dict(attrs)
    for name in op.injects:
        attrs[name] = Draw(0) if name == "rng" else False
    entries = [
        next(((v, 0) for v, x in zip(variables, values) if x is given), None) for given in inputs
    ]
    inferred = op.infer(*[e[0].specs[0] for e in entries if e], **attrs)
    specs = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
    return variables, Node(op, "y", tuple(entries), attrs, specs)


@pytest.mark.parametrize("case", OP_ROWS, ids=[case.id for case in OP_ROWS])
def test_op_compiled_equals_the_op(case: Case):
    variables, node = node_of(case)
    graph = Graph(variables, [(node, i) for i in range(len(node.specs))], False)
    program = Program("op", variables, graph.outputs)
    given = [np.ascontiguousarray(x).reshape(x.shape) for x in case.inputs]
    check(program, graph, 1e-6, given)


@pytest.mark.parametrize("name, kind", FORMULAS, ids=[f"{n}-{k}" for n, k in FORMULAS])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "bool"])
def test_a_formula_gives_the_bits_of_its_op(name, kind, dtype):
    """Wherever the table has a formula for a dtype and the op takes that dtype."""
    op = registry[name]
    if formula_for(name, np.dtype(dtype)) is None:
        return
    inputs = [draw((5, 7), dtype=dtype, seed=i) for i in range(len(op.input_names))]
    attrs = {**op.defaults, **{key: 2 for key in op.required}}
    specs = [Spec(x.shape, x.dtype) for x in inputs]
    variables = [Node(None, f"x{i}", specs=(spec,)) for i, spec in enumerate(specs)]
    try:
        inferred = op.infer(*specs, **attrs)
    except MXNetError:  # bool, for most
        return
    node = Node(op, "y", tuple((v, 0) for v in variables), attrs, (inferred,))
    assert steps_of(node)
    program = Program("formula", variables, [(node, 0)])
    (result,) = run_quietly(program.run, inputs, [None], [])
    want = run_quietly(lambda: op.compute(np, *inputs, **attrs))
    assert result.dtype == want.dtype
    np.testing.assert_array_equal(result, want)


# -- random graphs ---------------------------------------------------------------------------------


@given(graphs())
@settings(deadline=None)
def test_program_equals_interpreter(graph):
    check(Program("net", graph.variables, graph.outputs), graph)


@given(graphs())
@settings(deadline=None)
def test_program_with_gradients_equals_interpreter(graph):
    joint = graph.with_gradients()
    check(Program("net", joint.variables, joint.outputs), joint)


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Everything elementwise runs in groups, in blocks of a few elements."""
    monkeypatch.setattr(fusion, "SMALLEST", 2)
    monkeypatch.setattr(fusion, "BLOCK_BYTES", 32)


@given(graph=graphs())
@settings(deadline=None)
def test_groups_equal_interpreter(graph):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "SMALLEST", 2)
        patch.setattr(fusion, "BLOCK_BYTES", 32)
        joint = graph.with_gradients()
        program = Program("net", joint.variables, joint.outputs)
    check(program, joint)
