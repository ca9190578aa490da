"""Short programs on `np.ndarray`s, with what they see: run here and in the real MXNet.

Each takes the library and returns numbers, texts and NumPy arrays. `refusal` gives the class of an
error, for what both refuse. The interpreter of MXNet imports this module.
"""

import numpy as onp


def refusal(function, *arguments):
    """The classes of the error that the call raises, by name; None if there is none."""
    try:
        function(*arguments)
    except Exception as problem:
        return type(problem).__name__
    return None


def assignments(mx):
    """x[key] = value of every kind of key and value."""
    np = mx.np
    found = []

    def fresh(dtype="float32"):
        return np.array(onp.arange(12).reshape(3, 4), dtype=dtype)

    def put(key, value, dtype="float32"):
        x = fresh(dtype)
        x[key] = value
        found.append(x.asnumpy())

    put(slice(1, 3), np.ones((2, 4)))
    put((1, 2), np.array(5.0))
    put((1, 2), 7)
    put(0, np.zeros(4))
    put(0, 3)
    put((slice(0, 2), slice(1, 3)), np.ones((2, 2)))
    put((slice(0, 2), slice(1, 3)), 9)
    put((slice(None), slice(None, None, 2)), np.ones((3, 2)))
    put(slice(None, None, -1), fresh())
    put(Ellipsis, 2)
    put(slice(None), np.array(4.0))
    put((1, slice(None)), np.ones(4))
    put((np.array(1, dtype="int32"), slice(1, None)), np.ones(3))
    put((slice(1, None), np.array(0, dtype="int32")), np.ones(2))
    put(np.array([0, 2], dtype="int64"), np.ones((2, 4)))
    put(np.array([0, 2], dtype="int32"), 1)
    put([0, 2], 5)
    put(([0, 2], [1, 3]), 6)
    put(fresh() > 5, 0)
    put(fresh() > 99, 0)
    put(np.array([True, False, True], dtype="bool"), 3)
    put(1, 8, "int64")
    put(np.array([0, 2], dtype="int64"), np.ones((2, 4), dtype="int32"), "int32")
    put((1, slice(0, 2)), np.ones(2))
    put(0, [1, 2, 3, 4])
    put(0, onp.ones(4))
    zero = np.array(1.0)
    zero[()] = 3
    found.append(zero.asnumpy())
    empty = np.zeros((0, 3))
    empty[:] = 1
    found.append(empty.asnumpy())
    return found


def in_place(mx):
    """`-=` keeps the object and its gradient; `=` makes a new array."""
    np, autograd = mx.np, mx.autograd
    w = np.ones(2)
    w.attach_grad()
    with autograd.record():
        loss = (w * w).sum()
    loss.backward()
    same = w
    w -= 0.5 * w.grad
    kept = w is same, w.grad is not None
    w.grad[:] *= 2
    grad = w.grad.asnumpy()
    w = w - 1
    seen = [kept, grad, w.grad is None, same.asnumpy()]
    for change in ("+= 1", "-= 1", "*= 3", "/= 2", "%= 2"):
        x = np.array([3.0, 4.0])
        scope = {"x": x}
        exec(f"x {change}", scope)
        seen += [scope["x"] is x, x.asnumpy()]
    whole = np.array([5, 7], dtype="int32")
    whole += 1
    v = whole[0]
    v *= 2

    def halve():
        nonlocal whole
        whole /= 2

    def add_floats():
        nonlocal whole
        whole += np.ones(2)

    refused = [refusal(change) is None for change in (halve, add_floats)]
    return [*seen, refused, whole.asnumpy()]


def zero_dim_backward(mx):
    """Losses of shape (), sums that start at the number 0, and a gradient through an index."""
    np, autograd = mx.np, mx.autograd
    x = np.array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        total = sum([x[0] * x[1], x.mean(), np.dot(x, x), x.sum() / 2])
    total.backward()
    first = x.grad.asnumpy()
    with autograd.record():
        z = x[np.array([0, 0, 2], dtype="int64")].sum() + x[1:][0] + (x[x > 1] ** 2).sum()
    z.backward()
    return total.shape, float(total), first, x.grad.asnumpy()


def devices(mx):
    np, npx = mx.np, mx.npx
    x = np.ones(2, ctx=npx.cpu(1))
    return (
        str(x.ctx), repr(x), x.as_in_ctx(x.ctx) is x, str(x.copyto(npx.cpu()).ctx),
        str(x.as_in_context(npx.cpu(0)).ctx), str(np.zeros_like(x).ctx), str((x + 1).ctx),
        str(npx.cpu()), str(npx.gpu(1)), npx.num_gpus() >= 0, str(npx.current_context()),
        type(x.copyto(npx.cpu())).__name__,
    )  # fmt: skip


def numpy_protocols(mx):
    """NumPy's functions and scalars give these arrays; NumPy's arrays do not mix."""
    np = mx.np
    x = np.array([1.0, 4.0])
    made = [
        onp.sum(x), onp.mean(x, axis=0), onp.exp(x), onp.sqrt(x), onp.concatenate([x, x]),
        onp.stack([x, x]), onp.dot(x, x), onp.maximum(x, 2), onp.add(x, 1), onp.float32(2) * x,
        onp.argmax(x), onp.reshape(x, (2, 1)), onp.where(x > 1, x, x), onp.linalg.norm(x),
        onp.abs(x), onp.max(x), onp.squeeze(x), onp.transpose(x), onp.tile(x, 2), onp.square(x),
    ]  # fmt: skip
    wrong = [
        refusal(lambda: onp.ones(2) + x),
        refusal(lambda: x + onp.ones(2)),
        refusal(lambda: x * mx.nd.ones(2)) is not None,
        refusal(lambda: mx.nd.ones(2) * x) is not None,
        refusal(lambda: np.sum(mx.nd.ones(2))) is not None,
    ]
    return [(type(m) is np.ndarray, m.asnumpy()) for m in made], wrong


def other_interface(mx):
    """as_nd_ndarray and as_np_ndarray share memory and history."""
    np, nd, autograd = mx.np, mx.nd, mx.autograd
    x = np.ones((2, 2))
    old = x.as_nd_ndarray()
    old[0] = 5
    new = old.as_np_ndarray()
    x.attach_grad()
    with autograd.record():
        y = nd.sum(x.as_nd_ndarray() * 3).as_np_ndarray() + 1
    y.backward()
    return (
        x.asnumpy(), type(old) is nd.NDArray, type(new) is np.ndarray, isinstance(x, nd.NDArray),
        y.shape, x.grad.asnumpy(), nd.nansum(old).asscalar(), isinstance(old, np.ndarray),
    )  # fmt: skip


def scalars(mx):
    """Functions of numbers are NumPy's; NumPy's numbers index and scale arrays."""
    np = mx.np
    x = np.array([10.0, 20.0])
    return (
        isinstance(np.log(2), onp.float64), float(np.sqrt(4.0)), x[onp.int32(1)].item(),
        str((x * np.exp(1)).dtype), str((np.log2(4) * x).dtype), str((x / onp.float64(3)).dtype),
        np.pi, np.e, np.inf, np.newaxis is None, np.float32 is onp.float32, np.bool is bool,
        np.bool_ is onp.bool_,        np.int32 is onp.int32, isinstance(np.float32(3), onp.float32),
    )  # fmt: skip


def printed(mx):
    np = mx.np
    wide = np.array(onp.arange(40) * 1.25)
    old = onp.get_printoptions()
    try:
        np.set_printoptions(precision=2)
        short = repr(np.array([1.23456, 2.0]))
    finally:
        onp.set_printoptions(**{k: v for k, v in old.items() if k in ("precision", "threshold")})
    return [
        short, repr(wide), str(wide), repr(wide.astype("int32")), repr(wide.astype("float64")),
        repr(wide.astype("int64")), repr(wide.astype("float16")), repr(wide > 9),
        repr(np.zeros((0,), dtype="int32")), repr(np.zeros((0,), dtype="bool")),
        repr(np.zeros((0, 2), dtype="float64")), repr(np.zeros((20, 60))), str(np.array([])),
        *(repr(np.zeros((n,), dtype="int32")) for n in range(18, 26)),
        *(repr(np.zeros((n,), dtype="int64")) for n in range(18, 26)),
        *(repr(np.zeros((n,), dtype="float16")) for n in range(13, 20)),
        repr([np.ones(2), np.array(1)]), repr((np.array(True, dtype="bool"),)),
    ]  # fmt: skip


def saved(mx, folder):
    """npx.save and npx.load of an array, a list, a dict."""
    np, npx = mx.np, mx.npx
    path = f"{folder}/x.npy"
    found = []
    for what in (np.ones(3), [np.ones(2), np.zeros((2, 2), dtype="int32")],
                 {"a": np.ones(1), "b": np.array(2.0)}):  # fmt: skip
        npx.save(path, what)
        back = npx.load(path)
        found.append(
            [(k, v.asnumpy()) for k, v in sorted(back.items())]
            if isinstance(back, dict) else [(type(v) is np.ndarray, v.asnumpy()) for v in back]
        )  # fmt: skip
    return found


def switches(mx):
    """set_np, the scopes and the decorators."""
    npx, util = mx.npx, mx.util
    seen = [npx.is_np_array(), npx.is_np_shape()]
    npx.set_np()
    seen += [npx.is_np_array(), npx.is_np_shape()]
    npx.reset_np()
    seen += [npx.is_np_array(), npx.is_np_shape()]
    with util.np_shape(True), util.np_array(True):
        seen.append(npx.is_np_array())
    seen.append(npx.is_np_array())
    seen.append(util.use_np(lambda: (npx.is_np_array(), npx.is_np_shape()))())
    seen.append(refusal(lambda: npx.set_np(shape=False)))
    return seen


def constants(mx):
    np = mx.np
    same = [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]
    return (
        same == [getattr(onp, t.__name__) for t in same], repr([np.NAN, np.NaN, np.nan]),
        np.NINF, np.PINF, np.NZERO, np.PZERO, np.finfo("float32").bits, np.iinfo is not None
        if hasattr(np, "iinfo") else True, np.e, np.inf, np.newaxis is None,
    )  # fmt: skip


def reading_text(mx):
    np = mx.np
    read = np.genfromtxt(["1,2", "3,4"], delimiter=",", dtype=np.float32)
    return read.asnumpy(), str(np.genfromtxt(["1 2"]).dtype), type(read) is np.ndarray


def small_things(mx):
    """Waiting, contexts, shuffling: what has no value of its own."""
    np, npx = mx.np, mx.npx
    x = np.arange(4)
    x.wait_to_read()
    npx.waitall()
    npx.random.seed(3)
    shuffled = np.arange(5)
    np.random.shuffle(shuffled)
    with npx.Context("cpu", 1):
        there = str(np.ones(1).ctx)
    return (
        str(x.context), x.stype, x.reshape_view((2, 2)).asnumpy(), there,
        sorted(shuffled.tolist()), str(npx.cpu_pinned()), refusal(npx.gpu_memory_info) is None,
        x.grad is None,
    )  # fmt: skip


STORIES = [
    constants, reading_text, small_things,
    assignments, in_place, zero_dim_backward, devices, numpy_protocols, other_interface,
    scalars, printed, switches,
]  # fmt: skip


def tell(mx, name, *arguments):
    """A story of this name, with the switch on (but for the story about the switch)."""
    if name == "switches":
        return switches(mx)
    mx.util.set_np()
    try:
        return globals()[name](mx, *arguments)
    finally:
        mx.util.reset_np()
