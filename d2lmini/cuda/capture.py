"""CUDA graphs: work is recorded once and replayed many times; what cannot be captured runs between.

While a stream is being captured nothing runs: CUDA records each launch with its arguments, which
are addresses and numbers. The resulting graph repeats all launches by one call, in the very same
memory. So a `GraphCapture` is made on arrays that stay where they are, and its intermediate results
lie in a `Workspace`, scratch memory reserved for the recordings in it.

Some work cannot be captured: random numbers need another key each time, and the key is a launch
argument; a sort waits for the GPU. (Matrix products can be captured, see `products`.) Such calls
go through `outside`: the capture ends before the call and begins anew behind it, and a replay is
graph, call, graph, call, graph. Everything else that CUDA refuses (the host waiting for a value, a
copy from or to the host) raises an error at the capture; then the stream is as it was before, and
there is no recording.

Replays run on the stream of the recording, one after the other, so all recordings of a lane may
share one workspace.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from d2lmini.base.scopes import contextmanager
from d2lmini.cuda.current import with_memory

if TYPE_CHECKING:
    from d2lmini.cuda.stream_worker import StreamWorker

#: A piece of a workspace serves requests of at least this fraction; small pieces serve all.
WASTE = 4
SMALL = 1 << 16

# CUDA allows captures of several streams at a time, but CuPy cleans up in between; captures are
# short.
_capture_lock = threading.Lock()


class _ThreadState(threading.local):
    """Per thread: the recording in progress, a GraphCapture or a Recorder."""

    recording: Any = None


thread_state = _ThreadState()


def outside(call: Callable[[], Any]) -> None:
    """Make a call that no graph can contain: now, or at each replay of the recording in progress.
    The arrays that `call` uses must stay where they are; a `Recorder` needs only the numbers of its
    launches."""
    recording = thread_state.recording
    if recording is None:
        with_memory(call)
    else:
        recording.outside(call)


class GraphCapture:
    """The work that one function put on a stream, ready to be replayed.

    graphs  number of graphs
    calls   number of calls between the graphs
    keys    the keys of random numbers at the next replay
    """

    def __init__(self, lane: StreamWorker):
        self.graphs = 0
        self.calls = 0
        self._steps: list[Callable[[], Any]] = []
        self._stream = lane.stream.handle
        self.keys: list[Sequence[int]] = []

    def replay(self) -> None:
        """Replay the work."""
        for step in self._steps:
            step()

    def outside(self, call: Callable[[], Any]) -> None:
        """Insert a call between two graphs."""
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
            function([LaterKey(self.keys, i) for i in range(keys)])
            self._cut()
        except BaseException:
            # An aborted capture must be ended all the same; ending it raises an error.
            with suppress(Exception):
                self._stream.end_capture()
            raise


class LaterKey(Sequence[int]):
    """A key that a call reads when it is replayed."""

    def __init__(self, keys: list[Sequence[int]], number: int):
        self._keys = keys
        self._number = number

    def __getitem__(self, i: Any) -> Any:
        return self._keys[self._number][i]

    def __len__(self) -> int:
        return len(self._keys[self._number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys[self._number])


def capture(
    lane: StreamWorker, memory: Workspace, function: Callable[[Sequence[Any]], Any], keys: int = 0
) -> GraphCapture:
    """Record what `function(keys)` puts on the stream of this thread's lane, without running it.
    Its kernels are already compiled, because it ran once before. Raises the error of CUDA or CuPy
    if it cannot be captured; its changes to the host's state stay."""
    recording = GraphCapture(lane)
    lane.stream.close_open()
    cuda = lane.device.xp.cuda
    with _capture_lock, cuda.using_allocator(memory.malloc_in_capture), recording_into(recording):
        recording._record(function, keys)
    return recording


@contextmanager
def recording_into(recording: Any) -> Iterator[None]:
    """A scope in which calls `outside` go to a recording."""
    thread_state.recording = recording
    try:
        yield
    finally:
        thread_state.recording = None


def no_capture() -> AbstractContextManager[Any]:
    """A scope in which no stream is captured, so any thread may make a stream wait."""
    return _capture_lock


class Workspace:
    """Scratch memory for intermediate results, kept as long as there are recordings in it.

    The piece of a dropped array is reused by the next array, as in a pool; but the piece stays in
    the workspace, because graphs contain its address.

    result_addresses  addresses of the results of graphs, which stay the same
    """

    def __init__(self, lane: StreamWorker):
        self.result_addresses: set[int] = set()
        self._device = lane.device
        self._pieces: list[tuple[int, Any]] = []  # (bytes, CuPy's pointer)
        self._users: dict[int, weakref.ref[_User]] = {}  # by address of the piece

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(size for size, _ in self._pieces)

    def malloc(self, nbytes: int) -> Any:
        """CuPy's allocation hook; MemoryError if memory is short after cached memory was freed."""
        return self._piece(nbytes, self._device.allocate)

    def malloc_in_capture(self, nbytes: int) -> Any:
        """`malloc` while a stream is being captured, when no cached memory may be freed."""
        return self._piece(nbytes, self._device.allocator.malloc)

    def _piece(self, nbytes: int, more: Callable[[int], Any]) -> Any:
        nbytes = max(nbytes, 1)
        max_size = max(WASTE * nbytes, SMALL)
        fit = [
            piece
            for piece in self._pieces
            if nbytes <= piece[0] <= max_size and self._users[piece[1].ptr]() is None
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
    """Lives as long as a piece is in use."""

    __slots__ = ("__weakref__",)


def workspace_of(lane: StreamWorker) -> Workspace:
    """The workspace of a lane, which lives until its last recording is gone."""
    found = None if lane.workspace is None else lane.workspace()
    if found is None:
        found = Workspace(lane)
        lane.workspace = weakref.ref(found)
    return found
