"""BLAS has one thread while somebody is alone with it, and its own number before and afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from d2lmini import engine, nd
from d2lmini.device import blas

threadpoolctl = pytest.importorskip("threadpoolctl")


def blas_threads() -> int:
    """Of NumPy's own BLAS: a test that ran before may have loaded another, SciPy's."""
    found = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    own = [p for p in found if "numpy" in p["filepath"]] or found
    return max((p["num_threads"] for p in own), default=1)


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if blas_threads() != 2:
            pytest.skip("BLAS has one thread and no more")
        yield


def test_alone_means_one_thread_until_the_last_has_left(two_threads):
    """Several may be inside, on any threads."""
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with blas.alone():
            seen.append(blas_threads())
            inside.set()
            leave.wait(5)

    first = threading.Thread(target=other)
    first.start()
    assert inside.wait(5)
    with blas.alone(), blas.alone():
        seen.append(blas_threads())
    assert blas_threads() == 1  # the other is still inside
    leave.set()
    first.join()
    assert seen == [1, 1] and blas_threads() == 2


def test_a_users_own_products_stay_right_meanwhile(two_threads):
    """On this thread NumPy's, with whatever number of threads there is; workers come and go."""
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (300, 300)).astype("float32")
    want = (a.astype("float64") @ a).tobytes()
    with engine.use("threaded", workers=2, inline_below=0):
        x = nd.array(a)
        for _ in range(20):
            products = [nd.dot(x, x) for _ in range(3)]
            assert (a @ a).astype("float64").tobytes() == want
            for y in products:
                assert y.asnumpy().astype("float64").tobytes() == want
    assert blas_threads() == 2
