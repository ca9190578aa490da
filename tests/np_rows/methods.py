"""Rows of operators, methods and indexing of `np.ndarray`."""

from np_rows.case import whole

_KEYS = """x[1] x[-1] x[1:3] x[:,1] x[1,2] x[1][2] x[::2] x[::-1] x[:,::-1] x[...] x[...,0]
    x[None] x[:,None] x[:,None,1] x[()] x[1:,::2] x[-3:-1] x[[0,2]] x[[0,2],1] x[[0,2],[1,0]]
    x[np.array([0,2])] x[np.array([0,2]),1] x[np.array([0,2],dtype='int64')]
    x[np.array([[0,1],[2,0]],dtype='int32')] x[np.array(1,dtype='int64'),:] x[np.array(1)]
    x[range(2)] x[range(2),np.array([0,1])] x[1,[0,2]] x[onp.int32(1)] x[onp.array([0,2])]
    x[(1,slice(None))] x[:,[0,2]] x[[-1]] x[[]] x[[True,False,True]]
    x[np.array([True,False,True],dtype=bool)]
    x[onp.array([True,False,True])]""".split()
_MASKS = """x[x>0] x[x>9] x[b(3)] x[b(3,3)]
    x[b(3),1] x[:,b(3)]""".split()

ROWS = [
    *whole("x.getitem", *(f"(lambda x: {key})(f(3, 3))" for key in _KEYS)),
    *whole("x.getitem", *(f"(lambda x: {key})(f(3, 3))" for key in _MASKS), traced=False),
    *whole("x.getitem", "f(3, 3)[3:1]; f()[...]", mxnet="MXNet fails"),
    *whole(
        "x.getitem",
        "f(2, 3, 4)[1, 2, 3]; f(2, 3, 4)[:, 1]; f(2, 3, 4)[0, :, 1]; f(2, 3, 4)[0, [0, 1]]; "
        "f()[()]; i(3)[1]; l(3)[0]; b(3)[0]; d(2, 3)[1]; f(2, 3, 4, 5)[:, :, 1:3, 1:3]; "
        "f(0, 3)[:]; f(3)[:0]",
    ),
    *whole(
        "x.getitem",
        "f(3)[3]; f(3)[-4]; f(3)[0, 0]; f()[0]; f(3)['a']; f(3)[1.5]",
        numpy=False,
        error="Exception",
    ),
    # -- operators ---------------------------------------------------------------------------------
    *whole(
        "x.operator",
        "f(3) + f(3); f(3) - 1; 1 - f(3); f(3) * 2; 2 * f(3); f(3) / p(3); 1 / p(3); "
        "f(3) ** 2; 2 ** f(3); f(3) % 0.7; -f(3); abs(f(3)); f(2, 3) @ f(3, 2); "
        "onp.float32(2) * f(3); onp.float64(2) * f(3); f(3) * onp.float64(2); "
        "f(3) / onp.float64(2); onp.float64(2) - f(3); sum([f(), f()])",
    ),
    *whole("x.operator", "onp.float64(2) / p(3); f(3) + onp.array(2.0)", mxnet="MXNet fails"),
    *whole(
        "x.operator",
        "onp.float64(1) < f(3); onp.float64(1) == f(3)",
        grad=False,
        mxnet="MXNet fails",
    ),
    *whole(
        "x.operator",
        "f(3) < 1; f(3) == f(3); f(3) != 1; f(3) >= f(1); 1 > f(3); f(3) <= 1; i(4) + 1; "
        "~b(3); i(4) & 3; i(4) | i(4); i(4) ^ i(4); ~i(4); b(4) & b(4); b(4) | b(4); "
        "b(4) ^ b(4)",
        grad=False,
    ),
    *whole(
        "x.operator",
        "i(3) + 1.5; i(3) * 0.5; i(3) + onp.float64(1.5); b(3) * 1.5; b(4) == 0.5; "
        "k(4) % 2.5; i(4) // 0.5",
        grad=False,
        mxnet="MXNet cuts the number to the dtype of the array",
    ),
    *whole("x.operator", "k(4) & ~1; k(4) | 300", grad=False, numpy=False),
    *whole("x.operator", "3 & i(4); 3 | i(4)", grad=False, mxnet="MXNet has no reflected ones"),
    *whole(
        "x.operator",
        "i(3) / 2; i(3) ** 2; b(3) * f(3); l(3) % 2; b(3) + 1; b(3) * 2; b(3) + b(3); "
        "b(3) / 2; -b(3)",
        numpy=False,
        grad=False,
    ),
    *whole(
        "x.operator",
        "f(3) // 0.7; i(3) // 2; 0.7 // p(3)",
        grad=False,
        mxnet="MXNet 1.9 has no //",
    ),
    *whole(
        "x.operator",
        "f(3) + onp.ones(3); onp.ones(3) + f(3); onp.ones(3) * f(3); f(3) + 'a'; "
        "f(3) + None; f(3) + [1, 2, 3]; hash(f(3)); f(3) < onp.ones(3); f(3) == None; "
        "f(3) == 'a'; f(3) != None; f(3) == [1, 2, 3]; onp.ones(3) == f(3); divmod(p(3), 0.3)",
        numpy=False,
        error="TypeError",
    ),
    # -- methods -----------------------------------------------------------------------------------
    *whole("x.T", "f(2, 3).T; f(3).T; f(2, 3, 4).T; f().T"),
    *whole(
        "x.reshape",
        "f(2, 3).reshape(3, 2); f(2, 3).reshape((3, 2)); f(2, 3).reshape(-1); "
        "f(2, 3).reshape(3, -1); f(1).reshape(())",
    ),
    *whole("x.reshape", "f(2, 3).reshape([6])", mxnet="MXNet refuses lists"),
    *whole(
        "x.transpose",
        "f(2, 3, 4).transpose(); f(2, 3, 4).transpose(1, 0, 2); "
        "f(2, 3, 4).transpose((1, 0, 2)); f(2, 3, 4).transpose([2, 1, 0])",
    ),
    *whole("x.flatten", "f(2, 3).flatten(); f().flatten()"),
    *whole(
        "x.sum",
        "f(2, 3).sum(); f(2, 3).sum(0); f(2, 3).sum(axis=1, keepdims=True); "
        "f(2, 3, 4).sum(axis=(0, 2)); b(3).sum()",
    ),
    *whole("x.mean", "f(2, 3).mean(); f(2, 3).mean(0); f(2, 3).mean(axis=1, keepdims=True)"),
    *whole(
        "x.max",
        "f(2, 3).max(); f(2, 3).max(0); f(2, 3).min(axis=1, keepdims=True); f(2, 3).prod(); "
        "f(2, 3).prod(axis=0)",
    ),
    *whole(
        "x.std",
        "f(2, 3).std(); f(2, 3).std(ddof=1); f(2, 3).var(axis=0); "
        "f(2, 3).std(axis=1, keepdims=True)",
        slope="MXNet's is wrong",
    ),
    *whole(
        "x.argmax",
        "f(2, 3).argmax(); f(2, 3).argmax(axis=1); f(2, 3).argmin(0); f(5).argsort(); "
        "f(2, 3).argsort(axis=0)",
        grad=False,
    ),
    *whole("x.cumsum", "f(2, 3).cumsum(); f(2, 3).cumsum(axis=0); f(2, 3).cumsum(1)"),
    *whole(
        "x.repeat",
        "f(2, 3).repeat(2); f(2, 3).repeat(2, axis=0); f(2, 3).repeat(repeats=2, axis=1)",
    ),
    *whole("x.squeeze", "f(1, 3).squeeze(); f(1, 3, 1).squeeze(0); f(1, 3, 1).squeeze(axis=-1)"),
    *whole("x.swapaxes", "f(2, 3).swapaxes(0, 1); f(2, 3, 4).swapaxes(-1, 0)"),
    *whole("x.clip", "f(5).clip(-1, 1); f(5).clip(min=0); f(5).clip(max=0.5); f(5).clip(0, None)"),
    *whole("x.astype", "f(3).astype('float64')"),
    *whole(
        "x.astype",
        "f(3).astype('int32'); f(3).astype(int); f(3).astype(float); f(3).astype(np.int64); "
        "i(3).astype(np.float32); f(3).astype(bool); f(3).astype(onp.dtype('float16')); "
        "f(3).astype(f(3).dtype); f(3).astype('float32', copy=False)",
        grad=False,
    ),
    *whole("x.dot", "f(2, 3).dot(f(3, 2)); f(3).dot(f(3))"),
    *whole("x.detach", "f(3).detach() * f(3)", numpy=False),
    *whole("x.copy", "f(3).copy(); f(2, 3).copy()"),
    *whole("x.take", "f(5).take(q(3)); f(3, 4).take(np.array([0, 2]), axis=1)", numpy=False),
    *whole("x.nonzero", "i(6).nonzero()", grad=False, traced=False),
    *whole("x.sort", "f(5).sort()", numpy="np.sort(f(5))", mxnet="MXNet fails"),
    *whole("x.any", "b(2, 3).any(); b(2, 3).all(axis=0); (f(3) > 9).any()", grad=False),
    *whole("x.round", "f(3).round(); f(3).round(1)", numpy=False, grad=False),
    *whole(
        "x.broadcast_to",
        "f(3).broadcast_to((2, 3)); f(2, 1).broadcast_to((2, 3))",
        numpy=False,
    ),
    # -- conversion --------------------------------------------------------------------------------
    *whole(
        "x.float",
        "float(f()); float(f(1)); int(f(1, 1)); int(i()); bool(f()); bool(f(1)); bool(b()); "
        "f().item(); f(1).item(); f(2, 3).item(2); f(2, 3).item((1, 2)); f(2, 3).tolist(); "
        "f().tolist(); i(2).tolist(); len(f(2, 3)); f(2, 3).ndim; f(2, 3).size; "
        "f(2, 3).shape; f(2, 3).dtype.name; __import__('math').sqrt(p()); "
        "[float(v) for v in f(3)]; float('%.3f' % f())",
        grad=False,
        traced=False,
        numpy=False,
    ),
    *whole(
        "x.text",
        "str(f(2, 3)); str(f()); repr(f(2, 3)); repr(f()); repr(i(3)); repr(l(3)); "
        "repr(b(3)); repr(d(3)); repr(h(3)); repr(k(3)); repr(np.zeros((2, 0))); "
        "repr(np.array([])); repr(f(2, 2, 2)); repr(np.zeros((1001,))); "
        "repr(np.ones((50, 60))); f'{f():.3f}'; f'{f(2)}'; '%s' % f(2); '{:f}'.format(p()); "
        "repr(np.array(3)); repr(np.array(3, dtype='int32')); "
        "repr(np.array(True, dtype=bool)); repr(i(0)); str(npx.cpu()); repr(b(0, 2))",
        grad=False,
        traced=False,
        numpy=False,
    ),
    *whole(
        "x.float",
        "float(f(2)); int(f(2)); bool(f(2)); f(2).item(); f'{f(1):.3f}'; f'{f(2):.3f}'; "
        "len(f()); '%.3f' % f(2)",
        numpy=False,
        error="Exception",
    ),
    *whole(
        "x.float", "list(f())", numpy=False, error="TypeError", mxnet="MXNet gives an empty list"
    ),
]
