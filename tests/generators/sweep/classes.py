"""Programs with the short life of one object: made, shown, called, trained a step."""

from generators.sweep.calls import BACKWARD, drawn_keywords, find
from generators.sweep.signatures import parameters
from generators.sweep.values import Scene

#: The same numbers for the parameters of a network in both libraries.
SET = [
    "for i, p in enumerate(net.collect_params().values()):",
    "    if 'running' not in p.name:",
    "        p.set_data(nd.array(np.sin(np.arange(np.prod(p.shape)) + i).reshape(p.shape)))",
]
METRICS = """
    acc accuracy ce f1 mae mcc mse nll_loss pearsonr perplexity rmse top_k_accuracy loss top_k_acc
    composite nope""".split()
OPTIMIZERS = """
    sgd adam adagrad adadelta rmsprop nag ftrl adamax signum ftml lamb
    nope""".split()
CELL = "gluon.rnn.{}(3)"


def made(mx, scene, module, name, skipped=()):
    """The text that makes an object."""
    return f"{module}.{name}({drawn_keywords(scene, parameters(find(mx, module, name)), skipped)})"


def layer(mx, rng, module, name):
    """A layer: its text, one call, gradients, parameters, and the call again when compiled."""
    scene = Scene(rng)
    if rng.random() < 0.7:
        scene.dtype = "float32"
    dims = next((int(d) + 2 for d in "123" if f"{d}D" in name), None)
    if dims:
        scene.shape = tuple(rng.choice([1, 2, 3, 4, 5, 6]) for _ in range(dims))
        scene.window = dims - 2
    lines = [f"net = {constructor(mx, scene, module, name)}"]
    if name in ("Sequential", "HybridSequential"):
        lines += ["net.add(gluon.nn.Dense(3), gluon.nn.Dense(2, activation='tanh'))"]
    if name == "SymbolBlock":
        lines.insert(0, "data = sym.var('data')")
    lines += ["keep('repr', repr(net))", "net.initialize()"]
    scene.array("x")
    lines += [*scene.lines, "net(x)", *SET, "x.attach_grad()"]
    lines += ["with autograd.record():", "    y = net(x)", "keep('y', y)", *BACKWARD]
    lines += ["keep('grad', x.grad)", *ENDING]
    if rng.random() < 0.5:
        lines += ["net.hybridize()", "keep('hybrid', net(x))"]
    return "\n".join(lines) + "\n"


ENDING = [
    "for name, p in net.collect_params().items():",
    "    keep(name, [p.shape, p.dtype, p.grad_req, p.data()])",
    "    if p.grad_req != 'null': keep(name + '.grad', p.grad())",
    "keep('structure', sorted(net._collect_params_with_prefix()))",
]


def constructor(mx, scene, module, name):
    """The text that makes a layer, with children where it wants them."""
    rng = scene.rng
    if name in ("Lambda", "HybridLambda"):
        return f"gluon.nn.{name}('{rng.choice(['relu', 'tanh', 'exp', 'abs', 'nothing'])}')"
    if name == "SymbolBlock":
        return "gluon.nn.SymbolBlock(sym.FullyConnected(data, num_hidden=2), data)"
    # With other channels than those of data MXNet reads beyond the parameters.
    return made(mx, scene, module, name, ("in_channels",) if "BatchNorm" in name else ())


def recurrent(mx, rng, module, name):
    """A recurrent layer or cell: one step or an unrolled sequence."""
    scene = Scene(rng)
    steps, batch, size = (rng.choice([1, 2, 3, 4]) for _ in range(3))
    kinds = ["RNNCell", "LSTMCell", "GRUCell"]
    inner = CELL.format(rng.choice(kinds))
    if name in ("RNN", "LSTM", "GRU"):
        lines = [
            f"net = {made(mx, scene, module, name)}",
            "keep('repr', repr(net))",
            "net.initialize()",
        ]
        scene.array("x", (steps, batch, size), "float32", "real")
        lines += [*scene.lines, "net(x)", *SET]
        if rng.random() < 0.5:
            lines += [
                f"states = net.begin_state(batch_size={batch}, func=nd.ones)",
                "keep('states', states)",
            ]
            lines += [
                "x.attach_grad()",
                "with autograd.record():",
                "    y, states = net(x, states)",
            ]
        else:
            lines += ["states = []", "x.attach_grad()", "with autograd.record():", "    y = net(x)"]
        lines += ["keep('y', y)", "keep('states', states)", *BACKWARD, "keep('grad', x.grad)"]
        return "\n".join([*lines, *ENDING]) + "\n"
    if name == "BidirectionalCell":
        kind = rng.choice(kinds)
        lines = [f"net = gluon.rnn.BidirectionalCell({CELL.format(kind)}, {CELL.format(kind)})"]
    elif name in ("ResidualCell", "ZoneoutCell", "ModifierCell"):
        more = drawn_keywords(scene, parameters(find(mx, module, name)), ("base_cell",))
        lines, size = [f"net = {module}.{name}({', '.join(filter(None, [inner, more]))})"], 3
    else:
        lines = [f"net = {made(mx, scene, module, name)}"]
    if "Sequential" in name:
        lines += [
            f"net.add({inner})",
            f"net.add({CELL.format(rng.choice(kinds))})",
            "keep('len', len(net))",
        ]
    lines += ["keep('repr', repr(net))", "net.initialize()"]
    lines += [f"keep('info', net.state_info({batch}))"]
    if rng.random() < 0.5 and name != "BidirectionalCell":
        scene.array("x", (batch, size), "float32", "real")
        call = f"y, states = net(x, net.begin_state(batch_size={batch}, func=nd.ones))"
    else:
        layout = rng.choice(["TNC", "NTC"])
        scene.array(
            "x",
            (steps, batch, size) if layout == "TNC" else (batch, steps, size),
            "float32",
            "real",
        )
        merge = rng.choice(["", ", merge_outputs=True", ", merge_outputs=False"])
        if rng.random() < 0.3:
            merge += (
                f", valid_length=nd.array({[rng.randrange(1, steps + 1) for _ in range(batch)]})"
            )
        call = f"y, states = net.unroll({steps}, x, layout='{layout}'{merge})"
    lines += [*scene.lines, call, *SET, "net.reset()", "x.attach_grad()"]
    lines += ["with autograd.record():", f"    {call}", "keep('y', y)", "keep('states', states)"]
    return "\n".join([*lines, *BACKWARD, "keep('grad', x.grad)", *ENDING]) + "\n"


def loss(mx, rng, module, name):
    """A loss of drawn predictions and labels."""
    scene = Scene(rng)
    scene.relation = rng.choice(["same", "same", "prefix", "any"])
    if rng.random() < 0.7:
        scene.dtype = "float32"
    lines = [f"net = {made(mx, scene, module, name)}", "keep('repr', repr(net))"]
    names = ["pred", "label"]
    if name == "TripletLoss":
        names = ["pred", "positive", "negative"]
    elif name == "CosineEmbeddingLoss":
        names = ["pred", "other", "label"]
    if rng.random() < 0.25:
        names.append("sample_weight")
    for array in names:
        scene.array(array)
    lines += [*scene.lines, *(f"{array}.attach_grad()" for array in names)]
    lines += [
        "with autograd.record():",
        f"    y = net({', '.join(names)})",
        "keep('y', y)",
        *BACKWARD,
    ]
    lines += [f"keep('{array}.grad', {array}.grad)" for array in names]
    return "\n".join(lines) + "\n"


def metric(mx, rng, module, name):
    """A metric: updated with drawn labels and predictions, read, reset."""
    scene = Scene(rng)
    if name == "check_label_shapes":
        scene.array("a")
        scene.array("b")
        wrap = rng.choice(["", ", wrap=True", ", shape=True"])
        inside = rng.choice(["a, b", "[a], [b]", "[a, b], [a]"])
        return "\n".join([*scene.lines, f"keep('y', mx.metric.check_label_shapes({inside}{wrap}))"])
    functions = [
        "lambda label, pred: float(np.abs(label - pred).sum())",
        "lambda label, pred: (float(pred.sum()), pred.size)",
    ]
    if name in ("CustomMetric", "np"):
        more = drawn_keywords(scene, parameters(find(mx, module, name)), ("feval", "numpy_feval"))
        text = f"mx.metric.{name}({', '.join(filter(None, [rng.choice(functions), more]))})"
    elif name == "CompositeEvalMetric":
        text = "mx.metric.CompositeEvalMetric([mx.metric.MAE(), 'mse'])"
    elif name == "create":
        text = f"mx.metric.create('{rng.choice(METRICS)}')"
    else:
        text = f"mx.{made(mx, scene, module, name)}"
    lines = [f"m = {text}", "keep('empty', m.get())", "keep('str', str(m))"]
    rows, classes = rng.choice([1, 2, 4, 6]), rng.choice([2, 2, 3, 4])
    for turn in range(rng.choice([1, 2])):
        kind = rng.choice(["classes", "classes", "same", "same", "drawn"])
        if kind == "drawn":
            label, pred = scene.array(f"label{turn}"), scene.array(f"pred{turn}")
        else:
            flat = (rows,) if rng.random() < 0.7 else (rows, 1)
            label = scene.array(
                f"label{turn}", flat, "float32", "index" if kind == "classes" else "real"
            )
            if kind == "classes":
                scene.lines[-1] = (
                    f"{label} = nd.array({[rng.randrange(classes) for _ in range(rows)]})"
                )
            shape = (rows, classes) if kind == "classes" else flat
            pred = scene.array(f"pred{turn}", shape, "float32", rng.choice(["unit", "real"]))
        wrap = rng.random() < 0.9
        scene.lines.append(
            f"m.update([{label}], [{pred}])" if wrap else f"m.update({label}, {pred})"
        )
    lines += [*scene.lines, "keep('get', m.get())", "keep('pairs', m.get_name_value())"]
    return "\n".join([*lines, "m.reset()\nkeep('reset', m.get())"]) + "\n"


def optimizer(mx, rng, module, name):
    """An optimizer: three updates of a weight, and its state."""
    scene = Scene(rng)
    scene.dtype = rng.choice(["float32", "float32", "float32", "float16", "float64"])
    scene.relation, scene.content = "same", "real"
    skipped = ("param_idx2name", "sym", "param_dict", "lr_scheduler", "optimizer", "klass")
    text = f"mx.{made(mx, scene, module, name, skipped)}"
    if name in ("Updater", "get_updater"):
        text = "mx.optimizer.SGD(momentum=0.9)"
    if name == "create":
        text = f"mx.optimizer.create('{rng.choice(OPTIMIZERS)}')"
    lines = [
        f"o = {text}",
        "keep('rate', [o.learning_rate, o.wd, o.rescale_grad, o.clip_gradient])",
    ]
    shape = scene.shape or (2,)
    scene.array("w", shape, scene.dtype, "real")
    scene.array("g", shape, scene.dtype, "real")
    lines += scene.lines
    if rng.random() < 0.4:
        lines += [
            rng.choice(
                ["o.set_wd_mult({0: 0.5})", "o.set_lr_mult({0: 0.5})", "o.set_learning_rate(0.25)"]
            )
        ]
    if name in ("Updater", "get_updater") or rng.random() < 0.3:
        lines += ["u = mx.optimizer.get_updater(o)", *["u(0, g, w)"] * 3]
        lines += ["keep('w', w)", "keep('state', list(u.states))", "keep('count', o.num_update)"]
    else:
        lines += ["s = o.create_state_multi_precision(0, w)"]
        lines += ["o.update_multi_precision(0, w, g, s)"] * 3
        lines += ["keep('w', w)", "keep('state', s)", "keep('count', o.num_update)"]
    return "\n".join(lines) + "\n"


def initializer(mx, rng, module, name):
    """An initializer: its description, and an array that it fills."""
    scene = Scene(rng)
    shape = scene.shape or (2,)
    if rng.random() < 0.3:
        shape = (30, 20)
    suffix = rng.choice(
        ["weight", "weight", "weight", "bias", "gamma", "beta", "running_mean", "moving_var", "q"]
    )
    text = (
        f"{module}.{name}()" if name in ("Bilinear",) else made(mx, scene, module, name, ("klass",))
    )
    if name == "Mixed":
        text = "init.Mixed(['bias', '.*'], [init.Zero(), init.Constant(2)])"
    elif name == "Load":
        text = "init.Load({'arg:a_weight': nd.ones((2, 3))}, init.Zero())"
    elif name == "InitDesc":
        return (
            "d = init.InitDesc('a_weight', {'__init__': 'x'})\n"
            "keep('d', [str(d), d.attrs, d.global_init])\n"
        )
    elif name == "register":
        return (
            "@init.register\nclass Mine(init.Initializer):\n    def _init_weight(self, _, arr):\n"
            "        arr[:] = 3\nx = nd.zeros((2, 2))\n"
            "init.create('mine')(init.InitDesc('a_weight'), x)\n"
            "keep('x', x)\n"
        )
    lines = [f"i = {text}", "keep('name', type(i).__name__)", f"x = nd.zeros({shape})"]
    if rng.random() < 0.5 and name not in ("Mixed", "Load"):
        lines += ["keep('dumps', i.dumps())", "keep('equal', i == i)"]
    lines += [f"i(init.InitDesc('a_{suffix}'), x)", "keep('x', x)"]
    return "\n".join(lines) + "\n"


def schedule(mx, rng, module, name):
    """A schedule of learning rates: its rates at growing numbers of updates."""
    scene = Scene(rng)
    text = f"mx.{made(mx, scene, module, name)}"
    if name == "MultiFactorScheduler":
        steps = sorted(rng.sample(range(1, 20), rng.choice([1, 2, 3])))
        more = drawn_keywords(scene, parameters(find(mx, module, name)), ("step",))
        text = (
            f"mx.lr_scheduler.MultiFactorScheduler({', '.join(filter(None, [str(steps), more]))})"
        )
    numbers = sorted(rng.sample(range(30), 6))
    return f"s = {text}\nkeep('base', s.base_lr)\nkeep('rates', [s(n) for n in {numbers}])\n"
