"""Dynamic loss scaling: small gradients survive float16, and a step whose gradients overflow is
skipped.

    with autograd.record():
        l = loss(net(x), y)
        with amp.scale_loss(l, trainer) as scaled:    # l * scale
            autograd.backward(scaled)
    trainer.step(batch_size)                          # divides by the scale, or skips

The smallest positive float16 is 6e-8; gradients below half of that become 0. A larger loss has
larger gradients, so the loss is multiplied by a scale, and the update divides by the scale:

    scale = 2**16 at first
    a step finds inf or nan in a gradient   no update; the scale is halved
    2000 steps in a row find none           the scale is doubled, to 2**24 at most

As in MXNet, a new scale applies one step later: the step after an overflow still uses the old one.
P. Micikevicius et al., "Mixed Precision Training" (2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from d2lmini.base.scopes import contextmanager
from d2lmini.contrib.amp.casts import current
from d2lmini.gluon.parameter import Parameter
from d2lmini.gluon.trainer import Trainer
from d2lmini.ops.core import registry


class LossScaler:
    """The scale, and the count of steps without overflow.

    >>> scaler = LossScaler()
    >>> scaler.loss_scale
    65536.0
    """

    def __init__(self) -> None:
        self._loss_scale = 2.0**16
        self._next_loss_scale = self._loss_scale
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """The factor of the loss in the next `scale_loss`."""
        return self._loss_scale

    def has_overflow(self, params: Iterable[Parameter]) -> bool:
        """True if a gradient holds inf or nan; adjusts the scale. Waits for the gradients."""
        grads = [param.list_grad() for param in params if param.grad_req != "null"]
        # For each device 1 if all elements are finite, else 0: one task of the engine.
        found = [registry["_are_finite"](*of_device) for of_device in zip(*grads)]
        overflow = not all(bool(finite.asscalar()) for finite in found)
        self._loss_scale = self._next_loss_scale
        if overflow:
            self._next_loss_scale = self._loss_scale / 2
            self._unskipped = 0
        else:
            self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self._next_loss_scale = min(self._max_loss_scale, self._loss_scale * 2)
            self._unskipped = 0
        return overflow


def _check_trainer(optimizer_or_trainer: Any) -> Trainer:
    if not isinstance(optimizer_or_trainer, Trainer):
        kind = type(optimizer_or_trainer).__name__
        raise TypeError(f"AMP is currently only compatible with Gluon Trainer, got {kind}")
    return optimizer_or_trainer


def init_trainer(optimizer_or_trainer: Trainer) -> None:
    """Give a Trainer a loss scaler; its steps then skip gradients with inf or nan.

    AssertionError unless `amp.init` was called; TypeError for anything but a Trainer."""
    trainer = _check_trainer(optimizer_or_trainer)
    assert current() is not None, "AMP not initialized, did you forget to call amp.init()?"
    trainer._amp_loss_scaler = LossScaler()
    trainer._amp_original_scale = trainer._scale


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Trainer) -> Iterator[Any]:
    """A scope with the scaled loss: an array, or a list for a list or tuple of losses. The next
    step of the Trainer divides by the scale.

    AssertionError unless `amp.init` was called; AttributeError for a Trainer without
    `amp.init_trainer`."""
    assert current() is not None, "AMP not initialized, did you forget to call amp.init()?"
    trainer = _check_trainer(optimizer_or_trainer)
    scaler = trainer._amp_loss_scaler
    if scaler is None:
        raise AttributeError(
            "scale_loss: this Trainer has no loss scaler; call amp.init_trainer(trainer) once, "
            "before training"
        )
    scale = scaler.loss_scale
    trainer._scale = trainer._amp_original_scale / scale
    if isinstance(loss, (list, tuple)):
        yield [part * scale for part in loss]
    else:
        yield loss * scale


def unscale(optimizer_or_trainer: Trainer) -> None:
    """Divide the gradients by the scale now, to look at them or to clip them; the next step then
    does not divide again. (As in MXNet, a `rescale_grad` of the Trainer is applied here too.)

    Does nothing if the gradients are not scaled. A step after `unscale` is skipped for inf and nan
    as any other."""
    trainer = _check_trainer(optimizer_or_trainer)
    factor, trainer._scale = trainer._scale, 1.0
    times = registry["_mul_scalar"]
    if factor != 1.0:
        for param in trainer._params:
            for grad in param.list_grad() if param.grad_req != "null" else ():
                times(grad, scalar=factor, out=grad)
