"""Layers, cells, data sets and transforms by hand: numbers, names and errors, in quick tests."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import MXNetError, addons, autograd, cpu, gluon, kvstore, nd, random, sym
from d2lmini.gluon import SymbolBlock, nn, rnn
from d2lmini.gluon import data as gdata
from d2lmini.gluon.data.vision import transforms as T
from d2lmini.symbol.naming import NameManager


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


def tell(*arrays):
    return [x.asnumpy().tolist() for x in arrays]


def filled(net, value=0.5):
    """The net, with all parameters `value` but the biases, which count up from 0.1."""
    net.initialize()
    for p in net.collect_params().values():
        size = np.prod(p.shape)
        bias = 0.1 + 0.1 * np.arange(size)
        p.set_data(nd.array((bias if "bias" in p.name else np.full(size, value)).reshape(p.shape)))
    return net


def close(x, expected):
    np.testing.assert_allclose(x.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# -- recurrent cells and layers --------------------------------------------------------------------

X = np.array([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.0]], "float32")  # T=3 steps of (N=1, C=2), by rows


def by_hand(kind, x, h, c):
    """A step with two hidden units, all weights 0.5, and the biases 0.1, 0.2, ... (twice)."""
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[kind]
    bias = 0.1 + 0.1 * np.arange(2 * gates)
    i2h, h2h = (np.split(0.5 * v.sum() + bias, gates) for v in (x, h))
    both = [a + b for a, b in zip(i2h, h2h)]
    if kind == "rnn":
        return np.tanh(both[0]), c
    if kind == "gru":
        r, z = sigmoid(both[0]), sigmoid(both[1])
        return (1 - z) * np.tanh(i2h[2] + r * h2h[2]) + z * h, c
    c = sigmoid(both[1]) * c + sigmoid(both[0]) * np.tanh(both[2])
    return sigmoid(both[3]) * np.tanh(c), c


def all_by_hand(kind, steps):
    h = c = np.zeros(2)
    found = []
    for x in steps:
        h, c = by_hand(kind, x, h, c)
        found.append(h)
    return np.array(found), [h, c][: 2 if kind == "lstm" else 1]


KINDS = {
    "rnn": (rnn.RNNCell, rnn.RNN),
    "lstm": (rnn.LSTMCell, rnn.LSTM),
    "gru": (rnn.GRUCell, rnn.GRU),
}


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_nets_equal_the_formulas(kind):
    cell_kind, layer_kind = KINDS[kind]
    options = {"activation": "tanh"} if kind == "rnn" else {}
    want, last = all_by_hand(kind, X)
    short, last_short = all_by_hand(kind, X[:2])
    steps = nd.array(X).expand_dims(1)
    cell = filled(cell_kind(2, input_size=2, **options))
    hybrid = filled(cell_kind(2, input_size=2, **options))
    hybrid.hybridize()
    for net in (cell, hybrid):
        states = net.begin_state(1)
        for t in range(3):
            y, states = net(steps[t], states)
        close(y[0], want[2])
        for a, b in zip(states, last, strict=True):
            close(a[0], b)
        y, states = net.unroll(
            3, steps, layout="TNC", merge_outputs=True, valid_length=nd.array([2])
        )
        close(y[:, 0], [*short, [0, 0]])
        close(states[-1][0], last_short[-1])
    layer = filled(layer_kind(2, input_size=2, **options))
    y, states = layer(steps, layer.begin_state(1))
    close(y[:, 0], want)
    close(states[-1][0, 0], last[-1])
    both = filled(layer_kind(2, input_size=2, bidirectional=True, layout="NTC", **options))
    back, _ = all_by_hand(kind, X[::-1])
    close(both(steps.swapaxes(0, 1))[0], np.hstack([want, back[::-1]]))
    pair = rnn.BidirectionalCell(*(filled(cell_kind(2, input_size=2, **options)) for _ in "lr"))
    for merge in (True, False):
        y, _ = pair.unroll(3, steps, layout="TNC", merge_outputs=merge)
        close((y if merge else nd.stack(*y))[:, 0], np.hstack([want, back[::-1]]))
    y, _ = pair.unroll(3, steps.swapaxes(0, 1), merge_outputs=True, valid_length=nd.array([2]))
    back, _ = all_by_hand(kind, X[1::-1])
    close(y[0, :2], np.hstack([short, back[::-1]]))
    residual = rnn.ResidualCell(filled(cell_kind(2, input_size=2, **options)))
    y, _ = residual.unroll(3, steps, layout="TNC", merge_outputs=True)
    close(y[:, 0], want + X)
    y, _ = residual(steps[0], residual.begin_state(1))
    close(y[0], want[0] + X[0])


def test_names_of_recurrent_nets():
    layer = rnn.GRU(3, num_layers=2, bidirectional=True, prefix="g_")
    assert repr(layer) == "GRU(None -> 3, TNC, num_layers=2, bidirectional)"
    layer.initialize()
    assert layer(nd.ones((4, 1, 5))).shape == (4, 1, 6)
    shapes = {name[2:]: p.shape for name, p in layer.collect_params().items()}
    assert [*shapes][:5] == ["l0_i2h_weight", "l0_h2h_weight", "l0_i2h_bias", "l0_h2h_bias",
                             "r0_i2h_weight"]  # fmt: skip
    assert [shapes[f"{k}_i2h_weight"] for k in ("l0", "r0", "l1", "r1")] == [
        (9, 5), (9, 5), (9, 6), (9, 6),
    ]  # fmt: skip
    assert {shapes[f"r1_{kind}"] for kind in ("i2h_bias", "h2h_bias")} == {(9,)}
    names = layer._collect_params_with_prefix("net")
    assert next(iter(names)) == "net._unfused.0.l_cell.i2h_weight" and len(names) == 16
    assert names["net._unfused.1.r_cell.h2h_bias"] is layer.r1_h2h_bias
    assert "_unfused.0.i2h_weight" in rnn.RNN(3)._collect_params_with_prefix()
    assert [s.shape for s in layer.begin_state(7)] == [(4, 7, 3)]
    made = []
    rnn.LSTM(3, prefix="l_").begin_state(2, lambda **how: made.append(how) or nd.ones(1), ctx=3)
    assert [(how["name"], how["shape"], how["ctx"]) for how in made] == [
        ("l_h0_0", (1, 2, 3), 3), ("l_h0_1", (1, 2, 3), 3),
    ]  # fmt: skip
    cells = rnn.SequentialRNNCell(prefix="s_")
    with cells.name_scope():
        cells.add(rnn.LSTMCell(2, prefix="a_"), rnn.RNNCell(2, "softsign"))
    outputs, states = cells.unroll(2, [sym.var("x0"), sym.var("x1")])
    assert [y.name for y in outputs] == ["s_rnn0_t0_out", "s_rnn0_t1_out"]
    assert [s.name for s in states] == ["s_a_t1_out", "s_a_t1_state", "s_rnn0_t1_out"]
    assert outputs[1].list_arguments()[:2] == ["x1", "s_a_i2h_weight"]
    assert len([n for n in outputs[1].list_arguments() if "begin_state" in n]) == 0
    names = [s.name for s in cells.begin_state(func=sym.zeros, batch_size=1)]
    assert names == ["s_a_begin_state_0", "s_a_begin_state_1", "s_rnn0_begin_state_0"]
    assert cells.begin_state(func=sym.zeros)[0].name == "s_a_begin_state_2"


class Counting(rnn.SequentialRNNCell):
    """Notes the number of each step."""

    def forward(self, inputs, states):
        result = super().forward(inputs, states)
        self.seen = [*getattr(self, "seen", []), self._counter]
        return result


def test_cells_count_their_steps():
    cells, x = Counting(), nd.ones((1, 2))
    cells.add(filled(rnn.RNNCell(2, input_size=2)))
    states = cells.begin_state(1)
    for _ in range(3):
        _, states = cells(x, states)
    cells.reset()
    cells(x, states)
    assert cells.seen == [0, 1, 2, 0]
    zoneout = rnn.ZoneoutCell(filled(rnn.RNNCell(2, input_size=2)), 0.5)
    zoneout.hybridize()
    assert not zoneout._active and zoneout.base_cell._active
    state = zoneout.begin_state(1)
    with pytest.raises(AssertionError, match="base cell cannot be called directly"):
        zoneout.base_cell.begin_state(1)
    with pytest.raises(
        AssertionError, match=r"already modified. One cell cannot be modified twice"
    ):
        rnn.ResidualCell(zoneout.base_cell)
    random.seed(1)
    with autograd.train_mode():
        first, state = zoneout(nd.ones((1, 2)), state)
        outputs = [zoneout(nd.ones((1, 2)) * k / 40, state)[0].asnumpy() for k in range(40)]
    steps = zip([first.asnumpy(), *outputs], outputs)
    assert 20 < sum(int(a == b) for old, new in steps for a, b in zip(old[0], new[0])) < 60
    cell = filled(rnn.RNNCell(2, "softrelu", input_size=2))
    close(cell(nd.array(X[:1]), cell.begin_state(1))[0][0], np.log1p(np.exp([0.2, 0.4])))
    dropped = rnn.DropoutCell(0.5)
    assert tell(*dropped(x, [])[:1]) == tell(x) and rnn.DropoutCell(0)(x, [])[0] is x
    with pytest.raises(ValueError, match=r"unroll: begin_state is a list of 1 array, as .*; got 2"):
        cell.unroll(1, x.expand_dims(1), [x, x])
    with pytest.raises(ValueError, match=r"Expecting \(1, 2, 3\), got \(1, 3, 3\)"):
        filled(rnn.RNN(3, input_size=2))(nd.ones((4, 2, 2)), nd.zeros((1, 3, 3)))


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (lambda: nn.LeakyReLU(0.5), [-1, 3]),
        (lambda: nn.PReLU(), [-0.5, 3]),
        (lambda: nn.ELU(2), [2 * np.expm1(-2), 3]),
        (lambda: nn.SELU(), [1.0507009873554805 * 1.6732632423543772 * np.expm1(-2), 3.152103]),
        (lambda: nn.GELU(), [-0.04550026, 2.9959502]),
        (lambda: nn.Swish(), [-2 * sigmoid(-2), 3 * sigmoid(3)]),
        (lambda: nn.Swish(2), [-2 * sigmoid(-4), 3 * sigmoid(6)]),
        (lambda: nn.Activation("softsign"), [-2 / 3, 0.75]),
        (lambda: nn.Dropout(0.5), [-2, 3]),
        (lambda: nn.Dropout(0), [-2, 3]),
        (lambda: nn.Lambda("square"), [4, 9]),
        (lambda: nn.HybridLambda("square"), [4, 9]),
        (lambda: nn.HybridLambda(lambda F, x: F.abs(x)), [2, 3]),
    ],
)
def test_functions_of_elements(net, expected):
    layer, x = net(), nd.array([[-2, 3]])
    layer.initialize()
    close(layer(x), [expected])
    layer.hybridize()
    close(layer(x), [expected])
    if isinstance(layer, nn.Dropout):
        with autograd.train_mode():
            y = layer(nd.ones(300)).asnumpy()
        assert set(y.tolist()) == ({0, 2} if layer.rate else {1})


IMAGE = np.arange(2 * 4 * 3 * 3, dtype="float32").reshape(2, 4, 3, 3) ** 1.5


def normalized(x, *axes):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: nn.LayerNorm(), normalized(IMAGE, 3)),
        (lambda: nn.LayerNorm(1), normalized(IMAGE, 1)),
        (lambda: nn.InstanceNorm(), normalized(IMAGE, 2, 3)),
        (lambda: nn.InstanceNorm(axis=2), normalized(IMAGE, 1, 3)),
        (lambda: nn.GroupNorm(2), normalized(IMAGE.reshape(2, 2, -1), 2).reshape(IMAGE.shape)),
        (lambda: nn.BatchNorm(), IMAGE / np.sqrt(1 + 1e-5)),
        (lambda: nn.BatchNorm(3, epsilon=3), IMAGE / 2),
        (lambda: nn.BatchNormReLU(scale=False), IMAGE / np.sqrt(1 + 1e-5)),
        (lambda: nn.MaxPool2D(2, 1), IMAGE[:, :, 1:, 1:]),
        (lambda: nn.MaxPool2D(), IMAGE[:, :, 1:2, 1:2]),
        (lambda: nn.MaxPool2D(ceil_mode=True), IMAGE[:, :, 1:, 1:]),
        (lambda: nn.AvgPool2D(3), IMAGE.mean((2, 3), keepdims=True)),
        (lambda: nn.AvgPool2D(1, 2), IMAGE[:, :, ::2, ::2]),
        (lambda: nn.GlobalAvgPool2D(), IMAGE.mean((2, 3), keepdims=True)),
        (lambda: nn.GlobalMaxPool2D(), IMAGE[:, :, 2:, 2:]),
        (lambda: nn.ReflectionPad2D(1), np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")),
        (lambda: nn.Flatten(), IMAGE.reshape(2, -1)),
    ],
)  # fmt: skip
def test_layers_of_images(build, expected):
    for x in (nd.array(IMAGE), nd.array(IMAGE)[:1]):
        net = build()
        net.initialize()
        np.testing.assert_allclose(net(x).asnumpy(), expected[: len(x)], rtol=1e-3, atol=1e-4)


def test_weights_of_convolutions():
    x = nd.ones((1, 4, 9, 9))
    for build, weight, out in [
        (lambda: nn.Conv2D(6, (3, 2), 2, 1, groups=2), (6, 2, 3, 2), (1, 6, 5, 5)),
        (lambda: nn.Conv2D(6, 5, dilation=2), (6, 4, 5, 5), (1, 6, 1, 1)),  # just fits
        (lambda: nn.Conv2DTranspose(6, 3, 2, 1, 1, groups=2), (4, 3, 3, 3), (1, 6, 18, 18)),
    ]:
        net = build()
        net.initialize()
        assert net(x).shape == out and net.weight.shape == weight and net.bias.shape == (6,)
    for build, says in [
        (lambda: nn.Conv2D(6, 5, dilation=3), "Conv|kernel|window"),
        (lambda: nn.Conv2D(6, 3, groups=3), "channels"),
        (lambda: nn.Conv1D(6, 3), "a kernel of 1 axes"),
    ]:
        net = build()
        net.initialize()
        with pytest.raises((MXNetError, ValueError), match=says):
            net(x)


# -- graphs as Blocks ------------------------------------------------------------------------------


def test_symbol_blocks():
    x, y = sym.var("x"), sym.var("y")
    w = sym.var("net_w")
    net = SymbolBlock([x * 2, sym.FullyConnected(x + y, w, no_bias=True, num_hidden=1)], [x, y])
    assert list(net.collect_params()) == ["net_w"] and net.prefix == ""
    net.initialize("ones")
    assert tell(*net(nd.ones((1, 2)), nd.array([[3, 4]]))) == [[[2, 2]], [[9]]]
    assert [part.name for part in net(sym.var("a"), sym.var("b"))] == [p.name for p in net._graph]
    with pytest.raises(ValueError, match="1 values for 2 inputs: x, y"):
        SymbolBlock(x + y, [x, y])(nd.ones(2))
    with pytest.raises(AssertionError, match=r"an input must be a variable, .* is computed"):
        SymbolBlock(x * 2, x * 2)
    assert repr(net).startswith("SymbolBlock(\n") and repr(net).endswith(" : 2 -> 2\n)")
    norm = SymbolBlock(sym.BatchNorm(x, name="bn"), x)
    assert [p.grad_req for p in norm.collect_params().values()] == ["write"] * 2 + ["null"] * 2


# -- data ------------------------------------------------------------------------------------------

IMAGES = np.arange(4 * 6 * 3, dtype="uint8").reshape(4, 6, 3)


def test_transforms_by_hand():
    x = nd.array(IMAGES, dtype="uint8")
    close(T.ToTensor()(x), IMAGES.transpose(2, 0, 1) / 255)
    tensor = nd.array(IMAGES.transpose(2, 0, 1))
    mean, std = (1.0, 2.0, 3.0), (2.0, 4.0, 8.0)
    by = np.reshape(std, (3, 1, 1))
    close(T.Normalize(mean, std)(tensor), (tensor.asnumpy() - np.reshape(mean, (3, 1, 1))) / by)
    tensor.attach_grad()
    with autograd.record():
        y = T.Normalize(mean, std)(tensor)
    y.backward()
    close(tensor.grad, np.ones((3, 4, 6)) / by)
    assert tell(T.CenterCrop((2, 4))(x)) == [IMAGES[:, 2:4].tolist()]
    assert tell(T.CenterCrop((4, 2))(x)) == [IMAGES[1:3, 1:5].tolist()]
    assert T.CenterCrop((2, 8))(x).shape == (8, 2, 3)
    assert tell(T.CenterCrop((2, 8))(x)[::2]) != tell(x) and T.Resize((6, 4))(x) is not x
    assert tell(T.Resize((6, 4))(x)) == tell(x)
    doubled = T.Resize((3, 2))(x.astype("float32"))
    close(doubled, IMAGES.reshape(2, 2, 3, 2, 3).astype("float32").mean((1, 3)))
    for shape, size, keep, expected in [
        ((4, 6, 3), 2, True, (2, 3, 3)), ((6, 4, 3), 2, True, (3, 2, 3)),
        ((4, 4, 3), 2, True, (2, 2, 3)), ((4, 6, 3), 2, False, (2, 2, 3)),
        ((4, 6, 3), (2, 5), True, (5, 2, 3)), ((3, 6, 4, 1), 2, True, (3, 3, 2, 1)),
    ]:  # fmt: skip
        assert T.Resize(size, keep)(nd.zeros(shape)).shape == expected
    for size in (0, -1, 1.5, (1, 2, 3), (1, 0), "a"):
        with pytest.raises(ValueError, match="size: expected an int or"):
            T.Resize(size)


def test_transforms_that_draw():
    random.seed(3)
    x = nd.array(IMAGES, dtype="uint8")
    for transform, other in (
        (T.RandomFlipLeftRight(), IMAGES[:, ::-1]), (T.RandomFlipTopBottom(), IMAGES[::-1]),
    ):  # fmt: skip
        seen = [tell(transform(x))[0] for _ in range(40)]
        assert {str(s) for s in seen} == {str(IMAGES.tolist()), str(other.tolist())}
        assert 10 < seen.count(IMAGES.tolist()) < 30
    whole = T.RandomResizedCrop((6, 4), scale=1, ratio=(1.5, 1.5))
    assert tell(whole(x)) == tell(x) and whole.scale == (1, 1.0)
    tall = T.RandomResizedCrop((2, 4), scale=(1, 1), ratio=(0.5, 0.5))  # never fits: the centre
    assert tell(tall(x)) == [IMAGES[:, 2:4].tolist()]
    ramp = nd.array(np.arange(40.0).reshape(1, 40, 1) + np.zeros((40, 1, 1)))
    small = T.RandomResizedCrop((10, 10), scale=(1 / 16, 1 / 16), ratio=(1, 1))
    starts = {float(small(ramp)[0, 0, 0].asscalar()) for _ in range(60)}
    assert starts <= set(range(31)) and min(starts) < 8 and max(starts) > 22
    for how in ({"scale": (0, 1)}, {"ratio": (1, 2, 3)}, {"ratio": 2}):
        with pytest.raises(ValueError, match=r"expected \(low, high\) above 0"):
            T.RandomResizedCrop(3, **how)


def test_what_makes_a_batch():
    batch = gdata.dataset.default_batchify_fn
    assert tell(batch([nd.ones(2), nd.zeros(2)])) == [[[1, 1], [0, 0]]]
    pair = batch([(1, np.float32(2)), (3, np.float32(4))])
    assert type(pair) is list and tell(*pair) == [[1, 3], [2, 4]] and pair[0].dtype == np.int64
    for elements, says in [
        ([nd.ones(2), np.ones(2)], "a batch of NDArray and ndarray cannot be joined"),
        ([np.ones(2), np.ones(3)], "elements of a batch have different shapes"),
        (["a", "b"], "a batch of str becomes a NumPy array of <U1, which is"),
    ]:
        with pytest.raises(TypeError, match=says):
            batch(elements)
    gather = gdata.dataset.gather
    for data in (np.array(["a", "b"]), np.array(3.0), nd.arange(3), object()):
        assert gather(data, [0]) is None
    rows = nd.array([[1, 2], [3, 4]])
    assert tell(gather(rows, [1, 0]), gather(np.arange(3), [2, 0])) == [[[3, 4], [1, 2]], [2, 0]]
    for places in ([], [2], [-1]):
        assert gather(rows, places) is None
    lazy, calls = gdata.SimpleDataset([(1, 2), (3, 4)]), []
    added = lazy.transform(lambda a, b: calls.append(a) or a + b)
    assert calls == [] and [added[i] for i in range(len(added))] == [3, 7] and calls == [1, 3]
    assert list(lazy.transform_first(lambda a: -a, lazy=False)._data) == [(-1, 2), (-3, 4)]
    with pytest.raises(NotImplementedError, match="Dataset must define __len__"):
        len(gdata.Dataset())


def test_batches_of_indices():
    for n, size, last, expected in [
        (5, 2, "keep", [[0, 1], [2, 3], [4]]), (4, 2, "keep", [[0, 1], [2, 3]]),
        (5, 2, "discard", [[0, 1], [2, 3]]), (5, 2, "rollover", [[0, 1], [2, 3]]),
        (1, 2, "keep", [[0]]), (0, 2, "keep", []), (2, 2, "discard", [[0, 1]]),
        (1, 2, "discard", []),
    ]:  # fmt: skip
        batches = gdata.BatchSampler(gdata.SequentialSampler(n), size, last)
        assert len(batches) == len(expected) and list(batches) == expected
        if last == "rollover":
            assert batches.state_dict() == {"rest": [4], "sampler": {}} and len(batches) == 3
            assert list(batches) == [[4, 0], [1, 2], [3, 4]] and len(batches) == 2
            for rest in ([1, 2], ["a"]):
                with pytest.raises(ValueError, match="no rest of batches of 2"):
                    batches.load_state_dict({"rest": rest, "sampler": {}})
            batches.load_state_dict({"rest": [9], "sampler": {}})
            assert next(iter(batches)) == [9, 0]
    for length, parts, part in ((-1, 1, 0), (1, 1, 1), (1, 2, -1), (1, 0, 0)):
        with pytest.raises(ValueError, match="expected length >= 0 and 0 <= part_index"):
            gdata.SplitSampler(length, parts, part)
    one = gdata.SplitSampler(50, seed=1)
    first, second, again = list(one), list(one), gdata.SplitSampler(50, seed=1)
    assert sorted(first) == list(range(50)) and first != second and one.state_dict() == {"epoch": 2}
    again.load_state_dict({"epoch": 1})
    assert list(again) == second and list(gdata.SplitSampler(50, seed=2)) != first


# -- a store over several processes ----------------------------------------------------------------


class Spanning(kvstore.KVStore):
    """What a Trainer asks of a store whose sums cover two processes with the same gradients."""

    spans_processes, batches, rank, num_workers = True, 2, 0, 2

    def __init__(self, kind="local"):
        super().__init__(kind)
        self.calls = []

    def pushpull(self, key, value, out=None, priority=0, in_turns=None):
        self.calls.append((tuple(key), self.divisor, priority, in_turns))
        for grads in value:
            grads[0] *= 2

    def parts(self, keys):
        self.calls.append(tuple(keys))
        return [keys[:1], keys[1:]]


def test_a_trainer_over_several_processes(monkeypatch):
    store = Spanning()
    params = {name: gluon.Parameter(name, shape=(1,), init="ones") for name in ("b", "a", "c")}
    for p in params.values():
        p.initialize()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 1.0}, store, None, False)
    for name in "ab":
        with autograd.record():
            y = params[name].data() * 6
        y.backward()
    params["c"].grad()[:] = 5  # not of this step: adds nothing
    trainer.step(3, ignore_stale_grad=True)
    assert [tell(params[name].data()) for name in "abc"] == [[[-1]], [[-1]], [[1]]]
    assert store.names == {0: "a", 1: "b", 2: "c"}
    assert store.calls == [((1, 0, 2), 3, 3, True), (0, 1, 2)]
    assert tell(params["c"].grad()) == [[0]]
    for p in params.values():
        with autograd.record():
            y = p.data() * 2
        y.backward()
    trainer.allreduce_grads()
    assert store.calls[2:] == [((1, 0, 2), None, 3, False)]
    monkeypatch.setattr(addons, "find", lambda name: lambda kind: (name, kind))
    assert kvstore.create("Dist_Sync") == ("kvstore.dist", "dist_sync")


def test_weights_that_are_set_reach_a_store_that_was_given():
    p = gluon.Parameter("p", shape=(1,), init="ones")
    p.initialize(ctx=[cpu(0), cpu(1)])
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 1.0}, kvstore.create(), None, True)
    for start in (1, 5):
        p.set_data(nd.array([start]))
        with autograd.record():
            losses = [x * 2 for x in p.list_data()]
        autograd.backward(losses)
        trainer.step(4)
        assert tell(*p.list_data()) == [[start - 1]] * 2
