"""The chapters' sanitizer forgives what a machine decides and nothing else.

Both sides of a comparison pass through the patterns of `chapters/nbval_sanitize.cfg`, read and
applied here exactly as nbval does.
"""

import re

import pytest
from sanitizer import CONFIG, patterns, sanitize

FORGIVEN = [
    ("Workloads are queued. time: 0.0009 sec", "Workloads are queued. time: 12.4431 sec"),
    ("t2 =   1.25 us", "t2 = 31.25 us"),
    ("a 3ms, b 4 ns, c 5e-06 s", "a 13.5ms, b 0.4 ns, c 1.5e-06 s"),
    ("took 1,204 ms (980 ms in the queue)", "took 7 ms (5 ms in the queue)"),
    ("8.31 \u00b5s \u00b1 12 ns per loop", "9 \u03bcs \u00b1 1.5 ns per loop"),
    ("batch 10, time 0.113 sec", "batch 10, time 2.1 sec"),
    ("12.9 GB/s, 88 GFLOP/s", "9 GB/s, 104.2 GFLOP/s"),
    ("250,000 ops/s", "81000.5 ops/s"),
    ("increased memory: 12.3 MB", "increased memory: -0.4 MB"),
    ("memory of the process:  98.1 MB", "memory of the process: 1004.0 MB"),
    (
        "verdict: asynchronous is 1.9 times faster (1.8-2.0, 10 rounds)",
        "verdict: no measurable difference (0.9-1.1, 10 rounds)",
    ),
    (
        "verdict: a is faster\nreference: a is\n           faster\nsum = 1",
        "verdict: a is\n         slower by\n         a fifth\nsum = 1",
    ),
    (
        "verdict: a is faster",
        "verdict: no measurable difference\nreference: a is faster; a quiet machine with 2 cores",
    ),
    (
        "verdict: a is faster\n         in the call  waiting\na  1 ms  2 ms",
        "verdict: a is\n         so\nreference: a\n         in the call  waiting\na  3 ms  4 ms",
    ),
    (
        "measured prediction: none was made; it is 1.90 times",
        "measured prediction: 2 times; it is 1.40 times (0.7 times as much)",
    ),
    ("measured: 7 of 10 copies overlapped", "measured: 9 of 10 copies overlapped"),
    (
        "machine: 2 cores, 8 GB of memory\na call 50 ns",
        "machine: 64 cores, 512 GB of memory\nmachine: gpu(0): 64 MB at 25 GB/s\na call 30 ns",
    ),
    ("<function f at 0x7f12ab34cd56>", "<function f at 0x5566778899>"),
    ("at /tmp/ipykernel_81/22.py:3", r"at C:\Temp\ipykernel_9\1234.py:3"),
    ("issued at In [12], line 3: y = x + 1", "issued at In [1], line 3: y = x + 1"),
]

COMPARED = [
    ("sum = [5.0]  time: 0.1 sec", "sum = [6.0]  time: 0.1 sec"),
    ("[[3. 3.]]", "[[3. 4.]]"),
    ("<NDArray 1x2 @cpu(0)>", "<NDArray 2x1 @cpu(0)>"),
    ("1000 t2 > 999 t1: True", "1000 t2 > 999 t1: False"),
    ("executed 1000 tasks", "executed 999 tasks"),
    ("x holds 16.0 MB", "x holds 32.0 MB"),
    ("0x1f", "0x2f"),
    ("verdict: a is faster\nsum = 1", "verdict: b is faster\nsum = 2"),
    ("verdict: a\n   1", "verdict: a\n   2"),
    ("prediction: 12; it is 14", "prediction: 12; it is 15"),
    ("a\nthe reference: 1", "a\nthe reference: 2"),
    ("machine: 2 cores\nsum = 1", "machine: 4 cores\nsum = 2"),
    ("memory\n5 MB", "memory\n6 MB"),
    ("at /tmp/ipykernel_81/22.py:3", "at /tmp/ipykernel_81/22.py:4"),
    ("issued at In [1], line 3: y = x + 1", "issued at In [1], line 4: y = x + 1"),
    ("In [1] is 5", "In [2] is 5"),
]


@pytest.mark.parametrize(("committed", "rerun"), FORGIVEN)
def test_what_a_machine_decides_is_forgiven(committed, rerun):
    assert committed != rerun
    assert sanitize(committed) == sanitize(rerun)


@pytest.mark.parametrize(("committed", "rerun"), COMPARED)
def test_values_and_words_are_still_compared(committed, rerun):
    assert sanitize(committed) != sanitize(rerun)


def test_every_pattern_is_read():
    """nbval skips in silence an entry whose two lines do not stand together."""
    text = CONFIG.read_text(encoding="ascii")
    sections = re.findall(r"^\[\w+\]$", text, flags=re.MULTILINE)
    assert len(patterns()) == len(sections) > 0
