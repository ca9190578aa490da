"""Old programs run unchanged: `import mxnet` gets d2lmini.

>>> import d2lmini
>>> d2lmini.install_as_mxnet()
>>> import mxnet as mx
>>> from mxnet import autograd, nd
>>> from mxnet.base import MXNetError
>>> nd is d2lmini.nd, mx.cpu is d2lmini.cpu, mx.__version__
(True, True, '1.9.1')
>>> mx.image.imread("cat.jpg")
Traceback (most recent call last):
NotImplementedError: mxnet.image.imread is left out of d2lmini, as all of MXNet's image operations
>>> d2lmini.compat.mxnet_alias.uninstall()

How it works. Python asks the finders in `sys.meta_path` for a module it has not loaded. The finder
of this module answers for `mxnet` and everything below it, and puts the *same* module object that
d2lmini has into `sys.modules` under the second name, so that classes are identical under both
names. Only `mxnet` itself is a separate module (its version is MXNet's). While the alias is
installed, a name that a module does not have is looked up where MXNet has it; a part of MXNet that
d2lmini leaves out is an object that raises when it is used, not when it is imported: see
`compat/left_out.py`.

`d2lzh`, the package of the book these programs come from, is `d2lmini.d2l`; so is `d2l`, unless
another package of that name is installed.

From the command line: `python -m d2lmini run FILE.py` (`runner.py`).
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

import d2lmini
from d2lmini.addons import MODULES, SecondName, SecondNames
from d2lmini.base import alias
from d2lmini.compat.left_out import Missing, stand_in

__all__ = ["install_as_mxnet", "installed", "uninstall"]

#: The MXNet release with this API.
VERSION = "1.9.1"

_BOOK = "d2lmini.d2l"

# MXNet's short names, and modules that have another name here.
_OTHER_NAMES = {
    "img": "image", "init": "initializer", "kv": "kvstore", "mod": "module", "mon": "monitor",
    "nd": "ndarray", "numpy": "np", "numpy_extension": "npx", "rnd": "random",
    "sym": "symbol", "viz": "visualization",
    "attribute": "symbol.naming", "name": "symbol.naming",
}  # fmt: skip

#: The names in full, and the short names that `info --for` shows.
SHORT_NAMES = {
    "initializer": "init", "kvstore": "kv", "module": "mod", "ndarray": "nd", "numpy": "np",
    "numpy_extension": "npx", "symbol": "sym", "visualization": "viz",
}  # fmt: skip

# Modules that both have.
_MODULES = """
    autograd base context contrib engine gluon initializer io kvstore lr_scheduler metric ndarray np
    npx onnx optimizer profiler random runtime symbol util visualization""".split()

# Modules that have another place in MXNet; "module:name" is an object in a module.
_ELSEWHERE = {
    "contrib.nd": "ndarray:contrib", "contrib.ndarray": "ndarray:contrib",
    "contrib.sym": "symbol:contrib", "contrib.symbol": "symbol:contrib",
    "contrib.onnx": "onnx", "executor": "compat.executor", "model": "compat.model",
    "ndarray.numpy": "np", "ndarray.numpy_extension": "npx",
    "symbol.numpy": "np", "symbol.numpy_extension": "npx",
}  # fmt: skip

# The names in `mxnet` that are not modules.
_NAMES = """
    AttrScope Context MXNetError cpu cpu_pinned current_context gpu is_np_array is_np_shape np_array
    np_shape num_gpus set_np_shape use_np use_np_array use_np_shape""".split()

# Files of MXNet's packages that programs import from, as `from mxnet.gluon.block import Block`.
# What the file of that name here does not have, the package above has.
_FILES = """
    contrib.amp.amp gluon.block gluon.parameter gluon.trainer gluon.utils
    gluon.nn.activations gluon.nn.basic_layers gluon.nn.conv_layers
    gluon.rnn.rnn_cell gluon.rnn.rnn_layer
    gluon.data.dataloader gluon.data.dataset gluon.data.sampler
    gluon.data.vision.datasets gluon.data.vision.transforms
    io.io io.utils kvstore.kvstore kvstore.base
    ndarray.ndarray ndarray.register ndarray.utils
    np.arrayprint np.fallback np.fallback_linalg np.function_base np.io np.multiarray
    np.stride_tricks np.utils npx.utils onnx.mx2onnx optimizer.optimizer
    symbol.symbol symbol.register""".split()

# Names that MXNet's files import from each other, and programs from any of these files; by the
# module that has them.
_SHARED = {
    "base": "MXNetError integer_types mx_real_t numeric_types py_str string_types",
    "context": "Context current_context",
    "contrib.amp.loss_scaler": "LossScaler",
    "gluon": "HybridBlock",
    "kvstore": "KVStore",
    "ndarray": "NDArray",
    "symbol": "NotImplementedForSymbol Symbol",
    "util": "is_np_array np_array np_shape use_np use_np_shape",
}


class _MXNet(ModuleType):
    """The module `mxnet`: its names are looked up in d2lmini at their first use."""

    __version__ = VERSION
    __file__ = __file__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'mxnet' has no attribute {name!r}")
        value = getattr(d2lmini, name) if name in _NAMES else _child("mxnet", name)
        if value is None:
            raise AttributeError(
                f"mxnet has no {name!r}, neither in MXNet {VERSION} nor in d2lmini"
            )
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*_NAMES, *_MODULES, *_OTHER_NAMES, *vars(self)})


def _child(parent: str, name: str) -> Any:
    """The module `parent.name` of MXNet, or what stands for a name that is left out; else None."""
    try:
        return import_module(f"{parent}.{name}")
    except ModuleNotFoundError as problem:
        if problem.name != f"{parent}.{name}":
            raise
        return None


def _proper(name: str) -> tuple[str, str]:
    """A dotted name as (top, the rest with MXNet's short names in full)."""
    top, _, rest = name.partition(".")
    first, dot, deeper = rest.partition(".")
    return top, (_OTHER_NAMES.get(first, first) if top == "mxnet" else first) + dot + deeper


def short(path: str) -> str:
    """The path with MXNet's short names: "mxnet.ndarray.dot" -> "mxnet.nd.dot"."""
    top, *parts = path.split(".")
    if top == "mxnet" and parts:
        parts[0] = SHORT_NAMES.get(parts[0], parts[0])
    return ".".join([top, *parts])


def _ours(top: str, rest: str) -> Any:
    """The module of d2lmini that serves `top.rest`, or None."""
    if top != "mxnet":
        path = f"{_BOOK}.{rest}" if rest and rest != "utils" else _BOOK
    elif rest in _ELSEWHERE or rest.partition(".")[0] in _MODULES:
        above, _, last = rest.rpartition(".")
        if above in ("ndarray.numpy", "ndarray.numpy_extension", "symbol.numpy_extension"):
            rest = f"{_ELSEWHERE[above]}.{last}"
        path = f"d2lmini.{_ELSEWHERE.get(rest, rest)}"
    else:
        return None
    module, _, name = path.partition(":")
    try:
        return pkgutil.resolve_name(f"{module}:{name}")
    except ModuleNotFoundError as problem:
        if not (problem.name or "").startswith("d2lmini."):
            raise
        return None


def _find(name: str) -> Any:
    """The object for a module of MXNet, or for a name that is left out; None if MXNet has no such
    name."""
    if name == "mxnet":
        module = _MXNet("mxnet", __doc__)
        module.__path__ = []  # type: ignore[attr-defined]
        return module
    top, path = _proper(name)
    parent, _, last = name.rpartition(".")
    above = sys.modules.get(parent)
    if isinstance(above, Missing):
        return getattr(above, last)
    found = _ours(top, path)
    if top != "mxnet":
        return found
    if found is None:
        inside = vars(above).get(last)  # nd.linalg and others: namespaces, not files
        found = above if path in _FILES else inside if isinstance(inside, ModuleType) else None
    if found is None:
        found = stand_in(short(name).partition(".")[2])
        if found is not None and path == "libinfo":  # programs read the release from it
            vars(found)["__version__"] = VERSION
    elif found is not above:
        _open(found)
    if found is not None:
        _hang(above, last, found)  # as the import system does, which `uninstall` could not undo
    return found


_PUBLIC = {module: public for public, module in MODULES.items()}

# Attributes of modules of d2lmini as they were before: (module, name, former value).
_ABSENT = object()
_hung: list[tuple[Any, str, Any]] = []


def _hang(module: Any, name: str, value: Any) -> None:
    """Set an attribute of a module, until `uninstall`."""
    _hung.append((module, name, vars(module).get(name, _ABSENT)))
    setattr(module, name, value)


def _open(module: ModuleType) -> None:
    """Let a module of d2lmini, and those that it holds, find the names that MXNet's module has and
    it has not."""
    own: Callable[[str], Any] | None = getattr(module, "__getattr__", None)
    if getattr(own, "__module__", None) == __name__:
        return
    path = _PUBLIC.get(module.__name__, module.__name__)
    path = path.removeprefix("d2lmini.").removeprefix("compat.")

    def find_name(wanted: str) -> Any:
        try:
            if own is None:
                raise AttributeError(f"mxnet.{path} has no {wanted!r}")
            value = own(wanted)
            open_child(wanted, value)
            return value
        except AttributeError as problem:
            if wanted.startswith("__"):
                raise
            _, left_out, reason = str(problem).partition("is left out of d2lmini, ")
            if left_out:
                return Missing(short(f"mxnet.{path}.{wanted}"), reason)
            found = _elsewhere(path, wanted)
            if found is None:
                raise
            return found

    def open_child(child: str, value: Any) -> None:
        names = f"{module.__name__}.{child}", short(f"mxnet.{path}.{child}").removeprefix("mxnet.")
        if isinstance(value, ModuleType) and value.__name__ in names:
            _open(value)

    for child, value in list(vars(module).items()):
        open_child(child, value)
    _hang(module, "__getattr__", find_name)
    if "__path__" not in vars(module):
        _hang(module, "__path__", [])  # a package: programs import what MXNet has below it


def _elsewhere(path: str, name: str) -> Any:
    """A name that MXNet's module has and ours has not: it is in another module, or left out. None
    if MXNet has no such name."""
    for home, names in _SHARED.items():
        if name in names.split():
            return pkgutil.resolve_name(f"d2lmini.{home}:{name}")
    if path in _FILES:
        package = import_module(f"mxnet.{path}".rpartition(".")[0])
        if hasattr(package, name):
            return getattr(package, name)
    return _child(f"mxnet.{path}", name)


def _finder(*tops: str) -> Any:
    """Answers for these packages and for everything below them."""
    return SecondNames(lambda name: _find(name) if name.partition(".")[0] in tops else None)


_mxnet_finder, _d2l_finder = _finder("mxnet", "d2lzh"), _finder("d2l")


def install_as_mxnet() -> None:
    """Make `import mxnet` (and `d2lzh`, the book's package) give d2lmini from now on.

    Call it before the first `import mxnet`; a second call does nothing. ImportError when the real
    mxnet is in this process already.
    """
    real = sys.modules.get("mxnet")
    if real is not None and not isinstance(real, _MXNet):
        raise ImportError(
            f"install_as_mxnet: mxnet {getattr(real, '__version__', '')} is already imported in "
            f"this process (from {getattr(real, '__file__', 'somewhere')}); call "
            "install_as_mxnet() before anything imports it, or start a new process"
        )
    if not installed():
        sys.meta_path.insert(0, _mxnet_finder)
        sys.meta_path.append(_d2l_finder)
        alias.installed, alias.array = True, OneElementArray


def is_alias(top: str) -> bool:
    """True if `import top` gets d2lmini, and not another library of the same name."""
    if top in sys.modules:
        module = sys.modules[top]
        return isinstance(module, _MXNet) or module is sys.modules.get(_BOOK)
    spec = importlib.util.find_spec(top)
    return spec is not None and isinstance(spec.loader, SecondName)


def installed() -> bool:
    """True if `import mxnet` gets d2lmini."""
    return alias.installed


def uninstall() -> None:
    """Undo `install_as_mxnet`: remove the second names. Objects made through them stay valid."""
    if not installed():
        return
    alias.installed, alias.array = False, None
    sys.meta_path.remove(_mxnet_finder)
    sys.meta_path.remove(_d2l_finder)
    book = sys.modules.get(_BOOK)
    tops = ["mxnet", *(top for top in ("d2lzh", "d2l") if sys.modules.get(top, 0) is book)]
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]
    while _hung:
        module, name, former = _hung.pop()
        vars(module)[name] = former
        if former is _ABSENT:
            del vars(module)[name]


# -- arrays --------------------------------------------------------------------------------------


def _convert_by(kind: type) -> Any:
    """A method that converts the array's one element."""
    return lambda array: kind(array._number())


class OneElementArray(np.ndarray):
    """What `asnumpy` gives under the alias: an array that is a number, too, if it has one element.

    Programs written for MXNet print `"%f" % loss.mean().asnumpy()`, of shape (1,). NumPy 2.4 takes
    only arrays without axes for numbers; NumPy at that time took every array of one element.

    >>> import math
    >>> x = np.array([[2.25]], "float32").view(OneElementArray)
    >>> "%f, %d" % (x, x), float(x), round(x, 1), math.sqrt(x), f"{x:.3f}"
    ('2.250000, 2', 2.25, 2.2, 1.5, '2.250')

    Otherwise it is an ndarray: it prints, pickles and copies as an ndarray, slices and results of
    ufuncs behave like it, and numbers computed from it are NumPy's scalars. NumPy at that time had
    no `round` and `format` for arrays; this class has both.
    """

    __float__ = _convert_by(float)
    __int__ = __trunc__ = _convert_by(int)
    __complex__ = _convert_by(complex)

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self._number(), ndigits)

    def __format__(self, spec: str) -> str:
        return format(self._number(), spec) if spec else str(self)

    def _number(self) -> Any:
        """The one element as a Python number; for more a TypeError, in old NumPy's words."""
        if self.size != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return self.item()

    # NumPy asks a subclass how to wrap results, and would leave those without axes arrays.
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(type(self))

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)
