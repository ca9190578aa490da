"""Live views in a notebook, and the pictures that remain in the saved notebook.

base       what all widgets share: show, update, receive messages, close; a picture beneath
refresher  the thread that updates live widgets, ten times a second
watch      `d2lmini.watch()`: the engine at work, live
stepper    `Stepper(program)`: a program operation by operation, in any legal order
dial       `memory_dial(f)`: the limit on pending bytes as a slider, and its effect on f; each run
           is a `background_job`, which can be cancelled
"""

from __future__ import annotations

import importlib
from typing import Any

#: Imported at first use: the name, and the module that has it.
_LAZY = {"MemoryDial": "dial", "Stepper": "stepper", "memory_dial": "dial"}

__all__ = ["MemoryDial", "Stepper", "memory_dial"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"d2lmini.widgets has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"d2lmini.widgets.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
