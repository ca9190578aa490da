"""Containers of cells: a stack of cells, and a pair for both directions of time.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
>>> net = rnn.HybridSequentialRNNCell()
>>> net.add(rnn.BidirectionalCell(rnn.GRUCell(4), rnn.GRUCell(4)))
>>> net.add(rnn.LSTMCell(3))
>>> net.initialize()
>>> outputs, states = net.unroll(5, nd.ones((2, 5, 6)), merge_outputs=True)
>>> outputs.shape, [s.shape for s in states]
((2, 5, 3), [(2, 4), (2, 4), (2, 3), (2, 3)])

Modifiers of another cell, or just of the input: Dropout, Zoneout, Residual.

>>> cell = rnn.ResidualCell(rnn.RNNCell(3, prefix="rnn_"))
>>> cell
ResidualCell(RNNCell(None -> 3, tanh))
>>> cell.initialize()
>>> outputs, _ = cell.unroll(2, nd.zeros((1, 2, 3)), merge_outputs=True)
>>> outputs.shape
(1, 2, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from numbers import Number
from typing import Any

from d2lmini import ndarray as nd
from d2lmini import symbol
from d2lmini.base.families import REQUIRED
from d2lmini.base.scopes import swapping
from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.nn.basic import Row
from d2lmini.gluon.rnn.recurrent import HybridRecurrentCell, RecurrentCell, Run, as_shaped
from d2lmini.ops.core import Value, registry


class _Composite:
    """A cell made of cells; its states are the cells' states, in the order of the cells."""

    _cells: Callable[[], list[Any]]

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shapes and layouts of the states of all cells, in order."""
        return [info for cell in self._cells() for info in cell.state_info(batch_size)]

    def _with_states(self, states: list[Any]) -> list[tuple[Any, list[Any]]]:
        """The cells, each with its states."""
        rest = iter(states)
        return [(cell, list(islice(rest, len(cell.state_info())))) for cell in self._cells()]

    def _begin_states(self, batch_size: int, func: Any, kwargs: dict[str, Any]) -> list[Any]:
        how = {"batch_size": batch_size, "func": func, **kwargs}
        return [state for cell in self._cells() for state in cell.begin_state(**how)]


class _Stack(_Composite, Row):
    """Base class of `SequentialRNNCell` and `HybridSequentialRNNCell`."""

    def _through(self, inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        """Compute one step of all cells."""
        next_states: list[Any] = []
        for cell, mine in self._with_states(states):
            inputs, mine = cell(inputs, mine)
            next_states += mine
        return inputs, next_states

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        """Run each cell over all steps before the next cell."""
        states = self._states_for(run)  # type: ignore[attr-defined]
        inputs, next_states = run.inputs, []
        # Between the cells the sequence keeps its form, an array or a list.
        between = True if isinstance(inputs, Value) and as_shaped(inputs) is not None else None
        for cell, mine in self._with_states(states):
            merge = run.merge if cell is self[-1] else between
            inputs, mine = cell.unroll(*run._replace(inputs=inputs, begin_state=mine, merge=merge))
            next_states += mine
        return inputs, next_states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        for cell in self._cells():
            whole = cell._merges(whole, cut_short)
        return whole

    def __repr__(self) -> str:
        cells = "\n".join(f"({i}): {cell!r}" for i, cell in self._children.items())
        return f"{type(self).__name__}(\n{cells}\n)"


class SequentialRNNCell(_Stack, RecurrentCell):
    """Cells called one after another, each on the output of the one before; filled by `add`."""

    def forward(self, inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        self._counter += 1
        return self._through(inputs, states)


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """`SequentialRNNCell` for cells that can be hybridized."""

    def hybrid_forward(self, F: Any, x: Any, states: list[Any]) -> Any:
        return self._through(x, states)


class BidirectionalCell(_Composite, HybridRecurrentCell):
    """Two cells over the same sequence, one in each direction; their outputs are concatenated.

    The cell cannot compute a single step, because `r_cell` begins at the end of the sequence. Use
    `unroll`, which turns each step (N, C) into (N, C of l_cell + C of r_cell). The states are those
    of the forward cell `l_cell`, then those of `r_cell`.
    """

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_"):
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        return bool(self._cells()[0]._merges(False, cut_short))

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        (forth, first), (back, last) = self._with_states(self._states_for(run))
        merge, x = bool(run.merge), run.formed(run.inputs)
        if merge and run.layout == "NTC":
            x = x.swapaxes(0, 1)
        inner = run._replace(layout="TNC", merge=merge)
        left, left_states = forth.unroll(*inner._replace(inputs=x, begin_state=first))
        x = inner.reversed(x)
        right, right_states = back.unroll(*inner._replace(inputs=x, begin_state=last))
        right = inner.reversed(right)
        join = (nd if isinstance(left if merge else left[0], nd.NDArray) else symbol).concat
        states = left_states + right_states
        if not merge:
            pairs, name = enumerate(zip(left, right, strict=True)), f"{self._output_prefix}t"
            return [join(*pair, dim=1, name=f"{name}{t}") for t, pair in pairs], states
        y = join(left, right, dim=2, name=f"{self._output_prefix}out")
        return y if run.layout == "TNC" else y.swapaxes(0, 1), states

    def __repr__(self) -> str:
        forth, back = self._cells()
        return f"{type(self).__name__}(forward={forth!r}, backward={back!r})"


class DropoutCell(Layer, HybridRecurrentCell):
    """`Dropout` of the input as a cell without states, for use in a stack of cells.

    `unroll` applies dropout to all steps at once if they come as one array, otherwise step by step.
    Steps beyond a valid length are not masked.
    """

    _passes_on = "prefix", "params"

    rate: float = REQUIRED
    axes: tuple[int, ...] = ()

    def _build(self) -> None:
        assert isinstance(self.rate, Number), "rate must be a number"

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return []

    def hybrid_forward(self, F: Any, x: Any, states: Any) -> Any:
        if self.rate > 0:
            name = f"t{self._counter}_fwd"
            x = F.Dropout(x, p=self.rate, axes=self.axes, name=name)
        return x, states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        return whole

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        if run.merge:
            return self(run.as_array(run.inputs), run.begin_state or [])  # type: ignore[no-any-return]
        return super()._unroll(run._replace(valid_length=None))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self.rate}, axes={self.axes})"


class ModifierCell(_Composite, HybridRecurrentCell):
    """Base class of cells that wrap another cell and use its parameters and states.

    The inner cell must not be called directly any more. Subclasses define `hybrid_forward`.
    """

    def __init__(self, base_cell: Any):
        assert not base_cell._modified, (
            f"Cell {base_cell.name} is already modified. One cell cannot be modified twice"
        )
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        return self.base_cell.params

    def _begin_states(self, batch_size: int, func: Any, kwargs: dict[str, Any]) -> list[Any]:
        with self._inner_callable():
            return super()._begin_states(batch_size, func, kwargs)

    def _inner_callable(self) -> Any:
        """A scope in which the inner cell may be called directly."""
        return swapping(self.base_cell, "_modified", False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ZoneoutCell(ModifierCell):
    """In training, outputs and states randomly keep the values of the previous step, per element.

    Before the first step the previous output is zero. (As in MXNet, `Dropout` draws the masks, and
    the masks of states and output are independent.) Source: D. Krueger et al., "Zoneout" (2016).
    """

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        assert not isinstance(base_cell, BidirectionalCell), (
            "BidirectionalCell doesn't support zoneout since it doesn't support step. "
            "Please add ZoneoutCell to the cells underneath instead."
        )
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states
        self._prev_output: Any = None

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        super().reset()
        self._prev_output = None

    def hybridize(self, active: bool = True, **flags: Any) -> None:  # type: ignore[override]
        """Compile the inner cell. With zoneout_outputs the step itself stays uncompiled, because it
        stores the previous output."""
        super().hybridize(active and not self.zoneout_outputs, **flags)
        self.base_cell.hybridize(active, **flags)

    def hybrid_forward(self, F: Any, x: Any, states: Any) -> Any:
        output, next_states = self.base_cell(x, states)

        def mixed(p: float, new: Any, old: Any) -> Any:
            return F.where(F.Dropout(F.ones_like(new), p=p), new, old)

        if self.zoneout_outputs:
            before = self._prev_output
            before = F.zeros_like(output) if before is None else before
            output = mixed(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            next_states = [
                mixed(self.zoneout_states, new, old)
                for new, old in zip(next_states, states, strict=True)
            ]
        self._prev_output = output
        return output, next_states

    def __repr__(self) -> str:
        p = f"p_out={self.zoneout_outputs}, p_state={self.zoneout_states}"
        return f"{type(self).__name__}({p}, {self.base_cell!r})"


class ResidualCell(ModifierCell):
    """Adds the input to the output, which must have the same size (Y. Wu et al., 2016)."""

    def hybrid_forward(self, F: Any, x: Any, states: Any) -> Any:
        output, states = self.base_cell(x, states)
        return F.elemwise_add(output, x), states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        return bool(self.base_cell._merges(whole, cut_short))

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        """Unroll the inner cell (also a BidirectionalCell), then add the inputs."""
        with self._inner_callable():
            outputs, states = self.base_cell.unroll(*run)
        add, inputs = registry["elemwise_add"], run.inputs
        if run.valid_length is not None:
            inputs = run.masked(inputs)
        if isinstance(outputs, Value):
            return add(outputs, run.as_array(inputs)), states
        return [add(y, x) for y, x in zip(outputs, run.as_steps(inputs), strict=True)], states
