"""Rows of the functions that change shapes, and of those that join, split and repeat."""

from np_rows.case import rows

ROWS = [
    *rows(
        "reshape",
        "f(2, 3), (3, 2); f(2, 3), -1; f(2, 3), (3, -1); f(1), (); f(), (1, 1); "
        "f(0, 3), (3, 0); i(2, 3), 6; b(2, 3), (3, 2)",
    ),
    *rows("reshape", "f(2, 3), newshape=(6,)", numpy=False),
    *rows("reshape", "f(2, 3), (4, 2); f(2, 3), (4, -1)", numpy=False, error="ValueError"),
    *rows("ravel", "f(2, 3); f(); i(2, 2); f(0, 2)"),
    *rows(
        "transpose",
        "f(2, 3); f(2, 3, 4); f(2, 3, 4), (1, 0, 2); f(2, 3, 4), axes=(-1, 0, 1); f(3); "
        "f(); i(2, 3); f(0, 3)",
    ),
    *rows("swapaxes", "f(2, 3, 4), 0, 2; f(2, 3), -1, 0"),
    *rows("expand_dims", "f(2, 3), 0; f(2, 3), axis=-1; f(), 0; i(3), 1"),
    *rows(
        "squeeze",
        "f(1, 3, 1); f(1, 3, 1), 0; f(1, 3, 1), axis=-1; f(1, 1); f(1, 3, 1), (0, 2); "
        "f(1, 3, 1), ()",
    ),
    *rows("squeeze", "f(2, 1), 0", numpy=False, error="Exception"),
    *rows("broadcast_to", "f(3), (2, 3); f(2, 1), (2, 3); f(), (2, 2); i(1), (3,)"),
    *rows("broadcast_to", "2, (3,); 2.5, (2, 2); True, 2; onp.float64(2), ()", numpy=False),
    *rows("broadcast_to", "f(3), (2, 2)", numpy=False, error="Exception"),
    *rows("broadcast_arrays", "f(2, 1), f(3)"),
    *rows(
        "concatenate",
        "[f(2, 3), f(1, 3)]; (f(2, 3), f(2, 1)), axis=1; [f(2), f(3)], 0; "
        "[f(2, 3), f(1, 3)], axis=None; [i(2), i(3)]; [f(0, 2), f(1, 2)]",
    ),
    *rows("concatenate", "[i(2), f(3)]", numpy=False, grad=False, mxnet="MXNet refuses two dtypes"),
    *rows(
        "stack",
        "[f(2, 3), f(2, 3)]; (f(2), f(2)), axis=1; [f(), f()]; [f(2), f(2)], axis=-1; [i(2), i(2)]",
    ),
    *rows("stack", "[f(2), f(3)]", numpy=False, error="Exception"),
    *rows("vstack", "[f(3), f(3)]; (f(2, 3), f(1, 3))", numpy="np.vstack"),
    *rows("split", "f(6), 3; f(4, 2), 2; f(4, 6), 3, axis=1; f(6), [2, 3]; f(6), (1, 5)"),
    *rows("array_split", "f(5), 2; f(4, 2), 3; f(2, 5), 2, axis=1; f(6), [2, 3]; f(1), 2"),
    *rows("split", "f(5), 2", numpy=False, error="ValueError"),
    *rows("array_split", "f(5), 2; f(4, 5), [1, 3], axis=1"),
    *rows(
        "tile",
        "f(2, 3), 2; f(2, 3), (2, 1); f(3), (2, 2); f(), 3; i(2), 2; f(2, 3), (2, 1, 1); "
        "f(), (); f(2, 3), ()",
    ),
    *rows(
        "repeat",
        "f(2, 3), 2; f(2, 3), 2, axis=0; f(2, 3), repeats=3, axis=-1; i(3), 2; f(), 3",
    ),
    *rows(
        "repeat",
        "f(3), [1, 0, 2]; f(2, 3), (1, 2), axis=0",
        mxnet="MXNet refuses counts as a list",
    ),
    *rows("shape", "f(2, 3); f()", grad=False, traced=False),
    *rows("ndim size", "f(2, 3); f()", grad=False),
]
