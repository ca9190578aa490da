"""Calls that raise change nothing: a call with a wrong argument, and the state before and after it.

A world has arrays, views, a recorded graph, a net, a trainer, an optimizer's states, a kvstore and
files. A drawn call replaces one right argument by a wrong one. If it raises, every value, gradient,
flag and file is what it was, and the world goes on like its twin, which has not seen the call: the
graph is still there for backward, the trainer makes the same step. Not asked: an error of the
computation, which is raised at a wait, and layers of deferred shape, which a refused call may have
initialized, as in MXNet.
"""

from __future__ import annotations

import os
import tempfile
import warnings

import numpy as np

WORLD = """
npx.reset_np()
mx.random.seed(3)
x = nd.arange(6).reshape((2, 3)); x.attach_grad(); w = nd.ones((2, 3)); w.attach_grad("add")
u = nd.ones((4,)); row = x.detach()[0]
whole = u.reshape((2, 2)); i = nd.array([0, 1], dtype="int32")
p = np.arange(6).reshape((2, 3)); m = p > 2
z = nd.zeros((2, 3)); g = nd.ones((2, 3)) * 2
with autograd.record():
    y = (x * w).sum()
    h = x * 3
net = gluon.nn.Dense(2, in_units=3); net.initialize(); par = net.weight
late = gluon.nn.Dense(2); late.initialize()
bn = gluon.nn.BatchNorm(in_channels=3); bn.initialize()
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
with autograd.record():
    loss = net(x.detach()).sum()
loss.backward()
kv = mx.kv.create("local"); kv.init(1, nd.ones((2, 3))); kv.init(2, nd.ones(3))
opt = mx.optimizer.create("sgd", momentum=0.9, learning_rate=0.1)
state = opt.create_state(0, z)
updater = mx.optimizer.get_updater(opt)
metric = mx.metric.Accuracy()
metric.update([i], [nd.array([[0.1, 0.9], [0.8, 0.2]])])
net.save_parameters(folder + "/net"); trainer.save_states(folder + "/states")
nd.save(folder + "/arrays", {"weight": nd.ones((5, 5))}); nd.save(folder + "/list", [x])
open(folder + "/text", "w").write("no arrays")
"""

#: What each world can do at its end; the values must be those of its twin.
END = """
y.backward(); trainer.step(1); opt.update(0, z, g, state); updater(0, u, nd.ones(4)); kv.push(1, g)
with autograd.record():
    l = (h * 2).sum()
l.backward(); late(x)
"""

#: Callables, each with right arguments.
CALLS = """
x.__setitem__(0, 1.0) | x.__setitem__([0, 1], g) | z.__setitem__((0, 1), 2.0)
u.__setitem__(i, nd.ones(2)) | z.__setitem__(slice(None), g) | z.__setitem__(Ellipsis, 5)
row.__setitem__(slice(0, 2), nd.ones(2)) | p.__setitem__(m, 3.0) | p.__setitem__(0, np.ones(3))
p.__setitem__((0, [1, 2]), np.ones(2)) | u.__iadd__(1) | u.__imul__(u) | row.__isub__(row)
p.__iadd__(1.0) | p.__itruediv__(p) | nd.elemwise_add(g, g, out=z) | nd.exp(g, out=z)
nd.dot(g, g.T, out=whole) | nd.concat(g, dim=0, out=z) | np.add(p, p, out=p) | np.exp(p, out=p)
nd.sgd_update(z, g, lr=0.1, out=z) | nd.where(g, z, g, out=z)
nd.sgd_mom_update(z, g, g, lr=0.1, momentum=0.9, out=z)
nd.random.uniform(0, 1, shape=(2, 3), out=z) | nd.adam_update(z, g, g, g, lr=0.1, out=z)
nd.split(whole, num_outputs=2, axis=0, out=[u[0:2], u[2:4]]) | g.copyto(z) | g.copyto(row)
z.reshape((3, 2)) | z.astype("int32") | x.attach_grad("write") | u.attach_grad("add")
y.backward() | y.backward(nd.ones(1)) | autograd.backward([y, h], [None, g])
autograd.grad([y], [x, w]) | autograd.grad([y, h], [x], [None, g])
autograd.grad(y, x, create_graph=True) | h.backward(g)
autograd.mark_variables([u, z], [nd.ones(4), g])
autograd.mark_variables([u, z], [u.copy(), g.copy()], ["write", "add"]) | par.set_data(g)
par.set_data(nd.ones((2, 3))) | net.bias.set_data(nd.ones(2))
par.initialize(init.One(), mx.cpu()) | par.cast("float16") | net.cast("float16")
net.load_parameters(folder + "/net") | net.initialize(init.One(), mx.cpu())
net.load_parameters(folder + "/arrays") | late.load_parameters(folder + "/net")
bn.load_parameters(folder + "/net") | net.collect_params().load(folder + "/arrays")
net.collect_params().setattr("grad_req", "add") | par.reset_ctx(mx.cpu())
net.load_dict({"weight": g, "bias": nd.ones(2)}) | net.initialize(force_reinit=True)
trainer.step(1) | trainer.load_states(folder + "/states") | trainer.set_learning_rate(0.2)
trainer.update(2) | net(g) | bn(g) | gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
kv.push(1, g) | kv.pull(1, out=z) | kv.pull(2, out=[nd.ones(3), nd.ones(3)]) | kv.init(7, g)
kv.pushpull(1, g, out=z) | kv.push([1, 2], [g, nd.ones(3)]) | kv.pull([1], [z])
kv.init([8, 9], [g, g]) | opt.set_lr_mult({0: 1.0}) | opt.set_learning_rate(0.5)
updater.set_states(updater.get_states()) | metric.update([i], [whole]) | metric.update(i, whole)
nd.save(folder + "/list", [g]) | net.save_parameters(folder + "/net") | mx.random.seed(3)
mx.random.shuffle(u) | gluon.utils.clip_global_norm([g, z], 1.0) | nd.load(folder + "/list")
init.Xavier()("weight", z) | init.One()(init.InitDesc("q_weight"), z) | npx.set_np(True)
net.hybridize(True) | autograd.set_recording(False) | autograd.set_training(False)
np.random.shuffle(p) | p.fill(3)
"""

#: Wrong in most places.
WRONG = """
None | "text" | -1 | 10**6 | 1.5 | float("nan") | [] | () | [1, [2]] | object() | nd.ones((5, 5))
nd.ones((2, 3), dtype="int32") | nd.ones((2, 3)) | [nd.ones((5, 5))]
[nd.ones((2, 3)), nd.ones((5, 5))] | h | y | x | u | p | np.ones((2, 2)) | {}
{"weight": nd.ones((5, 5))} | folder + "/text" | folder + "/none" | folder + "/arrays" | folder
mx.cpu | mx.gpu(9) | "float7" | slice(None) | (0, 0, 0, 0) | [0, 99] | [1, 77] | ["b", 1]
[None, "text"] | ["write", "wrong"] | True | onp.ones((5, 5)) | i | lambda *_: 1 / 0 | b"bytes"
10**400
"""


def rows(table):
    return [row.strip() for line in table.strip().split("\n") for row in line.split(" | ")]


def arguments(call):
    """The places of the arguments in a call's text: [(begin, end)]."""
    begin = call.index("(", call.index("(") + 1 if call.startswith("init.") else 0) + 1
    places, depth, start = [], 0, begin
    for at in range(begin, len(call)):
        depth += (call[at] in "([{") - (call[at] in ")]}")
        if depth < 0 or (call[at] == "," and depth == 0):
            text = call[start:at]
            if text.strip():
                named = text.find("=") + 1 if text.strip().partition("=")[0].isidentifier() else 0
                places.append((start + named, at))
            start = at + 1
            if depth < 0:
                break
    return places


def draw(seed):
    """A call with a wrong argument."""
    rng = np.random.RandomState(seed % 2**32)
    while True:
        calls, wrong = rows(CALLS), rows(WRONG)
        call = calls[rng.randint(len(calls))]
        places = arguments(call)
        if not places:
            continue
        begin, end = places[rng.randint(len(places))]
        prefix = " " if call[begin - 1] == "," else ""
        return call[:begin] + prefix + wrong[rng.randint(len(wrong))] + call[end:]


def world(folder):
    """The names of a new world."""
    import d2lmini

    names = {"mx": d2lmini, "onp": np, "folder": folder}
    names |= {n: getattr(d2lmini, n) for n in ("nd", "np", "npx", "autograd", "gluon", "init")}
    exec(WORLD, names)
    return names


def state(names):
    """Everything that a program can see of the world, as plain values."""
    from d2lmini import autograd, current_context
    from d2lmini.base import util

    found = {"flags": (autograd.is_recording(), autograd.is_training(), util.is_np_array())}
    found["more flags"] = util.is_np_shape(), current_context()

    def see(name, x):
        found[name] = (x.shape, str(x.dtype), x.asnumpy().tobytes(), x.context, x._fresh_grad)
        if x.grad is not None:
            found[name + ".grad"] = x.grad.asnumpy().tobytes(), x._node[0].req
        found[name + ".node"] = x._node and (id(x._node[0]), x._node[0].parents is None)

    autograd.set_recording(False)
    for name, x in names.items():
        if hasattr(x, "asnumpy") and name != "__builtins__":
            see(name, x)
    for block in ("net", "late", "bn"):
        for name, q in names[block]._collect_params_with_prefix().items():
            name = f"{block}.{name}"
            found[name] = q.shape, str(q.dtype), q.grad_req, q._deferred_init
            if q._data is not None:
                see(name + ".data", q.data())
        found[block] = getattr(names[block], "_active", None)
    for key, like in ((1, names["g"]), (2, names["net"].weight.data()[0])):
        out = like.copy()
        names["kv"].pull(key, out=out)
        see(f"kv {key}", out)
    opt, trainer = names["opt"], names["trainer"]
    found["optimizer"] = (
        opt.num_update,
        opt.learning_rate,
        str(opt._index_update_count),
        opt.lr_mult,
    )
    found["states"] = names["updater"].get_states()
    found["trainer"] = trainer.learning_rate, trainer._optimizer.num_update
    see("momentum", names["state"])
    found["metric"] = names["metric"].get()
    for file in sorted(set(os.listdir(names["folder"])) - {"here"}):
        with open(os.path.join(names["folder"], file), "rb") as stream:
            found[file] = stream.read()
    autograd.set_recording(found["flags"][0])
    return found


def check(seed):
    """AssertionError if a call that raises has changed anything. No other library is asked."""
    from d2lmini import autograd, npx

    call = draw(seed)
    here = os.getcwd()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        os.mkdir(os.path.join(folder, "here"))  # a call may write to a file of a wrong name
        try:
            os.chdir(os.path.join(folder, "here"))
            names = world(folder)
            before = state(names)
            try:
                exec(call, names)
            except Exception as problem:
                found = state(names)
                differing = [k for k in {**before, **found} if before.get(k) != found.get(k)]
                assert not differing, f"{call}\nraised {problem!r}\nand changed {differing}"
                exec(END, names)
                after = values(names)
                twin = world(folder)
                exec(END, twin)
                differing = [k for k, v in values(twin).items() if v != after[k]]
                assert not differing, f"{call}\nraised {problem!r}\nlater differ {differing}"
        finally:
            os.chdir(here)
            npx.reset_np()
            autograd.set_recording(False)
            autograd.set_training(False)
    return False


def values(names):
    """The state without the identities of nodes."""
    return {k: v for k, v in state(names).items() if not k.endswith(".node")}
