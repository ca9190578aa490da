"""Literals for drawn arguments: a `Scene` remembers what a call has drawn, so that parts fit."""

import re

from generators.sweep.signatures import REQUIRED

DTYPES = (
    ["float32"] * 11
    + ["float64"] * 2
    + ["float16"] * 2
    + ["int32", "int32", "int64", "uint8", "int8"]
)
SIZES = [1] * 4 + [2] * 7 + [3] * 7 + [4] * 4 + [5, 6, 8]
RANKS = [1] * 4 + [2] * 7 + [3] * 5 + [4] * 5 + [5]
#: Names of a call that takes random numbers.
RANDOM = re.compile(r"random|sample|shuffle|^normal$|^uniform$|_like$|randn|multinomial")


class Scene:
    """The arguments of one call, drawn one by one.

    shape, dtype: of the first array; window: how many axes a kernel has.
    """

    def __init__(self, rng):
        self.rng = rng
        self.lines = []
        self.varied = rng.random() < 0.6  # numbers of other kinds in further arrays
        self.arrays = []  # (name, shape, dtype)
        self.shape = tuple(rng.choice(SIZES) for _ in range(rng.choice(RANKS)))
        if rng.random() < 0.02:
            self.shape = rng.choice([(), (0,), (2, 0), (0, 3), (2, 0, 3)])
        self.dtype = rng.choice(DTYPES)
        self.content = rng.choice(["small", "real", "real", "real", "positive", "unit", "index"])
        self.relation = rng.choice(["same", "same", "broadcast", "matrix", "prefix", "any"])
        self.window = rng.choice([len(self.shape) - 2] * 4 + [1, 2]) if len(self.shape) > 2 else 2
        self.of_distribution = False  # arrays and numbers are parameters inside their range
        self.of_shares = False  # the numbers of a row add up to 1
        self.tensors = rng.choice([1, 1, 2, 3])  # that an optimizer updates at once
        self.count = self.tensors * rng.choice([1, 2, 2, 3, 4])  # of a list of arrays

    def array(self, name, shape=None, dtype=None, content=None):
        """A line that makes an array; its name."""
        rng = self.rng
        if shape is None:
            shape = self.related() if self.arrays else self.shape
        dtype = dtype or (self.dtype if rng.random() < 0.93 else rng.choice(DTYPES))
        if self.of_distribution:
            content = "above" if name == "high" else "unit"
            dtype = dtype if "float" in dtype else "float32"
        if name == "index_vector":
            content = "index"
        if content is None:
            content = self.content
            if self.arrays and self.varied and rng.random() < 0.4:
                content = rng.choice(["index", "unit", "positive", "small"])
        numbers = literal(rng, shape, dtype, content)
        self.lines.append(f"{name} = nd.array({numbers}, dtype='{dtype}')")
        if self.of_shares:
            self.lines.append(f"{name} = {name} / {name}.sum(axis=-1, keepdims=True)")
        self.arrays.append((name, shape, dtype))
        return name

    def related(self):
        """A shape for a further array."""
        rng, shape = self.rng, self.shape
        if rng.random() < 0.15:
            return tuple(rng.choice(SIZES) for _ in range(rng.choice(RANKS)))
        if self.relation == "broadcast":
            kept = tuple(n if rng.random() < 0.6 else 1 for n in shape)
            return kept if rng.random() < 0.8 else kept[rng.randrange(len(kept) + 1) :]
        if self.relation == "matrix" and len(shape) > 1:
            return rng.choice(
                [
                    (*shape[:-2], shape[-1], shape[-2]),
                    (*shape[:-2], shape[-1], rng.choice(SIZES)),
                    (shape[-1], rng.choice(SIZES)),
                    (*shape[:-1], rng.choice(SIZES)),
                    (*shape[:-2], shape[-2], shape[-2]),
                    (*shape[:-2], shape[-1], shape[-1]),
                ]
            )
        if self.relation == "prefix" and shape:
            return rng.choice([shape[:1], shape[:-1], shape[1:], shape[1:2], shape[:2], shape[-1:]])
        return shape if self.relation == "same" else tuple(rng.choice(SIZES) for _ in shape)


def literal(rng, shape, dtype, content):
    """Nested lists of numbers as text."""
    if not shape:
        return f"np.array({number(rng, dtype, content)})"
    if 0 in shape:
        return f"np.zeros({shape})"

    def part(shape):
        if not shape:
            return str(number(rng, dtype, content))
        return "[" + ", ".join(part(shape[1:]) for _ in range(shape[0])) + "]"

    return part(shape)


def number(rng, dtype, content):
    """One element. Reals are multiples of 1/64: any float dtype holds them."""
    if content == "index" or (content == "positive" and "int" in dtype):
        return rng.randrange(4)
    if content == "small" or "int" in dtype:
        low = 0 if dtype == "uint8" else -3
        return rng.randrange(low, 4)
    if content == "unit":
        return rng.randrange(1, 64) / 64
    if content == "above":
        return rng.randrange(64, 192) / 64
    if content == "positive":
        return rng.randrange(1, 192) / 64
    return rng.randrange(-192, 192) / 64


def given(scene, parameter):
    """Whether a call names an argument; what has no default usually is."""
    return scene.rng.random() < (0.985 if parameter.default is REQUIRED else 0.3)


def argument(scene, parameter):
    """A drawn argument as text; lines that it needs go to the scene."""
    rng, name, kind = scene.rng, parameter.name, parameter.kind
    if rng.random() < 0.012:
        return rng.choice(["'x'", "None", "1.5", "-7", "[1, 2]", "(2, 3)", "object"])
    if parameter.repeated or "NDArray[]" in kind or re.match(r"list of `?NDArray", kind):
        return arrays(scene, name, bracket=not parameter.repeated)
    if name.startswith("num_") and name[4:] in ("args", "weights", "arrays", "tensors"):
        return str(scene.count if name == "num_args" else scene.tensors)
    if named := re.match(r"\{(.*)\}", kind):
        choices = [c.strip() for c in named[1].split(",")]
        return rng.choice(choices).replace(" or ", ",").split(",")[0]
    if "dtype" in name:
        return repr(rng.choice([*DTYPES, "bool"] if rng.random() < 0.3 else DTYPES))
    if re.search(r"NDArray|mxnet.ndarray.array|mx.nd.array|Symbol", kind) and not (
        re.search(r"float|scalar", kind) and rng.random() < 0.5
    ):
        return scene.array(name)
    return repr(plain(scene, name, kind, parameter.default))


def arrays(scene, name, bracket):
    """Several arrays."""
    names = [scene.array(f"{name}{i}") for i in range(scene.count)]
    return f"[{', '.join(names)}]" if bracket else ", ".join(names)


def plain(scene, name, kind, default):
    """A value of Python's own types."""
    rng, rank = scene.rng, len(scene.shape)
    if "None" in kind and rng.random() < 0.15:
        return None
    axes = name in ("axis", "axes", "dim", "lhs_axes", "rhs_axes") or "axis" in name
    if re.search(r"[Ss]hape|tuple of int|sequence of int|list/tuple|tuple/list", kind):
        if "int" in kind.split() and rng.random() < 0.5:
            return integer(rng, rank, axes, kind)
        return shape(scene, name, axes, kind)
    if "tuple of <float>" in kind or name.endswith("s_list"):
        return tuple(real(rng, default) for _ in range(scene.tensors))
    if "bool" in kind or isinstance(default, bool):
        return rng.choice([True, False])
    if re.search(r"\bint\b|\blong\b|unsigned", kind):
        return integer(rng, rank, axes, kind)
    if re.search("float|double|number|scalar", kind) or isinstance(default, float):
        return (rng.randrange(1, 64) / 64) if scene.of_distribution else real(rng, default)
    if isinstance(default, int):
        return integer(rng, rank, axes, kind)
    if "array_like" in kind:
        return [real(rng, default) for _ in range(rng.choice(SIZES))]
    if isinstance(default, str):
        return default
    return rng.choice([0, 1, 2, 0.5, (2, 3)])


def integer(rng, rank, axes, kind):
    if axes:
        return (
            rng.randrange(-rank - 1, rank + 1)
            if rng.random() < 0.2
            else rng.randrange(-rank, rank or 1)
        )
    if "non-negative" in kind:
        return rng.choice([1, 1, 2, 3, 4, 0])
    return rng.choice([1, 1, 2, 2, 3, 0, -1, 4, 5])


def real(rng, default):
    return rng.choice([0.5, 0.25, 0.125, 1, 2, 1.5, -0.5, 0, -1, 0.0625])


def shape(scene, name, axes, kind):
    """A tuple: axes, a shape to make, or one number for each axis of a window."""
    rng, rank = scene.rng, len(scene.shape)
    if axes:
        chosen = rng.sample(range(rank), rng.randrange(rank + 1))
        if rng.random() < 0.4:
            chosen = rng.sample(range(rank), rank)
        return tuple(a - rank if rng.random() < 0.3 else a for a in chosen)
    if "shape" in name or name in ("size", "reps"):
        return wanted_shape(scene)
    counted = re.search(r"of (\d) int", kind)
    if counted:
        scene.window = int(counted[1])
    if name in ("begin", "end", "step", "pad_width"):
        length = 2 * rank if name == "pad_width" else rng.choice([rank, rank, 1])
        values = {
            "begin": [0, 0, 1, -1, None],
            "end": [None, 2, 3, 1, -1],
            "pad_width": [0, 0, 1, 2],
        }
        return tuple(rng.choice(values.get(name, [None, 1, 1, 2, -1])) for _ in range(length))
    few = (
        [0, 0, 1, 1, 2] if name in ("pad", "padding", "adj", "output_padding") else [1, 1, 2, 2, 3]
    )
    return tuple(rng.choice(few) for _ in range(scene.window if rng.random() < 0.95 else 1))


def wanted_shape(scene):
    """A shape that the first array may take, or any other."""
    rng, shape = scene.rng, list(scene.shape)
    kind = rng.choice(["any", "permuted", "codes", "grown", "merged"])
    if kind == "permuted":
        rng.shuffle(shape)
    elif kind == "codes":
        shape = [rng.choice([0, -1, n, n, -2, -3]) for n in shape]
    elif kind == "grown":
        shape = [rng.choice([2, 3, 4]) if n == 1 else n for n in shape]
    elif kind == "merged" and len(shape) > 1:
        shape = [shape[0] * shape[1], *shape[2:]]
    else:
        shape = [rng.choice(SIZES) for _ in range(rng.choice(RANKS))]
    return tuple(shape)
