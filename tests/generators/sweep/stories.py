"""Programs for what is no function of arrays: data and its iterators, stores, autograd, seeds."""

from generators.sweep.calls import call_program, drawn_keywords, find
from generators.sweep.signatures import parameters
from generators.sweep.values import Scene


def data(mx, rng, module, name):
    """Datasets, samplers and loaders of small arrays."""
    scene = Scene(rng)
    n = rng.choice([0, 1, 2, 3, 5, 7])
    base = [
        f"a = gluon.data.ArrayDataset(np.arange({n * 2}.0).reshape({n}, 2), list(range({n})))",
        f"b = gluon.data.SimpleDataset(list(range({n})))",
        f"a = nd.array(np.arange({n or 1}))",
    ]
    keywords = drawn_keywords(
        scene,
        parameters(find(mx, module, name)),
        (
            "sampler",
            "dataset",
            "fn",
            "batchify_fn",
            "batch_sampler",
            "num_workers",
            "pin_memory",
            "timeout",
            "data",
            "filename",
            "length",
        ),
    )
    more = f", {keywords}" if keywords else ""
    if name == "BatchSampler":
        sampler = f"gluon.data.{rng.choice(['SequentialSampler', 'RandomSampler'])}({n})"
        return (
            f"s = gluon.data.BatchSampler({sampler}{more})\nkeep('len', len(s))\n"
            "keep('lengths', [len(b) for b in s])\nkeep('again', [len(b) for b in s])\n"
        )
    if name in ("SequentialSampler", "RandomSampler"):
        return f"s = gluon.data.{name}({n}{more})\nkeep('len', len(s))\nkeep('all', sorted(s))\n"
    if name == "FilterSampler":
        return f"{base[1]}\nkeep('all', list(gluon.data.FilterSampler(lambda x: x % 2, b)))\n"
    if name in ("ArrayDataset", "SimpleDataset"):
        sequel = rng.choice(
            [
                "d.transform(lambda *x: x)",
                "d.transform_first(lambda x: x * 2)",
                "d.shard(2, 1)",
                "d.take(2)",
                "d.filter(lambda *x: True)",
                "d.sample(gluon.data.SequentialSampler(2))",
                "d.shard(3, 5)",
                "d.take(-1)",
                "d.transform(lambda *x: x, lazy=False)",
            ]
        )
        made = (
            base[0].replace("a =", "d =")
            if name == "ArrayDataset"
            else base[1].replace("b =", "d =")
        )
        return (
            f"{made}\nkeep('len', len(d))\nkeep('all', [d[i] for i in range(len(d))])\n"
            f"e = {sequel}\nkeep('len', len(e))\nkeep('all', [e[i] for i in range(len(e))])\n"
            f"keep('item', d[{rng.choice([0, -1, n, 2])}])\n"
        )
    if name == "DataLoader":
        made = rng.choice(["a", "b"])
        return (
            f"{base['ab'.index(made)]}\nl = gluon.data.DataLoader({made}{more})\n"
            "keep('len', len(l))\n"
            "for batch in l: keep('batch', batch)\n"
        )
    return f"s = gluon.data.{name}()\nkeep('len', len(s))\nkeep('first', s[0])\n"


def iterators(mx, rng, module, name):
    """The iterators of `mx.io`."""
    scene = Scene(rng)
    n = rng.choice([1, 2, 3, 5, 7])
    keywords = drawn_keywords(
        scene,
        parameters(find(mx, module, name)),
        ("data", "label", "iters", "data_iter", "shuffle", "layout"),
    )
    scene.array("x", (n, 2), scene.dtype, "small")
    scene.array("t", (n,), "float32", "index")
    form = rng.choice(["x", "x.asnumpy()", "[x, x]", "{'a': x, 'b': x}", "{'a': x.asnumpy()}"])
    label = rng.choice(["None", "t", "{'l': t}", "t.asnumpy()"])
    if name == "NDArrayIter":
        made = f"mx.io.NDArrayIter({form}, {label}{', ' + keywords if keywords else ''})"
    elif name == "DataDesc":
        text = drawn_keywords(scene, parameters(find(mx, module, name)), ("name", "shape"))
        return (
            f"d = mx.io.DataDesc('data', (2, 3){', ' + text if text else ''})\n"
            "keep('repr', repr(d))\nkeep('parts', [d.name, d.shape, d.layout])\n"
            "keep('axis', mx.io.DataDesc.get_batch_axis('TNC'))\n"
        )
    elif name == "DataBatch":
        text = rng.choice(["[x], [t]", "[x]", "[x], pad=1", "[x], [t], index=[0]", "x"])
        return "\n".join(
            [
                *scene.lines,
                f"b = mx.io.DataBatch({text})",
                "keep('str', str(b))",
                "keep('parts', [b.data, b.label, b.pad, b.index])",
            ]
        )
    else:
        made = f"mx.io.{name}({rng.choice(['', '2'])})"
        return f"d = {made}\nkeep('size', d.batch_size)\nkeep('next', d.next())\n"
    once = ["for b in i: keep('batch', [b.data, b.label, b.pad])"]
    lines = [
        *scene.lines,
        f"i = {made}",
        "keep('data', [list(d) for d in i.provide_data])",
        "keep('label', [list(d) for d in i.provide_label])",
        "keep('size', i.batch_size)",
    ]
    extra = rng.choice(
        [
            ["i.reset()", *once],
            ["i.reset()", "i.next()", "keep('pad', i.getpad())", "i.reset()", *once],
        ]
    )
    return "\n".join([*lines, *once, *extra]) + "\n"


def store(mx, rng, module, name):
    """A kvstore: a drawn sequence of its methods."""
    kind = rng.choice(
        ["local", "local", "device", "nope"] if rng.random() < 0.2 else ["local", "device"]
    )
    scene = Scene(rng)
    scene.relation, shape = "same", scene.shape or (2,)
    keys = rng.choice([["3", "4"], ["'a'", "'b'"]])
    lines = [f"kv = mx.kv.create('{kind}')", "keep('facts', [kv.type, kv.rank, kv.num_workers])"]
    for array in ("x", "w", "o"):
        scene.array(array, shape, scene.dtype, "small")
    lines += [*scene.lines, f"kv.init({keys[0]}, x)"]
    if rng.random() < 0.5:
        lines += [f"kv.init([{keys[1]}], [w])"]
    key = lambda: rng.choice(keys)  # noqa: E731
    steps = [
        lambda: [f"kv.push({key()}, w)"],
        lambda: [f"kv.push({key()}, [w, x, w])"],
        lambda: [f"kv.push([{key()}], [[w, w]])"],
        lambda: [f"kv.pull({key()}, out=o)", "keep('o', o)"],
        lambda: [f"kv.pull([{key()}], out=[[o, x]])", "keep('o', [o, x])"],
        lambda: [f"kv.pushpull({key()}, [w, w], out=o)", "keep('o', o)"],
        lambda: [f"kv.broadcast({rng.choice(['7', key()])}, w, out=o)", "keep('o', o)"],
        lambda: [f"kv.pull({key()}, out=[o, w], priority=-1)", "keep('o', [o, w])"],
        lambda: ["kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))"],
        lambda: ["kv._set_updater(lambda k, g, v: v.__iadd__(g * 2))"],
        lambda: [f"kv.init({key()}, x)"],
        lambda: ["kv._barrier()"],
        lambda: ["kv.set_gradient_compression({'type': '2bit', 'threshold': 0.5})"],
        lambda: ["keep('capable', kv.is_capable('optimizer'))"],
    ]
    for _ in range(rng.choice([2, 3, 5])):
        lines += rng.choice(steps)()
    return "\n".join(lines) + "\n"


def tape(mx, rng, module, name):
    """autograd: what a function of it does around a small computation."""
    scene = Scene(rng)
    scene.relation = "same"
    scene.array("x")
    scene.array("w")
    flags = "keep('flags', [autograd.is_recording(), autograd.is_training()])"
    req = rng.choice(["write", "write", "add", "null"])
    formula = rng.choice(
        [
            "x * w",
            "x * x + w",
            "nd.tanh(x) * w",
            "(x * w).sum()",
            "x.detach() * w",
            "w * 2",
            "nd.BlockGrad(x) + x",
        ]
    )
    lines = [*scene.lines, f"x.attach_grad('{req}')", "w.attach_grad()"]
    flag = rng.choice(["True", "False"])
    ends = ["keep('grads', [x.grad, w.grad])", flags]
    if name in ("record", "pause", "train_mode", "predict_mode"):
        argument = (
            f"train_mode={flag}" if name in ("record", "pause") and rng.random() < 0.6 else ""
        )
        inner = [
            f"    with autograd.{name}({argument}):",
            f"        {flags}",
            f"        y = {formula}",
        ]
        lines += [
            "with autograd.record():",
            "    z = x * w",
            *inner,
            "    v = y + z",
            f"    {flags}",
            "v.backward()",
        ]
    elif name in ("set_recording", "set_training"):
        lines += [
            f"keep('before', autograd.{name}({flag}))",
            flags,
            f"y = {formula}",
            f"autograd.{name}(False)",
            "y.backward()",
        ]
    elif name in ("is_recording", "is_training"):
        lines += [
            flags,
            "with autograd.record():",
            f"    {flags}",
            f"    y = {formula}",
            "y.backward()",
        ]
    elif name == "mark_variables":
        lines += [
            "g = nd.zeros_like(x)",
            f"autograd.mark_variables([x], [g], '{req}')",
            "with autograd.record():",
            f"    y = {formula}",
            "y.backward()",
            "keep('g', g)",
        ]
    elif name == "grad":
        options = rng.choice(
            ["", ", create_graph=True", ", retain_graph=True", ", train_mode=False"]
        )
        head = rng.choice(["", ", head_grads=nd.ones_like(y) * 2", ", head_grads=[w]"])
        of = rng.choice(["x", "[x]", "[x, w]", "[w, x, x]", "[]", "z"])
        lines += [
            "with autograd.record():",
            "    z = x * 1",
            f"    y = {formula.replace('x', 'z')}",
            f"    g = autograd.grad(y, {of}{head}{options})",
            "keep('g', g)",
        ]
    elif name == "Function":
        gives = rng.choice(["g * 2 * self.saved_tensors[0]", "g", "(g, g)", "None"])
        lines += [
            "class F(autograd.Function):",
            "    def forward(self, a):",
            "        self.save_for_backward(a)",
            "        return a * a",
            "    def backward(self, g):",
            f"        return {gives}",
            "with autograd.record():",
            f"    y = F()({formula})",
            "keep('y', y)",
            "y.backward()",
        ]
    else:
        head = rng.choice(["", "", ", nd.ones_like(y) * 3", ", [w]", ", [None]", ", [w, w]"])
        heads = rng.choice(["y", "[y]", "[y, z]", "[y, y]", "[]"])
        options = rng.choice(["", "", ", retain_graph=True", ", train_mode=False"])
        call = f"autograd.backward({heads}{head}{options})"
        lines += ["with autograd.record():", "    z = x * 2", f"    y = {formula}", call]
        lines += [call] if rng.random() < 0.4 else []
    return "\n".join([*lines, *ends]) + "\n"


def seeded(mx, rng, module, name):
    """`mx.random`: as `nd.random`, and the seed."""
    if name == "seed":
        seed = rng.choice(["3", "2 ** 31", "-1", "0", "1.5", "'a'", "3, ctx=mx.cpu()"])
        again = f"mx.random.seed({seed})\n"
        return (
            f"{again}a = nd.random.uniform(shape=5)\n{again}"
            "keep('same', (nd.random.uniform(shape=5) == a).asnumpy().all())\n"
        )
    return call_program(mx, rng, "nd.random", name).replace("nd.random.", "mx.random.")
