"""Arguments of a constructor as attributes, and methods added to a class later.

>>> class Model(HyperParameters):
...     def __init__(self, lr, steps=2):
...         self.save_hyperparameters(ignore=["steps"])
>>> Model(0.1).lr, hasattr(Model(0.1), "steps")
(0.1, False)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def add_to_class(Class: type) -> Callable[[Any], None]:
    """A decorator that makes a function a method of `Class`."""

    def wrapper(obj: Any) -> None:
        setattr(Class, obj.__name__, obj)

    return wrapper


class HyperParameters:
    """A class whose constructor's arguments become attributes."""

    def save_hyperparameters(self, ignore: Sequence[str] = ()) -> None:
        """Store the arguments and variables of the calling constructor as attributes, and all
        in `hparams`; those in `ignore` and names that begin with _ are left out."""
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        self.hparams = {
            name: value
            for name, value in frame.f_back.f_locals.items()
            if name not in {"self", *ignore} and not name.startswith("_")
        }
        for name, value in self.hparams.items():
            setattr(self, name, value)
