"""Rows of the functions that choose, sort and search."""

from np_rows.case import rows

ROWS = [
    *rows(
        "where",
        "b(2, 3), f(2, 3), f(2, 3); b(3), f(2, 3), f(2, 1); b(), f(), f(); "
        "f(2, 3), f(2, 3), f(3); b(2, 1), f(3), 2; n(4) > 0, 0.0, n(4); f(0) > 0, f(0), 2.0",
    ),
    *rows("where", "f(3) > 0, f(3), 0.0; b(3), 1.5, f(3)", slope="MXNet's is wrong"),
    *rows("where", "b(3), i(3), i(3); b(3), i(3), 2; b(3), b(3), b(3)", numpy=False, grad=False),
    *rows(
        "where",
        "b(3), i(3), f(3); b(3), l(3), i(3)",
        numpy=False,
        grad=False,
        mxnet="MXNet refuses two dtypes here",
    ),
    *rows("where", "b(3), 1, 0; b(3), 1.0, 0.0", numpy=False, grad=False),
    *rows("where", "True, f(3), f(3); onp.bool_(True), f(), 2.0"),
    *rows("where", "0, f(3), 2.0; 0.0, f(2, 3), p(3)", mxnet="MXNet forgets the shape"),
    *rows("where", "1, 2, 3; False, 2.5, 3", grad=False, numpy=False),
    *rows("where nonzero", "b(2, 3); i(6)", grad=False, traced=False),
    *rows(
        "take",
        "f(5), i(3) * 0 + 2; f(3, 4), np.array([0, 2]), axis=1, mode='clip'; "
        "f(3, 4), np.array([5, -1]), mode='wrap'; "
        "f(3, 4), np.array([9, 1]), axis=0, mode='clip'; "
        "f(3, 4), q(3), axis=0, mode='clip'; f(5), q(4), mode='clip'; "
        "f(5), np.array(1), mode='clip'",
        numpy=False,
    ),
    *rows("sort", "f(5); f(2, 3); f(2, 3), axis=0; f(2, 3), axis=None; i(6); d(4)"),
    *rows("sort", "f()", error="MXNetError"),
    *rows("argsort", "f(5); f(2, 3); f(2, 3), axis=0; d(5); f(0)", grad=False),
    *rows("argsort", "f(2, 3), axis=None", grad=False),
    *rows(
        "unique",
        "i(6); i(6), return_index=True; i(6), return_inverse=True; "
        "i(6), return_counts=True; f(2, 3); i(6), True, True, True",
        grad=False,
        traced=False,
    ),
    *rows("argwhere", "i(6); i(2, 3)", grad=False, traced=False),
    *rows(
        "searchsorted",
        "np.array([1, 2, 3]), np.array([0.5, 2.5]); np.array([1, 2, 3]), 2.5",
        grad=False,
        traced=False,
    ),
    *rows("histogram", "f(9), bins=3", grad=False, traced=False, mxnet="MXNet wants a range"),
    *rows(
        "histogram",
        "f(9), np.array([-2, 0, 2]); f(9), 4, range=(-1, 1)",
        grad=False,
        traced=False,
        numpy=False,
    ),
    *rows("isin", "i(6), np.array([0, 1])", grad=False, traced=False, numpy=False),
]
