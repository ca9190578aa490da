"""Whether a name of MXNet is in d2lmini, and if not, why: this module asks the library itself.

>>> from d2lmini.compat.mxnet_alias import ask, install_as_mxnet, uninstall
>>> install_as_mxnet()
>>> ask.ask("mxnet.nd.dot") is None
True
>>> print(ask.ask("mxnet.nd.histogram"))
left out: np.histogram(x.asnumpy()) does the same
>>> print(ask.ask("mxnet.nd.histogramm"))
MXNet 1.9.1 has no such name either
>>> uninstall()
"""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Any

from d2lmini.compat.left_out import Missing
from d2lmini.compat.mxnet_alias import VERSION, is_alias


def ask(path: str) -> str | None:
    """Why the name with the dotted path ("mxnet.nd.foo") is missing; None if it is here.

    Call it under `install_as_mxnet`. A package of another library (an installed `d2l`) is not
    imported, and its names count as here; so do the attributes of objects that are no modules.
    """
    top, *parts = path.split(".")
    if not is_alias(top):
        return None
    place: Any = import_module(top)
    for part in parts:
        if part.startswith("__") or not isinstance(place, ModuleType):
            return None
        try:
            place = getattr(place, part)
        except AttributeError as problem:
            # The packages of the books say of their own names that these are left out.
            here = f"MXNet {VERSION} has no such name either"
            return left_out(str(problem)) or (
                here if top == "mxnet" else "d2lmini has no such name"
            )
        except ImportError:  # it is here, and needs a package that is not installed
            return None
        if isinstance(place, Missing):
            return left_out(place.__doc__ or "")
    return None


def left_out(message: str) -> str | None:
    """The reason in the message of a name that is left out; None in other messages."""
    found = re.search(r"left out of d2lmini, (?:as (?:all of |is |are )?)?(.*)", message)
    return f"left out: {found[1]}" if found else None
