"""The KVStore of several processes, on one machine or many: sums over all of their devices.

    # train.py, run by: python -m d2lmini launch -n 4 train.py
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    ...                              # each process computes with its own part of the data:
    trainer.step(X.shape[0])         # the update is that of one process with all of it

Each process adds up the gradients of its own devices; those sums travel, and every process gets the
sum over all of them, in the order of the ranks (see `mpi`), and updates its own weights by it:
there is no server. The same job twice gives the same bits.

What travels is a task of the engine like any other, and so it overlaps with backward: the gradient
of the last layer, which is there first, sets out while those before it are computed. Processes must
exchange the same arrays in the same order, or they would add up what does not belong together. So
all those tasks write one Var, and run one after the other in the order in which they were pushed,
on a thread of their own: one that is ready early waits. Arrays travel in buckets, for each message
costs its time whatever its size; the plan of the buckets depends on shapes and dtypes alone, and so
does their order: in a Trainer's step some travel later, during the next forward pass (`in_turns`).

Gradients on GPUs are summed by NCCL where it is there (in the add-on `cuda`), without coming to the
host; else they come and go by pinned memory.

MXNet's KVStore of this name keeps the weights on servers, to which gradients are pushed; how they
are summed here is how Horovod does it (Sergeev and Del Balso, arXiv:1802.05799).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from d2lmini import addons, engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.distributed import throttle
from d2lmini.distributed.mpi import Plan, world
from d2lmini.engine import lanes
from d2lmini.engine.core import FunctionTask, Var
from d2lmini.kvstore.allreduce import Sum, keep
from d2lmini.kvstore.local import Key, KVStore, Pairs
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Cost

#: The first bucket is small, to set out soon; then the cost of a message is small beside its size.
FIRST_BUCKET = 1 << 18
BUCKET = 1 << 20

T = TypeVar("T")
Operand = tuple[Any, Any, Any]  # chunk, offset, spec


class Exchange(FunctionTask):
    """Something that travels between processes; `nbytes` pass this one."""

    __slots__ = ("nbytes",)

    nbytes: int
    lane = lanes.WIRE

    def keeps(self, var: Any) -> bool:
        return False  # sums; and who comes later on the wire must not go ahead alone

    def run(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            super().run()

    def footprint(self) -> Any:
        nbytes = float(self.nbytes)
        return lambda: Cost(0.0, nbytes)


class Bucket(NamedTuple):
    """The arrays that travel together: which ones, and what they are."""

    members: list[int]
    plan: Plan


class DistKVStore(KVStore):
    """Values by key, the same in all processes; see this module.

    All processes call the same methods with the same keys, in the same order. names: what messages
    call a key; a Trainer enters the names of its parameters. divisor: by what the sums are going to
    be divided, if that is known: a Trainer enters the size of its batches, which must be the same
    in all processes. buckets_sent: how many were exchanged (or will be, when all that was pushed is
    done).
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
        self._half = False
        self._plans: dict[Any, list[Bucket]] = {}

    @property
    def batches(self) -> int:
        """How many processes' batches one update is made of."""
        return self.num_workers

    def has_sums(self, contexts: list[Context]) -> bool:
        """Every device updates its own weights, for the sums are brought to all of them."""
        return True

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """{'type': 'fp16'}: floats travel as float16, and are added up as float32. A sum beyond
        65504 becomes inf. MXNetError for any other type."""
        if compression_params != {"type": "fp16"}:
            raise MXNetError(
                f"gradient compression {compression_params!r}: {self.type!r} knows only "
                "{'type': 'fp16'}; '2bit' is for the devices of one process, create('device')"
            )
        self._half = True

    # -- values ------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of each value, that of rank 0 in all processes."""
        super().init(key, value)
        self._spread([k for k, _ in self._pairs("init", key, value)])

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, or another value for keys that are there, then `pull`."""
        pairs = self._pairs("broadcast", key, value)
        for k, values in pairs:
            if k in self._store:
                self._replace(k, values[0])
            else:
                super().init(k, values[0])
        self._spread([k for k, _ in pairs])
        self.pull(key, out, priority)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add up the arrays of each key over all processes; the sum becomes its value, or goes to
        the updater, which runs in every process."""
        pairs = self._pairs("push", key, value)
        with engine.prioritized(priority):
            sums = self._sum(pairs, {})
            if self._updater is not None:
                self._update([(k, sums[k], self._store[k]) for k, _ in pairs])

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int = 0, in_turns: bool = False
    ) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`. in_turns: in the order of
        `in_turns`, for who uses the first key's sum without waiting for the last one's."""
        out = value if out is None else out
        if self._updater is not None:
            super().pushpull(key, value, out, priority)
            return
        outs = dict(self._pairs("pull", key, out))
        for k, arrays in outs.items():
            self._check_shapes("pull", k, arrays)
        pairs = self._pairs("push", key, value)
        with engine.prioritized(priority):
            by_nccl = self._sum_by_nccl(pairs, outs, in_turns)
            self._sum([each for each in pairs if each[0] not in by_nccl], outs, in_turns)
            for k, arrays in outs.items():
                for x in arrays if k not in by_nccl else ():
                    if not _is_like(x, self._store[k]):
                        self._store[k].copyto(x)

    def barrier(self) -> None:
        """Block until all processes are here, and what they pushed to KVStores before is done."""
        self._exchange("Barrier", ("wait at a barrier",), lambda: None, (), (), 0)
        engine.wait_for_var(self._world.order)

    _barrier = barrier

    # -- what travels ------------------------------------------------------------------------------

    def _spread(self, keys: list[Key]) -> None:
        """The values of rank 0 for all."""
        values = [operand(self._value(k)) for k in keys]
        plan = ("begin with the values of rank 0 for", *self._described(keys, values))
        chunks = [chunk for chunk, *_ in values]
        job = self._world
        self._exchange(
            "Broadcast", plan, lambda: job.broadcast([array_of(x) for x in values]),
            chunks, chunks, sum(spec.nbytes for *_, spec in values),
        )  # fmt: skip

    def _sum(
        self, pairs: Pairs, outs: dict[Key, list[NDArray]], alternating: bool = False
    ) -> dict[Key, NDArray]:
        """Push the sums over all processes: into the values and those of `outs` that are like them,
        or if there is an updater into fresh arrays. What they are written to, by key."""
        keys, sources = self._totals(pairs)
        sums, targets = {}, []
        for k in keys:
            if self._updater is None:
                targets.append(self._targets(k, outs.get(k, [])))
            else:
                targets.append([registry["zeros_like"](self._value(k))])
            sums[k] = targets[-1][0]
        buckets = self._buckets(keys, sources)
        for bucket in in_turns(buckets) if alternating else buckets:
            self._send(
                bucket, [sources[i] for i in bucket.members], [targets[i] for i in bucket.members]
            )
        return sums

    def _sum_by_nccl(
        self, pairs: Pairs, outs: dict[Key, list[NDArray]], alternating: bool
    ) -> set[Key]:
        """Push those sums that NCCL can take over the GPUs of all processes; their keys."""
        nccl = addons.find("sum_over_processes", required=False)
        found: dict[Key, tuple[list[NDArray], Any]] = {}
        if nccl is not None and not self._half and not any(throttle.current()):
            for k, values in pairs[::-1]:
                lane = nccl.lane_of(values, outs[k]) if k in outs else None
                if lane is not None:
                    self._check_shapes("push", k, values)
                    found[k] = values, lane
        over = {(*[x.context for x in values],) for values, _ in found.values()}
        if len(over) != 1:
            return set()  # nothing, or here these devices and there those
        keys = list(found)
        plans = self._buckets(keys, [found[k][0][0] for k in keys], "sum up by NCCL")
        for bucket in in_turns(plans) if alternating else plans:
            some = [keys[i] for i in bucket.members]
            sums = [Sum(found[k][0], outs[k]) for k in some]
            nccl.all_reduce(found[some[0]][1], sums, self._world, bucket.plan)
            for k in some:  # values stay where their sums are
                if self._store[k].context != outs[k][0].context:
                    self._store[k] = self._store[k].copyto(outs[k][0].context)
            keep([(outs[k][0], self._store[k]) for k in some])
            self.buckets_sent += 1
        return set(keys)

    def _value(self, key: Key) -> NDArray:
        """The value of `key`, on the CPU from now on."""
        if not self._store[key].context.is_cpu:
            self._store[key] = self._store[key].copyto(cpu())
        return self._store[key]

    def _totals(self, pairs: Pairs) -> tuple[list[Key], list[NDArray]]:
        """The sum over the devices of this process, for each key, on the CPU; the last key first,
        for backward comes to the last layer first."""
        for k, values in pairs:
            self._check_shapes("push", k, values)
        totals = []
        for k, values in pairs[::-1]:
            dtype = self._store[k].dtype
            parts = self._parts(k, values, cpu())
            total = parts[0] if len(parts) == 1 else registry["add_n"](*parts)
            totals.append(total if total.dtype == dtype else total.astype(dtype))
        return [k for k, _ in pairs[::-1]], totals

    def _targets(self, key: Key, outs: list[NDArray]) -> list[NDArray]:
        """The value of `key`, and those arrays that the same task can write."""
        value = self._value(key)
        return [value, *(x for x in outs if _is_like(x, value))]

    def _send(self, bucket: Bucket, sources: list[NDArray], targets: list[list[NDArray]]) -> None:
        given = [operand(x) for x in sources]
        wanted = [[operand(y) for y in each] for each in targets]
        job, half = self._world, self._half

        def run() -> None:
            job.all_reduce(
                [array_of(x) for x in given], [[array_of(y) for y in each] for each in wanted], half
            )

        nbytes = sum(spec.nbytes for *_, spec in given)
        site = note_writes([y for each in targets for y in each])
        self._exchange(
            "AllReduce", bucket.plan, run,
            [chunk for chunk, *_ in given], [chunk for each in wanted for chunk, *_ in each],
            2 * nbytes * (job.size - 1) // job.size, site,
        )  # fmt: skip
        self.buckets_sent += 1

    def _exchange(
        self, name: str, plan: Plan, fn: Callable[[], object], reads: Sequence[Var],
        writes: Sequence[Var], nbytes: int, site: Any = None,
    ) -> None:  # fmt: skip
        """Push a task that all processes have to come to; see this module for its order."""
        job = self._world

        def run() -> None:
            job.agree(plan)
            fn()

        self._wire(name, run, reads, writes, nbytes, site)

    def _wire(
        self, name: str, fn: Callable[[], object], reads: Sequence[Var], writes: Sequence[Var],
        nbytes: int, site: Any = None,
    ) -> None:  # fmt: skip
        """Push a task to the thread for what travels, behind all others there."""
        order = self._world.order
        # It is changed in place: if one fails, those that come after it are skipped.
        task = Exchange(fn, name, (*reads, order), (*writes, order))
        task.nbytes, task.site = nbytes, site
        engine.current.push(task)

    # -- the plan ----------------------------------------------------------------------------------

    def _buckets(self, keys: list[Key], arrays: list[NDArray], way: str = "sum up") -> list[Bucket]:
        """Which arrays travel together: neighbours of one dtype, up to a size. way: what is done
        with them."""
        known = (
            *keys, *[x._spec for x in arrays], len(self.names), way, self._half, self.divisor
        )  # fmt: skip
        if known not in self._plans:
            specs = [x._spec for x in arrays]
            way = f"{way} as float16" if self._half else way
            if self.divisor is not None:
                way = f"{way} for step({self.divisor:g})"
            described = self._described(keys, [operand(x) for x in arrays])
            self._plans[known] = [
                Bucket(some, (way, *(described[i] for i in some)))
                for some in grouped([s.nbytes for s in specs], [s.dtype for s in specs])
            ]
        return self._plans[known]

    def parts(self, keys: list[Key]) -> list[list[Key]]:
        """The keys whose sums come together, in the order of `in_turns`."""
        buckets = self._buckets(keys[::-1], [self._store[k] for k in keys[::-1]])
        return [[keys[-1 - i] for i in bucket.members] for bucket in in_turns(buckets)]

    def _described(self, keys: list[Key], operands: list[Operand]) -> list[tuple[str, str]]:
        return [
            (str(self.names.get(k, k)), f"{np.dtype(spec.dtype).name} {spec.shape}")
            for k, (*_, spec) in zip(keys, operands)
        ]


def grouped(nbytes: Sequence[int], dtypes: Sequence[Any]) -> list[list[int]]:
    """Which of arrays of these sizes and dtypes go in one bucket, in their order.

    >>> grouped([100, 100, 1 << 18, 8 << 20, 40, 40], ["f4"] * 4 + ["f4", "f8"])
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
    """The order in which buckets set out, given that in which backward comes to them: every third
    stays behind and follows when backward is over, those of the first layers first. Forward takes
    about half as long as backward; so the link has something to carry while the next pass goes
    forward through the layers that are complete, and each of its layers finds its sum.

    >>> in_turns([8, 7, 6, 5, 4, 3, 2, 1, 0])
    [8, 7, 5, 4, 2, 1, 0, 3, 6]
    """
    stay = [i for i in range(len(buckets)) if i % 3 == 2]
    return [buckets[i] for i in range(len(buckets)) if i % 3 < 2] + [buckets[i] for i in stay[::-1]]


def operand(x: NDArray) -> Operand:
    return x._chunk, x._offset, x._spec


def _is_like(x: NDArray, value: NDArray) -> bool:
    """Can it be written where `value` is, on the CPU, by the same task?"""
    return x.context.is_cpu and x._spec == value._spec
