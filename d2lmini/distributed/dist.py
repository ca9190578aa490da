"""The KVStore of several processes, on one machine or many: sums over all of their devices.

    # train.py, run by: python -m d2lmini launch -n 4 train.py
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    ...                              # each process computes with its own part of the data:
    trainer.step(X.shape[0])         # the update is that of one process with all the data

Each process sums the gradients of its own devices; these sums travel, and every process gets the
sum over all processes, in the order of the ranks (see `mpi`), and updates its own weights: there is
no server. The same job twice gives the same bits.

An exchange is a task of the engine like any other, and so it overlaps with backward: the gradient
of the last layer is ready first and is sent while earlier ones are computed. Processes must
exchange the same arrays in the same order, or they would sum unrelated arrays. So all exchange
tasks write one Var, and run one after the other in push order, on a thread of their own: a task
that is ready early waits. Arrays travel in buckets, because each message has a fixed cost; the plan
of the buckets depends on shapes and dtypes alone, and so does their order: in a Trainer's step some
travel later, during the next forward pass (`in_turns`).

Gradients on GPUs are copied to the host, summed there, and copied back.

MXNet's KVStore of this name keeps the weights on servers, to which gradients are pushed; summing
them here follows Horovod (Sergeev and Del Balso, arXiv:1802.05799).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from d2lmini import engine
from d2lmini.context import Context, cpu
from d2lmini.distributed.mpi import Plan, world
from d2lmini.engine import worker_pools
from d2lmini.engine.core import FunctionTask, Var
from d2lmini.kvstore.local import Key, KVStore, Pairs, total_of
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Cost

#: The first bucket is small, to start soon; later ones are large, to make the fixed cost small.
FIRST_BUCKET = 1 << 18
BUCKET = 1 << 20

T = TypeVar("T")
Operand = tuple[Any, Any, Any]  # chunk, offset, spec


class Exchange(FunctionTask):
    """A transfer between processes; `nbytes` pass this process."""

    __slots__ = ("nbytes",)

    nbytes: int
    lane = worker_pools.WIRE

    def keeps(self, var: Any) -> bool:
        return False  # a failed sum: later exchanges must not go ahead on this process alone

    def run(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            super().run()

    def footprint(self) -> Any:
        nbytes = float(self.nbytes)
        return lambda: Cost(0.0, nbytes)


class Bucket(NamedTuple):
    """The arrays that travel together: their indices, and their specs."""

    members: list[int]
    plan: Plan


class DistKVStore(KVStore):
    """Values by key, the same in all processes; see this module.

    All processes call the same methods with the same keys, in the same order. names: names of keys
    in messages; a Trainer enters the names of its parameters. divisor: the number by which the sums
    will be divided, if known: a Trainer enters the size of its batches, which must be the same in
    all processes. buckets_sent: number of buckets exchanged (or to be exchanged, when all that was
    pushed is done).
    """

    spans_processes = True

    def __init__(self, kind: str = "dist_sync"):
        super().__init__(kind)
        self._world = world()
        self.rank = self._world.rank
        self.num_workers = self._world.size
        self.names: dict[Key, str] = {}
        self.divisor: float | None = None
        self.buckets_sent = 0
        self._plans: dict[Any, list[Bucket]] = {}

    @property
    def batches(self) -> int:
        """The number of processes whose batches make up one update."""
        return self.num_workers

    def has_sums(self, contexts: list[Context]) -> bool:
        """True: every device updates its own weights, because all devices get the sums."""
        return True

    # -- values ------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of each value: that of rank 0, in all processes."""
        super().init(key, value)
        self._broadcast([k for k, _ in self._pairs("init", key, value)])

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, or a new value for existing keys, then `pull`."""
        pairs = self._pairs("broadcast", key, value)
        for k, values in pairs:
            if k in self._store:
                self._replace(k, values[0])
            else:
                super().init(k, values[0])
        self._broadcast([k for k, _ in pairs])
        self.pull(key, out, priority)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key over all processes; the sum becomes its value, or goes to the
        updater, which runs in every process."""
        pairs = self._pairs("push", key, value)
        with engine.prioritized(priority):
            sums = self._sum(pairs, {})
            if self._updater is not None:
                self._update([(k, sums[k], self._store[k]) for k, _ in pairs])

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int = 0, in_turns: bool = False
    ) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`. in_turns: send in the
        order of `in_turns`, for a caller that uses the first sums before the last ones arrive."""
        out = value if out is None else out
        if self._updater is not None:
            super().pushpull(key, value, out, priority)
            return
        outs = dict(self._pairs("pull", key, out))
        pairs = self._pairs("push", key, value)
        with engine.prioritized(priority):
            self._sum(pairs, outs, in_turns)
            for k, arrays in outs.items():
                for x in arrays:
                    if not _is_like(x, self._store[k]):
                        self._store[k].copyto(x)

    def barrier(self) -> None:
        """Block until all processes are here, and their earlier pushes to KVStores are done."""
        self._exchange("Barrier", ("wait at a barrier",), lambda: None, (), (), 0)
        engine.wait_for_var(self._world.order)

    _barrier = barrier

    # -- exchanges ---------------------------------------------------------------------------------

    def _broadcast(self, keys: list[Key]) -> None:
        """Give all processes the values of rank 0."""
        values = [operand(self._value(k)) for k in keys]
        plan = ("begin with the values of rank 0 for", *self._describe(keys, values))
        chunks = [chunk for chunk, *_ in values]
        job = self._world
        self._exchange(
            "Broadcast", plan, lambda: job.broadcast([array_of(x) for x in values]),
            chunks, chunks, sum(spec.nbytes for *_, spec in values),
        )  # fmt: skip

    def _sum(
        self, pairs: Pairs, outs: dict[Key, list[NDArray]], alternating: bool = False
    ) -> dict[Key, NDArray]:
        """Push the sums over all processes: into the values and the `outs` that are like them or,
        with an updater, into fresh arrays. Returns the arrays written, by key."""
        # The last key first, because backward reaches the last layer first.
        keys = [k for k, _ in pairs[::-1]]
        sources = [self._total(k, values) for k, values in pairs[::-1]]
        sums, targets = {}, []
        for k in keys:
            if self._updater is None:
                value = self._value(k)
                targets.append([value, *(x for x in outs.get(k, []) if _is_like(x, value))])
            else:
                targets.append([registry["zeros_like"](self._value(k))])
            sums[k] = targets[-1][0]
        buckets = self._buckets(keys, sources)
        for bucket in in_turns(buckets) if alternating else buckets:
            self._send(
                bucket, [sources[i] for i in bucket.members], [targets[i] for i in bucket.members]
            )
        return sums

    def _value(self, key: Key) -> NDArray:
        """The value of `key`, moved to the CPU."""
        if not self._store[key].context.is_cpu:
            self._store[key] = self._store[key].copyto(cpu())
        return self._store[key]

    def _total(self, key: Key, values: list[NDArray]) -> NDArray:
        """The sum over the devices of this process, on the CPU."""
        return total_of([x.as_in_context(cpu()) for x in values]).astype(
            self._store[key].dtype, copy=False
        )

    def _send(self, bucket: Bucket, sources: list[NDArray], targets: list[list[NDArray]]) -> None:
        given = [operand(x) for x in sources]
        wanted = [[operand(y) for y in target] for target in targets]
        job = self._world

        def run() -> None:
            job.all_reduce(
                [array_of(x) for x in given], [[array_of(y) for y in row] for row in wanted]
            )

        nbytes = sum(spec.nbytes for *_, spec in given)
        note_writes([y for target in targets for y in target])
        self._exchange(
            "AllReduce", bucket.plan, run,
            [chunk for chunk, *_ in given], [chunk for row in wanted for chunk, *_ in row],
            2 * nbytes * (job.size - 1) // job.size,
        )  # fmt: skip
        self.buckets_sent += 1

    def _exchange(
        self, name: str, plan: Plan, fn: Callable[[], object], reads: Sequence[Var],
        writes: Sequence[Var], nbytes: int,
    ) -> None:  # fmt: skip
        """Push a task that all processes must take part in; see this module for its order."""
        job = self._world

        def run() -> None:
            job.agree(plan)
            fn()

        order = job.order
        # `order` is changed in place: if a task fails, all later tasks are skipped.
        task = Exchange(run, name, (*reads, order), (*writes, order))
        task.nbytes = nbytes
        engine.current.push(task)

    # -- the plan ----------------------------------------------------------------------------------

    def _buckets(self, keys: list[Key], arrays: list[NDArray]) -> list[Bucket]:
        """The arrays that travel together: neighbours of one dtype, up to a size."""
        known = (*keys, *[x._spec for x in arrays], len(self.names), self.divisor)
        if known not in self._plans:
            specs = [x._spec for x in arrays]
            way = "sum up" if self.divisor is None else f"sum up for step({self.divisor:g})"
            described = self._describe(keys, [operand(x) for x in arrays])
            self._plans[known] = [
                Bucket(some, (way, *(described[i] for i in some)))
                for some in group_by_bucket([s.nbytes for s in specs], [s.dtype for s in specs])
            ]
        return self._plans[known]

    def parts(self, keys: list[Key]) -> list[list[Key]]:
        """The keys whose sums arrive together, in the order of `in_turns`."""
        buckets = self._buckets(keys[::-1], [self._store[k] for k in keys[::-1]])
        return [[keys[-1 - i] for i in bucket.members] for bucket in in_turns(buckets)]

    def _describe(self, keys: list[Key], operands: list[Operand]) -> list[tuple[str, str]]:
        return [
            (str(self.names.get(k, k)), f"{np.dtype(spec.dtype).name} {spec.shape}")
            for k, (*_, spec) in zip(keys, operands)
        ]


def group_by_bucket(nbytes: Sequence[int], dtypes: Sequence[Any]) -> list[list[int]]:
    """The indices of arrays of these sizes and dtypes that share a bucket, in order.

    >>> group_by_bucket([100, 100, 1 << 18, 8 << 20, 40, 40], ["f4"] * 4 + ["f4", "f8"])
    [[0, 1], [2], [3], [4], [5]]
    """
    found: list[list[int]] = []
    held = 0
    for i, size in enumerate(nbytes):
        most = BUCKET if len(found) > 1 else FIRST_BUCKET
        if not found or held + size > most or dtypes[i] != dtypes[i - 1]:
            found.append([])
            held = 0
        found[-1].append(i)
        held += size
    return found


def in_turns(buckets: Sequence[T]) -> list[T]:
    """The order in which buckets are sent, given the order in which backward produces them: every
    third bucket is held back and follows after backward, the first layers' buckets first. Forward
    takes about half as long as backward; so the link is busy while the next forward pass goes
    through the layers that are complete, and each later layer finds its sum.

    >>> in_turns([8, 7, 6, 5, 4, 3, 2, 1, 0])
    [8, 7, 5, 4, 2, 1, 0, 3, 6]
    """
    stay = [i for i in range(len(buckets)) if i % 3 == 2]
    return [buckets[i] for i in range(len(buckets)) if i % 3 < 2] + [buckets[i] for i in stay[::-1]]


def operand(x: NDArray) -> Operand:
    return x._chunk, x._offset, x._spec


def _is_like(x: NDArray, value: NDArray) -> bool:
    """True if a task can write `x` on the CPU together with `value`."""
    return x.context.is_cpu and x._spec == value._spec
