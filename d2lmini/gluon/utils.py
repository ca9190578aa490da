"""Utilities for training: batches over devices, gradient clipping, downloads.

>>> from d2lmini import cpu, gluon, nd
>>> x = nd.arange(6).reshape((3, 2))
>>> [part.shape for part in gluon.utils.split_and_load(x, [cpu(0), cpu(1)], even_split=False)]
[(2, 2), (1, 2)]
"""

from __future__ import annotations

import hashlib
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import loaders
from d2lmini.base.scopes import Standing
from d2lmini.base.util import is_np_array, is_np_shape
from d2lmini.context import Context, cpu
from d2lmini.device import files
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import invoke, registry

__all__ = ["HookHandle", "check_sha1", "clip_global_norm", "download", "shape_is_known",
           "split_and_load", "split_data"]  # fmt: skip


def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list:
    """Split `data`, an NDArray or NumPy array, into `num_slice` parts along `batch_axis`.

    The parts of a NumPy array are views, and so are those of an NDArray along axis 0; those of an
    `np.ndarray` are copies. Raises ValueError when the size is no multiple of num_slice and
    `even_split` is True. With even_split=False the first parts are longer by one, and the last
    parts are empty if there are more parts than rows. Raises IndexError for an axis that `data`
    does not have.
    """
    ndim = len(data.shape)
    if num_slice < 1:
        raise ValueError(f"split_data: num_slice is 1 or more, got {num_slice}")
    if not -ndim <= batch_axis < ndim:
        raise IndexError(f"split_data: batch_axis={batch_axis}, data has shape {data.shape}")
    size = data.shape[batch_axis]
    if even_split and size % num_slice:
        raise ValueError(
            f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along "
            f"axis {batch_axis}. Use a batch size that's multiple of {num_slice} or set "
            "even_split=False to allow uneven partitioning of data."
        )
    if getattr(data, "is_np", False):
        return loaders["np"]().array_split(data, num_slice, batch_axis)
    step, longer = divmod(size, num_slice)
    cuts = [i * step + min(i, longer) for i in range(num_slice + 1)]
    before = (slice(None),) * (batch_axis % ndim)
    return [data[(*before, slice(i, j))] for i, j in pairwise(cuts)]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """`split_data` with one part per context, each part copied to its context.

    A part that is already in its context is not copied. `data` may also be a NumPy array or nested
    lists of numbers, which become float32 as in `nd.array`; after `npx.set_np()` they become
    `np.ndarray`s, and a NumPy array keeps its dtype. Their parts are sent to the devices without an
    array of the whole. With one context the only part is all of `data`, whatever its shape.
    """
    if isinstance(ctx_list, Context) or not len(ctx_list):
        raise TypeError(f"split_and_load: expected a list of contexts, got {ctx_list}")
    make = loaders["np"]().array if is_np_array() else nd.array
    if not isinstance(data, (NDArray, np.ndarray)):
        data = make(data, ctx=cpu())
    parts = [data]
    if len(ctx_list) > 1:
        parts = split_data(data, len(ctx_list), batch_axis, even_split)
    if isinstance(data, NDArray):
        return [part.as_in_context(ctx) for part, ctx in zip(parts, ctx_list)]
    return [make(part, ctx=ctx) for part, ctx in zip(parts, ctx_list)]


def clip_global_norm(arrays: list[NDArray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale all arrays in place by one factor, so that their joint L2 norm is at most `max_norm`.

    norm = sqrt(sum over arrays of sum(x^2)), x <- x * min(1, max_norm / (norm + 1e-8)). The arrays
    may be in several contexts. Returns the norm: with `check_isfinite` as a number, which waits,
    and warns when the norm is not finite; otherwise as an NDArray, which does not wait.
    """
    assert len(arrays) > 0, "clip_global_norm: expected at least one array"
    by_context: dict[Any, list[NDArray]] = {}
    for x in arrays:
        by_context.setdefault(x.context, []).append(x)
    ctx = arrays[0].context
    # Two tasks per context, for any number of arrays; the sums are float32 for any dtype.
    squares = [
        registry["_sums_of_squares"](*some).sum().as_in_context(ctx) for some in by_context.values()
    ]
    norm = nd.sqrt(nd.add_n(*squares))
    scale = nd.clip(max_norm / (norm + 1e-8), 0, 1)
    for place, some in by_context.items():
        invoke(registry["_scale_arrays"], (scale.as_in_context(place), *some), {}, None)
    if not check_isfinite:
        return norm
    value = norm.asscalar()
    if not np.isfinite(value):
        warnings.warn("nan or inf is detected. Clipping results will be undefined.", stacklevel=2)
    return value


def as_default(array: Any) -> Any:
    """An array as programs expect it by default: an `np.ndarray` after `npx.set_np()`."""
    return array.as_np_ndarray() if is_np_array() and isinstance(array, NDArray) else array


def shape_is_known(shape: tuple[int, ...] | None) -> bool:
    """True if every size of a shape is known. 0 and -1 stand for unknown sizes, () for an unknown
    shape; with `util.np_shape`, 0 and () have NumPy's meaning."""
    if shape is None:
        return False
    least = 0 if is_np_shape() else 1
    return len(shape) >= least and all(size >= least for size in shape)


def merge_shapes(known: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Both shapes combined, known sizes replacing unknown ones; None if sizes contradict."""
    fits = all(a <= 0 or b <= 0 or a == b for a, b in zip(known, wanted))
    if not fits or len(known) != len(wanted):
        return None
    return tuple(a if a > 0 else b for a, b in zip(known, wanted))


class HookHandle(Standing):
    """The handle of a registered hook. `detach` removes the hook; so does leaving a `with` block of
    the handle."""

    _hooks: Any = None

    def attach(self, hooks: Any, hook: Callable) -> HookHandle:
        """Add `hook` to a Block's hooks."""
        assert self._hooks is None, "The same handle cannot be attached twice."
        hooks[id(self)] = hook
        self._hooks = weakref.ref(hooks)
        return self

    def detach(self) -> None:
        """Remove the hook; a second call does nothing."""
        hooks = self._hooks and self._hooks()
        if hooks is not None:
            hooks.pop(id(self), None)

    restore = detach


# -- downloads -------------------------------------------------------------------------------------


def sha1_of(filename: str | os.PathLike[str]) -> str:
    """The SHA-1 of the file's contents, in hexadecimal digits."""
    sha1 = hashlib.sha1()
    with open(filename, "rb") as file:
        while block := file.read(1 << 20):
            sha1.update(block)
    return sha1.hexdigest()


def check_sha1(filename: str, sha1_hash: str) -> bool:
    """True if the SHA-1 of the file's contents is `sha1_hash`."""
    return sha1_of(filename) == sha1_hash


def download(
    url: str, path: str | None = None, overwrite: bool = False, sha1_hash: str | None = None,
    retries: int = 5,
) -> str:  # fmt: skip
    """Download `url` to the file or folder `path` and return the file's path.

    path None: the current folder, under the file's own name. An existing file with the right hash
    is kept, unless `overwrite`. Raises ConnectionError when retries + 1 attempts fail, RuntimeError
    when the server has no such file, ValueError when the SHA-1 differs; then no file is left
    behind.
    """
    name = url.split("/")[-1]
    path = os.path.expanduser(path or "")
    target = os.path.join(path, name) if not path or os.path.isdir(path) else path
    if name in (".", "..") or "\\" in name or not target:
        raise ValueError(f"download: {url} does not end in the name of a file; set path=")
    assert retries >= 0, f"Number of retries should be at least 0, currently it's {retries}"
    there = os.path.exists(target) and not overwrite
    if there and (sha1_hash is None or check_sha1(target, sha1_hash)):
        return target
    from urllib.request import Request  # takes longer to import than the rest of Gluon

    request = Request(url)  # ValueError for a bad URL; later errors are the server's
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    for left in range(retries, -1, -1):
        try:
            print(f"Downloading {target} from {url}...")
            with files.replace_atomically(target) as [part]:
                _fetch(request, part)
                if sha1_hash is not None and not check_sha1(part, sha1_hash):
                    raise ValueError(
                        f"{url} was fetched, but its SHA-1 is not {sha1_hash}: the file there has "
                        "changed, or the transfer was damaged"
                    )
            return target
        except (ConnectionError, ValueError) as error:
            problem: Exception = error
        if left:
            print(f"download failed due to {problem!r}, retrying, {left} left")
    if isinstance(problem, ValueError):
        raise problem
    raise ConnectionError(
        f"download: cannot fetch {url}: {problem}. Without a network, put the file at "
        f"{os.path.abspath(target)} by hand: it is used as it is"
    ) from None


def _fetch(request: Any, path: str) -> None:
    """Write what the server sends. RuntimeError if it has no such file, ConnectionError for a
    failure of the network, which is worth another attempt; OSError for one of the disk."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        with urlopen(request, timeout=30) as answer, open(path, "xb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
            if missing := getattr(answer, "length", None):
                raise ConnectionError(f"{missing} bytes did not come")
    except HTTPError as error:
        raise RuntimeError(f"Failed downloading url {request.full_url}: {error}") from None
    except (URLError, HTTPException, TimeoutError) as error:
        raise ConnectionError(str(error)) from None
