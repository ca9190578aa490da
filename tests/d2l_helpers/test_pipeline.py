"""Pipelines: the values of one device, the bubble and the activations of the theory, exactly."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import numpy as np
import pytest

from d2lmini import autograd, cpu, d2l, engine, gluon, nd, profile, virtual_gpus
from d2lmini.d2l import check, pipeline
from d2lmini.d2l.idle_gaps import find_gaps
from d2lmini.d2l.pipeline import Pass

L2 = gluon.loss.L2Loss()
ROWS, WIDTH = 4, 8

SCHEDULES = {
    "gpipe": lambda p, m, v: pipeline.gpipe(p, m),
    "1f1b": lambda p, m, v: pipeline.one_f_one_b(p, m),
    "interleaved": pipeline.interleaved,
}


def parts(array, n, ctx):
    return [nd.array(part, ctx=ctx) for part in np.split(array, n)]


def one_step(schedule, p, m, v=1, **times):
    """The trace and the spans of a step on p devices, on the virtual clock."""
    X = np.random.default_rng(1).normal(size=(m * ROWS, WIDTH))
    clock = pipeline.pass_times(**times)
    with virtual_gpus(p) as ctxs, engine.stepped(times=clock, remember=0):
        stages = pipeline.dense_stages([WIDTH] * (v * p + 1), ctxs)
        line = pipeline.Pipeline(stages, L2, ctxs)
        xs, ys = parts(X, m, ctxs[0]), parts(X, m, ctxs[-1])
        line.run(schedule, xs, ys)  # compiles the stages
        nd.waitall()
        with profile() as trace:
            line.run(schedule, xs, ys)
        return trace, pipeline.find_spans(trace, schedule, ctxs)


# -- schedules -------------------------------------------------------------------------------------


def test_schedules_are_those_of_the_literature():
    def rows(schedule):
        return [" ".join(f"{s.kind}{s.microbatch}" for s in passes) for passes in schedule]

    assert rows(pipeline.gpipe(2, 3)) == ["F0 F1 F2 B0 B1 B2"] * 2
    assert rows(pipeline.one_f_one_b(4, 5)) == [
        "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
        "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
    ]
    assert rows(pipeline.one_f_one_b(4, 1)) == ["F0 B0"] * 4
    first, last = pipeline.interleaved(2, 4, 2)
    assert " ".join(map(str, first)) == (
        "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3"
    )
    assert " ".join(map(str, last))[:34] == "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2"


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 1), (4, 8, 1), (3, 6, 2), (4, 4, 3)])
def test_interleaved_has_every_pass_once(p, m, v):
    schedule = pipeline.interleaved(p, m, v)
    assert sorted(step for passes in schedule for step in passes) == sorted(
        Pass(kind, s, i) for kind in "FB" for s in range(v * p) for i in range(m)
    )
    assert len(pipeline.merge(schedule)) == 2 * v * p * m


def test_wrong_numbers_of_microbatches_are_named():
    with pytest.raises(ValueError, match="m is a multiple of the number of devices 4, got 6"):
        pipeline.interleaved(4, 6, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pipeline.gpipe(0, 2), "p is a number of devices, 1 or more, got 0"),
        (lambda: pipeline.one_f_one_b(2, 1.5), "m is a number of microbatches, 1 or more, got 1.5"),
        (lambda: pipeline.bubble(2, 2, -1), "v is a number of stages on each device"),
    ],
)
def test_wrong_counts_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_schedule_for_another_net_is_refused_at_the_call():
    line = pipeline.Pipeline(pipeline.dense_stages([WIDTH] * 3, [cpu()]), L2, [cpu()])
    xs = parts(np.zeros((4, WIDTH)), 2, cpu())
    for schedule, words in (
        (pipeline.gpipe(3, 2), "3 stages and 2 microbatches; given are 2 stages, 2 inputs and 2"),
        (pipeline.gpipe(2, 4), "2 stages and 4 microbatches"),
        (pipeline.gpipe(2, 2), "for 2 devices, there are 1: cpu"),
    ):
        with pytest.raises(ValueError, match=words):
            line.run(schedule, xs, xs)


def test_devices_that_wait_for_each_other_are_named():
    schedule = pipeline.gpipe(2, 1)
    schedule[0].reverse()
    with pytest.raises(ValueError, match=r"device 0 waits before B0.0 for F0.0 and B1.0; device 1"):
        pipeline.merge(schedule)


# -- the virtual clock -----------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (3, 6, 3), (8, 8, 2)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_bubble_and_activations_are_those_of_the_theory(name, p, m, v):
    v = v if name == "interleaved" else 1
    schedule = SCHEDULES[name](p, m, v)
    trace, spans = one_step(schedule, p, m, v)
    assert pipeline.idle_share(spans) == pipeline.bubble(p, m, v) == Fraction(p - 1, v * m + p - 1)
    kept = pipeline.kept_microbatches(schedule)
    if name != "interleaved":
        assert kept == [m if name == "gpipe" else min(m, p - d) for d in range(p)]
    peaks = pipeline.activation_peaks(trace)
    output = 4 * ROWS * WIDTH
    loss = [0] * (p - 1) + [4 * ROWS * (m if name == "gpipe" else 1)]
    measured = [peaks[f"gpu({d})"] for d in range(p)]
    assert [bytes_ - k * output for bytes_, k in zip(measured, kept)][:-1] == [0] * (p - 1)
    assert kept[-1] * output < measured[-1] <= kept[-1] * output + loss[-1]


def test_gpipe_and_1f1b_are_equally_long_for_any_equal_stages():
    for forward_us, backward_us in ((1000, 1000), (1000, 3500), (700, 100)):
        shares = [
            pipeline.idle_share(
                one_step(schedule, 4, 6, forward_us=forward_us, backward_us=backward_us)[1]
            )
            for schedule in (pipeline.gpipe(4, 6), pipeline.one_f_one_b(4, 6))
        ]
        assert shares == [pipeline.bubble(4, 6)] * 2


def test_copies_are_on_the_way_of_1f1b_and_gpipe_hides_most_of_them():
    lengths = {}
    for name, schedule in (
        ("gpipe", pipeline.gpipe(4, 8)), ("1f1b", pipeline.one_f_one_b(4, 8))
    ):  # fmt: skip
        _, spans = one_step(schedule, 4, 8, copy_us=250)
        lengths[name] = max(span.end_ns for span in spans) / 1000
    # 8 * 3000 of work, and 3 * (1000 + 250) on the way to the last device, 3 * (2000 + 250) back.
    assert lengths["gpipe"] == 24000 + 3 * 1250 + 3 * 2250
    assert lengths["1f1b"] > lengths["gpipe"]


def test_the_longest_idle_gap_is_named():
    for copy_us, hint, until, words in (
        (0, "needs", 10, "it waits for B1.0 on gpu\\(1\\)"),
        (500, "copy", 13, "it waits for the copy of B1.0 from gpu\\(1\\)"),
    ):
        trace, spans = one_step(pipeline.one_f_one_b(4, 8), 4, 8, copy_us=copy_us)
        names = {span.number: str(span.step) for span in spans}
        assert "busy for" in check.busy(trace, 0.5)
        with pytest.raises(check.Wrong, match=words) as wrong:
            check.busy(trace, 0.9, lambda operation, names=names: names[operation.number])
        assert wrong.value.hint == hint
        assert f"gpu(0) is idle from 4.00 to {until}.00 ms, until B0.0 begins" in str(wrong.value)


def test_a_program_that_issues_late_and_a_device_without_work_are_named():
    times = {"_ones": 1000, "CopyGPU2CPU": 0}
    with virtual_gpus(2) as (a, b), engine.stepped(times=times), profile() as trace:
        nd.ones((2, 2), ctx=a).wait_to_read()
        nd.ones((2, 2), ctx=b)
    late, none = sorted(find_gaps(trace), key=lambda gap: gap.hint, reverse=True)
    assert (late.place, late.hint, late.length_ns) == ("gpu(1)", "issued", 1_000_000)
    assert "the program issues it only then" in str(late) and "nd.ones((2, 2), ctx=b)" in str(late)
    assert (none.place, none.hint, none.begin_ns) == ("gpu(0)", "end", 1_000_000)
    with engine.stepped(times=0), profile() as trace:
        nd.ones((2, 2)).wait_to_read()
    with pytest.raises(check.Wrong) as wrong:
        check.busy(trace, 0.5)
    assert wrong.value.hint == "missing"


def test_pictures():
    _, spans = one_step(pipeline.one_f_one_b(2, 3), 2, 3)
    assert pipeline.to_text(spans) == "gpu(0) 01..aa2bb.cc\ngpu(1) .0aa1bb2cc.."
    picture = pipeline.draw(spans, "1F1B")
    axes = picture.figure.axes[0]
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["forward", "backward"]
    assert sorted(text.get_text() for text in axes.texts) == sorted("001122" * 2)


# -- values ----------------------------------------------------------------------------------------


def train(schedule, n, m, replicas=1, steps=20, scope=None):
    """The weights after some steps of a net of n stages, and the bytes of one step."""
    rng = np.random.default_rng(3)
    values = [rng.normal(scale=0.4, size=(WIDTH, WIDTH)) for _ in range(n)]
    X, Y = rng.normal(size=(2, m * ROWS, WIDTH))
    place = {step.stage: d for d, passes in enumerate(schedule) for step in passes}
    p = len(schedule)
    with virtual_gpus(p * replicas) as ctxs, scope or engine.stepped(times=0, remember=0):
        rows = [ctxs[r * p : (r + 1) * p] for r in range(replicas)]
        homes = [[row[place[s]] for row in rows] for s in range(n)]
        stages = pipeline.dense_stages([WIDTH] * (n + 1), homes)
        for stage, value in zip(stages, values):
            stage.weight.set_data(nd.array(value))
        trainers = [
            gluon.Trainer(stage.collect_params(), "sgd", {"learning_rate": 0.2}) for stage in stages
        ]
        lines = [pipeline.Pipeline(stages, L2, row) for row in rows]
        xs, ys = np.split(X, replicas), np.split(Y, replicas)
        batches = [
            (parts(x, m // replicas, row[place[0]]), parts(y, m // replicas, row[place[n - 1]]))
            for x, y, row in zip(xs, ys, rows)
        ]
        for _ in range(steps):
            with d2l.traffic() as links:
                for line, batch in zip(lines, batches):
                    line.run(schedule, *batch)
                for trainer in trainers:
                    trainer.step(m * ROWS)
            for stage in stages:
                stage.collect_params().zero_grad()
        weights = [
            [stage.weight.data(home[r]).asnumpy() for stage, home in zip(stages, homes)]
            for r in range(replicas)
        ]
        return weights, links


def train_alone(n, m, steps=20, pieces=None):
    """The weights after training on one device, microbatch after microbatch, or in `pieces`."""
    rng = np.random.default_rng(3)
    values = [rng.normal(scale=0.4, size=(WIDTH, WIDTH)) for _ in range(n)]
    X, Y = rng.normal(size=(2, m * ROWS, WIDTH))
    net = gluon.nn.HybridSequential()
    net.add(*pipeline.dense_stages([WIDTH] * (n + 1), [cpu()]))
    for stage, value in zip(net, values):
        stage.weight.set_data(nd.array(value))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    for _ in range(steps):
        for x, y in zip(*(parts(batch, pieces or m, cpu()) for batch in (X, Y))):
            with autograd.record():
                loss = L2(net(x), y)
            loss.backward()
        trainer.step(m * ROWS)
        net.collect_params().zero_grad()
    return [stage.weight.data().asnumpy() for stage in net]


@pytest.mark.parametrize(
    ("name", "p", "m", "v"),
    [("gpipe", 2, 4, 1), ("1f1b", 2, 4, 1), ("gpipe", 4, 4, 1), ("1f1b", 4, 8, 1),
     ("gpipe", 8, 8, 1), ("1f1b", 8, 8, 1), ("interleaved", 4, 4, 2), ("interleaved", 2, 4, 4),
     ("interleaved", 8, 8, 2)],
)  # fmt: skip
def test_twenty_steps_have_the_bits_of_one_device(name, p, m, v):
    schedule = SCHEDULES[name](p, m, v)
    [weights], links = train(schedule, v * p, m)
    for found, expected in zip(weights, train_alone(v * p, m)):
        np.testing.assert_array_equal(found, expected)
    # Each boundary between stages: an output there, its gradient back, for each microbatch.
    assert links.nbytes == 2 * (v * p - 1) * m * 4 * ROWS * WIDTH


def test_the_whole_batch_at_once_gives_the_same_but_for_rounding():
    [weights], _ = train(pipeline.one_f_one_b(4, 4), 4, 4)
    for found, expected in zip(weights, train_alone(4, 4, pieces=1)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_threads_compute_the_same():
    schedule = pipeline.one_f_one_b(2, 4)
    [weights], _ = train(schedule, 2, 4, steps=5, scope=contextlib.nullcontext())
    for found, expected in zip(weights, train_alone(2, 4, steps=5)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("p", [2, 4])
def test_two_rows_of_pipelines_share_the_batch(p):
    m = 2 * p
    both, links = train(pipeline.one_f_one_b(p, m // 2), p, m, replicas=2)
    for found, copy, expected in zip(*both, train_alone(p, m)):
        np.testing.assert_array_equal(found, copy)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # another order of sums
    activations = 2 * (p - 1) * m * 4 * ROWS * WIDTH
    gradients = 2 * p * 4 * (WIDTH * WIDTH + WIDTH)  # 2 (k - 1) / k of the bytes, on k = 2 devices
    assert links.nbytes == activations + gradients
    for s in range(p):
        assert links.between[f"gpu({s})", f"gpu({p + s})"] == gradients / 2 / p
