"""CachedOp: a Symbol as one operation on arrays, compiled for each kind of input it meets.

A call is one task of the engine. What was compiled is kept by the shapes and dtypes of the inputs,
their context, the mode (training or not) and, while recording, by which inputs have a history: for
these the forward program also returns what backward needs, and the tape gets one node.

>>> from d2lmini import nd, sym
>>> a, b = sym.var("a"), sym.var("b")
>>> f = CachedOp((a * b + 2).relu())
>>> f(nd.array([1, -3]), nd.array([2, 3]))
<BLANKLINE>
[4. 0.]
<NDArray 2 @cpu(0)>

After `mxnet.nd.CachedOp`. A call is one node on autograd's tape (`ProgramNode`), whose gradients
are one program too. A net is compiled for each shape. Programs take memory: their text,
code and graphs. So only those used last are kept, as many as `MOST_BYTES` hold, at least `LEAST`.

**`autograd.get_symbol`**: what was recorded, as a Symbol.

>>> from d2lmini import autograd, nd
>>> x = nd.ones(2)
>>> x.attach_grad()
>>> with autograd.record():
...     y = (x * 3 + nd.ones(2)).tanh()
>>> s = autograd.get_symbol(y)
>>> s, s.list_arguments()
(<Symbol node_2>, ['var0', 'null0'])

Arrays with a gradient attached become the variables var0, var1, ... in the order in which that was
done; arrays without history null0, null1, ... in the order in which they are met, for the tape does
not know whether they were one. A call of a compiled net is written out, node by node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from d2lmini.autograd import tape
from d2lmini.autograd.backward_pass import grad_or_none, nodes_behind
from d2lmini.autograd.scopes import scope
from d2lmini.autograd.tape import Grads, Leaf, OpNode, cell_of, value_of
from d2lmini.autograd.tape import Node as Step
from d2lmini.base import MXNetError, environment
from d2lmini.context import Context, current_context
from d2lmini.graph.backward import cut_graph, gradients, mirror, recompute, residuals
from d2lmini.graph.ir import (
    Entry,
    Node,
    forget_call,
    topological,
    transform,
    variables_of,
)
from d2lmini.graph.passes import pool_before_activation, simplify
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program, ProgramCall
from d2lmini.graph.symbolic_trace import SymbolicTrace, one_at_a_time
from d2lmini.graph.typed import draw_numbers, infer_types
from d2lmini.ndarray.dispatch import check_out, copies_of
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import modes
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import evaluate

# -- which programs are cached ---------------------------------------------------------------------

#: The programs of one net take about so many bytes at most.
MOST_BYTES = 64 << 20
#: So many are kept, however large they are.
LEAST = 16


class ProgramCache:
    """The programs of a net, and their arenas. The key of a program begins with the `mark` of its
    CachedOp; `nbytes` is about how much it takes."""

    def __init__(self, static_alloc: bool = False):
        self.static_alloc = static_alloc
        self._arenas: dict[Context, Arenas] = {}
        self._programs: OrderedDict[tuple, Compiled] = OrderedDict()  # last used comes last

    def arenas(self, ctx: Context) -> Arenas:
        """Those of a context."""
        found = self._arenas.get(ctx)
        return found or self._arenas.setdefault(ctx, Arenas(ctx, self.static_alloc))

    def of(self, mark: object) -> list[Compiled]:
        """The programs of one CachedOp."""
        return [program for key, program in list(self._programs.items()) if key[0] is mark]

    def get(self, key: tuple) -> Compiled | None:
        """The program with this key, which is used now; None if there is none."""
        with suppress(KeyError):
            self._programs.move_to_end(key)
            return self._programs[key]
        return None

    def add(self, key: tuple, program: Compiled) -> None:
        """Keep one more; those that were not used for longest may have to go. One thread at a time
        (`symbolic_trace.one_at_a_time`)."""
        self._programs[key] = program
        nbytes = sum([program.nbytes for program in list(self._programs.values())])
        while nbytes > MOST_BYTES and len(self._programs) > LEAST:
            nbytes -= self._programs.popitem(last=False)[1].nbytes


# -- a net -----------------------------------------------------------------------------------------

#: A program takes so many times the bytes of its text, as measured: code, graph, plan.
TIMES_TEXT = 40

# Specs, which inputs have a history, training or not, context.
Kind = tuple[list[Any], "list[bool | None] | None", bool, Context]


class CachedOp:
    """A Symbol as a function of arrays, in the order of its variables (arguments and auxiliary
    states as they are met, `list_inputs`). `flags` are those of `hybridize`, as a dict or as pairs:
    with static_alloc the memory for intermediate results is kept from call to call, with
    static_shape too calls on a GPU are replayed (`cuda.launches`). CachedOps of one net share
    `cache`. trace: the trace that the symbol is from, which knows what draws.

    Several threads may call it: what a call goes by are pairs and tuples that are replaced as a
    whole, of which it reads each once."""

    def __init__(
        self, symbol: Symbol, flags: Any = (), name: str = "cached_op",
        cache: ProgramCache | None = None, trace: SymbolicTrace | None = None,
    ):  # fmt: skip
        self.symbol = symbol
        self.name = name
        self.flags = dict(flags)
        self.cache = cache or ProgramCache(self.flag(flags, "static_alloc"))
        self.variables = variables_of(symbol._entries)
        if trace is None:
            trace = SymbolicTrace((), (), False)
            for node in draw_numbers(symbol._entries):
                trace.note_draw(node.op, node.attrs)  # type: ignore[arg-type]
        self.trace = trace
        self.mark = object()  # in keys: no circle, so a net dies without the garbage collector
        self._last: tuple[Any, Any, tuple] = (None, None, ())

    @staticmethod
    def flag(flags: Any, name: str) -> bool:
        """True if this flag is set."""
        return str(dict(flags).get(name, False)) in ("True", "1")

    @property
    def mirrors(self) -> bool:
        """True if backward computes cheap values again (`backward.py`): by the flag
        backward_do_mirror, or else by MXNET_BACKWARD_DO_MIRROR=1 in the environment."""
        asked = environment.read("MXNET_BACKWARD_DO_MIRROR")
        return self.flag({"backward_do_mirror": asked, **self.flags}, "backward_do_mirror")

    def __call__(self, *inputs: NDArray, out: Any = None) -> Any:
        """The outputs for these arrays: one NDArray or a list, or `out` itself, filled. MXNetError
        at the call for a wrong number of inputs, and for shapes, dtypes or contexts that do not
        fit."""
        results = self.compiled_for(inputs)(inputs, out)
        if out is not None:
            return out
        return results[0] if len(results) == 1 else results

    def compiled_for(self, inputs: Sequence[NDArray]) -> Compiled:
        """The programs for such inputs in the modes of now, compiled if they have to be."""
        try:
            needs: Any = None
            # Whether each has a history; False is one that was used up.
            if modes.recording:
                needs = [
                    None if (e := x._node) is None else e[0].parents is not None for x in inputs
                ]
                if False in needs:
                    tape.tell_of_constants(self.name, inputs)
                    needs = [needed or None for needed in needs]
            kind = ([x._spec for x in inputs], needs, modes.training, inputs[0]._ctx)
        except (AttributeError, IndexError):
            kind = self._unusual(inputs)
        last, compiled, _ = self._last  # one tuple, whatever other threads do
        # Nearly always the kind of the last call, with the very same objects in it.
        return compiled if kind == last else self._find(inputs, kind)

    def _unusual(self, inputs: Sequence[Any]) -> Kind:
        """No inputs, which is allowed, or some that are no arrays."""
        for node, x in zip(self.variables, inputs):
            if not isinstance(x, NDArray):
                raise TypeError(
                    f"{self.name}: {node.name} is to be an NDArray, got {type(x).__name__}"
                )
        return [], None, modes.training, current_context()

    def _find(self, inputs: Sequence[NDArray], kind: Kind) -> Compiled:
        """What was compiled for this kind, or is now."""
        specs, asked, training, ctx = kind
        needs = tuple(asked) if asked and True in asked else ()
        key = (self.mark, *specs, needs, training, ctx)
        self.cache.get(self._last[2])  # it was used since it was found
        compiled = self.cache.get(key)
        if compiled is None:
            with one_at_a_time():
                compiled = self.cache.get(key)
                if compiled is None:
                    compiled = self._compile(inputs, needs, ctx)
                    self.cache.add(key, compiled)
        self._last = kind, compiled, key
        return compiled

    def _compile(
        self, inputs: Sequence[NDArray], needs: tuple[bool | None, ...], ctx: Context
    ) -> Compiled:
        if len(inputs) != len(self.variables):
            names = ", ".join(node.name for node in self.variables)
            raise MXNetError(
                f"{self.name}: {len(inputs)} arrays for {len(self.variables)} inputs: {names}"
            )
        specs = {node: x._spec for node, x in zip(self.variables, inputs)}
        variables, outputs = infer_types(self.symbol._entries, specs, modes.training)
        return Compiled(self, list(variables.values()), outputs, needs, ctx)


class Compiled:
    """The programs for one kind of input: forward, and once it is asked for, backward.

    typed    the graph as it was given, before any pass: variables and outputs
    outputs  what the forward program computes; besides it keeps the values `kept_variables`, of
             which `kept_at` says where among its results they are
    wanted   positions of the inputs with a history; `reached`: those that the outputs depend on
    draws    which of the calls that were traced draw in this mode; () if none does
    grads    the backward graph: gradients of `reached`, from variables, what was kept, and `heads`
    changed  positions of the inputs that the forward program changes and reads besides; `unread`
             those that it only changes, such as moving statistics
    nbytes   about how much memory the programs and their graphs take, by the length of their text
    """

    def __init__(
        self, of: CachedOp, variables: list[Node], outputs: list[Entry],
        needs: tuple[bool | None, ...], ctx: Context,
    ):  # fmt: skip
        self.name, self.trace, self.ctx = of.name, of.trace, ctx
        self.arenas = of.cache.arenas(ctx)
        self.static = all(of.flag(of.flags, name) for name in ("static_alloc", "static_shape"))
        self.variables = variables
        self.training = modes.training
        self.draws = of.trace.draws(modes.training)
        self.typed = outputs
        outputs = pool_before_activation(outputs)
        self.wanted = [i for i, needed in enumerate(needs) if needed]
        self.heads: list[Node] = []
        kept: list[Entry] = []
        self._backward: dict[tuple, Backward] = {}
        reads = {e for node in topological(outputs) for e in node.inputs if e not in node.mutated}
        if self.wanted:
            self.heads = [
                Node(None, f"head_grad{i}", specs=(node.specs[j],))  # type: ignore[index]
                for i, (node, j) in enumerate(outputs)
            ]
            wrt: list[Entry] = [(variables[i], 0) for i in self.wanted]
            grads = gradients(outputs, [(g, 0) for g in self.heads], wrt)
            self.reached = [i for i, g in zip(self.wanted, grads) if g is not None]
            # One graph for both, so that neither computes what the other has.
            joint = simplify(outputs + [g for g in grads if g is not None])
            self.outputs = outputs = joint[: len(outputs)]
            found = recompute(outputs, joint[len(outputs) :])
            if of.mirrors:
                found = mirror(outputs, found)
            needed = residuals(outputs, found)
            self.kept_variables, self.grads = cut_graph(found, needed)
            # What is an output anyway is not kept a second time.
            kept = [entry for entry in needed if entry not in outputs]
            self.kept_at = [(outputs + kept).index(entry) for entry in needed]
        else:
            self.outputs = outputs = simplify(outputs)
        self.forward = Program(of.name, variables, outputs + kept, ctx, self.arenas)
        self.changed = [i for i in self.forward.mutated if (variables[i], 0) in reads]
        self.unread = {*self.forward.mutated}.difference(self.changed)
        self.nbytes = TIMES_TEXT * len(self.forward.source)
        self._calls = ProgramCall(self.forward, self.static)

    def __call__(self, inputs: Sequence[NDArray], out: Any) -> list[NDArray]:
        ctx = self.ctx
        forward = self.forward
        if forward.mutated and modes.repeats:
            inputs = copies_of(inputs, forward.mutated)
        keys = self.trace.keys(self.draws, ctx) if self.draws else ()
        outs = () if out is None else self._check_out(out)
        before = inputs
        if self.wanted and (self.changed or outs):
            before = copies_of(inputs, self.changed, outs)
        results = self._calls(inputs, keys, outs)
        if not self.wanted:
            return results
        if modes.noting is not None:
            modes.noting.note(inputs, forward.mutated)
        node = ProgramNode(self, before, results, keys)
        results = results[: len(self.outputs)]
        node.enter(results)
        return results

    def _check_out(self, out: Any) -> Sequence[Any]:
        """What was given as `out=`, as a list; an error at the call if it does not fit."""
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        check_out(self.name, outs, self.forward.specs[: len(self.outputs)], self.ctx)
        if modes.recording and any([tape.history(x) for x in outs]):
            raise MXNetError(
                f"{self.name}: out= is on the tape; while recording give an array without history, "
                "or none"
            )
        return outs

    def backward(self, needs: tuple[bool, ...]) -> Backward:
        """The program for the gradients of some of the inputs."""
        if needs not in self._backward:
            with one_at_a_time():
                if needs not in self._backward:
                    made = self._backward[needs] = Backward(self, needs)
                    self.nbytes += TIMES_TEXT * len(made.program.source)
        return self._backward[needs]


# -- on the tape -----------------------------------------------------------------------------------


class Backward:
    """The program for some gradients, and which arrays it takes: inputs of the forward program,
    what that kept, head gradients.

    The gradients of the last layer are known first. So they are asked for first: then what each of
    them is computed from does not have to wait for those of the layers before."""

    def __init__(self, of: Compiled, needs: tuple[bool, ...]):
        wanted = [(i, g) for i, g in zip(of.reached, of.grads) if needs[i]][::-1]
        self.positions = [i for i, _ in wanted]
        grads = [g for _, g in wanted]
        used = set(variables_of(grads))
        self.inputs = [i for i, v in enumerate(of.variables) if v in used]
        self.kept = [i for i, v in enumerate(of.kept_variables) if v in used]
        self.heads = [i for i, v in enumerate(of.heads) if v in used]
        variables = [of.variables[i] for i in self.inputs]
        variables += [of.kept_variables[i] for i in self.kept]
        variables += [of.heads[i] for i in self.heads]
        self.program = Program(f"{of.name}_backward", variables, grads, of.ctx, of.arenas)
        self.calls = ProgramCall(self.program, of.static)


class ProgramNode(tape.Node):
    """A call of a compiled graph on the tape.

    kept      inputs of the call, and what the forward program keeps for backward: results of its
              own, or outputs; empty after a backward that does not retain the graph
    cells     of each of these its cell (`Chunk`), None if backward does not read it
    keys      what the forward program drew with: backward drops the same elements
    """

    __slots__ = ("cells", "compiled", "kept", "keys")

    placing = True

    def __init__(
        self, compiled: Compiled, inputs: Sequence[NDArray], results: list[NDArray],
        keys: Sequence[Any],
    ):  # fmt: skip
        shown = compiled.forward.specs[: len(compiled.outputs)]
        parents: list[Any] = [None] * len(inputs)
        for i in compiled.wanted:  # the others are constants
            parents[i] = inputs[i]._node
        super().__init__(tuple(parents), shown, compiled.ctx)
        self.compiled = compiled
        # Results without their place on the tape, for a node must not hold itself.
        self.kept: Any = [*inputs, *[results[i]._alias(None) for i in compiled.kept_at]]
        self.cells: Any = list(map(cell_of, self.kept))
        for i in compiled.unread:
            self.cells[i] = None
        self.keys = keys

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.compiled.name

    def gradients(self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any) -> Grads:
        backward = self.compiled.backward(tuple(needs))
        if graph:
            return self._record_gradients(gs, backward.positions)
        n = len(self.parents)
        inputs = [
            value_of(self, self.kept[i], self.cells[i])
            for i in (*backward.inputs, *[n + i for i in backward.kept])
        ]
        inputs += [tape.zeros(self.outputs[i], self.ctx) if gs[i] is None else gs[i]
                   for i in backward.heads]  # fmt: skip
        outs = [places[i] for i in backward.positions]
        grads = dict(zip(backward.positions, backward.calls(inputs, self.keys, outs)))
        return [grads.get(i) for i in range(n)]

    def _record_gradients(self, gs: list[Any], positions: Sequence[int]) -> Grads:
        """The gradients with a history of their own: the call is done again op by op, from the
        inputs with their history, and the tape of that is walked back."""
        of = self.compiled
        copies = []
        for i, (x, cell, parent) in enumerate(zip(self.kept, self.cells, self.parents)):
            x = (value_of(self, x, cell) if cell else x)._alias(parent)
            # Its own place on the tape, though two inputs may be one array; and what the call
            # has changed already is not changed again.
            if i in positions or i in of.forward.mutated:
                x = x.copy()
            copies.append(x)
        values = dict(zip(of.variables, copies))
        with scope(True, of.training):
            outputs = evaluate(of.typed, values, ctx=self.ctx, keys=self.keys)
        heads = [(y, g) for y, g in zip(outputs, gs) if g is not None and y._node is not None]
        wanted = [copies[i] for i in positions]
        grads_of_heads = [g for _, g in heads]
        found = grad_or_none([y for y, _ in heads], wanted, grads_of_heads, True, True, True)
        grads = dict(zip(positions, found))
        return [grads.get(i) for i in range(len(copies))]

    def release(self) -> None:
        self.parents = None
        self.kept = self.cells = []


def get_symbol(x: NDArray) -> Symbol:
    """The computation that `x` was recorded with. MXNetError if it was not recorded, if a backward
    has used the record up, and if a `Function` is in it, which is Python and no operation. Of
    arrays that an earlier backward has used up it knows no more: they are without history."""
    if tape.history(x) is None:
        raise MXNetError(
            "get_symbol: NDArray is not part of a computation graph. Did you forget to turn on "
            "recording? Compute it inside autograd.record() from arrays with attach_grad(), and "
            "pass retain_graph=True to a backward before this"
        )
    head, which = x._node
    steps = nodes_behind([head], None, True)[0][::-1]
    leaves = [step for step in steps if isinstance(step, Leaf)]
    entries: dict[Any, Entry] = {
        (leaf, 0): (Node(None, f"var{number}", site=leaf.site), 0)
        for number, leaf in enumerate(leaves)
    }
    nulls = count()
    for number, step in enumerate(step for step in steps if not isinstance(step, Leaf)):
        inputs = tuple([
            entries.get(parent) or (Node(None, f"null{next(nulls)}"), 0) for parent in step.parents
        ])  # fmt: skip
        for i, entry in enumerate(_write(step, inputs, f"node_{number}")):
            entries[step, i] = entry
    return Symbol((entries[head, which],))


def _write(step: Step, inputs: tuple[Entry, ...], name: str) -> list[Entry]:
    """The outputs of a step as values of the graph."""
    if isinstance(step, OpNode):
        attrs = {k: v for k, v in step.attrs.items() if k in step.op.attr_set}
        node = Node(step.op, name, inputs, attrs, site=step.site)
        return [(node, i) for i in range(len(step.outputs))]
    if isinstance(step, ProgramNode):  # the graph of a compiled call, with these inputs
        given = {(v, 0): entry for v, entry in zip(step.compiled.variables, inputs)}
        return transform(step.compiled.typed, forget_call, given)
    raise MXNetError(f"get_symbol: {step.name} is no operation that a Symbol could name")
