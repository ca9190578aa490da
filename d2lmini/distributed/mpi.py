"""The processes of a job, over MPI: ranks, agreement on each exchange, and sums over all of them.

MPI is imported when the first `dist_...` KVStore is made, by `world()`: the import joins the job.

Every exchange begins with a check that all processes are at the same exchange, with the same names,
shapes and dtypes: the minimum and the maximum of a hash. A process that comes early polls and
sleeps in between; so waiting keeps no core busy, and a process that has ended its program meanwhile
is noticed. Data move only when all processes are there. Processes that differ get an error that
names the first difference, each at its own line of the program, before a byte was summed into the
wrong array.

Sums are computed in the order of the ranks: each process sums one share of the array, then all
gather the shares. 2 (n - 1) / n of the bytes pass each process, the minimum (Patarasuk and Yuan,
2009), and the bits depend on n alone: not on the MPI, and not on how arrays are bundled.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError, environment
from d2lmini.engine.core import Var

#: The kind of exchange, a verb; then (name, dtype and shape) of each array.
Plan = tuple[Any, ...]

#: Spin this long before sleeping.
SPIN_S = 2e-4
#: Longest sleep between two polls, while waiting for other processes; MOVING_S: while data move.
SLEEP_S = 1e-3
MOVING_S = 1e-4
#: Time that a launcher has to pass on the output of a process (a traceback) before it is asked to
#: end all processes: some launchers drop the rest.
PASS_ON_S = 0.2


class Link(NamedTuple):
    """How long messages take at least: on a throttled link as long as on a slower network.

    The processes of one machine exchange arrays through its memory, faster than any network. To see
    the effect of a network on a step, the environment of a job sets a rate in GB/s (None:
    unlimited) and seconds of latency per message:

        D2LMINI_LINK_GB_S=0.125 D2LMINI_LINK_LATENCY_S=1e-4     # about 1 Gbit/s

    Each process has one such link to all others. A message takes the latency plus the time of its
    bytes at this rate; the process sleeps meanwhile, so no core is busy and other threads can
    compute. Messages that start together share one latency, and the rate. Only bytes that this
    process sends count: in a sum over n processes of N bytes (n - 1) / n * N, twice, once for the
    shares to be added up, once for the sums. Before each sum all processes check that they agree,
    with 16 bytes that are passed on log2 n times.

    >>> f"{Link(0.125, 1e-4).seconds(1 << 20) * 1e3:.3g} ms for a bucket"
    '8.49 ms for a bucket'
    """

    gb_s: float | None = None
    latency_s: float = 0.0

    @classmethod
    def of_environment(cls) -> Link:
        """The link that the environment asks for."""
        names = "D2LMINI_LINK_GB_S", "D2LMINI_LINK_LATENCY_S"
        return cls(*map(environment.read, names))

    def seconds(self, nbytes: float, messages: int = 1) -> float:
        """Duration of `messages` in sequence, with `nbytes` in each."""
        moving_s = 0.0 if self.gb_s is None else nbytes / (self.gb_s * 1e9)
        return messages * (self.latency_s + moving_s)

    def hold(self, since: float, nbytes: float, messages: int = 1) -> None:
        """Sleep until a message that started at `since` (of `time.monotonic()`) has arrived."""
        until = since + self.seconds(nbytes, messages)
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(left_s)


class World:
    """All processes of the job, of which this one is `rank`, from 0 to `size` - 1.

    One thread at a time calls its methods (except `leave`), in an order that is the same in all
    processes: the tasks that call them write `order`.
    """

    def __init__(self, mpi: Any):
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()  # private: messages of the program cannot mix in
        self._side = mpi.COMM_WORLD.Dup()  # notices of ended programs: number of exchanges
        self.status = mpi.Status
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self.order = Var()
        self._plan: Plan = ()
        self._begun = 0  # number of exchanges that this process has begun
        self._gone: dict[int, int] = {}  # rank -> number of exchanges it had begun when it ended
        self._room: dict[int, np.ndarray] = {}
        self._unfinished: list[Any] = []
        self._link = Link.of_environment()
        self._rounds = (self.size - 1).bit_length()  # rounds until one message has reached all

    def agree(self, plan: Plan) -> None:
        """Wait for all processes with this plan; MXNetError if one differs, or is gone."""
        self._plan = plan
        self._begun += 1
        if self.size == 1:
            return
        mine = int.from_bytes(blake2b(repr(plan).encode(), digest_size=7).digest(), "big")
        least, ours = np.empty(2, np.int64), np.array([mine, -mine])
        self.until(self._comm.Iallreduce(ours, least, self._mpi.MIN), SLEEP_S)
        self._link.hold(time.monotonic(), ours.nbytes, self._rounds)  # all start now
        if least[0] != -least[1]:
            raise MXNetError(_difference(self._comm.allgather(plan)))

    def all_reduce(
        self, sources: Sequence[np.ndarray], targets: Sequence[Sequence[np.ndarray]]
    ) -> None:
        """Every target becomes the sum of its source over all processes, in the order of ranks.

        All sources have one dtype; float16 arrays are added up as float32.
        """
        dtype, n = sources[0].dtype, self.size
        share = -(-sum(x.size for x in sources) // n)
        mine = self.space(0, n * share, dtype)
        end = 0
        for x in sources:
            mine[end : end + x.size] = x.reshape(-1)
            end += x.size
        mine[end:] = 0
        exact = np.promote_types(dtype, np.float32) if dtype == np.float16 else dtype
        nbytes = share * mine.itemsize * (n - 1)  # leave this process, twice
        parts = self.space(1, mine.size, dtype)
        self._move(self._comm.Ialltoall, mine, parts, nbytes)
        total = parts[:share].astype(exact)
        for r in range(1, n):
            total += parts[r * share : (r + 1) * share]
        self._move(self._comm.Iallgather, total.astype(dtype, copy=False), mine, nbytes)
        end = 0
        for x, copies in zip(sources, targets):
            for target in copies:
                np.copyto(target, mine[end : end + x.size].reshape(target.shape))
            end += x.size

    def broadcast(self, arrays: Sequence[np.ndarray]) -> None:
        """Every array becomes that of rank 0."""
        for x in arrays:
            if x.size:
                begun = time.monotonic()
                self.until(self._comm.Ibcast(x.reshape(-1).view(np.uint8), 0))
                self._link.hold(begun, x.nbytes, self._rounds)

    def leave(self) -> None:
        """At the end of the program: finish what was pushed, and notify the other processes."""
        try:
            engine.current.wait_all("exit")
        except MXNetError as error:
            print(f"d2lmini: an error that no wait has raised:\n{error}", file=sys.stderr)
            self.abort()
        done = np.array([self._begun])
        for r in range(self.size):
            if r != self.rank:
                self._side.Isend(done, r).Wait()  # a few bytes are sent at once

    def abort(self, status: int = 1) -> None:
        """End all processes of the job, including this one."""
        told = f"d2lmini: rank {self.rank} of {self.size} has failed, and with it the job"
        print(told, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(PASS_ON_S)
        self._mpi.COMM_WORLD.Abort(status)
        os._exit(status)  # in some MPIs Abort returns

    def _move(self, call: Any, source: np.ndarray, target: np.ndarray, nbytes: int) -> None:
        """Exchange arrays by a function of MPI; `nbytes` leave this process."""
        begun = time.monotonic()
        self.until(call(source.view(np.uint8), target.view(np.uint8)))
        if nbytes:
            self._link.hold(begun, nbytes)

    def until(self, request: Any, sleep_s: float = MOVING_S) -> None:
        """Wait until the request is complete; MXNetError if a process is gone. MPI's own waits
        would keep a core busy, which others need if there are more processes than cores."""
        begun = time.monotonic()
        try:
            while not request.Test():
                waited = time.monotonic() - begun
                if waited > SPIN_S:
                    self._look_who_is_gone()
                time.sleep(0 if waited < SPIN_S else min(sleep_s, waited / 8))
        except BaseException:
            # Keep the request and so its arrays alive, because MPI may still write into them.
            self._unfinished.append(request)
            raise

    def _look_who_is_gone(self) -> None:
        status, done = self.status(), np.empty(1, np.int64)
        while self._side.Iprobe(status=status):
            self._side.Recv(done, status.source)
            self._gone[status.source] = int(done[0])
        for rank, last in self._gone.items():
            if last < self._begun:
                raise MXNetError(
                    f"dist: rank {rank} has ended its program, while rank {self.rank} waits for it "
                    f"to {_describe_plan(self._plan)}; all ranks must take the same number of steps"
                )

    def space(self, which: int, size: int, dtype: np.dtype) -> np.ndarray:
        """Memory to send from or receive in, kept for reuse."""
        nbytes = size * dtype.itemsize
        if self._unfinished:  # MPI may still write into the kept memory
            return np.empty(size, dtype)
        if which not in self._room or self._room[which].size < nbytes:
            self._room[which] = np.empty(nbytes, np.uint8)
        return self._room[which][:nbytes].view(dtype)


def _difference(plans: Sequence[Plan]) -> str:
    """How the first process that is not like most others differs from them."""
    usual = Counter(plans).most_common(1)[0][0]
    here, odd = plans.index(usual), next(r for r, plan in enumerate(plans) if plan != usual)
    a, b = usual, plans[odd]
    if a[0] != b[0]:
        what = f"rank {odd} is to {_describe_plan(b)}; rank {here} is to {_describe_plan(a)}"
    else:
        pairs = zip_longest(a[1:], b[1:], fillvalue=("none", "as there are no more"))
        nth, pair = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        usual_has, odd_has = ["{}, {}".format(*entry) for entry in pair]
        what = f"to {a[0]}, array {nth} is on rank {odd} {odd_has}; on rank {here} {usual_has}"
    return f"dist: the ranks differ: {what}. All ranks must run the same model and the same steps"


def _describe_plan(plan: Plan) -> str:
    names = [name for name, _ in plan[1:]]
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
    return f"{plan[0]} {', '.join(names[:3])}{more}".strip()


_world: World | None = None


def world() -> World:
    """The job of this process; a job of one process, if it was started without a launcher.
    MXNetError without MPI."""
    global _world
    if _world is None:
        try:
            from mpi4py import MPI as mpi
        except (ImportError, RuntimeError) as problem:  # from the package, or from MPI itself
            raise MXNetError(
                "dist KVStores need mpi4py and an MPI: pip install 'd2lmini[dist]' brings both (or "
                f"pip install mpi4py, beside an MPI of the machine's). Now: {problem}"
            ) from None
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise MXNetError(
                "dist KVStores need an MPI that several threads may call (MPI_THREAD_MULTIPLE), "
                f"which this one does not offer: {mpi.Get_library_version().splitlines()[0]}"
            )
        _world = World(mpi)
        if _world.size > 1:
            _end_together(_world)
    return _world


def _end_together(job: World) -> None:
    """A process that fails ends the others: else they would wait for it for ever."""
    before = sys.excepthook

    def ended_by(*problem: Any) -> None:
        before(*problem)
        job.abort()

    sys.excepthook = ended_by
    atexit.register(job.leave)
