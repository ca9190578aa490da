"""What the folded answers of the chapter on automatic parallelism say of schedules is so."""

from __future__ import annotations

from labs.auto_parallelism import on_paper, steps

from d2lmini import nd


def test_four_chains_take_as_long_on_three_workers_as_on_two():
    def four_chains():
        for _ in range(4):
            x = nd.ones((2, 2))
            for _ in range(10):
                x = nd.tanh(x)

    assert [steps(on_paper(four_chains, workers=n)) for n in (2, 3)] == [20, 20]
