"""Work that a GPU was told once, told again: CUDA graphs, and what has to stand between them.

While a stream is being captured nothing runs: CUDA writes down each launch with its arguments,
which are addresses and numbers. The graph made of it does all of them again by one call, in the
very same memory. So a `Recording` is made on arrays that stay where they are, and what is computed
on the way lies in a `Workspace`, memory that nobody else is given while there is a recording in it.

Some work cannot be captured: random numbers need another key each time, which is an argument of
their launch, and who sorts waits for the GPU. (Products of matrices can, see `products`.) They
go by `outside`: the capture ends before such a call and begins anew behind it, and a replay is
graph, call, graph, call, graph. All
else that CUDA refuses (the host waiting for a value, a copy from or to it) ends in an error at the
capture; then the stream is as it was before, and there is no recording.

A replay runs on the stream it was recorded on, one after the other: so all of a lane may share a
workspace.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from d2lmini.cuda.lanes import with_memory

if TYPE_CHECKING:
    from d2lmini.cuda.lanes import CudaLane

#: A piece of a workspace serves requests down to such a part of it; small ones serve all.
WASTE = 4
SMALL = 1 << 16

# CUDA knows captures of several streams at a time, but CuPy tidies up in between; they are short.
_one_at_a_time = threading.Lock()


class _Here(threading.local):
    """Per thread: the recording that is being made."""

    recording: Recording | None = None


here = _Here()


def outside(call: Callable[[], Any]) -> None:
    """Do what no graph can contain: now, or if a recording is being made at each of its replays.
    What `call` uses has to stay where it is."""
    recording = here.recording
    if recording is None:
        with_memory(call)
    else:
        recording.outside(call)


class Recording:
    """What was put on a stream by one function, to be put there again.

    graphs  how many there are
    calls   how many calls stand between them
    """

    def __init__(self, lane: CudaLane):
        self.graphs = 0
        self.calls = 0
        self._steps: list[Callable[[], Any]] = []
        self._stream = lane.stream.handle
        self._keys: list[Sequence[int]] = []

    def replay(self, keys: Sequence[Sequence[int]] = ()) -> None:
        """Do it again; `keys` are those of its random numbers."""
        self._keys[:] = keys
        for step in self._steps:
            step()

    def outside(self, call: Callable[[], Any]) -> None:
        """Let a call stand here."""
        self._cut()
        self.calls += 1
        self._steps.append(call)
        self._stream.begin_capture()

    def _cut(self) -> None:
        graph = self._stream.end_capture()
        self.graphs += 1
        self._steps.append(partial(graph.launch, self._stream))

    def _record(self, function: Callable[[Sequence[Any]], Any], keys: int) -> None:
        self._stream.begin_capture()
        try:
            function([_Key(self._keys, i) for i in range(keys)])
            self._cut()
        except BaseException:
            # One that was broken off has to be ended all the same, and says so by an error.
            with suppress(Exception):
                self._stream.end_capture()
            raise


class _Key(Sequence[int]):
    """A key that a call asks for when it is replayed."""

    def __init__(self, keys: list[Sequence[int]], number: int):
        self._keys = keys
        self._number = number

    def __getitem__(self, i: Any) -> Any:
        return self._keys[self._number][i]

    def __len__(self) -> int:
        return len(self._keys[self._number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys[self._number])


def recorded(
    lane: CudaLane, memory: Workspace, function: Callable[[Sequence[Any]], Any], keys: int = 0
) -> Recording:
    """What `function(keys)` puts on the stream of this thread's lane, which is not done now. Its
    kernels are compiled, for it ran once before. CUDA's or CuPy's error if it cannot be captured;
    what it did to the host's state stays done."""
    recording = Recording(lane)
    cuda = lane.device.xp.cuda
    with _one_at_a_time, cuda.using_allocator(memory.again):
        here.recording = recording
        try:
            recording._record(function, keys)
        finally:
            here.recording = None
    return recording


def none() -> AbstractContextManager[Any]:
    """A scope in which no stream is captured, so that anybody may let one wait."""
    return _one_at_a_time


class Workspace:
    """Memory for what is made on the way, kept as long as there are recordings in it.

    An array that was let go of leaves its piece to the next one, as a pool does; but the piece
    stays here, where graphs have its address.

    lends  addresses of results that are computed by graphs, and by no one else
    """

    def __init__(self, lane: CudaLane):
        self.lends: set[int] = set()
        self._device = lane.device
        self._pieces: list[tuple[int, Any]] = []  # (bytes, CuPy's pointer)
        self._users: dict[int, weakref.ref[_User]] = {}  # by the piece's address

    @property
    def nbytes(self) -> int:
        """All of it."""
        return sum(size for size, _ in self._pieces)

    def malloc(self, nbytes: int) -> Any:
        """What CuPy asks for memory; MemoryError if there is none even when all was given back."""
        return self._piece(nbytes, self._device.allocate)

    def again(self, nbytes: int) -> Any:
        """The same while a stream is being captured, when nothing may be given back."""
        return self._piece(nbytes, self._device.allocator.malloc)

    def _piece(self, nbytes: int, more: Callable[[int], Any]) -> Any:
        nbytes = max(nbytes, 1)
        most = max(WASTE * nbytes, SMALL)
        fit = [
            piece
            for piece in self._pieces
            if nbytes <= piece[0] <= most and self._users[piece[1].ptr]() is None
        ]
        if not fit:
            fit = [(nbytes, more(nbytes))]
            self._pieces += fit
        pointer = min(fit, key=lambda piece: piece[0])[1]
        user = _User()
        self._users[pointer.ptr] = weakref.ref(user)
        cuda = self._device.xp.cuda
        memory = cuda.UnownedMemory(pointer.ptr, nbytes, user, self._device.ordinal)
        return cuda.MemoryPointer(memory, 0)


class _User:
    """Lives as long as somebody uses a piece."""

    __slots__ = ("__weakref__",)


def workspace_of(lane: CudaLane) -> Workspace:
    """That of a lane, which ends with the last recording in it."""
    found = None if lane.workspace is None else lane.workspace()
    if found is None:
        found = Workspace(lane)
        lane.workspace = weakref.ref(found)
    return found
