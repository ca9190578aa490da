"""The three cells: RNN, LSTM, GRU.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
>>> cell = rnn.GRUCell(4, prefix="gru_")
>>> cell
GRUCell(None -> 12)
>>> cell.initialize()
>>> y, (h,) = cell(nd.ones((2, 3)), cell.begin_state(batch_size=2))
>>> list(cell.collect_params())
['gru_i2h_weight', 'gru_h2h_weight', 'gru_i2h_bias', 'gru_h2h_bias']

A step consists of two products, of the input and of the state, and the arithmetic of the gates
(formulas in `ops/rnn_compute.py`). For arrays a step is one op, and a whole `unroll` is one op too,
compiled or not. For Symbols outside of traces a step is MXNet's ten ops with MXNet's names, so that
MXNet can read exported files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from d2lmini import ndarray as nd
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.parameter import DeferredInitializationError, Parameter
from d2lmini.gluon.rnn.recurrent import KINDS, HybridRecurrentCell, Run, as_shaped
from d2lmini.ops.core import Value, registry
from d2lmini.ops.rnn import rnn_layer
from d2lmini.ops.sequence import SequenceLast, SequenceMask


def activate(F: Any, x: Any, activation: Any, **kwargs: Any) -> Any:
    """activation(x), for a name accepted by `F.Activation`, or any function or layer."""
    if isinstance(activation, str):
        if activation in ("tanh", "relu", "sigmoid", "softsign"):
            return getattr(F, activation)(x, **kwargs)
        return F.Activation(x, act_type=activation, **kwargs)
    return activation(x)


class GatedCell(Layer, HybridRecurrentCell):
    """Base class of the three cells: parameters, products, states of shape (N, hidden_size).

    i2h_weight (G, input_size) and h2h_weight (G, hidden_size), i2h_bias and h2h_bias (G,), where G
    = n_gates * hidden_size. input_size 0: inferred from the first input.
    """

    n_gates = 1
    n_states = 1
    _kind: ClassVar[str]
    i2h_weight: Parameter
    _passes_on = "prefix", "params"

    hidden_size: int = REQUIRED
    i2h_weight_initializer: Any = None
    h2h_weight_initializer: Any = None
    i2h_bias_initializer: Any = "zeros"
    h2h_bias_initializer: Any = "zeros"
    input_size: int = 0

    def _build(self) -> None:
        rows = self.n_gates * self.hidden_size
        inners = (self.input_size,), (self.hidden_size,), (), ()
        for name, inner in zip(KINDS, inners):
            how = {"init": getattr(self, f"{name}_initializer"), "allow_deferred_init": True}
            setattr(self, name, self.params.get(name, shape=(rows, *inner), **how))

    def _alias(self) -> str:
        return self._kind

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        shape = (batch_size, self.hidden_size)
        return [{"shape": shape, "__layout__": "NC"} for _ in range(self.n_states)]

    @property
    def _mode(self) -> str | None:
        """The cell's mode in the op `_rnn_layer`; None if the op lacks the activations."""
        return self._kind

    #: The next states from the products, with plain ops of F: (F, i2h, h2h, states) -> states.
    _gates: Callable[..., list[Any]]

    def hybrid_forward(self, F: Any, x: Any, states: Any, **params: Any) -> Any:
        view = x if F is nd else as_shaped(x)
        if self._mode is not None and view is not None and len(view.shape) == 2:
            return self._at_once(x, states, params)
        i2h, h2h = self._product(F, x, "i2h", params), self._product(F, states[0], "h2h", params)
        states = self._gates(F, i2h, h2h, states)
        return states[0], states

    def _at_once(self, x: Any, states: Any, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Compute one step (N, C), or all steps of (T, N, C), as one op. Returns the outputs and
        the states after the last step; the first state is the output itself."""
        weights = [params[name] for name in KINDS]
        result = rnn_layer(x, *weights, *states, mode=self._mode)
        y, *others = result if self.n_states > 1 else (result,)
        return y, [y, *others]

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        length, layout, valid_length = run.length, run.layout, run.valid_length
        # Of the cell states (LSTM) the op returns only the last, not the last valid one per
        # sequence.
        cut_short = valid_length is not None and self.n_states > 1
        if cut_short or not self._can_be_one_op(run.inputs):
            return super()._unroll(run)
        self._counter = length - 1
        states, x = self._states_for(run), run.as_array(run.inputs)
        if layout == "NTC":
            x = x.swapaxes(0, 1)
        y, (_, *others) = self._at_once(x, states, self._values(x, states))
        merge = run.merge
        if valid_length is not None:
            used = {"use_sequence_length": True, "axis": 0}
            last = SequenceLast(y, valid_length, **used)
            y = SequenceMask(y, valid_length, **used)
            merge = merge is not False
        elif merge:
            last = y.slice_axis(axis=0, begin=length - 1, end=length)
            last = registry["reshape"](last, shape=(-3, -2))
        if merge:
            return y if layout == "TNC" else y.swapaxes(0, 1), [last, *others]
        outputs = run._replace(layout="TNC").as_steps(y)
        return outputs, [outputs[-1] if valid_length is None else last, *others]

    def _can_be_one_op(self, inputs: Any) -> bool:
        """True if one op for all steps is possible and no hook observes the single steps."""
        whole = isinstance(inputs, Value)
        first = as_shaped(inputs if whole else inputs[0])
        return (
            type(self) in (RNNCell, LSTMCell, GRUCell)
            and self._mode is not None
            and first is not None
            and first.ndim == (3 if whole else 2)
            and not (self._forward_hooks or self._forward_pre_hooks)
        )

    def _values(self, x: Any, states: list[Any]) -> dict[str, Any]:
        """The parameters in the context of x; the first call completes deferred ones."""
        ctx = x.ctx if isinstance(x, nd.NDArray) else None
        try:
            return {name: p.data(ctx) for name, p in self._reg_params.items()}
        except DeferredInitializationError:
            self._finish_deferred(as_shaped(x)[0], [as_shaped(state) for state in states])
            return {name: p.data(ctx) for name, p in self._reg_params.items()}

    def _step(self) -> str:
        """The beginning of the names of this step's values."""
        return f"t{self._counter}_"

    def _product(self, F: Any, x: Any, kind: str, params: dict[str, Any]) -> Any:
        """The product of x with the weight of this kind, 'i2h' or 'h2h', plus its bias."""
        how = {"num_hidden": self.n_gates * self.hidden_size, "name": self._step() + kind}
        return F.FullyConnected(x, params[f"{kind}_weight"], params[f"{kind}_bias"], **how)

    def __repr__(self) -> str:
        rows, inner = self.i2h_weight.shape or (0, 0)
        return f"{type(self).__name__}({inner or None} -> {rows})"


class RNNCell(GatedCell):
    """h' = activation(W x + b + U h + d); the output is h' (J. Elman, 1990).

    activation: 'tanh', 'relu' or another name accepted by `nd.Activation`, a function or a layer.
    """

    _kind = "rnn"
    _places = {"hidden_size": -2, "activation": -1}

    activation: Any = "tanh"

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.activation})"

    @property
    def _mode(self) -> str | None:
        plain = self.activation in ("tanh", "relu")
        return f"rnn_{self.activation}" if plain else None

    def _gates(self, F: Any, i2h: Any, h2h: Any, states: Any) -> list[Any]:
        name = self._step()
        both = F.elemwise_add(i2h, h2h, name=name + "plus0")
        return [activate(F, both, self.activation, name=name + "out")]


class LSTMCell(GatedCell):
    """Long short-term memory (S. Hochreiter and J. Schmidhuber, 1997), with a forget gate.

    Two states, h and the cell state c; the gates are i f g o, in this order. activation replaces
    tanh, recurrent_activation replaces the sigmoid.
    """

    _kind, n_gates, n_states = "lstm", 4, 2

    _places = {"activation": 1, "recurrent_activation": 1}

    activation: Any = "tanh"
    recurrent_activation: Any = "sigmoid"

    @property
    def _mode(self) -> str | None:
        plain = self.activation == "tanh" and self.recurrent_activation == "sigmoid"
        return "lstm" if plain else None

    def _gates(self, F: Any, i2h: Any, h2h: Any, states: Any) -> list[Any]:
        name, act, gate = self._step(), self.activation, self.recurrent_activation
        both = F.elemwise_add(i2h, h2h, name=name + "plus0")
        a = F.SliceChannel(both, num_outputs=4, name=name + "slice")
        i = activate(F, a[0], gate, name=name + "i")
        f = activate(F, a[1], gate, name=name + "f")
        g = activate(F, a[2], act, name=name + "c")
        o = activate(F, a[3], gate, name=name + "o")
        kept = F.elemwise_mul(f, states[1], name=name + "mul0")
        added = F.elemwise_mul(i, g, name=name + "mul1")
        c = F.elemwise_add(kept, added, name=name + "state")
        tanh_c = activate(F, c, act, name=name + "activation0")
        return [F.elemwise_mul(o, tanh_c, name=name + "out"), c]


class GRUCell(GatedCell):
    """Gated recurrent unit (K. Cho et al., 2014), in cuDNN's form, with gates r z n in this order.

    The reset gate is applied after the product with the state: n = tanh(a_n + r (U_n h + d_n)).
    """

    _kind, n_gates = "gru", 3

    def _gates(self, F: Any, i2h: Any, h2h: Any, states: Any) -> list[Any]:
        name = self._step()
        a = F.SliceChannel(i2h, num_outputs=3, name=name + "i2h_slice")
        c = F.SliceChannel(h2h, num_outputs=3, name=name + "h2h_slice")

        def gate(k: int, x: Any, y: Any, act_type: str, what: str) -> Any:
            both = F.elemwise_add(x, y, name=f"{name}plus{k}")
            return F.Activation(both, act_type=act_type, name=name + what)

        r = gate(0, a[0], c[0], "sigmoid", "r_act")
        z = gate(1, a[1], c[1], "sigmoid", "z_act")
        n = gate(2, a[2], F.elemwise_mul(r, c[2], name=name + "mul0"), "tanh", "h_act")
        ones = F.ones_like(z, name=name + "ones_like0")
        rest = F.elemwise_sub(ones, z, name=name + "minus0")
        new = F.elemwise_mul(rest, n, name=name + "mul1")
        old = F.elemwise_mul(z, states[0], name=name + "mul20")
        return [F.elemwise_add(new, old, name=name + "out")]
