"""A compiler for programs that are text, and the check of *Hybridize*.

    steps = folding(source)         # the program after each of three passes

Python's own `ast` reads a program into a tree and writes a tree as text again; each pass is one
walk over that tree. An interpreter that runs line by line cannot do this: when it meets `add(1, 2)`
it does not know what comes after. `d2lmini/graph/passes` does the same to graphs of operations.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import numpy as np

from d2lmini import MXNetError, init, nd, profile
from d2lmini.gluon import nn
from d2lmini.ndarray import NDArray
from d2lmini.symbol import NotImplementedForSymbol
from labs.grading import CheckFailed, at_most_waits

_ARITHMETIC: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class PassResult(NamedTuple):
    """A program after one pass, and what the pass did."""

    title: str
    source: str

    def __str__(self) -> str:
        return f"# {self.title}\n{self.source}"


def folding(source: str) -> list[PassResult]:
    """The program after each pass, from the original to the result.

    A call is replaced if the function is defined once, assigns to names and ends with `return`, and
    uses nothing but arithmetic, its own names, and such functions above it; everything else stays
    unchanged. SyntaxError if the text is not Python.
    """
    tree = ast.parse(source)
    steps = [_step(1, "as it was written", tree)]
    passes = [
        ("calls replaced by what they return", _Calls(tree)),
        ("functions left out that nobody calls", _Unused()),
        ("arithmetic on constants done", _Constants()),
    ]
    for number, (title, transformer) in enumerate(passes, start=2):
        tree = transformer.visit(ast.parse(steps[-1].source))
        steps.append(_step(number, title, tree))
    return steps


def _step(number: int, title: str, tree: ast.AST) -> PassResult:
    lines = [line for line in ast.unparse(tree).splitlines() if line]
    return PassResult(f"{number}. {title}", "\n".join(lines))


class _Calls(ast.NodeTransformer):
    """Replaces each call of a known function by the expression that it returns."""

    def __init__(self, tree: ast.Module):
        self.known: dict[str, ast.FunctionDef] = {}
        bound = Counter(_find_bound_names(tree))
        for node in tree.body:
            # A function may call earlier functions only, so none calls itself.
            once = isinstance(node, ast.FunctionDef) and bound[node.name] == 1
            if isinstance(node, ast.FunctionDef) and once and _is_simple(node, self.known):
                self.known[node.name] = node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node  # its body is replaced where the function is called

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = self.known.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords or len(node.args) != len(function.args.args):
            return node
        if not all(_is_arithmetic(argument, ()) for argument in node.args):
            return node
        values = {a.arg: value for a, value in zip(function.args.args, node.args)}
        for line in function.body:
            assert isinstance(line, (ast.Assign, ast.Return)) and line.value is not None
            # Parsed anew, so that no two places share a node of the tree.
            copy = ast.parse(ast.unparse(line.value), mode="eval").body
            value = self.visit(_Names(values).visit(copy))
            if isinstance(line, ast.Assign):
                assert isinstance(line.targets[0], ast.Name)
                values[line.targets[0].id] = value
        return value  # that of the last line, the only `return`


class _Names(ast.NodeTransformer):
    """Replaces each name by the expression that it stands for."""

    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


class _Unused(ast.NodeTransformer):
    """Removes definitions of functions whose names occur nowhere else."""

    def visit_Module(self, tree: ast.Module) -> ast.Module:
        while True:
            kept = [node for node in tree.body if not self._is_unused(node, tree)]
            if len(kept) == len(tree.body):
                return tree
            tree.body = kept

    def _is_unused(self, node: ast.stmt, tree: ast.Module) -> bool:
        others = [inner for other in tree.body if other is not node for inner in ast.walk(other)]
        used = {inner.id for inner in others if isinstance(inner, ast.Name)}
        return isinstance(node, ast.FunctionDef) and node.name not in used


class _Constants(ast.NodeTransformer):
    """`1 + 2` becomes `3`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        compute = _ARITHMETIC.get(type(node.op))
        numbers = [_number(node.left), _number(node.right)]
        if compute is None or None in numbers:
            return node
        return ast.Constant(compute(*numbers))


def _is_simple(function: ast.FunctionDef, known: Container[str]) -> bool:
    """True if a call may be replaced by its return expression: each line assigns a value computed
    from the function's own names by arithmetic and known functions, and the last returns one."""
    names = [arg.arg for arg in function.args.args]
    if function.decorator_list or ast.unparse(function.args) != ", ".join(names):
        return False
    *lines, last = function.body
    for line in lines:
        if not isinstance(line, ast.Assign) or not _is_arithmetic(line.value, known, names):
            return False
        (target, *others) = line.targets
        if others or not isinstance(target, ast.Name):
            return False
        names.append(target.id)
    returns = isinstance(last, ast.Return) and last.value is not None
    return returns and _is_arithmetic(last.value, known, names)


#: What arithmetic is made of, besides names and calls.
_PARTS = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)


def _is_arithmetic(
    value: ast.AST, known: Container[str], names: Container[str] | None = None
) -> bool:
    """True for arithmetic on constants, names (None: any) and calls of known functions. Such values
    may be moved and duplicated."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name):
            fine = names is None or node.id in names or node.id in known
        elif isinstance(node, ast.Call):
            fine = isinstance(node.func, ast.Name) and node.func.id in known and not node.keywords
        else:
            fine = isinstance(node, _PARTS)
        if not fine:
            return False
    return True


def _find_bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that is defined or assigned to, once for each time."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def _number(node: ast.expr) -> Any:
    """The number that a constant holds; None for everything else."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) in (int, float) else None


# -- the exercise ----------------------------------------------------------------------------------

#: The earlier model's parameters: weight and bias of its hidden layer, and of its output layer.
SHAPES = [(16, 8), (16,), (4, 16), (4,)]


def check_converted(answer: Any) -> None:
    """Check the class `Converted`: the values of the earlier model, and one operation a call."""
    if isinstance(answer, nn.Block):
        raise CheckFailed("class", "give the class, not a net: check_converted(Converted)")
    net = answer() if callable(answer) else answer
    if not isinstance(net, nn.HybridBlock):
        text = f"a HybridBlock is needed, got {type(net).__name__}: only its calls can be compiled"
        raise CheckFailed("block", text)
    net.initialize(init.Xavier())
    try:
        _call(net, nd.ones((3, 8)))
    except NotImplementedError as error:
        raise CheckFailed("empty", str(error)) from error
    if sorted(p.shape for p in net.collect_params().values()) != sorted(SHAPES):
        found = sorted(p.shape for p in net.collect_params().values())
        text = f"for 8 inputs the layers have parameters of the shapes {SHAPES}, found {found}"
        raise CheckFailed("parameters", text + ": is each layer an attribute?")
    for p in net.collect_params().values():  # a bias of 0 would not show where it is added
        p.set_data(nd.array(np.random.RandomState().uniform(-0.1, 0.1, p.shape)))
    _check_values(net, "values", "run imperatively, the values differ from the earlier model's")
    net.hybridize()
    try:
        _call(net, nd.ones((3, 8)))
    except (NotImplementedForSymbol, MXNetError) as error:
        text = f"in the trace there are no values to look at: {error}"
        raise CheckFailed("contents", text) from error
    _check_values(net, "branch", "the trace took a branch, once for all calls: use an operator")
    with profile() as trace:
        net(nd.ones((3, 8)))
    at_most_waits(trace, 0)
    count = sum(operation.name != "_ones" for operation in trace.operations)
    if count != 1:
        raise CheckFailed("operations", f"a call is {count} operations: compute in hybrid_forward")
    print("right: the values of the earlier model, and a call is one operation")


def _call(net: nn.HybridBlock, X: NDArray) -> NDArray:
    y = net(X)
    if not isinstance(y, NDArray):
        text = f"a call returns {type(y).__name__}: return the result of the last layer"
        raise CheckFailed("none", text)
    return y


def _check_values(net: nn.HybridBlock, hint: str, text: str) -> None:
    draw = np.random.RandomState()
    for scale in (0.05, 10, 0.05):  # the length is below 1, above 1, and below 1 again
        X = nd.array(scale * draw.normal(size=(3, 8)))
        y, expected = _call(net, X).asnumpy(), _earlier(net, X.asnumpy())
        if y.shape != expected.shape or not np.allclose(y, expected, atol=1e-4):
            raise CheckFailed(hint, text)


def _earlier(net: nn.HybridBlock, X: np.ndarray) -> np.ndarray:
    """What the earlier model computes from X with the parameters of `net`."""
    of_shape = {p.shape: p.data().asnumpy() for p in net.collect_params().values()}
    weight, bias, output_weight, output_bias = (of_shape[shape] for shape in SHAPES)
    h = np.maximum(X @ weight.T + bias, 0)
    return h / max(np.sqrt((h * h).sum()), 1) @ output_weight.T + output_bias
