"""The memory checker finds planted faults, each of another kind, and says what they are."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import check_memory
import numpy as np
import pytest

from d2lmini import autograd, cpu, engine, gluon, nd, storage
from d2lmini.device.errstate import run_quietly
from d2lmini.device.scratch import loan, scratch
from d2lmini.device.storage import SMALL, Chunk, Pool
from d2lmini.gluon import nn
from d2lmini.gluon.data import DataLoader
from d2lmini.graph.plan import Arena
from d2lmini.kvstore import create
from d2lmini.ndarray.exchange import from_array


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    """A checker of this test's own; whether there was one before, there is one again."""
    engine.waitall()
    was_on = storage.checker is not None
    scratch.memory.clear()
    check_memory.turn_on(True)
    yield
    scratch.memory.clear()
    check_memory.turn_on(was_on)


def array(n: int = 2000) -> Any:
    x = nd.ones((n,))
    x.wait_to_read()
    return x


def unowned(array: np.ndarray, more: int = 0) -> Any:
    """The same bytes, and `more` behind, as a buffer that keeps nothing alive."""
    return (ctypes.c_char * (array.nbytes + more)).from_address(array.ctypes.data)


class Adder:
    """A program with a place in its arena; `gives` makes the result of that."""

    name = "adder"
    arena_nbytes = SMALL

    def __init__(self, gives: Callable[[np.ndarray], Any] = np.copy):
        self.gives = gives

    def bind(self, arena: Any) -> Any:
        place = arena(64, (4,), np.dtype(np.float32))

        def run(*_: Any) -> list:
            place[...] = 1
            return [self.gives(place)]

        return run


#: By name: what plants a fault and returns what is to live on, and words of the message.
FAULTS: dict[str, tuple[Callable[[], Any], str]] = {}


def fault(words: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def enter(plant: Callable[[], Any]) -> Callable[[], Any]:
        FAULTS[plant.__name__] = plant, words
        return plant

    return enter


@fault("memory of an array was written after its release: 16 bytes from byte 64 on, as float32 1")
def the_function_of_a_program_whose_arena_was_given_back() -> Any:
    """What the short road did: it kept the function alone, and the net wrote into new arrays."""
    chunk = Chunk(Pool(cpu()), 8192)
    block = unowned(chunk.allocate((8192,), np.dtype(np.uint8)))
    run = Adder().bind(lambda offset, shape, dtype: np.ndarray(shape, dtype, block, offset))
    pool = chunk.pool
    del chunk
    pool.stats()
    run()
    return pool


@fault("of an array was written after its release: 4 bytes from byte 28 on, as float32 5")
def a_write_after_the_array_died() -> Any:
    x = array()
    view = x._chunk.data
    del x
    storage.settle()
    view[7] = 5


@fault(r"meanwhile +these operations began: .*late_writer")
def an_operation_that_writes_after_the_array_died() -> Any:
    x = array()
    view = x._chunk.data
    del x
    storage.settle()
    nd.tanh(nd.ones((40, 40))).wait_to_read()

    def late_writer() -> None:
        view[0] = 1

    engine.push(lambda: run_quietly(late_writer))


@fault("memory behind an array was written: 4 bytes from byte 8000 on")
def one_element_too_many() -> Any:
    x = array(2000)
    np.frombuffer(unowned(x._chunk.data, 4), np.float32)[...] = 2
    return x


@fault("the arena of a net, between two calls, was written: 4 bytes from byte 100 on")
def a_write_into_an_arena_between_calls() -> Any:
    arena, program = Arena(cpu(), SMALL), Adder()
    arena.function(program)()
    arena._block[100:104] = 1
    return arena, program


@fault("output 0 of the program adder lies in its arena")
def a_result_that_lies_in_the_arena() -> Any:
    Arena(cpu(), SMALL).function(Adder(lambda place: place))()


@fault("memory behind the arena of a net, between two calls was written")
def a_program_that_writes_behind_its_arena() -> Any:
    arena = Arena(cpu(), SMALL)
    memory = unowned(arena._block, 4)

    def gives(_: np.ndarray) -> Any:
        memory[SMALL] = 7
        return np.ones(3)

    arena.function(Adder(gives))()


@fault(r"scratch memory 'sums' is requested by one_name_for_two .* while an array of one_name")
def one_name_for_two() -> Any:
    first = scratch.array("sums", 100, "float32")
    second = scratch.array("sums", 50, "float32")
    return first, second


@fault("memory behind scratch memory 'sums' was written: 8 bytes from byte 24 on")
def more_scratch_memory_than_was_asked_for() -> Any:
    memory = scratch.array("sums", 3, "float64")
    np.frombuffer(unowned(memory, 8), np.float64)[3] = 0
    del memory
    scratch.array("sums", 3, "float64")


@fault("memory of a loan was written after its release: 4 bytes from byte 40 on")
def a_loan_that_is_over() -> Any:
    with loan((5000,), "float32") as values:
        values[...] = 0
    values[10] = 1
    return values


@fault(r"an array of shape \(3000,\) changed, though no operation wrote it: it was adopted")
def an_array_that_its_maker_still_writes() -> Any:
    mine = np.zeros(3000, np.float32)
    x = from_array(mine, cpu(), adopt=True)
    mine[2] = 1
    return x


@fault(r"an array of shape \(1000,\) was adopted as unshared, but lies in an array")
def a_part_of_an_array_as_an_array_of_its_own() -> Any:
    x = array(4000)
    chunk = Chunk(Pool(cpu()), 4000)
    chunk.adopt(x._chunk.data[:1000])
    return x, chunk


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str):
    plant, words = FAULTS[name]
    alive = plant()
    with pytest.raises(check_memory.MemoryFault) as found:
        engine.waitall()
        check_memory.verify()
    assert re.search(words, str(found.value)), str(found.value)
    check_memory.verify()  # it is told once
    del alive


def test_it_is_found_when_the_memory_is_lent_again():
    pool = Pool(cpu())
    chunk = Chunk(pool, 8192)
    memory = unowned(chunk.allocate((8192,), np.dtype(np.uint8)))
    del chunk
    pool.stats()
    memory[5] = 1
    chunk = Chunk(pool, 8192)
    again = chunk.allocate((2048,), np.dtype(np.float32))
    assert np.isnan(again).all(), "what was written is gone"
    with pytest.raises(check_memory.MemoryFault, match="after its release: 1 bytes"):
        engine.waitall()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_new_arrays_hold_nan(dtype: str):
    for _ in range(2):
        assert np.isnan(nd.empty((3000,), dtype=dtype).asnumpy()).all()
    assert np.isnan(nd.empty((3,), dtype=dtype).asnumpy()).all()
    assert np.isnan(scratch.array("new", 700, dtype)).all()


def test_what_is_used_as_it_should_be_is_no_fault():
    """Training, compiled and not, with a loader, a kvstore and views that keep their arrays."""
    for options in ({}, {"static_alloc": True}):
        net = nn.HybridSequential()
        net.add(nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(), nn.BatchNorm(), nn.Dense(3))
        net.initialize()
        net.hybridize(**options)
        trainer = gluon.Trainer(net.collect_params(), "adam")
        data = [(np.ones((3, 12, 12), np.float32) * i, i % 3) for i in range(20)]
        for X, y in DataLoader(data, batch_size=7, num_workers=2, thread_pool=True):
            with autograd.record():
                l = gluon.loss.SoftmaxCrossEntropyLoss()(net(X), y)
            l.backward()
            trainer.step(len(X))
            view = np.from_dlpack(l)
            view[0] = 1
    store = create("local")
    store.init(0, nd.ones((5000,)))
    store.push(0, [nd.ones((5000,)), nd.ones((5000,))])
    engine.waitall()
    check_memory.verify()


def test_off_it_leaves_nothing():
    check_memory.turn_on(False)
    x = array()
    view = x._chunk.data
    del x
    storage.settle()
    view[0] = 1
    engine.waitall()
    check_memory.verify()
    assert storage.checker is None
