"""The programs that d2lmini answers in another way than MXNet 1.9.1, and why: all of them.

A line below a reason is a program, or a piece that only such programs have; \\n ends a line.
"""

from __future__ import annotations

REASONS = {
    "a second derivative, which MXNet refuses for many operations": r"""
y = x * x * x
    y = x * 2\n    dx = autograd.grad(y, x, create_graph
    y = x + 2\n    dx
    y = x.sum()\n    dx
    y = nd.dot(x, w)\n    dx
dx = autograd.grad(y, x, head_grads=x,
y = nd.relu(a) * nd.relu(b)
    y = a * b
y = nd.abs(a) + nd.clip(a
y = nd.Activation(x, act_type='relu')
y = nd.LeakyReLU(x, slope=0.1)
y = nd.cast(x, dtype='float64')
y = nd.degrees(x
y = nd.erf(x
y = nd.erfinv(x
y = nd.expand_dims(x, axis=0)
y = nd.flatten(x
y = nd.flip(x
y = nd.gamma(x
y = nd.gammaln(x
y = nd.hard_sigmoid(x
y = nd.log_softmax(x
y = nd.max(x
y = nd.mean(x
y = nd.min(x
y = nd.norm(x)\n    dx
y = nd.prod(x)\n    dx
y = nd.repeat(x
y = nd.reshape(x, shape=(3, 1))
y = nd.sign(x
y = nd.smooth_l1(x, scalar=2)
y = nd.softmax(x
y = nd.softmin(x
y = nd.softsign(x
y = nd.sort(x)\n    dx
y = nd.squeeze(x
y = nd.sum(x
y = nd.tile(x
# of MakeLoss
# of identity
# of negative
# of transpose
""",
    "MXNet's derivative is wrong: the sign of the second one, nan beside a 0 in `prod`, the value in "
    "place of the gradient of the output (`SoftmaxOutput(out_grad=True)`), -1 for an error of 0": r"""
y = nd.arcsinh(x
y = nd.arccosh(x
y = nd.prod(x)\ny.backward()
out_grad=True)\ny.backward
nd.MAERegressionOutput(x, nd.array([[0, 2]
""",
    "an error that names both shapes, where MXNet reads beyond the end or leaves the rest 0": r"""
y.backward(nd.ones((3, 2)))
y.backward(nd.ones((1, 3)))
autograd.mark_variables([x], [nd.zeros(3)])
""",
    "gradients of any value on the tape, of none, and of a sorted vector": r"""
autograd.grad(z, [x, y])
autograd.grad([], [])
y = nd.sort(x)\ny.backward
""",
    "an error for what MXNet ignores, or takes by accident": r"""
nd.relu(nd.ones(2), nonsense=3)
nd.relu(nd.ones(2), nd.ones(2))
nd.zeros_like(nd.ones((2, 3)), stype='default')
x = nd.zeros((2, 3)); x[:] = None
return a.asnumpy() * 2
x = nd.ones(2); x.attach_grad('null'); x.grad
""",
    "an error with a sentence, where MXNet's is of another class: `assert`, a missing key or "
    "attribute": r"""
sym.var('x', stype='nonsense')
x = nd.ones(2); x.attach_grad('nonsense')
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(2)], 'nonsense')
autograd.backward([a, b], [nd.array([10, 20])])
autograd.backward([a, b], [nd.ones(2), nd.ones(2), nd.ones(2)])
autograd.backward([a, b], nd.ones(2))
nd.relu(3)
nd.relu([1, 2])
nd.relu(np.ones(2))
nd.array([1, 2], dtype='complex64')
nd.array([nd.ones(2), nd.ones(3)])
nd.full((2,), 'a')
nd.concatenate([nd.ones((2, 3)), nd.ones((2, 1))], axis=0).shape
nd.concatenate([])
nd.concatenate([nd.ones(2), nd.ones(2, dtype='int32')])
nd.concatenate(nd.ones((2, 3)))
len(nd.array(5))
float(nd.ones(2))
nd.ones(2).item()
nd.from_numpy(np.ones(3, dtype='complex64'))
nd.from_numpy([1, 2, 3])
nd.relu(x, out=np.zeros(3))
nd.ones((2, 3)).reshape()
nd.array([[1, 2], [3, 4]]).take([1])
nd.ones((2, 3)).broadcast_to((3, 3))
nd.where(nd.array([1, 0]), 1, 0)
nd.random.uniform(nd.zeros(2), 1)
tu.assert_almost_equal(np.ones((2, 3)), np.ones(2))
tu.assert_almost_equal(nd.ones(2), 'a')
tu.assert_almost_equal(nd.ones(2), None)
tu.rand_ndarray((2, 3), 'nonsense')
tu.random_sample([1], 2)
tu.environment().__enter__()
""",
    "NumPy's functions see an NDArray as the array that it is": r"""
np.array(nd.ones((2, 3))).shape
np.asarray(nd.ones(2, dtype='int32')).dtype
np.asarray(nd.ones(2), dtype='int32').dtype
np.exp(nd.zeros(2))
np.add(nd.ones(2), 1)
np.stack([nd.ones(2), nd.zeros(2)])
np.concatenate([nd.ones(2), nd.zeros(2)])
np.testing.assert_allclose(nd.ones(2), np.ones(2))
np.array_equal(nd.ones(2), np.ones(2))
np.allclose(nd.ones(2), np.ones(2))
""",
    "masks of NumPy select, where MXNet counts True as 1": r"""
x = nd.arange(6).reshape((2, 3)); x[np.array([True, False])]
x = nd.arange(6).reshape((2, 3)); x[[True, False]]
x = nd.arange(6).reshape((2, 3)); x[x.asnumpy() > 2]
x = nd.zeros((2, 3)); x[np.array([True, False])] = 7; x
x[np.zeros((2, 3), dtype=bool)]
x[x.asnumpy() > 20]
""",
    "arrays without axes or elements": r"""
nd.arange(0)
nd.arange(3, 0)
x = nd.arange(6).reshape((2, 3)); x[[]]
x = nd.array(5); x[:] = 3; x
x = nd.array(5); x[()] = 3; x
nd.random.randn().shape
""",
    "overlapping parts are read before they are written": r"""
x = nd.arange(5); x[1:] = x[:-1]; x
""",
    "methods, operators and arguments that came after MXNet 1.9, or that programs expect": r"""
+nd.array([1, -2])
float(nd.array([3])), int(nd.array([3.7]))
list(range(5))[nd.array([2], dtype='int32')]
nd.array([[3]]).asscalar()
nd.array([3]).item()
nd.ones(2).tolist()
nd.ones(2).as_in_ctx(mx.cpu(1)).context
nd.hypot(nd.array([3]), nd.array([4]))
nd.add(x, 1, out=out) is out
x.copyto(x)
nd.dot(nd.ones((2, 3), dtype='int32'), nd.ones((3, 2), dtype='int32'))
nd.batch_take(nd.array([[1, 2], [3, 4]]), nd.array([1, 0]))
nd.array([nd.ones(2), nd.zeros(2)])
nd.array([[nd.ones(2), nd.zeros(2)], [nd.ones(2), nd.ones(2)]])
nd.array([nd.ones(1), nd.zeros(1)])
nd.array([nd.ones(2, dtype='int32'), nd.zeros(2, dtype='int32')]).dtype
nd.array([nd.ones(2), [3, 4]])
nd.array((nd.ones(2), nd.zeros(2)), dtype='int32')
nd.concat(nd.ones((1, 2)), nd.ones((1, 2)), 0)
nd.concat([nd.ones((1, 2)), nd.ones((1, 2))], dim=0)
nd.stack([nd.ones(2), nd.ones(2)])
nd.sparse.empty('default', (2, 3)).shape
nd.sparse.empty('default', (2, 3), dtype='float16').dtype
nd.sparse.array([[1, 2], [3, 4]])
nd.sparse.array(nd.ones((2, 3)))
nd.sparse.array(np.ones((2, 3)))
nd.sparse.array(nd.ones((2, 3)), dtype='int32')
""",
    "checks of `test_utils` that take lists, NDArrays, float64 and shapes that differ": r"""
tu.get_tols([1.0], [2.0], None, None)
tu.effective_dtype(3.0)
tu.almost_equal(nd.ones(2), nd.ones(2) + 1e-5)
tu.almost_equal(np.ones(2), np.ones(3))
tu.almost_equal(np.ones((2, 3)), np.ones(3), use_broadcast=False)
tu.assert_almost_equal([1, 2], [1, 2])
tu.assert_almost_equal((1.0, 2.0), [1.0, 2.0])
sorted(tu.random_sample(range(5), 5))
tu.check_symbolic_forward(sym.var('x') * 2, [np.ones(2)], [np.ones(2) * 2], dtype='float64')
[np.array([0.1, 0.2])], rtol=1e-2, atol=1e-3, dtype='float64')
""",
    "an op is one object under all its names, and its signature has the inputs that it requires": r"""
nd.Cast.__name__, nd.cast.__name__
nd.flatten.__name__, nd.Flatten.__name__
nd.split.__name__, nd.SliceChannel.__name__
nd.linalg.gemm2.__name__, nd.linalg_gemm2.__name__
nd.contrib.div_sqrt_dim.__name__
sym.maximum.__name__, sym.pow.__name__, sym.zeros.__name__
nd.NDArray.sum.__qualname__
list(inspect.signature(nd.concat).parameters)
list(inspect.signature(sym.FullyConnected).parameters)
list(inspect.signature(nd.random_uniform).parameters)
list(inspect.signature(nd.from_numpy).parameters)
inspect.isfunction(nd.relu), inspect.isroutine(nd.relu)
[p.default for p in __import__('inspect').signature(nd.relu).parameters.values()][:1]
    act = nd.identity
""",
    "a pickle keeps the context, and holds a NumPy array": r"""
x = nd.ones(2, ctx=mx.cpu(1))\npickle
sorted(x.__getstate__())
type(x.__getstate__()['handle']).__name__
""",
    "MXNet's inner names": r"""
nd.ones(2).handle is not None
nd.ones(2).writable
""",
}


PIECES = {
    piece.replace(r"\n", "\n"): reason
    for reason, text in REASONS.items()
    for piece in text.strip("\n").split("\n")
}


def reason_of(program: str) -> str | None:
    """Why d2lmini answers this program in another way; None if it answers as MXNet does."""
    return next((PIECES[piece] for piece in PIECES if piece in program), None)
