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


def blas_threads() -> int:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    return max(
        (p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"),
        default=1,
    )


def test_alone_means_one_thread_for_each_and_the_turn_of_nobody_else():
    """Several may be inside, on any threads; who wants BLAS's own threads waits for the last."""
    before = blas_threads()
    blas.forget()
    if before == 1:
        pytest.skip("BLAS has one thread anyway")
    inside, leave, seen, turns = threading.Event(), threading.Event(), [], []

    def other() -> None:
        with blas.alone():
            seen.append(blas_threads())
            inside.set()
            leave.wait(5)

    def large() -> None:
        with blas.turn(LARGE):
            turns.append(blas_threads())

    first = threading.Thread(target=other)
    first.start()
    assert inside.wait(5)
    with blas.alone():
        seen.append(blas_threads())
    assert blas_threads() == 1  # the other is still inside
    second = threading.Thread(target=large)
    second.start()
    second.join(0.05)
    assert second.is_alive() and not turns
    leave.set()
    first.join()
    second.join()
    assert seen == [1, 1] and turns == [before] and blas_threads() == before


def test_alone_is_left_when_something_fails_inside():
    before = blas_threads()
    with pytest.raises(ValueError, match="in the midst"), blas.alone():
        raise ValueError("in the midst")
    assert blas_threads() == before
    with blas.turn(LARGE):
        assert blas_threads() == before
