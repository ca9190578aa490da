"""CachedOp: a compiled Symbol as one operation. The eager computation is the oracle.

Inline execution, of calls that are over sooner than a hand-over, is looked at for each of the
reasons not to take it; training calls for all that the tape promises of any operation.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from interrupts import ENGINE_FILES, PACKAGE, interrupt_at
from invariants import check_invariants

from d2lmini import MXNetError, cpu, engine, nd, profile, storage, sym
from d2lmini.base import instrument
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ndarray.dispatch import run_inline

x, w, b = sym.var("x"), sym.var("w"), sym.var("b")


def layer() -> CachedOp:
    return CachedOp(sym.tanh(sym.FullyConnected(x, w, b, num_hidden=3)), name="layer")


def eager(x: Any, w: Any, b: Any) -> Any:
    return nd.tanh(nd.FullyConnected(x, w, b, num_hidden=3))


def arrays(n: int = 2) -> list[Any]:
    rng = np.random.default_rng(0)
    return [nd.array(rng.normal(size=shape)) for shape in ((n, 4), (3, 4), (3,))]


@pytest.fixture(autouse=True)
def threaded() -> Iterator[None]:
    with engine.use("threaded", workers=2):
        engine.current.inline_below = 100.0
        yield
        nd.waitall()


# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: f(*arrays()[:2]), MXNetError, "2 arrays for 3 inputs: x, w, b"),
        (lambda f: f(), MXNetError, "0 arrays for 3 inputs"),
        (lambda f: f(1, *arrays()[1:]), TypeError, "x is to be an NDArray, got int"),
        (lambda f: f(nd.ones((2, 5)), *arrays()[1:]), MXNetError, "fullyconnected"),
        (lambda f: f(arrays()[0].as_in_context(cpu(1)), *arrays()[1:]), MXNetError, r"cpu\(1\)"),
        (lambda f: f(*arrays(), out=nd.ones((2, 2))), MXNetError, "out= has"),
        (lambda f: f(*arrays(), out=[nd.ones((2, 3))] * 2), MXNetError, "out= has 2"),
        (lambda f: f(*arrays(), out=3), TypeError, "out= takes NDArrays"),
    ],
)
def test_what_does_not_fit_is_an_error_at_the_call(call: Any, error: Any, words: str):
    f = layer()
    for _ in range(2):  # known kinds are found by another road
        with pytest.raises(error, match=words):
            call(f)
        f(*arrays())


# -- inline ------------------------------------------------------------------------------------


def ran_inline(f: CachedOp, *inputs: Any) -> bool:
    (compiled,) = f.cache.of(f.mark)
    return run_inline(compiled._calls, inputs, compiled.ctx) is not None


class Ends(instrument.Instrument):
    """Wants to be told of each event."""

    def end(self, task: Any, failure: Any) -> None: ...


def test_reasons_not_to_run_inline():
    f, inputs = layer(), arrays()
    f(*inputs)
    assert ran_inline(f, *inputs)
    # Something is pending on an input.
    go = threading.Event()
    engine.push(lambda: go.wait(30), writes=[inputs[0]._chunk])
    assert not ran_inline(f, *inputs)
    go.set()
    nd.waitall()
    assert ran_inline(f, *inputs)
    # A reader beside does not matter.
    go = threading.Event()
    engine.push(lambda: go.wait(30), reads=[inputs[0]._chunk])
    assert ran_inline(f, *inputs)
    go.set()
    # Nor does a view of a larger array; another context, a listener to each event, the dial do.
    assert ran_inline(f, nd.ones((4, 4))[1:3], *inputs[1:])
    assert not ran_inline(f, inputs[0].as_in_context(cpu(1)), *inputs[1:])
    with instrument.listening(Ends()):
        assert not ran_inline(f, *inputs)
    with instrument.listening(instrument.Instrument()), profile():
        assert ran_inline(f, *inputs)
    engine.current.inline_below = 0.0
    assert not ran_inline(f, *inputs)


def test_ctrl_c_in_an_inline_call_leaves_everything_right():
    """Struck at every call and line of the dispatcher and of the program: the call happened or it
    did not, the lock is free, the books agree, and the next call works."""
    f, inputs = layer(), arrays()
    want = f(*inputs).asnumpy()
    files = (
        *ENGINE_FILES,
        *(str(PACKAGE / f) for f in ("ndarray/dispatch.py", "graph/program.py")),
    )
    for k in range(10_000):
        gc.collect()
        before = storage.stats(cpu()).live
        with interrupt_at(k, files) as strike:
            y = f(*inputs)
        y = None  # noqa: F841
        check_invariants()
        nd.waitall()
        gc.collect()
        assert storage.stats(cpu()).live == before, strike.where
        assert not engine.current.lock._is_owned()
        np.testing.assert_array_equal(f(*inputs).asnumpy(), want)
        if not strike.done:
            assert k > 5, "the call has hardly any points: is the tracing broken?"
            return
