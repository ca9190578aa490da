"""Add-ons: the parts of the library that the core does not need, each in a folder of its own.

    cuda         GPUs by CuPy: streams, kernels, replayed graphs, NCCL
    distributed  several processes that train together
    onnx         nets as ONNX files
    compat       interfaces of older MXNet programs: `import mxnet`, `mx.io`, `Symbol.bind`,
                 `mx.profiler`, the helper packages of the books

An add-on imports the core; the core imports no add-on. The core names the hooks that it needs, and
the tables of this module say which module of an add-on provides each. That module is imported when
a program first asks for it:

>>> from d2lmini import addons, io
>>> addons.find("kvstore.dist")
<function create at ...>
>>> io.__name__
'd2lmini.compat.io'

A copy of the library without the folder of an add-on works, except for the add-on's own features:
using one raises an error that names the add-on (`tests/repository/test_addons.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from d2lmini.base import MXNetError, missing_attribute

#: Hooks of the core, and the "module" or "module:name" of an add-on that provides each.
HOOKS = {
    "gpu": "d2lmini.cuda.device",
    "emit_cuda": "d2lmini.cuda.emit_cuda",
    "kvstore.dist": "d2lmini.distributed:create",
    "launch": "d2lmini.distributed.launch:launch",
    "export_onnx": "d2lmini.onnx:export_onnx",
    "Symbol.bind": "d2lmini.compat.executor",
    "run": "d2lmini.compat.mxnet_alias.runner:run",
    "examine": "d2lmini.compat.mxnet_alias.examine:examine",
}

#: Public names: the module that shows them, and the module of an add-on that provides them.
NAMES = {
    ("d2lmini", "d2lmini.compat.mxnet_alias"): "install_as_mxnet",
    ("d2lmini.d2l", "d2lmini.compat.books.first"): """
        RNNModel data_iter data_iter_consecutive data_iter_random get_data_ch7
        get_fashion_mnist_labels load_data_fashion_mnist load_data_jay_lyrics predict_rnn
        predict_rnn_gluon show_fashion_mnist to_onehot train train_2d train_and_predict_rnn
        train_and_predict_rnn_gluon train_ch3 train_ch5 train_ch7 train_gluon_ch7""",
    ("d2lmini.d2l", "d2lmini.compat.books.shared"): """
        Residual bbox_to_rect corr2d evaluate_accuracy_gpus grad_clipping linreg resnet18 semilogy
        set_figsize sgd show_bboxes show_images show_trace_2d squared_loss use_svg_display""",
    ("d2lmini.kvstore", "d2lmini.distributed"): "DistKVStore",
    ("d2lmini.profiler", "d2lmini.compat.mx_profiler"):
        "dump dumps pause resume set_config set_state",
}  # fmt: skip

#: Modules that lie in a room, and the public names under which programs import them.
MODULES = {
    "d2lmini.instrument": "d2lmini.base.instrument",
    "d2lmini.lr_scheduler": "d2lmini.optimizer.lr_scheduler",
    "d2lmini.random": "d2lmini.ndarray.random",
    "d2lmini.util": "d2lmini.base.util",
    "d2lmini.runtime": "d2lmini.compat.runtime",
    "d2lmini.viz": "d2lmini.compat.visualization",
    "d2lmini.visualization": "d2lmini.compat.visualization",
    "d2lmini.io": "d2lmini.compat.io",
    "d2lmini.mxnet_alias": "d2lmini.compat.mxnet_alias",
    "d2lmini.launch": "d2lmini.distributed.launch",
    "d2lmini.d2l.mxnet": "d2lmini.compat.books.second",
}

_PROVIDERS = {
    **MODULES,
    **{
        f"{shown_in}.{name}": f"{module}:{name}"
        for (shown_in, module), names in NAMES.items()
        for name in names.split()
    },
}


def find(hook: str, required: bool = True) -> Any:
    """The object that an add-on provides for a hook of the core. If the add-on is missing:
    MXNetError, or None unless `required`."""
    try:
        return load(HOOKS[hook])
    except ModuleNotFoundError as problem:
        message = _explain(hook, problem)
        if not required:
            return None
        raise MXNetError(message) from problem


def names_of(module: str) -> list[str]:
    """The public names that add-ons add to a module of the core."""
    return [name.rpartition(".")[2] for name in _PROVIDERS if name.rpartition(".")[0] == module]


def attribute_of(module: str, name: str) -> Any:
    """The public name that an add-on adds to a module of the core; the module then keeps it.
    AttributeError if no add-on has that name, or the add-on is missing."""
    provider = _PROVIDERS.get(f"{module}.{name}")
    if provider is None:
        raise missing_attribute(module, name, names_of(module))
    try:
        value = load(provider)
    except ModuleNotFoundError as problem:
        raise AttributeError(_explain(f"{module}.{name}", problem)) from problem
    setattr(sys.modules[module], name, value)
    return value


def load(provider: str) -> Any:
    """The object of "module:name", or the module."""
    module, _, name = provider.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


def _explain(what: str, problem: ModuleNotFoundError) -> str:
    """The message for a missing add-on; raises `problem` if another package is missing."""
    if not (problem.name or "").startswith("d2lmini."):
        raise problem
    return f"{what} needs the add-on {problem.name}, which is missing from this copy of d2lmini"


class SecondNames:
    """Lets `import` find modules by other names, as the same objects: `find` gives the object for a
    name, or None.

    The finder stands in `sys.meta_path`, and its specs name a loader that puts the object under the
    requested name. (The classes have the methods of `importlib.abc`'s classes, but do not import
    that module, which is slow.)
    """

    def __init__(self, find: Callable[[str], Any]):
        self.find = find

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        value = self.find(fullname)
        loader = cast(Any, SecondName(value))
        return None if value is None else ModuleSpec(fullname, loader, is_package=True)


class SecondName:
    """The loader of an existing object."""

    def __init__(self, value: Any):
        self.value = value

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns the content of `sys.modules` after this function.
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = self.value
        self.value.__spec__ = self.value.__spec__ or spec


def _module_of(name: str) -> ModuleType | None:
    """The module with this public name, or below one."""
    for public, module in MODULES.items():
        if name.startswith(public) and name[len(public) :][:1] in ("", "."):
            return import_module(module + name[len(public) :])
    return None


# First, because the usual finder would look for "d2lmini.mxnet_alias.runner" in the folder of the
# package `mxnet_alias`, and would load that file a second time.
sys.meta_path.insert(0, cast(Any, SecondNames(_module_of)))
