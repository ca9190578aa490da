"""The book's helpers do what its programs expect of them: names, arguments, what they print."""

from __future__ import annotations

import gzip
import re
import struct
import threading
import zipfile

import numpy as np
import pytest

from d2lmini import MXNetError, cpu, d2l, engine, gluon, init, nd, random
from d2lmini.compat.books.shared import train_batch

NAMES = """
    load_data_fashion_mnist try_gpu set_figsize train_ch5 show_trace_2d train_ch7 train_2d Benchmark
    train_ch3 get_data_ch7 train_gluon_ch7 sgd semilogy load_data_jay_lyrics evaluate_accuracy
    get_fashion_mnist_labels linreg squared_loss data_iter_consecutive train_and_predict_rnn
    RNNModel train_and_predict_rnn_gluon Residual use_svg_display show_fashion_mnist corr2d
    data_iter_random grad_clipping resnet18 bbox_to_rect show_bboxes try_all_gpus predict_rnn
    predict_rnn_gluon to_onehot data_iter show_images train load_data_digits plt""".split()


@pytest.fixture
def plt():
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")
    pyplot.rcdefaults()


def blobs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) of two classes, far apart, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (rng.normal(size=(n, 2)) + 6 * y[:, None] - 3).astype("float32"), y


def batches(n: int, size: int, seed: int = 0) -> list:
    X, y = blobs(n, seed)
    return [
        (nd.array(X[i : i + size]), nd.array(y[i : i + size], dtype="int32"))
        for i in range(0, n, size)
    ]


EPOCH = r"epoch (\d+), loss (\d+\.\d{4}), train acc (\d\.\d{3}), test acc (\d\.\d{3})"


def epochs(text: str, pattern: str = EPOCH) -> list[tuple[str, ...]]:
    """The figures of each line, all of which must match."""
    return [re.fullmatch(pattern, line).groups() for line in text.splitlines()]


# --- the package ---


@pytest.mark.parametrize("name", NAMES)
def test_the_book_s_names(name):
    assert getattr(d2l, name) is not None
    assert name in dir(d2l) and name in d2l.__all__


def test_names_of_other_chapters_say_that_they_are_left_out():
    with pytest.raises(AttributeError, match=r"d2l has no 'read_voc_images', .* are left out; it"):
        d2l.read_voc_images


# --- data ---


def test_data_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("D2L_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"airfoil_self_noise.dat is not here.*NASA") as e:
        d2l.get_data_ch7()
    assert str(tmp_path / "data") in str(e.value)
    with pytest.raises(FileNotFoundError, match=r"jaychou_lyrics.txt.zip is not here"):
        d2l.load_data_jay_lyrics()


def test_airfoil_data(tmp_path, monkeypatch):
    table = np.random.default_rng(0).normal(5, 3, size=(1503, 6))
    np.savetxt(tmp_path / "airfoil_self_noise.dat", table, delimiter="\t")
    monkeypatch.setenv("D2L_DATA", str(tmp_path))
    features, labels = d2l.get_data_ch7()
    assert features.shape == (1500, 5) and labels.shape == (1500,)
    assert abs(features.mean().asscalar()) < 0.01 and abs(labels.asnumpy().std() - 1) < 0.01
    for text, words in (("1\t2\n", "expected rows of numbers"), ("1\tx\n", "convert string")):
        (tmp_path / "airfoil_self_noise.dat").write_text(text)
        with pytest.raises(MXNetError, match=words):
            d2l.get_data_ch7()


def test_lyrics(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(tmp_path / "data" / "jaychou_lyrics.txt.zip", "w") as archive:
        archive.writestr("jaychou_lyrics.txt", "想要有\r\n直升机\n" * 2000)
    monkeypatch.chdir(tmp_path)
    indices, char_to_idx, idx_to_char, size = d2l.load_data_jay_lyrics()
    assert size == 7 == len(idx_to_char) and len(indices) == 10000
    assert "".join(idx_to_char[i] for i in indices[:10]) == "想要有  直升机 想"
    assert all(idx_to_char[i] == char for char, i in char_to_idx.items())


def write_idx(path, array):
    """One of the four files: its magic number says bytes and how many axes."""
    head = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def test_fashion_mnist_from_files_that_are_here(tmp_path):
    rng = np.random.default_rng(0)
    counts = {"train": 20, "t10k": 10}
    for part, n in counts.items():
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 28, 28)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(n) % 10)
    with pytest.warns(UserWarning, match="ubyte"):  # these are not the published files
        train_iter, test_iter = d2l.load_data_fashion_mnist(8, root=str(tmp_path))
    shapes = [(X.shape, y.shape) for X, y in train_iter]
    assert shapes == [((8, 1, 28, 28), (8,)), ((8, 1, 28, 28), (8,)), ((4, 1, 28, 28), (4,))]
    X, y = next(iter(test_iter))
    assert y.asnumpy().tolist() == list(range(8)) and X.dtype == np.float32
    assert 0 <= X.min().asscalar() < 0.05 and 0.95 < X.max().asscalar() <= 1
    with pytest.warns(UserWarning, match="ubyte"):
        train_iter, _ = d2l.load_data_fashion_mnist(20, resize=40, root=str(tmp_path))
    assert next(iter(train_iter))[0].shape == (20, 1, 40, 40)


# --- models ---


@pytest.mark.parametrize(("theta", "factor"), [(2.5, 0.5), (5.0, 1), (100, 1)])
def test_clipping_keeps_the_direction(theta, factor):
    params = [nd.zeros(1), nd.zeros((1, 1))]
    for p, g in zip(params, (3.0, 4.0)):
        p.attach_grad()
        p.grad[:] = g
    d2l.grad_clipping(params, theta, cpu())
    assert [p.grad.asscalar() for p in params] == pytest.approx([3 * factor, 4 * factor])


# --- training ---


def softmax_net(units: int = 2) -> gluon.nn.Sequential:
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(units))
    net.initialize()
    return net


def test_train_ch3_by_hand_and_by_trainer(capsys):
    random.seed(0)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    W, b = nd.random.normal(scale=0.01, shape=(2, 2)), nd.zeros(2)
    for param in (W, b):
        param.attach_grad()
    train_iter, test_iter = batches(200, 20), batches(100, 50, seed=1)
    d2l.train_ch3(lambda X: nd.dot(X, W) + b, train_iter, test_iter, loss, 2, 20, [W, b], 0.1)
    net = softmax_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    d2l.train_ch3(net, train_iter, test_iter, loss, 2, 20, None, None, trainer)
    lines = epochs(capsys.readouterr().out)
    assert [line[0] for line in lines] == ["1", "2", "1", "2"]
    for _, l, train_acc, test_acc in lines[1::2]:
        assert float(l) < 0.1 and float(train_acc) > 0.98 and float(test_acc) > 0.98


@pytest.mark.parametrize("several", [False, True])
def test_train_on_one_context_and_on_several(capsys, several):
    random.seed(0)
    ctx = [cpu(0), cpu(1)] if several else cpu()
    net = softmax_net()
    net.collect_params().reset_ctx(ctx)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    d2l.train(batches(200, 20), batches(100, 50, seed=1), net, loss, trainer, ctx, 2)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"training on {ctx}"
    lines = epochs("\n".join(lines), EPOCH + r", time (\d+\.\d) sec")
    assert len(lines) == 2 and float(lines[1][1]) < 0.1 and lines[1][3] == "1.000"


def test_train_2d_and_its_picture(capsys, plt):
    results = d2l.train_2d(lambda x1, x2, s1, s2: (x1 - 0.08 * x1, x2 - 1.6 * x2, s1, s2 + 1))
    assert len(results) == 21 and results[0] == (-5, -2)
    assert results[1] == pytest.approx((-4.6, 1.2))
    line = capsys.readouterr().out
    assert re.fullmatch(r"epoch 20, x1 -0\.943467, x2 -0\.000073\n", line)
    d2l.show_trace_2d(lambda x1, x2: 0.1 * x1**2 + 2 * x2**2, results)
    (axes,) = plt.gcf().axes
    assert axes.lines[0].get_xydata().shape == (21, 2)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x1", "x2")


def regression() -> tuple:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    return nd.array(X), nd.array(X @ [1, -2, 3, 0.5, 0] + 0.01 * rng.normal(size=300))


def test_train_ch7_and_train_gluon_ch7(capsys, plt):
    random.seed(0)
    features, labels = regression()

    def sgd(params, states, hyperparams):
        assert states == "mine"
        for p in params:
            p[:] -= hyperparams["lr"] * p.grad

    d2l.train_ch7(sgd, "mine", {"lr": 0.1}, features, labels, batch_size=10, num_epochs=2)
    d2l.train_gluon_ch7("sgd", {"learning_rate": 0.1}, features, labels, 10)
    lines = epochs(capsys.readouterr().out, r"loss: (\d+\.\d{6}), (\d+\.\d{6}) sec per epoch")
    assert len(lines) == 2 and all(float(l) < 0.001 for l, _ in lines)
    curves = plt.gcf().axes[0].lines
    assert len(curves) == 2
    for curve in curves:
        x, y = curve.get_data()
        assert len(x) == 7 and (x[0], x[-1]) == (0, 2) and y[0] > 5 > 0.01 > y[-1]


# --- recurrent nets ---

TEXT = "abcd" * 60
CHARS = sorted(set(TEXT))
TO_INDEX = {char: i for i, char in enumerate(CHARS)}
CORPUS = [TO_INDEX[char] for char in TEXT]


def rnn_by_hand(inputs, state, params):
    W_xh, W_hh, b_h, W_hq, b_q = params
    (H,) = state
    outputs = []
    for X in inputs:
        H = nd.tanh(nd.dot(X, W_xh) + nd.dot(H, W_hh) + b_h)
        outputs.append(nd.dot(H, W_hq) + b_q)
    return outputs, (H,)


def rnn_state(batch_size, num_hiddens, ctx):
    return (nd.zeros((batch_size, num_hiddens), ctx=ctx),)


def rnn_params():
    shapes = [(4, 16), (16, 16), (16,), (16, 4), (4,)]
    params = [nd.random.normal(scale=0.1, shape=shape) for shape in shapes]
    for p in params:
        p.attach_grad()
    return params


@pytest.mark.parametrize("is_random", [False, True])
def test_a_net_by_hand_learns_the_alphabet(capsys, is_random):
    random.seed(0)
    d2l.train_and_predict_rnn(
        rnn_by_hand, rnn_params, rnn_state, 16, 4, cpu(), CORPUS, CHARS, TO_INDEX, is_random,
        20, 6, 1.0, 1.0, 4, 10, 5, ["a", "bc"],
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    (first,), (last,) = (epochs(line, r"epoch \d+, perplexity ([\d.]+), time .* sec")
                         for line in lines[::3])  # fmt: skip
    assert 1 <= float(last[0]) < min(1.1, float(first[0]) + 1e-6)
    assert lines[4:] == [" - abcdab", " - bcdabcd"]


def test_a_gluon_net_learns_the_alphabet(capsys):
    random.seed(0)
    model = d2l.RNNModel(gluon.rnn.GRU(16), 4)
    d2l.train_and_predict_rnn_gluon(
        model, 16, 4, cpu(), CORPUS, CHARS, TO_INDEX, 60, 6, 3.0, 1.0, 4, 60, 5, ["a"]
    )
    line, written = capsys.readouterr().out.splitlines()
    assert line.startswith("epoch 60, perplexity 1.") and written == " - abcdab"
    assert d2l.predict_rnn_gluon("cd", 3, model, 4, cpu(), CHARS, TO_INDEX) == "cdabc"


# --- figures ---


def test_figsize_and_curves(plt):
    d2l.set_figsize((4, 3))
    assert plt.rcParams["figure.figsize"] == [4, 3]
    d2l.semilogy([1, 2, 3], [1e-1, 1e-2, 1e-3], "epochs", "loss", [1, 2], [1, 0.1], ["a", "b"])
    (axes,) = plt.gcf().axes
    assert axes.get_yscale() == "log" and axes.lines[1].get_linestyle() == ":"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["a", "b"]
    assert d2l.plt is plt


def test_boxes(plt):
    box = d2l.bbox_to_rect([1, 2, 5, 8], "blue")
    assert (box.get_xy(), box.get_width(), box.get_height()) == ((1, 2), 4, 6)
    assert not box.get_fill()
    _, axes = plt.subplots()
    d2l.show_bboxes(axes, nd.array([[0, 0, 1, 1], [1, 1, 2, 3]]), ["dog"], "w")
    assert len(axes.patches) == 2 and [t.get_text() for t in axes.texts] == ["dog"]


# --- several devices ---

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(90, 6)).astype("float32")
CLASSES = (POINTS[:, :3].argmax(1)).astype("float32")


def parts(size=20):
    """The last one has ten examples, which four devices cannot share evenly."""
    starts = range(0, 90, size)
    return [(nd.array(POINTS[i : i + size]), nd.array(CLASSES[i : i + size])) for i in starts]


def make(devices):
    random.seed(2)
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(16, "relu", in_units=6), gluon.nn.Dense(3, in_units=16))
    net.initialize(init.Xavier(), ctx=devices)
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})


def test_a_step_does_not_wait():
    devices = [cpu(0), cpu(1)]
    net, trainer = make(devices)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    (features, labels), *_ = parts()
    train_batch(net, features, labels, loss, trainer.step, devices)
    nd.waitall()
    with engine.use("threaded", inline_below=0):
        held = engine.new_var()
        release = _blocked_by(held, features)
        l, right = train_batch(net, features, labels, loss, trainer.step, devices)
        assert engine.stats().pending > 10
        release()
        assert np.isfinite(l.asscalar()) and 0 <= right.asscalar() <= 20


def _blocked_by(var, array):
    """Keep everything that reads `array` from beginning, until the function returned is called."""
    event = threading.Event()
    engine.push(lambda: event.wait(20), reads=[array], writes=[var, array])
    return event.set
