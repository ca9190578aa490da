"""Data as the real MXNet 1.9.1 prepares it: orders, batches, transforms (`make test-mxnet`)."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Oracle

import d2lmini


def prepare(mx):
    """Orders, batches and pictures by name; `mx` is either library."""
    out = {}
    gdata, nd = mx.gluon.data, mx.nd
    T = gdata.vision.transforms
    X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)

    # -- orders
    np.random.seed(3)
    sampler = gdata.RandomSampler(20)
    out["RandomSampler"] = np.array([list(sampler), list(sampler)])
    for word in ("keep", "discard", "rollover"):
        batches = gdata.BatchSampler(gdata.SequentialSampler(10, 5), 4, word)
        out["BatchSampler " + word] = np.array(
            [i for _ in range(4) for batch in batches for i in [len(batches), -1] + batch]
        )
        np.random.seed(5)
        loader = gdata.DataLoader(gdata.ArrayDataset(X, nd.array(Y)), 3, True, last_batch=word)
        out["DataLoader " + word] = np.concatenate(
            [y.asnumpy() for _ in range(4) for _, y in loader]
        )
    for handle in ("pad", "discard", "roll_over"):
        for shuffle in (False, True):
            np.random.seed(7)
            batches = mx.io.NDArrayIter({"x": X}, Y, 3, shuffle, handle)
            seen = []
            for k in range(5):
                for i, b in enumerate(batches):
                    seen += [b.pad, *b.label[0].asnumpy(), *b.data[0].asnumpy()[:, 0]]
                    if k == 3 and i == 1:
                        break
                seen += [-1, batches.cursor]
                batches.reset() if k < 4 else batches.hard_reset()
                seen += [batches.cursor, *batches.idx]
            out[f"NDArrayIter {handle} {shuffle}"] = np.array(seen)

    # -- batches
    batchify = mx.gluon.data.dataloader.default_batchify_fn
    for i, elements in enumerate(
        [
            [1, 2],
            [1.5, 2],
            [np.float32(1)],
            [np.uint8(3)],
            [[1, 2], [3, 4]],
            [True, False],
            [np.arange(3.0)] * 2,
            [nd.ones(3, dtype="int32")] * 2,
            [np.float16(2)],
        ]
    ):
        out[f"batch {i}"] = batchify(elements).asnumpy()

    # -- transforms
    rng = np.random.RandomState(0)
    image = nd.array(rng.randint(0, 256, (11, 14, 3)), dtype="uint8")
    floats = image.astype("float32")
    for kind, x in (("uint8", image), ("float32", floats)):
        for interpolation in range(2):
            for size in (5, (9, 6), (14, 22), (28, 22), (7, 11), (30, 5), (20, 20)):
                y = T.Resize(size, interpolation=interpolation)(x)
                out[f"pixels {kind} Resize {size} {interpolation}"] = y.asnumpy()
        for name, transform in {
            "CenterCrop 6": T.CenterCrop(6),
            "CenterCrop (8, 9)": T.CenterCrop((8, 9)),
            "CenterCrop larger": T.CenterCrop((20, 16)),
            "CenterCrop wide": T.CenterCrop((40, 3)),
            "Resize keep": T.Resize(8, keep_ratio=True),
            "Resize more": T.Resize(30, keep_ratio=True),
            "ToTensor": T.ToTensor(),
        }.items():
            out[f"pixels {kind} {name}"] = transform(x).asnumpy()
        both = nd.stack(x, nd.flip(x, axis=0))
        out[f"pixels {kind} batch"] = T.ToTensor()(T.Resize((5, 4))(both)).asnumpy() * 255
    tensor = T.ToTensor()(image)
    out["Normalize"] = T.Normalize((0.1, 0.2, 0.3), (0.5, 1.5, 2.5))(tensor).asnumpy()
    out["Normalize one"] = T.Normalize(0.1, 0.5)(nd.stack(tensor, tensor)).asnumpy()
    return out


@pytest.fixture(scope="module")
def theirs(mxnet: Oracle) -> dict[str, np.ndarray]:
    return mxnet.ask(prepare)


def test_the_same_program_sees_the_same(theirs):
    ours = prepare(d2lmini)
    assert ours.keys() <= theirs.keys() and len(ours) > 50
    problems = []
    for name, mine in ours.items():
        want = theirs[name]
        # OpenCV rounds bytes at several places on the way, we do once.
        tolerance = 1.0 if name.startswith("pixels uint8") else 2e-3 if "pixels" in name else 1e-6
        if name == "pixels uint8 batch":
            tolerance = 1.001
        if mine.shape != want.shape or mine.dtype != want.dtype:
            problems.append(f"{name}: {mine.shape} {mine.dtype}, MXNet {want.shape} {want.dtype}")
        elif (worst := np.abs(mine.astype("float64") - want).max(initial=0)) > tolerance:
            problems.append(f"{name}: differs by {worst}")
    assert not problems, "\n".join(problems)
