"""Names of MXNet that d2lmini does not have: they can be imported, and raise when used.

>>> from d2lmini.compat.mxnet_alias.unsupported import LeftOutModule
>>> image = LeftOutModule("mxnet.image", "as all of MXNet's image operations")
>>> imread = image.imread               # as at the top of a program that may not need it
>>> imread("cat.jpg")
Traceback (most recent call last):
NotImplementedError: mxnet.image.imread is left out of d2lmini, as all of MXNet's image operations

A program that imports a missing name without using it runs; a program that needs the name gets an
error with the name, at the line that uses it. The error is a NotImplementedError and not an
MXNetError, because programs catch MXNetError to go on without a GPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

# Modules of MXNet 1.9 that d2lmini does not have, and why.
_MODULES = {
    "as all of MXNet's image operations": """
        image image.detection image.image recordio ndarray.image""",
    "as all of MXNet's tools for text": """
        contrib.text contrib.text.embedding contrib.text.utils contrib.text.vocab""",
    "as all of MXNet's contributed extras": """
        contrib contrib.autograd contrib.io contrib.ndarray contrib.quantization contrib.symbol
        contrib.tensorboard gluon.contrib.cnn gluon.contrib.estimator gluon.contrib.rnn""",
    "which loads trained networks from the Internet; d2l.resnet18 is a network to train":
        "gluon.model_zoo gluon.model_zoo.model_store gluon.model_zoo.vision",
    "as all of MXNet's sparse arrays": "symbol.sparse",
    "as all of MXNet's custom operators": "operator rtc library tvmop torch th",
    "as is the interface before Gluon; gluon.Trainer and a loop do the same": """
        callback executor_manager model module module.base_module module.bucketing_module
        module.module module.python_module module.sequential_module monitor rnn rnn.io rnn.rnn
        rnn.rnn_cell""",
    "as are the tools around MXNet's own binary": "error libinfo log notebook registry",
    "as are MXNet's parameter servers; kvstore 'dist_sync' needs none": "kvstore.kvstore_server",
}  # fmt: skip
#: The path of each below `mxnet`, and its reason.
MODULES = {module: reason for reason, names in _MODULES.items() for module in names.split()}


def modules(parent: str = "") -> list[str]:
    """The missing modules directly below `mxnet.PARENT`."""
    return [m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == parent]


def explain(name: str, reason: str) -> NotImplementedError:
    """The error for using `name`."""
    return NotImplementedError(f"{name} is left out of d2lmini, {reason}")


def _raise(self: Missing, *args: Any, **kwargs: Any) -> NoReturn:
    raise explain(self._name, self._reason)


class Missing:
    """Stands for a missing function or class. Access to it, and to names below it, is free;
    calling it, deriving from it, or computing with it raises. Nothing is an instance of it."""

    def __init__(self, name: str, reason: str):
        self._name = name
        self._reason = reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._reason)

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{explain(self._name, self._reason)}>"

    __call__ = __mro_entries__ = __enter__ = __iter__ = __bool__ = __len__ = _raise
    __getitem__ = __setitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _raise
    )
    __truediv__ = __rtruediv__ = __matmul__ = __pow__ = __neg__ = __lt__ = __gt__ = _raise
    __float__ = __int__ = __index__ = __array__ = _raise


class LeftOutModule(ModuleType):
    """A module of MXNet that d2lmini does not have: all its names are `Missing`."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, f"{explain(name, reason)}.")
        self.__path__: list[str] = []  # an empty package: `_Finder` finds the modules below it
        self._reason = reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        return Missing(path, MODULES.get(path.partition(".")[2], self._reason))

    def __repr__(self) -> str:
        return f"<module {explain(self.__name__, self._reason)}>"
