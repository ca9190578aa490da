"""From the formula of an update to a program: calls of NumPy's ufuncs that work in place.

A formula is a function of values: the weight, the gradient, the states and the hyper-parameters. It
returns the new weight and the new states:

>>> def polyak(xp, w, g, mom, *, lr, wd, momentum: float):
...     mom = momentum * mom - (lr * g + lr * wd * w)
...     return w + mom, mom
>>> formula = Formula(polyak, "polyak", flops=5)
>>> formula.attr_names
('lr', 'momentum', 'wd', 'rescale_grad', 'clip_gradient')
>>> print(formula.program((0.1, 0.9, 0.01, 0.5, -1.0)).text)
def polyak(xp, number, dtype, lr, momentum, wd, rescale_grad):
    n0 = number(momentum, dtype)
    n1 = number(rescale_grad * lr, dtype)
    n2 = number(wd * lr, dtype)
    add, multiply, subtract = xp.add, xp.multiply, xp.subtract
    def step(weight, grad, mom, out):
        multiply(mom, n0, out=mom)
        t0 = multiply(grad, n1)
        t1 = multiply(weight, n2)
        add(t0, t1, out=t0)
        subtract(mom, t0, out=mom)
        add(weight, mom, out=out)
    return step

The name of the gradient says what happened to it before the formula:

    grad  nothing
    g     clip(rescale_grad * grad)             to [-clip_gradient, clip_gradient], if that is >= 0
    h     clip(rescale_grad * grad + wd * w)    wd is the weight decay

The time of an update is the time of its passes over the arrays. So the calls of the formula, found
by a trace (`ops.symbolic`), become fewer by three laws:

    x * 0, y + 0, x * 1     are no calls: `g + wd * w` is g where wd is 0
    (x * a) * b             is x * (a * b)
    (x * a) * (y * b)       is (x * y) * (a * b), and (x * a) / y is (x / y) * a

The factors a, b are numbers, which the host multiplies. So a formula says `lr * g + lr * wd * w`:
two factors, where `lr * (g + wd * w)` has three. float16 cannot hold every product of factors;
there the last two laws are not used. Then each value gets memory. A new state overwrites the old
state as soon as nothing reads that any more, and so do the values that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float
from d2lmini.ops.core import Op, Spec
from d2lmini.ops.signature import Signature, signature_of, with_signature
from d2lmini.ops.symbolic import Proxy, SymbolicModule, trace


class Number(NamedTuple):
    """A number that the host computes from the hyper-parameters: a Python expression."""

    text: str


class Call(NamedTuple):
    """A call of a ufunc. args: names of arrays (str), Numbers, and Python's numbers."""

    ufunc: str
    args: tuple[Any, ...]


def limit(xp: Any, x: Any, bound: Any) -> Any:
    """x clipped to [-bound, bound]; x itself if the bound is negative."""
    return x if bound < 0 else xp.clip(x, -bound, bound)


def over(number: Any, rate: Any) -> Any:
    """number / rate, inf at a rate of 0."""
    return number / rate if rate else np.inf


#: The update of one parameter: step(*arrays, out).
Step = Callable[..., None]
#: Hyper-parameters that come after those that all updates share, as in MXNet.
_LAST = ("clip_weights", "lazy_update", "wd_lh")
_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "power": "**"}


def _compute(ufunc: str, x: Any, y: Any) -> Any:
    """What the host knows of a call: a number, or one of the operands if the other is neutral;
    otherwise None. x, y: arrays by name, or numbers."""
    neutral = {"add": 0, "subtract": 0, "multiply": 1}.get(ufunc)
    if ufunc == "multiply" and 0 in (x, y):
        return 0.0
    if neutral is not None and y == neutral:
        return x
    if neutral is not None and x == neutral and ufunc != "subtract":
        return y
    if isinstance(x, str) or isinstance(y, str):
        return None
    x, y = (v.text if isinstance(v, Number) else repr(v) for v in (x, y))
    if ufunc in _SYMBOLS:
        return Number(f"({x} {_SYMBOLS[ufunc]} {y})")
    return Number(f"over({x}, {y})" if ufunc == "divide" else f"(-{x})")


class _Trace(SymbolicModule):
    """The array module whose expressions are names of arrays and Numbers. calls: by the names of
    their results; equal calls are one. merges: factors meet. changes: arrays to be overwritten, so
    nothing reads them later than the formula says."""

    def __init__(self, merges: bool, changes: Sequence[str]) -> None:
        self.merges = merges
        self.changes = changes
        self.calls: dict[str, Call] = {}
        self.names: dict[Call, str] = {}

    def call(self, ufunc: Any, args: Sequence[Any], loop: Any, result: np.dtype) -> Any:
        return self.proxy(self.shorten(ufunc.__name__, *map(_expr, args)))

    def clip(self, x: Proxy, low: Any, high: Any, out: Any = None) -> Any:
        return self.proxy(self.record("clip", *map(_expr, (x, low, high))))

    def proxy(self, expr: Any) -> Any:
        """The value in the formula. A Python number needs no proxy."""
        known = isinstance(expr, (str, Number))
        return Proxy(self, expr, np.dtype("float32")) if known else expr

    def record(self, ufunc: str, *args: Any) -> str:
        """The name of the result of a call."""
        name = self.names.setdefault(Call(ufunc, args), f"v{len(self.names)}")
        self.calls[name] = Call(ufunc, args)
        return name

    def shorten(self, ufunc: str, x: Any, y: Any = None) -> Any:
        """The expression of a call, after the laws of this module."""
        if ufunc == "less" and isinstance(x, Number):
            return False  # a number that may be negative is a constant of the trace
        if ufunc == "divide" and not isinstance(y, str):
            ufunc, y = "multiply", _compute("divide", 1, y)
        if ufunc == "multiply" and not isinstance(x, str):
            x, y = y, x
        known = _compute(ufunc, x, y)
        if known is not None:
            return known
        if ufunc not in ("multiply", "divide"):
            return self.record(ufunc, *(arg for arg in (x, y) if arg is not None))
        x, factor = self.factor_of(x)
        if not isinstance(y, str):
            return self.scaled(x, _compute("multiply", factor, y))
        if ufunc == "multiply":
            y, other = self.factor_of(y)
            factor = _compute("multiply", factor, other)
        return self.scaled(self.record(ufunc, x, y), factor)

    def factor_of(self, name: str) -> tuple[str, Any]:
        """(x, factor) of an array x * factor."""
        ufunc, args = self.calls.get(name, ("", ()))
        scales = self.merges and ufunc == "multiply" and not isinstance(args[1], str)
        return args if scales and args[0] not in self.changes else (name, 1)  # type: ignore[return-value]

    def scaled(self, name: str, factor: Any) -> str:
        return name if factor == 1 else self.record("multiply", name, factor)


def _expr(value: Any) -> Any:
    return value.expr if isinstance(value, Proxy) else value


def _write(
    calls: dict[str, Call], results: dict[str, str], inputs: Sequence[str], numbers: dict[Any, str]
) -> list[str]:
    """The calls as lines of text. results: the array to write -> the value; numbers: collects the
    name of each number."""
    read = set(results.values())
    for name in reversed(calls):
        read.update(calls[name].args if name in read else ())
    calls = {name: call for name, call in calls.items() if name in read}
    at = {name: k for k, name in enumerate(calls)}
    last = {arg: at[name] for name, call in calls.items() for arg in call.args}
    last |= dict.fromkeys(results.values(), len(calls))
    memory: dict[str, str] = {}
    for place, value in results.items():
        # The caller's `out` may be the weight or the gradient.
        free_from = max(last.get(name, -1) for name in (inputs[:2] if place == "out" else [place]))
        link: Any = value
        while link in calls and at[link] >= free_from and link not in memory:
            memory[link] = place
            link = next((a for a in calls[link].args if a in at and last[a] == at[link]), None)
    lines = []
    free: list[str] = []
    scratch = (f"t{k}" for k in count())
    for name, (ufunc, args) in calls.items():
        words = ", ".join(
            memory.get(a, a) if isinstance(a, str) else numbers.setdefault(a, f"n{len(numbers)}")
            for a in args
        )
        ended = dict.fromkeys(memory[a] for a in reversed(args) if last[a] == at[name] and a in at)
        free += [array for array in ended if array not in results]
        place = memory.get(name) or (free.pop() if free else "")
        memory[name] = place or next(scratch)
        lines.append(
            f"{ufunc}({words}, out={place})" if place else f"{memory[name]} = {ufunc}({words})"
        )
    ends = {place: memory.get(value, value) for place, value in results.items()}
    return lines + [f"copyto({place}, {end})" for place, end in ends.items() if end != place]


class Program(NamedTuple):
    """The text of a program, the positions of the hyper-parameters that it takes, and its function
    (xp, number, dtype, *hyper-parameters) -> step. number: converts a Python number."""

    text: str
    given: tuple[int, ...]
    prepare: Callable[..., Step]


class Update(Op):
    """An op that updates a parameter in place; `step` makes the update for the attributes of a
    call. `prepare`: (xp, dtype, attributes in their order) -> step."""

    prepare: Callable[..., Step]

    def __init__(self, name: str, signature: Signature, doc: str | None, **facts: Any):
        @with_signature(signature, doc)
        def compute(xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
            out = xp.empty_like(arrays[0]) if out is None else out
            places = (*arrays, out)
            if xp is np and not out.ndim:
                places = tuple([a.reshape(1) for a in places])
            self.step(xp, out.dtype, attrs)(*places)
            return out

        super().__init__(compute, name, elementwise=True, grad=None, **facts)

    def step(self, xp: Any, dtype: np.dtype, attrs: dict[str, Any]) -> Step:
        """The update of parameters of that dtype with these attributes, others at defaults."""
        attrs = self.defaults | attrs
        return self.prepare(xp, dtype, tuple([attrs[name] for name in self.attr_names]))


def like_weight(weight: Spec, grad: Spec, *states: Spec, wide: Any = None, **_attrs: Any) -> Spec:
    """The new weight, the gradient and the states have the spec of the weight; the states in
    mixed precision are `wide`."""
    check_float(weight)
    state = Spec(weight.shape, wide or weight.dtype)
    for what, spec, need in (("gradient", grad, weight), *(("state", s, state) for s in states)):
        if spec != need:
            raise MXNetError(f"the {what} must be {need}, for a weight {weight}; got {spec}")
    return weight


class Formula(Update):
    """A formula with the hyper-parameters that all updates share, and its programs.

    function  (xp, w, gradient, *states, **attributes) -> new weight, and what changes
    changes   the arrays that change, besides the weight: if not stated, all states
    clip      the name of the bound of the gradient
    """

    def __init__(
        self, function: Callable[..., Any], name: str, changes: Sequence[str] = (),
        clip: str = "clip_gradient", **facts: Any,
    ):  # fmt: skip
        own = signature_of(function)
        self.function = self.__wrapped__ = function  # nd.sgd_update?? shows it
        self.clip = clip
        inputs = ("weight", "grad", *own.inputs[2:])
        self.words, self.of_gradient = own.words, own.inputs[1]
        shared = {"wd": 0.0, "rescale_grad": 1.0, clip: -1.0}
        words = dict.fromkeys((*shared, *own.words))
        signature = Signature(
            inputs, tuple(sorted(words, key=lambda word: 2 * (word in _LAST) + (word in shared))),
            {**shared, **own.defaults},
            {**dict.fromkeys(("lr", *shared), "float"), **own.annotations}, len(inputs),
        )  # fmt: skip
        super().__init__(
            name, signature, function.__doc__, infer=like_weight, mutates=changes or inputs[2:],
            **facts,
        )  # fmt: skip
        #: (name, position) of those that may switch something off. The program depends on them.
        self.switches = [
            (word, i)
            for i, word in enumerate(self.attr_names)
            if (default := self.defaults.get(word, 2)) in (0, 1) or default < 0
        ]

    def values(self, xp: Any, w: Any, grad: Any, *states: Any, **attrs: Any) -> Any:
        """The values of the formula: the new weight, and what changes."""
        if self.of_gradient != "grad":
            grad = attrs["rescale_grad"] * grad
            grad = grad + attrs["wd"] * w if self.of_gradient == "h" else grad
            grad = limit(xp, grad, attrs[self.clip])
        values = self.function(xp, w, grad, *states, **{word: attrs[word] for word in self.words})
        return values if isinstance(values, tuple) else (values,)

    def program(self, values: Sequence[Any], merges: bool = True) -> Program:
        """The program for these hyper-parameters, in the order of the signature. It serves others,
        too: all numbers but those that switch something off (0, 1, negative ones) are arguments.
        merges: not for float16."""
        known = tuple([
            (word, values[i]) for word, i in self.switches
            if isinstance(values[i], (int, float)) and (values[i] <= 0 or values[i] == 1)
        ])  # fmt: skip
        return _program(self, known, merges)

    def prepare(self, xp: Any, dtype: np.dtype, values: tuple[Any, ...]) -> Step:
        return (_numpy_step if xp is np else _step)(self, xp, dtype, values)


class Mixed(Update):
    """The update in mixed precision, which no program calls by name: the rule on the float32 master
    copy `weight32`, of which the weight is the rounded copy."""

    def __init__(self, rule: Update):
        self.rule_of_master = rule
        inputs = (*rule.input_names, "weight32")
        changed = [rule.input_names[i] for i in rule.mutates if i != 1]
        own = signature_of(rule.compute)
        super().__init__(
            f"_mp_{rule.name.lstrip('_')}",
            own._replace(inputs=inputs, words=rule.attr_names, n_required=len(inputs)),
            f"`{rule.name}` in mixed precision.", flops=rule.flops + 1,  # type: ignore[operator]
            infer=partial(like_weight, wide=np.float32), mutates=[*changed, "weight32"],
        )  # fmt: skip

    def prepare(self, xp: Any, dtype: np.dtype, values: tuple[Any, ...]) -> Step:
        rule = self.rule_of_master
        on_master = rule.prepare(xp, np.dtype("float32"), values)

        def step(weight: Any, grad: Any, *rest: Any) -> None:
            *states, weight32, out = rest
            grad = grad.astype(weight32.dtype, copy=1 in rule.mutates)
            on_master(weight32, grad, *states, weight32)
            xp.copyto(out, weight32, casting="same_kind")

        return step


mixed_form = lru_cache(maxsize=256)(Mixed)


def _step(formula: Formula, xp: Any, dtype: np.dtype, values: Sequence[Any]) -> Step:
    program = formula.program(values, dtype.itemsize > 2)
    number = _number if xp is np else xp.number_of if isinstance(xp, SymbolicModule) else _unchanged
    return program.prepare(xp, number, dtype, *[values[i] for i in program.given])


@lru_cache(maxsize=256)
def _number(value: Any, dtype: np.dtype) -> np.ndarray:
    """A number as an array without axes, which a ufunc takes faster than a Python number."""
    return np.array(value, dtype)


def _unchanged(value: Any, dtype: np.dtype) -> Any:
    return value


#: The parameters of a step share their hyper-parameters.
_numpy_step = lru_cache(maxsize=64)(_step)


@lru_cache(maxsize=256)
def _program(formula: Formula, known: tuple[tuple[str, Any], ...], merges: bool) -> Program:
    words, inputs = formula.attr_names, formula.input_names
    changes = [inputs[i] for i in formula.mutates]
    xp = _Trace(merges, changes)
    attrs = {word: xp.proxy(Number(word)) for word in words} | dict(known)
    values = trace(xp, formula.values, [xp.proxy(name) for name in inputs], attrs)
    results = dict(zip(("out", *changes), map(_expr, values), strict=True))
    numbers: dict[Any, str] = {}
    lines = _write(xp.calls, results, inputs, numbers)
    texts = [n.text if isinstance(n, Number) else repr(n) for n in numbers]
    texts = [text[1:-1] if text[0] == "(" else text for text in texts]
    used = set(re.findall(r"\w+", " ".join(texts)))
    given = tuple([i for i, word in enumerate(words) if word in used])
    ufuncs = sorted(set(re.findall(r"\w+(?=\()", "\n".join(lines))))
    text = "\n    ".join([
        f"def {formula.name}({', '.join(['xp', 'number', 'dtype', *(words[i] for i in given)])}):",
        *(f"n{k} = number({text}, dtype)" for k, text in enumerate(texts)),
        f"{', '.join(ufuncs)} = {', '.join(f'xp.{ufunc}' for ufunc in ufuncs)}",
        f"def step({', '.join((*inputs, 'out'))}):",
        *(f"    {line}" for line in lines),
        "return step",
    ])  # fmt: skip
    space: dict[str, Any] = {"over": over}
    exec(text, space)
    return Program(text, given, space[formula.name])
