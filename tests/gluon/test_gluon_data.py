"""gluon.data: samplers, datasets, batches, and the DataLoader with threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from worlds import until

from d2lmini import context, cpu, engine, nd, random
from d2lmini.gluon import data as gdata
from d2lmini.gluon.data.dataloader import default_batchify_fn
from d2lmini.gluon.data.vision import transforms

WORKERS = [0, 1, 3]


def loaders() -> list[str]:
    """Threads of DataLoaders that are alive."""
    return [t.name for t in threading.enumerate() if t.name.startswith("d2lmini-loader")]


@pytest.fixture(autouse=True)
def no_threads_left():
    """Every loader's threads go with it."""
    yield
    if loaders():
        gc.collect()
    until(lambda: not loaders(), 10)


def numbers(batches) -> list[list]:
    return [b.asnumpy().tolist() for b in batches]


# -- datasets --------------------------------------------------------------------------------------


def test_array_dataset_joins_what_it_is_given():
    X, y = nd.arange(10).reshape((5, 2)), nd.arange(5)
    data = gdata.ArrayDataset(X, y, list("abcde"), np.arange(5))
    features, label, letter, number = data[1]
    assert features.asnumpy().tolist() == [2, 3]
    assert (label, type(label)) == (1.0, np.float32)  # one axis: kept as NumPy
    assert (letter, number, len(data)) == ("b", 1, 5)
    part = data[1:3]
    assert part[0].shape == (2, 2) and part[1].tolist() == [1, 2] and part[2] == ["b", "c"]
    assert gdata.ArrayDataset(np.arange(3))[2] == 2  # a single array: bare elements
    with pytest.raises(ValueError, match="array 0 has 5, array 1 has 2"):
        gdata.ArrayDataset(X, [1, 2])
    with pytest.raises(ValueError, match="at least 1 array"):
        gdata.ArrayDataset()
    with pytest.raises(IndexError):
        data[7]


# -- batches ---------------------------------------------------------------------------------------


def one_by_one(elements):
    """The default, without its short way."""
    return default_batchify_fn(elements)


def image_sets() -> dict:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (12, 6, 5, 3)).astype("uint8")
    y = rng.integers(0, 9, 12).astype("int32")
    prepare = transforms.Compose(
        [transforms.Resize((7, 4)), transforms.CenterCrop(3), transforms.ToTensor(),
         transforms.Normalize((0.1, 0.2, 0.3), 0.5)]
    )  # fmt: skip
    pairs = gdata.ArrayDataset(nd.array(X, dtype="uint8"), y)
    return {
        "numpy": gdata.ArrayDataset(X, y),
        "ndarray": pairs,
        "with a list": gdata.ArrayDataset(X, list(range(12))),
        "bare": gdata.SimpleDataset(X),
        "bare ndarray, one axis": gdata.SimpleDataset(nd.arange(12)),
        "float64": gdata.ArrayDataset(X / 3),
        "nested": gdata.ArrayDataset(gdata.ArrayDataset(X, y), y),
        "transformed": pairs.transform_first(prepare),
        "transformed, bare": gdata.SimpleDataset(nd.array(X, dtype="uint8")).transform_first(
            prepare
        ),
    }


@pytest.mark.parametrize("name", image_sets())
def test_the_short_way_gives_the_same_bits(name: str):
    data = image_sets()[name]
    order = [*range(0, len(data), 2), *range(1, len(data), 2)]
    short = gdata.DataLoader(data, 4, sampler=order)
    long = gdata.DataLoader(data, 4, sampler=order, batchify_fn=one_by_one)

    def flat(batch):
        return [batch] if isinstance(batch, nd.NDArray) else [x for b in batch for x in flat(b)]

    for a, b in zip(short, long, strict=True):
        assert type(a) is type(b)
        for x, y in zip(flat(a), flat(b), strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
            assert x.asnumpy().tobytes() == y.asnumpy().tobytes()


def test_the_short_way_is_taken_where_it_means_the_same_only():
    class Shifted(gdata.ArrayDataset):
        def __getitem__(self, i):
            return super().__getitem__(i) + 1

    class Louder(transforms.ToTensor):
        def hybrid_forward(self, F, x):
            return super().hybrid_forward(F, x) * 2

    X = np.arange(24, dtype="uint8").reshape(2, 2, 2, 3)
    images = gdata.SimpleDataset(nd.array(X, dtype="uint8"))
    assert gdata.dataset.gather(gdata.ArrayDataset(X), [1, 0]).shape == X.shape
    assert gdata.dataset.gather(Shifted(X), [1, 0]) is None
    assert gdata.dataset.gather([X], [0]) is None
    assert gdata.dataset.gather(images.transform_first(transforms.ToTensor()), [1]).ndim == 4
    assert gdata.dataset.gather(images.transform_first(Louder()), [1]) is None
    assert gdata.dataset.gather(images.transform_first(lambda x: x), [1]) is None
    watched = transforms.ToTensor()
    watched.register_forward_hook(lambda *_: None)
    assert gdata.dataset.gather(images.transform_first(watched), [1]) is None
    flat = gdata.SimpleDataset(nd.zeros((4, 3, 3)))  # elements that ToTensor refuses
    assert gdata.dataset.gather(flat.transform_first(transforms.ToTensor()), [1]) is None
    for outside in (-1, 2):
        assert gdata.dataset.gather(images, [0, outside]) is None
    got = numbers(gdata.DataLoader(Shifted(np.arange(4)), 2))
    assert got == [[1, 2], [3, 4]]


def test_what_cannot_be_a_batch():
    for elements, says in [
        ([nd.ones(2), np.ones(2)], "a batch of NDArray and ndarray cannot be joined"),
        ([np.ones(2), np.ones(3)], "elements of a batch have different shapes"),
        (["a", "b"], "a batch of str becomes a NumPy array of <U1, which is"),
    ]:
        with pytest.raises(TypeError, match=says):
            default_batchify_fn(elements)
    for data in (np.array(["a", "b"]), np.array(3.0), nd.arange(3), object(), nd.ones((0, 2))):
        assert gdata.dataset.gather(data, [0]) is None
    rows = nd.array([[1, 2], [3, 4]])
    for places in ([], [2], [-1]):
        assert gdata.dataset.gather(rows, places) is None
    assert numbers([gdata.dataset.gather(rows, [1, 0])]) == [[[3, 4], [1, 2]]]


# -- the loader ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [None, 0, 1, 7])
def test_the_slowest_first_keeps_the_order(prefetch: int | None):
    """Later batches are ready earlier, and wait for their turn."""

    def get(i: int) -> int:
        time.sleep(0.003 * (12 - i))
        return i

    data = gdata.SimpleDataset(list(range(12))).transform(get)
    loader = gdata.DataLoader(data, 1, num_workers=4, prefetch=prefetch)
    assert numbers(loader) == [[i] for i in range(12)]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_no_more_than_prefetch_in_flight(prefetch: int):
    begun = []
    data = gdata.SimpleDataset(list(range(20))).transform(lambda x: begun.append(x) or x)
    epoch = iter(gdata.DataLoader(data, 1, num_workers=2, prefetch=prefetch))
    for used in range(5):
        until(lambda used=used: len(begun) == used + prefetch)
        time.sleep(0.01)
        assert len(begun) == used + prefetch
        next(epoch)
        until(lambda used=used: len(begun) == used + 1 + prefetch)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_shuffling_and_random_transforms_repeat_with_the_seeds(num_workers: int):
    """The same bits with any number of workers, though threads draw in any order."""
    X = nd.array(np.arange(16 * 12).reshape(16, 2, 2, 3) % 256, dtype="uint8")
    vary = transforms.Compose(
        [transforms.RandomFlipLeftRight(), transforms.RandomResizedCrop(3),
         transforms.ToTensor()]
    )  # fmt: skip
    data = gdata.ArrayDataset(X, nd.arange(16)).transform_first(vary)

    def epochs(n: int) -> list[bytes]:
        np.random.seed(1)
        random.seed(2)
        loader = gdata.DataLoader(data, 3, shuffle=True, num_workers=n)
        seen = []
        for _ in range(2):
            for x, y in loader:
                # What training draws in between is its own.
                seen += [x.asnumpy().tobytes(), y.asnumpy().tobytes()]
                seen.append(nd.random.uniform(shape=3).asnumpy().tobytes())
        return seen

    first = epochs(0)
    assert len(set(first)) == len(first)
    assert epochs(num_workers) == first


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_error_comes_in_its_turn_with_the_place_where_it_arose(num_workers: int):
    def fails_at_five(x: int) -> int:
        if x == 5:
            raise KeyError("boo")
        return x

    loader = gdata.DataLoader(
        gdata.SimpleDataset(list(range(9))).transform(fails_at_five), 2, num_workers=num_workers
    )
    for _ in range(2):  # the loader stays usable
        epoch = iter(loader)
        assert numbers([next(epoch), next(epoch)]) == [[0, 1], [2, 3]]
        with pytest.raises(KeyError, match="boo") as caught:
            next(epoch)
        assert "fails_at_five" in [entry.name for entry in caught.traceback]
        with pytest.raises(StopIteration):
            next(epoch)


STOPPING = {
    "the dataset": {"data": lambda stop: gdata.SimpleDataset([0, 1, 2, 3]).transform(stop)},
    "batchify_fn": {"batchify_fn": lambda stop: lambda rows: [stop(x) for x in rows]},
    "the fast path": {"data": lambda stop: _Stops(np.arange(4))},
}


class _Stops(gdata.ArrayDataset):
    def _whole_batch(self, indices):
        return [next(iter(())) for i in indices if i == 2] or super()._whole_batch(indices)

    def __getitem__(self, i):
        return next(iter(())) if i == 2 else super().__getitem__(i)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("where", STOPPING)
def test_stop_iteration_is_an_error_and_no_end(where: str, num_workers: int):
    def stop(x: int) -> int:
        return x if x < 2 else next(iter(()))

    made = {name: make(stop) for name, make in STOPPING[where].items()}
    data = made.pop("data", gdata.SimpleDataset([0, 1, 2, 3]))
    epoch = iter(gdata.DataLoader(data, 1, num_workers=num_workers, **made))
    next(epoch), next(epoch)
    with pytest.raises(RuntimeError, match="raised StopIteration in batch 2") as caught:
        next(epoch)
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_worker_that_hangs_is_a_timeout():
    go = threading.Event()
    data = gdata.SimpleDataset(list(range(3))).transform(lambda x: go.wait(30) or x)
    loader = gdata.DataLoader(data, 1, num_workers=1, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"batch 0 did not come within 0.05 s.*num_workers=0"):
        next(iter(loader))
    go.set()
    assert len(list(loader)) == 3  # with new threads


def test_leaving_early_leaks_nothing():
    made: list = []

    class Element:
        pass

    def make(x):
        element = Element()
        made.append(weakref.ref(element))
        return element

    data = gdata.SimpleDataset(list(range(40))).transform(make)
    loader = gdata.DataLoader(data, 1, num_workers=2, prefetch=8, batchify_fn=lambda rows: rows)
    for _ in range(3):
        for _batch in loader:
            break
        del _batch
    # Its threads are done with the last epoch when they have done something new.
    assert len(list(loader)) == 40
    gc.collect()
    until(lambda: not any(ref() for ref in made))
    del loader
    until(lambda: not loaders())


def test_pinned_memory():
    X, y = gdata.ArrayDataset(np.zeros((4, 2)), np.arange(4)), [nd.ones(2)] * 4
    for num_workers in (0, 1):
        loader = gdata.DataLoader(
            gdata.ArrayDataset(X, y), 2, num_workers=num_workers, pin_memory=True
        )
        for (a, b), c in loader:
            assert {a.context, b.context, c.context} == {context.cpu_pinned(0)}
    assert next(iter(gdata.DataLoader(X, 2)))[0].context == cpu()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "batch_size must be specified unless batch_sampler is specified"),
        ({"batch_size": 2, "shuffle": True, "sampler": [0]}, "shuffle must not be specified if"),
        ({"batch_size": 2, "batch_sampler": [[0]]}, "if batch_sampler is specified"),
        ({"shuffle": True, "batch_sampler": [[0]]}, "if batch_sampler is specified"),
        ({"last_batch": "keep", "batch_sampler": [[0]]}, "if batch_sampler is specified"),
        ({"batch_size": 2, "timeout": 0}, "timeout must be positive, given 0"),
        ({"batch_size": 2, "last_batch": "drop"}, "'keep', 'discard', or 'rollover'"),
    ],
)
def test_contradictions_are_refused(arguments: dict, words: str):
    with pytest.raises(ValueError, match=words):
        gdata.DataLoader([1, 2, 3], **arguments)


def test_workers_and_the_engine_get_along(engine_kind: str):
    """Transforms push operations from several threads while the program computes with batches."""
    data = gdata.SimpleDataset(list(range(64))).transform(lambda i: nd.ones((50, 50)) * i)
    total = nd.zeros(1)
    for batch in gdata.DataLoader(data, 8, num_workers=3):
        total += batch.mean(axis=(1, 2)).sum()
    assert total.asscalar() == sum(range(64))
    assert engine.stats().pending == 0
