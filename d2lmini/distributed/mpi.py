"""The processes of a job, over MPI: who they are, do they agree, and the sum over all of them.

MPI is imported when the first `dist_...` KVStore is made, by `world()`: to import it begins a job.

Every exchange begins with the question whether all processes are at the same one, with the same
names, shapes and dtypes: the least and the greatest of a hash of it. Whoever comes early asks now
and then, and sleeps between; so waiting keeps no core busy, and a process that has ended its
program meanwhile is noticed. Only when all are there does data move. Two that differ get an error
that names the first difference, each on its own line of the program, before a byte of it was summed
into something else.

A sum is taken in the order of the ranks: each process adds up one share of the array, then all
gather the shares. 2 (n - 1) / n of its bytes pass each process, the least there can be (Patarasuk
and Yuan, 2009), and the bits depend on n alone: not on the MPI, and not on how arrays are bundled.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import zip_longest
from types import TracebackType
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.distributed import throttle
from d2lmini.engine.core import Var

#: What is to be done, a verb; then (name, dtype and shape) of each array.
Plan = tuple[Any, ...]

#: So long a process that waits asks without a pause.
SPIN_S = 2e-4
#: So long it sleeps at most between two questions: for the others to come, and while data moves.
SLEEP_S = 1e-3
MOVING_S = 1e-4
#: So long a launcher has to pass on what a process has printed, a traceback, before it is told to
#: end all of them: there are some that drop the rest.
PASS_ON_S = 0.2


class World:
    """All processes of the job, of which this one is `rank`, from 0 to `size` - 1.

    Its methods but `leave` are called by one thread at a time, in an order that is the same in all
    processes: the tasks that call them write `order`.
    """

    def __init__(self, mpi: Any):
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()  # for nobody else: what a program sends cannot mix in
        self._side = mpi.COMM_WORLD.Dup()  # who has ended its program, and after how much
        self.served = mpi.COMM_WORLD.Dup()  # requests to the server of `dist_async`
        self.server: Any = None  # on rank 0, if there is one
        self.status = mpi.Status
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self.order = Var()
        self._plan: Plan = ()
        self._begun = 0  # exchanges that this process has come to
        self._gone: dict[int, int] = {}  # rank -> how many it had come to when it ended
        self._room: dict[int, np.ndarray] = {}
        self._unfinished: list[Any] = []
        self._link = throttle.current()
        self._rounds = (self.size - 1).bit_length()  # until one process's word has come to all

    def agree(self, plan: Plan) -> None:
        """Until all processes are here with this plan; MXNetError if one differs, or is gone."""
        self._plan, self._link = plan, throttle.current()
        self._begun += 1
        if self.size == 1:
            return
        mine = int.from_bytes(blake2b(repr(plan).encode(), digest_size=7).digest(), "big")
        least, ours = np.empty(2, np.int64), np.array([mine, -mine])
        self.until(self._comm.Iallreduce(ours, least, self._mpi.MIN), SLEEP_S)
        self._link.hold(time.monotonic(), ours.nbytes, self._rounds)  # all have set out just now
        if least[0] != -least[1]:
            raise MXNetError(_difference(self._comm.allgather(plan)))

    def all_reduce(
        self, sources: Sequence[np.ndarray], targets: Sequence[Sequence[np.ndarray]], half: bool
    ) -> None:
        """Every target becomes the sum of its source over all processes, in the order of ranks.

        All sources have one dtype. `half`: floats travel as float16 and are added up as float32;
        so are those that are float16.
        """
        dtype, n = sources[0].dtype, self.size
        wire = np.dtype(np.float16) if half and dtype.kind == "f" else dtype
        share = -(-sum(x.size for x in sources) // n)
        mine, parts = self.space(0, n * share, wire), self.space(1, n * share, wire)
        end = 0
        for x in sources:
            mine[end : end + x.size] = x.reshape(-1)
            end += x.size
        mine[end:] = 0
        sent = share * wire.itemsize * (n - 1)
        self._move(self._comm.Ialltoall, mine, parts, sent)
        exact = np.promote_types(dtype, np.float32) if wire == np.float16 else dtype
        total = parts[:share].astype(exact)
        for r in range(1, n):
            total += parts[r * share : (r + 1) * share]
        parts[:share] = total
        self._move(self._comm.Iallgather, parts[:share], mine, sent)
        end = 0
        for x, copies in zip(sources, targets):
            for target in copies:
                np.copyto(target, mine[end : end + x.size].reshape(target.shape))
            end += x.size

    def meet(self, make: Callable[[], Any], count: int) -> tuple[Any, int, int]:
        """What rank 0 makes, how many the ranks before this one count, and how many all do."""
        made = self._comm.bcast(make() if self.rank == 0 else None)
        counts = self._comm.allgather(count)
        return made, sum(counts[: self.rank]), sum(counts)

    def broadcast(self, arrays: Sequence[np.ndarray]) -> None:
        """Every array becomes that of rank 0."""
        for x in arrays:
            if x.size:
                begun = time.monotonic()
                self.until(self._comm.Ibcast(x.reshape(-1).view(np.uint8), 0))
                self._link.hold(begun, x.nbytes, self._rounds)

    def leave(self) -> None:
        """When the program ends: finish what was pushed, and let the others know."""
        try:
            engine.current.wait_all("exit")
        except MXNetError as error:
            print(f"d2lmini: an error that no wait has raised:\n{error}", file=sys.stderr)
            self.abort()
        done = np.array([self._begun])
        for r in range(self.size):
            if r != self.rank:
                self._side.Isend(done, r).Wait()  # a few bytes are on their way at once
        if self.server is not None:
            wait_until(self._are_all_gone, SLEEP_S)
            self.server.finish()

    def abort(self, status: int = 1) -> None:
        """End all processes of the job, this one too."""
        told = f"d2lmini: rank {self.rank} of {self.size} has failed, and with it the job"
        print(told, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(PASS_ON_S)
        self._mpi.COMM_WORLD.Abort(status)
        os._exit(status)  # there are MPIs whose Abort returns

    def _move(self, call: Any, source: np.ndarray, target: np.ndarray, nbytes: int) -> None:
        """Exchange arrays by a call of MPI's; `nbytes` leave this process."""
        begun = time.monotonic()
        self.until(call(source.view(np.uint8), target.view(np.uint8)))
        if nbytes:
            self._link.hold(begun, nbytes)

    def until(self, request: Any, sleep_s: float = MOVING_S) -> None:
        """Until what was requested is done, by all who have a part in it."""
        try:
            wait_until(request.Test, sleep_s, self._look_who_is_gone)
        except BaseException:
            # MPI may still write into the arrays of the request, which keeps them alive.
            self._unfinished.append(request)
            raise

    def _look_who_is_gone(self) -> None:
        self._note_who_is_gone()
        for rank, last in self._gone.items():
            if last < self._begun:
                raise MXNetError(
                    f"dist: rank {rank} has ended its program, while rank {self.rank} waits for it "
                    f"to {_told(self._plan)}; all ranks must take as many steps"
                )

    def _note_who_is_gone(self) -> None:
        status, done = self.status(), np.empty(1, np.int64)
        while self._side.Iprobe(status=status):
            self._side.Recv(done, status.source)
            self._gone[status.source] = int(done[0])

    def _are_all_gone(self) -> bool:
        self._note_who_is_gone()
        return len(self._gone) == self.size - 1

    def space(self, which: int, size: int, dtype: np.dtype) -> np.ndarray:
        """Memory to send from or receive in, kept for the next time."""
        nbytes = size * dtype.itemsize
        if self._unfinished:  # MPI may still write there
            return np.empty(size, dtype)
        if which not in self._room or self._room[which].size < nbytes:
            self._room[which] = np.empty(nbytes, np.uint8)
        return self._room[which][:nbytes].view(dtype)


def wait_until(
    done: Callable[[], bool], sleep_s: float = MOVING_S, meanwhile: Callable[[], None] | None = None
) -> None:
    """Until `done()`; calls `meanwhile` if that takes long. MPI's own waits would keep a core busy,
    which others need where there are more processes than cores."""
    begun = time.monotonic()
    while not done():
        waited = time.monotonic() - begun
        if waited > SPIN_S and meanwhile is not None:
            meanwhile()
        time.sleep(0 if waited < SPIN_S else min(sleep_s, waited / 8))


def _difference(plans: Sequence[Plan]) -> str:
    """Where the first process that is not like most others differs from them."""
    usual = Counter(plans).most_common(1)[0][0]
    here, odd = plans.index(usual), next(r for r, plan in enumerate(plans) if plan != usual)
    a, b = usual, plans[odd]
    if a[0] != b[0]:
        what = f"rank {odd} is to {_told(b)}; rank {here} is to {_told(a)}"
    else:
        pairs = zip_longest(a[1:], b[1:], fillvalue=("none", "as there are no more"))
        nth, pair = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        usual_has, odd_has = ["{}, {}".format(*each) for each in pair]
        what = f"to {a[0]}, array {nth} is on rank {odd} {odd_has}; on rank {here} {usual_has}"
    return f"dist: the ranks differ: {what}. All ranks must run the same model and the same steps"


def _told(plan: Plan) -> str:
    names = [name for name, _ in plan[1:]]
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
    return f"{plan[0]} {', '.join(names[:3])}{more}".strip()


_world: World | None = None


def world() -> World:
    """The job that this process belongs to; of one process, if it was started by itself.
    MXNetError where there is no MPI."""
    global _world
    if _world is None:
        mpi = _load()
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise MXNetError(
                "dist KVStores need an MPI that several threads may call (MPI_THREAD_MULTIPLE), "
                f"which this one does not offer: {mpi.Get_library_version().splitlines()[0]}"
            )
        _world = World(mpi)
        if _world.size > 1:
            _end_together(_world)
    return _world


def _load() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:  # the package, or MPI itself
        raise MXNetError(
            "dist KVStores need mpi4py and an MPI: pip install 'd2lmini[dist]' brings both (or "
            f"pip install mpi4py, beside an MPI of the machine's). Now: {problem}"
        ) from None
    return MPI


def _end_together(job: World) -> None:
    """A process that fails takes the others along: else they wait for it for ever."""
    before = sys.excepthook

    def ended_by(
        kind: type[BaseException], problem: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, problem, traceback)
        job.abort()

    sys.excepthook = ended_by
    atexit.register(job.leave)
