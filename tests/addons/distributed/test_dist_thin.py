"""Thin links: what travels between processes takes as long as it would on a slow network."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from mpi_jobs import by_mpiexec

from d2lmini.distributed import mpi
from d2lmini.distributed.mpi import Link


def test_a_link_takes_its_time(monkeypatch):
    link = Link(gb_s=0.001, latency_s=0.002)
    assert link.seconds(1000) == pytest.approx(0.003)
    assert link.seconds(1000, messages=3) == pytest.approx(0.009)
    assert Link(latency_s=0.5).seconds(1 << 40) == 0.5
    slept = [10.003]  # the clock's time, and then each sleep
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(mpi, "time", clock)
    link.hold(10.0, nbytes=10_000)
    assert slept[1:] == [pytest.approx(0.009)], "of 12 ms 3 have passed"
    Link().hold(10.0, nbytes=1 << 40)
    assert len(slept) == 2


def test_a_job_on_a_thin_link_takes_at_least_its_time(tmp_path):
    """Started by MPI's own launcher. Each process sends 4000 bytes to each other one: for shares,
    and for their sums."""
    n, rate, latency_s = 3, 1e6, 0.01
    status, told = by_mpiexec(
        n,
        "thin",
        tmp_path,
        D2LMINI_LINK_GB_S=str(rate / 1e9),
        D2LMINI_LINK_LATENCY_S=str(latency_s),
    )
    assert status == 0, told
    rounds = 2  # until what one says has come to three
    agreed_s = rounds * (latency_s + 16 / rate)
    for r in range(n):
        found = json.loads((tmp_path / f"{r}.json").read_text())
        assert found["link"] == [0.001, 0.01]
        assert found["value"] == n
        assert found["barrier"] >= agreed_s
        assert found["sum"] >= 2 * agreed_s + 2 * (latency_s + 4000 * (n - 1) / rate)
        assert found["broadcast"] >= 2 * agreed_s + rounds * (latency_s + 4000 * n / rate)
