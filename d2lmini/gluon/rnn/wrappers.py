"""Cells that modify another cell, or just the input: Dropout, Zoneout, Residual.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
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
from numbers import Number
from typing import Any

from d2lmini.base.scopes import swapping
from d2lmini.gluon.rnn.containers import BidirectionalCell
from d2lmini.gluon.rnn.recurrent import HybridRecurrentCell
from d2lmini.gluon.rnn.sequences import as_array, as_steps, mask_sequence
from d2lmini.ops.core import Value, registry


class DropoutCell(HybridRecurrentCell):
    """`Dropout` of the input as a cell without states, for use in a stack of cells.

    `unroll` applies dropout to all steps at once if they come as one array, otherwise step by step.
    Steps beyond a valid length are not masked.
    """

    def __init__(
        self, rate: float, axes: tuple[int, ...] = (), prefix: str | None = None, params: Any = None
    ):
        super().__init__(prefix, params)
        assert isinstance(rate, Number), "rate must be a number"
        self._rate = rate
        self._axes = axes

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return []

    def hybrid_forward(self, F: Any, x: Any, states: Any) -> Any:
        if self._rate > 0:
            name = f"t{self._counter}_fwd"
            x = F.Dropout(x, p=self._rate, axes=self._axes, name=name)
        return x, states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        return whole

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge_outputs: Any,
        valid_length: Any,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        if merge_outputs:
            return self(as_array(inputs, length, layout), begin_state or [])  # type: ignore[no-any-return]
        return super()._unroll(length, inputs, begin_state, layout, merge_outputs, None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"


class ModifierCell(HybridRecurrentCell):
    """Base class of cells that wrap another cell and use its parameters and states.

    The inner cell must not be called directly any more. Subclasses define `hybrid_forward`.
    """

    _modifier = "DropoutCell"

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

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return self.base_cell.state_info(batch_size)

    def _begin_states(
        self, batch_size: int, func: Callable[..., Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        with self._inner_callable():
            return self.base_cell.begin_state(batch_size=batch_size, func=func, **kwargs)

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

    def _alias(self) -> str:
        return "residualcell"

    def hybrid_forward(self, F: Any, x: Any, states: Any) -> Any:
        output, states = self.base_cell(x, states)
        return F.elemwise_add(output, x), states

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        return bool(self.base_cell._merges(whole, cut_short))

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge_outputs: Any,
        valid_length: Any,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """Unroll the inner cell (also a BidirectionalCell), then add the inputs."""
        with self._inner_callable():
            outputs, states = self.base_cell.unroll(
                length, inputs, begin_state, layout, merge_outputs, valid_length
            )
        add = registry["elemwise_add"]
        if valid_length is not None:
            inputs = mask_sequence(inputs, length, layout, valid_length)
        if isinstance(outputs, Value):
            return add(outputs, as_array(inputs, length, layout)), states
        steps = as_steps(inputs, length, layout)
        return [add(y, x) for y, x in zip(outputs, steps, strict=True)], states
