"""The error that MXNet programs catch, and the small names they take from `mxnet.base`.

>>> from d2lmini.base import MXNetError
>>> issubclass(MXNetError, RuntimeError)
True
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np


class MXNetError(RuntimeError):
    """Wrong shape, dtype, context or attribute of an operation, or a failure while it ran.

    The first kind is raised at the call, the second at a wait (`wait_to_read`, `asnumpy`,
    `waitall`, ...), naming the operation and the line that issued it.
    """


class ArgumentTypeError(MXNetError, TypeError):
    """An argument of an operation that is missing, unknown, given twice or of another type: MXNet
    raises MXNetError for some of these and Python TypeError for others."""


class ArgumentValueError(MXNetError, ValueError):
    """An argument with a value that it cannot have, such as a shape of another size: MXNet raises
    MXNetError for some of these and Python's ValueError for others."""


class FileError(OSError, MXNetError):
    """A file that cannot be read or written: MXNet raises MXNetError for some files, Python's
    OSError for others."""


def suggest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The end of an error about a missing name: those of `names` that look like it, else
    `otherwise`.

    >>> suggest("dott", ["add", "dot"])
    "; did you mean 'dot'?"
    >>> suggest("nothing", ["add", "dot"], "; dir(nd) lists the names")
    '; dir(nd) lists the names'
    """
    if name.startswith("_"):  # programs and Python itself ask for such names
        return otherwise
    from difflib import get_close_matches

    # Without regard to case, because `dense` means `Dense`; but `Trainr` does not mean `trainer`.
    public = [other for other in names if not other.startswith("_")]
    public.sort(key=lambda other: other[0].isupper() == name[0].isupper())
    known = {other.lower(): other for other in public}
    close = get_close_matches(name.lower(), known, cutoff=0.75)
    listed = " or ".join(repr(known[other]) for other in close)
    return f"; did you mean {listed}?" if listed else otherwise


def explain_left_out(where: str, name: str, reasons: Mapping[str, str]) -> str:
    """The message for a name in `reasons`, those that d2lmini leaves out, in any case; else ""."""
    for known, reason in reasons.items():
        if known.lower() == name.lower():
            return f"{where}.{known} is left out of d2lmini, {reason}"
    return ""


def missing_attribute(
    where: str,
    name: str,
    names: Iterable[str],
    otherwise: str = "",
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> AttributeError:
    """The error for a name that `where` does not have; see `suggest`. `left_out`: names that are
    left out on purpose, and what to use instead."""
    text = explain_left_out(where, name, left_out)
    text = text or f"{where} has no {name!r}{suggest(name, names, otherwise)}"
    # Python would add a suggestion of its own if it knew the object.
    return AttributeError(text, name=name, obj=None)


class Alias:
    """`alias`: does `import mxnet` give this library (`install_as_mxnet`)? Then programs written
    for MXNet run, and some results look as they did there.

    array  the class that `asnumpy` returns then, a subclass of ndarray
    """

    installed = False
    array: Any = None


alias = Alias()

#: The default dtype of arrays.
mx_real_t = np.float32

#: For isinstance: the types of integers, numbers, strings.
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)


#: Functions that load, by name, what a lower floor offers but a higher floor defines. Filled in by
#: the package's `__init__`, which may import anything.
loaders: dict[str, Callable[[], Any]] = {}


def py_str(text: bytes) -> str:
    """A bytes string of C as a str."""
    return text.decode("utf-8")
