"""Functions with a gradient defined by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.autograd import tape
from d2lmini.autograd.scopes import pause, refuse_in_trace
from d2lmini.autograd.tape import Grads, Node, cell_of, value_of
from d2lmini.base import MXNetError, callsite
from d2lmini.ops.core import Value, modes


class FunctionNode(Node):
    """One call of a user's `Function` on the tape.

    saved    the values that `save_for_backward` kept in this call
    cells    of each array among these its cell (`Chunk`), else None
    """

    __slots__ = ("cells", "function", "is_np", "name", "saved")

    def __init__(self, function: Function, inputs: tuple, outs: list[Any]):
        parents = tuple(tape.history(x) for x in inputs)
        super().__init__(parents, [y._spec for y in outs], outs[0]._ctx)
        self.name = type(function).__name__
        self.function: Any = function
        self.is_np = outs[0].is_np
        self.saved: tuple[Any, ...] = function._saved
        self.cells = [cell_of(x) if isinstance(x, Value) else None for x in self.saved]

    def gradients(self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any) -> Grads:
        if graph:
            raise MXNetError(
                f"{self.name}: create_graph=True goes through no autograd.Function, as in MXNet; "
                "write it in ops, whose gradients are recorded"
            )
        gs = [tape.zeros(s, self.ctx) if g is None else g for g, s in zip(gs, self.outputs)]
        if self.is_np:
            gs = [g.as_np_ndarray() for g in gs]
        # The saved values, as they were when they were saved.
        pairs = zip(self.saved, self.cells)
        values = [x if c is None else value_of(self, x, c)._alias(None) for x, c in pairs]
        self.function._saved = tuple(values)
        grads = callsite.forgotten(self.function.backward, *gs)
        self.function._saved = ()
        if grads is None:
            raise MXNetError(f"{self.name}.backward returned None; a return may be missing")
        grads = grads if isinstance(grads, (tuple, list)) else (grads,)
        self._check(grads)
        return grads

    def _check(self, grads: Sequence[Any]) -> None:
        """MXNetError unless there is a gradient of the right spec, or None, for each input."""
        if len(grads) != len(self.parents):
            raise MXNetError(
                f"{self.name}.backward gave {len(grads)} gradients for {len(self.parents)} inputs; "
                "return one for each, None where there is none"
            )
        for i, (g, parent) in enumerate(zip(grads, self.parents)):
            if parent is not None and g is not None:
                spec = parent[0].outputs[parent[1]]
                if not isinstance(g, Value) or g._spec != spec:  # type: ignore[attr-defined]
                    got = getattr(g, "_spec", type(g).__name__)
                    raise MXNetError(
                        f"{self.name}.backward: the gradient of input {i} must be an NDArray like "
                        f"it, {spec}, got {got}"
                    )

    def release(self) -> None:
        self.parents = None
        self.function = None
        self.saved = ()
        self.cells = []


class Function:
    """A differentiable function written by hand: subclass it, define `forward` and `backward`.

    >>> from d2lmini import autograd, nd
    >>> class Sigmoid(autograd.Function):
    ...     def forward(self, x):
    ...         y = 1 / (1 + nd.exp(-x))
    ...         self.save_for_backward(y)
    ...         return y
    ...     def backward(self, dy):
    ...         y, = self.saved_tensors
    ...         return dy * y * (1 - y)
    >>> x = nd.zeros(2)
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = Sigmoid()(x)
    >>> y.backward()
    >>> x.grad.asnumpy()
    array([0.25, 0.25], dtype=float32)

    forward takes and returns NDArrays (one, or a tuple); it is not recorded. backward takes a
    gradient for each output and returns one for each input, None where there is none. Both run on
    the calling thread. As in MXNet, create_graph is refused here.
    """

    _saved: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keep arrays for backward."""
        self._saved = args

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The values that `save_for_backward` kept."""
        return self._saved

    def __call__(self, *inputs: Any) -> Any:
        name = type(self).__name__
        refuse_in_trace(f"{name}, an autograd.Function,")
        for i, x in enumerate(inputs):
            if not isinstance(x, Value):
                raise TypeError(
                    f"{name}: input {i} must be an NDArray, got {type(x).__name__}; give other "
                    "things to __init__"
                )
        with pause(train_mode=modes.training):
            result = self.forward(*inputs)
        single = isinstance(result, Value)
        results: list[Any] = [result] if single else list(result)
        if not all(isinstance(y, Value) for y in results):
            raise TypeError(f"{name}.forward must return NDArrays, got {result!r}")
        if modes.recording:
            tape.tell_of_constants(name, inputs)
        if modes.recording and any(tape.history(x) for x in inputs):
            if modes.noting is not None:
                modes.noting.note(inputs)
            # Aliases, for a result may be an input or a saved value.
            results = [y._alias(None) for y in results]
            FunctionNode(self, inputs, results).enter(results)
            self._saved = ()
        # A named tuple takes its parts one by one, or all by `_make`.
        return results[0] if single else getattr(result, "_make", type(result))(results)

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def backward(self, *output_grads: Any) -> Any:
        """Compute the gradients of the inputs from those of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no backward")
