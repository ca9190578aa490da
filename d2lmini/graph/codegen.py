"""A program as text: a Python function over `xp` that a reader can follow line by line.

The text consists of two functions. The outer function is called once for each arena: it defines the
arrays that lie in the arena. The inner function is called with the inputs and outputs of each call:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x, w, b = sym.var("x"), sym.var("w"), sym.var("b")
>>> h = sym.relu(sym.FullyConnected(x, w, b, num_hidden=4, name="dense0"), name="relu0")
>>> y = sym.square(h, name="y")
>>> shapes = {x: (2, 3), w: (4, 3), b: (4,)}
>>> specs = {v._entry[0]: Spec(shape, "float32") for v, shape in shapes.items()}
>>> variables, outputs = infer_types(y._entries, specs, training=False)
>>> print(Writer("net", list(variables.values()), outputs).text)
def net(xp, arena):
    add, matmul, maximum, square = xp.add, xp.matmul, xp.maximum, xp.square
    _0 = level(xp, float32, 0, (2, 4))
<BLANKLINE>
    def run(arrays, places, keys):
        x, w, b = arrays
        y = given_or_new(xp, places[0], (2, 4), float32)
        matmul(x, w.T, out=y)  # dense0
        add(y, b, out=y)  # dense0
        maximum(y, _0, out=y)  # relu0
        square(y, out=y)
        return [y]
<BLANKLINE>
    return run
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini import addons
from d2lmini.graph.emit_numpy import (
    in_blocks,
    is_product,
    lines_of,
    place_or_new,
    product,
    write_group,
)
from d2lmini.graph.fusion import statements
from d2lmini.graph.ir import Draw, Entry, Node, spec_of
from d2lmini.graph.lower import Number, lower, steps_of
from d2lmini.graph.plan import Buffer, Layout, Placement
from d2lmini.graph.text import (
    WIDTH,
    assign_lines,
    fit_line,
    indent,
    literal,
    reshape_text,
    unpack_text,
    view_text,
)
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import Op, Shape
from d2lmini.ops.kernels import kernel_for, needs_copies
from d2lmini.ops.products import matmul
from d2lmini.ops.scalar_cache import clamped_scalars, level, maximum_scalar, minimum_scalar, scalars

#: Global names of every program.
_COMMON = {
    "scalars": scalars, "clamped_scalars": clamped_scalars, "level": level,
    "maximum_scalar": maximum_scalar, "minimum_scalar": minimum_scalar,
    "given_or_new": place_or_new, "in_blocks": in_blocks, "shared_matmul": matmul,
}  # fmt: skip
_NO_LETTERS = re.compile(r"\W", re.ASCII)
_TAKEN = {"xp", "arena", "arrays", "places", "keys", "run", "float", *_COMMON, *dir(np)}


class Writer:
    """Writes the text of one program.

    text       the source
    namespace  the values of the global names in the text
    nodes      line of the text -> the node that the line computes
    layout     the places of the values
    numbers    names of scalar operands, by the text that defines them
    """

    def __init__(
        self, name: str, inputs: Sequence[Node], outputs: Sequence[Entry], on_gpu: bool = False
    ):
        outputs = lower(outputs, on_gpu)
        self.statements = statements(outputs, on_gpu)
        self.layout = Layout(inputs, outputs, self.statements)
        self.on_gpu = on_gpu
        self._gpu: Any = addons.find("emit_cuda") if on_gpu else None
        self.namespace: dict[str, Any] = dict(_COMMON)
        if self._gpu is not None:
            self.namespace["kernel"] = self._gpu.kernel
        self._names: dict[Entry | Buffer | Op | tuple, str] = {}
        self._views: dict[tuple[str, Shape], str] = {}
        self._kernels: dict[Any, str] = {}
        self._constants: dict[int, str] = {}
        self._taken = _TAKEN | self.namespace.keys()
        self._ufuncs: dict[str, None] = {}
        self.numbers: dict[str, str] = {}
        self._frame: list[str] = []
        self._groups: list[tuple[str, Node | None]] = []
        self._body: list[tuple[str, Node | None]] = []
        self.name = self.identifier(name)
        self._begin(inputs, outputs)
        self._read = {e for s in self.statements for node in s.nodes for e in node.sources}
        self._read.update(entry for entry, _ in self.layout.copied)
        fresh = [e for e, kind in self.layout.kinds.items() if kind is Placement.FRESH]
        for when, statement in enumerate(self.statements):
            if statement.shape is None:
                self._alone(statement.nodes[0])
            elif self._gpu is not None:
                self._gpu.write_kernel(self, statement)
            else:
                write_group(self, statement)
            dead = [self._names[entry] for entry in fresh if self.layout.last[entry] == when]
            if dead:
                self.write("del " + ", ".join(dead))
        for entry, number in self.layout.copied:
            self.write(f"xp.copyto({self._results[number]}, {self.name_of(entry)})", entry[0])
        self.write(f"return [{', '.join(self._results)}]")
        self._assemble()

    # -- names -------------------------------------------------------------------------------------

    def identifier(self, text: str) -> str:
        """A new name made of `text`, which may come from a file."""
        # Of ASCII: Python normalizes other letters, so that different names may become the same.
        name = _NO_LETTERS.sub("_", text)
        if not name or name[0].isdigit() or keyword.iskeyword(name) or name == "__debug__":
            name = "_" + name
        unique, count = name, 1
        while unique in self._taken:
            count += 1
            unique = f"{name}_{count}"
        self._taken.add(unique)
        return unique

    def name_of(self, entry: Entry) -> str:
        """The name of a value, as an array of its own shape."""
        name = self._names.get(entry)
        if name is None:
            # A later value of a buffer, which has the name of its first value.
            buffer = self.layout.buffers[entry]
            name, own = self._names[buffer], spec_of(entry).shape
            name = self._names[entry] = self._view_name(
                name, buffer.spec.shape, own, entry[0].name, self._in_arena(entry)
            )
        return name

    def name_in_shape(self, entry: Entry, shape: Shape) -> str:
        """The name of a value, as an array of this shape."""
        name = self.name_of(entry)
        how = {0: "number", 1: "row"}.get(len(shape), f"{len(shape)}d")
        # If the value is not contiguous, the reshape copies, so every call must reshape.
        static = self._in_arena(entry) and self.layout.is_straight(entry)
        return self._view_name(name, spec_of(entry).shape, shape, f"{name}_{how}", static)

    def _view_name(self, name: str, shape: Shape, wanted: Shape, text: str, static: bool) -> str:
        """The name of the array `name` of `shape` in the shape `wanted`. Writes the line that
        defines the name if there is none."""
        if shape == wanted:
            return name
        if (name, wanted) not in self._views:
            view = self._views[name, wanted] = self.identifier(text)
            is_row = wanted != () and shape == (1, *wanted)
            self._name_view(view, name + ("[0]" if is_row else reshape_text(wanted)), static)
        return self._views[name, wanted]

    def _name_view(self, name: str, text: str, static: bool) -> None:
        if static:
            self._frame.append(f"{name} = {text}")
        else:
            self.write(f"{name} = {text}")

    def _in_arena(self, entry: Entry) -> bool:
        """True if this value lies in the arena, so that its views are the same for all calls."""
        buffers = [self.layout.buffers.get(owner) for owner in self.layout.owners[entry]]
        return all(buffer is not None and buffer.output is None for buffer in buffers)

    def ufunc(self, name: str) -> str:
        """The name of a ufunc, which the program then defines."""
        self._ufuncs[name] = None
        return name

    def argument(self, value: Any, shape: Shape | None = None) -> str:
        """The name of a scalar operand of a ufunc; `shape`: that of the array operand, if known."""
        assert isinstance(value, Number)
        number = value.value.item() if isinstance(value.value, np.generic) else value.value
        if value.table == "clamped_scalars" and shape is not None:
            text = f"level(xp, {self.dtype(value.dtype)}, {literal(number)}, {shape})"
        else:
            text = f"{value.table}[xp][{self.dtype(value.dtype)}][{literal(number)}]"
        if text not in self.numbers:
            self.numbers[text] = self.identifier("_" + str(number).replace("-", "minus_"))
        return self.numbers[text]

    def dtype(self, dtype: np.dtype) -> str:
        """The name of a dtype in the program."""
        name = dtype_name(dtype)
        self.namespace[name] = dtype
        return name

    def attribute(self, value: Any) -> str:
        """The text of an attribute: a literal, a dtype's name, a key, or else a global name."""
        if type(value) is Draw:
            return f"keys[{value.number}]"
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, type) and issubclass(value, np.generic):
            return self.dtype(np.dtype(value))
        text = literal(value)
        if text is None:
            text = self._constants.get(id(value)) or self.identifier("constant")
            self._constants[id(value)] = text
            self.namespace[text] = value
        return text

    # -- the beginning and the end -----------------------------------------------------------------

    def _begin(self, inputs: Sequence[Node], outputs: Sequence[Entry]) -> None:
        """Define the names of the inputs and outputs, and the arrays in the arena."""
        for node in inputs:
            self._names[node, 0] = self.identifier(node.name)
        names = [self._names[node, 0] for node in inputs]
        if names:
            self.write(unpack_text(names) + " = arrays")
        copied = {number for _, number in self.layout.copied}
        self._results = [
            self.identifier(f"copy_of_{e[0].name}" if number in copied else _value_name(e))
            for number, e in enumerate(outputs)
        ]
        for number, output in enumerate(outputs):
            shape, dtype = spec_of(output)
            place = f"given_or_new(xp, places[{number}], {shape}, {self.dtype(dtype)})"
            self.write(f"{self._results[number]} = {place}")
        for buffer in dict.fromkeys(self.layout.buffers.values()):
            entry = buffer.entries[0]
            shape, dtype = buffer.spec
            if buffer.output is None:
                name = self._names[buffer] = self.identifier(_value_name(entry))
                self._frame.append(f"{name} = arena({buffer.offset}, {shape}, {self.dtype(dtype)})")
            else:
                name, result = self._results[buffer.output], spec_of(outputs[buffer.output])
                self._names[buffer] = self._view_name(
                    name, result.shape, shape, entry[0].name, False
                )

    def write(self, line: str, node: Node | None = None) -> None:
        """Add a line to `run`; `node`: the node that the line computes."""
        self._body.append((line, node))

    def define(self, head: Sequence[str], body: Sequence[tuple[str, Node]]) -> None:
        """Add a function before `run`, after an empty line."""
        self._groups.append(("", None))
        self._groups += [("    " + line, None) for line in head]
        for line, node in body:
            self._groups += [("        " + part, node) for part in fit_line(line, WIDTH - 8)]

    def kernel(self, made: Any) -> str:
        """The name of a kernel; the first call for a kernel writes its text."""
        if made not in self._kernels:
            name = self._kernels[made] = self.identifier(made.name)
            self.define(self._gpu.lines_of(name, made), [])
        return self._kernels[made]

    # -- one op ------------------------------------------------------------------------------------

    def _alone(self, node: Node) -> None:
        """Write a node that is not in a group."""
        entry = node, 0
        kind = self.layout.kinds[entry]
        if kind is Placement.CONSTANT:
            name = self._names[entry] = self.identifier(node.name)
            value = node.attrs["value"].array
            if self.on_gpu:
                host = self.identifier(f"{name}_on_host")
                self.namespace[host] = value
                self._frame.append(f"{name} = xp.asarray({host})")
            else:
                self.namespace[name] = value
        elif kind is Placement.VIEW and entry in self._read:
            name, base = self.identifier(node.name), node.inputs[0]
            self._names[entry] = name
            self._name_view(name, f"{self.name_of(base)}{view_text(node)}", self._in_arena(base))
        elif kind is Placement.FRESH:
            names = []
            for output in node.outputs:
                names.append(self.identifier(_value_name(output)))
                self._names[output] = names[-1]
            target = unpack_text(names) if len(names) > 1 else names[0]
            self.write(f"{target} = {self.call(node, self._inputs(node))}", node)
        elif is_product(node):
            self.write(product(self, node), node)
        elif kind is not Placement.VIEW:
            outs = [self.name_of(output) for output in node.outputs]
            inputs = self._inputs(node)
            shape = spec_of(entry).shape
            if steps_of(node) is not None and (row := _one_row(node)):
                # NumPy is faster if nothing is broadcast.
                shape = row
                inputs = [self.name_in_shape(e, row) for e in node.sources]
                outs = [self.name_in_shape(entry, row)]
            for line in lines_of(self, node, inputs, outs, shape):
                self.write(line, node)

    def _inputs(self, node: Node) -> list[str | None]:
        return [None if e is None else self.name_of(e) for e in node.inputs]

    def call(self, node: Node, inputs: Sequence[str | None], out: str | None = None) -> str:
        """A call of the op's own function, without attributes that have their default values."""
        op = node.op
        key: Any = op
        given = [*map(spec_of, node.sources), *node.specs]
        if needs_copies(op, given):  # the kernel depends on the dtypes of the results
            key = (op, *[spec.dtype for spec in node.specs])
        if isinstance(op, Composed):  # it compiles for the specs of one node
            key = node
        if key not in self._names:
            name = f"nd_{op.name}" if hasattr(np, op.name) else op.name
            self._names[key] = self.identifier(name)
            kernel = kernel_for(op, "cuda" if self.on_gpu else "cpu", given, node.specs)
            self.namespace[self._names[key]] = kernel
        attrs = [
            f"{key}={self.attribute(value)}"
            for key, value in node.attrs.items()
            if key not in op.defaults or repr(op.defaults[key]) != repr(value)
        ]
        place = [] if out is None else [f"out={out}"]
        return f"{self._names[key]}({', '.join(['xp', *map(str, inputs), *attrs, *place])})"

    # -- the whole ---------------------------------------------------------------------------------

    def _assemble(self) -> None:
        """Set `text` and `nodes` from the lines of all parts."""
        head = [f"def {self.name}(xp, arena):"]
        if self._ufuncs:
            found = sorted(self._ufuncs)
            head += indent(assign_lines(found, [f"xp.{name}" for name in found]))
        if self.numbers:
            head += indent(assign_lines(list(self.numbers.values()), list(self.numbers)))
        lines = head + indent(self._frame)
        self.nodes: dict[int, Node] = {}
        inner: list[tuple[str, Node | None]] = [("    def run(arrays, places, keys):", None)]
        for line, node in self._body:
            inner += [("        " + part, node) for part in fit_line(line, WIDTH - 8)]
        for line, node in [*self._groups, ("", None), *inner]:
            lines.append(line)
            if node is not None:
                self.nodes[len(lines)] = node
        lines += ["", "    return run"]
        self.text = "\n".join(lines)


@lru_cache
def dtype_name(dtype: np.dtype) -> str:
    """The name of a dtype in a program; NumPy takes long to find it."""
    return "bool_" if dtype.kind == "b" else dtype.name


def _value_name(entry: Entry) -> str:
    node, i = entry
    return node.name if len(node.specs or ()) < 2 else f"{node.name}_{i}"


def _one_row(node: Node) -> Shape | None:
    """The common shape of all arrays of an op without axes of size 1, if only such axes differ."""
    shapes = [spec_of(e).shape for e in [*node.inputs, (node, 0)] if e is not None]
    squeezed = {tuple(n for n in shape if n != 1) for shape in shapes}
    return squeezed.pop() if len(set(shapes)) > len(squeezed) == 1 else None
