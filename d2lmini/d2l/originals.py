"""Which functions of the library has a program replaced?

>>> import types
>>> from d2lmini.engine.stepped_engine import SteppedEngine
>>> originals = Originals()
>>> clock, SteppedEngine.clock = SteppedEngine.clock, lambda self: 0
>>> originals.replaced()
['d2lmini.engine.stepped_engine.SteppedEngine.clock']
>>> SteppedEngine.clock = clock
>>> originals.replaced()
[]

A result that is to be believed must come from the library as it was imported. `Originals` keeps the
functions that the modules of the library define, and the methods of their classes, with their code
and their default arguments; `replaced` names those that have changed since. Modules that were
imported in between are kept from then on. What the modules do not define is not kept: variables,
instances, other libraries. The library may replace some functions (`OWN`) by its own:

>>> from d2lmini.contrib import amp
>>> with amp.init("float16"):
...     originals.replaced()
[]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: What add-ons replace when they are loaded, and mixed precision while it is on.
OWN = frozenset({
    "BulkSegment.as_one", "NDArray._apply", "Symbol._bind", "Symbol._simple_bind", "Symbol.bind",
    "Symbol.simple_bind",
})  # fmt: skip
#: Where the library's code lies.
HOME = str(Path(__file__).parents[1])


class Originals:
    """The functions of the library as they are now."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[Any, ...]]] = {}  # module -> name -> identity
        self.replaced()

    def replaced(self) -> list[str]:
        """The names of functions that are no longer what they were when they were first seen."""
        changed = []
        for module, content in list(sys.modules.items()):
            if module.partition(".")[0] == "d2lmini" and isinstance(content, ModuleType):
                now = dict(_functions(content))
                known = self._known.setdefault(module, now)
                changed += [
                    f"{module}.{name}"
                    for name, was in known.items()
                    if now.get(name) != was and not (name in OWN and _is_ours(now.get(name)))
                ]
        return sorted(changed)


def _functions(module: ModuleType) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Name and identity of each function that the module defines, and of the methods of its
    classes."""
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionType) and value.__name__ == name:
            yield name, _identity(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield name, (value,)
            for method, own in list(vars(value).items()):
                if isinstance(own, (FunctionType, property, classmethod, staticmethod)):
                    yield f"{name}.{method}", _identity(own)


def _is_ours(identity: tuple[Any, ...] | None) -> bool:
    """True if the function is a function of the library."""
    code = identity[2] if identity else None
    return isinstance(code, CodeType) and code.co_filename.startswith(HOME)


def _identity(value: Any) -> tuple[Any, ...]:
    """The object, and the code and the default arguments of its function."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    return value, function, code, getattr(function, "__defaults__", None)
