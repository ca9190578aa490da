"""What d2lmini does differently from MXNet 1.9.1 on purpose, one row each.

docs/migration.md shows the rows as a table; `d2lmini info --for FILE` shows those that concern the
names that a program uses.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """A row: what differs, what MXNet does, what d2lmini does; in Markdown.

    `names`, with spaces between them, are the names of MXNet that the row is about;
    "nd.arange(dtype)" is a call of `nd.arange` with the keyword `dtype`. A row about no name in
    particular has none.
    """

    what: str
    mxnet: str
    here: str
    names: str = ""


DIFFERENCES = [
    Difference(
        "a failed operation",
        "raises once, at a wait, and does not know the line",
        "raises at *every* wait that meets it, and names operation, issuing and noticing line",
    ),
    Difference(
        "overwriting, outside of `record`, what was recorded",
        "`backward` computes with the new values, silently",
        "`backward` computes with the values that forward read: a write copies them first",
    ),
    Difference(
        "a graph that a backward has used up",
        "a constant for what is recorded afterwards; where it was recorded before, an error"
        " about a container",
        "a constant in both; outside of `install_as_mxnet` a warning, once a line",
    ),
    Difference(
        '`"%f" % x.asnumpy()`, `float`, `int` of one element',
        "as NumPy did then",
        "the same under `install_as_mxnet`, with `round` and `format`; elsewhere as NumPy does now",
    ),
    Difference(
        "pending work",
        "unbounded",
        "a push pauses at half of the free memory (`engine.limit_pending`)",
    ),
    Difference(
        "tiny operations",
        "go to a worker, too",
        "run where they are called (`engine.inline_below`; 0 turns it off)",
    ),
    Difference(
        "seeds",
        "MXNet's numbers",
        "others; the same on any engine, with any number of workers",
        "random.seed",
    ),
    Difference(
        "shapes `()` and sizes of 0",
        "unknown shapes, unless `np_shape`",
        "real, as in NumPy",
    ),
    Difference(
        'gradients with `grad_req="add"`',
        "`mean` divides what was there, too; `cumsum`, `clip` and `flip` overwrite it",
        "the sum of the gradients, with every operator",
        "nd.mean nd.clip nd.flip np.mean np.cumsum np.clip np.flip",
    ),
    Difference(
        "`sum` and `mean` of an `nd` array of bool",
        "bool: is there a True?",
        "a count (int64), and the share of True (float32)",
        "nd.sum nd.mean",
    ),
    Difference(
        "a branch on `autograd.is_training()` in a hybridized block",
        "traced once: the branch of the first call stays, in training and prediction",
        "traced once a mode",
        "autograd.is_training",
    ),
    Difference(
        "`BatchNorm`'s running statistics",
        "change in `backward` (on a CPU), once for each",
        "change in forward, in training, with or without `backward`; after a training step "
        "they are MXNet's",
        "gluon.nn.BatchNorm nd.BatchNorm sym.BatchNorm",
    ),
    Difference(
        "`argmax`, `argsort`, `topk`",
        "positions beyond 2^24 are rounded to float32 in silence, those that an integer "
        "dtype does not hold wrap",
        "rounded alike, with a warning; an error where the dtype does not hold them",
        "nd.argmax nd.argsort nd.topk sym.argmax sym.argsort sym.topk",
    ),
    Difference(
        "`arange` of float16",
        "cuts off the fractions of start and step",
        "does not",
        "nd.arange(dtype)",
    ),
    Difference(
        "a range without elements (`arange(3, 0)`, `x[5:2]`)",
        "an error",
        "an array of size 0",
    ),
    Difference(
        "`ftrl`, `ftml` at a learning rate of 0",
        "weights become nan",
        "no step: weight and state stay",
        "optimizer.Ftrl optimizer.FTML",
    ),
    Difference(
        "`nag` with `wd` and momentum",
        "in place, the momentum decays by the new weight",
        "by the old one, as in PyTorch",
        "optimizer.NAG",
    ),
    Difference(
        "`AvgPool` with `ceil_mode`",
        "the gradient divides by the whole window where the value divides by the part "
        "inside; a window behind the data is 0 / 0",
        "gradient and value agree; 0",
        "gluon.nn.AvgPool1D(ceil_mode) gluon.nn.AvgPool2D(ceil_mode) gluon.nn.AvgPool3D(ceil_mode)",
    ),
    Difference(
        "the same head twice in `autograd.backward`",
        "the last of its gradients counts",
        "their sum, as in PyTorch",
        "autograd.backward",
    ),
    Difference(
        "nan, inf, denormals",
        "`relu` makes nan 0, the gradient of `elu` takes the slope for values below 1e-19, ...",
        "each named in `tests/ops/test_special_values.py`",
        "gluon.nn.ELU",
    ),
    Difference(
        "`float(x)`, `int(x)`",
        "TypeError",
        "work on arrays of one element",
    ),
    Difference(
        '`Trainer(kvstore="dist_sync")`',
        "needs servers and a scheduler; sums",
        "needs neither; `step(batch_size)` divides by `batch_size` times the number of processes",
        "gluon.Trainer(kvstore)",
    ),
    Difference(
        "`DataLoader(num_workers=4)`",
        "processes",
        "threads; processes with `thread_pool=False`",
        "gluon.data.DataLoader(num_workers)",
    ),
    Difference(
        "`hybrid_forward`",
        "Symbols without shapes",
        "the same; a plain `forward`, which sees shapes, can be compiled as well",
    ),
    Difference(
        "speed",
        "C++",
        "NumPy's kernels; some microseconds of Python an operation (`make bench`)",
    ),
]
