"""Ctrl-C at any instruction of any scope leaves the library as it was before the scope.

The scopes are found, not listed: a scope that is in neither table below fails a test.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Callable
from itertools import count

import pytest
from interrupts import PACKAGE, interrupt_at
from invariants import check_invariants

import d2lmini as mx
from d2lmini import autograd, engine, gluon
from d2lmini.base import instrument, scopes, util
from d2lmini.contrib import amp
from d2lmini.d2l import links, training_memory
from d2lmini.device import blas, devices, scratch
from d2lmini.engine import scheduler, signals
from d2lmini.gluon import block as block_module
from d2lmini.gluon import rnn
from d2lmini.graph import lazy, symbolic_trace
from d2lmini.ops import random_state
from d2lmini.ops.core import Modes, modes
from d2lmini.profiler import waits
from d2lmini.symbol import AttrScope, naming

FILES = tuple(map(str, PACKAGE.rglob("*.py")))

_net = gluon.nn.Dense(2, prefix="net_")
_cell = rnn.ZoneoutCell(rnn.RNNCell(2))

SCOPES: dict[str, Callable[[], object]] = {
    "autograd.scopes.scope": autograd.record,
    "context.Context": lambda: mx.cpu(1),
    "contrib.amp.casts.init": amp.init,
    "d2l.links.traffic": links.traffic,
    "d2l.training_memory.dry_run": training_memory.dry_run,
    "device.blas._SingleThreadScope": blas.alone,
    "device.scratch.loan": lambda: scratch.loan((2,), "float32"),
    "device.virtual_device.virtual_gpus": lambda: mx.virtual_gpus(1),
    "engine.bulk": lambda: engine.bulk(4),
    "engine.prioritized": lambda: engine.prioritized(1),
    "engine.signals.held": signals.held,
    "engine.use": lambda: engine.use("naive"),
    "gluon.block._BlockScope": _net.name_scope,
    "gluon.utils.HookHandle": lambda: _net.register_forward_hook(print),
    "gluon.rnn.wrappers.ModifierCell._inner_callable": _cell._inner_callable,
    "graph.lazy.lazy": lambda: mx.lazy(),
    "graph.symbolic_trace.initializing": symbolic_trace.initializing,
    "graph.symbolic_trace.outside": symbolic_trace.outside,
    "base.instrument.listening": lambda: instrument.listening(instrument.Instrument()),
    "profiler.waits.Lint": mx.lint_waits,
    "profiler.tracing.Profile": mx.profile,
    "base.scopes.swapping": lambda: random_state.refusing("no"),
    "ops.random_state.drawing_once": random_state.drawing_once,
    "ops.random_state.noting": random_state.noting,
    "ops.random_state.rewound": random_state.rewound,
    "symbol.naming.AttrScope": lambda: AttrScope(ctx_group="a"),
    "symbol.naming.NameManager": naming.NameManager,
    "symbol.naming.Prefix": lambda: naming.Prefix("p_"),
    "base.util.np_array": util.np_array,
    "base.util.np_shape": util.np_shape,
}

#: Scopes that are not asked, and why.
LEFT_OUT = {
    "compat.mxnet_alias.": "of a command, which Ctrl-C ends",
    "base.scopes.": "the mechanism itself: every other row",
    "cuda.": "need a GPU",
    "d2l.benchmark.Benchmark": "changes nothing but itself",
    "compat.books.second.training.Benchmark": "changes nothing but itself",
    "d2l.training_memory._without_arrays": "a part of a function that analyses a net",
    "contrib.amp.loss_scaler.scale_loss": "restores nothing",
    "device.files.replace_atomically": "tests/repository/test_files.py",
    "gluon.data.vision.datasets._Unpacked": "an open file",
    "engine._replacing": "the inner part of engine.use",
    "widgets.ipython._shortened_causes": "while a traceback is shown",
    "ops.conv_winograd._values_of_filters": "a loan",
    "widgets.stepper_program._note_names": "a part of a function that steps a program",
    "widgets.watch.Watch": "tests/widgets/test_widgets_watch.py",
}

_MADE = {
    code
    for maker in (scopes.scope, scopes.contextmanager)
    for code in maker.__code__.co_consts
    if isinstance(code, types.CodeType)
}


def found() -> set[str]:
    """All scopes of the library, by module and name."""
    names = set()
    for info in pkgutil.walk_packages(mx.__path__, "d2lmini."):
        if not info.name.endswith("__main__") and ".book" not in info.name:
            with contextlib.suppress(ImportError):  # an add-on whose packages are not installed
                importlib.import_module(info.name)
    for module in [m for name, m in sys.modules.items() if name.startswith("d2lmini")]:
        for owner in [module, *[c for c in vars(module).values() if isinstance(c, type)]]:
            if getattr(owner, "__module__", module.__name__) != module.__name__:
                continue
            place = module.__name__ + (f".{owner.__name__}" if isinstance(owner, type) else "")
            if isinstance(owner, type) and {"__enter__", "__exit__"} <= set(dir(owner)):
                names.add(place)
            for name, value in vars(owner).items():
                ours = getattr(value, "__module__", None) == module.__name__
                if ours and getattr(value, "__code__", None) in _MADE:
                    names.add(f"{place}.{name}")
    return {name.removeprefix("d2lmini.") for name in names}


def test_every_scope_has_a_row():
    unknown = {
        name
        for name in found() - set(SCOPES)
        if not any(name == left or (left[-1] == "." and name.startswith(left)) for left in LEFT_OUT)
    }
    assert not unknown, "give each a row in SCOPES"


def state() -> dict[str, object]:
    """What scopes change."""
    return {
        "context": mx.current_context(),
        "switches": (modes.recording, modes.training, modes.tracing),
        "amp": (Modes.casting, mx.nd.NDArray._apply),
        "names": (naming.NameManager.current, AttrScope.current, AttrScope.current._attr),
        "blocks": block_module._thread_state.scope,
        "np": (util.is_np_array(), util.is_np_shape()),
        "engine": (engine.current, scheduler.Scheduler.recorder, scheduler.interrupts.copy()),
        "thread": {
            k: getattr(scheduler.thread_state, k) for k in ("task", "priority", "bulk_size")
        },
        "random": vars(random_state._thread_state).copy(),
        "numbers": random_state._state.numbers.copy(),
        "listeners": (instrument.listeners, instrument.apart, instrument.before_wait),
        "lazy": (lazy.thread_state.scope, lazy.recorder.scopes.copy()),
        "lint": waits._current,
        "devices": devices.state(),
        "blas": blas._inside.copy(),
        "hooks": len(_net._forward_hooks),
        "cell": _cell.base_cell._modified,
        "held": (signals.noted.copy(), [signals.get_handler(n) for n in signals.ENDING]),
        "stdout": sys.stdout,
        "environment": dict(os.environ),
        "entered": scopes._thread_state.entered.copy(),
    }


def strikes(make: Callable[[], object], step: int = 1) -> tuple[int, list[str]]:
    """The number of points of `with make(): pass`, and those that leave something changed.

    A scope that stands without `with`, too, is made outside what is struck, because between the
    call that makes it and the `with` statement it may stay."""
    with make():
        pass
    k, wrong = 0, []
    for k in count(step=step):
        before = state()
        stands = made if isinstance(made := make(), scopes.Standing) else None
        with interrupt_at(k, FILES) as strike:
            with stands or make():
                pass
        del made, stands
        with contextlib.suppress(KeyboardInterrupt):
            signals.deliver()  # it came in a finalizer, and would be raised by the next operation
        after = state()
        changed = [key for key in before if after[key] != before[key]]
        if changed:
            wrong.append(f"{strike.where}: {changed}")
        if changed or not strike.done:
            break
    return k, wrong


@pytest.mark.parametrize("name", SCOPES)
def test_ctrl_c_at_any_instruction_leaves_all_as_it_was(name):
    points, wrong = strikes(SCOPES[name])
    assert not wrong
    assert points > 2
    x = mx.nd.ones(3) + 1
    assert x.asnumpy().tolist() == [2, 2, 2]
    check_invariants()


@pytest.mark.parametrize("name", sorted({*SCOPES} - {"d2l.training_memory.dry_run", "engine.use"}))
def test_one_interrupt_ends_a_scope_whose_work_is_not_done(name: str):
    """A wait at the end of the scope would end when the first task does, after all the others."""
    go, ran = threading.Event(), []
    var = engine.new_var()
    with contextlib.suppress(KeyboardInterrupt), SCOPES[name]():
        engine.push(lambda: go.wait(30), writes=[var])
        for k in range(20):
            engine.push(lambda k=k: ran.append(k), writes=[var])
        raise KeyboardInterrupt
    assert ran == []
    go.set()
    engine.waitall()
    assert ran == list(range(20))
    check_invariants()


def test_an_interrupted_scope_of_an_engine_drops_what_has_not_begun():
    """A task of an engine that goes away cannot stay: the next engine does not know it."""
    began, ran = threading.Event(), []
    x = mx.nd.zeros(3)
    with contextlib.suppress(KeyboardInterrupt), engine.use("threaded", workers=1) as fresh:
        drop = fresh.cancel_pending
        go = threading.Event()
        fresh.cancel_pending = lambda: (drop(), go.set())
        engine.push(lambda: began.set() or go.wait(30), writes=[x])
        for k in range(20):
            engine.push(lambda k=k: ran.append(k), writes=[x])
        began.wait(30)
        raise KeyboardInterrupt
    assert ran == [] and engine.current is not fresh and not fresh.pending
    with pytest.raises(mx.MXNetError, match="cancelled before it ran"):
        x.asnumpy()
    x[:] = 2
    assert x.asnumpy().tolist() == [2, 2, 2]
    check_invariants()
