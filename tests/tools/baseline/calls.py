"""Calls of our functions, and files of ours they are in, on the thread that asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import d2lmini
from d2lmini import autograd, engine, gluon, init, nd

HOME = str(Path(d2lmini.__file__).parent)


def record() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, inline in (("4x4", {}), ("64x64", {}), ("queued", {"inline_below": 0})):
        a = nd.ones((4, 4)) if name == "4x4" else nd.ones((64, 64))
        with engine.use("threaded", **inline):
            found[f"nd.dot {name}"] = count(lambda a=a: nd.dot(a, a))
    for name, n in (("tiny", 4), ("16 KB", 4096)):
        x = nd.ones((n,))
        found[f"x + 1 {name}"] = count(lambda x=x: x + 1)
    net, x = dense(None), nd.ones((2, 3))

    def recorded() -> Any:
        with autograd.record():
            return net(x).sum()

    found["Dense forward"] = count(lambda: net(x))
    found["Dense backward"] = count(lambda y: y.backward(), recorded)
    hybrid = dense(None)
    hybrid.hybridize()
    found["hybridized call"] = count(lambda: hybrid(x))
    with d2lmini.virtual_gpus(2, link_gb_s=1000):
        places = [d2lmini.gpu(0), d2lmini.gpu(1)]
        net = dense(places)
        xs = [nd.ones((2, 3), ctx=place) for place in places]
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

        def computed() -> None:
            with autograd.record():
                ys = [net(x) for x in xs]
            autograd.backward(ys)

        found["Trainer.step, 2 GPUs"] = count(lambda _: trainer.step(4), computed)
    return found


def dense(ctx: Any) -> Any:
    net = gluon.nn.Dense(4, in_units=3)
    net.initialize(init.One(), ctx=ctx)
    return net


def count(function: Callable[..., Any], prepare: Callable[[], Any] | None = None) -> dict[str, int]:
    """The fewest of a few runs, when all is warm; `function` is given what `prepare` gives."""
    fewest: tuple[int, int] | None = None
    for _ in range(12):
        files: list[str] = []

        def note(frame: Any, event: str, argument: Any, files: list[str] = files) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(HOME):
                files.append(frame.f_code.co_filename)

        given = [] if prepare is None else [prepare()]
        nd.waitall()
        sys.setprofile(note)
        try:
            y = function(*given)
        finally:
            sys.setprofile(None)
        nd.waitall()
        del y
        now = len(files), len(set(files))
        fewest = now if fewest is None else min(fewest, now)
    assert fewest
    return {"calls": fewest[0], "files": fewest[1]}
