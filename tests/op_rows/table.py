"""All rows of all ops, and how a row is run."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
from rows import by, over

import op_rows
from d2lmini import nd
from d2lmini.ops.core import Op, Y, registry
from op_rows.case import Case

TABLES: dict[str, list[Case]] = {
    module.name: importlib.import_module(f"op_rows.{module.name}").ROWS
    for module in pkgutil.iter_modules(op_rows.__path__)
    if module.name not in ("case", "table")
}


ROWS = [case for table in TABLES.values() for case in table]


def find(name: str):
    """`nd.NAME`, dotted for sub-namespaces, or an internal op by its registry name."""
    if name in registry:
        return registry[name]
    target = nd
    for part in name.split("."):
        target = getattr(target, part)
    return target


def each(rows: list[Case]):
    """One test for each op, through all its rows."""
    return over("case", by(lambda case: case.op, rows), name=lambda case: case.id)


def run(case: Case) -> list[np.ndarray]:
    """The row through the library, as NumPy arrays."""
    inputs = [nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i for i in case.inputs]
    results = find(case.op)(*inputs, **case.attrs)
    return [r.asnumpy() for r in (results if isinstance(results, list) else [results])]


def expected(case: Case) -> list[np.ndarray]:
    """What NumPy says."""
    with np.errstate(all="ignore"):
        results = case.expect(*case.inputs, **case.attrs)
    return [np.asarray(r) for r in (results if isinstance(results, (list, tuple)) else [results])]


OP_ROWS = [case for case in ROWS if isinstance(find(case.op), Op)]


GRADIENT_ROWS = [
    case
    for case in ROWS
    if case.grad
    and isinstance(find(case.op), Op)
    and find(case.op).rule is not None
    and not find(case.op).injects
    and any(isinstance(i, np.ndarray) and i.dtype.kind == "f" and i.size for i in case.inputs)
    and not any(isinstance(i, np.ndarray) and i.dtype == np.float16 for i in case.inputs)
]


def saved_value(op: Op, place: int, part: str | None, inputs: tuple, results: list):
    """What the tape would keep."""
    if place == Y:
        value = results[0] if len(results) == 1 else results
    elif op.variadic:
        return [getattr(x, part) if part else x for x in inputs]
    else:
        value = inputs[place] if place < len(inputs) else None
    return getattr(value, part) if part and value is not None else value


def assert_equals_mxnet(mine: list[np.ndarray], theirs: list[np.ndarray], case: Case) -> None:
    for got, want in zip(mine, theirs, strict=True):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        loose = 10 if got.dtype != np.float16 else 100
        np.testing.assert_allclose(
            got.astype("float64"), want.astype("float64"),
            rtol=loose * max(case.rtol, 1e-5), atol=loose * max(case.atol, 1e-6),
        )  # fmt: skip
