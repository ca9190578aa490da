"""The board of schedules: no cheat gains anything, no right schedule is refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from d2lmini import instrument, nd
from d2lmini.d2l import pipeline, schedule_board
from d2lmini.d2l.check import Wrong
from d2lmini.d2l.pipeline import Pass
from d2lmini.d2l.schedule_board import Problem, judge
from d2lmini.d2l.schedule_problem import bounds_of, places_of
from d2lmini.device.virtual_device import VirtualDevice
from d2lmini.engine.stepped_engine import SteppedEngine

PROBLEM = Problem(devices=2, microbatches=3, widths=(16, 16, 16, 16, 16), rows=8, keep=6)


def one_f_one_b(problem=PROBLEM):
    schedule = pipeline.one_f_one_b(problem.devices, problem.microbatches)
    return schedule_board.by_device(schedule, problem.stages // problem.devices)


def least_us(problem, schedule):
    """The time of a schedule by arithmetic: each pass as early as its device and its inputs allow;
    a link has as much room as needed."""
    place, ends, free = places_of(schedule), {}, [0.0] * len(schedule)
    for device, step in pipeline.merge(schedule):
        at = free[device]
        for need in pipeline.needs_of(step, problem.stages):
            apart = place[need.stage] != device
            copy_us = problem.copy_us[min(need.stage, step.stage)] if apart else 0.0
            at = max(at, ends[need] + copy_us)
        ends[step] = free[device] = at + problem.us_of(step)
    return max(free)


# -- cheats ----------------------------------------------------------------------------------------


class Small(int):
    """An int that compares equal to what is asked for."""

    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class TwoFaced(list):
    """A list that shows the whole work first, and less later."""

    shown = 0

    def __iter__(self):
        self.shown += 1
        return super().__iter__() if self.shown == 1 else iter(())


def without(*left_out):
    return [[s for s in passes if s not in left_out] for passes in one_f_one_b()]


def skips_the_last_backward(problem, monkeypatch):
    return without(Pass("B", 0, 2))


def leaves_a_microbatch_out(problem, monkeypatch):
    return without(*[Pass(kind, s, 1) for kind in "FB" for s in range(4)])


def counts_a_pass_twice(problem, monkeypatch):
    schedule = without(Pass("F", 0, 2))
    schedule[0].append(Pass("F", 0, 1))
    return schedule


def invents_a_microbatch(problem, monkeypatch):
    return [[*passes, Pass("F", 2 * d, 3)] for d, passes in enumerate(one_f_one_b())]


def brings_a_third_device(problem, monkeypatch):
    first, second = one_f_one_b()
    return [first, [s for s in second if s.stage == 2], [s for s in second if s.stage == 3]]


def copies_weights_to_the_idle_device(problem, monkeypatch):
    first, second = without(Pass("F", 0, 2))
    return [first, [Pass("F", 0, 2), *second]]


def claims_a_cost(problem, monkeypatch):
    return [[(*step, 0.0) for step in passes] for passes in one_f_one_b()]


def claims_a_time(problem, monkeypatch):
    return {"schedule": one_f_one_b(), "time_us": 1.0}


def counts_with_numbers_of_its_own(problem, monkeypatch):
    return [[("F", Small(0), 0), *passes] for passes in without(Pass("F", 0, 0))]


def shows_another_list_later(problem, monkeypatch):
    return TwoFaced(one_f_one_b())


def runs_backward_before_forward(problem, monkeypatch):
    first, second = one_f_one_b()
    return [first, second[::-1]]


def waits_in_a_circle(problem, monkeypatch):
    a, b = [Pass("F", 0, i) for i in range(2)]
    first, second = one_f_one_b()
    late = [s for s in first if s not in (a, b)]
    return [[*late[:2], a, b, *late[2:]], second]


def slows_the_clock(problem, monkeypatch):
    clock = SteppedEngine.clock
    monkeypatch.setattr(SteppedEngine, "clock", lambda self: clock(self) // 2)
    return one_f_one_b()


def slows_the_clock_inside(problem, monkeypatch):
    def now(self):
        return self.__dict__["now_us"] / 2

    def tick(self, us):
        self.__dict__["now_us"] = us

    monkeypatch.setattr(SteppedEngine, "now_us", property(now, tick), raising=False)
    return one_f_one_b()


def makes_the_links_fast(problem, monkeypatch):
    monkeypatch.setattr(VirtualDevice, "_copy_us", lambda self, task: 0.0)
    return one_f_one_b()


def makes_the_devices_fast(problem, monkeypatch):
    monkeypatch.setattr(Problem, "us_of", lambda self, step: 1.0)
    return one_f_one_b()


def changes_the_times(problem, monkeypatch):
    monkeypatch.setattr(pipeline, "pass_times", lambda *us, **copy: lambda task: 1.0)
    return one_f_one_b()


def changes_code_in_place(problem, monkeypatch):
    monkeypatch.setattr(pipeline.predict_us, "__code__", (lambda task: 0.0).__code__)
    return one_f_one_b()


def silences_the_judge(problem, monkeypatch):
    monkeypatch.setattr(schedule_board, "_check_times", lambda problem, spans: None)
    return one_f_one_b()


def listens_and_turns_the_clock(problem, monkeypatch):
    class Turn(instrument.Instrument):
        def end(self, task, failure):
            """Here a cheat would change the clock."""

    listener = Turn()
    monkeypatch.setattr(instrument, "listeners", (*instrument.listeners, listener))
    return one_f_one_b()


def computes_nothing(problem, monkeypatch):
    monkeypatch.setattr(np, "maximum", lambda a, b, out=None, **rest: np.multiply(a, 0, out=out))
    return one_f_one_b()


CHEATS = {
    skips_the_last_backward: ("missing", "the backward pass of stage 0 for microbatch 2"),
    leaves_a_microbatch_out: ("missing", "the forward pass of stage 0 for microbatch 1"),
    counts_a_pass_twice: ("twice", "F0.1 is on device 0 and again on device 0"),
    invents_a_microbatch: ("unknown", "microbatches are 0 to 2"),
    brings_a_third_device: ("device", "3 devices, there are 2"),
    copies_weights_to_the_idle_device: ("moved", "stage 0 are on device 0"),
    claims_a_cost: ("form", 'a pass is ("F" or "B", stage, microbatch)'),
    claims_a_time: ("form", "got dict"),
    counts_with_numbers_of_its_own: ("form", "a pass is"),
    shows_another_list_later: ("form", "got TwoFaced"),
    runs_backward_before_forward: ("order", "device 1 waits before B2.2 for F2.2 and B3.2"),
    waits_in_a_circle: ("order", "wait for each other"),
    slows_the_clock: ("replaced", "stepped_engine.SteppedEngine.clock"),
    slows_the_clock_inside: ("clock", "gpu(0) was to run F0.0"),
    makes_the_links_fast: ("replaced", "VirtualDevice._copy_us"),
    makes_the_devices_fast: ("replaced", "Problem.us_of"),
    changes_the_times: ("replaced", "pipeline.pass_times"),
    changes_code_in_place: ("replaced", "predict_us"),
    silences_the_judge: ("replaced", "schedule_board._check_times"),
    listens_and_turns_the_clock: ("replaced", "added a listener"),
    computes_nothing: ("values", "the gradient of the weights"),
}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_cheat_is_refused(cheat, monkeypatch):
    hint, words = CHEATS[cheat]
    with pytest.raises(Wrong) as wrong, monkeypatch.context() as patch:
        judge(PROBLEM, lambda problem: cheat(problem, patch))
    assert wrong.value.hint == hint and words in str(wrong.value), str(wrong.value)


def test_times_that_arithmetic_forbids_are_refused():
    spans = judge(PROBLEM, one_f_one_b).spans
    for number, span in enumerate(spans):
        moves = [span._replace(end_ns=span.end_ns - 2000)]
        if span.begin_ns:
            moves.append(span._replace(begin_ns=span.begin_ns - 2000))
        for moved in moves:
            changed = [*spans[:number], moved, *spans[number + 1 :]]
            if moved.begin_ns == span.begin_ns or span.begin_ns == earliest_ns(spans, span):
                with pytest.raises(Wrong, match="cannot begin before") as wrong:
                    schedule_board._check_times(PROBLEM, changed)
                assert wrong.value.hint == "clock"


def earliest_ns(spans, span):
    """When the device was free, or the last input came."""
    ends = [other.end_ns for other in spans if other.device == span.device]
    free_ns = max((ns for ns in ends if ns <= span.begin_ns), default=0)
    needs = pipeline.needs_of(span.step, PROBLEM.stages)
    came = [
        other.end_ns + (other.device != span.device) * round(1000 * PROBLEM.copy_us[1])
        for other in spans
        if other.step in needs
    ]
    return max([free_ns, *came])


def test_what_the_library_replaces_itself_is_no_cheat(monkeypatch):
    """Add-ons when they are loaded, and mixed precision; but not by a function of the reader."""
    from d2lmini.compat import bind  # noqa: F401
    from d2lmini.contrib import amp
    from d2lmini.d2l.originals import Originals
    from d2lmini.ndarray import NDArray

    originals = Originals()
    with amp.init("float16"):
        assert originals.replaced() == []
    apply = NDArray._apply
    monkeypatch.setattr(NDArray, "_apply", staticmethod(lambda *args: apply(*args)))
    assert originals.replaced() == ["d2lmini.ndarray.ndarray.NDArray._apply"]


def test_what_was_replaced_before_the_call_is_refused_too(monkeypatch):
    with monkeypatch.context() as patch:
        slows_the_clock(PROBLEM, patch)
        with pytest.raises(Wrong, match="before the call"):
            judge(PROBLEM, one_f_one_b)
    assert judge(PROBLEM, one_f_one_b).time_us == least_us(PROBLEM, one_f_one_b())


def test_a_function_that_changes_the_problem_gains_nothing():
    def faster(problem):
        object.__setattr__(problem, "gflops", 1e9)
        object.__setattr__(problem, "microbatches", 1)
        return one_f_one_b()

    own = Problem(**{name: getattr(PROBLEM, name) for name in PROBLEM.__dataclass_fields__})
    result = judge(own, faster)
    assert result.time_us == least_us(PROBLEM, one_f_one_b())
    assert result.problem == PROBLEM


def test_too_many_activations_are_refused_and_their_number_is_named():
    small = Problem(devices=2, microbatches=3, widths=(16, 16, 16, 16, 16), rows=8, keep=3)
    with pytest.raises(Wrong, match="of 4 passes, it has room for 3") as wrong:
        judge(small, one_f_one_b)
    assert wrong.value.hint == "memory"


def test_errors_of_the_function_come_out_as_they_are():
    with pytest.raises(NameError, match="gpipe"):
        judge(PROBLEM, lambda problem: gpipe(problem))  # noqa: F821


# -- right schedules -------------------------------------------------------------------------------


def placed(places, order):
    """The passes of `order` on the devices of their stages."""
    schedule = [[] for _ in range(max(places) + 1)]
    for kind, stage, microbatch in order:
        schedule[places[stage]].append((kind, stage, microbatch))
    return schedule


def all_forward_first(problem, backward=1):
    stages, microbatches = range(problem.stages), range(problem.microbatches)
    order = [("F", s, i) for i in microbatches for s in stages]
    return order + [("B", s, i) for i in microbatches[::backward] for s in reversed(stages)]


def one_microbatch_at_a_time(problem):
    stages = range(problem.stages)
    return [
        step
        for i in (1, 0, 2)
        for step in [*(("F", s, i) for s in stages), *(("B", s, i) for s in reversed(stages))]
    ]


def at_random(problem):
    """Any order in which inputs come first."""
    draw = random.Random(problem.microbatches)
    ways = [
        [*(("F", s, i) for s in range(problem.stages)),
         *(("B", s, i) for s in reversed(range(problem.stages)))]
        for i in range(problem.microbatches)
    ]  # fmt: skip
    order = []
    while ways:
        way = draw.choice(ways)
        order.append(way.pop(0))
        ways = [way for way in ways if way]
    return order


def computed_with_the_library(problem):
    order = all_forward_first(problem)
    numbers = nd.arange(len(order)).asnumpy().astype(int).tolist()
    return placed([0, 0, 1, 1], [order[number] for number in numbers])


RIGHT = {
    "tuples": lambda problem: tuple(map(tuple, one_f_one_b())),
    "lists from JSON": lambda problem: json.loads(json.dumps(one_f_one_b())),
    "one device": lambda problem: placed([0] * 4, all_forward_first(problem)),
    "an empty device": lambda problem: [*placed([0] * 4, one_microbatch_at_a_time(problem)), []],
    "the second device only": lambda problem: placed([1] * 4, one_microbatch_at_a_time(problem)),
    "from the last device": lambda problem: placed([1, 1, 0, 0], all_forward_first(problem)),
    "interleaved": lambda problem: placed([0, 1, 0, 1], all_forward_first(problem)),
    "there and back": lambda problem: placed([0, 1, 1, 0], all_forward_first(problem)),
    "three to one": lambda problem: placed([0, 0, 0, 1], all_forward_first(problem)),
    "backward from the last": lambda problem: placed([0, 0, 1, 1], all_forward_first(problem, -1)),
    "one at a time": lambda problem: placed([0, 1, 0, 1], one_microbatch_at_a_time(problem)),
    "at random": lambda problem: placed([0, 1, 1, 0], at_random(problem)),
    "computed with the library": computed_with_the_library,
}
ROOMY = Problem(devices=2, microbatches=3, widths=(16, 24, 8, 16, 4), rows=8, keep=12)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_schedule_is_accepted_and_its_time_is_that_of_arithmetic(name):
    result = judge(ROOMY, RIGHT[name])
    assert result.time_us == pytest.approx(least_us(ROOMY, result.schedule), abs=0.05)
    assert result.bounds.least <= result.time_us + 0.05
    place = places_of(result.schedule)
    crossed = [w for s, w in enumerate(ROOMY.widths[1:-1]) if place[s] != place[s + 1]]
    assert result.links.nbytes == 2 * ROOMY.microbatches * 4 * ROOMY.rows * sum(crossed)


def test_lists_are_judged_without_a_function():
    assert judge(PROBLEM, one_f_one_b()).time_us == judge(PROBLEM, one_f_one_b).time_us


# -- bounds, gaps, the table -----------------------------------------------------------------------


def test_the_bounds_of_known_schedules():
    free = Problem(devices=4, microbatches=8, link_gb_s=1e9, keep=16)
    for schedule, v in (
        (schedule_board.by_device(pipeline.one_f_one_b(4, 8), 2), 1),
        (pipeline.interleaved(4, 8, 2), 2),
    ):
        bounds = bounds_of(free, schedule)
        assert bounds.work == 48000 and bounds.chain == pytest.approx(24000)
        assert bounds.device == pytest.approx(float(48000 / (1 - pipeline.bubble(4, 8, v))))
        result = judge(free, schedule)
        assert result.time_us == pytest.approx(bounds.least)
        assert result.gap is None and result.idle == pytest.approx(float(pipeline.bubble(4, 8, v)))
    slow = Problem(devices=2, microbatches=3, widths=(16,) * 5, rows=8, link_gb_s=1e-5, keep=6)
    bounds = bounds_of(slow, one_f_one_b())
    assert bounds.link == 3 * slow.copy_us[1] and bounds.chain > bounds.work


def test_the_gap_that_costs_most_is_named():
    late = placed([0, 0, 1, 1], one_microbatch_at_a_time(PROBLEM))
    with pytest.raises(Wrong, match=r"gpu\(1\) is idle from .* until F2.0 begins") as wrong:
        schedule_board.reach(PROBLEM, late, 1.0)
    assert wrong.value.hint == "slow"
    result = judge(PROBLEM, late)
    assert str(result.gap) in str(result) and "gpu(0) 11" in str(result)
    assert "at most" in schedule_board.reach(PROBLEM, late, result.time_us)
    alone = placed([0] * 4, one_microbatch_at_a_time(PROBLEM))
    with pytest.raises(Wrong, match="No other order of these passes takes less: move stages"):
        schedule_board.reach(PROBLEM, alone, 1.0)


def test_the_table_has_the_schedules_of_the_library_and_says_what_is_refused():
    table = schedule_board.board(PROBLEM, mine=one_f_one_b(), half=one_f_one_b()[:1])
    head, *rows = table.splitlines()
    assert [row.split()[0] for row in rows] == ["GPipe", "1F1B", "mine", "half"]
    assert rows[1].split()[1:] == rows[2].split()[1:]
    assert "refused (missing)" in rows[3]
    assert head.split() == ["schedule", "time", "bound", "idle", "kept", "bytes"]
    assert judge(PROBLEM, one_f_one_b).draw().figure.axes


def test_unequal_stages_and_numbers_have_no_library_schedule():
    assert schedule_board.library_schedules(Problem(devices=3)) == {}
    odd = Problem(devices=4, microbatches=6)
    assert list(schedule_board.library_schedules(odd)) == ["GPipe", "1F1B"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"devices": 0}, "devices is an integer, 1 or more, got 0"),
        ({"widths": (8,)}, "widths are those of 1 stage or more"),
        ({"widths": (8, 0)}, r"widths\[1\] is an integer, 1 or more, got 0"),
        ({"link_gb_s": 0}, "link_gb_s is a rate above 0, got 0"),
    ],
)
def test_a_problem_that_is_none_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Problem(**wrong)
