"""gluon.rnn without MXNet: gradients against differences, one op against single steps, states,
lengths, chance, files, errors, and that such nets learn."""

from __future__ import annotations

import numpy as np
import pytest
from gluon_rows.rnn import ROWS
from gluon_rows.runner import check_gradients

import d2lmini
from d2lmini import autograd, engine, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import rnn

T, N, C, H = 4, 3, 5, 6
CELLS = {
    "rnn": lambda **k: rnn.RNNCell(H, **k),
    "relu": lambda **k: rnn.RNNCell(H, "relu", **k),
    "lstm": lambda **k: rnn.LSTMCell(H, **k),
    "gru": lambda **k: rnn.GRUCell(H, **k),
}
each_cell = pytest.mark.parametrize("name", CELLS)


def draw(*shape: int, seed: int = 0, dtype: str = "float32") -> nd.NDArray:
    return nd.array(np.random.default_rng(seed).uniform(-1, 1, shape), dtype=dtype)


def ready(net, dtype: str = "float32"):
    """With seeded parameters, biases too."""
    d2lmini.random.seed(3)
    net.initialize(d2lmini.init.Uniform(0.7))
    net.cast(dtype)
    return net


def step_by_step(cell, x, states=None):
    """What `unroll` is defined to be; x (T, N, C)."""
    states = cell.begin_state(batch_size=x.shape[1], dtype=x.dtype) if states is None else states
    outputs = []
    for each in x:
        y, states = cell(each, states)
        outputs.append(y)
    return nd.stack(*outputs), states


def close(a, b, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=tolerance, atol=tolerance)


# -- gradients -------------------------------------------------------------------------------------

GRADIENT_ROWS = [row for row in ROWS if row.grad and "relu" not in row.build]


@pytest.mark.parametrize("row", GRADIENT_ROWS[::3], ids=[row.id for row in GRADIENT_ROWS[::3]])
def test_gradients_are_slopes(row):
    """A third of the rows; the rest is compared with MXNet, where there is one."""
    assert check_gradients(row, row.modes[0], tolerance=1e-4) > 0


# -- one op for all steps --------------------------------------------------------------------------


@each_cell
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("given", ["array", "list"])
@pytest.mark.parametrize("merge", [True, False, None])
def test_unrolling_is_the_same_as_step_by_step(name, layout, given, merge):
    cell = ready(CELLS[name](input_size=C))
    steps = draw(T, N, C)
    want, want_states = step_by_step(ready(CELLS[name](input_size=C)), steps)
    inputs = list(steps) if given == "list" else steps if layout == "TNC" else steps.swapaxes(0, 1)
    got, states = cell.unroll(T, inputs, layout=layout, merge_outputs=merge)
    if merge:
        got = got if layout == "TNC" else got.swapaxes(0, 1)
    else:
        assert isinstance(got, list)
        got = nd.stack(*got)
    close(got, want)
    assert len(states) == len(want_states) == len(cell.state_info())
    for a, b in zip(states, want_states, strict=True):
        close(a, b)


def executed(call) -> int:
    nd.waitall()
    before = engine.stats().executed
    call()
    nd.waitall()
    return engine.stats().executed - before


def test_unrolling_takes_few_operations_unless_somebody_looks():
    x = draw(50, N, C)

    def unroll(cell):
        return executed(lambda: cell.unroll(50, x, layout="TNC", merge_outputs=True))

    class Mine(rnn.GRUCell):
        """May do anything in a step."""

    watched, seen = ready(rnn.GRUCell(H, input_size=C)), []
    watched.register_forward_hook(lambda cell, inputs, output: seen.append(inputs[0].shape))
    assert unroll(ready(rnn.GRUCell(H, input_size=C))) < 10
    assert unroll(ready(Mine(H, input_size=C))) > 50
    assert unroll(watched) > 50
    assert seen == [(N, C)] * 50


# -- lengths ---------------------------------------------------------------------------------------


def stack(*cells):
    net = rnn.SequentialRNNCell()
    for cell in cells:
        net.add(cell)
    return net


# -- chance ----------------------------------------------------------------------------------------


def test_zoneout_keeps_what_was():
    x = draw(T, N, C)
    base = ready(rnn.RNNCell(H, input_size=C))
    want, _ = step_by_step(base, x)
    cell = rnn.ZoneoutCell(base, zoneout_outputs=0.5, zoneout_states=0.3)
    quiet, _ = cell.unroll(T, x, layout="TNC", merge_outputs=True)
    close(quiet, want)
    with autograd.record():
        y, _ = cell.unroll(40, draw(40, N, C), layout="TNC", merge_outputs=True)
    y = y.asnumpy()
    kept = (y[1:] == y[:-1]).mean()
    assert 0.4 < kept < 0.6
    assert 0.2 < (y[0] == 0).mean() < 0.8  # before the first step the output was zeros
    always = rnn.ZoneoutCell(ready(rnn.GRUCell(H, input_size=C)), zoneout_states=1.0)
    with autograd.record():
        _, (h,) = always.unroll(T, x, [nd.ones((N, H))], layout="TNC")
    assert (h == 1).asnumpy().all()


# -- states, names, errors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c, x: c.unroll(3, x), AssertionError, "length=3, the inputs have 4 steps"),
        (lambda c, x: c.unroll(3, [x[:, 0]] * 4), AssertionError, "length=3"),
        (lambda c, x: c.unroll(4, x, layout="NCT"), ValueError, "layout 'NCT'"),
        (lambda c, x: c(x[:, 0], [nd.zeros((N, H + 1))]), MXNetError, "_rnn_layer: .*need"),
        (lambda c, x: c(x[:, 0], [nd.zeros((N + 1, H))]), MXNetError, "state is"),
        (lambda c, x: c(x[:, 0, :2], c.begin_state(N)), MXNetError, "i2h_weight is"),
        (lambda c, x: c.unroll(4, x.astype("float64")), MXNetError, "dtype"),
        (lambda c, x: ready(rnn.GRU(H, input_size=C))(x[0, 0]), MXNetError, r"\(5,\), need \(T, N"),
        (lambda c, x: rnn.GRU(H, layout="CTN"), AssertionError, "Invalid layout CTN"),
        (lambda c, x: rnn.RNN(H, activation="sigmoid"), KeyError, "rnn_sigmoid"),
        (lambda c, x: rnn.LSTM(H, projection_size=2), TypeError, r"^LSTM\.projection_size is left"),
        (lambda c, x: rnn.DropoutCell("half"), AssertionError, "rate must be a number"),
        (lambda c, x: rnn.BidirectionalCell(c, c)(x, []), NotImplementedError, "Please use unroll"),
        (
            lambda c, x: rnn.ZoneoutCell(rnn.BidirectionalCell(c, c)), AssertionError,
            "doesn't support zoneout",
        ),
        (lambda c, x: rnn.RecurrentCell().state_info(), NotImplementedError, "state_info"),
        (
            lambda c, x: rnn.HybridRecurrentCell()(x, []), NotImplementedError, "hybrid_forward",
        ),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(call, error, words):
    cell = ready(rnn.GRUCell(H, input_size=C))
    with pytest.raises(error, match=words):
        call(cell, draw(N, T, C))


@pytest.mark.parametrize("wrap", [rnn.ResidualCell, lambda cell: stack_of(rnn.GRUCell(C), cell)])
def test_a_cell_that_overrides_unroll_is_unrolled_its_own_way(wrap):
    class Watched(rnn.LSTMCell):
        asked: list = []

        def unroll(self, length, inputs, *args, **kwargs):
            self.asked.append(length)
            return super().unroll(length, inputs, *args, **kwargs)

    x = draw(N, T, C)
    results = []
    for kind in (Watched, rnn.LSTMCell):
        cell = ready(wrap(kind(C)))
        outputs, states = cell.unroll(T, x, merge_outputs=True)
        results.append([outputs, *states])
    assert Watched.asked == [T]
    for ours, plain in zip(*results, strict=True):
        close(ours, plain)


def test_outputs_that_are_too_few_are_noticed():
    class Short(rnn.GRUCell):
        def unroll(self, *args, **kwargs):
            outputs, states = super().unroll(*args, **kwargs)
            return outputs[:-1], states

    for make in (rnn.ResidualCell, lambda c: rnn.BidirectionalCell(c, rnn.GRUCell(C))):
        with pytest.raises(ValueError, match="longer"):
            ready(make(Short(C))).unroll(2, [draw(N, C)] * 2, merge_outputs=False)


def stack_of(*cells):
    stack = rnn.HybridSequentialRNNCell()
    for cell in cells:
        stack.add(cell)
    return stack


# -- it learns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "of_array", "of_list", "with_lengths"),
    [
        (lambda: rnn.RNNCell(C), False, False, True),
        (lambda: rnn.DropoutCell(0.5), True, False, True),
        (lambda: stack(rnn.GRUCell(C), rnn.DropoutCell(0.5)), False, False, True),
        (lambda: stack(rnn.DropoutCell(0.5), rnn.DropoutCell(0.5)), True, False, True),
        (lambda: stack(rnn.DropoutCell(0.5), rnn.LSTMCell(C)), False, False, True),
        (lambda: rnn.ResidualCell(rnn.DropoutCell(0.5)), True, False, True),
        (lambda: rnn.ResidualCell(rnn.RNNCell(C)), False, False, True),
        (lambda: rnn.ZoneoutCell(rnn.DropoutCell(0.5)), False, False, True),
        (lambda: rnn.BidirectionalCell(rnn.RNNCell(C), rnn.RNNCell(C)), False, False, True),
        (lambda: rnn.BidirectionalCell(rnn.DropoutCell(0.5), rnn.RNNCell(C)), False, False, False),
    ],
)
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_the_form_that_unroll_chooses(make, of_array, of_list, with_lengths, layout):
    """merge_outputs=None: one array (True) or a list (False), as in MXNet 1.9.1."""
    shape = (N, T, C) if layout == "NTC" else (T, N, C)
    x, steps = nd.ones(shape), [nd.ones((N, C)) for _ in range(T)]
    lengths = nd.array([T] * N)
    for inputs, valid_length, whole in (
        (x, None, of_array), (steps, None, of_list), (x, lengths, with_lengths),
    ):  # fmt: skip
        outputs, _ = make_and_unroll(make, inputs, layout, None, valid_length)
        assert isinstance(outputs, nd.NDArray) == whole
        assert whole or (len(outputs) == T and outputs[-1].shape[0] == N)
        for merge in (True, False):
            outputs, _ = make_and_unroll(make, inputs, layout, merge, valid_length)
            assert isinstance(outputs, nd.NDArray) == merge


def make_and_unroll(make, inputs, layout, merge, valid_length):
    cell = make()
    cell.initialize()
    return cell.unroll(T, inputs, layout=layout, merge_outputs=merge, valid_length=valid_length)


# -- the count of steps ----------------------------------------------------------------------------


class Counting(rnn.SequentialRNNCell):
    """Notes the number of each step."""

    seen: tuple = ()

    def forward(self, inputs, states):
        result = super().forward(inputs, states)
        self.seen += (self._counter,)
        return result


def test_cells_count_their_steps():
    cells, x = Counting(), nd.ones((1, 2))
    cells.add(ready(rnn.RNNCell(2, input_size=2)))
    states = cells.begin_state(1)
    for _ in range(3):
        _, states = cells(x, states)
    cells.reset()
    cells(x, states)
    assert cells.seen == (0, 1, 2, 0)


def test_modified_cells_are_called_through_their_modifier():
    zoneout = rnn.ZoneoutCell(ready(rnn.RNNCell(2, input_size=2)), 0.5)
    zoneout.hybridize()
    assert not zoneout._active and zoneout.base_cell._active
    zoneout.begin_state(1)
    with pytest.raises(AssertionError, match="base cell cannot be called directly"):
        zoneout.base_cell.begin_state(1)
    with pytest.raises(AssertionError, match="already modified"):
        rnn.ResidualCell(zoneout.base_cell)
    x = nd.ones((1, 2))
    assert rnn.DropoutCell(0)(x, [])[0] is x
    with pytest.raises(ValueError, match=r"unroll: begin_state is a list of 1 array, as .*; got 2"):
        ready(rnn.RNNCell(2)).unroll(1, x.expand_dims(1), [x, x])
    with pytest.raises(ValueError, match=r"Expecting \(1, 2, 3\), got \(1, 3, 3\)"):
        ready(rnn.RNN(3, input_size=2))(nd.ones((4, 2, 2)), nd.zeros((1, 3, 3)))


def test_an_activation_may_be_a_function():
    x = draw(N, T, C)
    for kind in (rnn.RNNCell, rnn.LSTMCell):
        want, got = (
            ready(kind(H, activation=f, input_size=C)).unroll(T, x, merge_outputs=True)
            for f in ("tanh", lambda x: x.tanh())
        )
        for a, b in zip([want[0], *want[1]], [got[0], *got[1]], strict=True):
            close(b, a)
