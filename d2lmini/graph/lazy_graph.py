"""What a lazy scope records: steps that have not been taken, and what they are to read.

A `Step` is one call of an op. It holds on to what it reads, steps or contents of memory, and to
nothing that it makes: the recorder knows weakly which memory a step's outputs belong to. So a
result that nobody can read any more takes its step with it, and dead code is gone before anybody
looks for it.

`Deed` is a number of steps that are to be taken together, written down so that two of the same
form are equal: `key` says the ops, their attributes and who reads what, and no arrays. For a key
one program is compiled; a loop that records the same thing again compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from d2lmini.context import Context
from d2lmini.device.storage import Chunk
from d2lmini.ndarray.apply import Operand
from d2lmini.ops.core import Op, Spec, registry
from d2lmini.symbol.naming import NameManager, operator_hint
from d2lmini.symbol.node import Draw, Entry, Node

_numbers = count()


class Source:
    """The contents of a chunk, as they will be once all that was pushed has run. One that is
    overwritten has other contents, and another Source."""

    __slots__ = ("chunk", "__weakref__")

    def __init__(self, chunk: Chunk):
        self.chunk = chunk


class Step:
    """One call of an op that was recorded.

    inputs   what each input reads, None for one that was left out
    attrs    attributes, with the random key that was drawn and the mode at the call
    specs    of each output
    number   counts up as steps are recorded
    site     the user's line that made it
    scope    who counts it
    results  once it was pushed: where its outputs lie, as far as anybody needs them; it reads
             nothing then
    """

    __slots__ = ("attrs", "ctx", "inputs", "number", "op", "results", "scope", "site", "specs",
                 "__weakref__")  # fmt: skip

    def __init__(
        self, op: Op, inputs: tuple[Reading | None, ...], attrs: dict[str, Any],
        specs: tuple[Spec, ...], ctx: Context, site: Any, scope: Any,
    ):  # fmt: skip
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        for name, value in attrs.items():
            if isinstance(value, np.generic):  # in graphs numbers are plain ones
                self.attrs = {**self.attrs, name: value.item()}
        self.specs = specs
        self.ctx = ctx
        self.site = site
        self.scope = scope
        self.number = next(_numbers)
        self.results: list[Source | None] | None = None


class Reading(NamedTuple):
    """What is read: a source, or an output of a step; of it `spec`, from element `offset` on, or
    the whole."""

    origin: Source | Step
    output: int
    offset: int | None
    spec: Spec

    @property
    def now(self) -> Reading:
        """The same; from memory, if the step was pushed meanwhile."""
        origin = self.origin
        if isinstance(origin, Step) and origin.results is not None:
            source = origin.results[self.output]
            assert source is not None, "a value that is needed was not kept"
            return Reading(source, 0, self.offset, self.spec)
        return self


def readings(step: Step) -> list[Reading]:
    """What a step reads."""
    return [reading.now for reading in step.inputs if reading is not None]


def cone(roots: Iterable[Step]) -> set[Step]:
    """The steps that are to be taken for these: those that were not pushed, without end."""
    found = {step for step in roots if step.results is None}
    path = list(found)
    while path:
        for reading in path.pop().inputs:
            if reading is not None:
                step = reading.origin
                if isinstance(step, Step) and step.results is None and step not in found:
                    found.add(step)
                    path.append(step)
    return found


# -- steps written down ----------------------------------------------------------------------------

#: What a row reads: (row, which output) or (-1, number of an operand); offset; spec.
Ref = tuple[int, int, "int | None", Spec]


class Deed:
    """Steps to be taken together, inputs before those who use them, and what shall come out.

    rows      (step, what it reads)
    operands  memory that they read
    outputs   (row, which output)
    key       equal for what one program can do
    keys      the random keys in the order in which they were drawn
    """

    __slots__ = ("key", "keys", "operands", "outputs", "rows")

    def __init__(self, steps: Iterable[Step], outputs: Sequence[tuple[Step, int]]):
        ordered = sorted(steps, key=lambda step: step.number)
        places = {step: n for n, step in enumerate(ordered)}
        found: dict[tuple[Chunk, int | None, Spec], int] = {}
        self.rows: list[tuple[Step, list[Ref | None]]] = []
        key: list[Any] = []
        for step in ordered:
            refs: list[Ref | None] = []
            for reading in step.inputs:
                if reading is None:
                    refs.append(None)
                    key.append(None)
                    continue
                origin, i, offset, spec = reading.now
                if isinstance(origin, Source):
                    i = found.setdefault((origin.chunk, offset, spec), len(found))
                    refs.append((-1, i, None, spec))
                else:
                    refs.append((places[origin], i, offset, spec))
                key.append((*refs[-1][:3], id(spec)))  # type: ignore[index]
            self.rows.append((step, refs))
            key.append(step.op)
            key += words_of(step.attrs)
        self.operands: list[Operand] = list(found)
        self.outputs = [(places[step], i) for step, i in outputs]
        self.key = (*key, *self.outputs)
        self.keys = [step.attrs["rng"] for step in ordered if step.op.random]

    @property
    def form(self) -> tuple:
        """The key without its numbers."""
        return tuple([None if type(each) in (int, float) else each for each in self.key])

    def graph(self) -> tuple[list[Node], list[Entry]]:
        """The same as a typed graph: variables for the operands, and the outputs."""
        variables = [
            Node(None, f"x{i}", specs=(spec,)) for i, (_, _, spec) in enumerate(self.operands)
        ]
        nodes: list[Node] = []
        drawn = 0
        with NameManager() as names:
            for step, refs in self.rows:
                inputs: list[Entry | None] = []
                for ref in refs:
                    if ref is None:
                        inputs.append(None)
                    elif ref[0] < 0:
                        inputs.append((variables[ref[1]], 0))
                    else:
                        inputs.append(_part((nodes[ref[0]], ref[1]), ref[2], ref[3], names))
                attrs = step.attrs
                if step.op.random:
                    attrs = {**attrs, "rng": Draw(drawn)}
                    drawn += 1
                name = names.get(None, operator_hint(step.op.name))
                nodes.append(Node(step.op, name, tuple(inputs), attrs, step.specs, site=step.site))
        return variables, [(nodes[n], i) for n, i in self.outputs]


def words_of(attrs: dict[str, Any]) -> list[Any]:
    """The attributes of a step as part of a key. With their types: 1, 1.0 and True are equal, and
    do not mean the same."""
    words: list[Any] = []
    for name, value in attrs.items():
        if name != "rng":
            words.append(type(value))
            if type(value) is float and value == 0:
                value = repr(value)  # 0.0 and -0.0 are equal, too
            try:
                hash(value)
            except TypeError:
                # Numbers in an array do not all show; slices cannot be hashed before Python 3.12.
                value = object() if isinstance(value, np.ndarray) else repr(value)
            words.append(value)
    return words


def _part(entry: Entry, offset: int | None, spec: Spec, names: NameManager) -> Entry:
    """A view of a value, as nodes."""
    node, i = entry
    assert node.specs is not None
    whole = node.specs[i]
    if whole.size != spec.size:
        entry = _call("reshape", entry, Spec((whole.size,), spec.dtype), names, shape=(whole.size,))
        begin = offset or 0
        part = Spec((spec.size,), spec.dtype)
        entry = _call("slice_axis", entry, part, names, axis=0, begin=begin, end=begin + spec.size)
        whole = part
    if whole.shape != spec.shape:
        entry = _call("reshape", entry, spec, names, shape=spec.shape)
    return entry


def _call(op: str, entry: Entry, spec: Spec, names: NameManager, **attrs: Any) -> Entry:
    attrs = {**registry[op].defaults, **attrs}
    return Node(registry[op], names.get(None, op), (entry,), attrs, (spec,)), 0
