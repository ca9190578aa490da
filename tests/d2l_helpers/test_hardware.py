"""d2l.machine: figures that are there, are measured once, and bound what work can take."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from sanitizer import sanitize

from d2lmini import d2l, engine, nd
from d2lmini.d2l.hardware import ROOMS, Machine, Peak
from d2lmini.ops.spec import Cost

READS = {nbytes: 1e-9 * (i + 1) for i, nbytes in enumerate(ROOMS)}
INVENTED = Machine(
    2, 8_000_000_000, Peak(1, 50.0, 10.0), Peak(2, 100.0, 20.0),
    5e-8, 1e-6, 4e-6, 8e-6, 1.2e-5, 4e-5, READS,
)  # fmt: skip
OTHER = replace(
    INVENTED,
    cores=64,
    memory_bytes=512_000_000_000,
    one=Peak(1, 151.2, 9.87),
    call_s=1.23e-7,
    hand_over_s=1.04e-3,
    elsewhere=2.0,
)


def test_every_figure_is_there_and_measured_once():
    before = engine.current
    m = d2l.machine()
    assert d2l.machine() is m and isinstance(m, d2l.Machine)
    seconds = (
        m.call_s,
        m.numpy_s,
        m.inline_s,
        m.issue_s,
        m.run_s,
        m.hand_over_s,
        *m.read_s.values(),
    )
    assert all(0 < s < math.inf for s in seconds)
    assert m.cores >= 1 and m.memory_bytes > 1 << 28
    assert m.one.threads == 1 and m.all.threads == m.cores
    assert list(m.read_s) == list(ROOMS)
    assert engine.current is before and engine.stats().pending == 0


def test_the_least_time_is_that_of_the_roof():
    product = Cost(flops=2e9, nbytes=1e6)  # bound by arithmetic
    assert INVENTED.at_least_s(product, 1) == pytest.approx(0.04)
    assert INVENTED.at_least_s(product) == pytest.approx(0.02)
    addition = Cost(flops=1e6, nbytes=1e8)  # by memory
    assert INVENTED.at_least_s(addition, 1) == pytest.approx(0.01)
    assert INVENTED.at_least_s(addition) == pytest.approx(0.005)
    assert INVENTED.flops_per_byte == 5
    dot = nd.dot.cost([((1000, 1000), "float32")] * 2)
    assert INVENTED.at_least_s(dot) == pytest.approx(2e9 / 100e9)


def test_a_line_for_each_figure():
    lines = str(INVENTED).splitlines()
    assert lines[0] == "machine: 2 cores, 8 GB of memory"
    assert re.fullmatch(r"products of matrices, all cores +100 GFLOP/s", lines[2])
    assert re.fullmatch(r"a number from 128 MB, many at once +4 ns", lines[8])
    assert re.fullmatch(r" +NDArray, handed over and waited for +40 us", lines[-1])
    assert repr(INVENTED) == str(INVENTED) and len(lines) == 15
    assert str(replace(INVENTED, cores=1)).startswith("machine: 1 core,")


def test_a_table_that_was_measured_on_a_busy_machine_says_so():
    busy = replace(INVENTED, elsewhere=1.44)
    assert busy.busy and "busy" not in str(replace(INVENTED, elsewhere=0.1)) + str(INVENTED)
    assert "machine: busy: other programs used 1.4 cores meanwhile" in str(busy)
    assert all(line.startswith("machine: ") for line in str(busy).splitlines()[:2])


def test_a_chapter_prints_the_same_on_every_machine():
    """Once the chapters' sanitizer has been over it."""
    assert str(INVENTED) != str(OTHER)
    assert sanitize(str(INVENTED)) == sanitize(str(OTHER)) == sanitize(str(d2l.machine()))
