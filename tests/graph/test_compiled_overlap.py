"""Backward of compiled nets in parts: the same bits, and late layers' gradients leave early.

That a sum is taken while backward goes on is proved by holding backward up until it was.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from gpu_kinds import some_gpus
from graphs import Graph, graphs
from hybrid_nets import NETS, row
from hypothesis import assume, given
from hypothesis import strategies as st

from d2lmini import (
    MXNetError,
    autograd,
    cpu,
    engine,
    gluon,
    init,
    instrument,
    nd,
    random,
    sym,
    virtual_gpus,
)
from d2lmini.device.errstate import run_quietly
from d2lmini.gluon import nn
from d2lmini.gluon.flatten_args import flatten
from d2lmini.graph import fusion, partitions, program_node, rows
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.ir import topological
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program
from d2lmini.graph.recompute import cut_graph, residuals
from d2lmini.ops.core import registry


@pytest.fixture
def finely(monkeypatch):
    """Programs of any length have parts."""
    monkeypatch.setattr(partitions, "LEAST_US", 0.0)


@pytest.fixture
def gpus():
    """Two devices; of two threads each, so that one that is held up is no hindrance."""
    with virtual_gpus(2, threads=2, link_gb_s=100) as found:
        yield found
        nd.waitall()


# -- where programs are cut ------------------------------------------------------------------------


def test_cuts_are_near_even_shares():
    assert partitions.cuts([400.0] * 6, {0, 1, 2, 3, 4, 5}, 3) == [2, 4, 6]
    assert partitions.cuts([400.0] * 6, {1, 2, 5}, 6) == [2, 3, 6]  # behind what finishes something
    assert partitions.cuts([100.0] * 6, {0, 1, 2, 3, 4, 5}, 6) == [
        3,
        6,
    ]  # not shorter than LEAST_US
    assert partitions.cuts([100.0] * 5, {0, 1, 2, 3, 4}, 6) == [5]
    assert partitions.cuts([400.0, 400.0, 0.0], {0, 1}, 6) == [1, 3]  # the rest finishes nothing


@given(st.lists(st.tuples(st.floats(0, 2000), st.booleans()), min_size=1), st.integers(2, 8))
def test_cuts_cover_all_and_every_part_finishes_something(statements, most):
    times = [time for time, _ in statements]
    finished = {i for i, (_, ends) in enumerate(statements) if ends} | {0}
    ends = partitions.cuts(times, finished, most)
    assert ends[-1] == len(times) and len(ends) <= most
    for begin, end in zip([0, *ends], ends, strict=False):
        assert begin < end and finished & {*range(begin, end)}
        assert len(ends) == 1 or sum(times[begin:end]) >= partitions.LEAST_US - 1e-6
    assert all(end - 1 in finished for end in ends[:-1])


def backward_of(graph: Graph) -> Graph:
    """The gradients of a graph as a graph of their own, as backward computes them."""
    joint = graph.with_gradients().outputs
    outputs, grads = joint[: len(graph.outputs)], joint[len(graph.outputs) :]
    assume(grads)
    _, grads = cut_graph(grads, residuals(outputs, grads))
    variables = [node for node in topological(grads) if node.op is None]
    return Graph(variables, grads, graph.training)


def programs(graph: Graph, groups: bool) -> tuple[Program, Program]:
    """The program in one part, and cut wherever that is allowed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "LEAST_US", 0.0)
        if groups:
            patch.setattr(fusion, "SMALLEST", 2)
            patch.setattr(rows, "ONE_BLOCK", 0)
            patch.setattr(rows, "BLOCK_BYTES", 32)
        arenas = Arenas(cpu(), True)
        made = [
            Program("net", graph.variables, graph.outputs, None, arenas, parts) for parts in (1, 99)
        ]
    return made[0], made[1]


def spoil(array: np.ndarray) -> None:
    """What nobody may read any more. (Of numbers, NaN.)"""
    array.reshape(-1).view(np.uint8)[...] = 0xFF


@given(graphs(), st.booleans())
def test_parts_give_the_bits_of_the_whole(graph, groups):
    """Between two parts everything is spoilt that, as the parts say, nobody needs: memory of the
    arena whose life is over or has not begun, inputs that were read for the last time, and places
    whose results were given out."""
    graph = backward_of(graph)
    whole, program = programs(graph, groups)
    assume(len(program.parts) > 1)
    arrays, keys = graph.arrays(), graph.keys()
    want = run_quietly(whole.run, [a.copy() for a in arrays], whole.anywhere, keys)
    arena = program.arenas.take(program.arena_nbytes)
    program.arenas.give_back(arena)
    places: list = [None] * len(want)
    results = program.begin(arrays, places, keys)
    got: dict[int, np.ndarray] = {}
    opened: set[int] = set()
    for part, later in zip(program.parts, [*program.parts[1:], None], strict=True):
        assert opened.isdisjoint(part.opens)
        opened |= {*part.opens}
        assert {*part.holds} == opened - {*got}
        for i in part.opens:
            places[i] = np.full(program.specs[i].shape, 7, program.specs[i].dtype)
        finished = run_quietly(next, results)
        assert [i for i, _ in finished] == list(part.finishes)
        for i, result in finished:
            assert result is places[i]
            got[i] = result.copy()
            spoil(result)
        rest = program.parts[program.parts.index(later) :] if later else []
        for i in {*range(len(arrays))}.difference(*[node.inputs for node in rest]):
            spoil(arrays[i])
        if arena.nbytes:
            needed = np.zeros(arena.nbytes, bool)
            for life, offset in zip(program.plan.lives, program.plan.offsets, strict=True):
                if life.begin < part.end <= life.end:
                    needed[offset : offset + life.nbytes] = True
            arena._block[~needed] = 0xFF
    assert next(results, None) is None and program.arenas._free == [arena]
    for i, result in enumerate(want):
        assert got[i].tobytes() == result.tobytes(), f"output {i}\n{program}"


@given(graphs())
def test_two_calls_at_once_and_one_that_is_dropped(graph):
    """Each has an arena of its own; one that is never finished gives its back."""
    graph = backward_of(graph)
    whole, program = programs(graph, False)
    assume(len(program.parts) > 1)
    keys = graph.keys()
    inputs = [graph.arrays(seed) for seed in (1, 2)]
    want = [run_quietly(whole.run, arrays, whole.anywhere, keys) for arrays in inputs]
    calls = [program.begin(arrays, program.anywhere, keys) for arrays in inputs]
    dropped = program.begin(inputs[0], program.anywhere, keys)
    run_quietly(next, dropped)
    found: list[dict] = [{}, {}]
    for _ in program.parts:
        for call, results in zip(calls, found, strict=True):
            results.update(run_quietly(next, call))
        dropped = None
    for results, expected in zip(found, want, strict=True):
        for i, result in enumerate(expected):
            assert results[i].tobytes() == result.tobytes()
    assert len(program.arenas._free) == 1 and [next(call, None) for call in calls] == [None, None]
    assert len(program.arenas._free) == 3


# -- nets ------------------------------------------------------------------------------------------


def deep(layers: int = 5, width: int = 16, activation: str = "tanh") -> nn.HybridSequential:
    return row(*[nn.Dense(width, activation=activation) for _ in range(layers)])


def started(net, ctxs, shape=(6, 16)):
    """The net, hybridized, on these devices, and an input for each."""
    random.seed(3)
    net.initialize(init.Xavier(), ctx=ctxs)
    net.hybridize()
    rng = np.random.default_rng(0)
    return [nd.array(rng.standard_normal(shape), ctx=ctx) for ctx in ctxs]


def back(net, inputs):
    with autograd.record():
        outputs = [net(x) for x in inputs]
    autograd.backward(flatten(outputs)[0])


def grads_of(net, ctx):
    return [p.grad(ctx).asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]


def backward_program(net, ctx):
    """The last one compiled there."""
    found = [p for p in net.program() if "backward" in p.name and p._ctx == ctx]
    return found[-1]


def same(first, second) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


class Gate(instrument.Instrument):
    """Holds up the tasks that `held` says until a task that `opens` says has ended."""

    def __init__(self, held, opens):
        self.held, self.opens = held, opens
        self.open = threading.Event()
        self.waited: list = []
        self.names: list = []

    def start(self, task, worker):
        self.names.append(task.name)
        if self.held(task):
            self.waited.append(self.open.wait(60))

    def end(self, task, failure):
        if self.opens(task):
            self.open.set()


def is_part(task, number=None):
    """Is it this part of a backward, counted from the end too?"""
    program = getattr(task, "program", None)
    if program is None or "backward" not in program.name or not hasattr(task, "number"):
        return False
    return number is None or task.number in (number, len(program.parts) + number)


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize("on_kvstore", [True, False])
def test_late_layers_are_summed_before_backward_of_the_first_ends(kind, on_kvstore, gpus, finely):
    """The last part waits, on both devices, until a sum of the last layer's gradients is taken."""
    net = deep()
    net.add(nn.Dense(3))
    inputs = started(net, gpus)
    rates = {"learning_rate": 0.1}
    trainer = gluon.Trainer(net.collect_params(), "sgd", rates, kind, None, on_kvstore)
    for _ in range(2):
        back(net, inputs)
        trainer.step(12)
    nd.waitall()
    shape = net[-1].weight.shape

    def sums(task):
        return task.name == "add_n" and task.outputs[0][2].shape == shape

    with instrument.listening(Gate(lambda task: is_part(task, -1), sums)) as gate:
        back(net, inputs)
        trainer.step(12)
        nd.waitall()
    assert gate.waited == [True, True]
    program = backward_program(net, gpus[0])
    n = len(program.parts)
    assert sorted(name for name in gate.names if program.name in name) == [
        f"{program.name} ({i} of {n})" for i in range(1, n + 1) for _ in gpus
    ]


def test_what_a_part_has_read_may_be_overwritten_and_what_it_wrote_be_read(gpus, finely):
    """While the last part is held up: the last layer's weight is free, its gradient is there."""
    net = deep()
    inputs = started(net, gpus)
    back(net, inputs)
    nd.waitall()
    want = grads_of(net, gpus[0])
    never = Gate(lambda task: is_part(task, -1), lambda task: False)
    with instrument.listening(never) as gate:
        back(net, inputs)
        last, first = net[-1], net[0]
        late = last.weight.grad(gpus[0]).asnumpy()
        last.weight.data(gpus[0])[:] = 0
        last.weight.data(gpus[0]).wait_to_read()
        early = first.weight.grad(gpus[0])
        assert not early._chunk.idle
        gate.open.set()
        nd.waitall()
        assert gate.waited == [True, True]
        assert late.tobytes() == want[-2].tobytes()
        assert early.asnumpy().tobytes() == want[0].tobytes()


def check_training(name, gpus, monkeypatch):
    """Three steps in parts and in one: the weights on all devices are the same to the bit."""
    weights = []
    for most in (6, 1):
        monkeypatch.setattr(program_node, "MOST_PARTS", most)
        net = NETS[name].build()
        inputs = started(net, gpus, NETS[name].shapes[0][0])
        rates = {"learning_rate": 0.1, "momentum": 0.9}
        trainer = gluon.Trainer(net.collect_params(), "sgd", rates)
        for _ in range(3):
            back(net, inputs)
            trainer.step(4)
        program = backward_program(net, gpus[0])
        assert (len(program.parts) > 1) == (most > 1) == ("yield" in program.source)
        weights.append([x.asnumpy() for p in net.collect_params().values() for x in p.list_data()])
    assert same(*weights)


@pytest.mark.parametrize("name", ["mlp", "lenet", "densenet block", "gru unrolled"])
def test_training_in_parts_gives_the_same_bits(name, gpus, finely, monkeypatch, engine_kind):
    check_training(name, gpus, monkeypatch)


@pytest.mark.parametrize("seed", range(4))
def test_training_in_parts_on_gpus_that_run_behind_the_host(seed, finely, monkeypatch):
    """On the fake CUDA: work in a random legal order, accesses that no event orders raise."""
    with some_gpus("fake", 2, seed=seed) as gpus:
        check_training("mlp" if seed else "lenet", gpus, monkeypatch)


# -- what autograd means stays ---------------------------------------------------------------------


def test_add_null_write_and_once_more(gpus, finely):
    net = deep(3)
    inputs = started(net, gpus)
    back(net, inputs)
    once = grads_of(net, gpus[1])
    for p in net.collect_params().values():
        p.grad_req = "add"
        p.zero_grad()
    net[1].weight.grad_req = "null"
    for _ in range(2):
        back(net, inputs)
    twice = grads_of(net, gpus[1])
    assert same(twice, [g + g for i, g in enumerate(once) if i != 2])
    net.collect_params().setattr("grad_req", "write")
    x = inputs[1]
    with autograd.record():
        y = net(x)
    for _ in range(2):
        y.backward(retain_graph=True)
        assert same(grads_of(net, gpus[1]), once)


def test_gradients_are_added_up_between_the_parts(finely):
    """Though they were pushed behind them all: the first part is held up until they were."""
    with virtual_gpus(2, link_gb_s=100) as gpus:
        net = deep(3)
        inputs = started(net, gpus)
        back(net, inputs)
        net.collect_params().setattr("grad_req", "add")
        back(net, inputs)
        nd.waitall()
        with instrument.listening(Gate(lambda t: is_part(t, 0), lambda t: False)) as gate:
            back(net, inputs[:1])
            gate.open.set()
            nd.waitall()
        ran = ["part" if " of " in name else name for name in gate.names]
        n = len(backward_program(net, gpus[0]).parts)
        assert ran.count("part") == n > 2
        first, last = ran.index("part"), len(ran) - 1 - ran[::-1].index("part")
        assert "add_n" in ran[first:last]


def test_grad_and_the_gradient_of_a_gradient(gpus, finely):
    net = deep(3)
    x = started(net, gpus)[0]
    net(x)
    variables = [p.data(gpus[0]) for p in net.collect_params().values()]
    want = []
    for hybridized in (True, False):
        net.hybridize(hybridized)
        with autograd.record():
            y = net(x)
        names = Gate(lambda task: False, lambda task: False)
        with instrument.listening(names):
            found = autograd.grad(y, variables, retain_graph=True)
            nd.waitall()
        assert any("(2 of" in name for name in names.names) is hybridized
        with autograd.record():
            y = net(x)
            slope = autograd.grad(y, variables, create_graph=True)[0]
        slope.backward()
        want.append([g.asnumpy() for g in found] + grads_of(net, gpus[0])[2:])
    for a, b in zip(*want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_error_in_one_part_spares_those_before_it(gpus, finely, monkeypatch):
    """The second convolution's gradient fails: that of the third stands, on this device."""
    op = registry["_conv_backward_weight"]
    compute = op.compute

    def failing(xp, data, *rest, **attrs):
        if failing.armed and data.shape[1] == 2:
            raise MXNetError("no luck")
        return compute(xp, data, *rest, **attrs)

    failing.armed = False
    monkeypatch.setattr(op, "compute", failing)
    net = row(*[nn.Conv2D(n, 3, padding=1) for n in (2, 3, 4)])
    inputs = started(net, gpus, (2, 1, 5, 5))
    back(net, inputs)
    nd.waitall()
    want = grads_of(net, gpus[0])
    assert len(backward_program(net, gpus[0]).parts) > 2
    for p in net.collect_params().values():
        p.zero_grad()
    failing.armed = True
    back(net, inputs[:1])
    assert net[2].weight.grad(gpus[0]).asnumpy().tobytes() == want[4].tobytes()
    for layer in (net[1], net[0]):
        with pytest.raises(MXNetError, match=r"_backward \(\d of \d\)[\s\S]*no luck"):
            layer.weight.grad(gpus[0]).asnumpy()
    assert not net[0].weight.grad(gpus[1]).asnumpy().any()
    failing.armed = False
    back(net, inputs)  # a full overwrite clears the error
    assert same(grads_of(net, gpus[0]), want)


def test_parts_that_are_cancelled_and_those_that_had_begun(gpus, finely):
    net = deep(3)
    x = started(net, gpus)[0]
    back(net, [x])
    want = net[-1].bias.grad(gpus[0]).asnumpy()
    with instrument.listening(Gate(lambda t: is_part(t, 0), lambda t: False)) as gate:
        back(net, [x])
        while not any("(1 of" in name for name in gate.names):
            time.sleep(0.001)
        engine.cancel_pending()
        gate.open.set()
        with pytest.raises(MXNetError, match="cancelled before it ran"):
            net[0].weight.grad(gpus[0]).asnumpy()
        assert net[-1].bias.grad(gpus[0]).asnumpy().tobytes() == want.tobytes()


def test_inputs_that_failed_fail_every_part(gpus, finely):
    net = deep(3)
    x = started(net, gpus)[0]
    back(net, [x])
    failed = nd.random.normal(0, -1, shape=x.shape, ctx=gpus[0])
    back(net, [failed])
    for layer in net:
        with pytest.raises(MXNetError, match="scale must be 0 or more"):
            layer.bias.grad(gpus[0]).asnumpy()
    back(net, [x])
    assert np.isfinite(net[0].weight.grad(gpus[0]).asnumpy()).all()


def test_gradients_that_share_memory_come_at_the_end_of_one_task(gpus, finely):
    """A flat array of all gradients: its views are written when everything is computed."""
    net = deep(3)
    x = started(net, gpus)[0]
    back(net, [x])
    want = grads_of(net, gpus[0])
    params = [p.data(gpus[0]) for p in net.collect_params().values()]
    flat = nd.zeros((sum(p.size for p in params),), ctx=gpus[0])
    views, begin = [], 0
    for p in params:
        views.append(flat[begin : begin + p.size].reshape(p.shape))
        begin += p.size
    autograd.mark_variables(params, views)
    with instrument.listening(Gate(lambda t: False, lambda t: False)) as gate:
        back(net, [x])
        nd.waitall()
    assert [name for name in gate.names if "backward" in name] == [
        backward_program(net, gpus[0]).name
    ]
    assert same([v.asnumpy() for v in views], want)


# -- when it is done -------------------------------------------------------------------------------


def test_only_where_gradients_travel_and_the_time_is_worth_it(gpus):
    for ctxs, shape, several in [
        ([cpu()], (512, 16), False),
        (gpus[:1], (512, 16), False),
        (gpus, (512, 16), True),
        (gpus, (6, 16), False),
    ]:
        net = deep(5, 256)
        back(net, started(net, ctxs, shape))
        program = backward_program(net, ctxs[0])
        assert (len(program.parts) > 1) is several, (ctxs, shape)
        if several:
            assert all(part.cost.us >= partitions.LEAST_US for part in program.parts)
            assert program.source.count("# Part ") == len(program.parts) <= partitions.MOST_PARTS
            assert program.cost.flops == sum(part.cost.flops for part in program.parts)


def test_parameters_that_move_are_compiled_for_anew(gpus, finely):
    net = deep(3)
    x = started(net, gpus[:1])[0]
    back(net, [x])
    assert len(backward_program(net, gpus[0]).parts) == 1
    net.collect_params().reset_ctx(gpus)
    back(net, [x])
    assert len(backward_program(net, gpus[0]).parts) > 1


def test_a_cached_op_can_be_told(finely):
    """On the CPU too: whoever sends gradients away asks for it."""
    x, w = sym.var("x"), sym.var("w")
    for overlaps in (False, True):
        f = CachedOp(sym.dot(sym.tanh(sym.dot(x, w)), w))
        f.overlaps = overlaps
        a, b = nd.ones((3, 3)), nd.ones((3, 3)) / 2
        a.attach_grad()
        b.attach_grad()
        with autograd.record():
            y = f(a, b)
        y.backward()
        program = next(iter(f._compiled.values()))._backward.popitem()[1].program
        assert (len(program.parts) > 1) is overlaps
    engine.waitall()
