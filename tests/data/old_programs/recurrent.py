"""Character models from scratch: a plain recurrence, GRU and LSTM, with random and with consecutive
batches. Consecutive batches go on with the state of the batch before."""

# ruff: noqa: UP031  (as people wrote then)
import math
import random

import numpy as np
from mxnet import autograd, nd
from mxnet.gluon import loss as gloss

text = "a small boat goes out to sea and a small boat comes home to me " * 5
chars = sorted(set(text))
char_to_idx = dict([(ch, i) for i, ch in enumerate(chars)])
corpus = [char_to_idx[ch] for ch in text]
vocab_size, num_hiddens = len(chars), 16
num_steps, batch_size, lr, theta = 8, 4, 2.0, 0.5
rng = random.Random(3)


def batches_random():
    starts = [i * num_steps for i in range((len(corpus) - 1) // num_steps)]
    rng.shuffle(starts)
    for i in range(0, len(starts) - batch_size + 1, batch_size):
        picked = starts[i : i + batch_size]
        X = [corpus[j : j + num_steps] for j in picked]
        Y = [corpus[j + 1 : j + 1 + num_steps] for j in picked]
        yield nd.array(X), nd.array(Y)


def batches_consecutive():
    indices = nd.array(corpus)
    length = len(corpus) // batch_size
    indices = indices[0 : batch_size * length].reshape((batch_size, length))
    for i in range(0, length - num_steps, num_steps):
        yield indices[:, i : i + num_steps], indices[:, i + 1 : i + num_steps + 1]


def to_onehot(X):
    return [nd.one_hot(x, vocab_size) for x in X.T]


def normal(draws, *shape):
    return nd.array(draws.normal(scale=0.1, size=shape))


def get_params(gates):
    draws = np.random.RandomState(gates)
    params = []
    for _ in range(gates):
        params += [
            normal(draws, vocab_size, num_hiddens),
            normal(draws, num_hiddens, num_hiddens),
            nd.zeros(num_hiddens),
        ]
    params += [normal(draws, num_hiddens, vocab_size), nd.zeros(vocab_size)]
    for param in params:
        param.attach_grad()
    return params


def rnn(inputs, state, params):
    W_xh, W_hh, b_h, W_hq, b_q = params
    (H,) = state
    outputs = []
    for X in inputs:
        H = nd.tanh(nd.dot(X, W_xh) + nd.dot(H, W_hh) + b_h)
        outputs.append(nd.dot(H, W_hq) + b_q)
    return outputs, (H,)


def gru(inputs, state, params):
    W_xz, W_hz, b_z, W_xr, W_hr, b_r, W_xh, W_hh, b_h, W_hq, b_q = params
    (H,) = state
    outputs = []
    for X in inputs:
        Z = nd.sigmoid(nd.dot(X, W_xz) + nd.dot(H, W_hz) + b_z)
        R = nd.sigmoid(nd.dot(X, W_xr) + nd.dot(H, W_hr) + b_r)
        candidate = nd.tanh(nd.dot(X, W_xh) + nd.dot(R * H, W_hh) + b_h)
        H = Z * H + (1 - Z) * candidate
        outputs.append(nd.dot(H, W_hq) + b_q)
    return outputs, (H,)


def lstm(inputs, state, params):
    W_xi, W_hi, b_i, W_xf, W_hf, b_f, W_xo, W_ho, b_o, W_xc, W_hc, b_c, W_hq, b_q = params
    H, C = state
    outputs = []
    for X in inputs:
        I = nd.sigmoid(nd.dot(X, W_xi) + nd.dot(H, W_hi) + b_i)
        F = nd.sigmoid(nd.dot(X, W_xf) + nd.dot(H, W_hf) + b_f)
        O = nd.sigmoid(nd.dot(X, W_xo) + nd.dot(H, W_ho) + b_o)
        C = F * C + I * nd.tanh(nd.dot(X, W_xc) + nd.dot(H, W_hc) + b_c)
        H = O * C.tanh()
        outputs.append(nd.dot(H, W_hq) + b_q)
    return outputs, (H, C)


def grad_clipping(params):
    norm = nd.array([0])
    for param in params:
        norm += (param.grad**2).sum()
    norm = norm.sqrt().asscalar()
    if norm > theta:
        for param in params:
            param.grad[:] *= theta / norm
    return norm


def sgd(params):
    for param in params:
        param[:] = param - lr * param.grad


def predict(model, params, num_states, prefix, num_chars):
    state = tuple(nd.zeros((1, num_hiddens)) for _ in range(num_states))
    output = [char_to_idx[prefix[0]]]
    for t in range(num_chars + len(prefix) - 1):
        X = to_onehot(nd.array([output[-1]]).reshape((1, 1)))
        Y, state = model(X, state, params)
        if t < len(prefix) - 1:
            output.append(char_to_idx[prefix[t + 1]])
        else:
            output.append(int(Y[0].argmax(axis=1).asscalar()))
    return "".join([chars[i] for i in output])


def train(name, model, gates, num_states, is_random, num_epochs=3):
    params = get_params(gates)
    loss = gloss.SoftmaxCrossEntropyLoss()
    step = 0
    for epoch in range(num_epochs):
        if not is_random:
            state = tuple(nd.zeros((batch_size, num_hiddens)) for _ in range(num_states))
        l_sum, n = 0.0, 0
        for X, Y in (batches_random if is_random else batches_consecutive)():
            if is_random:
                state = tuple(nd.zeros((batch_size, num_hiddens)) for _ in range(num_states))
            else:
                for s in state:
                    s.detach()
            with autograd.record():
                outputs, state = model(to_onehot(X), state, params)
                outputs = nd.concat(*outputs, dim=0)
                y = Y.T.reshape((-1,))
                l = loss(outputs, y).mean()
            l.backward()
            norm = grad_clipping(params)
            sgd(params)
            step += 1
            print("%s step %d, loss %.6f, norm %.4f" % (name, step, l.asnumpy(), norm))
            l_sum += l.asscalar() * y.size
            n += y.size
        print("epoch %d, perplexity %f" % (epoch + 1, math.exp(l_sum / n)))
    print(" -", predict(model, params, num_states, "a small", 4))


for is_random in (True, False):
    train("rnn", rnn, 1, 1, is_random)
    train("gru", gru, 3, 1, is_random)
    train("lstm", lstm, 4, 2, is_random)
