"""What stands for a part of MXNet that d2lmini leaves out: an object that raises when it is used.

>>> from d2lmini.compat.left_out import stand_in
>>> imread = stand_in("image").imread    # as at the top of a program that may not need it
>>> imread("cat.jpg")
Traceback (most recent call last):
NotImplementedError: mxnet.image.imread is left out of d2lmini, as all of MXNet's image operations

A program that imports a missing name without using it runs; a program that needs the name gets an
error with the name, the reason and what to do instead, at the line that uses it. The error is a
NotImplementedError and not an MXNetError, because programs catch MXNetError to go on without a GPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from d2lmini.base.left_out import reason_of


def _raise(self: Missing, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(self.__doc__)


class Missing(ModuleType):
    """Stands for a missing module, class or function. Access to it, and to names below it, is free;
    calling it, deriving from it, or computing with it raises. Nothing is an instance of it."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, f"{name} is left out of d2lmini, {reason}")
        self.__path__: list[str] = []  # a package: programs import modules below it
        self.reason = reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self.reason)

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"

    __call__ = __mro_entries__ = __enter__ = __iter__ = __bool__ = __len__ = _raise
    __getitem__ = __setitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _raise
    )
    __truediv__ = __rtruediv__ = __matmul__ = __pow__ = __neg__ = __lt__ = __gt__ = _raise
    __float__ = __int__ = __index__ = __array__ = _raise


def stand_in(path: str) -> Missing | None:
    """What stands for a name of MXNet with this path below `mxnet`; None if no row has the name."""
    reason = reason_of(path)
    return None if reason is None else Missing(f"mxnet.{path}", reason)
