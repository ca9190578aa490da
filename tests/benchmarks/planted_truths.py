"""Does the account name what happened? Programs with a planted cause, and what the kernel says.

    python tests/benchmarks/planted_truths.py                  # each program 5 times, three ways
    python tests/benchmarks/planted_truths.py --times 20 --ways calm --only lock sleep

Ways: "given" on devices of a given rate, whose work no load disturbs; "calm"; "busy" beside four
processes that spin. Each run has a process of its own. A run is right if its largest row is the
planted cause, or time without a core where the kernel counts as much for the threads of the
process. False is a row, as a share of the wall time, beyond what is true: time without a core
beyond the kernel's, issuing beyond the CPU time of the thread that issues, collections beyond those
counted, and all of a cause that the program cannot have. Last: how often a false cause stood first.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import d2lmini
from d2lmini import autograd, engine, gluon, gpu, nd, profile, virtual_gpus

A = np.random.rand(200, 200).astype("float32")


class Program(NamedTuple):
    """A program that records a trace. right: the causes that may be largest; true: others that it
    may have; ways: None for all; pinned: to the core on which another process spins."""

    run: Callable[[], Any]
    right: frozenset[str]
    true: frozenset[str]
    ways: tuple[str, ...]
    pinned: bool
    between: bool


PROGRAMS: dict[str, Program] = {}


def planted(
    right: str, true: str = "", ways: str = "calm busy", pinned: bool = False, between: bool = False
) -> Callable[[Any], Any]:
    """Enter the function in the table."""

    def enter(run: Any) -> Any:
        causes = frozenset(right.split()), frozenset(true.split())
        name = run.__name__.replace("_", " ")
        PROGRAMS[name] = Program(run, *causes, tuple(ways.split()), pinned, between)
        return run

    return enter


def compute(seconds: float) -> None:
    """Multiply matrices, without the interpreter's lock, for so much CPU time."""
    end, out = time.thread_time() + seconds, np.empty_like(A)
    while time.thread_time() < end:
        np.dot(A, A, out=out)


def push_work(seconds: float = 0.003, writes: Any = None, **more: Any) -> Any:
    """Push that computation; the Var that it writes."""
    var = writes or engine.new_var()
    engine.push(lambda: compute(seconds), writes=[var], name="work", **more)
    return var


def on_workers(n: int, body: Callable[[], None], inline_below: float = 20.0) -> Any:
    """The trace of `body` on so many workers."""
    with engine.use("threaded", workers=n, inline_below=inline_below):
        push_work(0.001)  # starts a worker
        nd.ones((1 << 20,))  # the first push of bytes imports psutil: 10 ms of the program's own
        nd.waitall()
        with profile() as trace:
            body()
        return trace


def on_devices(body: Callable[..., None], n: int = 2, gflops: Any = 0.5, link: float = 1e3) -> Any:
    """The trace of `body`, of an array on each of `n` devices of that rate."""
    with virtual_gpus(n, gflops=gflops, link_gb_s=link):
        arrays = [nd.ones((100, 100), ctx=gpu(k)) for k in range(n)]
        [nd.dot(x, x) for x in arrays]  # starts the workers
        nd.waitall()
        with profile() as trace:
            body(*arrays)
        return trace


def push_all(functions: list[Callable[[], None]]) -> None:
    """Push functions that share no Var."""
    for function in functions:
        engine.push(function)


def dot_both(a: Any, b: Any) -> None:
    """Eight products on each of two devices."""
    for _ in range(8):
        nd.dot(a, a)
        nd.dot(b, b)


@planted("waits", "dependency", ways="given calm busy")
def a_wait_in_a_loop() -> Any:
    def body(a: Any, b: Any) -> None:
        for i in range(10):
            nd.dot(*(2 * [b if i % 2 else a])).wait_to_read()

    return on_devices(body)


@planted("waits", "dependency", ways="given calm busy")
def a_hidden_wait() -> Any:
    def body(a: Any, b: Any) -> None:
        for i in range(10):
            x = b if i % 2 else a
            if nd.dot(x, x).sum() < 0:
                break

    return on_devices(body)


@planted("waits", "dependency")
def a_wait_for_each_task() -> Any:
    def body() -> None:
        for _ in range(12):
            engine.current.wait("wait_to_read", push_work())

    return on_workers(2, body)


@planted("dependency", "transfer", ways="given calm busy")
def a_chain_of_two_devices() -> Any:
    def body(a: Any, b: Any) -> None:
        for _ in range(5):
            a = nd.dot(a, a)
            b = nd.dot(a.copyto(gpu(1)), b)
            a = b.copyto(gpu(0))

    return on_devices(body)


@planted("dependency")
def a_chain_of_long_operations() -> Any:
    def body() -> None:
        var = engine.new_var()
        for _ in range(12):
            push_work(writes=var)

    return on_workers(2, body)


def add_again(x: nd.NDArray, times: int) -> None:
    """Operations, each on the result of the one before."""
    for _ in range(times):
        x = x + 1


@planted("dependency issuing", "blocked")
def a_chain_of_short_operations() -> Any:
    return on_workers(2, partial(add_again, nd.ones((60_000,)), 800), inline_below=0)


@planted("workers", "dependency imbalance")
def too_few_workers() -> Any:
    return on_workers(1, lambda: push_all([partial(compute, 0.003)] * 12))


@planted("imbalance", ways="given calm busy")
def an_imbalance() -> Any:
    return on_devices(dot_both, 2, [0.3, 1])


@planted("work", ways="given calm busy")
def equal_work() -> Any:
    return on_devices(dot_both)


@planted("transfer", ways="given calm busy")
def a_slow_link() -> Any:
    x = nd.ones((100, 1000))

    def body(a: Any) -> None:
        for _ in range(8):
            nd.dot(x.copyto(gpu(0)), x.copyto(gpu(0)), transpose_b=True)

    return on_devices(body, 1, 100.0, 0.1)


@planted("blocked")
def a_sleep_in_a_task() -> Any:
    return on_workers(2, lambda: push_all([lambda: time.sleep(0.005)] * 12))


@planted("blocked", ways="given calm busy")
def a_sleep_on_a_device() -> Any:
    def body(a: Any) -> None:
        for _ in range(8):
            engine.push(lambda: time.sleep(0.005), ctx=gpu(0))

    return on_devices(body, 1)


@planted("blocked")
def a_lock_held_in_sleep() -> Any:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            time.sleep(0.004)

    return on_workers(2, lambda: push_all([hold] * 12))


@planted("blocked", "dependency imbalance")
def a_lock_held_in_numpy() -> Any:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            compute(0.01)

    return on_workers(2, lambda: push_all([hold] * 10))


@planted("blocked", "work dependency imbalance")
def two_tasks_in_python() -> Any:
    def spin() -> None:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            sum(range(50))

    return on_workers(2, lambda: push_all([spin] * 4))


@planted("gc", "work issuing")
def collections() -> Any:
    garbage: list[Any] = [[] for _ in range(300_000)]

    def body() -> None:
        for _ in range(5):
            push_work(0.002)
            gc.collect()

    trace = on_workers(2, body)
    garbage.clear()
    return trace


@planted("preempted", "issuing work program blocked", ways="calm", pinned=True)
def a_preempted_caller() -> Any:
    def body() -> None:
        x = nd.ones((4,))
        for _ in range(6000):
            x = x + 1

    return on_workers(1, body)


@planted("preempted", "work", ways="calm", pinned=True)
def preempted_long_operations() -> Any:
    return on_workers(1, lambda: push_all([partial(compute, 0.005)] * 10))


@planted("preempted", "work issuing dependency blocked", ways="calm", pinned=True)
def preempted_short_operations() -> Any:
    return on_workers(1, partial(add_again, nd.ones((20_000,)), 1500), inline_below=0)


@planted("issuing blocked", "work")
def tiny_pushes() -> Any:
    def nothing() -> None:
        pass

    return on_workers(2, lambda: push_all([nothing] * 1500))


def train(active: bool = False, **how: bool) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize()
    if active:
        net.hybridize(**how)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x, y = nd.random.uniform(shape=(256, 100)), nd.zeros((256,))

    def steps(n: int) -> None:
        for _ in range(n):
            with autograd.record():
                l = loss(net(x), y)
            l.backward()
            trainer.step(256)

    def body() -> None:
        steps(40)

    with engine.use("threaded", workers=2):
        steps(3)
        nd.waitall()
        with profile() as trace:
            body()
        return trace


ANY = "work issuing dependency program"


@planted(ANY, "blocked")
def gluon_eager() -> Any:
    return train()


@planted(ANY, "blocked")
def gluon_hybridized() -> Any:
    return train(True)


@planted(ANY, "blocked")
def gluon_static() -> Any:
    return train(True, static_alloc=True, static_shape=True)


@planted("work", "dependency imbalance issuing")
def shared_operations() -> Any:
    x = nd.ones((1 << 21,))

    def body() -> None:
        for _ in range(8):
            nd.exp(x)

    return on_workers(2, body)


@planted("work", "dependency issuing")
def one_worker_alone() -> Any:
    x = nd.ones((1 << 19,))

    def body() -> None:
        y = x
        for _ in range(20):
            y = nd.tanh(y)

    return on_workers(1, body)


@planted("program")
def plain_numpy() -> Any:
    def body() -> None:
        for _ in range(10):
            compute(0.004)

    return on_workers(2, body)


@planted("program", "blocked")
def another_library() -> Any:
    class Layer:
        def __init__(self) -> None:
            self.w = np.random.rand(100, 100).astype("float32")

        def __call__(self, x: Any) -> Any:
            return np.maximum(x @ self.w, 0) / 100

    layers, x = [Layer() for _ in range(5)], np.ones((64, 100), "float32")

    def body() -> None:
        for _ in range(100):
            y = x
            for layer in layers:
                y = layer(y)
            float(y.mean())

    return on_workers(2, body)


@planted("program unexplained")
def an_empty_trace() -> Any:
    with profile() as trace:
        pass
    return trace


@planted("blocked", "work program", between=True)
def a_sleep_between_operations() -> Any:
    def body() -> None:
        x = nd.ones((4,))
        for _ in range(10):
            time.sleep(0.005)
            x = x + 1

    return on_workers(2, body)


# -- one run ---------------------------------------------------------------------------------------


def delays() -> dict[str, int]:
    """By thread: how long it was ready to run and had no core, in ns."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/schedstat") as file:
            found[thread] = int(file.read().split()[1])
    return found


def judge(name: str) -> dict[str, Any]:
    """Run a program once; what its account says, and what is true."""
    program = PROGRAMS[name]
    collected, since = [0], [0]

    def note(phase: str, info: Any) -> None:
        now = time.perf_counter_ns()
        collected[0], since[0] = collected[0] + (now - since[0]) * (phase == "stop"), now

    caller = str(threading.get_native_id())
    marks: list[Any] = []
    begin, finish = d2lmini.profiler.Trace.begin, d2lmini.profiler.Trace.finish

    def mark() -> None:
        marks.append((delays(), time.thread_time_ns(), collected[0]))

    def begin_marked(self: Any) -> None:
        mark()
        begin(self)

    def finish_marked(self: Any) -> None:
        finish(self)
        mark()

    gc.callbacks.append(note)
    d2lmini.profiler.Trace.begin = begin_marked
    d2lmini.profiler.Trace.finish = finish_marked
    gc.collect()
    trace = program.run()
    (before, cpu_before, gc_before), (after, cpu_after, gc_after) = marks[-2:]
    wall = trace.end_ns - trace.begin_ns or 1
    late = {thread: (ns - before.get(thread, 0)) / wall for thread, ns in after.items()}
    # What waits for each other is late one after the other; what runs side by side, at once.
    others = sum if "dependency" in program.right else max
    true = {
        "preempted": late.pop(caller, 0.0) + others([0.0, *late.values()]) + 0.02,
        "gc": (gc_after - gc_before) / wall + 0.01,
        "issuing": 0.02,
        "work": 1.0,
        "unexplained": 1.0,
    }
    if "program" not in program.right or program.right & {"issuing"}:
        true["issuing"] = (cpu_after - cpu_before) / wall + 0.05
    true.update({c: 1.0 for c in program.right | program.true if c not in true or c == "program"})
    true.setdefault("program", true["issuing"])
    account = trace.account(2 if not program.pinned else 1)
    rows = {cause: part.ns / wall for cause, part in account.parts.items()}
    aside = {"work", "unexplained"} - program.right
    lost = {cause: ns for cause, ns in rows.items() if cause not in aside}
    largest = max(lost, key=lambda cause: lost[cause])
    excess = {cause: ns - true.get(cause, 0.0) for cause, ns in rows.items()}
    worst = max(excess, key=lambda cause: excess[cause])
    disturbed = largest == "preempted" and excess["preempted"] < 0.1
    right = largest in program.right or disturbed
    if program.between:
        lines = [line for line, _ in account[largest].lines] if largest in account.parts else []
        right = right and (disturbed or any(line.startswith("between") for line in lines))
    first = account.causes[0] if account.causes else ""
    return {
        "right": right, "largest": largest, "worst": worst, "excess": max(0.0, excess[worst]),
        "first": first, "false_first": bool(first) and true.get(first, 0.0) <= 0.02,
        "late": true["preempted"], "unexplained": rows["unexplained"], "rows": rows,
    }  # fmt: skip


def run_apart(name: str) -> dict[str, Any]:
    """`judge` in a process of its own."""
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        status = 1
        try:
            if PROGRAMS[name].pinned:
                os.sched_setaffinity(0, {0})
            with contextlib.redirect_stdout(sys.stderr):
                found = judge(name)
            os.write(target, json.dumps(found).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(target)
    with open(source) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"{name}: no answer")
    return json.loads(text)


@contextlib.contextmanager
def beside(n: int, core: int | None = None) -> Iterator[None]:
    """Processes that spin meanwhile, on one core if asked."""
    code = "import os\n"
    if core is not None:
        code += f"os.sched_setaffinity(0, {{{core}}})\n"
    code += "while os.getppid() != 1: sum(range(10**6))"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(n)]
    try:
        time.sleep(0.2 if n else 0)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--ways", nargs="*", default=["given", "calm", "busy"])
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--raw", help="write all runs to this file, as JSON lines")
    asked = parser.parse_args()
    for way in asked.ways:
        print(f"{way}: right, first cause false, worst false row in the median and at most")
        for name, program in PROGRAMS.items():
            if way not in program.ways or not any(part in name for part in asked.only):
                continue
            spinners = beside(4) if way == "busy" else beside(int(program.pinned), 0)
            with spinners:
                found = [run_apart(name) for _ in range(asked.times)]
            if asked.raw:
                with open(asked.raw, "a") as file:
                    for run in found:
                        file.write(json.dumps({"way": way, "name": name, **run}) + "\n")
            worst = max(found, key=lambda run: run["excess"])
            middle = median(run["excess"] for run in found)
            named = worst["worst"] if worst["excess"] > 0 else ""
            print(
                f"  {name:28} {sum(run['right'] for run in found):3} of {len(found)}"
                f" {sum(run['false_first'] for run in found):4}"
                f" {middle:7.1%} {worst['excess']:7.1%} {named:12}"
                f" without a core {median(run['late'] for run in found):.0%},"
                f" not explained {median(run['unexplained'] for run in found):.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
