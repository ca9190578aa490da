"""Of the chapter "Where the time went": the parts of its script that are not in question, sentences
that are computed from a run, and the check of its exercise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from d2lmini import engine, gluon, nd, profile, random
from d2lmini.gluon import loss as gloss
from d2lmini.gluon import nn
from labs.grading import CheckFailed

_source = np.random.RandomState(0)
_images = _source.normal(size=(2560, 784)).astype("float32")
_labels = _images[:, :10].argmax(axis=1).astype("float32")

loss = gloss.SoftmaxCrossEntropyLoss()


def fresh() -> tuple[Any, Any]:
    """A net and its trainer, each time with the same parameters."""
    random.seed(1)
    net = nn.Sequential()
    net.add(nn.Dense(512, activation="relu"), nn.Dense(256, activation="relu"), nn.Dense(10))
    net.initialize()
    net(nd.ones((1, 784))).wait_to_read()
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})


def batches(disk_s: float = 0.01, batch_size: int = 256) -> Iterator[tuple[Any, Any]]:
    """Ten batches; each comes after a sleep, the disk."""
    for i in range(0, len(_images), batch_size):
        time.sleep(disk_s)
        yield nd.array(_images[i : i + batch_size]), nd.array(_labels[i : i + batch_size])


# -- sentences -------------------------------------------------------------------------------------


def describe_account(account: Any) -> str:
    """Why the workers were idle, and which of two causes a replay would better be without."""
    ns = {cause: account[cause].ns for cause in ("waits", "blocked")}
    more, less = sorted(ns, key=lambda cause: -ns[cause])
    best = max(ns, key=lambda cause: account[cause].saves_ns)
    return (
        f"the workers computed for {account['work'].ns / account.wall_ns:.0%} of the time; they "
        f"were idle more because of {more} than of {less}; a replay saves most without {best}"
    )


def describe_savings(alone_ms: list[float], together_ms: float) -> str:
    """Compare what the removal of each wait saves with the removal of all."""
    total_ms = sum(alone_ms)
    sign = "more than" if together_ms > 1.1 * total_ms else "about"
    sign = "less than" if together_ms < 0.9 * total_ms else sign
    return (
        f"all together save {together_ms:.1f} ms, {sign} the sum of the single lines, "
        f"{total_ms:.1f} ms"
    )


# -- the exercise ----------------------------------------------------------------------------------


def check_best_wait(answer: Callable[[Any], Any]) -> None:
    """Exercise 4: three programs; in one of them the longest wait is the best to remove."""
    for is_hard in (True, True, False):
        trace, best, best_ms = _draw_clear_case(is_hard)
        row, ms = _row_and_ms(answer(trace))
        if row.where != best.where:
            raise CheckFailed(
                "line",
                f"another line: {best.where} saves {best_ms:.2f} ms, {row.where} saves less. "
                "Compare replays without the waits of each line, not the seconds of the ledger",
            )
        if not np.isclose(ms, best_ms, rtol=1e-3):
            raise CheckFailed(
                "ms",
                f"{best.where} saves {best_ms:.3f} ms, not {ms:.3f} ms: the length of the replay "
                "as it was, less the length of the replay without these waits",
            )
    print("the best wait of 3 programs, and the time that its removal saves")


def _row_and_ms(found: Any) -> tuple[Any, float]:
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise CheckFailed("pair", "return a row of trace.waits() and the saved milliseconds, not "
                    f"{found!r:.60}")  # fmt: skip
    row, ms = found
    if not hasattr(row, "where"):
        raise CheckFailed("row", f"return a row of trace.waits() first, not {row!r:.60}")
    if not np.isscalar(ms) or isinstance(ms, (str, bytes)):
        raise CheckFailed("number", f"return the milliseconds as a number, not {ms!r:.60}")
    return row, float(ms)  # type: ignore[arg-type]


def _draw_clear_case(is_hard: bool) -> tuple[Any, Any, float]:
    """A trace, the row of its best wait, and what its removal saves; the second best saves clearly
    less. The best is the longest wait, unless `is_hard`."""
    while True:
        trace = _draw_trace()
        rows = list(trace.waits())
        length_s = trace.replay().seconds
        saved_ms = [1e3 * (length_s - _length_without(trace, row)) for row in rows]
        second, best = np.argsort(saved_ms)[-2:]
        clear = saved_ms[best] > 1.2 * saved_ms[second] + 0.01
        longest = max(row.seconds for row in rows)
        if clear and is_hard == (rows[best].seconds < longest):
            return trace, rows[best], saved_ms[best]


def _length_without(trace: Any, row: Any) -> float:
    return trace.replay(without_wait_at=row.where.partition(": ")[0]).seconds


def _draw_trace() -> Any:
    """A program with five lines that wait, on the virtual clock, and durations drawn at random."""
    durations_us: dict[str, float] = {}

    def draw_us(task: Any) -> float:
        return durations_us.setdefault(
            task.name, float(np.random.choice([20, 50, 100, 200, 400, 800]))
        )

    with engine.stepped(workers=2, times=draw_us), profile() as trace:
        x, y, z = nd.ones((4,)), nd.ones((4,)), nd.ones((4,))
        for _ in range(5):
            x = nd.sin(x)
            y = nd.cos(y)
            x.wait_to_read()
            z = nd.exp(z * 0 + y)
            y.asnumpy()
            x = nd.sqrt(nd.abs(x))
            z = nd.tanh(z)
            float(z.sum())
            y = nd.sigmoid(y + x)
            x.max().asscalar()
        nd.waitall()
    return trace
