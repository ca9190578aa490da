"""Attributes of ops: conversion and checks by the annotation of the parameter.

A graph file holds attributes as strings; users write numbers, tuples and NumPy scalars. All forms
convert to the same value.

>>> converter_of("Shape")("(2, 3)"), converter_of("Shape")([2, 3]), converter_of("bool")("True")
((2, 3), (2, 3), True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from d2lmini.base.dtypes import bfloat16

Shape = tuple[int, ...]
Bounds: TypeAlias = "tuple[int | None, ...]"
Axes: TypeAlias = "int | tuple[int, ...] | None"
DType: TypeAlias = "str | type | np.dtype"
Number: TypeAlias = "int | float"


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def _as_bool(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return bool(value)
    raise TypeError("expected True or False")


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    raise TypeError("expected an integer")


def _as_float(value: Any) -> float:
    if isinstance(value, (str, int, float, np.number, np.bool_)):
        return float(value) + 0.0  # -0.0 is 0.0: calls are remembered by what is equal (`Op.bound`)
    raise TypeError("expected a number")


def _as_number(value: Any) -> int | float:
    if isinstance(value, str):
        return float(value) if set(value.lower()) & set(".en") else int(value)
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if isinstance(value, (int, float)):
        float(value)  # OverflowError for an integer that no dtype holds
        return value
    raise TypeError("expected a number")


def _as_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("expected a string")


def _as_shape(value: Any) -> Shape:
    if value is None:  # an unknown shape in MXNet
        return ()
    return tuple(map(_as_int, _as_bounds(value)))


def _as_bounds(value: Any) -> Bounds:
    if isinstance(value, str):
        parts = [part.strip() for part in value.strip("()[] ").split(",")]
        value = [None if part == "None" else part for part in parts if part]
    elif value is None or isinstance(value, (int, np.integer)):
        value = (value,)
    return tuple(None if v is None else _as_int(v) for v in value)


def _as_axes(value: Any) -> Any:
    axes = tuple(map(_as_int, _as_bounds(value)))
    is_text = isinstance(value, str) and len(axes) == 1 and not {"(", "["} & set(value)
    return axes[0] if is_text or isinstance(value, (int, np.integer)) else axes


def as_dtype(value: Any) -> np.dtype:
    """The NumPy dtype of a name, type or dtype; TypeError if MXNet has no such dtype, ImportError
    for bfloat16 without the package ml_dtypes."""
    # NumPy parses a string as source text unless it is a plain name.
    if isinstance(value, str) and value != "?" and not value.lstrip("<>=|").isidentifier():
        raise TypeError(f"dtype {value[:100]!r} is not one of {', '.join(DTYPES)}")
    dtype = bfloat16() if isinstance(value, str) and value == "bfloat16" else np.dtype(value)
    if dtype.name not in DTYPES:
        raise TypeError(f"dtype {dtype} is not one of {', '.join(DTYPES)}")
    return dtype


DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "bfloat16")

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "bool": _as_bool, "int": _as_int, "float": _as_float, "str": _as_str,
    "Number": _as_number, "Shape": _as_shape, "Bounds": _as_bounds, "Axes": _as_axes,
    "DType": as_dtype,
}  # fmt: skip


def converter_of(annotation: str) -> Callable[[Any], Any]:
    """The converter for `int`, `float | None`, ...; None itself is allowed with `| None`.

    TypeError for an unknown annotation: a type object, where a module does not begin with `from
    __future__ import annotations`, or a name that is not in the table."""
    word = annotation.split("|")[0].strip() if isinstance(annotation, str) else annotation
    if word not in _CONVERTERS:
        raise TypeError(
            f"an attribute of an op is annotated with one of {', '.join(_CONVERTERS)}, as a word "
            f"(from __future__ import annotations), got {annotation!r}"
        )
    convert = _CONVERTERS[word]
    if "None" not in annotation:
        return convert
    return lambda value: None if value is None or value == "None" else convert(value)
