"""The helpers of `mx.test_utils` that tests of old programs use most; the others are left out.

>>> import numpy as np
>>> from d2lmini import nd, test_utils
>>> test_utils.assert_almost_equal(nd.array([1, 2]), np.array([1.0, 2.00001]))
>>> test_utils.check_numeric_gradient(nd.tanh, [np.linspace(-1, 1, 5)], rtol=1e-2, atol=1e-3)

Elements a and b are alike when |a - b| <= atol + rtol * |b|. Where MXNet's checks take a Symbol,
these also take a function of NDArrays or a Block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini import autograd, random
from d2lmini.compat.left_out import find_stand_in
from d2lmini.context import Context, current_context
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ndarray import NDArray, array
from d2lmini.ops.checks import check_storage
from d2lmini.symbol import Symbol
from d2lmini.util import use_np as use_np

#: dtype -> relative and absolute tolerance; other dtypes are compared exactly.
_TOLERANCES = {"float16": (1e-2, 1e-1), "float32": (1e-4, 1e-3), "float64": (1e-5, 1e-20)}


def __getattr__(name: str) -> Any:
    return find_stand_in("test_utils", name)


def default_context() -> Context:
    """The context of tests: the current context."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Make `ctx` the current context of this thread."""
    Context.default_ctx = ctx


# -- random arrays, drawn from NumPy's global generator --------------------------------------------


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """`num_dim` sizes between 1 (or 0) and `dim`, both included."""
    lowest = 0 if allow_zero_size else 1
    return tuple(int(n) for n in np.random.randint(lowest, dim + 1, size=num_dim))


def random_arrays(*shapes: tuple[int, ...]) -> Any:
    """A float32 NumPy array of standard normal numbers for each shape; for one shape the array
    itself."""
    arrays = [np.array(np.random.randn(*shape), dtype=np.float32) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def rand_ndarray(
    shape: tuple[int, ...], stype: str = "default", density: float | None = None,
    dtype: Any = None, modifier_func: Any = None, shuffle_csr_indices: bool = False,
    distribution: str | None = None, ctx: Context | None = None,
) -> NDArray:  # fmt: skip
    """An NDArray of standard normal numbers. MXNetError for sparse storage types; the arguments for
    them (density, modifier_func, ...) are ignored."""
    check_storage(stype)
    return array(random_arrays(shape), ctx=ctx, dtype=dtype or np.float32)


# -- are two arrays alike? -------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Equal in shape and in every element."""
    return np.array_equal(_as_numpy(a), _as_numpy(b))


def almost_equal(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:  # fmt: skip
    """True if all elements are alike."""
    try:
        assert_almost_equal(a, b, rtol, atol, ("a", "b"), equal_nan, use_broadcast)
    except AssertionError:
        return False
    return True


def assert_almost_equal(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False, use_broadcast: bool = True, mismatches: tuple[int, int] = (10, 10),
) -> None:  # fmt: skip
    """AssertionError, with the elements that differ most, unless all elements are alike.

    a, b: NDArrays, NumPy arrays, lists or numbers. rtol, atol: None for the larger tolerance of the
    dtypes. equal_nan: nan is like nan. `mismatches` is accepted and ignored.
    """
    a, b = _as_numpy(a), _as_numpy(b)
    rtols, atols = zip(*(_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (a, b)))
    if use_broadcast:
        a, b = np.broadcast_arrays(a, b)
    np.testing.assert_allclose(
        a, b, max(rtols) if rtol is None else rtol, max(atols) if atol is None else atol,
        equal_nan, f"{names[0]} and {names[1]} differ",
    )  # fmt: skip


def _as_numpy(x: Any) -> np.ndarray:
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


# -- values and gradients of functions -------------------------------------------------------------


def check_numeric_gradient(
    sym: Any, location: Any, aux_states: Any = None, numeric_eps: float | None = None,
    rtol: Any = None, atol: Any = None, grad_nodes: Any = None, use_forward_train: bool = True,
    ctx: Context | None = None, grad_stype_dict: Any = None, dtype: Any = np.float32,
) -> None:  # fmt: skip
    """The gradients of a random combination of the outputs, against central differences.

    Every element x of every input (or of `grad_nodes`, a list of positions or names) is changed by
    numeric_eps / 2 to either side: (f(x + eps/2) - f(x - eps/2)) / eps must be like autograd's
    gradient. Two calls for each element, so use small inputs. Random numbers inside the function
    are the same in every call.
    """
    call, inputs = _function(sym, location, aux_states, ctx, dtype)
    eps = numeric_eps or 2.0 ** {"float16": -6, "float32": -9}.get(np.dtype(dtype).name, -14)
    seed = int(np.random.randint(2**31))
    nodes = list(inputs if grad_nodes is None else grad_nodes)
    for name in nodes:
        inputs[name].attach_grad()
    random.seed(seed)
    with autograd.record(use_forward_train):
        outputs = call(*inputs.values())
        weights = [np.random.uniform(0.5, 1.5, y.shape).astype(dtype) for y in outputs]
        total: Any = sum((y * array(w, ctx, dtype)).sum() for w, y in zip(weights, outputs))
    total.backward(train_mode=use_forward_train)

    def value_at(name: Any, x: np.ndarray) -> float:
        random.seed(seed)
        with autograd.train_mode() if use_forward_train else autograd.predict_mode():
            moved = call(*{**inputs, name: array(x, ctx, dtype)}.values())
        return sum(np.sum(w * y.asnumpy(), dtype=float) for w, y in zip(weights, moved))

    for name in nodes:
        x = inputs[name].asnumpy()
        slopes = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            high, low = x.copy(), x.copy()
            high[place] += eps / 2
            low[place] -= eps / 2
            step = float(high[place]) - float(low[place])  # eps after rounding
            slopes[place] = (value_at(name, high) - value_at(name, low)) / step
        names = f"numeric_{name}", f"backward_{name}"
        assert_almost_equal(slopes, inputs[name].grad, rtol, atol, names)


def _function(
    sym: Any, location: Any, aux_states: Any, ctx: Context | None, dtype: Any
) -> tuple[Callable[..., list[Any]], dict[Any, NDArray]]:
    """A Symbol, function or Block as a function that returns a list of outputs; and its inputs as
    NDArrays, in order, by position or by name."""
    names: Sequence[Any] = range(len(location))
    states: list[str] = []
    if isinstance(sym, Symbol):
        names, states = sym.list_arguments(), sym.list_auxiliary_states()
        sym = _positional(sym, [*names, *states])
    arrays = [
        array(given[name] if isinstance(given, Mapping) else given[i], ctx, dtype)
        for known, given in ((names, location), (states, aux_states))
        for i, name in enumerate(known)
    ]

    def call(*values: NDArray) -> list[Any]:
        outputs = sym(*values, *arrays[len(names) :])
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    return call, dict(zip(names, arrays))


def _positional(symbol: Symbol, names: list[str]) -> Callable[..., Any]:
    """The Symbol as a function of the variables with these names, in this order."""
    op = CachedOp(symbol, name="test")
    order = [names.index(node.name) for node in op.variables]
    return lambda *arrays: op(*(arrays[i] for i in order))
