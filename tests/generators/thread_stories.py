"""Programs of several threads, and of Ctrl-C.

A thread story gives each thread arrays of its own, whose values depend on nobody else, and some
that all share, into which they only add whole numbers: so the result is the same whatever comes
first. In between they wait, fail, collect garbage, push from finalizers, open bulk and lazy
scopes. All engines must keep the same bits.

A signal story (every third) trains a small net while SIGINT strikes, at drawn instructions of the
library's or by another thread. It must lose no interrupt and no weight, and the engine must go on.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import warnings
from pathlib import Path

from generators.agree import ENGINES, agree, results

sys.path.append(str(Path(__file__).parent.parent / "tools"))

_THREADS = """\
import gc, threading
engine = mx.engine
shared = [nd.zeros((n,), dtype="int64") for n in {sizes}]
hits, problems = [], []

class Dies:
    def __init__(self, thread, number):
        self.me, self.thread, self.number = self, thread, number
    def __del__(self):
        engine.push(lambda t=self.thread, n=self.number: hits.append((t, n)), writes=[var])

var = engine.new_var()

def raises(act):
    try:
        act()
    except mx.MXNetError:
        return 1
    return 0

"""

#: Lines of a thread: x is its own array, {} are drawn numbers.
_STEPS = (
    "x = x * {a} + {b}",
    "x += {a}",
    "x[{a}:] = x[{a}:] - {b}",
    "x[:] = x - {b}",
    "shared[{s}] += {a}",
    "shared[{s}][{a}:] += {b}",
    "kept.append((x.sum() + {b}).asnumpy())",
    "x.wait_to_read()",
    "count += raises(nd.random.normal(0, -1, shape=({a},)).asnumpy)",
    "bad = nd.random.normal(0, -1, shape=x.shape); x += bad; count += raises(bad.asnumpy)",
    "bad = nd.random.normal(0, -1, shape=x.shape); x[:] = bad; count += raises(x.asnumpy)",
    "Dies({t}, {n})",
    "gc.collect()",
    "engine.push(lambda: log.append({n}), reads=[x], writes=[mine])",
    "with engine.bulk({a}):\n        for _ in range({b}): x = x + 1",
    "with mx.lazy():\n        x = (x + {a}) * 2 - x",
    "with engine.prioritized({a}):\n        x = x + {b}",
    "y = nd.dot(x.reshape((1, -1)), x.reshape((-1, 1))); x = x + y.reshape((1,)) * 0 + {a}",
    "with autograd.record():\n        l = (w * x).sum()\n    l.backward(); w -= {lr} * w.grad",
)

_SIGNALS = """\
import signal, threading
from interrupts import ENGINE_FILES, PACKAGE, interrupt_at
from invariants import check_invariants
engine = mx.engine
FILES = (*ENGINE_FILES, *(str(PACKAGE / name) for name in (
    "ndarray/dispatch.py", "ndarray/compute.py", "graph/program.py",
    "ops/update.py", "autograd/backward_pass.py", "autograd/tape.py", "gluon/trainer.py",
    "device/parallel.py",
)))
mx.random.seed({seed})
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense({width}, activation="relu"){norm}, gluon.nn.Dense(1))
net.initialize()
{hybridize}
trainer = gluon.Trainer(net.collect_params(), "{optimizer}")
X, bystander = nd.random.normal(shape=({rows}, 3)), nd.full(({rows}, 3), 7.0)
count = nd.zeros((3,), dtype="int64")

def step():
    global count
    with autograd.record():
        l = (net(X) ** 2).sum()
    l.backward()
    trainer.step({rows})
    count += 1
    {wait}

def verify():
    engine.waitall()
    check_invariants()
    for p in net.collect_params().values():
        assert np.isfinite(p.data().asnumpy()).all()
        if p.grad_req != "null":
            p.grad().asnumpy()
    assert (bystander.asnumpy() == 7).all() and len(set(count.asnumpy().tolist())) == 1
    assert engine.stats().pending == 0

step()
verify()
for k in {points}:
    with interrupt_at(k, FILES) as strike:
        step()
        engine.waitall()
    assert strike.raised == strike.done, "lost: " + strike.where
    verify()
for delay in {delays}:
    sender = threading.Timer(delay, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    try:
        sender.start()
        while True:
            step()
    except KeyboardInterrupt:
        pass
    sender.join()
    verify()
step()
verify()
"""


def is_signal_story(seed: int) -> bool:
    """Every third, where there are such signals."""
    return seed % 3 == 2 and sys.platform != "win32"


def draw(seed: int) -> str:
    """The story of this number."""
    rng = random.Random(seed)
    return _signals(rng, seed) if is_signal_story(seed) else _threads(rng)


def _threads(rng: random.Random) -> str:
    sizes = [rng.choice((8, 60, 1500)) for _ in range(2)]
    text = [_THREADS.format(sizes=sizes)]
    n_threads = rng.randint(1, 4)
    for t in range(n_threads):
        size = rng.choice((8, 300, 20_000))
        lines = [
            f"x = nd.arange({size}) % 5",
            f"w = nd.ones(({size},)); w.attach_grad()",
            "mine = engine.new_var()",
        ]
        for n in range(rng.randint(3, 14)):
            step = rng.choice(_STEPS)
            numbers = {"a": rng.randint(1, 4), "b": rng.randint(1, 4), "s": rng.randint(0, 1)}
            lines.append(step.format(**numbers, t=t, n=n, lr=rng.choice((0.5, 0.25))))
            lines += ["x = x % 7"] * (n % 3 == 2)
        lines += ["engine.wait_for_var(mine)", "kept.extend([x.asnumpy(), w.asnumpy()])"]
        body = "\n    ".join(lines)
        text.append(
            f"def thread_{t}(kept, log):\n    count = 0\n    {body}\n    kept.append(count)\n"
        )
    text.append(f"""\
def run(body, kept, log):
    try:
        body(kept, log)
    except BaseException as problem:
        problems.append(problem)

bodies = [{", ".join(f"thread_{t}" for t in range(n_threads))}]
outcomes = [([], []) for _ in bodies]
threads = [threading.Thread(target=run, args=(b, *o)) for b, o in zip(bodies, outcomes)]
for thread in threads: thread.start()
for thread in threads: thread.join(120)
assert not any(thread.is_alive() for thread in threads), "a thread hangs"
if problems: raise problems[0]
gc.collect()
engine.current.wait_idle("story")
engine.push(lambda: None, writes=[var])
engine.wait_for_var(var)
keep(sorted(hits) or 0)
for kept, log in outcomes:
    for value in kept: keep(value)
    keep(log or 0)
for x in shared: keep(x)
""")
    return "\n".join(text)


def _signals(rng: random.Random, seed: int) -> str:
    return _SIGNALS.format(
        seed=seed % 1000,
        width=rng.choice((2, 8, 32)),
        norm=", gluon.nn.BatchNorm()" * rng.randint(0, 1),
        hybridize=rng.choice(("", "net.hybridize()", "net.hybridize(static_alloc=True)")),
        optimizer=rng.choice(("sgd", "adam", "ftrl", "adamax")),
        rows=rng.choice((1, 6)),
        wait=rng.choice(("pass", "l.wait_to_read()", "engine.waitall()")),
        points=[int(10 ** rng.uniform(0, 3.6)) for _ in range(8)],
        delays=[rng.uniform(0, 0.01) for _ in range(2)],
    )


def check(seed: int) -> bool:
    """All engines agree to the bit; a signal story runs on each."""
    text = draw(seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(.|\n)*dropped unseen")
        if not is_signal_story(seed):
            agree(text)
            return False
        from d2lmini import engine

        for name, options in ENGINES.items():
            with engine.use(**options), contextlib.redirect_stderr(io.StringIO()):
                try:
                    results(text)
                except Exception as problem:
                    raise AssertionError(f"{name}: {problem}\n{text}") from problem
    return False
