"""The KVStore whose processes do not wait for one another: weights on a server, as in MXNet.

    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_async")
    ...
    trainer.step(X.shape[0])         # pushes gradients, and pulls the weights as they are now

Rank 0 keeps the weights and runs the optimizer (a thread of it, see `server`, beside its own part
of the work). Each rank pushes its gradients when it has them, and at once the server updates by
them: of four ranks one may take ten steps while another takes two. Nobody waits for the slowest,
and the price is that a gradient is of weights which others have changed since (`staleness`), and
that no two runs are alike.

As in MXNet every push is an update of its own, divided by the batch of who pushes; there must be an
optimizer, and it runs on the server: `Trainer(update_on_kvstore=False)` is refused. Kinder than
MXNet's, the learning rate and the batch size of the rank that pushes count, also when they change.
`init`, `broadcast`, `set_optimizer` and `barrier` are met by all ranks, as in `dist`.
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
from d2lmini.distributed.server import How, Request
from d2lmini.kvstore.local import Key, Pairs
from d2lmini.ndarray import NDArray, array
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes

_numbers = count()


class AsyncKVStore(DistKVStore):
    """Values by key, kept by rank 0; see this module.

    updates, staleness (on rank 0): how many pushes have changed the values, and a Counter of how
    many of other ranks came between a rank's pull and its next push.
    """

    is_async = True
    #: How many processes' batches one update is made of.
    batches = 1

    def __init__(self, kind: str = "dist_async"):
        super().__init__(kind)
        self._number = next(_numbers)  # the same on all ranks, which make them in one order
        self._served = False  # is there an updater on the server?
        self._optimizer: opt.Optimizer | None = None
        self.updates = 0
        self.staleness: Counter[int] = Counter()
        self._seen = [0] * self.num_workers  # by rank: of how many updates its weights are
        self._lock: Any = threading.RLock()
        if self.num_workers > 1:
            self._check_engine()
        if self.rank == 0 and self.num_workers > 1:
            if self._world.server is None:
                self._world.server = server.Server(self._world)
            self._lock = self._world.server.lock
            self._world.server.stores[self._number] = self

    def has_sums(self, contexts: list[Any]) -> bool:
        """No: the server updates."""
        return False

    # -- who updates -------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Let the server update by a copy of this optimizer, that of rank 0. The learning rate, if
        it has no scheduler, and `rescale_grad` go along with each push."""
        super().set_optimizer(copy.copy(optimizer))
        self._optimizer = optimizer

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], None]) -> None:
        """Let the server call `updater(key, gradient, value)`, that of rank 0, at every push; it
        must not wait."""
        if self.rank == 0:
            self._updater = updater
        self._optimizer, self._served = None, True
        by = type(getattr(updater, "optimizer", updater)).__name__
        self._exchange("SetUpdater", (f"update by {by}",), lambda: None, (), (), 0)

    _set_updater = set_updater

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """As in `KVStore`, on rank 0, where they are; AssertionError on others."""
        assert self._updater is not None, "Cannot save states for distributed training"
        with self._lock:  # nobody waits with it: what is awaited may need the server
            served = copy.copy(self._updater)
            served.states = dict(served.states)
        files.write(fname, served.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """As in `KVStore`, on rank 0; AssertionError on others."""
        with self._lock, server.without_bound():
            super().load_optimizer_states(fname)
            if self._optimizer is not None:
                vars(self._optimizer).update(vars(self._updater.optimizer))

    # -- values ------------------------------------------------------------------------------------

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add up the arrays of each key and have the server update by the sum. MXNetError if it
        does not know how (`set_optimizer`)."""
        if not self._served:
            raise MXNetError(
                f"push: {self.type!r} updates at every push, and needs to know how: call "
                "set_optimizer(...) first, or let a Trainer do it"
            )
        pairs = self._pairs("push", key, value)
        how = None
        if self._optimizer is not None:
            scheduled = self._optimizer.lr_scheduler is not None
            how = How(self._optimizer.rescale_grad, None if scheduled else self._optimizer.lr)
        with engine.prioritized(priority):
            keys, totals = self._totals(pairs)
            if self.rank == 0:
                self.updated(Request("push", self._number, tuple(keys), how, ends=True), totals, 0)
                return
            buckets = self._buckets(keys, totals)
            for each in buckets:
                request = Request(
                    "push", self._number, tuple(keys[i] for i in each.members), how, self._half,
                    each is buckets[-1],
                )  # fmt: skip
                self._push(request, [totals[i] for i in each.members])

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy the value of each key, as the server has it now, into the array or arrays of `out`.
        What this rank has pushed before is in it. MXNetError for a key that was not initialized, a
        shape that differs, or no `out`."""
        if self.rank == 0:
            with self._lock:  # what the server is taking in was pushed before
                self._seen[0] = self.updates
            super().pull(key, out, priority, ignore_sparse)
            return
        if out is None:
            raise MXNetError("pull: out= is required, the array or arrays to write to")
        pairs = self._pairs("pull", key, out)
        for k, outs in pairs:
            self._check_shapes("pull", k, outs)
        with engine.prioritized(priority):
            for bucket in self._buckets([k for k, _ in pairs], [self._store[k] for k, _ in pairs]):
                self._pull([pairs[i] for i in bucket.members])

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int = 0, in_turns: bool = False
    ) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`; always in that order."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    # -- on their way ------------------------------------------------------------------------------

    def _push(self, request: Request, totals: list[NDArray]) -> None:
        given, job = [operand(x) for x in totals], self._world
        self._wire(
            "Push", lambda: server.push(job, request, [array_of(x) for x in given]),
            [chunk for chunk, *_ in given], (), sum(spec.nbytes for *_, spec in given),
        )  # fmt: skip
        self.buckets_sent += 1

    def _pull(self, pairs: Pairs) -> None:
        """Into the values that this rank has of its own, and from there to others."""
        job = self._world
        request = Request("pull", self._number, tuple(k for k, _ in pairs))
        targets = [self._targets(k, outs) for k, outs in pairs]
        wanted = [[operand(y) for y in copies] for copies in targets]
        self._wire(
            "Pull", lambda: server.pull(job, request, [[array_of(y) for y in c] for c in wanted]),
            (), [chunk for each in wanted for chunk, *_ in each],
            sum(each[0][2].nbytes for each in wanted), note_writes([y for c in targets for y in c]),
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

    # -- what the server's thread calls ------------------------------------------------------------

    def spec(self, key: Key) -> Any:
        """Dtype, shape and size of a value."""
        return self._store[key]._spec

    def updated(self, request: Request, grads: Sequence[np.ndarray | NDArray], rank: int) -> None:
        """Push the update by what a rank has pushed."""
        with self._lock, server.without_bound():
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
                self._seen[rank] += 1  # its own

    def values(self, request: Request, rank: int) -> list[np.ndarray]:
        """Values as they are when all that was pushed before is done; waits."""
        self._seen[rank] = self.updates
        return [self._store[k].asnumpy() for k in request.keys]
