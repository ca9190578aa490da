"""Initializers that delegate: to others by name, to a file, or to others for each part.

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
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.initializer.base import InitDesc, Initializer, create, register
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


_GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": "ifco", "gru": "rzo"}


@register
class FusedRNN(Initializer):
    """The single vector with all weights and biases of a fused RNN.

    For each layer and direction, the vector holds the weights for the input (G H, n_in) and for the
    state (G H, H), with H = num_hidden and G gates; then all biases, (G H,) each, in the same
    order. The part of each gate is filled like a parameter named "l0_i2h_f_weight", by `init`, or
    by the net's initializer if `init` is None; the forget-gate biases of an LSTM are set to
    `forget_bias`. ValueError for a vector whose length fits no input size.
    """

    def __init__(
        self, init: Any, num_hidden: int, num_layers: int, mode: str,
        bidirectional: bool = False, forget_bias: float = 1.0,
    ):  # fmt: skip
        init = None if init is None else create(init)
        if mode not in _GATES:
            raise ValueError(f"FusedRNN: mode is one of {', '.join(_GATES)}, got {mode!r}")
        super().__init__(
            init=init and init.dumps(), num_hidden=num_hidden, num_layers=num_layers, mode=mode,
            bidirectional=bidirectional, forget_bias=forget_bias,
        )  # fmt: skip
        self._init = init
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._directions = "lr" if bidirectional else "l"
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        init = self._init or getattr(name, "global_init", None)
        if init is None or init is self:
            raise ValueError(
                f"FusedRNN: no init for the parts of {name}; pass one, as init.Xavier()"
            )
        parts = self._parts(name, arr.size)
        end = 0
        for part, shape in parts:
            begin, end = end, end + shape[0] * (shape[1] if len(shape) > 1 else 1)
            piece = arr[begin:end].reshape(shape)  # a view
            if self._mode == "lstm" and part.endswith("_f_bias"):
                piece[:] = self._forget_bias
            else:
                init(InitDesc(part, global_init=getattr(name, "global_init", None)), piece)

    def _parts(self, name: str, size: int) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every part, in storage order."""
        H, L, D = self._num_hidden, self._num_layers, len(self._directions)
        gates = _GATES[self._mode]
        rows = D * len(gates) * H
        # size = rows * (n_in + H + 2) + (L - 1) * rows * (D * H + H + 2)
        n_in, rest = divmod(size - rows * (L - 1) * (D * H + H + 2), rows)
        n_in -= H + 2
        if rest or n_in < 1:
            raise ValueError(
                f"FusedRNN: {name} has {size} numbers, which is no {self._mode} of {L} layers, "
                f"{D} directions and {H} hidden units"
            )
        weights: list[tuple[str, tuple[int, ...]]] = []
        biases: list[tuple[str, tuple[int, ...]]] = []
        for layer in range(L):
            for direction in self._directions:
                for source, inner in (("i2h", D * H if layer else n_in), ("h2h", H)):
                    for gate in gates:
                        part = f"{direction}{layer}_{source}_{gate}_".replace("__", "_")
                        weights.append((part + "weight", (H, inner)))
                        biases.append((part + "bias", (H,)))
        return weights + biases
