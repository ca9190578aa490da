"""What a function of the real MXNet takes: names, types in the words of its docstring, defaults."""

import inspect
import re
from typing import NamedTuple

#: `name : type` in the section Parameters of a docstring.
LINE = re.compile(r"^[ \t]*(\*{0,2}\w+(?:, \w+)*) ?: ?(.+)$", re.M)
#: Parameters that say where and under which name a result is kept, not what it is.
PLACES = {"out", "name", "ctx", "prefix", "params", "stype", "self", "is_int"}


class Parameter(NamedTuple):
    name: str
    kind: str  # the docstring's words: "Shape(tuple), optional, default=[]"
    default: object  # REQUIRED without one
    repeated: bool  # *args


REQUIRED = object()


def parameters(function):
    """The parameters of a function or class that a call may give."""
    kinds = documented(function)
    found = []
    for name, parameter in signature(function).items():
        repeated = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        if name in PLACES or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        default = parameter.default
        kind = kinds.get(name, "")
        if "optional" not in kind and (default is inspect.Parameter.empty or is_null(default)):
            default = REQUIRED
        if default is None and not kind.startswith("{") and kind in ("NDArray", "NDArray[]"):
            default = REQUIRED
        if "required" in kind:
            default = REQUIRED
        found.append(Parameter(name, kind, default, repeated))
    if any(p.repeated for p in found):  # what `*data, **kwargs` hides
        named = {p.name for p in found}
        found += [
            Parameter(name, kind, None, False)
            for name, kind in kinds.items()
            if name not in named | PLACES and "NDArray[]" not in kind
        ]
    return found


def signature(function):
    """Names with inspect's parameters; of a class, also those that its bases take as keywords."""
    classes = function.__mro__[:-1] if isinstance(function, type) else [function]
    found = {}
    for owner in classes:
        try:
            here = inspect.signature(owner).parameters
        except (TypeError, ValueError):
            break
        if owner is function or not owner.__name__.startswith("_"):  # private bases have others
            for name, parameter in here.items():
                found.setdefault(name, parameter)
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in here.values()):
            break
    return found


def documented(function):
    """Types by parameter, in the words of the docstring."""
    owners = function.__mro__ if isinstance(function, type) else [function]
    kinds = {}
    for owner in owners:
        for text in (owner.__doc__, owner.__init__.__doc__ if isinstance(owner, type) else ""):
            section = (text or "").partition("Parameters\n")[2]
            section = re.split(r"\n *(?:Returns|Examples?|Inputs|Outputs)\n", section)[0]
            for names, kind in LINE.findall(section):
                for name in names.split(", "):
                    kinds.setdefault(name.lstrip("*"), kind)
    return kinds


def is_null(value):
    return type(value).__name__ == "_NullType"
