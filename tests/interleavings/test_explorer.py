"""What `explore` does around a program: it puts names back, keeps to bounds, repeats schedules,
refuses wrong arguments."""

from __future__ import annotations

import _thread
import itertools
import queue
import sys
import threading
import time
from types import ModuleType

import pytest

from d2lmini import MXNetError, engine, nd
from d2lmini.interleavings import access, explore
from d2lmini.interleavings.patches import _NAMES

# -- the names -------------------------------------------------------------------------------------


def names_now() -> list[object]:
    return [getattr(owner, name) for owner, name, _ in _NAMES]


def fails():
    raise ValueError("planned")


def blocks():
    threading.Lock()
    threading.Event().wait()


def hangs():
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire(timeout=2)


def leaves_a_thread():
    threading.Thread(target=blocks, daemon=True).start()
    threading.Thread(target=blocks).start()


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (lambda: None, None),
        (fails, "exception"),
        (blocks, "deadlock"),
        (leaves_a_thread, "deadlock"),
        (hangs, "no step"),
    ],
)
def test_names_and_threads_are_put_back_after_every_end(program, kind):
    before, threads = names_now(), set(threading.enumerate())
    found = explore(program, patience_s=0.2)
    assert (found.failure.kind if found.failure else None) == kind
    assert names_now() == before
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) == threads


def test_ctrl_c_ends_an_exploration():
    before = names_now()
    began = _thread.allocate_lock()
    began.acquire()

    def interrupt():
        began.acquire()
        _thread.interrupt_main()

    _thread.start_new_thread(interrupt, ())

    def program():
        thread = threading.Thread(target=lambda: [access("x") for _ in range(50)])
        thread.start()
        if began.locked():
            began.release()
        for _ in range(50):
            access("x")
        thread.join()

    with pytest.raises(KeyboardInterrupt):
        explore(program, schedules=10**9, seconds=60)
        time.sleep(10)  # the signal may come late
    assert names_now() == before
    assert explore(lambda: 1, search="all").complete


def test_other_threads_of_the_process_get_real_objects_meanwhile():
    made: list[object] = []
    stop = _thread.allocate_lock()
    stop.acquire()
    sleep = time.sleep

    def work_outside():
        while not stop.acquire(timeout=0.001):
            lock, items = threading.Lock(), queue.Queue()
            with lock:
                items.put(time.monotonic())
            made.append((type(lock), type(items), items.get() > 0, threading.Thread))

    outside = threading.Thread(target=work_outside)
    outside.start()
    wait_until = time.monotonic() + 10
    kinds = (type(threading.Lock()), queue.Queue, True, threading.Thread)

    def program():
        sleep(0.001)  # a real sleep: gives the other thread time

    while len(made) < 20 and time.monotonic() < wait_until:
        explore(program, schedules=20, search="random")
    stop.release()
    outside.join()
    assert len(made) >= 20
    assert set(made) == {kinds}


def test_the_engine_of_the_library_works_before_after_and_inside():
    x = nd.ones((2, 2))

    def program():
        thread = threading.Thread(target=lambda: values.append(1))
        values: list[int] = []
        thread.start()
        thread.join()
        return tuple(values)

    assert explore(program).outcomes[1,] > 1
    assert (x + 1).sum().asscalar() == 8
    engine.waitall()


def test_global_locks_of_the_program_belong_to_it_and_are_put_back():
    module = ModuleType("with_locks")
    exec(  # the names of a module that imported them before the exploration
        "from threading import Condition, Lock, Thread\n"
        "from queue import Queue\n"
        "from time import sleep\n"
        "first, second, items = Lock(), Lock(), Queue(1)\n"
        "def work(one, other):\n"
        "    with one:\n"
        "        sleep(1)\n"
        "        with other:\n"
        "            items.put(1)\n"
        "def program():\n"
        "    thread = Thread(target=work, args=(second, first), name='other')\n"
        "    thread.start()\n"
        "    work(first, second)\n",
        vars(module),
    )
    before = dict(vars(module))
    for found in (explore(module.program), explore(lambda: module.program(), modules=[module])):
        assert found.failure is not None
        assert found.failure.kind == "deadlock"
        assert "Lock first" in found.failure.message, found
        assert "circle: main -> other -> main" in found.failure.message
    assert dict(vars(module)) == before
    hidden = explore(lambda: module.program(), patience_s=0.2)  # its locks are real ones
    assert hidden.failure is not None
    assert hidden.failure.kind == "no step"
    assert "modules" in hidden.failure.message


# -- bounds, schedules, errors ---------------------------------------------------------------------


def race():
    seen = []

    def work(name):
        for _ in range(3):
            access("x", write=True)
            seen.append(name)

    thread = threading.Thread(target=work, args=("b",))
    thread.start()
    work("a")
    thread.join()
    return "".join(seen)


def test_the_bounds_on_schedules_steps_and_time_hold():
    assert explore(race, schedules=7).schedules == 7
    found = explore(race, steps=5)
    assert found.failure is not None
    assert (found.failure.kind, found.steps) == ("no end", 5)
    begin = time.monotonic()
    found = explore(race, search="random", schedules=10**9, seconds=0.2)
    assert not found.complete
    assert found.schedules > 0

    def endless():
        while True:
            access("x")

    found = explore(endless, steps=10**9, seconds=0.2)  # the time ends in the first schedule
    assert (found.failure, found.schedules, found.complete) == (None, 0, False)
    with pytest.raises(MXNetError, match="has not ended in `seconds`"):
        explore(endless, steps=10**9, seconds=0.2, schedule="")
    assert time.monotonic() - begin < 20


def test_a_seed_draws_the_same_schedules():
    draws = [
        explore(race, search="random", schedules=30, seed=seed, stop=False).outcomes
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_every_outcome_can_be_replayed_by_its_schedule():
    wanted = {"".join(order) for order in itertools.permutations("aaabbb")}
    everything = explore(race, search="all", schedules=10**5)
    assert set(everything.outcomes) == wanted
    for outcome in sorted(wanted):

        def program(outcome=outcome):
            if race() == outcome:
                raise LookupError(outcome)

        found = explore(program, search="reduced", schedules=10**5)
        again = explore(program, schedule=found.schedule)
        assert isinstance(again.failure.error, LookupError)
        assert str(again.failure.error) == outcome


def test_the_shortest_failure_is_reported():
    """A random search meets the failure after many interruptions; one is enough."""

    def program():
        order = race()
        assert order.find("b") > order.find("a") or "ab" not in order[1:]

    least = explore(program, search="preemptions", preemptions=5, schedules=10**4)
    for seed in range(5):
        found = explore(program, search="random", seed=seed)
        assert found._interruptions == least._interruptions
        assert found.steps <= least.steps


def test_a_schedule_that_does_not_fit_is_refused():
    with pytest.raises(MXNetError, match=r"thread 7 cannot go on.*repeat itself"):
        explore(race, schedule="1.2>7")
    with pytest.raises(MXNetError, match=r"expected words like 1.5>2"):
        explore(race, schedule="first, then second")


def test_a_program_that_does_not_repeat_itself_is_refused():
    calls = itertools.count()

    def program():
        if next(calls) % 2 == 0:
            race()

    with pytest.raises(MXNetError, match="does not repeat itself"):
        explore(program, search="preemptions")


def test_wrong_arguments_and_nested_explorations_are_refused():
    with pytest.raises(MXNetError, match="search is 'fast', expected one of mixed"):
        explore(race, search="fast")
    with pytest.raises(MXNetError, match="timers is 'never', expected 'idle' or 'any'"):
        explore(race, timers="never")
    with pytest.raises(MXNetError, match="`lines` has 3"):
        explore(race, lines=[3])
    found = explore(lambda: explore(race))
    assert found.failure is not None
    assert "an exploration runs already" in found.failure.message


def test_lines_of_functions_classes_and_modules_are_steps():
    module = ModuleType("with_lines")
    source = "count = 0\ndef add():\n    global count\n    count += 1\n"
    module.__file__ = "with_lines.py"
    exec(compile(source, module.__file__, "exec"), vars(module))

    def program():
        module.count = 0
        thread = threading.Thread(target=module.add)
        thread.start()
        module.add()
        thread.join()
        return module.count

    assert set(explore(program, stop=False).outcomes) == {2}
    for lines in ([module], [module.add]):
        assert set(explore(program, stop=False, lines=lines).outcomes) == {1, 2}


def test_a_story_names_thread_place_source_and_interruption():
    def work(lock, other):
        with lock, other:
            return

    def program():
        left, right = threading.Lock(), threading.Lock()
        a = threading.Thread(target=work, args=(left, right), name="a")
        b = threading.Thread(target=work, args=(right, left), name="b")
        a.start()
        b.start()
        a.join()
        b.join()

    text = str(explore(program))
    line = work.__code__.co_firstlineno + 1
    assert f"a waits at test_explorer.py:{line}: acquires Lock right, which b holds" in text
    assert "a holds Lock left" in text
    assert "they wait for each other in a circle: a -> b -> a" in text
    assert "-- a is interrupted --" in text
    assert "with lock, other:" in text
    assert f'schedule "{explore(program).schedule}"' in text


def test_long_stories_leave_out_the_middle_of_a_stretch():
    def program():
        for _ in range(100):
            access("x")
        raise ValueError("planned")

    found = explore(program)
    assert len(found.story.splitlines()) < 20
    assert "steps of main" in found.story


def test_an_exploration_runs_under_a_tracer_and_leaves_it():
    seen: list[str] = []

    def trace(frame, event, arg):
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        explore(race, schedules=3)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert seen
