"""A Program: a typed graph as a Python function, whose source can be read.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.relu(sym.negative(x, name="a"), name="y")
>>> variables, outputs = infer_types(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> program = Program("net", list(variables.values()), outputs)
>>> import numpy as np
>>> program.run([np.array([-1, 0, 1], np.float32)], [None], [])
[array([1., 0., 0.], dtype=float32)]
>>> print(program)
def net(xp, arena):
    maximum, negative = xp.maximum, xp.negative
    _0 = level(xp, float32, 0, (3,))
<BLANKLINE>
    def run(arrays, places, keys):
        (x,) = arrays
        y = given_or_new(xp, places[0], (3,), float32)
        negative(x, out=y)  # a
        maximum(y, _0, out=y)
        return [y]
<BLANKLINE>
    return run

Composed ops are written out (`inline`), the graph is brought into pieces (`lower`), these into
statements (`fusion`), every value gets a place (`layout`, `plan`), and the whole is written down
(`codegen`) and compiled (`code`).
"""

from __future__ import annotations

import linecache
import traceback
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.device.devices import device_of
from d2lmini.engine.failure import OutOfMemoryError, OutOfRangeError
from d2lmini.graph.codegen import Writer
from d2lmini.graph.ir import Entry, Node, spec_of, with_order
from d2lmini.graph.layout import cost_of
from d2lmini.graph.lower import inlined
from d2lmini.graph.plan import Arenas, Run
from d2lmini.graph.text import code_of
from d2lmini.ops.kernels import kind_of

_serial = count()


class ProgramCost(NamedTuple):
    """What a call takes: arithmetic, bytes read and written by its statements, memory for
    intermediate results, and how many of the statements are fused groups."""

    flops: float
    nbytes: float
    arena_nbytes: int
    groups: int


class Program:
    """A typed graph, compiled.

    name          what it is called in its source and in messages
    inputs        its variables, in the order of the arrays that `run` takes
    outputs       what it computes
    specs         shape and dtype of each output
    mutated       positions of the inputs that it changes besides
    no_outputs      `places` of a call whose outputs all go to new memory
    source        the function as text
    plan          where intermediate results lie in the arena
    arena_nbytes  how large an arena it needs
    cost          of one call
    predicted_us  predicted run time
    xp            the array module of its device
    replays       its recordings as CUDA graphs, where such are wanted; see `cuda.launches`
    arenas        where its calls find memory for intermediate results

    `ctx` is where it will run. Programs that are given the same `arenas` share those; without, it
    has some of its own.
    """

    def __init__(
        self, name: str, inputs: Sequence[Node], outputs: Sequence[Entry],
        ctx: Context | None = None, arenas: Arenas | None = None,
    ):  # fmt: skip
        self._ctx = ctx or cpu()
        self.xp = device_of(self._ctx).xp
        outputs = with_order(inlined(outputs, kind_of(self.xp)))
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.specs = [spec_of(entry) for entry in outputs]
        self.no_outputs: list[np.ndarray | None] = [None] * len(outputs)
        self.mutated = [i for i, node in enumerate(self.inputs) if node in outputs.changed]
        writer = Writer(name, self.inputs, outputs, self.xp is not np)
        self.source = writer.text
        self.plan = writer.layout.plan
        costs = [cost_of(writer.layout, statement) for statement in writer.statements]
        flops, nbytes, us = map(sum, zip(*costs)) if costs else (0.0, 0.0, 0.0)
        self.predicted_us: float = us
        groups = sum(statement.shape is not None for statement in writer.statements)
        self.cost = ProgramCost(flops, nbytes, self.plan.nbytes, groups)
        self._nodes = writer.nodes
        # Empty arrays have a place too, though it has no bytes.
        self.arena_nbytes = max(self.plan.nbytes, 1) if self.plan.lives else 0
        self.arenas = arenas or Arenas(self._ctx)
        self.replays: Any = None
        self._file = f"<program {name} {next(_serial)}>"
        lines = [line + "\n" for line in self.source.splitlines()]
        linecache.cache[self._file] = len(self.source), None, lines, self._file  # for tracebacks
        weakref.finalize(self, linecache.cache.pop, self._file, None)
        exec(code_of(self.source, self._file, writer.numbers.values()), writer.namespace)
        self._make: Callable[[Any, Any], Run] = writer.namespace[writer.name]

    def run(
        self, arrays: Sequence[np.ndarray], places: Sequence[np.ndarray | None], keys: Sequence[Any]
    ) -> list[np.ndarray]:
        """Compute the outputs: where there is a place into it, else into new memory. No result
        shares memory with an input or another result; no place may share memory with an input.

        `arrays` are C-contiguous. Several calls may run at once. An error names the node in which
        it happened, and the line that made that.
        """
        arena = self.arenas.take(self.arena_nbytes)
        try:
            return arena.function(self)(arrays, places, keys)
        except Exception as problem:
            raise self._explain(problem) from problem
        finally:
            self.arenas.give_back(arena)

    def bind(self, arena: Callable[[int, Any, Any], Any] | None, xp: Any = None) -> Run:
        """The function for an arena: with names for what will lie there. `xp` stands for the array
        module of the device."""
        return self._make(xp or self.xp, arena)

    def _explain(self, problem: Exception) -> Exception:
        """The error with the name of the node in whose line it came up."""
        lines = [
            line
            for frame, line in traceback.walk_tb(problem.__traceback__)
            if frame.f_code.co_filename == self._file and line in self._nodes
        ]
        if lines:
            node = self._nodes[lines[-1]]
            kind = MXNetError
            if isinstance(problem, MemoryError):
                kind = OutOfMemoryError
            elif isinstance(problem, IndexError):
                kind = OutOfRangeError
            text = str(problem)
            if not isinstance(problem, (MXNetError, MemoryError, IndexError)):
                text = f"{type(problem).__name__}: {text}"
            return kind(node.locate(text))
        return problem

    def __str__(self) -> str:
        return self.source
