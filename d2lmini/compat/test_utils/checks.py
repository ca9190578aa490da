"""Checks of functions and optimizers: values against expected ones, gradients against differences.

MXNet's names and arguments, for a Symbol or, in its place, a function of NDArrays (or a Block):

>>> import numpy as np
>>> from d2lmini import nd, test_utils
>>> x = np.array([1.0, 2.0])
>>> _ = test_utils.check_symbolic_forward(nd.square, [x], [x**2])
>>> _ = test_utils.check_symbolic_backward(nd.square, [x], [np.ones(2)], [2 * x])
>>> test_utils.check_numeric_gradient(nd.square, [x], rtol=1e-2, atol=1e-2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from d2lmini import autograd, random
from d2lmini.base import MXNetError
from d2lmini.compat.test_utils.compare import assert_almost_equal, default_numeric_eps, get_tols
from d2lmini.compat.test_utils.environment import default_context, default_dtype
from d2lmini.compat.test_utils.executors import central_differences
from d2lmini.compat.test_utils.samples import rand_ndarray
from d2lmini.context import Context
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ndarray import NDArray, array
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import infer_shape

Function = Callable[..., Any]


class _SymbolFunction:
    """A Symbol as a function of its arguments, by name; it holds the auxiliary states."""

    def __init__(self, who: str, symbol: Symbol, aux_states: Any):
        self.op = CachedOp(symbol, name=who)
        self.names = symbol.list_arguments()
        self.outputs = symbol.list_outputs()
        states = symbol.list_auxiliary_states()
        values = [] if aux_states is None else aux_states
        self.states: dict[str, Any] = dict(
            values if isinstance(values, Mapping) else zip(states, values)
        )
        if set(self.states) != set(states):
            raise MXNetError(f"{who}: aux_states must be {states}, got {list(self.states)}")

    def __call__(self, **inputs: NDArray) -> Any:
        ctx = next(iter(inputs.values())).context if inputs else default_context()
        for name, value in self.states.items():
            if not isinstance(value, NDArray) or value.context != ctx:
                self.states[name] = array(value, ctx=ctx)
        values = {**inputs, **self.states}
        return self.op(*[values[node.name] for node in self.op.variables])

    def by_name(self, who: str, location: Any) -> dict[str, Any]:
        """The inputs, given in order or by name, as a dict by name."""
        if not isinstance(location, Mapping):
            location = dict(zip(self.names, location, strict=True))
        if set(location) != set(self.names):
            raise ValueError(
                f"{who}: Symbol arguments and keys of the given location do not match. symbol "
                f"args: {self.names}, location.keys(): {list(location)}"
            )
        return {name: location[name] for name in self.names}


def _function(who: str, sym: Any, location: Any, aux_states: Any = None) -> tuple[Function, Any]:
    """The function to call, and its inputs: those of a Symbol by name."""
    if isinstance(sym, Symbol):
        function = _SymbolFunction(who, sym, aux_states)
        return function, function.by_name(who, location)
    if not callable(sym):
        raise TypeError(f"{who}: a Symbol, a function of NDArrays or a Block, got {sym!r}")
    if aux_states:
        raise MXNetError(f"{who}: aux_states belong to a Symbol; a function holds its own")
    return sym, location


def _list_expected(function: Function, expected: Any) -> list[Any]:
    """The expected outputs, in order."""
    if isinstance(function, _SymbolFunction) and isinstance(expected, Mapping):
        return [expected[name] for name in function.outputs]
    return _list(expected)


def _inputs(location: Any, ctx: Context | None, dtype: Any) -> dict[Any, NDArray]:
    """The inputs as NDArrays, by position or by name."""
    pairs = location.items() if isinstance(location, Mapping) else enumerate(location)
    ctx = ctx or default_context()
    return {
        key: value.as_in_context(ctx)
        if isinstance(value, NDArray)
        else array(value, ctx=ctx, dtype=dtype or default_dtype())
        for key, value in pairs
    }


def _call(function: Function, inputs: dict[Any, NDArray]) -> list[NDArray]:
    positional = [value for key, value in inputs.items() if isinstance(key, int)]
    named = {key: value for key, value in inputs.items() if not isinstance(key, int)}
    result = function(*positional, **named)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _backward(outputs: list[NDArray], heads: list[Any], train_mode: bool = True) -> None:
    """Run backward from the outputs that depend on an input with a gradient attached."""
    pairs = [(y, g) for y, g in zip(outputs, heads, strict=True) if y._node is not None]
    if not pairs:
        raise AssertionError("no output depends on an input whose gradient is wanted")
    autograd.backward([y for y, _ in pairs], [g for _, g in pairs], train_mode=train_mode)


def _list(values: Any) -> list[Any]:
    """Outputs, gradients or expectations as a list; a single array becomes a list of one."""
    if isinstance(values, Mapping):
        return list(values.values())
    return list(values) if isinstance(values, (list, tuple)) else [values]


def simple_forward(
    sym: Any, ctx: Context | None = None, is_train: bool = False, **inputs: Any
) -> Any:
    """The function's output on these inputs as a NumPy array, or a list of them."""
    function, inputs = _function("simple_forward", sym, inputs)
    with autograd.train_mode() if is_train else autograd.predict_mode():
        outputs = [y.asnumpy() for y in _call(function, _inputs(inputs, ctx, None))]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(
    sym: Any,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Context | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """The outputs must be like `expected` (a list, or one array), else AssertionError. Returns the
    outputs."""
    function, location = _function("check_symbolic_forward", sym, location, aux_states)
    with autograd.predict_mode():
        outputs = _call(function, _inputs(location, ctx, dtype))
    expected = _list_expected(function, expected)
    if len(expected) != len(outputs):
        raise AssertionError(f"{len(outputs)} outputs, but {len(expected)} are expected")
    for i, (output, value) in enumerate(zip(outputs, expected)):
        names = (f"expected_{i}", f"forward_{i}")
        assert_almost_equal(value, output, rtol, atol, names, equal_nan=equal_nan)
    return outputs


def check_symbolic_backward(
    sym: Any,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Context | None = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> dict[Any, NDArray]:
    """The gradients of the inputs must be like `expected` (in order, or by name).

    out_grads: the gradients of the outputs, None for ones. grad_req: one for all, a list or a dict;
    with 'add' the gradients start as random numbers, to which the result must be added; with
    'null' an input is not checked. Returns the gradients by position or name.
    """
    function, location = _function("check_symbolic_backward", sym, location, aux_states)
    inputs = _inputs(location, ctx, dtype)
    if isinstance(grad_req, str):
        requests = dict.fromkeys(inputs, grad_req)
    else:
        requests = dict(grad_req if isinstance(grad_req, Mapping) else zip(inputs, grad_req))
    before = {}
    for key, x in inputs.items():
        x.attach_grad(requests.get(key, "null"))
        if requests.get(key) == "add":
            before[key] = rand_ndarray(x.shape, dtype=x.dtype, ctx=x.context)
            assert x.grad is not None
            x.grad[:] = before[key]
    with autograd.record():
        outputs = _call(function, inputs)
    heads: Any = [None] * len(outputs) if out_grads is None else _list_expected(function, out_grads)
    heads = [
        None if g is None else array(g, ctx=y.context, dtype=y.dtype)
        for g, y in zip(heads, outputs, strict=True)
    ]
    _backward(outputs, heads)
    wanted = dict(expected if isinstance(expected, Mapping) else zip(inputs, _list(expected)))
    for key, value in wanted.items():
        if requests.get(key, "null") != "null" and value is not None:
            got: Any = inputs[key].grad
            if key in before:
                got = got - before[key]
            names = (f"expected_{key}", f"backward_{key}")
            assert_almost_equal(value, got, rtol, atol, names, equal_nan=equal_nan)
    return {key: x.grad for key, x in inputs.items() if x.grad is not None}


def check_numeric_gradient(
    sym: Any,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: Any = None,
    dtype: Any = np.float32,
) -> None:
    """The gradients of a random combination of the outputs, against central differences.

    Every element x of every input (or of `grad_nodes`, a list of positions or names) is changed by
    numeric_eps / 2 to either side: (f(x + eps/2) - f(x - eps/2)) / eps must be like autograd's
    gradient. Two calls for each element, so use small inputs. Random numbers inside the function
    are the same in every call.
    """
    function, location = _function("check_numeric_gradient", sym, location, aux_states)
    inputs = _inputs(location, ctx, dtype)
    eps = numeric_eps or default_numeric_eps()[np.dtype(dtype)]
    seed = int(np.random.randint(2**31))
    nodes = list(inputs) if grad_nodes is None else list(grad_nodes)
    for key in nodes:
        inputs[key].attach_grad()
    random.seed(seed)
    with autograd.record(train_mode=use_forward_train):
        outputs = _call(function, inputs)
        weights = [np.random.uniform(0.5, 1.5, y.shape) for y in outputs]
    heads = [array(w, ctx=y.context, dtype=y.dtype) for w, y in zip(weights, outputs)]
    _backward(outputs, heads, use_forward_train)

    def value(key: Any, x: np.ndarray) -> float:
        random.seed(seed)
        moved = array(x, ctx=inputs[key].context, dtype=inputs[key].dtype)
        with autograd.train_mode() if use_forward_train else autograd.predict_mode():
            results = _call(function, {**inputs, key: moved})
        return float(sum((w * y.asnumpy().astype(float)).sum() for w, y in zip(weights, results)))

    for key in nodes:
        gradient = central_differences(partial(value, key), inputs[key].asnumpy(), eps)
        got = inputs[key].grad
        assert got is not None
        tolerances = get_tols(got, got, rtol, atol)
        assert_almost_equal(gradient, got, *tolerances, names=(f"numeric_{key}", f"backward_{key}"))


def check_consistency(
    sym: Any,
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: str = "write",
    arg_params: Mapping[str, Any] | None = None,
    aux_params: Any = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: Any = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> list[np.ndarray]:
    """One function on several contexts or dtypes, or a list with one for each, must give like
    outputs and gradients; AssertionError if not.

    ctx_list: for each run a dict of `ctx`, the shape of each input by name and, if needed,
    `type_dict` with dtypes by name. All runs get the same random numbers. The run with the finest
    dtype is the reference, unless one is given. Returns its outputs and gradients.
    """
    syms = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    if len(syms) != len(ctx_list):
        raise AssertionError(f"{len(syms)} Symbols for {len(ctx_list)} entries of ctx_list")
    if isinstance(syms[0], Symbol) and any(
        s.list_arguments() != syms[0].list_arguments() or s.list_outputs() != syms[0].list_outputs()
        for s in syms
    ):
        raise AssertionError("the Symbols must have the same arguments and outputs, by name")
    sym = syms[0]
    shapes = {k: v for k, v in ctx_list[0].items() if k not in ("ctx", "type_dict")}
    if isinstance(sym, Symbol):  # infer the other shapes
        found = infer_shape(sym, **shapes)
        shapes = dict(zip(sym.list_arguments(), found[0]))
        states = {n: np.zeros(s) for n, s in zip(sym.list_auxiliary_states(), found[2])}
        aux_params = {**states, **(aux_params or {})}
    functions = [_function("check_consistency", s, shapes, aux_params)[0] for s in syms]
    _, shapes = _function("check_consistency", sym, shapes, aux_params)
    draw = np.random.uniform if use_uniform else np.random.normal
    values = {k: draw(size=shape).astype(rand_type) * scale for k, shape in shapes.items()}
    values.update({k: np.asarray(v) for k, v in (arg_params or {}).items()})
    runs = []
    for function, setting in zip(functions, ctx_list):
        dtypes = setting.get("type_dict", {})
        inputs = {
            k: array(v, ctx=setting["ctx"], dtype=dtypes.get(k, default_dtype()))
            for k, v in values.items()
        }
        for x in inputs.values():
            x.attach_grad(grad_req)
        with autograd.record():
            outputs = _call(function, inputs)
        if grad_req != "null":
            _backward(outputs, [None] * len(outputs))
        grads = [x.grad for x in inputs.values() if grad_req != "null"]
        runs.append([y.asnumpy() for y in [*outputs, *grads] if y is not None])
    if ground_truth is None:
        ground_truth = max(runs, key=lambda run: np.finfo(run[0].dtype).precision)
    for number, run in enumerate(runs):
        for i, (got, truth) in enumerate(zip(run, ground_truth, strict=True)):
            names = (f"truth_{i}", f"run_{number}_{i}")
            try:
                assert_almost_equal(truth, got, rtol, atol, names, equal_nan=equal_nan)
            except AssertionError as difference:
                if raise_on_err:
                    raise
                print(difference)
    return ground_truth


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """Arrays, None, and tuples of these, must be alike."""
    if t1 is None or t2 is None:
        assert t1 is t2, f"one is None: {t1}, {t2}"
    elif isinstance(t1, (tuple, list)):
        for one, two in zip(t1, t2, strict=True):
            compare_ndarray_tuple(one, two, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol, atol)


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: Any = 1e-4,
    atol: Any = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Two optimizers take the same step from the same random weights and gradients.

    shape: one for all `ntensors` weights, or a list of them. States are compared before and after.
    """
    shapes = shape if isinstance(shape, list) else [shape] * ntensors
    weights = [rand_ndarray(s, w_stype, dtype=dtype) for s in shapes]
    grads = [rand_ndarray(s, g_stype, dtype=dtype) for s in shapes]
    ours, theirs = [x.copy() for x in weights], [x.copy() for x in weights]
    states1, states2 = (
        [opt.create_state_multi_precision(i, x) for i, x in enumerate(copies)]
        for opt, copies in ((opt1, ours), (opt2, theirs))
    )
    if compare_states:
        compare_ndarray_tuple(states1, states2, rtol, atol)
    _step(opt1, ours, states1, [x.copy() for x in grads])
    _step(opt2, theirs, states2, grads)
    if compare_states:
        compare_ndarray_tuple(states1, states2, rtol, atol)
    compare_ndarray_tuple(ours, theirs, rtol, atol)


def _step(opt: Any, weights: list, states: list, grads: list) -> None:
    if len(weights) == 1:
        opt.update_multi_precision(0, weights[0], grads[0], states[0])
    else:
        opt.update_multi_precision(list(range(len(weights))), weights, grads, states)
