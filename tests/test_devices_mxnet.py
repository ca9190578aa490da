"""Parameters on lists of devices against the real MXNet 1.9.1, on its CPU contexts: where copies
lie, what is said when one is not there, what a file keeps of those that differ (`make test-mxnet`).

One experiment, run here and there; its source travels to the interpreter that D2LMINI_MXNET_PYTHON
names, and says in words what it saw.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess

import pytest

import d2lmini

MXNET = os.environ.get("D2LMINI_MXNET_PYTHON")
if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)


def experiment(mx, folder):
    """What each call gives, or the error it raises, by a name; `mx` is either library."""
    gluon, nd, autograd = mx.gluon, mx.nd, mx.autograd
    two, others = [mx.cpu(0), mx.cpu(1)], [mx.cpu(1), mx.cpu(2)]
    file = folder + "/net.params"
    seen = {}

    def say(value):
        if isinstance(value, (list, tuple)):
            return [say(each) for each in value]
        if isinstance(value, nd.NDArray):
            return [str(value.context), *[round(x, 4) for x in value.asnumpy().ravel().tolist()]]
        return str(value)

    def ask(name, call):
        try:
            seen[name] = say(call())
        except Exception as error:
            seen[name] = type(error).__name__ + ": " + str(error).split("\n")[0]

    def copies(p):
        return [p.list_ctx(), p.list_data()]

    # A parameter before initialize, on two devices, on others, deferred.
    net = gluon.nn.Dense(3, in_units=2, prefix="d_")
    w = net.weight
    ask("none: data", w.data)
    ask("none: list_ctx", w.list_ctx)
    ask("none: list_data", w.list_data)
    ask("none: grad", w.grad)
    ask("none: reset_ctx", lambda: net.collect_params().reset_ctx(two))
    net.initialize("ones", ctx=two)
    ask("two: copies", lambda: copies(w))
    ask("two: data()", w.data)
    ask("two: grad()", w.grad)
    ask("two: list_grad", w.list_grad)
    ask("two: another's data", lambda: w.data(mx.cpu(2)))
    ask("two: another's grad", lambda: w.grad(mx.cpu(2)))
    ask("two: called on another", lambda: net(nd.ones((1, 2), ctx=mx.cpu(3))))
    ask("two: set_data", lambda: [w.set_data(nd.full((3, 2), 4, ctx=mx.cpu(3))), copies(w)])
    net.initialize("ones", ctx=others, force_reinit=True)
    ask("others: data()", w.data)
    ask("others: grad()", w.grad)
    net.initialize("ones", ctx=tuple(others), force_reinit=True)
    ask("others: from a tuple", lambda: copies(w))
    for ctx in ([mx.cpu(2), mx.cpu(3)], mx.cpu(1), two):
        net.collect_params().reset_ctx(ctx)
        ask(f"reset_ctx {ctx}", lambda: [copies(w), w.list_grad()])
    ask("zero_grad", lambda: [net.collect_params().zero_grad(), w.list_grad()])
    late = gluon.nn.Dense(3, prefix="e_")
    late.initialize("ones", ctx=two)
    ask("deferred: list_ctx", late.weight.list_ctx)
    ask("deferred: data", lambda: late.weight.data(two[0]))
    ask("deferred: list_data", late.weight.list_data)
    ask("deferred: grad", lambda: late.weight.grad(two[0]))
    late.collect_params().reset_ctx(others)
    ask("deferred: reset_ctx", late.weight.list_ctx)
    late(nd.ones((1, 4), ctx=mx.cpu(1)))
    ask("deferred: there", lambda: copies(late.weight))
    w.grad_req = "null"
    ask("null: grad", lambda: w.grad(two[0]))
    ask("null: list_grad", w.list_grad)

    # A constant.
    k = gluon.Constant("k", [1, 2])
    k.initialize(ctx=two)
    ask("constant: copies", lambda: copies(k))
    ask("constant: grad", lambda: k.grad(two[1]))
    ask("constant: list_grad", k.list_grad)
    k.reset_ctx(others)
    ask("constant: reset_ctx", lambda: copies(k))

    # Statistics that differ from device to device, and files.
    norm = gluon.nn.BatchNorm(in_channels=2, prefix="b_", momentum=0.5)
    norm.initialize(ctx=two)
    batches = [[[0, 2], [2, 6]], [[10, 2], [20, 4]]]
    with autograd.record():
        ys = [norm(nd.array(x, ctx=ctx)) for x, ctx in zip(batches, two)]
    autograd.backward(ys)
    nd.waitall()
    ask("norm: mean", lambda: copies(norm.running_mean))
    ask("norm: var", lambda: copies(norm.running_var))
    norm.save_parameters(file)
    ask("file", lambda: [[name, x] for name, x in sorted(nd.load(file).items())])
    again = gluon.nn.BatchNorm(in_channels=2, prefix="b_")
    again.load_parameters(file, ctx=two)
    ask("loaded", lambda: copies(again.running_mean))
    ask("loaded elsewhere", lambda: again.load_parameters(file, ctx=[mx.cpu(2)]))
    again.load_parameters(file, ctx=[two[1], two[0]])
    ask("loaded in another order", lambda: copies(again.running_var))
    again.load_parameters(file)
    ask("loaded as it is", lambda: copies(again.running_var))
    fresh = gluon.nn.BatchNorm(in_channels=2, prefix="b_")
    fresh.load_parameters(file)
    ask("loaded without devices", lambda: copies(fresh.running_var))
    norm.collect_params().reset_ctx(mx.cpu(5))
    ask("norm: reset_ctx", lambda: copies(norm.running_mean))

    # Trainer.
    one, pair = (gluon.nn.Dense(2, in_units=2, prefix=f"t{i}_") for i in range(2))
    one.initialize()
    pair.initialize("ones", ctx=two)
    both = [*pair.collect_params().values(), *one.collect_params().values()]
    ask("trainer: different devices", lambda: gluon.Trainer(both, "sgd"))

    def step(devices, **how):
        trainer = gluon.Trainer(pair.collect_params(), "sgd", {"learning_rate": 0.5})
        with autograd.record():
            losses = [pair(nd.ones((1, 2), ctx=ctx)).sum() for ctx in devices]
        autograd.backward(losses)
        trainer.step(2, **how)
        return copies(pair.weight)

    ask("trainer: step", lambda: step(two))
    ask("trainer: a device without data", lambda: step(two[:1]))

    # Statistics of several devices: the first step gives all those of the first device.
    def statistics(kvstore, update_on_kvstore):
        net = gluon.nn.HybridSequential(prefix="s_")
        with net.name_scope():
            net.add(gluon.nn.BatchNorm(in_channels=2, momentum=0.5))
        net.initialize(ctx=two)
        trainer = gluon.Trainer(
            net.collect_params(), "sgd", kvstore=kvstore, update_on_kvstore=update_on_kvstore
        )
        after = []
        for shift in (0, 3, 1):
            with autograd.record():
                ys = [net(nd.array(x, ctx=ctx) + shift) for x, ctx in zip(batches, two)]
            autograd.backward(ys)
            trainer.step(4)
            nd.waitall()
            after += [copies(net[0].running_mean), copies(net[0].running_var)]
        return after

    for how in (("device", None), ("local", True), ("device", False), (None, False)):
        ask(f"statistics: {how}", lambda how=how: statistics(*how))
    return seen


PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import mxnet as mx
{experiment}
print("SEEN", json.dumps(experiment(mx, sys.argv[1])))
"""


@pytest.mark.filterwarnings("ignore")
def test_what_is_said_of_devices(tmp_path):
    program = PROGRAM.format(experiment=inspect.getsource(experiment))
    done = subprocess.run(
        [str(MXNET), "-", str(tmp_path)], input=program, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.rsplit("SEEN ", 1)[1])
    # Ours says, too, where in the net a parameter is.
    text = json.dumps(experiment(d2lmini, str(tmp_path)))
    ours = json.loads(re.sub(r" \(\w+ of \w+\)", "", text))
    assert ours.keys() == theirs.keys() and len(ours) > 40
    for name, want in theirs.items():
        assert ours[name] == want, name
