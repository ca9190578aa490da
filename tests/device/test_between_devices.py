"""What a program may expect of its results when the device changes (docs/gpus.md): which bits are
the CPU's, by how many roundings the others may differ, and whose draws are whose."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kinds import FUNCTION, some_gpus

from d2lmini import Context, autograd, cpu, gluon, gpu, nd, random

#: Works of x, y, z that have the same bits on all devices.
ALIKE = {
    "a formula": lambda F, x, y, z: (x * y + z) * 0.3 - x / (F.abs(y) + 1),
    "a root": lambda F, x, y, z: F.sqrt(F.abs(x * x + y * y)) - z,
    "a square": lambda F, x, y, z: F.square(x) * x * 0.044715 + x,
    "decisions": lambda F, x, y, z: F.where(x > y, F.maximum(x, z), F.clip(y, -0.5, 0.5)),
    "layers": lambda F, x, y, z: F.relu(x) + F.LeakyReLU(y, slope=0.1) * F.sign(z),
    "floors": lambda F, x, y, z: F.floor(x * 4) + F.round(y * 4) - F.trunc(z * 4),
    "moves": lambda F, x, y, z: F.concat(F.transpose(x), F.reverse(F.transpose(y), axis=0), dim=0),
    "sorted": lambda F, x, y, z: F.sort(x, axis=1) * F.sort(y, axis=0),
    "places": lambda F, x, y, z: F.argmax(y, axis=0) - F.argmin(z, axis=0),
    "extremes": lambda F, x, y, z: F.max(x, axis=1) - F.min(y, axis=1),
    "integers": lambda F, x, y, z: F.sum(F.cast(x * 100, "int32"), axis=1),
}
FUNCTIONS = (
    "exp log log1p expm1 sin cos tanh sigmoid erf rsqrt rcbrt arctan arcsinh softsign".split()
)
#: Sums of n products of x (m, n) and y (n, k), or n terms of x: by op, and by NumPy.
SUMS = {
    "sum": (lambda F, x, y: F.sum(x, axis=1), lambda x, y: x.sum(axis=1)),
    "norm": (lambda F, x, y: F.sum(F.square(x), axis=1), lambda x, y: (x * x).sum(axis=1)),
    "dot": (lambda F, x, y: F.dot(x, y), np.matmul),
    "batch_dot": (
        lambda F, x, y: F.batch_dot(x.expand_dims(0), y.expand_dims(0)),
        lambda x, y: (x @ y)[None],
    ),
    "FullyConnected": (
        lambda F, x, y: F.FullyConnected(x, F.transpose(y), None, num_hidden=6, no_bias=True),
        np.matmul,
    ),
}


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(dtype)


class Net(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *inputs):
        return self.function(F, *inputs)


def computed(function, arrays, ctx: Context, hybrid: bool = False) -> np.ndarray:
    net = Net(function)
    if hybrid:
        net.hybridize()
    return net(*[nd.array(a, ctx=ctx, dtype=a.dtype) for a in arrays]).asnumpy()


@pytest.mark.law
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ALIKE)
def test_these_have_the_bits_of_the_cpu(gpu_kind, name, dtype, hybrid):
    arrays = [drawn(33, 40, dtype=dtype, seed=i) for i in range(3)]
    want = computed(ALIKE[name], arrays, cpu())
    with some_gpus(gpu_kind, 1):
        got = computed(ALIKE[name], arrays, gpu(0), hybrid)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_differ_by_a_few_units(gpu_kind, name, dtype):
    x = np.abs(drawn(50, dtype=dtype)) + np.dtype(dtype).type(0.1)
    want = computed(lambda F, x: getattr(F, name)(x), [x], cpu())
    with some_gpus(gpu_kind, 1):
        got = computed(lambda F, x: getattr(F, name)(x), [x], gpu(0))
    np.testing.assert_allclose(got, want, rtol=FUNCTION * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("n", [7, 300, 5000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_differ_by_a_rounding_for_each_term(gpu_kind, name, dtype, n):
    """Each device adds up in an order of its own. Whatever the order, a sum of n terms, computed in
    float32 for float16, is off by at most n half units of the sum of their sizes."""
    x, y = drawn(5, n, dtype=dtype), drawn(n, 6, dtype=dtype)
    op, by_numpy = SUMS[name]
    want = computed(op, [x, y], cpu()).astype("float64")
    with some_gpus(gpu_kind, 1):
        got = computed(op, [x, y], gpu(0)).astype("float64")
    sizes = by_numpy(np.abs(x).astype("float64"), np.abs(y).astype("float64"))
    bound = (n + 1) * np.finfo("float32" if dtype == "float16" else dtype).eps * sizes
    if dtype == "float16":
        bound += np.finfo(dtype).eps * np.abs(want)
    assert (np.abs(got - want) <= bound).all()


def dropped(ctx: Context) -> list[np.ndarray]:
    """Values that were drawn, what dropout makes of an array, and its gradient."""
    random.seed(3)
    x = nd.array(np.abs(drawn(40, 5)) + 1, ctx=ctx)
    x.attach_grad()
    found = [nd.random.uniform(shape=(20,), ctx=ctx), nd.random.normal(shape=(20,), ctx=ctx)]
    with autograd.record():
        y = nd.Dropout(x, p=0.5)
    y.backward()
    found += [y, x * x.grad]
    return [a.asnumpy() for a in found]


def test_each_context_draws_numbers_of_its_own(gpu_kind):
    """The same in each run; the gradient is that of the numbers that were drawn."""
    on_cpu = dropped(cpu())
    with some_gpus(gpu_kind, 2) as gpus:
        results = [on_cpu, *map(dropped, gpus)]
        again = [dropped(cpu()), *map(dropped, gpus)]
    for result, same in zip(results, again, strict=True):
        assert all((a == b).all() for a, b in zip(result, same, strict=True))
        _, _, kept, by_mask = result
        assert (kept == by_mask).all() and 0 < (kept == 0).mean() < 1
    for i, result in enumerate(results):
        assert all((a != b).any() for other in results[:i] for a, b in zip(result, other))
