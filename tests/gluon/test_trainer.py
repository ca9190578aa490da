"""The Trainer: what a step costs, stale gradients, devices, files."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from listeners import Pushes

from d2lmini import MXNetError, addons, autograd, cpu, gluon, kvstore, nd
from d2lmini.base import instrument
from d2lmini.gluon import Parameter, Trainer, nn

TWO = [cpu(0), cpu(1)]


def parameters(contexts=None, shapes=((2, 3), (4,)), **options) -> gluon.ParameterDict:
    """Ones, named so that their order by name is not that of their making."""
    params = gluon.ParameterDict()
    for i, shape in enumerate(shapes):
        params.get(f"p{len(shapes) - i}", shape=shape, init="ones", **options)
    params.initialize(ctx=contexts)
    return params


def back(params, scale: float = 1.0) -> None:
    """Gradients: scale * (1 + the device's number), everywhere."""
    losses = []
    with autograd.record():
        for p in params.values():
            losses += [(x * (scale * (1 + x.context.device_id))).sum() for x in p.list_data()]
    autograd.backward(losses)


def tell(*arrays):
    return [x.asnumpy().tolist() for x in arrays]


def values(params, ctx=None) -> list[float]:
    """Each parameter's value, the same in all its elements."""
    found = []
    for p in params.values():
        x = p.data(ctx).asnumpy() if ctx else p.list_data()[0].asnumpy()
        assert (x == x.ravel()[0]).all()
        found.append(float(x.ravel()[0]))
    return found


# -- a step --------------------------------------------------------------------------------------


# -- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "rmsprop", "adagrad", "adadelta", "ftrl"])
def test_a_step_is_one_task(name: str):
    options = {"momentum": 0.9} if name in ("sgd", "nag") else {}
    params = parameters(shapes=[(3, 2)] * 12)
    trainer = Trainer(params, name, {"wd": 0.01, **options})
    back(params)
    trainer.step(1)
    back(params)
    with instrument.listening(Pushes()) as heard:
        trainer.step(1)
    assert heard.names == ["_fused_update"] and heard.waits == []


@pytest.mark.parametrize("size", [8, 96])  # computed inline, and by a task
def test_a_hybridized_net_never_mixes_the_weights_of_two_steps(size):
    """Every step adds 1 to all weights, so equal weights w in both layers give (size w)^2."""
    net = nn.HybridSequential()
    for _ in range(2):
        net.add(nn.Dense(size, use_bias=False, in_units=size))
    net.initialize("ones")
    net.hybridize()
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": -1.0})
    x = nd.ones((1, size))
    legal = {float((size * w) ** 2) for w in range(1, 200)}
    net(x).wait_to_read()

    def train() -> None:
        for _ in range(60):
            back(net.collect_params())
            trainer.step(1)

    writer = threading.Thread(target=train)
    writer.start()
    seen: list[float] = []
    while writer.is_alive() or not seen:
        seen += np.unique(net(x).asnumpy()).tolist()
    writer.join()
    assert legal.issuperset(seen)


# -- stale gradients -----------------------------------------------------------------------------


def test_a_step_without_backward_is_refused_before_anything_changes():
    params = parameters()
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0})
    with pytest.raises(
        UserWarning,
        match=r"Gradient of Parameter `p1` on context cpu\(0\) has not been updated by backward "
        r"since last `step`.*ignore_stale_grad=True",
    ):
        trainer.step(1)
    back(params)
    trainer.step(1)
    with autograd.record():
        loss = params["p1"].data().sum()
    loss.backward()
    with pytest.raises(UserWarning, match="`p2`"):
        trainer.step(1)
    assert values(params) == [0, 0]
    trainer.step(1, ignore_stale_grad=True)
    assert values(params) == [0, -1]  # p1 is the last made
    trainer.step(1, ignore_stale_grad=True)
    assert values(params) == [0, -1]


# -- deferred initialization -----------------------------------------------------------------------


# -- several devices -----------------------------------------------------------------------------


@pytest.mark.parametrize("on_kvstore", [True, False])
def test_the_sum_is_taken_in_a_fixed_order(on_kvstore: bool):
    """(a + b) + c, whatever comes first: floating sums depend on it."""
    three = [cpu(i) for i in range(3)]
    parts = [np.float32(x) for x in (1.0, 1e8, -1e8)]
    want = (parts[0] + parts[1]) + parts[2]
    p = Parameter("p", shape=(1,), init="zeros")
    p.initialize(ctx=three)
    trainer = Trainer([p], "sgd", {"learning_rate": 1.0}, update_on_kvstore=on_kvstore)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        for x in p.list_data():
            x[:] = 0
        if on_kvstore:
            p.set_data(nd.zeros((1,)))
        for i in order:
            with autograd.record():
                loss = (p.list_data()[i] * float(parts[i])).sum()
            loss.backward()
        trainer.step(1)
        assert [float(x.asscalar()) for x in p.list_data()] == [-want] * 3


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_kvstore", [True, False])
@pytest.mark.parametrize("contexts", [[cpu(0)], TWO])
def test_training_goes_on_from_a_file(tmp_path, contexts, on_kvstore):
    def make():
        params = parameters(contexts)
        options = {"learning_rate": 0.25, "wd": 0.1}
        return params, Trainer(params, "adam", options, update_on_kvstore=on_kvstore)

    params, trainer = make()
    for _ in range(3):
        back(params)
        trainer.step(2)
    trainer.set_learning_rate(0.125)
    trainer.save_states(tmp_path / "states")
    params.save(str(tmp_path / "params"))
    again, fresh = make()
    again.load(str(tmp_path / "params"), ctx=contexts)
    fresh.load_states(tmp_path / "states")
    assert fresh.learning_rate == 0.125 and fresh.optimizer.num_update == 3
    for p, t in ((params, trainer), (again, fresh)):
        p["p1"].lr_mult = 2.0  # read live, before and after loading
        for _ in range(3):
            back(p)
            t.step(2)
    for ctx in contexts:
        assert values(params, ctx) == values(again, ctx)


def test_a_pickle_is_no_file_of_states(tmp_path):
    (tmp_path / "states").write_bytes(pickle.dumps({0: None}))
    with pytest.raises(MXNetError, match="pickle"):
        Trainer(parameters(), "sgd").load_states(tmp_path / "states")


# -- states that do not fit ------------------------------------------------------------------------


def trained(shapes, name="sgd", options=(("momentum", 0.9),), contexts=None, **how):
    """Parameters and their Trainer, after a step."""
    params = parameters(contexts, shapes, **how)
    kvstores = {"update_on_kvstore": True} if contexts else {}
    trainer = Trainer(params, name, dict(options), **kvstores)
    back(params)
    trainer.step(1)
    return params, trainer


@pytest.mark.parametrize("contexts", [None, TWO])
@pytest.mark.parametrize(
    ("saved", "here", "says"),
    [
        ({"shapes": [(4, 2)]}, {"shapes": [(3, 2)]}, r"\(3, 2\).*found Spec\(\(4, 2\)"),
        ({"shapes": [(3, 2)]}, {"shapes": [(4, 2)]}, r"'p1'.*found Spec\(\(3, 2\)"),
        ({"shapes": [(2, 3)]}, {"shapes": [(3, 2)]}, r"load the states of the same parameters"),
        ({"shapes": [(3,), (2,)]}, {"shapes": [(2,)]}, "there is no parameter 1"),
        (
            {"shapes": [(4,)], "name": "adam", "options": ()},
            {"shapes": [(3,)], "name": "adam", "options": ()}, r"Adam keeps \(Spec\(\(3,",
        ),
        (
            {"shapes": [(2,)], "dtype": "float64"}, {"shapes": [(2,)]},
            "float32.*found Spec.*float64",
        ),
    ],
)  # fmt: skip
def test_states_of_other_parameters_are_refused(saved, here, says, contexts, tmp_path):
    _, trainer = trained(contexts=contexts, **saved)
    trainer.save_states(tmp_path / "states")
    params, trainer = trained(contexts=contexts, **here)
    before = [p.data().asnumpy() for p in params.values()]
    rate, count = trainer.learning_rate, trainer.optimizer.num_update
    with pytest.raises(MXNetError, match=says):
        trainer.load_states(tmp_path / "states")
    assert (rate, count) == (trainer.learning_rate, trainer.optimizer.num_update)
    back(params)
    trainer.step(1)  # with the states of before
    reference, other = trained(contexts=contexts, **here)
    back(reference)
    other.step(1)
    for p, q, old in zip(params.values(), reference.values(), before):
        np.testing.assert_array_equal(p.data().asnumpy(), q.data().asnumpy())
        assert (p.data().asnumpy() != old).any()


# -- given stores ----------------------------------------------------------------------------------


class Spanning(kvstore.KVStore):
    """What a Trainer asks of a store whose sums cover two processes with the same gradients."""

    spans_processes, batches, rank, num_workers = True, 2, 0, 2

    def __init__(self, kind="local"):
        super().__init__(kind)
        self.calls = []

    def pushpull(self, key, value, out=None, priority=0, in_turns=None):
        self.calls.append((tuple(key), self.divisor, priority, in_turns))
        for grads in value:
            grads[0] *= 2

    def parts(self, keys):
        self.calls.append(tuple(keys))
        return [keys[:1], keys[1:]]


def test_a_trainer_over_several_processes(monkeypatch):
    store = Spanning()
    params = {name: gluon.Parameter(name, shape=(1,), init="ones") for name in ("b", "a", "c")}
    for p in params.values():
        p.initialize()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 1.0}, store, None, False)
    for name in "ab":
        with autograd.record():
            y = params[name].data() * 6
        y.backward()
    params["c"].grad()[:] = 5  # not of this step: adds nothing
    trainer.step(3, ignore_stale_grad=True)
    assert [tell(params[name].data()) for name in "abc"] == [[[-1]], [[-1]], [[1]]]
    assert store.names == {0: "a", 1: "b", 2: "c"}
    assert store.calls == [((1, 0, 2), 3, 3, True), (0, 1, 2)]
    assert tell(params["c"].grad()) == [[0]]
    for p in params.values():
        with autograd.record():
            y = p.data() * 2
        y.backward()
    trainer.allreduce_grads()
    assert store.calls[2:] == [((1, 0, 2), None, 3, False)]
    monkeypatch.setattr(addons, "find", lambda name: lambda kind: (name, kind))
    assert kvstore.create("Dist_Sync") == ("kvstore.dist", "dist_sync")


def test_weights_that_are_set_reach_a_store_that_was_given():
    p = gluon.Parameter("p", shape=(1,), init="ones")
    p.initialize(ctx=[cpu(0), cpu(1)])
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 1.0}, kvstore.create(), None, True)
    for start in (1, 5):
        p.set_data(nd.array([start]))
        with autograd.record():
            losses = [x * 2 for x in p.list_data()]
        autograd.backward(losses)
        trainer.step(4)
        assert tell(*p.list_data()) == [[start - 1]] * 2
