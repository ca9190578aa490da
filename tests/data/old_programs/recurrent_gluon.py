"""Character models with Gluon's recurrent layers, with random and with consecutive batches, as they
are and hybridized. Between consecutive batches the state is detached, or was meant to be."""

# ruff: noqa: UP031  (as people wrote then)
import math

import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import loss as gloss
from mxnet.gluon import nn, rnn

text = "one day the north wind and the sun disputed which was the stronger " * 5
chars = sorted(set(text))
char_to_idx = dict([(ch, i) for i, ch in enumerate(chars)])
corpus = [char_to_idx[ch] for ch in text]
vocab_size, num_hiddens, num_steps, batch_size = len(chars), 16, 7, 5
order = np.random.RandomState(5)


class RNNModel(nn.Block):
    def __init__(self, rnn_layer, vocab_size, **kwargs):
        super().__init__(**kwargs)
        self.rnn = rnn_layer
        self.vocab_size = vocab_size
        self.dense = nn.Dense(vocab_size)

    def forward(self, inputs, state):
        X = nd.one_hot(inputs.T, self.vocab_size)
        Y, state = self.rnn(X, state)
        output = self.dense(Y.reshape((-1, Y.shape[-1])))
        return output, state

    def begin_state(self, *args, **kwargs):
        return self.rnn.begin_state(*args, **kwargs)


class CellModel(RNNModel):
    def forward(self, inputs, state):
        X = nd.one_hot(inputs, self.vocab_size)
        Y, state = self.rnn.unroll(
            inputs.shape[1], X, begin_state=state, layout="NTC", merge_outputs=True
        )
        Y = nd.swapaxes(Y, 0, 1)
        return self.dense(Y.reshape((-1, Y.shape[-1]))), state


def batches_random():
    starts = order.permutation((len(corpus) - 1) // num_steps) * num_steps
    for i in range(len(starts) // batch_size):
        picked = starts[i * batch_size : (i + 1) * batch_size]
        X = nd.array([corpus[j : j + num_steps] for j in picked])
        Y = nd.array([corpus[j + 1 : j + num_steps + 1] for j in picked])
        yield X, Y


def batches_consecutive():
    indices = nd.array(corpus)
    length = len(indices) // batch_size
    indices = indices[: batch_size * length].reshape((batch_size, length))
    for i in range((length - 1) // num_steps):
        i = i * num_steps
        yield indices[:, i : i + num_steps], indices[:, i + 1 : i + num_steps + 1]


def set_weights(model, seed):
    draws = np.random.RandomState(seed)
    model.initialize()
    model(nd.zeros((batch_size, num_steps)), model.begin_state(batch_size=batch_size))
    for name in sorted(model.collect_params().keys()):
        param = model.collect_params()[name]
        param.set_data(nd.array(draws.uniform(-0.3, 0.3, size=param.shape)))


def grad_clipping(params, theta):
    norm = nd.array([0])
    for param in params:
        norm += (param.grad**2).sum()
    norm = norm.sqrt().asscalar()
    if norm > theta:
        for param in params:
            param.grad[:] *= theta / norm


def train(name, model, optimizer, options, is_random, detached):
    set_weights(model, 11)
    loss = gloss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(model.collect_params(), optimizer, options)
    params = [p.data() for p in model.collect_params().values()]
    step = 0
    for epoch in range(3):
        l_sum, n = 0.0, 0
        state = model.begin_state(batch_size=batch_size)
        for X, Y in (batches_random if is_random else batches_consecutive)():
            if is_random:
                state = model.begin_state(batch_size=batch_size)
            elif detached:
                state = [s.detach() for s in state]
            else:
                for s in state:
                    s.detach()
            with autograd.record():
                (output, state) = model(X, state)
                y = Y.T.reshape((-1,))
                l = loss(output, y).mean()
            l.backward()
            grad_clipping(params, 0.8)
            trainer.step(1)
            step += 1
            print("%s step %d, loss %f" % (name, step, l.asnumpy()))
            l_sum += float(l.asnumpy()) * y.size
            n += y.size
        print("epoch %d, perplexity %f" % (epoch + 1, math.exp(l_sum / n)))


layers = {
    "rnn": lambda: RNNModel(rnn.RNN(num_hiddens), vocab_size),
    "gru": lambda: RNNModel(rnn.GRU(num_hiddens), vocab_size),
    "lstm": lambda: RNNModel(rnn.LSTM(num_hiddens, num_layers=2), vocab_size),
    "gru cell": lambda: CellModel(rnn.GRUCell(num_hiddens), vocab_size),
}
sgd, adam = (
    ("sgd", {"learning_rate": 2.0, "momentum": 0, "wd": 0}),
    ("adam", {"learning_rate": 0.02}),
)
for layer in sorted(layers):
    for hybrid in (False, True):
        for is_random, detached in ((True, False), (False, False), (False, True)):
            model = layers[layer]()
            if hybrid:
                model.hybridize()
            optimizer, options = adam if layer == "lstm" else sgd
            print(layer, hybrid, is_random, detached)
            train(layer, model, optimizer, options, is_random, detached)
