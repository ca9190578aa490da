"""Readers of two file formats: IDX (MNIST and similar sets) and CIFAR's rows of bytes.

An IDX file consists of two zero bytes, a type code, the number of axes, the sizes (big-endian), and
the elements. (Y. LeCun, C. Cortes, C. Burges: The MNIST database.)

>>> import numpy as np, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "labels-idx1-ubyte")
>>> with open(path, "wb") as file:
...     _ = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 2, 1]))
>>> read_idx(path)
array([7, 2, 1], dtype=uint8)

A damaged or malicious file raises an MXNetError that names the file. Headers are not trusted:
nothing is allocated for sizes that the file cannot hold, and no more is unpacked than the header
claims.
"""

from __future__ import annotations

import gzip
import os
import zlib
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError

#: Type codes of IDX.
TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}

#: No data set in these formats is larger.
MOST_BYTES = 1 << 31

#: Largest unpacking ratio of a gzip byte (RFC 1951: 258 bytes for two bits).
MOST_PER_BYTE = 1032


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, plain or gzipped. MXNetError if the file has another format, is cut
    short, has extra bytes, or claims sizes that do not fit the file."""
    with open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        most = os.path.getsize(path) * (MOST_PER_BYTE if zipped else 1)
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        try:
            head = file.read(4)
            if (
                len(head) < 4
                or head[:2] != b"\0\0"
                or head[2] not in TYPES
                or not 1 <= head[3] <= 4
            ):
                raise MXNetError(
                    f"{path}: not an IDX file: it begins with {head.hex(' ')}, expected 00 00, a "
                    f"type of {', '.join(f'{code:02x}' for code in TYPES)}, and 01 to 04 axes"
                )
            sizes = file.read(4 * head[3])
            shape = np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4").tolist()
            dtype = np.dtype(TYPES[head[2]])
            nbytes = prod(shape) * dtype.itemsize
            if nbytes > min(most, MOST_BYTES):
                raise MXNetError(
                    f"{path}: the header claims {shape} of {dtype.name}, {nbytes} bytes, more than "
                    f"the file can hold ({min(most, MOST_BYTES)})"
                )
            data = bytearray()
            # One megabyte at a time: bytes missing from the file are not allocated.
            while block := file.read(min(1 << 20, nbytes + 1 - len(data))):
                data += block
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise MXNetError(f"{path}: the gzip file is damaged or cut short: {problem}") from None
    if len(data) != nbytes or len(shape) != head[3]:
        what = "goes on after" if len(data) > nbytes else "is cut short of"
        raise MXNetError(f"{path}: the IDX file {what} the {nbytes} bytes of {shape}")
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def read_labelled_images(images_path: str, labels_path: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W) and labels (N,) of two matching IDX files of uint8."""
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise MXNetError(
            f"{images_path}: expected images (N, H, W) of uint8, got {images.shape} {images.dtype}"
        )
    if labels.shape != images.shape[:1] or labels.dtype != np.uint8:
        raise MXNetError(
            f"{labels_path}: expected {len(images)} labels of uint8 for as many images, got "
            f"{labels.shape} {labels.dtype}"
        )
    return images, labels


def read_cifar(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 32, 32, 3) and labels (N,) of a file of rows: a label, then 1024 red, 1024 green,
    1024 blue values."""
    row = 1 + 3 * 32 * 32
    nbytes = os.path.getsize(path)
    if nbytes == 0 or nbytes % row or nbytes > MOST_BYTES:
        raise MXNetError(
            f"{path}: not a CIFAR file: {nbytes} bytes are not a multiple of the row size {row}"
        )
    rows = np.fromfile(path, np.uint8).reshape(-1, row)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int32)
