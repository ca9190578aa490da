"""Operations that callers issue: the same values, order and errors as by workers, in less."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from fakes.two_gpus import two_gpus
from generators.equal_numbers import check
from test_cuda_order import needs_kernels, run_program, train

from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, init, nd
from d2lmini.cuda import stream_worker
from d2lmini.cuda.stream_worker import StreamWorker
from d2lmini.ops.core import registry

ROUTES = ("callers", "workers", "either")


def use(route: str, seed: int, monkeypatch: Any) -> None:
    """Let callers issue what they can, or nothing, or as chance will have it."""
    if route == "callers":
        return
    chance = random.Random(seed)

    def refuses() -> bool:
        return route == "workers" or chance.random() < 0.5

    def sometimes(here: Any) -> Any:
        return lambda *a: None if refuses() else here(*a)

    for owner, name in ((StreamWorker, "take"), (stream_worker, "issue_call")):
        monkeypatch.setattr(owner, name, sometimes(getattr(owner, name)))


@needs_kernels
@pytest.mark.parametrize("route", ROUTES)
def test_programs_over_cpu_and_gpus_equal_numpy(route: str, monkeypatch):
    for seed in range(12):
        with two_gpus(seed) as machine, monkeypatch.context() as patch:
            use(route, seed, patch)
            run_program(seed, statements=60)
            assert not machine.errors, f"seed {seed}"


@needs_kernels
@pytest.mark.parametrize("hybridize", [False, True])
def test_who_issues_changes_no_bit(hybridize: bool, monkeypatch):
    runs = []
    for seed, route in enumerate(ROUTES):
        with two_gpus(seed) as machine, monkeypatch.context() as patch:
            use(route, seed, patch)
            runs.append(train([gpu(0), gpu(1)], hybridize=hybridize))
            assert not machine.errors
    np.testing.assert_equal(runs[1], runs[0])
    np.testing.assert_equal(runs[2], runs[0])


def on_workers() -> int:
    """How many tasks workers have run."""
    stats = engine.stats()
    return stats.executed - stats.inline


def warm(step: Any, times: int = 12) -> None:
    """Let the launches be prepared."""
    for _ in range(times):
        step()
        nd.waitall()


@needs_kernels
def test_a_chain_makes_no_task_and_one_mark():
    with two_gpus(0) as machine:
        x = nd.ones((2, 2), ctx=gpu(0))

        def chain() -> nd.NDArray:
            y = x
            for _ in range(10):
                y = y + 1
            return y

        warm(chain)
        tasks, events = on_workers(), machine.issued.copy()
        y = chain()
        assert on_workers() == tasks
        assert (machine.issued - events).total() == 10  # kernels, and no event between them
        assert y.asnumpy().tolist() == [[11, 11], [11, 11]]


@needs_kernels
@pytest.mark.parametrize("name", ["_mul_scalar", "_rdiv_scalar", "_rmod_scalar"])
def test_a_number_gets_no_launches_of_an_equal_one(name: str):
    with two_gpus(0):
        check(registry[name], "scalar", gpu(0), "float32", times=10)


@needs_kernels
def test_written_zeros_keep_their_signs():
    with two_gpus(0):
        x = nd.ones((4,), ctx=gpu(0))
        for zero in (0.0, -0.0, 0, 0.0):
            for _ in range(10):
                x[1:3] = zero
                assert np.signbit(x.asnumpy()).any() == np.signbit(zero)
                y = nd.full((2,), zero, ctx=gpu(0))
                assert np.signbit(y.asnumpy()).all() == np.signbit(zero)


@needs_kernels
@pytest.mark.parametrize("issue_twice", [False, True])
def test_an_error_names_the_line_and_is_told_once(issue_twice: bool):
    with two_gpus(0) as machine:
        x = nd.ones((2, 2), ctx=gpu(0))
        warm(lambda: nd.tanh(x))
        machine.fail(0, status=1, at="issue", name="tanh_kernel", sticky=False)
        y = nd.tanh(x)
        z = y + 1 if issue_twice else y
        with pytest.raises(
            MXNetError, match=r"tanh: CUDARuntimeError: (.|\n)*issued at(.|\n)*noticed"
        ):
            z.asnumpy()
        nd.waitall()
        assert nd.tanh(x * 0).asnumpy().tolist() == [[0, 0], [0, 0]]


@needs_kernels
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_step_takes_the_learning_rate_of_now(name: str):
    """The formula is recorded once; its numbers follow. A rate of 0 makes another formula, and so
    does a decay, which stays."""

    def weights(ctx: Any) -> np.ndarray:
        net = gluon.nn.Dense(3, in_units=4)
        net.initialize(init.One(), ctx=ctx)
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.1}, kvstore=None)
        x = nd.ones((2, 4), ctx=ctx)
        for k in range(16):
            if k < 12:
                trainer.set_learning_rate([0.1, 0.02, 0.0][k % 3] if k > 8 else 0.1 / (k + 1))
            trainer._optimizer.wd = 0.5 * (k > 12)
            with autograd.record():
                loss = (net(x) ** 2).mean()
            loss.backward()
            trainer.step(1)
        return net.weight.data(ctx).asnumpy()

    with two_gpus(0):
        on_gpu = weights(gpu(0))
        assert "_fused_update" in [
            known.name for known in engine.current.runners[gpu(0), "compute"].launches.values()
        ]
    np.testing.assert_allclose(on_gpu, weights(cpu()), rtol=1e-5)
