"""`labs.streams`: legal orders only, each data race is found and told, right programs pass.

Random programs are in `tests/addons/cuda/test_fake_order.py`: the fake of CuPy has the same check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from labs import streams

PASSED = "no data race; the same result in 20 orders"


def two_streams() -> tuple[streams.Stream, streams.Stream]:
    return streams.Stream(non_blocking=True), streams.Stream(non_blocking=True)


# -- messages --------------------------------------------------------------------------------------


def message_of(program: Callable[[], Any], **options: Any) -> str:
    with pytest.raises(streams.OrderError) as caught:
        streams.check(program, **options)
    return str(caught.value)


def test_a_message_names_both_operations_their_lines_and_the_missing_wait():
    def program():
        a, b = two_streams()
        with a:
            x = streams.zeros(4)
            y = np.sqrt(x)
        with b:
            return (y + 1).get()

    first, sqrt, add, missing = message_of(program).splitlines()
    assert first == (
        "'add' (work 1 of stream 2) reads memory (32 bytes), which 'sqrt' (work 2 of stream 1) "
        "writes, and nothing orders the two"
    )
    assert sqrt.startswith("  'sqrt': ") and "test_labs_streams.py:" in sqrt
    assert sqrt.endswith(": y = np.sqrt(x)") and add.endswith(": return (y + 1).get()")
    assert missing.startswith("Missing: stream 2 does not wait_event() for an event recorded on")


def test_an_event_that_was_recorded_too_early_is_named():
    def program():
        a, b = two_streams()
        with a:
            x = streams.zeros(4)
            event = a.record()
            x += 1
        b.wait_event(event)
        with b:
            return (x * 2).get()

    assert message_of(program).endswith(
        "stream 2 comes after work 2 of stream 1, and 'add' is work 3: the event was recorded too "
        "early"
    )


@pytest.mark.parametrize("way", ["event", "the host waits", "the host waits for an event"])
def test_what_orders_two_streams(way: str):
    def program():
        a, b = two_streams()
        with a:
            x = streams.zeros(4)
            event = a.record()
        if way == "event":
            b.wait_event(streams.Event())  # it is not recorded: there is nothing to wait for
            b.wait_event(event)
        elif way == "the host waits":
            a.synchronize()
        else:
            event.synchronize()
        with b:
            x += 1
        return x.get(b)

    assert streams.check(program) == PASSED


# -- the null stream -------------------------------------------------------------------------------


@pytest.mark.parametrize("non_blocking", [False, True])
def test_the_null_stream_waits_for_blocking_streams_only(non_blocking: bool):
    def program():
        stream = streams.Stream(non_blocking=non_blocking)
        x = streams.zeros(4)
        with stream:
            x += 1
        return (x * 2).get()

    if non_blocking:
        assert "non_blocking=True do not wait for each other" in message_of(program)
    else:
        assert streams.check(program) == PASSED


# -- values and orders -----------------------------------------------------------------------------


def racy() -> np.ndarray:
    a, b = two_streams()
    with a:
        x = streams.zeros(4)
        x += 1
    with b:
        y = x * 1
    return y.get(b)


def test_without_checks_a_race_shows_in_some_orders_only():
    seen = []
    for seed in range(40):
        with streams.simulate(seed, checks=False):
            seen.append(racy().tolist())
    assert [1.0] * 4 in seen
    assert any(values != [1.0] * 4 for values in seen)
    with pytest.raises(streams.OrderError, match="the result depends on the order"):
        streams.check(racy, orders=40, checks=False)


# -- what is refused -------------------------------------------------------------------------------


def test_a_result_has_to_be_on_the_host():
    with pytest.raises(TypeError, match=r"return x\.get\(\)"):
        streams.check(lambda: streams.zeros(2))


def test_without_a_machine_there_is_no_gpu():
    with pytest.raises(RuntimeError, match=r"check\(\) or simulate\(\)"):
        streams.Stream()
