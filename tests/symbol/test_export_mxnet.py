"""Files of Symbols and nets between d2lmini and the real MXNet 1.9.1, in both directions (`make
test-mxnet`).

Every row of the op table that has a Symbol becomes a file: MXNet reads ours and computes the same,
and what it writes for the same call computes the same here. So do nets that are exported by one
library and imported by the other, by `SymbolBlock.imports`, and by `sym.load` with `bind`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import export_nets
import mxnet_rows
import numpy as np
import pytest
from op_rows.table import ROWS, assert_equals_mxnet, find
from oracle import Oracle, OracleDied
from rows import by, over
from symbol_values import evaluate

import d2lmini as mx
from d2lmini import nd, sym
from d2lmini.graph.ir import Node
from d2lmini.ops.core import Op


def has_symbol(case: Any) -> bool:
    """Is the row one op, with inputs, that gives the same numbers each time and writes nothing?"""
    op = find(case.op)
    if not isinstance(op, Op) or op.random or not case.inputs:
        return False
    if op.mxnet_rule:  # said in other ops there, but for what those do not take
        key = case.attrs.get("key", ())
        several = sum(type(i) is int or (type(i) is tuple and i[0] == "at") for i in key) > 1
        strange = any(np.asarray(i).dtype == bool or np.size(i) == 0 for i in case.inputs)
        strange = strange or 0 in case.attrs.get("shape", ())  # refused: see `_spread`
        return not several and not strange and case.attrs.get("batch_axis") != -1
    if not case.mxnet:
        return False
    if op.name.endswith("_update") or "_update_phase" in op.name:  # no part of any graph
        return False
    arrays = all(isinstance(i, np.ndarray) for i in case.inputs)
    return arrays and bool(op.mxnet_rule or op.in_mxnet) and op.outputs != 0


COMPARED = [case for case in ROWS if has_symbol(case)]


def symbol_of(case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The row as a Symbol of variables x0, x1, ..., and their values."""
    op = find(case.op)
    given = tuple(nd.array(i, dtype=i.dtype) for i in case.inputs)
    _, attrs = op.bind(given, dict(case.attrs))
    values = {f"x{i}": x for i, x in enumerate(case.inputs)}
    node = Node(op, "y", tuple((Node(None, name), 0) for name in values), attrs)
    return sym.Symbol(tuple((node, i) for i in range(node.n_outputs))), values


@over("case", by(lambda case: case.op, COMPARED), name=lambda case: case.id)
def test_both_read_what_the_other_wrote(case: Any, mxnet: Oracle):
    symbol, values = symbol_of(case)
    # Not one op there; and its CTCLoss takes label lengths alone only by name.
    apart = find(case.op).mxnet_rule or case.attrs.get("use_label_lengths")
    call = None if apart else (case.op.split(".")[-1], case.attrs)
    text = symbol.tojson(remove_amp_cast=False)
    try:
        outputs, again, written = mxnet.ask(mxnet_rows.read_symbol, text, values, call)
    except OracleDied as problem:
        pytest.skip(f"MXNet crashes on this row: {problem}")
    mine = evaluate(symbol, values)
    assert_equals_mxnet(mine, outputs, case)
    # MXNet writes again what it read: names, attributes, hidden outputs.
    theirs = json.loads(again)
    theirs["attrs"].pop("is_np_shape", None)  # the mode in which shapes like () and (0,) are read
    assert theirs == json.loads(text)
    for each in (text, again, written or symbol.tojson()):
        for one, other in zip(mine, evaluate(sym.load_json(each), values), strict=True):
            if find(case.op).mxnet_rule:
                np.testing.assert_allclose(one, other, rtol=2e-3 if one.itemsize == 2 else 1e-5)
            else:
                np.testing.assert_array_equal(one, other)


# -- nets ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(mxnet: Oracle, tmp_path_factory: Any) -> tuple[Path, Path]:
    """(what d2lmini wrote, what MXNet wrote), each with what it read of the other."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    export_nets.write(mx, str(here))
    mxnet.ask(export_nets.write, str(there))
    mxnet.ask(export_nets.read, str(here), str(there))
    export_nets.read(mx, str(there), str(here))
    return here, there


@pytest.mark.parametrize("name", export_nets.NETS)
@pytest.mark.parametrize("reader", ["d2lmini", "MXNet"])
def test_the_other_library_computes_the_same(name: str, reader: str, folders: Any):
    here, there = folders
    reads, wrote = (here, there) if reader == "d2lmini" else (there, here)
    with np.load(wrote / f"{name}.npz") as expected, np.load(reads / f"{name}.read.npz") as got:
        outputs = sorted(key for key in expected.files if key.startswith("out"))
        assert len(got.files) == 2 * len(outputs)
        for kind in ("block", "bound"):
            for key in outputs:
                y = got[key.replace("out", kind)]
                assert y.shape == expected[key].shape
                np.testing.assert_allclose(y, expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", export_nets.NETS)
def test_both_write_the_same_parameters(name: str, folders: Any):
    ours, theirs = (mx.nd.load(str(f / f"{name}-0000.params")) for f in folders)
    assert sorted(shapeless(k) for k in ours) == sorted(shapeless(k) for k in theirs)
    assert sorted(v.shape for v in ours.values()) == sorted(v.shape for v in theirs.values())


def shapeless(key: str) -> str:
    """The key without the number of the block, which counts on in a process."""
    kind, _, rest = key.partition(":")
    return kind + ":" + "".join(c for c in rest if not c.isdigit())
