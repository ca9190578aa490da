"""Rule 8: Ctrl-C during a wait returns to the prompt, inside a push the push happened or did not.

Every way into the engine is interrupted at every point at which CPython could deliver a signal
(`tools/interrupts.py`), and then by real signals at random times. After each: the invariants hold,
what was pushed ran once or not at all, every wait returns, and the same Vars can be used again.
"""

from __future__ import annotations

import _thread
import ast
import gc
import os
import signal
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from interrupts import ENGINE_FILES, PACKAGE, interrupt_at
from invariants import check_invariants
from strikes import Cells, strike_everywhere, work

from d2lmini import cpu, engine, nd, storage
from d2lmini.base import instrument
from d2lmini.device.storage import Chunk, pool_of
from d2lmini.engine.budget import Handle
from d2lmini.engine.core import FunctionTask

PUSHES = ["idle", "behind a writer", "first of an engine", "listened to", "in line with readers"]


@pytest.mark.parametrize("state", PUSHES)
def test_push(state: str):
    def scenario():
        cells = Cells()
        go = threading.Event()
        if state == "behind a writer":
            cells.push("before", lambda: go.wait(30))
        if state == "in line with readers":
            engine.push(lambda: go.wait(30), reads=[cells.a])
            cells.push("before")
        struck = yield lambda: cells.push("it")
        go.set()
        cells.verify(once=() if struck else ("it",), at_most_once=("it",))

    def with_fresh_engine():
        with engine.use("threaded", workers=2):
            yield from scenario()

    if state == "listened to":
        with instrument.listening(instrument.Instrument()):
            strike_everywhere(scenario)
    else:
        strike_everywhere(with_fresh_engine if state == "first of an engine" else scenario)


@pytest.mark.parametrize("listened", [False, True], ids=["unseen", "listened to"])
def test_inline(listened: bool):
    """It ran or did not; struck while it ran, its Var says so, and nothing needs reporting."""

    def scenario():
        cells = Cells()
        task = FunctionTask(
            lambda: cells.log.append("it"), "it", (cells.b,), (cells.a,), predicted_us=1.0
        )
        struck = yield lambda: engine.current.push(task)
        engine.waitall()
        if not struck:
            assert cells.log == ["it"]
        cells.heal()
        cells.verify(at_most_once=("it",))

    if listened:
        with instrument.listening(instrument.Instrument()):
            strike_everywhere(scenario)
    else:
        strike_everywhere(scenario)


WAITS = {
    "wait_for_var": lambda cells: engine.wait_for_var(cells.a),
    "wait_to_write": lambda cells: engine.current.wait("test", cells.b, write=True),
    "waitall": lambda cells: engine.waitall(),
    "read": lambda cells: engine.current.read("test", cells.a, lambda: 1),
}


@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.parametrize("busy", [True, False], ids=["pending", "free"])
@pytest.mark.parametrize("name", list(WAITS))
def test_waits(name: str, busy: bool, kind: str):
    def scenario():
        cells = Cells()
        names = ("one", "two") if busy else ()
        for each in names:
            cells.push(each)
        version = cells.b.version
        yield lambda: WAITS[name](cells)
        assert cells.b.version == version, "a wait writes nothing"
        cells.verify(once=names)

    with engine.use(kind):
        strike_everywhere(scenario)


def test_a_paused_push():
    """Struck before, while and after it waits for room."""

    def scenario():
        cells = Cells()
        chunks = [Chunk(pool_of(cpu()), 1 << 20) for _ in range(4)]
        handles = [Handle(chunk) for chunk in chunks]
        engine.limit_pending(1 << 20)
        for chunk in chunks[:1]:
            engine.push(work, reads=[cells.b], writes=[chunk])
        struck = yield lambda: engine.push(
            lambda: cells.log.append("it"), [cells.b], [chunks[1], chunks[2]]
        )
        cells.verify(once=() if struck else ("it",), at_most_once=("it",))
        assert len(handles) == 4

    with engine.use("threaded", workers=2):
        strike_everywhere(scenario)


FILES = (*ENGINE_FILES, *(str(PACKAGE / "ndarray" / f) for f in ("dispatch.py", "compute.py")))


@pytest.mark.parametrize(
    ("kind", "shape"), [("threaded", (2,)), ("threaded", (40, 40)), ("naive", (40, 40))]
)
def test_arrays_and_the_books_of_the_storage(kind: str, shape: tuple[int, ...]):
    """Struck anywhere in `y = x + 1` and `x += 1`: the bytes counted are those of living arrays."""
    with engine.use(kind):
        x = nd.ones(shape)
        (x + 1).wait_to_read()
        gc.collect()
        live = storage.stats().live
        for act in (lambda: x + 1, lambda: x.__iadd__(1)):
            for k in count():
                with interrupt_at(k, FILES) as strike:
                    act()
                engine.waitall()
                if x._chunk.error is not None:
                    x[:] = 1
                values = set(x.asnumpy().ravel().tolist())
                assert len(values) == 1, f"half of x changed, struck at {strike.where}"
                if storage.stats().live != live:
                    gc.collect()  # a frame in the traceback may have kept an array
                assert storage.stats().live == live, strike.where
                check_invariants()
                if not strike.done:
                    break


def test_no_loop_stands_directly_under_the_lock():
    """Python 3.12 and 3.13 deliver Ctrl-C at the jump of a loop as if outside the `with` (core.lock
    says why that matters); comprehensions are loops as well, generator expressions are not."""
    loops = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
    inner = (ast.FunctionDef, ast.Lambda, ast.GeneratorExp)

    def below(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, inner):
                yield child
                yield from below(child)

    seen = 0
    for file in FILES:
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.With) and "lock" in ast.unparse(node.items[0]):
                seen += 1
                for child in below(node):
                    assert not isinstance(child, loops), f"{file}:{child.lineno}: a loop"
    assert seen > 15


# -- real signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(WAITS))
def test_ctrl_c_ends_a_blocked_wait(name: str):
    """The signal comes while the main thread is blocked (it holds no lock of ours: the sender,
    another thread, looks into the engine before)."""
    cells, go = Cells(), threading.Event()
    cells.push("one", lambda: go.wait(30))

    def interrupt() -> None:
        current = engine.current
        while True:  # until the wait stands in line
            with current.lock:
                if current.wait_requests or current.idle_locks:
                    break
        if os.name == "nt":
            _thread.interrupt_main()
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        sender.start()
        WAITS[name](cells)
        raise AssertionError("the wait ended before what it waits for")
    sender.join()
    assert not engine.current.wait_requests
    go.set()
    cells.verify(once=("one",))
