"""NumPy's protocols: `numpy.sum(x)` of an `np.ndarray` calls `np.sum`, `numpy.exp(x)` `np.exp`.

>>> import numpy
>>> from d2lmini import np
>>> numpy.exp(np.zeros(2)), numpy.float64(2) * np.ones(1)
(array([1., 1.]), array([2.]))
"""

from __future__ import annotations

from typing import Any

import numpy as onp

from d2lmini.np import creation, elementwise, fallback, products, reductions, selection, shapes
from d2lmini.np.binding import functions_of
from d2lmini.np.fallback import by_numpy

#: Every function of `np` by its name.
FUNCTIONS: dict[str, Any] = fallback.FUNCTIONS | elementwise.FUNCTIONS
for _module in (reductions, shapes, creation, selection, products):
    FUNCTIONS |= functions_of(vars(_module))

#: Names of NumPy's ufuncs that `np` has under another name.
_RENAMED = {"matmul": "matmul", "conjugate": "positive"}


def apply_ufunc(ufunc: Any, method: str, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    """A ufunc of NumPy on arrays of which one is an `np.ndarray`. TypeError for NumPy arrays beside
    it: the program must say where to compute. NotImplemented, which raises TypeError, for what
    `np` has not."""
    if method != "__call__":
        return NotImplemented
    name = _RENAMED.get(ufunc.__name__, ufunc.__name__)
    function = FUNCTIONS.get(name)
    if function is None:
        return NotImplemented
    return function(*inputs, **{k: x[0] if k == "out" else x for k, x in kwargs.items()})


def apply_function(func: Any, types: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy on an `np.ndarray`: that of `np`; NumPy's on copies where `np` has none
    or where NumPy's arrays take part."""
    name = func.__name__
    if func.__module__.startswith("numpy.linalg"):
        from d2lmini.np import linalg

        return getattr(linalg, name)(*args, **kwargs)
    known = None if onp.ndarray in types else FUNCTIONS.get(name)
    return (known or by_numpy(func))(*args, **kwargs)
