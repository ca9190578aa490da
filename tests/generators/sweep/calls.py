"""Programs that call one function: of `nd` and below, a method of NDArray, or one of `sym`."""

import re

from generators.sweep.signatures import REQUIRED, parameters
from generators.sweep.values import RANDOM, SIZES, Scene, argument, given, plain

#: Attributes of an array that are no methods, and methods that Python's operators call.
PROPERTIES = {"T", "shape", "size", "ndim", "dtype", "context", "ctx", "stype", "grad"}
OPERATORS = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__truediv__": "/",
    "__mod__": "%",
    "__pow__": "**",
    "__eq__": "==",
    "__ne__": "!=",
    "__gt__": ">",
    "__ge__": ">=",
    "__lt__": "<",
    "__le__": "<=",
    "__iadd__": "+=",
    "__isub__": "-=",
    "__imul__": "*=",
    "__itruediv__": "/=",
    "__imod__": "%=",
}
SPECIAL = [
    *OPERATORS,
    "__neg__",
    "__abs__",
    "__len__",
    "__bool__",
    "__repr__",
    "__getitem__",
    "__setitem__",
    "__iter__",
    "__float__",
    "__int__",
]
#: Gradients of the outputs: different numbers, the same in both libraries.
BACKWARD = [
    "ys = y if isinstance(y, (list, tuple)) else [y]",
    "heads = [nd.array(np.cos(np.arange(v.size)).reshape(v.shape), dtype=v.dtype) for v in ys]",
    "autograd.backward(ys, heads)",
]


def find(mx, module, name):
    """The function of this name."""
    place = mx
    for part in [*module.split("."), name]:
        place = getattr(place, part)
    return place


def call_program(mx, rng, module, name):
    """Arrays, one call, and in half of the programs its gradient."""
    scene = Scene(rng)
    keep_defined(scene, name)
    if RANDOM.search(f"{module}.{name}"):
        scene.content = rng.choice(["unit", "positive"])
        if rng.random() < 0.3:
            scene.shape = (rng.choice([20, 400]), 20)
    call = (
        f"{module}.{name}({arguments(mx, scene, module, name, parameters(find(mx, module, name)))})"
    )
    return whole(scene, [f"y = {call}"], differs=not RANDOM.search(f"{module}.{name}"), name=name)


def keep_defined(scene, name):
    """Draw no arguments for which MXNet reads or writes beyond its arrays, or gives numbers that
    mean nothing: coordinates of several axes, factors of a vector, and parameters of a distribution
    outside of their range."""
    scene.of_shares = "multinomial" in name
    scene.of_distribution = scene.of_shares


def whole(scene, call, differs=True, name=""):
    """The program of drawn lines and a call that gives y."""
    rng, mutates = scene.rng, "update" in name
    lines = list(scene.lines)
    names = [a for a, _, _ in scene.arrays if "moving_" not in a]  # no auxiliary states
    if differs and names and not mutates and rng.random() < 0.55:
        reqs = ["", "", "", "grad_req='add'"]
        lines += [f"{array}.attach_grad({rng.choice(reqs)})" for array in names]
        mode = "train_mode=False" if rng.random() < 0.1 else ""
        lines += [f"with autograd.record({mode}):", *(f"    {line}" for line in call)]
        lines += ["keep('y', y)", *BACKWARD]
        lines += [f"keep('{array}.grad', {array}.grad)" for array in names]
    else:
        lines += [*call, "keep('y', y)"]
        lines += [f"keep('{array}', {array})" for array in names] if mutates else []
    return "\n".join(lines) + "\n"


def arguments(mx, scene, module, name, params, receiver=False):
    """The text between the brackets of a call; the scene gets the lines before it."""
    if receiver:
        scene.array("x")
        params = params[1:]
    of_arrays = [p for p in params if is_array(p)]
    others = [p for p in params if not is_array(p)]
    first = of_arrays[0].name if of_arrays and not of_arrays[0].repeated else None
    places = [scene.array(first)] if first and not receiver else []
    keywords = {p.name: argument(scene, p) for p in others if given(scene, p)}
    rest = of_arrays[len(places) :]
    inferred = {}
    if rest and scene.arrays and scene.rng.random() < 0.75:
        inferred = inferred_shapes(mx, module, name, first or params[0].name, scene.shape, keywords)
    for parameter in rest:
        if inferred:
            if parameter.name in inferred:
                where = scene.array(parameter.name, inferred[parameter.name] or None)
                places.append(f"{parameter.name}={where}")
        elif given(scene, parameter):
            text = argument(scene, parameter)
            places.append(text if parameter.repeated else f"{parameter.name}={text}")
    if scene.rng.random() < 0.3 and not inferred:  # all by position
        places = [place.partition("=")[2] or place for place in places]
    if any(p.repeated for p in params) and not rest:
        places = [argument(scene, p) for p in params if p.repeated]
    return ", ".join([*places, *(f"{key}={value}" for key, value in keywords.items())])


def is_array(parameter):
    """Whether an argument is one or more arrays."""
    if parameter.name == "data" and not parameter.kind:
        return True
    return parameter.repeated or bool(
        re.match(r"NDArray|mx.nd.array|scalar or|Symbol|list of `?NDArray", parameter.kind)
    )


def inferred_shapes(mx, module, name, first, shape, keywords):
    """What MXNet's own inference says of the other arrays: their shapes by name, () if unknown."""
    try:
        space = find(mx, module.replace("nd", "sym", 1), name)
        known = {key: eval(value, {}) for key, value in keywords.items()}
        symbol = space(**{first: mx.sym.var("first")}, **known, name="q")
        inner = symbol.get_internals()
        names = [*inner.list_arguments(), *inner.list_auxiliary_states()]
        shapes, _, more = symbol.infer_shape_partial(first=shape)
    except Exception:
        return {}
    found = dict(zip(names, [*(shapes or [()] * len(names)), *(more or [])]))
    found.pop("first")
    return {key[2:]: value if 0 not in value else () for key, value in found.items()}


def method_program(mx, rng, module, name):
    """A method, a property or an operator of an array."""
    scene = Scene(rng)
    if name in PROPERTIES:
        scene.array("x")
        return whole(scene, [f"y = x.{name}"], differs=name == "T")
    if name in SPECIAL:
        return special(scene, name)
    function = getattr(mx.nd.NDArray, name)
    own = parameters(function)
    fluent = hasattr(mx.nd, name) and not any(p.name not in ("args", "kwargs") for p in own)
    params = parameters(getattr(mx.nd, name)) if fluent else [None, *own]
    text = arguments(mx, scene, "nd", name, params, receiver=True)
    return whole(scene, [f"y = x.{name}({text})"], differs=fluent, name=name)


def special(scene, name):
    """What Python's own syntax does with an array."""
    rng = scene.rng
    scene.array("x")
    scene.relation = rng.choice(["same", "same", "broadcast"])
    other = scene.array("w") if rng.random() < 0.6 else str(rng.choice([2, 0.5, -1, 3, 0]))
    if name in OPERATORS and name.startswith("__i"):
        return whole(scene, [f"x {OPERATORS[name]} {other}", "y = x"], differs=rng.random() < 0.1)
    if name in OPERATORS:
        sides = ["x", other]
        if rng.random() < 0.3:
            sides.reverse()
        return whole(scene, [f"y = {sides[0]} {OPERATORS[name]} {sides[1]}"])
    if name == "__getitem__":
        return whole(scene, [f"y = x[{index(scene)}]"])
    if name == "__setitem__":
        return whole(scene, [f"x[{index(scene)}] = {other}", "y = x"], differs=False)
    words = {"__neg__": "-x", "__abs__": "abs(x)", "__iter__": "list(x)", "__bool__": "bool(x)"}
    return whole(
        scene,
        [f"y = {words.get(name, f'{name.strip(chr(95))}(x)')}"],
        differs=name in ("__neg__", "__abs__", "__iter__"),
    )


def index(scene):
    """An index as text: integers, slices, None, `...`, lists, an array."""
    rng = scene.rng
    parts = []
    for size in scene.shape[: rng.randrange(len(scene.shape) + 1)] or (1,):
        parts.append(
            rng.choice(
                [
                    str(rng.randrange(-size, size) if size else 0),
                    ":",
                    ":",
                    "1:",
                    f":{size}",
                    "::2",
                    "::-1",
                    f"{rng.randrange(size + 1)}:{rng.randrange(size + 2)}",
                    "...",
                    "None",
                    repr(
                        [rng.randrange(-size, size or 1) for _ in range(rng.choice([1, 2, 3]))]
                        if size
                        else []
                    ),
                ]
            )
        )
    if parts.count("...") > 1:
        parts = [":" if part == "..." else part for part in parts]
    if rng.random() < 0.08:
        return scene.array(
            "where",
            dtype=rng.choice(["int32", "float32", "int64"]),
            content="index",
            shape=(rng.choice(SIZES),),
        )
    return ", ".join(parts)


def symbol_program(mx, rng, module, name):
    """A Symbol of one call: what it lists, what it infers, and what it gives."""
    scene = Scene(rng)
    keep_defined(scene, name)
    text = arguments(mx, scene, "nd", name, parameters(find(mx, "nd", name)))
    lines = [f"{array} = sym.var('{array}')" for array, _, _ in scene.arrays]
    named = [] if name == "split_v2" else ["name='q'"]
    lines += [f"y = sym.{name}({', '.join([text, *named] if text else named)})"]
    lines += [
        f"keep('{what}', y.list_{what}())" for what in ("arguments", "auxiliary_states", "outputs")
    ]
    shapes = {array: shape for array, shape, _ in scene.arrays}
    lines += rng.choice(
        [
            ["keep('attr', y.attr_dict())"],
            inferring(rng, shapes),
            inferring(rng, shapes),
            types(scene),
            evaluating(scene),
            evaluating(scene),
        ]
    )
    return "\n".join(lines) + "\n"


def inferring(rng, shapes):
    """Shapes inferred from some of those of the arrays, sometimes with unknown sizes."""
    some = {}
    for array, shape in shapes.items():
        if rng.random() < 0.7:
            some[array] = tuple(0 if rng.random() < 0.1 else n for n in shape)
    partial = "_partial" if rng.random() < 0.3 else ""
    return [f"keep('shapes', y.infer_shape{partial}(**{some}))"]


def types(scene):
    some = {array: dtype for array, _, dtype in scene.arrays if scene.rng.random() < 0.6}
    return [f"keep('types', y.infer_type(**{some}))"]


def evaluating(scene):
    """The values of the outputs, and the gradients of the arguments."""
    values = [line.replace(" = ", "_value = ", 1) for line in scene.lines]
    known = ", ".join(f"{array}={array}_value" for array, _, _ in scene.arrays)
    if scene.rng.random() < 0.5:
        return [*values, f"keep('value', y.eval(ctx=mx.cpu(), {known}))"]
    names = ", ".join(f"'{array}': {array}_value" for array, _, _ in scene.arrays)
    return [
        *values,
        f"known = {{{names}}}",
        "aux = {n: known.pop(n) for n in y.list_auxiliary_states() if n in known}",
        "grads = {n: nd.zeros_like(v) for n, v in known.items()}",
        "e = y.bind(mx.cpu(), known, args_grad=grads, aux_states=aux)",
        "keep('value', e.forward(is_train=True))",
        "e.backward([nd.ones_like(v) for v in e.outputs])",
        "keep('grads', [grads[n] for n in sorted(grads)])",
    ]


def drawn_keywords(scene, params, skipped=()):
    """`units=3, use_bias=False`: drawn arguments of a constructor."""
    parts = []
    for p in params:
        if (
            p.name in skipped
            or p.repeated
            or not (p.default is REQUIRED or scene.rng.random() < 0.3)
        ):
            continue
        parts.append(f"{p.name}={constructor_argument(scene, p)}")
    return ", ".join(parts)


#: Values for arguments that a docstring calls no more than a string.
WORDS = {
    "activation": "relu sigmoid tanh softrelu softsign",
    "recurrent_activation": "sigmoid tanh relu",
    "label_format": "signed binary",
    "average": "macro micro",
    "warmup_mode": "linear constant",
    "rnd_type": "uniform gaussian",
    "factor_type": "avg in out",
    "rand_type": "uniform normal",
    "mode": "lstm gru rnn_tanh rnn_relu",
    "last_batch": "keep discard rollover",
    "last_batch_handle": "pad discard roll_over",
    "label_layout": "NT TN",
    "warmup_strategy": "linear power2 sqrt lars",
}


def constructor_argument(scene, p):
    """A drawn argument of a constructor as text."""
    rng = scene.rng
    if rng.random() < 0.01:
        return rng.choice(["'x'", "None", "-1", "(1, 2, 3, 4)"])
    if p.name in WORDS:
        return repr(rng.choice(WORDS[p.name].split()))
    if "nitializer" in p.name:
        return rng.choice(["'zeros'", "'ones'", "init.Constant(0.5)", "None"])
    if p.name == "layout":
        layouts = ["NTC", "TNC"] if p.default in ("NTC", "TNC") else [p.default]
        return repr(rng.choice(layouts))
    if p.name == "dtype":
        return repr(rng.choice(["float32", "float32", "float64", "float16"]))
    if p.name in ("name", "output_names", "label_names"):
        return {"name": "'mine'", "output_names": "['a']", "label_names": "['b']"}[p.name]
    if p.name in ("weight", "learning_rate", "clip_gradient", "clip_weights") or "lr" in p.name:
        return repr(rng.choice([0.5, 0.1, 2.0, 1]))
    if p.name in ("rate", "dropout") or "zoneout" in p.name or "rho" in p.name or "beta" in p.name:
        return repr(rng.choice([0, 0.0, 0.5, 0.9]))
    if "float" in p.kind or isinstance(p.default, float):
        return repr(rng.choice([0.5, 0.1, 0.9, 0.0625]))
    return repr(plain(scene, p.name, p.kind, p.default))
