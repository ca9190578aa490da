"""Rows of the functions that make arrays."""

from np_rows.case import rows, whole

_MADE = {"grad": False, "numpy": False}

ROWS = [
    *rows(
        "array",
        "[1, 2]; [[1, 2], [3, 4]]; [True, False]; 2; 2.5; True; []; [[], []]; (1, 2); "
        "range(3); [1, 2], dtype='int32'; [1.5, 2], dtype=int; [0, 1], dtype=bool; "
        "onp.arange(3); onp.float64(2); onp.int64(2); onp.ones(2, 'float32'); "
        "onp.ones(2, bool); onp.ones(2), dtype='float32'; [onp.float64(1), onp.float64(2)]; "
        "f(2, 3); i(3); f(2), dtype='int32'; [f(), f()]; [f(2), f(2)]; [1.0, f()]; "
        "[onp.ones(2), onp.zeros(2)]; onp.ones((2, 2)).T",
        **_MADE,
    ),
    *rows("array", "[[f(), 1], [2, f()]]", traced=False, **_MADE),
    *rows("array", "None", numpy=False, error="TypeError", mxnet="MXNet makes nan of it"),
    *rows("array", "'text'; [[1, 2], [3]]", numpy=False, error="Exception"),
    *whole(
        "empty",
        "np.empty(3).shape; np.empty((2, 0)).dtype.name; np.empty((), dtype=bool).dtype.name",
        **_MADE,
    ),
    *rows(
        "zeros ones",
        "3; (2, 3); (); (0, 2); [2, 3]; shape=(2,); 2, 'int32'; 2, dtype=bool; "
        "(2,), dtype=np.float64; 2, order='C'; 2, ctx=npx.cpu(); onp.int64(3); 2, int",
        **_MADE,
    ),
    *rows(
        "full",
        "3, 2; (2, 3), 1.5; (), 2; 2, True; (2,), 3, dtype='int32'; (2,), onp.int64(3); "
        "2, fill_value=4.0; (2, 2), f(); (2, 3), f(3)",
        grad=False,
        numpy=False,
    ),
    *rows(
        "zeros_like ones_like",
        "f(2, 3); i(3); f(); b(2); f(2), dtype='int32'; f(0, 2)",
        grad=False,
        numpy=False,
    ),
    *rows(
        "arange",
        "5; 2, 5; 1, 5, 2; 5, 1, -2; 0, 1, 0.3; 0.5; 3, dtype='int32'; 3, dtype=np.int64; "
        "start=1, stop=4; 0; 3, ctx=npx.cpu()",
        **_MADE,
    ),
    *rows(
        "linspace",
        "0, 1, 5; 0, 1, 5, endpoint=False; 0, 1; 2, 5, num=4, dtype='int32'; "
        "0, 1, 3, retstep=True; 0, 1, 1; 0, 1, 0",
        **_MADE,
    ),
    *rows("eye", "3; 2, 3; 3, k=1; 3, 3, -1; 2, dtype='int32'", **_MADE),
    *rows("meshgrid", "f(2), f(3); f(2), f(3), indexing='ij'; f(2), f(3), f(4); f(3)"),
    *rows("copy", "f(2, 3); i(3); f()"),
]
