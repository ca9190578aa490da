"""Every public module of MXNet 1.9.1 can be imported, and every public name from it: the name works
here, or gives an object that says when it is used that it is left out, and why.

`data/mxnet_names.txt` has the modules and names as the real MXNet has them, and
`tests/docs/test_docs.py` holds the file against the real MXNet."""

from __future__ import annotations

import fnmatch
import importlib
import sys

import mxnet_names
import pytest

from d2lmini import install_as_mxnet
from d2lmini.base.left_out import LEFT_OUT
from d2lmini.compat.left_out import Missing
from d2lmini.compat.mxnet_alias import uninstall

MODULES = {
    path.removeprefix("import "): names
    for path, names in mxnet_names.stored().items()
    if path.startswith("import ")
}

#: What MXNet's modules import from its other packages, and programs import from there.
BORROWED = {
    "mxnet.autograd": ["NDArray"],
    "mxnet.base": ["_as_list", "NotImplementedForSymbol"],
    "mxnet.contrib": ["nd", "ndarray", "sym", "symbol"],
    "mxnet.executor": ["py_str"],
    "mxnet.gluon.block": ["NDArray", "Symbol", "MXNetError"],
    "mxnet.gluon.trainer": ["KVStore"],
    "mxnet.optimizer.optimizer": ["NDArray", "py_str"],
}


@pytest.fixture(scope="module", autouse=True)
def alias():
    install_as_mxnet()
    yield
    uninstall()


@pytest.mark.parametrize("module", MODULES)
def test_everything_imports_and_says_what_it_is(module: str):
    assert importlib.import_module(module) is sys.modules[module]
    for name in (*MODULES[module], *BORROWED.get(module, ())):
        found: dict = {}
        exec(f"from {module} import {name}", found)
        if isinstance(found[name], Missing):
            with pytest.raises(NotImplementedError, match=rf"{name} is left out of d2lmini, \w"):
                found[name]()


@pytest.mark.parametrize("module", BORROWED)
def test_what_modules_borrow_works(module: str):
    for name in BORROWED[module]:
        assert not isinstance(getattr(importlib.import_module(module), name), Missing)


def test_every_row_of_the_table_is_about_a_name_of_mxnet():
    """Else a row has outlived its name, or has a spelling that no program uses."""
    ours = {name for names in LEFT_OUT.values() for name in names.split()}
    known = {p.removeprefix("import mxnet.") for p in mxnet_names.stored()}
    paths = {f"{p}.{n}" for p, names in mxnet_names.stored().items() for n in names}
    known |= {p.removeprefix("import mxnet.") for p in paths} | {
        "img",
        "mod",
        "mon",
        "set_monitor_callback",
        "Dataset.filter",
        "Dataset.sample",
        "Dataset.shard",
        "Dataset.take",
        "Executor.debug_str",
        "Executor.reshape",
        "KVStore.row_sparse_pull",
        "KVStore.set_gradient_compression",
        "LSTM.h2r_weight_initializer",
        "LSTM.projection_size",
        "LSTM.state_clip_min",
        "Trainer.compression_params",
        "Symbol.debug_str",
        "Symbol.gradient",
        "np.random.permutation",
    }
    parts = {part for path in known for part in (path, path.rpartition(".")[2])}
    assert [pattern for pattern in sorted(ours) if not fnmatch.filter(parts, pattern)] == []
