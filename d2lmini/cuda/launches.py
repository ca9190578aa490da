"""A program of a GPU as a list of launches, whose arguments are prepared.

Run as Python, a program costs the host about ten microseconds a statement: it looks up names, makes
views, checks layouts, packs numbers. All of that depends on shapes and dtypes alone. So a program is
run once on stand-ins for its arrays (`Place`), with a `Recorder` in the place of CuPy, which writes
down the launches of our kernels and the calls of cuBLAS. What else a program asks of CuPy cannot be
written down; then the program runs as Python, as before.

>>> import numpy as np
>>> from d2lmini.cuda.kernels.launch import Kernel
>>> double = Kernel("twice", 'extern "C" __global__ void twice(const float* x, float* y, const int n) {}')
>>> recorder = Recorder()
>>> x, y = recorder.place((2, 3), "float32"), recorder.place((2, 3), "float32")
>>> double(recorder, y.size, x, y.reshape(-1)[2:], 4)
>>> recorder.steps
[KernelStep(kernel=<Kernel twice(const float* x, float* y, int n)>, grid=(1, 1, 1), arrays=(View(0, 0, (2, 3), float32), View(1, 8, (4,), float32)), numbers=(4,))]
>>> _ = x + y                                 # by a generated kernel
>>> recorder.steps[1].kernel
<Kernel add_kernel(const float* x0, const float* x1, float* y0, int n)>
>>> x.sum()
Traceback (most recent call last):
    ...
d2lmini.cuda.launches.NotRecorded: add.reduce
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from d2lmini.context import Context
from d2lmini.cuda.kernels.elementwise import Operand, elementwise
from d2lmini.cuda.kernels.launch import THREADS, Kernel, Recording
from d2lmini.cuda.kernels.symbols import Body, names
from d2lmini.cuda.products import library_of
from d2lmini.graph.ir import Node, spec_of
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program
from d2lmini.ndarray.plan import CallPlan
from d2lmini.ops.symbolic import Proxy

#: The threads of a block of all launches.
BLOCK = (THREADS, 1, 1)
#: Bytes that a GPU moves in a microsecond, roughly.
BYTES_PER_US = 2e6
#: Arrays of fewer bytes are kept for the next results.
MOST_SPARE = 1 << 20


class NotRecorded(Exception):
    """What a program asks of CuPy besides launches."""


class Place(np.ndarray):
    """Stands for an array of a GPU: memory that nobody reads or writes, with a shape, strides and
    an address."""

    recorder: Any

    def __array_ufunc__(  # type: ignore[override]
        self, ufunc: Any, method: str, *args: Any, out: tuple = (None,), **options: Any
    ) -> Any:
        if method != "__call__" or options:
            raise NotRecorded(f"{ufunc.__name__}.{method}")
        return self.recorder.ufunc(ufunc.__name__, *args, out=out[0])

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise NotRecorded(func.__name__)

    def __array_finalize__(self, base: Any) -> None:
        self.recorder = getattr(base, "recorder", None)

    def __getitem__(self, key: Any) -> Any:
        """A view; a single element would be its value, which is not known here."""
        part = super().__getitem__(key)
        if not isinstance(part, Place):
            raise NotRecorded("a value")
        return part

    def __setitem__(self, *_args: Any) -> None:
        raise NotRecorded("assignment")

    def fill(self, value: Any) -> None:
        """Only with zeros, and all of the array."""
        if value or not self.flags.c_contiguous:
            raise NotRecorded("fill")
        self.recorder.zero(self)

    def astype(self, dtype: Any, copy: bool = True, **_: Any) -> Any:  # type: ignore[override]
        """Itself, where nothing is converted or copied; else a new array."""
        if self.dtype == dtype and not copy:
            return self
        return self.recorder.map(lambda x: x.astype(np.dtype(dtype)), [self], dtype)

    def copy(self, order: str = "C") -> Any:  # type: ignore[override]
        """A new array in C order."""
        return self.recorder.map(lambda x: x, [self], self.dtype)

    def reshape(self, *shape: Any, **_: Any) -> Any:  # type: ignore[override]
        """A view where there can be one, else a new array."""
        made = super().reshape(*shape)
        return made if np.may_share_memory(made.view(np.ndarray), self.view(np.ndarray)) else (
            self.copy().reshape(*shape)
        )  # fmt: skip


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise NotRecorded(name)

    return refuse


for _name in (
    "get item set take tolist __bool__ __complex__ __float__ __index__ __int__ __iter__ "
    "argmax argmin argpartition argsort choose compress dot flatten nonzero partition put repeat "
    "searchsorted sort tobytes trace"
).split():
    setattr(Place, _name, _refuse(_name))


class View(NamedTuple):
    """An array of a step: the number of the array that it lies in, how many bytes behind its begin,
    its shape, dtype and strides."""

    base: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]

    def __repr__(self) -> str:
        return f"View({self.base}, {self.offset}, {self.shape}, {self.dtype.name})"

    def of(self, xp: Any, base: Any) -> Any:
        """The array in the memory of `base`."""
        return xp.ndarray(self.shape, self.dtype, base.data + self.offset, self.strides)


class KernelStep(NamedTuple):
    """A launch of one of our kernels, all arrays before all numbers."""

    kernel: Kernel
    grid: tuple[int, int, int]
    arrays: tuple[View, ...]
    numbers: tuple[Any, ...]


class GemmStep(NamedTuple):
    """A call of cuBLAS: see `products.Library.gemm`."""

    call: Any
    turned: bool
    arrays: tuple[View, ...]
    dtype: np.dtype


class ZeroStep(NamedTuple):
    """An array is filled with zeros."""

    arrays: tuple[View, ...]
    nbytes: int


class CopyStep(NamedTuple):
    """An array is copied to another of its layout."""

    arrays: tuple[View, ...]
    nbytes: int


Step = KernelStep | GemmStep | ZeroStep | CopyStep


class Recorder(Recording):
    """Stands for CuPy while a program runs on places: writes down its launches.

    steps      the launches so far
    places     the arrays that were made, whose numbers the steps use
    constants  the contents of those that never change
    maps       how many launches are elementwise
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.places: list[Place] = []
        self.constants: dict[int, np.ndarray] = {}
        self.maps = 0

    def place(self, shape: Any, dtype: Any) -> Place:
        """A new array."""
        if not np.prod(shape):
            raise NotRecorded("an array without elements")
        made = np.empty(shape, dtype).view(Place)
        made.recorder = self
        self.places.append(made)
        return made

    empty = place

    def asarray(self, array: np.ndarray) -> Place:
        """A constant."""
        if isinstance(array, Place):
            return array
        made = self.place(array.shape, array.dtype)
        self.constants[len(self.places) - 1] = array
        return made

    def copyto(self, target: Place, source: Place) -> None:
        """A copy within the GPU."""
        if (
            target.dtype != source.dtype
            or not source.flags.c_contiguous
            or not target.flags.c_contiguous
            or target.shape != source.shape
        ):
            self.map(lambda x: x, [source], target.dtype, target)
            return
        self.steps.append(CopyStep((self._find(target), self._find(source)), target.nbytes))

    def zero(self, array: Place) -> None:
        """Fill with zeros."""
        self.steps.append(ZeroStep((self._find(array),), array.nbytes))

    def ascontiguousarray(self, array: Place) -> Place:
        """The array itself, where it is in C order, else a copy."""
        return array if array.flags.c_contiguous else array.copy()

    def ufunc(self, name: str, *args: Any, out: Any = None) -> Place:
        """A ufunc of arrays and numbers, by a generated kernel."""
        arrays = [a for a in args if isinstance(a, Place)]

        def formula(*given: Proxy) -> Proxy:
            rest = iter(given)
            return getattr(names, name)(*[next(rest) if isinstance(a, Place) else a for a in args])

        return self.map(formula, arrays, None if out is None else out.dtype, out, name)

    def map(
        self, formula: Callable[..., Proxy], arrays: Sequence[Place], dtype: Any = None,
        out: Place | None = None, name: str = "copy",
    ) -> Place:  # fmt: skip
        """A function of one element of each array, which broadcast; in `out` or a new array."""
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        if dtype is None:
            body = Body()
            dtype = formula(*[body.add_input("x", a.dtype) for a in arrays]).dtype
        place = out
        if place is None or not place.flags.c_contiguous or place.shape != shape:
            place = self.place(shape, dtype)
        operands = [
            Operand(a.dtype, a.shape, tuple(s // a.itemsize for s in a.strides)) for a in arrays
        ]
        made = elementwise(
            f"{name}_kernel", operands, shape, lambda *x: [formula(*x).astype(np.dtype(dtype))]
        )
        threads = -(-place.size // 4) if "Four<" in made.source else place.size
        made(self, threads, *arrays, place, place.size)
        if out is not None and out is not place:
            raise NotRecorded("a result in another layout")
        return place

    def __eq__(self, other: object) -> bool:  # tables by module keep one entry for all recorders
        return isinstance(other, Recorder)

    def __hash__(self) -> int:
        return hash(Recorder)

    def may_share_memory(self, a: Place, b: Place) -> bool:
        """True if the arrays lie in one."""
        return self._find(a).base == self._find(b).base

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if isinstance(getattr(np, name, None), np.ufunc):
            return partial(self.ufunc, name)
        return _refuse(name)

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        """Write down a launch."""
        arrays = tuple([self._find(a) for a in args if isinstance(a, Place)])
        if not all(isinstance(a, Place) for a in args[: len(arrays)]):
            raise NotRecorded("a number before an array")
        self.maps += "void element(" in kernel.source
        self.steps.append(KernelStep(kernel, grid, arrays, tuple(args[len(arrays) :])))

    def gemm(self, call: Any, turned: bool, a: Place, b: Place, out: Place) -> None:
        """Write down a call of cuBLAS."""
        self.steps.append(GemmStep(call, turned, tuple(map(self._find, (a, b, out))), out.dtype))

    def _find(self, array: Place) -> View:
        if min(array.strides, default=0) < 0:
            raise NotRecorded("an array that runs backwards")
        begin = _address(array)
        for number, place in enumerate(self.places):
            offset = begin - _address(place)
            if 0 <= offset < place.nbytes:
                return View(number, offset, array.shape, array.dtype, array.strides)
        raise NotRecorded("an array that is no part of the program")


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


# -- recorded --------------------------------------------------------------------------------------


class Launches:
    """The launches of a program for one lane, and what they need there.

    outputs       shape and dtype of each output
    scratch       memory for intermediate results, which all programs of the lane share
    run           function of a tuple of all arrays: inputs, outputs, scratch
    spares        arrays like each output whose memory is free; None where they are large
    spec          of the first output
    is_map        one elementwise launch: an output may overwrite an input, element by element
    predicted_us  of the GPU's work, roughly
    """

    __slots__ = ("is_map", "name", "outputs", "predicted_us", "run", "scratch", "spares", "spec")

    def __init__(self, lane: Any, program: Any):
        recorder, given = record(program)
        self.name = program.name
        places = recorder.places
        self.outputs = [(place.shape, place.dtype) for place in places[len(program.inputs) : given]]
        self.spec = program.specs[0]
        self.spares = [
            lane.spares.setdefault((shape, dtype), [])
            if prod(shape) * dtype.itemsize < MOST_SPARE
            else None
            for shape, dtype in self.outputs
        ]
        xp = lane.device.xp
        fixed = {
            number: xp.asarray(recorder.constants[number])
            if number in recorder.constants
            else lane.scratch(number - given, place.nbytes)
            for number, place in enumerate(places)
            if number >= given
        }
        numbers: dict[View, int] = {}
        for step in recorder.steps:
            for view in step.arrays:
                if view.base in fixed:
                    numbers.setdefault(view, given + len(numbers))
        self.scratch = tuple([view.of(xp, fixed[view.base]) for view in numbers])
        self.predicted_us = 2.0 + sum([place.nbytes for place in places]) / BYTES_PER_US
        self.is_map = recorder.maps == len(recorder.steps) == 1
        steps = [_bind(lane, step, numbers) for step in recorder.steps]
        self.run = steps[0] if len(steps) == 1 else partial(_run_all, steps)


def _run_all(steps: Sequence[Callable[[tuple], None]], arrays: tuple) -> None:
    for step in steps:
        step(arrays)


def record(program: Any) -> tuple[Recorder, int]:
    """The launches of a program, and how many of the arrays are its inputs and outputs: the others
    are scratch. NotRecorded if it asks for something else."""
    recorder = Recorder()
    arrays = [recorder.place(*spec_of((node, 0))) for node in program.inputs]
    outs = [recorder.place(*spec) for spec in program.specs]
    given = len(recorder.places)
    block = recorder.place(program.arena_nbytes, np.uint8) if program.arena_nbytes else None

    def arena(offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
        assert block is not None
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        return block[offset : offset + nbytes].view(dtype).reshape(shape)

    results = program.bind(arena, recorder)(arrays, outs, ())
    if any([result is not out for result, out in zip(results, outs)]):
        raise NotRecorded("a result in another place")
    return recorder, given


def program_of(plan: CallPlan, ctx: Context, arenas: Arenas) -> Program:
    """The call of an op as a program."""
    op = plan.op
    names = op.input_names if not op.variadic else [f"x{i}" for i in range(len(plan.inputs))]
    variables = [Node(None, name, specs=(spec,)) for name, spec in zip(names, plan.inputs)]
    node = Node(op, "y", tuple([(v, 0) for v in variables]), plan.attrs, plan.outputs)
    results = simplify([(node, i) for i in range(len(plan.outputs))])
    return Program(plan.name, variables, results, ctx, arenas)


def _bind(lane: Any, step: Step, numbers: dict[View, int]) -> Callable[[tuple], None]:
    """A step as a function of all arrays: the given ones, and those of these numbers."""
    take = _taker(lane.device.xp, step.arrays, numbers)
    stream = lane.stream.handle
    if isinstance(step, ZeroStep):
        nbytes = step.nbytes

        def zero(arrays: tuple) -> None:
            take(arrays)[0].data.memset_async(0, nbytes, stream)

        return zero
    if isinstance(step, CopyStep):
        nbytes = step.nbytes

        def copy(arrays: tuple) -> None:
            target, source = take(arrays)
            target.data.copy_from_device_async(source.data, nbytes, stream)

        return copy
    if isinstance(step, GemmStep):
        gemm = library_of(lane.device.xp).prepare(lane, step.call, step.turned, step.dtype)
        return lambda arrays: gemm(*take(arrays))
    function, grid = step.kernel.function_on(lane.device.xp), step.grid
    rest = step.kernel.pack(lane.device.xp, step.numbers)
    return lambda arrays: function(grid, BLOCK, take(arrays) + rest, 0, stream)


def _taker(xp: Any, views: Sequence[View], numbers: dict[View, int]) -> Callable[[tuple], tuple]:
    """The function that takes the arrays of a step from all arrays, as a tuple."""
    places = [numbers.get(view, view.base) for view in views]
    parts = [None if view in numbers or not view.offset else view for view in views]
    if not any(parts):
        return (
            itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
        )

    def take(arrays: tuple) -> tuple:
        return tuple(
            [
                arrays[place] if part is None else part.of(xp, arrays[place])
                for place, part in zip(places, parts)
            ]
        )

    return take
