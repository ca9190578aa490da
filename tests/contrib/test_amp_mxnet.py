"""Which ops `contrib.amp` casts, beside the lists of the real MXNet 1.9.1; what it does with them
is in `data/small_programs/amp.txt`."""

from __future__ import annotations

from oracle import Oracle

from d2lmini.contrib.amp.lists import CONDITIONAL, kinds
from d2lmini.ops.core import registry

#: Ops of MXNet that none of its own lists has.
FORGOTTEN = """
    _contrib_allclose _contrib_arange_like _np_reshape cumsum lamb_update_phase1
    nag_mom_update""".split()


def lists(mx):
    """The lists of ops by name, and the ops that depend on an argument."""
    import importlib

    amp = importlib.import_module(f"{mx.__name__}.contrib.amp")
    names = "lp16_ops fp32_ops widest_type_cast".split()
    found = {name: getattr(amp, f"list_{name}")("float16") for name in names}
    return found, [tuple(row) for row in amp.list_conditional_fp32_ops("float16")]


def test_the_lists_are_those_of_mxnet(mxnet: Oracle):
    found, conditional = mxnet.ask(lists)
    assert [(name, kind, list(values)) for name, kind, values in CONDITIONAL] == conditional
    names = {"lp16_ops": "low", "fp32_ops": "float32", "widest_type_cast": "widest"}
    for name, kind in names.items():
        mine = {op.name for op, its_kind in kinds().items() if its_kind == kind and op.in_mxnet}
        theirs = {registry[op].name for op in found[name] if op in registry}
        if name == "lp16_fp32_ops":  # elemwise_add is in two of their lists, by two names
            theirs = (theirs | set(FORGOTTEN)) - {"elemwise_add"}
        assert mine == theirs, name
