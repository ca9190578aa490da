"""Each layer behind each layer that computes in 16 bits: mixed precision refuses no net.

A program makes a net of drawn layers, computes with it in float32, and then converted to, or in the
scope of, float16 or bfloat16. All ways must take it, agree with float32 to a few roundings of 16
bits, and eager with hybridized:

    python tests/generators/run.py --programs 2000 mixed_precision
"""

from __future__ import annotations

import random

import numpy as np

from generators.agree import results

#: Layers that compute in 16 bits, on (2, 4, 6, 6) images and on (2, 3, 4) sequences, which they
#: keep.
LOW = {
    "image": ("nn.Conv2D(4, 3, padding=1)", "nn.Conv2D(4, 3, padding=1, groups=2, use_bias=False)",
              "nn.Conv2DTranspose(4, 3, padding=1)", "nn.Conv2D(4, 1, activation='relu')"),
    "sequence": ("nn.Dense(4, flatten=False)", "nn.Dense(4, flatten=False, activation='tanh')",
                 "nn.Conv1D(3, 3, padding=1)", "nn.Conv1DTranspose(3, 3, padding=1)",
                 "rnn.LSTM(4, layout='NTC')", "rnn.GRU(4, layout='NTC')",
                 "rnn.RNN(4, layout='NTC', num_layers=2)", "rnn.LSTM(2, 1, 'NTC', 0, True)",
                 "Unrolled(rnn.LSTMCell(4))", "Unrolled(rnn.GRUCell(4))",
                 "Unrolled(rnn.RNNCell(4))"),
}  # fmt: skip

#: Any layer, on either.
ANY = (
    "nn.PReLU()", "nn.PReLU(in_channels=SECOND)", "nn.LeakyReLU(0.2)", "nn.ELU()", "nn.SELU()",
    "nn.GELU()", "nn.Swish()", "nn.Activation('relu')", "nn.Activation('softrelu')",
    "nn.BatchNorm()", "nn.BatchNorm(scale=False)", "nn.BatchNorm(axis=-1)", "nn.LayerNorm()",
    "nn.LayerNorm(axis=1)", "nn.InstanceNorm()", "nn.GroupNorm(1)", "nn.Dropout(0.2)",
    "Scale('x * w')", "Scale('F.broadcast_mul(x, w)')",
    "Scale('F.broadcast_add(x, w)')", "Scale('F.broadcast_maximum(x, w)')",
    "Scale('F.broadcast_hypot(x, w)')", "Scale('F.concat(x, F.broadcast_like(w, x), dim=0)')",
    "Scale('F.where(F.broadcast_like(w, x) > 0, x, x * 2)')",
    "Scale('F.stack(x, F.broadcast_like(w, x)).sum(axis=0)')",
    "Scale('F.add_n(x, F.broadcast_like(w, x))')", "Scale('F.broadcast_power(F.abs(x) + 1, w)')",
    "Scale('F.LeakyReLU(x, F.reshape(w, (1,)), act_type=\"prelu\")')",
    "Scale('F.dot(x, F.broadcast_mul(F.reshape(w, (1, 1)), F.ones((LAST, LAST))))')",
    "Scale('F.broadcast_add(x, F.take(w, F.zeros((1,))))')",
    "Scale('F.SequenceMask(F.broadcast_mul(x, w), value=1)')",
    "Scale('F.clip(F.broadcast_div(x, w + 1), -2, 2)')",
    "Scale('F.softmax(F.broadcast_mul(x, w))')",
    "Scale('F.L2Normalization(F.broadcast_mul(x, w))')", "Embedded()",
)  # fmt: skip

CLASSES = """
from mxnet.contrib import amp
from mxnet.gluon import nn, rnn
class Unrolled(gluon.HybridBlock):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell
    def hybrid_forward(self, F, x):
        return self.cell.unroll(3, x, layout='NTC', merge_outputs=True)[0]
class Scale(gluon.HybridBlock):
    def __init__(self, text):
        super().__init__()
        self.text = text
        self.w = self.params.get('w', shape=(1,) * AXES, init=init.Constant(0.5))
    def hybrid_forward(self, F, x, w):
        return eval(self.text, {'F': F, 'x': x, 'w': w, 'LAST': LAST})
class Embedded(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(3, LAST)
    def hybrid_forward(self, F, x):
        words = self.words(F.zeros((1,)))
        return F.broadcast_add(x, F.reshape(words, (1,) * (AXES - 1) + (LAST,)))
"""


def draw(seed: int) -> str:
    """The program keeps, for float32 and each way, the output, a loss and a gradient."""
    rng = random.Random(seed)
    place = rng.choice(("image", "sequence"))
    shape = (2, 4, 6, 6) if place == "image" else (2, 3, 4)
    layers = [rng.choice(LOW[place])]
    for _ in range(rng.randint(1, 3)):
        layers.append(rng.choice(ANY if rng.random() < 0.8 else LOW[place]))
    if rng.random() < 0.3:
        rng.shuffle(layers)
    layers += [rng.choice(("nn.Dense(2)", "nn.Flatten()"))]
    text = ", ".join(layers).replace("SECOND", str(shape[1]))
    dtype = rng.choice(("float16", "bfloat16"))
    loss = rng.choice(("gluon.loss.L2Loss()", "gluon.loss.L1Loss()", "gluon.loss.HuberLoss()"))
    return f"""AXES, LAST = {len(shape)}, {shape[-1]}
{CLASSES}
mx.random.seed({seed % 1000})
net = nn.HybridSequential()
net.add({text})
net.initialize(init.Uniform(0.5))
x = nd.random.uniform(-1, 1, shape={shape})
net(x)
loss = {loss}
def train(scaled):
    parameters = [p for p in net.collect_params().values() if p.grad_req != 'null']
    trainer = gluon.Trainer(net.collect_params(), 'sgd', {{'learning_rate': 0.01}})
    if scaled:
        amp.init_trainer(trainer)
        trainer._amp_loss_scaler._loss_scale = 64.0  # not so large that gradients overflow
    with autograd.record(train_mode=False):
        y = net(x)
        l = loss(y, nd.zeros_like(y)).mean()
        if scaled:
            with amp.scale_loss(l, trainer) as big: autograd.backward(big)
        else:
            l.backward()
    if scaled: amp.unscale(trainer)
    keep(y.astype('float32'))
    keep(sum([abs(p.grad().astype('float32')).sum() for p in parameters], nd.zeros(1)))
train(False)
net.hybridize()
net(x)
for active in (False, True):
    net.hybridize(active)
    with amp.init('{dtype}'):
        train(True)
"""


def check(seed: int) -> bool:
    """AssertionError unless all ways agree."""
    text = draw(seed)
    y, gradient, *rest = results(text)
    roundings = 0.1 if "bfloat16" in text else 0.02
    wanted = [y, gradient, y, gradient]
    for i, (found, want) in enumerate(zip(rest, wanted, strict=True)):
        room = roundings * max(1, float(np.abs(want).max()))
        assert found.shape == want.shape and np.allclose(found, want, 0, room), (
            f"value {i} differs\n{found}\n{want}\n{text}"
        )
    return False
