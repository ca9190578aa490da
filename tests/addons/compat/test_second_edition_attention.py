"""`d2l.mxnet`: attention, encoders and decoders; and the signatures of the book."""

from __future__ import annotations

import inspect
import math

import numpy
import pytest
import second_edition

import d2lmini
from d2lmini import np, npx
from d2lmini.d2l import mxnet as d2l


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- attention.py ----------------------------------------------------------------------------------


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_attention_is_the_formula_s():
    rng = numpy.random.default_rng(0)
    Q, K, V = (
        rng.normal(size=shape).astype("float32") for shape in [(2, 3, 4), (2, 5, 4), (2, 5, 6)]
    )
    lens = numpy.array([[1, 2, 5], [3, 3, 4]])
    scores = Q @ K.transpose(0, 2, 1) / 2
    scores[numpy.arange(5) >= lens[:, :, None]] = -numpy.inf
    attention = d2l.DotProductAttention(dropout=0)
    y = attention(*map(np.array, (Q, K, V, lens)))
    numpy.testing.assert_allclose(y.asnumpy(), softmax(scores) @ V, rtol=1e-4, atol=1e-6)
    numpy.testing.assert_allclose(
        attention.attention_weights.asnumpy(), softmax(scores), rtol=1e-4, atol=1e-6
    )


def test_padding_does_not_change_what_attention_sees():
    rng = numpy.random.default_rng(0)
    for net in (d2l.MultiHeadAttention(6, 3, 0), d2l.AdditiveAttention(6, 0)):
        net.initialize()
        X = np.array(rng.normal(size=(2, 4, 6)).astype("float32"))
        changed = X.copy()
        changed[:, 2:] = 9
        lens = np.array([2, 2])
        a, b = net(X, X, X, lens), net(X, changed, changed, lens)
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-6)
        assert a.shape == (2, 4, 6)
    net = d2l.MultiHeadAttention(6, 3, 0)
    X = np.arange(48).reshape(2, 4, 6)
    assert net.transpose_qkv(X).shape == (6, 4, 2)
    assert (net.transpose_output(net.transpose_qkv(X)) == X).asnumpy().all()
    with pytest.raises(ValueError, match="num_hiddens=6 is no multiple of num_heads=4"):
        d2l.MultiHeadAttention(6, 4, 0)
    net.initialize()
    whole = np.array([4, 4])  # no length: all count
    a, b = net(X, X, X, None), net(X, X, X, whole)
    numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5)


def test_steps_of_padding_count_only_where_each_has_its_loss():
    model = d2l.Seq2Seq(d2l.Encoder(), d2l.Decoder(), tgt_pad=0, lr=0.1)
    scores, Y = np.zeros((1, 3, 5)), np.array([[2, 4, 0]])
    assert float(model.loss(scores, Y)) == pytest.approx(numpy.log(5), rel=1e-5)
    each = model.loss(scores, Y, averaged=False)
    assert each.tolist() == pytest.approx([numpy.log(5)] * 3, rel=1e-5)


def test_positions():
    P = d2l.PositionalEncoding(5, 0, max_len=9).P.asnumpy()[0]
    for place in (0, 3, 8):
        for j in range(5):
            f = math.cos if j % 2 else math.sin
            assert P[place, j] == pytest.approx(f(place / 10000 ** (j // 2 * 2 / 5)), abs=1e-5)


def test_parts_of_a_transformer():
    norm, ffn = d2l.AddNorm(0.5), d2l.PositionWiseFFN(4, 8)
    norm.initialize()
    ffn.initialize()
    X = np.arange(12).reshape(2, 2, 3)
    y = norm(X, X)
    assert float(np.abs(y.mean(axis=-1)).max()) < 1e-5 and ffn(X).shape == (2, 2, 8)
    block = d2l.TransformerEncoderBlock(24, 48, 8, 0.5)
    block.initialize()
    assert block(np.ones((2, 7, 24)), np.array([3, 2])).shape == (2, 7, 24)


def test_halves_say_what_they_lack():
    for call, name in [
        (lambda: d2l.Encoder()(1), "Encoder defines no forward"),
        (lambda: d2l.Decoder().init_state(1), "Decoder defines no init_state"),
        (lambda: d2l.Decoder()(1, 2), "Decoder defines no forward"),
        (lambda: d2l.AttentionDecoder().attention_weights, "defines no attention_weights"),
    ]:
        with pytest.raises(NotImplementedError, match=name):
            call()


def test_translation_learns():
    before, board, outputs, count, outs, state = second_edition.sequence_to_sequence(d2lmini)
    losses = [loss for _, loss in board["train_loss"]]
    assert losses[0] == pytest.approx(before, rel=1e-4) and losses == sorted(losses, reverse=True)
    assert outputs.shape == (3, 4) and count == 4 and outs.shape == (4, 3, 5) and state == (2, 3, 5)


# -- signatures ------------------------------------------------------------------------------------

SIGNATURES = {
    "Vocab": "tokens min_freq reserved_tokens",
    "TimeMachine": "batch_size num_steps num_train num_val",
    "MTFraEng": "batch_size num_steps num_train num_val",
    "AdditiveAttention": "num_hiddens dropout kwargs",
    "MultiHeadAttention": "num_hiddens num_heads dropout use_bias kwargs",
    "PositionalEncoding": "num_hiddens dropout max_len",
    "PositionWiseFFN": "ffn_num_hiddens ffn_num_outputs",
    "TransformerEncoderBlock": "num_hiddens ffn_num_hiddens num_heads dropout use_bias",
    "Seq2SeqEncoder": "vocab_size embed_size num_hiddens num_layers dropout",
    "Seq2Seq": "encoder decoder tgt_pad lr",
    "EncoderDecoder": "encoder decoder",
    "Trainer": "max_epochs num_gpus gradient_clip_val",
    "DataModule": "root num_workers",
    "Module": "plot_train_per_epoch plot_valid_per_epoch kwargs",
    "FashionMNIST": "batch_size resize",
    "SyntheticRegressionData": "w b noise num_train num_val batch_size",
    "ResNeXtBlock": "num_channels groups bot_mul use_1x1conv strides kwargs",
    "GRU": "num_hiddens num_layers dropout",
    "RNNLMScratch": "rnn vocab_size lr",
    "train_ch6": "net train_iter test_iter num_epochs lr device",
    "train_ch13": "net train_iter test_iter loss trainer num_epochs devices split_f",
    "plot": "X Y xlabel ylabel legend xlim ylim xscale yscale fmts figsize axes",
    "show_heatmaps": "matrices xlabel ylabel titles figsize cmap",
    "download": "url folder sha1_hash",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_the_book_s(name):
    assert " ".join(inspect.signature(getattr(d2l, name)).parameters) == SIGNATURES[name]
