"""ParameterDict: the parameters of a Block by their full names.

>>> from d2lmini import gluon
>>> params = gluon.ParameterDict("net_")
>>> params.get("weight", shape=(2, 3))           # made by the first call, found by the next
Parameter net_weight (shape=(2, 3), dtype=<class 'numpy.float32'>)
>>> params.get("weight") is params["net_weight"]
True
>>> params
net_ (
  Parameter net_weight (shape=(2, 3), dtype=<class 'numpy.float32'>)
)

Layers share parameters when one layer is made with `params=` of another: names that the first
dictionary lacks are looked up in the other. A layer makes a Constant, which is not learnt, with
`self.params.get_constant("shift", [1, 2])`; it moves with the net between devices, and is saved in
the net's files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from d2lmini import initializer
from d2lmini import ndarray as nd
from d2lmini.context import Context
from d2lmini.gluon.parameter import Contexts, Parameter
from d2lmini.gluon.utils import as_default, merge_shapes
from d2lmini.ndarray import NDArray

FileName = str | os.PathLike[str]

_NAMING = " Please make sure source and target networks have the same prefix."


class Constant(Parameter):
    """A parameter with the constant `value` (an NDArray, or numbers) in every context."""

    _kind = "Constant"

    def __init__(self, name: str, value: Any):
        if not isinstance(value, NDArray):
            value = as_default(nd.array(value))
        self.value = value
        how = {"shape": value.shape, "dtype": value.dtype, "init": _Value(value)}
        super().__init__(name, grad_req="null", differentiable=False, **how)


class _Value(initializer.Initializer):
    """Fills with a given array."""

    def __init__(self, value: NDArray):
        super().__init__()
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


class ParameterDict(dict[str, Parameter]):
    """Parameters by name, in order of creation. prefix: `get` puts it before names. shared: another
    ParameterDict, which `get` searches before it makes a parameter."""

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None):
        super().__init__()
        self._prefix = prefix
        self._shared = shared

    @property
    def prefix(self) -> str:
        """The beginning of the names in this dict."""
        return self._prefix

    def __repr__(self) -> str:
        head = f"{self._prefix} " if self._prefix else ""
        return f"{head}(\n" + "\n".join(f"  {p!r}" for p in self.values()) + "\n)"

    __hash__ = object.__hash__  # type: ignore[assignment]

    # -- making and finding ------------------------------------------------------------------------

    def _get_impl(self, name: str) -> Parameter | None:
        """The parameter with that full name, here or in the shared dictionary; otherwise None."""
        if name not in self and self._shared is not None and name in self._shared:
            self[name] = self._shared[name]
        return super().get(name)

    def get(self, name: str, **kwargs: Any) -> Parameter:  # type: ignore[override]
        """The parameter `prefix + name`; a new Parameter with `kwargs` if there is none.

        For an existing parameter kwargs complete unset properties (sizes of 0, init=None);
        AssertionError if kwargs contradict the parameter.
        """
        name = self._prefix + name
        found = self._get_impl(name)
        if found is None:
            found = self[name] = Parameter(name, **kwargs)
            return found
        for key, wanted in kwargs.items():
            stored = getattr(found, key, None)
            if stored is None:
                setattr(found, key, wanted)
            elif wanted is not None and not _agree(found, key, stored, wanted):
                raise AssertionError(
                    f"Cannot retrieve Parameter '{name}' because desired attribute does not match "
                    f"with stored for attribute '{key}': desired '{wanted}' vs stored '{stored}'."
                )
        return found

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """The Constant `prefix + name`; a new one with `value` if there is none (KeyError without a
        value). AssertionError if the name belongs to a Constant with another value, or to a
        parameter that is no Constant. The comparison waits."""
        name = self._prefix + name
        found = self._get_impl(name)
        if found is None:
            if value is None:
                raise KeyError(
                    f"No constant named '{name}'. Please specify value if you want to create a new "
                    "constant."
                )
            found = self[name] = Constant(name, value)
        assert isinstance(found, Constant), (
            f"Parameter '{name}' already exists but it is not a constant."
        )
        if value is not None and value is not found.value:
            new = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
            assert np.array_equal(new.astype(found.value.dtype), found.value.asnumpy()), (
                f"Constant '{name}' already exists but its value doesn't match new value"
            )
        return found

    def update(self, other: ParameterDict) -> None:  # type: ignore[override]
        """Add the parameters of `other`; AssertionError if a name already has another parameter."""
        for name, parameter in other.items():
            assert super().get(name, parameter) is parameter, (
                "Cannot update self with other because they have different Parameters with the "
                f"same name '{name}'"
            )
        super().update(other)

    # -- all at once -------------------------------------------------------------------------------

    def initialize(
        self, init: Any = None, ctx: Contexts = None, verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:  # fmt: skip
        """Initialize all parameters, each with its own initializer, else with `init` (Uniform).
        `verbose` logs which; see Parameter.initialize."""
        init = initializer.create(init)
        for parameter in self.values():
            parameter.initialize(None, ctx, init, force_reinit)
            if verbose:
                logging.info("Initialized %s as %s", parameter.name, parameter.init or init)

    def zero_grad(self) -> None:
        """Set all gradients to zeros."""
        for parameter in self.values():
            parameter.zero_grad()

    def reset_ctx(self, ctx: Context | list[Context]) -> None:
        """Move all parameters to other contexts."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """The contexts of all parameters together."""
        return list(dict.fromkeys(ctx for p in self.values() for ctx in p.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all parameters, as in `params.setattr('grad_req', 'null')`."""
        for parameter in self.values():
            setattr(parameter, name, value)

    # -- files -------------------------------------------------------------------------------------

    def save(self, filename: FileName, strip_prefix: str = "") -> None:
        """Write all values by name, without `strip_prefix`; waits for the values. ValueError for a
        name that does not begin with `strip_prefix`."""
        arrays = {}
        for parameter in self.values():
            if not parameter.name.startswith(strip_prefix):
                raise ValueError(
                    f"Prefix '{strip_prefix}' is to be stripped before saving, but Parameter "
                    f"'{parameter.name}', perhaps shared with another Block, has another one"
                )
            arrays[parameter.name[len(strip_prefix) :]] = parameter._reduce()
        nd.save(filename, arrays)

    def load_dict(
        self, param_dict: dict[str, NDArray], ctx: Contexts = None, allow_missing: bool = False,
        ignore_extra: bool = False, restore_prefix: str = "", filename: FileName | None = None,
        cast_dtype: bool = False, dtype_source: str = "current",
    ) -> None:  # fmt: skip
        """`load` from a dict of arrays."""
        source = "param_dict" if filename is None else f"file: {os.fspath(filename)}"
        arrays = {restore_prefix + bare_name(name): x for name, x in param_dict.items()}
        how = allow_missing, ignore_extra, cast_dtype, dtype_source
        load_values(self, arrays, source, ctx, *how, AssertionError)

    def load(
        self, filename: FileName, ctx: Contexts = None, allow_missing: bool = False,
        ignore_extra: bool = False, restore_prefix: str = "", cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:  # fmt: skip
        """Read values from a file of `save`, or of `export` (names with 'arg:' and 'aux:').

        ctx: contexts for uninitialized parameters (cpu(0)). restore_prefix: prefix for the names in
        the file. cast_dtype: convert the values to the parameter's dtype or, with
        dtype_source='saved', the parameter to the file's dtype. Raises AssertionError for a
        parameter missing from the file, unless allow_missing, for a name that is not in this dict,
        unless ignore_extra, and for a different shape, dtype or context.
        """
        self.load_dict(
            load_named(filename), ctx, allow_missing, ignore_extra, restore_prefix, filename,
            cast_dtype, dtype_source,
        )  # fmt: skip


def load_named(filename: FileName) -> dict[str, NDArray]:
    """The arrays in a file by their names; ValueError for a file without names."""
    loaded = nd.load(filename) or {}
    if not isinstance(loaded, dict):
        raise ValueError(f"{filename} holds arrays without names, so they cannot be matched")
    return loaded


def load_values(
    parameters: Mapping[str, Parameter], arrays: dict[str, NDArray], source: str, ctx: Contexts,
    allow_missing: bool, ignore_extra: bool, cast_dtype: bool, dtype_source: str,
    extra: type[Exception] = ValueError,
) -> None:  # fmt: skip
    """Give the parameters the arrays of the same names. AssertionError for a parameter without an
    array, `extra` for an array without a parameter, unless these are allowed."""
    there = {id(parameters[name]) for name in arrays if name in parameters}
    for name, parameter in parameters.items():
        assert allow_missing or id(parameter) in there, (
            f"Parameter '{name}' is missing in {source}, which contains parameters: "
            f"{_brief(arrays)}. Set allow_missing=True to ignore missing parameters.{_NAMING}"
        )
    for name, array in arrays.items():
        if name in parameters:
            parameters[name]._load_init(array, ctx, cast_dtype, dtype_source)
        elif not ignore_extra:
            raise extra(
                f"Parameter '{name}' loaded from {source} is not present in the net, which has "
                f"{_brief(parameters)}. Set ignore_extra=True to ignore it.{_NAMING}"
            )


def _agree(parameter: Parameter, key: str, stored: Any, wanted: Any) -> bool:
    """True if `get` may ask for `wanted` where the parameter has `stored`. Completes a shape."""
    if key == "shape":
        wanted = (wanted,) if isinstance(wanted, int) else tuple(wanted)
        both = merge_shapes(stored, wanted)
        if both is not None:
            parameter.shape = both
        return both is not None
    if key == "dtype":
        return np.dtype(wanted) == np.dtype(stored)
    return wanted == stored


def bare_name(name: str) -> str:
    """A name without the 'arg:' or 'aux:' of files of `export`."""
    return name[4:] if name.startswith(("arg:", "aux:")) else name


def _brief(names: Any, limit: int = 7) -> str:
    """Names for a message: if many, the first and the last few."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > limit:
        half = limit // 2
        quoted = [*quoted[:half], "...", *quoted[-half:]]
    return ", ".join(quoted)
