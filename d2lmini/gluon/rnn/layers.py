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

from collections.abc import Iterator
from itertools import product
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.rnn.recurrent import KINDS, first_states
from d2lmini.gluon.utils import as_default
from d2lmini.ops.core import Value


class RecurrentLayer(Layer):
    """Base class of the three layers.

    The input is x (T, N, C), or (N, T, C) with layout 'NTC'. The output is y (T, N, D H), with D =
    2 if bidirectional, else 1. If states were given, the call also returns the list of last states,
    each (L D, N, H). In training, dropout with probability `dropout` is applied between layers.

    The parameters of layer k and direction d, 'l' or 'r', are dk_i2h_weight (G, C), dk_h2h_weight
    (G, H), dk_i2h_bias and dk_h2h_bias (G,), with G = H times 1, 4 or 3.
    """

    n_gates, n_states = 1, 1
    _mode: str

    hidden_size: int = REQUIRED
    num_layers: int = 1
    layout: str = "TNC"
    dropout: float = 0
    bidirectional: bool = False
    input_size: int = 0
    i2h_weight_initializer: Any = None
    h2h_weight_initializer: Any = None
    i2h_bias_initializer: Any = "zeros"
    h2h_bias_initializer: Any = "zeros"
    dtype: Any = "float32"

    def _build(self) -> None:
        assert self.layout in ("TNC", "NTC"), (
            f"Invalid layout {self.layout}; must be one of ['TNC' or 'NTC']"
        )
        self._dir = 2 if self.bidirectional else 1
        self._gates = self.n_gates
        rows = self._gates * self.hidden_size
        for k, direction, kind in self._names():
            name, init = f"{direction}{k}_{kind}", getattr(self, f"{kind}_initializer")
            how = {"init": init, "allow_deferred_init": True, "dtype": self.dtype}
            columns = self.hidden_size
            if kind == "i2h_weight":
                columns = self._dir * self.hidden_size if k else self.input_size
            shape = (rows,) if kind.endswith("bias") else (rows, columns)
            setattr(self, name, self.params.get(name, shape=shape, **how))

    def _alias(self) -> str:
        return self._mode.partition("_")[0]

    def _names(self) -> Iterator[tuple[int, str, str]]:
        """(layer, direction, parameter) in the order of creation."""
        return product(range(self.num_layers), "lr"[: self._dir], KINDS)

    def infer_shape(self, inputs: Any, states: Any) -> None:
        self.input_size = inputs.shape[2]
        for direction in "lr"[: self._dir]:
            weight = getattr(self, f"{direction}0_i2h_weight")
            weight.shape = (self.n_gates * self.hidden_size, self.input_size)

    def cast(self, dtype: Any) -> None:
        super().cast(dtype)
        self.dtype = dtype

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape, layout and dtype of each state."""
        shape = (self.num_layers * self._dir, batch_size, self.hidden_size)
        info = {"shape": shape, "__layout__": "LNC", "dtype": self.dtype}
        return [dict(info) for _ in range(self.n_states)]

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
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
            states = first_states(self.begin_state, inputs, self.layout.find("N"))
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
            for state, info in zip(states, self.state_info(x.shape[self.layout.find("N")])):
                if state.shape != info["shape"]:
                    raise ValueError(
                        f"Invalid recurrent state shape. Expecting {info['shape']}, got "
                        f"{state.shape}."
                    )
        if self.layout == "NTC":
            x = F.swapaxes(x, dim1=0, dim2=1)
        # The vector has all weights before all biases.
        ordered = sorted(self._names(), key=lambda names: names[2].endswith("bias"))
        parts = [params[f"{direction}{k}_{kind}"].reshape((-1,)) for k, direction, kind in ordered]
        vector = F._internal._rnn_param_concat(*parts, dim=0)
        outputs, *states = F.RNN(
            x, vector, *states,
            state_size=self.hidden_size, num_layers=self.num_layers, mode=self._mode,
            bidirectional=self._dir == 2, p=self.dropout, state_outputs=True,
        )  # fmt: skip
        if self.layout == "NTC":
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        return outputs, states

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
        words = [f"{inner or None} -> {self.hidden_size}", self.layout]
        if self.num_layers != 1:
            words.append(f"num_layers={self.num_layers}")
        if self.dropout != 0:
            words.append(f"dropout={self.dropout}")
        if self._dir == 2:
            words.append("bidirectional")
        return f"{type(self).__name__}({', '.join(words)})"


class RNN(RecurrentLayer):
    """h' = activation(W x + b + U h + d) over sequences; activation is 'relu' or 'tanh'.

    Shapes and parameters: see `RecurrentLayer`. Raises KeyError for another activation.
    """

    _places = {
        "hidden_size": -3, "num_layers": -3, "activation": -2, "layout": -1, "dropout": -1,
        "bidirectional": -1, "input_size": 1, "dtype": 1,
    }  # fmt: skip

    activation: str = "relu"

    @property
    def _mode(self) -> str:  # type: ignore[override]
        return f"rnn_{self.activation}"

    def _build(self) -> None:
        if self.activation not in ("relu", "tanh"):
            raise KeyError(f"{self._mode}: activation must be 'relu' or 'tanh'")
        super()._build()


class LSTM(RecurrentLayer):
    """Long short-term memory over sequences; two states, h and the cell state.

    Shapes and parameters: see `RecurrentLayer`; formulas: see `ops/rnn_compute.py`. MXNet's
    projection_size and bounds of the cell state (state_clip_min) are left out.
    """

    n_gates, n_states, _mode = 4, 2, "lstm"


class GRU(RecurrentLayer):
    """Gated recurrent units over sequences.

    Shapes and parameters: see `RecurrentLayer`; formulas: see `ops/rnn_compute.py`.
    """

    n_gates, _mode = 3, "gru"
