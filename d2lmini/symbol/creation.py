"""Functions of `sym` that make nodes without inputs, and groups of Symbols.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> sym.Group([x + sym.ones((2, 3)), x]).infer_shape(x=(2, 3))
([(2, 3)], [(2, 3), (2, 3)], [])

A size of 0 in the shape of zeros and ones is unknown; shape inference determines it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from d2lmini.ops.core import registry
from d2lmini.symbol.compose import compose
from d2lmini.symbol.symbol import Symbol


def _make_node(op: str, dtype: Any, kwargs: dict[str, Any], **attrs: Any) -> Symbol:
    return compose(registry[op], (), {**attrs, "dtype": dtype or "float32", **kwargs})


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Zeros, float32 by default."""
    return _make_node("_zeros", dtype, kwargs, shape=shape)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Ones, float32 by default."""
    return _make_node("_ones", dtype, kwargs, shape=shape)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Every element is `val`."""
    return _make_node("_full", dtype, kwargs, shape=shape, value=float(val))


def arange(
    start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
    infer_range: bool = False, name: str | None = None, dtype: Any = None, **kwargs: Any,
) -> Symbol:  # fmt: skip
    """start, start + step, ... below stop, each `repeat` times; arange(n): 0, 1, ..., n - 1."""
    return _make_node(
        "_arange", dtype, kwargs, start=start, stop=stop, step=step, repeat=repeat,
        infer_range=infer_range, name=name,
    )  # fmt: skip


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, name: str | None = None,
    dtype: Any = None, **kwargs: Any,
) -> Symbol:  # fmt: skip
    """`num` evenly spaced numbers from start to stop."""
    return _make_node(
        "_linspace", dtype, kwargs, start=start, stop=stop, num=num, endpoint=endpoint, name=name
    )


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Ones on diagonal k of an (N, M or N) array."""
    return _make_node("_eye", dtype, kwargs, N=N, M=M, k=k)


def concatenate(arrays: Iterable[Symbol], axis: int = 0, always_copy: bool = True) -> Symbol:
    """`concat` of a list along `axis`."""
    return compose(registry["concat"], tuple(arrays), {"dim": axis})


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """All outputs of these Symbols as one Symbol; TypeError for other arguments."""
    given = [] if isinstance(symbols, Symbol) else list(symbols)
    if not given or not all(isinstance(s, Symbol) for s in given):
        raise TypeError(f"Group: expected a list of Symbols, got {symbols!r}")
    kind = type(given[0])
    return kind(tuple([entry for s in given for entry in s._entries]))
