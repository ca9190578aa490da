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
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from d2lmini.gluon.rnn.recurrent import HybridRecurrentCell, RecurrentCell, as_shaped, namespace_of
from d2lmini.gluon.rnn.sequences import as_array, as_steps, backwards, reverse
from d2lmini.ops.core import Value


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

    def _begin_states(
        self, batch_size: int, func: Callable[..., Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        how = {"batch_size": batch_size, "func": func, **kwargs}
        return [state for cell in self._cells() for state in cell.begin_state(**how)]


class _Stack(_Composite):
    """Base class of `SequentialRNNCell` and `HybridSequentialRNNCell`."""

    _children: Any

    def add(self, cell: Any) -> None:
        """Append a cell."""
        self.register_child(cell)  # type: ignore[attr-defined]

    def _through(self, inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        """Compute one step of all cells."""
        next_states: list[Any] = []
        for cell, mine in self._with_states(states):
            inputs, mine = cell(inputs, mine)
            next_states += mine
        return inputs, next_states

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge_outputs: Any,
        valid_length: Any,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """Run each cell over all steps before the next cell."""
        states = self._states_for(inputs, layout, begin_state)  # type: ignore[attr-defined]
        next_states: list[Any] = []
        # Between the cells the sequence keeps its form, an array or a list.
        between = True if isinstance(inputs, Value) and as_shaped(inputs) is not None else None
        for cell, mine in self._with_states(states):
            merges = merge_outputs if cell is self[-1] else between
            inputs, mine = cell.unroll(length, inputs, mine, layout, merges, valid_length)
            next_states += mine
        return inputs, next_states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        for cell in self._cells():
            whole = cell._merges(whole, cut_short)
        return whole

    def __getitem__(self, i: int) -> Any:
        return self._cells()[i]

    def __len__(self) -> int:
        return len(self._children)

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

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge_outputs: Any,
        valid_length: Any,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        states = self._states_for(inputs, layout, begin_state)
        (forth, first), (back, last) = self._with_states(states)
        turn = reverse if merge_outputs else backwards
        x: Any = (as_array if merge_outputs else as_steps)(inputs, length, layout)
        if merge_outputs and layout == "NTC":
            x = x.swapaxes(0, 1)
        how = "TNC", bool(merge_outputs), valid_length
        left, left_states = forth.unroll(length, x, first, *how)
        right, right_states = back.unroll(length, turn(x, valid_length), last, *how)
        right = turn(right, valid_length)
        join = namespace_of(left if merge_outputs else left[0]).concat
        states = left_states + right_states
        if not merge_outputs:
            pairs, name = enumerate(zip(left, right, strict=True)), f"{self._output_prefix}t"
            return [join(*pair, dim=1, name=f"{name}{t}") for t, pair in pairs], states
        y = join(left, right, dim=2, name=f"{self._output_prefix}out")
        return y if layout == "TNC" else y.swapaxes(0, 1), states

    def __repr__(self) -> str:
        forth, back = self._cells()
        return f"{type(self).__name__}(forward={forth!r}, backward={back!r})"
