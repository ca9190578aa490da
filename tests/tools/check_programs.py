"""Programs made of Symbols, and compared with the plain interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import Graph, assert_close, evaluate

from d2lmini.device.errstate import run_quietly
from d2lmini.graph import fusion
from d2lmini.graph.program import Program
from d2lmini.graph.typed import infer_types
from d2lmini.ops.spec import Spec


def compiled(heads, shapes: dict, training: bool = False, dtype: str = "float32", **options):
    """A Program and the typed graph it comes from; `shapes` by variable."""
    heads = heads if isinstance(heads, list) else [heads]
    entries = [entry for head in heads for entry in head._entries]
    specs = {x._entry[0]: Spec(shape, dtype) for x, shape in shapes.items()}
    variables, outputs = infer_types(entries, specs, training)
    graph = Graph(list(variables.values()), outputs, training)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "ONE_BLOCK", 0)
        patch.setattr(fusion, "BLOCK_BYTES", 1 << 16)  # several blocks, of no more than test data
        return Program("net", graph.variables, outputs, **options), graph


def check(program: Program, graph: Graph, tolerance: float = 2e-5, arrays=None) -> None:
    """`run` gives what the interpreter gives, into places as well, and changes the same inputs."""
    given = graph.arrays() if arrays is None else arrays
    keys = graph.keys()
    expected, held = evaluate(graph.variables, graph.outputs, given, keys)
    for placed in (False, True):
        arrays = [array.copy() for array in given]
        places = [np.full(s.shape, 7, s.dtype) if placed else None for s in program.specs]
        results = run_quietly(program.run, arrays, places, keys)
        for result, want in zip(results, expected, strict=True):
            assert_close(want, result, tolerance)
        for array, want in zip(arrays, held, strict=True):
            assert_close(want, array, tolerance)
        for i, result in enumerate(results):
            assert places[i] is None or result is places[i]
            others = arrays + results[:i]
            assert not any(np.may_share_memory(result, other) for other in others)
