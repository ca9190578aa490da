"""x[key] and x[key] = value against NumPy, over drawn keys and values; where the real MXNet is at
hand (`make test-mxnet`), drawings are compared with that, too. Rules one by one stand in
`test_indexing_rules.py`.

A drawing is text, so that a failure shows what a user would type and MXNet can evaluate it too:
`A([0, 2])` is an index array (an NDArray here and there, a NumPy array in the oracle).
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from oracle import Oracle

from d2lmini import nd
from d2lmini.ndarray.indexing import parse
from d2lmini.ops.core import Spec
from d2lmini.ops.subscript import _getitem

SHAPES = [(7,), (1,), (3, 4), (1, 5), (5, 1), (2, 3, 4), (4, 1, 3), (2, 3, 1, 2), (2, 0, 3), (0,)]

# -- drawing ---------------------------------------------------------------------------------------


def draw_slice(r: random.Random, n: int) -> str:
    def end() -> str:
        return "" if r.random() < 0.4 else str(r.randint(-n - 1, n + 1))

    step = r.choice(["", "", ":1", ":2", ":-1", ":-2", ":3"])
    return f"{end()}:{end()}{step}"


def draw_array(r: random.Random, n: int, shape: tuple, kind: str) -> str:
    array = np.array([r.randint(-n, n - 1) for _ in range(int(np.prod(shape)))], int)
    text = str(array.reshape(shape).tolist())
    if kind == "nd":
        return f"A({text}, {r.choice(['float32', 'int32', 'int64'])!r})"
    return text if kind == "list" else f"np.array({text})"


def draw_key(r: random.Random, shape: tuple, advanced: bool) -> str:
    """The text between the brackets: one that NumPy takes, as far as ranges go."""
    # Index arrays that broadcast: parts of one shape.
    places = r.choice([(2,), (3,), (1,), (2, 3), (1, 2)])
    items = []
    for n in shape[: r.randint(0 if len(shape) > 1 else 1, len(shape))]:
        kinds = ["int", "slice", "slice"] if n else ["slice"]
        kind = r.choice(kinds + ["array", "array"] if advanced and n else kinds)
        if kind == "int":
            items.append(str(r.randint(-n, n - 1)))
        elif kind == "slice":
            items.append(draw_slice(r, n))
        else:
            part = tuple(
                p if r.random() < 0.7 else 1 for p in places[r.randint(0, len(places) - 1) :]
            )
            items.append(draw_array(r, n, part, r.choice(["list", "np", "nd"])))
    if len(items) < len(shape) and r.random() < 0.3:
        # From here on the items stand for the last axes: they must fit there, so only slices.
        items.append("...")
        items += [draw_slice(r, 3) for _ in range(r.randint(0, len(shape) - len(items) + 1))]
    for _ in range(r.choice([0, 0, 0, 0, 1, 2])):
        items.insert(r.randint(0, len(items)), "None")
    return ", ".join(items) + ("," if len(items) == 1 and r.random() < 0.3 else "") or "()"


def draw_value(r: random.Random, shape: tuple) -> str:
    """Something that broadcasts to `shape`, now and then with extra leading axes."""
    if r.random() < 0.3:
        return r.choice(["3", "-2.5", "True", "np.float32(1.5)", "np.int64(4)"])
    shape = tuple(
        n if r.random() < 0.8 else 1 for n in shape[r.randint(0, max(0, len(shape) - 1)) :]
    )
    shape = (1,) * r.choice([0, 0, 0, 1, 2]) + shape
    array = np.array([r.randint(-9, 9) for _ in range(int(np.prod(shape)))], float).reshape(shape)
    kind = r.choice(["list", "np", "nd", "nd"])
    if kind == "list" and array.size:
        return str(array.tolist())
    text = f"np.array({array.tolist()}).reshape({shape})"
    dtype = r.choice(["float32", "float64", "int32", "float16"])
    return f"V({text}, {dtype!r})" if kind == "nd" else f"{text}.astype({dtype!r})"


NUMPY = {"np": np, "A": lambda a, dtype: np.array(a, int), "V": np.asarray}
OURS = {
    "np": np,
    "A": lambda a, dtype: nd.array(a, dtype=dtype),
    "V": lambda a, dtype: nd.array(a, dtype=dtype),
}


def key_of(text: str, names: dict):
    """The key that stands between the brackets of x[text]."""
    return eval(f"catch[{text}]", {**names, "catch": Catch()})


class Catch:
    def __getitem__(self, key):
        return key


def numbers(shape: tuple, dtype: str = "float32") -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1).astype(dtype).reshape(shape)


def numpy_get(shape: tuple, text: str) -> np.ndarray:
    """What NumPy gives, with MXNet's shape (1,) for a single element."""
    y = numbers(shape)[key_of(text, NUMPY)]
    return y.reshape(1) if y.shape == () else y


def drawings(seed: int, n: int, advanced: bool) -> list[tuple[tuple, str]]:
    r = random.Random(seed)
    shapes = [r.choice(SHAPES) for _ in range(n)]
    return [(shape, draw_key(r, shape, advanced)) for shape in shapes]


def settings(seed: int, n: int) -> list[tuple[tuple, str, str, str]]:
    """(shape, dtype, key, value), all of which NumPy takes."""
    r = random.Random(seed)
    cases = []
    for shape, key in drawings(seed, n, advanced=True):
        value = draw_value(r, numpy_get(shape, key).shape)
        cases.append((shape, r.choice(["float32", "float32", "int32", "float64"]), key, value))
    return cases


def numpy_set(shape: tuple, dtype: str, key: str, value: str) -> np.ndarray:
    n = numbers(shape, dtype)
    target = np.asarray(eval(value, NUMPY))
    place = n[key_of(key, NUMPY)]
    # NumPy refuses a value with extra leading axes only where a single element is set.
    n[key_of(key, NUMPY)] = target.reshape(-1)[0] if np.shape(place) == () else target
    return n


# -- against NumPy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("advanced", [False, True])
def test_reading_equals_numpy(seed, advanced):
    for shape, text in drawings(seed, 150, advanced):
        want = numpy_get(shape, text)
        got = nd.array(numbers(shape))[key_of(text, OURS)]
        assert got.shape == want.shape, (shape, text)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.asnumpy(), want, err_msg=f"{shape} [{text}]")


@pytest.mark.parametrize("seed", range(4))
def test_a_key_gives_a_view_exactly_if_it_names_one_stretch_of_memory(seed):
    for shape, text in drawings(seed, 150, advanced=False):
        base = numbers(shape)
        part = base[key_of(text, NUMPY)]
        if not part.size:
            continue
        # A single element, an axis cut to one place: NumPy's flag knows these are contiguous.
        is_view = part.ndim == 0 or (np.shares_memory(base, part) and part.flags.c_contiguous)
        x = nd.array(base)
        y = x[key_of(text, OURS)]
        y[:] = -1
        wrote = bool((x.asnumpy() == -1).any())
        assert wrote == is_view, (shape, text)
        x[:] = -2
        assert bool((y.asnumpy() == -2).all()) == is_view, (shape, text)


@pytest.mark.parametrize("seed", range(4))
def test_writing_equals_numpy(seed):
    for case in settings(seed, 150):
        shape, dtype, key, value = case
        want = numpy_set(*case)
        x = nd.array(numbers(shape, dtype), dtype=dtype)
        x[key_of(key, OURS)] = eval(value, OURS)
        assert x.dtype == want.dtype
        np.testing.assert_array_equal(x.asnumpy(), want, err_msg=str(case))


@pytest.mark.parametrize("seed", range(2))
def test_what_is_predicted_is_what_comes(seed):
    """The op's shape rule, read off the plain key, agrees with its computation."""
    for shape, text in drawings(seed, 150, advanced=True):
        index = parse(key_of(text, NUMPY), shape)
        data = numbers(shape)
        flat = [np.concatenate([a.ravel() for a in index.arrays])] if index.arrays else []
        specs = [Spec(a.shape, a.dtype) for a in (data, *flat)]
        got = _getitem.compute(np, data, *flat, key=index.key)
        assert _getitem.infer(*specs, key=index.key).shape == index.shape == got.shape, text
        assert hash(index.key) == hash(eval(repr(index.key)))
        np.testing.assert_array_equal(got, numpy_get(shape, text), err_msg=text)


def test_gradient_of_reading_adds_up():
    """<g, x[key]> has the gradient that NumPy's add.at gives, for keys that take places twice."""
    for shape, text in drawings(5, 100, advanced=True):
        index = parse(key_of(text, NUMPY), shape)
        x = nd.array(numbers(shape), dtype="float64")
        flat = [np.concatenate([a.ravel() for a in index.arrays])] if index.arrays else []
        indices = [nd.array(a, dtype="int64") for a in flat]
        y = _getitem(x, *indices, key=index.key)
        g = np.arange(1.0, y.size + 1).reshape(y.shape)
        grad, *_ = _getitem.rule(
            nd.array(g, dtype="float64"), shape, *(indices or [None]), key=index.key
        )
        want = np.zeros(shape)
        places = np.arange(want.size).reshape(shape)[key_of(text, NUMPY)]
        np.add.at(want.reshape(-1), np.ravel(places), g.ravel())
        np.testing.assert_array_equal(grad.asnumpy(), want, err_msg=f"{shape} [{text}]")


# -- against the real MXNet ------------------------------------------------------------------------


def index_there(mx, shape, dtype, key, value):
    """Shape, dtype and numbers of x[key], or of x after x[key] = value; None where MXNet refuses
    what NumPy and we take (slices from before the front, None where a value is set)."""

    class Catch:
        def __getitem__(self, key):
            return key

    def array(values, dtype=None):
        return mx.nd.array(values, dtype=dtype)

    names = {"np": np, "A": array, "V": array, "catch": Catch()}
    x = array(np.arange(1, np.prod(shape) + 1).reshape(shape), dtype)
    key = eval(f"catch[{key}]", names)
    try:
        if value is None:
            x = x[key]
        else:
            x[key] = eval(value, names)
        return [x.shape, x.dtype.__name__, x.asnumpy().ravel().tolist()]
    except (ValueError, mx.MXNetError):
        return None


def real_mxnet(mxnet: Oracle, cases: list) -> list:
    answers = [mxnet.ask(index_there, *case) for case in cases]
    assert answers.count(None) < len(cases) / 4
    return answers


def sound(shape: tuple, key: str, write: bool) -> bool:
    """Does MXNet do what NumPy does here, and nothing worse? Not where a result is empty (it
    refuses, or hangs), nor with None beside index arrays (it puts the axis elsewhere), nor where
    it writes with an index array and a negative number (it writes beside the array)."""
    advanced = "[" in key
    return (
        0 not in shape
        and numpy_get(shape, key).size > 0
        and not (advanced and "None" in key)
        and not (advanced and write and "-" in key)
    )


def test_reading_equals_mxnet(mxnet: Oracle):
    seed = random.randrange(1 << 30)
    cases = [
        (shape, "float32", key, None)
        for advanced in (False, True)
        for shape, key in drawings(seed, 300, advanced)
        if sound(shape, key, write=False)
    ]
    sys.stdout.write(f"seed {seed}, {len(cases)} cases\n")
    for (shape, _, key, _), want in zip(cases, real_mxnet(mxnet, cases), strict=True):
        y = nd.array(numbers(shape))[key_of(key, OURS)]
        got = [y.shape, y.dtype.__name__, y.asnumpy().ravel().tolist()]
        assert want in (got, None), (shape, key)


def test_writing_equals_mxnet(mxnet: Oracle):
    seed = random.randrange(1 << 30)
    cases = [c for c in settings(seed, 500) if sound(c[0], c[2], write=True)]
    sys.stdout.write(f"seed {seed}, {len(cases)} cases\n")
    for case, want in zip(cases, real_mxnet(mxnet, cases), strict=True):
        shape, dtype, key, value = case
        x = nd.array(numbers(shape, dtype), dtype=dtype)
        x[key_of(key, OURS)] = eval(value, OURS)
        got = [x.shape, x.dtype.__name__, x.asnumpy().ravel().tolist()]
        assert want in (got, None), case
