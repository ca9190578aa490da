"""The environment variables that the library reads: one table, one parser.

All of them are checked when the library is imported, so that a wrong value is an error at once:

>>> import os
>>> os.environ["D2LMINI_EXIT_DEADLINE_S"] = "10s"
>>> read("D2LMINI_EXIT_DEADLINE_S")
Traceback (most recent call last):
    ...
ValueError: the environment variable D2LMINI_EXIT_DEADLINE_S takes seconds, 0 or more, got '10s'
>>> del os.environ["D2LMINI_EXIT_DEADLINE_S"]
>>> read("D2LMINI_EXIT_DEADLINE_S")
10.0

An empty value is an error too, except for texts and for MXNet's own variables, where it is no
value, as in MXNet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple


class _Kind(NamedTuple):
    """parse: ValueError or KeyError for a text that is none of `allowed`."""

    allowed: str
    parse: Callable[[str], Any]


def _choice(*names: str) -> _Kind:
    return _Kind("one of " + ", ".join(names), {name: name for name in names}.__getitem__)


def _number(kind: type, allowed: str, holds: Callable[[Any], bool]) -> _Kind:
    def parse(text: str) -> Any:
        value = kind(text)
        if not holds(value):
            raise ValueError
        return value

    return _Kind(allowed, parse)


_SWITCH = _Kind("0 or 1", {"0": False, "1": True}.__getitem__)
_SECONDS = _number(float, "seconds, 0 or more", lambda value: value >= 0)
_COUNT = _number(int, "a number, 0 or more", lambda value: value >= 0)
_AT_LEAST_1 = _number(int, "a number, 1 or more", lambda value: value >= 1)
_RATE = _number(float, "GB/s, above 0", lambda value: 0 < value < float("inf"))
_LATENCY = _number(float, "seconds, 0 or more", lambda value: 0 <= value < float("inf"))
_TEXT = _Kind("a text", str)
_ENGINES = _choice("NaiveEngine", "ThreadedEngine", "ThreadedEnginePerDevice")

#: Name -> kind, default.
VARIABLES: dict[str, tuple[_Kind, Any]] = {
    "D2LMINI_CPU_WORKERS": (_AT_LEAST_1, None),
    "D2LMINI_ENGINE": (_choice("threaded", "naive", "stepped"), None),
    "D2LMINI_EXIT_DEADLINE_S": (_SECONDS, 10.0),
    "D2LMINI_LINK_GB_S": (_RATE, None),
    "D2LMINI_LINK_LATENCY_S": (_LATENCY, 0.0),
    "D2LMINI_LOGICAL_GPUS": (_AT_LEAST_1, None),
    "D2LMINI_VERIFY": (_SWITCH, False),
    "D2LMINI_VIRTUAL_GPUS": (_COUNT, 0),
    "MXNET_BACKWARD_DO_MIRROR": (_SWITCH, False),
    "MXNET_ENGINE_TYPE": (_ENGINES, None),
    "MXNET_GLUON_REPO": (_TEXT, None),
    "MXNET_HOME": (_TEXT, None),
    "MXNET_UPDATE_ON_KVSTORE": (_SWITCH, True),
}


def read(name: str) -> Any:
    """The value of this variable now, or its default; ValueError for a wrong value."""
    kind, default = VARIABLES[name]
    text = os.environ.get(name)
    if text is None or (not text and (kind is _TEXT or name.startswith("MXNET_"))):
        return default
    try:
        if text:
            return kind.parse(text)
    except (ValueError, KeyError):
        pass
    raise ValueError(f"the environment variable {name} takes {kind.allowed}, got {text!r}")


for _name in VARIABLES:
    read(_name)
