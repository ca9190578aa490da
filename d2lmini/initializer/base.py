"""Base class of initializers: a callable that fills an NDArray by the parameter's name.

The end of the name tells the use of a parameter, and so its first values: initializers define the
values of a `..._weight`, a `..._bias` is 0, a `..._gamma` is 1. A parameter with its own
initializer has the initializer in the attributes of its name; the end of the name is then ignored:
`InitDesc("h0", {"__init__": "ones"})`.

>>> from d2lmini import init, nd
>>> bias = nd.full((2,), 7)
>>> init.Normal()(init.InitDesc("dense0_bias"), bias)
>>> bias
<BLANKLINE>
[0. 0.]
<NDArray 2 @cpu(0)>
>>> init.create("xavier", magnitude=2).dumps()
'["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 2}]'

After MXNet's `initializer` and `registry` modules.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from d2lmini.base import families
from d2lmini.base.families import Family
from d2lmini.ndarray import NDArray

#: The end of a name, and the method that fills a parameter with this end.
_BY_END = {
    "weight": "_init_weight", "bias": "_init_bias", "gamma": "_init_gamma", "beta": "_init_beta",
    "min": "_init_zero", "max": "_init_one",
}  # fmt: skip

#: Further ends that MXNet accepts only in names that are plain strings.
_BY_END_OF_STR = {
    "moving_mean": "_init_zero", "moving_var": "_init_one", "moving_inv_var": "_init_zero",
    "moving_avg": "_init_zero",
}  # fmt: skip


class InitDesc(str):
    """A parameter's name, with `attrs` (a dict) and `global_init`, the whole net's initializer.

    attrs["__init__"] is the parameter's own initializer: an object, a name, or JSON text of
    `dumps`.
    """

    attrs: dict[str, Any]
    global_init: Initializer | None

    def __new__(
        cls, name: str, attrs: dict[str, Any] | None = None, global_init: Any = None
    ) -> InitDesc:
        self = super().__new__(cls, name)
        self.attrs = attrs or {}
        self.global_init = global_init
        return self


class Initializer:
    """Base class. Keyword arguments are kept for `dumps`; subclasses define `_init_weight`."""

    def __init__(self, **kwargs: Any):
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[NDArray], str] = _rms

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[NDArray], str] | None = None
    ) -> Initializer:
        """Log each filled array with print_func of the array (its RMS), which waits."""
        self._verbose = verbose
        self._print_func = print_func or _rms
        return self

    def dumps(self) -> str:
        """This initializer as JSON text for `create`: '["normal", {"sigma": 0.01}]'."""
        return json.dumps([type(self).__name__.lower(), self._kwargs], default=_plain)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other)["_kwargs"] == self._kwargs

    def __hash__(self) -> int:
        return hash((type(self), *sorted(self._kwargs)))

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill `arr`, the parameter named `desc`, in place; does not wait.

        Uses desc.attrs["__init__"] if present, otherwise the end of the name. ValueError if neither
        selects an initializer, TypeError unless desc is a string and arr an NDArray.
        """
        if not isinstance(desc, str):
            raise TypeError(
                f"an initializer is called with the parameter's name, got {type(desc).__name__}"
            )
        if not isinstance(arr, NDArray):
            raise TypeError(f"an initializer fills an NDArray, got {type(arr).__name__} for {desc}")
        if not isinstance(desc, InitDesc):
            warnings.warn(
                "calling an initializer with a plain string is deprecated; "
                f"use init.InitDesc({str(desc)!r})",
                DeprecationWarning,
                stacklevel=2,
            )
            self._fill_by_name(desc, arr, _BY_END | _BY_END_OF_STR)
            return
        if desc.global_init is None:
            desc.global_init = self
        own = desc.attrs.get("__init__")
        if own:
            create(own)._init_weight(desc, arr)
            self._verbose_print(desc, own, arr)
        else:
            self._fill_by_name(desc, arr, _BY_END)

    def _fill_by_name(self, name: str, arr: NDArray, ends: dict[str, str]) -> None:
        for end, method in ends.items():
            if name.endswith(end):
                getattr(self, method)(name, arr)
                self._verbose_print(name, end, arr)
                return
        self._init_default(name, arr)

    def _verbose_print(self, desc: str, init: Any, arr: NDArray) -> None:
        if self._verbose:
            logging.info("Initialized %s as %s: %s", desc, init, self._print_func(arr))

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} does not say how to fill {name}: define _init_weight(name, arr)"
        )

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    _init_bias = _init_beta = _init_zero
    _init_gamma = _init_one

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ValueError(
            f"Unknown initialization pattern for {name}. Only names that end in "
            f"{', '.join(_BY_END)} say how they are filled. Give this parameter an initializer of "
            "its own (init=...), or rename it."
        )


def _plain(value: Any) -> Any:
    """An array as numbers in lists."""
    if not isinstance(value, (NDArray, np.ndarray, np.generic)):
        raise TypeError(f"{value!r} cannot be written as JSON text")
    return np.asarray(value.asnumpy() if isinstance(value, NDArray) else value).tolist()


def _rms(arr: NDArray) -> str:
    return str((arr.norm() / sqrt(arr.size)).asscalar())


family = Family(Initializer, "initializer")
register, alias = family.register, family.alias


class Declared(families.Declared, Initializer):
    """Base class of initializers with declared parameters, which `dumps` writes."""

    def __init__(self, *args: Any, **kwargs: Any):
        own, _ = self._take(args, kwargs)
        Initializer.__init__(self, **own)


def create(initializer: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make an initializer from a name or JSON text; an Initializer is returned unchanged.

    None gives `Uniform()`, the default of `initialize`. ValueError for an unknown name (the message
    lists the known names), for JSON text that `dumps` would not write, or for an object with
    further arguments.
    """
    if initializer is None:
        initializer = "uniform"
    if isinstance(initializer, str):
        return family.create(initializer, *args, **kwargs)
    if isinstance(initializer, type) or not callable(initializer):
        raise TypeError(
            "expected an initializer, its name or its JSON text, "
            f"got {initializer!r}; write init.Xavier() or 'xavier'"
        )
    if args or kwargs:
        raise ValueError(f"{initializer!r} is already an object; it takes no further arguments")
    return initializer
