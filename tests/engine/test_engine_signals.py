"""Ctrl-C loses nothing: what changes in place is changed or as it was, and no interrupt is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
from itertools import count

import numpy as np
import pytest
from generators.agree import ENGINES
from interrupts import ENGINE_FILES, PACKAGE, interrupt_at

import d2lmini
from d2lmini import autograd, engine, gluon, nd, scopes
from d2lmini.engine import signals
from d2lmini.engine.core import FunctionTask
from d2lmini.engine.scheduler import thread_state
from d2lmini.gluon import nn

FILES = (
    *ENGINE_FILES,
    *(
        str(PACKAGE / name)
        for name in (
            "ndarray/dispatch.py", "ndarray/compute.py", "ops/update_multi.py", "ops/update.py",
            "ops/vector_norm.py", "ops/elementwise.py", "ops/activation.py", "ops/subscript.py",
            "graph/call.py",
            "device/parallel.py", "device/errstate.py",
        )
    ),
)  # fmt: skip

KINDS = {"threaded": {}, "naive": {}, "stepped": {"seed": 1}}

#: The slower engines are struck at every third or seventh point.
STRIDES = {"threaded": 1, "naive": 3, "stepped": 7}

WRITES = {
    "x += y": lambda x, y: x.__iadd__(y),
    "x[:] = y": lambda x, y: x.__setitem__(slice(None), y),
    "x[1:3] = y": lambda x, y: x.__setitem__(slice(1, 3), y[:2]),
    "x[::2] = y": lambda x, y: x.__setitem__(slice(None, None, 2), y[:2]),
    "out=x": lambda x, y: nd.softmax(y, out=x),
    "an update": lambda x, y: nd.sgd_update(x, y, lr=0.5, out=x),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WRITES)
def test_a_write_in_place_happens_or_does_not(how, kind):
    with engine.use(kind, **KINDS[kind]):
        x, y = nd.array([1, 2, 3, 4]), nd.array([5, 6, 7, 8])
        WRITES[how](x, y)
        after = x.asnumpy()
        for k in count(step=STRIDES[kind]):
            x[:] = nd.array([1, 2, 3, 4])
            x.wait_to_read()
            with interrupt_at(k, FILES) as strike:
                WRITES[how](x, y)
                x.wait_to_read()
            found = x.asnumpy().tolist()
            assert found in ([1, 2, 3, 4], after.tolist()), f"struck at {strike.where}"
            engine.current.check()
            if not strike.done:
                break
        assert k > 20
    nd.waitall()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
def test_a_step_of_training_happens_or_does_not(optimizer, hybridized, kind):
    """All weights, states and running statistics, for one update changes all of them."""
    with engine.use(kind, **KINDS[kind]):
        d2lmini.random.seed(1)
        net = nn.HybridSequential()
        net.add(nn.Dense(4), nn.BatchNorm(), nn.Dense(1))
        net.initialize()
        if hybridized:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1})
        X = nd.array(np.random.default_rng(0).normal(size=(6, 3)))
        params = list(net.collect_params().values())

        def state():
            return [p.data().asnumpy() for p in params]

        def go():
            with autograd.record():
                l = (net(X) ** 2).sum()
            l.backward()
            trainer.step(6)
            l.wait_to_read()

        for _ in range(3):
            go()
        rng, struck = random.Random(1), 0
        for _ in range(40):
            before = state()
            with interrupt_at(rng.randrange(2500), FILES) as strike:
                go()
            struck += strike.done
            after = state()  # raises if a value was lost
            nd.waitall()
            weights = [i for i, p in enumerate(params) if p.name.endswith("weight")]
            changed = {bool((before[i] != after[i]).any()) for i in weights}
            assert len(changed) == 1, f"half an update, struck at {strike.where}"
            assert all(np.isfinite(a).all() for a in after)
            for p in params:
                if p.grad_req != "null":
                    p.grad().asnumpy()
        assert struck > 5
        engine.current.check()


def test_holding_and_releasing_keeps_every_handler_and_signal():
    seen = []
    handler = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        mine = signal.getsignal(signal.SIGINT)
        held = signals.hold()
        assert held and signals.hold() is None, "held already"
        signal.raise_signal(signal.SIGINT)
        assert not seen
        signals.release(held)
        assert seen == [1] and signal.getsignal(signal.SIGINT) is mine
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        held = signals.hold()  # others may have handlers, as that of a test's timeout
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signals.release(held or [])
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not signals.noted


class Saves:
    """A handler as a method: what a job does that is told to end."""

    def __init__(self, x):
        self.x, self.told = x, []

    def handle(self, *_):
        try:
            self.told.append(self.x.asnumpy().tolist())
        except d2lmini.MXNetError as error:
            self.told.append(str(error))


WITHIN = {
    "a transition": lambda: engine.current.lock,
    "a task": lambda: scopes.swapping(thread_state, "task", FunctionTask(int, "f", (), ())),
    "the program": contextlib.nullcontext,
}


@pytest.mark.parametrize("handler", ["a function", "a method"])
@pytest.mark.parametrize("within", WITHIN)
def test_a_handler_that_waits_works_or_says_what_to_do(within, handler):
    saves = Saves(nd.ones(2))
    saves.x.wait_to_read()
    handle = saves.handle if handler == "a method" else lambda *_: saves.handle()
    before = signal.signal(signal.SIGTERM, handle)
    try:
        with WITHIN[within]():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    [told] = saves.told
    if within == "the program":
        assert told == [1, 1]
    else:
        assert told.startswith("asnumpy inside a signal's handler") and "set a flag" in told
    engine.current.check()


def test_a_users_function_can_be_interrupted():
    """It may never end: so Ctrl-C does not wait for it."""

    def forever():
        signal.raise_signal(signal.SIGINT)
        while True:
            pass

    x = nd.ones(2)
    with engine.use("naive"):
        with pytest.raises(KeyboardInterrupt):
            engine.push(forever, reads=[x], writes=[x])
        with pytest.raises(d2lmini.MXNetError, match="interrupted by Ctrl-C while it ran"):
            x.asnumpy()


def test_a_thread_computes_quietly_after_it_was_struck():
    """NumPy's warnings are off in operations, whatever was interrupted before."""
    with engine.use("naive"):  # where each operation is a task, and runs on this thread
        x = nd.ones((40, 40))
        for k in count():
            with interrupt_at(k, (str(PACKAGE / "device" / "errstate.py"),)) as strike:
                x + 1
            with np.errstate(all="raise"):
                assert np.isinf((1 / nd.zeros((40, 40))).asnumpy()).all(), strike.where
            if not strike.done:
                break
        assert k > 1


# -- in a process of its own -----------------------------------------------------------------------


def run(text: str, seconds: float = 60) -> subprocess.CompletedProcess:
    """The text as a program; none of these may take long."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, timeout=seconds,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip


FINALIZERS = {
    "__del__": """
        class Dies:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        dies = Dies()
        del dies
        """,
    "a weakref's callback": """
        class Dies: pass
        dies = Dies()
        ref = weakref.ref(dies, lambda _: signal.raise_signal(signal.SIGINT))
        del dies
        """,
}

NEXT = {
    "a push": "nd.zeros((300, 300))",
    "an operation on a tiny array": "x + 1",
    "a wait": "x.asnumpy()",
    "waitall": "nd.waitall()",
}


@pytest.mark.parametrize("after", NEXT)
@pytest.mark.parametrize("how", FINALIZERS)
def test_an_interrupt_that_a_finalizer_swallows_is_raised_at_the_next_push_or_wait(how, after):
    text = f"""
import signal, weakref
from d2lmini import nd
x = nd.ones(3)
x + 1
x.asnumpy()
{textwrap.dedent(FINALIZERS[how])}
try:
    {NEXT[after]}
    print("lost")
except KeyboardInterrupt:
    print("raised")
{NEXT[after]}
print((x + 1).asnumpy())
"""
    done = run(text)
    assert done.stdout.split("\n")[:2] == ["raised", "[2. 2. 2.]"], done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals by timers are of Unix")
@pytest.mark.parametrize("kind", ENGINES)
def test_real_interrupts_lose_no_weight(kind):
    """SIGINT at random times in the training of a small net."""
    done = run(
        f"""
        import os, random, signal
        import numpy as np
        from d2lmini import autograd, engine, gluon, nd
        from d2lmini.gluon import nn
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        rng, struck = random.Random(2), 0
        with engine.use(**{ENGINES[kind]!r}):
            net = nn.HybridSequential()
            net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(1))
            net.initialize()
            trainer = gluon.Trainer(net.collect_params(), "adam")
            X = nd.random.normal(shape=(6, 3))
            def go():
                with autograd.record():
                    l = (net(X) ** 2).sum()
                l.backward()
                trainer.step(6)
                l.wait_to_read()
            go()
            for i in range(150):
                if i == 75:
                    net.hybridize()
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 4e-3))
                    while signal.getitimer(signal.ITIMER_REAL)[0]:
                        go()
                    go()
                    print("lost an interrupt")
                except KeyboardInterrupt:
                    struck += 1
                nd.waitall()
                for p in net.collect_params().values():
                    assert np.isfinite(p.data().asnumpy()).all()
            engine.current.check()
        print(struck)
        """,
        120,
    )
    assert done.stdout == "150\n" and done.stderr == "", done.stdout + done.stderr[-2000:]
