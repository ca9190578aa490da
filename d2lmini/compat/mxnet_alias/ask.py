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

A name that d2lmini has left out gives its reason when it is looked up: in the message of an error,
in a docstring that begins with "Left out", or as a `Missing` object. A name without a reason is
searched in `mxnet_names.txt`, the list of MXNet's public names.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from d2lmini.compat.mxnet_alias import SHORT_NAMES, VERSION, is_alias
from d2lmini.compat.mxnet_alias.unsupported import LeftOutModule, Missing

#: MXNet's public names; tests/tools/mxnet_names.py writes this file.
NAMES = Path(__file__).with_name("mxnet_names.txt")
#: What is said of a name of MXNet that gives no reason.
IN_MXNET_ONLY = f"MXNet {VERSION} has it, d2lmini has not"
_REASON = re.compile(
    r"[Ll]eft out(?: of d2lmini,|:) (?:which |as (?:all of|is|are|all) )?([^>]*)", re.DOTALL
)


def ask(path: str) -> str | None:
    """Why the name with the dotted path ("mxnet.nd.foo") is missing; None if it is here.

    Call it under `install_as_mxnet`. A package of another library (an installed `d2l`) is not
    imported, and its names count as here; so do the attributes of objects that are no modules.
    """
    top, *parts = path.split(".")
    if not is_alias(top):
        return None
    place: Any = import_module(top)
    for depth, part in enumerate(parts, start=1):
        if part.startswith("__") or not _has_names(place):
            return None
        reason = why_missing(place, part)
        name = ".".join([top, *parts[:depth]])
        if reason is None:
            try:
                place = getattr(place, part)
            except ImportError:
                return None
        elif isinstance(place, LeftOutModule):
            return f"left out: {reason}"
        else:
            try:
                place = import_module(name)
            except ImportError:
                return f"left out: {reason}" if reason else _without_reason(name)
    return f"left out: {_reason_in(repr(place))}" if isinstance(place, LeftOutModule) else None


def _has_names(place: Any) -> bool:
    """True for a module, and for an object of the library that is like one, as `nd.contrib`."""
    ours = type(place).__module__.startswith("d2lmini.")
    return isinstance(place, ModuleType) or (ours and not callable(place))


def can_import(path: str) -> bool:
    """True if an import of the name succeeds. What is left out often can be imported, and raises
    when it is used."""
    module, _, name = path.rpartition(".")
    try:
        return not module or hasattr(import_module(module), name) or bool(import_module(path))
    except ImportError:
        return False


def why_missing(place: Any, name: str) -> str | None:
    """The reason that the library gives for having no `name` in a module, class or array; "" if it
    gives none. None if the name is here."""
    try:
        value = getattr(place, name)
    except (AttributeError, NotImplementedError) as problem:
        return _reason_in(str(problem))
    except ImportError:  # it is here, and needs a package that is not installed
        return None
    if isinstance(value, Missing):
        return _reason_in(repr(value))
    return _reason_in((getattr(value, "__doc__", None) or "").partition("\n\n")[0]) or None


def _reason_in(message: str) -> str:
    """The words after "left out", or "" if the message does not have them."""
    found = _REASON.search(" ".join(message.split()))
    return found[1].rstrip(".") if found else ""


def _without_reason(name: str) -> str:
    name = short(name)
    module, _, last = name.rpartition(".")
    names = listed().get(module.partition(".")[2])
    if last in (names or ()) or name in mxnet_modules():
        return IN_MXNET_ONLY
    if names is None and module != "mxnet":
        return "d2lmini has no such name"
    return f"MXNet {VERSION} has no such name either"


def short(path: str) -> str:
    """The path with MXNet's short names: "mxnet.ndarray.dot" -> "mxnet.nd.dot"."""
    top, *parts = path.split(".")
    if top == "mxnet" and parts:
        parts[0] = SHORT_NAMES.get(parts[0], parts[0])
    return ".".join([top, *parts])


@functools.cache
def listed() -> dict[str, list[str]]:
    """MXNet's public names by module, as {"gluon.nn": ["Activation", ...]}."""
    pairs = (line.partition(": ") for line in NAMES.read_text(encoding="utf-8").splitlines())
    return {path: names.split() for path, _, names in pairs if path != "modules"}


@functools.cache
def mxnet_modules() -> frozenset[str]:
    """MXNet's public modules, as "mxnet.gluon.nn"; they are the last line of the file."""
    names = NAMES.read_text(encoding="utf-8").rpartition("\nmodules: ")[2].split()
    return frozenset(short(f"mxnet.{name}") for name in names)
