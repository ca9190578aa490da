"""What writes where: writes while recording, aliases, augmented assignments, masks of no axis.

The tables hold the answers of MXNet 1.9.1; with `D2LMINI_MXNET_PYTHON` it is asked anew. Random
programs of all this are drawn by `generators/writes.py`.
"""

from __future__ import annotations

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
NP_PART = "(rows>-1)  z>-1  rows,[0,2]"
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


def test_a_write_of_the_memory_itself_gives_the_history():
    x = nd.ones(3)
    x.attach_grad()
    with autograd.record():
        y = x * 2
        z = y.detach()
        z[:] = y
        loss = (z * z).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [8, 8, 8]


def test_a_view_in_place_has_the_history():
    x = nd.ones((2, 1, 3))
    x.attach_grad()
    for view in (lambda h: h.flatten(inplace=True), lambda h: h.squeeze(inplace=True),
                 lambda h: h.expand_dims(0, inplace=True)):  # fmt: skip
        with autograd.record():
            loss = (view(x * 3) * 2).sum()
        loss.backward()
        assert (x.grad.asnumpy() == 6).all()


# -- aliases ---------------------------------------------------------------------------------------

#: (interface, MXNet and ours, NumPy): expressions of x. 'view': a write to the result is seen in x;
#: 'same': the result is x. "" where NumPy has no such call. Not asked: np's
#: x.as_in_context and split_and_load on x's device, which give x itself, another handle in MXNet.
ALIASES = {
    ("nd", "same", ""): """
        x[:] | x[()] | x.astype('float32', copy=False) | x.as_in_context(mx.cpu())
        x.as_nd_ndarray() | mx.gluon.utils.split_and_load(x, [mx.cpu()])
    """,
    ("nd", "view", ""): """
        x[...] | x[0] | x[0:2] | x[0:1] | x[1,1:3] | x[:,0:4] | x[::2] | x[None] | x[:,None]
        x[0][1:3] | next(iter(x)) | x.reshape((4, 2)) | x.reshape(-1) | x.reshape((2, 4))
        x.expand_dims(axis=0, inplace=True) | x.squeeze(axis=None, inplace=True)
        x.flatten(inplace=True) | x[0].T | x.detach() | x.as_np_ndarray()
        mx.gluon.utils.split_data(x, 2) | mx.gluon.utils.split_data(x, 1)
        mx.gluon.utils.split_and_load(x, [mx.cpu(), mx.cpu()])
        mx.gluon.utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)])
    """,
    ("nd", "copy", ""): """
        x[:,0] | x[:,0:1] | x[::-1] | x[[0, 1]] | x.reshape_like(mod.zeros((4, 2)))
        x.reshape_like(mod.zeros((2, 4))) | x.flatten() | x.squeeze() | x.expand_dims(0) | x.T
        x.transpose() | x.transpose((0, 1)) | x.swapaxes(0, 1) | x.slice((0, 0), (1, 4))
        x.slice_axis(axis=0, begin=0, end=1) | x.slice_axis(axis=0, begin=0, end=2)
        x.split(2, axis=0) | x.split(1, axis=0) | x.split_v2(2)
        x.split_v2((1, )) | x.split(1) | x.broadcast_to((2, 4))
        x.broadcast_like(mod.zeros((2, 4))) | x.broadcast_axes(axis=(), size=()) | x.diag()
        x.tile((1, 1)) | x.repeat(1) | x.flip(0) | x.take(mod.array([0, 1]))
        x.pick(mod.array([0, 1])) | x.copy() | x.copyto(mx.cpu()) | x.copyto(mx.cpu(1))
        x.astype('float32') | x.astype('float64', copy=False) | x.as_in_context(mx.cpu(1))
        x.tostype('default') | mod.array(x) | mod.reshape(x, shape=(4, 2)) | mod.reshape(x, (2, 4))
        mod.Reshape(x, shape=(4, 2)) | mod.flatten(x) | mod.squeeze(x) | mod.expand_dims(x, axis=0)
        mod.transpose(x) | mod.concat(x, dim=0) | mod.stack(x) | mod.add_n(x) | mod.identity(x)
        mod.BlockGrad(x) | mod.stop_gradient(x) | mod.Cast(x, 'float32')
        mod.slice(x, (0, 0), (2, 4)) | mod.split(x, 1, axis=0)
        mod.SliceChannel(x, num_outputs=2, axis=0) | mod.concatenate([x])
        mod.make_loss(x) | mod.Dropout(x) | mod.Dropout(x, p=0) | mod.clip(x, -100, 100) | x+0 | x*1
        mod.reshape_like(x, mod.zeros((4, 2))) | mod.broadcast_to(x, (2, 4))
        mx.gluon.utils.split_data(x, 2, batch_axis=1) | copy.copy(x) | copy.deepcopy(x)
        pickle.loads(pickle.dumps(x)) | x.asnumpy()
    """,
    ("np", "same", "view"): """
        x[:] | x[()]
    """,
    ("np", "same", "same"): """
        x.astype('float32', copy=False)
    """,
    ("np", "same", ""): """
        x.as_in_ctx(mx.cpu()) | x.as_np_ndarray()
    """,
    ("np", "view", "view"): """
        x[...] | x[0] | x[0:2] | x[0:1] | x[1,1:3] | x[:,0:4] | x[::2] | x[None] | x[:,None]
        x[0][1:3] | next(iter(x))
    """,
    ("np", "view", ""): """
        x.reshape_view((4, 2)) | x.reshape_view(-1) | x.reshape_view((2, 4))
        x[0].reshape_view((2, 2)) | x.detach() | x.as_nd_ndarray()
    """,
    ("np", "copy", "view"): """
        x[:,0] | x[:,0:1] | x[::-1] | x.reshape((4, 2)) | x.reshape(-1) | x.reshape((2, 4)) | x.T
        x[0].T | x.transpose() | x.transpose((0, 1)) | x.swapaxes(0, 1) | x.swapaxes(0, 0)
        mod.reshape(x, (4, 2)) | mod.ravel(x) | mod.expand_dims(x, 0) | mod.transpose(x)
        mod.swapaxes(x, 0, 1) | mod.split(x, 2) | mod.split(x, 1)
        mod.split(x, 2, axis=1) | mod.split(x, [1]) | mod.array_split(x, 2) | mod.array_split(x, 1)
    """,
    ("np", "copy", "copy"): """
        x[[0, 1]] | x[x>-9] | x.flatten() | x.repeat(1) | x.take(mod.array([0, 1]))
        x.clip(-100, 100) | x.round() | x.copy() | x.astype('float32')
        x.astype('float64', copy=False) | mod.array(x) | mod.concatenate([x]) | mod.stack([x])
        mod.vstack([x])
        mod.tile(x, 1) | mod.tile(x, (1, 1))
        mod.repeat(x, 1) | mod.clip(x, -100, 100)
        mod.copy(x) | mod.meshgrid(x[0])
        mod.around(x) | x+0 | mod.where(x>-9, x, x) | mod.maximum(x, x) | mod.unique(x)
        copy.copy(x) | copy.deepcopy(x) | pickle.loads(pickle.dumps(x))
    """,
    ("np", "copy", "same"): """
        x.squeeze() | mod.squeeze(x)
    """,
    ("np", "copy", ""): """
        x.broadcast_to((2, 4)) | x.copyto(mx.cpu()) | x.as_in_ctx(mx.cpu(1))
        mod.broadcast_to(x, (2, 4))
        npx.reshape_like(x, mod.zeros((4, 2)))
        npx.slice(x, (0, 0), (2, 4)) | npx.dropout(x) | mx.gluon.utils.split_data(x, 2)
        mx.gluon.utils.split_data(x, 1) | mx.gluon.utils.split_data(x, 2, batch_axis=1)
        mx.gluon.utils.split_data(x, 2, even_split=False)
        mx.gluon.utils.split_and_load(x, [mx.cpu(), mx.cpu()])
        mx.gluon.utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)]) | x.asnumpy()
    """,
}


def alias(library, face, expression):
    """'view', 'copy' or 'same': what the expression of x gives."""
    import copy
    import pickle

    if face == "np" and library is not np:
        library.npx.set_np()
    try:
        mod = library if library is np else getattr(library, face)
        x = mod.arange(8, dtype="float32").reshape((2, 4)).copy()
        names = {"x": x, "mod": mod, "mx": library, "copy": copy, "pickle": pickle}
        names["npx"] = getattr(library, "npx", None)
        found = eval(expression, names)
        found = found if isinstance(found, (list, tuple)) else [found]
        if found[0] is x:
            return "same"
        for part in found:
            part[...] = 99
        return "view" if (np.array(x if library is np else x.asnumpy()) == 99).any() else "copy"
    finally:
        if face == "np" and library is not np:
            library.npx.reset_np()


@pytest.mark.parametrize(
    ("face", "answer", "numpys", "expression"),
    [(*key, e.strip()) for key, table in ALIASES.items() for line in table.strip().split("\n")
     for e in line.split(" | ")],
)  # fmt: skip
def test_what_shares_memory(ask, face, answer, numpys, expression):
    assert ask(alias, face, expression) == answer
    if numpys:
        assert alias(np, face, expression) == numpys


# -- masks of no axis ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [True, (0, False), np.array(True)])
def test_a_mask_of_no_axis_is_refused(key):
    with pytest.raises(IndexError, match="True and False as masks are left out"):
        d2lmini.np.ones((2, 3))[key]
