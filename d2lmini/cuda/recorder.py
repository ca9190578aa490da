"""Writing down the launches of a program: the program runs on stand-ins for its arrays.

Run as Python, a program costs the host about ten microseconds a statement: it looks up names, makes
views, checks layouts, packs numbers. All of that depends on shapes and dtypes alone. So a program is
run once on stand-ins for its arrays (`Place`), with a `Recorder` in the place of CuPy, which writes
down the launches of our kernels and the calls of cuBLAS (`launches` repeats them). What else a
program asks of CuPy cannot be written down: `NotRecorded`.

>>> import numpy as np
>>> from d2lmini.cuda.kernels.launch import Kernel
>>> double = Kernel("twice", 'extern "C" __global__ void twice(const float* x, float* y, const int n) {}')
>>> recorder = Recorder()
>>> x, y = recorder.empty((2, 3), "float32"), recorder.empty((2, 3), "float32")
>>> double(recorder, y.size, x, y.reshape(-1)[2:], 4)
>>> recorder.steps
[Step(memory=(At(base=0, offset=0), At(base=1, offset=8)), kernel=<Kernel twice>, grid=(1, 1, 1), numbers=(4,), more=<class 'tuple'>, bind=None)]
>>> _ = x + y                                 # by a generated kernel
>>> recorder.steps[1].kernel
<Kernel add_kernel>
>>> x.sum()
Traceback (most recent call last):
    ...
d2lmini.cuda.kernels.launch.NotRecorded: add.reduce
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, partialmethod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.formulas import elementwise, operand_of
from d2lmini.cuda.kernels.launch import Kernel, NotRecorded, Recording
from d2lmini.cuda.kernels.symbols import Body, names
from d2lmini.ops.core import registry
from d2lmini.ops.symbolic import NotTraceable, Proxy


class Place(np.ndarray):
    """Stands for an array of a GPU, or a part of the `number`-th that the recorder made: memory
    that nobody reads or writes, with a shape, strides and an address."""

    recorder: Any
    number: int

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
        self.number = getattr(base, "number", -1)

    def __getitem__(self, key: Any) -> Any:
        """A view; a single element would be its value, which is not known here."""
        keys = key if type(key) is tuple else (key,)
        if any([isinstance(k, (np.ndarray, list)) for k in keys]):
            raise NotRecorded("elements by index")
        part = super().__getitem__(key)
        if not isinstance(part, Place):
            raise NotRecorded("a value")
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        """A copy into a view. (`x[...] += y` ends with a copy of a view into itself.)"""
        view = self[key]
        is_view = isinstance(value, Place)
        if not (is_view and value.__array_interface__ == view.__array_interface__):
            self.recorder.copyto(view, value)

    @property
    def plain(self) -> np.ndarray:
        """The memory as an array of NumPy's."""
        return self.view(np.ndarray)

    def fill(self, value: Any) -> None:
        """Fill all of the array with a number."""
        self.recorder.copyto(self, value)

    def astype(self, dtype: Any, copy: bool = True, **_: Any) -> Any:  # type: ignore[override]
        """Itself, where nothing is converted or copied; else a new array."""
        if self.dtype == dtype and not copy:
            return self
        return self.recorder.map(lambda x: x.astype(np.dtype(dtype)), [self])

    def copy(self, order: str = "C") -> Any:  # type: ignore[override]
        """A new array in C order."""
        return self.recorder.map(names.asarray, [self])

    def reshape(self, *shape: Any, **_: Any) -> Any:  # type: ignore[override]
        """A view where there can be one, else a new array."""
        made = super().reshape(*shape)
        return made if np.may_share_memory(made.plain, self.plain) else self.copy().reshape(*shape)


def _refuse(_place: Place, name: str, *_args: Any, **_options: Any) -> Any:
    raise NotRecorded(name)


for _name in (
    "get item set take tolist __bool__ __complex__ __float__ __index__ __int__ __iter__ "
    "argmax argmin argpartition argsort choose compress dot flatten nonzero partition put repeat "
    "searchsorted sort tobytes trace"
).split():
    setattr(Place, _name, partialmethod(_refuse, _name))


class RecordedKey:
    """A random key that launches get anew at each call."""

    def __init__(self, recorder: Recorder, keys: list[Sequence[int]], number: int):
        self.recorder = recorder
        self.keys = keys
        self.number = number

    def __iter__(self) -> Iterator[int]:
        if self.recorder.is_open:
            raise NotRecorded("a random key")
        return iter(self.keys[self.number])


class At(NamedTuple):
    """Where an array of a step begins: the number of the array that it lies in, and how many bytes
    behind the begin of that."""

    base: int
    offset: int


class Step(NamedTuple):
    """A launch of one of our kernels, all arrays before all numbers, the last of which are those
    that `more` returns at each repetition; or another call: `bind(lane)` is the function of where
    its arrays begin."""

    memory: tuple[At, ...]
    kernel: Any = None
    grid: tuple[int, int, int] = (1, 1, 1)
    numbers: tuple[Any, ...] = ()
    more: Callable[[], Sequence[Any]] = tuple
    bind: Callable[[Any], Callable[..., Any]] | None = None


class Recorder(Recording):
    """Stands for CuPy while a program runs on places: writes down its launches.

    steps      the launches so far
    places     the arrays that were made, whose numbers the steps use
    constants  the contents of those that never change
    is_open    False when all is written down: only then a random key may be read
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.places: list[Place] = []
        self.constants: dict[int, np.ndarray] = {}
        self.is_open = True

    def empty(self, shape: Any, dtype: Any = float) -> Place:
        """A new array."""
        if not np.prod(shape):
            raise NotRecorded("an array without elements")
        made = np.empty(shape, dtype).view(Place)
        made.recorder, made.number = self, len(self.places)
        self.places.append(made)
        return made

    def zeros(self, shape: Any, dtype: Any = float) -> Place:
        made = self.empty(shape, dtype)
        made.fill(0)
        return made

    def asarray(self, array: Any, dtype: Any = None) -> Place:
        """A constant."""
        if isinstance(array, Place):
            return array if dtype is None else array.astype(dtype, copy=False)
        array = np.asarray(array, dtype)
        made = self.empty(array.shape, array.dtype)
        self.constants[made.number] = array
        return made

    def ascontiguousarray(self, array: Place) -> Place:
        """The array itself, where it is in C order, else a copy."""
        return array if array.flags.c_contiguous else array.copy()

    def broadcast_to(self, array: Place, shape: Any) -> Any:
        """A view."""
        return np.lib.stride_tricks.as_strided(
            array, shape, np.broadcast_to(array.plain, shape).strides, subok=True
        )

    def concatenate(self, arrays: Sequence[Place], axis: int = 0) -> Place:
        """A new array of copies."""
        shape = [*arrays[0].shape]
        shape[axis] = sum([array.shape[axis] for array in arrays])
        made = self.empty(shape, np.result_type(*[array.dtype for array in arrays]))
        return registry["Concat"].compute(self, *arrays, dim=axis, out=made)  # type: ignore[no-any-return]

    def copyto(
        self, target: Place, source: Any, casting: str = "same_kind", where: Any = True
    ) -> None:
        """A copy within the GPU, or of a number."""
        dtype, nbytes, plain = target.dtype, target.nbytes, target.flags.c_contiguous
        is_array = isinstance(source, Place)
        if not is_array and (where is not True or not np.isscalar(source)):
            raise NotRecorded("numbers where a condition holds, or many")
        alike = is_array and (source.dtype, source.nbytes) == (dtype, nbytes)
        if where is not True:
            self.map(names.where, [where, source, target], target, "where")
        elif not is_array and plain and not np.array(source, dtype).tobytes().strip(b"\0"):
            self.call(lambda lane: lambda y: y.memset_async(0, nbytes, lane.stream.handle), target)
        elif not is_array:
            self.map(partial(names.full, (), source, dtype), [], target, "fill")
        elif alike and plain and source.flags.c_contiguous:
            self.call(
                lambda lane: lambda y, x: y.copy_from_device_async(x, nbytes, lane.stream.handle),
                target, source,
            )  # fmt: skip
        else:
            self.map(names.asarray, [source], target)

    def ufunc(self, name: str, *args: Any, out: Any = None, **options: Any) -> Place:
        """A ufunc of arrays and numbers, by a generated kernel."""
        if options:
            raise NotRecorded(f"{name} with {', '.join(options)}")
        arrays = [a for a in args if isinstance(a, Place)]

        def formula(*given: Proxy) -> Proxy:
            rest = iter(given)
            return getattr(names, name)(*[next(rest) if isinstance(a, Place) else a for a in args])

        return self.map(formula, arrays, out, name)

    def map(
        self, formula: Callable[..., Proxy], arrays: Sequence[Place], out: Place | None = None,
        name: str = "copy",
    ) -> Place:  # fmt: skip
        """A function of one element of each array, which broadcast; in `out` or a new array."""
        try:
            if out is None:
                body = Body()
                dtype = formula(*[body.add_input("x", a.dtype) for a in arrays]).dtype
                out = self.empty(np.broadcast_shapes(*(a.shape for a in arrays)), dtype)
            made = elementwise(
                f"{name}_kernel", list(map(operand_of, arrays)), out.shape,
                lambda *x: [formula(*x).astype(out.dtype)], [operand_of(out)],
            )  # fmt: skip
        except (NotTraceable, KeyError) as problem:  # there are no kernels of bfloat16
            raise NotRecorded(str(problem)) from None
        made(self, *arrays, out)
        return out

    def clip(self, x: Place, low: Any, high: Any, out: Any = None) -> Place:
        """min(max(x, low), high)"""
        return self.minimum(self.maximum(x, low), high, out=out)  # type: ignore[no-any-return]

    ndarray = Place

    def __eq__(self, other: object) -> bool:  # tables by module keep one entry for all recorders
        return isinstance(other, Recorder)

    def __hash__(self) -> int:
        return hash(Recorder)

    def may_share_memory(self, a: Place, b: Place) -> bool:
        """True if the arrays overlap. Those of a program that do not are disjoint in each call."""
        return np.may_share_memory(a.plain, b.plain)

    def __getattr__(self, name: str) -> Any:
        """A ufunc of NumPy's, a dtype or a number; all else is what launches cannot do."""
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(np, name, None)
        if isinstance(found, np.ufunc) and found.signature is None:
            return partial(self.ufunc, name)
        if isinstance(found, float) or (isinstance(found, type) and issubclass(found, np.generic)):
            return found
        raise NotRecorded(name)

    def run_program(
        self, program: Any, arrays: Sequence[Place], places: Sequence[Any], keys: Any = ()
    ) -> list[Place]:
        """The outputs of a compiled program, as by `Program.run`."""
        run = program.bind(lambda _, shape, dtype: self.empty(shape, dtype), self)
        return run(arrays, places, keys)  # type: ignore[no-any-return]

    def launch(
        self, kernel: Kernel, grid: tuple[int, int, int], arrays: Sequence[Place],
        numbers: tuple[Any, ...], more: Callable[[], Sequence[Any]],
    ) -> None:  # fmt: skip
        """Write down a launch."""
        self.steps.append(Step(tuple(map(self._find, arrays)), kernel, grid, numbers, more))

    def call(self, bind: Callable[[Any], Callable[..., Any]], *arrays: Place) -> None:
        """Write down another call on arrays; see `Step`."""
        self.steps.append(Step(tuple(map(self._find, arrays)), bind=bind))

    def _find(self, array: Place) -> At:
        if min(array.strides, default=0) < 0:
            raise NotRecorded("an array that runs backwards")
        place = self.places[array.number]
        offset = array.ctypes.data - place.ctypes.data
        if array.recorder is not self or not 0 <= offset < place.nbytes:
            raise NotRecorded("an array that is no part of the program")
        return At(array.number, offset)
