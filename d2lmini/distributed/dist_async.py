"""The KVStore whose processes do not wait for one another: weights on a server, as in MXNet.

    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_async")
    ...
    trainer.step(X.shape[0])         # pushes gradients, and pulls the weights as they are now

Rank 0 keeps the weights and runs the optimizer (on a thread, see `server`, beside its own part of
the work). Each rank pushes its gradients when they are ready, and the server updates at once: of
four ranks one may take ten steps while another takes two. No rank waits for the slowest; in return
a gradient belongs to weights that other ranks have changed since (`staleness`), and no two runs are
alike.

As in MXNet every push is an update of its own, divided by the batch size of the pushing rank; there
must be an optimizer, and it runs on the server: `Trainer(update_on_kvstore=False)` is refused.
Unlike in MXNet, the learning rate and the batch size of the pushing rank count, also when they
change. All ranks must call `init`, `broadcast`, `set_optimizer` and `barrier`, as in `dist`.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from d2lmini import engine, files
from d2lmini import optimizer as opt
from d2lmini.base import MXNetError
from d2lmini.distributed import server
from d2lmini.distributed.dist import DistKVStore, operand
from d2lmini.distributed.server import OptimizerSettings, Request
from d2lmini.kvstore.local import Key, Pairs
from d2lmini.ndarray import NDArray, array
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes

_numbers = count()


class AsyncKVStore(DistKVStore):
    """Values by key, kept by rank 0; see this module.

    updates, staleness (on rank 0): number of pushes that have changed the values, and a Counter of
    the number of pushes by other ranks between a rank's pull and its next push.
    """

    is_async = True
    #: The number of processes whose batches make up one update.
    batches = 1

    def __init__(self, kind: str = "dist_async"):
        super().__init__(kind)
        self._number = next(_numbers)  # the same on all ranks, which create stores in one order
        self._served = False  # does the server have an updater?
        self._optimizer: opt.Optimizer | None = None
        self.updates = 0
        self.staleness: Counter[int] = Counter()
        self._seen = [0] * self.num_workers  # by rank: number of updates in its weights
        self._lock: Any = threading.RLock()
        if self.num_workers > 1:
            self._check_engine()
        if self.rank == 0 and self.num_workers > 1:
            if self._world.server is None:
                self._world.server = server.Server(self._world)
            self._lock = self._world.server.lock
            self._world.server.stores[self._number] = self

    def has_sums(self, contexts: list[Any]) -> bool:
        """False: the server updates."""
        return False

    # -- updates -----------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Update on the server with a copy of rank 0's optimizer. Each push carries `rescale_grad`
        and, if the optimizer has no scheduler, the learning rate."""
        super().set_optimizer(copy.copy(optimizer))
        self._optimizer = optimizer

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], None]) -> None:
        """Call `updater(key, gradient, value)`, rank 0's, on the server at every push; it must not
        wait."""
        if self.rank == 0:
            self._updater = updater
        self._optimizer, self._served = None, True
        by = type(getattr(updater, "optimizer", updater)).__name__
        self._exchange("SetUpdater", (f"update by {by}",), lambda: None, (), (), 0)

    _set_updater = set_updater

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """As in `KVStore`, on rank 0, which has the states; AssertionError on others."""
        assert self._updater is not None, "Cannot save states for distributed training"
        with self._lock:  # do not wait while holding it: the awaited work may need the server
            served = copy.copy(self._updater)
            served.states = dict(served.states)
        files.write(fname, served.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """As in `KVStore`, on rank 0; AssertionError on others."""
        with self._lock, server.suspend_bound():
            super().load_optimizer_states(fname)
            if self._optimizer is not None:
                vars(self._optimizer).update(vars(self._updater.optimizer))

    # -- values ------------------------------------------------------------------------------------

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key and let the server update by the sum. MXNetError if the server
        has no updater (`set_optimizer`)."""
        if not self._served:
            raise MXNetError(
                f"push: {self.type!r} updates at every push, and needs to know how: call "
                "set_optimizer(...) first, or let a Trainer do it"
            )
        pairs = self._pairs("push", key, value)
        how = None
        if self._optimizer is not None:
            scheduled = self._optimizer.lr_scheduler is not None
            how = OptimizerSettings(
                self._optimizer.rescale_grad, None if scheduled else self._optimizer.lr
            )
        with engine.prioritized(priority):
            keys, totals = self._totals(pairs)
            if self.rank == 0:
                self.push_update(
                    Request("push", self._number, tuple(keys), how, ends=True), totals, 0
                )
                return
            buckets = self._buckets(keys, totals)
            for bucket in buckets:
                request = Request(
                    "push", self._number, tuple(keys[i] for i in bucket.members), how, self._half,
                    bucket is buckets[-1],
                )  # fmt: skip
                self._push(request, [totals[i] for i in bucket.members])

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy the value of each key, as the server has it now, into the array or arrays of `out`.
        It includes the earlier pushes of this rank. MXNetError for a key that was not initialized,
        a different shape, or no `out`."""
        if self.rank == 0:
            with self._lock:  # pushes that the server is receiving came before
                self._seen[0] = self.updates
            super().pull(key, out, priority, ignore_sparse)
            return
        if out is None:
            raise MXNetError("pull: out= is required, the array or arrays to write to")
        pairs = self._pairs("pull", key, out)
        with engine.prioritized(priority):
            for bucket in self._buckets([k for k, _ in pairs], [self._store[k] for k, _ in pairs]):
                self._pull([pairs[i] for i in bucket.members])

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int = 0, in_turns: bool = False
    ) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`; always in that order."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    # -- messages ----------------------------------------------------------------------------------

    def _push(self, request: Request, totals: list[NDArray]) -> None:
        given, job = [operand(x) for x in totals], self._world
        self._wire(
            "Push", lambda: server.push(job, request, [array_of(x) for x in given]),
            [chunk for chunk, *_ in given], (), sum(spec.nbytes for *_, spec in given),
        )  # fmt: skip
        self.buckets_sent += 1

    def _pull(self, pairs: Pairs) -> None:
        """Fetch into this rank's own values, and copy from there to the other arrays."""
        job = self._world
        request = Request("pull", self._number, tuple(k for k, _ in pairs))
        targets = [self._targets(k, outs) for k, outs in pairs]
        wanted = [[operand(y) for y in copies] for copies in targets]
        note_writes([y for copies in targets for y in copies])
        self._wire(
            "Pull", lambda: server.pull(job, request, [[array_of(y) for y in c] for c in wanted]),
            (), [chunk for row in wanted for chunk, *_ in row],
            sum(row[0][2].nbytes for row in wanted),
        )  # fmt: skip
        for (k, outs), copies in zip(pairs, targets):
            for x in outs:
                if not any(x is y for y in copies):
                    self._store[k].copyto(x)

    def _wire(self, *args: Any) -> None:
        self._check_engine()
        super()._wire(*args)

    def _check_engine(self) -> None:
        if self.num_workers > 1 and engine.current.kind != "threaded":
            raise MXNetError(
                f"{self.type!r} needs the threaded engine, this is the {engine.current.kind} one: "
                "the server works while others wait; 'dist_sync' runs on any"
            )

    # -- called by the server's thread -------------------------------------------------------------

    def spec(self, key: Key) -> Any:
        """Dtype, shape and size of a value."""
        return self._store[key]._spec

    def push_update(
        self, request: Request, grads: Sequence[np.ndarray | NDArray], rank: int
    ) -> None:
        """Push the update for the gradients that a rank has pushed."""
        with self._lock, server.suspend_bound():
            arrays = [
                g if isinstance(g, NDArray) else array(g, dtype=self.spec(k).dtype)
                for k, g in zip(request.keys, grads)
            ]
            if request.how is not None:
                self._updater.optimizer.rescale_grad = request.how.rescale_grad
                if request.how.lr is not None:
                    self._updater.optimizer.lr = request.how.lr
            self._update([(k, g, self._store[k]) for k, g in zip(request.keys, arrays)])
            if request.ends:
                self.staleness[self.updates - self._seen[rank]] += 1
                self.updates += 1
                self._seen[rank] += 1  # its own update

    def values(self, request: Request, rank: int) -> list[np.ndarray]:
        """The values when all earlier pushes are done; waits."""
        self._seen[rank] = self.updates
        return [self._store[k].asnumpy() for k in request.keys]
