"""Differences from MXNet that are wanted: the sweep (`generators/sweep`) counts them apart, and
docs/migration.md shows them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple


class Listed(NamedTuple):
    """Cases of `names` (patterns, split at blanks) whose kind of difference matches and whose
    program and words match, each where given."""

    reason: str
    names: str
    kind: str = ""
    program: str = ""
    words: str = ""


LISTED = [
    Listed(
        "shapes `()` and sizes of 0 are real here, unknown in MXNet",
        "*",
        program=r"np\.zeros\(\(|nd\.array\(np\.array\(|np\.arange\(0\)|shape=\(\)",
    ),
    Listed(
        "shapes `()` and sizes of 0 are real here, unknown in MXNet",
        "*",
        kind="allowed here",
        words=r"inferring shapes failed|must be non-zero within|"
        r"cannot be a negative value|cannot be less than 0|\[-1|,-1",
    ),
    Listed(
        "nan, inf and numbers that a dtype does not hold become any integer in C++",
        "nd.* sym.* random.* gluon.nn.*",
        kind="value",
        words=r"-?9223372036854775808|-2147483648|-2\.14748|-9\.22337",
    ),
    Listed(
        "gradients with respect to integers: MXNet cuts off fractions inside the formula",
        "nd.* sym.* random.*",
        kind=r"value of \w*\.?grads?",
        program=r"dtype='u?int",
    ),
    Listed(
        "parameters outside of their range are an error here, and give some number in MXNet",
        "nd.* sym.* random.* gluon.nn.*",
        kind="refused here|another line",
        words="must be|must not be|needs? .*(> 0|>= 0|1 or more|0 or more)|LinAlgError|"
        "ZeroDivisionError|Matrix is not|leaves nothing of the output|has a negative size|"
        "need a tuple of sizes",
    ),
    Listed(
        "more dtypes than MXNet's kernels for the CPU have",
        "nd.* sym.* gluon.* random.*",
        kind="allowed here|another line",
        words=r"only supports? float|Unsupported data type|does not support float16|"
        r"only supports float|data type do not match|unknown type for MKLDNN|"
        r"Type inconsistent, Provided",
    ),
    Listed(
        "more axes than MXNet's kernels have, and negative ones",
        "nd.* sym.* gluon.*",
        kind="allowed here|another line",
        words=r"only accept 2D|[Tt]oo many reduction axes|index = -?\d+ must be in range|"
        r"Not supported yet",
    ),
    Listed(
        "a gradient of 0 where MXNet knows none",
        "nd.* sym.* gluon.* autograd.*",
        kind="allowed here",
        words="is non-differentiable because it didn't register|take layer doesn't support",
    ),
    Listed(
        "what does not fit is an error here, where MXNet reads beyond its arrays",
        "nd.* sym.* gluon.*",
        kind="refused here|another line",
        words=r"weight's (spec|shape)|arrays? of size 1|need the same shape|gamma is|"
        r"square matrices on the last two axes|batch_take: indices|where: condition is|"
        r"Norm in node .* shapes do not fit|"
        r"one axis for each of|out of bounds|data needs more axes|needs data of two axes|"
        r"must name as many axes|needs matrices|the shape of data",
    ),
    Listed(
        "`grad_req='add'` adds wrong numbers in MXNet",
        "nd.linalg.gemm2 nd.linalg_gemm2",
        kind=r"value of \w+\.grad",
        program="grad_req='add'",
    ),
    Listed(
        "`nag` with `wd` and momentum: the momentum decays by the old weight",
        "nd.*nag* optimizer.NAG",
        kind="value",
    ),
    Listed(
        "`asscalar` of (1, 1) is a number, in MXNet an array",
        "nd.NDArray.asscalar",
        kind="type",
    ),
    Listed(
        "`float(x)` and `int(x)` work on arrays of one element",
        "nd.NDArray.__float__ nd.NDArray.__int__",
        kind="allowed here",
    ),
    Listed(
        "a sequence of length 0: MXNet reads before the array",
        "*.SequenceLast",
        kind="value",
    ),
    Listed(
        "the gradient of `selu` has the factor that MXNet misses",
        "gluon.nn.SELU *.LeakyReLU",
        kind="grad",
    ),
    Listed(
        "`SoftmaxOutput` of one or four axes merges its classes; MXNet's oneDNN does not",
        "*.SoftmaxOutput *.Softmax",
        kind="value",
    ),
    Listed(
        "the mean of small integers does not overflow",
        "*.mean *.moments gluon.loss.*",
        kind="value",
        program=r"dtype='u?int8",
    ),
    Listed(
        "a Symbol can be bound and evaluated where its variables' dtypes and shapes suffice",
        "sym.*",
        kind="allowed here",
        words=r"must be set for|in range \[0, -1\)|bad_alloc|InferShape failed|"
        r"dimension number is -1|ndim\(\) == \d \(-1 vs",
    ),
    Listed(
        "`BatchNorm` without scale leaves gamma as it is; MXNet overwrites it with 1",
        "gluon.nn.BatchNorm* nd.BatchNorm sym.BatchNorm",
        kind="gamma",
    ),
    Listed(
        "`autograd.grad` with respect to intermediate results, and to one array twice",
        "autograd.grad",
        kind="allowed here",
        words=r"IsVariable|nodeEntry\.node|zeros_without_dtype",
    ),
    Listed(
        "`reshape` to more elements reads beyond the array in MXNet",
        "*reshape *Reshape",
        kind="refused here",
        words="elements, the target would have",
    ),
    Listed(
        "the gradient of a product with an element 0 is nan in MXNet",
        "*prod",
        kind="value of .*grad",
    ),
    Listed(
        "`gamma` and `gammaln` at their poles: signs of infinite gradients",
        "*.gamma *.gammaln",
        kind="grad",
        words="inf",
    ),
    Listed(
        "layers and products of integers are an error that says how to convert them",
        "nd.* sym.* gluon.* metric.*",
        kind="refused here|another line",
        words="needs floating point",
    ),
    Listed(
        "`Dropout` with p = 1 is 0, in MXNet nan",
        "*.Dropout",
        kind="value",
        words="nan",
    ),
    Listed(
        "negative powers of integers are 0 or an error, not a division by 0 in C++",
        "*power *__pow__",
        kind="value",
        program=r"dtype='u?int",
    ),
    Listed(
        "an integer is neither nan nor infinite; MXNet says that 0 is infinite",
        "nd.contrib.isinf nd.contrib.isfinite",
        kind="value of y",
        program=r"dtype='u?int",
    ),
    Listed(
        "the sign of a determinant that rounding makes 0 or not",
        "*slogdet",
        kind="value",
    ),
    Listed(
        "eigenvectors of different signs",
        "*syevd",
        kind="value",
    ),
    Listed(
        "sparse gradients",
        "nd.* sym.* gluon.nn.Embedding",
        words="sparse_grad",
    ),
    Listed(
        "what d2lmini leaves out and says so",
        "*",
        kind="refused here",
        words="is not supported|left out",
    ),
    Listed(
        "a range without elements",
        "*arange *slice_axis",
        words="Invalid range|Invalid begin, end",
    ),
    Listed(
        "`sort(axis=None)` has a gradient",
        "*.sort",
        words="_backward_topk",
    ),
    Listed(
        "a negative index in a list or array: MXNet reads or writes before the array in a gradient",
        "nd.NDArray.__getitem__ nd.NDArray.__setitem__",
        kind="value",
        program=r"\[-\d|, -\d",
    ),
    Listed(
        "`empty` has no values",
        "nd.empty",
        kind="moments|value",
    ),
    Listed(
        "the norm of integers is cut off after other sums",
        "nd.norm nd.NDArray.norm",
        kind="value of y",
        program=r"dtype='u?int",
    ),
    Listed(
        "AdaDelta, AdaGrad, RMSProp and Ftrl of other dtypes: the states of MXNet are float32",
        "optimizer.AdaDelta optimizer.AdaGrad optimizer.RMSProp optimizer.Ftrl",
        kind="allowed here",
        words=r"Incompatible attr in node .*float(16|32|64), got float(16|32|64)",
    ),
    Listed(
        "AdaDelta, AdaGrad, RMSProp and Ftrl of other dtypes: the states of MXNet are float32",
        "optimizer.create",
        kind="allowed here",
        program=r"create\('(adadelta|adagrad|rmsprop|ftrl)'\)",
        words=r"Incompatible attr in node .*float(16|32|64), got float(16|32|64)",
    ),
    Listed(
        "`TopKAccuracy` of more than there are classes: all of them",
        "metric.TopKAccuracy",
        kind="allowed here",
        words=r"kth\(=-\d+\) out of bounds",
    ),
    Listed(
        "`TopKAccuracy` wants scores (N, C); MXNet compares labels with places in a sorted vector",
        "metric.TopKAccuracy",
        kind="refused here",
        words=r"scores must be \(N, C\)",
    ),
    Listed(
        "`Perplexity` of more than two axes, and of one",
        "metric.Perplexity",
        kind="allowed here|refused here",
        words=r"Shape inconsistent, Provided|exceeds the input dimension|predictions .* need",
    ),
    Listed(
        "a weight that is nan after a gradient of 0: without decay its states stay numbers",
        "optimizer.*",
        kind="value of state",
        program=r"(float16|[Aa]damax)[^$]*g = nd\.array\([^\n]*[\[ ]0(\.0)?[,\]]|"
        r"g = nd\.array\([^\n]*[\[ ]0(\.0)?[,\]][^\n]*float16",
    ),
    Listed(
        "LAMB with `multi_precision` moves float16 weights; the copy of MXNet stands still",
        "optimizer.LAMB",
        kind="value",
        program="multi_precision=True.*dtype='float16'",
    ),
    Listed(
        "`F1` and `MCC` flatten labels; MXNet compares each label with all of the other axis",
        "metric.F1 metric.MCC metric.create",
        kind="value|allowed here",
        program=r"label\d = nd\.array\(\[\[",
    ),
    Listed(
        "as many labels as predictions, else an error; MXNet leaves out the rest or repeats labels",
        "metric.F1 metric.MCC metric.TopKAccuracy metric.create",
        kind="refused here",
        words="Shape of labels",
    ),
    Listed(
        "an `average` that is neither 'macro' nor 'micro' is an error, in MXNet 'micro'",
        "metric.F1 metric.MCC",
        kind="refused here",
        words="average is 'macro' or 'micro'",
    ),
    Listed(
        "metrics of small integers are computed in floating point; in MXNet they overflow",
        "metric.MAE metric.MSE metric.RMSE metric.Perplexity metric.CompositeEvalMetric "
        "metric.create",
        kind="value",
        program=r"(label|pred)\d = nd\.array\([^\n]*dtype='u?int8'",
    ),
    Listed(
        "a head gradient has as many elements as its head, else MXNet reads beyond it",
        "autograd.backward autograd.grad",
        kind="refused here",
        words="a head gradient is like its head",
    ),
    Listed(
        "`AvgPool` with `ceil_mode`: windows beyond the edge, which oneDNN divides by other counts",
        "gluon.nn.AvgPool*",
        kind="value of (grad|y|hybrid)",
        program="ceil_mode=True",
    ),
    Listed(
        "padding as large as the window, which oneDNN refuses",
        "gluon.nn.AvgPool* gluon.nn.MaxPool*",
        kind="allowed here",
        words=r"pad_[lr]\[\d\] < kernel",
    ),
    Listed(
        "`BatchNormReLU` works everywhere, in MXNet only where oneDNN does",
        "gluon.nn.BatchNormReLU",
        kind="allowed here",
        words="only supports MKL-DNN",
    ),
    Listed(
        "`SDMLLoss` of more than two axes",
        "gluon.loss.SDMLLoss",
        kind="allowed here",
        words="too many values to unpack",
    ),
    Listed(
        "the angle of a vector of zeros has a finite gradient, in MXNet nan",
        "gluon.loss.CosineEmbeddingLoss",
        kind="grad",
        words="^[^,]*nan",
    ),
]

#: Names that are not drawn: files, pointers, what only waits, and what ends the real MXNet.
NOT_DRAWN = {
    f"nd.{name}"
    for name in "save load load_frombuffer from_dlpack from_numpy NDArray imdecode waitall".split()
} | {
    f"nd.NDArray.{name}"
    for name in "wait_to_read handle writable as_nd_ndarray as_in_ctx backward".split()
}


def table() -> str:
    """The differences as Markdown."""
    places: dict[str, list[str]] = {}
    for row in LISTED:
        places.setdefault(row.reason, []).extend(row.names.split())
    lines = ["| differs | where |", "| --- | --- |"]
    for words, names in sorted(places.items()):
        where = "any call" if "*" in names else " ".join(f"`{name}`" for name in names)
        lines.append(f"| {words} | {where} |")
    return "\n".join(lines) + "\n"


def find_row(path: str, text: str, kind: str, words: str) -> Listed | None:
    """The row that says why this difference is wanted, or None."""
    for row in LISTED:
        named = any(fnmatchcase(path, pattern) for pattern in row.names.split())
        if named and all(
            re.search(pattern, value, re.S)
            for pattern, value in ((row.kind, kind), (row.program, text), (row.words, words))
        ):
            return row
    return None
