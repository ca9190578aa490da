"""Methods of NDArray, by position and by keyword."""

LINES = """
nd.ones((2, 3)).shape
nd.ones((2, 3)).size
nd.ones((2, 3)).ndim
nd.ones((2, 3)).dtype
nd.ones((2, 3), dtype='int32').dtype
nd.ones((2, 3)).T.shape
nd.ones((2, 3)).context
nd.ones((2, 3)).ctx
nd.ones((2, 3)).context.device_type, nd.ones(1).context.device_id
nd.ones((2, 3)).reshape(3, 2).shape
nd.ones((2, 3)).reshape((3, 2)).shape
nd.ones((2, 3)).reshape([3, 2]).shape
nd.ones((2, 3)).reshape(shape=(3, 2)).shape
nd.ones((2, 3)).reshape(-1).shape
nd.ones((2, 3)).reshape((-1,)).shape
nd.ones((2, 3)).reshape(0, -1).shape
nd.ones((2, 3)).reshape((0, 0, 1)).shape
nd.ones((2, 3)).reshape((-3,)).shape
nd.ones((2, 3)).reshape((-4, 1, 2, -2)).shape
nd.ones((2, 3, 4)).reshape((-1, 0), reverse=True).shape
nd.ones((2, 3)).reshape((4, 2))
nd.ones((2, 3)).reshape((-1, -1))
nd.ones((2, 3)).reshape()
nd.ones((2, 3)).reshape(())
nd.ones(1).reshape(())
nd.ones((2, 3)).reshape((2.0, 3))
nd.ones((2, 3)).reshape('a')
nd.ones((2, 3)).reshape(shape=(3, 2), nonsense=1)
nd.ones((2, 3)).reshape_like(nd.ones((3, 2))).shape
nd.ones((2, 3)).reshape_like(rhs=nd.ones((3, 2))).shape
nd.ones((2, 3)).reshape_like(nd.ones((3, 3)))
nd.ones((2, 3, 4)).flatten().shape
nd.ones((2, 3)).expand_dims(1).shape
nd.ones((2, 3)).expand_dims(axis=-1).shape
nd.ones((2, 3)).expand_dims(5)
nd.ones((2, 1, 3)).squeeze().shape
nd.ones((2, 1, 3)).squeeze(axis=1).shape
nd.ones((2, 1, 3)).squeeze(axis=0)
nd.ones((1, 2, 1)).squeeze((0, 2)).shape
nd.ones((1, 1)).squeeze().shape
nd.ones((2, 3)).transpose().shape
nd.ones((2, 3, 4)).transpose((1, 0, 2)).shape
nd.ones((2, 3, 4)).transpose(1, 0, 2).shape
nd.ones((2, 3, 4)).transpose(axes=(2, 0, 1)).shape
nd.ones((2, 3, 4)).transpose((0, 0, 1))
nd.ones((2, 3, 4)).swapaxes(0, 2).shape
nd.ones((2, 3, 4)).swapaxes(dim1=0, dim2=1).shape
nd.ones((2, 3)).sum()
nd.ones((2, 3)).sum().shape
nd.ones((2, 3)).sum(axis=0)
nd.ones((2, 3)).sum(0)
nd.ones((2, 3)).sum(axis=(0, 1))
nd.ones((2, 3)).sum(axis=1, keepdims=True)
nd.ones((2, 3)).sum(axis=0, exclude=True)
nd.ones((2, 3)).sum(axis=-1)
nd.ones((2, 3)).sum(axis=())
nd.ones((2, 3)).sum(nonsense=1)
nd.ones((2, 3)).mean()
nd.ones((2, 3)).mean(axis=1)
nd.array([1, 2], dtype='int32').mean()
nd.array([1, 2], dtype='int32').sum().dtype
nd.ones((2, 3)).prod(axis=1)
nd.ones((2, 3)).nansum()
nd.ones((2, 3)).max(axis=0)
nd.ones((2, 3)).min()
nd.array([[1, 3, 2]]).argmax()
nd.array([[1, 3, 2]]).argmax(axis=1)
nd.array([[1, 3, 2]]).argmin(axis=1)
nd.array([[1, 3, 2]]).argmax(axis=1, keepdims=True)
nd.array([[1, 3, 2]]).argmax_channel()
nd.array([[1, 3, 2]]).argsort()
nd.array([[1, 3, 2]]).argsort(is_ascend=False)
nd.array([[1, 3, 2]]).sort()
nd.array([[1, 3, 2]]).sort(axis=1, is_ascend=False)
nd.array([[1, 3, 2]]).topk()
nd.array([[1, 3, 2]]).topk(k=2, ret_typ='value')
nd.array([[1, 3, 2]]).topk(k=2, ret_typ='both')
nd.array([[1, 3, 2]]).topk(k=2, ret_typ='mask')
nd.array([[1, 3, 2]]).topk(k=2, is_ascend=True)
nd.array([[1, 3, 2]]).topk(k=2, ret_typ='nonsense')
nd.array([[1, 3, 2]]).topk(k=2, dtype='int32').dtype
nd.array([[1, 3, 2]]).topk(axis=None, k=2)
nd.array([[1, 3, 2]]).topk(k=7)
nd.array([3, 4]).norm()
nd.array([[3, 4], [6, 8]]).norm(axis=1)
nd.array([[3, 4], [6, 8]]).norm(ord=1, axis=1)
nd.array([[3, 4], [6, 8]]).norm(ord=3, axis=1)
nd.array([[3, 4], [6, 8]]).norm(axis=0, keepdims=True)
nd.array([-1, 2]).abs()
nd.array([-1.5, 2.5]).round()
nd.array([-1.5, 2.5, 0.5]).rint()
nd.array([-1.5, 2.5]).floor()
nd.array([-1.5, 2.5]).ceil()
nd.array([-1.5, 2.5]).fix()
nd.array([-1.5, 2.5]).trunc()
nd.array([-1.5, 0, 2.5]).sign()
nd.array([0.5]).exp()
nd.array([0.5]).log()
nd.array([0.5]).sqrt()
nd.array([0.5]).rsqrt()
nd.array([0.5]).square()
nd.array([0.5]).sigmoid()
nd.array([0.5]).tanh()
nd.array([-0.5]).relu()
nd.array([0.5]).reciprocal()
nd.array([180]).radians()
nd.array([3]).degrees()
nd.array([[1, 2]]).softmax()
nd.array([[1, 2]]).softmax(axis=0)
nd.array([[1, 2]]).log_softmax()
nd.array([[1, 2]]).softmin()
nd.array([[1, 2]]).softmax(temperature=2)
nd.array([-3, 3]).clip(-1, 1)
nd.array([-3, 3]).clip(a_min=-1, a_max=1)
nd.array([-3, 3]).clip(0)
nd.array([1, 2]).repeat(2)
nd.array([1, 2]).repeat(repeats=2, axis=0)
nd.array([[1, 2]]).repeat(2, axis=1)
nd.array([1, 2]).tile(2)
nd.array([1, 2]).tile((2, 2))
nd.array([1, 2]).tile(reps=(2,))
nd.array([[1, 2], [3, 4]]).flip(0)
nd.array([[1, 2], [3, 4]]).flip(axis=1)
nd.array([[1, 2], [3, 4]]).diag()
nd.array([1, 2]).diag()
nd.array([[1, 2], [3, 4]]).diag(k=1)
nd.array([[1, 2], [3, 4]]).take(nd.array([1]))
nd.array([[1, 2], [3, 4]]).take(nd.array([1]), axis=1)
nd.array([[1, 2], [3, 4]]).take(nd.array([5]))
nd.array([[1, 2], [3, 4]]).take(nd.array([-1]), mode='wrap')
nd.array([[1, 2], [3, 4]]).take(indices=nd.array([1]))
nd.array([[1, 2], [3, 4]]).take([1])
nd.array([[1, 2], [3, 4]]).pick(nd.array([1, 0]))
nd.array([[1, 2], [3, 4]]).pick(nd.array([1, 0]), axis=0)
nd.array([[1, 2], [3, 4]]).pick(nd.array([1, 0]), keepdims=True)
nd.array([0, 2]).one_hot(3)
nd.array([0, 2]).one_hot(depth=3, on_value=5, off_value=-1)
nd.array([0, 7]).one_hot(3)
nd.array([0, 2]).one_hot(3, dtype='int32')
nd.ones((1, 3)).broadcast_to((2, 3)).shape
nd.ones((1, 3)).broadcast_to(shape=(2, 3)).shape
nd.ones((2, 3)).broadcast_to((3, 3))
nd.ones(3).broadcast_to((2, 3))
nd.ones((1, 3)).broadcast_like(nd.ones((2, 3))).shape
nd.ones((1, 3)).broadcast_axes(axis=0, size=2).shape
nd.ones((2, 4)).split(2)
nd.ones((2, 4)).split(num_outputs=2, axis=1)
nd.ones((2, 4)).split(num_outputs=2, axis=0, squeeze_axis=True)
nd.ones((2, 4)).split(num_outputs=3)
nd.ones((2, 4)).split_v2(2)
nd.ones((2, 4)).split_v2((1, 3), axis=1)
nd.ones((2, 4)).slice((0, 1), (2, 3)).shape
nd.ones((2, 4)).slice(begin=(0, 1), end=(2, 3)).shape
nd.ones((2, 4)).slice(begin=(0, None), end=(None, 3)).shape
nd.arange(6).slice(begin=(5,), end=(0,), step=(-2,))
nd.ones((2, 4)).slice_axis(0, 0, 1).shape
nd.ones((2, 4)).slice_axis(axis=1, begin=1, end=None).shape
nd.ones((2, 4)).slice_axis(axis=1, begin=-2, end=None).shape
nd.ones((2, 4)).slice_like(nd.ones((1, 2))).shape
nd.ones((2, 4)).slice_like(nd.ones((1, 2)), axes=(0,)).shape
nd.ones((1, 1, 2, 2)).pad(mode='constant', pad_width=(0, 0, 0, 0, 1, 1, 1, 1)).shape
nd.ones((1, 4, 1, 1)).depth_to_space(2).shape
nd.ones((1, 1, 2, 2)).space_to_depth(2).shape
nd.ones((2, 3)).dot(nd.ones((3, 2)))
nd.ones((2, 3)).dot(nd.ones((2, 3)), transpose_b=True)
nd.ones((2, 3)).shape_array()
nd.ones((2, 3)).size_array()
nd.ones((2, 3)).ones_like()
nd.ones((2, 3)).zeros_like()
nd.ones((2, 3)).astype('int32').dtype
nd.ones((2, 3)).astype(np.float16).dtype
nd.ones((2, 3)).astype(int).dtype
nd.ones((2, 3)).astype(float).dtype
nd.ones((2, 3)).astype(bool).dtype
nd.ones((2, 3)).astype('nonsense')
nd.ones((2, 3)).astype(dtype='int8', copy=True).dtype
nd.ones((2, 3)).astype(None)
nd.array([1.9, -1.9]).astype('int32')
nd.array([1.9, -1.9]).astype('uint8')
nd.array([2.0, 0.0]).astype('bool')
nd.ones(2).as_in_context(mx.cpu(1)).context
nd.ones(2).as_in_context(context=mx.cpu(1)).context
nd.ones(2).as_in_ctx(mx.cpu(1)).context
nd.ones(2).as_in_context('cpu')
nd.ones(2).copyto(mx.cpu(1)).context
nd.ones(2).copyto(other=mx.cpu(1)).context
nd.ones(2).as_in_context(mx.gpu(0))
nd.ones(2, ctx=mx.gpu(7))
nd.ones(2).attach_grad()
nd.ones(2).attach_grad(grad_req='add', stype=None)
nd.ones(2).asnumpy().dtype
nd.ones((2, 3)).asnumpy().flags.c_contiguous
nd.ones(2).as_nd_ndarray()
nd.ones(2).handle is not None
nd.ones(2).writable
nd.ones((2, 3)).sum(axis=0, out=nd.zeros(3))
nd.ones((2, 3)).sum(axis=0, out=nd.zeros(2))
nd.array([1, 2]).exp(out=nd.zeros(2))
nd.array([1, 2, 3]).cumsum()
nd.array([1, 2, 3]).var()
nd.array([1, 2, 3]).std()
nd.array([1, 2, 3]).nonzero()
nd.array([1, 2, 3]).any()
nd.array([1, 2, 3]).fill(3)
nd.array([1, 2, 3]).ravel()
nd.array([1, 2, 3]).view(3)
nd.array([1, 2, 3]).size()
nd.array([1, 2, 3]).shape()
nd.maximum(nd.array([1, 3]), 2)
nd.maximum(2, nd.array([1, 3]))
nd.maximum(2, 3)
nd.minimum(nd.array([1, 3]), nd.array([2, 2]))
nd.power(nd.array([2, 3]), 2)
nd.power(2, nd.array([2, 3]))
nd.power(2, 3)
nd.modulo(nd.array([7, -7]), 3)
nd.subtract(5, nd.array([1, 2]))
nd.divide(1, nd.array([2, 4]))
nd.true_divide(nd.array([1]), 2)
nd.multiply(nd.array([1, 2]), nd.array([[1], [2]]))
nd.add(nd.ones(2), nd.ones(3))
nd.equal(nd.array([1, 2]), 1)
nd.equal(1, 2)
nd.not_equal(nd.array([1, 2]), nd.array([1, 1]))
nd.greater(nd.array([1, 2]), 1)
nd.lesser_equal(nd.array([1, 2]), 1)
nd.logical_and(nd.array([1, 0]), nd.array([1, 1]))
nd.logical_or(nd.array([1, 0]), 0)
nd.logical_xor(nd.array([1, 0]), nd.array([1, 1]))
nd.logical_not(nd.array([1, 0]))
nd.hypot(nd.array([3]), nd.array([4]))
nd.dot(nd.ones(3), nd.ones(3))
nd.dot(nd.ones((2, 3)), nd.ones(3))
nd.dot(nd.ones((2, 3)), nd.ones((2, 3)))
nd.dot(nd.ones((2, 3)), nd.ones((3, 2)), transpose_a=False)
nd.dot(nd.ones((2, 3, 4)), nd.ones((4, 2))).shape
nd.dot(nd.ones((2, 3), dtype='int32'), nd.ones((3, 2), dtype='int32'))
nd.batch_dot(nd.ones((2, 2, 3)), nd.ones((2, 3, 2))).shape
nd.where(nd.array([1, 0]), nd.ones(2), nd.zeros(2))
nd.where(nd.array([1, 0]), nd.ones((2, 3)), nd.zeros((2, 3)))
nd.where(nd.array([1, 0]), 1, 0)
nd.gather_nd(nd.array([[1, 2], [3, 4]]), nd.array([[0, 1], [1, 0]]))
nd.scatter_nd(nd.array([5, 6]), nd.array([[0, 1], [1, 0]]), (2, 2))
nd.batch_take(nd.array([[1, 2], [3, 4]]), nd.array([1, 0]))
nd.Embedding(nd.array([0, 5]), nd.array([[1, 2], [3, 4]]), input_dim=2, output_dim=2)
nd.SequenceMask(nd.ones((2, 2)), nd.array([1, 2]), True)
nd.SequenceLast(nd.array([[1, 2], [3, 4]]), nd.array([1, 2]), use_sequence_length=True)
nd.reverse(nd.array([1, 2, 3]), axis=0)
nd.L2Normalization(nd.array([[3, 4]]))
nd.Pooling(nd.ones((1, 1, 4, 4)), kernel=(2, 2), pool_type='max').shape
nd.Pooling(nd.ones((1, 1, 4, 4)), global_pool=True, pool_type='avg').shape
nd.Activation(nd.array([-1, 1]), 'relu')
nd.Activation(nd.array([-1, 1]), act_type='nonsense')
nd.Activation(nd.array([-1, 1]))
nd.LeakyReLU(nd.array([-1, 1]))
nd.LeakyReLU(nd.array([-1, 1]), act_type='elu', slope=0.5)
nd.Dropout(nd.ones(3))
nd.Dropout(nd.ones(3), p=0.5)
nd.softmax(nd.array([[1, 2], [3, 4]]), axis=0)
nd.arange(6).reshape((2, 3)).mean(axis=0).sum().asscalar()
nd.random.uniform(shape=3).shape
nd.random.uniform(0, 1, 3).shape
nd.random.uniform(0, 1, (2, 3)).shape
nd.random.uniform(nd.zeros(2), nd.ones(2)).shape
nd.random.uniform(nd.zeros(2), nd.ones(2), shape=3).shape
nd.random.uniform(nd.zeros(2), 1)
nd.random.normal(shape=(2,)).dtype
nd.random.normal(0, 1, shape=(2,), dtype='float64').dtype
nd.random.normal(0, 1, shape=(2,), dtype='int32')
nd.random.normal(loc=0, scale=1, shape=(2, 2)).shape
nd.random.normal(0, -1, shape=(2,))
nd.random.randint(0, 5, shape=(3,)).dtype
nd.random.randint(0, 5, shape=(3,), dtype='int64').dtype
nd.random.randint(5, 0, shape=(3,))
nd.random.randint(0, 5.5, shape=(3,))
nd.random.randn(2, 3).shape
nd.random.randn().shape
nd.random.shuffle(nd.arange(5)).shape
nd.random.shuffle(nd.arange(5)).sort()
nd.random.multinomial(nd.array([0, 1]))
nd.random.multinomial(nd.array([0, 1]), shape=2)
nd.random.multinomial(nd.array([[0, 1], [1, 0]]), 2, get_prob=True)
nd.random.multinomial(nd.array([0, 1]), dtype='float32').dtype
nd.random.poisson(3, shape=(2,)).dtype
nd.random.exponential(2, shape=2).shape
nd.random.gamma(2, 3, shape=(2,)).shape
nd.random_uniform(0, 1, (2, 3)).shape
nd.random_uniform(low=0, high=1, shape=(2,)).shape
nd.uniform(shape=(2, 3)).shape
nd.normal(0, 1, shape=2).shape
nd.sample_uniform(nd.zeros(2), nd.ones(2), shape=(3,)).shape
mx.random.uniform(0, 1, shape=(2,)).shape
mx.random.seed(5)
mx.random.seed(5, ctx=mx.cpu(0))
mx.random.seed('a')
"""

PROGRAMS = """
mx.random.seed(3)
a = nd.random.uniform(shape=3)
mx.random.seed(3)
b = nd.random.uniform(shape=3)
(a == b).sum()

x = nd.zeros(3)
nd.random.uniform(2, 3, shape=(3,), out=x)
((x >= 2) * (x < 3)).sum()

x = nd.zeros(3)
nd.random.normal(0, 1, out=x) is x

with mx.Context('cpu', 1):
    x = nd.ones(2)
x.context

with mx.cpu(1):
    x = nd.array([1])
    y = x + 1
y.context

x = nd.ones((2, 3))
x.attach_grad()
x.grad.shape, x.grad.context

mx.context.current_context()

mx.cpu(0) == mx.cpu(0), mx.cpu(0) == mx.cpu(1), mx.cpu() == mx.gpu()

str(mx.cpu(2)), repr(mx.gpu(1))

mx.context.num_gpus()
"""
