"""Ctrl-C loses nothing: what changes in place is changed or as it was, and no interrupt is lost."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from itertools import count

import numpy as np
import pytest
from interrupts import ENGINE_FILES, PACKAGE, _codes_in, interrupt_at
from invariants import check_invariants

import d2lmini
from d2lmini import autograd, engine, gluon, nd
from d2lmini.base import instrument, scopes
from d2lmini.engine import handlers, signals
from d2lmini.engine.core import FunctionTask
from d2lmini.engine.scheduler import thread_state
from d2lmini.gluon import nn

FILES = (
    *ENGINE_FILES,
    *(
        str(PACKAGE / name)
        for name in (
            "ndarray/dispatch.py", "ndarray/compute.py", "ops/update.py",
            "ops/reduce.py", "ops/elementwise.py", "ops/activation.py", "ops/subscript.py",
            "graph/program.py",
            "device/parallel.py", "device/errstate.py",
        )
    ),
)  # fmt: skip

KINDS = {"threaded": {}, "naive": {}, "stepped": {"seed": 1}}


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
        check_invariants()


# -- handlers that use the library -----------------------------------------------------------------


@contextlib.contextmanager
def handling(handler, number=signal.SIGINT):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def settle():
    """Until no signal is on its way to its handler."""
    while signals.noted or handlers._since:
        time.sleep(1e-4)


class Model:
    """A program, and a handler that saves its parameters and reads an array."""

    def __init__(self, path, hybridized=False):
        d2lmini.random.seed(1)
        self.x, self.big = nd.array([1, 2, 3]), nd.ones((200, 200))
        self.X = nd.array(np.random.default_rng(0).normal(size=(6, 3)))
        self.net = nn.HybridSequential(prefix="")
        self.net.add(nn.Dense(2, in_units=3), nn.Dense(1, in_units=2))
        self.net.initialize()
        if hybridized:
            self.net.hybridize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam", {"learning_rate": 0.1})
        self.path, self.saved = str(path / "saved.params"), []

    def handle(self, *_):
        read = self.x.asnumpy().tolist()
        self.net.save_parameters(self.path)
        self.saved.append((read, [v.asnumpy() for v in nd.load(self.path).values()]))

    def weights(self):
        return [p.data().asnumpy() for p in self.net.collect_params().values()]

    def late_write(self):
        engine.push(lambda: time.sleep(1e-3), reads=[self.x], writes=[self.x])

    def blocked_read(self):
        self.late_write()
        return self.x.asnumpy()

    def waitall(self):
        self.late_write()
        nd.waitall()

    def train(self):
        with autograd.record():
            l = (self.net(self.X) ** 2).sum()
        l.backward()
        self.trainer.step(6)


#: What is interrupted, and each how many-th point of it.
STORIES = {
    "an operation on a tiny array": (lambda m: (m.x + 1).asnumpy(), 1),
    "an operation that is pushed": (lambda m: (m.big + 1).asnumpy(), 1),
    "a wait": (Model.blocked_read, 1),
    "waitall": (Model.waitall, 1),
    "a net": (lambda m: m.net(m.X).asnumpy(), 13),
    "a hybridized net": (lambda m: m.net(m.X).asnumpy(), 13),
    "a step of training": (Model.train, 71),
    "a step of training, hybridized": (Model.train, 71),
}

#: An interrupt costs 2 ms here: of the slower engines, fewer points.
SPARSE = {"threaded": 1, "naive": 7, "stepped": 19}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", STORIES)
def test_a_handler_that_saves_works_wherever_it_comes(story, kind, tmp_path):
    """It is called once for each signal, finds no half of a step, and the program goes on."""
    act, stride = STORIES[story]
    with engine.use(kind, **KINDS[kind]):
        model, twin = (Model(tmp_path, "hybridized" in story) for _ in range(2))
        for k in count(step=stride * SPARSE[kind]):
            before, expected = model.weights(), act(twin)
            with handling(model.handle), interrupt_at(k, FILES) as strike:
                found = act(model)
                settle()
            after = model.weights()
            assert len(model.saved) == strike.done, strike.where
            for read, values in model.saved:
                assert read == [1, 2, 3]
                assert any(all(map(np.array_equal, values, w)) for w in (before, after)), strike
            model.saved.clear()
            np.testing.assert_array_equal(found, expected, err_msg=strike.where)
            check_invariants()
            if not strike.done:
                break
        assert k > 10
        for mine, others in zip(after, twin.weights()):
            np.testing.assert_array_equal(mine, others)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", [contextlib.nullcontext, lambda: engine.bulk(4), d2lmini.lazy])
def test_a_handler_writes_what_is_awaited(scope, kind):
    """The wait goes on as if it had begun after the handler."""
    with engine.use(kind, **KINDS[kind]):
        for k in count(step=SPARSE[kind]):
            x, read = nd.zeros(3), []

            def handle(*_):
                x[:] = x + 2  # noqa: B023
                read.append(x.asnumpy().tolist())  # noqa: B023

            x.wait_to_read()
            with scope(), handling(handle), interrupt_at(k, ENGINE_FILES) as strike:
                engine.push(lambda: time.sleep(1e-3), reads=[x], writes=[x])
                found = x.asnumpy().tolist()
                settle()
            assert found in ([0, 0, 0], [2, 2, 2]), strike.where
            assert (read, x.asnumpy()[0]) == (([[2, 2, 2]], 2) if strike.done else ([], 0))
            check_invariants()
            if not strike.done:
                break
        assert k > 10


WITHIN = {
    "a transition": lambda: engine.current.lock,
    "a task": lambda: scopes.swapping(thread_state, "task", FunctionTask(int, "f", (), ())),
}


#: What calls a handler that had to wait, without the thread that raises the signal again.
NEXT_CALLS = {
    "a push": lambda: nd.zeros((300, 300)),
    "an operation on a tiny array": lambda: nd.ones(3) + 1,
    "a wait": lambda: nd.ones(3).asnumpy(),
    "waitall": nd.waitall,
    "the thread": None,
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("then", NEXT_CALLS)
def test_a_handler_is_called_when_the_librarys_work_is_done(then, within, monkeypatch):
    x, read = nd.ones(2), []
    x.wait_to_read()
    if then != "the thread":
        monkeypatch.setattr(handlers, "_raise_again", lambda number: None)
    with handling(lambda *_: read.append(x.asnumpy().tolist()), signal.SIGTERM):
        with WITHIN[within]():
            signal.raise_signal(signal.SIGTERM)
            assert not read
        (NEXT_CALLS[then] or settle)()
        assert read == [[1, 1]]
    assert not instrument.apart, "the fast paths are on again"
    check_invariants()


def test_a_handler_can_end_a_function_that_does_not_end(monkeypatch):
    monkeypatch.setattr(handlers, "PATIENCE_S", 0.01)

    def stop(*_):
        raise KeyboardInterrupt

    def forever():
        signal.raise_signal(signal.SIGTERM)
        while True:
            pass

    with engine.use("naive"), handling(stop, signal.SIGTERM):
        with pytest.raises(KeyboardInterrupt):
            engine.push(forever, writes=[nd.zeros(1)])
        check_invariants()


@pytest.mark.parametrize("module", handlers.WHOLE)
def test_whole_functions_exist(module):
    """They are named in a table, so that the calls cost nothing."""
    importlib.import_module(f"d2lmini.{module}")
    codes = _codes_in((str(PACKAGE / (module.replace(".", "/") + ".py")),))
    assert set(handlers.WHOLE[module]) <= {code.co_name for code in codes}


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


# -- in a process of its own -----------------------------------------------------------------------


def run(text: str, seconds: float = 60) -> subprocess.CompletedProcess:
    """The text as a program; none of these may take long."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, timeout=seconds,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip


NEXT = ["nd.zeros((300, 300))", "x + 1", "x.asnumpy()", "nd.waitall()"]


def test_an_interrupt_that_a_finalizer_swallows_is_raised_at_the_next_push_or_wait():
    done = run(f"""
        import signal
        from d2lmini import nd
        class Dies:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        x = nd.ones(3)
        x + 1
        x.asnumpy()
        for act in {NEXT}:
            dies = Dies()
            del dies
            try:
                exec(act)
                print("lost")
            except KeyboardInterrupt:
                print("raised")
            exec(act)
        print((x + 1).asnumpy())
    """)
    assert done.stdout.splitlines() == ["raised"] * len(NEXT) + ["[2. 2. 2.]"], done.stderr
    assert done.stderr == ""
