"""The error that MXNet programs catch.

>>> from d2lmini.base import MXNetError
>>> issubclass(MXNetError, RuntimeError)
True
"""


class MXNetError(RuntimeError):
    """Wrong shape, dtype, context or attribute of an operation, or a failure while it ran.

    The first kind is raised at the call, the second at the wait that meets it (`wait_to_read`,
    `asnumpy`, `waitall`, ...), naming the operation and the line that issued it.
    """
