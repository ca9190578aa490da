"""Expressions on Symbols, and what a library says to them: both interpreters import this module.

`ROWS` are evaluated with `x`, `y`, `z` as variables, inside a NameManager of their own.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import numpy as np

OPERATORS = [
    f"{left} {operator} {right}"
    for operator in "+ - * / % ** == != > >= < <=".split()
    for left, right in (("x", "y"), ("x", "2"), ("2", "x"))
] + ["-x", "abs(x)", "(x + y) + (x + 1) + y", "x ** 0.5"]  # fmt: skip

METHODS = """
    abs() arccos() arccosh() arcsin() arcsinh() arctan() arctanh() argmax() argmax_channel()
    argmin() argsort() astype('float16') broadcast_axes(axis=0,size=3) broadcast_like(y)
    broadcast_to(shape=(2,3)) cbrt() ceil() clip(0,1) cos() cosh() degrees() depth_to_space(2)
    diag() exp() expand_dims(axis=0) expm1() fix() flatten() flip(axis=0) floor() log() log10()
    log1p() log2() log_softmax() max() mean() min() nanprod() nansum() norm() one_hot(depth=3)
    ones_like() pad(mode='constant',pad_width=(0,0,0,0,1,1,1,1)) pick(y) prod() radians() rcbrt()
    reciprocal() relu() repeat(2) reshape((2,3)) reshape((2,3),name='r') reshape(2,3)
    reshape(shape=(2,3)) reshape_like(y) rint() round() rsqrt() shape_array() sigmoid() sign() sin()
    sinh() size_array() slice((0,),(1,)) slice_axis(axis=0,begin=0,end=1) slice_like(y) softmax()
    softmin() sort() space_to_depth(2) split(num_outputs=2) split_v2(2) sqrt() square() squeeze()
    sum() sum(name='total') swapaxes(0,1) take(y) tan() tanh() tile((2,)) topk()
    topk(ret_typ='both') transpose() trunc() zeros_like()""".split()

FUNCTIONS = """
    zeros((2,3)) zeros((2,3),name='z0',dtype='int32') ones((2,3)) full((2,3),5) arange(3)
    linspace(0,1,3) eye(3) random.uniform(0,1,shape=(2,)) random.uniform(x,y,shape=(2,))
    random.normal(0,1,shape=(2,),name='noise') random.randn(2,3) random.gamma(shape=(2,))
    random.gamma(x,y,shape=(2,)) random.exponential(shape=(2,)) random.exponential(x,shape=(2,))
    random.poisson(shape=(2,)) random.poisson(x,shape=(2,))
    random.randint(0,5,shape=(2,)) random.multinomial(x)
    random.shuffle(x) random.uniform_like(x) uniform(0,1,shape=(2,)) op.relu(x)
    _internal._plus_scalar(x,scalar=2) linalg.gemm2(x,y) linalg.gemm2(x) linalg.potrf(x)
    linalg.slogdet(x) linalg.gelqf(x) contrib.arange_like(x) BatchNorm(x)
    BatchNorm(x,name='bn') BatchNorm(x,output_mean_var=True) LayerNorm(x)
    LayerNorm(x,output_mean_var=True) GroupNorm(x) GroupNorm(x,output_mean_var=True)
    InstanceNorm(x) RNN(x,state_size=4,num_layers=1,mode='lstm',state_outputs=True)
    RNN(x,state_size=4,num_layers=1,mode='gru',state_outputs=True)
    RNN(x,state_size=4,num_layers=1,mode='rnn_tanh') split(x,num_outputs=2)
    split(x,num_outputs=2,name='s') SliceChannel(x,num_outputs=2) concat(x,y,dim=0)
    Concat(x,y,dim=0) stack(x,y) add_n(x,y) ElementWiseSum(x,y,z) flatten(x) Flatten(x)
    Reshape(x,shape=(2,3)) Cast(x,dtype='float16') cast(x,dtype='float16') BlockGrad(x)
    stop_gradient(x) SoftmaxOutput(x) SoftmaxOutput(x,name='softmax') Softmax(x)
    SwapAxis(x) dot(x) exp() exp(data=x) Embedding(x,input_dim=3,output_dim=4)
    CTCLoss(x) CTCLoss(x,use_data_lengths=True) CTCLoss(x,use_label_lengths=True)
    SequenceMask(x,use_sequence_length=True) SequenceLast(x) where(x,y) where(x,y,z)
    LeakyReLU(x) LeakyReLU(x,act_type='prelu') choose_element_0index(x,y) broadcast_plus(x,y)
    broadcast_add(x,y) elemwise_add(x,y) crop(x,begin=(0,),end=(1,)) max_axis(x) identity(x)
    make_loss(x) MakeLoss(x) broadcast_axis(x,axis=0,size=2) moments(x) Dropout(x)
    Activation(x,act_type='relu') FullyConnected(x,num_hidden=3) FullyConnected(num_hidden=3)
    FullyConnected(x,y,num_hidden=3) FullyConnected(x,weight=y,num_hidden=3,name='fc')
    FullyConnected(x,num_hidden=3,no_bias=True) FullyConnected(data=x,num_hidden=3,name='fc')
    Convolution(x,kernel=(3,3),num_filter=4) Deconvolution(x,kernel=(2,2),num_filter=3)
    Deconvolution(x,kernel=(2,2),num_filter=3,no_bias=False) L2Normalization(x)
    Pooling(x,kernel=(2,2))
    maximum(x,y) maximum(x,2) maximum(2,x) minimum(x,y) hypot(x,2) power(x,2) power(2,x)
    pow(x,y) pow(2,x) split_v2(x,2) split_v2(x,(1,2)) maximum(2,3)
    hypot(3,4) clip(x,a_min=0,a_max=1) smooth_l1(x,scalar=1.0) norm(x) batch_dot(x,y) gather_nd(x,y)
    logical_not(x) erf(x) sgd_mom_update(x,y,z,lr=0.1) adam_update(x,y,lr=0.1)""".split()

LISTS = [
    "sym.BatchNorm(sym.FullyConnected(x, num_hidden=3, name='fc'), name='bn').get_internals()",
    "sym.FullyConnected(x, num_hidden=3, name='fc').get_internals()['fc_output']",
    "sym.FullyConnected(x, num_hidden=3, name='fc').get_children()",
    "sym.Group([x + y, x])",
    "sym.Group([sym.split(x, num_outputs=2, name='s'), y])",
    "sym.Group([sym.split(x, num_outputs=2, name='s'), y]).get_children()",
    "repr(sym.Group([sym.exp(x), y]))",
    "repr(sym.split(x, num_outputs=2, name='s'))",
    "x.get_children()",
    "sym.split(x, num_outputs=3)[1]",
    "sym.split(x, num_outputs=3)[1:3]",
    "sym.split(x, num_outputs=3, name='s')['s_output2']",
    "[s.list_outputs() for s in sym.split(x, num_outputs=3)]",
    "len(sym.split(x, num_outputs=3)), len(x)",
    "sym.split(x, num_outputs=2)[2]",
    "x['nothing']",
    "x[1.0]",
    "sym.Group([])",
    "sym.Group([1])",
    "sym.var(3)",
    "sym.var('v', nonsense='1')",
    "sym.nothing_of_the_kind(x)",
    "x in [x], x in [y]",
    "bool(x)",
    "x.asnumpy()",
    "(x * 2 + y).get_internals()",
    "(sym.var('w') + sym.var('w')).list_arguments()",
    "sym.load_json((sym.FullyConnected(x, num_hidden=3, name='fc') + y).tojson())",
    "mx.name.NameManager.current.get(None, 'dense'), mx.gluon.nn.Dense(3).name",
    "mx.gluon.nn.Dense(3).name, mx.name.NameManager.current.get(None, 'dense')",
    "[mx.name.Prefix('p_').__enter__(), sym.exp(x).name, sym.exp(x, name='e').name][1:]",
]

LABELS = [
    "sym.var('a', shape=(2, 3), dtype='float16', lr_mult=2, wd_mult=0.5, init=mx.init.One(), "
    "attr={'foo': 'bar'}, __own__='1').list_attr()",
    "sym.var('a', init='one').list_attr()",
    "sym.var('a', dtype='float64').attr('__dtype__'), sym.var('a').attr('nothing')",
    "sym.FullyConnected(x, num_hidden=3, name='fc').attr('num_hidden')",
    "sym.FullyConnected(x, num_hidden=3, name='fc').list_attr()",
    "sym.BatchNorm(x, name='bn').attr_dict()",
    "labelled(sym.exp(x, attr={'__mood__': 'x', '__lr_mult__': '3'}))",
    "sym.FullyConnected(x, num_hidden=3, attr={'__lr_mult__': '3'})"
    ".attr_dict()['fullyconnected0_weight']['__lr_mult__']",
    "x._set_attr(mood='good', lr_mult='3') or x.list_attr()",
    "x._set_attr(mood=3)",
    "mx.AttrScope(a=3)",
    "scoped(lambda: [sym.var('v').list_attr(), sym.exp(x).list_attr(), (x + 1).attr('ctx_group')])",
    "scoped(lambda: sym.var('v', attr={'ctx_group': 'inner'}).list_attr())",
    "scoped(lambda: sym.FullyConnected(x, num_hidden=2).attr_dict()['fullyconnected0_bias']"
    "['ctx_group'])",
]

INFER = [
    f"sym.{expression}"
    for expression in """
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(x=(2,3))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(x=(2,3,5))
    FullyConnected(x,num_hidden=4,name='fc',flatten=False).infer_shape(x=(2,3,5))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape_partial(x=(0,3))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape()
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(x=(0,3))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(x=(2,3),fc_weight=(3,3))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(nobody=(2,3))
    FullyConnected(x,num_hidden=4,name='fc').infer_shape(x=3)
    FullyConnected(x,num_hidden=4,name='fc').infer_type(x='float16')
    FullyConnected(x,num_hidden=4,name='fc').infer_type(fc_weight='float64')
    FullyConnected(x,num_hidden=4,name='fc').infer_type()
    FullyConnected(x,num_hidden=4,name='fc').infer_type_partial()
    FullyConnected(sym.var('a',shape=(2,0)),num_hidden=3).infer_shape(a=(2,4))
    FullyConnected(sym.var('a',shape=(2,5)),num_hidden=3).infer_shape()
    BatchNorm(sym.exp(x),name='bn').infer_shape(x=(2,3))
    BatchNorm(x,axis=3).infer_shape(x=(2,3,4,5))
    BatchNorm(x).infer_type(x='float16')
    BatchNorm(x,output_mean_var=True).infer_shape(x=(2,3,4,4))
    LayerNorm(x).infer_shape(x=(2,3,4))
    LayerNorm(x,axis=1).infer_shape(x=(2,3,4))
    GroupNorm(x,num_groups=2).infer_shape(x=(2,4,4))
    InstanceNorm(x).infer_shape(x=(2,4,4))
    Convolution(x,kernel=(3,3),num_filter=8,num_group=2).infer_shape(x=(2,4,8,8))
    Convolution(x,kernel=(3,),num_filter=8).infer_shape(x=(2,4,8))
    Convolution(x,kernel=(3,3),num_filter=8).infer_shape_partial(x=(0,4,0,0))
    Convolution(x,kernel=(3,3),num_filter=8,stride=(2,2),pad=(1,1)).infer_shape(x=(2,4,9,8))
    Deconvolution(x,kernel=(3,3),num_filter=8,num_group=2).infer_shape(x=(2,4,8,8))
    Pooling(x,kernel=(2,2),stride=(2,2)).infer_shape(x=(2,4,8,8))
    Embedding(x,input_dim=5,output_dim=3).infer_shape(x=(2,4))
    Embedding(x,input_dim=5,output_dim=3).infer_type(x='int32')
    LeakyReLU(x,act_type='prelu').infer_shape(x=(2,4,3))
    RNN(x,state_size=4,num_layers=2,mode='lstm',bidirectional=True,state_outputs=True).infer_shape(x=(5,2,3))
    RNN(x,state_size=4,num_layers=1,mode='gru').infer_shape(x=(5,2,3))
    RNN(x,state_size=4,num_layers=3,mode='rnn_relu').infer_shape(x=(5,2,3))
    SoftmaxOutput(x).infer_shape(x=(2,3))
    SoftmaxOutput(x,multi_output=True).infer_shape(x=(2,3,4))
    SoftmaxOutput(x).infer_type(x='float16')


    exp(x).infer_shape()
    sum(x,axis=1).infer_shape(x=(2,3))
    sum(x).infer_shape(x=(2,3))
    add_n(x,y).infer_shape(x=(2,3))
    elemwise_add(x,y).infer_shape(x=(2,0),y=(0,3))
    elemwise_mul(x,sym.exp(y)).infer_shape(x=(2,3))
    broadcast_add(x,y).infer_shape(x=(2,3),y=(1,3))
    dot(x,y).infer_shape(x=(2,3))
    dot(x,y).infer_shape(x=(2,3),y=(4,5))
    where(x,y,z).infer_shape(x=(2,3))
    reshape(x,shape=(-1,6)).infer_shape(x=(4,3))
    reshape(x,shape=(0,-1)).infer_shape_partial(x=(0,3,4))
    transpose(x).infer_shape_partial(x=(0,3,4))
    concat(x,y,dim=1).infer_shape(x=(2,3))
    split(x,num_outputs=2,axis=1).infer_shape(x=(2,4))
    take(x,y).infer_shape_partial(x=(2,3))
    cast(x,dtype='float16').infer_type(x='float32')
    cast(x,dtype='float16').infer_type()
    one_hot(x,depth=3).infer_type(x='int32')
    argmax(x,axis=0).infer_type(x='float64')
    topk(x,ret_typ='both').infer_type(x='float64')
    shape_array(x).infer_type(x='float32')
    var('q').infer_type()
    var('q',dtype='float16').infer_type()
    Group([sym.FullyConnected(x,num_hidden=4,name='fc'),x]).infer_shape(x=(2,3))""".split()
] + [
    "(x + y).infer_shape()",
    "(x + y).infer_shape(x=(2, 3))",
    "(x * 2 - y).infer_shape(y=(2, 3))",
    "(x + y).infer_shape(x=(2, 0), y=(0, 3))",
    "(x + y).infer_shape(x=(2, 3), y=(3, 2))",
    "(x + y).infer_shape((2, 3), y=(3, 2))",
    "(x > y).infer_type(x='int32')",
    "(x + y).infer_type(x='int32', y='float32')",
    "(sym.zeros((0, 3)) + x).infer_shape(x=(2, 3))",
    "(sym.zeros((0, 3)) + x).get_internals().infer_shape(x=(2, 3))",
    "(sym.var('a', shape=(2, 3)) + y).infer_shape()",
    "(sym.var('a', shape=(2, 3)) + y).infer_shape(a=(4, 5))",
    "(sym.FullyConnected(x, num_hidden=4, name='f') + y).infer_shape(y=(2, 4), f_weight=(4, 7))",
    "(sym.var('x') + sym.var('x')).infer_shape(x=(1, 2))",
]

COMPOSE = [
    "net(data2=first, name='composed')",
    "net(data2=first)",
    "net(data2=x)",
    "net(data2=first).get_internals()",
    "net(nobody=first)",
    "net(first, data2=first)",
    "net(data2=3)",
    "net(data2=sym.split(x, num_outputs=2))",
    "sym.Group([net, sym.exp(sym.var('data2'))])(data2=first).list_outputs()",
    "sym.Group([net, sym.exp(sym.var('data2'))])(data2=first, name='hi').list_outputs()",
    "net(data2=first) and net.list_arguments()",
]

EVAL = [
    "(x + y).eval(x=nd.ones(2), y=nd.ones(2))",
    "(x - y * 2 > 0).eval(ctx=mx.cpu(0), x=nd.array([1, 5]), y=nd.ones(2), z=nd.ones(2))",
    "(x + y).eval(x=nd.ones(2))",
    "sym.zeros((2,)).eval()",
    "sym.split(x, num_outputs=2, axis=0).eval(x=nd.ones((2, 2)))",
    "sym.FullyConnected(x, num_hidden=1, name='fc').eval(x=nd.array([[1, 2]]), "
    "fc_weight=nd.array([[3, 4]]), fc_bias=nd.ones(1))",
    "sym.Group([sym.Dropout(x), sym.arange(3)]).eval(x=nd.ones(3))",
]

ROWS = [
    *OPERATORS,
    *(f"x.{method}" for method in METHODS),
    *(f"sym.{function}" for function in FUNCTIONS),
    *LISTS, *LABELS, *INFER, *COMPOSE, *EVAL,
]  # fmt: skip


def answer(mx: Any, row: str, wanted: str = "") -> Any:
    """What `mx` says to a row, in plain Python; `wanted`: the kind of error that it should be."""
    sym = mx.sym
    with mx.name.NameManager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y, z = sym.var("x"), sym.var("y"), sym.var("z")
        first = sym.FullyConnected(sym.var("data"), num_hidden=4, name="f1")
        net = sym.FullyConnected(sym.var("data2"), num_hidden=3, name="f2")

        def scoped(function: Any) -> Any:
            with mx.AttrScope(ctx_group="dev1", __data__="great"):
                return function()

        def labelled(symbol: Any) -> Any:
            return [symbol.attr("__mood__"), symbol.attr("lr_mult"), symbol.attr("__lr_mult__")]

        def told(symbol: Any, o: Any = None, **shapes: Any) -> Any:
            """Shapes that follow if the inputs have these shapes, and the output the shape `o`."""
            arguments = symbol.list_inputs()
            for name in shapes:
                assert name in arguments, name
            if o is not None:
                symbol, shapes = sym.elemwise_add(symbol, sym.var("o")), {**shapes, "o": o}
            arguments, outputs, states = symbol.infer_shape_partial(**shapes)
            complete = symbol.infer_shape(**shapes)[0] is not None
            return arguments, outputs, states, complete

        names = {
            "sym": sym,
            "mx": mx,
            "told": told,
            "nd": mx.nd,
            "x": x,
            "y": y,
            "z": z,
            "net": net,
        }
        names.update(first=first, scoped=scoped, labelled=labelled, np=np, copy=copy, json=json)
        names.update(pickle=pickle, fc=sym.FullyConnected(x, num_hidden=3, name="fc"))
        names.update(bn=sym.BatchNorm(x, name="bn"), split=sym.split(x, num_outputs=2, name="s"))
        names["rnn"] = sym.RNN(x, state_size=4, num_layers=1, mode="gru", name="rnn")
        names["group"] = sym.Group([names["fc"], names["split"], y])
        try:
            result = plain(eval(row, names), mx)
        except Exception as problem:
            result = {"error": family(problem, wanted)}
    return result


def family(problem: Exception, wanted: str = "") -> str:
    """The built-in kind of an error, MXNetError counts as itself; `wanted` if it is one."""
    names = [kind.__name__ for kind in type(problem).__mro__]
    return wanted if wanted in names else next(name for name in names if name in FAMILIES)


FAMILIES = """MXNetError TypeError ValueError IndexError AttributeError NotImplementedError
    NotImplementedForSymbol Exception""".split()


def plain(value: Any, mx: Any) -> Any:
    """A result in plain Python."""
    if isinstance(value, mx.sym.Symbol):
        return {
            "name": value.name,
            "outputs": value.list_outputs(),
            "arguments": value.list_arguments(),
            "states": value.list_auxiliary_states(),
        }
    if isinstance(value, mx.nd.NDArray):
        return value.asnumpy().tolist()
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return {key: plain(value[key], mx) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(each, mx) for each in value]
    return value
