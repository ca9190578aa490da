"""Random nets as ONNX files: onnxruntime gives what the net gives, for batches of 1, 2 and 5.

A net is a Block whose lines are drawn one by one; a line that the library refuses for the example
is drawn again. Half of the nets are written with `dynamic_batch`. An export may be refused, by an
MXNetError that names a node; what is exported must run, on its example and, if the batch is
dynamic, on every batch that the net itself takes.

Whole numbers are made, compared, ordered and rounded only of values that have no rounding errors.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from typing import Any

import numpy as np

import d2lmini as mx
from d2lmini import MXNetError, autograd, gluon, nd
from d2lmini.gluon import nn, rnn

#: What became of the exports.
outcomes: Counter[str] = Counter()

BATCHES = (1, 2, 5)

_DTYPES = ("int32", "int64", "int8", "uint8", "float16", "float64", "float32")

#: Of whole numbers these are just below one, or one.
_SATURATING = ("F.tanh", "F.sigmoid", "F.erf", "F.Activation")

_SHAPES = (
    (6,),
    (4,),
    (3, 4),
    (4, 6),
    (2, 3),
    (4, 4, 4),
    (2, 6, 4),
    (4, 1, 5),
    (1,),
    (1, 1),
    (3,),
    (),
)

#: Where whole numbers and rounding errors don't meet.
_STEEP = """
F.floor({a}) | F.ceil({a}) | F.round({a}) | F.rint({a}) | F.trunc({a}) | F.fix({a}) | F.sign({a})
F.cast({a}, dtype='{dtype}') | F.cast({a}, dtype='{dtype}') | F.cast({a}, dtype='{dtype}')
{a} {compare} {b} | {a} {compare} {number} | F.logical_not({a}) | {a} % {number} | {number} % {a}
F.broadcast_mod({a}, {b}) | F.broadcast_greater({a}, {b}) | F.broadcast_logical_and({a}, {b})
F.argmax({a}, axis={axis}) | F.argmin({a}, axis={axis}, keepdims={bool}) | F.argmax({a})
F.topk({a}, axis={axis}, k={small}, ret_typ='{topk}')
F.argsort({a}, axis={axis}, is_ascend={bool}) | F.sort({a}, axis={axis}, is_ascend={bool})
F.one_hot({a}, {small}) | F.where({a}, {b}, {b}) | F.where({a} > {number}, {b}, {c})
F.take({b}, {a}, axis={axis}, mode='{mode}')
F.pick({b}, {a}, axis={axis}, mode='{mode}', keepdims={bool}) | F.Embedding({a}, self.w, 6, 4)
F.pick(F.transpose({b}), {a}, axis={axis}) | F.gather_nd({b}, F.cast({a} * 0, dtype='int32'))
F.SequenceMask({b}, F.abs({a}), use_sequence_length=True, axis={zero_one})
F.SequenceLast({b}, F.abs({a}) + 1, use_sequence_length=True, axis={zero_one})
F.SequenceReverse({b}, F.abs({a}) + 1, use_sequence_length=True)
F.floor({a} / {number})
"""

#: What keeps values without rounding errors so.
_EXACT = """
F.relu({a}) | F.abs({a}) | -{a} | F.square({a}) | F.clip({a}, {low}, {high}) | F.zeros_like({a})
F.ones_like({a}) | {a} + {number} | {number} - {a} | {a} * {number} | F.maximum({a}, {number})
F.minimum({a}, {b}) | F.maximum({a}, {b}) | {a} + {b} | {a} - {b} | {a} * {b} | F.BlockGrad({a})
F.broadcast_add({a}, {b}) | F.broadcast_mul({a}, {b}) | F.broadcast_maximum({a}, {b})
F.elemwise_add({a}, {b}) | F.add_n({a}, {b}) | F.sum({a}, axis={axis}) | F.sum({a}) | F.max({a})
F.sum({a}, axis={axis}, exclude={bool}) | F.max({a}, axis={axis}, keepdims={bool})
F.min({a}, axis={axis}) | F.min({a}, axis={axis}, exclude=True) | F.sum({a}, axis=(0, 1))
F.reshape({a}, shape={reshape}) | F.reshape({a}, shape={reshape}) | F.flatten({a})
F.squeeze({a}) | F.squeeze({a}, axis={axis}) | F.expand_dims({a}, axis={new_axis})
F.transpose({a}) | F.swapaxes({a}, {axis}, {axis}) | F.swapaxes({a}, 0, {axis})
F.transpose({a}, axes={order}) | F.tile({a}, reps={reps}) | F.repeat({a}, repeats=2, axis={axis})
F.repeat({a}, repeats=2) | F.slice_axis({a}, axis={axis}, begin={place}, end={end})
F.flip({a}, axis={axis}) | F.slice({a}, begin={places}, end={ends})
F.slice({a}, begin=(None,), end=(None,), step=(-1,))
F.slice({a}, begin=(0,), end=(None,), step=(2,)) | F.slice_like({a}, {b})
F.stack({a}, {b}, axis={axis}) | F.slice_like({a}, {b}, axes=({zero_one},))
F.concat({a}, {b}, dim={axis}) | F.reshape_like({a}, {b}) | F.concat({a}, {a}, dim={axis})
F.split({a}, num_outputs={parts}, axis={axis})[0]
F.split({a}, num_outputs={parts}, axis={axis}, squeeze_axis=True)[0] | F.broadcast_like({a}, {b})
F.broadcast_axis({a}, axis={axis}, size={small}) | F.broadcast_to({a}, shape={broadcast})
F.pad({a}, mode='constant', pad_width={pad}, constant_value=1) | F.shape_array({a})
F.size_array({a}) | F.where(F.ones_like({a}), {a}, {b}) | F.broadcast_add({a}, F.ones({shape}))
{a} * F.arange({small}) | F.batch_dot({a}, {b}) | F.dot({a}, {b})
F.batch_dot({a}, {b}, transpose_b=True) | F.dot({a}, {b}, transpose_b=True)
F.dot({a}, {b}, transpose_a=True) | F.SequenceReverse({a}) | F.SequenceLast({a}, axis={zero_one})
F.reshape({a}, shape=(-1, 0), reverse=True)
"""

_SMOOTH = """
F.sigmoid({a}) | F.tanh({a}) | F.exp(F.clip({a}, -4, 4)) | F.expm1(F.clip({a}, -4, 4))
F.sin({a}) | F.log1p(F.abs({a})) | F.log2(F.abs({a}) + 1) | F.log10(F.abs({a}) + 1)
F.sqrt(F.abs({a})) | F.rsqrt(F.abs({a}) + 1) | F.cbrt({a}) | F.rcbrt(F.abs({a}) + 1) | F.erf({a})
F.arctan({a}) | F.softmax({a}, axis={axis}) | F.log_softmax({a}, axis={axis})
F.softmin({a}, axis={axis}) | F.softmax({a}, axis={axis}, temperature=2) | F.softsign({a})
F.degrees({a}) | F.radians({a}) | F.smooth_l1({a}, scalar={number})
F.mean({a}, axis={axis}) | F.mean({a}) | F.mean({a}, axis={axis}, exclude={bool})
F.norm({a}, axis={axis}) | F.norm({a}) | F.prod({a}, axis={axis})
F.norm({a}, ord=1, axis={axis}) | F.L2Normalization({a}, mode='{l2}') | {a} / {number}
{a} / (F.abs({b}) + 1) | F.abs({a}) ** {number} | {a} ** 2 | {a} ** 3 | 2 ** F.clip({a}, -4, 4)
F.broadcast_hypot({a}, {b}) | F.Activation({a}, act_type='{act}')
F.LeakyReLU({a}, act_type='{leaky}') | F.LeakyReLU({a}, act_type='gelu')
F.InstanceNorm({a}, self.ones, self.ones) | F.reciprocal(F.abs({a}) + 1) | F.LRN({a}, nsize=3)
F.arccos(F.clip({a}, -.5, .5)) | F.cosh(F.clip({a}, -3, 3)) | F.arcsinh({a})
"""

_LAYERS = """
nn.Dense({small}, flatten={bool}) | nn.Dense({small}, activation='relu')
nn.BatchNorm(axis={axis}) | nn.LayerNorm(axis={axis}) | nn.LayerNorm() | nn.GroupNorm({groups})
nn.GroupNorm({groups}) | nn.PReLU() | nn.InstanceNorm() | nn.Conv1D(4, 2)
nn.Conv2D(4, 2, padding=1) | nn.Conv1D(2, 3, strides=2, padding=1)
nn.MaxPool1D(2, ceil_mode={bool}) | nn.AvgPool1D(2, strides=2, padding=1, ceil_mode={bool})
nn.AvgPool1D(3, 2, 1, count_include_pad={bool}) | nn.MaxPool2D(2)
nn.AvgPool2D(2, ceil_mode={bool}) | nn.GlobalAvgPool1D() | nn.GlobalMaxPool2D() | nn.Flatten()
nn.Dropout(.5) | nn.Swish() | nn.ELU() | nn.SELU() | nn.GELU() | nn.LeakyReLU(.1)
nn.Conv1DTranspose(3, 2, strides=2) | rnn.LSTM(3, 2) | rnn.GRU(3, layout='{layout}')
rnn.LSTM(3, layout='{layout}', bidirectional={bool}) | rnn.RNN(3) | nn.ReflectionPad2D(1)
"""

_PLAIN = """
{a}.reshape(({a}.shape[0], -1)) | {a}.reshape((-1, {a}.shape[-1]))
{a}.mean(axis=0) * {a}.shape[0] | {a}.sum() / {a}.shape[0] | {a}[0] | {a}[:, 0] | {a}[-1:]
{a}[:, None] | {a}[..., ::2] | {a}[:{small}] | {a} + nd.arange({a}.shape[-1]) | {a}.T
{a}.reshape((*{a}.shape, 1)) | {a} + nd.zeros({a}.shape) | {a} + nd.ones(({a}.shape[0], 1))
nd.arange({a}.shape[0]) | {a}.broadcast_to((2, *{a}.shape))
{a}.expand_dims(0).broadcast_to(({a}.shape[0], *{a}.shape)) | {a}[len({a}) - 1]
{a} if {a}.shape[0] > 3 else -{a}
"""


def _choices(text: str) -> list[str]:
    return [c.strip() for line in text.strip().splitlines() for c in line.split(" | ")]


KINDS = {k: _choices(t) for k, t in (
    ("steep", _STEEP), ("exact", _EXACT), ("smooth", _SMOOTH), ("layer", _LAYERS),
    ("plain", _PLAIN),
)}  # fmt: skip


class Drawn:
    """A net in the making: `lines`, and the values that they give for the example."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.plain = rng.random() < 0.35
        self.dynamic = rng.random() < 0.6
        self.opset = rng.choice((13, 14, 15, 16, 17, 17, 18))
        rest = rng.choice(_SHAPES)
        self.batch, self.axis = rng.choice(BATCHES), rng.choice((0, 0, 0, 0, len(rest)))
        self.rest = (rest[: self.axis], rest[self.axis :])
        self.dtype = rng.choice(("float32",) * 8 + ("float64", "float16", "int32", "int64"))
        self.layers: list[str] = []
        self.lines: list[str] = []
        self.exact = {"x"}

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rest[0] + (self.batch,) + self.rest[1]

    def values(self, batch: int) -> np.ndarray:
        shape = self.rest[0] + (batch,) + self.rest[1]
        whole = np.random.default_rng(batch).integers(-9, 10, shape)
        return (whole / (1 if "int" in self.dtype else 4)).astype(self.dtype)

    def text(self) -> str:
        made = "".join(f"        self.l{i} = {layer}\n" for i, layer in enumerate(self.layers))
        head = "forward(self, x)" if self.plain else "hybrid_forward(self, F, x, w, ones)"
        first = "F = nd\n        " if self.plain else ""
        body = "".join(f"        {line}\n" for line in self.lines)
        if not self.plain:
            body = body.replace("self.w", "w").replace("self.ones", "ones")
        return (
            f"# {self.dtype} {self.shape}, batch axis {self.axis}, dynamic: {self.dynamic}, "
            f"opset {self.opset}\nclass Net(gluon.HybridBlock):\n    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.w = self.params.get_constant('w', nd.arange(24).reshape((6, 4)))\n"
            f"        self.ones = self.params.get_constant('ones', nd.ones(4))\n{made}"
            f"    def {head}:\n        {first}x = F.identity(x)\n{body}"
        ).replace("F = nd\n", "F = nd; self = Owner(self)\n")

    def line(self, names: dict[str, Any]) -> tuple[str, str]:
        """A line for a new value, and the layer that it needs."""
        rng, pool = self.rng, [*names]
        a = rng.choice((pool[-1], pool[-1], rng.choice(pool)))
        exact = [n for n in pool if n in self.exact]
        kinds = (
            ["exact"] * 4
            + ["smooth"] * 2
            + ["layer"] * 2
            + ["steep"] * 2
            + ["plain"] * 2 * self.plain
        )
        kind = rng.choice(kinds)
        b, c = rng.choice(pool), rng.choice(pool)
        if kind == "steep":
            if not exact:
                return "", ""
            a, b, c = rng.choice(exact), rng.choice(exact), rng.choice(exact)
        shape = names[a].shape
        n = len(shape)

        def axis() -> int:
            return rng.randrange(-n, n) if n else 0

        size = shape[axis()] if n else 1
        words = {
            "a": a, "b": b, "c": c, "bool": rng.choice((True, False)), "size": size,
            "small": rng.choice((1, 2, 3, 4)), "parts": rng.choice((2, 3)),
            "zero_one": rng.choice((0, 1)),
            "dtype": rng.choice(_DTYPES),
            "number": rng.choice((2, 0.5, 3, -1, 1.5, 0, 4, -0.25, 300)),
            "compare": rng.choice(("==", "!=", "<", "<=", ">", ">=")),
            "topk": rng.choice(("value", "indices")), "mode": rng.choice(("clip", "clip", "wrap")),
            "low": rng.choice((-2, 0, -300, 1.5)), "high": rng.choice((2, 300, 0.5)),
            "reshape": rng.choice((
                (-1,), (0, -1), (-1, size), (size, -1), (-1, 2), (-2,), (-3, -2), (0, 0, -1),
                (-1, 1), (-4, 1, -1, -2), (-4, -1, 2, -2), shape, (1, -1), shape[::-1], (0, -3),
            )),
            "new_axis": rng.randrange(-n - 1, n + 1), "order": tuple(rng.sample(range(n), n)),
            "reps": tuple(rng.choice((1, 2)) for _ in range(rng.randint(1, n + 1))),
            "place": rng.choice((0, 1, -1, -2)), "end": rng.choice((None, 1, 2, 3, -1)),
            "places": tuple(rng.choice((0, 0, 1, -1, None)) for _ in range(max(n - 1, 1))),
            "ends": tuple(rng.choice((None, None, 2, 4, -1)) for _ in range(max(n - 1, 1))),
            "broadcast": tuple(rng.choice((s, s, 3)) if s == 1 else s for s in shape),
            "pad": (0, 0, 0, 0, *(1 for _ in range(2 * n - 4))),
            "shape": rng.choice((shape[-1:], (1,), shape, (4,))),
            "l2": rng.choice(("instance", "channel", "spatial")), "groups": rng.choice((1, 2)),
            "act": rng.choice(("relu", "sigmoid", "tanh", "softrelu", "softsign")),
            "leaky": rng.choice(("leaky", "elu", "selu")), "layout": rng.choice(("TNC", "NTC")),
        }  # fmt: skip
        form = rng.choice(KINDS[kind])
        form = re.sub(r"\{axis\}", lambda _: str(axis()), form)
        made = re.sub(r"\{(\w+)\}", lambda m: str(words[m[1]]), form)
        if names[a].dtype != np.float32 and kind == "smooth" and form.startswith(_SATURATING):
            return "", ""
        layer = made if kind == "layer" else ""
        if layer:
            made = f"self.l{len(self.layers)}({a})"
        new = f"v{len(self.lines)}"
        if kind in ("steep", "exact") and {a, b, c} <= self.exact:
            self.exact.add(new)
        return f"{new} = {made}", layer


def _draw(seed: int) -> Drawn:
    drawn = Drawn(seed)
    rng = drawn.rng
    names: dict[str, Any] = {"x": nd.array(drawn.values(drawn.batch), dtype=drawn.dtype)}
    owner = type("Self", (), {})()
    owner.w, owner.ones = nd.arange(24).reshape((6, 4)), nd.ones(4)
    scope = {"F": nd, "nd": nd, "nn": nn, "rnn": rnn, "self": owner}
    for _ in range(40):
        if len(drawn.lines) >= 1 + seed % 5:
            break
        line, layer = drawn.line(names)
        name = line.partition(" ")[0]
        try:
            if layer:
                built = eval(layer, scope)
                built.initialize(mx.init.Uniform(0.5))
                setattr(owner, f"l{len(drawn.layers)}", built)
            result = eval(line.partition(" = ")[2], scope, names)
            if isinstance(result, list):
                raise ValueError
            values = result.asnumpy()
            if (
                not np.isfinite(values).all()
                or abs(values.astype(float)).max(initial=0) > 1e6
                or not values.size
            ):
                raise ValueError
        except Exception:
            drawn.exact.discard(name)
            continue
        names[name] = result
        drawn.lines.append(line)
        if layer:
            drawn.layers.append(layer)
    last = [n for n in names][-1]
    extra = rng.choice([*names]) if rng.random() < 0.3 else last
    drawn.lines.append(f"return {last}" if extra == last else f"return {last}, {extra}")
    return drawn


def draw(seed: int) -> str:
    return _draw(seed).text()


class Owner:
    """A net whose constants are arrays: for a plain forward."""

    def __init__(self, net: Any):
        self._net = net

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._net, name)
        return found.data() if isinstance(found, gluon.Parameter) else found


def check(seed: int) -> bool:
    try:
        import onnx  # noqa: F401
        import onnxruntime as runtime
    except ImportError:
        return False
    runtime.set_default_logger_severity(4)
    drawn = _draw(seed)
    text = drawn.text()
    scope = {"gluon": gluon, "nd": nd, "nn": nn, "rnn": rnn, "Owner": Owner}
    exec(text, scope)
    mx.random.seed(seed)
    net = scope["Net"]()
    net.initialize(mx.init.Uniform(0.5))

    def ours(batch: int) -> list[np.ndarray]:
        with autograd.pause():
            made = net(nd.array(drawn.values(batch), dtype=drawn.dtype))
        return [y.asnumpy() for y in (made if isinstance(made, (list, tuple)) else [made])]

    try:
        ours(drawn.batch)
    except Exception:
        outcomes["the net refuses its example"] += 1
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/net.onnx"
        try:
            x = nd.array(drawn.values(drawn.batch), dtype=drawn.dtype)
            net.export_onnx(
                path, x, dynamic_batch=drawn.dynamic, batch_axis=drawn.axis, opset=drawn.opset
            )
        except MXNetError as problem:
            words = str(problem)
            assert (
                re.search("node '|variable|does not take a batch|drawn while", words)
                and len(words) > 30
            ), f"{words}\n{text}"
            if refuses := re.search(r"does not take a batch of any size, as (\d+)", words):
                try:
                    ours(int(refuses[1]))
                except Exception:
                    outcomes["refused as the net refuses"] += 1
                    return False
                raise AssertionError(f"the net takes it: {words}\n{text}") from None
            outcomes[_kind(words, drawn.dynamic)] += 1
            return False
        except Exception as problem:
            raise AssertionError(f"{type(problem).__name__}: {problem}\n{text}") from problem
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        try:
            session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as problem:
            if "NOT_IMPLEMENTED" in str(problem):
                outcomes["onnxruntime has no kernel"] += 1
                return False
            raise AssertionError(f"{str(problem)[:300]}\n{text}") from problem
    inputs = [i.name for i in session.get_inputs()]
    for batch in (drawn.batch, *(BATCHES if drawn.dynamic else ())):
        try:
            expected = ours(batch)
        except Exception:  # the net does not take this batch
            continue
        try:
            got = session.run(None, {name: drawn.values(batch) for name in inputs})
        except Exception as problem:
            if "does not support" in str(problem) or "NOT_IMPLEMENTED" in str(problem):
                outcomes["onnxruntime has no kernel"] += 1
                return False
            raise AssertionError(f"batch {batch}: {str(problem)[:300]}\n{text}") from problem
        for mine, theirs in zip(expected, got, strict=True):
            _close(mine, theirs, f"batch {batch}\n{text}")
    outcomes[f"exported, {'any batch' if drawn.dynamic else 'one batch'}"] += 1
    return True


def _close(mine: np.ndarray, theirs: np.ndarray, text: str) -> None:
    assert mine.shape == theirs.shape, f"shape {theirs.shape}, here {mine.shape}, {text}"
    assert mine.dtype == theirs.dtype, f"{theirs.dtype}, here {mine.dtype}, {text}"
    tolerance = 2e-2 if "float16" in text else 5e-4
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            theirs.astype("float64"), mine.astype("float64"), rtol=tolerance, atol=tolerance,
            equal_nan=True, err_msg=text,
        )  # fmt: skip


def _kind(words: str, dynamic: bool) -> str:
    said = words.partition(": ")[2]
    said = re.sub(r"node '[^']*': ", "", said)
    return (
        f"refused, {'any batch' if dynamic else 'one batch'}: {re.sub(r'[0-9]+', 'N', said)[:90]}"
    )
