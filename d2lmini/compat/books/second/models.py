"""Models by the second edition's names.

>>> from d2lmini import np
>>> from d2lmini.compat.books.second.models import LinearRegressionScratch
>>> LinearRegressionScratch(num_inputs=2, lr=0.03)(np.ones((4, 2))).shape
(4, 1)
"""

from __future__ import annotations

from typing import Any

from d2lmini import gluon, init, np, npx
from d2lmini.compat.books.characters import write
from d2lmini.compat.books.models import linreg, squared_loss
from d2lmini.compat.books.second.oop import Classifier, Module
from d2lmini.gluon import nn, rnn


def check_len(a: Any, n: int) -> None:
    """AssertionError unless `a` has n elements."""
    assert len(a) == n, f"list's length {len(a)} != expected length {n}"


def check_shape(a: Any, shape: Any) -> None:
    """AssertionError unless `a` has this shape."""
    assert tuple(a.shape) == tuple(shape), (
        f"tensor's shape {tuple(a.shape)} != expected shape {tuple(shape)}"
    )


class LinearRegressionScratch(Module):
    """Linear regression on arrays."""

    def __init__(self, num_inputs: int, lr: float, sigma: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.w = np.random.normal(0, sigma, (num_inputs, 1))
        self.b = np.zeros(1)
        self.w.attach_grad()
        self.b.attach_grad()

    def forward(self, X: Any) -> Any:
        return linreg(X, self.w, self.b)

    def loss(self, y_hat: Any, y: Any) -> Any:
        return squared_loss(y_hat, y).mean()


class LinearRegression(Module):
    """Linear regression by Gluon's layer."""

    def __init__(self, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net: Any = nn.Dense(1)
        self.net.initialize(init.Normal(sigma=0.01))

    def loss(self, y_hat: Any, y: Any) -> Any:
        return gluon.loss.L2Loss()(y_hat, y).mean()

    def get_w_b(self) -> tuple[Any, Any]:
        """Weight and bias."""
        return self.net.weight.data(), self.net.bias.data()


class ResNeXtBlock(nn.Block):
    """A bottleneck of grouped convolutions, around which the input passes too."""

    def __init__(
        self, num_channels: int, groups: int, bot_mul: float, use_1x1conv: bool = False,
        strides: int = 1, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(**kwargs)
        inner = round(num_channels * bot_mul)
        self.conv1 = nn.Conv2D(inner, kernel_size=1)
        self.conv2 = nn.Conv2D(
            inner, kernel_size=3, strides=strides, padding=1, groups=inner // groups
        )
        self.conv3 = nn.Conv2D(num_channels, kernel_size=1)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm(), nn.BatchNorm(), nn.BatchNorm()
        self.conv4 = nn.Conv2D(num_channels, 1, strides=strides) if use_1x1conv else None
        self.bn4 = nn.BatchNorm() if use_1x1conv else None

    def forward(self, X: Any) -> Any:
        Y = npx.relu(self.bn1(self.conv1(X)))
        Y = npx.relu(self.bn2(self.conv2(Y)))
        Y = self.bn3(self.conv3(Y))
        if self.conv4 is not None and self.bn4 is not None:
            X = self.bn4(self.conv4(X))
        return npx.relu(Y + X)


class RNNScratch(Module):
    """A recurrent layer on arrays: (T, N, num_inputs) -> T outputs (N, num_hiddens) and a state."""

    def __init__(self, num_inputs: int, num_hiddens: int, sigma: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.W_xh = np.random.randn(num_inputs, num_hiddens) * sigma
        self.W_hh = np.random.randn(num_hiddens, num_hiddens) * sigma
        self.b_h = np.zeros(num_hiddens)

    def forward(self, inputs: Any, state: Any = None) -> tuple[list[Any], Any]:
        if state is None:
            size = (inputs.shape[1], self.num_hiddens)
            state = np.zeros(size, ctx=inputs.ctx)
        elif isinstance(state, (list, tuple)):
            (state,) = state
        outputs = []
        for X in inputs:
            state = np.tanh(np.dot(X, self.W_xh) + np.dot(state, self.W_hh) + self.b_h)
            outputs.append(state)
        return outputs, state


class RNN(Module):
    """Gluon's recurrent layer."""

    def __init__(self, num_hiddens: int):
        super().__init__()
        self.save_hyperparameters()
        self.rnn: Any = rnn.RNN(num_hiddens)

    def forward(self, inputs: Any, H: Any = None) -> tuple[Any, Any]:
        if H is None:
            H = self.rnn.begin_state(inputs.shape[1], ctx=inputs.ctx)
        outputs, (H,) = self.rnn(inputs, (H,) if not isinstance(H, (list, tuple)) else H)
        return outputs, H


class GRU(RNN):
    """Gluon's gated recurrent layers."""

    def __init__(self, num_hiddens: int, num_layers: int, dropout: float = 0):
        Module.__init__(self)
        self.save_hyperparameters()
        self.rnn = rnn.GRU(num_hiddens, num_layers, dropout=dropout)


class RNNLMScratch(Classifier):
    """A language model on characters: scores of the next character, (N, T, vocab_size)."""

    rnn: Any

    def __init__(self, rnn: Any, vocab_size: int, lr: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.init_params()

    def init_params(self) -> None:
        """Weights of the output layer."""
        hiddens, size = self.rnn.num_hiddens, self.vocab_size
        self.W_hq = np.random.randn(hiddens, size) * self.rnn.sigma
        self.b_q = np.zeros(size)
        for param in self.get_scratch_params():
            param.attach_grad()

    def _plot_loss(self, l: Any, train: bool) -> None:
        self.plot("ppl", np.exp(l), train)

    validation_step = Module.validation_step

    def one_hot(self, X: Any) -> Any:
        """(N, T) -> (T, N, vocab_size)"""
        return npx.one_hot(X.T, self.vocab_size)

    def output_layer(self, rnn_outputs: Any) -> Any:
        """Scores for the outputs of all steps."""
        outputs = [np.dot(H, self.W_hq) + self.b_q for H in rnn_outputs]
        return np.stack(outputs, 1)

    def forward(self, X: Any, state: Any = None) -> Any:
        outputs, _ = self.rnn(self.one_hot(X), state)
        return self.output_layer(outputs)

    def predict(self, prefix: str, num_preds: int, vocab: Any, device: Any = None) -> str:
        """`prefix` and the `num_preds` characters that the model expects after it."""

        def next_scores(last: int, state: Any) -> tuple[Any, Any]:
            outputs, state = self.rnn(self.one_hot(np.array([[last]], ctx=device)), state)
            return self.output_layer(outputs), state

        indices = write([vocab[char] for char in prefix], num_preds, next_scores, None)
        return "".join(vocab.idx_to_token[i] for i in indices)


class RNNLM(RNNLMScratch):
    """The same with Gluon's output layer."""

    def init_params(self) -> None:
        """The output layer."""
        self.linear = nn.Dense(self.vocab_size, flatten=False)
        self.initialize()

    def output_layer(self, rnn_outputs: Any) -> Any:
        """Scores for the outputs of all steps."""
        return self.linear(rnn_outputs).swapaxes(0, 1)
