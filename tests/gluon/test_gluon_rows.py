"""Every row of Gluon's tables (`gluon_rows/`) in the real MXNet 1.9.1, where one is at hand: names,
shapes, repr, outputs, gradients and running statistics, in each mode; and what goes with the rows:
the arguments of each class, and files."""

from __future__ import annotations

import numpy as np
import pytest
from gluon_rows import loss, nn, rnn
from gluon_rows.runner import Row, compare, examine_here, examine_in
from oracle import Oracle

import d2lmini
from d2lmini import nd

ROWS = [row for table in (nn, rnn, loss) for row in table.ROWS if row.mxnet]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_row_equals_mxnet(row: Row, mxnet: Oracle):
    compare(row, examine_here(row), examine_in(mxnet, row))


# -- arguments -------------------------------------------------------------------------------------


def signatures(mx, space):
    """Class -> method -> names of its arguments, of the classes in a namespace of Gluon."""
    import inspect
    from operator import attrgetter

    def arguments(function):
        return list(inspect.signature(function).parameters)

    methods = ("begin_state", "unroll", "state_info")
    return {
        name: {
            "__init__": arguments(kind),
            **{name: arguments(getattr(kind, name)) for name in methods if hasattr(kind, name)},
        }
        for name, kind in vars(attrgetter(space)(mx.gluon)).items()
        if inspect.isclass(kind)
    }


def test_layers_take_the_same_arguments(mxnet: Oracle):
    """Every layer of MXNet's is there, with arguments of the same names in the same order."""
    mine, theirs = signatures(d2lmini, "nn"), mxnet.ask(signatures, "nn")
    assert len(theirs) >= 8
    for name, methods in theirs.items():
        if name in ("Block", "HybridBlock", "SymbolBlock"):
            assert name in mine
        elif methods["__init__"] == ["kwargs"]:
            assert mine[name]["__init__"] in (["prefix", "params"], ["kwargs"])
        else:
            assert mine[name]["__init__"] == methods["__init__"], name


#: Projections, clipped cells and lengths of sequences are left out of the layers.
NOT_TAKEN = frozenset(
    "args kwargs projection_size h2r_weight_initializer state_clip_min state_clip_max"
    " state_clip_nan use_sequence_length".split()
)


def test_cells_take_the_same_arguments(mxnet: Oracle):
    mine, theirs = signatures(d2lmini, "rnn"), mxnet.ask(signatures, "rnn")
    assert set(theirs) == set(d2lmini.gluon.rnn.__all__)
    for name, methods in theirs.items():
        for method, arguments in methods.items():
            known = [each for each in arguments if each not in NOT_TAKEN]
            assert [each for each in mine[name][method] if each in known] == known, (name, method)


# -- files -----------------------------------------------------------------------------------------


def load_and_save(mx, build, ours, theirs):
    """A layer's output with the parameters of the first file; it writes them to the second."""
    net = eval(build, {"rnn": mx.gluon.rnn})
    net.load_parameters(ours)
    net.save_parameters(theirs)
    return net(mx.nd.ones((3, 2, 4))).asnumpy()


@pytest.mark.parametrize(
    "build", ["rnn.RNN(5)", "rnn.LSTM(5, 2, bidirectional=True)", "rnn.GRU(3, 3, dropout=0.5)"]
)
def test_files_of_either_load_in_the_other(build: str, mxnet: Oracle, tmp_path):
    ours, theirs, again = (str(tmp_path / name) for name in ("ours", "theirs", "again"))
    net = eval(build, {"rnn": d2lmini.gluon.rnn})
    net.initialize()
    want = net(nd.ones((3, 2, 4))).asnumpy()
    net.save_parameters(ours)
    got = mxnet.ask(load_and_save, build, ours, theirs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert load_and_save(d2lmini, build, theirs, again).tobytes() == want.tobytes()
