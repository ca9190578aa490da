"""The stopwatch: what it prints, when it stops, what it says was in flight; and memory."""

import mmap

import pytest
from virtual_engine import VirtualEngine

from d2lmini.d2l import Benchmark, get_mem


@pytest.fixture
def machine(monkeypatch):
    return VirtualEngine().install(monkeypatch)


# --- the with block ---


def test_prints_the_line_of_the_book(machine, capsys):
    with Benchmark("Workloads are queued."):
        machine.push(0.0009, 0.8)
    with Benchmark("Workloads are finished."):
        machine.waitall()
    with Benchmark():
        machine.spend(1.25)
    assert capsys.readouterr().out.splitlines() == [
        "Workloads are queued. time: 0.0009 sec",
        "Workloads are finished. time: 0.8000 sec",
        "time: 1.2500 sec",
    ]


def test_knows_what_was_in_flight(machine, capsys):
    with Benchmark("queued") as timer:
        for _ in range(3):
            machine.push(0.001, 0.5)
    assert timer.elapsed == pytest.approx(0.003)
    assert timer.in_flight == 3
    assert repr(timer) == "Benchmark('queued', elapsed=0.0030 sec, in_flight=3)"
    with timer:
        machine.spend(0.6)
    assert timer.in_flight == 2
    assert timer.elapsed == pytest.approx(0.6)


def test_quiet_prints_nothing(machine, capsys):
    timer = Benchmark("x", quiet=True)
    with timer:
        machine.spend(1)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("sync", [False, True])
def test_exceptions_pass_and_time_is_kept(machine, capsys, sync):
    timer = Benchmark("broken", sync=sync)
    with pytest.raises(ZeroDivisionError), timer:
        machine.push(0.25, 9)
        raise ZeroDivisionError
    # Not waited for, even with sync: the block's own error comes first.
    assert timer.elapsed == pytest.approx(0.25)
    assert timer.in_flight == 1
    assert capsys.readouterr().out == "broken time: 0.2500 sec\n"


# --- memory, imports ---


def test_get_mem_sees_megabytes_come():
    # From the system: an array may get memory that this process has freed and still holds.
    with mmap.mmap(-1, 64_000_000) as block:
        before = get_mem()
        for _ in range(64):
            block.write(bytes(1_000_000))
        assert 50 < get_mem() - before < 100
