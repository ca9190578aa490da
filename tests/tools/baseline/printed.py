"""What `print(net.program())` shows of the book's nets, forward and backward."""

from __future__ import annotations

from d2lmini import autograd, init, nd


def record() -> dict[str, str]:
    from hybrid_nets import NETS

    from baseline.corpus import flat

    found = {}
    for name, net in NETS.items():
        block = net.build()
        block.initialize(init.One())
        block.hybridize()
        xs = [nd.ones(shape) for shape in net.shapes[0]]
        block(*xs)
        with autograd.record():
            ys = flat(block(*xs))
        autograd.backward(ys)
        found[name] = str(block.program())
    return found
