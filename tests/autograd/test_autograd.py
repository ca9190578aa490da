"""What autograd means: scopes, heads, grad_req, in-place writes, views, Function, contexts.

Where MXNet 1.9.1 answers, the answers here are its own (it was asked); where it differs a test says
so. Gradients of the single ops are in test_autograd_ops.py, memory in test_autograd_memory.py.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lmini import autograd, engine, nd, profile
from d2lmini import np as np_arrays
from d2lmini.base import MXNetError


def leaf(values, req: str = "write", dtype: str = "float32", ctx=None) -> nd.NDArray:
    x = nd.array(values, dtype=dtype, ctx=ctx)
    x.attach_grad(req)
    return x


def values(*arrays) -> list:
    return [a.asnumpy().tolist() for a in arrays]


# -- scopes ----------------------------------------------------------------------------------------


def modes() -> tuple[bool, bool]:
    return autograd.is_recording(), autograd.is_training()


def test_scopes_set_two_switches_and_restore_them():
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
            with autograd.train_mode():
                assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
        with autograd.pause(train_mode=True):
            assert modes() == (False, True)
        assert modes() == (True, True)
    with autograd.record(train_mode=False):
        assert modes() == (True, False)
        with autograd.record(train_mode=None):
            assert modes() == (True, False)
    assert modes() == (False, False)


def test_switches_are_per_thread():
    inside, go = threading.Event(), threading.Event()
    seen: list = []

    def other() -> None:
        seen.append(modes())
        with autograd.train_mode():
            inside.set()
            go.wait(10)
            seen.append(modes())

    with autograd.record(train_mode=False):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        assert modes() == (True, False)
        go.set()
        thread.join()
    assert seen == [(False, False), (False, True)]


# -- heads -----------------------------------------------------------------------------------------


def test_backward_sums_and_head_gradients_weigh():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    assert values(x.grad) == [[2, 4, 6]]
    y.backward(nd.array([1, 10, 100]))
    assert values(x.grad) == [[2, 40, 600]]


def test_a_head_gradient_may_be_the_gradient_of_a_leaf():
    """y.backward(x.grad): what is written into x.grad on the way does not disturb the rest."""
    x, z = leaf(np.ones((2, 2))), leaf(np.ones((2, 2)))
    b, data = leaf([0, 0]), nd.ones((2, 2))
    for program in (lambda: z * 3 + x * 2, lambda: x * 2 + z * 3):
        x.grad[:] = 5
        with autograd.record():
            y = program()
        y.backward(x.grad)
        assert values(x.grad[0], z.grad[0]) == [[10, 10], [15, 15]]
    x.grad[:] = 5
    with autograd.record():
        y = nd.FullyConnected(data, x, b, num_hidden=2)
    y.backward(x.grad)
    assert values(x.grad[0], b.grad) == [[10, 10], [10, 10]]


# -- grad_req and attach_grad ----------------------------------------------------------------------


def test_gradient_is_zero_where_nothing_flows_and_kept_where_nothing_leads():
    x, z, apart = leaf([1, 2]), leaf([3, 4]), leaf([5, 6])
    for each in (x, z, apart):
        each.grad[:] = 9
    with autograd.record():
        y = nd.BlockGrad(x) * z
        apart * 2
    y.backward()
    assert values(x.grad, z.grad, apart.grad) == [[0, 0], [1, 2], [9, 9]]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 40])
def test_a_gradient_of_many_parts_keeps_few(n):
    x = leaf([1, 2])
    with autograd.record():
        y = nd.concat(*[x * (k + 1) for k in range(n)], dim=0)
    nd.waitall()
    with profile() as trace:
        y.backward()
    assert values(x.grad) == [[n * (n + 1) / 2] * 2]
    # Eight parts become one; what is left is summed into `grad`.
    sums = [task.name for task in trace.operations if task.name in ("add_n", "elemwise_add")]
    assert len(sums) == -(-(n - 1) // 7)


def test_mark_variables():
    x, z, g, h = nd.ones(2), nd.ones(2), nd.full(2, 5), nd.full(2, 5)
    autograd.mark_variables(x, g, "add")
    for marked, expected in (([x, z], [[8, 8], [5, 5]]), ([x], [[3, 3], [5, 5]])):
        with autograd.record():
            y = x * z * 3
        y.backward(retain_graph=True)
        assert x.grad is g and values(g, h) == expected
        autograd.mark_variables(marked, [g, h][: len(marked)], ["write", "null"][: len(marked)])
    assert z.grad is h
    for gradients, reqs in (([g, nd.ones(3)], "write"), ([g, h], ["add", "sum"]), ([g], "add")):
        with pytest.raises((MXNetError, ValueError)):
            autograd.mark_variables([x, z], gradients, reqs)


# -- grad ------------------------------------------------------------------------------------------


def test_what_grad_returns_is_the_callers_own():
    a, b = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        y = a + b
    h = nd.array([5, 6])
    ga, gb, again = autograd.grad(y, [a, b, a], head_grads=h)
    ga *= 2
    assert values(ga, gb, again, h) == [[10, 12], [5, 6], [5, 6], [5, 6]]


def test_grad_of_unreachable_and_unmarked_arrays():
    x, z = leaf([1, 2]), leaf([3.0])
    with autograd.record():
        y = x * 2
    with pytest.raises(MXNetError, match=r"variable 1 of shape \(1,\) is unreachable from"):
        autograd.grad(y, [x, z], retain_graph=True)
    with pytest.raises(MXNetError, match=r"variable 0 .* not on the tape; call attach_grad"):
        autograd.grad(y, [nd.ones(2)])


def test_higher_orders():
    x = leaf([2.0])
    with autograd.record():
        y = x**4
        (first,) = autograd.grad(y, [x], create_graph=True)
        (second,) = autograd.grad(first, [x], create_graph=True)
        (third,) = autograd.grad(second, [x], create_graph=True)
    third.backward()
    assert values(first, second, third, x.grad) == [[32], [48], [48], [24]]


def executed(run) -> int:
    nd.waitall()
    before = engine.stats().executed
    run()
    nd.waitall()
    return engine.stats().executed - before


def backward_cost(program, *needed) -> int:
    """Operations of the walk when the arrays at `needed` want a gradient."""
    arrays = [nd.ones((2, 3)) * 0.5, nd.ones((2, 3)) * 2, nd.ones((3, 3)), nd.ones(3)]
    for i in needed:
        arrays[i].attach_grad()
    with autograd.record():
        y = program(*arrays)
    head = nd.ones(y.shape)
    return executed(lambda: y.backward(head))


@pytest.mark.parametrize(
    ("program", "costs"),
    [
        # Products are computed right into `grad`.
        (lambda a, b, w, v: nd.dot(a, w), {(0,): 1, (2,): 1, (0, 2): 2}),
        # The product and the copy into `grad`, for each.
        (lambda a, b, w, v: a * b, {(0,): 2, (1,): 2, (0, 1): 4}),
        (lambda a, b, w, v: nd.FullyConnected(a, w, v, num_hidden=3),
         {(0,): 2, (2,): 1, (3,): 1, (2, 3): 2, (0, 2, 3): 4}),
        (lambda a, b, w, v: a / b, {(0,): 2, (1,): 4}),
        (lambda a, b, w, v: a - b, {(0,): 1, (1,): 2}),
        (lambda a, b, w, v: nd.maximum(a, b), {(0,): 3, (1,): 3, (0, 1): 6}),
        (lambda a, b, w, v: a + v, {(0,): 1, (3,): 2}),
        (lambda a, b, w, v: nd.where(a, a, b), {(1,): 3, (0, 1): 5}),
        (lambda a, b, w, v: nd.linalg.gemm2(a, w), {(0,): 2, (2,): 2}),
        (lambda a, b, w, v: nd.LayerNorm(a, v, v.detach()), {(3,): 10}),
    ],
)  # fmt: skip
def test_rules_compute_only_what_is_needed(program, costs: dict):
    for needed, cost in costs.items():
        assert backward_cost(program, *needed) <= cost, needed


# -- writes in place -------------------------------------------------------------------------------

WRITES = {
    "x += 1": lambda x: x.__iadd__(1),
    "x -= y": lambda x: x.__isub__(nd.ones(2)),
    "x *= 2": lambda x: x.__imul__(2),
    "x[:] = 1": lambda x: x.__setitem__(slice(None), 1),
    "x[0] = 1": lambda x: x.__setitem__(0, 1),
    "x[[0]] = 1": lambda x: x.__setitem__([0], 1),
    "out=x": lambda x: nd.tanh(nd.ones(2), out=x),
    "copyto": lambda x: nd.ones(2).copyto(x),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_into_the_tape_are_refused_while_recording(write: str):
    x = leaf([1, 2])
    with autograd.record():
        y = x * 2
        for target in (x, y):
            with pytest.raises(
                MXNetError, match=r"Inplace operations .* not supported when record"
            ):
                WRITES[write](target)
            assert modes() == (True, True)
    assert values(x, y) == [[1, 2], [2, 4]]
    WRITES[write](x)  # outside it is nobody's business


def test_a_recorded_value_into_the_whole_of_a_fresh_array_is_recorded():
    x = leaf([1, 2])
    with autograd.record():
        y = nd.zeros(2)
        y[:] = x * 3
        z = nd.zeros(2)
        nd.elemwise_mul(y, x, out=z)
        w = nd.zeros(2)
        z.copyto(w)
    w.backward()
    assert values(w, x.grad) == [[3, 12], [6, 12]]


# -- Function --------------------------------------------------------------------------------------


class ProductAndSum(autograd.Function):
    def forward(self, a, b):
        self.save_for_backward(a, b)
        return a * b, a + b

    def backward(self, g, h):
        a, b = self.saved_tensors
        return g * b + h, g * a + h


def given_back(result):
    class Gives(ProductAndSum):
        def backward(self, g, h):
            return result(g, h)

    return Gives()


def through(function):
    x, z = leaf([1, 2]), leaf([3, 4])
    z.grad[:] = 9
    with autograd.record():
        p, _ = function(x, z)
    p.backward()
    return values(x.grad, z.grad)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda g, h: None, "returned None; a return may be missing"),
        (lambda g, h: g, "gave 1 gradients for 2 inputs"),
        (lambda g, h: (g, h, h), "gave 3 gradients for 2 inputs"),
        (lambda g, h: (g, 3.0), "gradient of input 1 must be an NDArray like it, .* got float"),
        (lambda g, h: (g.sum(), h), r"gradient of input 0 .*\(2,\), float32.* got .*\(1,\)"),
        (lambda g, h: (g.astype("float64"), h), "gradient of input 0 .* got .*float64"),
    ],
)
def test_function_that_gives_the_wrong_gradients_is_told(result, message: str):
    with pytest.raises(MXNetError, match="Gives.backward.*" + message):
        through(given_back(result))
    assert modes() == (False, False)


class Noted(autograd.Function):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        return x * 2

    def backward(self, g):
        self.seen.append((type(g), modes()))
        return g * 2


@pytest.mark.parametrize("train", [True, False])
def test_function_is_called_in_the_mode_that_grad_is_told(train):
    function, x = Noted(), leaf([1, 2])
    with autograd.record():
        y = function(x)
    (g,) = autograd.grad([y], [x], train_mode=train)
    assert function.seen == [(nd.NDArray, (False, train))] and values(g) == [[2, 2]]


def test_function_of_np_arrays_is_given_np_arrays():
    function, x = Noted(), np_arrays.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = function(x)
    y.backward(np_arrays.array([1.0, 3.0]))
    assert function.seen == [(np_arrays.ndarray, (False, True))] and values(x.grad) == [[2, 6]]


def test_a_head_gradient_of_another_shape_is_reshaped():
    x = leaf([[1], [2]])
    with autograd.record():
        y = x * x
    y.backward(nd.array([1, 10]))
    assert values(x.grad) == [[[2], [40]]]


# -- contexts and threads --------------------------------------------------------------------------


def test_an_error_within_a_rule_is_kept_like_any_other():
    """What fails while computing is raised where it is waited for; engine and tape go on."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with autograd.record():
        y = x * nd.random.normal(0, -1, shape=(2, 2))  # a negative scale
        z = (y * 2).sum()
    z.backward()
    with pytest.raises(MXNetError, match="scale must be"):
        x.grad.asnumpy()
    with autograd.record():
        y = x * 2
    y.backward()
    assert values(x.grad) == [[[2, 2], [2, 2]]]


def test_engines_agree_to_the_bit():
    def run() -> bytes:
        x = leaf(np.linspace(-2, 2, 40_000).reshape(200, 200))
        with autograd.record():
            y = nd.dot(x, x.T).tanh() * x.sum()
            y = nd.softmax(y + x).square()
        y.backward()
        return x.grad.asnumpy().tobytes()

    first = run()
    for kind, options in (("naive", {}), ("threaded", {"workers": 3, "inline_below": 0.0})):
        with engine.use(kind, **options):
            assert run() == first


# -- laws ------------------------------------------------------------------------------------------

# No op makes large numbers: values and differences stay finite.
UNARY = [nd.tanh, nd.sigmoid, nd.sin, lambda a: a.tanh().square(), lambda a: a.tanh().exp(),
         lambda a: a * 0.5, lambda a: 1 - a, lambda a: a.reshape((-1,)).reshape((3, 4)),
         lambda a: a.T.T, lambda a: (a - a.mean(axis=1, keepdims=True)) * 0.5, nd.softmax,
         lambda a: nd.L2Normalization(a), lambda a: nd.concat(a[1:], a[:1], dim=0),
         lambda a: a.slice_axis(axis=1, begin=0, end=4),
         lambda a: a.sum(axis=0).broadcast_to((3, 4)) * 0.2]  # fmt: skip
BINARY = [lambda a, b: (a + b) * 0.5, lambda a, b: (a - b) * 0.5, lambda a, b: a * b.tanh(),
          lambda a, b: a / (b * b + 1), lambda a, b: nd.dot(nd.dot(a, b.T).tanh(), b) * 0.3,
          lambda a, b: a * b.sum(axis=0).tanh(),
          lambda a, b: nd.where(nd.array(np.eye(3, 4) > 0, dtype="float64"), a, b)]  # fmt: skip

step = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
programs = st.lists(step, min_size=1, max_size=12)


def run_program(program: list, inputs: list) -> nd.NDArray:
    """Apply each step's op to values picked among those there are; the sum of the last one."""
    pool = list(inputs)
    for which, a, b in program:
        if which % 2:
            pool.append(UNARY[which // 2 % len(UNARY)](pool[a % len(pool)]))
        else:
            op = BINARY[which // 2 % len(BINARY)]
            pool.append(op(pool[a % len(pool)], pool[b % len(pool)]))
    return sum(pool[len(inputs) :]).sum() + sum((x * 0).sum() for x in inputs)


@settings(max_examples=60)
@given(programs, st.integers(0, 2**32 - 1))
def test_gradients_of_random_programs_equal_differences(program: list, seed: int):
    rng = np.random.default_rng(seed)
    points = [rng.uniform(-1, 1, (3, 4)) for _ in range(2)]
    directions = [rng.uniform(-1, 1, (3, 4)) for _ in range(2)]
    xs = [leaf(p, dtype="float64") for p in points]
    with autograd.record():
        y = run_program(program, xs)
    y.backward()
    got = sum((x.grad.asnumpy() * d).sum() for x, d in zip(xs, directions, strict=True))

    def at(t: float) -> float:
        moved = [nd.array(p + t * d, dtype="float64") for p, d in zip(points, directions)]
        return run_program(program, moved).asscalar()

    h = 1e-6
    want = (at(h) - at(-h)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)


@settings(max_examples=30)
@given(programs, st.integers(0, 2**32 - 1))
def test_grad_backward_and_retained_walks_agree_to_the_bit(program: list, seed: int):
    rng = np.random.default_rng(seed)
    xs = [leaf(rng.uniform(-1, 1, (3, 4)), dtype="float64") for _ in range(2)]
    with autograd.record():
        y = run_program(program, xs)
    first = [g.asnumpy().tobytes() for g in autograd.grad(y, xs, retain_graph=True)]
    alone = [autograd.grad(y, [x], retain_graph=True)[0].asnumpy().tobytes() for x in xs]
    y.backward(retain_graph=True)
    second = [x.grad.asnumpy().tobytes() for x in xs]
    y.backward()
    third = [x.grad.asnumpy().tobytes() for x in xs]
    assert first == alone == second == third


# -- interruptions ---------------------------------------------------------------------------------


def test_ctrl_c_within_backward_leaves_a_usable_session():
    """What came before it is computed, the switches are back, and the next backward is right."""

    class Interrupted(autograd.Function):
        def forward(self, x):
            return x

        def backward(self, g):
            raise KeyboardInterrupt

    x = leaf([1, 2])
    with autograd.record():
        y = Interrupted()(x * 2) * 3
    with pytest.raises(KeyboardInterrupt):
        y.backward()
    assert modes() == (False, False)
    with autograd.record():
        y = x * 2
    y.backward()
    assert values(x.grad) == [[2, 2]]
