"""Rows of `npx`."""

from np_rows.case import rows

ROWS = [
    *rows(
        "npx.relu npx.sigmoid npx.softmax npx.log_softmax npx.erf npx.leaky_relu",
        "f(2, 3); f(3)",
        numpy=False,
    ),
    *rows("npx.relu npx.sigmoid npx.erf", "f(); f(0, 2)", numpy=False),
    *rows("npx.relu", "f(3), axis=1", numpy=False),
    *rows(
        "npx.softmax npx.log_softmax", "f(2, 3), axis=0", "f(2, 3), temperature=2.0", numpy=False
    ),
    *rows("npx.softmax npx.log_softmax", "f()", "f(), axis=0", numpy=False),
    *rows(
        "npx.activation",
        "f(2, 3), act_type='tanh'; f(2, 3), 'relu'; f(3), act_type='softsign'",
        numpy=False,
    ),
    *rows(
        "npx.leaky_relu",
        "f(2, 3), act_type='elu', slope=0.5; f(2, 3), act_type='gelu'",
        numpy=False,
        rtol=0.0001,
    ),
    *rows("npx.smooth_l1", "f(5), scalar=1.0; f(5), scalar=2.0", numpy=False),
    *rows(
        "npx.batch_dot",
        "f(4, 2, 3), f(4, 3, 2); f(4, 2, 3), f(4, 2, 3), transpose_b=True; "
        "f(4, 2, 3), f(4, 2, 3), True",
        numpy=False,
    ),
    *rows("npx.batch_flatten", "f(2, 3, 4)", numpy=False),
    *rows(
        "npx.one_hot",
        "np.array([0, 2]), 3; "
        "np.array([[0, 2]], dtype='int32'), depth=3, on_value=2.0, off_value=-1.0; "
        "np.array([0, 1]), 2, dtype='int32'; np.array(1), 3",
        numpy=False,
        grad=False,
    ),
    *rows(
        "npx.pick",
        "f(2, 3), np.array([0, 2]); f(2, 3), np.array([1, 0, 1]), axis=0; "
        "f(2, 3), np.array([0, 2]), keepdims=True",
        numpy=False,
    ),
    *rows(
        "npx.topk",
        "f(2, 4); f(2, 4), k=2, ret_typ='indices'; f(2, 4), k=2, axis=1, ret_typ='value'; "
        "f(2, 4), k=2, ret_typ='both', is_ascend=True; "
        "f(2, 4), dtype='int32'",
        numpy=False,
        grad=False,
    ),
    *rows("npx.embedding", "np.array([0, 2]), f(3, 2), input_dim=3, output_dim=2", numpy=False),
    *rows(
        "npx.fully_connected",
        "f(2, 3), f(4, 3), f(4), num_hidden=4; "
        "f(2, 3), f(4, 3), num_hidden=4, no_bias=True; "
        "f(2, 3, 2), f(4, 2), f(4), num_hidden=4, flatten=False",
        numpy=False,
    ),
    *rows(
        "npx.convolution",
        "f(2, 3, 5, 5), f(4, 3, 3, 3), f(4), kernel=(3, 3), num_filter=4; "
        "data=f(2, 3, 5), weight=f(4, 3, 3), kernel=(3,), num_filter=4, no_bias=True; "
        "f(1, 2, 5, 5), f(2, 1, 3, 3), f(2), kernel=(3, 3), num_filter=2, num_group=2, "
        "pad=(1, 1), stride=(2, 2)",
        numpy=False,
        rtol=0.0001,
        atol=1e-05,
    ),
    *rows(
        "npx.deconvolution",
        "f(2, 3, 4, 4), f(3, 2, 3, 3), kernel=(3, 3), num_filter=2, stride=(2, 2)",
        numpy=False,
        rtol=1e-4,
        atol=1e-5,
    ),
    *rows(
        "npx.pooling",
        "f(2, 3, 4, 4), kernel=(2, 2), pool_type='max', stride=(2, 2); "
        "data=f(2, 3, 4, 4), pool_type='avg', kernel=(2, 2), stride=(1, 1); "
        "f(2, 3, 4, 4), global_pool=True, pool_type='avg'",
        numpy=False,
    ),
    *rows(
        "npx.batch_norm",
        "f(4, 3), p(3), f(3), np.zeros(3), np.ones(3), fix_gamma=False; "
        "f(4, 3, 2), p(3), f(3), np.zeros(3), np.ones(3)",
        numpy=False,
        rtol=0.0001,
        atol=1e-05,
    ),
    *rows(
        "npx.layer_norm",
        "f(2, 5), p(5), f(5); f(2, 5), p(2), f(2), axis=0",
        numpy=False,
        rtol=0.0001,
        atol=1e-05,
    ),
    *rows("npx.dropout", "f(2, 3), p=0.5", numpy=False, slope="random"),
    *rows(
        "npx.sequence_mask",
        "f(3, 2), np.array([1, 3]), True; "
        "f(3, 2), np.array([1, 3]), use_sequence_length=True, value=-1.0; "
        "f(2, 3), np.array([1, 3]), True, value=-1e6, axis=1",
        numpy=False,
    ),
    *rows("npx.reshape_like", "f(2, 3), f(3, 2)", numpy=False),
    *rows(
        "npx.slice",
        "f(3, 4), begin=(0, 1), end=(2, 3); f(5), (1,), (4,), step=(2,); "
        "f(3, 4), begin=(None, 1), end=(None, None); f(3, 4), begin=(), end=(); "
        "f(3, 4), begin=[], end=[]",
        numpy=False,
    ),
    *rows(
        "npx.rnn",
        "data=f(3, 2, 4), parameters=f(40), state=f(1, 2, 4), mode='rnn_tanh', "
        "state_size=4, num_layers=1",
        numpy=False,
        rtol=1e-4,
    ),
]
