"""Mixed precision beside the real MXNet 1.9.1: lists, graphs, scales, skipped steps, files."""

from __future__ import annotations

import amp_programs
import numpy as np
import pytest
from oracle import Oracle

import d2lmini as mx
from d2lmini import nd
from d2lmini.contrib import amp
from d2lmini.gluon import nn
from d2lmini.ops.core import registry


@pytest.fixture(scope="module")
def started(mxnet: Oracle):
    """A MXNet of its own in which `amp.init` was called: there is no way back."""
    with Oracle("mxnet") as oracle:
        oracle.ask(amp_programs.turn_on)
        yield oracle


#: Ops of MXNet that none of its own lists has.
FORGOTTEN = """
    _contrib_allclose _contrib_arange_like _np_reshape cumsum lamb_update_phase1
    nag_mom_update""".split()


def test_the_lists_are_those_of_mxnet(mxnet: Oracle):
    found, conditional = mxnet.ask(amp_programs.lists)
    ours, our_conditional = amp_programs.lists(mx)
    assert our_conditional == conditional
    for name, mine, listed in zip(amp_programs.LISTS, ours, found, strict=True):
        theirs = {registry[op].name for op in listed if op in registry}
        if name == "lp16_fp32_ops":  # elemwise_add is in two of their lists, by two names
            theirs = (theirs | set(FORGOTTEN)) - {"elemwise_add"}
        assert {registry[op].name for op in mine} == theirs, name
        assert len(mine) == len(set(mine))


def test_composed_graphs_have_the_same_casts(started: Oracle):
    with amp.init():
        ours = amp_programs.compose(mx)
    theirs = started.ask(amp_programs.compose)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def test_a_net_trained_in_mixed_precision_is_exported_with_and_without_casts(
    mxnet: Oracle, tmp_path
):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = nd.random.normal(shape=(3, 5))
    with amp.init():
        y = net(x)
    net.export(str(tmp_path / "with"), remove_amp_cast=False)
    net.export(str(tmp_path / "without"))
    known = mxnet.ask(amp_programs.infer, (tmp_path / "with-symbol.json").read_text(), "float32")
    assert known["net_dense1_fwd_output"] == "float16" == np.dtype(y.dtype).name
    text = (tmp_path / "without-symbol.json").read_text()
    assert "amp_cast" not in text
    values = {p.name: p.data().asnumpy() for p in net.collect_params().values()}
    (theirs,), _ = mxnet.ask(amp_programs.run_json, text, {**values, "data": x.asnumpy()})
    np.testing.assert_allclose(y.asnumpy(), theirs, rtol=5e-3, atol=2e-3)


# -- training --------------------------------------------------------------------------------------

INF = float("inf")
STORIES = {
    "good steps double the scale": ([0.01] * 9, 2),
    "overflows halve it": ([0.01, INF, float("nan"), 0.01, INF, 0.01, 0.01], 2000),
    "both": ([0.01, 0.01, 0.01, INF, 0.01, INF, INF, 0.01, 0.01, 0.01, 0.01], 3),
    "up to 2**24": ([1e-6] * 14, 1),
}


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize(("rescale", "unscales"), [(1.0, False), (0.5, True)])
def test_scales_and_skipped_steps(name: str, rescale: float, unscales: bool, started: Oracle):
    arguments = (*STORIES[name], rescale, unscales)
    with amp.init():
        ours = amp_programs.take_steps(mx, *arguments)
    theirs = started.ask(amp_programs.take_steps, *arguments)
    for one, other in zip(ours, theirs, strict=True):
        assert one[:2] == other[:2]
        for mine, its in zip(one[2:], other[2:], strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-6)
