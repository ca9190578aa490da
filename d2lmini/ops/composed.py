"""Composed ops: an op that is a formula of other ops, and whose gradient follows from the formula.

    @composed(infer=same, flops=10)
    def gelu(data):
        '''data Phi(data), with the distribution function Phi of the normal distribution.'''
        return data * 0.5 * (1 + erf(data * 0.5**0.5))

A formula is a function of values. Its positional parameters are the inputs and its keywords the
attributes, as in `core`. An op without a formula, a *primitive*, has a kernel, a gradient rule and
a rule for shapes; a composed op has the formula alone:

- A call on arrays *interprets* the formula: one kernel after the other. A call that comes again and
  again is compiled into one program, like a hybridized net (`Runner`, `graph/program.py`).
- A compiled graph contains the primitives of the formula, so that they join what stands before and
  behind.
- The gradient is composed too: the formula's primitives are differentiated in reverse order.
  It computes what it needs of the forward pass again, so only the inputs are kept. Where keeping
  the output saves work, the op has a rule of its own: `@softmax.gradient(saves="y")`.

The kind of the values decides what a call of the formula gives:

- `Local`: the result on arrays, one primitive after the other (`interpret`), or the shape and dtype
  of the result (`infer_by_formula`);
- `Taped`: the gradients of the inputs (`pull_back`), from the rules of the primitives;
- `Written`: the graph of the formula (`graph/lower.py`).

>>> import numpy as np
>>> from d2lmini.ops.core import registry, same
>>> softmax = registry["softmax"]
>>> infer_by_formula(softmax, [Spec((2, 3), "float32")], softmax.defaults)
[Spec((2, 3), float32)]
>>> interpret(softmax, np, [np.array([1.0, 1.0])], softmax.defaults)
[array([0.5, 0.5])]
>>> def cube(data):
...     return data * data * data
>>> op = Composed(cube, "cube", infer=same)
>>> op.compute(np, np.array([1.0, 2.0]))
array([1., 8.])
>>> op.backward_op(1, (True,)).compute(np, np.ones(2), np.array([1.0, 2.0]))
array([ 3., 12.])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from d2lmini.base import loaders
from d2lmini.base.dtypes import CHAR
from d2lmini.context import cpu
from d2lmini.device.scratch import scratch
from d2lmini.engine.scheduler import thread_state
from d2lmini.ops.chunking import BLOCKED
from d2lmini.ops.core import NOWHERE, Op, Spec, Y, as_specs, declaring, registry
from d2lmini.ops.fluent import Fluent, Typed
from d2lmini.ops.kernels import Kernel, as_results, kind_of, needs_copies, widened
from d2lmini.ops.signature import Signature, signature_of, with_signature

#: A call is compiled when it comes for this time, or when its calls have read so many elements:
#: compiling takes a millisecond or more, as long as a tiny call a hundred times, and as long as
#: interpreting these elements takes longer than a program, which computes them in blocks and has
#: no intermediate results of their size.
COMPILED_CALL = 64
COMPILED_SIZE = 1 << 20


# -- values of formulas ----------------------------------------------------------------------------


class FormulaValue(Typed, Fluent):
    """What formulas compute with: the operators and methods of arrays and Symbols. is_taped: the
    formula is differentiated (`Taped`)."""

    __slots__ = ()

    is_taped = False

    def reshape(self, *shape: Any) -> Any:
        """The elements in another shape; see the op."""
        target = shape[0] if len(shape) == 1 else shape
        if type(target) is tuple and all([type(n) is int for n in target]):
            # Not bound by a call: such a shape needs no check, and differs in each call.
            return self._apply(registry["reshape"], (self,), {"shape": target, "reverse": False})
        return registry["reshape"](self, target)


def results_of(op: Op, values: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """The results of an op's formula on these values."""
    found = op.formula(*values, **attrs)
    return list(found) if isinstance(found, (tuple, list)) else [found]


# -- interpreting ----------------------------------------------------------------------------------


class Local(FormulaValue):
    """An array inside an op: the values on which a formula is interpreted. Without a module `xp`
    the array is a Spec: only shape and dtype are known."""

    __slots__ = ("array", "xp")

    def __init__(self, xp: Any, array: Any):
        self.xp = xp
        self.array = array

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return Spec(self.array.shape, self.array.dtype)

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        xp = inputs[0].xp
        arrays: list[Any] = [None if x is None else x.array for x in inputs]
        if xp is None:
            found = [Local(xp, spec) for spec in as_specs(op.infer(*arrays, **attrs))]
            return found[0] if len(found) == 1 else found
        if op.formula is not None:
            return op.formula(*inputs, **attrs)
        kernel = op.compute if xp is np else op.kernel_for(kind_of(xp))
        is_map = xp is np and op.pointwise and op.takes_out
        if is_map and any([a.size >= BLOCKED for a in arrays]):
            # Fresh memory takes longer than the kernel.
            (spec,) = as_specs(op.infer(*[x._spec for x in inputs], **attrs))
            return Local(xp, kernel(xp, *arrays, out=scratch.spare(spec), **attrs))
        result = kernel(xp, *arrays, **attrs)
        if isinstance(result, tuple):
            return [Local(xp, xp.asarray(part)) for part in result]
        return Local(xp, xp.asarray(result))


def _results_on(op: Op, xp: Any, arrays: Sequence[Any], attrs: dict) -> list[Any]:
    values = [None if a is None else Local(xp, a) for a in arrays]
    return [y.array for y in results_of(op, values, attrs)]


def infer_by_formula(op: Op, specs: Sequence[Spec | None], attrs: dict) -> list[Spec]:
    """The specs of the results of an op's formula, by the rules of its primitives."""
    return _results_on(op, None, specs, attrs)


def rounded_specs(op: Op, specs: Sequence[Spec | None], attrs: dict) -> list[Spec]:
    """The same of a formula that is computed in float32: its outputs have the op's own dtypes."""
    wide = [spec and Spec(spec.shape, widened(op, spec.dtype)) for spec in specs]
    outputs = as_specs(op.infer(*specs, **attrs))  # type: ignore[arg-type]
    return [*outputs, *infer_by_formula(op, wide, attrs)[len(outputs) :]]


def interpret(op: Op, xp: Any, arrays: Sequence[Any], attrs: dict) -> list[Any]:
    """The results of the formula on arrays, one primitive after the other."""
    if not needs_copies(op, [a for a in arrays if a is not None]):
        return _results_on(op, xp, arrays, attrs)
    wide = [a if a is None else a.astype(widened(op, a.dtype), copy=False) for a in arrays]
    specs = rounded_specs(op, [a if a is None else Spec(a.shape, a.dtype) for a in arrays], attrs)
    found = zip(_results_on(op, xp, wide, attrs), specs, strict=True)
    return [y.astype(spec.dtype, copy=False) for y, spec in found]


# -- differentiating -------------------------------------------------------------------------------


class Taped(FormulaValue):
    """A value whose history is recorded.

    value  the recorded value: an array or a Symbol
    tape   the calls so far, as (op, inputs, their values, attributes, outputs)
    leads  the value depends on an input whose gradient is wanted
    g      parts of its gradient
    """

    __slots__ = ("g", "leads", "tape", "value")

    is_taped = True

    def __init__(self, value: Any, tape: list, leads: bool):
        self.value = value
        self.tape = tape
        self.leads = leads
        self.g: list[Any] = []

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return self.value._spec  # type: ignore[no-any-return]

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        if op.formula is not None:
            return op.formula(*inputs, **attrs)
        plain: tuple[Any, ...] = tuple([None if x is None else x.value for x in inputs])
        found = plain[0]._apply(op, plain, attrs)
        tape = inputs[0].tape
        leads = op.rule is not None and any([x is not None and x.leads for x in inputs])
        outputs = [Taped(y, tape, leads) for y in (found if isinstance(found, list) else [found])]
        if leads:
            tape.append((op, inputs, plain, attrs, outputs))
        return outputs if isinstance(found, list) else outputs[0]


def pull_back(
    op: Op, gs: Sequence[Any], inputs: Sequence[Any], wanted: Sequence[bool], attrs: dict
) -> list[Any]:
    """The gradients of the `wanted` inputs of a formula, from those of its outputs."""
    tape: list = []
    sources: list[Any] = [None if x is None else Taped(x, tape, w) for x, w in zip(inputs, wanted)]
    for y, g in zip(results_of(op, sources, attrs), gs):
        y.g.append(g)
    while tape:
        called, values, plain, own, outputs = tape.pop()
        parts = [total(y.g) for y in outputs]
        if all([part is None for part in parts]):
            continue
        needs = [x is not None and x.leads for x in values]
        saved = called.saved_of(plain, [y.value for y in outputs])
        whole = [y.value.zeros_like() if g is None else g for y, g in zip(outputs, parts)]
        g = parts[0] if len(parts) == 1 else whole
        for x, needed, part in zip(values, needs, called.gradients(g, saved, own, needs)):
            if needed and part is not None:
                x.g.append(part)
    return [
        None if not w else x.value.zeros_like() if (g := total(x.g)) is None else g
        for x, w in zip(sources, wanted)
    ]


def total(parts: list[Any] | None) -> Any:
    """The sum of the parts of a gradient, in their order; None if there are none."""
    if parts and len(parts) > 1:
        parts[:] = [registry["elemwise_add" if len(parts) == 2 else "add_n"](*parts)]
    return parts[0] if parts else None


# -- the op ----------------------------------------------------------------------------------------


class Composed(Op):
    """An op that is a formula. `Op` tells the keywords, and here also:

    formula    function of values: (*inputs, **attributes) -> value or tuple of values
    finish     of an op that mutates inputs: function of arrays (xp, inputs, results, attributes),
               which changes these after all is computed
    extra      number of last results of the formula that are no outputs, but for `finish`
    grad       None: the op has no gradient
    constants  names of inputs that have no gradient; or a function of the attributes
    """

    def __init__(
        self, formula: Callable[..., Any], name: str, *, signature: Signature | None = None,
        constants: Any = (), finish: Any = None, extra: int = 0, outputs: Any = 1, **rules: Any,
    ):  # fmt: skip
        signature = signature or signature_of(formula, 0)
        self.formula = formula
        self.constants = constants
        self.finish, self.extra = finish, extra

        @with_signature(signature, formula.__doc__)
        def compute(xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
            attrs = {**self.defaults, **attrs}
            return self.settle(xp, arrays, attrs, interpret(self, xp, arrays, attrs), out)

        rules.setdefault("compute_in_float32", "e" + CHAR)
        rules.setdefault("infer", lambda *specs, **attrs: infer_by_formula(self, specs, attrs))
        is_constant = rules.pop("grad", self) is None
        super().__init__(compute, name, outputs=outputs, grad=None, **rules)
        self.simple = outputs == 1 and not self.injects
        self.keeps = tuple((i, None) for i in range(len(self.input_names)))
        self.rule = None if is_constant else self.gradients
        self.backward_op = cache(self._make_backward_op)
        self.__wrapped__ = formula  # nd.softmax?? shows it

    def kernel_for(self, kind: str) -> Kernel:
        """The implementation for a plan: an add-on's, or a new `Runner`."""
        return self.kernels.get(kind) or Runner(self)

    def settle(self, xp: Any, arrays: Sequence[Any], attrs: dict, results: list, out: Any) -> Any:
        """The results of a call on arrays as `compute` returns them, in `out` if given."""
        if self.finish is not None and self.mutated(len(arrays), attrs):
            self.finish(xp, arrays, results, attrs)
        return as_results(xp, results[: len(results) - self.extra], out)

    # -- the gradient ------------------------------------------------------------------------------

    def gradients(
        self, g: Any, saved: Sequence[Any], attrs: dict[str, Any], needs: Any, places: Any = NOWHERE
    ) -> Sequence[Any]:
        """The gradients of the inputs, by one call of a composed op: of the rule that `gradient`
        attached, because it needs less, or of the one that follows from the formula. A part
        that is kept, such as "x.dtype", is an attribute of the call."""
        grads: list[Any] = [None] * len(self.input_names)
        gs = [x for x in g if x is not None] if isinstance(g, (list, tuple)) else [g]
        wanted = self._wanted(attrs, needs)
        if any(wanted):
            op, values, attrs = self._backward_call(gs, saved, attrs, wanted)
            found = gs[0]._apply(op, tuple(values), attrs)
            places = [i for i, is_wanted in enumerate(wanted) if is_wanted]
            for i, part in zip(places, [found] if len(places) == 1 else found):
                grads[i] = part
        return grads

    def _wanted(self, attrs: dict[str, Any], needs: Any) -> tuple[bool, ...]:
        """The inputs whose gradients are needed, without those that have none."""
        constants = self.constants(attrs) if callable(self.constants) else self.constants
        given = self.input_names[: len(needs) if isinstance(needs, (list, tuple)) else None]
        return tuple([name not in constants and bool(needs[i]) for i, name in enumerate(given)])

    def _backward_call(
        self, gs: Sequence[Any], saved: Sequence[Any], attrs: dict[str, Any],
        wanted: tuple[bool, ...],
    ) -> tuple[Composed, list[Any], dict[str, Any]]:  # fmt: skip
        """The op of the gradient, its inputs and its attributes."""
        values = list(gs)
        # The mode is that of the forward pass.
        facts = {f"forward_{name}": attrs[name] for name in self.injects if name in attrs}
        for i, (kept, (_, part)) in enumerate(zip(saved, self.keeps)):
            if part is not None:
                facts[f"kept{i}"] = kept
            elif kept is not None:
                values += kept if isinstance(kept, (list, tuple)) else [kept]
        attrs = {**self._own(attrs), **facts} if facts else attrs
        op = self.backward_op(len(gs), wanted, tuple(map(_count, saved)))
        return op, values, attrs

    # -- programs to read --------------------------------------------------------------------------

    def program(self, *args: Any, **kwargs: Any) -> Any:
        """The program for calls on arrays like these: `print(nd.softmax.program(x))`."""
        specs, attrs = self._specs_of(args, kwargs)
        return loaders["compiled_formula"]()(self, specs, attrs, cpu()).program

    def gradient_program(self, *args: Any, **kwargs: Any) -> Any:
        """The program for the gradients of such a call. Its inputs are the gradient g0 of the
        output, and what is kept for backward."""
        specs, attrs = self._specs_of(args, kwargs)
        outputs = as_specs(self.infer(*specs, **self._own(attrs)))
        saved = self.saved_of(specs, outputs)
        needs = [spec.dtype.kind == "f" for spec in specs]
        wanted = self._wanted(attrs, needs)
        op, values, attrs = self._backward_call(outputs[:1], saved, attrs, wanted)
        return loaders["compiled_formula"]()(op, tuple(values), attrs, cpu()).program

    def _specs_of(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The specs of a call's inputs, and its attributes, as in training."""
        inputs, attrs = self.bind(args, kwargs)
        return tuple([x._spec for x in inputs]), {**attrs, **dict.fromkeys(self.injects, True)}

    def _own(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in attrs.items() if k not in self.injects}

    # -- the op of the gradient --------------------------------------------------------------------

    def _make_backward_op(
        self, n: int, wanted: tuple[bool, ...], counts: tuple[int, ...] = ()
    ) -> Composed:
        """The op of the gradients of the `wanted` inputs, from those of n outputs and from the kept
        values; counts: see `_count`, by default one each."""
        counts = counts or (1,) * len(self.keeps)
        follows = self.rule in (None, self.gradients)

        def formula(*values: Any, **attrs: Any) -> Any:
            gs, rest = list(values[:n]), iter(values[n:])
            saved: list[Any] = [
                attrs[f"kept{i}"] if part is not None
                else [next(rest) for _ in range(-count)] if count < 0
                else next(rest) if count else None
                for i, (count, (_, part)) in enumerate(zip(counts, self.keeps))
            ]  # fmt: skip
            own: dict[str, Any] = {
                name: attrs[f"forward_{name}" if name in self.injects else name]
                for name in ((*self.attr_names, *self.injects) if follows else self.rule_attrs)
            }
            if follows:
                grads: Any = pull_back(self, gs, saved, wanted, own)
            else:
                own |= {"needs": wanted} if self.selective else {}
                grads = self.rule(gs[0] if n == 1 else gs, *saved, **own)
                grads = grads if isinstance(grads, (tuple, list)) else (grads,)
            found = tuple([grad for grad, is_wanted in zip(grads, wanted) if is_wanted])
            return found if len(found) > 1 else found[0]

        formula.__doc__ = f"The gradient of {self.name}."
        facts = [f"kept{i}" for i, (_, part) in enumerate(self.keeps) if part is not None]
        words = (*self.attr_names, *[f"forward_{name}" for name in self.injects], *facts)
        inputs = [f"g{i}" for i in range(n)]
        for (place, part), count in zip(self.keeps, counts):
            name = "y" if place == Y else self.input_names[place]
            if part is None:
                inputs += [name] if count > 0 else [f"{name}{i}" for i in range(-count)]

        def infer(*specs: Spec, **attrs: Any) -> Any:
            # A gradient is like the input, where this was kept, else as the rule makes it.
            known = dict(zip(inputs[n:], specs[n:]))
            names = [name for name, is_wanted in zip(self.input_names, wanted) if is_wanted]
            if known.keys() >= set(names):
                return [known[name] for name in names]
            return infer_by_formula(op, specs, attrs)

        op = Composed(
            formula, f"_backward_{self.name.lstrip('_')}", infer=infer,
            signature=Signature(tuple(inputs), words, self.defaults, {}, len(inputs)),
            outputs=sum(wanted), flops=20, constants=self.constants,
            compute_in_float32=self.compute_in_float32,
        )  # fmt: skip
        return op


def _count(kept: Any) -> int:
    """How many values are kept: 1, 0 for an input that was omitted, -n for a list of n."""
    return -len(kept) if isinstance(kept, (list, tuple)) else int(kept is not None)


def composed(name: str | Callable | None = None, **rules: Any) -> Any:
    """Declare a composed op (see the module's docstring). The keywords are those of `Composed`."""
    return declaring(Composed, name, rules)


# -- running ---------------------------------------------------------------------------------------


class Runner:
    """The implementation of a composed op for one plan: arrays of the same shapes and dtypes, and
    equal attributes. It interprets the first calls, then compiles the formula.

    programs  by mode, which is no part of a plan; a GPU keeps its own, and ends with them
    kernel    the program for calls under the engine's lock that want new arrays, once there is one
    """

    __slots__ = ("calls", "elements", "kernel", "op", "programs")

    def __init__(self, op: Composed):
        self.op = op
        self.calls = self.elements = 0
        self.programs: dict[Any, Any] = {}
        self.kernel: Any = None

    def __call__(self, xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
        op, task = self.op, thread_state.task
        if len(attrs) < len(op.attr_names):  # a program leaves out what is the default
            attrs = {**op.defaults, **attrs}
        mode = attrs.get("training")
        program = self.programs.get(mode) if xp is np else None
        if program is None:
            results = self._interpret(xp, arrays, attrs)
            if results is not None:
                return op.settle(xp, arrays, attrs, results, out)
            specs = tuple([a if a is None else Spec(a.shape, a.dtype) for a in arrays])
            ctx = cpu() if xp is np or task is None else task.ctx
            program = loaders["compiled_formula"]()(op, specs, attrs, ctx)
            if xp is np:
                self.programs[mode] = program
                self.kernel = program.kernel() if op.simple else None
        return op.settle(xp, arrays, attrs, program.run(arrays, out, xp), out)

    def _interpret(self, xp: Any, arrays: Sequence[Any], attrs: dict) -> list[Any] | None:
        """The results of the formula; None if a program is to compute them."""
        op = self.op
        if xp is not np:  # a program takes fewer launches; a task knows on which GPU
            return interpret(op, xp, arrays, attrs) if thread_state.task is None else None
        self.calls += 1
        self.elements += max([a.size for a in arrays if a is not None])
        is_frequent = self.calls >= COMPILED_CALL or self.elements >= COMPILED_SIZE
        return None if is_frequent else interpret(op, xp, arrays, attrs)
