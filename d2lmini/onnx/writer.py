"""What converters write on: the nodes of an ONNX graph, its constants, and what is known of values.

A *converter* says one op of ours in ONNX's operators: a function of the writer, the node and the
names of its inputs that returns the name of its output, or a list of names. An op that is one
operator needs none: its declaration names that operator (`onnx="Sqrt"`, see `d2lmini.ops.facts`).
An op that is a formula of others needs none either, see `formulas.py`.

    @converts("concat")
    def _(w, node, *xs):
        return w.add("Concat", *xs, axis=node.attrs["dim"])

Names stand for values. What is known before the net runs, parameters and what is computed of
nothing else, are arrays; they become *initializers* when a converter asks for their name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.ops.core import Spec, registry

Converter = Callable[..., Any]


def converts(
    *names: str, when: Callable[[Node], bool] | None = None
) -> Callable[[Converter], Converter]:
    """Register a converter for these ops: it becomes their `onnx`. when: whether the
    converter takes this call; of another call of a composed op the formula is written."""

    def register(converter: Any) -> Converter:
        converter.when = when
        for name in names:
            assert registry[name].onnx is None, f"op {name} has two converters"
            registry[name].onnx = converter
        return converter

    return register


def takes(node: Node) -> bool:
    """Is there a converter for this call?"""
    when = getattr(node.op.onnx, "when", None)
    return node.op.onnx is not None and (when is None or when(node))


#: Functions that cut their results, besides those of one array.
_OF_FLOATS = ("div", "mod", "norm", "power")


def takes_dtype(node: Node) -> bool:
    """Do ONNX's operators compute numbers of this dtype? Ours have meanings for integers that
    theirs do not have: a root is cut to an integer, and a quotient by 0 is 0."""
    op = node.op
    if not node.sources or spec_of(node.sources[0]).dtype.kind not in "biu":
        return True
    name = op.name if op.family is None else op.family.name
    return op.integers != "converted" and name not in _OF_FLOATS


def converter_of(w: Writer, node: Node) -> Converter:
    """How a call is said in ONNX; MXNetError if nothing says it."""
    op = node.op
    has_integers = bool(node.sources) and w.x.dtype.kind in "biu"
    if has_integers and not takes_dtype(node):
        raise w.problem(f"has no converter for integers ({w.x.dtype}); cast them to float32")
    if op.onnx is None:
        raise w.problem("this op has no converter to ONNX")
    if callable(op.onnx):
        return op.onnx
    operator, _, words = op.onnx.rstrip(")").partition("(")
    if has_integers and op.integers == "kept":
        operator = "Identity"
    pairs = [word.partition("=") for word in words.split(", ") if word]

    def convert(w: Writer, node: Node, *xs: str) -> Any:
        attrs = {theirs: node.attrs[ours or theirs] for theirs, _, ours in pairs}
        return w.add(operator, *xs, **attrs)

    return convert


def package() -> Any:
    """The package `onnx`; ImportError that says how to get it."""
    try:
        return import_module("onnx")
    except ImportError:
        raise ImportError(
            "writing ONNX needs the package onnx, which is not installed: pip install d2lmini[onnx]"
        ) from None


class Writer:
    """The graph in the making.

    nodes    (operator, inputs, outputs, attributes, name of our node) each
    arrays   initializers by name
    values   what is known before the net runs
    outputs  (name, spec) of the outputs
    here     the node that is being converted
    """

    here: Node

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any], str]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.values: dict[Entry, np.ndarray] = {}
        self.outputs: list[tuple[str, Spec]] = []
        self.here = Node(None, "")
        self._count = 0

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{self.here.name}_{what}{self._count}"

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write an operator; the name of its output, or a list of several. An input '' is left
        out; attributes that are None too."""
        names = [self._name(operator.lower()) for _ in range(outputs)]
        given = {k: v for k, v in attrs.items() if v is not None}
        self.nodes.append((operator, list(inputs), names, given, self.here.name))
        return names[0] if outputs == 1 else names

    # -- constants -----------------------------------------------------------------------------

    def array(self, values: Any, dtype: Any = "int64", name: str | None = None) -> str:
        """The name of a new constant."""
        name = name or self._name("constant")
        self.arrays[name] = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
        return name

    def number(self, value: float, dtype: Any) -> str:
        """A scalar constant of a dtype."""
        with np.errstate(all="ignore"):
            return self.array(np.asarray(value).astype(dtype), dtype)

    # -- what is known -------------------------------------------------------------------------

    @property
    def op_name(self) -> str:
        """The op of the node that is being converted."""
        return self.here.op.name

    @property
    def x(self) -> Spec:
        """Of the first input of the node that is being converted."""
        return spec_of(self.here.sources[0])

    @property
    def y(self) -> Spec:
        """Of the first output of the node that is being converted."""
        return spec_of((self.here, 0))

    def problem(self, text: str) -> MXNetError:
        """An error that names the node that is being converted."""
        return MXNetError(f"export to ONNX: node {self.here.name!r}: {self.op_name}: {text}")

    # -- operators that come up everywhere -------------------------------------------------------

    def reshape_to(self, x: str, sizes: Sequence[int]) -> str:
        """x in another shape, of which one size may be -1, which is inferred."""
        # To Reshape a 0 means "as it was": an empty array is told so.
        empty = {"allowzero": 1} if 0 in sizes else {}
        return self.add("Reshape", x, self.array(list(sizes)), **empty)

    def cast(self, x: str, dtype: Any) -> str:
        """x converted."""
        return self.add("Cast", x, to=tensor_type(dtype))

    def reduce(self, operator: str, x: str, axes: Sequence[int], keepdims: bool = False) -> str:
        """ReduceSum and its family, of which the others take the axes as an attribute."""
        if operator == "ReduceSum":
            return self.add(operator, x, self.array(list(axes)), keepdims=int(keepdims))
        return self.add(operator, x, axes=list(axes), keepdims=int(keepdims))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """x with new axes of size 1."""
        return self.add("Unsqueeze", x, self.array(list(axes)))

    def squeeze(self, x: str, *axes: int) -> str:
        """x without these axes of size 1."""
        return self.add("Squeeze", x, self.array(list(axes)))

    def transpose(self, x: str, *order: int) -> str:
        """x with its axes in this order."""
        return self.add("Transpose", x, perm=list(order))

    def clip(self, x: str, low: int, high: str) -> str:
        """Whole numbers, nowhere below low and above high, a name."""
        return self.add("Min", self.add("Max", x, self.array(low)), high)


def tensor_type(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    return package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
