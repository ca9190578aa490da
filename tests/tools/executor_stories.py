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


def story_given_arrays(mx):
    x, w = mx.sym.var("x"), mx.sym.var("w")
    net = mx.sym.Group([x * w, mx.sym.sum(x * x), x + w])
    args = [mx.nd.array(numbers((3,), seed)) for seed in range(2)]
    grads = {"w": mx.nd.ones(3)}
    ex = net.bind(mx.cpu(), args, args_grad=grads, grad_req="add")
    held = ex.outputs
    ex.forward(is_train=True)
    ex.backward([mx.nd.ones(3), mx.nd.ones(1), mx.nd.array([1, 2, 3])])
    first = told(held)
    args[0][:] = 2
    ex.forward()
    return [first, told(ex.outputs), told(grads), told(args), told(ex.grad_dict),
            sorted(ex.output_dict)[-1:], ex.forward() is ex.outputs]  # fmt: skip


def story_backward_after_prediction(mx):
    ex = bound(mx, dense(mx), x=(4, 2))
    ex.forward(is_train=False)
    ex.backward(mx.nd.ones((4, 3)))
    return told(ex.grad_dict)


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


def story_partly_known_inside(mx):
    """simple_bind of graphs whose inputs follow from the result or from each other."""
    sym, seen = mx.sym, []
    x, y = sym.var("x"), sym.var("y")
    for net, words in (
        (x + y, {"x": (2, 3)}), (x + y, {"x": (2, 0), "y": (0, 3)}), (x * 2 + y, {"y": (2,)}),
        (sym.BatchNorm(x, name="bn"), {"x": (2, 3)}),
        (sym.var("a", shape=(2, 3), dtype="float64") * 1, {}),
        (sym.var("a", shape=(2, 0)) + x, {"x": (2, 3)}),
        (sym.zeros((0, 3)) + x, {"x": (2, 3)}),
        (sym.Embedding(x, input_dim=5, output_dim=2, name="e"), {"x": (3,)}),
        (sym.SoftmaxOutput(x, name="s"), {"x": (2, 3)}),
        (sym.Group([x, y]), {"x": (2,)}),
        (sym.Group([x + y, sym.exp(y)]), {"x": (2,)}),
        (sym.where(x, y, sym.var("z")), {"x": (2,), "y": (2,)}),
    ):  # fmt: skip
        try:
            ex = net.simple_bind(mx.cpu(), **words)
            seen.append([
                {n: [list(a.shape), np.dtype(a.dtype).name] for n, a in ex.arg_dict.items()},
                {n: list(a.shape) for n, a in ex.aux_dict.items()},
                [list(out.shape) for out in ex.forward()],
            ])  # fmt: skip
        except Exception as problem:
            seen.append(type(problem).__name__)
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


def story_names_of_arrays(mx):
    """Lists and dicts of an Executor, and whether they are the same arrays."""
    x = mx.sym.var("x")
    net = mx.sym.Group([mx.sym.BatchNorm(x, name="bn"), mx.sym.exp(x, name="e"), x])
    ex = net.simple_bind(mx.cpu(), x=(2, 3))
    seen = [list(ex.arg_dict), list(ex.aux_dict), list(ex.grad_dict), list(ex.output_dict)]
    seen.append([ex.arg_dict["x"] is ex.arg_arrays[0], ex.arg_dict is ex.arg_dict])
    ex.arg_dict["x"][:] = 3
    seen += [told(ex.arg_arrays[0]), told(ex.forward())[2], told(ex.output_dict["x"])]
    ex.copy_params_from({"x": mx.nd.ones((2, 3))}, {"bn_moving_mean": mx.nd.ones((3,)) * 2})
    seen += [told(ex.arg_dict["x"]), told(ex.aux_dict)]
    for call in (
        lambda: ex.copy_params_from({"x": mx.nd.ones((2, 3), dtype="float64")}),
        lambda: ex.copy_params_from({}, {"x": mx.nd.ones((3,))}, allow_extra_params=True),
        lambda: ex.forward(is_train=False, x=mx.nd.ones((2, 3)) * 5),
        lambda: ex.forward(x=np.ones((2, 3))),
        lambda: ex.forward(False, x=3),
    ):
        try:
            told(ex.arg_dict) if call() is None else None
            seen.append(told(ex.arg_dict["x"]))
        except Exception as problem:
            seen.append(type(problem).__name__)
    return seen


STORIES = {name[6:]: story for name, story in list(globals().items()) if name.startswith("story_")}
