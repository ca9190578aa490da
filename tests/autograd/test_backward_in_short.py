"""The walk back, in quick tests: heads and their gradients, leaves, `grad`, Function, and what is
refused."""

from __future__ import annotations

import pytest

from d2lmini import MXNetError, autograd, nd
from d2lmini import np as np_arrays
from d2lmini.base import instrument


def leaf(values, req="write", **how):
    x = nd.array(values, **how)
    x.attach_grad(req)
    return x


def tell(*arrays):
    return [x.asnumpy().tolist() for x in arrays]


class Pushed(instrument.Instrument):
    """The names of what is pushed meanwhile."""

    def __init__(self):
        self.names = []

    def push(self, task):
        self.names.append(task.name)


def recorded(program, *inputs):
    with autograd.record():
        return program(*inputs)


# -- heads -----------------------------------------------------------------------------------------


def test_heads_and_their_gradients():
    x, z = leaf([1, 2]), leaf([3, 4])
    y, w = recorded(lambda: (x * 10, x * z))
    for heads, head_grads, expected in [
        (y, None, [[10, 10], [0, 0]]),
        ([y, w], None, [[13, 14], [1, 2]]),
        ([y, w], [None, nd.array([5, 6])], [[25, 34], [5, 12]]),
        ((w, w), [nd.array([5, 6]), nd.array([1, 2])], [[3, 8], [1, 4]]),  # the last one counts
        ([w, y], [nd.array([[1], [0]]), nd.array([0, 1])], [[3, 10], [1, 0]]),
        ([x, y], None, [[11, 11], [0, 0]]),  # a leaf as head
        ([y, x], [nd.ones(2), nd.array([7, 8])], [[17, 18], [0, 0]]),
    ]:
        z.grad[:] = 0
        autograd.backward(heads, head_grads, retain_graph=True)
        assert tell(x.grad, z.grad) == expected
    x.backward(nd.array([3, 4]))
    assert tell(x.grad) == [[3, 4]]
    head = nd.array([1, 2])
    (g,) = autograd.grad(x, x, head)
    g += 1
    assert tell(head) == [[1, 2]]
    for heads, head_grads, error, says in [
        ([y, w], [None], ValueError, "2 heads and 1 head gradients; need as many"),
        (y, nd.ones(3), MXNetError, r"a head gradient is like its head, .*\(2,\).*got .*\(3,\)"),
        (y, nd.ones(2, dtype="float64"), MXNetError, "got .*float64"),
        ([y, nd.ones(4)], None, MXNetError, r"shape \(4,\): it was not computed inside autograd"),
    ]:
        with pytest.raises(error, match=says):
            autograd.backward(heads, head_grads)
    autograd.backward([y, w])
    with pytest.raises(MXNetError, match="its graph was used up by an earlier backward; pass"):
        y.backward()


def test_req_add_and_null():
    x, z, n = leaf([1, 2], "add"), leaf([3, 4]), leaf([5, 6], "null")
    y = recorded(lambda: x * z * n + x)
    for k in (1, 2):
        y.backward(retain_graph=True)
        assert tell(x.grad, z.grad, n.grad) == [[16 * k, 25 * k], [5, 12], [0, 0]]
    y.backward()
    assert tell(x.grad) == [[48, 75]] and n.grad is None
    with pytest.raises(MXNetError, match="no inputs in computation graph that require gradients"):
        recorded(lambda: leaf([1], "null") * 2).backward()


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 40])
def test_a_gradient_of_many_parts_keeps_few(n):
    x = leaf([1, 2])
    y = recorded(lambda: nd.concat(*[x * (k + 1) for k in range(n)], dim=0))
    nd.waitall()
    with instrument.listening(Pushed()) as pushed:
        y.backward()
    total = n * (n + 1) / 2
    assert tell(x.grad) == [[total, total]]
    # Eight parts become one; what is left is summed into `grad`.
    assert sum(name in ("add_n", "elemwise_add") for name in pushed.names) == -(-(n - 1) // 7)


def test_outputs_without_a_gradient():
    x, z = leaf([[1, 2, 3, 4]]), leaf([5])
    x.grad[:] = z.grad[:] = 9
    a, b = recorded(lambda: nd.split(x, 2, axis=1))
    b.backward()
    assert tell(x.grad, z.grad) == [[[0, 0, 1, 1]], [9]] and a.shape == (1, 2)
    y = recorded(lambda: nd.argmax(x, axis=1) * z)
    y.backward()
    assert tell(x.grad, z.grad) == [[[0] * 4], [3]]
    y = recorded(lambda: sum(nd.split(nd.BlockGrad(x), 2, axis=1)))
    y.backward()
    assert tell(x.grad) == [[[0] * 4]]


# -- grad ------------------------------------------------------------------------------------------


def test_grad_gives_new_arrays_and_writes_none():
    x, z = leaf([1, 2]), leaf([3, 4])
    x.grad[:] = z.grad[:] = 9
    y, w = recorded(lambda: (x * z, x * 2))
    assert tell(*autograd.grad(y, x, retain_graph=True)) == [[3, 4]]
    assert tell(*autograd.grad([y, w], [z, x, w], [None, nd.array([5, 6])], retain_graph=True)) == [
        [1, 2], [13, 16], [5, 6],
    ]  # fmt: skip
    first, second = autograd.grad(w, [x, x], retain_graph=True)
    first[:] = 0
    assert tell(second, x.grad, z.grad) == [[2, 2], [9, 9], [9, 9]]
    for variables, error, says in [
        ([], AssertionError, "variables cannot be an empty list"),
        ([x, nd.ones(3)], MXNetError, r"variable 1 of shape \(3,\) is not on the tape; call"),
        ([leaf([1], "null")], MXNetError, r"variable 0 of shape \(1,\) is not on the tape"),
        ([x, z], MXNetError, r"variable 1 of shape \(2,\) is unreachable from the outputs"),
    ]:
        with pytest.raises(error, match=says):
            autograd.grad(w, variables)
    assert tell(*autograd.grad(w, [x])) == [[2, 2]]  # by default used up, but for create_graph
    with pytest.raises(MXNetError, match="used up"):
        autograd.grad(w, [x])


def test_gradients_of_gradients():
    x, z = leaf([2, 3]), leaf([1, 1])
    y = recorded(lambda: x * x * x * z)
    with autograd.record():
        (g,) = autograd.grad(y, x, create_graph=True)
        (h,) = autograd.grad(g, [x], create_graph=True, retain_graph=True)
        (flat,) = autograd.grad(nd.sign(x), x, create_graph=True)
    assert tell(g, h, flat) == [[12, 27], [12, 18], [0, 0]]
    recorded(lambda: g + flat).backward()
    assert tell(x.grad, z.grad) == [[12, 18], [12, 27]]
    (alone,) = autograd.grad(recorded(lambda: x * z), x)
    assert alone._node is None


def test_np_arrays_are_given_np_gradients():
    x = np_arrays.array([1.0, 2.0])
    x.attach_grad()
    y = recorded(lambda: x * x * 2)
    (g,) = autograd.grad(y, [x], np_arrays.array([1.0, 10.0]), retain_graph=True)
    y.backward()
    assert type(g) is type(x.grad) is np_arrays.ndarray and tell(g, x.grad) == [[4, 80], [4, 8]]


def test_mark_variables():
    x, z, g, h = nd.ones(2), nd.ones(2), nd.full(2, 5), nd.full(2, 5)
    autograd.mark_variables(x, g, "add")
    recorded(lambda: x * 3).backward()
    assert x.grad is g and tell(g) == [[8, 8]]
    autograd.mark_variables([x, z], [g, h], ["write", "null"])
    recorded(lambda: x * z * 3).backward(retain_graph=True)
    assert tell(g, h) == [[3, 3], [5, 5]] and z.grad is h
    for gradients, reqs in (([g, nd.ones(3)], "write"), ([g, h], ["add", "sum"]), ([g], "add")):
        with pytest.raises((MXNetError, ValueError)):
            autograd.mark_variables([x, z], gradients, reqs)
    recorded(lambda: x * 3).backward()
    assert tell(g) == [[3, 3]]  # "write", still


# -- Function --------------------------------------------------------------------------------------


class Swapped(autograd.Function):
    """(a, b) -> results(a, b), with gradients(self, *gs); notes what it sees."""

    def __init__(self, results=lambda a, b: (a * b, a), gradients=None):
        self.results, self.gradients, self.seen = results, gradients, []

    def forward(self, a, b):
        self.seen.append((autograd.is_recording(), autograd.is_training()))
        self.save_for_backward(a, None, b, 5)
        return self.results(a, b)

    def backward(self, *gs):
        a, nothing, b, five = self.saved_tensors
        self.seen.append((nothing, five, *tell(a, b, *gs)))
        return self.gradients(*gs) if self.gradients else (gs[0] * b, None)


def test_a_function_is_called_and_asked_back():
    a, b = leaf([1, 2]), leaf([3, 4])
    b.grad[:] = 9
    function = Swapped()
    assert tell(*function(a, b)) == [[3, 8], [1, 2]] and len(function.saved_tensors) == 4
    with autograd.record(train_mode=False):
        c = a * 1
        y, same = function(c, b)
    assert type(function(a, b)) is tuple and same is not c
    assert function.seen == [(False, False)] * 3
    c[:] = 100  # what it has saved is as it was
    y.backward()
    assert function.seen[3:] == [(None, 5, [1, 2], [3, 4], [1, 1], [0, 0])]
    assert tell(a.grad, b.grad) == [[3, 4], [0, 0]] and function.saved_tensors == ()
    with autograd.train_mode():
        function(a, b)
    assert function.seen[-1] == (False, True)
    listed = Swapped(lambda a, b: [a + b])
    assert [tell(*y) for y in (listed(a, b), recorded(listed, a, b))] == [[[4, 6]]] * 2
    constant = recorded(Swapped(lambda a, b: a), nd.ones(2), nd.ones(2))
    assert constant._node is None


def test_what_a_function_refuses():
    a = leaf([1, 2])
    for call, error, says in [
        (lambda: Swapped()(a, 3), TypeError, "Swapped: input 1 must be an NDArray, got int; give"),
        (lambda: Swapped(lambda a, b: (a, 3))(a, a), TypeError, "forward must return NDArrays"),
        (lambda: autograd.Function()(a), NotImplementedError, "Function defines no forward"),
        (lambda: autograd.grad(Swapped()(a, a)[0], a, create_graph=True), MXNetError,
         "Swapped: create_graph=True goes through no autograd.Function"),
    ]:  # fmt: skip
        with pytest.raises(error, match=says):
            recorded(call)
