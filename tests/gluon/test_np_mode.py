"""Gluon after `npx.set_np()`: each program gives the numbers that it gives with NDArrays, in arrays
of the class `np.ndarray`: training, optimizers, initializers, metrics, data, files."""

from __future__ import annotations

import pickle
import threading

import numpy as onp
import pytest
from gpu_kinds import some_gpus

import d2lmini as mx
from d2lmini import autograd, cpu, gluon, init, metric, nd, np, npx, util
from d2lmini.gluon import nn
from d2lmini.gluon.data import ArrayDataset, DataLoader, SimpleDataset
from d2lmini.gluon.data.vision import transforms
from d2lmini.ndarray import NDArray
from d2lmini.optimizer import Optimizer


@pytest.fixture
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


def both(program):
    """What `program(array)` keeps, with NDArrays and with `np.ndarray`s: the same bits."""
    expected = program(nd.array)
    npx.set_np()
    try:
        got = program(np.array)
    finally:
        npx.reset_np()
    assert len(got) == len(expected) > 0
    for a, b in zip(got, expected):
        assert (type(a), type(b)) == (np.ndarray, NDArray)
        assert a.asnumpy().tobytes() == b.asnumpy().tobytes()
    return got


# -- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", sorted(Optimizer.opt_registry))
def test_optimizers(name, dtype, tmp_path):
    def train(array):
        mx.random.seed(1)
        p = gluon.Parameter("w", shape=(3, 2), dtype=dtype)
        p.initialize(init="ones")
        options = {"learning_rate": 0.1, "multi_precision": dtype == "float16"}
        trainer = gluon.Trainer([p], name, options)
        slope = array(onp.arange(1, 7).reshape(3, 2), dtype=dtype)
        for step in range(4):
            with autograd.record():
                loss = (p.data() * p.data() * slope).sum()
            loss.backward()
            trainer.step(1)
            if step == 2:
                trainer.save_states(str(tmp_path / "states"))
                trainer.load_states(str(tmp_path / "states"))
        return p.data(), p.grad()

    both(train)


@pytest.mark.parametrize("hybridize", [False, True])
def test_training_on_several_devices(gpu_kind, hybridize):
    """A net with every usual layer, its gradients summed by the kvstore and scaled to a norm."""

    def train(array):
        mx.random.seed(2)
        net = nn.HybridSequential()
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Dropout(0.3))
        net.add(nn.Dense(8, activation="tanh"), nn.LayerNorm(), nn.Dense(3))
        net.initialize(init.Xavier(), ctx=gpus)
        if hybridize:
            net.hybridize()
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        draw = onp.random.default_rng(3)
        for _ in range(3):
            X = array(draw.normal(size=(8, 1, 8, 8)), dtype="float32")
            y = array(draw.integers(0, 3, 8), dtype="int32")
            with autograd.record():
                losses = [
                    loss(net(a), b)
                    for a, b in zip(*(gluon.utils.split_and_load(x, gpus) for x in (X, y)))
                ]
            autograd.backward(losses)
            grads = [p.grad(gpus[0]) for p in net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(grads, 1.0)
            trainer.step(8)
        return [*losses, *(x for p in net.collect_params().values() for x in p.list_data())]

    with some_gpus(gpu_kind, 2) as gpus:
        both(train)


def test_gradients_add_up_and_return_to_zero():
    def add(array):
        net = nn.Dense(2, weight_initializer="ones")
        net.initialize()
        net.collect_params().setattr("grad_req", "add")
        for _ in range(2):
            with autograd.record():
                y = net(array([[1, 2]])).sum()
            y.backward()
        kept = net.weight.grad().copy()
        net.collect_params().zero_grad()
        return kept, net.weight.grad(), net.bias.grad()

    assert both(add)[0].tolist() == [[2, 4], [2, 4]]


def test_gradients_of_gradients():
    def twice(array):
        x = array([1, 2, 3])
        x.attach_grad()
        with autograd.record():
            slope = autograd.grad((x**3).sum(), x, create_graph=True)[0]
            total = (slope**2).sum()
        total.backward()
        return slope, x.grad

    both(twice)


class Sigmoid(autograd.Function):
    """Forward and backward get arrays of the kind of the input."""

    def forward(self, x):
        self.space = np if type(x) is np.ndarray else nd
        y = 1 / (1 + self.space.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, g):
        (y,) = self.saved_tensors
        assert type(g) is type(y) is (np.ndarray if self.space is np else NDArray)
        return g * y * (1 - y)


def test_functions_and_marked_variables():
    def run(array):
        x, g = array([0, 1, -2]), array([9, 9, 9])
        autograd.mark_variables([x], [g])
        with autograd.record():
            y = Sigmoid()(x)
        y.backward()
        return y, g, x.grad

    both(run)


def test_function_of_one_number(np_mode):
    class Total(autograd.Function):
        def forward(self, x):
            return x.sum()

        def backward(self, g):
            assert g.shape == ()
            return g * np.ones(2)

    x = np.array([3, 4])
    x.attach_grad()
    with autograd.record():
        y = Total()(x)
    y.backward()
    assert y.shape == () and x.grad.tolist() == [1, 1]


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    "Zero One Constant(3) Uniform Normal Xavier MSRAPrelu Bilinear".split(),
)
def test_initializers(name):
    def draw(array):
        mx.random.seed(3)
        p = gluon.Parameter("w_weight", shape=(2, 2, 4, 4))
        how = eval(f"init.{name}")
        p.initialize(how() if isinstance(how, type) else how)
        return [p.data()]

    both(draw)


def test_own_initializer_sees_an_np_array(np_mode):
    class Large(init.Initializer):
        def _init_weight(self, name, data):
            data[:] = np.random.uniform(-10, 10, data.shape)
            data *= np.abs(data) >= 5

    net = nn.Dense(50)
    net.initialize(Large())
    net(np.ones((1, 20)))
    weight = abs(net.weight.data().asnumpy())
    assert ((weight >= 5) | (weight == 0)).all() and (weight >= 5).any()


def test_constants_and_unknown_sizes(np_mode):
    constant = gluon.Constant("c", [1, 2])
    constant.initialize()
    assert type(constant.value) is type(constant.data()) is np.ndarray
    assert repr(nn.Dense(3, prefix="d_").weight).startswith("Parameter d_weight (shape=(3, -1)")
    scalar = gluon.Parameter("s", shape=())
    scalar.initialize(init="ones")
    assert scalar.data().shape == () and float(scalar.data()) == 1


def test_files_and_pickles(np_mode, tmp_path):
    def make():
        net = nn.HybridSequential()
        net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dense(2))
        return net

    x = np.random.normal(size=(3, 5))
    net = make()
    net.initialize()
    expected = net(x).asnumpy()
    net.save_parameters(str(tmp_path / "p"))
    loaded = make()
    loaded.load_parameters(str(tmp_path / "p"))
    for other in (loaded, pickle.loads(pickle.dumps(net))):
        assert type(other[0].weight.data()) is np.ndarray
        assert (other(x).asnumpy() == expected).all()
    for saved in (np.ones(2), [np.ones(2), np.array(3)], {"a": np.ones((0, 2))}):
        npx.save(str(tmp_path / "a"), saved)
        found = npx.load(str(tmp_path / "a"))
        for a, b in zip(*(list(x.values()) if isinstance(x, dict) else list(x) for x in (
            found, saved if isinstance(saved, (list, dict)) else [saved]))):  # fmt: skip
            assert type(a) is np.ndarray and a.shape == b.shape and a.tolist() == b.tolist()


def test_use_np_decorates_a_block():
    """Its parameters are np arrays although `initialize` is called outside."""

    @util.use_np
    class Weigh(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.dense = nn.Dense(2)
                self.w = self.params.get("w", shape=(2,), init="ones")

        def hybrid_forward(self, F, x, w):
            assert npx.is_np_array()
            return F.np.dot(self.dense(x), w)

    net = Weigh()
    net.initialize()
    eager = net(np.ones((2, 3)))
    net.hybridize()
    compiled = net(np.ones((2, 3)))
    assert type(net.w.data()) is type(eager) is type(compiled) is np.ndarray
    onp.testing.assert_allclose(compiled.asnumpy(), eager.asnumpy(), rtol=1e-6)
    assert not npx.is_np_array() and type(nn.Dense(2).params) is gluon.ParameterDict


def test_scopes_are_of_one_thread_and_set_np_of_all():
    seen = []

    def look():
        thread = threading.Thread(
            target=lambda: seen.append((npx.is_np_array(), npx.is_np_shape()))
        )
        thread.start()
        thread.join()

    with util.np_array(), util.np_shape():
        look()
    npx.set_np()
    try:
        look()
    finally:
        npx.reset_np()
    look()
    assert seen == [(False, False), (True, True), (False, False)]


# -- data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}]
)
def test_batches(np_mode, options):
    whole = ArrayDataset(np.arange(30).reshape(10, 3), np.arange(10).astype("int32"))
    image, label = whole[2]
    assert type(image) is np.ndarray and type(label) is onp.int32
    X, y = next(iter(DataLoader(whole, 4, **options)))
    assert type(X) is type(y) is np.ndarray and (y.dtype, y.tolist()) == ("int32", [0, 1, 2, 3])
    assert X.tolist() == whole[:4][0].tolist()
    rows = SimpleDataset([(1, 2.0, [1, 2]), (3, 4.0, [3, 4])])
    batch = next(iter(DataLoader(rows, 2, **options)))
    assert [(type(x), str(x.dtype), x.shape) for x in batch] == [
        (np.ndarray, "int64", (2,)),
        (np.ndarray, "float64", (2,)),
        (np.ndarray, "int64", (2, 2)),
    ]


def test_transforms():
    def apply(array):
        mx.random.seed(4)
        image = array(onp.arange(28 * 28).reshape(28, 28, 1) % 255, dtype="uint8")
        to_tensor = transforms.ToTensor()
        return [
            to_tensor(image), transforms.Resize(14)(image), transforms.CenterCrop(10)(image),
            transforms.Compose([transforms.Resize((8, 8)), to_tensor])(image),
            transforms.Normalize(0.5, 0.5)(to_tensor(image)),
            transforms.RandomFlipLeftRight()(image),
        ]  # fmt: skip

    both(apply)


def test_split_and_load(np_mode):
    places = [cpu(0), cpu(1)]
    for data, dtype in (
        (np.ones((4, 2)), "float32"), (onp.ones((4, 2)), "float64"), ([[1, 2], [3, 4]], "float32"),
    ):  # fmt: skip
        for contexts in (places, places[:1]):
            parts = gluon.utils.split_and_load(data, contexts)
            assert [(type(x), x.ctx, x.dtype) for x in parts] == [
                (np.ndarray, ctx, dtype) for ctx in contexts
            ]


def test_nd_array_of_an_np_array():
    x = np.array([1, 2], dtype="int32")
    y = nd.array(x)
    y[:] = 5
    assert type(y) is NDArray and y.dtype == onp.int32 and x.tolist() == [1, 2]


@pytest.mark.parametrize("a, b", [(np.ones(2), nd.ones(2)), (nd.ones(2), np.ones(2))])
def test_both_kinds_in_one_operation(a, b):
    for operation in (lambda: a + b, lambda: a * b, lambda: a > b, lambda: np.dot(a, b)):
        with pytest.raises(
            TypeError, match=r"got NDArray; x.as_np_ndarray\(\) has the same memory"
        ):
            operation()


# -- metrics ---------------------------------------------------------------------------------------

CLASSES = [0, 1, 2, 1]
METRICS = {
    "Accuracy": CLASSES, "TopKAccuracy": CLASSES, "CrossEntropy": CLASSES,
    "NegativeLogLikelihood": CLASSES, "Perplexity": CLASSES, "F1": [0, 1, 0, 1],
    "MCC": [0, 1, 0, 1], "MAE": None, "MSE": None, "RMSE": None,
    "Loss": None,
}  # fmt: skip
OPTIONS = {"TopKAccuracy": {"top_k": 2}, "Perplexity": {"ignore_label": None}}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name, np_mode):
    draw = onp.random.default_rng(5)
    values = draw.random((4, 2 if name in ("F1", "MCC") else 3)).astype("float32")
    values /= values.sum(1, keepdims=True)
    labels = METRICS[name]
    labels = draw.random(values.shape).astype("float32") if labels is None else onp.array(labels)
    found = []
    for array in (nd.array, np.array):
        measure = getattr(metric, name)(**OPTIONS.get(name, {}))
        measure.update([array(labels, dtype=labels.dtype)], [array(values)])
        found.append(measure.get())
    assert found[0] == found[1]
    own = metric.np(lambda label, pred: float((label - pred).sum()))
    own.update([np.array([1, 2])], [np.array([0, 1])])
    assert own.get()[1] == 2
