"""Programs against the plain interpreter: every op, random graphs, blocks, names, memory."""

from __future__ import annotations

import ast
import builtins
import threading
from contextlib import suppress
from functools import partial

# -- every op --------------------------------------------------------------------------------------
from itertools import combinations

import numpy as np
import pytest
from check_programs import check, compiled
from graphs import Graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from op_rows.case import Case, draw
from op_rows.table import ROWS, each, find
from rows import by, over

from d2lmini import MXNetError, nd, sym
from d2lmini.device.errstate import run_quietly
from d2lmini.graph import fusion
from d2lmini.graph.ir import Draw, Node
from d2lmini.graph.lower import steps_of
from d2lmini.graph.plan import Life, arrange
from d2lmini.graph.program import Program
from d2lmini.ops.core import Op, registry
from d2lmini.ops.spec import Spec

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


@each(OP_ROWS)
def test_op_compiled_equals_the_op(case: Case):
    variables, node = node_of(case)
    graph = Graph(variables, [(node, i) for i in range(len(node.specs))], False)
    program = Program("op", variables, graph.outputs)
    given = [np.ascontiguousarray(x).reshape(x.shape) for x in case.inputs]
    check(program, graph, 1e-6, given)


DTYPES = "float16 float32 float64 int32 int64 uint8 bool".split()
NUMBERS = (2, 0.5, -3, 2.5, -0.0)


def nodes_of(op: Op, dtype: str) -> list[Node]:
    """Typed nodes of an op on arrays of one dtype, with several numbers for its attributes."""
    rows = [
        {**op.defaults, **dict.fromkeys(op.required, n)}
        for n in NUMBERS[: 5 * len(op.required) or 1]
    ]
    if op.name == "Activation":
        rows = [{"act_type": name} for name in "relu sigmoid softrelu softsign tanh".split()]
    found = []
    for attrs in rows:
        specs = [Spec((5, 7), dtype)] * (3 if op.variadic else len(op.input_names))
        variables = [Node(None, f"x{i}", specs=(spec,)) for i, spec in enumerate(specs)]
        with suppress(MXNetError, TypeError, ValueError):  # a dtype or number that it refuses
            inferred = op.infer(*specs, **attrs)
            outs = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
            found.append(Node(op, "y", tuple((v, 0) for v in variables), attrs, outs))
    return found


ELEMENTWISE = sorted(
    {op.name for op in registry.values() if op.elementwise and "dtype" not in op.required}
)
STEP_ROWS = [(name, dtype) for dtype in DTYPES for name in ELEMENTWISE]


@over("name, dtype", by(lambda row: row[0], STEP_ROWS), name="-".join)
def test_steps_give_the_bits_of_their_op(name, dtype):
    """Wherever the trace of an op is a chain of ufuncs."""
    for node in nodes_of(registry[name], dtype):
        if steps_of(node) is None:
            continue
        variables = [entry[0] for entry in node.inputs]
        inputs = [draw((5, 7), dtype=dtype, seed=i) for i in range(len(variables))]
        program = Program("steps", variables, [(node, 0)])
        (result,) = run_quietly(program.run, inputs, [None], [])
        want = run_quietly(partial(node.op.compute, np, *inputs, **node.attrs))
        assert result.dtype == want.dtype
        assert result.tobytes() == want.tobytes(), node.attrs


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


@given(graph=graphs())
@settings(deadline=None)
def test_groups_equal_interpreter(graph):
    """Everything elementwise in groups, in blocks of a few elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "SMALLEST", 2)
        patch.setattr(fusion, "ONE_BLOCK", 0)
        patch.setattr(fusion, "BLOCK_BYTES", 32)
        patch.setattr(fusion, "RUN_BYTES", 1)
        joint = graph.with_gradients()
        program = Program("net", joint.variables, joint.outputs)
    check(program, joint)


# -- groups ----------------------------------------------------------------------------------------


def big(shape: tuple, seed: int = 0) -> np.ndarray:
    return draw(shape, seed=seed)


# -- memory ----------------------------------------------------------------------------------------


def deep(n: int, x):
    """n layers that cannot work in place."""
    for i in range(n):
        x = sym.cumsum(x * 2, axis=1, name=f"h{i}")
    return x


def test_calls_at_once_do_not_meet():
    """Eight threads in one program, each with numbers of its own."""
    x = sym.var("x")
    program, _ = compiled(deep(6, x) * 3, {x: (40, 50)})
    inputs = [big((40, 50), seed=i) for i in range(8)]
    want = [run_quietly(program.run, [a], [None], [])[0].tobytes() for a in inputs]
    wrong: list[int] = []
    start = threading.Barrier(8)

    def work(i: int) -> None:
        start.wait()
        for _ in range(50):
            if run_quietly(program.run, [inputs[i]], [None], [])[0].tobytes() != want[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_share_no_memory():
    """An input, a value returned twice, a view of another result: each comes in memory of its own
    (`check` looks)."""
    x = sym.var("x")
    y = sym.exp(x, name="y")
    program, graph = compiled([x, y, y, sym.reshape(y, shape=(6,)), sym.reshape(x, shape=(3, 2))],
                              {x: (2, 3)})  # fmt: skip
    check(program, graph)


# -- what is printed -------------------------------------------------------------------------------


def unknown_names(program: Program) -> set[str]:
    """Names that the source reads and nobody gave a meaning."""
    tree = ast.parse(program.source)
    given = set(dir(builtins)) | set(program._make.__globals__)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            given.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            given.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.add(node.id)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - given


def test_names_that_python_or_the_program_needs_are_left_to_them():
    names = [*"class softmax float add xp 0weight a.b a_b keys run in_blocks".split(), 'a"""\n, b']
    variables = [sym.var(name) for name in names]
    total = variables[0]
    for x in variables[1:]:
        total = sym.softmax(total) + sym.clip(x, -1, float("inf"))
    program, graph = compiled(total, dict.fromkeys(variables, (3,)))
    check(program, graph)
    assert not unknown_names(program)


# -- the memory plan ------------------------------------------------------------------------------

lives = st.lists(
    st.builds(
        lambda nbytes, begin, length: Life("b", nbytes, begin, begin + length),
        st.integers(0, 2000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=25,
)


@given(lives)
def test_live_buffers_never_overlap(found):
    plan = arrange(found)
    placed = list(zip(found, plan.offsets))
    for (a, at_a), (b, at_b) in combinations(placed, 2):
        if a.meets(b) and a.nbytes and b.nbytes:
            assert at_a + a.nbytes <= at_b or at_b + b.nbytes <= at_a
