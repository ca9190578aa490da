"""Bounds of a schedule: by hand, and for random programs on the virtual clock."""

import pytest
from virtual_programs import draw, seeds, trace_of

from d2lmini import engine, nd, profile


def run(program, workers=2, **times):
    with engine.stepped(workers=workers, times=times or 1000), profile() as trace:
        program()
        nd.waitall()
    return trace


def test_a_chain_bounds_the_run_on_any_number_of_workers():
    def program():
        x = nd.ones((2, 2))
        for _ in range(4):
            x = x + 1

    bounds = run(program, workers=3).bounds()
    assert bounds.chain_ns == bounds.least_ns == 5e6
    assert bounds.work_ns == {"cpu": pytest.approx(5e6 / 3)}
    assert "(the longest chain)" in str(bounds)
    assert bounds.greedy_ns == pytest.approx(5e6 / 3 + 2 / 3 * 5e6)


def test_work_bounds_the_run_of_operations_that_do_not_touch():
    bounds = run(lambda: [nd.ones((2, 2)) for _ in range(7)]).bounds()
    assert (bounds.least_ns, bounds.wall_ns) == (3.5e6, 4e6)
    assert "(the work of cpu on all its workers)" in str(bounds)


@seeds(20, 400)
def test_no_random_program_beats_its_bounds(seed):
    """Graham's holds where nothing but work and order delays an operation: without waits."""
    bounds = trace_of(draw(seed)).bounds()
    assert bounds.least_ns <= bounds.wall_ns
    bounds = trace_of(draw(seed, waits=0, inner=0)).bounds()
    assert bounds.least_ns <= bounds.wall_ns <= bounds.greedy_ns + 1


def test_a_program_that_waits_takes_longer_than_the_bound_of_any_order():
    """So the sentence names its condition: all operations pushed at once."""

    def waits_between():
        for _ in range(3):
            x = nd.ones((2, 2))
            (x + 1).wait_to_read()
            (x * 2).wait_to_read()

    bounds = run(waits_between).bounds()
    assert bounds.wall_ns > bounds.greedy_ns
    assert "; if all are pushed at once and no worker is idle while one is ready" in str(bounds)
