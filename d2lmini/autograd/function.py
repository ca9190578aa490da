"""Functions with a gradient of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.autograd import tape
from d2lmini.autograd.scopes import pause
from d2lmini.autograd.tape import Node
from d2lmini.base import MXNetError
from d2lmini.ops.core import Value, modes


class FunctionNode(Node):
    """A user's `Function` that was called: backward asks it."""

    __slots__ = ("function", "n_inputs")

    def __init__(self, function: Function, inputs: tuple, outs: list[Any]):
        super().__init__(tuple(x._node for x in inputs), [y._spec for y in outs], outs[0]._ctx)
        self.function: Function | None = function
        self.n_inputs = len(inputs)

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self.function).__name__

    @property
    def released(self) -> bool:
        return self.function is None

    def gradients(self, gs: list[Any], graph: bool, needs: Sequence[bool]) -> Sequence[Any]:
        gs = [
            tape.zeros(spec, self.ctx) if g is None else g
            for g, spec in zip(gs, self.outputs, strict=True)
        ]
        assert self.function is not None
        grads = self.function.backward(*gs)
        grads = grads if isinstance(grads, (tuple, list)) else (grads,)
        if len(grads) != self.n_inputs:
            raise MXNetError(
                f"{self.name}.backward gave {len(grads)} gradients for {self.n_inputs} inputs; "
                "return one for each, None where there is none"
            )
        return grads

    def release(self) -> None:
        self.function = None
        self.parents = ()


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

    forward takes and returns NDArrays (one, or a tuple); backward takes a gradient for each output
    and returns one for each input. Both run on the calling thread, unrecorded; use an object once.
    """

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keep arrays for backward."""
        self._saved = args

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        return self._saved

    def __call__(self, *inputs: Any) -> Any:
        with pause(train_mode=modes.training):
            result = self.forward(*inputs)
        single = isinstance(result, Value)
        outs: list[Any] = [result] if single else list(result)
        if modes.recording and any(x._node is not None for x in inputs):
            outs = [y._alias(None) for y in outs]  # forward may return an input, or what it saved
            node = FunctionNode(self, inputs, outs)
            for i, y in enumerate(outs):
                y._node = (node, i)
        return outs[0] if single else type(result)(outs)

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def backward(self, *output_grads: Any) -> Any:
        """Compute the gradients of the inputs from those of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no backward")
