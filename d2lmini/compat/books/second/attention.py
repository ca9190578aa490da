"""Attention, and nets of an encoder and a decoder, by the second edition's names.

>>> from d2lmini import np
>>> from d2lmini.compat.books.second.attention import DotProductAttention
>>> attention = DotProductAttention(dropout=0)
>>> keys = np.ones((1, 4, 2))                             # four keys, of which two count
>>> values = np.arange(4).reshape(1, 4, 1)
>>> attention(np.ones((1, 1, 2)), keys, values, np.array([2]))
array([[[0.5]]])
>>> attention.attention_weights
array([[[0.5, 0.5, 0. , 0. ]]])

Shapes: queries (N, Q, D), keys (N, K, D), values (N, K, V) -> (N, Q, V). `valid_lens`, (N,) or
(N, Q), says how many of the keys count.
"""

from __future__ import annotations

import math
from typing import Any

from d2lmini import gluon, init, np, npx
from d2lmini.compat.books.second.models import GRU
from d2lmini.compat.books.second.oop import Classifier, Module
from d2lmini.gluon import nn

# -- attention -------------------------------------------------------------------------------------


def masked_softmax(X: Any, valid_lens: Any) -> Any:
    """`softmax` over the last axis of X, (N, Q, K), where only the first `valid_lens` elements
    count: (N,), (N, Q) or None for all. The others become 0."""
    if valid_lens is None:
        return npx.softmax(X)
    shape = X.shape
    if valid_lens.ndim == 1:
        valid_lens = valid_lens.repeat(shape[1])
    rows = X.reshape((-1, shape[-1]))
    rows = npx.sequence_mask(rows, valid_lens.reshape(-1), True, value=-1e6, axis=1)
    return npx.softmax(rows).reshape(shape)


class DotProductAttention(nn.Block):
    """Means of the values, weighted by softmax(queries keys^T / sqrt(D)).

    After Vaswani et al., "Attention is all you need" (2017), section 3.2.1.
    """

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None) -> Any:
        scores = npx.batch_dot(queries, keys, transpose_b=True) / math.sqrt(queries.shape[-1])
        self.attention_weights = masked_softmax(scores, valid_lens)
        return npx.batch_dot(self.dropout(self.attention_weights), values)


class AdditiveAttention(nn.Block):
    """Means of the values, weighted by softmax(w_v tanh(W_q query + W_k key)); queries and keys may
    differ in size.

    After Bahdanau et al., "Neural machine translation by jointly learning to align and translate"
    (2015).
    """

    def __init__(self, num_hiddens: int, dropout: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.W_k = nn.Dense(num_hiddens, use_bias=False, flatten=False)
        self.W_q = nn.Dense(num_hiddens, use_bias=False, flatten=False)
        self.w_v = nn.Dense(1, use_bias=False, flatten=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any) -> Any:
        queries, keys = self.W_q(queries), self.W_k(keys)  # (N, Q, H), (N, K, H)
        features = np.tanh(np.expand_dims(queries, 2) + np.expand_dims(keys, 1))  # (N, Q, K, H)
        scores = self.w_v(features).squeeze(-1)  # (N, Q, K)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return npx.batch_dot(self.dropout(self.attention_weights), values)


class MultiHeadAttention(Module):
    """Dot-product attention in `num_heads` parts of `num_hiddens` features; -> (N, Q, num_hiddens).

    ValueError unless the heads divide the features.
    """

    def __init__(
        self, num_hiddens: int, num_heads: int, dropout: float, use_bias: bool = False,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(**kwargs)
        if num_hiddens % num_heads:
            raise ValueError(
                f"MultiHeadAttention: num_hiddens={num_hiddens} is no multiple of "
                f"num_heads={num_heads}"
            )
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.Dense(num_hiddens, use_bias=use_bias, flatten=False) for _ in range(4)
        )

    def forward(self, queries: Any, keys: Any, values: Any, valid_lens: Any) -> Any:  # type: ignore[override]
        queries = self.transpose_qkv(self.W_q(queries))  # (N * heads, Q, H / heads)
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        if valid_lens is not None:
            valid_lens = valid_lens.repeat(self.num_heads, axis=0)
        output = self.attention(queries, keys, values, valid_lens)
        return self.W_o(self.transpose_output(output))

    def transpose_qkv(self, X: Any) -> Any:
        """(N, Q, H) -> (N * num_heads, Q, H / num_heads): a head is a row of the batch."""
        N, Q, H = X.shape
        heads = X.reshape((N, Q, self.num_heads, H // self.num_heads)).transpose(0, 2, 1, 3)
        return heads.reshape((N * self.num_heads, Q, H // self.num_heads))

    def transpose_output(self, X: Any) -> Any:
        """The inverse of `transpose_qkv`."""
        rows, Q, size = X.shape
        N = rows // self.num_heads
        heads = X.reshape((N, self.num_heads, Q, size)).transpose(0, 2, 1, 3)
        return heads.reshape((N, Q, self.num_heads * size))


# -- parts of a Transformer ------------------------------------------------------------------------


class PositionalEncoding(nn.Block):
    """Adds sines and cosines of the position, then drops out; (N, T, num_hiddens), T <= max_len.

    `P`, (1, max_len, num_hiddens): P[0, i, 2j] = sin(i / 10000**(2j / num_hiddens)), and the cosine
    at 2j + 1. After Vaswani et al. (2017), section 3.5.
    """

    def __init__(self, num_hiddens: int, dropout: float, max_len: int = 1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.P = np.zeros((1, max_len, num_hiddens))
        places = np.arange(max_len).reshape((-1, 1))
        angles = places / np.power(10000, np.arange(0, num_hiddens, 2) / num_hiddens)
        self.P[:, :, 0::2] = np.sin(angles)
        self.P[:, :, 1::2] = np.cos(angles[:, : num_hiddens // 2])

    def forward(self, X: Any) -> Any:
        return self.dropout(X + self.P[:, : X.shape[1], :].as_in_ctx(X.ctx))


class PositionWiseFFN(nn.Block):
    """Two dense layers with relu between them, the same at every position."""

    def __init__(self, ffn_num_hiddens: int, ffn_num_outputs: int):
        super().__init__()
        self.dense1 = nn.Dense(ffn_num_hiddens, flatten=False, activation="relu")
        self.dense2 = nn.Dense(ffn_num_outputs, flatten=False)

    def forward(self, X: Any) -> Any:
        return self.dense2(self.dense1(X))


class AddNorm(nn.Block):
    """LayerNorm(X + dropout(Y))."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm()

    def forward(self, X: Any, Y: Any) -> Any:
        return self.ln(self.dropout(Y) + X)


class TransformerEncoderBlock(nn.Block):
    """Attention of a sequence to itself, then a dense net at each position, each in an `AddNorm`;
    (N, T, num_hiddens) keeps its shape."""

    def __init__(
        self, num_hiddens: int, ffn_num_hiddens: int, num_heads: int, dropout: float,
        use_bias: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.attention = MultiHeadAttention(num_hiddens, num_heads, dropout, use_bias)
        self.addnorm1 = AddNorm(dropout)
        self.ffn = PositionWiseFFN(ffn_num_hiddens, num_hiddens)
        self.addnorm2 = AddNorm(dropout)

    def forward(self, X: Any, valid_lens: Any) -> Any:
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
        return self.addnorm2(Y, self.ffn(Y))


# -- encoders and decoders -------------------------------------------------------------------------


class Encoder(nn.Block):
    """The half of a net that reads; a model defines `forward(X, ...)`."""

    def forward(self, X: Any, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward(X, *args)")


class Decoder(nn.Block):
    """The half of a net that writes; a model defines `init_state` and `forward(X, state)`."""

    def init_state(self, enc_all_outputs: Any, *args: Any) -> Any:
        """The state before the first step, from what the encoder returned."""
        raise NotImplementedError(f"{type(self).__name__} defines no init_state(enc_all_outputs)")

    def forward(self, X: Any, state: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward(X, state)")


class AttentionDecoder(Decoder):
    """A decoder that keeps its weights of attention; a model defines the property."""

    @property
    def attention_weights(self) -> Any:
        """The weights of the last call."""
        raise NotImplementedError(f"{type(self).__name__} defines no attention_weights")


class EncoderDecoder(Classifier):
    """Both halves: forward(enc_X, dec_X, ...) returns the scores of the decoder."""

    def __init__(self, encoder: Any, decoder: Any):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, enc_X: Any, dec_X: Any, *args: Any) -> Any:  # type: ignore[override]
        enc_all_outputs = self.encoder(enc_X, *args)
        return self.decoder(dec_X, self.decoder.init_state(enc_all_outputs, *args))[0]

    def predict_step(
        self, batch: Any, device: Any, num_steps: int, save_attention_weights: bool = False
    ) -> tuple[Any, list[Any]]:
        """The indices that the model writes for a batch of `MTFraEng`, (N, num_steps), each step
        from the one before; and the decoder's weights of attention of each step, if wanted."""
        src, tgt, src_valid_len, _ = (array.as_in_context(device) for array in batch)
        enc_all_outputs = self.encoder(src, src_valid_len)
        state = self.decoder.init_state(enc_all_outputs, src_valid_len)
        outputs, attention_weights = [np.expand_dims(tgt[:, 0], 1)], []
        for _ in range(num_steps):
            scores, state = self.decoder(outputs[-1], state)
            outputs.append(scores.argmax(2))
            if save_attention_weights:
                attention_weights.append(self.decoder.attention_weights)
        return np.concatenate(outputs[1:], 1), attention_weights


class Seq2SeqEncoder(Encoder):
    """Embedding and GRU: X (N, T) -> outputs (T, N, num_hiddens), state (num_layers, N,
    num_hiddens)."""

    def __init__(
        self, vocab_size: int, embed_size: int, num_hiddens: int, num_layers: int,
        dropout: float = 0,
    ):  # fmt: skip
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = GRU(num_hiddens, num_layers, dropout)
        self.initialize(init.Xavier())

    def forward(self, X: Any, *args: Any) -> Any:
        return self.rnn(self.embedding(X.T))


class Seq2Seq(EncoderDecoder):
    """An encoder and a decoder, trained by Adam; steps whose target is `tgt_pad` do not count."""

    def __init__(self, encoder: Any, decoder: Any, tgt_pad: int, lr: float):
        super().__init__(encoder, decoder)
        self.save_hyperparameters()

    validation_step = Module.validation_step

    def configure_optimizers(self) -> Any:
        """Adam."""
        return gluon.Trainer(self.parameters(), "adam", {"learning_rate": self.lr})

    def loss(self, Y_hat: Any, Y: Any, averaged: bool = True) -> Any:
        """The mean cross-entropy of the steps that count; of all steps, one value for each,
        unless `averaged`."""
        l = super().loss(Y_hat, Y, averaged=False)
        if not averaged:
            return l
        mask = (Y.reshape(-1) != self.tgt_pad).astype(np.float32)
        return (l * mask).sum() / mask.sum()
