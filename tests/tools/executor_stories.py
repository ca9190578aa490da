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


def story_reshape(mx):
    ex = bound(mx, dense(mx), x=(4, 2))
    small = ex.reshape(x=(2, 2))
    small.arg_dict["x"][:] = 7
    small.arg_dict["fc_bias"][:] = 1
    small.forward(is_train=True)
    small.backward(mx.nd.ones((2, 3)))
    big = ex.reshape(allow_up_sizing=True, x=(5, 2))
    big.forward(x=mx.nd.ones((5, 2)))
    return [told(small.outputs), told(ex.arg_dict), told(small.grad_dict), told(big.outputs)]


def story_parameters(mx):
    ex = bound(mx, dense(mx), x=(4, 2))
    ex.copy_params_from({"fc_weight": mx.nd.ones((3, 2)) * 5})
    ex.copy_params_from({"nothing": mx.nd.ones(1)}, allow_extra_params=True)
    seen = [told(ex.arg_dict)]
    for names in ([], ["fc_weight"]):
        for buffer in (None, {"fc_bias": mx.nd.ones((2, 2)) * 4, "x": mx.nd.ones(1)}):
            other = dense(mx).simple_bind(
                mx.cpu(), shared_arg_names=names, shared_exec=ex, shared_buffer=buffer, x=(4, 2)
            )
            seen += [told(other.arg_dict), sorted(buffer or {})]
    return seen


def story_dtypes(mx):
    ex = dense(mx).simple_bind(mx.cpu(), type_dict={"x": "float64"}, x=(4, 2))
    return [np.dtype(x.dtype).name for x in ex.arg_arrays + ex.grad_arrays + ex.outputs]


def story_monitor(mx):
    seen = []
    net = mx.sym.concat(mx.sym.tanh(dense(mx), name="t"), mx.sym.var("y"), dim=1, name="c")
    for monitor_all in (False, True):
        ex = bound(mx, net, x=(4, 2), y=(4, 1))
        ex.set_monitor_callback(lambda name, array: seen.append(name), monitor_all=monitor_all)
        ex.forward(is_train=False)
    return [name.decode() if isinstance(name, bytes) else name for name in seen]


def story_groups(mx):
    with mx.AttrScope(ctx_group="first"):
        hidden = mx.sym.var("x") * 2
    with mx.AttrScope(ctx_group="second"):
        net = hidden + mx.sym.var("y")
    groups = {"first": mx.cpu(0), "second": mx.cpu(1)}
    args = {"x": mx.nd.ones(2), "y": mx.nd.ones(2, ctx=mx.cpu(1))}
    ex = net.bind(mx.cpu(0), args, group2ctx=groups)
    seen = [told(ex.forward())]
    try:
        net.bind(mx.cpu(0), args, group2ctx={"first": mx.cpu(0)})
    except mx.base.MXNetError:
        seen.append("not found")
    return seen


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
        lambda: ex.reshape(x=(9, 2)),
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


STORIES = {name[6:]: story for name, story in list(globals().items()) if name.startswith("story_")}
