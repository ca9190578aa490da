"""The error that MXNet programs catch, and the small names they take from `mxnet.base`.

>>> from d2lmini.base import MXNetError
>>> issubclass(MXNetError, RuntimeError)
True
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

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


def explain_left_out(path: str) -> str:
    """The message for a name of MXNet, by its path, that is left out, with the reason; else ""."""
    from d2lmini.base.left_out import reason_of  # few programs ask

    reason = reason_of(path)
    return f"{path} is left out of d2lmini, {reason}" if reason else ""


def missing_attribute(
    where: str, name: str, names: Iterable[str], otherwise: str = ""
) -> AttributeError:
    """The error for a name that `where` does not have: left out on purpose (`left_out.py`), or
    unknown (see `suggest`)."""
    text = explain_left_out(f"{where.removeprefix('d2lmini.')}.{name}")
    text = text or f"{where} has no {name!r}{suggest(name, names, otherwise)}"
    # Python would add a suggestion of its own if it knew the object.
    return AttributeError(text, name=name, obj=None)


class LeftOut:
    """A method of MXNet that is left out: access raises an error with the reason."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.where, self.name = owner.__name__, name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise missing_attribute(self.where, self.name, dir(owner))


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


def _as_list(values: Any) -> Any:
    """A list or tuple as it is, and a single value as a list of one."""
    return values if isinstance(values, (list, tuple)) else [values]


def py_str(text: bytes | str) -> str:
    """A string of C, which Python may have decoded already, as a str."""
    return text.decode("utf-8") if isinstance(text, bytes) else text
