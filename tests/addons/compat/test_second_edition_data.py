"""`d2l.mxnet`: its names, functions on arrays, text, files and data."""

from __future__ import annotations

import hashlib
import io
import tarfile
import warnings
import zipfile
from collections import Counter
from itertools import pairwise

import numpy
import pytest

from d2lmini import gluon, np, npx
from d2lmini.d2l import mxnet as d2l

# The names that programs of the second edition use, most frequent first within a line.
USED = """
    tensor zeros reshape matmul arange randn concat numpy astype stack reduce_sum normal ones exp
    int32 argmax cos float32 size reduce_mean tanh meshgrid sigmoid sin log to transpose abs rand
    swapaxes cosh expand_dims linspace nn_Module eye int64 sinh
    Trainer Module Classifier Timer Accumulator Animator Vocab Benchmark FashionMNIST DataModule
    HyperParameters TimeMachine MultiHeadAttention RNN RNNLMScratch Encoder Residual Decoder
    EncoderDecoder GRU LinearRegression MTFraEng PositionalEncoding RNNLM RNNScratch
    DotProductAttention ProgressBoard ResNeXtBlock SGD Seq2Seq Seq2SeqEncoder
    SyntheticRegressionData TransformerEncoderBlock AdditiveAttention AttentionDecoder
    LinearRegressionScratch
    add_to_class plot set_figsize try_gpu download_extract check_shape get_dataloader_workers
    try_all_gpus tokenize load_array show_trace_2d train_2d use_svg_display truncate_pad accuracy
    download show_heatmaps get_data_ch11 train_ch11 show_images split_batch train_ch13
    train_concise_ch11 evaluate_loss load_data_fashion_mnist bbox_to_rect bleu corr2d
    evaluate_accuracy_gpu extract gpu grad_clipping linreg num_gpus set_axes squared_loss
    evaluate_accuracy_gpus sgd show_list_len_pair_hist plt DATA_HUB DATA_URL""".split()
# Those of chapters on images with boxes, recommenders and texts to download.
REFUSED = """
    CTRDataset TokenEmbedding BPRLoss BERTModel box_corner_to_center load_data_ml100k
    get_tokens_and_segments read_data_ml100k split_data_ml100k box_center_to_corner load_data_imdb
    predict_sentiment load_data_ptb load_data_snli load_data_wiki multibox_detection multibox_prior
    show_bboxes split_and_load_ml100k train_recsys_rating""".split()


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", USED)
def test_a_name_that_programs_use(name):
    assert getattr(d2l, name) is not None
    assert name in dir(d2l)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_left_out_says_why(name):
    with pytest.raises(AttributeError, match=rf"d2l\.{name} is left out.*detection, recommenders"):
        getattr(d2l, name)


def test_the_lists_are_whole():
    assert len({*USED, *REFUSED}) == 135
    with pytest.raises(AttributeError, match=r"d2l\.mxnet has no 'nothing'; it has Accumulator, "):
        d2l.nothing


@pytest.mark.parametrize("name", d2l.__all__)
def test_every_name_leads_somewhere(name):
    assert getattr(d2l, name) is not None


# -- arrays.py -------------------------------------------------------------------------------------

X = numpy.arange(6, dtype="float32").reshape(2, 3) / 6


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("numpy", (), X),
        ("size", (), 6),
        ("reshape", ((3, 2),), X.reshape(3, 2)),
        ("to", (npx.cpu(1),), X),
        ("reduce_sum", (1,), X.sum(1)),
        ("reduce_mean", (0,), X.mean(0)),
        ("argmax", (1,), X.argmax(1)),
        ("astype", ("int32",), X.astype("int32")),
        ("transpose", (), X.T),
        ("expand_dims", (1,), X[:, None]),
        ("swapaxes", (0, 1), X.T),
        ("repeat", (2, 0), X.repeat(2, 0)),
        ("abs", (), X),
        ("sin", (), numpy.sin(X)),
        ("cosh", (), numpy.cosh(X)),
        ("sigmoid", (), 1 / (1 + numpy.exp(-X))),
        ("zeros_like", (), 0 * X),
        ("ones_like", (), 0 * X + 1),
        ("tensor", (), X),
    ],
)
def test_a_function_on_an_array(name, arguments, expected):
    result = getattr(d2l, name)(np.array(X), *arguments)
    numpy.testing.assert_allclose(getattr(result, "asnumpy", lambda: result)(), expected, rtol=1e-5)


def test_functions_that_make_and_join_arrays():
    a = d2l.arange(4).reshape(2, 2)
    assert d2l.concat([a, a], axis=1).shape == (2, 4) and d2l.stack([a, a]).shape == (2, 2, 2)
    assert d2l.matmul(a, d2l.eye(2)).asnumpy().tolist() == a.asnumpy().tolist()
    assert d2l.batch_matmul(d2l.ones((2, 1, 3)), d2l.ones((2, 3, 1))).asnumpy().ravel()[0] == 3
    assert d2l.to(a, npx.cpu(1)).ctx == npx.cpu(1)
    assert d2l.randn(2, 3).shape == d2l.rand(2, 3).shape == d2l.normal(0, 1, (2, 3)).shape
    assert d2l.linspace(0, 1, 5)[1] == 0.25 and d2l.tensor([1], dtype=d2l.int64).dtype == "int64"
    assert [grid.shape for grid in d2l.meshgrid(d2l.arange(2), d2l.arange(3))] == [(3, 2)] * 2
    assert d2l.nn_Module is gluon.nn.Block


# -- text.py ---------------------------------------------------------------------------------------


def test_tokens():
    assert d2l.tokenize(["a bc", ""]) == [["a", "bc"], []]
    assert d2l.tokenize(["a b"], "char") == [["a", " ", "b"]]
    with pytest.raises(ValueError, match="expected token 'word' or 'char', got 'line'"):
        d2l.tokenize(["a"], "line")


def test_a_vocabulary():
    vocab = d2l.Vocab([["b", "a", "b"], ["c", "b", "a"]], min_freq=2, reserved_tokens=["<pad>"])
    assert vocab.token_freqs == [("b", 3), ("a", 2), ("c", 1)]
    assert vocab.idx_to_token == ["<pad>", "<unk>", "a", "b"] and len(vocab) == 4
    assert vocab.token_to_idx == {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3} and vocab.unk == 1
    assert vocab["b"] == 3 and vocab["c"] == 1
    assert vocab[["a", ("b", "x")]] == [2, [3, 1]]
    assert vocab.to_tokens(2) == "a" and vocab.to_tokens([2]) == "a"
    assert vocab.to_tokens([2, 0]) == vocab.to_tokens(np.array([2, 0])) == ["a", "<pad>"]
    assert vocab.to_tokens(np.array(3)) == "b"


def test_vocabularies_of_little():
    assert d2l.Vocab().idx_to_token == ["<unk>"]
    assert d2l.Vocab(["x", "y", "x"]).idx_to_token == ["<unk>", "x", "y"]
    assert d2l.Vocab(["x"])["<unk>"] == 0


def test_truncate_pad():
    assert d2l.truncate_pad([1, 2, 3], 2, 0) == [1, 2]
    assert d2l.truncate_pad([1, 2, 3], 5, 0) == [1, 2, 3, 0, 0]


@pytest.mark.parametrize(
    ("pred", "label", "k", "expected"),
    [
        ("a b c", "a b c", 2, 1),
        ("x y", "a b", 2, 0),
        ("", "a", 2, 0),
        # 4 of 5 words, 3 of 4 pairs.
        ("a b b c d", "a b c d e f", 2, numpy.exp(1 - 6 / 5) * (4 / 5) ** 0.5 * (3 / 4) ** 0.25),
        # A word counts as often as the label has it.
        ("a a a", "a", 1, (1 / 3) ** 0.5),
        ("a", "a", 4, 1),
    ],
)
def test_bleu(pred, label, k, expected):
    assert d2l.bleu(pred, label, k) == pytest.approx(expected)


TEXT = "The Time Machine, by H. G. Wells [1898]\n" * 30


@pytest.fixture
def time_machine(tmp_path, monkeypatch):
    """A short text under the name of the long one."""
    (tmp_path / "timemachine.txt").write_text(TEXT)
    monkeypatch.setenv("D2L_DATA", str(tmp_path))
    address = d2l.DATA_URL + "timemachine.txt"
    monkeypatch.setattr(
        "d2lmini.compat.books.second.text._TIME_MACHINE",
        (address, hashlib.sha1(TEXT.encode()).hexdigest()),
    )


def test_time_machine(time_machine):
    data = d2l.TimeMachine(batch_size=8, num_steps=5, num_train=100, num_val=20)
    assert len(data.vocab) == len({*"the time machine by h g wells"}) + 1
    text = "the time machine by h g wells " * 30
    assert "".join(data.vocab.to_tokens(data.X[3])) == text[3:8]
    assert data.X.shape == data.Y.shape == (len(text) - 5, 5)
    for loader, count in [(data.train_dataloader(), 100), (data.val_dataloader(), 20)]:
        batches = list(loader)
        assert sum(len(X) for X, _ in batches) == count
        for X, Y in batches:
            assert isinstance(X, np.ndarray) and X.shape == Y.shape
            assert (X[:, 1:] == Y[:, :-1]).asnumpy().all()
    X, _ = next(iter(data.val_dataloader()))
    assert (X[0] == data.X[100]).asnumpy().all()
    corpus, vocab = data.build("Wells!", data.vocab)
    assert "".join(vocab.to_tokens(corpus)) == "wells " and vocab is data.vocab


def test_a_short_text(time_machine):
    with pytest.raises(ValueError, match=r"has 900 characters, expected more than num_steps=1000"):
        d2l.TimeMachine(2, 1000)


def test_load_data_time_machine(time_machine):
    batches, vocab = d2l.load_data_time_machine(2, 5, max_tokens=120)
    ends = []
    for X, Y in batches:
        assert isinstance(X, np.ndarray) and X.shape == Y.shape == (2, 5)
        ends.append((X[:, 0].tolist(), Y[:, -1].tolist()))
    assert len(ends) == len(list(batches)) == 11  # (120 / 2 - 1) // 5: a second pass begins anew
    assert all(last == first for (_, last), (first, _) in pairwise(ends))
    chosen = [tuple(X[0].tolist()) for X, _ in d2l.load_data_time_machine(1, 5, True, 31)[0]]
    in_order = [tuple(X[0].tolist()) for X, _ in d2l.load_data_time_machine(1, 5, False, 31)[0]]
    assert Counter(chosen) == Counter(in_order)
    assert len(vocab.to_tokens(range(4))) == 4


def test_a_text_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("D2L_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"timemachine.txt is not here.*Fetch http://d2l"):
        d2l.TimeMachine(2, 5)
    with pytest.raises(FileNotFoundError, match=r"Fetch http.*fra-eng.zip"):
        d2l.MTFraEng(2)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "timemachine.txt").write_text("another text")
    with pytest.raises(ValueError, match="has another SHA-1 than 090b5e7e"):
        d2l.TimeMachine(2, 5)


class Sentences(d2l.MTFraEng):
    def _download(self):
        return "Go!\tVa !\nI go, I go.\tJe vais, je vais.\nno tab\nI won!\tJ\u2019ai gagné\u202f!\n"


def test_translations():
    data = Sentences(batch_size=2, num_steps=4, num_train=2, num_val=2)
    src, tgt_in, valid_len, tgt_out = data.arrays
    assert data.src_vocab.idx_to_token == ["!", "<eos>", "<pad>", "<unk>", "go", "i"]
    assert src.shape == tgt_in.shape == tgt_out.shape == (3, 4)
    assert data.src_vocab.to_tokens(src[0]) == ["go", "!", "<eos>", "<pad>"]
    assert data.src_vocab.to_tokens(src[1]) == ["i", "go", "<unk>", "i"]  # cut; "," is rare
    assert valid_len.asnumpy().tolist() == [3, 4, 4] and valid_len.dtype == "int32"
    assert data.tgt_vocab.to_tokens(tgt_in[0])[0] == "<bos>"
    assert (tgt_in[:, 1:] == tgt_out[:, :-1]).asnumpy().all()
    assert [len(batch) for batch in data.train_dataloader()] == [4]
    assert [len(batch[0]) for batch in data.val_dataloader()] == [1]
    again = data.build(["Go !", "i go!"], ["va", "je"])
    assert (again[0][0] == src[0]).asnumpy().all() and again[2].tolist() == [3, 4]


def test_marks_and_spaces_of_sentences():
    data = Sentences(batch_size=2)
    assert data._preprocess("Go. Now\u202f!\tÇa va?") == "go . now !\tça va ?"
    assert data._tokenize("a .\tb\n\nc\td", max_examples=1) == (
        [["a", ".", "<eos>"]],
        [["b", "<eos>"]],
    )


def test_translations_are_read_from_the_archive(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "fra-eng.zip", "w") as archive:
        archive.writestr("fra-eng/fra.txt", "Go.\tVa !\nGo.\tVa !\n")
    monkeypatch.setenv("D2L_DATA", str(tmp_path))
    address = d2l.DATA_URL + "fra-eng.zip"
    monkeypatch.setattr("d2lmini.compat.books.second.text._FRA_ENG", (address, None))
    data = d2l.MTFraEng(batch_size=2)
    assert data.tgt_vocab.idx_to_token == ["!", "<bos>", "<eos>", "<pad>", "<unk>", "va"]


# -- files.py --------------------------------------------------------------------------------------


def test_files_by_name_and_archives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile("data/pack.zip", "w") as archive:
        archive.writestr("pack/a.txt", "a")
    monkeypatch.setitem(d2l.DATA_HUB, "pack", (d2l.DATA_URL + "pack.zip", None))
    assert d2l.download("pack") == "data/pack.zip"
    assert d2l.download_extract("pack") == "data/pack"
    assert (tmp_path / "data" / "pack" / "a.txt").read_text() == "a"
    assert d2l.download_extract("pack", "other") == "data/other"
    d2l.download_all()
    with tarfile.open("b.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("b.txt")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"b"))
    d2l.extract("b.tar.gz", "out")
    assert (tmp_path / "out" / "b.txt").read_text() == "b"
    with pytest.raises(ValueError, match=r"neither .zip nor .tar.gz"):
        d2l.extract("data/pack/a.txt")
    with pytest.raises(ValueError, match="'nothing' is no address and no name in DATA_HUB"):
        d2l.download("nothing")


# -- data.py ---------------------------------------------------------------------------------------


def test_synthetic_regression_data():
    np.random.seed(0)
    w, b = np.array([2, -3.4]), 4.2
    data = d2l.SyntheticRegressionData(w, b, noise=0, num_train=10, num_val=6, batch_size=4)
    numpy.testing.assert_allclose(
        data.y.asnumpy(), data.X.asnumpy() @ [[2], [-3.4]] + 4.2, rtol=1e-4
    )
    assert [len(X) for X, _ in data.train_dataloader()] == [4, 4, 2]
    X, y = next(iter(data.val_dataloader()))
    assert (data.X[10:14] == X).asnumpy().all() and y.shape == (4, 1)
    X, y = d2l.synthetic_data(w, b, 50)
    assert X.shape == (50, 2) and y.shape == (50, 1)
    assert float(np.abs(d2l.linreg(X, w.reshape(-1, 1), b) - y).max()) < 0.1


def test_load_array():
    X, y = np.arange(10).reshape(5, 2), np.arange(5)
    assert [a.tolist() for _, a in d2l.load_array((X, y), 2, is_train=False)] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    assert sorted(v for _, a in d2l.load_array((X, y), 2) for v in a.tolist()) == [0, 1, 2, 3, 4]
    assert d2l.get_dataloader_workers() == 0


def test_airfoil_data(tmp_path, monkeypatch):
    table = numpy.random.default_rng(0).normal(5, 3, size=(1503, 6))
    numpy.savetxt(tmp_path / "airfoil_self_noise.dat", table, delimiter="\t")
    monkeypatch.setenv("D2L_DATA", str(tmp_path))
    data_iter, feature_dim = d2l.get_data_ch11(batch_size=100)
    batches = list(data_iter)
    assert feature_dim == 5 and len(batches) == 15
    assert all(isinstance(X, np.ndarray) and X.shape == (100, 5) for X, _ in batches)


@pytest.fixture
def no_network(monkeypatch):
    """Fashion-MNIST can't be had."""

    def unreachable(**options):
        raise ConnectionError("no network")

    monkeypatch.setattr(gluon.data.vision, "FashionMNIST", unreachable)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Fashion-MNIST is replaced")
        yield


def test_digits_stand_in_for_fashion(no_network):
    pytest.importorskip("sklearn")
    data = d2l.FashionMNIST(batch_size=16, resize=(8, 8))
    X, y = next(iter(data.train_dataloader()))
    assert isinstance(X, np.ndarray) and X.shape == (16, 1, 8, 8) and y.dtype == "int32"
    assert float(X.min()) >= 0 and 0.5 < float(X.max()) <= 1
    assert data.text_labels([0, 9]) == d2l.get_fashion_mnist_labels([0, 9])
    assert data.text_labels([0]) == ["t-shirt"]
    train_iter, test_iter = d2l.load_data_fashion_mnist(32, resize=8)
    assert next(iter(test_iter))[0].shape == (32, 1, 8, 8) and len(train_iter) > len(test_iter)


def test_the_stand_in_is_told(no_network):
    pytest.importorskip("sklearn")
    with pytest.warns(UserWarning, match="replaced by scikit-learn's handwritten digits. no net"):
        d2l.load_data_fashion_mnist(32)


def test_fashion_by_its_files(monkeypatch):
    images = np.array(numpy.arange(32, dtype="uint8").reshape(2, 4, 4, 1))
    files = gluon.data.ArrayDataset(images, numpy.array([1, 2], "int32"))
    monkeypatch.setattr(gluon.data.vision, "FashionMNIST", lambda train: files)
    data = d2l.FashionMNIST(batch_size=2, resize=(2, 2))
    X, y = next(iter(data.val_dataloader()))
    assert X.shape == (2, 1, 2, 2) and y.tolist() == [1, 2]
    assert float(X.max()) < 32 / 255
    with pytest.raises(NotImplementedError, match="defines no get_dataloader"):
        d2l.DataModule().train_dataloader()
