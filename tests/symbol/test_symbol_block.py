"""SymbolBlock, export and imports: nets from graphs, and features inside nets."""

from __future__ import annotations

import numpy as np
import pytest
from hybrid_nets import NETS
from oracle import Oracle

from d2lmini import autograd, cpu, gluon, nd, random, sym
from d2lmini.gluon import HybridBlock, SymbolBlock, nn


def close(a, b):
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


def example() -> tuple[HybridBlock, nd.NDArray]:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.Dense(4), nn.Dense(2))
    random.seed(0)
    net.initialize()
    x = nd.random.normal(shape=(2, 1, 5, 5))
    with autograd.record():  # moving averages that are not those of the beginning
        net(x)
    return net, x


def test_features_inside_a_net_share_its_parameters():
    net, x = example()
    data = sym.var("data")
    inside = net(data).get_internals()
    wanted = [inside["net_dense0_fwd_output"], inside["net_dense1_fwd_output"]]
    features = SymbolBlock(wanted, data, params=net.collect_params())
    hidden, y = features(x)
    close(y, net(x))
    assert hidden.shape == (2, 4)
    assert features.collect_params()["net_dense0_weight"] is net[2].weight
    assert "dense0_weight" in features._reg_params  # less what all names begin with
    net[3].bias.set_data(nd.ones(2) * 100)
    close(features(x)[1], net(x))
    with autograd.record():
        (features(x)[0] ** 2).sum().backward()
    got = net[2].weight.grad().copy()
    with autograd.record():
        (net[2](net[1](net[0](x))) ** 2).sum().backward()
    assert got.shape == net[2].weight.shape and got.asnumpy().any()


def test_several_inputs_nested_outputs_and_errors():
    a, b = sym.var("a"), sym.var("b")
    net = SymbolBlock([a + b, [a * b]], [a, b])
    total, (product,) = net(nd.array([2]), nd.array([3]))
    assert (total.asscalar(), product.asscalar()) == (5, 6)
    assert repr(net).startswith("SymbolBlock(\n<Symbol group [")
    assert repr(net).endswith(": 2 -> 2\n)")
    with pytest.raises(ValueError, match="SymbolBlock: 1 values for 2 inputs: a, b"):
        SymbolBlock([a + b], [a, b])(nd.ones(1))
    with pytest.raises(AssertionError, match="an input must be a variable"):
        SymbolBlock(a + b, a + b)


def test_export_and_imports(tmp_path):
    net, x = example()
    path = str(tmp_path / "net")
    for before in (lambda: None, net.hybridize):
        before()
        with pytest.raises(RuntimeError, match=r"first call block.hybridize\(\) and then run for"):
            net.export(path)
    expected = net(x)
    assert net.export(path, epoch=7) is None
    names = sorted(nd.load(f"{path}-0007.params"))
    assert names[0] == "arg:net_batchnorm0_beta" and names[-1] == "aux:net_batchnorm0_running_var"
    twin = SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0007.params", ctx=cpu(1))
    y = twin(x.as_in_context(cpu(1)))
    assert y.context == cpu(1)
    close(y, expected)
    twin = SymbolBlock.imports(f"{path}-symbol.json", "data", f"{path}-0007.params")
    close(twin(x[:1]), expected[:1])
    with pytest.raises(AssertionError, match="Parameter 'data' is missing in file"):
        SymbolBlock.imports(f"{path}-symbol.json", ["image"], f"{path}-0007.params")
    fresh = SymbolBlock.imports(f"{path}-symbol.json", ["data"])
    with pytest.raises(RuntimeError, match="has not been initialized"):
        fresh(x)
    # The file is also read by the class, and so is the file of the SymbolBlock.
    twin.save_parameters(f"{path}.params")
    fresh.load_parameters(f"{path}.params")
    close(fresh(x), expected)
    other, _ = example()
    other.load_parameters(f"{path}-0007.params")
    other.hybridize()
    close(other(x), expected)


def outputs_of(mx, path):
    """What an imported net gives for the array beside it."""
    net = mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
    y = net(mx.nd.load(path + ".x")[0])
    return [each.asnumpy() for each in (y if isinstance(y, list) else [y])]


def test_mxnet_reads_our_nets(tmp_path, mxnet: Oracle):
    """LeNet, a residual net, cells and layers: the same graph gives the same numbers there."""
    for name in ("lenet", "resnet18", "googlenet block", "densenet block", "lstm unrolled",
                 "gru unrolled", "lstm layers"):  # fmt: skip
        build, shapes, words = NETS[name]
        random.seed(0)
        net = build()
        net.initialize()
        net.hybridize()
        x = nd.random.uniform(shape=shapes[0][0])
        x = nd.floor(x * 6) if words else x
        y = net(x)
        path = str(tmp_path / name.replace(" ", "_"))
        net.export(path)
        nd.save(path + ".x", [x])
        wanted = gluon.block._flatten(y)[0]
        for got, want in zip(mxnet.ask(outputs_of, path), wanted, strict=True):
            np.testing.assert_allclose(got, want.asnumpy(), rtol=1e-4, atol=1e-5, err_msg=name)
