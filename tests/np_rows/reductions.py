"""Rows of the reductions."""

from np_rows.case import rows

_AXES = ("f(2, 3)", "f(2, 3), axis=0", "f(2, 3), axis=-1, keepdims=True", "f(2, 3, 4), axis=(0, 2)",
         "f(), axis=None", "f(3), axis=0", "f(2, 3), keepdims=True", "d(2, 3), axis=1")  # fmt: skip

ROWS = [
    *rows("sum mean", *_AXES, "h(2, 3)", "f(2, 3), 1", "f(2, 3, 2), axis=(0, 1, 2)"),
    *rows("prod", *_AXES),
    *rows("max min amax amin", *_AXES),
    *rows("sum prod", "f(0, 3), axis=1"),
    *rows("sum", "f(0, 3); f(0, 3), axis=0"),
    *rows("prod", "f(0, 3); f(0, 3), axis=0", mxnet="MXNet's product of nothing is 0"),
    *rows("sum prod", "i(2, 3); l(2, 3), axis=0; b(2, 3); k(3)", numpy=False, grad=False),
    *rows(
        "sum mean",
        "f(2, 3), dtype='float64'; i(2, 3), dtype='float64'; i(3), dtype=np.int64; "
        "b(2, 3), dtype=np.float64",
        numpy=False,
        grad=False,
    ),
    # Floats keep their fractions and gradients; only the result is an integer.
    *rows(
        "sum mean",
        "f(2, 3), dtype='int32'; f(2, 3), axis=1, dtype='int64'; h(3), dtype=int",
        numpy=False,
        grad=False,
    ),
    *rows("sum", "b(3), dtype=bool", mxnet="MXNet refuses bool", grad=False),
    *rows("mean", "b(3), dtype=bool; i(3), dtype='int32'; f(3), dtype='float16'", grad=False),
    *rows("prod", "f(3), dtype='int64'", numpy=False, grad=False),
    *rows("std var", "p(4) * 5, dtype='int32'", numpy=False, grad=False),
    *rows("std var", "l(4), dtype='int32'", numpy=False, grad=False),
    *rows("mean", "i(2, 3); l(2, 3), axis=0; b(2, 3)", numpy=False, grad=False),
    *rows(
        "std var",
        "i(2, 3); l(2, 3), axis=0; b(2, 3)",
        numpy=False,
        grad=False,
        mxnet="MXNet's result keeps the integer dtype, and cuts",
    ),
    *rows("max min", "i(2, 3); l(2, 3), axis=0; k(4)", grad=False),
    *rows("max min", "f(0); f(0, 3), axis=0", numpy=False, error="ValueError"),
    *rows(
        "std var",
        *(given for given in _AXES if "f()" not in given),
        "f(2, 3), ddof=1",
        "f(2, 3), axis=1, ddof=1",
        slope="MXNet's is wrong",
    ),
    *rows("std var", "f()", grad=False),
    *rows(
        "argmax argmin",
        "f(2, 3); f(2, 3), axis=0; f(2, 3), 1; f(); i(2, 3); l(5); d(2, 3), axis=1; h(4)",
        grad=False,
    ),
    *rows("argmax argmin", "f(0)", numpy=False, error="ValueError"),
    *rows("cumsum", "f(2, 3); f(2, 3), axis=0; f(2, 3), 1; f(4); f(0); d(3)"),
    *rows("cumsum", "i(4); l(2, 3), axis=0; f(3), dtype='float64'; b(3)", numpy=False, grad=False),
    *rows(
        "any all",
        "b(2, 3); b(2, 3), axis=0; f(2, 3); i(6); f(0); b(2, 3), axis=(0, 1); "
        "b(2, 3), axis=1, keepdims=True; b()",
        grad=False,
    ),
    *rows("median", "f(2, 3)", grad=False, traced=False, mxnet="MXNet 1.9 has none"),
    *rows("ptp", "f(2, 3); f(2, 3), axis=0", grad=False, traced=False),
    *rows("percentile quantile", "f(2, 3), 0.25, axis=0", grad=False, traced=False),
    *rows(
        "cumprod",
        "f(2, 3); f(2, 3), axis=0",
        grad=False,
        traced=False,
        mxnet="MXNet 1.9 has none",
    ),
    *rows("count_nonzero", "i(2, 3); b(2, 3), axis=0", grad=False, traced=False),
]
