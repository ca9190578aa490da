"""The layers of `gluon.nn`: how each is built, and what it is called with."""

from __future__ import annotations

import numpy as np

from gluon_rows.runner import Row

WORDS = np.array([[1, 0, 4], [4, 4, 2]])
AXIS = (2, 3, 4)
IMAGE = (2, 4, 6, 5)
VOLUME = (2, 2, 4, 5, 3)

#: MXNet's gradient of selu misses a factor: see `nd.LeakyReLU`.
SELU = {"differs": ("/in/",), "why": "MXNet's gradient of selu misses a factor"}
#: In predict mode MXNet's maximum does not remember where it was; its gradient is wrong there.
MAX = {"differs": ("predict/in",), "why": "MXNet's max pooling has no gradient in predict mode"}
#: Where gamma is fixed at 1 MXNet also writes the ones into it.
FIXED = {"differs": ("aux/0:",), "why": "MXNet writes ones into a gamma that does not count"}
GPU = {"mxnet": False, "why": "MXNet has this dtype only on a GPU"}
RANDOM = {"modes": ("predict", "infer"), "why": "the two draw different numbers"}

BASIC = [
    Row("nn.Dense(4)"),
    Row("nn.Dense(4, activation='sigmoid', in_units=12)", (AXIS,)),
    Row("nn.Dense(4, flatten=False, activation='tanh')", (AXIS,)),
    Row("nn.Dense(4, flatten=False)", ((3,),)),
    Row("nn.Dense(4, 'softrelu', False, False)", (AXIS,)),
    Row("nn.Dense(4)", dtype="float64"),
    Row("nn.Dropout(0.5)", (AXIS,), **RANDOM),
    Row("nn.Dropout(0.5, axes=(1,))", (AXIS,), **RANDOM),
    Row("nn.Embedding(5, 3)", (WORDS,)),
    Row("nn.Embedding(5, 3)", (np.array([[7, -1], [2, 3]], dtype="int32"),)),
    Row(
        "nn.Embedding(5, 3, sparse_grad=True)",
        (WORDS,),
        modes=("infer",),
        why="a gradient in sparse storage is not there",
    ),
    Row("nn.Flatten()", (IMAGE,)),
    Row("nn.Lambda('tanh')", (AXIS,)),
    Row("nn.HybridLambda(lambda F, x: F.exp(x))", (AXIS,)),
    Row("nn.HybridLambda(lambda F, x, y: F.dot(x, y))", ((2, 3), (3, 4))),
]

ACTIVATIONS = [
    *(
        Row(f"nn.Activation('{name}')", (AXIS,))
        for name in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
    ),
    Row("nn.LeakyReLU(0.1)", (AXIS,)),
    Row("nn.PReLU()", (AXIS,)),
    Row("nn.PReLU(in_channels=4)", (IMAGE,)),
    Row("nn.PReLU(mx.init.Constant(0.5))", (AXIS,)),
    Row("nn.ELU(0.5)", (AXIS,)),
    Row("nn.SELU()", (AXIS,), **SELU),
    Row("nn.GELU()", (AXIS,)),
    Row("nn.Swish(1.7)", (AXIS,)),
]

CONVOLUTIONS = [
    Row("nn.Conv1D(4, 3, 2, 1, 2, activation='relu')", ((2, 3, 9),)),
    Row("nn.Conv2D(3, (3, 2), strides=2, padding=1, activation='relu')", (IMAGE,)),
    Row("nn.Conv2D(6, [2, 3], (2, 1), (1, 0), (1, 2), 2, use_bias=False)", (IMAGE,)),
    Row("nn.Conv2D(4, 3, groups=4, padding=1, in_channels=4)", (IMAGE,)),
    Row("nn.Conv3D(2, (2, 3, 1), 2, 1, groups=2)", (VOLUME,)),
    Row("nn.Conv1DTranspose(3, 3, 2, 1, 1, activation='tanh')", ((2, 3, 5),)),
    Row("nn.Conv2DTranspose(3, 4, strides=2, padding=1, in_channels=4)", (IMAGE,)),
    Row("nn.Conv2DTranspose(4, (3, 2), 2, 1, 1, 1, 2, use_bias=False, in_channels=4)", (IMAGE,)),
    Row("nn.Conv2DTranspose(3, 2, dilation=2)", (IMAGE,)),
    Row("nn.Conv3DTranspose(3, 2, 2, 1, 1)", (VOLUME,)),
]

POOLING = [
    Row("nn.MaxPool1D(3, 2, 1, ceil_mode=True)", ((2, 3, 8),), **MAX),
    Row("nn.MaxPool2D()", (IMAGE,), **MAX),
    Row("nn.MaxPool2D((2, 3), (1, 2), (0, 1), 'NCHW', True)", (IMAGE,), **MAX),
    Row("nn.MaxPool3D(2, 1, 1, True, 'NCDHW')", (VOLUME,), **MAX),
    Row("nn.AvgPool1D(3, 2, 1, 'NCW', True, False)", ((2, 3, 8),)),
    Row("nn.AvgPool2D(3, 2, 1, True, count_include_pad=False)", (IMAGE,)),
    Row("nn.AvgPool2D(2, ceil_mode=True)", (IMAGE,)),
    Row("nn.AvgPool3D(2, 1, 1, count_include_pad=False)", (VOLUME,)),
    *(
        Row(f"nn.Global{kind}Pool{ndim}D()", (shape,), **how)
        for kind, how in (("Max", MAX), ("Avg", {}))
        for ndim, shape in ((1, AXIS), (2, IMAGE), (3, VOLUME))
    ),
    Row("nn.ReflectionPad2D(2)", (IMAGE,)),
    Row("nn.ReflectionPad2D((0, 0, 0, 0, 1, 2, 3, 1))", (IMAGE,)),
]

NORMALIZATION = [
    Row("nn.BatchNorm()", (IMAGE,)),
    Row("nn.BatchNorm()", ((7, 3),)),
    Row("nn.BatchNorm(axis=-1, momentum=0.3, epsilon=0.1)", (AXIS,)),
    Row("nn.BatchNorm(scale=False, center=False)", (IMAGE,), **FIXED),
    Row("nn.BatchNorm(use_global_stats=True)", (IMAGE,)),
    Row("nn.BatchNorm(beta_initializer='ones', gamma_initializer='zeros')", (IMAGE,)),
    Row("nn.BatchNorm()", (IMAGE,), dtype="float16", grad=False, rtol=1e-2, atol=1e-2),
    Row(
        "nn.BatchNorm(momentum=0.5)",
        (IMAGE,),
        call="net(net(net(x[0])))",
        differs=("train/aux",),
        why="MXNet's CPU updates in backward, so that the last call counts first",
    ),
    Row(
        "nn.BatchNormReLU()",
        (IMAGE,),
        differs=("predict/in", "predict/grad"),
        why="MXNet does not remember in predict mode where it cut at 0",
    ),
    Row("nn.LayerNorm()", (AXIS,)),
    Row("nn.LayerNorm(axis=1, epsilon=0.1)", (AXIS,)),
    Row("nn.LayerNorm(center=False, in_channels=4)", (AXIS,)),
    Row("nn.InstanceNorm(axis=2, scale=True)", (AXIS,)),
    Row("nn.InstanceNorm(axis=-1, center=False)", (IMAGE,)),
    Row("nn.GroupNorm(2, 0.1)", (IMAGE,)),
    Row("nn.GroupNorm(num_groups=2, center=False)", (IMAGE,)),
]

KINDS = [
    *(
        Row(build, (shape,), dtype="float64", rtol=1e-6, atol=1e-6, **how)
        for build, shape, how in (
            ("nn.Conv2D(3, 3, activation='tanh')", IMAGE, {}),
            ("nn.Conv2DTranspose(3, 3)", IMAGE, {}),
            ("nn.MaxPool2D()", IMAGE, MAX),
            ("nn.AvgPool2D()", IMAGE, {}),
            ("nn.BatchNorm()", IMAGE, {}),
            ("nn.LayerNorm()", AXIS, {}),
            ("nn.InstanceNorm(scale=True)", IMAGE, GPU),
            ("nn.GELU()", AXIS, {}),
        )
    ),
    *(
        Row(build, (shape,), dtype="float16", rtol=2e-2, atol=2e-2, grad=False, **how)
        for build, shape, how in (
            ("nn.Dense(4, activation='sigmoid')", AXIS, GPU),
            ("nn.Conv2D(3, 3)", IMAGE, GPU),
            ("nn.MaxPool2D()", IMAGE, MAX),
            ("nn.AvgPool2D()", IMAGE, {}),
            ("nn.LayerNorm()", AXIS, {}),
            ("nn.PReLU()", AXIS, {}),
        )
    ),
]

ROWS = BASIC + ACTIVATIONS + CONVOLUTIONS + POOLING + NORMALIZATION + KINDS
