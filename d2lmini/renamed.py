"""Public names that changed: the old spelling works for one version and warns.

>>> import warnings
>>> from d2lmini import autograd
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     autograd.recorded is autograd.record_op
True
>>> print(caught[0].message)
d2lmini.autograd.recorded is now d2lmini.autograd.record_op; the old name goes with the next version
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

#: Old name -> new name, both with their module.
RENAMED = {
    "d2lmini.autograd.recorded": "d2lmini.autograd.record_op",
}


def find_renamed(module: str, name: str) -> Any:
    """The object that was once called `module.name`, with a DeprecationWarning. AttributeError if
    no object had this name."""
    old = f"{module}.{name}"
    if old not in RENAMED:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new = RENAMED[old]
    warnings.warn(
        f"{old} is now {new}; the old name goes with the next version",
        DeprecationWarning,
        stacklevel=3,
    )
    home, _, last = new.rpartition(".")
    return getattr(importlib.import_module(home), last)
