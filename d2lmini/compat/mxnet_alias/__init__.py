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
names. Only `mxnet` itself is a separate module (its version is MXNet's). A part of MXNet that
d2lmini does not have is a module whose names raise when used, not when imported: see
`unsupported.py`.

`d2lzh`, the package of the book these programs come from, is `d2lmini.d2l`; so is `d2l`, unless
another package of that name is installed.

From the command line: `python -m d2lmini run FILE.py` (`runner.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import d2lmini
from d2lmini.base import alias
from d2lmini.compat.mxnet_alias import unsupported
from d2lmini.compat.mxnet_alias.old_numpy import OneElementArray
from d2lmini.compat.mxnet_alias.unsupported import LeftOutModule

__all__ = ["install_as_mxnet", "installed", "uninstall"]

#: The MXNet release with this API.
VERSION = "1.9.1"

_BOOK = "d2lmini.d2l"

# MXNet's short names, and modules that have another name here.
_OTHER_NAMES = {
    "img": "image", "init": "initializer", "kv": "kvstore", "mod": "module", "mon": "monitor",
    "nd": "ndarray", "numpy": "np", "numpy_extension": "npx", "rnd": "random",
    "sym": "symbol", "viz": "visualization",
    "attribute": "symbol.attribute", "name": "symbol.naming",
}  # fmt: skip

#: The names in full, and the short names that `info --for` shows.
SHORT_NAMES = {
    "initializer": "init", "kvstore": "kv", "module": "mod", "ndarray": "nd", "numpy": "np",
    "numpy_extension": "npx", "symbol": "sym", "visualization": "viz",
}  # fmt: skip

# Modules that both have, and those that d2lmini will have.
_MODULES = """
    autograd base context engine gluon initializer io kvstore lr_scheduler metric ndarray np npx
    onnx optimizer profiler random runtime symbol test_utils util visualization""".split()

# Modules that have another place in MXNet.
_ELSEWHERE = {
    "contrib.amp": "contrib.amp", "contrib.onnx": "onnx", "executor": "compat.executor",
    "ndarray.numpy": "np", "ndarray.numpy_extension": "npx",
    "symbol.numpy": "np", "symbol.numpy_extension": "npx",
}  # fmt: skip

# What d2lmini has of modules that it leaves out otherwise: all public names of these modules.
_PARTS = {"model": "compat.checkpoint"}

# The names in `mxnet` that are not modules.
_NAMES = """
    AttrScope Context MXNetError cpu cpu_pinned current_context gpu is_np_array is_np_shape np_array
    np_shape num_gpus set_np_shape use_np use_np_array use_np_shape""".split()

# Files of MXNet's packages that programs import from, as `from mxnet.gluon.block import Block`. The
# names are looked up in d2lmini's file of that name, if there is one, and in the package above.
_FILES = """
    gluon.block gluon.parameter gluon.trainer gluon.utils
    gluon.nn.activations gluon.nn.basic_layers gluon.nn.conv_layers
    gluon.rnn.rnn_cell gluon.rnn.rnn_layer
    gluon.data.dataloader gluon.data.dataset gluon.data.sampler
    gluon.data.vision.datasets gluon.data.vision.transforms
    io.io io.utils kvstore.kvstore kvstore.base
    ndarray.ndarray ndarray.register ndarray.utils optimizer.optimizer
    symbol.symbol symbol.register""".split()


class _MXNet(ModuleType):
    """The module `mxnet`: its names are looked up in d2lmini at their first use."""

    __version__ = VERSION
    __file__ = __file__

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            value = getattr(d2lmini, name)
        elif name.startswith("__"):
            raise AttributeError(f"module 'mxnet' has no attribute {name!r}")
        else:
            try:
                value = import_module(f"mxnet.{name}")
            except ModuleNotFoundError as problem:
                if problem.name != f"mxnet.{name}":
                    raise
                raise AttributeError(
                    f"mxnet has no {name!r}, neither in MXNet {VERSION} nor in d2lmini"
                ) from None
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*_NAMES, *_MODULES, *_OTHER_NAMES, *unsupported.modules(), *vars(self)})


def _proper(name: str) -> tuple[str, str]:
    """A dotted name as (top, the rest with MXNet's short names in full)."""
    top, _, rest = name.partition(".")
    first, dot, deeper = rest.partition(".")
    return top, (_OTHER_NAMES.get(first, first) if top == "mxnet" else first) + dot + deeper


def _ours(top: str, rest: str) -> str | None:
    """The module of d2lmini that serves `top.rest`, or None."""
    if top != "mxnet":
        path = f"{_BOOK}.{rest}" if rest and rest != "utils" else _BOOK
    elif rest in _ELSEWHERE or rest.partition(".")[0] in _MODULES:
        path = f"d2lmini.{_ELSEWHERE.get(rest, rest)}"
    else:
        return None
    try:
        return path if importlib.util.find_spec(path) is not None else None
    except ModuleNotFoundError:
        return None


class _File(ModuleType):
    """A file of one of MXNet's packages: its names are those of some modules of d2lmini."""

    def __init__(self, name: str, sources: list[str]):
        super().__init__(name)
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for source in self._sources:
                module = import_module(source)
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Loader(Loader):
    """Puts an existing object under the requested name."""

    def __init__(self, value: Any):
        self.value = value

    def exec_module(self, module: ModuleType) -> None:
        # The import system lets a module replace itself: it returns the object stored here.
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = self.value
        if isinstance(self.value, (_MXNet, LeftOutModule)):
            self.value.__spec__ = spec


class _Finder(MetaPathFinder):
    """Answers for the top-level packages `tops` and for everything below them."""

    def __init__(self, *tops: str):
        self.tops = tops

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.tops:
            return None
        value = _find(fullname)
        return None if value is None else ModuleSpec(fullname, _Loader(value), is_package=True)


def _find(name: str) -> Any:
    """The object for a module of MXNet; None if MXNet has no module of this name."""
    if name == "mxnet":
        module = _MXNet("mxnet", __doc__)
        module.__path__ = []  # type: ignore[attr-defined]
        return module
    top, rest = _proper(name)
    parent, _, last = name.rpartition(".")
    ours = _ours(top, rest)
    if ours is not None:
        value = import_module(ours)
        if top == "mxnet":
            _complete(name, rest, value)
        return value
    if rest in _FILES:
        return sys.modules[parent]
    if last in vars(sys.modules.get(parent)):  # nd.linalg and others: namespaces, not modules
        return vars(sys.modules[parent])[last]
    reason = unsupported.MODULES.get(rest) if top == "mxnet" else None
    if reason is None:
        return None
    absent = LeftOutModule(name, reason)
    if rest == "libinfo":  # programs read the release from it
        absent.__version__ = VERSION  # type: ignore[attr-defined]
    for path, ours in _ELSEWHERE.items():  # a part of it that d2lmini has
        above, _, child = path.rpartition(".")
        if above == rest:
            setattr(absent, child, import_module(f"d2lmini.{ours}"))
    if rest in _PARTS:
        part = import_module(f"d2lmini.{_PARTS[rest]}")
        vars(absent).update({name: getattr(part, name) for name in part.__all__})
    return absent


# Attributes added to modules of d2lmini, for `uninstall` to remove: (module, name).
_hung: list[tuple[ModuleType, str]] = []


def _complete(name: str, path: str, module: ModuleType) -> None:
    """Add to a module the children that MXNet has and d2lmini has not: those left out, so that
    `from mxnet.gluon import contrib` works, and files that d2lmini divides differently."""
    for child in unsupported.modules(path):
        if child not in vars(module) and _ours("mxnet", f"{path}.{child}") is None:
            missing = LeftOutModule(f"{name}.{child}", unsupported.MODULES[f"{path}.{child}"])
            sys.modules[missing.__name__] = missing
            setattr(module, child, missing)
            _hung.append((module, child))
    for file in _FILES:
        above, _, child = file.rpartition(".")
        if above == path:
            ours = _ours("mxnet", file)
            part = _File(f"{name}.{child}", [*filter(None, [ours]), module.__name__])
            sys.modules[part.__name__] = part
            if ours is None:
                setattr(module, child, part)
                _hung.append((module, child))


_mxnet_finder = _Finder("mxnet", "d2lzh")
_d2l_finder = _Finder("d2l")


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
    return spec is not None and isinstance(spec.loader, _Loader)


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
        module, name = _hung.pop()
        if isinstance(vars(module).get(name), (LeftOutModule, _File)):
            delattr(module, name)
