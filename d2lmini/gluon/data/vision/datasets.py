"""Image datasets: MNIST, FashionMNIST, CIFAR10, and folders of image files.

    train = FashionMNIST(root="data", train=True)
    X, y = train[0]                  # (28, 28, 1) uint8 NDArray, a NumPy int32
    X, y = train[0:9]                # (9, 28, 28, 1), and an int32 vector

Files in `root` are used as they are; a checksum that differs from the published file's is a
warning. Missing files are downloaded; without a network the error names the files and where to put
them. The default root is MXNet's folder: $MXNET_HOME or ~/.mxnet, then datasets/NAME.
$MXNET_GLUON_REPO names a mirror, as in MXNet.

An IDX file consists of two zero bytes, a type code (8: bytes, the only one here), the number of
axes, the sizes (big-endian), and the elements. (Y. LeCun, C. Cortes, C. Burges: The MNIST
database.)

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
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import FileError, MXNetError, callsite, environment
from d2lmini.base.util import is_np_array
from d2lmini.context import cpu
from d2lmini.device import files
from d2lmini.gluon.data.dataset import Dataset, gather
from d2lmini.gluon.utils import as_default, check_sha1, download
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.exchange import from_array

#: No data set in these formats is larger.
MOST_BYTES = 1 << 31

#: Largest unpacking ratio of a gzip byte (RFC 1951: 258 bytes for two bits).
MOST_PER_BYTE = 1032


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The bytes in an IDX file, plain or gzipped. MXNetError if the file has another format, is cut
    short, has extra bytes, or claims sizes that do not fit the file."""
    with open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    most = min(MOST_BYTES, os.path.getsize(path) * (MOST_PER_BYTE if zipped else 1))
    try:
        with (gzip.open if zipped else open)(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\0\0\x08" or not 1 <= head[-1] <= 4:
                raise MXNetError(
                    f"{path}: not an IDX file of bytes: it begins with {head.hex(' ')}, expected "
                    "00 00 08, and 01 to 04 axes"
                )
            sizes = file.read(4 * head[3])
            shape = np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4").tolist()
            nbytes = prod(shape)
            if nbytes > most:
                raise MXNetError(
                    f"{path}: the header claims {shape}, {nbytes} bytes, more than the file can "
                    f"hold ({most})"
                )
            data = file.read(nbytes + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise MXNetError(f"{path}: the gzip file is damaged or cut short: {problem}") from None
    if len(data) != nbytes or len(shape) != head[3]:
        what = "goes on after" if len(data) > nbytes else "is cut short of"
        raise MXNetError(f"{path}: the IDX file {what} the {nbytes} bytes of {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape).copy()


def read_labelled_images(images_path: str, labels_path: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W) and labels (N,) of two matching IDX files of uint8."""
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise MXNetError(
            f"{images_path}, {labels_path}: expected images (N, H, W) and labels (N,), got "
            f"{images.shape} and {labels.shape}"
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


__all__ = ["CIFAR10", "MNIST", "FashionMNIST", "ImageFolderDataset"]

#: File name -> SHA-1 of the published file.
Files = dict[str, str]

#: The accepted formats of image files; Pillow's readers of some other formats start programs.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")

#: Largest number of pixels per byte: one bit per pixel, with PNG's best compression.
MOST_PIXELS_PER_BYTE = 8 * MOST_PER_BYTE

_REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"


class _DownloadedDataset(Dataset):
    """Images and labels in memory, read from files with known names."""

    name: ClassVar[str]
    _train_files: ClassVar[Files]
    _test_files: ClassVar[Files]

    def __init__(
        self, root: str | None = None, train: bool = True,
        transform: Callable[[Any, Any], Any] | None = None,
    ):  # fmt: skip
        home = environment.read("MXNET_HOME") or os.path.join("~", ".mxnet")
        self._root = os.path.expanduser(root or os.path.join(home, "datasets", self.name))
        self._files = self._train_files if train else self._test_files
        self._transform = transform
        images, labels = self._get_data()
        self._data: NDArray = as_default(from_array(images, cpu(), adopt=True))
        # Numbers cost less than arrays of one element, but programs with `np` expect the latter.
        self._label: Any = as_default(from_array(labels, cpu())) if is_np_array() else labels

    def _get_data(self) -> tuple[np.ndarray, np.ndarray]:
        """New arrays: images (N, H, W, C) uint8, labels (N,) int32."""
        raise NotImplementedError

    def __getitem__(self, idx: Any) -> Any:
        if self._transform is not None:
            return self._transform(self._data[idx], self._label[idx])
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)

    def _whole_batch(self, indices: Sequence[int]) -> Any:
        if self._transform is not None:
            return None
        images, labels = gather(self._data, indices), gather(self._label, indices)
        return None if images is None else [images, labels]

    # -- files -------------------------------------------------------------------------------------

    def _find(self, name: str) -> str | None:
        """The path of a file that exists, packed or unpacked; otherwise None."""
        paths = [os.path.join(self._root, file) for file in (name, name.removesuffix(".gz"))]
        return next(filter(os.path.isfile, paths), None)

    def _obtain(self, name: str, sha1: str) -> str:
        """The path of a file: existing (checked, with a warning) or downloaded."""
        path = self._find(name)
        if path is not None:
            if path.endswith(name) and not check_sha1(path, sha1):
                callsite.warn(
                    f"{path} is not the published file (its SHA-1 is another); it is used as it is"
                )
            return path
        repository = environment.read("MXNET_GLUON_REPO") or _REPOSITORY
        url = f"{repository.rstrip('/')}/gluon/dataset/{self.name}/{name}"
        os.makedirs(self._root, exist_ok=True)
        try:
            return download(url, self._root, sha1_hash=sha1, retries=1)
        except (OSError, ValueError) as problem:
            missing = [name, *(file for file in self._files if not self._find(file))]
            raise ConnectionError(
                f"{type(self).__name__}: {', '.join(dict.fromkeys(missing))} not found in "
                f"{os.path.abspath(self._root)}, and the download failed: {problem}\n"
                "Put the files there by hand, or name a folder that has them: root=... "
                "Without any network, d2l.load_data_digits() has real digits to train on."
            ) from None


class MNIST(_DownloadedDataset):
    """Handwritten digits (LeCun et al.): 60,000 training and 10,000 test images, 28 x 28.

    Elements: (image (28, 28, 1) uint8 NDArray, label as NumPy int32); after `npx.set_np()` both are
    `np.ndarray`s, the label of shape (). transform: function of (image, label), applied at each
    access, or None. Raises ConnectionError if files are missing and cannot be downloaded,
    MXNetError if files are damaged.
    """

    name = "mnist"
    _train_files: ClassVar[Files] = {
        "train-images-idx3-ubyte.gz": "6c95f4b05d2bf285e1bfb0e7960c31bd3b3f8a7d",
        "train-labels-idx1-ubyte.gz": "2a80914081dc54586dbdf242f9805a6b8d2a15fc",
    }
    _test_files: ClassVar[Files] = {
        "t10k-images-idx3-ubyte.gz": "c3a25af1f52dad7f726cce8cacb138654b760d48",
        "t10k-labels-idx1-ubyte.gz": "763e7fa3757d93b0cdec073cef058b2004252c17",
    }

    def _get_data(self) -> tuple[np.ndarray, np.ndarray]:
        paths = [self._obtain(name, sha1) for name, sha1 in self._files.items()]
        images, labels = read_labelled_images(*paths)
        return images[..., None], labels.astype(np.int32)


class FashionMNIST(MNIST):
    """Images of ten kinds of clothing (H. Xiao et al., 2017), in the format of MNIST."""

    name = "fashion-mnist"
    _train_files: ClassVar[Files] = {
        "train-images-idx3-ubyte.gz": "0cf37b0d40ed5169c6b3aba31069a9770ac9043d",
        "train-labels-idx1-ubyte.gz": "236021d52f1e40852b06a4c3008d8de8aef1e40b",
    }
    _test_files: ClassVar[Files] = {
        "t10k-images-idx3-ubyte.gz": "626ed6a7c06dd17c0eec72fa3be1740f146a2863",
        "t10k-labels-idx1-ubyte.gz": "17f9ab60e7257a1620f4ad76bbbaf857c3920701",
    }


class CIFAR10(_DownloadedDataset):
    """Small colour photographs of ten classes (A. Krizhevsky, 2009): 50,000 and 10,000 images.

    Elements: (image (32, 32, 3) uint8 NDArray, label as NumPy int32). Reads the .bin files in
    `root`, or the archive there, which is downloaded if missing.
    """

    name = "cifar10"
    _archive: ClassVar[tuple[str, str]] = (
        "cifar-10-binary.tar.gz", "fab780a1e191a7eda0f345501ccd62d20f7ed891",
    )  # fmt: skip
    _train_files: ClassVar[Files] = {
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    }
    _test_files: ClassVar[Files] = {"test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c"}

    def _get_data(self) -> tuple[np.ndarray, np.ndarray]:
        if any(self._find(name) is None for name in self._files):
            extract(self._obtain(*self._archive), self._root, [*self._files])
        parts = [read_cifar(self._obtain(name, sha1)) for name, sha1 in self._files.items()]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts))
        return images, labels


def extract(archive: str, folder: str, names: list[str]) -> None:
    """Extract the files with these names, from anywhere in the archive, into `folder`.

    Nothing else is extracted: no path, link or device of the archive. Raises MXNetError if the file
    is no archive, or if a name is missing or not a plain file.
    """
    missing = set(names)
    try:
        with tarfile.open(archive, "r|*") as tar:  # a stream reads no more than there is
            for member in tar:
                name = os.path.basename(member.name)
                if name in missing and member.isreg() and not member.issparse():
                    source: Any = tar.extractfile(member)
                    pieces = iter(partial(source.read, 1 << 20), b"")
                    files.write(os.path.join(folder, name), pieces)
                    missing.discard(name)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as problem:
        kind = FileError if isinstance(problem, OSError) else MXNetError
        raise kind(f"{archive}: the archive cannot be read: {problem}") from problem
    for name in sorted(missing):
        raise MXNetError(f"{archive}: there is no {name} in this archive")


class ImageFolderDataset(Dataset):
    """Image files in folders, one folder per class: root/car/0001.jpg, root/cat/xxx.png.

    Elements: (image (H, W, C) uint8 NDArray, index of the folder in the sorted list `synsets`).
    flag: 1 for colour (C = 3), 0 for grey (C = 1); transform: function of (image, label), or None.
    Reads .jpg, .jpeg and .png with Pillow; an access raises ImportError without Pillow.
    """

    _exts = (".jpg", ".jpeg", ".png")

    def __init__(
        self, root: str, flag: int = 1, transform: Callable[[Any, Any], Any] | None = None
    ):
        self._root = os.path.expanduser(root)
        self._flag = flag
        self._transform = transform
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        for kind in sorted(os.listdir(self._root)):
            folder = os.path.join(self._root, kind)
            if not os.path.isdir(folder):
                callsite.warn(f"Ignoring {folder}, which is not a directory.")
                continue
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if name.lower().endswith(self._exts):
                    self.items.append((path, len(self.synsets)))
                else:
                    callsite.warn(f"Ignoring {path}; only {', '.join(self._exts)} are read.")
            self.synsets.append(kind)

    def __getitem__(self, idx: int) -> Any:
        path, label = self.items[idx]
        image = read_image(path, self._flag)
        return (image, label) if self._transform is None else self._transform(image, label)

    def __len__(self) -> int:
        return len(self.items)


def read_image(path: str, flag: int = 1) -> NDArray:
    """An image file as (H, W, 3) uint8, or (H, W, 1) with flag 0, rotated as its EXIF tag says.

    The file is read as one of FORMATS, whatever its name. Raises MXNetError if the file has another
    format, is damaged, or claims more pixels than its size can hold; ImportError without Pillow."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ImportError(
            f"reading {path} needs Pillow: pip install pillow; images that are arrays already go "
            "into gluon.data.ArrayDataset"
        ) from None
    with open(path, "rb") as file:
        data = file.read()
    try:
        # Read from memory: a file's `read` would allocate any length that a damaged part claims.
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS_PER_BYTE * len(data):
                raise ValueError(f"it claims {width} x {height} pixels, more than it can hold")
            turned = ImageOps.exif_transpose(image)
            pixels = np.array(turned.convert("RGB" if flag else "L"))
    except Exception as problem:  # Pillow raises a dozen types, also struct.error
        raise MXNetError(f"{path}: the image cannot be read: {problem!s:.300}") from problem
    return as_default(nd.array(pixels.reshape(*pixels.shape[:2], -1), dtype="uint8"))
