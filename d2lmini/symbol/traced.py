"""Traced values: Symbols of a typed graph that work like arrays with unknown contents.

>>> from d2lmini.graph.ir import Node
>>> from d2lmini.ops.spec import Spec
>>> x = Traced(((Node(None, "x", specs=(Spec((4, 3), "float32"),)), 0),))
>>> x[1:3].shape, x[:, None, 0].shape, x[..., ::2].shape
((2, 3), (4, 1), (4, 2))
>>> [row.shape for row in x]
[(3,), (3,), (3,), (3,)]

Plain `forward` methods and gradient rules work on them. `x[key]` is one node, with the same rules
as for arrays: numbers, slices, None and `...` are attributes of the node. A list or NumPy array of
integers becomes a constant input, so it is allowed only where arrays are: in a compiled `forward`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.context import Context, current_context
from d2lmini.ndarray.indexing import select
from d2lmini.ndarray.keys import parse
from d2lmini.ops.core import Spec, as_dtype, registry
from d2lmini.ops.fluent import Typed
from d2lmini.symbol.symbol import Symbol, tracer


class Traced(Typed, Symbol):
    """A Symbol of a typed graph that works like an array without contents."""

    __slots__ = ()

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        node, i = self._entry
        return node.specs[i]

    @property
    def context(self) -> Context:
        """The device that the graph is traced for."""
        return tracer.context or current_context()

    ctx = context

    @property
    def T(self) -> Symbol:
        """The Symbol with reversed axes."""
        return self if self.ndim < 2 else registry["transpose"](self)

    def __len__(self) -> int:
        """Size of the first axis; for a group, the number of outputs."""
        if len(self._entries) != 1:
            return len(self._entries)
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Symbol]:
        if len(self._entries) != 1:
            return super().__iter__()
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Symbol:
        """Elements, as for an array; for a group, outputs by number, slice or name."""
        return getitem(self, key) if len(self._entries) == 1 else super().__getitem__(key)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Convert to `dtype`; the value itself if it has that dtype and `copy` is False."""
        if not copy and as_dtype(dtype) == self._spec.dtype:
            return self
        return registry["Cast"](self, dtype=dtype)

    def as_in_context(self, context: Context) -> Any:
        """The value itself: a compiled graph has one device. MXNetError for another context."""
        if context != self.context:
            raise MXNetError(
                f"as_in_context: a compiled net runs on one device, here {self.context}, and "
                f"cannot move a value to {context}; move the inputs, or run it with "
                "net.hybridize(False)"
            )
        return self

    as_in_ctx = as_in_context
    to_device = as_in_context


def getitem(x: Any, key: Any) -> Any:
    """x[key] for a value of known shape; errors as for `ndarray.keys.parse`."""
    if key is Ellipsis or (type(key) in (slice, tuple) and key in (slice(None), ())):
        return x
    return select(x, parse(key, x.shape, x.is_np))
