"""Schedules explored: whatever order the engine allows, a program gives the values it would give
line by line; and an engine, or an operation, that allows one order too many is found out.

The stepped engine runs one chosen order after the other (`engine.explore`); the threaded one, the
serial one and seeds of the stepped one run larger random programs, equal to the bit.
"""

from __future__ import annotations

import random as python_random
import time
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lmini import autograd, cpu, engine, gpu, nd, random, virtual_gpus
from d2lmini.engine import core, stepped_orders
from d2lmini.engine.core import Task, Var
from d2lmini.engine.operation import Operation
from d2lmini.engine.stepped_blame import bits_of

Program = Callable[[], object]

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
    found = engine.explore(program, reduced=False)
    assert found.wrong is None, found
    for options in [{"seed": 1}, {"seed": 2}, {}, {"workers": 1}]:
        with engine.stepped(**options):
            assert bits_of(program()) == expected


def test_how_many_orders_there_were():
    count = {
        named(program): engine.explore(program, reduced=False).orders for program in PROGRAMS[:4]
    }
    assert count == {
        "readers_and_a_writer": 2, "overwritten_whole": 1, "through_a_view": 1, "two_results": 2,
    }  # fmt: skip


def test_a_program_that_does_not_repeat_itself_is_refused():
    calls: list[int] = []

    def moody() -> object:
        calls.append(1)
        return nd.ones((1,)) * len(calls)

    with pytest.raises(Exception, match="does not give the same when it is run twice"):
        engine.explore(moody)


def test_a_program_that_always_fails_is_no_fault_of_the_order():
    def failing() -> object:
        return nd.random.normal(0, -1, shape=(2,)) + nd.ones((2,))

    found = engine.explore(failing)
    assert found.wrong is None and found.orders == 2
    engine.waitall()  # raises nothing: those errors belong to the exploration


# -- a dependency too few --------------------------------------------------------------------------


class Forgets:
    """Lets operation number `number` forget to name one Var in its reads or writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.number, self.var, self.kind = 0, 0, ""
        prepare = Task.prepare

        def forgetful(task: Task) -> None:
            prepare(task)
            current = engine.current
            if isinstance(current, engine.SteppedEngine) and current.pushed + 1 == self.number:
                for var in (*task.shared, *task.writes):  # numbered as if nothing were missing
                    current._number(var)
                if self.kind == "reads":
                    task.reads = self._others(task.reads)
                else:
                    task.writes = self._others(task.writes)
                prepare(task)

        monkeypatch.setattr(Task, "prepare", forgetful)

    def _others(self, variables: tuple[Var, ...]) -> tuple[Var, ...]:
        numbers = engine.current.numbers  # type: ignore[attr-defined]
        return tuple(var for var in variables if numbers[var] != self.var)

    def all_of(self, program: Program) -> Iterator[tuple[Operation, str, int]]:
        """For each thing that an operation names: (the operation, which kind, the Var), while it is
        forgotten."""
        self.number = 0
        with engine.stepped() as s:
            program()
            s.run()
        for operation in list(s.operations.values()):
            for kind in ("reads", "writes"):
                for var in getattr(operation, kind):
                    self.number, self.kind, self.var = operation.number, kind, var
                    yield operation, kind, var


@pytest.mark.parametrize("program", PROGRAMS[:3] + PROGRAMS[4:7], ids=named)
def test_each_dependency_that_is_forgotten_is_found(
    program: Program, monkeypatch: pytest.MonkeyPatch
):
    """In under a second: which two operations, and which Var. Except where nothing depends on it:
    the same orders are legal, or the values happen to be the same in all of them."""
    found_out = harmless = 0
    for operation, kind, var in Forgets(monkeypatch).all_of(program):
        begin_s = time.thread_time()
        found = engine.explore(program)
        elapsed_s = time.thread_time() - begin_s
        if found.wrong is None:
            assert engine.explore(program, reduced=False).wrong is None, (operation, kind, var)
            harmless += 1
            continue
        found_out += 1
        if found.pair is not None:
            assert operation.number in [each.number for each in found.pair], found
        else:
            assert kind == "writes" and "even program order" in found.why
        assert found.var == var, (operation, kind, var, found)
        assert f"{operation} " in str(found) and f"name it in {kind}" in str(found)
        assert elapsed_s < 1
    assert found_out >= harmless


def test_what_is_said_of_it():
    """A copy that forgets to say that it reads."""
    cells: dict[str, float] = {}

    def program() -> object:
        a, b = engine.new_var(), engine.new_var()
        cells.update(a=1, b=0)
        engine.push(lambda: cells.update(a=cells["a"] * 2), (a,), (a,), name="double")
        engine.push(lambda: cells.update(b=cells["a"]), (), (b,), name="copy")
        engine.waitall()
        return dict(cells)

    found = engine.explore(program)
    first, second, third, *_ = str(found).splitlines()
    assert first == "2 operations in 2 orders: not the same values"
    assert second == "the order 2, 1 does not give the values of the program"
    assert third.startswith("1 double and 2 copy may run in either order, and must not")
    assert "v1 (of 1 double), v2 (of 2 copy)" in str(found)
    assert "test_schedules.py" in found.why and 'name="copy")' in found.why


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
def test_a_rule_that_is_broken_is_found_in_under_a_second(
    broken: Callable[[Task, Var, bool], bool], monkeypatch: pytest.MonkeyPatch
):
    assert engine.explore(history, reduced=False).wrong is None
    monkeypatch.setattr(core, "claim_var", broken)
    monkeypatch.setattr(core, "release", careless_release)
    begin_s = time.thread_time()
    found = engine.explore(history)
    assert found.wrong is not None and found.pair is not None
    assert time.thread_time() - begin_s < 1


# -- all engines, larger programs ------------------------------------------------------------------


def random_program(seed: int, contexts: list[Any]) -> list[bytes]:
    """Operations, in-place writes, views, copies between devices and random numbers on arrays
    that are not whole numbers, so that any other order of arithmetic shows."""
    rng = python_random.Random(seed)
    random.seed(seed)
    arrays = [nd.random.normal(shape=(3, 4), ctx=contexts[i % 3]) for i in range(5)]
    for _ in range(rng.randrange(4, 40)):
        x = rng.choice(arrays)
        y = rng.choice([array for array in arrays if array.context == x.context])
        kind = rng.randrange(8)
        if kind == 0:
            arrays.append(nd.dot(x, y, transpose_b=True).sum(axis=1, keepdims=True) + x * 0.1)
        elif kind == 1:
            x *= 0.7
        elif kind == 2:
            x += y
        elif kind == 3:
            x[rng.randrange(3)] = rng.random()
        elif kind == 4:
            arrays.append(x.as_in_context(rng.choice(contexts)) - 0.5)
        elif kind == 5 and x is not y:
            y.copyto(x)
        elif kind == 6:
            row = x[1:]
            row -= nd.random.uniform(shape=row.shape, ctx=x.context)
        else:
            arrays.append(nd.tanh(x) + nd.broadcast_mul(y, x))
        if len(arrays) > 9:
            arrays.pop(rng.randrange(len(arrays)))
        if rng.randrange(25) == 0:
            arrays[0] *= float(x.mean().asscalar())
    return [x.asnumpy().tobytes() for x in arrays]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    schedules=st.lists(st.integers(0, 2**32), min_size=2, max_size=2, unique=True),
    workers=st.integers(1, 4),
    inline=st.booleans(),
)
def test_all_engines_give_bitwise_the_same(
    seed: int, schedules: list[int], workers: int, inline: bool
):
    def through(kind: str, **options: Any) -> list[bytes]:
        with engine.use(kind, **options):
            values = random_program(seed, [cpu(), gpu(0), gpu(1)])
            engine.waitall()
            engine.current.check()
            return values

    with virtual_gpus(2, link_gb_s=1000):
        expected = through("naive")
        assert through("stepped", workers=workers) == expected
        for schedule in schedules:
            assert through("stepped", seed=schedule, workers=workers) == expected
        below = 20.0 if inline else 0.0
        assert through("threaded", workers=workers, inline_below=below) == expected


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_every_two_operations_in_both_orders_in_random_programs(seed: int):
    with virtual_gpus(2, link_gb_s=1000):
        found = engine.explore(lambda: random_program(seed, [cpu(), gpu(0), gpu(1)]))
    assert found.wrong is None, found


# -- what is said, and what is not -----------------------------------------------------------------


def pushes(*functions: Callable[[dict[str, int]], object]) -> Program:
    """A program that pushes functions of a state that none of them names."""

    def program() -> object:
        state = {"x": 1, "y": 1}
        for function in functions:
            engine.push(lambda function=function: function(state), writes=[engine.new_var()])
        engine.waitall()
        return dict(state)

    return program


def only_between(n: int) -> Program:
    """Neighbours commute in program order and in its reverse: the third has to come between."""

    def step(k: int) -> Callable[[dict[str, int]], object]:
        def run(state: dict[str, int]) -> None:
            done = state.setdefault("done", 0)
            state["done"] = done | 1 << k
            if k == 1 and done in (1 << 2, 1 << 0 | 1 << 3):
                state["x"] = 7

        return run

    return pushes(*[step(k) for k in range(n)])


def test_a_difference_that_needs_a_third_operation_is_found():
    program = only_between(4)
    assert engine.explore(program, reduced=False).wrong is not None
    found = engine.explore(program)
    assert found.wrong is not None and "not the same values" in str(found)


def test_always_is_said_only_of_operators_in_all_orders():
    found = engine.explore(lambda: [nd.full((2,), k) for k in range(7)])
    assert found.complete and found.declared and "always the same values" in str(found)
    found = engine.explore(pushes(*[lambda state: None] * 4))
    assert found.complete and not found.declared and found.orders == 24
    assert "in every legal order. Pushed functions may still" in str(found)
    found = engine.explore(pushes(*[lambda state: None] * 7))
    assert not found.complete and 2 < found.orders < 30
    assert "the same values in these. There are more legal orders" in str(found)
    for program in (only_between(4), pushes(*[lambda state: None] * 7)):
        assert "always" not in str(engine.explore(program))


def order_in(
    operations: dict[int, Operation], order: tuple[int, ...] | list[int], fixed: bool = True
) -> frozenset[tuple[int, int]]:
    """The pairs that share a written Var, in this order; with `fixed` also those that hold a pushed
    function."""
    found = []
    for m, n in combinations(order, 2):
        a, b = operations[m], operations[n]
        shared = {*a.reads, *a.writes} & {*b.reads, *b.writes} & {*a.writes, *b.writes}
        if shared or (fixed and (a.footprint is None or b.footprint is None)):
            found.append((m, n))
    return frozenset(found)


def test_orders_of_each_class_of_random_operations():
    """By brute force: every legal order once; of orders that only exchange neighbouring operators,
    exactly one; every free pair both ways round in the reduced ones."""
    for seed in range(150):
        rng = python_random.Random(seed)
        with engine.stepped() as s:
            variables = [engine.new_var() for _ in range(5)]
            for _ in range(rng.randint(1, 5)):
                engine.push(int, rng.sample(variables, rng.randint(0, 2)), rng.sample(variables, 1))
            operations = s.operations
        for operation in operations.values():
            operation.footprint = rng.choice([None, int])
        orders = stepped_orders.Orders(list(operations.values()))
        numbers = orders.numbers

        ordered = order_in(operations, numbers, fixed=False)
        legal = {
            order
            for order in permutations(numbers)
            if all(order.index(a) < order.index(b) for a, b in ordered)
        }
        assert sorted(orders.all()) == sorted(legal), seed

        classes = [order_in(operations, order) for order in orders.classes(1000) or ()]
        assert (
            len(classes) == len({*classes}) == len({order_in(operations, order) for order in legal})
        ), seed
        reduced = list(orders.reduced())
        assert {*reduced} <= legal and reduced[0] == tuple(numbers)
        for a, b in combinations(numbers, 2):
            if any(order.index(b) < order.index(a) for order in legal):
                assert any(order.index(b) < order.index(a) for order in reduced)
        assert orders.drawn(seed) in legal


def test_the_search_for_orders_grows_with_the_operations():
    """A step for each operation, not one for each pair."""
    with engine.stepped(remember=0) as s:
        x = nd.ones((1,))
        for _ in range(700):
            x = x + 1
            nd.ones((1,))
        operations = s._in_order()
    orders = stepped_orders.Orders(operations)
    assert sum(map(len, orders._direct)) < 2 * len(operations)
    assert len(orders.classes(1) or ()) == 1
