"""Methods of values: `x.sum()` calls the op `sum`.

>>> from d2lmini import nd
>>> nd.array([1, 2]).sum().item()
3.0

They come last, when all ops are declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ops.core import registry
from d2lmini.ops.fluent import Fluent
from d2lmini.ops.signature import named, text_of

#: The ops that are also methods, as in MXNet.
METHODS = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort
    broadcast_axes broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space
    diag exp expm1 fix flip floor log log10 log1p log2 log_softmax max mean min nansum
    norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape_like rint
    round rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis softmax
    softmin sort space_to_depth split split_v2 sqrt square sum swapaxes take tan tanh tile topk
    transpose trunc zeros_like
""".split()


def _method(name: str) -> Callable:
    op = registry[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return op(self, *args, **kwargs)

    doc = f"`{op.usage}` of this array.\n\n{text_of(op)}"
    return named(method, "d2lmini.ops.fluent", f"Fluent.{name}", doc)


for _name in METHODS:
    setattr(Fluent, _name, _method(_name))
