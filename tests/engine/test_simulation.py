"""Programs on the virtual clock, calculated by hand; and the order of recorded operations."""

from __future__ import annotations

from math import isnan
from types import SimpleNamespace
from typing import Any

import pytest

from d2lmini.engine.operation import Operation, RecordedCost
from d2lmini.engine.order import Ordering, drop_implied, edges_of, order_of
from d2lmini.engine.simulation import (
    ProgramStep,
    SharedWork,
    SimulatedTask,
    Simulation,
)

WORKERS = {"cpu": ["cpu 1", "cpu 2"], "one": ["one"]}


def play(jobs: list[SimulatedTask], *steps: ProgramStep, **options: Any) -> Simulation:
    """The run of a program of one thread (others by name); its end is in `ended`."""
    others = {name: options.pop(name) for name in list(options) if name == "other"}
    simulation = Simulation(jobs, {"main": steps, **others}, WORKERS, **options)
    assert simulation.run() == simulation.ended and simulation.pending == 0
    assert simulation.weight == 0 and not simulation.shared
    assert all(not place.busy and not place.ready for place in simulation.schedule.places.values())
    return simulation


def times(jobs: list[SimulatedTask]) -> list[tuple]:
    return [(job.pushed, job.began, job.ended, job.worker) for job in jobs]


def issue(*numbers: int, gap: int = 1) -> list[ProgramStep]:
    return [ProgramStep(gap, number) for number in numbers]


def test_a_worker_takes_one_after_the_other():
    jobs = [SimulatedTask(i, "one", 10, hand_over=2) for i in (1, 2, 3)]
    jobs[2].priority = 1
    assert play(jobs, *issue(1, 2, 3)).ended == 37
    assert times(jobs) == [(1, 3, 13, "one"), (2, 27, 37, "one"), (3, 15, 25, "one")]
    assert [job.ready for job in jobs] == [1, 2, 3]


def test_what_is_inline_runs_on_its_thread_if_nothing_is_missing():
    jobs = [SimulatedTask(i, "cpu", 5, hand_over=i - 1, inline=True) for i in (1, 2, 3)]
    jobs[2].follows([jobs[0], jobs[1]])
    assert jobs[2].missing == 2
    run = play(jobs, *issue(1, 2, 3))
    assert times(jobs) == [(1, 1, 6, ""), (7, 8, 13, ""), (14, 16, 21, "")]
    assert run.ended == 21 and run.issued == jobs
    late = [SimulatedTask(1, "cpu", 5), SimulatedTask(2, "cpu", 5, inline=True)]
    late[1].follows(late[:1])
    play(late, *issue(1, 2))
    assert times(late) == [(1, 1, 6, "cpu 1"), (2, 6, 11, "cpu 1")] and late[1].ready == 6


def test_waits_for_some_jobs_and_for_all():
    jobs = [SimulatedTask(1, "one", 10), SimulatedTask(2, "one", 10)]
    steps = [
        *issue(1, 2),
        ProgramStep(1, jobs=(1,), after=2, wait="first"),
        ProgramStep(1, jobs=(1,), after=3, wait="again"),
        ProgramStep(1, jobs=None, wait="all"),
        ProgramStep(4, jobs=None, wait="idle"),
        ProgramStep(5),
    ]
    run = play(jobs, *steps)
    assert run.waits == [
        ("first", "main", 2, 3, 13), ("again", "main", 2, 14, 17), ("all", "main", 2, 18, 21),
        ("idle", "main", 2, 25, 25),
    ]  # fmt: skip
    assert (run.left, run.ended) == (30, 30)


def test_several_threads_and_one_that_starts_later():
    jobs = [SimulatedTask(1, "one", 10), SimulatedTask(2, "one", 1)]
    steps = [
        ProgramStep(1, 1, starts=("other",)),
        ProgramStep(1, jobs=(1, 2), wait="both"),
    ]
    other = [ProgramStep(5, 2), ProgramStep(1, jobs=None, wait="all")]
    run = play(jobs, *steps, other=other)
    assert times(jobs) == [(1, 1, 11, "one"), (6, 11, 12, "one")]
    assert run.waits == [("both", "main", 1, 2, 12), ("all", "other", 2, 7, 12)]


@pytest.mark.parametrize(
    ("bound", "weights", "pushed", "pauses"),
    [
        (None, (1, 1), [1, 2], []), (2, (1, 1), [1, 2], []), (1, (1, 1), [1, 11], [(2, 11)]),
        (1, (5, 1), [1, 11], [(2, 11)]), (5, (1, 5), [1, 11], [(2, 11)]),
    ],
)  # fmt: skip
def test_a_push_pauses_at_the_bound(bound, weights, pushed, pauses):
    jobs = [SimulatedTask(i + 1, "cpu", 10, weight=w) for i, w in enumerate(weights)]
    run = play(jobs, *issue(1, 2), bound=bound)
    assert [job.pushed for job in jobs] == pushed
    assert run.waits == [(None, "main", 1, begin, end) for begin, end in pauses]


def test_a_pause_that_only_later_steps_could_end_is_left():
    jobs = [SimulatedTask(1, "cpu", 3), SimulatedTask(2, "cpu", 4)]
    jobs[0].follows(jobs[1:])
    run = play(jobs, *issue(1, 2), bound=1)
    assert times(jobs) == [(1, 6, 9, "cpu 1"), (2, 2, 6, "cpu 1")] and len(run.waits) == 1


def test_jobs_that_a_job_pushes():
    jobs = [SimulatedTask(1, "cpu", 10), SimulatedTask(2, "cpu", 3)]
    jobs[0].children = [(4, jobs[1])]
    run = play(jobs, *issue(1), ProgramStep(1, wait="all"))
    assert times(jobs) == [(1, 1, 11, "cpu 1"), (5, 5, 8, "cpu 2")]
    assert run.waits == [("all", "main", 1, 2, 11)]


@pytest.mark.parametrize(
    ("place", "hand_over", "late", "pieces", "busy_until", "ended"),
    [
        ("cpu", 0, True, 4, 0, 11), ("cpu", 1, True, 4, 0, 13), ("one", 0, True, 4, 0, 17),
        ("cpu", 0, False, 4, 0, 11), ("cpu", 0, False, 4, 20, 17), ("cpu", 0, True, 1, 0, 8),
        ("cpu", 0, True, 3, 6, 11), ("one", 0, False, 2, 0, 11), ("cpu", 0, True, 5, 0, 14),
    ],
)  # fmt: skip
def test_workers_share_the_pieces_of_a_job(place, hand_over, late, pieces, busy_until, ended):
    """4 for the owner alone, then pieces of 3; the push is at 1, and another may be busy."""
    share = SharedWork(4, 3, pieces, late)
    shared = SimulatedTask(1, place, 99, hand_over=hand_over, share=share)
    jobs = [shared, SimulatedTask(2, place, busy_until - 1)][: 2 if busy_until else 1]
    steps = [ProgramStep(1, jobs[-1].number), *issue(1, gap=0)[: len(jobs) - 1]]
    play(jobs, *steps)
    assert (shared.began, shared.ended) == (1 + hand_over, ended)


# -- recorded operations ---------------------------------------------------------------------------


def recorded(*rows: str) -> list[Any]:
    """Operations "12>3": reads the Vars 1 and 2, writes 3."""
    split = [row.split(">") for row in rows]
    return [
        SimpleNamespace(number=i, reads=tuple(map(int, r)), writes=tuple(map(int, w)))
        for i, (r, w) in enumerate(split, 1)
    ]


@pytest.mark.parametrize(
    ("rows", "true", "anti"),
    [
        ((">1", "1>2", "1>3", ">1"), "- 1 1 -", "- - - 23"),
        ((">1", ">1", "1>1", "1>2"), "- - 2 3", "- 1 - -"),
        (("1>2", ">1", ">1"), "- - -", "- 1 2"),
        ((">12", "12>", "1>2", "2>1"), "- 1 1 3", "- - 2 2"),
        (("11>1", "1>1"), "- 1", "- -"),
    ],
)
def test_who_comes_after_whom(rows, true, anti):
    def numbers(text: str) -> list[tuple[int, ...]]:
        return [tuple(map(int, part.strip("-"))) for part in text.split()]

    expected = list(zip(numbers(true), numbers(anti), strict=True))
    found = order_of(recorded(*rows))
    assert [(t, tuple(sorted(set(a)))) for t, a in found] == expected


def test_what_is_implied_is_left_out():
    order = [((), ()), ((1,), ()), ((2,), (1,)), ((), (1, 2, 3)), ((), (1,))]
    left = drop_implied(order)
    assert left == [
        (set(), set()), ({1}, set()), ({2}, set()), (set(), {3}), (set(), {1}),
    ]  # fmt: skip
    assert edges_of(left) == {(0, 1): True, (1, 2): True, (2, 3): False, (0, 4): False}


def test_what_ended_long_ago_is_forgotten():
    operations = recorded(">1", "1>2", "1>3", ">2", ">1", ">3", "123>")
    ordering = Ordering()
    for operation in operations[:4]:
        ordering.after(operation)
    for operation in operations[:2]:
        ordering.forget(operation)
    assert ordering.writer == {2: 4, 3: 3}, "2 has a later writer"
    assert ordering.after(operations[4]) == ((), (3,))
    ordering.forget(operations[2])
    assert ordering.after(operations[5]) == ((), ())
    assert ordering.after(operations[6]) == ((4, 5, 6), ())


def test_the_times_and_the_cost_of_an_operation():
    operation = Operation(
        number=3, name="dot", began_ns=0, ended_ns=0, worker="caller", footprint=None, site=None
    )
    assert (operation.run_ns, operation.ran, operation.inline) == (0, False, True)
    assert isnan(operation.began_s) and isnan(operation.ended_s) and str(operation) == "3 dot"
    assert operation.cost() == operation.cost == (0, 0)
    operation.began_ns = 2_000
    assert (operation.run_ns, operation.ran, operation.began_s) == (0, False, 2e-6)
    operation.ended_ns, operation.worker = 5_000, "cpu 1"
    assert (operation.run_ns, operation.ran, operation.ended_s) == (3_000, True, 5e-6)
    assert not operation.inline
    asked: list[int] = []
    known = Operation(footprint=lambda: asked.append(1) or RecordedCost(6.0, 24.0))
    assert (known.flops, known.nbytes, asked) == (6.0, 24.0, [1])
