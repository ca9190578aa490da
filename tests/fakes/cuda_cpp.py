"""Kernels without a GPU: their CUDA C compiled by g++ and run by one thread on NumPy arrays.

    run(kernel.source, kernel.name, (blocks, rows), [x, y, 8])      # fills y

`build` compiles many sources in one call of g++, each in a namespace of its own. What was compiled
is kept, in this process and as a file named after the text.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.launch import parameters
from d2lmini.cuda.kernels.random_numbers import STREAM
from d2lmini.cuda.kernels.symbols import C_TYPES, HELPERS

COMPILER = shutil.which("g++")
#: The kernels that this test asked for in vain, for there is no g++ (conftest skips it then).
missed: list[str] = []
#: The C type of a number -> its type in NumPy.
NUMBERS = {name: np.dtype(char).type for char, name in C_TYPES.items() if char != "e"}
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-shared", "-w", "-fwrapv", "-ffp-contract=off", "-pthread"]
#: So many threads run a kernel whose threads wait for each other.
BLOCK = 4
SHIM = Path(__file__).with_name("cuda_shim.h")
FOLDER = Path(tempfile.gettempdir()) / f"d2lmini-kernels-{os.getuid()}"

#: Where `rehearsal` writes down what is launched; None: launches run.
rehearsed: list[tuple[str, str]] | None = None

_functions: dict[tuple[str, str], Any] = {}
_lock = threading.Lock()


def build(kernels: Iterable[tuple[str, str]]) -> None:
    """Compile (source, name of the kernel) pairs that are not there yet, all at once."""
    with _lock:
        missing = [key for key in dict.fromkeys(kernels) if key not in _functions]
        if missing:
            half = -(-len(missing) // (2 if len(missing) > 100 else 1))
            halves = [missing[i : i + half] for i in range(0, len(missing), half)]
            with ThreadPoolExecutor(len(halves)) as pool:
                paths = list(pool.map(_library, halves))
            for path, keys in zip(paths, halves):
                library = ctypes.CDLL(str(path))
                for i, key in enumerate(keys):
                    _functions[key] = getattr(library, f"run_{i}")


@contextmanager
def rehearsal() -> Iterator[None]:
    """A scope in which kernels are not run but written down, and compiled at its end, all at once:
    what comes after it finds them."""
    global rehearsed
    rehearsed = []
    try:
        yield
    finally:
        found, rehearsed = rehearsed, None
        if COMPILER:
            build(found)


def run(source: str, name: str, grid: Sequence[int], args: Sequence[Any]) -> None:
    """Call a kernel on NumPy arrays and numbers; `grid` as at a launch, of which only the number
    of rows counts."""
    if rehearsed is not None:
        rehearsed.append((source, name))
        return
    build([(source, name)])
    pointers = (ctypes.c_void_p * len(args))()
    numbers = []
    for i, (arg, parameter) in enumerate(zip(args, parameters(source, name), strict=True)):
        if parameter.is_array:
            pointers[i] = arg.ctypes.data
        else:
            numbers.append(np.asarray(arg))
            pointers[i] = numbers[-1].ctypes.data
    _functions[source, name](ctypes.c_uint(grid[1] if len(grid) > 1 else 1), pointers)


def _part(i: int, source: str, name: str) -> str:
    """One source, and a function that calls its kernel for every row with unpacked arguments."""
    args = ", ".join(
        f"({p.type}*) args[{k}]" if p.is_array else f"*({p.type}*) args[{k}]"
        for k, p in enumerate(parameters(source, name))
    )
    inner = source.replace('extern "C" ', "")
    for text in (*HELPERS.values(), STREAM):  # these stand at the top
        inner = inner.replace(text, "")
    threads = BLOCK if "__syncthreads" in source else 1
    return (
        f"namespace kernel_{i} {{\n{inner}\n}}\n"
        f'extern "C" void run_{i}(unsigned rows, void** args) {{\n'
        f"    using namespace kernel_{i};\n"
        f"    for (unsigned row = 0; row < rows; ++row)\n"
        f"        run_block({threads}, row, rows, [&] {{ kernel_{i}::{name}({args}); }});\n"
        f"}}\n"
    )


def _library(kernels: Sequence[tuple[str, str]]) -> Path:
    if COMPILER is None:
        missed.extend(name for _, name in kernels)
        raise RuntimeError("there is no g++")
    parts = [_part(i, *key) for i, key in enumerate(kernels)]
    # The shim has its own conversions to and from float16.
    common = [t for name, t in HELPERS.items() if name not in ("widened", "narrowed")]
    text = "\n".join([SHIM.read_text(), *common, STREAM, *parts])
    digest = hashlib.sha256((text + " ".join(FLAGS)).encode()).hexdigest()[:24]
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{digest}.so"
    if not path.exists():
        source, made = (FOLDER / f"{digest}.{os.getpid()}.{kind}" for kind in ("cpp", "so"))
        source.write_text(text)
        done = subprocess.run(
            [COMPILER, *FLAGS, str(source), "-o", str(made)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        source.unlink()
        made.replace(path)  # at once, for other processes
    return path


class RawKernel:
    """Stands for `cupy.RawKernel`: at a launch the source itself runs, compiled by g++, through the
    hook of the fake. What it may write (pointers without const) are the outputs."""

    def __init__(self, code: str, name: str, options: tuple = (), backend: str = "nvrtc"):
        assert "-fmad=false" in options, "g++ rounds every operation, and so must the GPU"
        self.code, self.name = code, name
        self.parameters = parameters(code, name)

    def launch(self, grid: tuple, args: tuple) -> None:
        from fakes import cupy_arrays

        pairs = list(zip(args, self.parameters, strict=True))
        arrays = [a for a, p in pairs if p.is_array]
        written = [p.is_written for _, p in pairs if p.is_array]
        any_layout = "void element(" in self.code
        pairs = [(None if p.is_array else a, p) for a, p in pairs]  # put off, it keeps no array

        def function(*raws: np.ndarray) -> tuple[np.ndarray, ...]:
            fresh = [_same_layout(r, any_layout) if w else r for r, w in zip(raws, written)]
            rest = iter(fresh)
            given = [next(rest) if p.is_array else a for a, p in pairs]
            before = [f.copy() for f in fresh]
            run(self.code, self.name, grid, given)
            triples = zip(fresh, before, raws, written)
            return tuple(_with_changes(f, b, r) for f, b, r, w in triples if w)

        outputs = tuple(a for a, w in zip(arrays, written) if w)
        cupy_arrays.hook.execute(self.name, function, arrays, outputs)

    @property
    def kernel(self) -> Function:
        """The compiled kernel, which takes the stream of a launch and prepared numbers."""
        return Function(self)


class CIntptr:
    """Stands for `cupy.cuda.function.CIntptr`: eight bytes that a kernel gets by value."""

    def __init__(self, value: int):
        self.value = value

    def as_number(self, parameter: Any) -> np.generic:
        """What a kernel reads of them."""
        dtype = np.dtype(NUMBERS[parameter.type])
        bits = self.value.to_bytes(8, "little", signed=True)
        return np.frombuffer(bits[: dtype.itemsize], dtype)[0]  # type: ignore[no-any-return]


def _with_changes(found: np.ndarray, before: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """What the kernel found, where it wrote, in the memory itself: arrays given by pointers may
    reach over others, which the kernel wrote through another pointer."""
    if not raw.flags.c_contiguous:
        return found
    new, old, memory = (a.reshape(-1).view(np.uint8) for a in (found, before, raw))
    np.copyto(memory, new, where=new != old)
    return raw


def array_at(pointer: Any, c_type: str) -> Any:
    """The memory from a pointer on, to the end of what was allocated, as an array."""
    from fakes import cupy_arrays

    dtype = np.dtype(next(char for char, name in C_TYPES.items() if name == c_type))
    return cupy_arrays.ndarray((len(pointer.raw) // dtype.itemsize,), dtype, pointer)


class Function:
    """Stands for `cupy.cuda.Function`."""

    def __init__(self, raw: RawKernel):
        self.raw = raw

    def __call__(
        self, grid: tuple, block: tuple, args: tuple, shared: int = 0, stream: Any = None
    ) -> None:
        given = []
        for arg, p in zip(args, self.raw.parameters, strict=True):
            if isinstance(arg, CIntptr):
                arg = arg.as_number(p)
            given.append(array_at(arg, p.type) if p.is_array and stream is not None else arg)
        with stream or nullcontext():
            self.raw.launch(grid, tuple(given))


def _same_layout(array: np.ndarray, any_layout: bool) -> np.ndarray:
    """A copy. Of an array with gaps, if the kernel was made for its strides, with the same gaps."""
    if array.flags.c_contiguous:
        return array.copy()
    assert any_layout, "a kernel of ours writes only to arrays in order"
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides))
    memory = np.empty(extent // array.itemsize + 1, array.dtype)
    place = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    place[...] = array
    return place
