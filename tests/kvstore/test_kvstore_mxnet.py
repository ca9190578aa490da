"""The KVStore against the real MXNet 1.9.1, on two of its CPU contexts (`make test-mxnet`)."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Oracle

import d2lmini


def experiment(mx, folder):
    """All results by name; `mx` is either library."""
    nd, create = mx.nd, mx.kv.create
    places = [mx.cpu(0), mx.cpu(1)]
    results = {}

    def draw(step, n=2, shape=(7, 3)):
        rng = np.random.default_rng([step, n])
        return [nd.array(rng.uniform(-1, 1, shape), ctx=places[i % 2]) for i in range(n)]

    def zeros(n=2):
        return [nd.zeros((7, 3), ctx=places[i % 2]) for i in range(n)]

    def keep(name, arrays):
        for i, x in enumerate(arrays):
            results[f"{name}/{i}"] = x.asnumpy()

    def refused(name, call, *args):
        try:
            call(*args)
            results[f"refused/{name}"] = np.array(False)
        except Exception:
            results[f"refused/{name}"] = np.array(True)

    for kind in ("local", "device"):
        kv = create(kind)
        keep(f"is/{kind}", [nd.array([kv.rank, kv.num_workers, kv.type == kind])])
        kv.init("a", nd.ones((7, 3)))
        kv.init(["b", "c"], [nd.ones((7, 3)) * 2, nd.ones((7, 3)) * 3])
        out = zeros()
        kv.pull("b", out=out)
        keep(f"{kind}/pull", out)
        for n in (1, 2, 3, 5):  # a key each: MXNet fails when their number changes
            kv.init(f"n{n}", nd.zeros((7, 3)))
            kv.push(f"n{n}", draw(0, n))
            kv.pull(f"n{n}", out=out)
            keep(f"{kind}/push{n}", out)
        kv.push(["c", "b"], [draw(1), draw(2)])
        kv.push(["a", "a"], [draw(3)[0], draw(3)[1]])
        outs = [zeros(), zeros(1), zeros()]
        kv.pull(["a", "b", "c"], out=outs)
        for k, out in enumerate(outs):
            keep(f"{kind}/keys{k}", out)
        parts, out = draw(5), zeros(3)
        kv.pushpull("a", parts, out=out)
        keep(f"{kind}/pushpull", parts + out)
        kv.pushpull("a", parts)
        keep(f"{kind}/pushpull in place", parts)
        out = zeros()
        kv.broadcast("d", draw(6, 1)[0], out=out, priority=-1)
        keep(f"{kind}/broadcast", out)
        for name, call in (
            ("init again", lambda kv: kv.init("a", nd.zeros((7, 3)))),
            ("unknown", lambda kv: kv.push("z", nd.zeros((7, 3)))),
            ("mixed keys", lambda kv: kv.init(3, nd.zeros((7, 3)))),
            ("number of values", lambda kv: kv.push(["a", "b"], [nd.zeros((7, 3))])),
            ("key", lambda kv: kv.push(1.5, nd.zeros((7, 3)))),
            ("array", lambda kv: kv.push("a", np.zeros((7, 3)))),
            ("no out", lambda kv: kv.pull("a")),
            ("rows", lambda kv: kv.row_sparse_pull("a", nd.zeros(2), row_ids=nd.zeros(1))),
            ("save", lambda kv: kv.save_optimizer_states("nowhere")),
        ):
            refused(f"{kind}/{name}", call, kv)

        # An updater of one's own, and optimizers.
        kv = create(kind)

        def updater(key, received, stored):
            stored[:] = stored * 0.5 + received * key

        kv._set_updater(updater)
        kv.init([3, 5], [nd.ones((7, 3))] * 2)
        for step in range(3):
            kv.push([3, 5], [draw(step), draw(step + 9)])
        outs = [zeros(), zeros()]
        kv.pull([3, 5], out=outs)
        keep(f"{kind}/updater", outs[0] + outs[1])
        for name, options in (("sgd", {"momentum": 0.9, "wd": 0.1}), ("adam", {})):
            kv = create(kind)
            kv.set_optimizer(mx.optimizer.create(name, learning_rate=0.1, **options))
            kv.init([0, 1], [nd.ones((7, 3))] * 2)
            for step in range(4):
                kv.push([0, 1], [draw(step), draw(step + 9, 3)])
            kv.pull([0, 1], out=outs)
            keep(f"{kind}/{name}", outs[0] + outs[1])

    # Names.
    for kind in (
        "local", "device", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device",
        "Device",
    ):  # fmt: skip
        keep(f"named/{kind}", [nd.array([create(kind).type == kind.lower()])])

    # States of an optimizer, out to a file and back to another store.
    for dump in (False, True):
        kv, again = create("device"), create("device")
        kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
        kv.init([0, 1], [nd.ones((7, 3))] * 2)
        for step in range(3):
            kv.push([0, 1], [draw(step), draw(step + 9)])
        kv.save_optimizer_states(folder + "/states", dump_optimizer=dump)
        outs = [zeros(1), zeros(1)]
        kv.pull([0, 1], out=outs)
        rate = 7 if dump else 0.1  # then it comes from the file
        again.set_optimizer(mx.optimizer.create("sgd", learning_rate=rate, momentum=0.9))
        again.init([0, 1], [out[0] for out in outs])
        again.load_optimizer_states(folder + "/states")
        again.push([0, 1], [draw(4), draw(5)])
        again.pull([0, 1], out=outs)
        keep(f"states/{dump}", outs[0] + outs[1])

    return results


@pytest.fixture(scope="module")
def both(mxnet: Oracle, tmp_path_factory) -> tuple[dict, dict]:
    """What d2lmini says, and MXNet."""
    folder = str(tmp_path_factory.mktemp("mxnet"))
    theirs = mxnet.ask(experiment, folder)
    return experiment(d2lmini, folder), theirs


def test_values_agree(both):
    ours, theirs = both
    assert ours.keys() == theirs.keys() and len(ours) > 90
    for name, want in theirs.items():
        assert ours[name].shape == want.shape and ours[name].dtype == want.dtype, name
        np.testing.assert_allclose(ours[name], want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_compressed_gradients_agree_to_the_bit(both):
    ours, theirs = both
    for name in (name for name in theirs if name.startswith("2bit/")):
        assert (ours[name] == theirs[name]).all(), name
