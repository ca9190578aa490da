"""Calls of methods of Symbols and of functions on them, one a line: rows of `symbol_rows`.

`DIFFERENT` has the calls where d2lmini and MXNet differ on purpose, by reason.
"""

AGREE = """
json.loads(sym.arange(3, name='c').tojson())['nodes']
json.loads(sym.random.normal(0, 1, shape=(2,), name='c').tojson())['nodes']
sym.arange(0, 6, 2).list_attr()
sym.concat(dim=0)
sym.FullyConnected(x, num_hidden=3, nothing=1)
sym.FullyConnected(x)
x.name
(x + y).name
x.list_arguments()
bool(x == y)
x == y
x != y
x == 2
not x
x and y
x in (x, y)
len(x)
len(fc)
len(split)
list(split)
[s.name for s in split]
next(iter(split))
split[0]
split[3]
split[0:2]
split[1:]
split[::2]
split[5:]
split['s_output1']
split['s_output7']
split['s']
fc['fc_output']
fc['fc']
fc[0]
fc[1]
fc[0:1]
fc['x']
fc[True]
fc[None]
fc[(0,)]
fc[[0]]
fc.get_internals()['x']
fc.get_internals()['fc_weight']
fc.get_internals()[0]
fc.get_internals()[2:4]
fc.get_internals()['nothing']
fc.get_internals().list_outputs()
bn.get_internals().list_outputs()
bn.list_outputs()
bn.list_auxiliary_states()
bn.list_arguments()
bn.list_inputs()
rnn.list_outputs()
rnn.get_internals().list_outputs()
rnn.list_arguments()
x.list_inputs()
x.get_internals().list_outputs()
x.get_children()
fc.get_children()
fc.get_children().list_outputs()
split.get_children()
split[1].get_children()
group.get_children()
group.list_outputs()
group.list_arguments()
group.name
group.attr('x')
group.list_attr()
group.attr_dict()
group[0]
group[1].name
group['fc_output']
group['s_output0']
group.get_internals().list_outputs()
repr(group)
repr(fc)
repr(x)
repr(split)
repr(split[1])
repr(sym.Group([x]))
str(x)
sym.Group([x, x]).list_outputs()
sym.Group([x, x])['x']
sym.Group([fc, fc]).list_outputs()
sym.Group([group, y]).list_outputs()
sym.Group([x, None])
sym.Group((x, y)).list_outputs()
sym.Group()
fc.debug_str()
x.debug_str()
bn.debug_str()
group.debug_str()
copy.copy(fc).list_outputs()
copy.copy(fc) is fc
copy.copy(fc).name
copy.deepcopy(fc).list_arguments()
copy.deepcopy(group).list_outputs()
pickle.loads(pickle.dumps(fc)).list_arguments()
pickle.loads(pickle.dumps(group)).list_outputs()
pickle.loads(pickle.dumps(bn)).list_auxiliary_states()
pickle.loads(pickle.dumps(sym.var('q', lr_mult=2, attr={'a': 'b'}))).list_attr()
pickle.loads(pickle.dumps(x)).name
json.loads(fc.tojson())['nodes']
json.loads(bn.tojson())['nodes']
json.loads(bn.tojson())['arg_nodes']
json.loads(bn.tojson())['heads']
json.loads(bn.tojson())['node_row_ptr']
sorted(json.loads(bn.tojson()))
json.loads(bn.tojson())['attrs']
json.loads(group.tojson())['heads']
json.loads(x.tojson())
json.loads(rnn.tojson())['nodes']
json.loads(rnn.tojson())['node_row_ptr']
json.loads(sym.Dropout(x, p=0.3, name='d').tojson())['nodes']
json.loads(sym.Cast(x, dtype='float16', name='d').tojson())['nodes']
json.loads((x + 1).tojson())['nodes']
json.loads((x * 2.5).tojson())['nodes']
json.loads((1 - x).tojson())['nodes']
json.loads(sym.exp(x, name='e', attr={'__mood__': 'good', 'lr_mult': '2'}).tojson())['nodes']
json.loads(sym.Convolution(x, kernel=(3, 3), num_filter=4, name='c').tojson())['nodes']
json.loads(sym.reshape(x, shape=(0, -1), name='c').tojson())['nodes']
json.loads(sym.sum(x, axis=1, name='c').tojson())['nodes']
json.loads(sym.sum(x, axis=(0, 1), keepdims=True, name='c').tojson())['nodes']
json.loads(sym.concat(x, y, dim=0, name='c').tojson())['nodes']
json.loads(sym.zeros((2, 3), name='c').tojson())['nodes']
json.loads(sym.ones((2, 3), dtype='int32', name='c').tojson())['nodes']
json.loads(sym.slice(x, begin=(0, None), end=(1, None), name='c').tojson())['nodes']
json.loads(sym.clip(x, 0, 1, name='c').tojson())['nodes']
json.loads(sym.transpose(x, name='c').tojson())['nodes']
json.loads(sym.softmax(x, axis=1, name='c').tojson())['nodes']
json.loads(sym.SoftmaxOutput(x, name='c').tojson())['nodes']
json.loads(sym.LeakyReLU(x, act_type='prelu', name='c').tojson())['nodes']
json.loads(sym.Embedding(x, input_dim=3, output_dim=4, name='c').tojson())['nodes']
json.loads(sym.maximum(x, y).tojson())['nodes'][2]['name']
json.loads(sym.dot(x, y, transpose_b=True, name='c').tojson())['nodes']
json.loads(sym.take(x, y, name='c').tojson())['nodes']
json.loads(sym.one_hot(x, depth=3, name='c').tojson())['nodes']
json.loads(sym.topk(x, k=2, ret_typ='both', name='c').tojson())['nodes']
json.loads(sym.norm(x, name='c').tojson())['nodes']
json.loads(sym.Pooling(x, kernel=(2, 2), pool_type='avg', name='c').tojson())['nodes']
json.loads(sym.load_json(fc.tojson()).tojson()) == json.loads(fc.tojson())
sym.load_json(fc.tojson()).list_arguments()
sym.load_json(bn.tojson()).attr_dict()
sym.load_json('{}')
sym.load_json(3)
sym.load_json(None)
sym.fromjson(fc.tojson()).list_arguments()
x.save(3)
sym.load(3)
x.eval()
x.eval(x=nd.ones(2))
fc.eval(x=nd.ones((1, 2)))
(x * y).eval(x=nd.ones(2), y=nd.ones(3))
(x * 2).eval(mx.cpu(), x=nd.ones(2))
(x * 2).eval(x=3)
x.grad
x.grad(['x'])
x.gradient(['x'])
x.shape
x.dtype
x.size
x.ndim
x.context
x.ctx
x.T
x.asnumpy()
x.asscalar()
x.wait_to_read()
x.backward()
x[0]
x['x']
x[1]
x.nothing
fc(x=y)
fc(x=y, name='n')
fc(x=y, name='n').list_arguments()
fc(fc_weight=y).list_arguments()
fc(x=y * 2).list_arguments()
fc(x=split)
fc(q=y)
fc(x=y, q=y)
fc(y, fc_bias=z)
fc(x=None)
fc(None)
fc(x=nd.ones(2))
fc(x='y')
split(x=y).list_outputs()
split(x=y, name='n').list_outputs()
split[0](x=y).list_outputs()
group(x=y, name='n').list_outputs()
bn(x=y).list_auxiliary_states()
bn(bn_moving_mean=y).list_auxiliary_states()
(x + y)(x=z).list_arguments()
(x + x)(x=z).list_arguments()
fc.attr('name')
fc.attr('num_hidden')
fc.attr('no_bias')
fc.attr('flatten')
fc.list_attr()
fc.attr_dict()
bn.attr_dict()
bn.list_attr()
x.list_attr()
x.attr('lr_mult')
x.attr_dict()
x._set_attr(a='1') or x.attr('a')
x._set_attr(a=None)
x._set_attr() or x.list_attr()
fc._set_attr(lr_mult='2') or fc.list_attr()
sym.FullyConnected(x, num_hidden='3').list_attr()
sym.FullyConnected(x, num_hidden='a')
sym.FullyConnected(x, num_hidden=3, __own__='1').list_attr()
sym.FullyConnected(x, num_hidden=3, attr={'__a__': 'b'}).list_attr()
sym.FullyConnected(x, num_hidden=3, attr={'lr_mult': '2'}, name='f').attr_dict()
sym.FullyConnected(x, num_hidden=3, lr_mult=2)
sym.FullyConnected(x, num_hidden=3, name='').name
sym.FullyConnected(x, num_hidden=3, name=None).name
sym.FullyConnected(x, y, z, num_hidden=3).list_arguments()
sym.FullyConnected(x, y, z, x, num_hidden=3)
sym.FullyConnected(x, None, z, num_hidden=3, name='f').list_arguments()
sym.FullyConnected(x, bias=z, num_hidden=3, name='f').list_arguments()
sym.FullyConnected(data=x, weight=y, bias=z, num_hidden=3).list_arguments()
sym.FullyConnected(x, data=y, num_hidden=3)
sym.FullyConnected(split, num_hidden=3)
sym.FullyConnected(group, num_hidden=3)
sym.concat(*split, dim=0, name='c').get_children().list_outputs()
sym.concat(x).list_outputs()
sym.add_n(x, y).name
sym.add_n(*[x, y, z], name='t').list_arguments()
sym.exp(split)
sym.maximum(x, 'a')
x + 'a'
x + None
x + nd.ones(2)
nd.ones(2) + x
x + [1]
x + np.float32(2)
np.float32(2) + x
np.ones(2) + x
x + np.ones(2)
x @ y
x // y
x // 2
x & y
~x
x << 2
divmod(x, 2)
round(x)
abs(x).name
-x
(-x).name
pow(x, 2).name
pow(x, y).name
2 ** x
x % 2
setattr(x, 'a', 1)
sym.var('a').name
sym.Variable('a').name
sym.var()
sym.var('')
sym.var('a', shape=(2, 0)).list_attr()
sym.var('a', shape=()).list_attr()
sym.var('a', lr_mult=2, wd_mult=3).list_attr()
sym.var('a', lr_mult='2').list_attr()
sym.var('a', dtype='float16').list_attr()
sym.var('a', dtype=np.int32).list_attr()
sym.var('a', dtype=float).list_attr()
sym.var('a', dtype='bool').list_attr()
sym.var('a', init='zeros').list_attr()
sym.var('a', init=mx.init.Xavier()).list_attr()
sym.var('a', init=mx.init.Constant(3)).list_attr()
sym.var('a', init=3)
sym.var('a', stype='default').list_attr()
sym.var('a', attr={'x': 1})
sym.var('a', attr={'x': '1', '__y__': '2'}).list_attr()
sym.var('a', attr={'lr_mult': '3'}).list_attr()
sym.var('a', attr={'lr_mult': '3'}, lr_mult=4).list_attr()
sym.var('a', attr={'__lr_mult__': '3'}).list_attr()
sym.var('a', attr={'ctx_group': 'g'}).list_attr()
sym.var('a', attr={'force_mirroring': 'True'}).list_attr()
sym.var('a', __layout__='NCHW').list_attr()
sym.var('a', layout='NCHW')
sym.var('a', __x__=3).list_attr()
sym.var('a', profiler_scope='q:').list_attr()
sym.zeros((2, 3)).name
sym.zeros(3).infer_shape()
sym.zeros((2, 3), name='q').name
sym.zeros((2, 3)).list_outputs()
sym.full((2,), 3).list_attr()
sym.arange(0, 6, 2, repeat=2).infer_shape()
sym.linspace(0, 1, 5).infer_shape()
sym.eye(3).list_attr()
sym.zeros((2, 3)).infer_type()
sym.zeros((2, 3), dtype='int32').infer_type()
sym.zeros_like(x).name
sym.ones_like(x).list_attr()
x.reshape((2, 3)).list_attr()
x.reshape(shape=(2, 3)).list_attr()
x.reshape((0, -1), reverse=True).list_attr()
x.slice_axis(axis=0, begin=0, end=1).list_attr()
x.sum().list_attr()
x.sum(axis=0).list_attr()
x.mean(axis=(0, 1), keepdims=True).list_attr()
x.sum(0).list_attr()
x.transpose((1, 0)).list_attr()
x.expand_dims(1).list_attr()
x.expand_dims(axis=1).list_attr()
x.astype('int32').list_attr()
x.astype(np.float64).list_attr()
x.clip(0, 1).list_attr()
x.clip(a_min=0, a_max=1).list_attr()
x.swapaxes(0, 1).list_attr()
x.split(2).list_outputs()
x.split(num_outputs=2, axis=1).list_attr()
x.flatten().name
x.dot(y)
x.softmax(axis=1).list_attr()
x.topk(k=2).list_attr()
x.repeat(2, axis=1).list_attr()
x.tile((2, 2)).list_attr()
x.pad(mode='constant', pad_width=(0, 0, 1, 1)).list_attr()
x.one_hot(3).list_attr()
x.take(y, axis=1).list_attr()
x.broadcast_to((2, 3)).list_attr()
x.norm(ord=1).list_attr()
x.relu().name
x.sigmoid(name='s').name
x.argmax(axis=1).list_attr()
x.slice((0,), (1,)).list_attr()
x.diag(1).list_attr()
x.square().sum().sqrt().name
x.mul(y)
x.log_softmax().name
fc.infer_shape()
fc.infer_shape(x=(2, 3))
fc.infer_shape(x=())
fc.infer_shape(x=(2, '3'))
fc.infer_shape(x=(2, 3.0))
fc.infer_shape(x=(2, None))
fc.infer_shape(x=(-1, 3))
fc.infer_shape(x=np.array([2, 3]))
fc.infer_shape(x=(np.int64(2), np.int32(3)))
fc.infer_shape(x='23')
fc.infer_shape(nothing=(2, 3))
fc.infer_shape(x=(2, 3), nothing=(1,))
fc.infer_shape((2, 3), x=(2, 3))
fc.infer_shape(fc_weight=(3, 7))
fc.infer_shape_partial(nothing=(1,))
bn.infer_shape(x=(2, 3))
bn.infer_shape(bn_moving_mean=(3,))
bn.infer_shape(bn_gamma=(3,))
group.infer_shape(x=(2, 4))
split.infer_shape(x=(2, 4))
split.infer_shape(x=(2, 3))
x.infer_shape()
x.infer_shape(x=(1,))
x.infer_shape_partial()
fc.infer_shape_partial()
sym.batch_take(x, y).infer_shape(x=(2, 3), y=(2,))
sym.slice(x, begin=(1,), end=(1,)).infer_shape(x=(3, 2))
sym.slice(x, begin=(0, -1), end=(0, 2)).infer_shape(x=(3, 2))
sym.diag(x, k=1).infer_shape(x=(1, 1, 3))
sym.linspace(0, 1, 0).infer_shape()
sym.zeros((2, 0)).infer_shape()
sym.where(x, y, z).infer_shape_partial(x=(2,), y=(2, 3))
sym.where(x, y, z).infer_shape_partial(x=(2, 3), y=(2, 0), z=(0, 3))
sym.RNN(x, y, z, state_size=4, num_layers=1, mode='gru').infer_shape(x=(5, 3))
sym.RNN(x, y, z, state_size=4, num_layers=1, mode='gru').infer_shape_partial(y=(7,))
sym.Embedding(x, y, input_dim=2, output_dim=3).infer_shape_partial(y=(4, 3))
sym.Convolution(x, kernel=(2, 2), num_filter=3, name='c').infer_shape_partial(c_bias=(4,))
sym.var('a', shape=(2, 3)).infer_shape()
sym.var('a', shape=(2, 0)).infer_shape()
sym.var('a', shape=(2, 0)).infer_shape_partial()
sym.var('a', shape=(2, 3)).infer_shape(a=(4, 5))
sym.var('a', shape=(2, 0)).infer_shape(a=(4, 5))
(sym.var('a', shape=(2, 0)) + sym.var('b', shape=(0, 3))).infer_shape()
fc.infer_type()
fc.infer_type(x='float16')
fc.infer_type(x=np.float64)
fc.infer_type(x=float)
fc.infer_type(x='nonsense')
fc.infer_type(nothing='float32')
fc.infer_type('float16', 'float32')
fc.infer_type(x='float16', fc_weight='float32')
fc.infer_type('float16', x='float16')
fc.infer_type_partial()
fc.infer_type_partial(fc_bias='float16')
bn.infer_type(x='float16')
bn.infer_type(x='float64')
bn.infer_type()
group.infer_type(x='int32')
split.infer_type(x='int8')
(x + y).infer_type(x='float16')
(x + y).infer_type(y='float16')
(x + y).infer_type(x='float16', y='float32')
(x + 1).infer_type(x='int32')
(x == y).infer_type(x='int32')
x.astype('int32').infer_type()
x.astype('int32').infer_type(x='float16')
sym.Embedding(x, input_dim=2, output_dim=3).infer_type_partial(x='int32')
sym.argmax(x, axis=0).infer_type()
sym.topk(x, dtype='int32').infer_type(x='float16')
sym.where(x, y, z).infer_type(y='float16')
sym.dot(x, y).infer_type(y='float64')
sym.concat(x, y, dim=0).infer_type(y='float64')
sym.stack(x, y).infer_type(x='int32')
sym.SoftmaxOutput(x, name='s').infer_type(x='float64')
sym.softmax(x).infer_type(x='float16')
sym.cumsum(x, dtype=None).infer_type(x='float32')
sym.random.normal(0, 1, shape=(2,), dtype=None, name='n').attr_dict()
sym.random.normal(0, 1, shape=(2,), dtype=None).infer_type()
sym.norm(x, out_dtype='float32').infer_type(x='int32')
sym.SequenceMask(x, y, use_sequence_length=True).infer_type(x='float16')
sym.SequenceLast(x, y, use_sequence_length=True).infer_type(x='float64')
sym.SequenceReverse(x, y, use_sequence_length=True).infer_type(x='float32')
sym.RNN(x, state_size=4, num_layers=1, mode='gru', use_sequence_length=True).infer_type(x='float16')
sym.batch_take(x, y).infer_type(x='float16')
sym.LayerNorm(x, name='l').infer_type(x='float16')
sym.RNN(x, state_size=4, num_layers=1, mode='gru', name='r').infer_type(x='float16')
sym.Dropout(x).infer_type(x='float16')
sym.sum(x).infer_type(x='float16')
sym.shape_array(x).infer_type()
sym.zeros((2,), dtype='float16').infer_type()
(sym.zeros((2,)) + x).infer_type(x='float64')
(sym.var('a', dtype='float16') + x).infer_type()
(sym.var('a', dtype='float16') + x).infer_type(x='float32')
sym.var('a', dtype='float16').infer_type(a='float32')
sym.broadcast_add(x, y).infer_type(x='float16')
sym.amp_cast(x, dtype='float16').infer_type()
sym.elemwise_add(x, y).infer_type()
sym.reshape_like(x, y).infer_type(x='float16')
sym.random.normal(0, 1, shape=(2,)).infer_type()
sym.random.normal(0, 1, shape=(2,), dtype='float16').infer_type()
""".strip().split("\n")

DIFFERENT = {
    "takes what MXNet refuses: counting from the end, generators, inputs by position, lists": """
split[-1]
fc[-1]
fc.get_internals()[-1]
sym.Group(s for s in (x, y)).list_outputs()
fc(y).list_arguments()
fc(y, x, z).list_arguments()
(x + y)(z).list_arguments()
(x + y)(z, z).list_arguments()
x(x=y)
sym.concat(split, y, dim=0).list_arguments()
sym.concat(split, dim=0, name='c').get_children().list_outputs()
sym.concat(group, dim=0, name='c').get_children().list_outputs()
sym.concat([x, y], dim=0)
sym.concat(x, y, 0)
sym.add_n([x, y])
fc.infer_shape((2, 3))
fc.infer_shape((2, 3), None, None)
fc.infer_shape((2, 3), (3, 3))
fc.infer_shape(x=None)
fc.infer_shape(x=[2, 3])
fc.infer_type('float16')
fc.infer_type('float16', None, None)
sym.FullyConnected(x, num_hidden=3.0).list_attr()
sym.FullyConnected(x, num_hidden=3, attr={'a': 'b'})
json.loads(sym.split_v2(x, 2, name='c').tojson())['nodes']
fc.attr(3)
sym.FullyConnected(x, num_hidden=3, name=3)
""",
    "works as for arrays, so that one hybrid_forward serves both": """
x.detach()
x.copy()
x.__iadd__(y)
x.__imul__(2)
+x
""",
    "refuses with the advice of NotImplementedForSymbol": """
x.item()
x.attach_grad()
x.copyto(y)
x.as_in_context(mx.cpu())
x.tolist()
float(x)
int(x)
complex(x)
x.__setitem__(0, 1)
""",
    "another kind of error, as for arrays": """
sym.load_json('')
sym.load('/nonexistent/file')
sym.Group(x)
x(y, x)
fc(y, x, z, x)
sym.FullyConnected(nd.ones(2), num_hidden=3)
sym.FullyConnected(3, num_hidden=3)
sym.elemwise_add(x, 2)
sym.broadcast_add(x, 2)
sym.var('a', dtype='nonsense')
fc.infer_shape(nothing=None)
""",
    "is refused where MXNet ignores it": """
sym.exp(x, name='e', out=y)
sym.FullyConnected(x, num_hidden=3, attr={'__a__': 3})
""",
    "replaces a variable where MXNet renames it": """
x()
x(y)
x(name='q')
""",
    "shares a variable that MXNet lists twice": """
group(x=y).list_arguments()
(x + y)(x=y).list_arguments()
""",
    "attributes of a call do not change later": """
fc._set_attr(num_hidden='7') or fc.infer_shape(x=(1, 2))
""",
    "writes the value after its conversion": """
sym.var('a', shape=2).list_attr()
sym.var('a', shape=[2, 3]).list_attr()
""",
    "infers more, or says that it does not know where MXNet raises an error": """
sym.Convolution(x, kernel=(1, 1), num_filter=2, name='c').infer_type(c_bias='float64')
sym.SoftmaxOutput(x, y).infer_type(y='float32')
sym.max(x, axis=(0, 1)).infer_shape_partial(x=(4, 0, 1, 2))
sym.argmax(x, axis=1).infer_shape_partial(x=(0, 3, 2))
sym.norm(x, axis=1).infer_shape_partial(x=(0, 3, 2))
sym.tile(x, reps=(1, 2)).infer_shape_partial(x=(0, 1))
sym.Flatten(x).infer_shape_partial(x=(0, 4, 2))
sym.squeeze(x).infer_shape_partial(x=(0, 1))
sym.one_hot(x, depth=3).infer_shape_partial(x=(0,))
sym.broadcast_axis(x, axis=1, size=3).infer_shape_partial(x=(0, 1))
sym.where(x, y, z).infer_shape_partial(y=(2, 3))
sym.where(x, y, z).infer_shape_partial(x=(0, 3), y=(2, 3))
fc.infer_shape_partial(x=(0, 0))
sym.Embedding(x, input_dim=2, output_dim=3, dtype='float16').infer_type()
sym.one_hot(x, depth=2, dtype='int32').infer_type()
sym.take(x, y).infer_type(x='float16')
sym.pick(x, y).infer_type(x='float16')
fc.infer_type(x=None)
""",
    "infers inputs only for elementwise ops and for ops with parameters, labels or lengths": """
sym.concat(x,y,dim=1).infer_shape(x=(2,3),y=(0,4))
sym.linalg.gemm(x, y, z).infer_shape(x=(2, 3), y=(3, 4))
sym.size_array(x).infer_shape_partial()
""",
    "sees a contradiction that MXNet overwrites": """
fc.infer_shape((2, 3), (3, 3), (3,), (1,))
bn.infer_shape(x=(2, 3), bn_moving_mean=(4,))
""",
}

#: Call -> the reason why the answers differ.
REASONS = {row: reason for reason, rows in DIFFERENT.items() for row in rows.strip().split("\n")}
