"""What writes where: writes while recording, aliases, augmented assignments, masks of no axis.

The tables hold the answers of MXNet 1.9.1; with `D2LMINI_MXNET_PYTHON` it is asked anew. Random
programs of all this are drawn by `generators/writes.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import d2lmini
from d2lmini import MXNetError, autograd, nd


@pytest.fixture(params=["d2lmini", "mxnet"])
def ask(request):
    """Asks a function of this file, here or in the real MXNet."""
    if request.param == "mxnet":
        return request.getfixturevalue("mxnet").ask
    return lambda function, *arguments: function(d2lmini, *arguments)


# -- while recording -------------------------------------------------------------------------------

#: Keys of z, of shape (2, 3) or (1, 3), and whether they select all of it in its own order.
WHOLE = {
    "(2, 3)": ":  ...  0:2  -2:  0:9  ::1  None  ()  :,:  0:2,0:3  ...,:  :,...  None,:  :,None  "
    ":,:,...",
    "(1, 3)": ":  ...  0  -1  0:1  ::2  0,:  0,...  ...,0,:  0,0:3  None,0",
}
PART = {
    "(2, 3)": "0  1  0:1  1:  ::2  ::-1  :,0  :,0:2  :,::2  0,0  1,:  None,0  ...,1  [0,1]  [1,0]  "
    "[0]  (0,1),  [0,1],[1,2]  :,[0,1,2]  range(2)  onp.array([0,1])  onp.array([[0],[1]]),[0,1,2]"
    "  rows  rows,1",
    "(1, 3)": "[0]  :,0  0,1  0,[0,1,2]  rows*0",
}
NP_PART = "True  (rows>-1)  z>-1  rows,[0,2]"
WRITES = [
    (face, shape, key, answer)
    for face in ("nd", "np")
    for answer, table in (("whole", WHOLE), ("part", PART), ("part", {"(2, 3)": NP_PART}))
    for shape, keys in table.items()
    for key in keys.split("  ")
    if face == "np" or table.keys() != {"(2, 3)"}
]


def write_recorded(library, face, shape, key, value):
    """(gradient of x, z) after z[key] = value while recording, value being made of h = 3 x; or
    (class of the error, z, message)."""
    nd, autograd = library.nd, library.autograd
    if face == "np":
        library.npx.set_np()
    try:
        make = library.np if face == "np" else nd
        x, z = make.ones(eval(shape)), make.zeros(eval(shape))
        x.attach_grad()
        names = {"z": z, "onp": np, "rows": make.array([0, 1], dtype="int32")}
        with autograd.record():
            names["h"] = x * 3
            names["value"] = eval(value, names)
            try:
                exec(f"z[{key}] = value", names)
            except Exception as problem:
                return type(problem).__name__, z.asnumpy(), str(problem)
            loss = (z * 2).sum() + x.sum()
        loss.backward()
        return x.grad.asnumpy(), z.asnumpy()
    finally:
        library.npx.reset_np()


def landed(shape, key, value):
    """How often each element of h stands in z after z[key] = value; None if the value does not
    fit. NumPy says so."""
    h = np.arange(np.prod(eval(shape))).reshape(eval(shape))
    names = {"z": np.zeros_like(h), "h": h, "onp": np, "rows": np.array([0, 1])}
    try:
        exec(f"z[{key}] = {value}", names)
    except ValueError:
        return None
    return np.bincount(names["z"].reshape(-1), minlength=h.size).reshape(h.shape)


@pytest.mark.parametrize(("face", "shape", "key", "answer"), WRITES)
def test_a_write_while_recording(ask, face, shape, key, answer):
    """All of z gets the history of the value; a part takes a constant alone, and else is as it
    was."""
    if answer == "whole":
        for value in ("h", "h[0]", "h[None]", "h.reshape((-1,))[0:1]"):
            counts = landed(shape, key, value)
            if counts is not None:
                gradient, _ = ask(write_recorded, face, shape, key, value)
                assert (gradient == 1 + 6 * counts).all(), value
    else:
        kind, z, message = ask(write_recorded, face, shape, key, "h.reshape((-1,))[0:1]")
        assert kind == "MXNetError" and "Inplace operations (+=, -=, x[:]=, etc)" in message
        if "d2lmini" in message:  # MXNet writes before it raises
            assert not z.any() and "recorded at" in message and "concat, stack or where" in message
    gradient, z = ask(write_recorded, face, shape, key, "5")
    assert (gradient == 1).all() and (z == 5).any()


def test_the_refusal_names_both_lines():
    x, z = nd.ones((2, 3)), nd.zeros((2, 3))
    x.attach_grad()
    with autograd.record():
        h = x * 3
        row = h[0]
        for write in (lambda: z.__setitem__(1, row), lambda: row.copyto(z[0])):
            with pytest.raises(
                MXNetError, match=r"(?s)recorded at .*row = h.*written at .*lambda:"
            ):
                write()
        with pytest.raises(MXNetError, match=r"(?s)the array that is written has a history.*h = x"):
            h[0, 0] = 1
    assert not z.asnumpy().any()


# -- augmented assignments -------------------------------------------------------------------------


# -- masks of no axis ------------------------------------------------------------------------------

MASKS = """
    True | False | True, | False, | True, 0 | 0, True | :, True | True, : | ..., True | True, ...
    None, True | True, True | True, False | b(True) | b(False) | b(True), 0 | True, [0, 1]
    [0, 1], True | onp.bool_(True) | onp.array(False) | True, 1: | b([True, False]), True
    0, 0, True
"""


@pytest.mark.parametrize("shape", [(2, 3), (2,), (), (0, 2)], ids=str)
@pytest.mark.parametrize(
    "key", [k.strip() for k in MASKS.replace("\n", "|").split("|") if k.strip()]
)
def test_a_bool_is_a_mask_of_no_axis(shape, key):
    """As in NumPy. (In MXNet such a mask comes first among the axes of x[:, True].)"""
    numbers = np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)
    results = []
    for library in (np, d2lmini.np):
        x = library.array(numbers)
        names = {"x": x, "onp": np, "b": partial(library.array, dtype=bool)}
        try:
            found = eval(f"x[{key}]", names)
        except IndexError:
            results.append(None)
            continue
        written = []
        for value in (9, library.ones(found.shape)):
            names["x"] = x.copy()
            exec(f"x[{key}] = value", {**names, "value": value})
            written.append(names["x"].tolist())
        results.append((found.shape, found.tolist(), written))
    assert results[0] == results[1]


def test_the_gradient_behind_a_mask_of_no_axis():
    x = d2lmini.np.ones((2, 3))
    x.attach_grad()
    with autograd.record():
        loss = (x[True, [0, 0, 1]] * 2).sum() + x[:, True].sum() + x[False].sum()
    loss.backward()
    assert x.grad.tolist() == [[5, 5, 5], [3, 3, 3]]
