"""autograd.checkpoint: the same bits with less memory. The run without it is the oracle for bits,
the memory pool for bytes, and torch.utils.checkpoint for what reaches inputs and closures."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hybrid_nets import NETS, NETS_ON_ENGINES, numbers, run
from hypothesis import given
from hypothesis import strategies as st

from d2lmini import autograd, cpu, engine, nd, random
from d2lmini.base import MXNetError


def leaf(values, req: str = "write") -> nd.NDArray:
    x = nd.array(values)
    x.attach_grad(req)
    return x


def whole(net):
    """A call of a net that is checkpointed as a whole."""
    return lambda *xs: autograd.checkpoint(net, *xs)


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.law
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
