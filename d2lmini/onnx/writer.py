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
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Node
from d2lmini.ops.core import Op, registry
from d2lmini.ops.spec import Spec

#: A shape of which some sizes may follow the batch: these are None.
Sizes = tuple[int | None, ...]

Converter = Callable[..., Any]


def converts(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for these ops: it becomes their `onnx`."""

    def register(converter: Converter) -> Converter:
        for name in names:
            assert registry[name].onnx is None, f"op {name} has two converters"
            registry[name].onnx = converter
        return converter

    return register


def converter_of(op: Op) -> Converter | None:
    """How the op is said in ONNX; None if nothing says it."""
    if not isinstance(op.onnx, str):
        return op.onnx
    operator, _, words = op.onnx.rstrip(")").partition("(")
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

    opset    version of ONNX's operators
    nodes    (operator, inputs, outputs, attributes, name of our node) each
    arrays   initializers by name
    values   what is known before the net runs
    varying  shapes in which some sizes follow the batch
    here     the node that is being converted
    """

    here: Node

    def __init__(self, opset: int):
        self.opset = opset
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any], str]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.values: dict[Entry, np.ndarray] = {}
        self.varying: dict[Entry, Sizes] = {}
        self._constants: dict[tuple, str] = {}
        self._count = 0

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write an operator; the name of its output, or a list of several. An input '' is left
        out; attributes that are None too."""
        names = []
        for _ in range(outputs):
            self._count += 1
            names.append(f"{self.here.name}_{operator.lower()}{self._count}")
        given = {k: v for k, v in attrs.items() if v is not None}
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

    def number(self, value: float, like: Entry | np.dtype) -> str:
        """A scalar constant of a dtype."""
        dtype = like if isinstance(like, np.dtype) else self.spec(like).dtype
        with np.errstate(all="ignore"):
            return self.array(np.asarray(value).astype(dtype), dtype)

    # -- what is known -------------------------------------------------------------------------

    @property
    def op_name(self) -> str:
        """The op of the node that is being converted."""
        assert self.here.op is not None
        return self.here.op.name

    @property
    def x(self) -> Spec:
        """Of the first input of the node that is being converted."""
        return self.spec(self.here.inputs[0])

    @property
    def x_sizes(self) -> Sizes:
        """The sizes of that input."""
        return self.sizes(self.here.inputs[0])

    @property
    def y(self) -> Spec:
        """Of the first output of the node that is being converted."""
        return self.spec((self.here, 0))

    @property
    def y_sizes(self) -> Sizes:
        """The sizes of that output."""
        return self.sizes((self.here, 0))

    def spec(self, entry: Entry | None) -> Spec:
        """Shape and dtype of a value."""
        assert entry is not None and entry[0].specs is not None
        return entry[0].specs[entry[1]]

    def sizes(self, entry: Entry | None) -> Sizes:
        """The shape of a value, None for sizes that follow the batch."""
        spec = self.spec(entry)
        return self.varying.get(entry, spec.shape)  # type: ignore[arg-type]

    def varies(self, node: Node) -> bool:
        """True if the shape of an output follows the batch."""
        return any((node, i) in self.varying for i in range(len(node.specs or ())))

    def require_fixed(self, entry: Entry, what: str) -> tuple[int, ...]:
        """Its shape, which must not follow the batch for `what` to be written."""
        sizes = self.sizes(entry)
        if None in sizes:
            raise self.problem(f"{what} depends on the size of the batch; export it not dynamic")
        return self.spec(entry).shape

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

    def reshape_to(self, x: str, sizes: Sizes) -> str:
        """x in another shape, of which at most one size may follow the batch."""
        if sum(n is None for n in sizes) > 1:
            raise self.problem("more than one size depends on the batch; export it not dynamic")
        target = [-1 if n is None else n for n in sizes]
        # To Reshape a 0 means "as it was": an empty array is told so.
        empty = {"allowzero": 1} if 0 in target and self.opset >= 14 else {}
        return self.add("Reshape", x, self.array(np.array(target, "int64")), **empty)

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

    def clip(self, x: str, low: int, high: int, dtype: Any = "int64") -> str:
        """x, nowhere below low and above high."""
        return self.add(
            "Clip", x, self.number(low, np.dtype(dtype)), self.number(high, np.dtype(dtype))
        )


def tensor_type(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    return package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
