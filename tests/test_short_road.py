"""The short road of operations on tiny arrays: who goes it, and that it is the same to all eyes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini import instrument, nd
from d2lmini.gluon import nn
from d2lmini.ops.core import registry


class Short(instrument.Instrument):
    """Notes the operations that came by the short road."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def small(self, name: str, *_: Any) -> None:
        self.names.append(name)


def short(call: Callable[[], Any]) -> list[str]:
    """The operations of `call()` that took the short road."""
    with instrument.listening(Short()) as heard:
        call()
    nd.waitall()
    return heard.names


def dense() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    return net


LAYERS = ["FullyConnected", "Activation", "FullyConnected"]


def test_a_small_net_takes_it_from_the_second_call_on():
    net, x = dense(), nd.ones((1, 3))
    net(x)
    assert short(lambda: net(x)) == LAYERS


def test_a_net_of_which_a_graph_was_made_takes_it_too():
    # The compiler asks for the same plans, with attributes that are not remembered by their words.
    for each in ("FullyConnected", "Activation"):
        registry[each].plans.clear()
    compiled, net, x = dense(), dense(), nd.ones((1, 3))
    compiled.hybridize()
    compiled(x)
    net(x)
    assert short(lambda: net(x)) == LAYERS
