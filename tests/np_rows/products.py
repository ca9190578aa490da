"""Rows of products, of `np.linalg`, and of the numerical functions beside them."""

from np_rows.case import rows, whole

_WAITS = {"grad": False, "traced": False}

ROWS = [
    *rows(
        "dot",
        "f(2, 3), f(3, 4); f(3), f(3); f(2, 3), f(3); f(3), f(3, 2); f(), f(3); "
        "f(2, 3, 4), f(4, 2); f(2, 3, 4), f(5, 4, 2); d(2, 2), d(2, 2); f(0, 3), f(3, 2); "
        "f(2, 0), f(0, 2)",
    ),
    *rows("dot", "f(2, 3), 2", mxnet="MXNet refuses numbers"),
    *rows("dot", "f(2, 3), f(2, 3)", numpy=False, error="Exception"),
    *rows(
        "matmul",
        "f(2, 3), f(3, 4); f(3), f(3); f(2, 3), f(3); f(3), f(3, 2); "
        "f(5, 2, 3), f(5, 3, 4); f(5, 2, 3), f(3, 4); f(5, 2, 3), f(3); f(3), f(5, 3, 2)",
    ),
    *rows("matmul", "f(4, 1, 2, 3), f(5, 3, 2)", slope="MXNet's is wrong"),
    *rows("matmul", "f(2, 3), f(2, 3); f(), f(3)", numpy=False, error="Exception"),
    # -- np.linalg ---------------------------------------------------------------------------------
    *rows(
        "linalg.norm",
        "f(3); f(2, 3); f(2, 3), axis=1; f(2, 3), axis=0, keepdims=True; f(3), 1; f(3), 3; "
        "f(2, 3), 'fro'; f(2, 3), ord=2, axis=1; f(2, 3, 4), axis=(1, 2); f()",
    ),
    *rows("linalg.norm", "f(3), np.inf; f(3), -np.inf", mxnet="MXNet fails"),
    *rows("linalg.norm", "f(3), 0", grad=False),
    *rows(
        "linalg.norm", "f(2, 3), 1, (0, 1)", numpy=False, error="ValueError", mxnet="left out here"
    ),
    *rows("linalg.inv linalg.cholesky linalg.pinv", "s(3); s(2, 3)", **_WAITS, rtol=0.0001),
    *rows("linalg.eigvalsh", "s(3)", **_WAITS, rtol=1e-4),
    *rows("linalg.solve", "s(3), f(3); s(3), f(3, 2)", **_WAITS, rtol=0.0001),
    *rows("linalg.det", "s(2, 3)", **_WAITS, rtol=1e-4),
    *rows("linalg.slogdet", "s(2, 3)", **_WAITS, numpy=False, rtol=1e-4),
    *rows("linalg.eigh", "s(2, 3)", **_WAITS, numpy=False, mxnet="a vector has either sign"),
    *rows("linalg.svd", "f(2, 3)", **_WAITS, numpy=False, mxnet="MXNet's is (U, L, V)"),
    *whole("linalg.eig", "[abs(x) for x in np.linalg.eig(s(3))]", numpy=False, **_WAITS),
    *rows("linalg.eigvals", "s(3)", numpy=False, **_WAITS),
    *rows("linalg.qr", "f(3, 2)", numpy=False, **_WAITS),
    *rows("linalg.lstsq", "f(4, 2), f(4), rcond=None", numpy=False, **_WAITS),
    *rows("linalg.cond linalg.matrix_rank", "s(3)", **_WAITS),
    *rows("linalg.matrix_power", "s(3), 3; s(3), -1", **_WAITS, rtol=0.0001),
    *rows("linalg.multi_dot", "[f(2, 3), f(3, 4), f(4, 2)]", **_WAITS, rtol=1e-4),
    *rows("linalg.tensorinv", "f(4, 2, 2), ind=1", **_WAITS, rtol=1e-3),
    *rows("linalg.tensorsolve", "s(3), f(3)", **_WAITS, rtol=1e-4),
    # -- numerical functions -----------------------------------------------------------------------
    *rows(
        "interp",
        "f(3), np.array([-1, 0, 1]), np.array([3, 4, 5]); 0.5, np.array([0, 1]), np.array([3, 4])",
        **_WAITS,
        numpy=False,
    ),
    *rows("isclose allclose", "f(3), f(3)", **_WAITS, numpy=False),
    *rows("array_equal", "f(3), f(3); f(3), f(2)", **_WAITS),
    *whole(
        "result_type",
        "np.result_type('int32', 'float32').name; np.promote_types('int8', 'uint8').name",
        **_WAITS,
        numpy=False,
    ),
]
