"""Thin links: what travels between processes takes as long as it would on a slow network."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from mpi_jobs import by_mpiexec

from d2lmini import MXNetError, kvstore
from d2lmini.distributed import throttle


def test_a_link_takes_its_time(monkeypatch):
    link = throttle.Link(gb_s=0.001, latency_s=0.002)
    assert link.seconds(1000) == pytest.approx(0.003)
    assert link.seconds(1000, messages=3) == pytest.approx(0.009)
    assert throttle.Link(latency_s=0.5).seconds(1 << 40) == 0.5
    slept = [10.003]  # the clock's time, and then each sleep
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(throttle, "time", clock)
    link.hold(10.0, nbytes=10_000)
    assert slept[1:] == [pytest.approx(0.009)], "of 12 ms 3 have passed"
    throttle.Link().hold(10.0, nbytes=1 << 40)
    assert len(slept) == 2


def test_scopes_and_calls():
    assert throttle.current() == throttle.Link()
    with kvstore.thin_link(0.5) as outer:
        with kvstore.thin_link(latency_s=1e-3) as inner:
            assert throttle.current() is inner == (None, 1e-3)
        assert throttle.current() is outer
        kvstore.thin_link(2)
        assert throttle.current() == (2.0, 0.0)
    assert throttle.current() == throttle.Link()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((0,), "thin_link: the rate is in GB/s, above 0, got 0"),
        ((1, -1), "thin_link: the latency is in seconds, 0 or more, got -1"),
        ((1, float("inf")), "thin_link: the latency is in seconds"),
        (("fast",), "thin_link: expected numbers, got 'fast'"),
    ],
)
def test_links_that_make_no_sense(args, says):
    with pytest.raises(MXNetError, match=says):
        kvstore.thin_link(*args)
    assert throttle.current() == throttle.Link()


def test_the_environment_is_asked_once(monkeypatch):
    monkeypatch.setattr(throttle, "_current", None)
    monkeypatch.setenv("D2LMINI_LINK_GB_S", "0.25")
    monkeypatch.setenv("D2LMINI_LINK_LATENCY_S", "1e-3")
    assert throttle.current() == (0.25, 1e-3)
    monkeypatch.setenv("D2LMINI_LINK_GB_S", "0.5")
    assert throttle.current() == (0.25, 1e-3)


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
        assert found["link"] == "<link 0.001 GB/s, latency 10000 us>"
        assert found["none"] == "<link full speed, latency 0 us>"
        assert found["value"] == n**2, "of two sums"
        assert found["barrier"] >= agreed_s
        assert found["sum"] >= 2 * agreed_s + 2 * (latency_s + 4000 * (n - 1) / rate)
        assert found["broadcast"] >= 2 * agreed_s + rounds * (latency_s + 4000 * n / rate)
