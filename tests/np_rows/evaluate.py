"""What a row's expression gives in one library: d2lmini's `np`, the real `mxnet.np`, NumPy.

The interpreter of MXNet imports this module. An expression gets `np`, `npx`, `onp` (NumPy itself)
and functions that make arrays, the same numbers in every library:

    f(2, 3)  float32 in [-2, 2)        i(2, 3)  int32 in [-3, 4)       b(2, 3)  bool
    p(2, 3)  float32 in [0.3, 1.7)     l(2, 3)  int64 in [-3, 4)       h(2, 3)  float16 in [-2, 2)
    u(2, 3)  float32 in [-0.9, 0.9)    k(2, 3)  uint8 in [0, 5)        d(2, 3)  float64 in [-2, 2)
    s(3)     float32, symmetric with eigenvalues above 1               q(4)     a permutation, int64
    n(2, 3)  float32 in [-2, 2), some nan
"""

import numpy as onp

FLOATS = "fpuhdsn"


def draw(kind, shape, seed):
    """The numbers of one array, in its dtype."""
    rng = onp.random.RandomState([seed, ord(kind), *shape])
    if kind in "fhdn":
        dtype = {"h": "float16", "d": "float64"}.get(kind, "float32")
        values = onp.asarray(rng.uniform(-2, 2, shape)).astype(dtype)
        if kind == "n":
            values.ravel()[::3] = onp.nan
        return values
    if kind in "pu":
        low, high = {"p": (0.3, 1.7), "u": (-0.9, 0.9)}[kind]
        return onp.asarray(rng.uniform(low, high, shape)).astype("float32")
    if kind == "s":
        size = shape[-1]
        values = rng.uniform(-1, 1, (*shape, size))
        values = onp.matmul(values, onp.swapaxes(values, -1, -2))
        return (values + onp.eye(size) * onp.arange(2, size + 2)).astype("float32")
    if kind == "q":
        return rng.permutation(shape[0])
    low, high, dtype = {
        "i": (-3, 4, "int32"), "l": (-3, 4, "int64"), "k": (0, 5, "uint8"), "b": (0, 2, "bool"),
    }[kind]  # fmt: skip
    return onp.asarray(rng.randint(low, high, shape)).astype(dtype)


def evaluate(expression, make, **names):
    """The value of the expression; `make(values, kind)` turns each drawn array into an input."""
    count = [0]

    def maker(kind):
        def drawn(*shape):
            count[0] += 1
            return make(draw(kind, shape, count[0]), kind)

        return drawn

    scope = {kind: maker(kind) for kind in "fpulhdsnikbq"}
    return eval(expression, {"onp": onp, **scope, **names})


def flatten(value):
    """The parts of nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in flatten(item)]
    return [value]


def plain(value):
    """A part of a result as (kind, values): 'array', or the class of what else there is."""
    if hasattr(value, "asnumpy"):
        return "array", value.asnumpy()
    return type(value).__name__, value


def answer(mx, expression, weights=()):
    """What the expression gives, part by part, and the gradients of its float inputs.

    weights: for each part of the result the head gradient; () asks for no gradients.
    """
    inputs = []

    def make(values, kind):
        x = mx.np.array(values, dtype=values.dtype)
        if weights and kind in FLOATS:
            x.attach_grad()
            inputs.append(x)
        return x

    try:
        mx.nd.waitall()
    except Exception:  # of an earlier row
        pass
    mx.util.set_np()
    try:
        if not weights:
            found = evaluate(expression, make, np=mx.np, npx=mx.npx, autograd=mx.autograd)
            return [plain(part) for part in flatten(found)], []
        with mx.autograd.record():
            found = evaluate(expression, make, np=mx.np, npx=mx.npx, autograd=mx.autograd)
        parts = [part for part in flatten(found)]
        pairs = [(y, w) for y, w in zip(parts, weights) if w is not None]
        heads = [mx.np.array(w, dtype=w.dtype) for _, w in pairs]
        mx.autograd.backward([y for y, _ in pairs], heads)
        return [plain(part) for part in parts], [x.grad.asnumpy() for x in inputs]
    finally:
        mx.util.reset_np()
