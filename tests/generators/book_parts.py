"""The parts of programs in the style of old books: models, losses, updates and habits, of which
`book` draws some. Words in braces are the program's numbers."""

from __future__ import annotations

#: Every program begins so. Weights are drawn by NumPy, whose draws are the same everywhere.
BEGIN = """
draws = np.random.RandomState({seed})

def normal(*shape):
    return nd.array(draws.normal(scale=0.4, size=shape))

def say(words, *values):
    print(words % values)

X = nd.array(draws.uniform(-1, 1, size=({n}, {inputs})))
Y = nd.array(draws.randint(0, {outputs}, size={n}))
T = nd.array(draws.uniform(-1, 1, size=({n}, {outputs})))
batch_size, num_epochs, lr = {batch}, {epochs}, {lr}
"""

SCRATCH = {
    "linear": """
        w, b = normal({inputs}, {outputs}), nd.zeros({outputs})
        params = [w, b]
        def net(x):
            return nd.dot(x, w) + b
        """,
    "mlp": """
        w1, b1 = normal({inputs}, {hidden}), nd.zeros({hidden})
        w2, b2 = normal({hidden}, {outputs}), nd.zeros({outputs})
        params = [w1, b1, w2, b2]
        def net(x):
            h = nd.{act}(nd.dot(x.reshape((-1, {inputs})), w1) + b1)
            return nd.dot(h, w2) + b2
        """,
    "control flow": """
        w1, w2 = normal({inputs}, {hidden}), normal({hidden}, {outputs})
        params = [w1, w2]
        def net(x):
            h = nd.dot(x, w1)
            turns = 0
            while h.norm().asscalar() < 3 and turns < 4:
                h = h * 1.7
                turns += 1
            if h.sum().asscalar() > 0.05:
                h = nd.maximum(h, 0.1 * h)
            else:
                h = h.tanh()
            return nd.dot(h, w2)
        """,
    "columns": """
        w1, w2, s = normal({hidden}, {inputs}), normal({outputs}, {hidden}), nd.ones((1,))
        params = [w1, w2, s]
        def net(x):
            h = nd.dot(x, w1.T)
            h = nd.concat(h[:, 0:1] * s, h[:, 1:].sigmoid(), dim=1)
            out = nd.dot(h, w2, transpose_b=True) * w2[0, 0]
            return out + nd.stack(*[h[:, 0]] * {outputs}, axis=1)
        """,
    "function": """
        class Gate(autograd.Function):
            def forward(self, x, y):
                s = x.sigmoid()
                self.save_for_backward(s, y)
                return s * y
            def backward(self, dy):
                s, y = self.saved_tensors
                return dy * y * s * (1 - s), dy * s
        w1, w2 = normal({inputs}, {hidden}), normal({inputs}, {hidden})
        w3 = normal({hidden}, {outputs})
        params = [w1, w2, w3]
        def net(x):
            return nd.dot(Gate()(nd.dot(x, w1), nd.dot(x, w2)), w3)
        """,
}  # fmt: skip

#: Layers of Gluon, from {hidden} to {hidden}.
LAYERS = [
    "nn.Dense({hidden}, activation='{act}')",
    "nn.Dense({hidden}, use_bias=False, in_units={hidden})",
    "nn.LayerNorm()",
    "nn.Dropout(0)",
    "nn.Activation('{act}')",
    "nn.LeakyReLU(0.1)",
    "nn.HybridLambda('{act}')",
    "nn.BatchNorm()",
]

GLUON = {
    "sequential": """
        nn = gluon.nn
        net = nn.{kind}()
        with net.name_scope():
            net.add(nn.Dense({hidden}, activation='{act}'), {layers}, nn.Dense({outputs}))
        """,
    "block": """
        nn = gluon.nn
        class Net(nn.{block}):
            def __init__(self, **kwargs):
                super(Net, self).__init__(**kwargs)
                with self.name_scope():
                    self.first = nn.Dense({hidden}, activation='{act}')
                    self.body = nn.HybridSequential()
                    self.body.add({layers})
                    self.again = nn.Dense({hidden}, in_units={hidden}, flatten=False)
                    self.tied = nn.Dense({hidden}, in_units={hidden}, params=self.again.params)
                    self.last = nn.Dense({outputs})
            def {forward}x):
                h = self.first(x)
                return self.last(self.tied({F}.relu(self.again(self.body(h)) + h)))
        net = Net()
        """,
}

#: Whole programs that are built otherwise: their lists of parameters are `blocks`' too.
OTHERS = {
    "two players": """
        nn = gluon.nn
        G, D = nn.Sequential(), nn.HybridSequential()
        G.add(nn.Dense({hidden}, activation='{act}'), nn.Dense({inputs}))
        D.add(nn.Dense({hidden}, activation='tanh'), {layers}, nn.Dense(1))
        blocks = [G, D]
        {start}
        trainer_G = gluon.Trainer(G.collect_params(), 'adam', {{'learning_rate': 0.1 * lr}})
        trainer_D = gluon.Trainer(D.collect_params(), 'sgd', {{'learning_rate': lr}})
        loss = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        ones, zeros = nd.ones((batch_size,)), nd.zeros((batch_size,))
        def update_D(x, z):
            with autograd.record():
                fake = G(z)
                l = (loss(D(x), ones) + loss(D(fake{detach}), zeros)) / 2
            l.backward()
            trainer_D.step(batch_size)
            return l, fake
        def update_G(z, fake):
            with autograd.record():
                fake = {again}
                l = loss(D(fake), ones){more}
            l.backward()
            trainer_G.step(batch_size, ignore_stale_grad=True)
            return l.sum().asscalar()
        for epoch in range(num_epochs):
            for i in range(0, 12, batch_size):
                z = normal(batch_size, 2)
                l, fake = update_D(X[i:i + batch_size], z)
                keep(l)
                keep(update_G(z, fake))
                say('loss %f', l.mean().asnumpy())
        """,
    "two devices": """
        nn = gluon.nn
        ctx = [mx.cpu(0), mx.cpu(1)]
        net = nn.HybridSequential()
        net.add(nn.Dense({hidden}, activation='{act}'), nn.Dense({outputs}))
        blocks = [net]
        {start}
        net.collect_params().reset_ctx(ctx)
        params_of = net.collect_params()
        trainer = gluon.Trainer(params_of, 'sgd', {{'learning_rate': lr, 'momentum': 0.5}})
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        kept = []
        for epoch in range(num_epochs):
            for i in range(0, 12, 6):
                xs = gluon.utils.split_and_load(X[i:i + 6], ctx)
                ys = gluon.utils.split_and_load(Y[i:i + 6], ctx)
                with autograd.record():
                    outs = [net(x) for x in xs]
                    ls = [loss(out, y) for out, y in zip(outs, ys)]
                    kept += outs
                {walk}
                trainer.step(6)
                say('loss %f', sum([l.sum().asscalar() for l in ls]) / 6)
                keep(ls[1])
            keep(nd.concat(*[l.as_in_context(mx.cpu()) for l in ls], dim=0))
        for value in kept:
            keep(value)
        """,
    "words": """
        nn = gluon.nn
        centre, context = nn.Embedding(6, {hidden}), nn.Embedding(6, {hidden})
        blocks = [centre, context]
        words = nd.array(draws.randint(0, 6, size=(12, 4)))
        mask = nd.array(draws.randint(0, 2, size=(12, 3)))
        {start}
        trainer = gluon.Trainer(net_params, 'adam', {{'learning_rate': 0.1 * lr}})
        loss = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        for epoch in range(num_epochs):
            l_sum, n = 0.0, 0
            for i in range(0, 12, batch_size):
                w, m = words[i:i + batch_size], mask[i:i + batch_size]
                with autograd.record(train_mode={train_mode}):
                    v, u = centre(w[:, 0:1]), context(w[:, 1:])
                    out = nd.batch_dot(v, u.swapaxes(1, 2))
                    l = loss(out.reshape(m.shape), m, m) * m.shape[1] / (m.sum(axis=1) + 1)
                {walk_one}
                trainer.step(batch_size)
                l_sum += l.sum().asscalar()
                n += l.size
            say('loss %.3f', l_sum / n)
            keep(l_sum / n)
            x, table = centre.weight.data()[2], centre.weight.data()
            cosine = nd.dot(table, x) / ((table * table).sum(axis=1) * (x * x).sum() + 1e-9).sqrt()
            keep(cosine)
            kept = x
        keep(kept)
        """,
    "images": """
        nn = gluon.nn
        class Residual(nn.{block}):
            def __init__(self, channels, **kwargs):
                super(Residual, self).__init__(**kwargs)
                self.conv1 = nn.Conv2D(channels, kernel_size=3, padding=1)
                self.conv2 = nn.Conv2D(channels, kernel_size=1)
                self.bn = nn.BatchNorm()
            def {forward}x):
                y = {F}.{act}(self.bn(self.conv1(x)))
                return {F}.relu(self.conv2(y) + x)
        net = nn.{kind}()
        net.add(nn.Conv2D(3, kernel_size=2, activation='{act}'), Residual(3))
        net.add({pool}, nn.Dense({outputs}))
        blocks = [net]
        X = normal(12, 2, 5, 5)
        {start}
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {{'learning_rate': lr, 'wd': 0.01}})
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        data = gluon.data.DataLoader(gluon.data.ArrayDataset(X, Y), batch_size)
        for epoch in range(num_epochs):
            l_sum, acc, n = 0.0, 0.0, 0
            for x, y in data:
                with autograd.record():
                    out = net(x)
                    l = loss(out, y).sum()
                {walk_one}
                trainer.step(batch_size)
                y = y.astype('float32')
                l_sum += l.asscalar()
                acc += (out.argmax(axis=1) == y).sum().asscalar()
                n += y.size
            say('loss %.4f, accuracy %.3f', l_sum / n, acc / n)
            keep(l_sum / n)
        keep(net(X))
        """,
}

RECURRENT = {
    "scratch": """
        wx, wh = normal({inputs}, {hidden}), normal({hidden}, {hidden})
        bh, wo = nd.zeros({hidden}), normal({hidden}, {outputs})
        params = [wx, wh, bh, wo]
        def begin_state():
            return (nd.zeros((batch_size, {hidden})),)
        def net(inputs, state):
            h, = state
            outputs = []
            for x in inputs:
                h = nd.tanh(nd.dot(x, wx) + nd.dot(h, wh) + bh)
                outputs.append(nd.dot(h, wo))
            return nd.concat(*outputs, dim=0), (h,)
        """,
    "gated": """
        wz, wx = normal({inputs}, {hidden}), normal({inputs}, {hidden})
        uz, wh = normal({hidden}, {hidden}), normal({hidden}, {hidden})
        wo = normal({hidden}, {outputs})
        params = [wz, uz, wx, wh, wo]
        def begin_state():
            return [nd.zeros((batch_size, {hidden})), nd.ones((batch_size, {hidden})) * 0.1]
        def net(inputs, state):
            h, c = state
            outputs = []
            for x in inputs:
                z = nd.sigmoid(nd.dot(x, wz) + nd.dot(h, uz))
                c = z * c + (1 - z) * nd.tanh(nd.dot(x, wx) + nd.dot(h, wh))
                h = c.tanh() * z
                outputs.append(nd.dot(h, wo))
            return nd.concat(*outputs, dim=0), [h, c]
        """,
    "layer": """
        rnn, nn = gluon.rnn, gluon.nn
        layer, dense = rnn.{layer}({hidden}, num_layers={many}), nn.Dense({outputs})
        blocks = [layer, dense]
        def begin_state():
            return layer.begin_state(batch_size=batch_size)
        def net(inputs, state):
            out, state = layer(nd.stack(*[x for x in inputs]), state)
            return dense(out.reshape((-1, {hidden}))), state
        """,
    "cell": """
        rnn, nn = gluon.rnn, gluon.nn
        cell, dense = rnn.{cell}({hidden}), nn.Dense({outputs})
        blocks = [cell, dense]
        def begin_state():
            return cell.begin_state(batch_size=batch_size)
        def net(inputs, state):
            if {unroll}:
                out, state = cell.unroll(inputs.shape[0], inputs, begin_state=state,
                                         layout='TNC', merge_outputs=True)
                return dense(out.reshape((-1, {hidden}))), state
            outputs = []
            for x in inputs:
                out, state = cell(x, state)
                outputs.append(dense(out))
            return nd.concat(*outputs, dim=0), state
        """,
}  # fmt: skip

#: Values of `l`, one for each example or one in all, from `out` and the targets `y`, `t`.
LOSSES = [
    "l = gluon.loss.SoftmaxCrossEntropyLoss()(out, y)",
    "l = gluon.loss.L2Loss()(out, t)",
    "l = gluon.loss.L1Loss()(out, t) + 0.1 * (out ** 2).mean(axis=1)",
    "l = ((out - t) ** 2 / 2).sum(axis=1)",
    "l = -nd.pick(nd.log_softmax(out), y)",
    "l = -(nd.softmax(out).log() * nd.one_hot(y, {outputs})).sum(axis=1)",
    "l = gluon.loss.HuberLoss(rho=0.5)(out, t).mean()",
    "l = nd.square(out - t).mean() + 0.01 * out.abs().sum()",
    "l = nd.smooth_l1(out - t, scalar=1.0).sum(axis=1)",
]

#: From a loss to gradients: what is recorded for it, and what may stand outside of `record`.
BACKWARD = [
    ("", "l.backward()"),
    ("l = l.mean()", "l.backward()"),
    ("l.sum().backward()", ""),
    ("", "autograd.backward([l])"),
    ("l2 = (out * out).mean()", "autograd.backward([l, l2], [None, nd.array([0.1])])"),
    ("", "l.backward(nd.ones_like(l) * 0.5)"),
    ("", "l.backward(retain_graph=True)\nl.backward()"),
    ("l = nd.add_n(l, l * 0.5, 0 * l)", "l.backward()"),
    ("parts = [l.mean(), 0.1 * out[0].sum(), (out[:, 0] * out[:, -1]).mean()]\nl = sum(parts)",
     "l.backward()"),
    ("heads = [l, (out > 0).sum(), out.argmax(axis=1)]", "autograd.backward(heads)"),
]  # fmt: skip

#: The same for weights that no Trainer asks whether backward has written their gradients.
BY_GRAD = ("", "for g, d in zip(grads(), autograd.grad(l, all_params())):\n    g[:] = d")


UPDATES = [
    "for p in params:\n    p[:] = p - lr * p.grad / {rows}",
    "for p in params:\n    p[:] -= lr * p.grad / {rows}",
    "for p in params:\n    p -= lr / {rows} * p.grad",
    "for p in params:\n    nd.elemwise_sub(p, lr / {rows} * p.grad, out=p)",
    "for p in params:\n    nd.sgd_update(p, p.grad, out=p, lr=lr, rescale_grad=1 / {rows})",
    "for p, v in zip(params, momenta):\n    v[:] = 0.8 * v + lr * p.grad / {rows}\n    p[:] -= v",
    "for p, v in zip(params, momenta):\n    v[:] = 0.9 * v + 0.1 * p.grad.square()\n"
    "    p[:] -= 0.1 * lr * p.grad / (v.sqrt() + 0.1)",
]

TRAINERS = [
    "gluon.Trainer(net_params, 'sgd', {{'learning_rate': lr}})",
    "gluon.Trainer(net_params, 'sgd', {{'learning_rate': lr, 'momentum': 0.7, 'wd': 0.01}})",
    "gluon.Trainer(net_params, 'adam', {{'learning_rate': 0.1 * lr, 'epsilon': 1e-3}})",
    "gluon.Trainer(net_params, mx.optimizer.AdaGrad(learning_rate=0.2 * lr, eps=1e-3))",
    "gluon.Trainer(net_params, 'rmsprop', {{'learning_rate': 0.05 * lr, 'epsilon': 1e-3}})",
    "gluon.Trainer(net_params, 'nag', {{'learning_rate': lr, 'momentum': 0.5,"
    " 'clip_gradient': 0.3}})",
    "gluon.Trainer(net_params, 'sgd', {{'learning_rate': lr, 'lr_scheduler': "
    "mx.lr_scheduler.FactorScheduler(step=2, factor=0.8, base_lr=lr)}})",
]

CLIPS = [
    "norm = nd.array([0])\nfor g in grads():\n    norm += (g ** 2).sum()\n"
    "norm = norm.sqrt().asscalar()\nif norm > {theta}:\n    for g in grads():\n"
    "        g[:] *= {theta} / norm",
    "keep(gluon.utils.clip_global_norm(grads(), {theta}))",
    "for g in grads():\n    nd.clip(g, -{theta}, {theta}, out=g)",
    "norm = sum([(g ** 2).sum() for g in grads()]).sqrt()\nsay('norm %f', norm.asnumpy())",
]

#: Habits inside `record`, after the loss.
RECORDING = [
    "total = total + l.mean()",
    "total = total + l.mean().detach() * 0.5",
    "correct = (out.argmax(axis=1) == y).mean()\nkeep(correct)",
    "kept.append(out)",
    "keep(l.mean().asnumpy())",
    "with autograd.pause():\n    keep((out * 2).sum())",
    "with autograd.predict_mode():\n    l = l + 0.1 * nd.Dropout(out, p=0.5).mean()",
    "if last is not None:\n    l = l + 0.05 * nd.square(out - last).mean()",
    "if last is not None:\n    l = l + 0.05 * (last.tanh() * out).mean()",
    "last = out",
    "last = out.detach()",
    "l = l + 0.01 * sum([(p ** 2).sum() for p in all_params()])",
    "noise = nd.ones(out.shape)\nnoise[:] = 0.3\nl = l + 0.02 * (noise * out).mean()",
    "l = (l.astype('float64') * 2).astype('float32')",
    "l = nd.where(l > 0.1, l, 0.5 * l)",
    "h = out.copy()\nh = h.reshape((-1,)).expand_dims(0)\nl = l + 0.01 * nd.dot(h, h.T).sum()",
    "weight = nd.BlockGrad(nd.exp(-l))\nl = l * (1 + weight)",
    "top = out.topk(k=2, ret_typ='value')\nl = l + 0.05 * (top[:, 0] - top[:, 1]).mean()",
    "y_hat = out.softmax()[nd.arange(2), y[0:2]]\nl = l + 0.1 * y_hat.sum()",
]

#: Habits after the update.
AFTER = [
    "say('loss %f, %.3f', l.mean().asnumpy(), l.mean().asscalar())",
    "keep(float(l.mean().asnumpy()))",
    "keep(float('%.3f' % l.sum().asnumpy()))",
    "l_sum += l.sum().asscalar()\nn += y.size",
    "kept.append(l)",
    "kept.append(all_params()[0].copy())",
    "kept.append(grads()[0])",
    "keep(nd.concat(*[g.reshape((-1,)) for g in grads()], dim=0))",
    "average = [0.9 * a + 0.1 * p for a, p in zip(average, all_params())]",
    "last = out",
    "out[:] = 0",
    "buffer[:] = out[0]\nkeep(buffer)",
    "nd.waitall()",
    "last = None",
    "total = total.detach()",
    "keep((out.argmax(axis=1) == y).astype('float32').mean().asscalar())",
    "metric.update([y], [out.softmax()])",
    "kept.append(all_params()[0][0])",
    "kept.append(out[0:1])",
    "kept.append(grads()[-1].copy())",
    "keep(autograd.is_recording() + 2 * autograd.is_training())",
    "for p, a in zip(all_params(), average):\n    p.copyto(a)",
    "x.attach_grad()\nwith autograd.record():\n    z = (x * x).sum()\nz.backward()\nkeep(x.grad)",
    "with autograd.train_mode():\n    keep(nd.Dropout(x, p=0))",
    "with autograd.record():\n    z = (out * 2).sum() * all_params()[0].sum()\nkeep(z)",
    "with autograd.record(train_mode=False):\n    z = out.mean() * all_params()[-1].sum()\n"
    "keep(autograd.grad(z, all_params()[-1:])[0])",
]
