"""Programs as they are printed, line by line: where each value lies, what joins a group, where it
is cut, which line computes which node. Each program gives what the interpreter gives, too.

The texts are in `printed.txt`. A change of the compiler that is meant changes them: read the new
text that the failing test shows, and copy it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_programs import check, compiled

from d2lmini import autograd, nd, sym
from d2lmini.gluon import nn

x, w, b, v = map(sym.var, "xwbv")

PRINTED = dict(
    part.split("\n", 1)
    for part in (Path(__file__).parent / "printed.txt").read_text().split("\n## ")[1:]
)


def is_printed(name: str, text: str) -> None:
    assert text.strip() == PRINTED[name].strip(), f"## {name}\n{text}"


def program_of(heads: Any, shapes: dict, training: bool = False) -> str:
    program, graph = compiled(heads, shapes, training)
    check(program, graph)
    flops, nbytes, arena = program.cost
    cost = f"{flops:g} FLOPs, {nbytes} bytes, an arena of {arena}, {program.predicted_us:.2f} us"
    return f"{program}\n{program.plan}\n{cost}"


def one_value_many_times() -> str:
    """Results in place, an output that other lines read, copies, views of outputs."""
    e = sym.exp(x, name="e")
    heads = [sym.sigmoid(e * 2, name="s"), e, x, e.reshape((6,)), sym.transpose(x, name="t"), e]
    return program_of(heads, {x: (2, 3)})


def no_place_to_overwrite() -> str:
    """Results that do not work in place, each alive while the next is made; views of the arena."""
    h = sym.cumsum(x * 2, axis=1, name="c0")
    h = sym.cumsum(h + 1, axis=1, name="c1")
    turned = sym.clip(sym.swapaxes(h, dim1=0, dim2=1, name="turned"), 0, float("inf"), name="low")
    cut = sym.slice(w, begin=(0, None), end=(3, None), step=(2, -1), name="cut")
    return program_of([turned.slice_axis(axis=-1, begin=0, end=1), cut * h], {x: (2, 3), w: (4, 3)})


def fresh_results() -> str:
    """Ops that make their own results, of which some have several; a constant; a key."""
    found = sym.topk(x, k=2, ret_typ="both", name="k")
    y = sym.Dropout(sym.broadcast_add(x, sym.arange(3).reshape((1, 3))), mode="always", name="drop")
    parts = sym.split(y, num_outputs=3, axis=1, name="part")
    return program_of([found[0] * 2, found[1], parts[1] + parts[2]], {x: (2, 3)})


def products() -> str:
    """A row times a matrix, transposed ones, the cores' own for a large one."""
    f = sym.FullyConnected(x, w, num_hidden=4, no_bias=True, name="f")
    g = sym.FullyConnected(f, v, b, num_hidden=2, name="g")
    row = program_of(sym.relu(g, name="r"), {x: (1, 3), w: (4, 3), v: (2, 4), b: (2,)})
    p = sym.dot(sym.dot(x, w, transpose_a=True, name="p"), v, transpose_b=True, name="q")
    small = program_of(p, {x: (3, 2), w: (3, 4), v: (5, 4)})
    return (
        row + "\n" + small + "\n" + program_of(sym.dot(x, w, name="p"), {x: (90, 90), w: (90, 90)})
    )


def rows() -> str:
    """Softmax: reductions of rows within the group, one piece of scratch memory."""
    return program_of(sym.softmax(x, name="y"), {x: (512, 512)})


def channels() -> str:
    """A cut along the second axis, with an input that broadcasts."""
    m = sym.mean(x, axis=(0, 2), keepdims=True, name="m")
    y = sym.broadcast_mul(sym.broadcast_sub(x, m, name="d"), w, name="y")
    return program_of(y, {x: (8, 64, 200), w: (1, 64, 1)})


def totals() -> str:
    """Reductions that end groups: along the axis that is cut, along another, of all."""
    s = sym.sum(sym.square(x, name="q"), axis=0, name="s")
    most = sym.max(sym.exp(x, name="e"), axis=1, name="most")
    mean = sym.mean(sym.broadcast_mul(x, w, name="xw"), name="mean")
    return program_of([s, most, mean], {x: (512, 512), w: (512,)})


def chains() -> str:
    """Groups that share scratch memory and result arrays, and one that another op parts."""
    a = sym.exp(x, name="a")
    c = sym.elemwise_add(sym.square(a, name="b"), sym.sin(a, name="b2"), name="c")
    d = sym.where(sym.broadcast_greater(c, a, name="more"), c, w, name="d")
    p = sym.dot(d, w, name="p")
    y = sym.tanh(sym.elemwise_mul(p, c, name="pc"), name="y")
    return program_of([y, c], {x: (512, 512), w: (512, 512)})


def statistics() -> str:
    """BatchNorm in training: it changes its inputs, which are read before and after."""
    data, mean, var = map(sym.var, ("data", "mean", "var"))
    early = mean * 2
    y = sym.BatchNorm(data, w, b, mean, var, fix_gamma=False, name="bn")
    shapes = {mean: (3,), data: (4, 3), w: (3,), b: (3,), var: (3,)}
    return program_of([early, sym.tanh(y, name="y"), mean + 1], shapes, training=True)


def test_programs_of_single_ops():
    for make in (one_value_many_times, no_place_to_overwrite, fresh_results):
        with sym.NameManager():
            is_printed(make.__name__, make())


def test_programs_of_products_and_of_what_changes():
    for make in (products, statistics):
        with sym.NameManager():
            is_printed(make.__name__, make())


def test_programs_of_groups():
    for make in (rows, channels, totals, chains):
        with sym.NameManager():
            is_printed(make.__name__, make())


def net_of(*layers: Any, shape: tuple[int, ...], **flags: Any) -> str:
    """The programs of a net: to predict, to train, and of its gradients."""
    with sym.NameManager():
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(*layers)
        net.initialize()
        net.hybridize(**flags)
        data = nd.ones(shape)
        net(data)
        with autograd.record():
            y = net(data)
        y.backward()
        return "\n\n".join(map(str, net.program()))


def a_net() -> str:
    """Pooling goes before the activation, backward computes the relu again."""
    conv = nn.Conv2D(2, 3, activation="relu", in_channels=1, prefix="conv_")
    dense = nn.Dense(3, in_units=8, prefix="dense_")
    layers = conv, nn.MaxPool2D(2, 2, prefix="pool_"), nn.Dropout(0.5, prefix="drop_"), dense
    return net_of(*layers, shape=(4, 1, 6, 6))


def a_mirrored_net() -> str:
    """What is dropped and its sigmoid are computed again from the product."""
    dense = nn.Dense(3, in_units=2, use_bias=False, prefix="dense_")
    layers = dense, nn.Activation("sigmoid", prefix="act_"), nn.Dropout(0.5, prefix="drop_")
    last = nn.Dense(1, in_units=3, use_bias=False, prefix="last_")
    return net_of(*layers, last, shape=(4, 2), backward_do_mirror=True)


@pytest.mark.parametrize("make", [a_net, a_mirrored_net], ids=lambda make: make.__name__)
def test_programs_of_a_net(make):
    is_printed(make.__name__, make())
