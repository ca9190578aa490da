"""Arrays: how they are made, operators, indexing, what shares memory."""

LINES = """
nd.array([1, 2, 3])
nd.array((1, 2, 3))
nd.array([[1, 2], [3]])
nd.array(5)
nd.array(5).shape
nd.array([])
nd.array([]).shape
nd.array([True, False])
nd.array([1, 2], dtype='int32')
nd.array([1.7, 2.2], dtype=np.int32)
nd.array([1.7, 2.2], dtype=int).dtype
nd.array([1.7, 2.2], dtype=float).dtype
nd.array([1, 2], dtype='float16')
nd.array([1, 2], dtype='nonsense')
nd.array([1, 2], dtype='complex64')
nd.array('abc')
nd.array(['a', 'b'])
nd.array(None)
nd.array({'a': 1})
nd.array(np.arange(3))
nd.array(np.arange(3)).dtype
nd.array(np.arange(3, dtype='int64')).dtype
nd.array(np.arange(3, dtype='float64')).dtype
nd.array(np.arange(3, dtype='uint8')).dtype
nd.array(np.arange(3, dtype='float16')).dtype
nd.array(np.array([True, False])).dtype
nd.array(np.float64(3))
nd.array(np.ones(()))
nd.array(np.zeros((0, 3)))
nd.array(nd.ones(2, dtype='int32')).dtype
nd.array(nd.ones(2), dtype='int32').dtype
nd.array([nd.ones(2), nd.zeros(2)])
nd.array([[nd.ones(2), nd.zeros(2)], [nd.ones(2), nd.ones(2)]])
nd.array([nd.ones(1), nd.zeros(1)])
nd.array([nd.ones(2, dtype='int32'), nd.zeros(2, dtype='int32')]).dtype
nd.array([nd.ones(2), [3, 4]])
nd.array([nd.ones(2), nd.ones(3)])
nd.array((nd.ones(2), nd.zeros(2)), dtype='int32')
nd.array([np.ones(2), np.zeros(2)])
nd.array(range(3))
nd.array(x for x in [1, 2])
nd.array(source_array=[1, 2], ctx=mx.cpu(), dtype='int32')
nd.array([1, 2], mx.cpu(1)).context
nd.array([1, 2], 'cpu')
nd.array([2**24 + 1], dtype='int32')
nd.array([2**31], dtype='int64')
nd.array([300], dtype='uint8')
nd.array([-1], dtype='uint8')
nd.array([float('nan'), float('inf')])
nd.array([float('nan')], dtype='int32').shape
nd.zeros(3)
nd.zeros((2, 3))
nd.zeros([2, 3])
nd.zeros(shape=3)
nd.zeros(shape=(2, 3), dtype='int32')
nd.zeros((2, 3), mx.cpu(1)).context
nd.zeros((2, 3), ctx=mx.cpu(), dtype=np.float16).dtype
nd.zeros(np.int64(3)).shape
nd.zeros((np.int64(2), 3)).shape
nd.zeros(2.5)
nd.zeros((2, 2.5))
nd.zeros('abc')
nd.zeros(-1)
nd.zeros((2, -1))
nd.zeros()
nd.zeros((2,), out=nd.ones(2))
nd.zeros((2,), nonsense=3)
nd.ones(3, dtype='int64')
nd.ones((2, 3), dtype='bool').dtype
nd.full(3, 7)
nd.full((2, 3), 7, dtype='int32')
nd.full((2, 3), val=7.5)
nd.full((2,), 7.9, dtype='int32')
nd.full((2,), 7, out=nd.zeros(2))
nd.full((2,), nd.ones(1))
nd.full((2,), 'a')
nd.full((2,), True)
nd.empty((2, 3)).shape
nd.empty(3).shape
nd.empty((2, 3), dtype='int32').dtype
nd.arange(3)
nd.arange(1, 4)
nd.arange(1, 4, 0.5)
nd.arange(3, dtype='int32')
nd.arange(0, 3, repeat=2)
nd.arange(3, stop=None)
nd.arange(3, None)
nd.arange(start=2, stop=5)
nd.arange(stop=5)
nd.arange(3, infer_range=True)
nd.arange(1, 4, infer_range=False)
nd.arange(5, 1, -1)
nd.arange(5, 0, -2)
nd.arange(0, 1, 0.3)
nd.arange(3.5)
nd.arange(0)
nd.arange(3, 0)
nd.arange(0, 3, 0)
nd.arange(3, dtype=None)
nd.arange(3, ctx=mx.cpu(1)).context
nd.linspace(0, 1, 5)
nd.linspace(0, 1, 5, endpoint=False)
nd.linspace(0, 10, 3, dtype='int32')
nd.linspace(0, 1, 1)
nd.eye(2)
nd.eye(2, 3)
nd.eye(3, 2, 1)
nd.eye(3, k=-1, dtype='int32')
nd.ones_like(nd.zeros((2, 3)))
nd.zeros_like(nd.ones((2, 3), dtype='int32'))
nd.full_like(nd.ones(2), 3)
nd.moveaxis(nd.ones((2, 3, 4)), 0, 2).shape
nd.moveaxis(nd.ones((2, 3, 4)), (0, 1), (-1, -2)).shape
nd.moveaxis(nd.ones((2, 3, 4)), -1, 0).shape
nd.moveaxis(nd.ones((2, 3, 4)), 5, 0).shape
nd.concat(nd.ones((2, 3)), dim=0)
x = nd.ones((2, 3)); nd.concat(x, dim=1) is x
nd.concat(dim=1)
nd.concat(nd.ones((2, 3)), nd.ones((2, 2)))
nd.concat(nd.ones((2, 3)), nd.ones((3, 3)))
nd.concat(nd.ones((2, 3)), nd.ones((3, 3)), dim=0).shape
nd.concat(nd.ones((2, 3)), nd.ones((2, 3)), dim=-1).shape
nd.concat(nd.ones((2, 3)), nd.ones((2, 3)), dim=2).shape
nd.concat(nd.ones(2), nd.ones(2), dim=0).shape
nd.concat(nd.ones(2), nd.ones(2)).shape
nd.concat(nd.ones((2, 2)), nd.ones((2, 2), dtype='int32')).dtype
nd.concatenate([nd.ones((2, 3))])
x = nd.ones((2, 3)); nd.concatenate([x]) is x
x = nd.ones((2, 3)); nd.concatenate([x], always_copy=False) is x
nd.concatenate([nd.ones((2, 3)), nd.ones((1, 3))]).shape
nd.concatenate([nd.ones((2, 3)), nd.ones((2, 1))], axis=1).shape
nd.concatenate([nd.ones((2, 3)), nd.ones((2, 1))], axis=0).shape
nd.concatenate([])
nd.concatenate([nd.ones(2), nd.ones(2, dtype='int32')])
nd.concatenate(nd.ones((2, 3)))
nd.ones(2) + 1
1 + nd.ones(2)
nd.ones(2) + 1.5
nd.ones(2) + True
nd.ones(2) + np.float64(1.5)
nd.ones(2) + np.int32(1)
nd.ones(2) + [1, 2]
nd.ones(2) + (1, 2)
nd.ones(2) + None
nd.ones(2) + '1'
nd.ones(2) + 1j
nd.ones(2) + np.ones(2)
np.ones(2) + nd.ones(2)
nd.ones(2) + np.ones(1)
nd.ones((2, 1)) + nd.ones((1, 3))
nd.ones((2, 2)) + nd.ones((3, 2))
nd.ones(2) + nd.ones(2, dtype='int32')
nd.ones(2, dtype='int32') + 1.7
nd.ones(2, dtype='int32') / 2
nd.array([7, -7], dtype='int32') / 2
nd.array([7, -7], dtype='int32') * 1.5
nd.array([7, -7]) % 3
nd.array([7, -7]) % -3
7 % nd.array([3, -3])
nd.array([7, -7], dtype='int32') % 3
nd.array([7.5, -7.5]) // 2
nd.array([2, 3]) ** 2
2 ** nd.array([2, 3])
nd.array([2, 3]) ** nd.array([3, 2])
nd.array([2, 3], dtype='int32') ** 2
nd.array([4, 9]) ** 0.5
pow(nd.array([2, 3]), 2)
divmod(nd.array([7]), 2)
1 / nd.array([2, 0])
-nd.array([1, -2])
+nd.array([1, -2])
abs(nd.array([1, -2]))
~nd.array([1, 0])
nd.array([1, 0]) & nd.array([1, 1])
nd.array([1, 0]) @ nd.array([1, 1])
round(nd.array([1.4]))
nd.array([1, 2]) == 1
nd.array([1, 2]) != 1
nd.array([1, 2]) > nd.array([2, 1])
nd.array([1, 2]) >= 2
2 > nd.array([1, 2])
nd.array([1, 2]) == None
nd.array([1, 2]) != None
nd.array([1, 2]) == 'a'
nd.array([1, 2]) == [1, 2]
nd.array([1, 2]) == np.array([1, 2])
(nd.array([1, 2], dtype='int32') == 1).dtype
nd.array([1, 2]) < None
nd.array([1, 2]) == nd.array([1, 2, 3])
x = nd.ones(2); x += 1; x
x = nd.ones(2); x -= nd.ones(2); x
x = nd.ones(2); x *= 3; x
x = nd.ones(2); x /= 2; x
x = nd.array([7, 8]); x %= 3; x
x = nd.array([7, 8]); x **= 2; x
x = nd.array([7, 8]); x //= 2; x
x = nd.ones(2); x += nd.ones((2, 2)); x
x = nd.ones((2, 2)); x += nd.ones(2); x
x = nd.ones(2, dtype='int32'); x += 1.5; x
x = nd.ones(2, dtype='int32'); x += nd.ones(2); x
x = nd.ones(2); y = x; x += 1; y
x = nd.ones(2); x += None
x = nd.ones(2); x += [1, 2]
x = nd.ones(2); x += np.ones(2)
bool(nd.array([1])), bool(nd.array([0]))
bool(nd.array([1, 2]))
bool(nd.array([[1]]))
len(nd.ones((3, 2)))
len(nd.array(5))
float(nd.array([3])), int(nd.array([3.7]))
float(nd.ones(2))
list(range(5))[nd.array([2], dtype='int32')]
nd.array([3.5]).asscalar()
nd.array([[3]]).asscalar()
nd.ones(2).asscalar()
nd.array([3], dtype='int32').asscalar()
nd.array([3]).item()
nd.ones(2).item()
nd.ones(2).tolist()
str(nd.ones((2, 3)))
repr(nd.ones((2, 3)))
repr(nd.ones(2, dtype='int32'))
repr(nd.array(5))
str([nd.ones(1)])
format(nd.ones(1))
'%s' % nd.ones(1)
'{:.2f}'.format(nd.ones(1).asscalar())
1 in nd.array([1, 2]), 3 in nd.array([1, 2])
hash(nd.ones(2)) == hash(nd.ones(2))
x = nd.ones(2); {x: 3}[x]
[v for v in nd.array([1, 2])]
[v.shape for v in nd.ones((2, 3))]
a, b = nd.array([1, 2]); a
sum([nd.ones(2), nd.ones(2)])
sum(nd.array([1, 2, 3]))
max(nd.array([1, 3, 2]))
sorted(nd.array([3, 1, 2]))[0]
list(zip(nd.array([1, 2]), [3, 4]))
list(enumerate(nd.array([1, 2])))
any(nd.array([0, 1])), all(nd.array([0, 1]))
list(reversed(nd.array([1, 2])))
np.array(nd.ones((2, 3))).shape
np.asarray(nd.ones(2, dtype='int32')).dtype
np.asarray(nd.ones(2), dtype='int32').dtype
np.sum(nd.ones((2, 3)))
np.mean(nd.ones((2, 3)), axis=0)
np.exp(nd.zeros(2))
np.add(nd.ones(2), 1)
np.stack([nd.ones(2), nd.zeros(2)])
np.concatenate([nd.ones(2), nd.zeros(2)])
np.argmax(nd.array([[1, 3, 2]]), axis=1)
np.testing.assert_allclose(nd.ones(2), np.ones(2))
np.array_equal(nd.ones(2), np.ones(2))
np.allclose(nd.ones(2), np.ones(2))
isinstance(nd.ones(2), nd.NDArray), isinstance(nd.ones(2), np.ndarray)
x = nd.arange(6).reshape((2, 3)); x[0]
x = nd.arange(6).reshape((2, 3)); x[-1]
x = nd.arange(6).reshape((2, 3)); x[2]
x = nd.arange(6).reshape((2, 3)); x[-3]
x = nd.arange(6).reshape((2, 3)); x[0, 1]
x = nd.arange(6).reshape((2, 3)); x[0][1]
x = nd.arange(6).reshape((2, 3)); x[0, 1, 0]
x = nd.arange(6).reshape((2, 3)); x[0:1]
x = nd.arange(6).reshape((2, 3)); x[:, 1]
x = nd.arange(6).reshape((2, 3)); x[:, 1:2]
x = nd.arange(6).reshape((2, 3)); x[:, -1]
x = nd.arange(6).reshape((2, 3)); x[:, ::2]
x = nd.arange(6).reshape((2, 3)); x[:, ::-1]
x = nd.arange(6).reshape((2, 3)); x[::-1]
x = nd.arange(6).reshape((2, 3)); x[..., 0]
x = nd.arange(6).reshape((2, 3)); x[None].shape
x = nd.arange(6).reshape((2, 3)); x[:, None].shape
x = nd.arange(6).reshape((2, 3)); x[..., None].shape
x = nd.arange(6).reshape((2, 3)); x[0, None].shape
x = nd.arange(6).reshape((2, 3)); x[()]
x = nd.arange(6).reshape((2, 3)); x[...]
x = nd.arange(6).reshape((2, 3)); x[:]
x = nd.arange(6).reshape((2, 3)); x[[0, 1]]
x = nd.arange(6).reshape((2, 3)); x[[1, 0], [2, 1]]
x = nd.arange(6).reshape((2, 3)); x[[[0], [1]], [0, 2]]
x = nd.arange(6).reshape((2, 3)); x[:, [2, 0]]
x = nd.arange(6).reshape((2, 3)); x[[-1]]
x = nd.arange(6).reshape((2, 3)); x[[5]]
x = nd.arange(6).reshape((2, 3)); x[[]]
x = nd.arange(6).reshape((2, 3)); x[nd.array([1, 0])]
x = nd.arange(6).reshape((2, 3)); x[nd.array([1], dtype='int32')]
x = nd.arange(6).reshape((2, 3)); x[nd.array([1, 0]), nd.array([0, 1])]
x = nd.arange(6).reshape((2, 3)); x[np.array([1, 0])]
x = nd.arange(6).reshape((2, 3)); x[np.array([True, False])]
x = nd.arange(6).reshape((2, 3)); x[[True, False]]
x = nd.arange(6).reshape((2, 3)); x[True]
x = nd.arange(6).reshape((2, 3)); x[x > 2]
x = nd.arange(6).reshape((2, 3)); x[x.asnumpy() > 2]
x = nd.arange(6).reshape((2, 3)); x[(0, 1)]
x = nd.arange(6).reshape((2, 3)); x[np.int64(1)]
x = nd.arange(6).reshape((2, 3)); x[np.int32(1), np.int64(2)]
x = nd.arange(6).reshape((2, 3)); x[1.0]
x = nd.arange(6).reshape((2, 3)); x['a']
x = nd.arange(6).reshape((2, 3)); x[None, ..., 0].shape
x = nd.arange(6).reshape((2, 3)); x[..., ...]
x = nd.arange(6).reshape((2, 3)); x[0:5]
x = nd.arange(6).reshape((2, 3)); x[1:1]
x = nd.arange(6).reshape((2, 3)); x[5:2]
x = nd.arange(6).reshape((2, 3)); x[-1:]
x = nd.arange(6).reshape((2, 3)); x[::0]
x = nd.arange(6).reshape((2, 3)); x[0:2:1, 0:3:2]
x = nd.arange(6).reshape((2, 3)); x[1:0:-1]
x = nd.arange(6).reshape((2, 3)); x[slice(0, 1), slice(None)]
x = nd.arange(6).reshape((2, 3)); x[range(2)]
x = nd.arange(6); x[nd.array([1]):]
x = nd.arange(6); x[2:nd.array([4])]
nd.array(5)[0]
nd.array(5)[()]
nd.array(5)[:]
x = nd.zeros((2, 3)); x[0] = 1; x
x = nd.zeros((2, 3)); x[0, 1] = 1; x
x = nd.zeros((2, 3)); x[:] = 2; x
x = nd.zeros((2, 3)); x[...] = 2; x
x = nd.zeros((2, 3)); x[()] = 2; x
x = nd.zeros((2, 3)); x[:, 1] = 2; x
x = nd.zeros((2, 3)); x[:, 1] = [5, 6]; x
x = nd.zeros((2, 3)); x[:, 1] = nd.array([5, 6]); x
x = nd.zeros((2, 3)); x[:, 1] = np.array([5, 6]); x
x = nd.zeros((2, 3)); x[0] = [1, 2, 3]; x
x = nd.zeros((2, 3)); x[0] = (1, 2, 3); x
x = nd.zeros((2, 3)); x[0] = [1, 2]; x
x = nd.zeros((2, 3)); x[:] = [1, 2, 3]; x
x = nd.zeros((2, 3)); x[:] = [[1], [2]]; x
x = nd.zeros((2, 3)); x[:] = nd.ones((1, 3)); x
x = nd.zeros((2, 3)); x[:] = nd.ones((1, 2, 3)); x
x = nd.zeros((2, 3)); x[:] = np.ones((1, 2, 3)); x
x = nd.zeros((2, 3)); x[:] = nd.ones((3, 2)); x
x = nd.zeros((2, 3)); x[:] = np.ones(6); x
x = nd.zeros((2, 3)); x[:] = nd.ones((2, 3), dtype='int32'); x
x = nd.zeros((2, 3), dtype='int32'); x[:] = 1.7; x
x = nd.zeros((2, 3), dtype='int32'); x[:] = nd.ones((2, 3)) * 1.7; x
x = nd.zeros(2, dtype='uint8'); x[:] = 300; x
x = nd.zeros((2, 3)); x[:] = True; x
x = nd.zeros((2, 3)); x[:] = 'a'
x = nd.zeros((2, 3)); x[:] = None
x = nd.zeros((2, 3)); x[:] = 1j
x = nd.zeros((2, 3)); x[5] = 1
x = nd.zeros((2, 3)); x[0, 5] = 1
x = nd.zeros((2, 3)); x[[0, 1], [1, 2]] = 7; x
x = nd.zeros((2, 3)); x[[0, 1], [1, 2]] = [7, 8]; x
x = nd.zeros((2, 3)); x[[0, 0], [1, 1]] = [7, 8]; x
x = nd.zeros((2, 3)); x[nd.array([1])] = 7; x
x = nd.zeros((2, 3)); x[np.array([True, False])] = 7; x
x = nd.zeros((2, 3)); x[:, [0, 2]] = nd.array([[1, 2], [3, 4]]); x
x = nd.zeros((2, 3)); x[::-1] = nd.array([[1, 1, 1], [2, 2, 2]]); x
x = nd.zeros((2, 3)); x[:, ::2] = 4; x
x = nd.zeros((2, 3)); x[1:1] = 4; x
x = nd.zeros((2, 3)); x[None] = 4; x
x = nd.zeros((2, 3)); x[0, None] = [1, 2, 3]; x
x = nd.zeros((2, 3)); x[0] += 2; x
x = nd.zeros((2, 3)); x[:, 0] += 2; x
x = nd.zeros((2, 3)); x[0][1] = 5; x
x = nd.zeros((2, 3)); x[0:1][:] = 5; x
x = nd.zeros((2, 3)); x[:, 0][:] = 5; x
x = nd.zeros((2, 3)); x['a'] = 5
x = nd.zeros((2, 3)); x[0.5] = 5
x = nd.zeros((2, 3)); x[0, 0, 0] = 5
x = nd.zeros((2, 3)); x[0] = nd.array([1]); x
x = nd.zeros((2, 3)); x[0, 0] = nd.array([1]); x
x = nd.zeros((2, 3)); x[0, 0] = nd.array([[1]]); x
x = nd.zeros((2, 3)); x[0, 0] = nd.array([1, 2]); x
x = nd.zeros((2, 3)); x[0, 0] = np.float64(3); x
x = nd.zeros((2, 3)); x[0] = x[1] + 1; x
x = nd.arange(5); x[1:] = x[:-1]; x
x = nd.arange(5); x[:] = x[::-1]; x
x = nd.zeros(3); x[:] = [nd.ones(1), nd.ones(1), nd.ones(1)]
x = nd.array(5); x[:] = 3; x
x = nd.array(5); x[()] = 3; x
x = nd.zeros((2, 3)); del x[0]
x = nd.zeros((2, 3)); x.shape = (3, 2); x.shape
x = nd.zeros((2, 3)); x.shape = (7,)
x = nd.zeros((2, 3)); x.dtype = 'int32'
x = nd.zeros((2, 3)); x.grad = 3
x = nd.zeros((2, 3)); x.mine = 3; x.mine
"""

PROGRAMS = """
a = np.ones(3, dtype='float32')
x = nd.array(a)
a[0] = 5
x

a = np.ones(3, dtype='float32')
x = nd.from_numpy(a)
a.flags.writeable

a = np.ones(3, dtype='float32')
x = nd.from_numpy(a)
x[0] = 5
x.wait_to_read()
a

a = np.ones(3, dtype='float32')
x = nd.from_numpy(a, zero_copy=False)
a[0] = 5
a.flags.writeable, x

a = np.ones((2, 3), dtype='float32').T
nd.from_numpy(a)

a = np.ones((2, 3), dtype='float32').T
nd.from_numpy(a, zero_copy=False)

a = np.ones(3, dtype='float32')
a.flags.writeable = False
x = nd.from_numpy(a)
x

a = np.ones(3, dtype='float64')
nd.from_numpy(a).dtype

a = np.ones(3, dtype='int64')
nd.from_numpy(a).dtype

nd.from_numpy(np.ones(3, dtype='complex64'))

nd.from_numpy([1, 2, 3])

nd.from_numpy(np.array(3.0))

nd.from_numpy(ndarray=np.ones(2), zero_copy=True)

a = np.ones(3, dtype='float32')
nd.add(nd.ones(3), nd.ones(3), out=a)

x = nd.ones(3)
a = x.asnumpy()
a[0] = 5
x

x = nd.ones(3)
a = x.asnumpy()
a.flags.writeable

x = nd.ones(3)
out = nd.zeros(3)
nd.add(x, 1, out=out) is out

x, out = nd.ones(3), nd.zeros(3)
nd.elemwise_add(x, x, out=out)
out

x, out = nd.ones(3), nd.zeros(3)
nd.broadcast_add(x, x, out=out) is out, out

x, out = nd.ones(3), nd.zeros(4)
nd.elemwise_add(x, x, out=out)

x, out = nd.ones(3), nd.zeros(3, dtype='int32')
nd.elemwise_add(x, x, out=out)

x, out = nd.ones(3), nd.zeros(3)
nd.relu(x, out=[out])
out

x, out = nd.ones(3), nd.zeros((1, 3))
nd.relu(x, out=out)

x = nd.ones(3)
nd.relu(x, out=np.zeros(3))

x = nd.arange(4)
nd.square(x[1:3], out=x[1:3])
x

x = nd.arange(4)
nd.square(x, out=x)
x

x = nd.arange(6).reshape((2, 3))
a, b = nd.zeros((2, 1)), nd.zeros((2, 2))
nd.split_v2(x, (1,), axis=1)

x = nd.arange(4)
a, b = nd.zeros(2), nd.zeros(2)
nd.split(x, num_outputs=2, axis=0, out=[a, b])
a, b

x = nd.arange(4)
a = nd.zeros(2)
nd.split(x, num_outputs=2, axis=0, out=[a])

x = nd.arange(4)
y = x.reshape((2, 2))
y[0, 0] = 9
x

x = nd.arange(4)
y = x[1:3]
y += 10
x

x = nd.arange(4)
y = x.T
y[0] = 9
x

x = nd.arange(4).reshape((2, 2))
y = x.T
y[0] = 9
x

x = nd.arange(4)
y = x.flatten()
y[0] = 9
x

x = nd.arange(4).reshape((2, 2))
y = x.expand_dims(0)
y[:] = 9
x

x = nd.arange(4).reshape((2, 2))
y = x.expand_dims(0, inplace=True)
y[:] = 9
x

x = nd.arange(4)
y = x.astype('float32')
y[:] = 9
x

x = nd.arange(4)
y = x.astype('float32', copy=False)
y is x

x = nd.arange(4)
y = x.as_in_context(mx.cpu())
y is x

x = nd.arange(4)
y = nd.array(x)
y[:] = 1
x

x = nd.arange(4)
y = x.detach()
y[:] = 1
x

x = nd.arange(4)
y = x.copy()
y[:] = 1
x

x = nd.arange(4)
y = x.copyto(mx.cpu(0))
y[:] = 1
x

x, y = nd.arange(4), nd.zeros(4)
z = x.copyto(y)
z is y, y

x, y = nd.arange(4), nd.zeros(5)
x.copyto(y)

x, y = nd.arange(4), nd.zeros(4, dtype='int32')
x.copyto(y)
y

x = nd.arange(4)
x.copyto(x)

x = nd.arange(4)
x.copyto(3)

x = nd.arange(4)
x.copyto(np.zeros(4))

x = nd.arange(4)
y = x.slice_axis(axis=0, begin=0, end=2)
y[:] = 9
x

x = nd.ones((2, 3))
y = x.broadcast_to((2, 3))
y[:] = 9
x

x = nd.array([1, 2, 3])
y = nd.from_dlpack(x.to_dlpack_for_write())
y[0] = 9
x

x = nd.array([1, 2, 3])
y = nd.from_dlpack(x.to_dlpack_for_read())
y

x = nd.zeros((2, 3))
for row in x:
    row[:] = 4
x

x = nd.zeros((2, 3))
x[0], x[1] = nd.ones(3), nd.ones(3) * 2
x

x = nd.zeros(2)
x[0], x[1] = x[1] + 1, x[0] + 2
x

x = nd.zeros((2, 2, 2))
x[:, 0, :] = nd.array([1, 2])
x

x = nd.zeros((2, 2, 2))
x[0, :, [0, 1]] = 3
x

x = nd.zeros((2, 2, 2))
x[..., 0] = nd.array([[1, 2], [3, 4]])
x

x = nd.arange(24).reshape((2, 3, 4))
x[[0, 1], :, [1, 2]]

x = nd.arange(24).reshape((2, 3, 4))
x[1, [0, 2]]

x = nd.arange(24).reshape((2, 3, 4))
x[:, [0, 2], 1:3].shape

x = nd.arange(24).reshape((2, 3, 4))
x[..., [0, 2]].shape, x[0, ..., 0].shape, x[None, 0, :, None].shape

x = nd.arange(24).reshape((2, 3, 4))
x[nd.array([0, 1]), 1]

x = nd.arange(24).reshape((2, 3, 4))
x[nd.array([[0, 1], [1, 0]])].shape

x = nd.arange(24).reshape((2, 3, 4))
x[np.zeros((2, 3), dtype=bool)]

x = nd.arange(24).reshape((2, 3, 4))
x[x.asnumpy() > 20]

x = nd.arange(24).reshape((2, 3, 4))
x[1, 1:, ::2]

x = nd.arange(24).reshape((2, 3, 4))
x[-1, -1, -1]

nd.save('probe.params', [nd.ones(2), nd.zeros(1)])
nd.load('probe.params')

nd.save('probe.params', {'a': nd.ones(2)})
nd.load('probe.params')

nd.save('probe.params', nd.ones(2))
nd.load('probe.params')

nd.save('probe.params', 3)

nd.save('probe.params', [np.ones(2)])

nd.load('/tmp/nothing_of_the_kind.params')

nd.waitall() is None, nd.ones(1).wait_to_read() is None

nd.onehot_encode(nd.array([0, 2]), nd.zeros((2, 3)))
"""
