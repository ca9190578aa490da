"""What programs do with Executors, as functions of the library: `test_executor.py` runs them in
d2lmini and in the real MXNet.

Each story returns plain lists, numbers and strings. Random numbers are NumPy's, from a fixed seed.
"""

import numpy as np


def numbers(shape, seed=0):
    """Numbers of a pattern that both sides compute alike."""
    n = int(np.prod(shape))
    return (np.sin(np.arange(n) * 1.7 + seed).reshape(shape)).astype("float32")


def told(arrays):
    """Arrays by name, or in a list, as nested lists."""
    if isinstance(arrays, dict):
        return {name: told(x) for name, x in arrays.items()}
    if isinstance(arrays, (list, tuple)):
        return [told(x) for x in arrays]
    return None if arrays is None else arrays.asnumpy().tolist()


def dense(mx, loss=False):
    net = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, mx.sym.var("label"), name="out") if loss else net


def bound(mx, net, **options):
    """The net with new arrays, filled with numbers."""
    ex = net.simple_bind(mx.cpu(), **options)
    for seed, name in enumerate(sorted(ex.arg_dict)):
        ex.arg_dict[name][:] = numbers(ex.arg_dict[name].shape, seed)
    return ex


def story_training(mx):
    ex = bound(mx, dense(mx, True), x=(4, 2), label=(4,))
    ex.arg_dict["label"][:] = np.array([0, 2, 1, 1])
    seen = []
    for step in range(4):
        ex.forward(is_train=True, x=mx.nd.array(numbers((4, 2), step)))
        ex.backward()
        for name in ("fc_weight", "fc_bias"):
            ex.arg_dict[name][:] -= 0.1 * ex.grad_dict[name]
        seen.append(told(ex.outputs))
    return [seen, told(ex.arg_dict), told(ex.grad_dict)]


def story_requests(mx):
    seen = []
    for req in ("write", "add", "null", {"x": "add", "fc_weight": "write"}, ["null", "add", "add"]):
        ex = bound(mx, dense(mx), grad_req=req, x=(4, 2))
        for _ in range(2):
            ex.forward(is_train=True)
            ex.backward(mx.nd.array(numbers((4, 3), 9)))
        seen.append([told(ex.grad_dict), told(ex.grad_arrays)])
    return seen


def story_parameters(mx):
    ex = bound(mx, dense(mx), x=(4, 2))
    ex.copy_params_from({"fc_weight": mx.nd.ones((3, 2)) * 5})
    ex.copy_params_from({"nothing": mx.nd.ones(1)}, allow_extra_params=True)
    return told(ex.arg_dict)


def story_dtypes(mx):
    ex = dense(mx).simple_bind(mx.cpu(), type_dict={"x": "float64"}, x=(4, 2))
    return [np.dtype(x.dtype).name for x in ex.arg_arrays + ex.grad_arrays + ex.outputs]


def story_errors(mx):
    net = dense(mx)
    ex = bound(mx, net, x=(4, 2))
    ex.forward(is_train=True)
    one = mx.nd.ones((1,))
    seen = []
    for call in (
        lambda: ex.forward(nothing=one),
        lambda: ex.forward(x=one),
        lambda: ex.backward(),
        lambda: ex.backward(mx.nd.ones((3, 3))) or mx.nd.waitall(),
        lambda: ex.copy_params_from({"nothing": one}),
        lambda: ex.copy_params_from({}, {"nothing": one}),
        lambda: net.bind(mx.cpu(), {"x": one}),
        lambda: net.bind(mx.cpu(), [one]),
        lambda: net.bind(mx.cpu(), 3),
        lambda: net.bind(mx.cpu(), ex.arg_dict, grad_req="sometimes"),
        lambda: net.bind(mx.cpu(), [one, one, one]).forward(),
        lambda: net.simple_bind(mx.cpu()),
        lambda: net.simple_bind(mx.cpu(), nothing=(1,)),
    ):
        try:
            call()
            seen.append("no error")
        except Exception as problem:
            seen.append(type(problem).__name__)
    return seen


def story_partly_known_shapes(mx):
    """What simple_bind infers from shapes, types and requests that are known in part."""
    sym, seen = mx.sym, []
    x = sym.var("x")
    net = sym.FullyConnected(x, num_hidden=3, name="fc")
    for words in (
        {"x": (4, 2)}, {"x": (4, 2), "fc_weight": (3, 2)}, {"fc_weight": (3, 2)}, {},
        {"x": (4, 0)}, {"x": (0, 2)}, {"x": (4, 2), "fc_weight": (3, 5)}, {"nothing": (1,)},
        {"x": (4, 2), "nothing": (1,)}, {"x": (4, 2), "type_dict": {"x": "float16"}},
        {"x": (4, 2), "type_dict": {"fc_weight": "float64"}},
        {"x": (4, 2), "type_dict": {"x": "float16", "fc_weight": "float32"}},
        {"x": (4, 2), "type_dict": {"nothing": "float16"}},
        {"x": (4, 2), "grad_req": "add"}, {"x": (4, 2), "grad_req": ["write", "null", "add"]},
        {"x": (4, 2), "grad_req": {"fc_weight": "write"}},
        {"x": (4, 2), "grad_req": {"nothing": "write"}}, {"x": (4, 2), "grad_req": ["write"]},
        {"x": (4, 2), "grad_req": "other"}, {"x": (4, 2), "grad_req": 3},
        {"x": 4},
    ):  # fmt: skip
        try:
            ex = net.simple_bind(mx.cpu(), **words)
        except Exception as problem:
            seen.append(type(problem).__name__)
            continue
        seen.append([
            {name: list(a.shape) for name, a in ex.arg_dict.items()},
            [np.dtype(a.dtype).name for a in ex.arg_arrays],
            [None if g is None else list(g.shape) for g in ex.grad_arrays],
            sorted(ex.grad_dict), sorted(ex.aux_dict), [list(y.shape) for y in ex.outputs],
        ])  # fmt: skip
    return seen


def story_binding(mx):
    """What bind takes for arguments, gradients and auxiliary states."""
    x, w = mx.sym.var("x"), mx.sym.var("w")
    net, seen = x * w, []
    one, two = mx.nd.ones((2,)), mx.nd.ones((2,)) * 2
    both = {"x": one, "w": two}
    for words in (
        {"args": {"x": one}}, {"args": [one]}, {"args": [one, None]}, {"args": None},
        {"args": both, "args_grad": {"x": mx.nd.zeros((2,))}},
        {"args": both, "args_grad": [mx.nd.zeros((2,)), None]},
        {"args": both, "args_grad": [mx.nd.zeros((2,))]},
        {"args": both, "args_grad": {"nothing": mx.nd.zeros((2,))}},
        {"args": both, "args_grad": {"x": mx.nd.zeros((2,))}, "grad_req": "null"},
        {"args": both, "args_grad": [mx.nd.zeros((2,))] * 2, "grad_req": ["add", "null"]},
        {"args": both, "args_grad": [mx.nd.zeros((2,))] * 2, "grad_req": {"x": "add"}},
        {"args": both, "grad_req": "sometimes"}, {"args": both, "aux_states": [one]},
        {"args": {"x": one, "w": mx.nd.ones((3,))}},
        {"args": {**both, "v": one}, "args_grad": {"x": mx.nd.zeros((2,))}, "aux_states": {}},
    ):  # fmt: skip
        try:
            ex = net.bind(mx.cpu(), **words)
            ex.forward(is_train=True)
            ex.backward([mx.nd.ones((2,))])
            seen.append([told(ex.outputs), told(ex.grad_arrays)])
        except Exception as problem:
            seen.append(type(problem).__name__)
    return seen


STORIES = {name[6:]: story for name, story in list(globals().items()) if name.startswith("story_")}
