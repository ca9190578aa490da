"""The stepper: what it records, that its moves are the stepped engine's, what it says and sends."""

import json
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lmini import engine, nd
from d2lmini.base import instrument
from d2lmini.widgets.stepper import Stepper
from d2lmini.widgets.stepper_play import Playback
from d2lmini.widgets.stepper_program import record_program


def program():
    a = nd.ones((1, 2))
    b = a * 2
    c = a * 3
    a += 1
    return b + c


def random_program(seed, n=12):
    """Operations on a few arrays, in place and not, with waits between some."""

    def run():
        draw = random.Random(seed)
        arrays = [nd.ones((2,)) for _ in range(3)]
        for _ in range(n):
            x, y = draw.choice(arrays), draw.choice(arrays)
            kind = draw.randrange(5)
            if kind == 0:
                x += y
            elif kind == 1:
                arrays.append(x * y)
            elif kind == 2:
                x[:] = 0
            elif kind == 3:
                arrays.append(x + 1)
            elif draw.random() < 0.5:
                (x + y).wait_to_read()
            else:
                nd.waitall()

    return run


# -- the record ------------------------------------------------------------------------------------


def test_the_record_has_lines_names_and_values():
    record = record_program(program)
    assert [operation.line for operation in record.operations] == [
        "a = nd.ones((1, 2))", "b = a * 2", "c = a * 3", "a += 1", "return b + c",
    ]  # fmt: skip
    assert list(record.names.values()) == ["a", "b", "c", "result of 5"]
    a = next(var for var, name in record.names.items() if name == "a")
    assert record.operations[3].reads == record.operations[3].writes == (a,)
    assert record.values[4] == {a: "[[2. 2.]]"}


def test_the_engine_before_is_in_use_again_and_nothing_is_pending():
    before, threads = engine.current, threading.active_count()
    stepper = Stepper(program)
    assert engine.current is before and engine.stats().pending == 0
    heard = []

    class Ear(instrument.Instrument):
        def push(self, task):
            heard.append(task.name)

        start = end = push

    with instrument.listening(Ear()):
        stepper.run()
    assert not heard, "stepping pushes nothing"
    assert (nd.ones((2,)) + 1).asnumpy().tolist() == [2, 2]
    assert threading.active_count() <= threads + 1  # a worker, perhaps


def test_a_failing_operation_is_told_of_and_troubles_nobody():
    def fails():
        a = nd.ones((2,))
        engine.push(lambda: 1 / 0, reads=[a], writes=[a], name="divide")
        return a + 1

    stepper = Stepper(fails)
    nd.waitall()  # raises nothing
    assert [operation.status for operation in stepper.program.operations] == [
        "done", "failed", "skipped",
    ]  # fmt: skip
    stepper.run()
    assert "failed" in repr(stepper) and stepper.state()["status"][3] == "skipped"


def test_programs_that_cannot_be_stepped_through():
    with pytest.raises(TypeError, match="a function without arguments"):
        Stepper(nd.ones((2,)))
    with pytest.raises(ValueError, match="pushed 0 operations"):
        Stepper(lambda: None)
    with pytest.raises(ValueError, match="pushed 201 operations, and 1 to 200"):
        Stepper(lambda: [nd.ones((1,)) for _ in range(201)])


# -- the moves are the engine's --------------------------------------------------------------------


def run(play):
    """Step to the end; every event: what begins or ends, where, when."""
    events = []
    while move := play.step():
        job = play.jobs[move.number - 1]
        events.append(("begin" if move.begins else "end", move.number, job.worker, play.now_us))
    return events


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_a_play_is_what_the_stepped_engine_does(what, workers):
    program = random_program(what)
    play = Playback(record_program(program, workers))
    events = run(play)
    with engine.stepped(workers=workers, times=10) as stepped:
        program()
    log = [event for event in stepped.log if event.kind != "push"]
    assert events == [(event.kind, event.number, event.worker, event.time_us) for event in log]
    assert play.steps == len(events)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_whatever_the_reader_picks_is_legal(what, picks):
    """Of two operations that name an array, one to write it, the second begins after the first has
    ended, whoever chooses."""
    draw = random.Random(picks)
    play = Playback(record_program(random_program(what)))
    while able := play.able():
        move = draw.choice(able)
        assert play.step(move.number) == move
    operations, jobs = play.program.operations, play.jobs
    for early in operations:
        for late in operations:
            touched = {*early.reads, *early.writes} & {*late.reads, *late.writes}
            if early.number < late.number and touched & {*early.writes, *late.writes}:
                assert 0 <= jobs[early.number - 1].ended <= jobs[late.number - 1].began
                assert play.order.index(early.number) < play.order.index(late.number)


# -- words -----------------------------------------------------------------------------------------


def test_it_says_what_happened_and_why():
    stepper = Stepper(program)
    for _ in range(3):
        stepper.step()
    assert "4 a += 1 must wait: 2 and 3 still read a." in stepper.step()
    first = stepper.state()["vars"][0]
    assert first["name"] == "a" and first["value"] == "[[1. 1.]]"
    assert first["line"] == [(2, False, True), (3, False, True), (4, True, False)]
    with pytest.raises(ValueError, match="4 can neither begin nor end now; possible: 2 ends"):
        stepper.step(4)
    assert "4 a += 1 must wait: 3 still reads a." in stepper.step(2)
    assert "4 and 5 may begin" in stepper.step(3)
    stepper.run()
    assert stepper.step() == "It is over."
    assert not any(each["line"] for each in stepper.state()["vars"])


def test_guesses_are_counted_and_answered():
    stepper = Stepper(program, guess=True)
    shown = json.dumps(stepper.state())
    assert "ready" not in shown and "waits" not in shown, "the answer is not sent along"
    assert stepper.state()["able"] == stepper.state()["vars"] == []
    assert stepper.state()["hidden"] == [1, 2, 3, 4, 5], "an arrow shows what has to come first"
    assert "No: 2 cannot begin, 1 has yet to write a." in stepper.guess(2)
    assert stepper.guess(None).startswith("No: 1 a = nd.ones((1, 2)) can begin")
    assert stepper.guess(1).startswith("Right.")
    assert stepper.guess(None).startswith("Right. 1 a = nd.ones((1, 2)) ends")
    assert stepper.guess(77) == "No: there is no operation 77."
    assert (stepper.right, stepper.asked) == (2, 5)
    stepper.guess(2), stepper.guess(3)
    assert stepper.state()["hidden"] == [4, 5], "the arrows of what has begun are shown"
    assert stepper.guess(None).startswith("Right.")
    assert (stepper.right, stepper.asked) == (5, 8)
    stepper.received({"kind": "guessing", "on": False})
    assert stepper.state()["hidden"] == []


# -- what the view is sent and sends ---------------------------------------------------------------


class Sent(Stepper):
    """A stepper with its messages kept."""

    def __init__(self, *args, **options):
        self.messages = []
        super().__init__(*args, **options)

    def say(self, header, buffers=(), whole=False):
        self.messages.append(json.loads(json.dumps(header)))


def test_the_view_is_sent_everything_once_and_the_state_after_every_move():
    stepper = Sent(program)
    whole = json.loads(json.dumps(stepper.whole()[0]))
    assert [box["lines"][0][0] for box in whole["scene"]["boxes"]] == list("12345")
    values = {(e["from"], e["to"]): e["value"] for e in whole["scene"]["edges"]}
    assert values[0, 1] is True and values[1, 3] is False
    assert whole["workers"] == ["cpu 1", "cpu 2"] and whole["state"]["step"] == 0
    stepper.received({"kind": "step"})
    stepper.received({"kind": "step"})
    stepper.received({"kind": "step", "number": 3})
    state = stepper.messages[-1]["state"]
    assert state["step"] == 3 and state["status"]["3"] == "running"
    assert state["able"] == [[2, True], [3, False]] and state["next"] == [2, True]
    assert state["notes"]["4"] == "waits for 2 and 3"
    assert len(json.dumps(whole)) < 20_000


def test_every_button_does_what_it_says():
    stepper = Sent(program)
    for message, step in [
        ({"kind": "step", "number": 1}, 1), ({"kind": "nonsense"}, 1), ({"kind": "run"}, 10),
        ({"kind": "reset"}, 0), ({"kind": "step", "number": 5}, 0),
        ({"kind": "guessing", "on": True}, 0), ({"kind": "step"}, 0),
        ({"kind": "guess", "number": 1}, 1), ({"kind": "nonsense"}, 1),
    ]:  # fmt: skip
        stepper.received(message)
        assert stepper.play.steps == step, message
    assert stepper.right == 1
    refused = [message["state"]["problem"] for message in stepper.messages]
    assert any("5 can neither begin nor end" in problem for problem in refused)
