"""d2l: tools that the chapters and their readers use again and again.

    Benchmark   times a block, a function or its repetitions, and counts operations still in flight
    compare     times candidates against each other and returns a Verdict
    Verdict     which is faster, by how much, how surely; one sentence
    predict     the reader's prediction, in a box; compared with the outcome later
    get_mem     resident memory of this process in MB
    predict_memory, measure_memory    where the bytes of a training step are
    timeline    a picture of which lane was busy with what, and when
    Picture     a matplotlib Figure for a notebook's page, light or dark
    traffic     bytes copied between devices in a scope, by direction
    machine     what this machine can do, measured once: the basis of predictions

Reading order: `benchmark.py` (one clock), `compare.py` (fair rounds), `verdict.py` (what may be
concluded from the rounds), `explain.py` (the reasons).

Data, devices and accuracy: `load_data_digits`, `try_gpu`, `try_all_gpus`, `split_batch`,
`evaluate_accuracy`. The other helpers of the book's own package (train_ch3, resnet18, ...) are in
`d2lmini.compat.books`, and have their names here too: `import d2lzh as d2l` after
`d2lmini.install_as_mxnet()`.

Most files are imported at first use, and matplotlib at the first drawing.
"""

from __future__ import annotations

import importlib
from typing import Any

from d2lmini import addons
from d2lmini.d2l.benchmark import Benchmark, get_mem
from d2lmini.d2l.compare import compare
from d2lmini.d2l.verdict import Ratio, Verdict
from d2lmini.draw.picture import Picture
from d2lmini.draw.timeline import timeline

# Imported at first use: the file of this folder, and the names in it.
_FILES = {
    "hardware": "Machine machine",
    "helpers": "evaluate_accuracy load_data_digits split_batch try_all_gpus try_gpu",
    "links": "Traffic traffic",
    "prediction": "Prediction predict",
    "training_memory": "measure_memory predict_memory",
}
_LAZY = {name: f"d2lmini.d2l.{file}" for file, names in _FILES.items() for name in names.split()}

__all__ = [
    "Benchmark", "Picture", "Ratio", "Verdict", "compare", "get_mem", "plt", "timeline",
    *_LAZY, *addons.names_of(__name__),
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name == "plt":
        value = importlib.import_module("matplotlib.pyplot")
    elif name in addons.names_of(__name__):
        value = addons.attribute_of(__name__, name)
    else:
        raise AttributeError(
            f"d2l has no {name!r}, and helpers of the book's chapters on images and text are left "
            f"out; it has {', '.join(sorted(__all__))}"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
