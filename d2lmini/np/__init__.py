"""`np`: arrays with NumPy's functions, defaults and rules, after `mxnet.np`.

>>> from d2lmini import autograd, np, npx
>>> x = np.arange(3)
>>> x.attach_grad()
>>> with autograd.record():
...     y = (2 * x * x).sum()
>>> y.backward()
>>> y, x.grad
(array(10.), array([0., 4., 8.]))

Most functions call an op of `nd` (each module has a table of them), so engine, autograd and
compiler treat both kinds of arrays alike. `npx` has what NumPy has not: layers, devices, switches.

values      dtypes and shapes: what NumPy's rules ask of the ops
elementwise, reductions, shapes, creation
            the functions, by what they do
linalg, random
            `np.linalg`, `np.random`
fallback    functions that NumPy computes from copies
arrays      the class `ndarray`: its operators and methods, and NumPy's own functions on it
"""

from __future__ import annotations

from builtins import bool as bool
from typing import Any

import numpy as _numpy

from d2lmini.base import missing_attribute
from d2lmini.np.arrays import FUNCTIONS, ndarray

e, inf, nan, newaxis, pi = _numpy.e, _numpy.inf, _numpy.nan, None, _numpy.pi
NAN = NaN = nan
PINF, NINF, PZERO, NZERO = inf, -inf, 0.0, -0.0
bool_ = _numpy.bool_
float16, float32, float64 = _numpy.float16, _numpy.float32, _numpy.float64
int8, int32, int64, uint8 = _numpy.int8, _numpy.int32, _numpy.int64, _numpy.uint8
finfo, iinfo, dtype = _numpy.finfo, _numpy.iinfo, _numpy.dtype
set_printoptions = _numpy.set_printoptions

globals().update(FUNCTIONS)

__all__ = ["ndarray", *FUNCTIONS]


def __getattr__(name: str) -> Any:
    if name in ("linalg", "random"):
        import importlib

        return importlib.import_module(f"d2lmini.np.{name}")
    if hasattr(_numpy, name):
        raise AttributeError(
            f"np.{name} is left out of d2lmini, NumPy has it: compute with x.asnumpy()"
        )
    raise missing_attribute("d2lmini.np", name, globals())
