"""The memory checker finds writes into memory that has no owner.

`D2LMINI_CHECK_MEMORY=1` runs the tests under it: `make memory`.

>>> from d2lmini import nd
>>> turn_on()
>>> x = nd.ones((64, 64))
>>> x.wait_to_read()
>>> view = x._chunk.data            # a view of the array's memory that does not keep the array
>>> del x
>>> nd.waitall()
>>> view[3, 4] = 7
>>> try:
...     nd.waitall()
... except MemoryFault as fault:
...     print(str(fault).splitlines()[0])
memory of an array was written after its release: 4 bytes from byte 784 on, as float32 7.0
>>> turn_on(False)

While the checker is on, memory without an owner holds a pattern, NaN in every type of floats:

    a block of the pool   from its release by one array to its use by the next; so an operation
                          that reads a new array before it is written sees NaN
    a red zone            behind each block, until the block is given back
    an arena              between two calls of the programs that work there
    scratch and loans     before each use, with a red zone behind

The pattern is verified when the memory is given out again, and a part of all such memory at every
wait of the user's thread (all of it by `verify()`). Another value there raises a
`MemoryFault`, which names what the memory was used for and the operations that ran since the
pattern was last seen whole. An array that came into the library as it is (`adopt`) has a checksum,
as long as no operation writes the array.

The checker covers memory of the CPU and of virtual GPUs; memory of real GPUs belongs to CuPy.
Arrays under 4 KiB that an operation makes lie in NumPy's memory, whose lifetime NumPy manages;
other arrays have blocks of the pool while the checker is on. Arrays and programs made before the
checker was turned on are not checked.
"""

from __future__ import annotations

import inspect
import sys
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from sys import getrefcount
from typing import Any

import numpy as np

from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.base.callsite import Site
from d2lmini.device import errstate, storage
from d2lmini.device.storage import RED_ZONE
from d2lmini.engine.core import lock

#: The content of memory without an owner: NaN as float16, float32 and float64.
PATTERN = np.uint16(0xFFF5)
WORD = np.uint64(0xFFF5FFF5FFF5FFF5)
_SHORT = np.full(520, PATTERN).view(np.uint8)

#: Pieces of memory verified at a wait: this many that were given back last, and as many others.
LAST = 2
#: At a wait the checksums of this many adopted arrays are verified, each of at most LARGEST bytes.
ADOPTED = 8
LARGEST = 1 << 18


class MemoryFault(MXNetError):
    """Memory holds a value that nothing may have written there: an error in d2lmini, or of a
    program that writes into memory it no longer owns."""


class WatchedBlock:
    """Memory that is watched: `nbytes` of it are, or were, lent; a red zone follows.

    root   weak reference to the array of bytes that owns the memory
    free   True: all of it holds the pattern; False: only the part behind `nbytes` does
    busy   may the program that works there write it now?
    what   what the memory is or was used for; `who` asked for it: a name, or a line
    seen   number of operations that had begun when the piece was last found whole
    epoch  grows with each change of these fields; told: the epoch in which a fault was reported
    """

    __slots__ = (
        "begin", "busy", "end", "epoch", "free", "nbytes", "root", "seen", "reported",
        "what", "who",
    )  # fmt: skip

    def __init__(self, root: np.ndarray):
        self.root = weakref.ref(root)
        self.begin = self.end = self.nbytes = self.seen = self.epoch = 0
        self.free = self.busy = False
        self.reported = -1
        self.what = ""
        self.who: str | Site | None = None


class Checker:
    """Records the use of the pool, arenas, scratch memory and loans, and the faults found.

    No lock is needed: the owner of a piece changes it, or a thread with the lock of the pool. A
    thread that verifies the piece meanwhile sees that its epoch has changed.

    pieces  all watched pieces, by the id of the array that owns the memory
    log     names of the last operations that began; count: number of all
    faults  found where no error may be raised; the next wait raises them
    """

    def __init__(self) -> None:
        self.pieces: dict[int, WatchedBlock] = {}
        self.log: deque[str] = deque(maxlen=64)
        self.count = 0
        self.faults: deque[str] = deque(maxlen=16)
        self._order: deque[int] = deque()  # ids of pieces, the next to verify first
        self._adopted: deque[tuple[weakref.ref, weakref.ref, int, int, int]] = deque(maxlen=ADOPTED)
        self._last: deque[WatchedBlock] = deque(maxlen=LAST)  # given back last

    # -- records of use ----------------------------------------------------------------------------

    def began(self, function: Callable[..., Any]) -> None:
        """An operation begins."""
        name = getattr(getattr(function, "__self__", None), "name", None)
        self.log.append(str(name or getattr(function, "__qualname__", "an operation")))
        self.count += 1

    def lend(
        self, block: np.ndarray, nbytes: int, what: str, who: str | Site | None = None
    ) -> None:
        """`nbytes` of `block` have an owner from now on; the memory behind them is red zone. All of
        it holds the pattern."""
        root, end = _root(block), _root(block).nbytes
        begin = block.ctypes.data - root.ctypes.data
        piece = self.pieces.get(id(root))
        if piece is None or piece.root() is not root:
            piece = WatchedBlock(root)
            if not what.startswith("scratch"):  # only its own thread verifies scratch memory
                self._order.append(id(root))
        if piece.free and piece.end == end:
            self._verify(piece)
            whole = piece.reported != piece.epoch
        else:
            whole = False
        piece.epoch += 1
        if not whole:
            _fill(root[begin:end])
        piece.begin, piece.nbytes, piece.end = begin, nbytes, end
        piece.what, piece.who = what, _asking() if who is None else who
        piece.free, piece.seen = False, self.count
        self.pieces[id(root)] = piece

    def take_back(self, block: np.ndarray) -> None:
        """`block` has no owner any more."""
        root = _root(block)
        piece = self.pieces.get(id(root))
        if piece is None or piece.root() is not root:
            return  # lent before the checker was turned on
        self._verify(piece)
        piece.epoch += 1
        if not piece.free or piece.reported >= 0:
            _fill(root[piece.begin : piece.end])
        piece.free, piece.seen, piece.reported = True, self.count, -1
        self._last.append(piece)

    def guard(self, run: Callable[..., Any], name: str, root: np.ndarray) -> Callable[..., Any]:
        """Wrap a program's function that works in an arena; between calls the arena holds the
        pattern."""
        piece = self.pieces.get(id(root))
        if piece is None:
            return run
        piece.what, piece.free = "the arena of a net, between two calls", True

        def begin() -> None:
            self.log.append(name)
            self.count += 1
            self._verify(piece)
            piece.epoch += 1
            piece.busy, piece.free, piece.who = True, False, name

        def end() -> None:
            self._verify(piece)
            piece.epoch += 1
            _fill(root[piece.begin : piece.end])
            piece.seen, piece.free, piece.busy, piece.reported = self.count, True, False, -1

        def check(results: Iterable[Any]) -> None:
            for i, result in enumerate(results):
                if isinstance(result, np.ndarray) and np.may_share_memory(result, root):
                    self.fault(
                        f"output {i} of the program {name} lies in its arena, where the next call "
                        "of this net will overwrite it"
                    )

        def call(*arguments: Any) -> Any:
            begin()
            try:
                results = run(*arguments)
                check(results)
                return results
            finally:
                end()

        def call_parts(*arguments: Any) -> Iterator[Any]:
            begin()
            try:
                for finished in run(*arguments):
                    check([result for _, result in finished])
                    yield finished
            finally:
                end()

        return call_parts if inspect.isgeneratorfunction(run) else call

    def scratch(self, memory: dict[str, np.ndarray], name: str, nbytes: int) -> np.ndarray:
        """Scratch memory of this name. A request while the last array of this name is in use is a
        fault: two uses share one name."""
        frame: Any = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_name == "_room":
            frame = frame.f_back
        asking = f"{frame.f_code.co_name} ({frame.f_globals.get('__name__')}:{frame.f_lineno})"
        block = memory.pop(name, None)
        if block is not None:
            piece = self.pieces.get(id(block))
            for _ in range(5):  # another thread may be verifying it for a moment
                if getrefcount([block][0]) <= 2:
                    break
                time.sleep(0.001)
            if getrefcount([block][0]) > 2:
                before = "" if piece is None else f" of {piece.who}"
                self.fault(
                    f"scratch memory {name!r} is requested by {asking} while an array{before} "
                    "in it is in use: two uses at once need two names"
                )
                block = None
            elif piece is not None:
                self._verify(piece)
        if block is None or block.nbytes < nbytes + RED_ZONE:
            block = np.empty(nbytes + RED_ZONE, np.uint8)
        memory[name] = block
        self.lend(block, nbytes, f"scratch memory {name!r}", asking)
        return block[:nbytes]

    def note_adoption(self, chunk: Any, array: np.ndarray) -> None:
        """`array` becomes the contents of `chunk`; nothing else may see it."""
        base: Any = array
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        chunk_of_base = getattr(base, "chunk", None)  # the base is a Lease
        if chunk_of_base is not None and chunk_of_base.block is not None:
            base = chunk_of_base.block.base
        piece = self.pieces.get(id(base))
        if piece is not None and piece.root() is base:
            self.fault(
                f"an array of shape {array.shape} was adopted as unshared, but "
                f"lies in {piece.what} of {_describe_owner(piece.who)}"
            )
        elif array.nbytes <= LARGEST and chunk.writer is None and not chunk.queue:
            refs = weakref.ref(chunk), weakref.ref(array)
            self._adopted.append((*refs, chunk.version, _checksum(array), self.count))

    def mark_shared(self, chunk: Any) -> None:
        """A view or DLPack may now write the contents of `chunk`."""
        for adoption in list(self._adopted):
            if adoption[0]() is chunk:
                self._adopted.remove(adoption)

    # -- verification ------------------------------------------------------------------------------

    def at_wait(self) -> None:
        """Verify a part after a wait of the user's thread, and raise the faults found."""
        if self._last or self._order or self._adopted or self.faults:
            for piece in list(self._last):
                self._verify(piece)
            self.verify(LAST)

    def verify(self, most: int = sys.maxsize) -> None:
        """Verify `most` pieces, default all; MemoryFault if there was a fault, now or before."""
        for _ in range(min(most, len(self._order))):
            try:
                key = self._order.popleft()
            except IndexError:  # another thread verifies too
                break
            piece = self.pieces.get(key)
            if piece is None or piece.root() is None:
                self.pieces.pop(key, None)
                continue
            self._order.append(key)
            if not piece.busy:
                self._verify(piece)
        self._verify_adoption()
        found = []
        while self.faults:
            found.append(self.faults.popleft())
        if found:
            raise MemoryFault("\n".join(found))

    def fault(self, text: str) -> None:
        """Keep a fault for the next wait."""
        if text not in self.faults:
            self.faults.append(text)

    def _verify(self, piece: WatchedBlock) -> None:
        """Check the pattern of `piece`. A fault is reported once."""
        epoch, root = piece.epoch, piece.root()
        if root is None or piece.reported == epoch:
            return
        begin = piece.begin if piece.free else piece.begin + piece.nbytes
        region = root[begin : piece.end]
        if _is_whole(region, begin - piece.begin):
            piece.seen = self.count
            return
        text = self._explain(piece, region, begin - piece.begin)
        if piece.epoch == epoch:  # else it was lent while this thread looked
            piece.reported = epoch
            self.fault(text)

    def _explain(self, piece: WatchedBlock, region: np.ndarray, offset: int) -> str:
        wrong = np.flatnonzero(region != _tile(region.size, offset))
        if not wrong.size:
            return ""
        first = int(wrong[0]) // 4 * 4 if piece.free else int(wrong[0])
        number = region[first : first + 4].tobytes().ljust(4, b"\0")
        where = (
            f"{wrong.size} bytes from byte {offset + first} on, "
            f"as float32 {np.frombuffer(number, np.float32)[0]:.6}"
        )
        if not piece.free:
            what = f"memory behind {piece.what} was written"
        elif piece.what.startswith("the arena"):
            what = f"{piece.what}, was written"
        else:
            what = f"memory of {piece.what} was written after its release"
        return (
            f"{what}: {where}\n  it was of   {_describe_owner(piece.who)}, {piece.nbytes} bytes"
            f"\n  meanwhile   {self._since(piece.seen)}"
        )

    def _since(self, count: int) -> str:
        """The operations that began after the first `count` ones."""
        last = list(self.log)
        n = min(self.count - count, len(last))
        names = list(dict.fromkeys(last[len(last) - n :]))
        if not names:
            return "no operation began: an earlier operation wrote it, or the program itself"
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return f"these operations began: {', '.join(names[-8:])}{more}"

    def _verify_adoption(self) -> None:
        for adoption in list(self._adopted):
            chunk, array, (version, checksum, count) = adoption[0](), adoption[1](), adoption[2:]
            if chunk is None or array is None or chunk.version != version or chunk.writer:
                self._drop(adoption)
            elif _checksum(array) != checksum and chunk.version == version and not chunk.writer:
                self._drop(adoption)
                self.fault(
                    f"an array of shape {array.shape} changed, though no operation wrote it: it "
                    f"was adopted, and its maker still writes to it\n"
                    f"  meanwhile   {self._since(count)}"
                )

    def _drop(self, adoption: Any) -> None:
        if adoption in self._adopted:
            self._adopted.remove(adoption)


def _root(block: np.ndarray) -> np.ndarray:
    """The array that owns the memory of `block`."""
    return block if block.base is None else block.base  # type: ignore[return-value]


def _asking() -> str | Site | None:
    """The operation for which this thread asks for memory, or the user's line."""
    frame: Any = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            break
        if frame.f_code.co_name == "_compute":
            return str(frame.f_locals["self"].name)
        frame = frame.f_back
    return callsite.find()


def _describe_owner(who: str | Site | None) -> str:
    return who if isinstance(who, str) else callsite.describe(who)


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def _tile(nbytes: int, offset: int) -> np.ndarray:
    """The pattern as bytes, for a region that begins `offset` bytes behind a pattern's start."""
    words = _SHORT if nbytes <= 1024 else np.full(nbytes // 2 + 2, PATTERN).view(np.uint8)
    return words[offset % 2 : offset % 2 + nbytes]


def _fill(region: np.ndarray) -> None:
    """Fill a region with the pattern."""
    region[: region.size // 2 * 2].view(np.uint16).fill(PATTERN)
    if region.size % 2:
        region[-1] = PATTERN & 0xFF


def _is_whole(region: np.ndarray, offset: int = 0) -> bool:
    """True if the region holds the pattern."""
    if region.size < 1024 or offset % 2:
        return region.tobytes() == _tile(region.size, offset).tobytes()
    n = region.size // 8 * 8
    return bool((region[:n].view(np.uint64) == WORD).all()) and _is_whole(region[n:])


# -- on and off ------------------------------------------------------------------------------------


def turn_on(on: bool = True) -> None:
    """Turn the memory checker on or off. Programs that were compiled before are not checked."""
    with lock:
        checker = Checker() if on else None
        storage.checker = checker
        errstate.began = checker.began if checker else None
        instrument.after_wait = _at_wait if checker else None


def verify() -> None:
    """Verify all memory that is watched now: `MemoryFault` if there is a fault. Nothing happens
    while the checker is off."""
    if storage.checker is not None:
        storage.settle()
        storage.checker.verify()


def _at_wait() -> None:
    checker = storage.checker
    if checker is not None:
        storage.settle()
        checker.at_wait()
