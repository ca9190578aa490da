"""Automatic differentiation: record operations on a tape, walk back along it for the gradients.

>>> from d2lmini import autograd, nd
>>> x = nd.array([1, 2, 3])
>>> x.attach_grad()
>>> with autograd.record():
...     y = x * x
>>> y.backward()
>>> x.grad
<BLANKLINE>
[2. 4. 6.]
<NDArray 3 @cpu(0)>

While recording, an operation on arrays that have a history makes a node on the *tape* and its
outputs refer to the node; an array with a gradient attached refers to a `Leaf`. A node holds what
its gradient rule needs (memory and cells, never an output's handle) and its parents. So the tape
lives exactly as long as an array that can still ask for a gradient, and is never cleared by hand.

`backward` visits the nodes in reverse order of recording. Gradient rules are written in ops on
values: they are pushed to the engine like any operation, backward returns before they have run, and
if they are recorded in turn (`create_graph=True`), their results can be differentiated again.

A value may be overwritten in place after it was recorded: the write hands the old value to the
nodes that still need it (`device.storage.Chunk` tells how), so gradients are those of the values
that were recorded. Only such a write makes a copy; a training loop makes none.

scopes    the switches: record, pause, train_mode, predict_mode
tape      the record of each operation
backward_pass  backward, grad, mark_variables
function  Function, for gradients written by hand
checkpoint  activation checkpointing: compute again in backward what forward did not keep
"""

from __future__ import annotations

from typing import Any

from d2lmini.autograd.backward_pass import backward, grad, mark_variables
from d2lmini.autograd.checkpoint import checkpoint
from d2lmini.autograd.function import Function
from d2lmini.autograd.scopes import (
    is_recording,
    is_training,
    pause,
    predict_mode,
    record,
    set_recording,
    set_training,
    train_mode,
)
from d2lmini.autograd.tape import Leaf, Node, check_in_place, record_op
from d2lmini.base import loaders, missing_attribute

__all__ = [
    "Function", "Leaf", "Node", "backward", "check_in_place", "checkpoint", "get_symbol", "grad",
    "is_recording", "is_training", "mark_variables", "pause", "predict_mode", "record", "record_op",
    "set_recording", "set_training", "train_mode",
]  # fmt: skip


def get_symbol(x: Any) -> Any:
    """The computation that the NDArray `x` was recorded with, as a Symbol; see
    `graph.cached_op`. MXNetError if `x` was not recorded."""
    return loaders["get_symbol"]()(x)  # Symbols are defined on a higher floor


def __getattr__(name: str) -> Any:
    raise missing_attribute("autograd", name, __all__, f"; it has {', '.join(__all__)}")
