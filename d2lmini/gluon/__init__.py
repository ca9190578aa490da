"""Gluon: networks built of Blocks, trained by a Trainer. In reading order:

parameter        Parameter: a learnt array, with a copy on each device
parameter_dict   ParameterDict: parameters by name; Constant: a parameter that is not learnt
block            Block: names, parameters and children, calls, files
hybrid_block     HybridBlock: a Block that can be compiled
nn, rnn, loss    layers, recurrent layers, losses
data             data sets and loaders
trainer          Trainer: optimizer steps from the gradients of all devices
checkpoint       Checkpoint: resumes a training after it was killed
utils            splitting batches, clipping gradients, downloads

>>> from d2lmini import autograd, gluon, nd
>>> net = gluon.nn.Dense(1)
>>> net.initialize()
>>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
>>> with autograd.record():
...     loss = gluon.loss.L2Loss()(net(nd.ones((4, 3))), nd.ones((4, 1)))
>>> loss.backward()
>>> trainer.step(4)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from d2lmini.base import missing_attribute
from d2lmini.gluon import block, hybrid_block, parameter
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.parameter import DeferredInitializationError, Parameter
from d2lmini.gluon.parameter_dict import Constant, ParameterDict
from d2lmini.gluon.symbol_block import SymbolBlock

if TYPE_CHECKING:
    from d2lmini.gluon import checkpoint, data, loss, nn, rnn, trainer, utils
    from d2lmini.gluon.checkpoint import Checkpoint
    from d2lmini.gluon.trainer import Trainer

__all__ = [
    "Block", "Checkpoint", "Constant", "DeferredInitializationError", "HybridBlock", "Parameter",
    "ParameterDict", "SymbolBlock", "Trainer", "checkpoint", "data", "loss", "nn", "rnn",
    "trainer", "utils",
]  # fmt: skip

# The names that MXNet has here, for programs that import them.
vars(block).update(HybridBlock=HybridBlock, SymbolBlock=SymbolBlock)
vars(parameter).update(Constant=Constant, ParameterDict=ParameterDict)

# Imported when they are asked for: each name, and its module.
_LATER = {"Checkpoint": "checkpoint", "Trainer": "trainer"}
_LATER |= {name: name for name in ("checkpoint", "data", "loss", "nn", "rnn", "trainer", "utils")}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise missing_attribute("gluon", name, __all__, f"; it has {', '.join(__all__)}")
    module = importlib.import_module(f"d2lmini.gluon.{_LATER[name]}")
    globals()[name] = value = getattr(module, name, module)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
