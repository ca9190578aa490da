"""Learning rate schedules: functions of the number of updates so far.

>>> from d2lmini.optimizer import lr_scheduler
>>> halving = lr_scheduler.FactorScheduler(step=10, factor=0.5, base_lr=1.0)
>>> [halving(n) for n in (1, 10, 11, 21)]
[1.0, 1.0, 0.5, 0.25]

An optimizer calls its scheduler with `num_update` at every step. All schedulers support a warm-up
from `warmup_begin_lr` to `base_lr` in `warmup_steps` updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import cos, pi
from typing import Any

from d2lmini.base.families import REQUIRED, Declared


class LRScheduler(Declared):
    """Base class: the rate `base_lr` and the warm-up. Subclasses define `__call__`, or `rate` for
    the updates after the warm-up.

    warmup_mode: 'linear' from warmup_begin_lr, or 'constant' at warmup_begin_lr. ValueError for a
    warmup_begin_lr above base_lr, negative steps, or another mode."""

    _places = dict(
        base_lr=1, power=2, final_lr=3, warmup_steps=4, warmup_begin_lr=4, warmup_mode=4
    )  # fmt: skip
    _aliases = {"power": "pwr"}

    base_lr: float = 0.01
    warmup_steps: int = 0
    warmup_begin_lr: float = 0
    warmup_mode: str = "linear"

    def __init__(self, *args: Any, **kwargs: Any):
        self._take(args, kwargs)
        assert isinstance(self.warmup_steps, int), "warmup_steps is a number of updates: an int"
        if self.warmup_begin_lr > self.base_lr:
            raise ValueError("Base lr has to be higher than warmup_begin_lr")
        if self.warmup_steps < 0:
            raise ValueError("Warmup steps has to be positive or 0")
        if self.warmup_mode not in ("linear", "constant"):
            raise ValueError("Supports only linear and constant modes of warmup")
        self.warmup_final_lr = self.base_lr
        self._check()

    def _check(self) -> None:
        """Raise an error for parameters of a subclass that do not fit."""

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate of an update during the warm-up."""
        assert num_update < self.warmup_steps
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + rise * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """The rate of update number `num_update`, counted from 1."""
        warms_up = num_update < self.warmup_steps
        return self.get_warmup_lr(num_update) if warms_up else self.rate(num_update)

    def rate(self, num_update: int) -> float:
        """The rate of an update after the warm-up."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(num_update)")


LRScheduler.__signature__ = LRScheduler._signature


def _check_steps(steps: Sequence[int], factor: float) -> None:
    if min(steps) < 1:
        raise ValueError("Schedule step must be greater or equal than 1 round")
    if factor > 1.0:
        raise ValueError("Factor must be no more than 1 to make lr reduce")


class FactorScheduler(LRScheduler):
    """base_lr times `factor` after every `step` updates, never below `stop_factor_lr`.

    `base_lr` decreases during the schedule and is never reset. ValueError for a step below 1 or a
    factor above 1."""

    step: int = REQUIRED
    factor: float = 1
    stop_factor_lr: float = 1e-8

    def _check(self) -> None:
        _check_steps([self.step], self.factor)
        self.count = 0

    def rate(self, num_update: int) -> float:
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr = max(self.base_lr * self.factor, self.stop_factor_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """base_lr times `factor` after each of the update numbers in `step`.

    ValueError unless `step` is an increasing list of numbers >= 1, and `factor` is at most 1.
    """

    step: Sequence[int] = REQUIRED
    factor: float = 1

    def _check(self) -> None:
        assert isinstance(self.step, list) and self.step, "step is a list of numbers of updates"
        if any(after <= before for before, after in pairwise(self.step)):
            raise ValueError("Schedule step must be an increasing integer list")
        _check_steps(self.step, self.factor)
        self.cur_step_ind = self.count = 0

    def rate(self, num_update: int) -> float:
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
        return self.base_lr


class _Falling(LRScheduler):
    """Decreases from base_lr to `final_lr` in `max_update` updates, warm-up included."""

    max_update: int = REQUIRED
    final_lr: float = 0

    def _check(self) -> None:
        assert isinstance(self.max_update, int), "max_update is a number of updates: an int"
        if self.max_update < 1:
            raise ValueError("maximum number of updates must be strictly positive")
        self.base_lr_orig = self.base_lr
        self.max_steps = self.max_update - self.warmup_steps

    def shape(self, done: float) -> float:
        """The remaining part of the decrease, from 1 to 0, after the share `done` of updates."""
        raise NotImplementedError

    def rate(self, num_update: int) -> float:
        if num_update <= self.max_update:
            left = self.shape((num_update - self.warmup_steps) / self.max_steps)
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * left
        return self.base_lr


class PolyScheduler(_Falling):
    """final_lr + (base_lr - final_lr) * (1 - n / max_update)^pwr, after n updates."""

    power: float = 2

    def shape(self, done: float) -> float:
        return (1 - done) ** self.power


class CosineScheduler(_Falling):
    """final_lr + (base_lr - final_lr) * (1 + cos(pi * n / max_update)) / 2, after n updates."""

    def shape(self, done: float) -> float:
        return (1 + cos(pi * done)) / 2
