"""Initializers that delegate: to others by name, or to a file.

>>> from d2lmini import init, nd
>>> mixed = init.Mixed(["out_", ".*"], [init.Zero(), init.Constant(5)])
>>> out, hidden = nd.ones(2), nd.ones(2)
>>> mixed(init.InitDesc("out_weight"), out)
>>> mixed(init.InitDesc("hidden_weight"), hidden)
>>> out.asnumpy(), hidden.asnumpy()
(array([0., 0.], dtype=float32), array([5., 5.], dtype=float32))
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from d2lmini import ndarray as nd
from d2lmini.initializer.base import create
from d2lmini.ndarray import NDArray


class Mixed:
    """Delegates to the initializer of the first regular expression in `patterns` that matches.

    ValueError unless there are as many initializers as patterns.
    """

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Callable]):
        if len(patterns) != len(initializers):
            raise ValueError(
                "Mixed needs one initializer for each pattern, "
                f"got {len(initializers)} for {len(patterns)}"
            )
        self.map = [(re.compile(p), create(i)) for p, i in zip(patterns, initializers, strict=True)]

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill `arr`. ValueError when no pattern matches the name."""
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ValueError(
            f"no pattern of {[p.pattern for p, _ in self.map]} matches the parameter {name}; "
            'add ".*" with a default initializer at the end'
        )


class Load:
    """Values from a `.params` file or a dict of arrays; missing names use `default_init`.

    The prefixes "arg:" and "aux:" are removed from names in the file. AssertionError, as in MXNet,
    for a different shape, and for a missing name without `default_init`.
    """

    def __init__(
        self,
        param: str | dict[str, NDArray],
        default_init: Callable | None = None,
        verbose: bool = False,
    ):
        arrays = nd.load(param) if isinstance(param, str) else param
        if not isinstance(arrays, dict):
            raise TypeError("Load needs named arrays: save them as a dict, or give a dict")
        self.param = {re.sub("^(arg|aux):", "", name): a for name, a in arrays.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill `arr` with the array of this name."""
        if name in self.param:
            found = self.param[name]
            if found.shape != arr.shape:
                raise AssertionError(
                    f"Parameter {name} cannot be initialized from loading: shape mismatch, "
                    f"it is {arr.shape}, the one loaded {found.shape}"
                )
            arr[:] = found
        elif self.default_init is None:
            raise AssertionError(
                f"Cannot initialize {name}: it is not among the {len(self.param)} loaded "
                "parameters, and no default_init was given"
            )
        else:
            self.default_init(name, arr)
        if self.verbose:
            how = "by loading" if name in self.param else "by default"
            logging.info("Initialized %s %s", name, how)
