"""The table of `Block.summary`: each layer called, its output shape, its number of parameters.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Sequential()
>>> net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
>>> net.initialize()
>>> net.summary(nd.ones((5, 3)))                 # doctest: +NORMALIZE_WHITESPACE
--------------------------------------------------------------------------------
        Layer (type)                                Output Shape         Param #
================================================================================
               Input                                      (5, 3)               0
        Activation-1                                      (5, 4)               0
             Dense-2                                      (5, 4)              16
             Dense-3                                      (5, 2)              10
================================================================================
Parameters in forward computation graph, duplicate included
   Total params: 26
   Trainable params: 26
   Non-trainable params: 0
Shared params in forward computation graph: 0
Unique parameters in model: 26
--------------------------------------------------------------------------------
"""

from __future__ import annotations

from math import prod
from typing import Any


def print_summary(block: Any, inputs: tuple) -> None:
    """Call `block` on `inputs` and print the table; see Block.summary. AssertionError if a part of
    `block` is hybridized, because its layers are then not called one by one."""
    rows: list[tuple[str, str, int]] = [("Input", _shapes(list(inputs)), 0)]
    total = trainable = shared = 0
    seen: set[int] = set()
    handles: dict[int, Any] = {}

    def note(layer: Any, _inputs: tuple, output: Any) -> None:
        nonlocal total, trainable, shared
        own = 0
        for parameter in layer._reg_params.values():
            size = prod(parameter.shape)
            own += size
            trainable += size if parameter.grad_req != "null" else 0
            shared += size if id(parameter) in seen else 0
            seen.add(id(parameter))
        total += own
        rows.append((f"{type(layer).__name__}-{len(rows)}", _shapes(output), own))

    def watch(layer: Any) -> None:
        assert not getattr(layer, "_active", False), (
            f'"{layer.name}" must not be hybridized to print summary.'
        )
        # A container's work is all in its layers. A layer that is used twice gets one hook.
        if layer._in_summary and id(layer) not in handles:
            handles[id(layer)] = layer.register_forward_hook(note)

    try:
        block.apply(watch)
        block(*inputs)
    finally:
        for handle in handles.values():
            handle.detach()

    line = "{:>20}  {:>42} {:>15}"
    print(
        "-" * 80,
        line.format("Layer (type)", "Output Shape", "Param #"),
        "=" * 80,
        *(line.format(*row) for row in rows),
        "=" * 80,
        "Parameters in forward computation graph, duplicate included",
        f"   Total params: {total}",
        f"   Trainable params: {trainable}",
        f"   Non-trainable params: {total - trainable}",
        f"Shared params in forward computation graph: {shared}",
        f"Unique parameters in model: {total - shared}",
        "-" * 80,
        sep="\n",
    )


def _shapes(values: Any) -> str:
    """The shapes of nested arrays: '(5, 3), [(2,)]'."""
    if not isinstance(values, (list, tuple)):
        return str(values.shape) if hasattr(values, "shape") else type(values).__name__
    parts = [f"[{_shapes(x)}]" if isinstance(x, (list, tuple)) else _shapes(x) for x in values]
    return ", ".join(parts)
