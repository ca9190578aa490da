"""What the folded answers of the chapter on automatic parallelism say of schedules is so."""

from __future__ import annotations

import pytest
from labs.auto_parallelism import on_paper, run_slowly, steps

from d2lmini import MXNetError, cpu, gpu, nd, profile, virtual_gpus


def test_a_new_array_needs_no_room():
    with profile() as trace:
        a = nd.ones((1, 2))
        b = nd.ones((1, 2))
        c = a * b
        d = a + 3
        a = a + 1
    assert (trace.needs(5), trace.makes_room(5)) == ((1,), ())
    assert (c + d).shape == (1, 2)


def test_four_chains_take_as_long_on_three_workers_as_on_two():
    def four_chains():
        for _ in range(4):
            x = nd.ones((2, 2))
            for _ in range(10):
                x = nd.tanh(x)

    assert [steps(on_paper(four_chains, workers=n)) for n in (2, 3)] == [20, 20]


def test_copies_pushed_backwards_are_no_longer():
    def backwards():
        x = nd.ones((2, 2), ctx=gpu(0))
        for y in reversed([nd.dot(x, x) for _ in range(10)]):
            y.copyto(cpu())

    assert steps(on_paper(backwards)) == 11


def test_arrays_of_two_devices_are_refused_at_the_call():
    with virtual_gpus(2), pytest.raises(MXNetError, match=r"\.as_in_context"):
        nd.dot(nd.ones((2, 2), ctx=gpu(0)), nd.ones((2, 2), ctx=gpu(1)))


def test_a_run_that_disagrees_with_the_virtual_clock_raises_nothing(capsys):
    with virtual_gpus(1):  # without rates the virtual clock has no time of a device
        run_slowly("a sum", lambda: nd.ones((2, 2), ctx=gpu(0)) + 1)
    clock, measured = capsys.readouterr().out.splitlines()[:2]
    assert clock.startswith("a sum: ") and clock.endswith(" ms on the virtual clock")
    assert measured.startswith("measured: does a sum take as long on the real clock? no: ")
