"""SyncBatchNorm: BatchNorm over a batch whose parts lie on several devices.

>>> from d2lmini import autograd, cpu, nd
>>> from d2lmini.gluon.contrib.nn import SyncBatchNorm
>>> net = SyncBatchNorm(in_channels=1)
>>> net.initialize(ctx=[cpu(0), cpu(1)])
>>> with autograd.record():
...     a = net(nd.array([[1], [2]], ctx=cpu(0)))
...     b = net(nd.array([[6], [7]], ctx=cpu(1)))
>>> a.round().asnumpy().ravel().tolist(), b.round().asnumpy().ravel().tolist()
([-1.0, -1.0], [1.0, 1.0])

BatchNorm of each part would give [-1, 1]. How can one thread compute the first call before it makes
the second? It does not need to: like every call, the first call returns at once. Its result waits
for the mean and variance of the whole batch, which a `Rendezvous` writes (see
`engine/rendezvous.py`): a task that becomes ready when all devices have supplied the moments of
their parts. Backward waits in the same way for the sums in its formula, so backward may be called
for each loss or for a list of losses.

The n-th call on one device is matched with the n-th calls on the others. If an exception ends a
scope of `autograd.record()` in which only some devices have called, the next call starts a new
round for all. A missing device raises an error where its absence is noticed; see `SyncBatchNorm`.
H. Zhang et al., "Context Encoding for Semantic Segmentation" (2018).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from d2lmini import autograd, engine, forks
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.device.storage import Chunk, pool_of
from d2lmini.engine.rendezvous import Rendezvous
from d2lmini.gluon.nn.norm import BatchNorm
from d2lmini.graph.symbolic_trace import FallbackToEager, thread_state
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import wrap
from d2lmini.ops.core import modes, registry
from d2lmini.signatures import with_parameters_of

#: Number of calls of a layer by which a device may be ahead of the others.
MOST_AHEAD = 16

#: Guards the bookkeeping below. No task is pushed while it is held.
_lock = forks.guard(threading.Lock())


class Gather:
    """Collects an array from each of n devices and computes `combine(arrays, sizes)`.

    The arrays are combined on the CPU in the order of their contexts, whatever their order of
    arrival.
    """

    def __init__(self, n: int, name: str, combine: Callable[[list, list[int]], Any]):
        self.n = n
        self.name = name
        self.combine = combine
        self.parts: dict[Context, tuple[NDArray, int]] = {}
        self.total: Any = None
        self.task: Any = None
        self.left = False  # True if an exception kept the others from coming

    @property
    def complete(self) -> bool:
        return len(self.parts) == self.n

    @property
    def failed(self) -> bool:
        """True if the gathering was ended before all devices came."""
        if self.task is None or self.complete:
            return False
        return not self.task.open or self.total._chunk.error is not None

    def add(self, x: NDArray, size: int) -> NDArray:
        """Add the array of one device, the summary of `size` values. Returns the result on that
        device, without waiting."""
        ctx = x.context
        part = x if ctx.is_cpu else x.as_in_context(cpu())
        with _lock:
            if self.task is None:
                self.total = wrap(Chunk(pool_of(cpu()), x._spec.nbytes), x._spec, cpu())
                var = self.total._chunk
                self.task = Rendezvous(self.name, self.n, self._combine, var, self.missing)
            self.parts[ctx] = part, size
        self.task.join(engine.current, part._chunk)
        return self.total if ctx.is_cpu else self.total.as_in_context(ctx)

    def missing(self) -> str:
        """The reason why the gathering cannot complete."""
        came = ", ".join(map(str, sorted(self.parts, key=_rank)))
        if self.complete:
            reason = "the data of one depends on its result on another: neither can be computed"
        elif self.left:
            reason = "then an exception ended the scope in which the others would have"
        else:
            reason = (
                "and the result is wanted before the others: call the net on the data of every "
                "device before you wait, or say with num_devices= how many take part"
            )
        return f"{self.name}: {len(self.parts)} of {self.n} devices came ({came}), {reason}"

    def end(self) -> None:
        """Fail, if parts are missing: an exception keeps the others from coming."""
        self.left = True
        if self.task is not None:
            self.task.give_up(engine.current)

    def _combine(self) -> None:
        parts = [self.parts[ctx] for ctx in sorted(self.parts, key=_rank)]
        arrays = [array_of((x._chunk, x._offset, x._spec)) for x, _ in parts]
        spec = self.total._spec
        result = self.combine(arrays, [size for _, size in parts])
        self.total._chunk.allocate(spec.shape, spec.dtype)[...] = result


def _rank(ctx: Context) -> tuple[str, int]:
    return ctx.device_type, ctx.device_id


def merge_moments(moments: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Mean and variance of the whole from those of its parts, (2, C) each; computed in float64.

    The variance combines the variances within the parts and the variance of their means (T. Chan et
    al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
    """
    pairs = np.stack(moments).astype(np.float64)  # (k, 2, C)
    share = np.asarray(sizes, np.float64) / max(sum(sizes), 1)
    mean = share @ pairs[:, 0]
    variance = share @ (pairs[:, 1] + (pairs[:, 0] - mean) ** 2)
    return np.stack([mean, variance])


def mean_of_sums(sums: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """The mean over the whole, from the sums over the parts."""
    return np.stack(sums).astype(np.float64).sum(axis=0) / max(sum(sizes), 1)


class _Round:
    """One call of a layer on every device: the gatherings of forward and of backward.

    members  the devices that called
    scopes   of each call: the count of broken scopes of its thread, and what it was at the call
    """

    def __init__(self, n: int, name: str):
        self.n = n
        self.name = name
        self.members: set[Context] = set()
        self.forward = Gather(n, name, merge_moments)
        self.back: list[Gather] = []
        self.scopes: list[tuple[list[int], int]] = []

    @property
    def is_left(self) -> bool:
        """True if an exception has ended a scope of a participating thread."""
        return any(broken[0] != then for broken, then in self.scopes)

    def backward(self, ctx: Context) -> Gather:
        """The gathering for the sums of `ctx`; with a retained tape there may be several."""
        with _lock:
            for gather in self.back:
                if ctx not in gather.parts and not gather.failed:
                    return gather
            self.back.append(Gather(self.n, f"{self.name} (backward)", mean_of_sums))
            return self.back[-1]


#: The incomplete rounds of each layer, oldest first.
_rounds: WeakKeyDictionary[Any, list[_Round]] = WeakKeyDictionary()


def _join_round(layer: Any, ctx: Context, n: int) -> _Round:
    """The first round of a layer without `ctx`, called by this thread. MXNetError if the other
    devices are too far behind or have stopped waiting for `ctx`."""
    name = f"SyncBatchNorm {layer.name}"
    with _lock:
        rounds = _rounds.setdefault(layer, [])
        left = [r for r in rounds if r.is_left]
        rounds[:] = [r for r in rounds if r not in left]
    for left_round in left:
        left_round.forward.end()
    with _lock:
        failed = next((r for r in rounds if r.forward.failed or r.n != n), None)
        if failed is not None:
            if ctx not in failed.members:
                failed.members.add(ctx)  # raised once; the next call starts anew
                raise MXNetError(
                    f"{failed.forward.missing()}. Now {ctx} comes too late; the next call is the "
                    "first of a new round"
                )
            rounds.clear()
        mine = next((r for r in rounds if ctx not in r.members), None)
        if mine is None:
            if len(rounds) >= MOST_AHEAD:
                raise MXNetError(
                    f"{name}: called {MOST_AHEAD + 1} times on {ctx} and not on as many other "
                    f"devices as num_devices={n} says. {rounds[0].forward.missing()}"
                )
            mine = _Round(n, name)
            rounds.append(mine)
        mine.members.add(ctx)
        mine.scopes.append((modes.broken, modes.broken[0]))
        if len(mine.members) == n:
            rounds.remove(mine)
        return mine


class _Normalize(autograd.Function):
    """One device's part of a round: data, gamma, beta -> normalized data."""

    def __init__(self, meets: _Round, options: dict[str, Any], moving: tuple[NDArray, NDArray]):
        self.meets = meets
        self.moving = moving
        self.momentum = options["momentum"]
        self.eps = {"eps": options["eps"]}
        self.how = {**self.eps, "fix_gamma": options["fix_gamma"]}

    def forward(self, x: Any, gamma: Any, beta: Any) -> Any:
        # Other devices wait for this result, so it runs before tasks that are not urgent.
        with engine.prioritized(1):
            own = registry["_channel_moments"](x)
            moments = self.meets.forward.add(own, _per_channel(x))
        self.save_for_backward(x, gamma, moments)
        return registry["_normalize_by"](
            x, gamma, beta, *self.moving, moments, momentum=self.momentum, **self.how
        )

    def backward(self, dy: Any) -> Any:
        x, gamma, moments = self.saved_tensors
        with engine.prioritized(1):
            sums = registry["_norm_sums"](dy, x, moments, **self.eps)
            means = self.meets.backward(x.context).add(sums, _per_channel(x))
        dx = registry["_norm_gradient"](dy, x, gamma, moments, means, **self.how)
        sums = sums.astype(gamma.dtype, copy=False)
        return dx, None if self.how["fix_gamma"] else sums[1], sums[0]


def _per_channel(x: NDArray) -> int:
    return x.size // max(x.shape[1], 1)


class SyncBatchNorm(BatchNorm):
    """BatchNorm over the whole batch when each device has a part of the batch; shape kept.

    In training, mean and variance are those of the parts on all `num_devices` devices together; the
    running statistics are updated with them, equally on every device. Gradients are those of the
    whole batch; the gradients of gamma and beta stay split over the devices, and Trainer sums them.
    Results do not depend on timing: two runs agree to the bit. Outside training, on one device, or
    with use_global_stats, the layer is BatchNorm. The axis is 1.

    num_devices: number of devices; None: the number of devices of its parameters. (MXNet uses the
    number of GPUs.)

    Call the net on the part of every device before you wait for any result. A wait that needs a
    missing part raises MXNetError: at once, or after two seconds if other live threads could supply
    the part. A part that arrives after this error raises MXNetError too. A num_devices larger than
    the parameters' number of devices raises MXNetError at the call. Only first-order gradients pass
    through the layer. In a hybridized net in training, only the Blocks that do not contain this
    layer are compiled. In symbols and files the layer is BatchNorm.
    """

    @with_parameters_of(BatchNorm.__init__, without="axis")
    def __init__(self, in_channels: int = 0, num_devices: int | None = None, **kwargs: Any):
        super().__init__(1, in_channels=in_channels, **kwargs)
        if num_devices is not None and num_devices < 1:
            raise ValueError(f"SyncBatchNorm: num_devices is 1 or more, got {num_devices}")
        self._num_devices = num_devices

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        if thread_state.trace is not None:
            if modes.training and not self._alone:
                raise FallbackToEager(
                    f"{self.name}: in training a SyncBatchNorm runs as it is written"
                )
            thread_state.trace.depends_on_mode()
        elif modes.training and not self._alone and isinstance(x, NDArray):
            n = self._devices()
            if n > 1:
                meets = _join_round(self, x.context, n)
                moving = running_mean, running_var
                return _Normalize(meets, self._kwargs, moving)(x, gamma, beta)
        return super().hybrid_forward(F, x, gamma, beta, running_mean, running_var)

    @property
    def _alone(self) -> bool:
        """True if the layer can never depend on other devices."""
        return self._num_devices == 1 or bool(self._kwargs["use_global_stats"])

    def _devices(self) -> int:
        """The number of devices that take part."""
        places = self.gamma.list_ctx()
        if self._num_devices is None:
            return len(places)
        if self._num_devices > len(places):
            raise MXNetError(
                f"SyncBatchNorm {self.name}: num_devices={self._num_devices}, but its parameters "
                f"are only on {places}; initialize it on all devices, or leave num_devices out"
            )
        return self._num_devices

    def __repr__(self) -> str:
        how = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items() if key != "axis")
        devices = f"ndev={self._num_devices}, key={self.prefix!r}"
        return f"SyncBatchNorm({how}, {devices}, in_channels={self.gamma.shape[0] or None})"
