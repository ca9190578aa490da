"""Rows of the op table in the real MXNet, whose interpreter imports this module: called, or read
from the file of a Symbol.

Rows with shapes that MXNet knows only in its numpy mode run in that mode.
"""

import numpy as np


def call_op(mx, name, inputs, attrs):
    """The outputs of `nd.NAME`, dotted for sub-namespaces."""
    values = [array(mx, x) for x in inputs]
    shapes = [v.shape for v in values if isinstance(v, mx.nd.NDArray)]
    shapes += [attrs["shape"]] if isinstance(attrs.get("shape"), tuple) else []
    with numpy_mode(mx, shapes):
        out = find(mx.nd, name)(*values, **plain(attrs))
        return [y.asnumpy() for y in (out if isinstance(out, (list, tuple)) else [out])]


def read_symbol(mx, text, values, call):
    """What a Symbol's JSON gives in predict mode for the values of its variables; the same as MXNet
    writes it again; and, where `call` is not None but (name, attributes) of an op on the same
    variables, what MXNet writes for that."""
    values = {name: array(mx, x) for name, x in values.items()}
    with numpy_mode(mx, [x.shape for x in values.values()]):
        symbol = mx.sym.load_json(text)
        args = {k: values[k] for k in symbol.list_arguments()}
        aux = {k: values[k] for k in symbol.list_auxiliary_states()}
        executor = symbol.bind(mx.cpu(), args, aux_states=aux, grad_req="null")
        outputs = [y.asnumpy() for y in executor.forward(is_train=False)]
        again, written = symbol.tojson(remove_amp_cast=False), None
        if call:
            name, attrs = call
            made = find(mx.sym, name)(*[mx.sym.var(v) for v in values], **plain(attrs))
            written = made.tojson(remove_amp_cast=False)
        mx.nd.waitall()  # an error that nothing has waited for belongs to this row
    return outputs, again, written


def array(mx, value):
    """NumPy's arrays as NDArrays."""
    return mx.nd.array(value, dtype=value.dtype) if isinstance(value, np.ndarray) else value


def plain(attrs):
    """dtypes as names: MXNet's calls write attributes as text."""
    kinds = (np.dtype, type)
    return {k: np.dtype(v).name if isinstance(v, kinds) else v for k, v in attrs.items()}


def numpy_mode(mx, shapes):
    return mx.util.np_shape(any(shape == () or 0 in shape for shape in shapes))


def find(space, name):
    """The op of this name, in `nd` or `sym` or in what lies below it."""
    for start in (space, space._internal, space.contrib, space.linalg):
        target = start
        for part in name.split("."):
            target = getattr(target, part, None)
        if target is not None:
            return target
    raise LookupError(f"MXNet has no {name}")
