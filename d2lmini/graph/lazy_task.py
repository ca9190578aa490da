"""What was recorded, as one task of the engine.

It runs as a program. Where that fails, or where some of what it reads is missing, the steps are
taken one by one instead: each value that can be computed is, and the others have the error of the
one step that failed, as if each had been a task.
"""

from __future__ import annotations

from typing import Any

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.quiet import run_quietly
from d2lmini.engine.core import Var
from d2lmini.engine.failure import Failure
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.lazy_graph import Deed, Ref
from d2lmini.graph.program import Program
from d2lmini.ndarray.apply import Operand, array_of
from d2lmini.ops.kernels import kind_of


class LazyTask(ProgramTask):
    """A deed as a task. singly: take its steps one by one, the program is for other numbers;
    began: has it run, or is it running?"""

    __slots__ = ("began", "deed", "failures", "singly")

    in_steps = True  # the program has the outputs already, whose values Ctrl-C must not take away
    counts = 0  # the versions were counted as its steps were recorded

    def __init__(
        self, program: Program, singly: bool, deed: Deed, outputs: list[Operand], ctx: Context
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
        kind = kind_of(xp)
        values: list[Any] = []  # of each step: its outputs, or why there are none
        for step, refs in self.deed.rows:
            inputs = [None if ref is None else self._value(xp, ref, values) for ref in refs]
            failure = next((x for x in inputs if isinstance(x, Failure)), None)
            if failure is None:
                try:
                    result = step.op.kernel_for(kind)(xp, *inputs, **step.attrs)
                    several = isinstance(result, (tuple, list))
                    values.append(list(result) if several else [result])
                    continue
                except Exception as problem:
                    failure = Failure(step.op.name, step.site, problem)
            values.append(failure)
        failures: dict[Var, Failure] = {}
        for (n, i), operand in zip(self.deed.outputs, self.outputs):
            chunk, _, spec = operand
            if isinstance(values[n], Failure):
                failures[chunk] = values[n]
                continue
            try:
                fresh = chunk.data is None
                place = chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(operand)
                xp.copyto(place, xp.asarray(values[n][i]).reshape(spec.shape), casting="same_kind")
            except Exception as problem:
                step = self.deed.rows[n][0]
                failures[chunk] = Failure(step.op.name, step.site, problem)
        return failures

    def _value(self, xp: Any, ref: Ref, values: list[Any]) -> Any:
        n, i, offset, spec = ref
        if n < 0:
            operand = self.inputs[i]
            return self._missing(operand) or array_of(operand)
        value = values[n]
        if isinstance(value, Failure):
            return value
        array = xp.ascontiguousarray(value[i])
        if array.size != spec.size:
            array = array.reshape(-1)[offset or 0 :][: spec.size]
        return array.reshape(spec.shape)
