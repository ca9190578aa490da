"""Valid files of every kind that a reader of d2lmini knows: what hostile ones are made of."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini import autograd, gluon, init, nd, optimizer, profiler, sym
from d2lmini.ndarray import serialize
from d2lmini.optimizer import lr_scheduler

PARAMS = Path(__file__).parent.parent / "data" / "params"
TRACES = Path(__file__).parent.parent.parent / "chapters" / "traces"


def params() -> list[bytes]:
    stored = [p.read_bytes() for p in sorted(PARAMS.glob("*.params"))]
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((3, 2)).astype(t), (1, 0)) for t in ("float32", "int8", "bool")]
    return [*stored, serialize.dumps(arrays, ["a", "b", "c"]), serialize.dumps(arrays)]


def symbols() -> list[bytes]:
    x = sym.var("data", shape=(2, 3, 8, 8), init=init.Xavier())
    net = sym.Convolution(x, num_filter=4, kernel=(3, 3), name="conv")
    net = sym.BatchNorm(net, name="bn")
    net = sym.Pooling(sym.Activation(net, act_type="relu"), kernel=(2, 2), pool_type="max")
    net = sym.FullyConnected(net, num_hidden=10, name="fc")
    first = sym.SoftmaxOutput(net, name="softmax")
    parts = sym.SliceChannel(sym.var("x"), num_outputs=3, name="split")
    second = sym.Group([parts[0] + parts[1] * 2, sym.concat(parts[2], parts[0], dim=1)])
    third = sym.RNN(sym.var("x"), mode="lstm", state_size=4, num_layers=1, name="rnn")
    fourth = sym.split_v2(sym.var("x"), indices_or_sections=(1, 3), axis=0)
    fifth = sym.topk(sym.transpose(sym.var("x"), axes=(1, 0)), k=2, ret_typ="both")
    graphs = (first, second, third, fourth, fifth)
    return [g.tojson().encode() for g in graphs]


def states() -> list[bytes]:
    blobs = []
    for each in (
        optimizer.SGD(momentum=0.9),
        optimizer.Adam(lr_scheduler=lr_scheduler.FactorScheduler(2, 0.5)),
        optimizer.RMSProp(centered=True, multi_precision=True),
    ):
        updater = optimizer.get_updater(each)
        for i, dtype in enumerate(("float32", "float16")):
            updater(i, nd.ones((2, 3), dtype=dtype), nd.ones((2, 3), dtype=dtype))
        blobs += [updater.get_states(dump_optimizer=True), updater.get_states()]
    return blobs


def checkpoint_of(folder: str) -> gluon.Checkpoint:
    """The checkpoints of a small training, one of which is saved if there is none."""
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(np.zeros((4, 3))), 2, shuffle=True)
    return gluon.Checkpoint(folder, net, gluon.Trainer(net.collect_params(), "sgd"), loader)


def checkpoints() -> list[bytes]:
    """`rank-0.json` and `whole.json`, each with a byte before it that says which."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = checkpoint_of(folder)
        next(iter(checkpoint._data[0]))
        checkpoint.save(1)
        inside = Path(folder) / "step-00000001"
        texts = (inside / "rank-0.json").read_text(), (inside / "whole.json").read_text()
    state = json.loads(texts[0])
    state["python"][1] = state["python"][1][:3]  # mutations are to hit the rest as well
    state["numpy"]["state"]["key"] = state["numpy"]["state"]["key"][:3]
    return [b"r" + texts[0].encode(), b"r" + json.dumps(state).encode(), b"w" + texts[1].encode()]


def traces() -> list[bytes]:
    """A trace of this library, with all that one can hold; the heads of PyTorch's and JAX's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        with profiler.profile() as trace:
            x = nd.ones((64, 64))
            x.attach_grad()
            with autograd.record():
                y = nd.dot(x, x).sum()
            y.backward()
            y.asnumpy()
        trace.save(path)
        found = [path.read_bytes()]
    for file in sorted(TRACES.glob("*.json.gz")):
        tree = json.loads(gzip.decompress(file.read_bytes()))
        events = tree["traceEvents"]
        wanted = ("hlo_op", "PjitFunction", "cpu_op", "array.py", "[memory]")
        chosen = [e for e in events[60:] if any(word in str(e) for word in wanted)]
        tree["traceEvents"] = events[:60] + chosen[:60]
        found.append(json.dumps(tree).encode())
    return [*found, gzip.compress(found[0], 1)]


def notebooks() -> list[bytes]:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# A title"]},
        {"cell_type": "code", "outputs": [], "source": ["%matplotlib inline\n", "x = 1"]},
        {"cell_type": "code", "execution_count": 2, "metadata": {}, "source": "!ls\né"},
        {"cell_type": "code", "metadata": {}, "source": "%%time\nfor i in x:\n  %time i"},
    ]  # fmt: skip
    new = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}], "nbformat": 3}
    return [json.dumps(book).encode() for book in (new, old)]


def idx_files() -> list[bytes]:
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 4, 5, 5) + bytes(range(100))
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 4) + bytes([3, 1, 4, 1])
    plain = [images, labels]
    return [*plain, *(gzip.compress(each, 1) for each in plain)]


def images() -> list[bytes]:
    try:
        from PIL import Image
    except ImportError:
        return []
    pixels = np.random.default_rng(0).integers(0, 255, (9, 7, 3)).astype("uint8")
    files = []
    for kind, mode in (("JPEG", "RGB"), ("PNG", "RGB"), ("PNG", "P"), ("GIF", "L"), ("BMP", "RGB")):
        stream = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(stream, kind)
        files.append(stream.getvalue())
    return files
