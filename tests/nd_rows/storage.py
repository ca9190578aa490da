"""Storage types: what dense arrays say of theirs, and what asks for another one."""

LINES = """
nd.ones(2).stype
nd.ones(2).tostype('default')
x = nd.ones(2); x.tostype('default') is x
nd.ones((2, 2)).tostype('dense')
nd.ones(2).tostype('nonsense')
nd.cast_storage(nd.ones((2, 3)), 'default')
nd.cast_storage(nd.ones((2, 3)), stype='default').stype
nd.cast_storage(data=nd.ones((2, 3)), stype='default')
nd.cast_storage(nd.ones((2, 3)), 'nonsense')
nd.cast_storage(nd.ones((2, 3)))
nd.cast_storage(nd.ones((2, 3), dtype='int32'), 'default')
nd.sparse.zeros('default', (2, 3))
nd.sparse.zeros('default', (2, 3), dtype='int32')
nd.sparse.zeros('default', (2, 3), ctx=mx.cpu(1)).context
nd.sparse.zeros('default', 3)
nd.sparse.zeros('nonsense', (2, 3))
nd.sparse.zeros('default', (2, 3)).stype
nd.sparse.empty('default', (2, 3)).shape
nd.sparse.empty('default', (2, 3), dtype='float16').dtype
nd.sparse.empty('nonsense', (2, 3))
nd.sparse.array([[1, 2], [3, 4]])
nd.sparse.array(nd.ones((2, 3)))
nd.sparse.array(np.ones((2, 3)))
nd.sparse.array(nd.ones((2, 3)), dtype='int32')
nd.sparse.dot(nd.ones((2, 3)), nd.ones((3, 2)))
nd.sparse.add(nd.ones(2), nd.ones(2))
nd.sparse.add(nd.ones(2), 3)
nd.sparse.subtract(nd.ones(2), nd.ones(2))
nd.sparse.multiply(nd.ones(2), 2)
nd.sparse.divide(nd.ones(2), 2)
nd.sparse.abs(nd.array([-1, 2]))
nd.sparse.square(nd.array([-1, 2]))
nd.sparse.relu(nd.array([-1, 2]))
nd.sparse.sum(nd.ones((2, 3)), axis=1)
nd.sparse.concat(nd.ones((1, 2)), nd.zeros((1, 2)), dim=0)
nd.sparse.zeros_like(nd.ones(3))
nd.sparse.where(nd.array([1, 0]), nd.ones(2), nd.zeros(2))
nd.sparse.clip(nd.array([-3, 3]), -1, 1)
nd.sparse.elemwise_add(nd.ones(2), nd.ones(2))
nd.sparse.slice(nd.ones((2, 3)), begin=(0, 1), end=(2, 3))
nd.sparse.cast_storage(nd.ones(2), 'default')
isinstance(nd.sparse.zeros('default', (2, 3)), nd.NDArray)
nd.zeros((2, 3), stype='default')
nd.zeros((2, 3), stype='nonsense')
nd.zeros((2, 3), None, 'int32', 'default')
nd.zeros((2, 3), stype=None)
nd.empty((2, 3), stype='default').shape
nd.empty((2, 3), None, 'int32', 'default').dtype
nd.empty((2, 3), stype='nonsense')
nd.array([1, 2], stype='default')
nd.ones((2, 3), stype='default')
nd.zeros_like(nd.ones((2, 3)), stype='default')
mx.nd.random.uniform(0, 1, (2, 3)).stype
sym.var('x', stype='default').list_arguments()
sym.var('x', stype='default').attr('__storage_type__')
sym.var('x', stype='default').list_attr()
sym.var('x', stype='nonsense')
sym.cast_storage(sym.var('x'), 'default')
sym.cast_storage(sym.var('x'), stype='default').infer_shape(x=(2, 3))
sym.cast_storage(sym.var('x'), stype='default').bind(mx.cpu(), {'x': nd.ones((2, 3))}).forward()
sym.sparse.cast_storage(sym.var('x'), stype='default').list_arguments()
sym.sparse.dot(sym.var('x'), sym.var('y')).list_arguments()
sym.var('x').tostype('default')
sym.zeros((2, 3)).eval()[0].stype
gluon.Parameter('w', shape=(2,), stype='default').stype
gluon.Parameter('w', shape=(2,), grad_stype='default').grad_stype
gluon.Parameter('w', shape=(2,)).stype, gluon.Parameter('w', shape=(2,)).grad_stype
gluon.Parameter('w', shape=(2,), stype='nonsense')
gluon.Parameter('w', shape=(2,), grad_stype='nonsense')
p = gluon.Parameter('w', shape=(2,), stype='default', init='ones'); p.initialize(); p.data()
p = gluon.Parameter('w', shape=(2,), grad_stype='default', init='ones'); p.initialize(); p.grad().stype
p = gluon.Parameter('w', shape=(2, 3), init='ones'); p.initialize(); p.row_sparse_data(nd.array([0]))
p = gluon.Parameter('w', shape=(2, 3), init='ones'); p.initialize(); p.list_row_sparse_data(nd.array([0]))
x = nd.ones(2); x.attach_grad(stype='default'); x.grad
x = nd.ones(2); x.attach_grad(stype='default'); x.grad.stype
x = nd.ones(2); x.attach_grad(stype='nonsense')
nd.ones(2).asnumpy().shape
nd.dot(nd.ones((2, 3)), nd.ones((3, 2)), forward_stype='default')
nd.dot(nd.ones((2, 3)), nd.ones((3, 2)), forward_stype=None)
nd.sgd_update(nd.ones(2), nd.ones(2), lr=0.1, lazy_update=True)
nd.sgd_update(nd.ones(2), nd.ones(2), lr=0.1, lazy_update=False)
nd.Embedding(nd.array([1]), nd.ones((3, 2)), 3, 2, 'float32', False)
nd.Embedding(nd.array([1]), nd.ones((3, 2)), input_dim=3, output_dim=2, sparse_grad=False)
gluon.nn.Embedding(3, 2, sparse_grad=False).weight.grad_stype
gluon.nn.Dense(2).weight.stype
mx.kv.create('local').type
"""

PROGRAMS = """
kv = mx.kv.create('local')
kv.init('w', nd.ones((2, 3)))
out = nd.zeros((2, 3))
kv.row_sparse_pull('w', out=out, row_ids=nd.array([0]))

exe = sym.cast_storage(sym.var('x'), stype='default').simple_bind(mx.cpu(), x=(2,), stype_dict={'x': 'default'})
exe.arg_dict['x'][:] = 3
exe.forward()

x = nd.ones((2, 2))
x.attach_grad()
with autograd.record():
    y = nd.cast_storage(x, 'default') * 3
y.backward()
x.grad

x = nd.ones((2, 2))
x.attach_grad()
with autograd.record():
    y = x.tostype('default') * 3
y.backward()
x.grad
"""

#: MXNet makes sparse arrays; d2lmini refuses. (Parameters and ops that only ask for a sparse
#: gradient get a dense one, of the same values.)
LEFT_OUT = """
nd.ones((2, 2)).tostype('csr')
nd.ones((2, 2)).tostype('row_sparse')
nd.cast_storage(nd.ones((2, 2)), 'csr')
nd.cast_storage(nd.ones((2, 2)), stype='row_sparse')
nd.sparse.zeros('csr', (2, 2))
nd.sparse.zeros('row_sparse', (2, 2))
nd.sparse.empty('csr', (2, 2))
nd.sparse.csr_matrix(([1.0], [0], [0, 1]), shape=(1, 2))
nd.sparse.row_sparse_array(([[1.0]], [0]), shape=(2, 1))
nd.zeros((2, 2), stype='csr')
nd.zeros((2, 2), stype='row_sparse')
nd.empty((2, 2), stype='row_sparse')
x = nd.ones((2, 2)); x.attach_grad(stype='row_sparse')
sym.var('x', stype='csr')
sym.cast_storage(sym.var('x'), 'csr').infer_shape(x=(2, 2))
tu.rand_ndarray((2, 2), 'csr')
tu.rand_sparse_ndarray((2, 2), 'row_sparse')
"""
