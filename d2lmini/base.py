"""The error that MXNet programs catch, and the small names they take from `mxnet.base`.

>>> from d2lmini.base import MXNetError
>>> issubclass(MXNetError, RuntimeError)
True
"""

from collections.abc import Callable
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
