"""What follows from shapes that are known in part: rows for `symbol_rows.answer`.

Each call of an op is listed with shapes of its inputs that fit, and the shape of its output.
`variants` hides some of them: whole shapes, single sizes (0), and all but one size; and it
contradicts them. In a row, `o` is the variable added to the result, which tells the op's output.
"""

from __future__ import annotations

from collections.abc import Iterator

Shape = tuple[int, ...]

#: (call, shapes of its inputs, shape of the output; None: several outputs).
CALLS: list[tuple[str, dict[str, Shape], Shape | None]] = [
    ("exp(x)", {"x": (2, 3)}, (2, 3)),
    ("Dropout(x)", {"x": (2, 3)}, (2, 3)),
    ("clip(x,0,1)", {"x": (2, 3)}, (2, 3)),
    ("softmax(x)", {"x": (2, 3)}, (2, 3)),
    ("Activation(x,act_type='relu')", {"x": (2, 3)}, (2, 3)),
    ("LeakyReLU(x)", {"x": (2, 3)}, (2, 3)),
    ("LeakyReLU(x,act_type='prelu',name='l')", {"x": (2, 3, 4), "l_gamma": (3,)}, (2, 3, 4)),
    ("elemwise_add(x,y)", {"x": (2, 3), "y": (2, 3)}, (2, 3)),
    ("add_n(x,y,z)", {"x": (2, 3), "y": (2, 3), "z": (2, 3)}, (2, 3)),
    ("broadcast_add(x,y)", {"x": (2, 3), "y": (2, 1)}, (2, 3)),
    ("broadcast_mul(x,y)", {"x": (2, 3), "y": (2, 3)}, (2, 3)),
    ("broadcast_greater(x,y)", {"x": (1, 3), "y": (2, 1)}, (2, 3)),
    ("broadcast_to(x,shape=(2,3))", {"x": (2, 1)}, (2, 3)),
    ("broadcast_axis(x,axis=1,size=3)", {"x": (2, 1)}, (2, 3)),
    ("broadcast_like(x,y)", {"x": (2, 1), "y": (2, 3)}, (2, 3)),
    ("where(x,y,z)", {"x": (2, 3), "y": (2, 3), "z": (2, 3)}, (2, 3)),
    ("FullyConnected(x,num_hidden=4,name='f')",
     {"x": (2, 3), "f_weight": (4, 3), "f_bias": (4,)}, (2, 4)),
    ("FullyConnected(x,num_hidden=4,name='f')",
     {"x": (2, 3, 5), "f_weight": (4, 15), "f_bias": (4,)}, (2, 4)),
    ("FullyConnected(x,num_hidden=4,flatten=False,name='f')",
     {"x": (2, 3, 5), "f_weight": (4, 5), "f_bias": (4,)}, (2, 3, 4)),
    ("FullyConnected(x,num_hidden=4,no_bias=True,name='f')",
     {"x": (2, 3), "f_weight": (4, 3)}, (2, 4)),
    ("Convolution(x,kernel=(3,3),num_filter=8,num_group=2,name='c')",
     {"x": (2, 4, 9, 8), "c_weight": (8, 2, 3, 3), "c_bias": (8,)}, (2, 8, 7, 6)),
    ("Convolution(x,kernel=(3,3),stride=(2,2),pad=(1,1),num_filter=8,no_bias=True,name='c')",
     {"x": (2, 4, 9, 8), "c_weight": (8, 4, 3, 3)}, (2, 8, 5, 4)),
    ("Convolution(x,kernel=(3,),num_filter=8,dilate=(2,),name='c')",
     {"x": (2, 4, 9), "c_weight": (8, 4, 3), "c_bias": (8,)}, (2, 8, 5)),
    ("Convolution(x,kernel=(2,2,2),num_filter=8,name='c')",
     {"x": (2, 4, 5, 6, 7), "c_weight": (8, 4, 2, 2, 2), "c_bias": (8,)}, (2, 8, 4, 5, 6)),
    ("Deconvolution(x,kernel=(3,3),num_filter=8,num_group=2,name='c')",
     {"x": (2, 4, 7, 6), "c_weight": (4, 4, 3, 3)}, (2, 8, 9, 8)),
    ("Deconvolution(x,kernel=(4,4),stride=(2,2),pad=(1,1),num_filter=8,no_bias=False,name='c')",
     {"x": (2, 4, 7, 6), "c_weight": (4, 8, 4, 4), "c_bias": (8,)}, (2, 8, 14, 12)),
    ("Pooling(x,kernel=(2,2),stride=(2,2))", {"x": (2, 4, 9, 8)}, (2, 4, 4, 4)),
    ("Pooling(x,kernel=(2,2),stride=(2,2),pooling_convention='full')",
     {"x": (2, 4, 9, 8)}, (2, 4, 5, 4)),
    ("Pooling(x,global_pool=True,kernel=(2,2))", {"x": (2, 4, 9, 8)}, (2, 4, 1, 1)),
    ("Pooling(x,kernel=(3,))", {"x": (2, 4, 9)}, (2, 4, 7)),
    ("concat(x,y,dim=1)", {"x": (2, 3), "y": (2, 4)}, (2, 7)),
    ("concat(x,y,z,dim=0)", {"x": (2, 3), "y": (4, 3), "z": (1, 3)}, (7, 3)),
    ("concat(x,y,dim=-1)", {"x": (2, 3, 4), "y": (2, 3, 5)}, (2, 3, 9)),
    ("stack(x,y,axis=1)", {"x": (2, 3), "y": (2, 3)}, (2, 2, 3)),
    ("stack(x,y,axis=-1)", {"x": (2, 3), "y": (2, 3)}, (2, 3, 2)),
    ("SliceChannel(x,num_outputs=2,axis=1)", {"x": (2, 4)}, None),
    ("split(x,num_outputs=2,axis=1)[1]", {"x": (2, 4)}, (2, 2)),
    ("split(x,num_outputs=3,axis=-1)[0]", {"x": (2, 4, 9)}, (2, 4, 3)),
    ("split(x,num_outputs=2,axis=0,squeeze_axis=True)[0]", {"x": (2, 4)}, (4,)),
    ("split_v2(x,2,axis=1)[0]", {"x": (2, 4)}, (2, 2)),
    ("transpose(x)", {"x": (2, 3, 4)}, (4, 3, 2)),
    ("transpose(x,axes=(1,0,2))", {"x": (2, 3, 4)}, (3, 2, 4)),
    ("SwapAxis(x,dim1=0,dim2=2)", {"x": (2, 3, 4)}, (4, 3, 2)),
    ("expand_dims(x,axis=1)", {"x": (2, 3)}, (2, 1, 3)),
    ("expand_dims(x,axis=-1)", {"x": (2, 3)}, (2, 3, 1)),
    ("squeeze(x)", {"x": (2, 1, 3)}, (2, 3)),
    ("squeeze(x,axis=1)", {"x": (2, 1, 3)}, (2, 3)),
    ("Flatten(x)", {"x": (2, 3, 4)}, (2, 12)),
    ("flip(x,axis=1)", {"x": (2, 3)}, (2, 3)),
    ("reshape(x,shape=(3,2))", {"x": (2, 3)}, (3, 2)),
    ("reshape(x,shape=(-1,))", {"x": (2, 3)}, (6,)),
    ("reshape(x,shape=(0,-1))", {"x": (2, 3, 4)}, (2, 12)),
    ("reshape(x,shape=(-1,0))", {"x": (6, 2, 4)}, (24, 2)),
    ("reshape(x,shape=(-1,4))", {"x": (6, 2)}, (3, 4)),
    ("reshape(x,shape=(0,0,2,2))", {"x": (2, 3, 4)}, (2, 3, 2, 2)),
    ("reshape(x,shape=(-2,))", {"x": (2, 3, 4)}, (2, 3, 4)),
    ("reshape(x,shape=(0,-2,1))", {"x": (2, 3, 4)}, (2, 3, 4, 1)),
    ("reshape(x,shape=(-3,0))", {"x": (2, 3, 4)}, (6, 4)),
    ("reshape(x,shape=(0,-3))", {"x": (2, 3, 4)}, (2, 12)),
    ("reshape(x,shape=(-3,-3))", {"x": (2, 3, 4, 5)}, (6, 20)),
    ("reshape(x,shape=(-4,2,3,0))", {"x": (6, 4)}, (2, 3, 4)),
    ("reshape(x,shape=(-4,-1,3,-2))", {"x": (6, 4, 5)}, (2, 3, 4, 5)),
    ("reshape(x,shape=(-1,0),reverse=True)", {"x": (10, 5, 4)}, (50, 4)),
    ("reshape(x,shape=(4,0,-2),reverse=True)", {"x": (4, 5, 3)}, None),
    ("reshape_like(x,y)", {"x": (2, 3), "y": (3, 2)}, (3, 2)),
    ("slice(x,begin=(0,1),end=(1,3))", {"x": (2, 3)}, (1, 2)),
    ("slice_axis(x,axis=1,begin=1,end=3)", {"x": (2, 3)}, (2, 2)),
    ("slice_axis(x,axis=1,begin=1,end=None)", {"x": (2, 3)}, (2, 2)),
    ("tile(x,reps=(2,3))", {"x": (2, 3)}, (4, 9)),
    ("repeat(x,repeats=2,axis=1)", {"x": (2, 3)}, (2, 6)),
    ("pad(x,mode='constant',pad_width=(0,0,0,0,1,1,2,2))", {"x": (2, 3, 4, 5)}, (2, 3, 6, 9)),
    ("sum(x)", {"x": (2, 3)}, (1,)),
    ("sum(x,axis=1)", {"x": (2, 3)}, (2,)),
    ("sum(x,axis=1,keepdims=True)", {"x": (2, 3)}, (2, 1)),
    ("mean(x,axis=0,exclude=True)", {"x": (2, 3)}, (2,)),
    ("argmax(x,axis=1)", {"x": (2, 3)}, (2,)),
    ("norm(x)", {"x": (2, 3)}, (1,)),
    ("topk(x,k=2)", {"x": (2, 3)}, (2, 2)),
    ("sort(x)", {"x": (2, 3)}, (2, 3)),
    ("dot(x,y)", {"x": (2, 3), "y": (3, 4)}, (2, 4)),
    ("dot(x,y,transpose_b=True)", {"x": (2, 3), "y": (4, 3)}, (2, 4)),
    ("batch_dot(x,y)", {"x": (5, 2, 3), "y": (5, 3, 4)}, (5, 2, 4)),
    ("linalg.gemm2(x,y)", {"x": (2, 3), "y": (3, 4)}, (2, 4)),
    ("Embedding(x,input_dim=5,output_dim=3,name='e')", {"x": (2, 4), "e_weight": (5, 3)},
     (2, 4, 3)),
    ("take(x,y)", {"x": (5, 3), "y": (2, 4)}, (2, 4, 3)),
    ("pick(x,y)", {"x": (2, 3), "y": (2,)}, (2,)),
    ("one_hot(x,depth=3)", {"x": (2, 4)}, (2, 4, 3)),
    ("SequenceMask(x,y,use_sequence_length=True)", {"x": (5, 2, 3), "y": (2,)}, (5, 2, 3)),
    ("SequenceLast(x)", {"x": (5, 2, 3)}, (2, 3)),
    ("SequenceReverse(x)", {"x": (5, 2, 3)}, (5, 2, 3)),
    ("BatchNorm(x,name='b')", {"x": (2, 3, 4), "b_gamma": (3,), "b_moving_var": (3,)}, (2, 3, 4)),
    ("BatchNorm(x,axis=2,name='b')", {"x": (2, 3, 4), "b_beta": (4,)}, (2, 3, 4)),
    ("LayerNorm(x,name='b')", {"x": (2, 3, 4), "b_gamma": (4,)}, (2, 3, 4)),
    ("GroupNorm(x,num_groups=2,name='b')", {"x": (2, 4, 5), "b_gamma": (4,)}, (2, 4, 5)),
    ("InstanceNorm(x,name='b')", {"x": (2, 4, 5), "b_gamma": (4,)}, (2, 4, 5)),
    ("L2Normalization(x)", {"x": (2, 3)}, (2, 3)),
    ("RNN(x,state_size=4,num_layers=1,mode='gru',name='r')",
     {"x": (5, 2, 3), "r_parameters": (108,), "r_state": (1, 2, 4)}, (5, 2, 4)),
    ("RNN(x,state_size=4,num_layers=2,mode='lstm',bidirectional=True,state_outputs=True,name='r')",
     {"x": (5, 2, 3), "r_state": (4, 2, 4), "r_state_cell": (4, 2, 4)}, None),
    ("SoftmaxOutput(x,name='s')", {"x": (2, 3), "s_label": (2,)}, (2, 3)),
    ("SoftmaxOutput(x,multi_output=True,name='s')", {"x": (2, 3, 4), "s_label": (2, 4)}, (2, 3, 4)),
    ("smooth_l1(x,scalar=1.0)", {"x": (2, 3)}, (2, 3)),
    ("BlockGrad(x)", {"x": (2, 3)}, (2, 3)),
    ("identity(x)", {"x": (2, 3)}, (2, 3)),
    ("Cast(x,dtype='float16')", {"x": (2, 3)}, (2, 3)),
    ("zeros_like(x)", {"x": (2, 3)}, (2, 3)),
    ("shape_array(x)", {"x": (2, 3)}, (2,)),
    ("zeros((2,0))", {}, (2, 3)),
    ("random.normal(0,1,shape=(2,3))", {}, (2, 3)),
    ("diag(x)", {"x": (3, 3)}, (3,)),
    ("depth_to_space(x,2)", {"x": (2, 4, 3, 3)}, (2, 1, 6, 6)),
    ("space_to_depth(x,2)", {"x": (2, 1, 6, 6)}, (2, 4, 3, 3)),
    ("contrib.arange_like(x,axis=1)", {"x": (2, 3)}, (3,)),
]  # fmt: skip


def variants(shapes: dict[str, Shape], out: Shape | None) -> Iterator[dict[str, Shape]]:
    """What is told in each row about one call: shapes by name, `o` for the output."""
    everything = {**shapes, **({} if out is None else {"o": out})}
    yield everything
    for name, shape in everything.items():
        rest = {other: s for other, s in everything.items() if other not in (name, "o")}
        if name != "o":
            yield {name: shape}
            yield rest
            yield {**everything, name: ()}
        open_sizes = [hidden(shape, {axis}) for axis in range(len(shape))]
        single_sizes = [hidden(shape, set(range(len(shape))) - {a}) for a in range(len(shape))]
        for partial in dict.fromkeys([*open_sizes, *single_sizes]):
            yield {name: partial}
        if len(shape) > 1:
            yield {**rest, name: open_sizes[0]}
            yield {**everything, name: open_sizes[-1]}
            yield {**everything, name: hidden(shape, set(range(len(shape))))}
        yield {**everything, name: (*shape[:-1], shape[-1] + 1)}
        yield {**everything, name: (*shape, 1)}


def hidden(shape: Shape, axes: set[int]) -> Shape:
    """`shape` with unknown sizes at some axes."""
    return tuple([0 if axis in axes else n for axis, n in enumerate(shape)])


def rows() -> list[str]:
    """One row for each call and variant."""
    found = []
    for call, shapes, out in CALLS:
        for known in variants(shapes, out):
            words = ", ".join(f"{name}={shape}" for name, shape in known.items())
            found.append(f"told(sym.{call}, {words})".replace(", )", ")"))
    return list(dict.fromkeys(found))
