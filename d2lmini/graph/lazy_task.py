"""What was recorded, as one task of the engine.

It runs as a program. Where that fails, or where some of what it reads is missing, the steps are
taken one by one instead: each value that can be computed is, and the others have the error of the
one step that failed, as if each had been a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.engine.core import Var
from d2lmini.engine.failure import Failure
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.ir import Node, compute, interpret
from d2lmini.graph.lazy_graph import Subgraph
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of


class LazyTask(ProgramTask):
    """A deed as a task. singly: take its steps one by one, the program is for other numbers;
    began: has it run, or is it running?"""

    __slots__ = ("began", "deed", "failures", "singly")

    in_steps = True  # the program has the outputs already, whose values Ctrl-C must not take away
    counts = 0  # the versions were counted as its steps were recorded

    def __init__(
        self, program: Program, singly: bool, deed: Subgraph, outputs: list[Operand], ctx: Context
    ):
        super().__init__(program, deed.operands, outputs, ctx, deed.keys)
        self.site = deed.rows[-1][0].site
        self.deed = deed
        self.singly = singly
        self.began = False
        self.failures: dict[Var, Failure] | None = None

    def prepare(self) -> None:
        """As for any task; but it is not skipped where a value is missing, for it does not need
        every one for everything."""
        super().prepare()
        self.reads = ()

    def run(self) -> None:
        self.began = True
        if not self.singly and not any(map(self._missing, self.inputs)):
            try:
                super().run()
                return
            except Exception:
                self.failures = None  # whose it is, the steps will say
        self.failures = run_quietly(self._one_by_one)

    def keeps(self, var: Var) -> bool:
        return any(chunk is var for chunk, _, _ in self.inputs)

    def _missing(self, operand: Operand) -> Failure | None:
        """Why an input's value is missing, if it is."""
        error = operand[0].error
        return (
            error.origin if error is not None and error.blocks(engine.current, self.seq) else None
        )

    def _one_by_one(self) -> dict[Var, Failure]:
        """Take the steps singly; which outputs are missing, and why."""
        xp = device_of(self.ctx).xp
        variables, entries = self.deed.graph(None)
        operands = dict(zip(variables, self.inputs))

        def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
            """The outputs of a node, or for each of them why it is missing."""
            if node.op is None:
                operand = operands[node]
                return [self._missing(operand) or array_of(operand)]
            specs = node.specs or ()
            failure = next((x for x in inputs if isinstance(x, Failure)), None)
            if failure is None:
                try:
                    results = compute(xp, node, inputs, self.keys)
                    pairs = zip(results, specs)
                    return [xp.ascontiguousarray(y).reshape(spec.shape) for y, spec in pairs]
                except Exception as problem:
                    failure = Failure(node.op.name, node.site, problem)
            return [failure] * len(specs)

        failures: dict[Var, Failure] = {}
        results = interpret(entries, call)
        for result, (node, _), operand in zip(results, entries, self.outputs):
            chunk, _, spec = operand
            if isinstance(result, Failure):
                failures[chunk] = result
                continue
            try:
                fresh = chunk.data is None
                place = chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(operand)
                xp.copyto(place, result, casting="same_kind")
            except Exception as problem:
                assert node.op is not None
                failures[chunk] = Failure(node.op.name, node.site, problem)
        return failures
