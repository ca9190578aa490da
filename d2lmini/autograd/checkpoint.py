"""Activation checkpointing: keep the inputs of a function, and run it again in backward.

>>> from d2lmini import autograd, nd
>>> w = nd.array([2.0])
>>> w.attach_grad()
>>> def f(x):
...     print("f runs")
...     return (w * x).tanh() * x
>>> x = nd.array([0.5])
>>> x.attach_grad()
>>> with autograd.record():
...     y = autograd.checkpoint(f, x)
f runs
>>> y.backward()
f runs

The first run is recorded like any other. From its nodes `checkpoint` reads what the outputs depend
on outside the function: its inputs, parameters, any recorded array that it uses. The outer tape
gets one node with these parents. The nodes of the run, and what they have saved, are freed as soon
as the function has returned. For its gradients the node runs the function again, recorded, and
walks that tape back as far as to the parents. What arrives there is a part of their gradients in
the outer walk, in the same order as without `checkpoint`. So `grad_req`, a parameter that several
functions use, and gradients of gradients work as ever, to the bit.

T. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); the interface is that of
`torch.utils.checkpoint`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

from d2lmini.autograd import tape
from d2lmini.autograd.backward_pass import Parts, walk_between
from d2lmini.autograd.scopes import refuse_in_trace, scope
from d2lmini.autograd.tape import Entry, Leaf, Node
from d2lmini.base import MXNetError, callsite
from d2lmini.base.scopes import swapping
from d2lmini.context import current_context
from d2lmini.ops import random_state
from d2lmini.ops.core import Value, modes


def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
    """function(*inputs), whose intermediate results are computed again in backward instead of being
    kept.

    inputs: anything; NDArrays may be nested in lists, tuples and dicts. The function returns an
    NDArray, or several so nested. Gradients reach the inputs and all other arrays with a history
    that the function uses, such as parameters. Outside `record` this is function(*inputs).

    Memory: a step of k checkpointed functions keeps their inputs, and the intermediate results of
    one function at a time. If function i takes x_i bytes and keeps a_i bytes without `checkpoint`,
    sum(x_i) + max(a_i) bytes are kept in place of sum(x_i + a_i). The price is a second forward:
    forward + forward + backward FLOPs, 4/3 of a step where backward costs two forwards.

    The second run draws the same random numbers, in the same training mode and with the same
    default context, so results and gradients are equal to the bit to those without `checkpoint`. It
    does not change moving statistics (BatchNorm's) again. Anything else the function does besides
    computing its outputs happens in each run. Each backward that retains the graph runs it again.

    A net that is compiled with the call inside runs eagerly; its own means to the same end is
    `hybridize(backward_do_mirror=True)`. Inside a checkpointed function nets may be hybridized.

    The inputs may be overwritten before backward: the second run gets them as they were. MXNetError
    in backward if another array that the function reads was overwritten since, and if the second
    run differs from the first: in the arrays it uses, in the shapes it returns, in what it draws.
    """
    refuse_in_trace("autograd.checkpoint (a compiled net has hybridize(backward_do_mirror=True))")
    if not callable(function):
        raise TypeError(
            "checkpoint: the first argument must be a function, got "
            f"{type(function).__name__}; write checkpoint(f, x), not checkpoint(f(x))"
        )
    if not modes.recording:
        return function(*inputs)
    # Other handles: a program may attach another gradient to its own, and what the function reads
    # through its own is no input.
    own = _arrays(inputs)
    inputs = _map_arrays(inputs, lambda x: x._alias(tape.history(x)))
    given = _arrays(inputs)
    first = Run(given)
    with swapping(modes, "noting", first), random_state.noting() as keys:
        result = function(*inputs)
    result = _map_arrays(result, lambda y: next((x for x, z in zip(own, given) if y is z), y))
    outs = _arrays(result)
    shown: dict[Entry, int] = {}  # the outputs made here, and their places among all
    for place, y in enumerate(outs):
        if y._node is not None and not first.is_outside(y._node[0]):
            shown.setdefault(y._node, place)
    if shown:
        node = CheckpointNode(function, inputs, first, keys, outs, shown)
        numbers = {entry: (node, i) for i, entry in enumerate(shown)}
        for y in outs:
            y._node = numbers.get(y._node, y._node)
    return result


class Run:
    """A run of a function: where it begins on the tape, and what it reads from outside.

    outer  the first run of a function that calls this one
    begin  the order of its first node on the tape
    given  the arrays that the function was given, each with its cell (`Chunk`)
    reads  (memory, offset, spec) -> cell, for all else that was read; weak references, so what the
           function itself made and let go of is gone
    """

    def __init__(self, given: Sequence[Any] = ()) -> None:
        self.outer = modes.noting
        self.begin = next(tape._order)
        self.given = [(x, tape.cell_of(x)) for x in given]
        self.reads: dict[tuple[Any, int | None, Any], list[Any]] = {}

    def note(self, inputs: Sequence[Any], changed: Sequence[int] = ()) -> None:
        """A call reads these arrays, but for those that it has `changed`."""
        for i, x in enumerate(inputs):
            if x is None or i in changed or any([x is y for y, _ in self.given]):
                continue
            if x._node is None or self.is_outside(x._node[0]):
                key = weakref.ref(x._chunk), x._offset, x._spec
                self.reads.setdefault(key, tape.cell_of(x))
        if self.outer is not None:
            self.outer.note(inputs, changed)

    def is_outside(self, node: Node) -> bool:
        """True if the node was made before the run. A leaf always is outside: a parameter may get
        its arrays in the run."""
        return node.order < self.begin or isinstance(node, Leaf)

    def parents_of(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries outside the run that `entries` depend on, in the order of the tape."""
        found: set[Entry] = set()
        todo = [node for node, _ in entries]
        seen = set(todo)
        while todo:
            for parent in todo.pop().parents or ():
                if parent is None or parent[0].parents is None:
                    continue
                if self.is_outside(parent[0]):
                    found.add(parent)
                elif parent[0] not in seen:
                    seen.add(parent[0])
                    todo.append(parent[0])
        return sorted(found, key=lambda entry: (entry[0].order, entry[1]))


class CheckpointNode(Node):
    """A call of a checkpointed function on the tape.

    function, inputs  what to call again
    first     the first run: what it was given, and what else it read
    keys      what it drew with
    shown     the places of this node's outputs among all arrays that the function returns
    training, default  the mode, and the context of arrays made without one
    """

    __slots__ = ("default", "first", "function", "inputs", "keys", "shown", "training")

    name = "checkpoint"
    placing = True

    def __init__(
        self, function: Callable[..., Any], inputs: tuple, first: Run,
        keys: list[random_state.Key], outs: Sequence[Any], shown: dict[Entry, int],
    ):  # fmt: skip
        parents = tuple(first.parents_of(shown))
        places = list(shown.values())
        super().__init__(parents, [outs[i]._spec for i in places], outs[places[0]]._ctx)
        self.function: Any = function
        self.inputs: Any = inputs
        self.first: Any = first
        self.keys = keys
        self.shown = places
        self.training = modes.training
        self.default = current_context()

    def walk(
        self, parts: Parts, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any
    ) -> None:
        run = Run()
        heads = self._run_again(run)
        for head, i in zip(heads, range(len(gs))):  # no other name may keep a gradient alive
            if gs[i] is not None:
                parts.setdefault(head, []).append(gs[i])
        gs.clear()  # the walk frees each gradient once it has gone further back
        heads = [head for head in heads if head in parts]
        known = set(self.parents)
        for node, i in run.parents_of(heads):
            if (node, i) not in known:
                raise self._differs(
                    f"it used a recorded array ({node.name}, shape {node.outputs[i].shape}) that "
                    "it did not use before"
                )
        wanted = {parent: places[i] for i, parent in enumerate(self.parents) if needs[i]}
        walk_between(parts, heads, {node for node, _ in self.parents}, wanted, graph)

    def _run_again(self, run: Run) -> list[Entry]:
        """Run the function, recorded; where its outputs stand on the tape. MXNetError unless it
        returns what it returned before."""
        for (memory, offset, spec), cell in self.first.reads.items():
            chunk = memory()
            is_other = cell[0] is None or (offset is None and chunk and cell[0] != chunk.version)
            if chunk is not None and is_other:
                raise tape.overwritten(self, spec, cell)
        values = iter([tape.value_of(self, x, cell) for x, cell in self.first.given])
        inputs = _map_arrays(self.inputs, lambda x: next(values))
        keys = random_state.repeating(self.keys)
        with swapping(modes, "repeats", True), swapping(modes, "noting", None), keys:
            with scope(True, self.training), self.default:
                result = callsite.forgotten(self.function, *inputs)
        outs = _arrays(result)
        heads = []
        for i, spec in zip(self.shown, self.outputs):
            if i >= len(outs) or outs[i]._spec != spec:
                got = outs[i]._spec if i < len(outs) else "none"
                raise self._differs(f"array {i} that it returned was {spec} before, now {got}")
            entry = tape.history(outs[i])
            if entry is None or run.is_outside(entry[0]):
                raise self._differs(f"array {i} that it returned was not computed in this run")
            heads.append(entry)
        return heads

    def _differs(self, how: str) -> MXNetError:
        name = getattr(self.function, "__name__", repr(self.function))
        return MXNetError(
            f"checkpoint: backward ran {name} again, and {how}; the function must do the same in "
            f"each run\n  checkpoint called at  {callsite.describe(self.site)}"
        )

    def release(self) -> None:
        self.parents = None
        self.function = self.first = None
        self.inputs = ()


def _map_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with function(x) in place of each array x in it."""
    if isinstance(value, Value):
        return function(value)
    if isinstance(value, dict):
        mapped = copy(value)
        mapped.update({k: _map_arrays(v, function) for k, v in value.items()})
        return mapped
    if isinstance(value, (list, tuple)):
        parts = [_map_arrays(v, function) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _arrays(value: Any) -> list[Any]:
    """The arrays in `value`, in order."""
    found: list[Any] = []
    _map_arrays(value, found.append)
    return found
