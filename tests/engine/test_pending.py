"""Pending work: what is said of it, and that nothing of it stays behind when it is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from invariants import check_invariants
from worlds import until

from d2lmini import MXNetError, engine, nd


@pytest.fixture
def door() -> Iterator[threading.Event]:
    door = threading.Event()
    yield door
    door.set()


def wait_behind(door: threading.Event, **options: object) -> None:
    """A function that runs on a worker until the door opens; it has begun when this returns."""
    begun = threading.Event()

    def behind() -> None:
        begun.set()
        door.wait(60)

    engine.push(behind, **options)  # type: ignore[arg-type]
    assert begun.wait(60)


def test_waits_on_cancelled_work_end_at_once(door, capsys):
    with engine.use("threaded", workers=2):
        x = nd.ones((2,))
        wait_behind(door, writes=[x], name="door")
        y = x + 1
        z = y * 2
        got: list[str] = []

        def read() -> None:
            try:
                z.asnumpy()
            except MXNetError as error:
                got.append(str(error).splitlines()[0])

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: bool(engine.current.wait_requests))
        assert engine.cancel_pending() == 2
        reader.join(30)
        assert got == ["_mul_scalar: cancelled before it ran"]
        with pytest.raises(MXNetError, match="_plus_scalar: cancelled before it ran"):
            y.asnumpy()
        assert engine.stats().pending == 1
        check_invariants()
        said = capsys.readouterr().err
        assert said.startswith("d2lmini: door (issued at ") and said.endswith(
            " is running and cannot be stopped; waitall() waits for it\n"
        )
        door.set()
        engine.waitall()
        assert x.asnumpy().tolist() == [1, 1]
        stats = engine.stats()
        assert (stats.skipped, stats.pending) == (2, 0)


def test_other_workers_take_over_from_those_that_never_end(door):
    with engine.use("threaded", workers=2, inline_below=0):
        for _ in range(3):
            wait_behind(door)
            wait_behind(door)
            engine.push(int)
            assert engine.cancel_pending() == 1
        x = nd.ones((3,)) + 1
        assert x.asnumpy().tolist() == [2, 2, 2]
        check_invariants()
        pool = engine.current._pools["cpu"]
        door.set()
        engine.waitall()
        until(lambda: len(pool.workers) <= 2)
        assert pool.size == 2 and not engine.current._replaced
        assert (x + 1).asnumpy().tolist() == [3, 3, 3]


def test_a_cancelled_change_of_what_a_running_task_writes_ends_after_it(door):
    """Otherwise the result of the running task would hide that the change did not happen."""
    with engine.use("threaded", workers=2):
        x = nd.zeros((2,))

        def fill() -> None:
            door.wait(60)

        engine.push(fill, writes=[x])
        until(lambda: bool(engine.current.running))
        x += 1
        y = x * 2
        assert engine.cancel_pending() == 2
        with pytest.raises(MXNetError, match="_mul_scalar: cancelled before it ran"):
            y.asnumpy()
        assert engine.stats().pending == 2
        check_invariants()
        door.set()
        with pytest.raises(MXNetError, match="_plus_scalar: cancelled before it ran"):
            x.asnumpy()
        assert x.asnumpy().tolist() == [0, 0]
        engine.waitall()
