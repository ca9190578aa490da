"""The order of a trace's operations is the engine's own, and the picture of it says the same."""

import itertools
import random

import pytest
from svg_words import arrows_of, words_of

from d2lmini import engine, nd, profile
from d2lmini.engine.core import Var
from d2lmini.profiler.draw import text_of


def test_readers_come_after_the_writer_and_a_writer_after_the_readers(engine_kind):
    x = nd.ones((2, 2))
    with profile() as trace:
        b = x * 2  # x is older than the trace
        c = x * 3
        x += 1  # both have to be done with it
        d = b + x
        x[:] = 0  # 4 has to be done with it
        b[0] = c[1]  # the rest of b stays, so it is read
        b += b
    assert [trace.true_dependencies(number) for number in range(1, 8)] == [
        (), (), (), (1, 3), (), (1, 2), (6,),
    ]  # fmt: skip
    lines = text_of(trace).splitlines()
    assert lines[2:4] == ["3 _plus_scalar, after 1*, 2*", "4 broadcast_add, after 1, 3"]
    assert trace.ordered(5, 1) and not trace.ordered(1, 2) and not trace.ordered(5, 6)
    assert trace[6].line.startswith("b[0] = c[1]") and d.shape == (2, 2)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_the_engines(seed):
    """Random programs: two tasks are ordered exactly if some chain of conflicts leads from one to
    the other; and on workers, what is ordered does not overlap."""
    rng = random.Random(seed)
    variables = [Var() for _ in range(5)]
    touched = []
    with engine.use("threaded", workers=4), profile() as trace:
        for _ in range(30):
            reads = set(rng.sample(range(5), rng.randint(0, 2)))
            writes = set(rng.sample(range(5), rng.randint(0, 2)))
            touched.append((reads, writes))
            engine.push(lambda: None, [variables[i] for i in reads], [variables[i] for i in writes])
    n = len(touched)
    before = [set() for _ in range(n)]
    for early, late in itertools.combinations(range(n), 2):
        (r1, w1), (r2, w2) = touched[early], touched[late]
        if w1 & (r2 | w2) or r1 & w2:
            before[late] |= {early} | before[early]
    for early, late in itertools.combinations(range(n), 2):
        ordered = trace.ordered(early + 1, late + 1)
        assert ordered == (early in before[late]), (seed, early, late)
        if ordered:
            assert trace[early + 1].ended_ns <= trace[late + 1].began_ns


def test_the_graph_has_a_box_for_each_operation_and_tells_what_it_draws():
    with profile() as trace:
        a = nd.ones((1, 2))
        b = a * 2
        a += 1
        c = a + b
    picture = trace.graph()
    words = [word.text for word in words_of(picture)]
    assert words[::2] == ["1  nd.ones", "2  *", "3  +", "4  +"]
    assert words[1::2] == ["a = nd.ones((1, 2))", "b = a * 2", "a += 1", "c = a + b"]
    assert arrows_of(picture) == (5, 1)
    assert repr(picture) == (
        "<dependencies of 4 operations: 1 _ones; 2 _mul_scalar, after 1; "
        "3 _plus_scalar, after 1, 2*; 4 broadcast_add, after 2, 3>"
    )
    assert len(words_of(trace.graph(lines=False))) == 4 and c.shape == (1, 2)
