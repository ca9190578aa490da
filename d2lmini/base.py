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

    The first kind is raised at the call, the second at the wait that meets it (`wait_to_read`,
    `asnumpy`, `waitall`, ...), naming the operation and the line that issued it.
    """


class Alias:
    """`alias`: does `import mxnet` get this library (`install_as_mxnet`)? Then programs of MXNet's
    time run, and expect what they saw then.

    array  what `asnumpy` gives then, a subclass of ndarray
    """

    installed = False
    array: Any = None


alias = Alias()

#: The dtype of arrays that ask for none.
mx_real_t = np.float32

#: For isinstance: what counts as an integer, a number, a string.
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)
string_types = (str,)


#: How to load what a lower floor offers and a higher one does, by name; the package's own
#: `__init__`, which may import anything, fills it in.
loaders: dict[str, Callable[[], Any]] = {}


def py_str(text: bytes) -> str:
    """A string of C as one of Python."""
    return text.decode("utf-8")
