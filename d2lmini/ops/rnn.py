"""`RNN`: whole recurrent networks as one op, several layers, in one or both directions.

>>> from d2lmini import nd
>>> x = nd.ones((3, 2, 4))                                # T=3 steps of N=2 sequences
>>> w = nd.ones(parameter_size("rnn_tanh", 4, 5)) / 10
>>> y, h = nd.RNN(x, w, nd.zeros((1, 2, 5)), state_size=5, num_layers=1, mode="rnn_tanh",
...               state_outputs=True)
>>> y.shape, h.shape
((3, 2, 5), (1, 2, 5))

Only the product with the state depends on the previous step. So a layer begins with the products of
all inputs at once, (T N, I) with (I, gates), and then goes through the steps, each one product
(N, H) with (H, gates) and a few passes over the gates (`rnn_gates.py`), all in place. Backward
likewise computes the derivatives of all gates at once, then goes through the steps in reverse, and
then computes the gradients of the weights, each one product over all steps.

The parameters are one vector, in the order of MXNet and cuDNN: for each layer and direction i2h
weight, h2h weight; then, in the same order, i2h bias, h2h bias. A hidden output, the `reserve`,
holds what backward needs of forward: the gates of all steps, the cell states (LSTM) or the state's
part of n (GRU), and the outputs of inner layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.core import ALL, Shape, Spec, op
from d2lmini.ops.distributions import standard_uniform
from d2lmini.ops.join import concat
from d2lmini.ops.partial import Conflict
from d2lmini.ops.rnn_compute import KINDS, Clip, Layer, Weights, empty_outputs, layer_of, views_of


class Sizes(NamedTuple):
    """The sizes that determine all shapes: T steps, N sequences, I inputs, H units, L layers."""

    mode: str
    T: int
    N: int
    I: int
    H: int
    L: int
    directions: int

    @property
    def state(self) -> Shape:
        return (self.L * self.directions, self.N, self.H)

    @property
    def output(self) -> Shape:
        return (self.T, self.N, self.directions * self.H)

    def parameter_shapes(self) -> tuple[list[Shape], list[Shape]]:
        """Shapes of the weights and of the biases, in the order of the vector."""
        G = KINDS[self.mode].n_gates * self.H
        weights: list[Shape] = []
        for k in range(self.L * self.directions):
            inner = self.I if k < self.directions else self.directions * self.H
            weights += [(G, inner), (G, self.H)]
        return weights, [(G,)] * len(weights)

    def reserve_shapes(self) -> list[Shape]:
        """Shapes of the kept arrays of each layer and direction, then of inner layers' outputs."""
        specs = [(self.T, self.N, k * self.H) for k in KINDS[self.mode].keeps]
        return specs * (self.L * self.directions) + [self.output] * (self.L - 1)

    def weights(self, parameters: Any) -> Iterator[Weights]:
        """The parameters of each layer and direction, views into the vector."""
        weights, biases = self.parameter_shapes()
        views = views_of(parameters, weights + biases)
        n = len(weights)
        for k in range(0, n, 2):
            yield Weights(views[k], views[k + 1], views[n + k], views[n + k + 1])

    def reserve_parts(self, reserve: Any) -> tuple[list[list[Any]], list[Any]]:
        """The contents of the reserve: kept arrays per layer and direction, inner outputs."""
        views = views_of(reserve, self.reserve_shapes())
        n, layers = len(KINDS[self.mode].keeps), self.L * self.directions
        return [views[n * k : n * k + n] for k in range(layers)], views[n * layers :]


def parameter_size(
    mode: str, input_size: int, state_size: int, num_layers: int = 1, bidirectional: bool = False
) -> int:
    """Length of the vector `parameters`.

    >>> parameter_size("lstm", 3, 5) == 4 * 5 * (3 + 5 + 2)
    True
    """
    sizes = Sizes(mode, 1, 1, input_size, state_size, num_layers, 1 + bidirectional)
    return sum(prod(shape) for group in sizes.parameter_shapes() for shape in group)


def _sizes(data: Shape, mode: str, state_size: int, num_layers: int, bidirectional: bool) -> Sizes:
    T, N, I = data
    return Sizes(mode, T, N, I, state_size, num_layers, 1 + bidirectional)


@op("_rnn_param_concat", infer=concat.infer, flops=0, in_mxnet=True, counted=True)
def rnn_param_concat(xp, *data, dim: int = 1, out=None):
    """`concat`, under the name by which MXNet's graphs join the parameters of `RNN`."""
    return concat.compute(xp, *data, dim=dim, out=out)


rnn_param_concat.gradient(saves="data.shape")(concat.rule)


def _infer(
    data: Spec, parameters: Spec, state: Spec, state_cell: Spec | None = None,
    sequence_length: Spec | None = None, *, state_size: int, num_layers: int, bidirectional: bool,
    mode: str, p: float, projection_size: int | None, use_sequence_length: bool, **_: Any,
) -> list[Spec]:  # fmt: skip
    check_choice("mode", mode, tuple(KINDS))
    if projection_size:
        raise MXNetError("projection_size is not supported; put a Dense layer behind the LSTM")
    if use_sequence_length or sequence_length is not None:
        raise MXNetError(
            "sequence_length is not supported (MXNet ignores it on the CPU); unroll a cell with "
            "valid_length=, or put SequenceMask behind a network of one direction"
        )
    check_float(data, parameters, state, state_cell)
    check_optional("state_cell", state_cell, mode == "lstm", f"mode={mode!r}")
    if len(data.shape) != 3:
        raise MXNetError(f"data is {data.shape}, need (T, N, C): steps, sequences, inputs")
    if state_size < 1 or num_layers < 1:
        raise MXNetError(f"state_size={state_size}, num_layers={num_layers}: need at least 1")
    if not 0 <= p <= 1:
        raise MXNetError(f"p={p} is not a probability, need a number from 0 to 1")
    sizes = _sizes(data.shape, mode, state_size, num_layers, bidirectional)
    check_shape("state", state, sizes.state, why="layers times directions, batch, state_size")
    check_shape("state_cell", state_cell, sizes.state, why="as state")
    size = parameter_size(mode, sizes.I, state_size, num_layers, bidirectional)
    check_shape(
        "parameters", parameters, (size,),
        why=f"the weights and biases of {mode} with state_size={state_size}, "
        f"num_layers={num_layers}, bidirectional={bidirectional} on {sizes.I} inputs",
    )  # fmt: skip
    states = [state] if state_cell is None else [state, state_cell]
    reserve = sum(map(prod, sizes.reserve_shapes()))
    return [Spec(sizes.output, data.dtype), *states, Spec((reserve,), data.dtype)]


def _flops(data: Spec, parameters: Spec, *_: Spec, out: Spec, **_attrs: Any) -> float:
    return 2.0 * parameters.size * out.shape[0] * out.shape[1] + 40 * out.size


def _output_names(mode: str = "", state_outputs: bool = False, **_: Any) -> int:
    return 1 + state_outputs * (2 if mode == "lstm" else 1)


def _optional(attrs: dict[str, Any]) -> tuple[str, ...]:
    cell = ("state_cell",) if attrs["mode"] == "lstm" else ()
    return (*cell, "sequence_length") if attrs["use_sequence_length"] else cell


@op(
    infer=_infer, flops=_flops, outputs=_output_names, optional=_optional,
    output_names=("output", "state_output", "statecell_output"), free_dtypes=("sequence_length",),
    presumed_dtypes={"sequence_length": None}, copied_dtypes="eE",
    draws=lambda p, num_layers, training, **_: p > 0 and num_layers > 1 and training,
)  # fmt: skip
def RNN(
    xp, data, parameters, state, state_cell=None, sequence_length=None, *, state_size: int,
    num_layers: int, bidirectional: bool = False, mode: str, p: float = 0.0,
    state_outputs: bool = False, projection_size: int | None = None,
    lstm_state_clip_min: float | None = None, lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False, use_sequence_length: bool = False, rng, training, out=None,
):  # fmt: skip
    """A recurrent network over (T, N, C) -> (T, N, directions * state_size).

    mode: 'rnn_relu', 'rnn_tanh', 'lstm', 'gru' (formulas in `rnn_gates.py`). parameters: all
    weights and biases, a vector (for the order see the module's docstring). state, and state_cell
    for the LSTM: (num_layers * directions, N, state_size), forward before backward in each layer;
    state_outputs also returns the last states. In training a fraction p of the inputs of each layer
    but the first is dropped. lstm_state_clip_min and _max bound the cell state of every step;
    lstm_state_clip_nan replaces nan by the upper bound.

    One dtype; 16 bits are computed in float32. MXNetError at the call for shapes, dtypes, and the
    unsupported projection_size and sequence_length. Not twice differentiable, as in MXNet. (On the
    CPU MXNet 1.9 ignores p, sequence_length and the bounds.)

    Cost: 2 T N FLOPs for each number in parameters. After cuDNN's and MXNet's RNN.
    """
    sizes = _sizes(data.shape, mode, state_size, num_layers, bidirectional)
    if out is None:
        out = empty_outputs(
            xp, _infer, (data, parameters, state, state_cell), state_size=state_size,
            num_layers=num_layers, bidirectional=bidirectional, mode=mode, p=p,
            projection_size=None, use_sequence_length=False,
        )  # fmt: skip
    y, reserve, states = out[0], out[-1], out[1:-1]
    kept, inner = sizes.reserve_parts(reserve)
    layer = _layer(xp, mode, lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan)
    given = (state,) if state_cell is None else (state, state_cell)
    x = data
    for k, weights in enumerate(sizes.weights(parameters)):
        i, direction = divmod(k, sizes.directions)
        if direction == 0:
            if i > 0:
                x = _drop(xp, inner[i - 1], _mask(xp, rng, i, p * training, sizes, data.dtype))
            target = y if i == num_layers - 1 else inner[i]
        part = target[:, :, direction * sizes.H : (direction + 1) * sizes.H]
        last = layer.forward(
            x, weights, [s[k] for s in given], part, kept[k], backwards=direction == 1
        )
        for place, value in zip(states, last, strict=True):
            place[k] = value
    return out


def _layer(xp: Any, mode: str, low: float | None, high: float | None, nan: bool = False) -> Layer:
    bounded = low is not None and high is not None
    return layer_of(xp, mode, Clip(xp, low, high, nan) if bounded else None)  # type: ignore[arg-type]


def _mask(xp: Any, key: Any, layer: int, p: float, sizes: Sizes, dtype: Any) -> Any:
    """The dropout mask of a layer's inputs: 0 with probability p, else 1 / (1 - p); None without
    dropout."""
    if not p:
        return None
    drawn = standard_uniform(xp, key, layer, sizes.output)
    return (drawn >= p) * dtype.type(0 if p == 1 else 1 / (1 - p))


def _drop(xp: Any, x: Any, mask: Any) -> Any:
    return x if mask is None else x * mask


@RNN.gradient(saves="y data parameters state state_cell")
def _(
    g, y, data, parameters, state, state_cell, *, state_size, num_layers, bidirectional, mode, p,
    lstm_state_clip_min, lstm_state_clip_max, rng, training, needs=ALL,
):  # fmt: skip
    g_state, g_cell = g[1], g[2] if state_cell is not None else None
    grads = rnn_backward(
        g[0], y[0], y[-1], data, parameters, state, state_cell, g_state, g_cell,
        state_size=state_size, num_layers=num_layers, bidirectional=bidirectional, mode=mode,
        p=p if training else 0.0, key=rng, low=lstm_state_clip_min, high=lstm_state_clip_max,
        wants_data=needs[0],
    )  # fmt: skip
    dparameters, dstate, *more = grads
    dcell = more.pop(0) if state_cell is not None else None
    return more[0] if more else None, dparameters, dstate, dcell


@RNN.infer_inputs
def _(given, out, attrs):
    data, hidden, layers = given["data"], attrs["state_size"], attrs["num_layers"]
    if not data:
        return {}
    if len(data) != 3:
        raise Conflict(f"data is {data}, need (T, N, C)")
    N, C = data[1:]
    ways = 2 if attrs["bidirectional"] else 1
    state = (ways * layers, N, hidden)
    found = {"state": state, "state_cell": state, "sequence_length": (N,)}
    if C:
        size = parameter_size(attrs["mode"], C, hidden, layers, attrs["bidirectional"])
        found["parameters"] = (size,)
    return found


def _infer_backward(
    g: Spec, y: Spec, reserve: Spec, data: Spec, parameters: Spec, state: Spec, *_: Spec,
    mode: str, wants_data: bool, **_attrs: Any,
) -> list[Spec]:  # fmt: skip
    return [parameters, state, *([state] * (mode == "lstm")), *([data] * wants_data)]


def _flops_backward(g, y, reserve, data, parameters, *_, out, **_attrs) -> float:
    return 4.0 * parameters.size * y.shape[0] * y.shape[1] + 20 * y.size


@op(
    "_rnn_backward", infer=_infer_backward, flops=_flops_backward,
    outputs=lambda mode, wants_data, **_: 2 + (mode == "lstm") + wants_data,
    copied_dtypes="eE",
)  # fmt: skip
def rnn_backward(
    xp, g, y, reserve, data, parameters, state, state_cell=None, g_state=None, g_cell=None, *,
    state_size: int, num_layers: int, bidirectional: bool, mode: str, p: float, key,
    low: float | None, high: float | None, wants_data: bool, out=None,
):  # fmt: skip
    """Gradients of `RNN` for parameters, state, state_cell (LSTM) and, if needed, data; g_state and
    g_cell are the gradients of the last states, or absent."""
    sizes = _sizes(data.shape, mode, state_size, num_layers, bidirectional)
    given = (state,) if state_cell is None else (state, state_cell)
    if out is None:
        like = (parameters, *given, *((data,) if wants_data else ()))
        out = tuple(xp.empty(a.shape, a.dtype) for a in like)
    dstates = out[1 : 1 + len(given)]
    kept, inner = sizes.reserve_parts(reserve)
    weights = list(sizes.weights(parameters))
    grads = list(sizes.weights(out[0]))
    layer = _layer(xp, mode, low, high)
    for i in reversed(range(num_layers)):
        result = inner[i - 1] if i else data
        mask = _mask(xp, key, i, p, sizes, data.dtype) if i else None
        x = _drop(xp, result, mask)
        if i:
            dx = xp.empty(x.shape, x.dtype)
        else:
            dx = out[-1] if wants_data else None
        mine = y if i == num_layers - 1 else inner[i]
        for direction in range(sizes.directions):
            k = i * sizes.directions + direction
            part = slice(direction * sizes.H, (direction + 1) * sizes.H)
            heads = [
                xp.zeros_like(s[k]) if a is None else a[k].copy()
                for a, s in zip((g_state, g_cell), given, strict=False)
            ]
            outputs, first = mine[:, :, part], [s[k] for s in given]
            D = [xp.empty((sizes.T, sizes.N, n * sizes.H), y.dtype) for n in layer.slopes]
            backwards = direction == 1
            layer.backward(D, weights[k], first, outputs, kept[k], g[:, :, part], heads, backwards)
            layer.into_weights(D, x, outputs, first[0], grads[k], backwards)
            if dx is not None:
                layer.into_inputs(D, weights[k], dx, add=backwards)
            for place, value in zip(dstates, heads, strict=True):
                place[k] = value
        g = dx if mask is None else dx * mask
    return out


@rnn_backward.gradient()
def _(g):
    raise MXNetError("RNN is not differentiable twice (nor is MXNet's); unroll a cell instead")
