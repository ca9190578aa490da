"""Casts before ops: `amp.init` puts them where an op is called, on arrays and on Symbols.

>>> from d2lmini import nd
>>> x, w = nd.ones((2, 3)), nd.ones((4, 3))
>>> with init("float16"):
...     y = nd.FullyConnected(x, w, no_bias=True, num_hidden=4)
...     p = nd.softmax(y)
>>> y.dtype.__name__, p.dtype.__name__
('float16', 'float32')

Parameters and gradients stay in float32: each call casts the weights it uses, and the gradient of
the cast goes back to float32. A call that needs no cast costs one look-up; while mixed precision is
off, calls on arrays do not come here at all.

The kinds of ops, by MXNet's lists and MXNet's names:

    low         inputs are cast to 16 bits: products, which gain most and lose little
    float32     inputs are cast to float32: exponentials, sums, norms, losses
    widest      inputs of several dtypes are cast to the widest of them
    bound       in no list of MXNet's: only the inputs that must have one dtype are cast to the
                widest of theirs (PReLU's data and slopes)
    conditional float32, if an attribute has one of some values
    any         no cast: the op computes in the dtype that it gets

>>> kinds()[registry["softmax"]], kinds()[registry["add_n"]]
('float32', 'widest')

The first two lists and the conditional one are lists here too. The others follow from what ops
declare: the ops on two arrays of a family (`elementwise.py`) need one dtype, and so are in the list
of the widest; all other ops of MXNet compute in any dtype.

Gradient rules run without casts, in the dtypes of the forward pass. Arrays of `np` get no casts, as
in MXNet 1.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from d2lmini.base.scopes import Standing
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.dispatch import apply
from d2lmini.ops import fluent  # noqa: F401  (all ops are declared)
from d2lmini.ops.core import Modes, Op, as_dtype, modes, registry
from d2lmini.ops.create import amp_cast, amp_multicast, is_castable
from d2lmini.symbol import Symbol

_LOW = "Convolution Deconvolution FullyConnected RNN"

_FLOAT32 = """
    arccos arcsin arctanh cosh sinh tan exp expm1 log log10 log2 log1p square reciprocal
    rsqrt rcbrt gamma gammaln smooth_l1
    _power _power_scalar _rpower_scalar broadcast_power _hypot _hypot_scalar broadcast_hypot
    _rdiv_scalar
    sum nansum prod mean norm argsort topk
    softmax softmin log_softmax
    InstanceNorm LayerNorm GroupNorm L2Normalization
    SoftmaxOutput make_loss CTCLoss
    linalg_gemm2"""

# Besides the ops on two arrays.
_WIDEST = "add_n concat stack dot batch_dot where"

#: Ops whose inputs are cast to float32 if the attribute has one of the values.
CONDITIONAL = {
    "Activation": ("act_type", ("softrelu",)),
    "LeakyReLU": ("act_type", ("elu", "selu")),
}

# d2lmini's own ops that Gluon's layers and losses call, and the kind of the ops they stand for.
_OWN = {"_softmax_cross_entropy": "float32", "_squared_error": "float32", "_rnn_layer": "low"}


@cache
def kinds() -> dict[Op, str]:
    """The kind of each op, for all ops that may need a cast, without conditional ones."""
    found = {registry[name]: kind for name, kind in _OWN.items()}
    for op in registry.values():
        if op.in_mxnet and op.family is not None and op.arity == 2:
            found[op] = "widest"
        elif (
            op.in_mxnet
            and (op.rule or op.random)
            and not op.mutates
            and len(op.of_one_dtype(2)) > 1
        ):
            found[op] = "bound"
    for kind, names in (("widest", _WIDEST), ("low", _LOW), ("float32", _FLOAT32)):
        found.update({registry[name]: kind for name in names.split()})
    return found


FLOAT32 = np.dtype("float32")


class Casts:
    """Casts the inputs of calls: those of kind low to `target`, float16 or bfloat16.

    AssertionError, as in MXNet, for another dtype; ImportError for bfloat16 without the package
    ml_dtypes."""

    def __init__(self, target: Any):
        dtype = None
        with suppress(TypeError):
            dtype = as_dtype(target)
        assert dtype is not None and dtype.name in ("float16", "bfloat16"), (
            "AMP currently supports only float16 or bfloat16 as a target_dtype, got "
            f"{getattr(target, '__name__', target)!r}"
        )
        self.target = dtype
        self.kinds = kinds()

    def __call__(self, op: Op, inputs: tuple, attrs: dict[str, Any]) -> tuple:
        """The inputs of a call, cast where needed."""
        kind = self.kinds.get(op)
        if op.name in CONDITIONAL:
            attribute, values = CONDITIONAL[op.name]
            kind = "float32" if str(attrs.get(attribute)) in values else kind
        if kind is None or not inputs or inputs[0].is_np:
            return inputs
        if op.variadic:
            inputs = tuple([part for x in inputs for part in _parts(x)])
        if kind in ("low", "float32"):
            target = self.target if kind == "low" else FLOAT32
            return tuple([_cast(x, target) for x in inputs])
        n = len(inputs)
        bound = range(n) if kind == "widest" else op.of_one_dtype(n)
        places = [i for i in bound if inputs[i] is not None]
        together = [inputs[i] for i in places]
        if len(together) < 2:
            return inputs
        if not all([hasattr(type(x), "_spec") for x in together]):  # Symbols of an untyped graph
            together = amp_multicast(*together, num_outputs=len(together))
        elif len({x._spec.dtype for x in together if is_castable(x._spec.dtype)}) > 1:
            together = [_cast(x, FLOAT32) for x in together]
        cast = dict(zip(places, together))
        return tuple([cast.get(i, x) for i, x in enumerate(inputs)])


def _parts(x: Any) -> Sequence[Any]:
    """The Symbols of a group, of which a variadic op takes each as an input; else `x` alone."""
    entries = getattr(x, "_entries", ()) if isinstance(x, Symbol) else ()
    return [type(x)((entry,)) for entry in entries] if len(entries) > 1 else [x]


def _cast(x: Any, dtype: np.dtype) -> Any:
    """`x` as `dtype`; `x` itself where it is known that nothing changes."""
    if x is None:
        return None
    if hasattr(type(x), "_spec"):
        own = x._spec.dtype
        if own == dtype or not is_castable(own):
            return x
    return amp_cast(x, dtype=dtype)


def _apply_cast(op: Op, inputs: tuple, attrs: dict, out: Any = None, ctx: Any = None) -> Any:
    """`NDArray._apply` while mixed precision is on. So `apply` itself has no branch for it."""
    if modes.casting is not None:  # None in gradient rules
        inputs = modes.casting(op, inputs, attrs)
    return apply(op, inputs, attrs, out, ctx)


def _set(casts: Any) -> None:
    Modes.casting = casts
    NDArray._apply = staticmethod(apply if casts is None else _apply_cast)


def init(target_dtype: Any = "float16") -> Standing:
    """Turn mixed precision on, for calls of ops on arrays and on Symbols in all threads.

    target_dtype: 'float16' or 'bfloat16'; `_LOW` has the ops that are cast to this dtype.
    (MXNet's other arguments, which replace its lists, are left out.)

    Two additions to MXNet: `with amp.init(): ...` restores at its end what was set before, and
    `amp.init(None)` turns mixed precision off. A second call replaces the first (MXNet ignores it).
    A compiled net keeps the casts of its first call: call `net.hybridize()` to compile it anew.

    Arrays get the casts of all lists; MXNet 1.9.1 casts arrays only for the low and the widest
    lists, and Symbols for all, so that there a hybridized net differs from an eager one.

    AssertionError for another dtype.
    """
    casts = None if target_dtype is None else Casts(target_dtype)
    scope = Standing()
    scope.undo.append(partial(_set, Modes.casting))
    scope.install(partial(_set, casts))
    return scope
