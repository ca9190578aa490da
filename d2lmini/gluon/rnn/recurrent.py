"""Base classes of recurrent cells: states, the count of steps, unrolling.

A cell is a Block. A call takes an input (N, C) and a list of states, and returns an output and the
list of next states. `state_info` describes the states. A user-defined cell defines `state_info`,
`_alias`, and `hybrid_forward(self, F, inputs, states, **params)`.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
>>> cell = rnn.LSTMCell(4)
>>> cell.initialize()
>>> cell.state_info(batch_size=2)
[{'shape': (2, 4), '__layout__': 'NC'}, {'shape': (2, 4), '__layout__': 'NC'}]
>>> outputs, states = cell.unroll(3, nd.ones((2, 3, 5)))         # T=3 steps of (N, C)
>>> len(outputs), outputs[0].shape
(3, (2, 4))

A sequence is one array with a time axis, or a list of steps. `Run` makes the one of the other, by
ops on values, so for arrays and Symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from d2lmini import ndarray as nd
from d2lmini import symbol
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.utils import as_default
from d2lmini.ops.core import Value, modes
from d2lmini.ops.join import split, stack
from d2lmini.ops.sequence import SequenceLast, SequenceMask, SequenceReverse

#: The parameters of a cell, and of one layer in one direction, in the order of creation.
KINDS = "i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"


class Run(NamedTuple):
    """The arguments of `unroll`, and what they say about sequences: the inputs, and the outputs.

    >>> run = Run(3, nd.zeros((2, 3, 4)), layout="NTC")
    >>> steps = run.as_steps(run.inputs)
    >>> len(steps), steps[0].shape, run.as_array(steps).shape
    (3, (2, 4), (2, 3, 4))
    """

    length: int
    inputs: Any
    begin_state: Any = None
    layout: str = "TNC"
    merge: Any = False
    valid_length: Any = None

    def axis(self, letter: str) -> int:
        """The position of 'T' or 'N'; ValueError unless the layout is 'NTC' or 'TNC'."""
        if self.layout not in ("NTC", "TNC"):
            raise ValueError(f"layout {self.layout!r}: expected 'NTC' or 'TNC'")
        return self.layout.find(letter)

    def _time_axis(self, x: Any) -> int:
        """AssertionError unless `x` has `length` steps. (Symbols' shapes are unknown.)"""
        axis, found = self.axis("T"), self.length
        if not isinstance(x, Value):
            found = len(x)
        elif hasattr(x, "shape"):
            found = x.shape[axis]
        assert found == self.length, f"unroll: length={self.length}, the inputs have {found} steps"
        return axis

    def as_steps(self, x: Any) -> list[Any]:
        """The sequence as a list with one array (N, C...) per step."""
        axis = self._time_axis(x)
        if not isinstance(x, Value):
            return list(x)
        parts = split(x, num_outputs=self.length, axis=axis, squeeze_axis=True)
        return list(parts) if self.length > 1 else [parts]

    def as_array(self, x: Any) -> Any:
        """The sequence as one array."""
        axis = self._time_axis(x)
        return x if isinstance(x, Value) else stack(*x, axis=axis)

    def formed(self, x: Any) -> Any:
        """One array if `merge` is True, a list of steps if False, `x` itself if None."""
        if self.merge is None:
            return x
        return self.as_array(x) if self.merge else self.as_steps(x)

    def masked(self, x: Any) -> Any:
        """One array, with zeros in all steps at or after each sequence's valid length."""
        how = {"use_sequence_length": True, "axis": self.axis("T")}
        return SequenceMask(self.as_array(x), self.valid_length, **how)

    def reversed(self, x: Any) -> Any:
        """The sequence, of layout TNC, in the other direction of time. With valid_length the steps
        beyond it stay in place."""
        given = self.valid_length is not None
        if not given and not self.merge:
            return x[::-1]
        y = SequenceReverse(self.as_array(x), self.valid_length, use_sequence_length=given)
        return self.formed(y)


class RecurrentCell(Block):
    """Abstract cell; subclasses define `state_info` and a forward of (inputs, states)."""

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Reset the counts of steps and of first states, before another sequence begins. Cells of
        one's own may name their ops by `_counter`, the number of the step."""
        self._init_counter = -1
        self._counter = -1
        for cell in self._cells():
            cell.reset()

    def _cells(self) -> list[Any]:
        """The cells inside this cell."""
        return list(self._children.values())

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The shape and layout of each state."""
        raise NotImplementedError(f"{type(self).__name__}: a subclass must define state_info")

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """The states before the first step: func(name=..., shape=..., **kwargs) for each state, by
        default zeros. kwargs: ctx, dtype."""
        assert not self._modified, (
            "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called "
            "directly. Call the modifier cell instead."
        )
        return self._begin_states(batch_size, func, kwargs)

    def _begin_states(self, batch_size: int, func: Any, kwargs: dict[str, Any]) -> list[Any]:
        """Compute `begin_state`; containers of cells call `begin_state` of their cells."""
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(as_default(func(name=name, **{**info, **kwargs})))
        return states

    def _states_for(self, run: Run) -> list[Any]:
        """The first states of the run: given, or made for the inputs' batch size and context."""
        states, n = run.begin_state, len(self.state_info())
        if states is None:
            if isinstance(run.inputs, Value):
                return first_states(self.begin_state, run.inputs, run.axis("N"))
            return first_states(self.begin_state, run.inputs[0], 0)
        if not isinstance(states, (list, tuple)) or len(states) != n:
            given = f"{len(states)}" if isinstance(states, (list, tuple)) else repr(states)
            raise ValueError(
                f"{type(self).__name__}.unroll: begin_state is a list of {n} "
                f"array{'' if n == 1 else 's'}, as begin_state() makes it; got {given}. Pass later "
                "arguments by name, as layout='TNC'"
            )
        return states  # type: ignore[return-value]

    def unroll(
        self, length: int, inputs: Any, begin_state: list[Any] | None = None, layout: str = "NTC",
        merge_outputs: bool | None = None, valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """Run the cell over a sequence of `length` steps; returns (outputs, last states).

        inputs: an array (N, T, C), or (T, N, C) with layout 'TNC', or a list of `length` arrays (N,
        C). outputs: one array in the same layout if merge_outputs is True, a list of steps if it is
        False; if it is None, a list without valid_length and an array with it (a DropoutCell keeps
        the form of its inputs). begin_state: zeros by default.

        valid_length (N,): the number of valid steps of each sequence. Later outputs are zeros. The
        last states are those of the last valid step.

        Raises AssertionError when the inputs have another number of steps.
        """
        self.reset()
        if merge_outputs is None:
            merge_outputs = self._merges(isinstance(inputs, Value), valid_length is not None)
        return self._unroll(Run(length, inputs, begin_state, layout, merge_outputs, valid_length))

    def _merges(self, whole: bool, cut_short: bool) -> bool:
        """True if `unroll` gives one array when merge_outputs is None. whole: the inputs are one
        array; cut_short: valid_length is given."""
        return cut_short

    def _unroll(self, run: Run) -> tuple[Any, list[Any]]:
        """Compute `unroll`; a cell with a faster method than single steps overrides this one."""
        states = self._states_for(run)
        outputs, history = [], []
        for step in run.as_steps(run.inputs):
            output, states = self(step, states)
            outputs.append(output)
            history.append(states)
        if run.valid_length is None:
            return run.formed(outputs), states
        states = [
            SequenceLast(stack(*rows, axis=0), run.valid_length, use_sequence_length=True, axis=0)
            for rows in zip(*history, strict=True)
        ]
        return run.formed(run.masked(outputs)), states

    def forward(self, inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        """Compute one step: inputs (N, C) -> (output, next states)."""
        self._counter += 1
        return super().forward(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A cell whose step is defined by `hybrid_forward(F, inputs, states, **params)`."""


def as_shaped(value: Any) -> Any:
    """A value that has the shape of `value`: an array itself, or the trace's view of a Symbol. None
    for a Symbol outside of traces, whose shape is unknown."""
    if isinstance(value, nd.NDArray):
        return value
    return None if modes.tracing is None else modes.tracing.with_shape(value)


def first_states(begin_state: Callable[..., list[Any]], value: Any, axis: int) -> list[Any]:
    """Zeros for as many sequences as `value` has along `axis`, in its context and dtype."""
    if isinstance(value, nd.NDArray):
        batch_size = value.shape[axis] if axis < value.ndim else 0
        return begin_state(batch_size=batch_size, ctx=value.ctx, dtype=value.dtype)
    if modes.tracing is not None:
        return begin_state(batch_size=-1, func=zeros_beside(value, axis))
    # A Symbol, as MXNet writes it: size 0 stands for the batch size.
    return begin_state(
        func=lambda __layout__, **how: symbol.zeros(attr={"__layout__": __layout__}, **how)
    )


def zeros_beside(value: Any, axis: int) -> Callable[..., Any]:
    """A function for `begin_state` of a traced cell. The function makes zeros whose size -1 is the
    number of rows of `value` along `axis`, so that the graph works for any batch size."""

    def func(shape: tuple[int, ...], **_: Any) -> Any:
        one = value
        for i in range(as_shaped(value).ndim):
            if i != axis:
                one = symbol.slice_axis(one, axis=i, begin=0, end=1)
        others = tuple(i for i, n in enumerate(shape) if n != -1)
        column = symbol.reshape(one, shape=tuple(-1 if n == -1 else 1 for n in shape))
        sizes = tuple(shape[i] for i in others)
        return symbol.broadcast_axis(symbol.zeros_like(column), axis=others, size=sizes)

    return func
