"""MXNet's `.params` files: arrays and their names, to bytes and back.

A file is a list of records, one after the other, then the names. All numbers are little-endian.

    list    u64 0x112 | u64 reserved (0) | u64 count | records | u64 count of names | names
    name    u64 length | UTF-8 bytes                       (as many names as records, or none)
    record  u32 magic | i32 storage type | shape | i32 device type | i32 device id
            | i32 type flag | the elements in C order, no padding
    shape   u32 ndim | ndim x i64

The magic tells the version of a record. All four are read, the last two are written:

    any small number    the oldest form: the number *is* ndim; dims are u32, no storage type
    0xF993FAC8  (V1)    dims are i64, still no storage type
    0xF993FAC9  (V2)    as drawn above; what `nd.save` of MXNet 1.x writes
    0xF993FACA  (V3)    the same bytes under NumPy's shape rules, where ndim 0 is a scalar

MXNet insists that the records of one file agree: V2 loads outside `mx.util.np_shape(True)`,
V3 inside. A file is written as V3 under `util.np_shape` or `npx.set_np()`, and if it holds an array
of shape (), whose V2 record MXNet 1.9.1 writes but cannot read back. Here every mix is read.

This module handles NumPy arrays and bytes only. An entry is an array with the context it lived
in, a pair (device type, device id), which is written as given and returned on load.

>>> import numpy as np
>>> blob = dumps([(np.arange(3, dtype="int32"), (1, 0))], ["w"])
>>> len(blob), blob[:2].hex()
(85, '1201')
>>> load_frombuffer(blob)
([(array([0, 1, 2], dtype=int32), (1, 0))], ['w'])

The layout was worked out from files written by MXNet 1.9.1; tests/data/params keeps some.
"""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from d2lmini.base import FileError, MXNetError
from d2lmini.base.dtypes import BFLOAT16, DTYPES, dtype_of, flag_of
from d2lmini.base.util import is_np_shape
from d2lmini.device import files

#: An array, and its context as (device type, device id).
Entry = tuple[np.ndarray, tuple[int, int]]
FileName = str | os.PathLike[str]

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE = 0
_SPARSE = {1: "row_sparse", 2: "csr"}
_MAX_NDIM = 64  # NumPy's own limit

# The beginnings of other files that are passed to load by mistake.
_FOREIGN = {
    b"PK": "a zip archive, as written by numpy.savez or torch.save",
    b"\x93NUMPY": "a .npy file: use numpy.load",
    b"{": "JSON, perhaps the -symbol.json that lies beside the .params file",
    b"\x89HDF": "HDF5",
}


# ---- writing


def dumps(arrays: Sequence[Entry], names: Sequence[str] = ()) -> bytes:
    """The bytes of a `.params` file with these arrays, named or (names=()) as a plain list.

    Big-endian input is written little-endian; arrays that are not contiguous are copied first.
    MXNetError for a dtype that is not in DTYPES; ValueError for a name with a lone surrogate.
    """
    return b"".join(_chunks(arrays, names))


def save(fname: FileName, arrays: Sequence[Entry], names: Sequence[str] = ()) -> None:
    """Write a `.params` file, whole or not at all (see `files`): a failure (full disk, Ctrl-C, a
    refused array) leaves the old file unchanged; MXNet leaves half a new one. Contiguous arrays are
    written without a copy. FileError, an OSError, when the system refuses, otherwise as `dumps`.
    """
    try:
        files.write(fname, _chunks(arrays, names))
    except OSError as error:
        raise _file_error(f"save: cannot write {fname!r}", error) from error


def _file_error(words: str, error: OSError) -> FileError:
    problem = FileError(f"{words}: {error.strerror or error}")
    problem.errno = error.errno
    return problem


def _chunks(arrays: Sequence[Entry], names: Sequence[str]) -> Iterator[bytes | memoryview]:
    """The file in pieces, in order; the elements of each array are one memoryview."""
    version = _V3 if is_np_shape() or any(array.ndim == 0 for array, _ in arrays) else _V2
    yield struct.pack("<QQQ", _LIST_MAGIC, 0, len(arrays))
    for array, device in arrays:
        flag = flag_of(array.dtype)
        if flag is None:
            known = ", ".join(map(str, DTYPES))
            raise MXNetError(f"save: an array is {array.dtype}; cast it to one of {known}")
        head = struct.pack("<IiI", version, _DENSE, array.ndim)
        dims = struct.pack(f"<{array.ndim}q", *array.shape)
        yield head + dims + struct.pack("<iii", *device, flag)
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        yield little.reshape(-1).view(np.uint8).data
    yield struct.pack("<Q", len(names))
    for name in names:
        raw = name.encode()
        yield struct.pack("<Q", len(raw)) + raw


# ---- reading


def load(fname: FileName) -> tuple[list[Entry], list[str]]:
    """Read a `.params` file: its arrays, each with the context it was saved from, and its names.

    The names are [] when the file holds a plain list; an empty file ([] or {}) gives ([], []).
    The arrays are read-only views of the file's bytes. Bytes after the names are ignored, as in
    MXNet. FileError when the file cannot be opened; MXNetError when it is cut short, damaged or of
    another format (the message names file, byte and expectation), or holds sparse arrays.
    """
    path = os.fspath(fname)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise _file_error(f"load: cannot read {path!r}", error) from error
    return _read_list(_Reader(content, f"load: {path!r}"))


def load_frombuffer(buf: Any) -> tuple[list[Entry], list[str]]:
    """Read the bytes of a `.params` file, like `load`."""
    return _read_list(_Reader(buf, "load_frombuffer: buffer"))


class _Reader:
    """A cursor over bytes that knows how many are left and how to describe an error."""

    def __init__(self, content: Any, label: str) -> None:
        self.content = memoryview(content).toreadonly()
        self.label = label  # function and file for messages: "load: 'mlp.params'"
        self.part = "list header"
        self.at = 0
        self.field = 0  # where the last requested field began

    def fail(self, text: str) -> NoReturn:
        raise MXNetError(f"{self.label}, byte {self.field} ({self.part}): {text}")

    def take(self, nbytes: int, what: str) -> memoryview:
        """The next field."""
        self.field = self.at
        left = len(self.content) - self.at
        if nbytes > left:
            self.fail(
                f"expected {nbytes} bytes for {what}, only {left} are left; "
                "the file is cut short, damaged, or not a .params file"
            )

        self.at += nbytes
        return self.content[self.field : self.at]

    def unpack(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))

    def one(self, layout: str, what: str) -> int:
        return self.unpack(layout, what)[0]


def _read_list(r: _Reader) -> tuple[list[Entry], list[str]]:
    magic = r.take(min(8, len(r.content)), "the list magic").tobytes()
    if magic != struct.pack("<Q", _LIST_MAGIC):
        hints = [hint for start, hint in _FOREIGN.items() if magic.startswith(start)]
        guess = f"; this looks like {hints[0]}" if hints else ""
        r.fail(
            "expected the list magic of a .params file, 12 01 and six zeros; found "
            f"{magic.hex(' ') or 'nothing'}{guess}"
        )
    r.unpack("<Q", "the reserved word")
    count = r.one("<Q", "the number of arrays")
    entries = []
    for i in range(count):
        r.part = f"array {i}"
        entries.append(_read_record(r))
    r.part = "names"
    number = r.one("<Q", "the number of names")
    if number not in (0, count):
        r.fail(f"expected {count} names, one per array, or none; found {number}; damaged")
    names = []
    for i in range(number):
        r.part = f"name {i}"
        raw = r.take(r.one("<Q", "the length of the name"), "the name").tobytes()
        try:
            names.append(raw.decode())
        except UnicodeDecodeError:
            r.fail(f"expected UTF-8, found {raw[:40]!r}; damaged")
    return entries, names


def _read_record(r: _Reader) -> Entry:
    magic = r.one("<I", "the magic")
    if magic in (_V2, _V3):
        storage = r.one("<i", "the storage type")
        if storage in _SPARSE:
            r.fail(
                f"only dense arrays can be read, this one is {_SPARSE[storage]}; in MXNet, save "
                "x.tostype('default') instead of x"
            )
        if storage != _DENSE:
            r.fail(f"expected storage type 0, 1 or 2, found {storage}; damaged")
    ndim = r.one("<I", "ndim") if magic in (_V1, _V2, _V3) else magic
    if ndim > _MAX_NDIM:
        r.fail(f"expected a magic, or ndim <= {_MAX_NDIM}; found {ndim:#x}; damaged")
    # V2 with ndim 0 was a scalar: MXNet 1.9.1 writes its context, flag and element too.
    if not ndim and magic not in (_V2, _V3):
        r.fail("expected at least one dimension; this array was never given a shape")
    shape = r.unpack(f"<{ndim}{'I' if magic == ndim else 'q'}", f"{ndim} dimensions")
    # Zeros count as ones: NumPy refuses (0, 2**62) too.
    if any(d < 0 for d in shape) or math.prod(max(d, 1) for d in shape) * 8 > sys.maxsize:
        r.fail(f"expected a shape, found {shape}; damaged")
    device_type, device_id = r.unpack("<ii", "the context")
    flag = r.one("<i", "the type flag")
    dtype = dtype_of(flag)
    if dtype is None:
        r.fail(f"expected a type flag from 0 to {len(DTYPES) - 1}, or {BFLOAT16}; found {flag}")
    what = f"the elements of a {dtype} array of shape {shape}"
    raw = np.frombuffer(r.take(math.prod(shape) * dtype.itemsize, what), np.uint8)
    # NumPy's only true value is 1.
    array = raw != 0 if dtype == np.bool_ else raw.view(dtype)
    return array.reshape(shape), (device_type, device_id)
