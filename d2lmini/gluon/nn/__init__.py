"""Layers and containers of layers. In reading order:

    basic           Sequential, HybridSequential: one layer after the other;
                    relu and related functions; Dense, Dropout, Embedding, Flatten,
                    ReflectionPad2D, Lambda
    conv            convolutions, transposed convolutions, and pooling: the maximum or mean of
                    windows and of whole images
    norm            BatchNorm, LayerNorm, InstanceNorm, GroupNorm

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Sequential()
>>> net.add(nn.Conv2D(4, kernel_size=3, activation="relu"), nn.MaxPool2D(2), nn.Dense(10))
>>> net.initialize()
>>> net(nd.ones((2, 1, 8, 8))).shape
(2, 10)
"""

# isort: off
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.symbol_block import SymbolBlock
from d2lmini.gluon.nn.basic import (
    ELU, GELU, SELU, Activation, Dense, Dropout, Embedding, Flatten, HybridLambda,
    HybridSequential, Lambda, LeakyReLU, PReLU, ReflectionPad2D, Sequential, Swish,
)  # fmt: skip
from d2lmini.gluon.nn.conv import (
    AvgPool1D, AvgPool2D, AvgPool3D, Conv1D, Conv1DTranspose, Conv2D, Conv2DTranspose, Conv3D,
    Conv3DTranspose, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D, GlobalMaxPool1D,
    GlobalMaxPool2D, GlobalMaxPool3D, MaxPool1D, MaxPool2D, MaxPool3D,
)  # fmt: skip
from d2lmini.gluon.nn.norm import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm
