"""Writes the files in tests/data/params with the real MXNet 1.9.1; run once, the files are kept.

    python tests/data/make_params.py     # needs mxnet==1.9.1 and numpy==1.23.5

`CASES` says what the files hold; test_serialize.py reads it without MXNet. MXNet itself no
longer writes the records of its older versions (legacy_v0, legacy_v1): those two files are put
together here byte by byte, and MXNet has to read them as we mean them.
"""

import os
import struct

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "params")
CPU = (1, 0)
FLOATS = [0.0, -0.0, 1.5, -2.0, np.inf, np.nan]


def _ints(name):
    info = np.iinfo(name)
    return np.array([[info.min, 0, 1], [2, 3, info.max]], dtype=name)


_every_dtype = [
    (np.array(FLOATS, "float32").reshape(2, 3), CPU),
    (np.array(FLOATS, "float64").reshape(3, 2), CPU),
    (np.array(FLOATS, "float16"), CPU),
    (_ints("uint8"), CPU),
    (_ints("int32"), CPU),
    (_ints("int8"), CPU),
    (_ints("int64"), CPU),
    (np.array([True, False, True]), CPU),
]
_weights = [
    (np.arange(6, dtype="float32").reshape(2, 3), CPU),
    (np.array([0.5, -0.5], "float32"), CPU),
    (np.ones((1, 1, 1, 1), "float64"), CPU),
    (np.array([7], "int32"), CPU),
]
_no_elements = [
    (np.empty((0,), "float32"), CPU),
    (np.empty((2, 0, 3), "int64"), CPU),
    (np.array([5.0], "float32"), CPU),
]

# file -> (arrays with their contexts, names)
CASES = {
    "single": ([(np.arange(4, dtype="float32"), CPU)], []),
    "every_dtype": (_every_dtype, []),
    "names": (_weights, ["0.weight", "arg:b\u00efas", "", "aux:moving_mean"]),
    "contexts": ([(np.ones(2, "float32"), ctx) for ctx in [(1, 0), (1, 3), (3, 0), (5, 0)]], []),
    "nothing_list": ([], []),
    "nothing_dict": ([], []),
    "no_elements": (_no_elements, []),
    # Saved inside np_shape(True): V3 records.
    "np_shape": (
        [(np.array(3.5, "float32"), CPU), _no_elements[0], _weights[0]],
        ["scalar", "none", "weight"],
    ),
    # Saved outside: MXNet writes this V2 record of a scalar, but cannot read it.
    "scalar_v2": ([(np.array(3.5, "float32"), CPU), _weights[1]], []),
    "legacy_v1": (_weights[:2], ["w", "b"]),
    "legacy_v0": (_weights[:2], ["w", "b"]),
}
# Sparse arrays are refused; the refusal names "r" and "c".
SPARSE = np.array([[0, 0, 0], [1, 0, 2], [0, 0, 0]], "float32")


def _legacy_file(old):
    arrays, names = CASES["legacy_v0" if old else "legacy_v1"]
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for a, ctx in arrays:
        if old:
            parts.append(struct.pack(f"<I{a.ndim}I", a.ndim, *a.shape))
        else:
            parts.append(struct.pack(f"<II{a.ndim}q", 0xF993FAC8, a.ndim, *a.shape))
        parts.append(struct.pack("<iii", *ctx, 0) + a.tobytes())
    parts.append(struct.pack("<Q", len(names)))
    for name in names:
        parts.append(struct.pack("<Q", len(name)) + name.encode())
    return b"".join(parts)


def main():
    import mxnet as mx

    def path(case):
        return os.path.join(HERE, case + ".params")

    def nd(a, ctx=CPU):
        place = mx.Context(mx.Context.devtype2str[ctx[0]], ctx[1])
        return mx.nd.array(a, dtype=a.dtype, ctx=place)

    def check(case):
        arrays, names = CASES[case]
        got = mx.nd.load(path(case))
        if isinstance(got, dict):
            assert list(got) == names
            got = list(got.values())
        else:
            assert not names
        assert len(got) == len(arrays)
        for x, (a, _) in zip(got, arrays):
            assert x.shape == a.shape and x.dtype == a.dtype.type
            np.testing.assert_array_equal(x.asnumpy(), a)
            assert x.context == mx.cpu(0)

    os.makedirs(HERE, exist_ok=True)
    for case, (arrays, names) in CASES.items():
        if case.startswith("legacy"):
            with open(path(case), "wb") as f:
                f.write(_legacy_file(old=case == "legacy_v0"))
            check(case)
            continue
        with mx.util.np_shape(case == "np_shape"):
            values = [nd(a, ctx) for a, ctx in arrays]
            if case == "nothing_dict":
                mx.nd.save(path(case), {})
            elif case == "single":
                mx.nd.save(path(case), values[0])
            else:
                mx.nd.save(path(case), dict(zip(names, values)) if names else values)
            if case != "scalar_v2":
                check(case)

    sparse = {"r": "row_sparse", "c": "csr"}
    tangle = {"w": nd(SPARSE), **{k: nd(SPARSE).tostype(v) for k, v in sparse.items()}}
    # Without this wait the file may say that a csr array has no values, though it has.
    mx.nd.waitall()
    mx.nd.save(path("sparse"), tangle)


if __name__ == "__main__":
    main()
