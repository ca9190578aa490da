"""What converters write on: the nodes of an ONNX graph, its constants, and what is known of values.

A *converter* says one op of ours in ONNX's operators: a function of the writer, the node and the
names of its inputs that returns the name of its output, or a list of names. An op that is one
operator needs none: its declaration names that operator (`onnx="Relu"`, see `d2lmini.ops.facts`).

    @converts("expm1")
    def _(w, node, x):
        return w.add("Sub", w.add("Exp", x), w.number(1, x))

Names stand for values. What is known before the net runs, parameters and what is computed of
nothing else, are arrays; they become *initializers* when a converter asks for their name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.ops.core import registry

#: The sizes of a batch for which a net of any batch is looked at. The last one is larger than what
#: a net is likely to say about the batch in numbers.
BATCHES = (2, 3, 1, 5, 1009)

#: A shape of which some sizes may follow the batch: these are `Varying`, or None in an input's.
Sizes = tuple[Any, ...]

Converter = Callable[..., Any]


def converts(
    *names: str, when: Callable[[int, Node], bool] | None = None
) -> Callable[[Converter], Converter]:
    """Register a converter for these ops: it becomes their `onnx`. when: (opset, node) -> whether
    the converter takes this call; of another call of a composed op the formula is written."""

    def register(converter: Any) -> Converter:
        converter.when = when
        for name in names:
            assert registry[name].onnx is None, f"op {name} has two converters"
            registry[name].onnx = converter
        return converter

    return register


class Value(NamedTuple):
    """What is known of a value of the graph."""

    shape: Sizes
    dtype: np.dtype

    @property
    def size(self) -> Any:
        """How many elements it has."""
        return prod(self.shape)


def takes(opset: int, node: Node) -> bool:
    """Is there a converter for this call?"""
    assert node.op is not None
    when = getattr(node.op.onnx, "when", None)
    return node.op.onnx is not None and (when is None or when(opset, node))


def takes_dtype(node: Node) -> bool:
    """Do ONNX's operators compute numbers of this dtype? Ours have meanings for integers that
    theirs do not have: a root is cut to an integer, and a quotient by 0 is 0."""
    op = node.op
    assert op is not None
    if not node.sources or spec_of(node.sources[0]).dtype.kind not in "biu":
        return True
    name = op.name if op.family is None else op.family.name
    return op.integers != "converted" and name not in ("div", "hypot", "mod", "power", "smooth_l1")


def converter_of(w: Writer, node: Node) -> Converter:
    """How a call is said in ONNX; MXNetError if nothing says it."""
    op = node.op
    assert op is not None
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


class Varying:
    """A size, or a shape or an attribute, that follows the batch: what it is for each of `BATCHES`.
    Equal ones are equal. A size is written by `Writer.shape` and `Writer.size`; whatever else
    computes with it is refused, by an error that names the node."""

    def __init__(self, writer: Writer, sizes: tuple[Any, ...]):
        self.writer, self.sizes = writer, sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Varying) and self.sizes == other.sizes

    def __hash__(self) -> int:
        return hash(self.sizes)

    def line(self) -> tuple[int, int] | None:
        """(a, b) of a size that is a * batch + b; None of another."""
        if not all(isinstance(n, (int, float)) and n % 1 == 0 for n in self.sizes):
            return None
        a = self.sizes[1] - self.sizes[0]
        b = self.sizes[0] - a * BATCHES[0]
        return (int(a), int(b)) if self.sizes == tuple(a * n + b for n in BATCHES) else None

    def _refuse(self, *_: Any) -> Any:
        raise self.writer.problem(
            "needs to know a size or a shape that depends on the batch; export it without "
            "dynamic_batch"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = _refuse
    __rfloordiv__ = __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _refuse
    __index__ = __int__ = __float__ = __bool__ = __truediv__ = __rtruediv__ = _refuse
    __len__ = __iter__ = __getitem__ = _refuse


class Writer:
    """The graph in the making.

    opset    version of ONNX's operators
    nodes    (operator, inputs, outputs, attributes, name of our node) each
    arrays   initializers by name
    values   what is known before the net runs
    varying  shapes in which some sizes follow the batch
    batch    (name of an input, its axis of the batch)
    here     the node that is being converted
    """

    here: Node
    batch: tuple[str, int] | None = None

    def __init__(self, opset: int):
        self.opset = opset
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any], str]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.values: dict[Entry, np.ndarray] = {}
        self.varying: dict[Entry, Sizes] = {}
        self._constants: dict[tuple, str] = {}
        self._sizes: dict[Any, str] = {}
        self._count = 0

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write an operator; the name of its output, or a list of several. An input '' is left
        out; attributes that are None too."""
        names = []
        for _ in range(outputs):
            self._count += 1
            names.append(f"{self.here.name}_{operator.lower()}{self._count}")
        given = {k: v for k, v in attrs.items() if v is not None}
        for value in given.values():
            if isinstance(value, Varying):
                value._refuse()
        self.nodes.append((operator, list(inputs), names, given, self.here.name))
        return names[0] if outputs == 1 else names

    # -- constants -----------------------------------------------------------------------------

    def array(self, values: Any, dtype: Any = "int64", name: str | None = None) -> str:
        """The name of a constant; equal ones share it."""
        value = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
        if name is not None:
            self.arrays[name] = value
            return name
        key = (value.tobytes(), value.shape, value.dtype.str)
        if key not in self._constants:
            self._constants[key] = self.array(value, dtype, f"constant{len(self._constants)}")
        return self._constants[key]

    def number(self, value: float, dtype: Any) -> str:
        """A scalar constant of a dtype."""
        with np.errstate(all="ignore"):
            return self.array(np.asarray(value).astype(dtype), dtype)

    # -- what is known -------------------------------------------------------------------------

    @property
    def op_name(self) -> str:
        """The op of the node that is being converted; of an array, whose size follows the batch,
        its initializer."""
        return self.here.op.name if self.here.op else "an array"

    @property
    def x(self) -> Value:
        """Of the first input of the node that is being converted."""
        return self.spec(self.here.inputs[0])

    @property
    def y(self) -> Value:
        """Of the first output of the node that is being converted."""
        return self.spec((self.here, 0))

    def spec(self, entry: Entry | None) -> Value:
        """Shape and dtype of a value; sizes that follow the batch are `Varying`."""
        assert entry is not None and entry[0].specs is not None
        shape, dtype = entry[0].specs[entry[1]]
        return Value(self.varying.get(entry, shape), dtype)

    def varies(self, node: Node) -> bool:
        """True if the shape of an output follows the batch."""
        return any((node, i) in self.varying for i in range(len(node.specs or ())))

    def require_known(self, entry: Entry | None, what: str) -> np.ndarray:
        """The array that a value is before the net runs; MXNetError if it depends on an input."""
        if entry not in self.values:
            raise self.problem(
                f"{what} must be known when it is exported, not computed of an input"
            )
        return self.values[entry]

    def problem(self, text: str) -> MXNetError:
        """An error that names the node that is being converted."""
        return MXNetError(f"export to ONNX: node {self.here.name!r}: {self.op_name}: {text}")

    # -- operators that come up everywhere -------------------------------------------------------

    def size(self, size: Any, plus: int = 0) -> str:
        """A number of the graph: a size, plus a number."""
        if not isinstance(size, Varying):
            return self.array(size + plus)
        a, b = size.line() or size._refuse()
        key = a, b + plus
        if key not in self._sizes:
            assert self.batch is not None
            name, axis = self.batch
            n = self.add("Gather", self.add("Shape", name), self.array(axis))
            n = n if key[0] == 1 else self.add("Mul", n, self.array(key[0]))
            self._sizes[key] = n if key[1] == 0 else self.add("Add", n, self.array(key[1]))
        return self._sizes[key]

    def shape(self, sizes: Sequence[Any]) -> str:
        """A shape, as an array of the graph."""
        if not any(isinstance(n, Varying) for n in sizes):
            return self.array(np.array(sizes, "int64"))
        return self.add("Concat", *(self.unsqueeze(self.size(n), 0) for n in sizes), axis=0)

    def reshape_to(self, x: str, sizes: Sizes) -> str:
        """x in another shape, of which one size may be -1, which is inferred."""
        vary = [i for i, n in enumerate(sizes) if isinstance(n, Varying)]
        if vary and -1 not in sizes:  # one that is no multiple of the batch, or the first
            at = next((i for i in vary if sizes[i].line() is None), vary[0])
            sizes = (*sizes[:at], -1, *sizes[at + 1 :])
        # To Reshape a 0 means "as it was": an empty array is told so.
        empty = {"allowzero": 1} if 0 in sizes and self.opset >= 14 else {}
        return self.add("Reshape", x, self.shape(sizes), **empty)

    def cast(self, x: str, dtype: Any) -> str:
        """x converted."""
        return self.add("Cast", x, to=tensor_type(dtype))

    def reduce(self, operator: str, x: str, axes: Sequence[int], keepdims: bool = False) -> str:
        """ReduceSum and its family; where the axes go depends on the version."""
        if operator == "ReduceSum" or self.opset >= 18:
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
