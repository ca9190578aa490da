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

from d2lmini import autograd, callsite, cpu, engine, instrument, nd, storage
from d2lmini.autograd import backward_pass
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


def test_setters_return_what_was():
    assert autograd.set_recording(True) is False
    assert autograd.set_training(True) is False
    assert modes() == (True, True)
    assert autograd.set_recording(False) is True
    assert autograd.set_training(False) is True


def test_a_scope_that_was_entered_by_a_call_is_left_by_a_call():
    scope = autograd.record()
    scope.__enter__()
    assert modes() == (True, True)
    scope.__exit__(None, None, None)
    assert modes() == (False, False)


def test_a_name_that_does_not_exist_suggests_one_that_does():
    with pytest.raises(AttributeError, match="did you mean 'record'"):
        autograd.recordd


def test_an_error_leaves_the_switches_as_they_were():
    with pytest.raises(ZeroDivisionError):
        with autograd.record():
            1 / 0
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


def test_dropout_looks_at_training_only():
    x = nd.ones(1000)
    with autograd.record(train_mode=False):
        assert nd.Dropout(x).asnumpy().min() == 1
    with autograd.train_mode():
        assert nd.Dropout(x).asnumpy().min() == 0


def test_nothing_is_recorded_outside_or_in_a_pause():
    x = leaf([1, 2])
    y = x * 2
    with autograd.record():
        with autograd.pause():
            c = x * 10
        z = x * c
    assert y._node is None and c._node is None
    z.backward()
    assert values(x.grad) == [[10, 20]]


def test_backward_within_record_is_not_recorded_and_changes_no_switch():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        y.backward()
        assert modes() == (True, True)
        z = x * 3
    z.backward()
    assert values(x.grad) == [[3, 3]]


@pytest.mark.parametrize("train_mode", [True, False])
def test_rules_run_in_the_mode_that_backward_is_given(train_mode: bool):
    seen = []

    class Look(autograd.Function):
        def forward(self, x):
            seen.append(modes())
            return x

        def backward(self, g):
            seen.append(modes())
            return g

    x = leaf([1.0])
    with autograd.record():
        y = Look()(x)
    y.backward(train_mode=train_mode)
    assert seen == [(False, True), (False, train_mode)]


# -- heads -----------------------------------------------------------------------------------------


def test_backward_sums_and_head_gradients_weigh():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    assert values(x.grad) == [[2, 4, 6]]
    y.backward(nd.array([1, 10, 100]))
    assert values(x.grad) == [[2, 40, 600]]


def test_several_heads():
    x = leaf([1, 2])
    with autograd.record():
        a, b, c = x * 2, x * x, x * 5
    autograd.backward([a, b, c], [None, nd.array([1, 10]), nd.zeros(2)])
    assert values(x.grad) == [[4, 42]]


def test_an_array_with_a_gradient_can_be_a_head():
    x = leaf([1, 2])
    x.backward()
    assert values(x.grad) == [[1, 1]]
    x.backward(nd.array([5, 6]))
    assert values(x.grad) == [[5, 6]]
    with autograd.record():
        y = x * 2
    autograd.backward([x, y])
    assert values(x.grad) == [[3, 3]]


def test_head_gradients_are_like_their_heads():
    x = leaf([1, 2])
    with autograd.record():
        y = x * 2
    for wrong in (nd.ones(3), nd.ones((2, 2)), nd.ones(2, dtype="float64")):
        with pytest.raises(
            MXNetError, match=r"a head gradient is like its head, .*\(2,\), float32"
        ):
            y.backward(wrong)
    with pytest.raises(ValueError, match="2 heads and 1 head gradients"):
        autograd.backward([y, y], [None])
    y.backward(nd.ones(2))


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


def test_a_head_without_history_is_an_error():
    x, c = leaf([1, 2]), nd.ones(2)
    with autograd.record():
        constant = c * 2
    for head in (x * 2, c, constant, x.detach()):
        with pytest.raises(
            MXNetError, match=r"not in a computational graph(.|\n)*not computed inside"
        ):
            head.backward()


def test_retain_graph():
    x = leaf([1, 2])
    with autograd.record():
        h = x * x
        y, z = h * 2, h * 3
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(MXNetError, match=r"used up by an earlier backward.*retain_graph=True"):
        y.backward()
    with (
        pytest.warns(UserWarning, match=r"used up this part(.|\n)*h = x \* x"),
        pytest.raises(MXNetError, match="no inputs in computation graph that require gradients"),
    ):
        z.backward()


def test_grad_uses_up_all_that_is_behind_its_heads():
    """As in MXNet also what leads to none of its variables."""
    x, w, v = leaf([1, 2]), leaf([3, 4]), leaf([5, 6])
    with autograd.record():
        h = x * x
        y, z = h * w, h * v
    assert values(*autograd.grad(y, [w], retain_graph=True)) == [[1, 4]]
    z.backward(retain_graph=True)
    assert values(x.grad, v.grad) == [[10, 24], [1, 4]]
    autograd.grad(y, [w])
    with pytest.warns(UserWarning, match=r"used up this part(.|\n)*h = x \* x"):
        z.backward()
    assert values(x.grad, v.grad) == [[10, 24], [1, 4]]


# -- grad_req and attach_grad ----------------------------------------------------------------------


def test_write_replaces_and_add_adds_over_calls():
    w, a = leaf([1, 2]), leaf([1, 2], "add")
    for _ in range(3):
        with autograd.record():
            y = w * w + a * a + a
        y.backward()
    assert values(w.grad, a.grad) == [[2, 4], [9, 15]]


def test_uses_in_one_graph_add_up_whatever_grad_req():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x + x * 3 + x
    y.backward()
    assert values(x.grad) == [[6, 8]]


def test_grad_req_is_one_of_three():
    with pytest.raises(ValueError, match="'write', 'add' or 'null', got 'accumulate'"):
        nd.ones(2).attach_grad("accumulate")


def test_mark_variables_takes_given_arrays():
    xs, grads = [nd.array([1, 2]), nd.array([3, 4])], [nd.zeros(2), nd.ones(2)]
    autograd.mark_variables(xs, grads, ["write", "add"])
    with autograd.record():
        y = xs[0] * xs[1]
    y.backward()
    assert xs[1].grad is grads[1]
    assert values(*grads) == [[3, 4], [2, 3]]
    with pytest.raises(MXNetError, match="must be like it"):
        autograd.mark_variables(xs[0], nd.zeros(3))


def test_attach_grad_in_the_midst_cuts():
    x = leaf([1, 2])
    with autograd.record():
        y = x * 2
        z = y * 3
        y.attach_grad()
        w = z * y
    w.backward()
    # What was recorded before still leads to x, what came after ends in y.
    assert values(x.grad, y.grad) == [[12, 24], [6, 12]]


def test_attach_grad_again_leaves_what_is_recorded_to_the_old_gradient():
    x = leaf([1, 2])
    old = x.grad
    with autograd.record():
        y = x * x
    x.attach_grad()
    y.backward()
    assert values(old, x.grad) == [[2, 4], [0, 0]]


def test_gradient_is_zero_where_nothing_flows_and_kept_where_nothing_leads():
    x, z, apart = leaf([1, 2]), leaf([3, 4]), leaf([5, 6])
    for each in (x, z, apart):
        each.grad[:] = 9
    with autograd.record():
        y = nd.BlockGrad(x) * z
        apart * 2
    y.backward()
    assert values(x.grad, z.grad, apart.grad) == [[0, 0], [1, 2], [9, 9]]


def test_grad_stays_the_same_array():
    x = leaf([1, 2])
    grad, alias = x.grad, x.grad[0:1]
    with autograd.record():
        y = x * 3
    y.backward()
    assert x.grad is grad
    assert values(alias) == [[3]]
    x.grad[:] *= 2
    assert values(grad) == [[6, 6]]


def test_fresh_grad_is_set_by_backward_only():
    x = leaf([1, 2])
    assert x._fresh_grad is False
    with autograd.record():
        y = x * 3
    autograd.grad(y, [x], retain_graph=True)
    assert x._fresh_grad is False
    y.backward()
    assert x._fresh_grad is True
    x._fresh_grad = False
    assert x._fresh_grad is False


def test_non_leaves_have_no_grad():
    x = leaf([1, 2])
    with autograd.record():
        y = x * 3
    assert y.grad is None
    y.backward()
    assert y.grad is None and nd.ones(2).grad is None


def test_detach_shares_memory_and_cuts():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        d = y.detach()
        z = d * x
    z.backward()
    assert values(x.grad) == [[1, 4]]
    d[:] = 7
    assert values(y) == [[7, 7]]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_gradients_have_the_dtype_of_their_array(dtype: str):
    x = leaf([1, 2], dtype=dtype)
    with autograd.record():
        y = x * x
    y.backward()
    assert x.grad.dtype == np.dtype(dtype)
    assert values(x.grad) == [[2, 4]]


# -- grad ------------------------------------------------------------------------------------------


def test_grad_returns_new_arrays_and_writes_none():
    x, z = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        y = x * z
    gx, gz = autograd.grad(y, [x, z], head_grads=[nd.array([1, 10])])
    assert values(gx, gz, x.grad) == [[3, 40], [1, 20], [0, 0]]
    assert isinstance(autograd.grad(x, x), list)


def test_what_grad_returns_is_the_callers_own():
    a, b = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        y = a + b
    h = nd.array([5, 6])
    ga, gb, again = autograd.grad(y, [a, b, a], head_grads=h)
    ga *= 2
    assert values(ga, gb, again, h) == [[10, 12], [5, 6], [5, 6], [5, 6]]


def test_grad_of_an_array_in_the_midst():
    """(MXNet takes only arrays with attach_grad.)"""
    x = leaf([1, 2])
    with autograd.record():
        h = x * 2
        y = h * h
    gh, gx = autograd.grad(y, [h, x])
    assert values(gh, gx) == [[4, 8], [8, 16]]


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


def test_a_gradient_in_a_loss():
    """A penalty on the gradient's length, against its formula: d/dw |2 w x^2|^2 = 8 w x^4."""
    w, x = leaf([[3.0]]), leaf([[2.0]])
    with autograd.record():
        y = (w * x) ** 2 / w
        (gx,) = autograd.grad(y, x, create_graph=True)
        penalty = (gx**2).sum()
    penalty.backward()
    # gx = 2 w x, so the penalty is 4 w^2 x^2
    np.testing.assert_allclose(w.grad.asscalar(), 8 * 3 * 4, rtol=1e-5)
    np.testing.assert_allclose(x.grad.asscalar(), 8 * 9 * 2, rtol=1e-5)


def executed(run) -> int:
    nd.waitall()
    before = engine.stats().executed
    run()
    nd.waitall()
    return engine.stats().executed - before


def test_grad_visits_only_what_leads_to_the_variables():
    x, w = leaf(np.ones((3, 4))), leaf(np.ones((4, 4)))
    with autograd.record():
        deep = x
        for _ in range(50):
            deep = nd.dot(deep, w).tanh()
        y = deep * x
    # Up to the variable: the head's ones and the product with x.
    assert executed(lambda: autograd.grad(y, [deep], retain_graph=True)) == 2
    everything = executed(lambda: y.backward(retain_graph=True))
    assert everything > 150
    v = leaf(np.ones((3, 4)))
    with autograd.record():
        z = y + v * 2
    assert executed(lambda: autograd.grad(z, [v], retain_graph=True)) == 2


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


def test_convolutions_compute_only_what_is_needed():
    x, w, b = nd.ones((1, 2, 5, 5)), nd.ones((3, 2, 3, 3)), nd.ones(3)
    w.attach_grad()
    turned = leaf(np.ones((2, 3, 3, 3)))
    # The gradient of a composed op is copied into its place.
    for op, kernels, n in ((nd.Convolution, w, 1), (nd.Deconvolution, turned, 2)):
        with autograd.record():
            y = op(x, kernels, b, kernel=(3, 3), num_filter=3, no_bias=False)
        head = nd.ones(y.shape)
        assert executed(lambda y=y, head=head: y.backward(head)) == n


# -- gradients computed right into their place -----------------------------------------------------


def layer(x, w, b):
    return nd.FullyConnected(x, w, b, num_hidden=3)


def test_gradients_of_weights_are_computed_in_place_to_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    images = nd.array(rng.normal(size=(2, 3, 8, 8)))
    arrays = [nd.array(rng.normal(size=s)) for s in ((4, 3, 3, 3), (4,), (5, 144), (5,), (7, 4))]

    def run() -> list[bytes]:
        for a in arrays:
            a.attach_grad()
        w1, b1, w2, b2, table = arrays
        with autograd.record():
            h = nd.Convolution(images, w1, b1, kernel=(3, 3), num_filter=4).tanh()
            h = nd.FullyConnected(h, w2, b2, num_hidden=5).tanh()
            h = nd.dot(h, h, transpose_a=True).sum(axis=1)
            y = nd.dot(h[:4], nd.Embedding(nd.array([1, 5, 1]), table, 7, 4).T)
        n = executed(lambda: y.backward(nd.ones(y.shape)))
        return [n, *(a.grad.asnumpy().tobytes() for a in arrays)]

    in_place, *ours = run()
    wanted = backward_pass._wanted
    monkeypatch.setattr(backward_pass, "_wanted", lambda *of, placing: wanted(*of, placing=False))
    copied, *theirs = run()
    assert ours == theirs
    assert in_place == copied - 5


def test_in_place_spares_memory():
    w, x = nd.ones((512, 512)) * 0.1, nd.ones((2, 512))
    w.attach_grad()
    with engine.use("naive"):
        with autograd.record():
            y = nd.dot(x, w).sum()
        nd.waitall()
        before = storage.stats().live
        storage.reset_peak()
        y.backward()
        assert storage.stats().peak - before < w.size * 4
    assert w.grad[0, 0].asscalar() == 2


def test_a_place_is_used_only_where_one_write_is_all():
    """Added to, used twice, a head as well, elsewhere: the sum is right."""
    x, b = nd.ones((2, 3)), nd.zeros(3)
    add, twice, head, here = (leaf(np.ones((3, 3)), req) for req in ("add", *["write"] * 3))
    far = leaf(np.ones((3, 3)), ctx=cpu(1))
    for w in (add, twice, head, here, far):
        w.grad[:] = 5
    with autograd.record():
        y = layer(x, add, b) + layer(layer(x, twice, b), twice, b) + layer(x, head, b)
        y = y + layer(x, here, b) + layer(x, far, b)
    autograd.backward([y, head], [None, nd.ones((3, 3))])
    got = [w.grad[0, 0].asscalar() for w in (add, twice, head, here, far)]
    assert got == [7, 12, 3, 2, 2]
    assert far.grad.context == cpu(1)
    assert all(w._fresh_grad for w in (add, twice, head, here, far))


def test_a_place_that_is_a_view_or_an_input():
    base = nd.zeros((2, 3, 3))
    w = nd.ones((3, 3))
    autograd.mark_variables(w, base[1])
    x = nd.ones((2, 3))
    with autograd.record():
        y = nd.dot(x, w)
    y.backward()
    assert values(base) == [[[[0] * 3] * 3, [[2] * 3] * 3]]
    # The gradient of the product is made from the old gradient, which it overwrites.
    with autograd.record():
        y = nd.dot(w.grad, w)
    y.backward()
    assert values(base[1]) == [[[6] * 3] * 3]


def test_a_failure_ends_in_the_place_and_the_next_backward_clears_it():
    w, x = leaf(np.ones((3, 3))), nd.ones((2, 3))
    with autograd.record():
        y = nd.dot(x, w)
    g = nd.random.normal(0, -1, shape=(2, 3))  # fails when it runs
    y.backward(g)
    with pytest.raises(MXNetError, match="normal"):
        w.grad.asnumpy()
    with autograd.record():
        y = nd.dot(x, w)
    y.backward()
    assert values(w.grad) == [[[2] * 3] * 3]


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


def test_a_recorded_value_into_a_part_of_an_array_is_refused():
    x, y = leaf([1, 2]), nd.zeros(4)
    with autograd.record():
        for write in (lambda: y.__setitem__(slice(1, 3), x * 3), lambda: y[:2].__iadd__(x)):
            with pytest.raises(MXNetError, match="Inplace operations"):
                write()
    assert values(y) == [[0, 0, 0, 0]]


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


def test_a_constant_into_a_constant_is_fine():
    x, c = leaf([1, 2]), nd.ones(2)
    with autograd.record():
        c[0] = 5
        c += 1
        y = x * c
    y.backward()
    assert values(x.grad) == [[6, 2]]


# -- views -----------------------------------------------------------------------------------------


def test_views_of_recorded_arrays_lead_back():
    x = leaf([[1, 2], [3, 4]])
    with autograd.record():
        row, flat = x[1], x.reshape((4,))
        y = row * 2
        z = flat[1:3] * 3
        t = x.T[0] * 5
    autograd.backward([y, z, t])
    assert values(x.grad) == [[[5, 3], [10, 2]]]


def test_views_show_what_is_written_to_their_base():
    x = leaf([[1, 2], [3, 4]])
    with autograd.record():
        row = x[1]
    x[1, 0] = 9
    assert values(row) == [[9, 4]]
    row[1] = 8
    assert values(x) == [[[1, 2], [9, 8]]]


def test_the_gradient_of_an_index_adds_up_duplicates():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x[nd.array([0, 2, 0])] * nd.array([1, 10, 100])
    y.backward()
    assert values(x.grad) == [[101, 0, 10]]


def test_iterating_and_unpacking_are_recorded():
    x = leaf([[1, 2], [3, 4]])
    with autograd.record():
        a, b = x
        y = a * b
    y.backward()
    assert values(x.grad) == [[[3, 4], [1, 2]]]


def test_a_leaf_may_be_a_view():
    base = nd.zeros((2, 2))
    x = base[1]
    x.attach_grad()
    base[1] = 3
    with autograd.record():
        y = x * x
    y.backward()
    assert values(x.grad) == [[6, 6]]


# -- Function --------------------------------------------------------------------------------------


class ProductAndSum(autograd.Function):
    def forward(self, a, b):
        self.save_for_backward(a, b)
        return a * b, a + b

    def backward(self, g, h):
        a, b = self.saved_tensors
        return g * b + h, g * a + h


def test_function_with_several_inputs_and_outputs():
    x, z = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        p, s = ProductAndSum()(x, z)
        y = p * 2 + s
    y.backward()
    assert values(p, s, x.grad, z.grad) == [[3, 8], [4, 6], [7, 9], [3, 5]]


def test_function_outputs_that_nobody_used_have_the_gradient_zero():
    x, z = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        p, _ = ProductAndSum()(x, z)
    p.backward()
    assert values(x.grad, z.grad) == [[3, 4], [1, 2]]


def test_function_may_save_what_is_no_array():
    class Scale(autograd.Function):
        def forward(self, x):
            self.save_for_backward(3, x)
            return x * 3

        def backward(self, g):
            return g * self.saved_tensors[0]

    x = leaf([1, 2])
    with autograd.record():
        y = Scale()(x)
    y.backward()
    assert values(x.grad) == [[3, 3]]


def test_function_outside_record_is_only_computed():
    x = leaf([1, 2])
    p, s = ProductAndSum()(x, x)
    assert p._node is None
    with autograd.record():
        p, s = ProductAndSum()(nd.ones(2), nd.ones(2))
    assert p._node is None and s._node is None


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


def test_function_may_give_none():
    """(MXNet insists on an array.)"""
    assert through(given_back(lambda g, h: (g, None))) == [[1, 1], [0, 0]]


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


def test_function_errors_pass_unchanged():
    def fail(g, h):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        through(given_back(fail))
    assert modes() == (False, False)

    class Unfinished(autograd.Function):
        def forward(self, x):
            return x

    with pytest.raises(NotImplementedError, match="Unfinished defines no backward"):
        x = leaf([1])
        with autograd.record():
            y = Unfinished()(x)
        y.backward()
    with pytest.raises(NotImplementedError, match="Function defines no forward"):
        autograd.Function()(x)


def test_function_takes_and_returns_arrays():
    class Bare(autograd.Function):
        def forward(self, x):
            return 3.0, x

    with pytest.raises(TypeError, match="Bare: input 0 must be an NDArray, got float"):
        Bare()(3.0)
    with pytest.raises(TypeError, match="forward must return NDArrays"):
        Bare()(nd.ones(2))


def test_function_may_return_its_input():
    class Fivefold(autograd.Function):
        def forward(self, x):
            return x

        def backward(self, g):
            return g * 5

    x = leaf([1, 2])
    with autograd.record():
        y = Fivefold()(x)
    y.backward()
    assert y is not x
    assert values(x.grad) == [[5, 5]]


def test_function_object_used_twice_keeps_what_each_call_saved():
    x, z, f = leaf([1, 2]), leaf([3, 4]), ProductAndSum()
    with autograd.record():
        y = f(x, z)[0] + f(z, z)[0]
    y.backward()
    assert values(x.grad, z.grad) == [[3, 4], [7, 10]]


def test_what_a_function_saved_may_be_written():
    x, z = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        p, _ = ProductAndSum()(x, z)
    z[:] = 0
    p.backward()
    assert values(x.grad) == [[3, 4]]


class Sigmoid(autograd.Function):
    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, g):
        (y,) = self.saved_tensors
        return g * y * (1 - y)


def test_function_is_differentiated_again_by_what_it_saved():
    x = leaf([0.3, -1.0], dtype="float64")
    with autograd.record():
        (mine,) = autograd.grad(Sigmoid()(x), [x], create_graph=True)
    mine.backward()
    got = x.grad.asnumpy()
    with autograd.record():
        (theirs,) = autograd.grad(x.sigmoid(), [x], create_graph=True)
    theirs.backward()
    np.testing.assert_allclose(got, x.grad.asnumpy(), rtol=1e-12)


def test_function_that_saves_something_else_is_not_differentiated_again():
    class Masked(autograd.Function):
        def forward(self, x):
            half = x / 2
            self.save_for_backward(half)
            return half * x

        def backward(self, g):
            (half,) = self.saved_tensors
            return g * half * 2

    x = leaf([1.0, 2.0])
    with autograd.record():
        y = Masked()(x)
        with pytest.raises(MXNetError, match="value 0 of save_for_backward is neither an input"):
            autograd.grad(y, [x], create_graph=True)
    y.backward()
    assert values(x.grad) == [[1, 2]]


# -- contexts and threads --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.as_in_context(cpu(1)),
        lambda x: x.copyto(cpu(1)),
        lambda x: x.copyto(nd.zeros(x.shape, ctx=cpu(1))),
    ],
    ids=["as_in_context", "copyto a context", "copyto an array"],
)
def test_gradients_come_back_to_the_context_of_their_array(move):
    x = leaf([1, 2])
    with autograd.record():
        y = move(x)
        z = (y * y).as_in_context(cpu(0)) + x
    assert y.context == cpu(1) and z.context == cpu(0)
    seen = autograd.grad(z, [y, x], retain_graph=True)
    assert [g.context for g in seen] == [cpu(1), cpu(0)]
    z.backward()
    assert x.grad.context == cpu(0)
    assert values(x.grad, seen[1]) == [[3, 5], [3, 5]]


def test_one_leaf_per_context():
    xs = [leaf([1, 2], ctx=cpu(i)) for i in range(2)]
    with autograd.record():
        losses = [(x * (i + 2)).sum() for i, x in enumerate(xs)]
    autograd.backward(losses)
    assert [x.grad.context for x in xs] == [cpu(0), cpu(1)]
    assert values(*(x.grad for x in xs)) == [[2, 2], [3, 3]]


def test_threads_record_and_walk_beside_each_other():
    w = nd.array([1.0, 2.0])
    w.attach_grad("null")
    results: dict = {}

    def work(k: int) -> None:
        x = leaf([k, 2 * k])
        for _ in range(50):
            with autograd.record():
                y = x * w
                for _ in range(5):
                    y = y * 1.0 + x
            y.backward()
        results[k] = x.grad.asnumpy().tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: [6, 7] for k in range(4)}


def test_a_graph_of_one_thread_is_walked_by_another():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert values(x.grad) == [[2, 4]]


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


def test_backward_does_not_wait():
    gate = threading.Event()
    x = leaf(np.ones(4))
    engine.push(lambda: gate.wait(10), writes=[x])
    try:
        with autograd.record():
            y = (x * x).sum()
        y.backward()
        assert engine.stats().pending > 0
    finally:
        gate.set()
    assert values(x.grad) == [[2, 2, 2, 2]]


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
@given(programs, programs, st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 2**32 - 1))
def test_gradients_are_linear_in_the_heads(f: list, g: list, a: float, b: float, seed: int):
    """The gradient of a f + b g is a times that of f plus b times that of g."""
    rng = np.random.default_rng(seed)
    points = [rng.uniform(-1, 1, (3, 4)) for _ in range(2)]

    def grads(head) -> list:
        xs = [leaf(p, dtype="float64") for p in points]
        with autograd.record():
            heads, weights = head(xs)
        autograd.backward(heads, [nd.array([w], dtype="float64") for w in weights])
        return [x.grad.asnumpy() for x in xs]

    of_f = grads(lambda xs: ([run_program(f, xs)], [1.0]))
    of_g = grads(lambda xs: ([run_program(g, xs)], [1.0]))
    want = [a * u + b * v for u, v in zip(of_f, of_g, strict=True)]
    scale = 1 + max(abs(v).max() for v in (*of_f, *of_g))
    for got in (
        grads(lambda xs: ([run_program(f, xs), run_program(g, xs)], [a, b])),
        grads(lambda xs: ([run_program(f, xs) * a + run_program(g, xs) * b], [1.0])),
    ):
        for u, v in zip(got, want, strict=True):
            np.testing.assert_allclose(u / scale, v / scale, rtol=1e-9, atol=1e-9)


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


class Sites(instrument.Instrument):
    """The lines that issued the tasks, as text, by the name of the operation."""

    def __init__(self):
        self.lines = {}

    def push(self, task):
        self.lines[task.name] = callsite.describe(task.site)


def test_backward_issues_from_its_line_and_a_users_function_from_its_own():
    class Doubled(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, g):
            return g + g  # the user's line

    x = nd.ones(3)
    x.attach_grad()
    with autograd.record():
        y = Doubled()(x.tanh()).sum()
    with engine.use("threaded", inline_below=0.0), instrument.listening(Sites()) as sites:
        y.backward()  # the line of backward
    assert "# the user's line" in sites.lines.pop("broadcast_add")
    assert len(sites.lines) >= 3
    assert all("# the line of backward" in line for line in sites.lines.values())
    assert "# and this is over" in callsite.describe(callsite.find())  # and this is over
