"""d2lmini: MXNet 1.x's API with an asynchronous engine one can read, in pure Python on NumPy.

>>> from d2lmini import nd
>>> x = nd.ones((2, 3))
>>> y = nd.dot(x, x.T) + 1                # returns at once; a worker computes
>>> y                                     # printing waits
<BLANKLINE>
[[4. 4.]
 [4. 4.]]
<NDArray 2x2 @cpu(0)>

The contents, from the ground up:

context    where arrays live: cpu(), gpu(i)
virtual_gpus
           several GPUs simulated on the CPU, for programs that need them
engine     runs every operation in an order the program allows
storage    pooled memory, counted to the byte
ops        every operation, declared once
nd         NDArray and the functions on it
sym        Symbol: computations that are described first and run later
lazy       a scope that computes only what is read
autograd   record operations, walk back for gradients
init, optimizer, lr_scheduler, metric, io
           the other parts of training
kv         KVStore: sums over devices, one value for all of them
np, npx    arrays with NumPy's functions and rules, and what NumPy has not
gluon      layers, losses, data, Trainer
contrib    amp: training in mixed precision
random     seeds and random arrays
util       the switches of MXNet's NumPy interface
viz        a Symbol as a picture and as a table
profile    a scope that records its operations and waits: when, on which thread, after which others
watch      the same live, beside a notebook's cell
lint_waits finds lines that wait for a value without showing it
d2l        helpers for chapters and readers: Benchmark, compare, get_mem
install_as_mxnet
           lets old programs `import mxnet` and get this library
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from d2lmini import addons, base, context, engine
from d2lmini.base import MXNetError, environment, instrument
from d2lmini.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus

if TYPE_CHECKING:
    from d2lmini import initializer as init
    from d2lmini import kvstore as kv
    from d2lmini import ndarray as nd
    from d2lmini import symbol as sym
    from d2lmini.base import util
    from d2lmini.d2l import Benchmark, get_mem
    from d2lmini.device import storage
    from d2lmini.device.virtual_device import virtual_gpus
    from d2lmini.graph.lazy import lazy
    from d2lmini.ndarray import random
    from d2lmini.optimizer import lr_scheduler
    from d2lmini.profiler import profile
    from d2lmini.profiler.waits import lint_waits
    from d2lmini.symbol import AttrScope
    from d2lmini.widgets.watch import watch

__version__ = "0.1.0"

# What lower floors ask for, and higher floors define: `num_gpus` asks the devices, one floor up.
_LOADED = {
    "devices": "d2lmini.device.devices",
    "compiled_formula": "d2lmini.graph.program:compiled_formula",
    "CachedOp": "d2lmini.graph.cached_op:CachedOp",
    "np": "d2lmini.np",
    "npx": "d2lmini.npx",
    "np.ndarray": "d2lmini.np.arrays:ndarray",
    "np.Traced": "d2lmini.np.arrays:TracedNumpy",
    "get_symbol": "d2lmini.graph.cached_op:get_symbol",
}
base.loaders.update({name: partial(addons.load, path) for name, path in _LOADED.items()})

__all__ = [
    "AttrScope", "Benchmark", "Context", "MXNetError", "autograd", "base", "context", "cpu",
    "contrib", "cpu_pinned", "current_context", "d2l", "engine", "get_mem", "gluon", "gpu", "init",
    "initializer", "install_as_mxnet", "instrument", "io", "kv", "kvstore", "lazy",
    "lint_waits", "lr_scheduler", "metric", "nd", "ndarray", "np", "npx", "num_gpus", "optimizer",
    "profile", "profiler", "random", "runtime", "storage", "sym", "symbol",
    "util", "virtual_gpus", "visualization", "viz", "watch", "widgets",
]  # fmt: skip

# Imported at first use: a module below `d2lmini`, or "module:name".
_LAZY = {
    "nd": "ndarray", "sym": "symbol", "init": "initializer", "kv": "kvstore",
    "storage": "device.storage", "AttrScope": "symbol:AttrScope", "Benchmark": "d2l:Benchmark",
    "get_mem": "d2l:get_mem", "lazy": "graph.lazy:lazy", "lint_waits": "profiler.waits:lint_waits",
    "profile": "profiler:profile", "watch": "widgets.watch:watch",
    "virtual_gpus": "device.virtual_device:virtual_gpus",
}  # fmt: skip
_LAZY |= {
    name: name
    for name in """
        autograd contrib d2l gluon initializer kvstore metric ndarray np npx optimizer profiler
        symbol widgets""".split()
}
_LAZY |= {
    name: f"base.util:{name}"
    for name in """
        is_np_array is_np_shape np_array np_shape reset_np set_np set_np_shape use_np use_np_array
        use_np_shape""".split()
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = addons.load(f"d2lmini.{_LAZY[name]}")
    elif name in addons.names_of(__name__):
        value = addons.attribute_of(__name__, name)
    else:
        raise base.missing_attribute("d2lmini", name, __all__, f"; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, *addons.names_of(__name__)})


if "IPython" in sys.modules:
    importlib.import_module("d2lmini.widgets.ipython").install()

if environment.read("D2LMINI_VIRTUAL_GPUS"):
    from d2lmini.device.virtual_device import virtual_gpus

    virtual_gpus(environment.read("D2LMINI_VIRTUAL_GPUS"))
