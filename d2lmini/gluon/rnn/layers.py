"""Recurrent layers for whole sequences: RNN, LSTM, GRU, each one call of the op `RNN`.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
>>> layer = rnn.LSTM(4, num_layers=2, bidirectional=True)
>>> layer.initialize()
>>> x = nd.ones((5, 3, 6))                                   # T=5, N=3, C=6
>>> layer(x).shape
(5, 3, 8)
>>> y, (h, c) = layer(x, layer.begin_state(batch_size=3))
>>> y.shape, h.shape, c.shape
((5, 3, 8), (4, 3, 4), (4, 3, 4))
>>> layer
LSTM(6 -> 4, TNC, num_layers=2, bidirectional)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.base.families import with_parameters_of
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.rnn.cells import GRUCell, LSTMCell, RNNCell
from d2lmini.gluon.rnn.containers import BidirectionalCell, HybridSequentialRNNCell
from d2lmini.gluon.rnn.recurrent import first_states
from d2lmini.gluon.rnn.wrappers import DropoutCell
from d2lmini.gluon.utils import as_default
from d2lmini.ops.core import Value

#: Parameters of MXNet's layers that mean something else than their defaults only there.
_LEFT_OUT = {"projection_size": 0, "use_sequence_length": False, "state_clip_min": None}


class RecurrentLayer(HybridBlock):
    """Base class of the three layers.

    The input is x (T, N, C), or (N, T, C) with layout 'NTC'. The output is y (T, N, D H), with D =
    2 if bidirectional, else 1. If states were given, the call also returns the list of last states,
    each (L D, N, H). In training, dropout with probability `dropout` is applied between layers.

    The parameters of layer k and direction d, 'l' or 'r', are dk_i2h_weight (G, C), dk_h2h_weight
    (G, H), dk_i2h_bias and dk_h2h_bias (G,), with G = H times 1, 4 or 3.
    """

    n_gates = 1
    n_states = 1
    _mode: str

    def __init__(
        self, hidden_size: int, num_layers: int = 1, layout: str = "TNC", dropout: float = 0,
        bidirectional: bool = False, input_size: int = 0, i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros", dtype: Any = "float32", **kwargs: Any,
    ):  # fmt: skip
        left_out = [
            kwargs.pop(name, default) not in (default, None) for name, default in _LEFT_OUT.items()
        ]
        super().__init__(**kwargs)
        assert layout in ("TNC", "NTC"), f"Invalid layout {layout}; must be one of ['TNC' or 'NTC']"
        if any(left_out):
            raise NotImplementedError(
                f"{type(self).__name__}: {', '.join(_LEFT_OUT)} are not supported; see nd.RNN for "
                "what to do instead"
            )
        self._hidden_size = hidden_size
        self._num_layers = num_layers
        self._layout = layout
        self._dropout = dropout
        self._dir = 2 if bidirectional else 1
        self._input_size = input_size
        self._dtype = dtype
        self._initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        self._gates = self.n_gates
        how: dict[str, Any] = {"allow_deferred_init": True, "dtype": dtype}
        for k, direction, kind in self._names():
            name, init = f"{direction}{k}_{kind}", self._initializers[kind]
            shape = (self._gates * hidden_size, *self._inner(k, kind))
            setattr(self, name, self.params.get(name, shape=shape, init=init, **how))

    def _names(self) -> Iterator[tuple[int, str, str]]:
        """(layer, direction, parameter) in the order of creation."""
        return product(range(self._num_layers), "lr"[: self._dir], self._initializers)

    def _inner(self, k: int, name: str) -> tuple[int, ...]:
        """The second axis of a weight of layer k; () for a bias."""
        if name == "i2h_weight":
            return (self._input_size if k == 0 else self._dir * self._hidden_size,)
        return (self._hidden_size,) if name == "h2h_weight" else ()

    def infer_shape(self, inputs: Any, states: Any) -> None:
        self._input_size = inputs.shape[2]
        for direction in "lr"[: self._dir]:
            weight = getattr(self, f"{direction}0_i2h_weight")
            weight.shape = (self._gates * self._hidden_size, self._input_size)

    def cast(self, dtype: Any) -> None:
        super().cast(dtype)
        self._dtype = dtype

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape, layout and dtype of each state."""
        shape = (self._num_layers * self._dir, batch_size, self._hidden_size)
        info = {"shape": shape, "__layout__": "LNC", "dtype": self._dtype}
        return [dict(info) for _ in range(self.n_states)]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = nd.zeros, **kwargs: Any
    ) -> list[Any]:
        """The states before the first step: func(name=..., shape=..., dtype=..., **kwargs) for each
        state, by default zeros."""
        return [
            as_default(func(name=f"{self.prefix}h0_{i}", **{**info, **kwargs}))
            for i, info in enumerate(self.state_info(batch_size))
        ]

    def __call__(self, inputs: Any, states: Any = None) -> Any:
        """y, or (y, last states) if `states` is given: a list, or a single state.

        Raises ValueError for states with wrong shapes, MXNetError for wrong inputs."""
        given = states is not None
        if not given:
            states = first_states(self.begin_state, inputs, self._layout.find("N"))
        elif isinstance(states, Value):
            states = [states]
        self._run_hooks(self._forward_pre_hooks, (inputs, states))
        outputs, last = self.forward(inputs, states)
        out = (outputs, last) if given else outputs
        self._run_hooks(self._forward_hooks, (inputs, states), out)
        return out

    def hybrid_forward(self, F: Any, x: Any, states: list[Any], **params: Any) -> Any:
        """y and the last states; ValueError for states whose shapes differ from `state_info`."""
        if isinstance(x, nd.NDArray) and x.ndim == 3:
            for state, info in zip(states, self.state_info(x.shape[self._layout.find("N")])):
                if state.shape != info["shape"]:
                    raise ValueError(
                        f"Invalid recurrent state shape. Expecting {info['shape']}, got "
                        f"{state.shape}."
                    )
        if self._layout == "NTC":
            x = F.swapaxes(x, dim1=0, dim2=1)
        # The vector has all weights before all biases.
        ordered = sorted(self._names(), key=lambda names: names[2].endswith("bias"))
        parts = [params[f"{direction}{k}_{kind}"].reshape((-1,)) for k, direction, kind in ordered]
        vector = F._internal._rnn_param_concat(*parts, dim=0)
        outputs, *states = F.RNN(
            x, vector, *states,
            state_size=self._hidden_size, num_layers=self._num_layers, mode=self._mode,
            bidirectional=self._dir == 2, p=self._dropout, state_outputs=True,
        )  # fmt: skip
        if self._layout == "NTC":
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        return outputs, states

    def _cell(self, **kwargs: Any) -> Any:
        """Make one of the cells of `_unfuse`."""
        raise NotImplementedError

    def _unfuse(self) -> HybridSequentialRNNCell:
        """The same network as a stack of cells with the same parameters, for single steps or
        `unroll`."""
        stack = HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        with stack.name_scope():
            for k in range(self._num_layers):
                cells = [
                    self._cell(
                        input_size=self._inner(k, "i2h_weight")[0],
                        prefix=f"{direction}{k}_",
                        **{f"{name}_initializer": i for name, i in self._initializers.items()},
                    )
                    for direction in "lr"[: self._dir]
                ]
                stack.add(BidirectionalCell(*cells) if self._dir == 2 else cells[0])
                if self._dropout > 0 and k < self._num_layers - 1:
                    stack.add(DropoutCell(self._dropout))
        return stack

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Any]:
        """The names in saved files: those of the cells, as MXNet writes them."""
        prefix = prefix + "." if prefix else ""
        cell = {"l": "l_cell.", "r": "r_cell."} if self._dir == 2 else {"l": ""}
        return {
            f"{prefix}_unfused.{k}.{cell[direction]}{name}": getattr(self, f"{direction}{k}_{name}")
            for k, direction, name in self._names()
        }

    def __repr__(self) -> str:
        inner = (self._reg_params["l0_i2h_weight"].shape or (0, 0))[1]
        words = [f"{inner or None} -> {self._hidden_size}", self._layout]
        if self._num_layers != 1:
            words.append(f"num_layers={self._num_layers}")
        if self._dropout != 0:
            words.append(f"dropout={self._dropout}")
        if self._dir == 2:
            words.append("bidirectional")
        return f"{type(self).__name__}({', '.join(words)})"


class RNN(RecurrentLayer):
    """h' = activation(W x + b + U h + d) over sequences; activation is 'relu' or 'tanh'.

    Shapes and parameters: see `RecurrentLayer`. Raises KeyError for another activation.
    """

    @with_parameters_of(RecurrentLayer.__init__)
    def __init__(
        self, hidden_size: int, num_layers: int = 1, activation: str = "relu", *,
        input_size: int = 0, dtype: Any = "float32", **kwargs: Any,
    ) -> None:  # fmt: skip
        if activation not in ("relu", "tanh"):
            raise KeyError(f"rnn_{activation}: activation must be 'relu' or 'tanh'")
        self._mode = f"rnn_{activation}"
        super().__init__(hidden_size, num_layers, input_size=input_size, dtype=dtype, **kwargs)

    def _alias(self) -> str:
        return "rnn"

    def _cell(self, **kwargs: Any) -> RNNCell:
        return RNNCell(self._hidden_size, self._mode[4:], **kwargs)


class LSTM(RecurrentLayer):
    """Long short-term memory over sequences; two states, h and the cell state.

    Shapes and parameters: see `RecurrentLayer`; formulas: see `ops/rnn_gates.py`. MXNet's
    projection_size and bounds of the cell state (state_clip_min and the others) are refused.
    """

    n_gates = 4
    n_states = 2
    _mode = "lstm"

    @with_parameters_of(RecurrentLayer.__init__)
    def __init__(
        self, *, projection_size: int | None = None, h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None, state_clip_max: float | None = None,
        state_clip_nan: bool = False, dtype: Any = "float32", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            projection_size=projection_size, state_clip_min=state_clip_min, dtype=dtype, **kwargs,
        )  # fmt: skip

    def _alias(self) -> str:
        return "lstm"

    def _cell(self, **kwargs: Any) -> LSTMCell:
        return LSTMCell(self._hidden_size, **kwargs)


class GRU(RecurrentLayer):
    """Gated recurrent units over sequences.

    Shapes and parameters: see `RecurrentLayer`; formulas: see `ops/rnn_gates.py`.
    """

    n_gates = 3
    _mode = "gru"

    def _alias(self) -> str:
        return "gru"

    def _cell(self, **kwargs: Any) -> GRUCell:
        return GRUCell(self._hidden_size, **kwargs)
