"""A program as text: a Python function over `xp` that a reader can follow line by line.

What is printed has two parts. The outer function is called once for each arena: it makes the names
of what lies there. The inner one is called with the arrays:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import typed
>>> from d2lmini.ops.spec import Spec
>>> x, w, b = sym.var("x"), sym.var("w"), sym.var("b")
>>> h = sym.relu(sym.FullyConnected(x, w, b, num_hidden=4, name="dense0"), name="relu0")
>>> y = sym.square(h, name="y")
>>> shapes = {x: (2, 3), w: (4, 3), b: (4,)}
>>> specs = {v._entry[0]: Spec(shape, "float32") for v, shape in shapes.items()}
>>> variables, outputs = typed(y._entries, specs, training=False)
>>> print(Writer("net", list(variables.values()), outputs).text)
def net(xp, arena):
    add, matmul, maximum, square = xp.add, xp.matmul, xp.maximum, xp.square
    _0 = limit[xp][float32][0]
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
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.graph.blocks import given_or_new, in_blocks
from d2lmini.graph.expressions import Number, steps_of
from d2lmini.graph.fusion import Statement, cut_shape, leading, rows_per_block, statements
from d2lmini.graph.group import rooms
from d2lmini.graph.layout import Kind, Layout
from d2lmini.graph.lower import lowered, spec_of
from d2lmini.graph.views import reshaped, view_text
from d2lmini.ops.compare import exact
from d2lmini.ops.core import Shape
from d2lmini.ops.products import matmul
from d2lmini.ops.scalars import fit, limit
from d2lmini.symbol.node import Draw, Entry, Node

#: Lines are broken before this column.
WIDTH = 100

#: What every program may use besides `xp`.
_COMMON = {
    "exact": exact, "fit": fit, "limit": limit,
    "given_or_new": given_or_new, "in_blocks": in_blocks, "shared_matmul": matmul,
}  # fmt: skip


class Writer:
    """Writes the text of one program.

    text       the source
    namespace  what its global names mean
    nodes      line of the text -> the node that is computed there
    layout     where the values lie
    """

    def __init__(self, name: str, inputs: Sequence[Node], outputs: Sequence[Entry]):
        outputs = lowered(outputs)
        self.statements = statements(outputs)
        self.layout = Layout(inputs, outputs, self.statements)
        self.namespace: dict[str, Any] = dict(_COMMON)
        self._names: dict[Any, str] = {}
        self._taken = {"xp", "arena", "arrays", "places", "keys", "run", *_COMMON, *dir(np)}
        self._ufuncs: dict[str, None] = {}
        self._numbers: dict[str, str] = {}
        self._frame: list[str] = []
        self._groups: list[str] = []
        self._body: list[tuple[str, Node | None]] = []
        self.name = self._identifier(name)
        self._begin(inputs, outputs)
        for when, statement in enumerate(self.statements):
            if statement.shape is None:
                self._alone(statement.nodes[0])
            else:
                self._group(statement)
            self._let_go(when)
        self._end(outputs)
        self._put_together()

    # -- names -------------------------------------------------------------------------------------

    def _identifier(self, text: str) -> str:
        """A name made of `text` that nothing else has."""
        name = re.sub(r"\W", "_", text)
        if not name or name[0].isdigit() or keyword.iskeyword(name):
            name = "_" + name
        unique, count = name, 1
        while unique in self._taken:
            count += 1
            unique = f"{name}_{count}"
        self._taken.add(unique)
        return unique

    def _name_of(self, entry: Entry) -> str:
        """The name of a value, as an array of its own shape."""
        name = self._names.get(entry)
        if name is None:
            buffer = self.layout.buffers[entry]
            name = self._names[entry] = self._as(self._names[buffer], buffer.spec.shape, entry)
        return name

    def _as(self, name: str, shape: Shape, entry: Entry, wanted: Shape | None = None) -> str:
        """The array `name` of `shape` as one of the shape `wanted`, that of `entry` by default; a
        line is written for it unless it was before."""
        wanted = spec_of(entry).shape if wanted is None else wanted
        if shape == wanted:
            return name
        key = name, wanted
        if key not in self._names:
            text = f"{name}_row" if len(wanted) == 1 else f"{name}_{'x'.join(map(str, wanted))}"
            text = entry[0].name if wanted == spec_of(entry).shape else text
            self._names[key] = self._identifier(text)
            self._name_view(self._names[key], name + reshaped(wanted), self._is_static(entry))
        return self._names[key]

    def _shaped(self, entry: Entry, wanted: Shape) -> str:
        return self._as(self._name_of(entry), spec_of(entry).shape, entry, wanted)

    def _name_view(self, name: str, text: str, static: bool) -> None:
        if static:
            self._frame.append(f"{name} = {text}")
        else:
            self._body.append((f"{name} = {text}", None))

    def _is_static(self, entry: Entry) -> bool:
        """Does this value lie in the arena?"""
        buffers = [self.layout.buffers.get(owner) for owner in self.layout.owners[entry]]
        return all(b is not None and b.output is None for b in buffers) and self.layout.is_straight(
            entry
        )

    def _ufunc(self, name: str) -> str:
        self._ufuncs[name] = None
        return name

    def _argument(self, value: Any) -> str:
        """A number among the arguments of a ufunc."""
        assert isinstance(value, Number)
        dtype = self._dtype(value.dtype)
        text = f"{value.table}[xp][{dtype}][{_literal(value.value)}]"
        if text not in self._numbers:
            digits = re.sub(r"[^\w]", "_", str(value.value).replace("-", "minus_"))
            self._numbers[text] = self._identifier("_" + digits)
        return self._numbers[text]

    def _dtype(self, dtype: np.dtype) -> str:
        """The name by which the program knows a dtype."""
        name = "bool_" if dtype.kind == "b" else dtype.name
        self.namespace[name] = dtype
        return name

    def _attribute(self, value: Any) -> str:
        """The text of an attribute: a literal, a dtype's name, a key, or else a global name."""
        if type(value) is Draw:
            return f"keys[{value.number}]"
        if isinstance(value, np.dtype):
            return self._dtype(value)
        if isinstance(value, type) and issubclass(value, np.generic):
            return self._dtype(np.dtype(value))
        text = _literal(value)
        if text is None:
            text = self._names.get(id(value)) or self._identifier("constant")
            self._names[id(value)] = text
            self.namespace[text] = value
        return text

    # -- the beginning and the end -----------------------------------------------------------------

    def _begin(self, inputs: Sequence[Node], outputs: Sequence[Entry]) -> None:
        for node in inputs:
            self._names[node, 0] = self._identifier(node.name)
        names = [self._names[node, 0] for node in inputs]
        if names:
            self._write(_tuple(names) + " = arrays")
        self._results: dict[int, str] = {}
        copied = {number for _, number in self.layout.copied}
        for number, entry in enumerate(outputs):
            text = f"copy_of_{entry[0].name}" if number in copied else _value_name(entry)
            name = self._results[number] = self._identifier(text)
            shape, dtype = spec_of(entry)
            self._write(
                f"{name} = given_or_new(xp, places[{number}], {shape}, {self._dtype(dtype)})"
            )
        for buffer in dict.fromkeys(self.layout.buffers.values()):
            entry = buffer.entries[0]
            shape, dtype = buffer.spec
            if buffer.output is None:
                name = self._identifier(_value_name(entry))
                self._frame.append(
                    f"{name} = arena({buffer.offset}, {shape}, {self._dtype(dtype)})"
                )
            else:
                name = self._results[buffer.output]
                name = self._as(name, spec_of(outputs[buffer.output]).shape, buffer.entries[-1])
            self._names[buffer] = name

    def _end(self, outputs: Sequence[Entry]) -> None:
        for entry, number in self.layout.copied:
            self._write(f"xp.copyto({self._results[number]}, {self._name_of(entry)})", entry[0])
        self._write(f"return [{', '.join(self._results[i] for i in range(len(outputs)))}]")

    def _write(self, line: str, node: Node | None = None) -> None:
        self._body.append((line, node))

    def _let_go(self, when: int) -> None:
        """Drop fresh memory that nobody needs any more."""
        layout = self.layout
        dead = [
            self._names[entry]
            for node in self.statements[when].nodes
            for base in [*node.inputs, *((node, i) for i in range(len(node.specs or ())))]
            for entry in (layout.owners[base] if base is not None else ())
            if layout.kinds[entry] is Kind.FRESH and layout.last[entry] == when
        ]
        if dead:
            self._write("del " + ", ".join(dict.fromkeys(dead)))

    # -- one op ------------------------------------------------------------------------------------

    def _alone(self, node: Node) -> None:
        op, entry = node.op, (node, 0)
        assert op is not None
        kind = self.layout.kinds[entry]
        if kind is Kind.CONSTANT:
            name = self._names[entry] = self._identifier(node.name)
            self.namespace[name] = node.attrs["value"].array
        elif kind is Kind.VIEW:
            self._view(node)
        elif kind is Kind.FRESH:
            names = []
            for i in range(len(node.specs or ())):
                names.append(self._identifier(_value_name((node, i))))
                self._names[node, i] = names[-1]
            target = _tuple(names) if len(names) > 1 else names[0]
            self._write(f"{target} = {self._call(node, self._inputs(node))}", node)
        elif op.name == "FullyConnected" or (op.name == "dot" and _is_matrices(node)):
            self._product(node)
        else:
            outs = [self._name_of((node, i)) for i in range(len(node.specs or ()))]
            inputs = self._inputs(node)
            if steps_of(node) is not None and (row := _one_row(node)):
                # NumPy is quicker where it need not find out that nothing is broadcast.
                inputs = [self._shaped(e, row) for e in node.inputs if e is not None]
                outs = [self._shaped(entry, row)]
            for line in self._lines(node, inputs, outs):
                self._write(line, node)

    def _view(self, node: Node) -> None:
        base = node.inputs[0]
        assert base is not None
        name = self._names[node, 0] = self._identifier(node.name)
        static = self._is_static(base)
        self._name_view(name, f"{self._name_of(base)}{view_text(node)}", static)

    def _inputs(self, node: Node) -> list[str | None]:
        return [None if e is None else self._name_of(e) for e in node.inputs]

    def _lines(self, node: Node, inputs: Sequence[str | None], outs: Sequence[str]) -> list[str]:
        """The lines that compute a node into its places."""
        steps = steps_of(node)
        if steps is None:
            out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
            return [self._call(node, inputs, out) + _comment(node, outs)]
        lines = []
        for step in steps:
            args = [
                inputs[a] if type(a) is int else outs[0] if a == "y" else self._argument(a)
                for a in step.args
            ]
            lines.append(f"{self._ufunc(step.ufunc)}({', '.join(args)}, out={outs[0]})")  # type: ignore[arg-type]
        lines[0] += _comment(node, outs)
        return lines

    def _call(self, node: Node, inputs: Sequence[str | None], out: str | None = None) -> str:
        """A call of the op itself, attributes that are the usual ones left out."""
        op = node.op
        assert op is not None
        name = op.name if not hasattr(np, op.name) else f"nd_{op.name}"
        self.namespace[name] = op.compute
        self._taken.add(name)
        attrs = [
            f"{key}={self._attribute(value)}"
            for key, value in node.attrs.items()
            if key not in op.defaults or repr(op.defaults[key]) != repr(value)
        ]
        given = [] if out is None else [f"out={out}"]
        return f"{name}({', '.join(['xp', *map(str, inputs), *attrs, *given])})"

    def _product(self, node: Node) -> None:
        """A product of two matrices: of a row with a matrix as BLAS likes it best; a large one by
        the function that shares it out among the cores."""
        left, right = node.inputs[:2]
        assert left is not None and right is not None
        spec = spec_of((node, 0))
        dense = node.op is not None and node.op.name == "FullyConnected"
        a_is_transposed = not dense and node.attrs["transpose_a"]
        b_is_transposed = dense or node.attrs["transpose_b"]
        columns = spec.shape[-1]
        rows = prod(spec.shape[:-1])
        inner = spec_of(right).shape[1 if b_is_transposed else 0]
        b = self._name_of(right)
        small = rows * inner * columns <= SERIAL_PRODUCT and spec.dtype.char in "fd" and inner > 1
        if small and rows == 1:
            b += "" if b_is_transposed else ".T"
            a = self._shaped(left, (inner,))
            text = f"{b}.dot({a}, out={self._shaped((node, 0), (columns,))})"
        else:
            shape = spec_of(left).shape if a_is_transposed else (rows, inner)
            a = self._shaped(left, shape) + (".T" if a_is_transposed else "")
            b += ".T" if b_is_transposed else ""
            out = self._shaped((node, 0), (rows, columns))
            if small:
                text = f"{self._ufunc('matmul')}({a}, {b}, out={out})"
            else:
                text = f"shared_matmul(xp, {a}, {b}, {out})"
        self._write(text + _comment(node, [self._name_of((node, 0))]), node)

    # -- a group -----------------------------------------------------------------------------------

    def _group(self, statement: Statement) -> None:
        """A nested function for one block of all arrays, and the line that has it called."""
        domain = statement.shape
        assert domain is not None
        inside = set(statement.nodes)
        outer = [
            e for n in statement.nodes for e in n.inputs if e is not None and e[0] not in inside
        ]
        results = [(n, 0) for n in statement.nodes if self.layout.kinds[n, 0] is Kind.BUFFER]
        entries = list(dict.fromkeys([*outer, *results]))
        axes = leading([spec_of(e).shape for e in entries], domain)
        row = domain[axes:]
        itemsize = max(spec_of((n, 0)).dtype.itemsize for n in statement.nodes)
        cut: dict[str, str] = {}  # the name in the blocks -> the array
        whole: dict[str, str] = {}
        names: dict[Entry, str] = {}
        home = {self.layout.buffers[entry]: self._name_of(entry) for entry in results}
        for entry in entries:
            shape, is_cut = cut_shape(spec_of(entry).shape, domain, axes)
            # What is overwritten here goes by the name of the result.
            over = [
                home.get(b) for o in self.layout.owners[entry] if (b := self.layout.buffers.get(o))
            ]
            names[entry] = (over and over[0]) or self._name_of(entry)
            (cut if is_cut else whole)[names[entry]] = self._shaped(entry, shape)
        scratch = rooms(statement.nodes, names, self._identifier)
        title = statement.nodes[-1].name
        function = self._identifier(title + "_block")
        lines: list[tuple[str, Node | None]] = []
        for node in statement.nodes:
            given = [None if e is None else names[e] for e in node.inputs]
            lines += [(line, node) for line in self._lines(node, given, [names[node, 0]])]
        parameters = [*cut, *whole, *scratch]
        self._groups.append("")
        self._groups += _broken(f"def {function}(", parameters, "):")
        self._groups.append(
            f'    """{_listed([n.name for n in statement.nodes])}: {prod(domain)} elements."""'
        )
        for line, _ in lines:
            self._groups += ["    " + part for part in _fitted(line, WIDTH - 8)]
        rows = prod(domain[:axes])
        room = [f"({row}, {self._dtype(dtype)})" for dtype in scratch.values()]
        extra = [f"whole=[{', '.join(whole.values())}]"] * bool(whole)
        extra += [f"scratch=[{', '.join(room)}]"] * bool(room)
        sizes = [str(rows), str(min(rows_per_block(domain, axes, itemsize), rows))]
        call = [function, *sizes, f"cut=[{', '.join(cut.values())}]", *extra]
        self._write(f"in_blocks({', '.join(call)})", statement.nodes[-1])

    # -- the whole ---------------------------------------------------------------------------------

    def _put_together(self) -> None:
        """The text of all parts, and which line belongs to which node."""
        head = [f"def {self.name}(xp, arena):"]
        if self._ufuncs:
            found = sorted(self._ufuncs)
            head += _indented(_assigned(found, [f"xp.{name}" for name in found]))
        if self._numbers:
            head += _indented(_assigned(list(self._numbers.values()), list(self._numbers)))
        head += _indented(self._frame)
        lines = [*head, *_indented(self._groups), "", "    def run(arrays, places, keys):"]
        self.nodes: dict[int, Node] = {}
        for line, node in self._body:
            for part in _fitted(line, WIDTH - 8):
                lines.append("        " + part)
                if node is not None:
                    self.nodes[len(lines)] = node
        lines += ["", "    return run"]
        self.text = "\n".join(lines)


# -- text ------------------------------------------------------------------------------------------


def _literal(value: Any) -> str | None:
    """The value as Python would write it; None if there is no such text."""
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float:
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if type(value) in (tuple, list):
        items = [_literal(item) for item in value]
        if any(item is None for item in items):
            return None
        inner = ", ".join(map(str, items))
        if type(value) is list:
            return f"[{inner}]"
        return f"({inner},)" if len(items) == 1 else f"({inner})"
    return "..." if value is ... else None


def _value_name(entry: Entry) -> str:
    node, i = entry
    return node.name if len(node.specs or ()) < 2 else f"{node.name}_{i}"


def _is_matrices(node: Node) -> bool:
    return all(e is not None and len(spec_of(e).shape) == 2 for e in node.inputs)


def _one_row(node: Node) -> Shape | None:
    """The one shape in which all arrays of an op agree, if they differ in axes of size 1 only."""
    shapes = [spec_of(e).shape for e in [*node.inputs, (node, 0)] if e is not None]
    squeezed = {tuple(n for n in shape if n != 1) for shape in shapes}
    return squeezed.pop() if len(set(shapes)) > len(squeezed) == 1 else None


def _comment(node: Node, outs: Sequence[str]) -> str:
    """The name of the node, where the place has that of another."""
    ours = outs[0] in (node.name, f"{node.name}_row") or len(outs) > 1
    return "" if ours else f"  # {node.name}"


def _tuple(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _assigned(names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Lines that give `names` their values, several in one."""
    lines: list[str] = []
    while names:
        n = len(names)
        while n > 1 and len(f"{', '.join(names[:n])} = {', '.join(values[:n])}") > WIDTH - 4:
            n -= 1
        lines.append(f"{', '.join(names[:n])} = {', '.join(values[:n])}")
        names, values = names[n:], values[n:]
    return lines


def _listed(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) < 5 else f"{names[0]}, ..., {names[-1]} ({len(names)} ops)"
    )


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]


def _broken(begin: str, items: Sequence[str], end: str) -> list[str]:
    """A line, or if it is too long, one for what is between the brackets."""
    return _fitted(begin + ", ".join(items) + end, WIDTH - 4)


def _fitted(line: str, width: int) -> list[str]:
    """The line broken after commas, outside of inner brackets if possible."""
    if line.endswith(" = arrays") and len(line) > width:
        line = f"({line[:-9]}) = arrays"
    parts: list[str] = []
    while len(line) > width:
        depth, at = 0, {1: -1, 2: -1, 3: -1}
        for i, char in enumerate(line[:width]):
            depth += (char in "([") - (char in ")]")
            if char == "," and depth + bool(parts) in at:
                at[depth + bool(parts)] = i
        cut = next((i for i in at.values() if i > width // 2), max(at.values()))
        if cut < 0:
            break
        parts.append(line[: cut + 1])
        line = "    " + line[cut + 2 :]
    return [*parts, line]
