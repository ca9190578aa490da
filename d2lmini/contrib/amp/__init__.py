"""Automatic mixed precision: 16 bits where it is safe, float32 elsewhere, and scaled losses.

lists           which precision each op gets
casts           `init`: casts before ops
loss_scaler     `init_trainer`, `scale_loss`, `unscale`: gradients that float16 can hold

>>> from d2lmini import autograd, gluon, nd
>>> from d2lmini.contrib import amp
>>> net = gluon.nn.Dense(1, in_units=2)
>>> net.initialize()
>>> with amp.init("float16"):
...     trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
...     amp.init_trainer(trainer)
...     with autograd.record():
...         l = net(nd.ones((4, 2))).mean() / 8
...         with amp.scale_loss(l, trainer) as scaled:
...             autograd.backward(scaled)
...     trainer.step(batch_size=1)
>>> net.bias.data().asscalar()
np.float32(-0.0625)

After `mxnet.contrib.amp`.
"""

from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.contrib.amp.casts import init as init
from d2lmini.contrib.amp.loss_scaler import init_trainer as init_trainer
from d2lmini.contrib.amp.loss_scaler import scale_loss as scale_loss
from d2lmini.contrib.amp.loss_scaler import unscale as unscale


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("contrib.amp", name, globals())
