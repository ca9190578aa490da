"""The check of the order of work: it finds each data race, and accuses no right program.

The check is that of `labs.streams`, which chapter 11 uses; the fake of CuPy adds devices, pools
that lend memory again, and pinned memory.
"""

from __future__ import annotations

import numpy as np
from fakes.cuda import fake_cuda
from labs.streams import OrderError
from stream_programs import generate, has_race, run, without_a_wait

N_PROGRAMS = 500


def test_right_programs_have_no_data_race_and_the_values_of_program_order():
    for seed in range(N_PROGRAMS):
        program = generate(seed)
        assert not has_race(program), seed
        with fake_cuda(2, seed=seed) as cupy:
            assert np.array_equal(run(program, cupy), run(program), equal_nan=True), seed


def test_a_missing_wait_is_found_exactly_where_reachability_finds_it():
    found = 0
    for seed in range(N_PROGRAMS // 2):
        program = without_a_wait(generate(seed), seed)
        expected = has_race(program)
        try:
            with fake_cuda(2, seed=seed) as cupy:
                run(program, cupy)
        except OrderError:
            assert expected, seed
            found += 1
        else:
            assert not expected, seed
    assert 0.8 * N_PROGRAMS / 2 < found < N_PROGRAMS / 2  # some waits are not needed
