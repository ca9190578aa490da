"""The model of a sum over processes, and of a training step around it: its counts are those of the
algorithms, its fit finds what was put in, its step is what a schedule says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d2lmini import autograd, d2l, engine, gluon, nd, profile
from d2lmini.d2l import cluster
from d2lmini.distributed import alpha_beta, dist
from d2lmini.distributed.cluster import Gradient, Link, Work, all_reduce_s, rounds_of
from d2lmini.engine.core import Var
from d2lmini.gluon import nn

# -- the ways, carried out -------------------------------------------------------------------------


class Machines:
    """n processes with an array each. In a round some send, to others, pieces of theirs."""

    def __init__(self, n):
        self.arrays = [np.arange(24 * n) * 10.0**r for r in range(n)]
        self.total = sum(self.arrays)
        self.rounds = 0
        self.sends = 0
        self.passed = 0

    def round(self, *messages):
        """(from, to, piece, add it up or take it) of each; pieces are slices."""
        self.rounds += 1
        n = len(self.arrays)
        carried = [self.arrays[a][piece].copy() for a, _, piece, _ in messages]
        counts, sizes = np.zeros((2, n)), np.zeros((2, n))  # out of each, and into each
        for (a, b, piece, add), values in zip(messages, carried):
            self.arrays[b][piece] = self.arrays[b][piece] + values if add else values
            for way, end in enumerate((a, b)):
                counts[way, end] += 1
                sizes[way, end] += values.size
        self.sends += counts.max()  # all wait for the one that has most to do
        self.passed += sizes.max()

    def found(self):
        """(rounds, passes, sends), when all have the sum."""
        for array in self.arrays:
            np.testing.assert_array_equal(array, self.total)
        return self.rounds, self.passed / self.total.size, self.sends


def pieces(n, size):
    return [slice(i * size // n, (i + 1) * size // n) for i in range(n)]


def ring(n):
    they = Machines(n)
    parts = pieces(n, they.total.size)
    for k in range(n - 1):
        they.round(*((r, (r + 1) % n, parts[(r - k) % n], True) for r in range(n)))
    for k in range(n - 1):
        they.round(*((r, (r + 1) % n, parts[(r + 1 - k) % n], False) for r in range(n)))
    return they.found()


def halving(n):
    they = Machines(n)
    height = int(math.log2(n))
    all_of_it = slice(0, they.total.size)
    odd = [(r, r - 2**height) for r in range(2**height, n)]
    if odd:
        they.round(*((r, to, all_of_it, True) for r, to in odd))
    mine = [(0, they.total.size)] * 2**height
    for k in range(height):
        sent = []
        for r, (a, b) in enumerate(mine[:]):
            half = (a + b) // 2
            upper = bool(r >> k & 1)
            sent.append((r, r ^ 1 << k, slice(a, half) if upper else slice(half, b), True))
            mine[r] = (half, b) if upper else (a, half)
        they.round(*sent)
    for k in reversed(range(height)):
        they.round(*((r, r ^ 1 << k, slice(*mine[r]), False) for r in range(2**height)))
        mine = [
            (min(mine[r][0], mine[r ^ 1 << k][0]), max(mine[r][1], mine[r ^ 1 << k][1]))
            for r in range(2**height)
        ]
    if odd:
        they.round(*((to, r, all_of_it, False) for r, to in odd))
    return they.found()


def tree(n):
    they = Machines(n)
    all_of_it = slice(0, they.total.size)
    steps = [2**k for k in range(math.ceil(math.log2(n)))]
    for step in steps:
        senders = range(step, n, 2 * step)
        they.round(*((r, r - step, all_of_it, True) for r in senders))
    for step in reversed(steps):
        they.round(*((r - step, r, all_of_it, False) for r in range(step, n, 2 * step)))
    return they.found()


def server(n):
    they = Machines(n)
    all_of_it = slice(0, they.total.size)
    they.round(*((r, 0, all_of_it, True) for r in range(1, n)))
    they.round(*((0, r, all_of_it, False) for r in range(1, n)))
    return they.found()


def shares(n):
    they = Machines(n)
    parts = pieces(n, they.total.size)
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    they.round(*((a, b, parts[b], True) for a, b in pairs))
    they.round(*((a, b, parts[a], False) for a, b in pairs))
    rounds, passes, sends = they.found()
    agreed = math.ceil(math.log2(n))  # a few bytes each
    return rounds + agreed, passes, sends + agreed


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("way", [ring, halving, tree, server, shares])
def test_counts_are_those_of_the_algorithm(way, n):
    assert rounds_of(way.__name__, n) == pytest.approx(way(n))


@pytest.mark.parametrize("way", cluster.WAYS)
def test_sums_of_one_cost_nothing_and_none_passes_fewer_bytes_than_the_ring(way):
    link = Link(1e-3, 1e-8)
    assert all_reduce_s(1e6, 1, link, way) == 0
    for n in (2, 7, 64):
        assert rounds_of(way, n).passes >= rounds_of("ring", n).passes * (1 - 1e-12)
        assert all_reduce_s(2e6, n, link, way) > all_reduce_s(1e6, n, link, way)


def test_what_the_sender_is_busy_with_counts_where_messages_are_many():
    free, busy = Link(1e-4, 1e-9), Link(1e-4, 1e-9, send_s=1e-5)
    cost = [all_reduce_s(1e4, n, busy) - all_reduce_s(1e4, n, free) for n in (2, 1024)]
    assert cost == pytest.approx([3e-5, (2 * 1023 + 10) * 1e-5])


def test_within_a_machine_and_between_machines():
    inside, link = Link(1e-5, 1e-10), Link(1e-3, 1e-8)
    options = {"way": "ring", "per_node": 4, "inside": inside}
    assert all_reduce_s(1e6, 4, link, **options) == all_reduce_s(1e6, 4, inside, "ring")
    assert all_reduce_s(1e6, 2, link, **options) == all_reduce_s(1e6, 2, inside, "ring")
    both = all_reduce_s(1e6, 4, inside, "ring") + all_reduce_s(1e6, 3, link, "ring")
    assert all_reduce_s(1e6, 12, link, **options) == pytest.approx(both)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rounds_of("rings", 2), "'rings' is unknown; there are ring, halving"),
        (lambda: rounds_of("ring", 0), "over 1 process or more, got n = 0"),
        (lambda: rounds_of("ring", 2.5), "got n = 2.5"),
        (lambda: all_reduce_s(1, 8, Link(1, 1), per_node=4), "got inside=None and n=8"),
        (lambda: all_reduce_s(1, 6, Link(1, 1), "ring", 4, Link(1, 1)), "that are full"),
        (lambda: cluster.fit([1, 1], [1, 2]), "got 1 sizes and n = 2"),
        (lambda: cluster.fit([1, 2], [1, 2], n=1), "got 2 sizes and n = 1"),
        (lambda: cluster.fit([1, 2], [0, 2]), "take no time, or less than sending: 0.0 s"),
    ],
)
def test_errors_say_what_was_expected(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# -- the fit ---------------------------------------------------------------------------------------

MEASURED = [1e3, 1e4, 1e5, 1e6] * 9


@pytest.mark.parametrize("way", cluster.WAYS)
@pytest.mark.parametrize("n", [2, 4])
def test_a_fit_finds_the_link(way, n):
    link = Link(2e-4, 3e-9, 1e-5)
    times = [all_reduce_s(size, n, link, way) for size in MEASURED]
    found = cluster.fit(MEASURED, times, n, way, send_s=1e-5)
    assert found.link == pytest.approx(link)
    assert found.draws == (found.link,) * len(found.draws)
    assert found.alpha_band_s == pytest.approx((2e-4, 2e-4))


def test_a_fit_of_noisy_times_has_the_truth_in_its_band():
    link, within = Link(2e-4, 3e-9), 0
    for seed in range(20):
        chance = np.random.default_rng(seed)
        times = [all_reduce_s(size, 2, link) * chance.lognormal(0, 0.1) for size in MEASURED]
        times[5] *= 50  # one was held up
        found = cluster.fit(MEASURED, times)
        assert found.link == pytest.approx(link, rel=0.15)
        for low, truth, high in (
            (found.alpha_band_s[0], 2e-4, found.alpha_band_s[1]),
            (found.beta_band_s[0], 3e-9, found.beta_band_s[1]),
        ):
            within += low <= truth <= high
            assert high < 1.4 * low
    assert within >= 28, "90 of 100 would be 36 of 40"
    assert str(found).startswith(f"{found.link} (in 90 of 100 draws ")
    assert found == cluster.fit(MEASURED, times), "the draws are the same each time"


def test_a_fit_has_no_price_below_zero():
    falling = cluster.fit([1e3, 1e6], [2e-3, 1e-3])
    assert falling.beta_s == 0 and falling.alpha_s > 0 and falling.link.gb_per_s == math.inf
    steep = cluster.fit([1e3, 1e6], [1e-7, 1e-3])
    assert steep.alpha_s == 0 and steep.beta_s > 0


# -- a step ----------------------------------------------------------------------------------------

WORK = cluster.work_of([(0.01, 0.02, 400_000)] * 5, update_s=0.001)
LINK = Link(1e-3, 1e-8)
LAST_FIRST = [[4], [3, 2], [1, 0]]


def test_layers_give_their_gradients_from_the_last_to_the_first():
    assert WORK.compute_s == pytest.approx(0.15)
    assert [g.ready_s for g in WORK.gradients] == pytest.approx([0.15, 0.13, 0.11, 0.09, 0.07])
    later = WORK.later(0.15)
    assert later.compute_s == pytest.approx(0.3)
    assert [g.ready_s for g in later.gradients] == pytest.approx([0.3, 0.26, 0.22, 0.18, 0.14])
    assert [g.needed_s for g in WORK.gradients] == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])
    assert [g.needed_s for g in later.gradients] == pytest.approx([0, 0.02, 0.04, 0.06, 0.08])


def test_who_waits_for_several_sees_the_latest_of_everything():
    one = Work(0.3, (Gradient(8, 0.3, 0.01), Gradient(4, 0.1, 0.02)), 0.02)
    two = Work(0.2, (Gradient(8, 0.2, 0), Gradient(4, 0.15, 0.04)), 0.03)
    both = Work(0.3, (Gradient(8, 0.3, 0.01), Gradient(4, 0.15, 0.04)), 0.03)
    assert Work.slowest([one, two]) == both and Work.slowest([one]) == one


def test_one_process_sends_nothing():
    found = cluster.step(WORK, 1, LINK)
    assert (found.sent, found.busy_s, found.stalls) == ((), 0, ())
    assert found.alone_s == pytest.approx(0, abs=1e-12)
    assert found.seconds == pytest.approx(0.151)


def test_buckets_travel_one_after_the_other_when_they_are_ready():
    found = cluster.step(WORK, 2, LINK, buckets=LAST_FIRST, wait_for_all=True)
    # The first bucket holds one gradient of 400 kB, the others two: 0.003 + 0.004 s and 0.011 s.
    assert [nbytes for nbytes, _, _ in found.sent] == [400_000, 800_000, 800_000]
    times = [time for _, begin, end in found.sent for time in (begin, end)]
    assert times == pytest.approx([0.07, 0.077, 0.11, 0.121, 0.15, 0.161])
    assert found.busy_s == pytest.approx(0.029)
    assert found.alone_s == pytest.approx(0.011)
    assert found.seconds == pytest.approx(0.162)


def test_a_link_that_is_busy_is_waited_for():
    thin, options = Link(0, 1e-7), {"buckets": LAST_FIRST, "wait_for_all": True}
    found = cluster.step(WORK, 2, thin, **options)
    ends = [0.07 + 0.04, 0.11 + 0.08, 0.19 + 0.08]
    assert [end for _, _, end in found.sent] == pytest.approx(ends)
    after = cluster.step(WORK, 2, thin, overlap=False, **options)
    assert after.seconds == pytest.approx(0.15 + 0.2 + 0.001)
    options["buckets"] = [[4], [3], [2], [1], [0]]
    single = cluster.step(WORK, 2, thin, **options)
    assert single.seconds == pytest.approx(found.seconds)  # no price for a message


def test_the_next_forward_goes_on_as_far_as_it_has_its_weights():
    """Two layers, one of which is updated late: forward comes to it when half is done."""
    work = cluster.work_of([(1.0, 1.0, 10), (1.0, 1.0, 30)])
    link = Link(0, 0.1)  # the buckets take 1 s and 3 s
    first = cluster.step(work, 2, link, buckets=[[1], [0]], count=2)
    # Ready at 3 and 4; there at 6 and 7: the next forward waits 3 s for its first layer, and so on.
    assert first.stalls == ((0, 3),) and first.after_s == 4
    assert first.sent == ((30, 6, 9), (10, 9, 10)) and first.seconds == 14 / 2
    turned = cluster.step(work, 2, link, buckets=[[0], [1]], count=2)
    # The first layer's is ready at 4, there at 5; the other there at 8: the forward has begun.
    assert turned.stalls == ((0, 1), (2, 2)) and turned.seconds == 15 / 2
    assert cluster.step(work, 2, link, buckets=[[1], [0]], count=1).seconds == 7
    many = cluster.step(work, 2, link, buckets=[[1], [0]], wait_for_all=True)
    assert many.seconds == pytest.approx(7) == many.after_s


def test_more_messages_cost_more_where_each_has_its_price():
    dear = Link(0.02, 0)
    single = cluster.step(WORK, 2, dear, buckets=[[4], [3], [2], [1], [0]])
    assert single.seconds > cluster.step(WORK, 2, dear).seconds


def test_all_wait_for_the_slowest():
    found = cluster.step(WORK, 1000, Link(0, 0), sigma_s=0.01)
    assert found.work.compute_s == pytest.approx(0.15 + 0.01 * math.sqrt(2 * math.log(1000)))
    slowest = np.random.default_rng(0).normal(0.15, 0.01, (2000, 1000)).max(1).mean()
    assert slowest < found.work.compute_s < 1.03 * slowest


def test_scaling_has_bands_and_efficiency():
    works = [WORK.later(s) for s in (0, 0.01, 0.02, 0.03)]
    found = cluster.scaling(works, LINK, (1, 2, 64), way="ring")
    assert [each.n for each in found] == [1, 2, 64]
    assert all(each.low_s <= each.seconds <= each.high_s for each in found)
    assert found.at(1).efficiency == pytest.approx(1, rel=0.05)
    assert found.at(1).low_s == pytest.approx(0.151)
    assert found.at(1).high_s == pytest.approx(0.181)
    assert found.at(64).efficiency < found.at(2).efficiency < 1
    with pytest.raises(KeyError, match="8 processes: predicted were 1, 2, 64"):
        found.at(8)
    assert len(str(found).splitlines()) == 4
    # Of 64 somebody is the slowest of all; of two, in 7 of 16 draws.
    slowest = cluster.step(works[3], 64, LINK, "ring").seconds
    assert found.at(64).low_s == found.at(64).high_s == pytest.approx(slowest)
    assert found.at(2).low_s < found.at(2).seconds <= found.at(2).high_s
    known = cluster.scaling(WORK, LINK, (2,)).at(2)
    assert known.low_s == known.seconds == known.high_s == cluster.step(WORK, 2, LINK).seconds


def test_a_link_that_was_fitted_makes_the_band():
    times = [all_reduce_s(s, 2, LINK) * (1 + i % 3 / 5) for i, s in enumerate(MEASURED)]
    found = cluster.scaling(WORK, cluster.fit(MEASURED, times), (2, 4096))
    two, many = found
    assert two.low_s < two.seconds < two.high_s
    assert many.high_s - many.low_s > two.high_s - two.low_s


# -- from a trace ----------------------------------------------------------------------------------


def net_of(layers, units=4):
    net = nn.Sequential(prefix="n_")
    with net.name_scope():
        for _ in range(layers):
            net.add(nn.Dense(units, in_units=units))
    net.initialize()
    return net


def train(net, trainer, steps, units=4):
    x = nd.ones((2, units))
    for _ in range(steps):
        with autograd.record():
            l = net(x).sum()
        l.backward()
        trainer.step(2)


def test_works_of_a_trace():
    """On a clock on which a product takes a second, an update a tenth, and all else nothing."""
    times = {"FullyConnected": 1e6, "dot": 1e6, "_fused_update": 1e5}
    with engine.stepped(workers=1, times=lambda task: times.get(task.name, 0)):
        net = net_of(3)
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        with profile() as trace:
            train(net, trainer, 4)
    works = cluster.works_of(trace, trainer)
    assert len(works) == 3
    # Forward 3 s; the last layer: two products, of which that for the gradient is one; ...
    for work in works:
        assert work.compute_s == pytest.approx(8)
        assert work.update_s == pytest.approx(0.1)
        assert [g.nbytes for g in work.gradients] == [64, 16] * 3
        weights = [g.ready_s for g in work.gradients[::2]]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] == pytest.approx(8) and 4 <= weights[2] <= 5
        assert [g.needed_s for g in work.gradients] == pytest.approx([0, 0, 1, 1, 2, 2])
    with profile() as trace:
        train(net, trainer, 1)
    with pytest.raises(ValueError, match="two steps of training or more"):
        cluster.works_of(trace, trainer)


class Alone:
    """The world as one process sees it, which notes what it was to agree upon."""

    rank = 0

    def __init__(self, size=1):
        self.size = size
        self.order = Var()
        self.plans = []

    def agree(self, plan):
        self.plans.append(plan)

    def all_reduce(self, sources, targets, half):
        for x, copies in zip(sources, targets):
            for target in copies:
                np.copyto(target, x)

    def broadcast(self, arrays):
        pass


def test_gradients_travel_in_the_order_of_the_net(monkeypatch):
    """Not in that of names, where dense10 comes before dense2; and the model knows."""
    world = Alone()
    monkeypatch.setattr(dist, "world", lambda: world)
    net = net_of(12)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    with profile() as trace:
        train(net, trainer, 2)
    sums = [[name for name, _ in plan[1:]] for plan in world.plans if plan[0].startswith("sum up")]
    last_first = [f"n_dense{i}_{what}" for i in reversed(range(12)) for what in ("bias", "weight")]
    assert sums == [last_first] * 2  # one bucket a step
    alone = gluon.Trainer(net.collect_params(), "sgd", kvstore=None)
    with profile() as trace:
        train(net, alone, 2)
    ready = [g.ready_s for g in cluster.works_of(trace, alone)[0].gradients[::2]]
    assert ready[0] > ready[2] > ready[10] > ready[11]


@pytest.mark.parametrize("gb_s", [10, 1, 0.1, 0.03])
def test_the_model_is_the_library_on_a_clock(gb_s, monkeypatch):
    """Steps of a net of ten layers with a link between two: what the engine does with them, on a
    clock on which a product takes 1 ms and a sum what the model says, is what the model says."""
    link = Link(2e-4, 1e-9 / gb_s)
    times = {"FullyConnected": 1e3, "dot": 1e3}

    def time_us(task):
        if task.name == "AllReduce":  # with two processes as many bytes pass as the array has
            return 1e6 * all_reduce_s(task.nbytes, 2, link)
        return times.get(task.name, 0)

    monkeypatch.setattr(dist, "world", lambda: Alone(2))
    with engine.stepped(workers=1, times=time_us):
        net = net_of(10, 256)
        alone = gluon.Trainer(net.collect_params(), "sgd", kvstore=None)
        with profile() as trace:
            train(net, alone, 3, 256)
        work = cluster.works_of(trace, alone)[0]
        trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
        nd.waitall()
        with profile() as trace:
            train(net, trainer, 5, 256)
    found_s = (
        max(operation.ended_ns for operation in trace.operations) - trace.operations[0].began_ns
    )
    foreseen = cluster.step(work, 2, link, count=5)
    assert 5 * foreseen.seconds == pytest.approx(1e-9 * found_s, rel=0.02)


@pytest.mark.stress  # a minute, on a machine that has nothing else to do
@pytest.mark.parametrize("n", [2, 4])
def test_steps_of_several_processes_are_foreseen(n):
    """Layers that sleep, five links: at least three of them within a fifth."""
    pytest.importorskip("mpi4py", reason="there is no mpi4py: pip install 'd2lmini[dist]'")
    program = Path(__file__).parents[1] / "benchmarks" / "scaling.py"
    done = subprocess.run(
        [sys.executable, str(program), "-n", str(n), "--rounds", "2", "--net", "sleeping",
         "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 5
    assert sum(0.8 <= row["ratio"] <= 1.25 for row in rows) >= 3, done.stdout


def test_the_bands_hold_ninety_of_a_hundred_and_d2l_has_the_module():
    assert alpha_beta.band(range(101)) == (5.0, 95.0)
    assert d2l.cluster is cluster
    assert set(cluster.__all__) <= set(dir(cluster))
