"""`dist_async`: rank 0 keeps the weights, and nobody waits for another rank.

The jobs are those of `tools/dist_async_job.py`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import dist_async_job
import pytest
from mpi_jobs import launched

from d2lmini import MXNetError, engine, kvstore, nd

JOB = Path(dist_async_job.__file__)


def test_ranks_push_and_pull_by_themselves(tmp_path):
    n = 3
    status, told = launched(n, "calls", tmp_path, job=JOB)
    assert status == 0, told
    for r in range(n):
        found = json.loads((tmp_path / f"{r}.json").read_text())
        assert found["who"] == ["dist_async", r, n]
        early, no_out, trainer, parts = found["refused"]
        assert early.startswith("MXNetError: push: 'dist_async' updates at every push")
        assert "out= is required" in no_out
        assert trainer == (
            "ValueError: Please set update_on_kvstore=True when training in async mode."
        )
        assert parts.startswith("AssertionError: allreduce_grads() when parameters are updated on")
        assert found["init"][0] in (7.0, 6.0, 5.0, 4.0, 3.0, 2.0), "rank 0's, or pushed to since"
        assert found["alone"] == ([6, 5, 4, 3, 2] if r == n - 1 else None)
        values, updates, stale = found["pushes"]
        total = 3 * (2**n - 1) + 3 * n
        assert values[:2] == [[-total] * 2, [-total - n] * 2]
        # What rank 0 pushes itself does not travel, and keeps its last bit.
        assert values[2] == [-total - 2 * n - (2**-11)] * 2
        assert updates == (5 * n if r == 0 else 0)
        assert stale == (3 * n + 5 if r == 0 else 0)
        first = -2 * n / 2
        assert found["rates"] == [[first * f] * 2 for f in (1, 1.5, 1.75)]
        ends, sent = found["big"]
        assert ends == [1.0 - n]
        assert sent == (5 if r else 0)
        if r == 0:
            assert found["states"] == [-1.0, 1.0]
        else:
            assert found["states"] == [
                f"AssertionError: Cannot {what} states for distributed training"
                for what in ("save", "load")
            ]
        assert found["updater"] == [100.0 - 30 * n] * 2
        first, last = found["losses"]
        assert last < 0.9 * first


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", ["rank 1 was killed, or left without ending its program"]),
        ("server", ["ValueError: no more updates", "rank 0 of 2 has failed, and with it the job"]),
    ],
)
def test_a_rank_or_a_server_that_fails_ends_the_job(how, says, tmp_path):
    status, told = launched(2, how, tmp_path, job=JOB)
    ended = time.time()
    assert status != 0, told
    for words in says:
        assert words in told
    assert ended - float((tmp_path / "failed").read_text()) < 10


def test_the_serial_engines_cannot_serve(monkeypatch):
    """A store of one process is well with them."""
    pytest.importorskip("mpi4py", reason="there is no mpi4py: pip install 'd2lmini[dist]'")
    for kind in ("naive", "stepped"):
        with engine.use(kind):
            kv = kvstore.create("dist_async")
            kv.init("w", nd.full(2, 3))
            kv.set_updater(lambda key, grad, stored: stored.__isub__(grad))
            kv.push("w", nd.ones(2))
            out = nd.zeros(2)
            kv.pull("w", out)
            assert out.asnumpy().tolist() == [2, 2]
            monkeypatch.setattr(kv, "num_workers", 2)
            with pytest.raises(MXNetError, match=f"needs the threaded engine, this is the {kind}"):
                kv.barrier()
