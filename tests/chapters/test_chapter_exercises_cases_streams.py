"""The stream programs of Case files: each has its race, mended programs pass their check in
unusual forms, and plausible wrong ones are refused with a hint.

The programs are the chapter's cells, run here as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chapter_cells import answers_of, definitions_in

from d2lmini import d2l, streams
from d2lmini.d2l.check import Wrong
from d2lmini.streams import Stream

PLACE = definitions_in("case-files")
CASES = {
    "read_back": "read back",
    "hand_over": "event",
    "normalize": "default stream",
    "reuse": "reuse",
    "double_buffer": "double buffer",
}
FOUR = np.array([1.0, 4.0, 9.0, 16.0])


def hint_of(name: str, program: Callable[[Any], Any]) -> str:
    """The hint by which a program is refused; "" if it passes."""
    try:
        sentence = d2l.check_streams(CASES[name], program)
    except Wrong as wrong:
        assert len(str(wrong)) > 30
        return wrong.hint
    assert sentence.startswith("no data race")
    return ""


# -- the programs as they are ----------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_each_program_has_a_race_in_every_order_and_a_wrong_result_in_some(name):
    program = PLACE[name]
    argument = [FOUR] * 4 if name == "double_buffer" else FOUR
    for seed in range(30):
        with pytest.raises(streams.OrderError) as caught, streams.simulate(seed=seed):
            program(argument)
        assert "nothing orders the two" in str(caught.value) and "Missing: " in str(caught.value)
    results = set()
    for seed in range(40):
        with streams.simulate(seed=seed, checks=False):
            results.add(re.sub(r"\s+", " ", str(program(argument))))
    if name != "double_buffer":  # its batches differ in the chapter
        assert len(results) > 1
    assert hint_of(name, program) == "race"


@pytest.mark.parametrize("name", CASES)
def test_the_chapter_s_answers_pass(name):
    place = dict(PLACE)
    for answer in answers_of("case-files"):
        exec(answer, place)
    assert hint_of(name, place[name]) == ""
    assert place[f"check_{name}"](place[name]).startswith("no data race")


# -- parts of programs -----------------------------------------------------------------------------


def two_streams() -> tuple[Stream, Stream]:
    return Stream(non_blocking=True), Stream(non_blocking=True)


def read_back(wait: Callable, use: Callable = np.sum, stream: Any = None) -> Callable:
    """`read_back` that calls `wait(stream, out)` before it adds up."""

    def program(host):
        here, out = stream or Stream(non_blocking=True), streams.empty_pinned(host.shape)
        with here:
            x = streams.asarray(host)
            squares = x * x
            squares.get(out=out, blocking=False)
        wait(here, out)
        return use(out)

    return program


def nothing(*given: Any) -> None:
    """Wait for nothing."""


def wait_for(stream: Stream, out: Any) -> None:
    stream.synchronize()


def wait_for_event(stream: Stream, out: Any) -> None:
    stream.record().synchronize()


def poll(stream: Stream, out: Any) -> None:
    event = stream.record()
    while not event.done:
        continue


def wait_for_device(stream: Stream, out: Any) -> None:
    streams.Device().synchronize()


def blocking_copy(host):
    x = streams.asarray(host)
    return (x * x).get().sum()


def sum_on_the_device(host):
    with Stream(non_blocking=True):
        x = streams.asarray(host)
        return (x * x).sum().item()


def hand_over(order: Callable, before: Callable = nothing) -> Callable:
    """`hand_over` that calls `order(a, b)` between the streams, and `before(a)` before the root."""

    def program(host):
        a, b = two_streams()
        with a:
            x = streams.asarray(host)
            before(a)
            y = np.sqrt(x)
        order(a, b)
        with b:
            return (y + 1).get()

    return program


def one_stream(host):
    with Stream(non_blocking=True):
        return (np.sqrt(streams.asarray(host)) + 1).get()


def blocking_streams(host):
    a, b = Stream(), Stream()
    with a:
        y = np.sqrt(streams.asarray(host))
    with Stream.null:
        z = y + 0
    with b:
        return (z + 1).get()


def stale_event(host):
    a, b = two_streams()
    event = a.record()
    with a:
        y = np.sqrt(streams.asarray(host))
    b.wait_event(event)
    with b:
        return (y + 1).get()


def recorded_again(host):
    a, b = two_streams()
    event = streams.Event()
    with a:
        x = streams.asarray(host)
        event.record()
        y = np.sqrt(x)
        event.record()
    b.wait_event(event)
    with b:
        return (y + 1).get()


def normalize(make: Callable, order: Callable = nothing) -> Callable:
    def program(host):
        copies, x = make(), streams.empty(host.shape)
        x.set(host, copies)
        order(copies)
        return (x / x.sum()).get()

    return program


def non_blocking() -> Stream:
    return Stream(non_blocking=True)


def default_waits(copies: Stream) -> None:
    streams.get_current_stream().wait_event(copies.record())


def on_the_copy_stream(host):
    with Stream(non_blocking=True) as copies:
        x = streams.empty(host.shape)
        x.set(host, copies)
        return (x / x.sum()).get()


def on_the_host(host):
    return host / host.sum()


def without_a_sum(host):
    x = streams.asarray(host)
    return (x / x).get()


def reuse(before: Callable = nothing, keep: bool = False, after: Callable = nothing) -> Callable:
    def program(host):
        a, b = two_streams()
        with a:
            x = streams.asarray(host)
        b.wait_event(a.record())
        with b:
            y = np.sqrt(x)
        before(a, b)
        kept = x if keep else None
        del x
        with a:
            z = streams.zeros(host.shape)
        after(a, b)
        return (y.get(b), z.get(a), kept)[:2]

    return program


def a_waits_for_b(a: Stream, b: Stream) -> None:
    a.wait_event(b.record())


def b_waits_for_a(a: Stream, b: Stream) -> None:
    b.wait_event(a.record())


def host_waits_for_b(a: Stream, b: Stream) -> None:
    b.synchronize()


def zeros_on_b(host):
    a, b = two_streams()
    with a:
        x = streams.asarray(host)
    b.wait_event(a.record())
    with b:
        y = np.sqrt(x)
        del x
        z = streams.zeros(host.shape)
        return y.get(), z.get()


def double_buffer(before: Callable, after: Callable = nothing, buffers: int = 2) -> Callable:
    """`double_buffer` that calls `before(copies, compute, used)` before a copy to the buffer that
    the event `used` belongs to, and `after(compute)` after its kernel."""

    def program(batches):
        copies, compute = two_streams()
        arrays = [streams.empty(batches[0].shape) for _ in range(buffers)]
        used: list[Any] = [None] * buffers
        totals = []
        for number, batch in enumerate(batches):
            place = number % buffers
            before(copies, compute, used[place])
            arrays[place].set(batch, copies)
            compute.wait_event(copies.record())
            with compute:
                totals.append((arrays[place] * arrays[place]).sum())
            after(compute)
            used[place] = compute.record()
        with compute:
            return [total.item() for total in totals]

    return program


def copies_wait(copies: Stream, compute: Stream, used: Any) -> None:
    if used is not None:
        copies.wait_event(used)


def copies_wait_for_all(copies: Stream, compute: Stream, used: Any) -> None:
    copies.wait_event(compute.record())


def host_waits(copies: Stream, compute: Stream, used: Any) -> None:
    if used is not None:
        used.synchronize()


def compute_waits(copies: Stream, compute: Stream, used: Any) -> None:
    if used is not None:
        compute.wait_event(used)


def new_arrays(batches):
    copies, compute = two_streams()
    totals, kept = [], []
    for batch in batches:
        with copies:
            x = streams.asarray(batch)
        kept.append(x)
        compute.wait_event(copies.record())
        with compute:
            totals.append((x * x).sum())
    with compute:
        return np.array([total.item() for total in totals])


def one_after_the_other(batches):
    totals = []
    for batch in batches:
        x = streams.asarray(batch)
        totals.append((x * x).sum())
    return [total.item() for total in totals]


def same_event(batches):
    """One event for all buffers, recorded again and again."""
    copies, compute = two_streams()
    arrays = [streams.empty(batches[0].shape) for _ in range(2)]
    events = [streams.Event(), streams.Event()]
    totals = []
    for number, batch in enumerate(batches):
        copies.wait_event(events[number % 2])
        arrays[number % 2].set(batch, copies)
        compute.wait_event(copies.record())
        with compute:
            x = arrays[number % 2]
            totals.append((x * x).sum())
            events[number % 2].record()
    with compute:
        return [total.item() for total in totals]


def in_a_tuple(batches):
    return tuple(double_buffer(copies_wait)(batches))


RIGHT = {
    "read_back": [
        read_back(wait_for),
        read_back(wait_for_event),
        read_back(poll),
        read_back(wait_for_device, use=lambda out: out.tolist() and float(out.sum())),
        blocking_copy,
        sum_on_the_device,
    ],
    "hand_over": [
        hand_over(b_waits_for_a),
        one_stream,
        blocking_streams,
        recorded_again,
        hand_over(lambda a, b: [b.wait_event(a.record()) for _ in range(2)]),
    ],
    "normalize": [
        normalize(non_blocking, default_waits),
        normalize(Stream),
        on_the_copy_stream,
        normalize(lambda: Stream(null=True)),
        normalize(streams.get_current_stream),
    ],
    "reuse": [
        reuse(a_waits_for_b),
        reuse(keep=True),
        zeros_on_b,
        reuse(lambda a, b: (b_waits_for_a(a, b), a_waits_for_b(a, b))),
        lambda host: list(reuse(a_waits_for_b)(host)),
    ],
    "double_buffer": [
        double_buffer(copies_wait),
        double_buffer(copies_wait, buffers=3),
        same_event,
        new_arrays,
        in_a_tuple,
    ],
}

WRONG = {
    "read_back": [
        ("race", read_back(nothing)),
        ("race", read_back(lambda stream, out: Stream.null.synchronize())),
        ("race", read_back(lambda stream, out: Stream(non_blocking=True).synchronize())),
        ("race", read_back(lambda stream, out: stream.done)),
        ("race", read_back(lambda stream, out: stream.wait_event(stream.record()))),
        ("value", read_back(wait_for, use=np.max)),
        ("value", lambda host: None),
    ],
    "hand_over": [
        ("race", hand_over(nothing)),
        ("race", hand_over(a_waits_for_b)),
        ("race", stale_event),
        ("race", hand_over(lambda a, b: b.wait_event(b.record()))),
        ("race", hand_over(lambda a, b: b.synchronize())),
        ("waits", hand_over(lambda a, b: a.synchronize())),
        ("waits", hand_over(lambda a, b: streams.Device().synchronize())),
        ("value", lambda host: np.sqrt(host)),
    ],
    "normalize": [
        ("race", normalize(non_blocking)),
        ("race", normalize(non_blocking, lambda copies: copies.record())),
        ("race", normalize(non_blocking, lambda copies: copies.done)),
        ("waits", normalize(non_blocking, lambda copies: copies.synchronize())),
        ("waits", normalize(non_blocking, lambda copies: streams.Device().synchronize())),
        ("value", without_a_sum),
    ],
    "reuse": [
        ("race", reuse()),
        ("race", reuse(b_waits_for_a)),
        ("race", reuse(after=a_waits_for_b)),
        ("race", reuse(lambda a, b: a.synchronize())),
        ("waits", reuse(host_waits_for_b)),
        ("value", lambda host: reuse(a_waits_for_b)(host)[0]),
    ],
    "double_buffer": [
        ("race", double_buffer(nothing)),
        ("race", double_buffer(compute_waits)),
        ("race", double_buffer(nothing, buffers=3)),
        ("serial", double_buffer(copies_wait_for_all)),
        ("serial", double_buffer(copies_wait, buffers=1)),
        ("serial", one_after_the_other),
        ("waits", double_buffer(host_waits)),
        ("waits", double_buffer(nothing, after=lambda compute: compute.synchronize())),
        ("value", lambda batches: double_buffer(copies_wait)(batches)[:-1]),
    ],
}


@pytest.mark.parametrize(
    ("name", "program"), [(name, program) for name, rows in RIGHT.items() for program in rows]
)
def test_right_programs_pass(name, program):
    assert hint_of(name, program) == ""


@pytest.mark.parametrize(
    ("name", "hint", "program"),
    [(name, hint, program) for name, rows in WRONG.items() for hint, program in rows],
)
def test_wrong_programs_are_refused(name, hint, program):
    assert hint_of(name, program) == hint


def test_there_are_five_of_each():
    assert all(len(rows) >= 5 for rows in (*RIGHT.values(), *WRONG.values()))
    assert RIGHT.keys() == WRONG.keys() == CASES.keys()


def test_a_result_without_the_device_passes():
    """The check compares results; that the device computes is the reader's business."""
    assert hint_of("normalize", on_the_host) == ""


def test_an_error_in_the_answer_comes_out_as_it_is():
    with pytest.raises(NameError, match="nowhere"):
        d2l.check_streams("reuse", lambda host: nowhere)  # noqa: F821
    with pytest.raises(ValueError, match=r"expected one of read back, event, .* got 'events'"):
        d2l.check_streams("events", on_the_host)
