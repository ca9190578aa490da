"""Where the time went: exact on traces made by hand, and right about causes planted in programs.

Causes that only a real clock knows are planted by `tests/benchmarks/planted_truths.py`.
"""

import random
from bisect import bisect_right

import pytest

from d2lmini import cpu, gpu
from d2lmini.profiler import Operation, Trace, Wait
from d2lmini.profiler.account import CAUSES
from d2lmini.profiler.evidence import CpuTime, Pause, Span

# -- traces made by hand: times in ms --------------------------------------------------------------


def ms(value):
    return round(value * 1_000_000)


def made(operations, waits=(), end=None, workers=None):
    """A Trace of operations, each a dict, and waits (begin, end, what it waits for), in ms."""
    trace = Trace()
    trace.begin_ns = ms(1000)
    for number, each in enumerate(operations, 1):
        operation = Operation()
        began, ended = each["ran"]
        pushed = each.get("pushed", 0)
        values = dict(
            number=number, name=each.get("name", "work"), ctx=each.get("ctx", cpu()),
            lane=each.get("lane", "compute"), worker=each.get("worker", "w1"), thread="main",
            site=None, priority=0, predicted_us=each.get("predicted_us", 1e9),
            reads=each.get("reads", ()), writes=each.get("writes", ()),
            pushed_ns=ms(1000 + pushed), ready_ns=ms(1000 + each.get("ready", began)),
            began_ns=ms(1000 + began), ended_ns=ms(1000 + ended), failure=None,
            footprint=None, by=0,
        )  # fmt: skip
        for name, value in values.items():
            setattr(operation, name, value)
        trace.operations.append(operation)
    issued = [operation.pushed_ns for operation in trace.operations]
    for begin, over, awaited in waits:
        pushed = bisect_right(issued, ms(1000 + begin))
        times = ms(1000 + begin), ms(1000 + over)
        trace.waits.append(Wait("wait_to_read", 1, awaited, pushed, None, "main", *times))
    last = max(operation["ran"][1] for operation in operations) if operations else 10
    trace.end_ns = ms(1000 + (last if end is None else end))
    trace.workers = workers or {"cpu": 2, "gpu(0)": 1, "gpu(1)": 1}
    return trace


def parts(trace, cores=2):
    """{cause: ms} of what is not nothing; the parts sum to the wall time in any case."""
    account = trace.account(cores)
    total = sum(part.ns for part in account.parts.values())
    assert total == pytest.approx(account.wall_ns, abs=1)
    assert set(account.parts) == set(CAUSES)
    return {p.cause: p.ns / 1e6 for p in account.parts.values() if p.ns > 0.5}


def on(device, began, ended, **more):
    return dict(ctx=gpu(device), worker=f"gpu{device}", ran=(began, ended), **more)


def test_two_workers_that_are_always_busy_only_work():
    trace = made([dict(ran=(0, 10)), dict(ran=(0, 10), worker="w2")])
    assert parts(trace) == {"work": 10}
    assert trace.account(2).causes == []


def test_a_chain_on_two_workers_is_half_work_half_dependency():
    trace = made(
        [
            dict(ran=(0, 10), writes=(1,)),
            dict(ran=(10, 20), worker="w2", reads=(1,), writes=(2,)),
            dict(ran=(20, 30), reads=(2,), writes=(3,)),
        ]
    )
    assert parts(trace) == pytest.approx({"work": 15, "dependency": 15})
    assert trace.account(2)["dependency"].saves_ns == ms(10)  # two at once, then the third
    path = trace.critical_path()
    assert path.operations == [1, 2, 3] and path.length_ns == ms(30)


def test_a_wait_between_two_devices_takes_what_the_other_could_have_done():
    trace = made(
        [on(0, 0, 10, writes=(1,)), on(1, 10, 20, writes=(2,), pushed=10)], waits=[(0, 10, 1)]
    )
    # While the first ran the second device waited for the program; then the first was done.
    assert parts(trace) == pytest.approx({"work": 10, "waits": 5, "dependency": 5})
    account = trace.account(2)
    assert account.causes[0] == "waits"
    assert account["waits"].saves_ns == ms(10)
    steps = [(step.kind, step.operation) for step in trace.critical_path().steps]
    assert steps == [("operation", 1), ("operation", 2)]


def test_issuing_is_the_short_time_before_a_push():
    times = [0.8 * k for k in range(1, 6)]
    trace = made([dict(ran=(t, t), pushed=t) for t in times], workers={"cpu": 1})
    assert parts(trace, cores=1) == pytest.approx({"issuing": 4})


def test_a_long_time_before_a_push_is_the_programs_own():
    trace = made([dict(ran=(6, 10), pushed=6)], workers={"cpu": 1})
    assert parts(trace, cores=1) == {"work": 4, "program": 6}
    program = trace.account(1)["program"]
    assert program.sentence == "the program's own code ran; no operation was issued"
    assert program.saves_ns == 0
    path = trace.critical_path()
    assert [(step.kind, step.end_ns) for step in path.steps] == [
        ("issuing", ms(6)),
        ("operation", ms(10)),
    ]


def test_a_copy_that_a_device_needs_is_transfer():
    link = dict(ctx=gpu(0), lane="in", worker="link")
    trace = made(
        [
            dict(ran=(0, 4), writes=(1,), **link),
            dict(ran=(4, 8), ready=0, writes=(2,), **link),
            on(0, 4, 5, reads=(1,), writes=(3,)),
            on(0, 8, 9, reads=(2,), writes=(4,)),
        ]
    )
    assert parts(trace) == {"work": 2, "transfer": 7}
    assert trace.account(2)["transfer"].saves_ns == ms(7)


def test_the_one_that_is_done_waits_for_the_slow_one():
    steps = []
    for k in range(3):
        t = 30 * k
        before = (10 * k,) if k else ()
        steps.append(on(0, t, t + 10, reads=before, writes=(10 * k + 1,)))
        steps.append(on(1, t, t + 30, reads=before, writes=(10 * k + 2, 10 * k + 10)))
    trace = made(steps)
    assert parts(trace) == pytest.approx({"work": 60, "imbalance": 30})
    assert trace.account(2)["imbalance"].saves_ns == ms(60)  # as quick as the other: 10 a step


def test_ready_operations_queue_for_the_only_worker_while_there_are_cores():
    operations = [dict(ran=(10 * k, 10 * k + 10), ready=0) for k in range(4)]
    trace = made(operations, workers={"cpu": 1})
    # With two workers at each instant one of two would run beside; the last runs alone.
    assert parts(trace, cores=2) == pytest.approx({"work": 25, "workers": 15})
    assert trace.account(2)["workers"].saves_ns == ms(20)
    assert parts(trace, cores=1) == {"work": 40}


def random_trace(rng):
    """Any trace: times that need not fit each other, waits anywhere."""
    operations = []
    for k in range(rng.randint(0, 30)):
        began = rng.uniform(0, 90)
        where = rng.choice(
            [
                dict(worker=rng.choice(["w1", "w2", "w3", "caller"])),
                dict(ctx=gpu(0), worker="g0"),
                dict(ctx=gpu(1), worker="g1"),
                dict(ctx=gpu(1), lane=rng.choice(["in", "out"]), worker="link"),
            ]
        )
        operations.append(
            dict(
                ran=(began, began + rng.choice([0, 0.001, rng.uniform(0, 9)])),
                ready=rng.uniform(0, began), pushed=k, writes=(rng.randint(1, 9),),
                reads=tuple(rng.sample(range(1, 9), rng.randint(0, 2))),
                predicted_us=rng.choice([1.0, 600.0, 1e9]), **where,
            )
        )  # fmt: skip
    waits = [sorted((rng.uniform(0, 99), rng.uniform(0, 99))) for _ in range(rng.randint(0, 4))]
    awaited = [rng.randint(0, len(operations)) for _ in waits]
    return made(operations, [(*w, a) for w, a in zip(waits, awaited, strict=True)], end=100)


@pytest.mark.parametrize("turn", range(10))
def test_the_parts_sum_to_the_wall_time_whatever_the_trace_says(turn):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(20):
        trace = random_trace(rng)
        parts(trace, cores=rng.randint(1, 4))
        assert all(part.ns >= -1 for part in trace.account(2).parts.values()), f"seed {seed}"
        str(trace.account()), str(trace.critical_path())


# -- off the CPU -----------------------------------------------------------------------------------


def test_operations_off_the_cpu_are_no_work():
    """Two workers, 100 ms: one operation of which 30 ms were collected, preempted and not
    explained; one that slept."""
    trace = made([dict(ran=(0, 100)), dict(ran=(0, 100), worker="w2")])
    trace.cpu.times = {
        1: CpuTime(ms(70), ms(5), False),
        2: CpuTime(ms(10), ms(0), True, ms(80)),
    }
    trace.cpu.pauses = [Pause(ms(1020), ms(1030), "other", None)]
    found = {cause: part.ns / 1e6 for cause, part in trace.account(cores=2).parts.items()}
    assert found["work"] == pytest.approx((70 + 10) / 2)
    assert found["preempted"] == pytest.approx(5 / 2)
    assert found["gc"] == pytest.approx((10 + 10) / 2)
    assert found["blocked"] == pytest.approx(80 / 2)
    assert found["unexplained"] == pytest.approx(15 / 2)
    assert sum(found.values()) == pytest.approx(100)


def test_the_time_between_two_operations_is_cut_by_what_the_thread_did():
    """50 ms from one turn of a loop to the next, 0.8 ms of which is Python."""
    trace = made([dict(ran=(0, 10)), dict(ran=(60, 70), pushed=60)], workers={"cpu": 1})
    trace.cpu.spans = [
        Span("main", ms(1000), ms(1030), "blocked"),
        Span("main", ms(1030), ms(1059.2), "preempted"),
        Span("another", ms(1010), ms(1060), "blocked"),
    ]
    found = parts(trace, cores=1)
    assert found == pytest.approx({"work": 20, "blocked": 20, "preempted": 29.2, "issuing": 0.8})
    account = trace.account(cores=1)
    assert account["blocked"].saves_ns == pytest.approx(ms(30))
    assert account["preempted"].saves_ns == pytest.approx(ms(29.2))
    assert account["issuing"].saves_ns == pytest.approx(ms(0.8))


def test_a_worker_without_a_core_delays_what_comes_next():
    """The worker was to release the second operation, and then to begin it."""
    trace = made([dict(ran=(0, 10), writes=(1,)), dict(ran=(40, 50), ready=20, reads=(1,))],
                 workers={"cpu": 1})  # fmt: skip
    assert parts(trace, cores=1) == pytest.approx({"work": 20, "unexplained": 29, "issuing": 1})
    trace.cpu.spans = [
        Span("w1", ms(1010), ms(1020), "preempted"), Span("w1", ms(1020), ms(1040), "preempted")
    ]  # fmt: skip
    assert parts(trace, cores=1) == pytest.approx({"work": 20, "preempted": 30})
