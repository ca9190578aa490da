"""A composed op as a program: what a call on arrays runs that comes often (`ops/composed.py`).

The program is that of a graph with one node, the call; `inline.py` writes out its formula.

>>> import numpy as np
>>> from d2lmini import cpu
>>> from d2lmini.ops.core import registry
>>> softmin = registry["softmin"]
>>> call = compiled_formula(softmin, (Spec((2, 3), "float32"),), softmin.defaults, cpu())
>>> call.run([np.zeros((2, 3), "float32")])[0].round(3)
array([[0.333, 0.333, 0.333],
       [0.333, 0.333, 0.333]], dtype=float32)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from d2lmini.context import Context, cache_releasers
from d2lmini.device.devices import device_of, find_known
from d2lmini.graph.ir import Inputs, Node
from d2lmini.graph.lower import expand
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program
from d2lmini.ops.composed import Composed, rounded_specs
from d2lmini.ops.core import Spec
from d2lmini.ops.kernels import needs_copies

#: So many programs are kept, the last ones that were asked for.
MOST = 512


class Formulas:
    """The programs of composed ops on one device. They share arenas, and end with the device."""

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.arenas = Arenas(ctx)
        self._programs: OrderedDict[tuple, FormulaProgram] = OrderedDict()

    def find(
        self, op: Composed, specs: tuple[Spec | None, ...], attrs: dict[str, Any]
    ) -> FormulaProgram:
        """The program of a call, which equal calls share."""
        key = op, specs, *attrs.items(), str(attrs)  # the text tells -0.0 from 0.0, 1 from True
        found = self._programs.get(key)
        if found is None:
            found = FormulaProgram(op, specs, attrs, self.ctx, self.arenas)
            self._programs[key] = found
            if len(self._programs) > MOST:
                self._programs.popitem(last=False)
        return found


def compiled_formula(
    op: Composed, specs: tuple[Spec | None, ...], attrs: dict[str, Any], ctx: Context
) -> FormulaProgram:
    """The program of a call of a composed op on arrays of these specs."""
    device = device_of(ctx)
    if device.formulas is None:
        device.formulas = Formulas(ctx)
    return device.formulas.find(op, specs, attrs)  # type: ignore[no-any-return]


def _release(ctx: Context) -> None:
    """Let go of the arenas on a device that are kept for later calls."""
    device = find_known(ctx)
    if device is not None and device.formulas is not None:
        device.formulas.arenas.release()


cache_releasers.insert(0, _release)  # before the pool from which they have their memory


class FormulaProgram:
    """A composed op as a program for arrays of certain specs."""

    def __init__(
        self, op: Composed, specs: Sequence[Spec | None], attrs: dict[str, Any], ctx: Context,
        arenas: Arenas,
    ):  # fmt: skip
        variables = [
            None if spec is None else Node(None, name, specs=(spec,))
            for name, spec in zip(op.input_names, specs)
        ]
        is_rounded = needs_copies(op, filter(None, specs))
        outputs = tuple(rounded_specs(op, specs, attrs)) if is_rounded else None
        inputs: Inputs = tuple([None if node is None else (node, 0) for node in variables])
        results = expand(Node(op, "y", inputs, attrs, outputs), inputs, "")
        self.arenas = arenas
        given = [node for node in variables if node is not None]
        self.program = Program(op.name, given, simplify(results), ctx, arenas)

    def run(self, arrays: Sequence[Any], out: Any = None, xp: Any = None) -> list[Any]:
        """The results for these arrays, computed in the places `out` where these are free. xp: what
        computes, if that is not the module of the device (see `cuda.recorder`)."""
        program = self.program
        given = [a for a in arrays if a is not None]
        places = program.no_outputs
        if out is not None:
            outs = out if isinstance(out, tuple) else (out,)
            overlap = (xp or program.xp).may_share_memory
            shared = [any([overlap(y, a) for a in given]) for y in outs]
            places = [None if is_shared else y for y, is_shared in zip(outs, shared)]
            places += program.no_outputs[len(places) :]
        if xp is not None and xp is not program.xp:
            return xp.run_program(program, given, places)  # type: ignore[no-any-return]
        return program.run(given, places, ())

    def kernel(self) -> Callable[..., Any]:
        """The program of an op with one output as a kernel, for calls under the engine's lock."""
        run, no_outputs = self.arenas.function(self.program), self.program.no_outputs
        return lambda xp, *arrays: run(arrays, no_outputs, ())[0]
