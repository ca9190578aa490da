"""Which ops `contrib.amp` casts, beside the lists of the real MXNet 1.9.1; what it does with them
is in `data/small_programs/amp.txt`."""

from __future__ import annotations

from oracle import Oracle

from d2lmini.contrib.amp.casts import CONDITIONAL, kinds
from d2lmini.ops.core import registry

KINDS = {"lp16_ops": "low", "fp32_ops": "float32", "widest_type_cast": "widest"}


def lists(mx):
    """The lists of ops by name, and the ops that depend on an argument."""
    import importlib

    amp = importlib.import_module(f"{mx.__name__}.contrib.amp")
    names = "lp16_ops fp32_ops widest_type_cast".split()
    found = {name: getattr(amp, f"list_{name}")("float16") for name in names}
    return found, [tuple(row) for row in amp.list_conditional_fp32_ops("float16")]


def test_the_lists_are_those_of_mxnet(mxnet: Oracle):
    found, conditional = mxnet.ask(lists)
    ours = [(op, name, list(values)) for op, (name, values) in CONDITIONAL.items()]
    assert ours == conditional
    for name, kind in KINDS.items():
        mine = {op.name for op, its_kind in kinds().items() if its_kind == kind and op.in_mxnet}
        assert mine == {registry[op].name for op in found[name] if op in registry}, name
