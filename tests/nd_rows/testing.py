"""`mxnet.test_utils`: its functions, and unit tests written with them."""

LINES = """
tu.default_context()
tu.default_dtype()
tu.default_rtols()[np.dtype('float32')], tu.default_atols()[np.dtype('float32')]
tu.default_rtols()[np.dtype('float64')], tu.default_atols()[np.dtype('float64')]
tu.default_rtols()[np.dtype('float16')], tu.default_atols()[np.dtype('float16')]
tu.default_rtols()[np.dtype('int32')], tu.default_atols()[np.dtype('bool')]
tu.default_numeric_eps()[np.dtype('float32')], tu.default_numeric_eps()[np.dtype('float64')]
tu.get_rtol(), tu.get_atol(), tu.get_etol()
tu.get_rtol(0.5), tu.get_atol(0.25), tu.get_etol(0.1)
tu.get_rtol(None, np.dtype('float16'))
tu.get_tols(np.ones(2, 'float32'), np.ones(2, 'float64'), None, None)
tu.get_tols(nd.ones(2), np.ones(2, 'float16'), None, None)
tu.get_tols(1.0, 2.0, None, None)
tu.get_tols([1.0], [2.0], None, None)
tu.get_tols(np.ones(2), np.ones(2), 0.1, None)
tu.get_tolerance(np.ones(2), None, tu.default_rtols())
tu.get_tolerance(np.ones(2), {np.dtype('float64'): 0.5}, tu.default_rtols())
tu.effective_dtype(nd.ones(2)), tu.effective_dtype(np.ones(2, 'int32'))
tu.effective_dtype(3.0)
tu.same(np.ones(2), np.ones(2)), tu.same(np.ones(2), np.zeros(2))
tu.same(np.ones(2), np.ones(3))
tu.same(nd.ones(2), nd.ones(2))
tu.same(np.array([np.nan]), np.array([np.nan]))
x = nd.ones(3); tu.same_array(x, x)
x = nd.ones(3); tu.same_array(x, x.copy())
x = nd.ones(3); tu.same_array(x, x.reshape((3, 1)))
tu.almost_equal(np.ones(2), np.ones(2) + 1e-9)
tu.almost_equal(np.ones(2), np.ones(2) + 1e-3)
tu.almost_equal(nd.ones(2), nd.ones(2) + 1e-5)
tu.almost_equal(np.ones(2), np.ones(3))
tu.almost_equal(np.ones((2, 3)), np.ones(3))
tu.almost_equal(np.ones((2, 3)), np.ones(3), use_broadcast=False)
tu.almost_equal(np.array([np.nan]), np.array([np.nan]))
tu.almost_equal(np.array([np.nan]), np.array([np.nan]), equal_nan=True)
tu.almost_equal(np.ones(2), np.ones(2) * 1.1, rtol=0.2)
tu.almost_equal(np.ones(2), np.ones(2) * 1.1, 0, 0.2)
tu.almost_equal(1.0, 1.0 + 1e-9)
tu.assert_almost_equal(np.ones(2), np.ones(2))
tu.assert_almost_equal(np.ones(2), np.ones(2) + 1)
tu.assert_almost_equal(nd.ones(2), np.ones(2), 1e-3, 1e-3, ('a', 'b'))
tu.assert_almost_equal(nd.ones(2), nd.ones(2) + 1, names=('mine', 'yours'))
tu.assert_almost_equal([1, 2], [1, 2])
tu.assert_almost_equal((1.0, 2.0), [1.0, 2.0])
tu.assert_almost_equal(1, 1.0)
tu.assert_almost_equal(1, 2)
tu.assert_almost_equal(np.ones((2, 3)), np.ones(3))
tu.assert_almost_equal(np.ones((2, 3)), np.ones(3), use_broadcast=False)
tu.assert_almost_equal(np.ones((2, 3)), np.ones(2))
tu.assert_almost_equal(np.array([1, np.nan]), np.array([1, np.nan]))
tu.assert_almost_equal(np.array([1, np.nan]), np.array([1, np.nan]), equal_nan=True)
tu.assert_almost_equal(np.array([1, np.inf]), np.array([1, np.inf]))
tu.assert_almost_equal(nd.ones(2, dtype='int32'), np.ones(2, 'int32'))
tu.assert_almost_equal(nd.ones(2, dtype='int32'), np.ones(2, 'int32') * 2)
tu.assert_almost_equal(np.zeros(0), np.zeros(0))
tu.assert_almost_equal(np.ones(2), np.ones(2) + 1e-3, rtol={np.dtype('float64'): 0.1}, atol={np.dtype('float64'): 0.1})
tu.assert_almost_equal(nd.ones(2), 'a')
tu.assert_almost_equal(nd.ones(2), None)
tu.assert_almost_equal(np.ones(2, 'float16'), np.ones(2, 'float32') * 1.001)
tu.assert_almost_equal_with_err(np.ones(4), np.array([1, 1, 1, 5.]), etol=0.3)
tu.assert_almost_equal_with_err(np.ones(4), np.array([1, 1, 5, 5.]), etol=0.3)
tu.assert_almost_equal_with_err(np.ones(4), np.ones(4))
tu.assert_almost_equal_ignore_nan(np.array([1, np.nan]), np.array([1, 3.]))
tu.assert_almost_equal_ignore_nan(np.array([1, np.nan]), np.array([2, 3.]))
tu.assert_allclose(np.ones(2), np.ones(2))
tu.assert_allclose(np.ones(2), np.ones(2) * 1.01)
tu.assert_allclose(nd.ones(2), nd.ones(2), rtol=1e-3, atol=1e-3)
tu.assert_exception(nd.dot, mx.MXNetError, nd.ones(2), nd.ones(3))
tu.assert_exception(nd.relu, mx.MXNetError, nd.ones(2))
tu.assert_exception(lambda: 1 / 0, ValueError)
tu.assert_exception(lambda: 1 / 0, ZeroDivisionError)
tu.assert_exception(lambda x=1: 1 / 0, (ValueError, ZeroDivisionError), x=3)
tu.compare_ndarray_tuple((nd.ones(2), None), (nd.ones(2), None))
tu.compare_ndarray_tuple((nd.ones(2), (nd.ones(1),)), (nd.ones(2), (nd.ones(1),)))
tu.compare_ndarray_tuple(nd.ones(2), nd.zeros(2))
tu.compare_ndarray_tuple(None, None)
tu.compare_ndarray_tuple(nd.ones(2), nd.ones(2) * 1.01, 0.1, 0.1)
tu.compare_optimizer(mx.optimizer.SGD(), mx.optimizer.SGD(), (3, 4), np.float32)
tu.compare_optimizer(mx.optimizer.SGD(momentum=0.9), mx.optimizer.SGD(momentum=0.9), (3, 4), np.float32)
tu.compare_optimizer(mx.optimizer.Adam(), mx.optimizer.Adam(), (3, 4), np.float32)
tu.compare_optimizer(mx.optimizer.SGD(learning_rate=0.1), mx.optimizer.SGD(learning_rate=0.5), (3, 4), np.float32)
tu.compare_optimizer(mx.optimizer.SGD(), mx.optimizer.SGD(), [(3, 4), (2,)], np.float32, ntensors=2)
tu.compare_optimizer(mx.optimizer.SGD(), mx.optimizer.SGD(), (3, 4), 'float32', 'default', 'default', compare_states=False)
tu.rand_ndarray((2, 3)).shape, tu.rand_ndarray((2, 3)).dtype
tu.rand_ndarray((2, 3), 'default').stype
tu.rand_ndarray((2, 3), dtype='float64').dtype
tu.rand_ndarray((2, 3), 'default', None, 'float16').dtype
tu.rand_ndarray((2, 3), ctx=mx.cpu(1)).context
tu.rand_ndarray((2, 3), modifier_func=lambda v: 7)
tu.rand_ndarray((2, 3), distribution='uniform').shape
tu.rand_ndarray((2, 3), 'nonsense')
len(tu.rand_shape_2d()), max(tu.rand_shape_2d(3, 4)) <= 4
len(tu.rand_shape_3d(2, 2, 2)), max(tu.rand_shape_3d(2, 2, 2)) <= 2
len(tu.rand_shape_nd(5)), int(max(tu.rand_shape_nd(5, dim=3))) <= 3
type(tu.rand_shape_nd(3)).__name__, type(tu.rand_shape_2d()).__name__
tu.rand_shape_nd(0)
list(map(int, tu.rand_shape_nd(num_dim=2, dim=1, allow_zero_size=False)))
tu.rand_shape_2d(dim0=1, dim1=1)
list(map(int, tu.rand_coord_2d(1, 2, 3, 4)))
tu.random_arrays((2, 3)).shape, tu.random_arrays((2, 3)).dtype
[a.shape for a in tu.random_arrays((2, 3), (4,))]
type(tu.random_arrays(()))
[a.shape for a in tu.random_uniform_arrays((2, 3), (4,))]
tu.random_uniform_arrays((2, 3), low=1, high=2, dtype='float64')[0].dtype
tu.random_uniform_arrays((100,), low=1, high=2)[0].min() >= 1
sorted(tu.random_sample([1, 2, 3], 3))
sorted(tu.random_sample(range(5), 5))
tu.random_sample([1], 2)
tu.create_vector(4)
tu.create_vector(4, dtype='float32')
tu.create_2d_tensor(2, 3)
tu.create_2d_tensor(rows=2, columns=2, dtype=np.int32)
tu.assign_each(np.array([1., 2.]), lambda v: v * 2)
tu.assign_each(np.array([1., 2.]), None)
tu.assign_each2(np.array([1., 2.]), np.array([3., 4.]), lambda a, b: a * b)
tu.np_reduce(np.ones((2, 3)), 1, False, np.sum)
tu.np_reduce(np.ones((2, 3)), (0, 1), True, np.sum)
tu.np_reduce(np.ones((2, 3)), None, False, np.sum)
tu.collapse_sum_like(np.ones((2, 3)), (1, 3))
tu.collapse_sum_like(np.ones((4, 2, 3)), (2, 1))
list(tu.list_gpus())
tu.is_cd_run()
tu.is_aarch64_run()
tu.has_tvm_ops()
tu.is_op_runnable()
tu.get_identity_mat(3)
tu.get_identity_mat_batch(2).shape
tu.checkShapes((2, 3), (2, 3))
tu.checkShapes(np.ones((2, 3)), np.ones((2, 3)))
tu.locationError(np.ones((2, 3)), np.zeros((2, 3)), (1, 2), ('a', 'b'))
tu.new_matrix_with_real_eigvals_2d(3).shape
tu.new_matrix_with_real_eigvals_nd((2, 3, 3)).shape
tu.new_orthonormal_matrix_2d(3).shape
q = tu.new_orthonormal_matrix_2d(3); tu.assert_almost_equal(np.dot(q, q.T), np.eye(3), 1e-4, 1e-4)
m = tu.new_sym_matrix_with_real_eigvals_2d(3); tu.assert_almost_equal(m, m.T, 1e-4, 1e-4)
tu.new_sym_matrix_with_real_eigvals_nd((2, 3, 3)).shape
m = tu.new_matrix_with_real_eigvals_2d(4); np.abs(np.linalg.eigvals(m).imag).max() < 1e-3
tu.same_symbol_structure(sym.var('x') + 1, sym.var('y') + 1)
tu.same_symbol_structure(sym.var('x') + 1, sym.exp(sym.var('x')))
tu.simple_forward(sym.var('x') * 2, x=np.ones(2))
tu.simple_forward(sym.var('x') * 2, mx.cpu(), False, x=np.ones(2))
tu.simple_forward(sym.split(sym.var('x'), num_outputs=2, axis=0), x=np.arange(4.))
tu.simple_forward(sym.Dropout(sym.var('x'), p=0.5), is_train=False, x=np.ones(4))
tu.check_symbolic_forward(sym.var('x') * 2, [np.ones(2)], [np.ones(2) * 2])
tu.check_symbolic_forward(sym.var('x') * 2, [np.ones(2)], [np.ones(2) * 3])
tu.check_symbolic_forward(sym.var('x') * 2, {'x': np.ones(2)}, [np.ones(2) * 2], rtol=1e-3, atol=1e-3)
tu.check_symbolic_forward(sym.var('x') * 2, {'y': np.ones(2)}, [np.ones(2) * 2])
tu.check_symbolic_forward(sym.var('x') + sym.var('y'), [np.ones(2)], [np.ones(2) * 2])
tu.check_symbolic_forward(sym.var('x') * 2, [nd.ones(2)], {'_mulscalar0_output': np.ones(2) * 2})
tu.check_symbolic_forward(sym.sqrt(sym.var('x')), [np.array([-1., 4.])], [np.array([np.nan, 2.])], equal_nan=True)
tu.check_symbolic_forward(sym.var('x') * 2, [np.ones(2)], [np.ones(2) * 2], dtype='float64')[0].dtype
tu.check_symbolic_backward(sym.var('x') * 2, [np.ones(2)], [np.ones(2)], [np.ones(2) * 2])
tu.check_symbolic_backward(sym.var('x') * 2, [np.ones(2)], [np.ones(2)], [np.ones(2) * 3])
tu.check_symbolic_backward(sym.var('x') * 2, [np.ones(2)], [np.ones(2)], {'x': np.ones(2) * 2})
tu.check_symbolic_backward(sym.var('x') * 2, {'x': np.ones(2)}, [np.ones(2)], {'x': np.ones(2) * 2}, grad_req='add')
tu.check_symbolic_backward(sym.var('x') * sym.var('y'), {'x': np.ones(2), 'y': np.ones(2)}, [np.ones(2)], {'x': np.ones(2)}, grad_req={'x': 'write', 'y': 'null'})
tu.check_symbolic_backward(sym.var('x') * sym.var('y'), [np.ones(2), np.ones(2) * 2], [np.ones(2)], [np.ones(2) * 2, np.ones(2)], grad_req=['write', 'write'])
sorted(tu.check_symbolic_backward(sym.var('x') * 2, [np.ones(2)], [np.ones(2)], [np.ones(2) * 2]))
tu.check_numeric_gradient(sym.tanh(sym.var('x')), [np.array([0.1, 0.2])])
tu.check_numeric_gradient(sym.tanh(sym.var('x')), {'x': np.array([0.1, 0.2])}, numeric_eps=1e-3, rtol=1e-2)
tu.check_numeric_gradient(sym.tanh(sym.var('x')), [np.array([0.1, 0.2])], rtol=1e-2, atol=1e-3, dtype='float64')
tu.check_numeric_gradient(sym.BlockGrad(sym.tanh(sym.var('x'))), [np.array([0.1, 0.2])])
tu.check_numeric_gradient(sym.tanh(sym.var('x')) * sym.var('y'), [np.array([0.1, 0.2]), np.array([3., 4.])], grad_nodes=['x'], rtol=1e-2)
tu.check_numeric_gradient(sym.FullyConnected(sym.var('x'), num_hidden=2, name='f'), [np.ones((2, 3)), np.ones((2, 3)), np.ones(2)], rtol=1e-2, atol=1e-3)
tu.check_numeric_gradient(sym.BatchNorm(sym.var('x'), name='b', fix_gamma=False), [np.array([[1., 2.], [3., 5.]]), np.ones(2), np.ones(2)], [np.zeros(2), np.ones(2)], numeric_eps=1e-2, rtol=0.2, atol=1e-2)
tu.check_consistency(sym.tanh(sym.var('x')), [{'ctx': mx.cpu(0), 'x': (2, 3)}, {'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float64}}]) is not None
tu.check_consistency(sym.tanh(sym.var('x')), [{'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float32}}, {'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float16}}]) is not None
tu.check_consistency([sym.tanh(sym.var('x'), name='t'), sym.tanh(sym.var('x'), name='t')], [{'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float32}}] * 2) is not None
tu.check_consistency(sym.FullyConnected(sym.var('x'), num_hidden=2, name='f'), [{'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float32}}] * 2, scale=0.5, grad_req='add') is not None
tu.check_consistency([sym.tanh(sym.var('x')), sym.exp(sym.var('x'))], [{'ctx': mx.cpu(0), 'x': (2, 3), 'type_dict': {'x': np.float32}}] * 2)
tu.check_speed(sym.tanh(sym.var('x')), {'x': np.ones((2, 2))}, mx.cpu(), 2, 'write', 'whole') > 0
tu.check_speed(sym.tanh(sym.var('x')), N=2, typ='forward', x=(2, 2)) > 0
tu.check_speed(sym.tanh(sym.var('x')), N=2, typ='nonsense', x=(2, 2))
tu.check_speed(sym.tanh(sym.var('x')), N=2, x=(2, 2), grad_req='write') > 0
tu.download('http://localhost:1/nothing', dirname='.', retries=1)
tu.download('http://localhost:1/nothing', 'nothing', retries=0)
tu.mean_check(lambda n: np.random.normal(0, 1, n), 0, 1, nsamples=1000)
tu.mean_check(lambda n: np.random.normal(5, 1, n), 0, 1, nsamples=1000)
tu.var_check(lambda n: np.random.normal(0, 1, n), 1, nsamples=1000)
tu.var_check(lambda n: np.random.normal(0, 3, n), 1, nsamples=1000)
tu.gen_buckets_probs_with_ppf(lambda q: q * 2, 4)
tu.retry(0)
tu.environment('A_SWITCH', 3).__enter__()
tu.environment().__enter__()
"""

PROGRAMS = """
import os
with tu.environment('A_SWITCH', '1'):
    a = os.environ['A_SWITCH']
a, 'A_SWITCH' in os.environ

import os
with tu.environment({'A_SWITCH': '1', 'B_SWITCH': None}):
    a = os.environ['A_SWITCH'], 'B_SWITCH' in os.environ
a

import os
os.environ['A_SWITCH'] = 'old'
with tu.environment('A_SWITCH', None):
    a = 'A_SWITCH' in os.environ
b = os.environ.pop('A_SWITCH')
a, b

import os
try:
    with tu.environment('A_SWITCH', '1'):
        raise ValueError
except ValueError:
    pass
'A_SWITCH' in os.environ

tu.set_default_context(mx.cpu(1))
a = tu.default_context(), nd.ones(1).context
a

count = []
@tu.retry(3)
def test():
    count.append(1)
    assert len(count) == 2
test()
len(count)

count = []
@tu.retry(3)
def test():
    count.append(1)
    assert False
try:
    test()
except AssertionError:
    pass
len(count)

@tu.retry(3)
def test_name():
    raise ValueError
test_name.__name__, test_name()

@tu.retry(2)
def test(a, b=2):
    assert (a, b) == (1, 3)
test(1, b=3)

import sys
with tu.discard_stderr():
    print('nothing to see', file=sys.stderr)

net = gluon.nn.Dense(2)
net.initialize()
it = tu.DummyIter(mx.io.NDArrayIter(np.ones((4, 2)), np.ones(4), batch_size=2))
a, b = it.next(), it.next()
a is b, a.data[0].shape

x = sym.var('x')
exe = sym.square(x).bind(mx.cpu(), {'x': nd.array([3., 4.])}, {'x': nd.zeros(2)})
grads = tu.numeric_grad(exe, {'x': np.array([3., 4.], 'float32')}, eps=1e-2)
tu.assert_almost_equal(grads['x'], np.array([6., 8.]), 1e-2, 1e-2)

def test_relu():
    data = sym.var('data')
    test = sym.relu(data)
    x = np.array([[-1, 2], [3, -4]], 'float32')
    tu.check_symbolic_forward(test, [x], [np.maximum(x, 0)])
    tu.check_symbolic_backward(test, [x], [np.ones_like(x)], [(x > 0).astype('float32')])
    tu.check_numeric_gradient(test, [x], numeric_eps=1e-3, rtol=1e-2)
test_relu()

def test_dot():
    for shape in [((2, 3), (3, 4)), ((1, 2), (2, 1))]:
        a, b = (np.random.uniform(-1, 1, s).astype('float32') for s in shape)
        c = nd.dot(nd.array(a), nd.array(b))
        tu.assert_almost_equal(c, a.dot(b), rtol=1e-4, atol=1e-5)
test_dot()

def test_elementwise_sum():
    shape = tu.rand_shape_nd(3, 5)
    inputs = [sym.var('arg%d' % i) for i in range(3)]
    out = sym.ElementWiseSum(*inputs, name='esum')
    arrays = [np.random.uniform(-1, 1, shape).astype('float32') for _ in range(3)]
    tu.check_symbolic_forward(out, arrays, [sum(arrays)])
    tu.check_numeric_gradient(out, arrays, rtol=1e-2, atol=1e-3)
test_elementwise_sum()

def test_slice_channel():
    data = sym.var('data')
    op = sym.SliceChannel(data, num_outputs=2, axis=1)
    x = np.random.uniform(-1, 1, (2, 4)).astype('float32')
    tu.check_symbolic_forward(op, [x], [x[:, :2], x[:, 2:]])
    g = [np.ones((2, 2)), np.ones((2, 2)) * 2]
    tu.check_symbolic_backward(op, [x], g, [np.concatenate(g, axis=1)])
test_slice_channel()

def test_concat():
    a, b = sym.var('a'), sym.var('b')
    out = sym.concat(a, b, dim=0)
    x, y = np.ones((2, 3)), np.zeros((1, 3))
    tu.check_symbolic_forward(out, [x, y], [np.concatenate([x, y])])
    tu.check_symbolic_backward(out, {'a': x, 'b': y}, [np.ones((3, 3))], {'a': np.ones((2, 3)), 'b': np.ones((1, 3))})
test_concat()

def test_regression():
    data, label = sym.var('data'), sym.var('label')
    out = sym.LinearRegressionOutput(data, label)
    x, y = np.random.uniform(-1, 1, (3, 2)), np.random.uniform(-1, 1, (3, 2))
    exe = out.simple_bind(mx.cpu(), data=(3, 2), label=(3, 2))
    exe.arg_dict['data'][:], exe.arg_dict['label'][:] = x, y
    exe.forward(is_train=True)
    exe.backward()
    tu.assert_almost_equal(exe.outputs[0], x.astype('float32'))
    tu.assert_almost_equal(exe.grad_dict['data'], ((x - y) / 2).astype('float32'), 1e-4, 1e-5)
test_regression()

def test_softmax_output():
    data, label = sym.var('data'), sym.var('label')
    out = sym.SoftmaxOutput(data, label)
    x = np.array([[1., 2.], [3., 1.]])
    exe = out.bind(mx.cpu(), {'data': nd.array(x), 'label': nd.array([0, 1])}, args_grad={'data': nd.zeros((2, 2))})
    exe.forward(is_train=True)
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    tu.assert_almost_equal(exe.outputs[0], p, 1e-4, 1e-4)
    exe.backward()
    tu.assert_almost_equal(exe.grad_dict['data'], p - np.eye(2), 1e-4, 1e-4)
test_softmax_output()

def test_autograd_add():
    x, y = tu.rand_ndarray((3, 4)), tu.rand_ndarray((3, 4))
    x.attach_grad(), y.attach_grad()
    with autograd.record():
        z = x * y + nd.exp(x)
    z.backward(nd.ones((3, 4)) * 2)
    tu.assert_almost_equal(x.grad, 2 * (y + nd.exp(x)), 1e-4, 1e-4)
    tu.assert_almost_equal(y.grad, 2 * x)
test_autograd_add()

def test_out_grads():
    x = nd.ones((3, 5))
    dx = nd.zeros_like(x)
    autograd.mark_variables([x], [dx])
    da, db, dc = None, nd.array([1, 2, 3, 4, 5]), nd.array([5, 4, 3, 2, 1])
    with autograd.record():
        a, b, c = nd.split(x, axis=0, num_outputs=3, squeeze_axis=True)
        autograd.backward([a, b, c], [da, db, dc])
    assert (dx.asnumpy() == np.array([[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])).all()
test_out_grads()

def test_grad_with_stype_default():
    x = nd.ones((2, 2))
    x.attach_grad(stype='default')
    with autograd.record():
        y = x * x
    y.backward()
    assert x.grad.stype == 'default'
    tu.assert_almost_equal(x.grad, 2 * np.ones((2, 2)))
test_grad_with_stype_default()

def test_setitem():
    x = nd.zeros((3, 4))
    x[1:3] = 5
    expect = np.zeros((3, 4))
    expect[1:3] = 5
    assert tu.same(x.asnumpy(), expect)
    x[:, 1] = nd.arange(3)
    expect[:, 1] = np.arange(3)
    assert tu.same(x.asnumpy(), expect)
test_setitem()

def test_pickle():
    import pickle
    for _ in range(5):
        a = tu.rand_ndarray(tu.rand_shape_nd(3, 4))
        b = pickle.loads(pickle.dumps(a))
        assert tu.same(a.asnumpy(), b.asnumpy())
test_pickle()

def test_saveload():
    import os, tempfile
    arrays = [tu.rand_ndarray(tu.rand_shape_2d()) for _ in range(4)]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'x.params')
        nd.save(path, {'n%d' % i: a for i, a in enumerate(arrays)})
        back = nd.load(path)
    for i, a in enumerate(arrays):
        tu.assert_almost_equal(a, back['n%d' % i])
test_saveload()

def test_clip():
    x = tu.rand_ndarray((10,))
    tu.assert_almost_equal(nd.clip(x, -0.5, 0.5), np.clip(x.asnumpy(), -0.5, 0.5))
test_clip()

def test_reduce():
    for axis in (0, 1, (0, 1), None):
        x = np.random.uniform(-1, 1, (3, 4)).astype('float32')
        got = nd.sum(nd.array(x), axis=axis, keepdims=True)
        tu.assert_almost_equal(got.asnumpy().reshape(-1), tu.np_reduce(x, axis, True, np.sum).reshape(-1), 1e-4, 1e-5)
test_reduce()

def test_broadcast():
    a, b = np.random.normal(size=(3, 1)), np.random.normal(size=(1, 4))
    A, B = sym.var('a'), sym.var('b')
    out = sym.broadcast_mul(A, B)
    tu.check_symbolic_forward(out, [a, b], [a * b], rtol=1e-4, atol=1e-5)
    g = np.random.normal(size=(3, 4))
    tu.check_symbolic_backward(out, [a, b], [g], [tu.collapse_sum_like(g * b, a.shape), tu.collapse_sum_like(g * a, b.shape)], rtol=1e-3, atol=1e-5)
test_broadcast()

def test_convolution():
    x = sym.Convolution(sym.var('data'), kernel=(3, 3), num_filter=2, pad=(1, 1), name='c')
    tu.check_numeric_gradient(x, [np.random.normal(size=(1, 1, 4, 4)), np.random.normal(size=(2, 1, 3, 3)), np.zeros(2)], rtol=0.1, atol=0.05)
test_convolution()

def test_embedding():
    data, weight = sym.var('data'), sym.var('weight')
    out = sym.Embedding(data, weight, input_dim=4, output_dim=3, name='e')
    w = np.random.uniform(-1, 1, (4, 3)).astype('float32')
    ids = np.array([1, 1, 3])
    exe = out.simple_bind(mx.cpu(), grad_req={'data': 'null', 'weight': 'write'}, data=(3,))
    exe.arg_dict['data'][:], exe.arg_dict['weight'][:] = ids, w
    exe.forward(is_train=True)
    tu.assert_almost_equal(exe.outputs[0], w[ids])
    exe.backward([nd.ones((3, 3))])
    expect = np.zeros((4, 3))
    np.add.at(expect, ids, 1)
    tu.assert_almost_equal(exe.grad_dict['weight'], expect)
test_embedding()

def test_gluon_dense():
    net = gluon.nn.Dense(4, in_units=3)
    net.initialize(mx.init.Uniform(1))
    x = tu.rand_ndarray((2, 3))
    out = net(x)
    net.hybridize()
    tu.assert_almost_equal(out, net(x), 1e-5, 1e-6)
    w, b = net.weight.data().asnumpy(), net.bias.data().asnumpy()
    tu.assert_almost_equal(out, x.asnumpy().dot(w.T) + b, 1e-4, 1e-5)
test_gluon_dense()

def test_trainer():
    x = gluon.Parameter('x', shape=(3,))
    x.initialize(ctx=[mx.cpu(0)], init='zeros')
    trainer = gluon.Trainer([x], 'sgd', {'learning_rate': 1.0, 'momentum': 0.5})
    with autograd.record():
        y = x.data() + 1
    y.backward()
    trainer.step(1)
    assert (x.data().asnumpy() == -1).all()
test_trainer()

def test_exceptions():
    a = mx.sym.var('a')
    tu.assert_exception(nd.ones((2, 2)).reshape, ValueError, (3,))
    tu.assert_exception(nd.concat, mx.base.MXNetError, nd.ones(2), nd.ones((2, 2)))
    tu.assert_exception(bool, ValueError, nd.ones(2))
test_exceptions()

def test_random_seed():
    mx.random.seed(11)
    a = nd.random.normal(shape=(5,)).asnumpy()
    mx.random.seed(11)
    b = nd.random.normal(shape=(5,)).asnumpy()
    assert tu.same(a, b)
test_random_seed()

def test_dropout():
    x = nd.ones((100, 100))
    with autograd.record():
        y = nd.Dropout(x, p=0.5)
    assert 0.4 < (y.asnumpy() == 0).mean() < 0.6
    tu.assert_almost_equal(nd.Dropout(x, p=0.5), x)
test_dropout()

def test_take():
    for mode in ('clip', 'wrap'):
        x = np.arange(6).reshape(3, 2).astype('float32')
        i = np.array([0, 4, -1])
        tu.assert_almost_equal(nd.take(nd.array(x), nd.array(i), mode=mode), np.take(x, i, axis=0, mode=mode))
test_take()

def test_cast():
    for dtype in ('float16', 'float64', 'int32', 'uint8'):
        x = nd.array([1.2, 2.7]).astype(dtype)
        assert x.dtype == np.dtype(dtype).type
        assert tu.same(x.asnumpy(), np.array([1.2, 2.7], 'float32').astype(dtype))
test_cast()

@tu.retry(2)
def test_ordering():
    x = np.random.permutation(12).reshape(3, 4).astype('float32')
    tu.assert_almost_equal(nd.sort(nd.array(x), axis=1), np.sort(x, axis=1))
    tu.assert_almost_equal(nd.argsort(nd.array(x), axis=0, dtype='int32'), np.argsort(x, axis=0))
test_ordering()

def test_grad_req():
    x = nd.ones(3)
    for req, factor in (('write', 1), ('add', 3)):
        x.attach_grad(grad_req=req)
        for _ in range(3):
            with autograd.record():
                y = x * 2
            y.backward()
        tu.assert_almost_equal(x.grad, np.ones(3) * 2 * factor)
test_grad_req()

def test_function():
    class Func(mx.autograd.Function):
        def forward(self, x, y):
            m, n = x / y, y / x
            self.save_for_backward(x, y)
            return m, n
        def backward(self, dm, dn):
            x, y = self.saved_tensors
            return dm / y - dn * y / x / x, dn / x - dm * x / y / y
    f = Func()
    x, y = nd.random.uniform(1, 2, shape=(10,)), nd.random.uniform(1, 2, shape=(10,))
    x.attach_grad(), y.attach_grad()
    with autograd.record():
        m, n = f(x, y)
        autograd.backward([m, n])
    dx1, dy1 = x.grad.asnumpy(), y.grad.asnumpy()
    with autograd.record():
        autograd.backward([x / y, y / x])
    tu.assert_almost_equal(x.grad, dx1, atol=1e-6)
    tu.assert_almost_equal(y.grad, dy1, atol=1e-6)
test_function()

def test_kvstore():
    kv = mx.kv.create('local')
    kv.init(3, nd.ones((2, 3)))
    kv.push(3, [nd.ones((2, 3))] * 4)
    out = nd.empty((2, 3))
    kv.pull(3, out=out)
    tu.assert_almost_equal(out, np.ones((2, 3)) * 4)
test_kvstore()

def test_metric():
    m = mx.metric.create('acc')
    m.update([nd.array([0, 1])], [nd.array([[0.7, 0.3], [0.6, 0.4]])])
    tu.assert_almost_equal(m.get()[1], 0.5)
test_metric()
"""


def signature(name):
    """The parameters of a function, by name and default."""
    return f"""
import inspect
[(p.name, str(p.kind), p.default) for p in inspect.signature(tu.{name}).parameters.values()]
"""


PROGRAMS += "\n\n".join(
    signature(name)
    for name in """
    DummyIter almost_equal assert_allclose assert_almost_equal assert_almost_equal_ignore_nan
    assert_almost_equal_with_err assert_exception assign_each assign_each2 checkShapes
    check_consistency check_numeric_gradient check_speed check_symbolic_backward
    check_symbolic_forward chi_square_check collapse_sum_like compare_ndarray_tuple
    compare_optimizer create_2d_tensor create_vector default_atols default_context default_dtype
    default_numeric_eps default_rtols discard_stderr download effective_dtype environment
    gen_buckets_probs_with_ppf get_atol get_etol get_identity_mat get_identity_mat_batch get_rtol
    get_tolerance get_tols has_tvm_ops is_aarch64_run is_cd_run is_op_runnable list_gpus
    locationError mean_check new_matrix_with_real_eigvals_2d new_matrix_with_real_eigvals_nd
    new_orthonormal_matrix_2d new_sym_matrix_with_real_eigvals_2d
    new_sym_matrix_with_real_eigvals_nd np_reduce numeric_grad rand_coord_2d rand_ndarray
    rand_shape_2d rand_shape_3d rand_shape_nd random_arrays random_sample random_uniform_arrays
    retry same same_array same_symbol_structure set_default_context simple_forward var_check
    verify_generator""".split()
)
