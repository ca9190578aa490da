"""Under the alias `asnumpy` gives arrays that are numbers where they have one element.

In all else they must be ndarrays: a table of expressions gives the same for both.
"""

from __future__ import annotations

import ast
import copy
import io
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
from generators.agree import as_mxnet

from d2lmini import nd
from d2lmini.compat.mxnet_alias import OneElementArray
from d2lmini.gluon import data as gdata

NUMBERS = """
float(a) int(a) complex(a) '%f'%a '%d'%a '%.3g,%s'%(a,1) '%e'%a math.exp(a) math.sqrt(a)
math.floor(a) math.ceil(a) math.trunc(a) math.isnan(a) math.pow(a,2) math.fsum([a]) round(a)
round(a,1) format(a,'.2f') '{:8.3f}'.format(a) f'{a:.1e}' float(a*2) float(a[0:1]+1)
float(sum([a,a])) float(a.ravel()) float(a.mean(axis=0)) float(a.astype('float64'))
'%f'%np.exp(a) '%f'%(a/3)
""".split()  # fmt: skip

DTYPES = ("float32", "float64", "int32", "uint8")

# Of an array `a` with two axes.
LIKE_AN_NDARRAY = """
a.sum(), a.mean(), a.max(), a.std(), a.prod(), a.all(), a.any(), a.argmax(), a.cumsum()
a.sum(axis=0), a.sum(axis=0, keepdims=True), np.sum(a), np.mean(a), np.median(a), np.quantile(a, .3)
np.linalg.norm(a), np.linalg.norm(a, axis=0), np.average(a), np.trace(a), a.trace()
a[0], a[0, 0], a[0:1], a[...], a[None], a[a > 0], a[[0]], a.T, a.ravel(), a.reshape(-1), a.flat[0]
a.astype('float64'), a.astype(int), a.copy(), a.tolist(), a.item(0), a.squeeze()
a.dot(a.T), a @ a.T, np.dot(a[0], a[0]), a[0] @ a[0], np.vdot(a, a), np.einsum('ij->', a)
np.outer(a[0], a[0]), np.tensordot(a, a, 2)
a + 1, 1 + a, a * a, -a, abs(a), a ** 2, a // 1, a % 2, divmod(a, 1), a == a, a != a, a < 1
~(a < 1), (a == a).all(), (a == a).sum(), (a.argmax(axis=1) == a[:, 0]).mean()
np.exp(a), np.exp(a[0, 0]), np.add.reduce(a), np.add.reduce(a, axis=None), np.maximum(a, 0)
np.modf(a), np.clip(a, 0, 1), np.where(a > 0, a, 0), np.nonzero(a), np.isnan(a).any(), np.sign(a)
np.allclose(a, a), np.array_equal(a, a), np.round(a, 1), a.round(1)
np.concatenate([a, a]), np.concatenate([a, np.ones_like(a)]), np.stack([a, a]), np.array([a, a])
np.array(a), np.asarray(a), np.ascontiguousarray(a), np.sort(a), np.argsort(a), np.unique(a)
np.histogram(a), np.zeros_like(a), np.repeat(a, 2), np.tile(a, 2), np.pad(a, 1), np.diff(a)
np.take(a, [0]), np.flip(a), np.diag(a), np.apply_along_axis(np.sum, 0, a), np.nan_to_num(a)
np.linalg.svd(a)[1], np.searchsorted(a[0], .5), np.interp(.5, [0, 1], [a[0, 0], a[0, 1]])
repr(a), str(a), repr([a]), '%s' % a, '{}'.format(a), f'{a}', f'{a!r}', np.array2string(a)
list(a), sum(a), sum(a[0]), max(a[0]), sorted(a[0]), len(a), bool(a.any()), 1.0 in a, set(a[0])
isinstance(a, np.ndarray), a.shape, a.dtype, a.nbytes, a.strides, a.flags.c_contiguous, a.tobytes()
pickle.loads(pickle.dumps(a)), pickle.loads(pickle.dumps(a, 5)), pickle.loads(pickle.dumps(a, 2))
copy.copy(a), copy.deepcopy(a), np.from_dlpack(a), memoryview(a).tolist()
np.frombuffer(a, a.dtype), saved(np.save, a), saved(np.savez, a), saved(np.savetxt, a)
nd.array(a), nd.array([a, a]), nd.from_numpy(a.copy()), nd.from_dlpack(a.copy())
nd.array(a) + a.sum(), nd.ones(a.shape) == nd.array(a), structured(a)
""".strip().splitlines()  # fmt: skip


def saved(save: Any, a: np.ndarray) -> bytes:
    file = io.BytesIO()
    save(file, a)
    return b"" if save is np.savez else file.getvalue()  # a zip holds the time


def structured(a: np.ndarray) -> Any:
    records = a.view([("x", a.dtype)])
    return records["x"], records[0, 0]["x"], records.dtype


def shown(value: Any) -> Any:
    """Type and contents; a subclass counts as an ndarray."""
    if isinstance(value, nd.NDArray):
        return "NDArray", shown(value._chunk.data), type(value._chunk.data)
    if isinstance(value, np.ndarray):
        return "ndarray", value.shape, value.dtype, value.tobytes()
    if isinstance(value, (list, tuple)):
        return [shown(x) for x in value]
    return type(value), repr(value)


def results(line: str, a: np.ndarray) -> Any:
    names = {"a": a, "np": np, "nd": nd, "copy": copy, "pickle": pickle, "math": math,
             "saved": saved, "structured": structured}  # fmt: skip
    found = []
    for part in parts(line):
        try:
            found.append(shown(eval(part, names)))
        except Exception as error:
            found.append((type(error), str(error)))
    return found


def parts(line: str) -> list[str]:
    """The expressions of a line."""
    body: Any = ast.parse(f"[{line}]", mode="eval").body
    return [ast.unparse(e) for e in body.elts]


@pytest.fixture
def alias():
    with as_mxnet():
        yield


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1)])
def test_an_array_of_one_element_is_a_number(alias, shape):
    element = np.float64(2.25)
    for expression in NUMBERS:
        a = (nd.ones(shape) * 2.25).asnumpy()
        value = eval(expression, {"a": a, "np": np, "math": math})
        simple = expression.replace("a[0:1]", "a").replace("(axis=0)", "()").replace(".ravel()", "")
        wanted = eval(simple, {"a": element, "np": np, "math": math})
        assert value == pytest.approx(wanted), expression
        assert type(value) in (float, int, complex, str, bool), expression


@pytest.mark.parametrize("shape", [(2,), (0,), (2, 3)])
def test_an_array_of_several_is_none(alias, shape):
    a = nd.ones(shape).asnumpy()
    for number in (float, int, complex, math.exp, round, "%f".__mod__, "{:f}".format):
        with pytest.raises(TypeError, match=r"only size-1 arrays|must be real number"):
            number(a)


@pytest.mark.parametrize("line", LIKE_AN_NDARRAY)
def test_in_all_else_it_is_an_ndarray(line):
    for shape, dtype in itertools.product([(2, 3), (3, 3), (1, 2), (0, 3)], DTYPES):
        a = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        assert results(line, a.copy()) == results(line, a.copy().view(OneElementArray))


def test_elsewhere_nothing_changes():
    assert type(nd.ones(1).asnumpy()) is np.ndarray
    with as_mxnet():
        array = nd.ones(1).asnumpy()
        assert type(array) is OneElementArray
        assert type(np.asarray(nd.ones(1))) is np.ndarray
        assert type(nd.ones(1).asscalar()) is np.float32
    assert type(nd.ones(1).asnumpy()) is np.ndarray
    assert float(array) == 1


def test_memory_of_an_ndarray_holds_plain_arrays(alias):
    """A subclass in there would change what kernels do."""
    a = nd.arange(6).reshape((3, 2)).asnumpy()
    made = [nd.array(a), nd.from_numpy(a.copy()), nd.from_numpy(a.copy(), zero_copy=False)]
    x = nd.zeros((3, 2))
    x[:] = a
    x[1] = a[1]
    loader = gdata.DataLoader(gdata.ArrayDataset(a, a[:, 0]), batch_size=2)
    made += [x, x + nd.array(a), *(array for batch in loader for array in batch)]
    nd.waitall()
    assert {type(y._chunk.data) for y in made} == {np.ndarray}
