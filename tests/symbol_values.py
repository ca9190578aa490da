"""What a Symbol is worth: op after op on NumPy arrays, with no compiler in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import graphs
import numpy as np

from d2lmini.graph.ir import topological
from d2lmini.graph.typed import infer_types
from d2lmini.ops.spec import Spec


def evaluate(symbol: Any, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs in predict mode, for these values of its variables."""
    variables = [node for node in topological(symbol._entries) if node.op is None]
    arrays = [values[node.name] for node in variables]
    specs = {node: Spec(a.shape, a.dtype) for node, a in zip(variables, arrays, strict=True)}
    made, outputs = infer_types(symbol._entries, specs, training=False)
    keys = [None] * graphs.draws(outputs)
    return graphs.evaluate([made[v] for v in variables], outputs, arrays, keys)[0]
