"""Large products take turns; small ones, and those of a BLAS with one thread, do not."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from d2lmini import engine, nd
from d2lmini.device import blas

LARGE = 2 * blas.SERIAL_PRODUCT


def enters_beside(first: float, second: float) -> bool:
    """Can another thread enter its turn while this one has its own?"""
    entered = threading.Event()

    def other() -> None:
        with blas.turn(second):
            entered.set()

    thread = threading.Thread(target=other)
    with blas.turn(first):
        thread.start()
        beside = entered.wait(0.2 if max(first, second) <= blas.SERIAL_PRODUCT else 0.05)
    thread.join()
    assert entered.is_set()
    return beside


@pytest.mark.parametrize(
    ("threads", "first", "second", "beside"),
    [
        (2, LARGE, LARGE, False),
        (2, LARGE, 1, True),
        (2, 1, LARGE, True),
        (1, LARGE, LARGE, True),
    ],
)
def test_who_waits_for_whom(monkeypatch, threads, first, second, beside):
    monkeypatch.setattr(blas, "_threads", threads)
    assert enters_beside(first, second) is beside


def test_the_number_of_threads_is_asked_anew_when_told(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.setattr(blas, "_threads", 17)
    assert blas.threads() == 17
    blas.forget()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert blas.threads() == 1
    blas.forget()


def test_an_operation_that_fails_gives_its_turn_back(monkeypatch):
    monkeypatch.setattr(blas, "_threads", 2)

    def fails() -> None:
        with blas.turn(LARGE):
            raise ValueError("in the midst")

    tag = engine.new_var()
    engine.push(fails, writes=[tag])
    with pytest.raises(Exception, match="in the midst"):
        engine.wait_for_var(tag)
    x = nd.ones((100, 100))
    assert nd.dot(x, x).asnumpy()[0, 0] == 100


def test_products_of_many_workers_agree_with_numpy(monkeypatch):
    monkeypatch.setattr(blas, "_threads", 2)
    rng = np.random.default_rng(0)
    a = [rng.uniform(size=(120, 130)).astype("float32") for _ in range(8)]
    with engine.use("threaded", workers=4, inline_below=0):
        products = [nd.dot(nd.array(m), nd.array(m), transpose_b=True) for m in a]
        for m, product in zip(a, products, strict=True):
            np.testing.assert_allclose(product.asnumpy(), m @ m.T, rtol=1e-5)
