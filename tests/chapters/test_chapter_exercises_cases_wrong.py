"""Wrong repairs of the engines of Case files: each plausible one is refused, with its hint."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest
from chapter_cells import answers_of, code_of, definitions_in

from d2lmini import d2l
from d2lmini.d2l.check import Wrong

PLACE = definitions_in("case-files")
for _answer in answers_of("case-files"):
    exec(_answer, PLACE)
Bounded, Stoppable, Uploader = (PLACE[name] for name in ("Bounded", "Stoppable", "Uploader"))
Slots, Ordered, Ranked = (PLACE[name] for name in ("Slots", "Ordered", "Ranked"))


def changed(engine: Any, **methods: Any) -> Any:
    """The class with other methods."""
    return type("Changed", (engine,), methods)


# -- "lock" ----------------------------------------------------------------------------------------

right_push = PLACE["repair_lock"](Bounded).push


def push_and_run(self, task):
    with self.lock:
        task()


def start_a_thread(self, task):
    with self.lock:
        self.pending += 1

    def run():
        task()
        with self.lock:
            self.pending -= 1
            self.lock.notify_all()

    threading.Thread(target=run).start()


def count_late(self, task):
    self.jobs.put(task)
    with self.lock:
        self.pending += 1


def drop_when_full(self, task):
    try:
        self.jobs.put_nowait(task)
    except queue.Full:
        return
    with self.lock:
        self.pending += 1


def put_without_bound(self, workers=2, most=4):
    Bounded.__init__(self, workers, most=0)


def work_under_the_lock(self):
    while True:
        task = self.jobs.get()
        with self.lock:
            task()
            self.pending -= 1
            self.lock.notify_all()


def work_without_a_wake_up(self):
    while True:
        self.jobs.get()()
        with self.lock:
            self.pending -= 1


def return_at_once(self):
    with self.lock:
        return


# -- "shutdown" ------------------------------------------------------------------------------------


def stop_and_forget(self):
    with self.lock:
        self.stopped = True
        self.pending = 0
        self.lock.notify_all()


def stop_without_a_wake_up(self):
    with self.lock:
        self.stopped = True
        self.pending -= len(self.waiting)
        self.waiting.clear()


def stop_and_keep(self):
    """Subtracts the tasks and leaves them in the queue for a worker to find."""
    with self.lock:
        self.pending -= len(self.waiting)
        self.lock.notify_all()


def stop_nothing(self):
    """A stop that does nothing."""


def wait_until_stopped(self):
    with self.lock:
        self.lock.wait_for(lambda: self.pending == 0 or self.stopped)


def push_after_stop(self, task):
    with self.lock:
        if self.stopped:
            return
        self.waiting.append(task)
        self.pending += 1
        self.lock.notify_all()


# -- "pool" ----------------------------------------------------------------------------------------

Pooled = PLACE["repair_pool"](Uploader)


def upload_a_copy(self, name, values):
    self.jobs.put((name, list(values)))


def upload_and_wait(self, name, values):
    Uploader.upload(self, name, values)
    self.jobs.join()


def upload_itself(self, name, values):
    buffer = self.free.get()
    buffer[:] = values
    self.device[name] = self.copy(buffer)
    self.free.put(buffer)


def return_before_the_copy(self):
    while True:
        name, buffer = self.jobs.get()
        self.free.put(buffer)
        self.device[name] = self.copy(buffer)
        self.jobs.task_done()


def never_return(self):
    while True:
        name, buffer = self.jobs.get()
        self.device[name] = self.copy(buffer)
        self.jobs.task_done()


def done_before_the_copy(self):
    while True:
        name, buffer = self.jobs.get()
        self.jobs.task_done()
        self.device[name] = self.copy(buffer)
        self.free.put(buffer)


# -- "slot" ----------------------------------------------------------------------------------------


def work_keeps_the_event(self):
    while True:
        task, event = self.jobs.get()
        task()
        event.set()


def wait_returns_the_event(self, handle):
    handle.wait()
    self.free.put(handle)


def wait_and_clear(self, handle):
    handle.wait()
    handle.clear()


def work_sets_early(self):
    while True:
        task, event = self.jobs.get()
        event.set()
        task()


def return_before_setting(self):
    while True:
        task, event = self.jobs.get()
        task()
        self.free.put(event)
        event.set()


def clear_after_use(self):
    while True:
        task, event = self.jobs.get()
        task()
        event.set()
        event.clear()
        self.free.put(event)


def new_event(self, task):
    event = threading.Event()
    self.jobs.put((task, event))
    return event


# -- "view" ----------------------------------------------------------------------------------------


def wait_in_push(self, fn, *arrays):
    fn(*arrays)


def only_the_first(self, fn, *arrays):
    Ordered.push(self, fn, *arrays[:1]) if len(arrays) == 1 else Ordered.push(
        self, lambda x: fn(x, arrays[1]), arrays[0]
    )


# -- "priority" ------------------------------------------------------------------------------------


def with_key(key: Any) -> Any:
    """`Ranked`, with another key for its queue."""

    def push(self, task, priority=0):
        with self.lock:
            self.pending += 1
            number = next(self.numbers)
        self.jobs.put((*key(number, priority), number, task))

    return changed(Ranked, push=push)


WRONG = [
    ("lock", "serial", changed(Bounded, push=push_and_run)),
    ("lock", "serial", changed(Bounded, push=right_push, work=work_under_the_lock)),
    ("lock", "unbounded", changed(Bounded, push=start_a_thread)),
    ("lock", "unbounded", changed(Bounded, push=right_push, __init__=put_without_bound)),
    ("lock", "lost", changed(Bounded, push=drop_when_full)),
    ("lock", "lock", changed(Bounded, push=right_push, work=work_without_a_wake_up)),
    ("lock", ("lock", "early"), changed(Bounded, push=count_late)),
    ("lock", ("lost", "early"), changed(Bounded, push=right_push, waitall=return_at_once)),
    ("shutdown", ("early", "forgets"), changed(Stoppable, stop=stop_and_forget)),
    ("shutdown", "forgets", changed(Stoppable, stop=stop_without_a_wake_up)),
    ("shutdown", ("late", "early", "open", "forgets"), changed(Stoppable, stop=stop_and_keep)),
    ("shutdown", "open", changed(Stoppable, stop=stop_nothing)),
    ("shutdown", "early", changed(Stoppable, waitall=wait_until_stopped)),
    (
        "shutdown",
        "open",
        changed(PLACE["repair_stop"](Stoppable), push=push_after_stop),
    ),
    ("pool", "unbounded", changed(Pooled, upload=upload_a_copy)),
    ("pool", "timid", changed(Uploader, upload=upload_and_wait)),
    ("pool", "timid", changed(Uploader, upload=upload_itself)),
    ("pool", "overwritten", changed(Pooled, work=return_before_the_copy)),
    ("pool", "stuck", changed(Pooled, work=never_return)),
    ("pool", "overwritten", changed(Pooled, work=done_before_the_copy)),
    ("slot", "leak", changed(Slots, work=work_keeps_the_event, wait=wait_returns_the_event)),
    ("slot", ("stuck", "leak"), changed(Slots, work=work_keeps_the_event)),
    (
        "slot",
        "once",
        changed(Slots, push=new_event, work=work_keeps_the_event, wait=wait_and_clear),
    ),
    ("slot", "early", changed(Slots, push=new_event, work=work_sets_early)),
    ("slot", ("reused", "early", "stuck"), changed(Slots, work=return_before_setting)),
    ("slot", "stuck", changed(Slots, work=clear_after_use)),
    ("view", "serial", changed(Ordered, key=lambda self, array: 0)),
    ("view", "serial", changed(Ordered, key=lambda self, array: id(array.base))),
    ("view", "order", changed(Ordered, key=lambda self, array: array.ctypes.data)),
    ("view", "serial", changed(Ordered, key=lambda self, array: array.shape)),
    ("view", "serial", changed(Ordered, push=wait_in_push)),
    (
        "view",
        "order",
        changed(PLACE["repair_views"](Ordered), push=only_the_first),
    ),
    ("priority", "ignored", with_key(lambda number, priority: ())),
    ("priority", "ignored", with_key(lambda number, priority: (number - priority,))),
    ("priority", "starves", with_key(lambda number, priority: (number - 100 * priority,))),
    ("priority", "fifo", with_key(lambda number, priority: (-number,))),
    ("priority", "starves", with_key(lambda number, priority: (priority == 0,))),
    ("priority", "ignored", with_key(lambda number, priority: (priority,))),
]


@pytest.mark.parametrize(
    ("case", "hints", "engine"), WRONG, ids=[f"{row[0]}-{n}" for n, row in enumerate(WRONG)]
)
def test_wrong_repairs_are_refused(case, hints, engine):
    with pytest.raises(Wrong) as caught:
        d2l.check_case(case, engine)
    assert caught.value.hint in hints if isinstance(hints, tuple) else caught.value.hint == hints
    assert len(str(caught.value)) > 30


@pytest.mark.parametrize("case", sorted({row[0] for row in WRONG}))
def test_each_case_has_five_wrong_repairs(case):
    assert sum(row[0] == case for row in WRONG) >= 5


def test_an_error_in_the_answer_comes_out_as_it_is():
    def misspelt(self, task):
        nowhere(task)  # noqa: F821

    with pytest.raises(NameError, match="nowhere"):
        d2l.check_case("lock", changed(Bounded, push=misspelt))
    with pytest.raises(NameError, match="nowhere"):
        d2l.check_case("slot", changed(Slots, work=lambda self: nowhere()))  # noqa: F821
    with pytest.raises(TypeError):
        d2l.check_case("pool", object)


def test_words_that_are_no_case():
    with pytest.raises(ValueError, match=r"expected one of lock, shutdown, pool, .* got 'locks'"):
        d2l.check_case("locks", Bounded)


def test_the_checks_of_the_chapter_give_the_wrong_class_to_the_answer():
    defined = {
        name for source in code_of("case-files") for name in source.split() if "check_" in name
    }
    assert defined
    for name, case in (("check_lock", Bounded), ("check_rank", Ranked)):
        seen: list[Any] = []
        with pytest.raises(Wrong):
            PLACE[name](lambda engine, seen=seen: seen.append(engine) or engine)
        assert seen == [case]
    assert np.ones(2)[:1].base is not None
