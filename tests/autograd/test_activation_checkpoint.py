"""autograd.checkpoint: the same bits with less memory. The run without it is the oracle for bits,
the memory pool for bytes, and torch.utils.checkpoint for what reaches inputs and closures."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hybrid_nets import NETS, NETS_ON_ENGINES, numbers, run
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle

from d2lmini import autograd, cpu, engine, lazy, nd, random
from d2lmini import np as mnp
from d2lmini.base import MXNetError
from d2lmini.gluon import nn


def leaf(values, req: str = "write") -> nd.NDArray:
    x = nd.array(values)
    x.attach_grad(req)
    return x


def in_parts(net):
    """A call of a net in which each child is checkpointed."""

    def call(*xs):
        for child in net:
            xs = (autograd.checkpoint(child, *xs),)
        return xs[0]

    return call


def whole(net):
    """A call of a net that is checkpointed as a whole."""
    return lambda *xs: autograd.checkpoint(net, *xs)


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hybrid", [False, True], ids=["eager", "hybrid"])
@pytest.mark.parametrize(("name", "kind"), NETS_ON_ENGINES)
def test_nets_give_the_same_bits(name, hybrid, kind):
    """Outputs, gradients, moving statistics, Dropout's masks, and what comes after. Parameters get
    their arrays in the first run of the function."""
    make, shapes, words = NETS[name]
    answers = []
    with engine.use(kind):
        for wrap in (lambda net: net, whole):
            random.seed(1)
            net = make()
            net.initialize()
            if hybrid:
                net.hybridize()
            xs = numbers(shapes[0], words)
            answers.append([run(net, xs, train, call=wrap(net)) for train in (True, False, True)])
    for expected, got in zip(*answers, strict=True):
        for (key, a), b in zip(expected.items(), got.values(), strict=True):
            assert a.tobytes() == b.tobytes(), key


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("nested", [False, True])
def test_parts_that_share_a_parameter_add_up(req, nested):
    """It is used twice inside, twice outside, and its gradient is written once."""
    answers = []
    for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
        x, w = leaf([[0.5, -1], [2, 3]]), leaf([[1, 2], [-1, 0.5]], req)

        def inner(h, w=w):
            return nd.dot(h, w).tanh() * w

        def part(h, checkpoint=checkpoint, inner=inner, w=w):
            return checkpoint(inner, h) + w if nested else inner(h) + w

        for _ in range(2):
            with autograd.record():
                y = checkpoint(part, checkpoint(part, x)) * w
                y = y + w
            y.backward()
        answers.append([y.asnumpy(), x.grad.asnumpy(), w.grad.asnumpy()])
    for a, b in zip(*answers, strict=True):
        assert a.tobytes() == b.tobytes()


@given(st.data())
def test_drawn_programs_give_the_same_gradients(data):
    """Values of a pool are combined; any stretch of steps is one checkpointed function that reads
    earlier values as inputs or in its closure, and gives several."""
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from("+*td"), st.integers(0, 5), st.integers(0, 5)),
                 min_size=4, max_size=10)
    )  # fmt: skip
    begin = data.draw(st.integers(0, len(steps) - 2))
    end = data.draw(st.integers(begin + 1, len(steps)))
    as_inputs = data.draw(st.booleans())

    def take(step, pool):
        kind, i, j = step
        x, y = pool[-1 - i % len(pool)], pool[-1 - j % len(pool)]
        if kind == "t":
            return x.tanh()
        if kind == "d":
            return nd.Dropout(x, p=0.5, mode="always")
        return x + y if kind == "+" else x * y

    def program(checkpoint):
        leaves = [leaf([0.5, -0.25]), leaf([2, 1], "add"), nd.array([3, -2])]
        random.seed(5)
        with autograd.record():
            pool = list(leaves)
            for step in steps[:begin]:
                pool.append(take(step, pool))

            before = len(pool)

            def part(*given, earlier=tuple(pool)):
                inside = list(given or earlier)
                for step in steps[begin:end]:
                    inside.append(take(step, inside))
                return inside[before:]

            made = checkpoint(part, *pool) if as_inputs else checkpoint(part)
            pool = pool + made
            for step in steps[end:]:
                pool.append(take(step, pool))
            head = sum(pool, leaves[0] * 0)
        head.backward()
        return [y.asnumpy() for y in pool] + [x.grad.asnumpy() for x in leaves[:2]]

    for a, b in zip(program(lambda f, *xs: f(*xs)), program(autograd.checkpoint), strict=True):
        assert a.tobytes() == b.tobytes()


def test_outside_record_it_is_the_function():
    x = leaf([1, 2])
    y = nd.array([3, 4])
    assert autograd.checkpoint(lambda a: a, y) is y
    assert autograd.checkpoint(lambda a, b, c: (a, b, c), x, 3, None)[1:] == (3, None)
    with autograd.record(), autograd.pause():
        z = autograd.checkpoint(lambda a: a * 2, x)
    assert z._node is None


def test_arguments_and_results_are_nested_as_they_come():
    x, w = leaf([1, 2]), leaf([3, 5])

    def f(pair, table, times, flag):
        assert times == 2 and flag is None
        return {"sum": pair[0] + table["w"], "more": [pair[1] * times, "text"]}, pair[1]

    constant = nd.array([7, 7])
    with autograd.record():
        found, same = autograd.checkpoint(f, (x, constant), {"w": w}, 2, None)
        y = found["sum"] * x
    assert found["more"][1] == "text" and same is constant
    assert found["more"][0]._node is None  # it depends on nothing that has a gradient
    y.backward()
    assert x.grad.asnumpy().tolist() == [5, 9] and w.grad.asnumpy().tolist() == [1, 2]


def test_outputs_that_are_inputs_and_inputs_without_gradient():
    x, c = leaf([1, 2]), nd.array([3, 4])
    with autograd.record():
        h = x * 2
        y, same, twice = autograd.checkpoint(lambda a, b: (a * b, a, a), h, c)
        z = y + same * twice
    assert same is h and twice is h
    z.backward()
    assert x.grad.asnumpy().tolist() == [2 * 3 + 8, 2 * 4 + 16]


def test_one_array_twice_among_the_outputs():
    x = leaf([1, 2])
    with autograd.record():
        a, b, view = autograd.checkpoint(lambda x: (y := x * x, y, y[0:1]), x)
        (a * b).backward(retain_graph=True)
    assert x.grad.asnumpy().tolist() == [4, 32]
    view.backward()
    assert x.grad.asnumpy().tolist() == [2, 0]


def test_only_some_outputs_lead_to_the_head():
    x, w = leaf([1, 2]), leaf([5, 5])
    with autograd.record():
        a, b = autograd.checkpoint(lambda x: (x * 2, x * w), x)
    a.backward()
    assert x.grad.asnumpy().tolist() == [2, 2]
    del b


@pytest.mark.parametrize("checkpoint", [lambda f, *xs: f(*xs), autograd.checkpoint])
def test_gradients_of_gradients_and_retained_graphs(checkpoint):
    """d/dx of |dy/dx|^2 for y = sum(w x^3), x = 2 u."""
    u, w = leaf([1, 2]), leaf([3, 5])
    with autograd.record():
        x = u * 2
        y = checkpoint(lambda x: w * x * x * x, x)
        (g,) = autograd.grad(y, [x], create_graph=True)  # 3 w x^2
        z = (g * g).sum()
    z.backward(retain_graph=True)
    expected = 36 * np.array([9, 25]) * np.array([2, 4]) ** 3 * 2  # 2 dx/du (3 w x^2) (6 w x)
    np.testing.assert_allclose(u.grad.asnumpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(w.grad.asnumpy(), 18 * np.array([3, 5]) * np.array([2, 4]) ** 4)
    y.backward(retain_graph=True)
    np.testing.assert_allclose(w.grad.asnumpy(), [8, 64])
    y.backward()
    np.testing.assert_allclose(u.grad.asnumpy(), 2 * 3 * np.array([3, 5]) * np.array([4, 16]))
    with pytest.raises(MXNetError, match="used up by an earlier backward"):
        y.backward()


@pytest.mark.parametrize("then", ["retained", "grad of one"])
def test_the_function_runs_once_for_each_backward(then):
    runs = []
    x, w = leaf([1, 2]), leaf([3, 4])

    def f(x):
        runs.append(autograd.is_recording() and autograd.is_training())
        return x * w

    with autograd.record():
        y = autograd.checkpoint(f, x)
    if then == "retained":
        y.backward(retain_graph=True)
        y.backward()
        assert runs == [True] * 3
    else:
        (g,) = autograd.grad(y, [w])
        assert runs == [True] * 2 and g.asnumpy().tolist() == [1, 2]
        assert x.grad.asnumpy().tolist() == [0, 0]


def test_random_numbers_of_other_threads_and_of_later_steps_do_not_matter():
    """What is drawn between forward and backward, too; and nothing is drawn in its place."""
    x = leaf(np.ones(1000))
    f = lambda x: nd.Dropout(x, p=0.5) + nd.random.uniform(shape=1000)  # noqa: E731
    answers = []
    for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
        random.seed(3)
        with autograd.record():
            y = checkpoint(f, x)
        between = nd.random.uniform(shape=5).asnumpy()
        y.backward()
        after = nd.random.uniform(shape=5).asnumpy()
        answers.append([y.asnumpy(), x.grad.asnumpy(), between, after])
    for a, b in zip(*answers, strict=True):
        assert a.tobytes() == b.tobytes()
    kept = answers[0][1] > 0
    assert 300 < kept.sum() < 700


def test_backward_in_another_thread_and_in_another_mode():
    """The mode, the context of new arrays and the masks are those of the first run."""
    x = leaf(np.ones(100))
    made = []

    def f(x):
        made.append(nd.zeros(3).context)
        return nd.Dropout(x, p=0.5)

    with autograd.record(), cpu(1):
        y = autograd.checkpoint(f, x)
    thread = threading.Thread(target=lambda: y.backward(train_mode=False))
    thread.start()
    thread.join()
    assert made == [cpu(1), cpu(1)]
    np.testing.assert_array_equal(x.grad.asnumpy(), y.asnumpy())
    assert 0 < (y.asnumpy() == 0).sum() < 100


@pytest.mark.parametrize("scope", [lazy, lambda: engine.bulk(20)], ids=["lazy", "bulk"])
def test_operations_that_are_pushed_together(scope):
    answers = []
    for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
        random.seed(3)
        x = leaf(np.linspace(-1, 1, 6))
        with scope():
            with autograd.record():
                y = checkpoint(lambda x: nd.Dropout((x * x).tanh(), p=0.5) * x, x)
            y.backward()
        answers.append([y.asnumpy(), x.grad.asnumpy()])
    for a, b in zip(*answers, strict=True):
        assert a.tobytes() == b.tobytes() and a.any()


def test_arrays_of_np():
    x = mnp.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = autograd.checkpoint(lambda x: mnp.tanh(x) * x, x)
        z = x * 1
    assert type(y) is type(z)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), np.tanh([1, 2]) + np.array([1, 2]) / np.cosh([1, 2]) ** 2, rtol=1e-6)  # noqa: E501  # fmt: skip


def test_a_function_with_its_own_gradient_inside():
    class Square(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * x

        def backward(self, dy):
            (x,) = self.saved_tensors
            return 2 * x * dy

    x = leaf([1, 2])
    with autograd.record():
        y = autograd.checkpoint(lambda x: Square()(x * 3), x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [18, 36]


def test_a_net_that_is_traced_runs_eagerly_and_says_so():
    class Net(nn.HybridSequential):
        def forward(self, x):
            return autograd.checkpoint(super().forward, x)

    net = Net()
    net.add(nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = leaf([[1, 2]])
    with pytest.warns(UserWarning, match="autograd.checkpoint .* cannot be part of a graph"):
        with autograd.record():
            y = net(x)
    y.backward()
    assert x.grad.asnumpy().any()


# -- torch -----------------------------------------------------------------------------------------


def answers_of_torch(torch, name):
    """A gradient and its gradients, of functions that are easy to get wrong; without `checkpoint`,
    or with torch's."""
    from torch.utils.checkpoint import checkpoint as theirs

    def checkpoint(f, *xs):
        return theirs(f, *xs, use_reentrant=False) if name else f(*xs)

    x = torch.tensor([[0.5, -1.0], [2.0, 3.0]], requires_grad=True)
    w = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], requires_grad=True)
    h = torch.tanh(x)
    y = checkpoint(lambda h: (h @ w) * x, h)  # a closure over a leaf, and over what led to h
    a, b = checkpoint(lambda y, h: (torch.sigmoid(y) * h, h), y, h)  # an output is an input
    z = checkpoint(lambda a: checkpoint(lambda a: torch.exp(a) + w, a) * w, a)  # nested
    (g,) = torch.autograd.grad((z * b).sum(), x, create_graph=True)
    (g * g).sum().backward()
    return [v.detach().numpy() for v in (z, g, x.grad, w.grad)]


def test_gradients_are_those_of_torch():
    with Oracle("torch") as torch:
        if not torch.python:
            pytest.skip("D2LMINI_TORCH_PYTHON names no interpreter")
        without, with_it = (torch.ask(answers_of_torch, name) for name in ("", "checkpoint"))
    x, w = leaf([[0.5, -1], [2, 3]]), leaf([[1, 2], [-1, 0.5]])
    checkpoint = autograd.checkpoint
    with autograd.record():
        h = x.tanh()
        y = checkpoint(lambda h: nd.dot(h, w) * x, h)
        a, b = checkpoint(lambda y, h: (y.sigmoid() * h, h), y, h)
        z = checkpoint(lambda a: checkpoint(lambda a: a.exp() + w, a) * w, a)
        (g,) = autograd.grad((z * b).sum(), [x], create_graph=True)
        last = (g * g).sum()
    last.backward()
    for theirs in (without, with_it):
        for a, b in zip(theirs, (z, g, x.grad, w.grad), strict=True):
            np.testing.assert_allclose(b.asnumpy(), a, rtol=2e-5, atol=1e-5)
