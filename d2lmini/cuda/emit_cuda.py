"""Groups of a program for a GPU: generated kernels, instead of blocks for a CPU's cache.

The ops of a group compute on names in C (`cuda.kernels.symbols`), which gives the kernel's
body; the kernel stands in the program's text, for the reader and for the compiler:

>>> from d2lmini import sym
>>> from d2lmini.graph.codegen import Writer
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.sigmoid(x * 2, name="y")
>>> variables, outputs = infer_types(y._entries, {x._entry[0]: Spec((8, 4), "float32")}, False)
>>> text = Writer("net", list(variables.values()), outputs, on_gpu=True).text
>>> print(text[: text.index("extern")], "...", text[text.index("    def run") :], sep="")
def net(xp, arena):
<BLANKLINE>
    mul_scalar_sigmoid_kernel = kernel("mul_scalar_sigmoid_kernel", '''
        __device__ inline void element(const float x0, float& y0) {
            const float t1 = x0 * 2.0f;
            const float t2 = -t1;
            const float t3 = expf(t2);
            const float t4 = 1.0f + t3;
            const float t5 = 1.0f / t4;
            y0 = t5;
        }
<BLANKLINE>
        ...    def run(arrays, places, keys):
        (x,) = arrays
        y = given_or_new(xp, places[0], (8, 4), float32)
        mul_scalar_sigmoid_kernel(xp, 8, x, y, 32)
        return [y]
<BLANKLINE>
    return run
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from d2lmini.cuda.kernels.formulas import Operand, Shape, complete, launches_of
from d2lmini.cuda.kernels.launch import Kernel
from d2lmini.cuda.kernels.symbols import Body, names
from d2lmini.graph.fusion import (
    Statement,
    axes_of_reduction,
    axes_of_rows,
    is_placing,
    is_reduction,
)
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.plan import Layout, Placement
from d2lmini.ops.index import positions
from d2lmini.ops.kernels import has_bfloat16
from d2lmini.ops.reduce import kept_shape
from d2lmini.ops.symbolic import NotTraceable, Proxy, trace

if TYPE_CHECKING:
    from d2lmini.graph.codegen import Writer


def value_of(node: Node, inputs: Sequence[Proxy | None]) -> Proxy:
    """The result of a node, written in C; NotTraceable if the op has no form in C."""
    op = node.op
    if is_reduction(node):
        assert inputs[0] is not None
        wide = inputs[0].astype(np.promote_types(inputs[0].dtype, node.specs[0].dtype))
        kind = "sum" if op.name == "_sum_to" else op.name
        return getattr(names, kind)(wide).astype(node.specs[0].dtype)
    if is_placing(node):
        g, index = inputs
        assert g is not None
        size = node.specs[0].shape[node.attrs["axis"]]
        place = positions(names, index, size, "clip")
        return names.where(names.index_of(g) == place, g, 0)  # type: ignore[no-any-return]
    value = trace(names, op.compute, inputs, node.own_attrs)
    if not isinstance(value, Proxy):
        raise NotTraceable(f"the result of {op.name}")
    # An op may return its input itself, which a later in-place op must not change.
    value = value.astype(node.specs[0].dtype)
    if value.body is None:  # a constant is written to the body of the node's inputs
        value.body = next(x.body for x in inputs if x is not None)
    return value


def is_in_c(node: Node) -> bool:
    """True if this node can be written in C; the kernels have no bfloat16."""
    if has_bfloat16([*(node.specs or ()), *map(spec_of, node.sources)]):
        return False
    body = Body(has_groups=True)
    try:
        value_of(node, [e and body.add_input("x", spec_of(e).dtype) for e in node.inputs])
    except NotTraceable:
        return False
    return True


def write_kernel(writer: Writer, statement: Statement) -> None:
    """Write the kernels of one group and their launches: one kernel, or more where a group with
    reductions is cut into parts."""
    domain, nodes = statement.shape, statement.nodes
    assert domain is not None
    inputs = statement.inputs
    results = [(n, 0) for n in nodes if writer.layout.kinds[n, 0] is Placement.BUFFER]

    def formula(*given: Proxy) -> list[Proxy]:
        values: dict[Entry, Proxy] = dict(zip(inputs, given))
        for node in nodes:
            values[node, 0] = value_of(node, [e and values[e] for e in node.inputs])
        return [values[entry] for entry in results]

    operands = [_operand(writer.layout, entry) for entry in inputs]
    arrays = [_array(writer, entry) for entry in inputs] + [writer.name_of(e) for e in results]
    axes = next(filter(None, map(axes_of_rows, nodes)), ())
    outs = [Operand(spec_of(e).dtype, _kept(e, domain)) for e in results]
    made = launches_of(_title(nodes), operands, outs, domain, axes, formula)
    if made.partial is not None:
        dtype, size = made.partial
        arrays.append(writer.identifier("partial"))
        writer.write(f"{arrays[-1]} = xp.empty({size}, {writer.dtype(dtype)})")
    for kernel, threads in made.kernels:
        arguments = ["xp", str(threads), *arrays, *map(str, made.sizes)]
        writer.write(f"{writer.kernel(kernel)}({', '.join(arguments)})", nodes[-1])


def _kept(entry: Entry, domain: Shape) -> Shape:
    """The shape of a result of a group; 1 where it is reduced."""
    node, _ = entry
    return (
        kept_shape(domain, axes_of_reduction(node)) if is_reduction(node) else spec_of(entry).shape
    )


def _operand(layout: Layout, entry: Entry) -> Operand:
    shape, dtype = spec_of(entry)
    strides = layout.strides(entry)
    return Operand(dtype, shape, tuple(s // dtype.itemsize for s in strides) if strides else None)


def _array(writer: Writer, entry: Entry) -> str:
    """The name of an array with the strides of its operand."""
    name = writer.name_of(entry)
    fresh = writer.layout.kinds[entry] is Placement.FRESH
    return f"xp.ascontiguousarray({name})" if fresh else name


def _title(nodes: Sequence[Node]) -> str:
    """A name for the kernel, made of the names of its ops: the same for the same formula.

    The last word is never the name of an op: CUDA has functions called `erf`, `rsqrt` or `round`,
    and a kernel with such a name does not compile.
    """
    words = [re.sub(r"^(broadcast|elemwise)?_*", "", node.op.name) for node in nodes]  # type: ignore[union-attr]
    words = words if len(words) < 5 else [*words[:2], f"and_{len(words) - 3}_more", words[-1]]
    return re.sub(r"\W", "_", "_".join([*words, "kernel"]))


def kernel(name: str, source: str) -> Kernel:
    """The kernel for a source text in a program; helper functions that the text calls, such as
    `maximum` with NumPy's rules, are added to the kernel's own `source`."""
    return complete(name, textwrap.dedent(source).lstrip("\n"))


def lines_of(name: str, made: Kernel) -> list[str]:
    """The lines that define a kernel in a program's text."""
    begin = re.search(r'__device__ inline void element\(|extern "C"', made.source)
    assert begin is not None
    source = textwrap.indent(made.source[begin.start() :], "    ").splitlines()
    return [f"{name} = kernel(\"{made.name}\", '''", *source, "''')"]
