"""Rows of the functions that work element by element."""

from np_rows.case import rows

_PAIRS = ("f(2, 3), f(2, 3)", "f(2, 1), f(3)", "f(), f(3)", "f(), f()", "f(0, 3), f(3)",
          "f(3), 2", "1.5, f(3)", "d(3), d(3)", "h(3), h(3)")  # fmt: skip
_MIXED = ("i(3), i(3)", "i(3), f(3)", "l(3), f(3)", "h(3), f(3)", "h(3), i(3)",
          "f(3), b(3)", "d(3), f(3)", "i(3), 2", "l(3), 2", "k(3), 2")  # fmt: skip
_TWO = "MXNet refuses two dtypes here"
_NONE = "MXNet 1.9 has none"
_CUTS = "MXNet cuts the number to the dtype of the array"
_ROUNDS = "MXNet's result keeps the integer dtype, and cuts"

ROWS = [
    *rows("add subtract multiply", *_PAIRS),
    *rows("add subtract multiply", *_MIXED, numpy=False, grad=False),
    *rows("add multiply", "i(3), l(3)", numpy=False, grad=False),
    *rows("subtract", "i(3), l(3)", numpy=False, grad=False, mxnet=_TWO),
    *rows("add multiply", "b(4), b(4)", grad=False),
    *rows("subtract", "b(4), b(4)", numpy=False, error="MXNetError"),
    *rows("add", "i(3), 1.5", grad=False, mxnet=_CUTS),
    *rows("add", "f(3), onp.float64(2)", numpy=False),
    *rows(
        "divide true_divide",
        "f(2, 3), p(2, 3); f(2, 1), p(3); f(), p(3); f(3), 2; 1.5, p(3); d(3), d(3)",
    ),
    *rows("divide true_divide", "h(3), p(3)", mxnet=_TWO),
    *rows(
        "divide true_divide",
        "i(3), 2; l(3), 3; i(3), i(3) * 0 + 2; b(3), 2; 2, i(3) * 0 + 4",
        numpy=False,
        grad=False,
    ),
    *rows("mod remainder", "f(2, 3), p(2, 3); f(2, 1), p(3); f(3), 0.7; f(), p(3); 2.5, p(3)"),
    *rows("mod remainder", "i(5), 2; l(5), 3; i(5), i(5) * 0 + 2", numpy=False, grad=False),
    *rows("fmod", "f(2, 3), p(2, 3); f(3), 0.7; i(6), 2", mxnet=_NONE, grad=False),
    *rows(
        "floor_divide",
        "f(2, 3), p(2, 3); f(3), 0.7; i(6), 2; l(6), 3",
        mxnet=_NONE,
        grad=False,
    ),
    *rows(
        "power",
        "p(2, 3), f(2, 3); p(2, 1), f(3); p(), f(3); f(3), 2; f(3), 3; p(3), 0.5; "
        "1.5, f(3); d(3), 2",
    ),
    *rows("power", "i(3), 2; l(3), 2; 2, k(3)", numpy=False, grad=False),
    *rows("maximum minimum", *_PAIRS),
    *rows("maximum minimum", "i(3), i(3); i(3), 1; n(4), f(4)", numpy=False, grad=False),
    *rows("maximum minimum", "i(3), f(3); l(3), i(3)", numpy=False, grad=False, mxnet=_TWO),
    *rows("hypot", "f(2, 3), f(2, 3); f(2, 1), f(3); f(3), 2; 2, f(3); f(), f()"),
    *rows("arctan2", "f(2, 3), f(2, 3); f(2, 1), f(3); f(3), 2; f(), f()"),
    *rows("arctan2", "2, f(3)", slope="MXNet's is wrong"),
    *rows("hypot arctan2", "i(3), i(3); l(3), 2", grad=False, mxnet=_ROUNDS),
    *rows(
        "equal not_equal greater greater_equal less less_equal",
        "f(2, 3), f(2, 3); f(2, 1), f(3); f(), f(3); f(0, 2), f(2); f(3), 1; 1, f(3); "
        "i(6), i(6); i(6), 1; l(6), l(6); b(4), b(4); n(4), n(4)",
        grad=False,
    ),
    *rows("equal greater less_equal", "i(3), f(3); h(3), d(3)", grad=False, mxnet=_TWO),
    *rows("equal", "i(4), 0.5", grad=False, mxnet=_CUTS),
    *rows("less", "k(4), -1; i(4), 0.5", grad=False, mxnet=_CUTS),
    *rows(
        "logical_and logical_or logical_xor",
        "b(4), b(4); f(3) > 0, f(3) > 0; i(6), i(6); f(3), 0",
        grad=False,
        mxnet=_NONE,
    ),
    *rows("logical_not", "b(4); i(6); f(2, 3); f()", grad=False),
    *rows(
        "bitwise_and bitwise_or bitwise_xor",
        "i(6), i(6); b(4), b(4); i(6), 3; k(4), k(4)",
        grad=False,
    ),
    *rows("bitwise_and", "l(6), i(6)", grad=False, mxnet=_TWO),
    *rows("bitwise_not invert", "i(6); l(6); b(4); k(3)", grad=False),
    # -- one operand -------------------------------------------------------------------------------
    *rows(
        "abs absolute fabs negative square exp expm1 sin cos tan sinh cosh tanh arctan arcsinh"
        " cbrt degrees radians",
        "f(2, 3); f(); f(0, 2); d(3); h(3)",
    ),
    *rows("rad2deg deg2rad", "f(2, 3)", mxnet="MXNet's own fail"),
    *rows("sqrt log log2 log10 log1p reciprocal", "p(2, 3); p(); p(0, 2); p(3)"),
    *rows("arcsin arccos arctanh", "u(2, 3); u(); u(0, 2)"),
    *rows("arccosh", "1 + p(2, 3); 1 + p()"),
    *rows("sign floor ceil trunc fix rint", "f(2, 3); f(); f(0, 2); d(3); h(3)", grad=False),
    *rows(
        "abs negative square sign floor ceil trunc fix rint",
        "i(6); l(6)",
        numpy=False,
        grad=False,
    ),
    *rows("exp sin tanh cos arctan", "i(6); l(6)", numpy=False, grad=False),
    *rows("sqrt log cbrt", "abs(i(6)) + 1; abs(l(6)) + 1", numpy=False, grad=False),
    *rows("exp sqrt log abs sign", "k(4) + 1", numpy=False, grad=False),
    *rows("isnan isinf isfinite", "n(5); f(2, 3) / 0; f(); i(4)", grad=False),
    *rows(
        "clip",
        "f(2, 3), -0.5, 0.5; f(3), None, 0.5; f(3), a_min=-1, a_max=None; f(), 0, 1; d(3), -1, 1",
    ),
    *rows("clip", "i(6), -1, 2; l(6), 0, None", numpy=False, grad=False),
    *rows("clip", "f(3), None, None", numpy=False, error="ValueError"),
    *rows("clip", "2.5, 0, 1; onp.float32(0.5), 0, 1; -2, a_min=0, a_max=None", grad=False),
    *rows(
        "around round round_",
        "f(2, 3); f(2, 3), 1; f(2, 3), decimals=2; i(4)",
        grad=False,
        numpy=False,
    ),
]
