"""Streams without a GPU: legal orders only, every data race found, no false alarm."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stream_programs import generate, has_race, run, without_a_wait

import d2lmini.streams.machine
from d2lmini import streams

N_PROGRAMS = 500


def two_streams() -> tuple[streams.Stream, streams.Stream]:
    return streams.Stream(non_blocking=True), streams.Stream(non_blocking=True)


@pytest.mark.parametrize("module", [streams, d2lmini.streams.machine], ids=lambda m: m.__name__)
def test_examples(module):
    assert doctest.testmod(module).failed == 0


# -- random programs -------------------------------------------------------------------------------


def test_correct_programs_have_no_data_race_and_the_values_of_program_order():
    for seed in range(N_PROGRAMS):
        program = generate(seed)
        assert not has_race(program), seed
        with streams.simulate(seed=seed):
            assert np.array_equal(run(program), run(program, False), equal_nan=True), seed


def test_a_missing_wait_is_found_exactly_where_reachability_finds_it():
    found = 0
    for seed in range(N_PROGRAMS // 2):
        program = without_a_wait(generate(seed), seed)
        expected = has_race(program)
        try:
            with streams.simulate(seed=seed):
                run(program)
        except streams.OrderError:
            assert expected, seed
            found += 1
        else:
            assert not expected, seed
    assert 0.8 * N_PROGRAMS / 2 < found < N_PROGRAMS / 2  # some waits are not needed


# -- messages --------------------------------------------------------------------------------------


def message_of(program: Callable[[], Any], **options: Any) -> str:
    with pytest.raises(streams.OrderError) as caught:
        streams.check(program, **options)
    return str(caught.value)


def test_a_message_names_both_operations_their_lines_and_the_missing_wait():
    def program():
        a, b = two_streams()
        with a:
            x = streams.asarray(np.arange(4.0))
            y = np.sqrt(x)
        with b:
            return (y + 1).get()

    first, sqrt, add, missing = message_of(program).splitlines()
    assert first.startswith("'add' (work 1 of stream 2 of device 0) reads memory of device 0 (5")
    assert first.endswith(
        "which 'sqrt' (work 2 of stream 1 of device 0) writes, and nothing orders the two"
    )
    assert sqrt.startswith("  'sqrt': ") and "test_streams.py:" in sqrt
    assert sqrt.endswith(": y = np.sqrt(x)") and add.endswith(": return (y + 1).get()")
    assert missing.startswith("Missing: stream 2 of device 0 does not wait_event() for an event")


def test_an_event_that_was_recorded_too_early_is_named():
    def program():
        a, b = two_streams()
        with a:
            x = streams.asarray(np.arange(4.0))
            event = a.record()
            y = x * 2
        b.wait_event(event)
        with b:
            return (y + 1).get()

    assert message_of(program).endswith(
        "stream 2 of device 0 comes after work 2 of stream 1 of device 0, and 'multiply' is work "
        "3: the event was recorded too early"
    )


def test_memory_that_was_given_out_again_is_named():
    def program():
        a, b = two_streams()
        with a:
            x = streams.asarray(np.arange(4.0))
        b.wait_event(a.record())
        with b:
            y = x + 1
        del x
        with a:
            z = streams.zeros(4)
        return y.get(b), z.get(a)

    assert "The memory was given back and given out again in between" in message_of(program)


# -- the default stream ----------------------------------------------------------------------------


@pytest.mark.parametrize("non_blocking", [False, True])
def test_the_default_stream_waits_for_blocking_streams_only(non_blocking: bool):
    def program():
        stream = streams.Stream(non_blocking=non_blocking)
        x = streams.asarray(np.arange(4.0))
        with stream:
            x += 1
        return (x * 2).get()

    if non_blocking:
        assert "non_blocking=True do not wait for each other" in message_of(program)
    else:
        assert streams.check(program) == "no data race; the same result in 20 orders"


def test_blocking_streams_do_not_wait_for_each_other():
    def program():
        a, b = streams.Stream(), streams.Stream()
        with a:
            x = streams.zeros(4)
        with b:
            x += 1
        return x.get()

    assert "stream 2 of device 0 does not wait_event()" in message_of(program)


def test_the_default_streams_of_two_devices_do_not_wait_for_each_other():
    def program():
        x = streams.zeros(4)
        with streams.Device(1):
            return x.copy().get()

    assert "null stream of device 1 does not wait_event()" in message_of(program)


def test_what_streams_refuse():
    with streams.simulate(devices=1):
        with pytest.raises(NotImplementedError, match="per-thread default streams"):
            streams.Stream(ptds=True)
        assert streams.Stream(null=True) == streams.Stream.null
        assert streams.Stream(non_blocking=True).is_non_blocking
        assert not streams.Stream().is_non_blocking
    with pytest.raises(streams.CUDARuntimeError, match="driver"):
        streams.Stream()


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
        with streams.simulate(seed=seed, checks=False):
            seen.append(racy().tolist())
    assert [1.0] * 4 in seen
    assert any(values != [1.0] * 4 for values in seen)
    with pytest.raises(streams.OrderError, match="the result depends on the order"):
        streams.check(racy, orders=40, checks=False)


def test_unchecked_copies_from_pinned_memory_read_it_when_they_run():
    seen = set()
    for seed in range(40):
        with streams.simulate(seed=seed, checks=False):
            stage = streams.empty_pinned(2)
            stage[:] = 1
            stream = streams.Stream(non_blocking=True)
            with stream:
                x = streams.empty(2)
            x.set(stage, stream)
            stage[:] = 2
            seen.add(tuple(x.get(stream).tolist()))
    assert seen == {(1.0, 1.0), (2.0, 2.0)}


def test_a_result_has_to_be_on_the_host():
    with pytest.raises(TypeError, match=r"return x\.get\(\)"):
        streams.check(lambda: streams.zeros(2))


# -- arrays ----------------------------------------------------------------------------------------


def test_arrays_compute_as_numpy_does():
    host = np.arange(6, dtype="float32").reshape(2, 3)
    with streams.simulate(devices=1, seed=3):
        x = streams.asarray(host)
        np.testing.assert_array_equal((2 - x / 4).get(), 2 - host / 4)
        np.testing.assert_array_equal(np.exp(x).get(), np.exp(host))
        np.testing.assert_array_equal((x[1] @ x[0]).get(), host[1] @ host[0])
        assert x.sum().item() == 15 and x[1, 2].item() == 5 and len(x) == 2
        x[0] = x[1] + 1
        x[:, 1:] *= 2
        np.testing.assert_array_equal(x.get(), [[4, 10, 12], [3, 8, 10]])
        assert (x.shape, x.dtype, x.nbytes) == ((2, 3), np.float32, 24)
        y = x.copy()
        x[...] = 0
        assert y.sum().item() == 47
        assert repr(y) == "<array (2, 3) float32 on device 0>"


def test_a_fused_function_is_one_kernel():
    @streams.fuse
    def squared_distance(x, y):
        return (x - y) ** 2

    with streams.simulate(devices=1) as machine:
        x = streams.asarray(np.arange(3.0))
        assert squared_distance(x, 1).get().tolist() == [1, 0, 1]
        y = streams.empty(3)
        assert squared_distance(x, 2, out=y) is y
        assert y.get().tolist() == [4, 1, 0]
        assert machine.issued["squared_distance"] == 2


def test_copies_between_devices():
    def program():
        x = streams.asarray(np.arange(3.0))
        ready = streams.get_current_stream().record()
        with streams.Device(1):
            streams.get_current_stream().wait_event(ready)
            y = streams.asarray(x)
            assert y.device == streams.Device(1) and streams.asarray(y) is y
            return (y + 1).get()

    assert streams.check(program) == "no data race; the same result in 20 orders"


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda x: x + np.ones(3), TypeError, r"asarray\(x\) copies a NumPy array"),
        (lambda x: x[[0, 1]], TypeError, "expected integers and slices as indices"),
        (lambda x: x.set(np.ones(4)), TypeError, r"expected a NumPy array \(3,\) of float64"),
        (lambda x: x.get(out=np.ones(3, "f")), TypeError, "got .* of float32"),
        (lambda x: streams.copyto(x, x[:2]), ValueError, "shapes and dtypes must agree"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(use, error, words):
    with streams.simulate(devices=1):
        x = streams.zeros(3)
        with pytest.raises(error, match=words):
            use(x)
        assert x.get().tolist() == [0, 0, 0]


def test_an_array_of_another_device_is_refused():
    with streams.simulate():
        x = streams.zeros(3)
        with streams.Device(1), pytest.raises(ValueError, match="device = 0 while current = 1"):
            x += 1


# -- pinned memory ---------------------------------------------------------------------------------

READS = {
    "an element": lambda buffer: buffer[1],
    "an operator": lambda buffer: buffer + 1,
    "a reduction": lambda buffer: buffer.sum(),
    "a function": lambda buffer: np.concatenate([buffer, buffer]),
    "a slice of it": lambda buffer: buffer[:2].tolist(),
    "its text": repr,
    "a number": lambda buffer: float(buffer[0]),
    "a write": lambda buffer: buffer.fill(0),
    "a write in place": lambda buffer: np.add(buffer, 1, out=buffer),
    "a copy over it": lambda buffer: np.copyto(buffer, 3),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_host_has_to_wait_before_it_uses_pinned_memory(read):
    def program(waits: bool):
        stream = streams.Stream(non_blocking=True)
        with stream:
            x = streams.asarray(np.arange(4.0))
            out = streams.empty_pinned(4)
            x.get(out=out, blocking=False)
        if waits:
            stream.synchronize()
        read(out)
        stream.synchronize()
        return out.tolist()

    streams.check(lambda: program(True))
    text = message_of(lambda: program(False))
    assert text.startswith("the host ") and "Call synchronize() of the stream" in text
    assert "x.get(out=out, blocking=False)" in text


def test_the_host_may_read_pinned_memory_that_a_copy_reads():
    def program():
        stage = streams.empty_pinned(4)
        stage[:] = np.arange(4)
        with streams.Stream(non_blocking=True) as stream:
            x = streams.empty(4)
            x.set(stage)
            total = stage.sum()
        return x.get(stream), total

    assert streams.check(program).startswith("no data race")
