"""What an operation is: one `Op` object with its computation, its rules and its cost.

An op is declared once, as a function on arrays, and everything else is attached to it:

    @op(infer=same, flops=13, elementwise=True)
    def sigmoid(xp, data, *, out=None):                  # xp is numpy, or cupy
        '''1 / (1 + exp(-data)), element by element.'''
        ...

    @sigmoid.gradient(saves="y")                         # y: the output, kept for backward
    def _(g, y):                                         # g: the gradient of the output
        return g * y * (1 - y)

The function's positional parameters after `xp` are the inputs. An input with the default None is
optional; `*data` takes any number of inputs. Keyword-only parameters are the attributes; their
annotations (`bool`, `int`, `float`, `Number`, `str`, `Shape`, `Bounds`, `Axes`, `DType`) say how a
call checks and converts them. `out` is the array for the result, when the caller provides one.

An add-on gives an op another implementation for its devices; this module knows no add-on:

    @sigmoid.kernel("cuda")
    def _(xp, data, *, out=None):                        # takes what `compute` takes
        ...

Calling an op binds the arguments and calls `invoke`, the single entry point of all operations. The
type of the values decides what happens there: `NDArray` pushes a task to the engine, `Symbol` makes
a graph node. This module knows neither; both register by inheriting from `Value`.

>>> from d2lmini import nd
>>> nd.sigmoid
<op sigmoid(data)>
>>> nd.sigmoid.cost([((2, 3), "float32")])
Cost(flops=78.0, nbytes=48.0)
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from math import copysign
from types import NoneType
from typing import Any

import numpy as np

from d2lmini.base import ArgumentTypeError, MXNetError
from d2lmini.ops.facts import Facts
from d2lmini.ops.kernels import Kernel, Kernels
from d2lmini.ops.signature import Axes as Axes
from d2lmini.ops.signature import Bounds as Bounds
from d2lmini.ops.signature import DType as DType
from d2lmini.ops.signature import Number as Number
from d2lmini.ops.signature import PythonSignature, converter_of, signature_of
from d2lmini.ops.signature import Shape as Shape
from d2lmini.ops.signature import as_dtype as as_dtype
from d2lmini.ops.spec import Cost as Cost
from d2lmini.ops.spec import Spec as Spec
from d2lmini.ops.spec import new_number

#: Every op by each of its names.
registry: dict[str, Op] = {}


class Modes(threading.local):
    """Autograd's state in this thread: is the tape recording, is the model training.

    broken: a list with the number of scopes that an exception left; other threads may read it.
    tracing: the trace that this thread makes (`graph.symbolic_trace`), else None. The trace must
    hear of anything that a graph cannot hold (`refuse`) and of reads of the mode
    (`depends_on_mode`).
    noting: in the first run of a checkpointed function its `checkpoint.Run`, which notes what is
    read, else None. repeats: in a later run True: moving statistics do not change again.
    casting: mixed precision (`contrib.amp`), else None: (op, inputs, attributes) -> the inputs with
    casts. `contrib.amp` sets the attribute of the class, for all threads.
    """

    recording = False
    training = False
    tracing: Any = None
    noting: Any = None
    repeats = False
    casting: Callable[[Op, tuple, dict[str, Any]], tuple] | None = None

    def __init__(self) -> None:
        self.broken = [0]


modes = Modes()


@contextmanager
def without_casts() -> Iterator[None]:
    """A scope in which mixed precision inserts no casts, in this thread."""
    is_inner = "casting" in vars(modes)
    modes.casting = None
    try:
        yield
    finally:
        if not is_inner:
            del modes.casting  # the class has it


class Value:
    """A value that ops apply to. Subclasses define `_apply`, a static method (op, inputs,
    attributes, out=None) -> result; see `NDArray` and `Symbol`.

    is_np: operators and methods have NumPy's meaning, not that of MXNet 1.x (`d2lmini.np`)."""

    __slots__ = ()

    is_np = False

    _apply: Callable[..., Any]


class Bound(dict):
    """Attributes that an op caches: its defaults, or those of a call spelled this way. Equal calls
    share one object, which never changes. `number` identifies the object."""

    __slots__ = ("number",)

    def __init__(self, *attrs: Any):
        super().__init__(*attrs)
        self.number = new_number()

    def __reduce__(self) -> tuple:
        return dict, (dict(self),)  # a copy is a plain dict, which may change


_MISSING = object()

#: Number of spellings of attributes that an op caches (least recently used ones go).
MOST_BOUND = 256

#: In `Op.keeps`, the position of the output.
Y = -1


#: Ops that overwrite a whole array: x[:] = y, y.copyto(x).
ASSIGNING = frozenset({"_assign", "_copyto", "_full"})


#: Defaults of `needs` and `places`: each input needs its gradient, which has no destination.
ALL: Any = defaultdict(lambda: True)
NOWHERE: Any = defaultdict(lambda: None)


class Op(Facts):
    """One operation. The declaration sets all attributes (`Facts` has those for graphs and files):

    name, aliases          names under which users find it (`nd.NAME`, `sym.NAME`)
    compute                function on arrays: (xp, *inputs, out=, **attrs) -> array or tuple
    kernels                kind of device -> implementation, where `compute` is not the best
    input_names, variadic  names of the inputs; `variadic`: any number of inputs
    arity                  number of inputs; -1 for any number
    defaults, required     attributes: defaults by name, names without a default
    signed_zeros           an attribute may be -0.0, which differs from 0.0 but is equal to it
    infer                  (*specs, **attrs) -> Spec or list of Specs; raises on bad input
    elementwise            each output element depends only on the input elements at its place
    simple                 one output, no mutated input, no arguments supplied at run time
    pointwise              elementwise and simple; on tiny arrays the op takes the fast path
    ufunc                  the single NumPy ufunc equal to the op on floating arrays, or None; on
                           tiny arrays the fast path calls the ufunc itself
    family                 the row of the op's function of two operands, or None (elementwise.py)
    formula                of a composed op: its function of values (composed.py)
    random                 the op may draw numbers: `compute` gets `rng`, the key of its stream, or
                           None for a call that draws nothing (`Facts.draws`)
    mutates                inputs that `compute` also changes, declared by name; or a function
                           (number of inputs, attributes) -> their positions
    rule                   gradient rule; None: no gradient
    keeps                  what the rule needs: (position of the input, or Y; attribute or None)
    rule_attrs             attributes that the rule reads
    selective, placing     the rule takes `needs`, takes `places` (see `gradient`)
    """

    __signature__ = PythonSignature()

    # An eager call of a net takes 4 % longer where these stand in a dict.
    __slots__ = (
        "aliases", "arity", "attr_names", "attr_set", "bound", "compute", "converters", "defaults",
        "elementwise", "flops", "infer", "injects", "input_names", "keeps", "kernels", "mutates",
        "n_required", "name", "outputs", "plans", "pointwise", "random", "required", "rule",
        "placing", "rule_attrs", "selective", "signed_zeros", "simple",
        "takes_out", "ufunc", "variadic", "__dict__",
    )  # fmt: skip

    family: Any = None
    formula: Any = None

    def __init__(
        self, compute: Callable[..., Any], name: str, aliases: Sequence[str] = (),
        infer: Callable[..., Any] | None = None, flops: float | Callable[..., float] = 1.0,
        elementwise: bool = False, outputs: int | Callable[..., int] = 1,
        mutates: Sequence[str] | Callable[..., Sequence[int]] = (), grad: Any = _MISSING,
        **facts: Any,
    ):  # fmt: skip
        signature = signature_of(compute)
        keywords, given = signature.words, signature.defaults
        self.variadic = signature.variadic
        self.input_names = signature.inputs
        self.arity = -1 if self.variadic else len(signature.inputs)
        self.n_required = signature.n_required
        self.takes_out = "out" in keywords
        self.random = "rng" in keywords
        self.injects = tuple(k for k in keywords if k in ("rng", "training"))
        plain = not compute.__code__.co_flags & 0x08  # CO_VARKEYWORDS: its attributes are **attrs
        self.simple = plain and not self.injects and not mutates and outputs == 1
        self.attr_names = tuple(k for k in keywords if k not in ("out", "rng", "training"))
        self.defaults = Bound((k, given[k]) for k in self.attr_names if k in given)
        self.required = tuple(k for k in self.attr_names if k not in given)
        words = signature.annotations
        self.converters = {k: converter_of(words[k]) for k in self.attr_names if k in words}
        self.signed_zeros = any(words.get(k, "Number") == "Number" for k in self.attr_names)
        self.compute = compute
        self.kernels = Kernels()
        self.name = self.__name__ = self.__qualname__ = name
        self.state(facts)
        other = self.mxnet_name or name
        self.aliases = (*aliases,) if other in (name, *aliases) else (other, *aliases)
        self.infer = infer or same
        self.flops = flops
        self.elementwise = elementwise
        self.pointwise = (
            elementwise and not self.injects and not mutates and not callable(flops) and flops <= 50
        )
        self.outputs = outputs
        self.mutates: Any = (
            mutates if callable(mutates) else tuple(self.input_names.index(m) for m in mutates)
        )
        self.ufunc: Any = None
        self.attr_set = frozenset(self.attr_names)
        # Attributes cached by the spelling of a call and by type: 1, 1.0 and True are equal but
        # differ in meaning.
        self.bound: Any = lru_cache(MOST_BOUND, typed=True)(self._bind_attrs)
        if "Number" in words.values():  # of a float, -0.0 is 0.0
            self.bound = _zeros_apart(self.bound)
        self.plans: dict[tuple, Any] = {}  # see ndarray/plan.py
        self.rule = grad
        self.rule_attrs: tuple[str, ...] = ()
        self.selective = self.placing = False
        self.keeps: tuple[tuple[int, str | None], ...] = ()
        self.__doc__ = compute.__doc__

    @cached_property
    def atomic(self) -> bool:
        """True if the op overwrites existing memory in a single call, its last: the op is such a
        call itself, or its result is copied into place at the end."""
        if self.mutates:
            return self.name == "_setitem"  # of some elements: x[1, ::2] = y
        alone = self.ufunc is not None or not self.takes_out or self.name in ASSIGNING
        return alone and self.outputs == 1

    def mutated(self, n: int, attrs: dict[str, Any]) -> Sequence[int]:
        """The positions of the inputs that a call with n inputs also changes."""
        return self.mutates(n, attrs) if callable(self.mutates) else self.mutates

    def kernel(self, kind: str) -> Callable[[Kernel], Kernel]:
        """Attach the implementation for devices of a kind ("cuda"). The implementation takes the
        arguments of `compute` and may pass calls that it cannot improve on to `compute`."""
        return self.kernels.register(kind)

    def kernel_for(self, kind: str) -> Kernel:
        """The implementation for a kind of device. Plans and programs look it up once."""
        return self.kernels.get(kind, self.compute)

    def gradient(self, saves: str = "") -> Callable[[Callable], Callable]:
        """Attach the gradient rule: a function of values `(g, *saved, **attrs)`.

        `saves` names what must stay alive until backward: an input's name for the input,
        "data.shape" for its shape alone, "y" for the output (unless an input has that name). The
        rule returns one gradient for each input, None where there is none. For an op with several
        outputs `g` is a list. The rule declares the attributes it needs as keywords.

        A rule whose gradients are costly one by one declares the keyword `needs=ALL`. `needs[i]`
        says whether the gradient of input i is used; the rule may return None for the others.
        Without `needs` a rule computes all gradients, and unused ones are dropped. A rule with
        `places=NOWHERE` gets, for each input, the array that will hold its gradient, or None, and
        may compute into that array (`out=`). This saves a copy of large weights.
        """

        def attach(rule: Callable) -> Callable:
            code = rule.__code__
            n = code.co_argcount
            asked = code.co_varnames[n : n + code.co_kwonlyargcount]
            self.selective = "needs" in asked
            self.placing = "places" in asked
            self.rule_attrs = tuple(k for k in asked if k not in ("needs", "places"))
            self.rule = rule
            self.keeps = tuple(self._place_of(name) for name in saves.split())
            return rule

        return attach

    def _place_of(self, name: str) -> tuple[int, str | None]:
        base, _, part = name.partition(".")
        is_output = base == "y" and "y" not in self.input_names
        return Y if is_output else self.input_names.index(base), part or None

    def saved_of(self, inputs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """What the rule wants kept (`keeps`) of a call's inputs and outputs: values, shapes,
        dtypes; lists of these for several outputs and for any number of inputs."""
        saved: list[Any] = []
        for place, part in self.keeps:
            if place == Y or self.variadic:
                kept: Any = outs if place == Y else inputs
                kept = [x if part is None else getattr(x, part) for x in kept]
                saved.append(kept[0] if place == Y and len(outs) == 1 else kept)
                continue
            kept = inputs[place] if place < len(inputs) else None
            saved.append(kept if kept is None or part is None else getattr(kept, part))
        return saved

    def gradients(
        self, g: Any, saved: Sequence[Any], attrs: dict[str, Any], needs: Any, places: Any = NOWHERE
    ) -> Sequence[Any]:
        """Call the rule: the gradients of the inputs, None for those without one."""
        if modes.casting is not None:  # a rule computes in the dtypes of the forward pass
            with without_casts():
                return self.gradients(g, saved, attrs, needs, places)
        if self.selective or self.placing or self.rule_attrs:
            options: dict[str, Any] = {}
            for name in self.rule_attrs:  # (a comprehension costs one more call)
                options[name] = attrs[name]
            if self.selective:
                options["needs"] = needs
            if self.placing:
                options["places"] = places
            grads = self.rule(g, *saved, **options)
        else:
            grads = self.rule(g, *saved)
        return grads if type(grads) in (tuple, list) else (grads,)

    def __call__(self, *args: Any, out: Any = None, name: str | None = None, **kwargs: Any) -> Any:
        attrs: Any = self.defaults
        if kwargs or len(args) != self.arity or self.required:
            attrs = None
            if kwargs and len(args) == self.arity > 0:  # the most frequent call
                given = args[:-1] if args[-1] is None and self.arity > self.n_required else args
                try:
                    attrs = self.bound(**kwargs)
                except (TypeError, MXNetError):  # not hashable, or wrong: `bind` reports it
                    attrs = None
                for x in given:
                    attrs = None if x is None else attrs
            if attrs is None:
                args, attrs = self.bind(args, kwargs)
            else:
                args = given
        if args and isinstance(args[0], Value):  # `invoke` inlined: saves a call per operation
            return args[0]._apply(self, args, attrs, out)
        return invoke(self, args, attrs, out)

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Sort a call's arguments into inputs and checked attributes.

        Inputs come first by position, then attributes in their declared order; both may be named.
        ArgumentTypeError for an unknown, doubled or missing name; MXNetError for a bad value of an
        attribute.
        Attributes spelled as in an earlier call are not checked again.
        """
        inputs, extra = self.sort_inputs(args, kwargs)
        if not self.variadic:
            for name, value in zip(self.input_names[: self.n_required], inputs):
                if value is None:
                    raise self._misused(f"input {name!r} is missing")
            while inputs and inputs[-1] is None:
                inputs.pop()
        if kwargs and not extra:
            try:
                return tuple(inputs), self.bound(**kwargs)
            except TypeError:  # not hashable, or wrong: reported below
                pass
        return tuple(inputs), self.bind_attributes(extra, kwargs, len(args))

    def sort_inputs(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], tuple]:
        """The inputs of a call, None where one is missing, and the attributes given by position;
        the attributes given by name stay in `kwargs`. ArgumentTypeError for a doubled name."""
        if self.variadic:
            n = next((i for i, a in enumerate(args) if not isinstance(a, Value)), len(args))
            inputs, extra = list(args[:n]), args[n:]
            if not inputs and extra and isinstance(extra[0], (list, tuple)):
                inputs, extra = list(extra[0]), extra[1:]
            kwargs.pop("num_args", None)
            return inputs, extra
        inputs = list(args[: len(self.input_names)])
        # An omitted optional input leaves its position to the attributes.
        while len(inputs) > self.n_required and not isinstance(inputs[-1], (Value, NoneType)):
            inputs.pop()
        extra = args[len(inputs) :]
        for name in self.input_names[: len(inputs)]:
            if name in kwargs:
                raise self._misused(f"input {name!r} was given twice")
        return inputs + [kwargs.pop(n, None) for n in self.input_names[len(inputs) :]], extra

    def _bind_attrs(self, **words: Any) -> Bound:
        """Check and convert the attributes of one spelling."""
        if not self.attr_set.issuperset(words):
            raise TypeError("an input by name is not an attribute")
        return Bound(self.bind_attributes((), words, 0))

    def bind_attributes(
        self, extra: Sequence[Any], kwargs: dict[str, Any], n_given: int
    ) -> dict[str, Any]:
        """The checked attributes of a call: `extra` by position, the others by name.
        ArgumentTypeError for an unknown, doubled or missing name."""
        if len(extra) > len(self.attr_names):
            raise self._misused(f"too many arguments: {n_given} positional")
        attrs = dict(self.defaults)
        for name, value in zip(self.attr_names, extra, strict=False):
            if name in kwargs:
                raise self._misused(f"attribute {name!r} was given twice")
            attrs[name] = self._convert(name, value)
        for name, value in kwargs.items():
            if name not in self.attr_names:
                if name in self.left_out:
                    is_plain = not isinstance(value, (Value, np.ndarray))  # these compare otherwise
                    if is_plain and value in (None, False, "None", "False"):  # as MXNet's layers
                        continue
                    raise self._misused(f"argument {name!r} is left out of d2lmini")
                # As in MXNet, an op without attributes reads none: nd.exp(x, axis=1) is nd.exp(x).
                reads_none = not (self.attr_names or self.variadic or isinstance(value, Value))
                if name in ("ctx", "attr", "__layout__") or reads_none:
                    continue
                raise self._misused(f"unknown argument {name!r}")
            attrs[name] = self._convert(name, value)
        for name in self.required:
            if name not in attrs:
                raise self._misused(f"attribute {name!r} is required")
        return attrs

    def _misused(self, problem: str) -> ArgumentTypeError:
        return ArgumentTypeError(f"{self.name}: {problem}; usage: {self.usage}")

    def _convert(self, name: str, value: Any) -> Any:
        converter = self.converters.get(name)
        if value is None and self.defaults.get(name, 0) is None:
            # As in MXNet, dtype=None written out is NumPy's default, not the dtype of the input.
            return np.dtype("float64") if name == "dtype" else None
        if converter is None:
            return value
        try:
            return converter(value)
        except (TypeError, ValueError, OverflowError) as problem:
            raise MXNetError(
                f"{self.name}: attribute {name}={value!r} does not fit: {problem}"
            ) from None

    def cost(
        self, inputs: Sequence[Any], outputs: Sequence[Spec] | None = None, **attrs: Any
    ) -> Cost:
        """Predicted FLOPs and bytes of a call on inputs with these specs (shape, dtype)."""
        specs = [s if isinstance(s, Spec) else Spec(tuple(s[0]), s[1]) for s in inputs]
        attrs = {**self.defaults, **attrs}
        outs = as_specs(self.infer(*specs, **attrs)) if outputs is None else outputs
        flops = self.count_flops(specs, outs, attrs)
        return Cost(flops, float(sum(s.nbytes for s in specs) + sum(s.nbytes for s in outs)))

    def count_flops(
        self, inputs: Sequence[Spec], outputs: Sequence[Spec], attrs: dict[str, Any]
    ) -> float:
        """Predicted FLOPs of a call. attrs: the op's own count, and defaults where it has none."""
        if callable(self.flops):
            own = {k: v for k, v in {**self.defaults, **attrs}.items() if k in self.attr_set}
            return float(self.flops(*inputs, out=outputs[0], **own))
        return float(self.flops * sum([spec.size for spec in outputs]))

    def __reduce__(self) -> tuple:
        return find_op, (self.name,)

    def __deepcopy__(self, memo: dict) -> Op:
        return self

    @property
    def usage(self) -> str:
        """The signature in the form of a call."""
        inputs = [f"*{n}" if self.variadic else n for n in self.input_names]
        attrs = [f"{n}={self.defaults[n]!r}" if n in self.defaults else n for n in self.attr_names]
        return f"{self.name}({', '.join(inputs + attrs)})"

    def __repr__(self) -> str:
        return f"<op {self.usage}>"


def _zeros_apart(cached: Any) -> Callable[..., Bound]:
    """A cached function that computes the result for -0.0 each time: 0.0 has the same key."""

    def bound(**words: Any) -> Bound:
        minus = [v for v in words.values() if type(v) is float and v == 0 and copysign(1, v) < 0]
        return (cached.__wrapped__ if minus else cached)(**words)

    bound.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
    return bound


def invoke(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
    """Apply `op`: the single entry point. The type of the first input decides how;
    ArgumentTypeError if it is no value."""
    if not inputs or not isinstance(inputs[0], Value):
        got = ", ".join(type(v).__name__ for v in inputs) or "nothing"
        raise op._misused(
            f"expected NDArray (or Symbol) inputs, made with nd.array(...), got {got}"
        )
    return inputs[0]._apply(op, inputs, attrs, out)


def find_op(name: str) -> Op:
    """The op of this name; called by unpickling, which gives the op itself."""
    return registry[name]


def declaring(make: Callable[..., Op], name: Any, rules: dict[str, Any]) -> Any:
    """The decorator that declares the op make(function, name, **rules), named like the function if
    it has no name, under each of its names; used without arguments (`@op`), `name` is the
    function."""

    def declare(function: Callable[..., Any]) -> Op:
        declared = make(function, name if isinstance(name, str) else function.__name__, **rules)
        for op_name in (declared.name, *declared.aliases):
            assert op_name not in registry, f"op {op_name} is declared twice"
            registry[op_name] = declared
        return declared

    return declare(name) if callable(name) else declare


def op(name: str | Callable | None = None, **rules: Any) -> Any:
    """Declare an op (see the module's docstring). The keywords are those of `Op`."""
    return declaring(Op, name, rules)


def as_specs(inferred: Any) -> list[Spec]:
    """The result of `infer` as a list; one Spec becomes a list of one."""
    return [inferred] if isinstance(inferred, Spec) else list(inferred)


# -- common shape rules -------------------------------------------------------------------------


def same(data: Spec, *others: Spec, **_attrs: Any) -> Spec:
    """The output has the first input's shape and dtype."""
    return data


def op_of_view(name: str | Callable | None = None, **rules: Any) -> Any:
    """Declare an op whose results are views of its first input, or the same elements in `out`. Its
    shape rule is the op itself, on an array whose elements all lie at one place in memory."""
    return declaring(_make_op_of_view, name, rules)


def _make_op_of_view(compute: Callable[..., Any], name: str, **rules: Any) -> Op:
    def infer(data: Spec, *others: Spec, **attrs: Any) -> Spec | list[Spec]:
        flat = np.ndarray(data.shape, data.dtype, bytes(16), strides=(0,) * len(data.shape))
        views = compute(np, flat, *others, **attrs)
        if type(views) is tuple:
            return [Spec(view.shape, data.dtype) for view in views]
        return Spec(views.shape, data.dtype)

    return Op(compute, name, infer=infer, flops=0, **rules)


def normalize_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """`axis` counted from the front; MXNetError if out of range."""
    if not -ndim <= axis < ndim:
        raise MXNetError(f"{name}={axis} is out of range for an array of {ndim} axes")
    return axis % ndim


def with_axis(shape: Shape, axis: int, *sizes: int) -> Shape:
    """`shape` with `sizes` in the place of `axis`; without sizes the axis is dropped."""
    axis %= len(shape)
    return (*shape[:axis], *sizes, *shape[axis + 1 :])
