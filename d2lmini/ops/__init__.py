"""Every operation, declared once: importing this package fills the registry.

`core` defines what an op is. The families follow in an order in which they can be read; modules
import the helpers they share (`checks`, `chunking`, `windows`, ...) where they need them. Last,
`fluent` derives the methods of values from the ops declared before.

>>> from d2lmini.ops.core import registry
>>> registry["exp"]
<op exp(data)>
"""

# isort: off

from d2lmini.ops import core  # what an op is: compute, infer, gradient, cost

# one element at a time
from d2lmini.ops import create  # zeros, arange, eye, cast, copies, where, add_n, BlockGrad
from d2lmini.ops import elementwise  # families: all ops of a function of two operands
from d2lmini.ops import binary  # the families: add, maximum, greater, ...
from d2lmini.ops import fluent  # operators and functions of values
from d2lmini.ops import composed  # ops that are formulas of other ops
from d2lmini.ops import unary  # exp, log, sin, abs, round, isnan, erf, gamma
from d2lmini.ops import activation  # relu, sigmoid, clip, Activation, LeakyReLU

# many elements to one, one to many
from d2lmini.ops import reduce  # sum, mean, prod, max, min, nansum, norm
from d2lmini.ops import order  # argmax, argmin, cumsum, sort, argsort, topk

# the same elements elsewhere
from d2lmini.ops import shape  # reshape, transpose, expand_dims, broadcast_to, tile, repeat, diag
from d2lmini.ops import subscript  # slice, slice_axis, reverse, x[key] and x[key] = value
from d2lmini.ops import join  # concat, stack, split, pad
from d2lmini.ops import index  # take, Embedding, pick, one_hot
from d2lmini.ops import sequence  # SequenceMask, SequenceLast, SequenceReverse, CTCLoss

# matrices
from d2lmini.ops import linalg  # dot, batch_dot, gemm2, FullyConnected

# layers
from d2lmini.ops import softmax  # softmax, log_softmax, SoftmaxOutput, cross-entropy
from d2lmini.ops import normalization  # BatchNorm, LayerNorm, ..., L2Normalization
from d2lmini.ops import conv  # Convolution, Deconvolution
from d2lmini.ops import pool  # Pooling
from d2lmini.ops import rnn_compute  # a recurrent layer: all steps, and back
from d2lmini.ops import rnn  # RNN: several layers; the layer of a cell

# random numbers
from d2lmini.ops import random_ops  # uniform, normal, multinomial, shuffle, Dropout

# training
from d2lmini.ops import update  # sgd_update, adam_update, ...; one task for all parameters

fluent.add_methods()  # x.sum(), x.reshape(...)
