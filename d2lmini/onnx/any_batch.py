"""A batch of any size: one graph from those for several sizes.

The net is written for each of `BATCHES`. The graphs must have the same operators; constants may
differ between them, if they follow the batch:

- integers and shapes that are a * batch + b are computed from the batch, when the net runs;
- the new shape of a Reshape may leave one size open, -1;
- arrays that are filled with one number get their shape when the net runs.

Anything else that differs is an error, which names the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.onnx.writer import Writer

#: The last size is larger than what a net is likely to say about the batch in numbers.
BATCHES = (2, 3, 1, 5, 1009)

FIXED = "export it without dynamic_batch"


def merge(writers: Sequence[Writer], inputs: Iterable[str], batch_of: tuple[str, int]) -> Writer:
    """The graph for any size of the batch, from those for `BATCHES`. batch_of: an input, and its
    axis of the batch."""
    merged = writers[0]
    columns = _same_names(writers, inputs)
    sizes = _Sizes(merged.opset, batch_of)
    for operator, given, _, _, node in merged.nodes:
        for place, name in enumerate(given):
            if name not in merged.arrays:
                continue
            arrays = [w.arrays[own] for w, own in zip(writers, columns[name])]
            if operator == "Reshape" and place == 1:
                arrays = _leave_one_open(arrays)
                merged.arrays[name] = arrays[0]
            if any(not np.array_equal(array, arrays[0]) for array in arrays):
                del merged.arrays[name]
                sizes.write(arrays, name, node)
    merged.nodes[:0] = sizes.nodes
    merged.arrays |= sizes.arrays
    return merged


def _same_names(writers: Sequence[Writer], inputs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names that a value has in each of the graphs, by its name in the first; MXNetError if the
    graphs differ in more than constants."""
    first, *others = graphs = [_numbered(w, inputs) for w in writers]
    for batch, other in zip(BATCHES[1:], others):
        pairs = enumerate(zip_longest(first[0], other[0]))
        place = next((i for i, (mine, theirs) in pairs if mine != theirs), None)
        if place is not None:
            node = writers[0].nodes[min(place, len(first[0]) - 1)][4]
            raise _differs(node, "what is computed from here on", batch)
    return {names[0]: names for names in zip(*(names for _, names in graphs))}


def _numbered(w: Writer, inputs: Iterable[str]) -> tuple[list[Any], list[str]]:
    """The nodes with numbers in place of names; the names in the order of their numbers."""
    number = {name: i for i, name in enumerate(inputs)}
    nodes = [
        (operator, attrs, [number.setdefault(name, len(number)) for name in (*given, *made)])
        for operator, given, made, attrs, _ in w.nodes
    ]
    return nodes, list(number)


def _differs(node: str, what: str, batch: int) -> MXNetError:
    return MXNetError(
        f"export to ONNX: node {node!r}: {what} would be different for a batch of {batch}; {FIXED}"
    )


def _leave_one_open(shapes: list[Any]) -> list[Any]:
    """The shapes with -1 for one size that differs, if no size is -1."""
    columns = np.stack(shapes).T if len({len(shape) for shape in shapes}) == 1 else np.zeros((0, 0))
    differing = [i for i, sizes in enumerate(columns) if len(set(sizes)) > 1]
    if not differing or -1 in shapes[0]:
        return shapes
    place = next((i for i in differing if _line(columns[i]) is None), differing[0])
    columns[place] = -1
    return list(columns.T)


def _line(arrays: Sequence[Any]) -> tuple[Any, Any] | None:
    """(a, b) of arrays that are a * batch + b with integers a and b; else None."""
    with np.errstate(invalid="ignore"):
        if len({np.shape(array) for array in arrays}) > 1 or np.any(np.mod(arrays, 1) != 0):
            return None
    found = np.array(arrays).astype("int64")
    a = found[1] - found[0]
    b = found[0] - a * BATCHES[0]
    return (a, b) if np.array_equal(found, [a * n + b for n in BATCHES]) else None


class _Sizes(Writer):
    """The nodes that compute from the batch what differs between the graphs."""

    def __init__(self, opset: int, batch_of: tuple[str, int]):
        super().__init__(opset, "batch")
        self.batch_of = batch_of
        self.batch = ""

    def write(self, arrays: Sequence[Any], name: str, node: str) -> None:
        """Compute what the graphs have as these arrays, under a name."""
        dtype, shapes = arrays[0].dtype, _line([array.shape for array in arrays])
        line = _line(arrays) if dtype.kind in "iuf" else None
        numbers = np.unique(np.concatenate([np.ravel(array) for array in arrays]))
        if line is not None:
            self.cast(self._on_line(*line), dtype)
        elif len(numbers) == 1 and shapes is not None:
            self.add("Expand", self.array(numbers[0], dtype), self._on_line(*shapes))
        else:
            pairs = zip(BATCHES, arrays)
            batch = next(n for n, array in pairs if not np.array_equal(array, arrays[0]))
            raise _differs(node, "the array", batch)
        self.nodes[-1][2][0] = name

    def _on_line(self, a: Any, b: Any) -> str:
        """a * batch + b."""
        if not self.batch:
            name, axis = self.batch_of
            self.batch = self.add("Gather", self.add("Shape", name), self.array(axis))
        return self.add("Add", self.add("Mul", self.batch, self.array(a)), self.array(b))
