"""The exercises of the chapter on splits: the solution and unusual right answers pass the check,
and each typical wrong answer gets its hint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of, names_in

from d2lmini import d2l, nd
from d2lmini.d2l import pipeline, schedule_board

NAME = "split-anything"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    return names_in(
        NAME, "def draw_weights", "def adam", "class DataParallel", "def step", "class Trained",
        "class Zero1", "class Zero3", "def alone", "def check_values", "def check_split",
        "def check_gather_once", "def check_schedule",
    )  # fmt: skip


# -- 7: gather once a step -------------------------------------------------------------------------


def by_derivation(chapter):
    class Answer(chapter["Zero3"]):
        def __init__(self, values, devices):
            super().__init__(values, devices)
            self.whole = {}

        def gather(self, l):
            if l not in self.whole:
                self.whole[l] = super().gather(l)
            return self.whole[l]

        def update(self):
            super().update()
            self.whole = {}

    return Answer


def all_at_the_first(chapter):
    """The first gather of a step gathers all layers."""

    class Answer(chapter["Zero3"]):
        whole: Any = None

        def gather(self, l):
            if self.whole is None:
                self.whole = [d2l.all_gather(row) for row in self.weights]
            return self.whole[l]

        def update(self):
            self.whole = None
            super().update()

    return Answer


def drop_after_use(chapter):
    """A whole layer goes after its second use: the first layer's after its first."""

    class Answer(chapter["Zero3"]):
        def __init__(self, values, devices):
            super().__init__(values, devices)
            self.whole = {}

        def gather(self, l):
            if l in self.whole:
                return self.whole.pop(l)
            wholes = super().gather(l)
            if l > 0:
                self.whole[l] = wholes
            return wholes

        def update(self):
            super().update()
            self.whole.clear()  # of gathers outside of a step

    return Answer


def in_a_ring(chapter):
    class Answer(by_derivation(chapter)):
        def collect(self, l, parts):
            self.gradients[l] = d2l.reduce_scatter(parts, ring=True)

    return Answer


def one_flat_array(chapter):
    """All layers in one array, one exchange for all of them; `weights` are shapes."""

    class Answer:
        def __init__(self, values, devices):
            flat = np.concatenate([v.reshape(-1) for v in values])
            self.weights = [v.shape for v in values]
            self.shards = [
                nd.array(s, ctx=ctx) for s, ctx in zip(np.split(flat, len(devices)), devices)
            ]
            self.states = chapter["states_for"](self.shards)
            self.parts, self.whole, self.sums = {}, None, None

        def gather(self, l):
            if self.whole is None:
                self.whole = d2l.all_gather(self.shards)
            begin = sum(m * n for m, n in self.weights[:l])
            m, n = self.weights[l]
            return [x[begin : begin + m * n].reshape((m, n)) for x in self.whole]

        def collect(self, l, parts):
            self.parts[l] = parts

        def update(self):
            layers = range(len(self.weights))
            flat = [
                nd.concat(*[row[l][i].reshape((-1,)) for l in layers], dim=0)
                for i, row in enumerate([self.parts] * len(self.shards))
            ]
            self.sums = d2l.reduce_scatter(flat)
            chapter["adam"](self.shards, self.sums, self.states)
            self.parts, self.whole = {}, None

    return Answer


def by_hand(chapter):
    """Copies, sums and concat, without d2l's collectives."""

    class Answer(by_derivation(chapter)):
        def gather(self, l):
            if l not in self.whole:
                row = self.weights[l]
                self.whole[l] = [
                    nd.concat(*[s.copyto(x.context) if s is not x else s for s in row], dim=0)
                    for x in row
                ]
            return self.whole[l]

        def collect(self, l, parts):
            n = len(parts[0]) // len(parts)
            rows = []
            for i, own in enumerate(parts):
                total = None
                for part in parts:
                    shard = part[i * n : (i + 1) * n]
                    shard = shard.copy() if part is own else shard.copyto(own.context)
                    total = shard if total is None else total + shard
                rows.append(total)
            self.gradients[l] = rows

    return Answer


RIGHT = [by_derivation, all_at_the_first, drop_after_use, in_a_ring, one_flat_array, by_hand]


def test_the_answer_in_the_fold_and_unusual_ones_pass(chapter, capsys):
    for make in (chapter["GatherOnce"], *(right(chapter) for right in RIGHT)):
        chapter["check_gather_once"](make)
        told = capsys.readouterr().out.splitlines()
        assert told == [f"{make.__name__}: {k} devices compute what one computes" for k in (2, 4)]


def gathers_twice(chapter):
    return chapter["Zero3"]


def never_drops(chapter):
    """The weights of the first step stay."""

    class Answer(by_derivation(chapter)):
        def update(self):
            chapter["Zero3"].update(self)

    return Answer


def gathers_at_the_end(chapter):
    """Ready for the next step: but then the whole net is there between two steps."""

    class Answer(chapter["Zero3"]):
        def __init__(self, values, devices):
            super().__init__(values, devices)
            self.whole = [d2l.all_gather(row) for row in self.weights]

        def gather(self, l):
            return self.whole[l]

        def update(self):
            super().update()
            self.whole = [d2l.all_gather(row) for row in self.weights]

    return Answer


def keeps_views(chapter):
    class Answer(by_derivation(chapter)):
        def __init__(self, values, devices):
            super().__init__(values, devices)
            wholes = [[nd.array(v, ctx=ctx) for ctx in devices] for v in values]
            self.weights = [chapter["own_shards"](row) for row in wholes]

    return Answer


def own_part_only(chapter):
    class Answer(by_derivation(chapter)):
        def collect(self, l, parts):
            self.gradients[l] = [x.copy() for x in chapter["own_shards"](parts)]

    return Answer


def mean_of_parts(chapter):
    class Answer(by_derivation(chapter)):
        def collect(self, l, parts):
            self.gradients[l] = [x / len(parts) for x in d2l.reduce_scatter(parts)]

    return Answer


def adds_up_wholes(chapter):
    """An all-reduce of the gradients, of which each device keeps its shard."""

    class Answer(by_derivation(chapter)):
        def collect(self, l, parts):
            sums = d2l.all_reduce(parts)
            self.gradients[l] = [x.copy() for x in chapter["own_shards"](sums)]

    return Answer


def old_shards_of_others(chapter):
    """Each device puts its new shard into the whole matrix of the first step."""

    class Answer(by_derivation(chapter)):
        def update(self):
            chapter["Zero3"].update(self)
            for l, wholes in self.whole.items():
                for view, new in zip(chapter["own_shards"](wholes), self.weights[l]):
                    view[:] = new

    return Answer


def one_device_for_all(chapter):
    class Answer(by_derivation(chapter)):
        def gather(self, l):
            return [super().gather(l)[0]]

    return Answer


def shards_only(chapter):
    class Answer(chapter["Zero3"]):
        def gather(self, l):
            return self.weights[l]

    return Answer


def never_updates(chapter):
    class Answer(by_derivation(chapter)):
        def update(self):
            self.whole = {}

    return Answer


def returns_nothing(chapter):
    class Answer(chapter["Zero3"]):
        def gather(self, l):
            d2l.all_gather(self.weights[l])

    return Answer


WRONG = {
    gathers_twice: "bytes", never_drops: "old", gathers_at_the_end: "memory",
    keeps_views: "memory", own_part_only: "values", mean_of_parts: "values",
    adds_up_wholes: "bytes", old_shards_of_others: "stale", one_device_for_all: "place",
    shards_only: "shape", never_updates: "old", returns_nothing: "nothing",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_wrong_answers_get_their_hint(chapter, wrong):
    assert hint_of(chapter["check_gather_once"], wrong(chapter)) == WRONG[wrong]


def test_a_name_error_of_an_answer_comes_out(chapter):
    class Answer(chapter["Zero3"]):
        def gather(self, l):
            return d2l.all_gather(self.wieghts[l])

    with pytest.raises(AttributeError, match="wieghts"):
        chapter["check_gather_once"](Answer)


# -- 8: a schedule ---------------------------------------------------------------------------------


def interleaved(problem):
    return pipeline.interleaved(
        problem.devices, problem.microbatches, problem.stages // problem.devices
    )


def begin_later(passes, ahead):
    """The same passes of a device, with so many forward passes before the first backward pass."""
    forward, backward = ([step for step in passes if step.kind == kind] for kind in "FB")
    order = forward[:ahead]
    for following, oldest in zip(forward[ahead:], backward):
        order += [following, oldest]
    return order + backward[len(forward) - ahead :]


def on_two_devices(problem):
    """Two devices run one forward pass less before their first backward pass."""
    schedule = interleaved(problem)
    return [begin_later(schedule[0], 9), begin_later(schedule[1], 7), *schedule[2:]]


def as_json(problem):
    return json.loads(json.dumps(on_two_devices(problem)))


def other_devices(problem):
    """The same, with the devices in another order."""
    schedule = on_two_devices(problem)
    return [schedule[d] for d in (2, 0, 3, 1)]


def plain_tuples(problem):
    return tuple(tuple(map(tuple, passes)) for passes in on_two_devices(problem))


def in_order_of_the_clock(problem):
    """One list of passes in the order of their begin, dealt out to the devices again."""
    result = schedule_board.judge(problem, on_two_devices(problem))
    schedule = [[] for _ in range(problem.devices)]
    for span in sorted(result.spans, key=lambda span: (span.begin_ns, span.device)):
        schedule[span.device].append(span.step)
    return schedule


RIGHT_SCHEDULES = [on_two_devices, as_json, other_devices, plain_tuples, in_order_of_the_clock]


def test_schedules_that_are_short_enough_pass(chapter, capsys):
    for answer in (chapter["my_schedule"], *RIGHT_SCHEDULES):
        chapter["check_schedule"](answer)
        assert " ms" in capsys.readouterr().out


def as_1f1b(problem):
    schedule = pipeline.one_f_one_b(problem.devices, problem.microbatches)
    return schedule_board.by_device(schedule, problem.stages // problem.devices)


def all_forward_first(problem):
    schedule = pipeline.gpipe(problem.devices, problem.microbatches)
    return schedule_board.by_device(schedule, problem.stages // problem.devices)


def without_the_last(problem):
    return [passes[:-1] for passes in on_two_devices(problem)]


def one_pass_again(problem):
    first, *others = on_two_devices(problem)
    return [[*first, first[-1]], *others]


def backward_begins(problem):
    return [passes[::-1] for passes in on_two_devices(problem)]


def a_stage_of_another_device(problem):
    first, second, *others = on_two_devices(problem)
    return [first[:-1], [*second, first[-1]], *others]


def one_more_microbatch(problem):
    first, *others = on_two_devices(problem)
    return [[*first, ("F", 0, problem.microbatches)], *others]


def no_schedule(problem):
    on_two_devices(problem)


WRONG_SCHEDULES = {
    as_1f1b: "slow", interleaved: "memory", all_forward_first: "memory",
    without_the_last: "missing", one_pass_again: "twice", backward_begins: "order",
    a_stage_of_another_device: "moved", one_more_microbatch: "unknown", no_schedule: "form",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_SCHEDULES, ids=lambda wrong: wrong.__name__)
def test_wrong_schedules_get_their_hint(chapter, wrong):
    assert hint_of(chapter["check_schedule"], wrong) == WRONG_SCHEDULES[wrong]
