"""gluon.data.SplitSampler: parts of a data set, their rest, and loaders that go on later."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from d2lmini import gluon, nd, random
from d2lmini.gluon import data as gdata
from d2lmini.gluon.data import DataLoader, SplitSampler

# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_are_what_they_say(shuffle):
    for length, k in itertools.product((0, 1, 2, 5, 8, 23), (1, 2, 3, 7)):
        samplers = [SplitSampler(length, k, r, shuffle=shuffle) for r in range(k)]
        parts = [list(sampler) for sampler in samplers]
        assert {len(part) for part in parts} == {len(samplers[0])}
        every = [i for part in parts for i in part]
        assert set(every) == set(range(length))
        assert len(every) == (length + -length % k if length else 0)
        all_but_last = [i for part in parts for i in part[:-1]]
        assert len(all_but_last) == len(set(all_but_last))


# -- loaders that go on ----------------------------------------------------------------------------


class Halves(gdata.Sampler):
    """A sampler of one's own: in each walk another half."""

    def __init__(self, n):
        self.n, self.half = n, 0

    def __iter__(self):
        self.half = 1 - self.half
        return iter(range(self.half, self.n, 2))

    def __len__(self):
        return self.n // 2


class Saved(Halves):
    def state_dict(self):
        return {"half": self.half}

    def load_state_dict(self, state):
        self.half = state["half"]


SAMPLERS = {
    "shuffle": lambda: {"shuffle": True, "batch_size": 3},
    "split": lambda: {"sampler": SplitSampler(14, 2, 1), "batch_size": 2},
    "rollover": lambda: {"shuffle": True, "batch_size": 3, "last_batch": "rollover"},
    "in order": lambda: {"batch_size": 4},
    "one's own": lambda: {"sampler": Saved(14), "batch_size": 2},
    "a list": lambda: {"batch_sampler": [[1, 2], [3], [9]]},
}


def loader_of(kind, workers, **options):
    """Of random pictures: every batch draws numbers of its own."""
    data = gdata.SimpleDataset([nd.full((2, 2, 3), i + 1.0) for i in range(14)])
    data = data.transform(lambda x: x * nd.random.uniform(shape=1), lazy=True)
    chosen = SAMPLERS.get(kind, SAMPLERS["shuffle"])()
    return DataLoader(data, num_workers=workers, **chosen, **options)


def seeded():
    random.seed(7)
    np.random.seed(7)


def next_of(loader, n):
    """The next n batches, over the ends of epochs; and the program draws between them."""
    found = []
    while len(found) < n:
        for batch in loader:
            found.append(batch.asnumpy().tobytes())
            nd.random.uniform(shape=1)
            if len(found) == n:
                return found
    return found


@pytest.mark.parametrize(
    ("kind", "workers"),
    [*[(kind, 0) for kind in SAMPLERS], ("shuffle", 2), ("split", 2), ("rollover", 2)],
)
def test_a_loader_goes_on(kind, workers, tmp_path):
    """Before its first batch, within an epoch, at its last batch, in the next one."""
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize()

    def begun(folder):
        seeded()
        loader = loader_of(kind, workers)
        return loader, gluon.Checkpoint(tmp_path / folder, net, data=loader)

    expected = next_of(begun("whole")[0], 10)
    for stop in (0, 3, 4, 5):
        loader, checkpoint = begun(f"{stop}")
        assert next_of(loader, stop) == expected[:stop]
        checkpoint.save(stop)
        loader, checkpoint = begun(f"{stop}")
        assert checkpoint.restore() == stop
        checkpoint.save(stop)  # at once: it is still where it was
        assert next_of(loader, 10 - stop) == expected[stop:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_over_epochs_goes_on(workers, tmp_path):
    """In the same epoch, whose end comes once, at whatever moment it was saved."""
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize()

    def program(folder, moments):
        """What happens up to so many moments, each of them saved."""
        np.random.seed(3)
        loader = DataLoader(list(range(7)), 3, shuffle=True, num_workers=workers)
        checkpoint = gluon.Checkpoint(folder, net, data=loader, keep=1)
        now = checkpoint.restore() or 0
        found = []

        def happens(what):
            found.append(what)
            checkpoint.save(now + len(found))
            return now + len(found) == moments

        for epoch in range(loader.epoch, 3):
            for batch in loader:
                if happens((epoch, *batch.asnumpy().tolist())):
                    return found
            if now + len(found) == 4 * epoch + 3 and happens((epoch, "ends")):
                return found
        return found

    whole = program(tmp_path / "whole", 12)
    assert [each[0] for each in whole] == [0] * 4 + [1] * 4 + [2] * 4
    for moment in (1, 3, 4, 5, 7):
        before = program(tmp_path / f"{moment}", moment)
        assert before + program(tmp_path / f"{moment}", 12) == whole


def test_a_sampler_that_does_not_say_how_to_go_on():
    for sampler in (Halves(6), iter([1])):
        loader = DataLoader(list(range(6)), 2, sampler=sampler)
        assert loader.state_dict() == {}
        next(iter(loader))
        with pytest.raises(TypeError, match=r"the order of a .* cannot be repeated; give it"):
            loader.state_dict()
