"""Schedules explored: whatever order the engine allows, a program gives the values it would give
line by line; and an engine, or an operation, that allows one order too many is found out.

The stepped engine runs one chosen order after the other (`tools/legal_orders.py`). Larger random
programs on every engine are those of `tests/generators`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from legal_orders import Program, bits_of, explore, legal_orders

from d2lmini import autograd, cpu, engine, gpu, nd, random, virtual_gpus
from d2lmini.engine import core
from d2lmini.engine.core import Task, Var

# -- small programs --------------------------------------------------------------------------------


def readers_and_a_writer() -> object:
    a = nd.array([1.0, 2.0])
    b, c = a * 2, a * 3
    a += 1
    d = a + b
    return a, b, c, d


def overwritten_whole() -> object:
    a = nd.array([1.0, 2.0])
    b = a + 1
    a[:] = 7
    c = a + b
    a[:] = 9
    return a, b, c


def through_a_view() -> object:
    a = nd.zeros((4, 2))
    top = a[:2]
    top += 1
    b = a.sum()
    top *= 5
    return a, b


def two_results() -> object:
    x = nd.array([[3.0, 1.0, 2.0]])
    values, places = nd.topk(x, k=2, ret_typ="both")
    x *= -1
    return values + places, x


def numbers_drawn() -> object:
    random.seed(5)
    x, y = nd.random.normal(shape=(4,)), nd.random.uniform(shape=(4,))
    x += y
    return x, y, nd.random.normal(shape=(2,))


def one_step_of_training() -> object:
    w, x = nd.array([[1.0, 2.0], [3.0, 4.0]]), nd.array([[1.0, -1.0]])
    w.attach_grad()
    with autograd.record():
        loss = (nd.dot(x, w) ** 2).sum()
    loss.backward()
    nd.sgd_update(w, w.grad, lr=0.1, out=w)
    return w, w.grad, loss


def a_wait_in_the_middle() -> object:
    a = nd.array([1.0, 2.0])
    b = a * float((a + 1).sum().asscalar())
    a += b
    return a, b


def over_devices() -> object:
    with virtual_gpus(2):
        a = nd.ones((2,), ctx=gpu(0))
        b = a.as_in_context(gpu(1)) * 2
        a += 1
        b += a.as_in_context(gpu(1))
        return b.as_in_context(cpu()).asnumpy(), a.as_in_context(cpu()).asnumpy()


PROGRAMS: list[Program] = [
    readers_and_a_writer, overwritten_whole, through_a_view, two_results, numbers_drawn,
    one_step_of_training, a_wait_in_the_middle, over_devices,
]  # fmt: skip


def named(program: Program) -> str:
    return program.__name__


@pytest.mark.parametrize("program", PROGRAMS, ids=named)
def test_every_legal_order_gives_the_values_of_the_program(program: Program):
    with engine.use("naive"):
        expected = bits_of(program())
    found = explore(program, most=1000)
    assert found.wrong == "", found
    for options in [{"seed": 1}, {"seed": 2}, {}, {"workers": 1}]:
        with engine.stepped(**options):
            assert bits_of(program()) == expected


def test_a_program_that_always_fails_is_no_fault_of_the_order():
    def failing() -> object:
        return nd.random.normal(0, -1, shape=(2,)) + nd.ones((2,))

    assert explore(failing) == (2, "")


def test_the_orders_tried_are_the_legal_ones():
    with engine.stepped() as s:
        readers_and_a_writer()
        assert list(legal_orders(list(s.operations.values()))) == [(1, 2, 3, 4), (2, 1, 3, 4)]
    with engine.stepped() as s:
        for _ in range(4):
            engine.push(int, writes=[engine.new_var()])
        assert list(legal_orders(list(s.operations.values()))) == list(permutations(range(1, 5)))


# -- a rule too few --------------------------------------------------------------------------------


def _readers_overtake(task: Task, var: Var, writes: bool) -> bool:
    """A reader is granted what others read, though a writer is in line."""
    if not writes and var.readers:
        var.readers.add(task)
        return True
    return sound_claim(task, var, writes)


def _readers_do_not_hold(task: Task, var: Var, writes: bool) -> bool:
    """A writer does not wait for readers."""
    if writes and var.writer is None and not var.queue:
        var.writer = task
        return True
    return sound_claim(task, var, writes)


def _writers_together(task: Task, var: Var, writes: bool) -> bool:
    """A writer does not wait for another."""
    if writes and var.writer is not None:
        var.writer = task
        return True
    return sound_claim(task, var, writes)


def _no_line(task: Task, var: Var, writes: bool) -> bool:
    """Whoever comes while it is free for him is granted it, whoever is in line."""
    if var.writer is None and not (writes and var.readers):
        queue, var.queue = var.queue, ()  # type: ignore[assignment]
        granted = sound_claim(task, var, writes)
        var.queue = queue
        return granted
    return sound_claim(task, var, writes)


sound_claim = core.claim_var
BROKEN = [_readers_overtake, _readers_do_not_hold, _writers_together, _no_line]


def careless_release(task: Task) -> list[Task]:
    """As `core.release`, without its assertions, which would find the fault at once."""
    ready: list[Task] = []
    for var in task.shared:
        var.readers = {reader for reader in var.readers if reader is not task}
        if not var.readers and var.queue and var.writer is None:
            core._pass_on(var, ready)
    for var in task.writes:
        if var.writer is task:
            var.writer = None
        if var.queue and var.writer is None:
            core._pass_on(var, ready)
    return ready


def history() -> object:
    """Writers and readers by turns, on tags that only the order protects."""
    a, log = engine.new_var(), []

    def write(k: int) -> None:
        log.append(f"write {k}")

    def read(k: int) -> None:
        seen[k] = log[-1] if log else "nothing"

    seen: dict[int, str] = {}
    for k, kind in enumerate("wrwrrwwr"):
        if kind == "w":
            engine.push(lambda k=k: write(k), writes=[a])
        else:
            engine.push(lambda k=k: read(k), reads=[a])
    engine.waitall()
    return log, seen


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__.strip("_"))
def test_a_rule_that_is_broken_is_found(
    broken: Callable[[Task, Var, bool], bool], monkeypatch: pytest.MonkeyPatch
):
    assert explore(history).wrong == ""
    monkeypatch.setattr(core, "claim_var", broken)
    monkeypatch.setattr(core, "release", careless_release)
    assert explore(history).wrong != ""
